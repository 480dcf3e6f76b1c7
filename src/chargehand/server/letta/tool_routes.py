"""Tools over the wire: those that are always there, and those that clients bring where they may."""

from collections.abc import Callable
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import KeptTool, Profile
from chargehand.server.letta.agent_shapes import ToolTold
from chargehand.server.letta.agents import found
from chargehand.server.letta.custom import allowed
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.source import described
from chargehand.server.letta.tools import built_in, kept_told
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, flag, part, reply

_MOST = 100_000
_NAMES = "names of tools"


class ToolSent(Struct):
    source_code: str | UnsetType = UNSET
    source_type: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    return_char_limit: int | None = None
    default_requires_approval: bool | None = None
    pip_requirements: list[dict[str, Any]] | None = None
    npm_requirements: list[dict[str, Any]] | None = None
    metadata_: dict[str, Any] | None = None
    name: str | None = None


class QuerySent(Struct):
    query: str | None = None
    tags: tuple[str, ...] | None = None
    tool_types: tuple[str, ...] | None = None
    limit: int = 50


def add(api: Api) -> None:
    api.add("GET", "/v1/tools", listing, "read")
    api.add("POST", "/v1/tools", create)
    api.add("PUT", "/v1/tools", upsert)
    api.add("GET", "/v1/tools/count", count, "read")
    api.add("POST", "/v1/tools/search", search, "read")
    api.add("GET", "/v1/tools/{tool}", retrieve, "read")
    api.add("PATCH", "/v1/tools/{tool}", update)
    api.add("DELETE", "/v1/tools/{tool}", delete)


# --- lists


async def _everything(tenant: Tenant) -> list[ToolTold]:
    kept = await tenant.memory.catalog.find(KeptTool, limit=_MOST)
    return [*built_in().values(), *(kept_told(one) for one in kept)]


async def listing(request: Request, tenant: Tenant) -> Response:
    tests = _tests(request)
    wanted = [one for one in await _everything(tenant) if all(test(one) for test in tests)]
    return reply(cut([(one.id, one) for one in wanted], page_of(request, 50, "desc")))


def _tests(request: Request) -> list[Callable[[ToolTold], bool]]:
    asked = request.query_params
    tests: list[Callable[[ToolTold], bool]] = []
    for name, field in (("name", "name"), ("names", "name"), ("tool_ids", "id"), ("tool_types", "tool_type")):
        if values := asked.getlist(name):
            tests.append(_is_one(field, values, wanted=True))
    if others := asked.getlist("exclude_tool_types"):
        tests.append(_is_one("tool_type", others, wanted=False))
    if flag(request, "return_only_letta_tools"):
        tests.append(_is_one("tool_type", ["custom"], wanted=False))
    if words := asked.get("search", ""):
        tests.append(_speaks_of(words))
    return tests


def _is_one(field: str, values: list[str], *, wanted: bool) -> Callable[[ToolTold], bool]:
    return lambda one: (getattr(one, field) in values) is wanted


def _speaks_of(words: str) -> Callable[[ToolTold], bool]:
    return lambda one: words.casefold() in f"{one.name}\n{one.description}".casefold()


async def count(_request: Request, tenant: Tenant) -> Response:
    return reply(len(await _everything(tenant)))


async def search(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, QuerySent)
    words = (sent.query or "").casefold().split()
    scored = [
        (sum(word in f"{one.name} {one.description}".casefold() for word in words), one)
        for one in await _everything(tenant)
    ]
    wanted = [
        (score, one)
        for score, one in scored
        if (score or not words)
        and (not sent.tool_types or one.tool_type in sent.tool_types)
        and (not sent.tags or not set(sent.tags).isdisjoint(one.tags))
    ]
    wanted.sort(key=lambda each: -each[0])
    best = max((score for score, _ in wanted), default=1) or 1
    told = [{"tool": one, "combined_score": score / best} for score, one in wanted[: max(0, min(sent.limit, 100))]]
    return reply(told)


async def retrieve(request: Request, tenant: Tenant) -> Response:
    which = part(request, "tool")
    for one in built_in().values():
        if one.id == which:
            return reply(one)
    return reply(kept_told(await _kept(tenant, which)))


async def _kept(tenant: Tenant, which: str) -> KeptTool:
    kept = await tenant.memory.catalog.get(KeptTool, which)
    if kept is None:
        raise unknown("tool", which)
    return kept


# --- those of clients


async def create(request: Request, tenant: Tenant) -> Response:
    allowed(tenant)
    made = tool_made(KeptTool(""), await body(request, ToolSent))
    async with changing(tenant, _NAMES):
        if await named(tenant, made.name) is not None:
            raise Problem(409, "conflict", f"there is a tool {made.name!r} already; upsert it, or choose another name")
        return reply(kept_told(await tenant.memory.catalog.add(made)))


async def upsert(request: Request, tenant: Tenant) -> Response:
    allowed(tenant)
    sent = await body(request, ToolSent)
    catalog = tenant.memory.catalog
    made = tool_made(KeptTool(""), sent)
    async with changing(tenant, _NAMES):
        known = await named(tenant, made.name)
        if known is None:
            return reply(kept_told(await catalog.add(made)))
        return reply(kept_told(await catalog.change(tool_made(known, sent))))


async def update(request: Request, tenant: Tenant) -> Response:
    allowed(tenant)
    which = part(request, "tool")
    sent = await body(request, ToolSent)
    async with changing(tenant, _NAMES):
        kept = await _kept(tenant, which)
        changed = tool_made(kept, sent)
        if changed.name != kept.name:
            said = f"the function is called {changed.name!r} and the tool {kept.name!r}"
            raise Problem(422, "invalid", f"{said}; agents have it under that name: make another tool instead")
        return reply(kept_told(await tenant.memory.catalog.change(changed)))


async def delete(request: Request, tenant: Tenant) -> Response:
    """Also from the agents that have it: a tool of the same name that comes later is another one."""
    kept = await _kept(tenant, part(request, "tool"))
    catalog = tenant.memory.catalog
    for each in await catalog.find(Profile, limit=_MOST):
        if kept.name in each.tools:
            async with changing(tenant, each.id):
                profile = await found(tenant, each.id)
                left = tuple(name for name in profile.tools if name != kept.name)
                await catalog.change(structs.replace(profile, tools=left))
    await catalog.delete(KeptTool, kept.id)
    return reply(None)


async def named(tenant: Tenant, name: str) -> KeptTool | None:
    """The tool that a client brought under this name."""
    if name in built_in():
        raise Problem(409, "conflict", f"{name!r} is a tool that is always there; choose another name")
    known = await tenant.memory.catalog.find(KeptTool, name=name, limit=1)
    return known[0] if known else None


def tool_made(kept: KeptTool, sent: ToolSent) -> KeptTool:
    """A tool with what was sent of it. Its source is read, never run here."""
    if sent.source_type not in (None, "python"):
        raise Problem(422, "invalid", f"source_type is {sent.source_type[:40]!r}; only python can be run here")
    if sent.pip_requirements or sent.npm_requirements:
        raise Problem(422, "invalid", "packages cannot be installed for a tool; it has the standard library only")
    source = kept.code if sent.source_code is UNSET else sent.source_code
    given = sent.json_schema or {}
    says = described(source, str(sent.name or given.get("name") or ""))
    parameters = sent.args_json_schema or given.get("parameters") or says.parameters
    if not isinstance(parameters, dict):
        raise Problem(422, "invalid", "json_schema.parameters must be an object: the JSON Schema of the arguments")
    settings = dict(kept.settings)
    if sent.return_char_limit is not None:
        settings["limit"] = max(1, min(sent.return_char_limit, 1_000_000))
    if sent.default_requires_approval is not None:
        settings["approval"] = sent.default_requires_approval
    return structs.replace(
        kept,
        name=says.name,
        description=sent.description or str(given.get("description") or says.description),
        parameters=cast("dict[str, object]", parameters),
        code=source,
        settings=settings,
        tags=kept.tags if sent.tags is None else tuple(dict.fromkeys(sent.tags)),
        metadata=kept.metadata if sent.metadata_ is None else sent.metadata_,
    )
