"""Teams and their workers as models: `team/<name>`, `team/<name>:<worker>`, and both without `team/`."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.models.known import BUILT_IN
from chargehand.server.problem import Problem
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply
from chargehand.team import Supervisor

_PREFIX = "team/"
_NAMED = 20


class ModelTold(Struct, frozen=True):
    id: str
    name: str
    created: int
    object: str = "model"
    owned_by: str = "chargehand"


class ListTold(Struct, frozen=True):
    data: tuple[ModelTold, ...]
    object: str = "list"


class Called(Struct, frozen=True):
    """A team that was called by the name of a model; with `worker`, only that one of it."""

    id: str
    team: Supervisor
    worker: str = ""

    @property
    def reads_facts(self) -> bool:
        """Whether nobody in it reads more than the request."""
        return all(one.model == BUILT_IN for one in self.team.members)

    @property
    def aloud(self) -> str:
        """The work whose words become the answer as they come.

        What a worker says before it calls a tool is no answer, so one who has tools is heard at the end.
        """
        tools = any(one.tools for one in self.team.members if one.name == self.worker)
        return "answer" if not self.worker else "" if tools else "attempt"


def called(tenant: Tenant, name: str) -> Called:
    """Who is meant; 404 if nobody is. A team's whole name goes before a worker's."""
    teams = tenant.part(Teams).teams
    plain = name.removeprefix(_PREFIX)
    if plain in teams:
        return Called(name, teams[plain])
    head, _, worker = plain.rpartition(":")
    if head in teams and any(one.name == worker for one in teams[head].members):
        return Called(name, teams[head], worker)
    there = [one.id for one in _listed(tenant)]
    more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    said = f"there is no model {name[:100]!r}; there are {', '.join(there[:_NAMED])}{more}"
    raise Problem(404, "model_not_found", said)


async def listing(_request: Request, tenant: Tenant) -> Response:
    return reply(ListTold(_listed(tenant)))


async def show(request: Request, tenant: Tenant) -> Response:
    found = called(tenant, part(request, "model"))
    return reply(_told(f"{_PREFIX}{found.team.name}", found.team.name, found.worker))


def _listed(tenant: Tenant) -> tuple[ModelTold, ...]:
    """Teams first: they are what is mostly wanted."""
    teams = tenant.part(Teams).teams.values()
    whole = [_told(f"{_PREFIX}{one.name}", one.name) for one in teams]
    return (*whole, *(_told(f"{_PREFIX}{one.name}", one.name, who.name) for one in teams for who in one.members))


def _told(name: str, team: str, worker: str = "") -> ModelTold:
    # a team is not made at an instant: it is as its file says whenever it is asked
    return ModelTold(f"{name}:{worker}" if worker else name, f"{worker} of {team}" if worker else team, 0)
