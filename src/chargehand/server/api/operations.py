"""The operations of our own API: each is declared once; its route and the OpenAPI document are made from that."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.routing import Method, Scope
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Fault, Problem, misfit, raw_body, read, reply
from chargehand.text.words import did_you_mean

Shape = TypeVar("Shape", bound=Struct)
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Struct | Response]])
PROBLEM_TYPE = "application/problem+json"
CODES: dict[int, tuple[str, ...]] = {
    400: ("cut", "header_twice", "odd_path"),
    401: ("no_token",),
    403: ("forbidden", "foreign_origin", "foreign_site", "wrong_host"),
    404: ("no_route", "unknown"),
    405: ("method", "no_route"),
    408: ("too_slow",),
    409: ("busy", "conflict", "refused"),
    413: ("too_large",),
    414: ("path_too_long",),
    415: ("not_json_type", "wrong_file_type"),
    422: ("invalid", "not_json", "other_body", "plan_invalid", "too_deep", "too_large"),
    429: ("overloaded", "streams", "too_many_calls", "too_many_tries"),
    431: ("headers_too_large",),
    500: ("corrupt", "internal", "store"),
    503: ("closing", "cut", "store_unavailable", "too_many_connections"),
}
"""Programs may go by these; new ones may be added, none changes its meaning."""


class ProblemDetails(Struct, frozen=True, omit_defaults=True, rename={"kind": "type"}):
    """A problem (RFC 9457). `code` is stable, `detail` is for people, `errors` says what was wrong, and where."""

    title: str
    status: int
    detail: str
    code: str
    errors: tuple[Fault, ...] = ()
    run_id: str = ""
    kind: str = "about:blank"


class Operation(Struct, frozen=True, kw_only=True):
    """One route of the API."""

    method: Method
    path: str
    handler: Callable[..., Awaitable[Struct | Response]]
    inputs: Mapping[str, Any]
    """What the handler takes, by name, with its type."""
    reply: type[Struct] | None
    scope: Scope
    media: tuple[str, ...]
    """What it answers with besides JSON."""
    may_be_empty: bool
    """It answers 204 where there is nothing to tell."""
    creates: bool
    """It begins a run (201)."""
    takes_key: bool
    """It takes an Idempotency-Key."""
    uploads: bool
    """Its body is a file."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return " ".join((inspect.getdoc(self.handler) or "").split())

    @property
    def query(self) -> type[Struct] | None:
        return self.inputs.get("query")

    @property
    def body(self) -> type[Struct] | None:
        return self.inputs.get("body")

    async def call(self, request: Request, tenant: Tenant) -> Response:
        """Read what was sent, hand it to the handler, and answer."""
        arguments: dict[str, object] = dict(request.path_params)
        if "request" in self.inputs:
            arguments["request"] = request
        if self.query is not None:
            arguments["query"] = read_query(request, self.query)
        if self.body is not None:
            arguments["body"] = await read_body(request, self.body)
        answer = await self.handler(tenant, **arguments)
        return answer if isinstance(answer, Response) else reply(answer)


OPERATIONS: list[Operation] = []
"""All that were declared, in the order of the modules that declare them."""


def operation(
    method: Method,
    path: str,
    *,
    scope: Scope = "read",
    reply: type[Struct] | None = None,
    media: tuple[str, ...] = (),
    may_be_empty: bool = False,
    creates: bool = False,
    takes_key: bool = False,
    uploads: bool = False,
) -> Callable[[Handler], Handler]:
    """Declare a handler as an operation.

    It is called with the tenant, the parts of the path by name, and where it takes them the `request`, and `query` and
    `body` as the structs it declares for them. Its docstring is the summary of the route. `reply` is what it answers
    with, where it makes the response itself.
    """

    def declare(handler: Handler) -> Handler:
        hints = get_type_hints(handler)
        returned = hints.pop("return")
        OPERATIONS.append(
            Operation(
                method=method,
                path=path,
                handler=handler,
                inputs=hints,
                reply=reply or (returned if issubclass(returned, Struct) else None),
                scope=scope,
                media=media,
                may_be_empty=may_be_empty,
                creates=creates,
                takes_key=takes_key or creates,
                uploads=uploads,
            )
        )
        return handler

    return declare


async def read_body(request: Request, shape: type[Shape]) -> Shape:
    """The body, as `shape` and nothing else; no body counts as an empty object."""
    return read(await raw_body(request), shape, strict=True)


def read_query(request: Request, shape: type[Shape]) -> Shape:
    """The query, as `shape` and nothing else. What may be given several times is a tuple."""
    parameters = _parameters(shape)
    values_by_name: dict[str, object] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        if name not in parameters:
            hint = did_you_mean(name, parameters)
            raise Problem(422, "invalid", f"there is no query parameter {name[:40]!r}; {hint}")
        if len(values) > 1 and not parameters[name]:
            raise Problem(422, "invalid", f"{name} is given {len(values)} times; give it once")
        values_by_name[name] = values if parameters[name] else values[0]
    try:
        return msgspec.convert(values_by_name, shape, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(error, shape, values_by_name) from error


@cache
def _parameters(shape: type[Struct]) -> Mapping[str, bool]:
    """The parameters of a query, and whether each may be given several times."""
    return {field.encode_name: "tuple" in str(field.type) for field in msgspec.structs.fields(shape)}


def render_problem(problem: Problem) -> Response:
    """Return a problem as problem+json."""
    return _render(problem, problem.detail)


def render_own_problem(problem: Problem) -> Response:
    """Return the same for clients of our own API, with the call that is the next step."""
    return _render(problem, "; ".join(filter(None, (problem.detail, problem.remedy))))


def _render(problem: Problem, detail: str) -> Response:
    details = ProblemDetails(
        title=problem.title,
        status=problem.status,
        detail=detail,
        code=problem.code,
        errors=problem.faults,
        run_id=problem.run,
    )
    body = {"type": details.kind, **msgspec.to_builtins(details)}
    return Response(msgspec.json.encode(body), problem.status, media_type=PROBLEM_TYPE)
