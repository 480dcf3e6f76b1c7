"""Passages of archives. Long texts are cut: the first part is what comes back."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.archives import Archive, Filter, Passage
from chargehand.server.letta.archives import found
from chargehand.server.letta.mapping import hit_told, instant, passage_made, passage_told
from chargehand.server.letta.shapes import PassageQuery, PassageSent, PassagesSent
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, nothing, part, reply

_MOST_FOUND = 100


def add(api: Api) -> None:
    api.add("POST", "/v1/archives/{archive}/passages", create)
    api.add("POST", "/v1/archives/{archive}/passages/batch", create_many)
    api.add("DELETE", "/v1/archives/{archive}/passages/{passage}", delete)
    api.add("POST", "/v1/passages/search", search, "read")


async def kept(tenant: Tenant, archive: Archive, passages: Sequence[Passage]) -> list[Passage]:
    """Keep passages; each comes back as it is kept."""
    told = await tenant.memory.add(archive, passages)
    found = [await tenant.memory.catalog.passage(one.id) for one in told]
    return [one for one in found if one is not None]


async def create(request: Request, tenant: Tenant) -> Response:
    archive = await found(tenant, part(request, "archive"))
    sent = await body(request, PassageSent)
    return reply(passage_told((await kept(tenant, archive, [passage_made(sent)]))[0]))


async def create_many(request: Request, tenant: Tenant) -> Response:
    archive = await found(tenant, part(request, "archive"))
    sent = await body(request, PassagesSent)
    told = await kept(tenant, archive, [passage_made(one) for one in sent.passages])
    return reply([passage_told(one) for one in told])


async def delete(request: Request, tenant: Tenant) -> Response:
    archive = await found(tenant, part(request, "archive"))
    if not await tenant.memory.catalog.forget(archive.id, [part(request, "passage")]):
        raise unknown("passage", part(request, "passage"))
    return nothing()


async def search(request: Request, tenant: Tenant) -> Response:
    """In one archive, in those of an agent, or in all. Without a query: the latest passages that fit the filters."""
    sent = await body(request, PassageQuery)
    catalog = tenant.memory.catalog
    if sent.archive_id:
        archives = [await found(tenant, sent.archive_id)]
    elif sent.agent_id:
        archives = [one.thing for one in await catalog.attached(sent.agent_id) if isinstance(one.thing, Archive)]
    else:
        archives = await catalog.find(Archive, limit=1000)
    within = filtered(tuple(sent.tags or ()), sent.tag_match_mode, sent.start_date, sent.end_date)
    limit = min(_MOST_FOUND, max(1, sent.limit or 10))
    if not (sent.query or "").strip():
        latest = await _latest(tenant, archives, within, limit)
        return reply([{"passage": passage_told(one), "score": 0.0, "metadata": None} for one in latest])
    hits = await tenant.memory.search(archives, sent.query or "", within=within, limit=limit)
    told = [
        {"passage": passage_told(one.passage), "score": one.score, "metadata": hit_told(one).relevance} for one in hits
    ]
    return reply(told)


async def _latest(tenant: Tenant, archives: Sequence[Archive], within: Filter, limit: int) -> list[Passage]:
    passages: list[Passage] = []
    for archive in archives:
        passages += await tenant.memory.catalog.passages(archive.id, within=within, limit=limit, order="desc")
    passages.sort(key=lambda passage: passage.created, reverse=True)
    return passages[:limit]


def filtered(tags: tuple[str, ...], mode: str | None, start: str | None, end: str | None) -> Filter:
    """What passages must be, as a client says it."""
    if mode not in (None, "any", "all"):
        raise Problem(422, "invalid", f"tag_match_mode is {mode[:40]!r}; it must be any or all")
    return Filter(
        tags,
        "all" if mode == "all" else "any",
        instant(start, "start") if start else None,
        instant(end, "end") if end else None,
    )
