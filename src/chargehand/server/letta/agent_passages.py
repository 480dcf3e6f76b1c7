"""The archival memory of an agent: all archives it has, taken together. What it adds goes into the first."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.archives import Passage
from chargehand.server.letta.agents import found
from chargehand.server.letta.holdings import archive_of, archives_of
from chargehand.server.letta.mapping import hit_told, passage_made, passage_told
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.passages import filtered, kept
from chargehand.server.letta.shapes import FoundTold, PassageSent
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, number, part, reply

_MOST_FOUND = 100
_ALL = 1_000_000


class SearchTold(Struct):
    count: int
    results: list[FoundTold]


def add(api: Api) -> None:
    path = "/v1/agents/{agent}/archival-memory"
    api.add("POST", path, create)
    api.add("GET", path, listing, "read")
    api.add("GET", f"{path}/search", search, "read")
    api.add("DELETE", f"{path}/{{passage}}", delete)


async def create(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    sent = await body(request, PassageSent)
    passage = passage_made(sent)
    if not passage.text.strip():
        raise Problem(422, "invalid", "text is empty; there is nothing to keep")
    archive = await archive_of(tenant, profile)
    return reply([passage_told(one) for one in await kept(tenant, archive, [passage])])


async def listing(request: Request, tenant: Tenant) -> Response:
    """In the order of keeping. With `search` those in which these words stand."""
    profile = await found(tenant, part(request, "agent"))
    page = page_of(request, 100, "asc")
    archives = await archives_of(tenant, profile.id)
    words = request.query_params.get("search", "").casefold()
    catalog = tenant.memory.catalog
    if len(archives) == 1 and not words and not page.before:
        told = await catalog.passages(archives[0].id, after=page.after, limit=page.limit, order=page.order)
        return reply([passage_told(one) for one in told])
    everything: list[Passage] = []
    for one in archives:
        everything += await catalog.passages(one.id, limit=_ALL)
    wanted = sorted((one for one in everything if words in one.text.casefold()), key=lambda one: one.created)
    return reply([passage_told(one) for one in cut([(one.id, one) for one in wanted], page)])


async def search(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    asked = request.query_params
    if not asked.get("query", "").strip():
        raise Problem(422, "invalid", "query is missing; say what to look for")
    within = filtered(
        tuple(asked.getlist("tags")),
        asked.get("tag_match_mode"),
        asked.get("start_datetime"),
        asked.get("end_datetime"),
    )
    limit = number(request, "top_k", 5, 1, _MOST_FOUND)
    archives = await archives_of(tenant, profile.id)
    hits = await tenant.memory.search(archives, asked["query"], within=within, limit=limit)
    return reply(SearchTold(len(hits), [hit_told(one) for one in hits]))


async def delete(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    which = part(request, "passage")
    passage = await tenant.memory.catalog.passage(which)
    if passage is None or passage.archive not in {one.id for one in await archives_of(tenant, profile.id)}:
        raise unknown("passage", which)
    await tenant.memory.catalog.forget(passage.archive, [which])
    return reply(None)
