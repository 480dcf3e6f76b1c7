"""The door of our own API: every route of its table, and the document made from it."""

import functools

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.doors import Door
from chargehand.server.house import House
from chargehand.server.runs import again, begin, crews, entries, health, listing, memory, orders
from chargehand.server.runs.openapi import document
from chargehand.server.runs.problem import told
from chargehand.server.runs.table import Operation

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


def api_door() -> Door:
    register_url_convertor("run", _RunName())
    door = Door("api", told)
    for one in OPERATIONS:
        path = one.path.replace("{run}", "{run:run}").replace("{task}", "{task:path}")  # an id may have slashes
        door.add(one.method, path, one.guarded(), one.scope)
    door.add("GET", "/api/openapi.json", _document, "read")
    return door


@functools.cache
def written() -> bytes:
    """The document as it is served and kept in docs/openapi.json."""
    return msgspec.json.format(msgspec.json.encode(document(OPERATIONS), order="deterministic"), indent=1) + b"\n"


async def _document(_request: Request, _house: House) -> Response:
    return Response(written(), media_type="application/json")
