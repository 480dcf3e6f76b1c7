"""The tags that agents carry."""

from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import Profile
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import reply


def add(api: Api) -> None:
    api.add("GET", "/v1/tags", listing, "read")


async def listing(request: Request, tenant: Tenant) -> Response:
    asked = request.query_params
    words = (asked.get("query_text") or asked.get("name") or "").lower()
    found = sorted(tag for tag in await tenant.memory.catalog.tags(Profile) if words in tag.lower())
    return reply(cut([(tag, tag) for tag in found], page_of(request, 50, "asc")))
