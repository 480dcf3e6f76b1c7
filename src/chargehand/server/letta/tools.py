"""Tools over the wire: those that are always there, and those that clients bring where they may."""

import uuid
from collections.abc import Iterable, Sequence
from functools import cache, partial

import msgspec
from msgspec import Struct, structs

from chargehand.memory.catalog import Catalog, KeptTool, Profile
from chargehand.server.letta.custom_tools import (
    ToolExecutionResult,
    custom_tool,
    execute,
    find_custom,
    read_source,
    require_custom_tools,
    return_limit,
)
from chargehand.server.letta.executor import MESSAGE_TOOLS, AgentMessages, change_kept, lock_of
from chargehand.server.letta.routing import LettaCall, route
from chargehand.server.letta.wire import Strings, Table, ToolResponse
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, check_choice, invalid, unknown
from chargehand.tools.remember import described

_NAMESPACE = uuid.UUID("6d1d7b3c-6a0c-4f0e-9f57-3f2a6f0f7a11")
_FILTERS = {"name": "name", "names": "name", "tool_ids": "id", "tool_types": "tool_type"}
"""Query parameters, and the fields of a tool that they are for."""
_TOOL_NAMES = "names of tools"
_MAX_COUNT = 100_000
_MAX_RETURN = 1_000_000


class ToolFields(Struct, frozen=True, kw_only=True):
    source_code: str | None = None
    source_type: str | None = None
    description: str | None = None
    json_schema: Table | None = None
    args_json_schema: Table | None = None
    tags: Strings | None = None
    return_char_limit: int | None = None
    default_requires_approval: bool | None = None
    pip_requirements: list[Table] | None = None
    npm_requirements: list[Table] | None = None
    name: str | None = None


class RunArguments(Struct):
    args: Table | None = None


# --- as clients read them


@cache
def built_in() -> dict[str, ToolResponse]:
    """The tools that are always there, by name. Each has the same id everywhere."""
    tools: dict[str, ToolResponse] = {}
    for tool in (*described().values(), *AgentMessages().tools.values()):
        spec = tool.spec
        kind = "letta_multi_agent_core" if spec.name in MESSAGE_TOOLS else "letta_core"
        tools[spec.name] = ToolResponse(
            id=f"tool-{uuid.uuid5(_NAMESPACE, spec.name)}",
            name=spec.name,
            description=spec.description,
            json_schema=_schema(spec.name, spec.description, msgspec.json.decode(spec.parameters)),
            tool_type=kind,
            tags=(kind,),
        )
    return tools


def _describe(tool: KeptTool) -> ToolResponse:
    return ToolResponse(
        id=tool.id,
        name=tool.name,
        description=tool.description,
        json_schema=_schema(tool.name, tool.description, tool.parameters),
        tool_type="custom",
        tags=tool.tags,
        source_type="python",
        source_code=tool.code,
        return_char_limit=return_limit(tool),
        default_requires_approval=bool(tool.settings.get("approval")),
    )


def _schema(name: str, description: str, parameters: object) -> Table:
    return {"name": name, "description": description, "parameters": parameters}


async def find_tool(catalog: Catalog, which: str) -> ToolResponse | None:
    """The tool of this name or id."""
    for tool in built_in().values():
        if which in (tool.name, tool.id):
            return tool
    stored = await catalog.get(KeptTool, which) or await find_custom(catalog, which)
    return None if stored is None else _describe(stored)


async def tool_names(catalog: Catalog, names: Sequence[str], ids: Sequence[str]) -> Strings:
    """The names of tools that were named or given by id; a tool that is not known is refused."""
    wanted: dict[str, None] = {}
    for which in (*names, *ids):
        tool = await find_tool(catalog, which)
        if tool is None and which in names:
            raise Problem(400, "unknown_tool", f"there is no tool {which[:100]!r}; there are {', '.join(built_in())}")
        if tool is None:
            raise unknown("tool", which)
        wanted[tool.name] = None
    return tuple(wanted)


async def describe_tools(tenant: Tenant, profiles: Iterable[Profile]) -> dict[str, ToolResponse]:
    """The tools that these agents have, by name, each looked up once.

    What is gone is left out, and so is what clients brought if the operator does not allow that any more.
    """
    tools: dict[str, ToolResponse] = {}
    for name in dict.fromkeys(name for profile in profiles for name in profile.tools):
        tool = await find_tool(tenant.memory.catalog, name)
        if tool is not None and (tool.tool_type != "custom" or tenant.settings.custom_tools):
            tools[name] = tool
    return tools


@route("GET", "/v1/tools")
async def list_tools(call: LettaCall) -> list[ToolResponse]:
    page = call.page(50, "desc", *_FILTERS, "search")
    tools = [*built_in().values(), *(_describe(tool) for tool in await call.catalog.find(KeptTool, limit=_MAX_COUNT))]
    return page.cut([tool for tool in tools if _is_listed(call, tool)])


def _is_listed(call: LettaCall, tool: ToolResponse) -> bool:
    """Whether a tool is one that the query asks for."""
    for name, field in _FILTERS.items():
        wanted = call.query.getlist(name)
        if wanted and getattr(tool, field) not in wanted:
            return False
    return call.query.get("search", "").casefold() in f"{tool.name}\n{tool.description}".casefold()


@route("GET", "/v1/tools/{tool}")
async def retrieve(call: LettaCall) -> ToolResponse:
    tool = await find_tool(call.catalog, call.path("tool"))
    if tool is None:
        raise unknown("tool", call.path("tool"))
    return tool


# --- those of clients


@route("POST", "/v1/tools")
async def create(call: LettaCall) -> ToolResponse:
    return await _save(call, is_update=False)


@route("PUT", "/v1/tools")
async def upsert(call: LettaCall) -> ToolResponse:
    return await _save(call, is_update=True)


async def _save(call: LettaCall, *, is_update: bool) -> ToolResponse:
    require_custom_tools(call.tenant)
    tool, is_new = await save_tool(call, await call.body(ToolFields), replace=is_update)
    if not is_new and not is_update:
        reason = f"there is a tool {tool.name!r} already"
        raise Problem(409, "conflict", f"{reason}; upsert it, or choose another name")
    return _describe(tool)


async def save_tool(call: LettaCall, sent: ToolFields, *, replace: bool) -> tuple[KeptTool, bool]:
    """The tool of this name, made if there is none, else changed if it is to be replaced; and whether it is new."""
    new = read_tool(KeptTool(""), sent)
    if new.name in built_in():
        raise Problem(409, "conflict", f"{new.name!r} is a tool that is always there; choose another name")
    async with lock_of(call.tenant, _TOOL_NAMES):
        existing = await find_custom(call.catalog, new.name)
        if existing is None:
            return await call.catalog.add(new), True
        return await call.catalog.change(read_tool(existing, sent)) if replace else existing, False


def read_tool(stored: KeptTool, sent: ToolFields) -> KeptTool:
    """A tool with what was sent of it. Its source is read, never run here."""
    check_choice("source_type", sent.source_type or "python", ("python",))
    if sent.pip_requirements or sent.npm_requirements:
        raise invalid("packages cannot be installed for a tool; it has the standard library only")
    source = stored.code if sent.source_code is None else sent.source_code
    schema = sent.json_schema or {}
    function = read_source(source, str(sent.name or schema.get("name") or ""))
    parameters = sent.args_json_schema or schema.get("parameters") or function.parameters
    if not isinstance(parameters, dict):
        raise invalid("json_schema.parameters must be an object: the JSON Schema of the arguments")
    settings = dict(stored.settings)
    if sent.return_char_limit is not None:
        settings["limit"] = max(1, min(sent.return_char_limit, _MAX_RETURN))
    if sent.default_requires_approval is not None:
        settings["approval"] = sent.default_requires_approval
    changed = structs.replace(
        stored,
        name=function.name,
        description=sent.description or str(schema.get("description") or function.description),
        parameters=parameters,
        code=source,
        settings=settings,
        tags=stored.tags if sent.tags is None else tuple(dict.fromkeys(sent.tags)),
    )
    custom_tool(changed)  # a problem if no model could call it
    return changed


@route("PATCH", "/v1/tools/{tool}")
async def update(call: LettaCall) -> ToolResponse:
    require_custom_tools(call.tenant)
    sent = await call.body(ToolFields)
    async with lock_of(call.tenant, _TOOL_NAMES):
        stored = await call.find(KeptTool)
        changed = read_tool(stored, sent)
        if changed.name != stored.name:
            reason = f"the function is called {changed.name!r} and the tool {stored.name!r}"
            raise invalid(f"{reason}; agents have it under that name: make another tool instead")
        return _describe(await call.catalog.change(changed))


@route("DELETE", "/v1/tools/{tool}")
async def delete(call: LettaCall) -> None:
    """Also from the agents that have it: a tool of the same name that comes later is another one."""
    stored = await call.find(KeptTool)
    for holder in await call.catalog.find(Profile, limit=_MAX_COUNT):
        if stored.name in holder.tools:
            await change_kept(call.tenant, Profile, holder.id, partial(_without_tool, stored.name))
    await call.catalog.delete(KeptTool, stored.id)


def _without_tool(name: str, profile: Profile) -> Profile:
    return structs.replace(profile, tools=tuple(each for each in profile.tools if each != name))


@route("POST", "/v1/agents/{agent}/tools/{name}/run")
async def run_tool(call: LettaCall) -> ToolExecutionResult:
    require_custom_tools(call.tenant)
    profile = await call.agent()
    name = call.path("name")
    sent = await call.body(RunArguments)
    tool = await find_custom(call.catalog, name) if name in profile.tools and name not in built_in() else None
    if tool is None:
        raise Problem(404, "unknown", f"the agent has no tool of a client called {name[:100]!r}; only those can be run")
    return await execute(tool, sent.args or {})
