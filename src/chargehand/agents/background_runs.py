"""Background workers at work: whatever is due is a run of its own in the journal of the team, started or gone on with.

Which turns are new to whom is read off the journal by `turns`. Nothing here can fail a turn: those are over.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol, Self

from msgspec import Struct, structs

from chargehand.agents.background import INSTRUCTION, turns_material
from chargehand.agents.result import Result, read_result
from chargehand.agents.turns import TRIES, Due, covers, due, told
from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Seconds
from chargehand.engine.roster import Agent, Roster
from chargehand.errors import Refused, RunBusy
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner

logger = logging.getLogger(__name__)

_PATIENCE: Seconds = 30 * 86_400.0
"""How long a run that was left may lie. The time it works is bounded by its worker's `timeout`, for each attempt."""

_MOST = 20  # runs of one worker at a time; whoever has more to look back on goes on the next time
_TASK = TaskId("t1")


class BackgroundTeam(Protocol):
    """What is needed of a team. `aside` are those who work after turns, and after how many each."""

    name: str
    aside: tuple[tuple[Agent, int], ...]
    turn_signal: "TurnSignal"

    @property
    def notice(self) -> str: ...

    def request(self, goal: str, now: float) -> ev.RunRequested: ...

    async def keep_budget(self) -> Self: ...

    def budget_notes(self) -> Sequence[ev.Event]: ...

    def executor(self) -> AbstractAsyncContextManager[Executor]: ...

    def open_journal(self) -> AbstractAsyncContextManager[Journal]: ...


class Rested(Struct, frozen=True):
    """What came of one background run. `again`: it failed, and is tried once more the next time."""

    worker: str
    outcome: Outcome
    covered: tuple[str, ...]
    again: bool = False


async def rest(team: BackgroundTeam, journal: Journal, begun: Callable[[str], None] | None = None) -> list[Rested]:
    """Do whatever is due now. `begun` is told who sets to work, before that costs anything."""
    found: list[Rested] = []
    async with AsyncExitStack() as stack:
        driver: Runner | None = None
        for agent, every in team.aside:
            for _ in range(_MOST):
                wanted = await due(journal, team.name, agent.name, every)
                if wanted is None:
                    break
                if begun is not None:
                    begun(agent.name)
                if driver is None:
                    team = await team.keep_budget()
                    driver = Runner(journal, await stack.enter_async_context(team.executor()))
                one = await _carried(team, driver, agent, wanted)
                if one is None:
                    break
                found.append(one)
                if one.again and not wanted.resumes:
                    break
    return found


async def _carried(team: BackgroundTeam, driver: Runner, agent: Agent, wanted: Due) -> Rested | None:
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


async def _may_try(team: BackgroundTeam, journal: Journal, worker: str) -> bool:
    later = await due(journal, team.name, worker, every=2**31)  # so many new turns there never are
    return later is not None


async def _unless_foreign(team: BackgroundTeam, journal: Journal, worker: str, run: str) -> None:
    """Raise Refused if a run of this name is there and is nothing of ours: nobody would ever get past it."""
    first = (await journal.read(run))[0].event
    if not isinstance(first, ev.RunRequested) or not covers(first, team.name, worker):
        raise Refused(f"a run is called {run!r}, as the next background run of {worker} would be; rename the worker")


async def _request(team: BackgroundTeam, journal: Journal, agent: Agent, wanted: Due) -> ev.RunRequested:
    """The turns as they were, for one worker alone, within the team's budget for a run."""
    now = time.time()
    turns = [(run, await told(journal, run)) for run in wanted.covered]
    count = "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
    base = team.request(f"{agent.name} looks back on {count}.", now)
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
        inputs=turns_material(turns),
        outside=True,
    )


def _notes(wanted: Due) -> tuple[ev.Noted, ...]:
    if not wanted.given_up:
        return ()
    named = ", ".join(wanted.given_up[:5]) + (", …" if len(wanted.given_up) > 5 else "")
    return (
        ev.Noted(f"turns that nobody looks back on any more, after {TRIES} failures, or one that had effects: {named}"),
    )


# --- as methods of a team


class TurnSignal:
    """Set when a turn is over, for subscribers that may live on other event loops."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def notify(self) -> None:
        for event, loop in tuple(self._waiting.items()):
            loop.call_soon_threadsafe(event.set)

    def subscribe(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        self._waiting.pop(event, None)


async def rest_team(team: BackgroundTeam) -> tuple[Result, ...]:
    """Do whatever background work of a team is due, and wait for it; see `Team.rest`."""
    if not team.aside:
        return ()
    async with team.open_journal() as journal:
        rested = await rest(team, journal)
        return tuple([read_result(one.outcome, await journal.read(one.outcome.run), team.notice) for one in rested])


@asynccontextmanager
async def work_in_background(team: BackgroundTeam) -> AsyncGenerator[None]:
    """While inside, background work of a team is done as it becomes due; see `Team.background`."""
    turn_over = team.turn_signal.subscribe()
    over = asyncio.Event()
    turn_over.set()  # there may be something left from last time
    try:
        async with BareTaskGroup() as jobs:
            jobs.create_task(_attend(team, turn_over, over))
            yield
            over.set()
            turn_over.set()
    finally:
        team.turn_signal.unsubscribe(turn_over)


async def _attend(team: BackgroundTeam, turn_over: asyncio.Event, over: asyncio.Event) -> None:
    while True:
        await turn_over.wait()
        turn_over.clear()
        last = over.is_set()
        try:
            await rest_team(team)
        except Exception as error:  # noqa: BLE001 - whatever it is: it is due still, and no turn fails because of it
            logger.warning("background workers of %s: %s: %s", team.name, type(error).__name__, error)
        if last:
            return
