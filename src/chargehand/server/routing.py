"""An API: routes that speak alike, each with what a caller must be allowed to use it, and how it words a problem.

Who the caller is was found out by the middleware: it stands in the scope of the request.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from starlette.convertors import Convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from chargehand.errors import Invalid, StoreUnavailable
from chargehand.server.tenants import Tenant, Tenants
from chargehand.server.wire import Problem, problem_of

Scope: TypeAlias = Literal["read", "run", "admin", "open"]
Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler: TypeAlias = Callable[[Request, Tenant], Awaitable[Response]]
Claims: TypeAlias = Callable[[ASGIScope], bool]
Render: TypeAlias = Callable[[Problem], Response]
CALLER = "chargehand.caller"
"""Where in a scope the middleware leaves who is calling."""
HEADERS = "chargehand.headers"
"""Where in a scope stand the headers that the middleware has read."""
SLASH = "chargehand.slash"
"""Where in a scope stands that the path had a slash at its end."""
_RANKS: dict[Scope, int] = {"open": 0, "read": 1, "run": 2, "admin": 3}

logger = logging.getLogger(__name__)


class ApiCaller(Struct, frozen=True):
    """Who is calling: for which tenant, with which key, and what that key allows; `open` where there is none."""

    tenant: str
    key: str = ""
    scope: Scope = "open"
    name: str = ""
    """What the key was called by who made it."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Its scope and those within it."""
        return tuple(scope for scope, rank in _RANKS.items() if 0 < rank <= _RANKS[self.scope])


def asker_of(request: Request) -> str:
    """Return the id of the key that a call came with; empty where it came without."""
    return cast("ApiCaller", request.scope[CALLER]).key


class ApiRoute(Struct, frozen=True):
    """A handler with its method, its path, and the scope that a caller needs."""

    method: Method
    path: str
    handler: Handler
    scope: Scope
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]


class ApiBase:
    """What serves the calls below some paths.

    `render` puts a problem into the words of this API. It owns what is below its `prefixes`, also where nothing is, and
    calls below those of others that it `claims`.
    """

    def __init__(self, name: str, render: Render, *, prefixes: tuple[str, ...], claims: Claims | None = None) -> None:
        self.name = name
        self.prefixes = prefixes
        self.claims = claims
        self._render = render

    def is_open(self, _path: str) -> bool:
        """Whether a path of this API needs no token."""
        return False

    async def serve(self, scope: ASGIScope, receive: Receive, send: Send, tenants: Tenants) -> None:
        """Answer a call that passed the checks."""
        raise NotImplementedError

    def refuse(self, problem: Problem) -> Response:
        """A problem in the words of this API, with the headers that belong to it."""
        response = self._render(problem)
        response.headers.update(problem.headers)
        return response

    def problem_response(self, scope: ASGIScope, error: Exception) -> Response:
        """What a caller is told of an error that a call raised; what only the operator can mend is logged."""
        problem = problem_of(error)
        problem.run = problem.run or scope.get("path_params", {}).get("run", "")
        if isinstance(error, StoreUnavailable):  # a full disk fills no log as well
            logger.warning("%s %s failed: %s", scope["method"], scope["path"], error)
        elif problem is not error and problem.status >= 500:
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        return self.refuse(problem)


class Api(ApiBase):
    """Routes with a handler each. Paths are written without a slash at the end, and serve both forms."""

    def __init__(self, name: str, render: Render, *, prefixes: tuple[str, ...], claims: Claims | None = None) -> None:
        super().__init__(name, render, prefixes=prefixes, claims=claims)
        self.routes: list[ApiRoute] = []

    def add(self, method: Method, path: str, handler: Handler, scope: Scope = "run") -> None:
        pattern, _, convertors = compile_path(path)
        self.routes.append(ApiRoute(method, path, handler, scope, pattern=pattern, convertors=convertors))

    async def serve(self, scope: ASGIScope, receive: Receive, send: Send, tenants: Tenants) -> None:
        response = await self._answer(Request(scope, receive), tenants)
        await response(scope, receive, send)

    async def _answer(self, request: Request, tenants: Tenants) -> Response:
        """The answer to a call, also where there is no route for it, or something goes wrong."""
        try:
            route = self._find(request.scope)
            caller = cast("ApiCaller", request.scope[CALLER])
            _check_scope(caller, route)
            return await route.handler(request, await tenants.of(caller.tenant))
        except Exception as error:  # noqa: BLE001 - the caller is told of all of them
            return self.problem_response(request.scope, error)

    def _find(self, scope: ASGIScope) -> ApiRoute:
        """The route of a call; the names in its path are left in the scope."""
        path: str = scope["path"]
        wanted = "GET" if scope["method"] == "HEAD" else scope["method"]
        others: set[str] = set()
        for route in self.routes:
            match = route.pattern.match(path)
            if match is None:
                continue
            if route.method == wanted:
                names = match.groupdict().items()
                scope["path_params"] = {name: route.convertors[name].convert(value) for name, value in names}
                return route
            others |= {"GET", "HEAD"} if route.method == "GET" else {route.method}
        if not others:
            raise Problem(404, "no_route", "there is nothing at this path")
        allowed = {"Allow": ", ".join(sorted(others))}
        raise Problem(405, "no_route", "this method is not for this path", headers=allowed)


def allows(caller: ApiCaller, scope: Scope) -> bool:
    """Whether the key of a call allows what needs this scope."""
    return _RANKS[caller.scope] >= _RANKS[scope]


def _check_scope(caller: ApiCaller, route: ApiRoute) -> None:
    if not allows(caller, route.scope):
        raise Problem(403, "forbidden", f"this key does not allow {route.scope!r}; use one that does")


class Apis:
    """All APIs of a server, as one application."""

    def __init__(self, apis: Sequence[ApiBase], tenants: Tenants | None = None) -> None:
        self.all = tuple(apis)
        self._tenants = tenants
        _refuse_shared_prefixes(apis)
        self._claiming = [(api.claims, api) for api in apis if api.claims is not None]
        prefixes = [(prefix, api) for api in apis for prefix in api.prefixes]
        self._by_prefix = sorted(prefixes, key=lambda pair: len(pair[0]), reverse=True)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        assert self._tenants is not None, "it is served for tenants"
        await self.owner(scope).serve(scope, receive, send, self._tenants)

    def owner(self, scope: ASGIScope) -> ApiBase:
        """The API that a call belongs to, also one that leads nowhere: whose prefix is the longest."""
        for claims, api in self._claiming:
            if claims(scope):
                return api
        path: str = scope["path"]
        for prefix, api in self._by_prefix:
            if path == prefix or path.startswith(f"{prefix}/"):
                return api
        return self.all[0]  # a path that is none, such as `*`


def _refuse_shared_prefixes(apis: Sequence[ApiBase]) -> None:
    owners: dict[str, str] = {}
    for api in apis:
        for prefix in api.prefixes:
            other = owners.setdefault(prefix, api.name)
            if other != api.name:
                raise Invalid(f"the APIs {other!r} and {api.name!r} both serve {prefix or '/'}; leave out one of them")
