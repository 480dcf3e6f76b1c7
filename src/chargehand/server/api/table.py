"""The table of this API: one line for each route, from which both the door and the document are made."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api.problem import about
from chargehand.server.problem import Fault, Problem
from chargehand.server.routing import Handler, Method, Scope
from chargehand.server.tenants import Tenant
from chargehand.server.wire import raw_body

Shape = TypeVar("Shape")


class Operation(Struct, frozen=True, kw_only=True):
    """One route. `asked` is the shape of its body, `query` that of its query, `told` that of its answer.

    `media` is what it answers with besides JSON; `creates`: it takes an Idempotency-Key; `problems` are statuses it
    may answer with beyond those every route may.
    """

    method: Method
    path: str
    call: Handler
    name: str
    summary: str
    group: str
    scope: Scope = "read"
    query: type[Struct] | None = None
    asked: type[Struct] | None = None
    told: type[Struct] | None = None
    status: int = 200
    media: tuple[str, ...] = ()
    empty: bool = False
    creates: bool = False
    problems: tuple[int, ...] = ()

    def guarded(self) -> Callable[[Request, Tenant], Awaitable[Response]]:
        """The call, with the run named in what goes wrong."""

        async def call(request: Request, tenant: Tenant) -> Response:
            try:
                return await self.call(request, tenant)
            except Exception as error:
                run = cast("str", request.path_params.get("run", ""))
                if not run:
                    raise
                raise about(error, run) from error

        return call


async def sent(request: Request, shape: type[Shape]) -> Shape:
    """The body, as `shape` and nothing else; no body counts as an empty object."""
    raw = (await raw_body(request)).strip() or b"{}"
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise _wrong(error) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(422, "not_json", f"the body is not JSON: {error}") from error


def asked(request: Request, shape: type[Shape]) -> Shape:
    """The query, as `shape` and nothing else. What may be given several times is a tuple."""
    given: dict[str, object] = {}
    known = _parameters(cast("type[Struct]", shape))
    for name, several in known.items():
        many = request.query_params.getlist(name)
        if many:
            given[name] = many if several else _one(name, many)
    if strange := set(request.query_params) - set(given):
        named = ", ".join(known) or "none"
        raise Problem(422, "invalid", f"there is no query parameter {min(strange)[:40]!r}; there are {named}")
    try:
        return msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error) from error


@cache
def _parameters(shape: type[Struct]) -> dict[str, bool]:
    """The parameters of a query, and whether each may be given several times."""
    return {one.encode_name: "tuple" in str(one.type) for one in msgspec.structs.fields(shape)}


def _one(name: str, many: list[str]) -> str:
    if len(many) > 1:
        raise Problem(422, "invalid", f"{name} is given {len(many)} times; give it once")
    return many[0]


def _wrong(error: msgspec.ValidationError) -> Problem:
    said, _, place = str(error).partition(" - at `")
    fault = Fault(place.rstrip("`") or "$", said)
    return Problem(422, "invalid", f"{fault.place}: {said}", faults=[fault])
