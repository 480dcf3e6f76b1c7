"""A door: routes of one manner of speaking, each with what a caller must be allowed to use it.

Who the caller is was found out by the walls: it stands in the scope of the request.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias, cast

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import Scope as ASGIScope

from chargehand.errors import StoreUnavailable
from chargehand.server.problem import Problem, problem_of
from chargehand.server.tenants import Tenant, Tenants

Scope: TypeAlias = Literal["read", "run", "admin", "open"]
Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler: TypeAlias = Callable[[Request, Tenant], Awaitable[Response]]
When: TypeAlias = Callable[[ASGIScope], bool]
Render: TypeAlias = Callable[[Problem], Response]
CALLER = "chargehand.visitor"
"""Where in a scope the walls leave who is calling."""
_ENOUGH: dict[str, tuple[str, ...]] = {
    "read": ("read", "run", "admin"),
    "run": ("run", "admin"),
    "admin": ("admin",),
}

logger = logging.getLogger(__name__)


class Caller(Struct, frozen=True):
    """Who is calling: for which tenant, with which key, and what that key allows."""

    tenant: str
    key: str = ""
    scopes: tuple[Scope, ...] = ()


class Way(Struct, frozen=True):
    """One route. Paths are written without a slash at the end, and serve both forms.

    Where two doors have the same path, `when` says of a call whether it is for this one.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope
    when: When | None = None


class _Choosy(Route):
    """A route that lets calls for other doors pass."""

    def __init__(self, way: Way, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(way.path, endpoint, methods=[way.method])
        self._when = way.when

    def matches(self, scope: ASGIScope) -> tuple[Match, ASGIScope]:
        if self._when is not None and scope["type"] == "http" and not self._when(scope):
            return Match.NONE, {}
        return super().matches(scope)


class Api:
    """Routes that speak alike. `render` puts a problem into the words of this door."""

    def __init__(self, name: str, render: Render) -> None:
        self.name = name
        self.ways: list[Way] = []
        self.render = render

    def add(
        self, method: Method, path: str, handler: Handler, scope: Scope = "run", *, when: When | None = None
    ) -> None:
        self.ways.append(Way(method=method, path=path, handler=handler, scope=scope, when=when))

    def routes(self, tenants: Tenants) -> list[Route]:
        return [_Choosy(one, self._endpoint(one, tenants)) for one in self.ways]

    def _endpoint(self, way: Way, tenants: Tenants) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await way.handler(request, await self._tenant(request, way, tenants))
            except Exception as error:
                problem = problem_of(error)
                if isinstance(error, StoreUnavailable):  # a full disk fills no log as well
                    logger.warning("%s %s failed: %s", way.method, way.path, error)
                elif problem is not error and problem.status >= 500:
                    logger.exception("%s %s failed", way.method, way.path)
                return self.render(problem)

        return endpoint

    async def _tenant(self, request: Request, way: Way, tenants: Tenants) -> Tenant:
        caller = cast("Caller", request.scope[CALLER])
        if way.scope != "open" and not set(caller.scopes).intersection(_ENOUGH[way.scope]):
            raise Problem(403, "forbidden", f"this key does not allow {way.scope!r}; use one that does")
        return await tenants.of(caller.tenant)


def methods_at(apis: Sequence[Api], path: str) -> list[str]:
    """The methods a path may be called with; none if there is nothing at it."""
    found = {way.method for api in apis for way in api.ways if compile_path(way.path)[0].match(path)}
    return sorted({*found, "HEAD"} if "GET" in found else found)
