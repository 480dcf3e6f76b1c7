"""Background workers at work: whatever is due is a run of its own in the journal of the team, started or gone on with.

Which turns are new to whom is read off the journal by `turns`. Nothing here can fail a turn: those are over.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol, Self

from msgspec import Struct, structs

from chargehand.agents.background import INSTRUCTION, looking_back
from chargehand.agents.crew import Crew
from chargehand.errors import Refused, RunBusy
from chargehand.runtime.driver import Driver, Outcome
from chargehand.runtime.turns import TRIES, Due, covers, due, told
from chargehand.stores.journal import Journal
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING
from chargehand.terms.plan import Plan, Task, TaskId
from chargehand.terms.policy import Seconds
from chargehand.terms.roster import Agent, Roster

logger = logging.getLogger(__name__)

_PATIENCE: Seconds = 30 * 86_400.0
"""How long a run that was left may lie. The time it works is bounded by its worker's `timeout`, for each attempt."""

_MOST = 20  # runs of one worker at a time; whoever has more to look back on goes on the next time
_TASK = TaskId("t1")


class Team(Protocol):
    """What is needed of a team. `aside` are those who work after turns, and after how many each."""

    name: str
    aside: tuple[tuple[Agent, int], ...]

    def request(self, goal: str, now: float) -> ev.RunRequested: ...

    async def keep_budget(self) -> Self: ...

    def budget_notes(self) -> Sequence[ev.Event]: ...

    def crew(self) -> AbstractAsyncContextManager[Crew]: ...


class Rested(Struct, frozen=True):
    """What came of one background run. `again`: it failed, and is tried once more the next time."""

    worker: str
    outcome: Outcome
    covered: tuple[str, ...]
    again: bool = False


async def rest(team: Team, journal: Journal, begun: Callable[[str], None] | None = None) -> list[Rested]:
    """Do whatever is due now. `begun` is told who sets to work, before that costs anything."""
    found: list[Rested] = []
    async with AsyncExitStack() as stack:
        driver: Driver | None = None
        for agent, every in team.aside:
            for _ in range(_MOST):
                wanted = await due(journal, team.name, agent.name, every)
                if wanted is None:
                    break
                if begun is not None:
                    begun(agent.name)
                if driver is None:
                    team = await team.keep_budget()
                    driver = Driver(journal, await stack.enter_async_context(team.crew()))
                one = await _carried(team, driver, agent, wanted)
                if one is None:
                    break
                found.append(one)
                if one.again and not wanted.resumes:
                    break
    return found


async def _carried(team: Team, driver: Driver, agent: Agent, wanted: Due) -> Rested | None:
    """A run, carried to its end; None if somebody else is at it, or it was done meanwhile."""
    journal = driver.journal
    try:
        if wanted.resumes:
            outcome = await driver.resume(wanted.run)
        else:
            request = await _request(team, journal, agent, wanted)
            outcome = await driver.start(wanted.run, request, also=(*team.budget_notes(), *_notes(wanted)))
    except RunBusy:
        return None
    except Refused:
        await _unless_foreign(team, journal, agent.name, wanted.run)
        return None
    good = outcome.ending in ("complete", "partial")
    if not good:
        logger.warning("background run %s: %s (%s)", outcome.run, outcome.ending, outcome.reason)
    again = not good and outcome.question is None and await _may_try(team, journal, agent.name)
    return Rested(agent.name, outcome, wanted.covered, again)


async def _may_try(team: Team, journal: Journal, worker: str) -> bool:
    later = await due(journal, team.name, worker, every=2**31)  # so many new turns there never are
    return later is not None


async def _unless_foreign(team: Team, journal: Journal, worker: str, run: str) -> None:
    """Raise Refused if a run of this name is there and is nothing of ours: nobody would ever get past it."""
    first = (await journal.read(run))[0].event
    if not isinstance(first, ev.RunRequested) or not covers(first, team.name, worker):
        raise Refused(f"a run is called {run!r}, as the next background run of {worker} would be; rename the worker")


async def _request(team: Team, journal: Journal, agent: Agent, wanted: Due) -> ev.RunRequested:
    """The turns as they were, for one worker alone, within the team's budget for a run."""
    now = time.time()
    turns = [(run, await told(journal, run)) for run in wanted.covered]
    base = team.request(looking_back(agent.name, turns), now)
    limits = structs.replace(base.policy.limits, replans=0)
    policy = structs.replace(base.policy, limits=limits, refine=False, approve=False, answer=0.0)
    return structs.replace(
        base,
        roster=Roster((agent,)),
        policy=policy,
        plan=Plan((Task(_TASK, INSTRUCTION, agent.name),), "none"),
        budget=structs.replace(base.budget, floor=NOTHING, seconds=None),
        deadline=now + _PATIENCE,
        turns=wanted.turns,
    )


def _notes(wanted: Due) -> tuple[ev.Noted, ...]:
    if not wanted.given_up:
        return ()
    named = ", ".join(wanted.given_up[:5]) + (", …" if len(wanted.given_up) > 5 else "")
    return (
        ev.Noted(f"turns that nobody looks back on any more, after {TRIES} failures, or one that had effects: {named}"),
    )
