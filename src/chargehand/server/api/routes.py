"""Our own API: every operation that its modules declare, and the document made from them."""

import functools

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api import control, events, memory, rerun, runs, teams
from chargehand.server.api.openapi import document
from chargehand.server.api.operations import OPERATIONS, render_problem
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant

DECLARED_IN = (teams, runs, control, rerun, events, memory)


class _RunName(StringConvertor):
    """The name of a run in a path: that of a run inside another says where, with slashes."""

    regex = r"[^/]+(?:/[^/]+/[0-9]+/[0-9]+/[0-9a-f]{8})*"


def own_api() -> Api:
    register_url_convertor("run", _RunName())
    api = Api("api", render_problem, prefixes=("/api",))
    for operation in sorted(
        OPERATIONS, key=lambda declared: declared.path.count("/")
    ):  # what is called most comes first
        path = operation.path.replace("{run}", "{run:run}").replace("{task}", "{task:path}")  # an id may have slashes
        api.add(operation.method, path, operation.call, operation.scope)
    api.add("GET", "/api/openapi.json", _document, "read")
    return api


@functools.cache
def written() -> bytes:
    """The document as it is served and kept in docs/openapi.json."""
    return msgspec.json.format(msgspec.json.encode(document(OPERATIONS), order="deterministic"), indent=1) + b"\n"


async def _document(_request: Request, _tenant: Tenant) -> Response:
    return Response(written(), media_type="application/json")
