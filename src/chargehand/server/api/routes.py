"""The door of our own API: every route of its table, and the document made from it."""

import functools

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api import again, begin, crews, entries, health, listing, memory, orders
from chargehand.server.api.openapi import document
from chargehand.server.api.problem import told
from chargehand.server.api.table import Operation
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant

OPERATIONS: tuple[Operation, ...] = (
    *crews.OPERATIONS,
    *begin.OPERATIONS,
    *listing.OPERATIONS,
    *orders.OPERATIONS,
    *again.OPERATIONS,
    *entries.OPERATIONS,
    *memory.OPERATIONS,
    *health.OPERATIONS,
)


class _RunName(StringConvertor):
    """The name of a run in a path: that of a run inside another says where, with slashes."""

    regex = r"[^/]+(?:/[^/]+/[0-9]+/[0-9]+/[0-9a-f]{8})*"


def own_api() -> Api:
    register_url_convertor("run", _RunName())
    api = Api("api", told)
    for one in OPERATIONS:
        path = one.path.replace("{run}", "{run:run}").replace("{task}", "{task:path}")  # an id may have slashes
        api.add(one.method, path, one.guarded(), one.scope)
    api.add("GET", "/api/openapi.json", _document, "read")
    return api


@functools.cache
def written() -> bytes:
    """The document as it is served and kept in docs/openapi.json."""
    return msgspec.json.format(msgspec.json.encode(document(OPERATIONS), order="deterministic"), indent=1) + b"\n"


async def _document(_request: Request, _tenant: Tenant) -> Response:
    return Response(written(), media_type="application/json")
