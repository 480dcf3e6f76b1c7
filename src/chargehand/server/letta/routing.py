"""Routes of the Letta API: a call with its tenant in, a value or a response out; pages of lists."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.engine.roster import Match
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import ANYONE, Kept, KeptConversation, KeptTool, Order, Profile, Thing
from chargehand.server.letta.index import ListPage
from chargehand.server.letta.sessions import Sessions
from chargehand.server.letta.settings import check_fields
from chargehand.server.routing import Method, Scope
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, Shape, body, check_choice, flag, number, part, raw_body, reply, unknown

_MAX_LIMIT = 1000
_MAX_PREVIOUS = 100_000
_NAMES: dict[type[Thing], str] = {
    Profile: "agent",
    Block: "block",
    Archive: "archive",
    KeptTool: "tool",
    KeptConversation: "conversation",
}
_PAGE_PARAMETERS = ("after", "before", "limit", "order", "order_by", "ascending", "include", "include_relationships")
"""Parameters of every list. What is listed is always complete, whatever `include` says."""
_Stored = TypeVar("_Stored", bound=Thing)
SentStruct = TypeVar("SentStruct", bound=Struct)


class LettaCall:
    """One call of a client: its request, and the tenant it is for."""

    def __init__(self, request: Request, tenant: Tenant) -> None:
        self.request = request
        self.tenant = tenant
        self.query = request.query_params
        self.catalog = tenant.memory.catalog

    @property
    def sessions(self) -> Sessions:
        return self.tenant.part(Sessions)

    def path(self, name: str) -> str:
        """A part of the path, by its name in the route."""
        return part(self.request, name)

    async def body(self, shape: type[Shape]) -> Shape:
        return await body(self.request, shape)

    async def checked_body(self, shape: type[SentStruct]) -> SentStruct:
        """What was sent; a problem for the first field of it that would have no effect."""
        sent = await self.body(shape)
        check_fields(await self.raw_body(), shape)
        return sent

    async def raw_body(self) -> bytes:
        return await raw_body(self.request)

    def flag(self, name: str) -> bool:
        return flag(self.request, name)

    def number(self, name: str, default: int, *, least: int = 0, most: int = _MAX_LIMIT) -> int:
        return number(self.request, name, default, least, most)

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """A query parameter that must be one of these."""
        value = self.query.get(name) or default
        check_choice(name, value, choices)
        return value

    def check_query(self, *names: str) -> None:
        """Raise a problem for a query parameter that would have no effect."""
        for name, value in self.query.items():
            if name not in names and value not in ("", "false"):
                raise Problem(422, "unsupported", f"{name[:60]} in the query is not supported here; leave it out")

    def page(self, limit: int, order: Order, *filters: str) -> ListPage:
        """The page that the query asks for. `ascending` is the older way to say the order."""
        self.check_query(*_PAGE_PARAMETERS, *filters)
        if "order_by" not in filters:
            self.choice("order_by", "created_at", ("created_at",))
        if "ascending" in self.query:
            order = "asc" if self.flag("ascending") else "desc"
        wanted: Order = "asc" if self.choice("order", order, ("asc", "desc")) == "asc" else "desc"
        limit = self.number("limit", limit)
        return ListPage(self.query.get("after", ""), self.query.get("before", ""), limit, wanted)

    def tags(self) -> Match:
        tags = tuple(dict.fromkeys(self.query.getlist("tags")))
        return Match(tags, ()) if self.flag("match_all_tags") else Match((), tags)

    async def find(self, kind: type[_Stored], which: str = "") -> _Stored:
        """What the path names, or what has this id; 404 if there is none."""
        name = _NAMES[kind]
        which = which or self.path(name)
        thing = await self.catalog.get(kind, which)
        if thing is None:
            raise unknown(name, which)
        return thing

    async def agent(self) -> Profile:
        return await self.find(Profile)

    async def delete(self, kind: type[Thing]) -> None:
        which = self.path(_NAMES[kind])
        if not await self.catalog.delete(kind, which):
            raise unknown(_NAMES[kind], which)


# --- routes

Handler: TypeAlias = Callable[[LettaCall], Awaitable[object]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class LettaRoute(Struct, frozen=True):
    method: Method
    path: str
    handler: Handler
    scope: Scope

    async def answer(self, request: Request, tenant: Tenant) -> Response:
        """What the handler returns, as JSON unless it is a response."""
        result = await self.handler(LettaCall(request, tenant))
        return result if isinstance(result, Response) else reply(result)


ROUTES: list[LettaRoute] = []
"""Every route of this API: modules add theirs when they are imported."""


def route(method: Method, path: str, scope: Scope | None = None) -> Callable[[AnyHandler], AnyHandler]:
    """Register the decorated handler. Reading needs the scope `read`, all else `run`, unless it is said."""

    def register(handler: AnyHandler) -> AnyHandler:
        ROUTES.append(LettaRoute(method, path, handler, scope or ("read" if method == "GET" else "run")))
        return handler

    return register


def join_json(bodies: Sequence[bytes]) -> Response:
    """Bodies as they are kept, as one array."""
    return Response(b"[" + b",".join(bodies) + b"]", media_type="application/json")


# --- lists


class Previous:
    """What was listed before what: a client that deletes what a page brings asks for what comes after it."""

    def __init__(self, _tenant: Tenant) -> None:
        self._ids: dict[tuple[Order, str], str] = {}

    def remember(self, page: ListPage, things: Sequence[Thing]) -> None:
        previous = page.after
        for thing in things:
            self._ids[page.order, thing.id] = previous
            previous = thing.id
        while len(self._ids) > _MAX_PREVIOUS:
            del self._ids[next(iter(self._ids))]

    async def existing(self, call: LettaCall, kind: type[Thing], page: ListPage) -> ListPage:
        """The page, after the nearest thing that is still there if the one it names was deleted."""
        after = page.after
        while after and (page.order, after) in self._ids and await call.catalog.get(kind, after) is None:
            after = self._ids[page.order, after]
        return structs.replace(page, after=after)


async def find_page(
    call: LettaCall, kind: type[Kept], page: ListPage, *, name: str | None = None, text: str = "", tags: Match = ANYONE
) -> list[Kept]:
    """A page of what the catalog keeps."""
    previous = call.tenant.part(Previous)
    page = await previous.existing(call, kind, page)
    things = await call.catalog.find(kind, name=name, text=text, tags=tags, **structs.asdict(page))
    if not page.before:
        previous.remember(page, things)
    return things


def replace_given(thing: Kept, **fields: object) -> Kept:
    """The thing with these fields, of which those that were not sent (None) stay as they are."""
    return structs.replace(thing, **{name: value for name, value in fields.items() if value is not None})
