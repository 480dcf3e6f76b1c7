"""Teams: who there is, what they may use, and what a plan for a goal would take."""

import asyncio
import time

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.runtime.draft import draft
from chargehand.server.api.shapes import DraftAsked, Drafted, Limits, TeamLine, TeamList, TeamShown, WorkerShown
from chargehand.server.api.table import Operation, sent
from chargehand.server.problem import unknown
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply
from chargehand.team import Supervisor
from chargehand.terms.roster import Agent

_AT_ONCE = 8


class Drafts:
    """So many plans are drafted at once; others wait. `house.part(Drafts)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self.turn = asyncio.Semaphore(_AT_ONCE)


async def listing(_request: Request, tenant: Tenant) -> Response:
    teams = tenant.part(Teams).teams.values()
    return reply(TeamList(tuple(TeamLine(one.name, way_of(one), _names(one)) for one in teams)))


async def show(request: Request, tenant: Tenant) -> Response:
    team = tenant.part(Teams).teams.get(part(request, "team"))
    if team is None:
        raise unknown("team", part(request, "team"))
    budget = team.budget
    limits = team.policy.limits
    may = Limits(
        seconds=team.timeout,
        usd=budget.usd,
        tokens=budget.tokens,
        calls=budget.calls,
        tasks=limits.tasks,
        depth=limits.depth,
        width=limits.width,
    )
    return reply(
        TeamShown(
            name=team.name,
            way=way_of(team),
            workers=tuple(map(_worker, team.members)),
            examples=team.examples,
            limits=may,
            approve=team.policy.approve,
            memory=remembers(team),
            notice=team.notice,
        )
    )


async def plan(request: Request, tenant: Tenant) -> Response:
    """Nobody works, but a model may be asked."""
    wanted = await sent(request, DraftAsked)
    served = await tenant.part(Teams).of(part(request, "team"))
    tenant.runs.check()
    team = await served.keep_budget()
    async with tenant.part(Drafts).turn:
        found = await draft(served.crew, team.request(wanted.goal, time.time()))
    notes = tuple(note.text for note in team.budget_notes())
    found = structs.replace(found, notes=(*notes, *found.notes))
    usd = None if found.spent is None else found.spent.micros / 1_000_000
    told = structs.asdict(found)
    del told["spent"]
    return reply(Drafted(**told, usd=usd))


# pyright: reportPrivateUsage=false
# a team does not say otherwise whether it remembers


def way_of(team: Supervisor) -> str:
    return str(type(team.hiring.way).__struct_config__.tag)


def remembers(team: Supervisor) -> bool:
    return team._shared is not None  # noqa: SLF001


def _names(team: Supervisor) -> tuple[str, ...]:
    return tuple(one.name for one in team.members)


def _worker(one: Agent) -> WorkerShown:
    return WorkerShown(
        name=one.name,
        description=one.description,
        tags=one.tags,
        tools=one.tools,
        model=one.model,
        capacity=one.capacity,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/teams",
        call=listing,
        name="list_teams",
        group="teams",
        told=TeamList,
        summary="The teams of this server.",
    ),
    Operation(
        method="GET",
        path="/api/teams/{team}",
        call=show,
        name="show_team",
        group="teams",
        told=TeamShown,
        problems=(404,),
        summary="A team: its workers, how it is led, examples, limits.",
    ),
    Operation(
        method="POST",
        path="/api/teams/{team}/plan",
        call=plan,
        name="draft_plan",
        group="teams",
        scope="run",
        asked=DraftAsked,
        told=Drafted,
        problems=(404, 422, 429, 503),
        summary="A plan for a goal, checked and reckoned; nothing is done about it.",
    ),
)
