"""Runs of a house, the latest first. What one page costs does not grow with the journal."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api.reading import Lines, damaged_line, seen, shown
from chargehand.server.api.shapes import Count, Money, RunLine, RunPage, RunShown, State
from chargehand.server.api.table import Operation, asked
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply
from chargehand.stores.journal import DamagedRun, Ends
from chargehand.terms.events import RunEnded, RunRequested

_FIRST = 2**53
_AT_ONCE = 100
_MOST_LOOKED_AT = 2000
_MOST_READ = 300  # runs whose entries have to be read for one page


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """`text` occurs in the goal or the name; `since` is an instant; `cost` the least a run has cost, in dollars."""

    team: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    state: State | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=200)] = ""
    since: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    cost: Money = 0.0
    nested: bool = False
    before: Count = _FIRST
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


async def listing(request: Request, tenant: Tenant) -> Response:
    wanted = asked(request, Wanted)
    before = wanted.before
    found: list[RunLine] = []
    looked = read = 0
    lines = tenant.part(Lines)
    size = max(_AT_ONCE, wanted.limit) if _chooses(wanted) else wanted.limit
    while looked < _MOST_LOOKED_AT:
        page = await tenant.journal.latest(before=before, limit=size)
        for one in page:
            before = one.number
            looked += 1
            if isinstance(one, DamagedRun):
                line = await damaged_line(tenant, one.run, one.damage)
                if _chooses_other(line, wanted):
                    continue
            elif not _fits(one, wanted):
                continue
            else:
                read += not lines.knows(one.run)
                line = await lines.of(one.run, over=isinstance(one.last.event, RunEnded))
            if wanted.state in (UNSET, line.state) and line.spent.usd >= wanted.cost:
                found.append(line)
            if len(found) >= wanted.limit or read >= _MOST_READ:
                return reply(RunPage(tuple(found), before))
        if len(page) < size:
            return reply(RunPage(tuple(found), None))
    return reply(RunPage(tuple(found), before))


def _chooses(wanted: Wanted) -> bool:
    """Whether more runs must be looked at than are told."""
    return structs.replace(wanted, before=0, limit=1) != Wanted(before=0, limit=1)


def _chooses_other(line: RunLine, wanted: Wanted) -> bool:
    """Whether a damaged run is left out, as far as anything is known of it."""
    if line.parent and not wanted.nested:
        return True
    if wanted.team not in (UNSET, line.team) or line.started < wanted.since:
        return True
    text = wanted.text.casefold()
    return bool(text) and text not in line.goal.casefold() and text not in line.run.casefold()


def _fits(one: Ends, wanted: Wanted) -> bool:
    """What can be told from the first entry alone."""
    requested = one.first.event
    if not isinstance(requested, RunRequested) or (requested.parent is not None and not wanted.nested):
        return False
    if wanted.team not in (UNSET, requested.team) or one.first.at < wanted.since:
        return False
    text = wanted.text.casefold()
    return not text or text in requested.goal.casefold() or text in one.run.casefold()


async def show(request: Request, tenant: Tenant) -> Response:
    return reply(shown(tenant, await seen(tenant, part(request, "run"))))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs",
        call=listing,
        name="list_runs",
        group="runs",
        query=Wanted,
        told=RunPage,
        summary="Runs, the latest first; `before` is the `next` of the page before.",
    ),
    Operation(
        method="GET",
        path="/api/runs/{run}",
        call=show,
        name="show_run",
        group="runs",
        told=RunShown,
        problems=(404,),
        summary="A run as it stands: plan, tasks, attempts, cost, gaps, answer, and the question it asks.",
    ),
)
