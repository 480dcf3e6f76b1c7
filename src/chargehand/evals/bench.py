"""What a case is tried on: a new team, which does not act on the world unless it is allowed to."""

import copy
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from msgspec import Struct, structs

from chargehand.agents.worker import Worker
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.evals.cases import Case, kind_of
from chargehand.evals.report import Score
from chargehand.models.model import Model
from chargehand.models.resolve import Lookup
from chargehand.team import Team
from chargehand.text.names import did_you_mean
from chargehand.tools.tool import Tool

RUN_SEED = 7
TeamFactory: TypeAlias = Callable[[], Team]
_T = TypeVar("_T")


class Bench(Struct, frozen=True):
    """What cases are tried on: a new team for each, so that none sees what another left in memory."""

    team_factory: TeamFactory
    lookup: Lookup
    """Finds the keys of models that a case names."""
    judge: Model | None = None
    """Judges rubrics."""
    folder: str = ""
    """Where grader functions are looked for."""
    act: bool = False
    """Whether tools that change something are called."""
    seed: int = 0

    def new_team(self) -> Team:
        team = self.team_factory()
        return team if self.act else require_approval(team)


def failed_to_try(case: Case, error: Exception) -> Score:
    """The score of a case that could not be tried: it has not passed."""
    named = "" if isinstance(error, ChargehandError) else f"{type(error).__name__}: "
    why = f"it could not be tried: {named}{error}"
    return Score(case=case.name, kind=kind_of(case), passed=False, why=(why,), error=True, request=case.request)


def check_workers(team: Team, names: Iterable[str]) -> None:
    """Raise Invalid for a worker that a case names and the team does not have."""
    if team.supervisor.factory is not None:
        return  # the names of workers that are made during a run are not known yet
    known = [worker.name for worker in team.spec.workers]
    for name in names:
        if name not in known:
            raise Invalid(f"there is no worker {name!r} on team {team.name}; {did_you_mean(name, known)}")


# --- a team that does not act


def require_approval(team: Team) -> Team:
    """The same team, and the teams inside it, with approval needed for every tool that changes something.

    A tool that changes something and declares its effect as `read` is believed. Memory tools are left as they are: a
    case has a memory of its own.
    """
    spec = team.spec
    supervisor = spec.supervisor
    factory = supervisor.factory
    if factory is not None:
        factory = structs.replace(factory, tools=tuple(map(_tool_with_approval, factory.tools)))
        supervisor = structs.replace(supervisor, factory=factory)
    team = copy.copy(team)
    workers = tuple(map(_worker_with_approval, spec.workers))
    team.spec = structs.replace(spec, workers=workers, supervisor=supervisor)
    return team


def _worker_with_approval(worker: Worker) -> Worker:
    inner = worker.team
    if inner is not None and not isinstance(inner, Team):
        raise Refused(
            f"whether {worker.name}, a team of another kind, changes something is not known; try it with --act"
        )
    if worker.call is not None:
        raise Refused(f"whether the function of {worker.name} changes something is not known; try it with --act")
    if inner is not None:
        inner = require_approval(inner)
    return structs.replace(worker, tools=tuple(map(_tool_with_approval, worker.tools)), team=inner)


def _tool_with_approval(tool: _T) -> _T:
    if isinstance(tool, Tool) and tool.effect != "read" and not tool.approve:
        return structs.replace(tool, approve=True)
    return tool
