"""Archives. Any number of them may be attached to an agent."""

from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.archives import Archive
from chargehand.server.letta import finding
from chargehand.server.letta.finding import Wanted
from chargehand.server.letta.mapping import archive_changed, archive_made, archive_told
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.shapes import ArchiveChange, ArchiveSent
from chargehand.server.problem import unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, nothing, part, reply


def add(api: Api) -> None:
    api.add("POST", "/v1/archives", create)
    api.add("GET", "/v1/archives", listing, "read")
    api.add("GET", "/v1/archives/{archive}", retrieve, "read")
    api.add("PATCH", "/v1/archives/{archive}", update)
    api.add("DELETE", "/v1/archives/{archive}", delete)


async def found(tenant: Tenant, which: str) -> Archive:
    archive = await tenant.memory.catalog.get(Archive, which)
    if archive is None:
        raise unknown("archive", which)
    return archive


async def create(request: Request, tenant: Tenant) -> Response:
    return reply(archive_told(await tenant.memory.catalog.add(archive_made(await body(request, ArchiveSent)))))


async def listing(request: Request, tenant: Tenant) -> Response:
    asked = request.query_params
    page = page_of(request, 50, "desc")
    catalog = tenant.memory.catalog
    if agent := asked.get("agent_id"):
        held = [one.thing for one in await catalog.attached(agent) if isinstance(one.thing, Archive)]
        named = [one for one in held if asked.get("name") in (None, one.name)]
        return reply([archive_told(one) for one in cut([(one.id, one) for one in named], page)])
    archives = await finding.found(tenant, Archive, page, Wanted(asked.get("name")))
    return reply([archive_told(one) for one in archives])


async def retrieve(request: Request, tenant: Tenant) -> Response:
    return reply(archive_told(await found(tenant, part(request, "archive"))))


async def update(request: Request, tenant: Tenant) -> Response:
    archive = await found(tenant, part(request, "archive"))
    sent = await body(request, ArchiveChange)
    return reply(archive_told(await tenant.memory.catalog.change(archive_changed(archive, sent))))


async def delete(request: Request, tenant: Tenant) -> Response:
    if not await tenant.memory.catalog.delete(Archive, part(request, "archive")):
        raise unknown("archive", part(request, "archive"))
    return nothing()
