"""A team at work on one case: a whole run, one worker's task, or only the plan. What it is worth is not known here."""

import time
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.errors import ChargehandError, Invalid
from chargehand.evals.cases import Case, kind_of
from chargehand.evals.scores import Score
from chargehand.models.find import Lookup
from chargehand.models.model import Model
from chargehand.runtime.draft import Draft, draft
from chargehand.runtime.driver import Driver, checked
from chargehand.runtime.plain_answer import spoken
from chargehand.runtime.result import Result, result_of
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms.plan import Plan, Task, TaskId

Fresh: TypeAlias = Callable[[], Supervisor]
ALONE = TaskId("t1")
_SEED = 7


class Bench(Struct, frozen=True):
    """What cases are tried on: a new team for each, so that none sees what another one left in memory.

    `judge` judges rubrics; `lookup` finds the keys of models that a case names. `folder` is where graders lie.
    """

    fresh: Fresh
    judge: Model
    lookup: Lookup
    folder: str = ""


class Tried(Struct, frozen=True):
    """A run and how long it took."""

    result: Result
    seconds: float


def unattended(team: Supervisor) -> Supervisor:
    """The same team, whose plans nobody has to approve: nobody is there."""
    return team.bounded(policy=structs.replace(team.policy, approve=False))


async def carried_out(team: Supervisor, case: Case, worker: str = "") -> Tried:
    """The request of a case to its end, in a journal of its own; by one worker alone where one is named."""
    if worker and worker not in team.roster.names():
        raise Invalid(f"there is no worker {worker!r} on team {team.name}; there are {', '.join(team.roster.names())}")
    plan = Plan((Task(ALONE, case.request, worker),), "forward") if worker else None
    team, journal, now = unattended(team), MemoryJournal(), time.time()
    request = checked(team.request(case.request, now, plan=plan, seed=_SEED), now)
    began = time.perf_counter()
    async with team.crew() as crew:
        found = await Driver(journal, crew).start("eval", request)
        result = spoken(result_of(found, await journal.read("eval"), ""))
    return Tried(result, time.perf_counter() - began)


async def drafted(team: Supervisor, case: Case) -> tuple[Draft, float]:
    """The plan for the request of a case, and how long making it took."""
    began = time.perf_counter()
    async with team.crew() as crew:
        found = await draft(crew, team.request(case.request, time.time(), seed=_SEED))
    return found, time.perf_counter() - began


def untried(case: Case, error: ChargehandError) -> Score:
    """What there is to say of a case that could not be tried: it has not passed."""
    said = f"it could not be tried: {error}"
    return Score(case.name, kind_of(case), passed=False, why=(said,), error=True, request=case.request)
