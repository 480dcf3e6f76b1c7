"""A team at work on one case: a whole run, one worker's task, or only the plan. What it is worth is not known here."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.errors import ChargehandError, Invalid
from chargehand.evals.cases import Case, kind_of
from chargehand.evals.caution import cautious
from chargehand.evals.scores import Score
from chargehand.models.find import Lookup
from chargehand.models.model import Model
from chargehand.runtime.draft import Draft, draft
from chargehand.runtime.driver import Driver, checked
from chargehand.runtime.plain_answer import spoken
from chargehand.runtime.result import Result, result_of
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms.budget import usd_of
from chargehand.terms.plan import Plan, Task, TaskId

Fresh: TypeAlias = Callable[[], Supervisor]
Each: TypeAlias = Callable[[Sequence[Case], Callable[[Case], Awaitable[list[Score]]]], Awaitable[list[Score]]]
"""Whoever tries many cases by a function for one: some at once, scores in the order of the cases."""
ALONE = TaskId("t1")
_SEED = 7
_ANY = 10**15  # more than anybody spends


class Bench(Struct, frozen=True):
    """What cases are tried on: a new team for each, so that none sees what another one left in memory.

    `judge` judges rubrics; `lookup` finds the keys of models that a case names. `folder` is where graders lie.
    Tools that change something are called only with `act`.
    """

    fresh: Fresh
    judge: Model
    lookup: Lookup
    folder: str = ""
    act: bool = False

    def team(self) -> Supervisor:
        """A new one, that does to the world what it may."""
        return self.fresh() if self.act else cautious(self.fresh())


class Tried(Struct, frozen=True):
    """A run and how long it took."""

    result: Result
    seconds: float


def unattended(team: Supervisor) -> Supervisor:
    """The same team, whose plans nobody has to approve: nobody is there."""
    return team.bounded(policy=structs.replace(team.policy, approve=False))


def expected(team: Supervisor, names: Iterable[str]) -> None:
    """Raise Invalid for a worker whom a case names and the team does not have: it would never be as wanted."""
    if team.hiring.factory is not None:
        return  # whom it makes has a name that nobody knows yet
    known = [one.name for one in team.hiring.workers]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise Invalid(f"there is no worker {name!r} on team {team.name}; {hint}")


async def carried_out(team: Supervisor, case: Case, worker: str = "") -> Tried:
    """The request of a case to its end, in a journal of its own; by one worker alone where one is named."""
    expected(team, (*case.workers, *([worker] if worker else ())))
    alone = team.hiring.many.spread((Task(ALONE, case.request, worker),))
    plan = Plan(alone, "forward") if worker else None
    team, journal, now = await unattended(team).keep_budget(), MemoryJournal(), time.time()
    request = checked(team.request(case.request, now, plan=plan, seed=_SEED), now)
    began = time.perf_counter()
    async with team.crew() as crew:
        found = await Driver(journal, crew).start("eval", request)
        result = spoken(result_of(found, await journal.read("eval"), ""))
    return Tried(result, time.perf_counter() - began)


async def check_prices(team: Supervisor) -> None:
    """Raise Invalid where nobody knows what the team's models cost: what they spend would be taken for nothing."""
    budget = team.budget if team.budget.usd is not None else structs.replace(team.budget, usd=usd_of(_ANY))
    async with team.bounded(budget=budget).crew():
        return


async def drafted(team: Supervisor, case: Case) -> tuple[Draft, float]:
    """The plan for the request of a case, and how long making it took."""
    began = time.perf_counter()
    team = await team.keep_budget()
    async with team.crew() as crew:
        found = await draft(crew, team.request(case.request, time.time(), seed=_SEED))
    return found, time.perf_counter() - began


def untried(case: Case, error: Exception) -> Score:
    """What there is to say of a case that could not be tried: it has not passed."""
    named = "" if isinstance(error, ChargehandError) else f"{type(error).__name__}: "
    said = f"it could not be tried: {named}{error}"
    return Score(case.name, kind_of(case), passed=False, why=(said,), error=True, request=case.request)
