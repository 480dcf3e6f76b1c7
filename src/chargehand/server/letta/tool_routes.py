"""Tools over the wire: those that are always there, and those that clients bring where they may."""

from typing import Annotated, cast

from msgspec import Meta, Struct, structs

from chargehand.memory.catalog import KeptTool, Profile
from chargehand.server.letta.agents import change_agent
from chargehand.server.letta.attachments import lock_of
from chargehand.server.letta.routing import Call, Routes
from chargehand.server.letta.settings import as_list, as_table
from chargehand.server.letta.tool_source import read_source
from chargehand.server.letta.tools import (
    RETURN_LIMIT,
    ToolExecutionResult,
    built_in,
    describe_tool,
    execute,
    find_custom,
    require_custom_tools,
    return_limit,
)
from chargehand.server.letta.wire import Table, ToolResponse
from chargehand.server.problem import Problem, check_choice, invalid, unknown

routes = Routes()
TOOL_NAMES = "names of tools"
"""The lock to hold while a tool gets its name."""
_MAX_COUNT = 100_000
_MAX_RETURN = 1_000_000


class ToolFields(Struct, frozen=True, kw_only=True):
    source_code: str | None = None
    source_type: str | None = None
    description: str | None = None
    json_schema: Table | None = None
    args_json_schema: Table | None = None
    tags: tuple[str, ...] | None = None
    return_char_limit: int | None = None
    default_requires_approval: bool | None = None
    pip_requirements: list[Table] | None = None
    npm_requirements: list[Table] | None = None
    metadata_: dict[str, object] | None = None
    name: str | None = None


class ToolQuery(Struct):
    query: str | None = None
    tags: tuple[str, ...] | None = None
    tool_types: tuple[str, ...] | None = None
    limit: Annotated[int, Meta(ge=0)] = 50


class RunSource(Struct):
    source_code: str
    args: dict[str, object]
    name: str | None = None


class RunArguments(Struct):
    args: dict[str, object] | None = None


class ApprovalUpdate(Struct):
    requires_approval: bool


# --- lists


async def _all_tools(call: Call) -> list[ToolResponse]:
    kept = await call.catalog.find(KeptTool, limit=_MAX_COUNT)
    return [*built_in().values(), *(describe_tool(tool) for tool in kept)]


@routes.get("/v1/tools")
async def list_tools(call: Call) -> list[ToolResponse]:
    return call.page(50, "desc").cut([tool for tool in await _all_tools(call) if _is_listed(call, tool)])


def _is_listed(call: Call, tool: ToolResponse) -> bool:
    """Whether a tool is one that the query asks for."""
    values = {"name": tool.name, "names": tool.name, "tool_ids": tool.id, "tool_types": tool.tool_type}
    for name, value in values.items():
        if value not in (call.query.getlist(name) or [value]):
            return False
    is_excluded = tool.tool_type == "custom" and call.flag("return_only_letta_tools")
    if is_excluded or tool.tool_type in call.query.getlist("exclude_tool_types"):
        return False
    return call.query.get("search", "").casefold() in f"{tool.name}\n{tool.description}".casefold()


@routes.get("/v1/tools/count")
async def count(call: Call) -> int:
    return len(await _all_tools(call))


@routes.post("/v1/tools/search", "read")
async def search(call: Call) -> list[Table]:
    """Tools by how many of the words stand in their name or description, best first."""
    sent = await call.body(ToolQuery)
    words = (sent.query or "").casefold().split()
    scores: list[tuple[int, ToolResponse]] = []
    for tool in await _all_tools(call):
        text = f"{tool.name} {tool.description}".casefold()
        score = sum(word in text for word in words)
        is_of_type = tool.tool_type in (sent.tool_types or (tool.tool_type,))
        is_tagged = not sent.tags or not set(sent.tags).isdisjoint(tool.tags)
        if (score or not words) and is_of_type and is_tagged:
            scores.append((score, tool))
    scores.sort(key=lambda scored: -scored[0])
    best = max(1, scores[0][0]) if scores else 1
    return [{"tool": tool, "combined_score": score / best} for score, tool in scores[: min(sent.limit, 100)]]


# --- those of clients


@routes.post("/v1/tools")
async def create(call: Call) -> ToolResponse:
    return await _save(call, is_update=False)


@routes.add("PUT", "/v1/tools")
async def upsert(call: Call) -> ToolResponse:
    return await _save(call, is_update=True)


async def _save(call: Call, *, is_update: bool) -> ToolResponse:
    require_custom_tools(call.tenant)
    sent = await call.body(ToolFields)
    new = read_tool(KeptTool(""), sent)
    if new.name in built_in():
        raise Problem(409, "conflict", f"{new.name!r} is a tool that is always there; choose another name")
    async with lock_of(call.tenant, TOOL_NAMES):
        known = await find_custom(call.catalog, new.name)
        if known is None:
            return describe_tool(await call.catalog.add(new))
        if not is_update:
            reason = f"there is a tool {new.name!r} already"
            raise Problem(409, "conflict", f"{reason}; upsert it, or choose another name")
        return describe_tool(await call.catalog.change(read_tool(known, sent)))


def read_tool(kept: KeptTool, sent: ToolFields) -> KeptTool:
    """A tool with what was sent of it. Its source is read, never run here."""
    check_choice("source_type", sent.source_type or "python", ("python",))
    if sent.pip_requirements or sent.npm_requirements:
        raise invalid("packages cannot be installed for a tool; it has the standard library only")
    source = kept.code if sent.source_code is None else sent.source_code
    schema = sent.json_schema or {}
    function = read_source(source, str(sent.name or schema.get("name") or ""))
    parameters = sent.args_json_schema or schema.get("parameters") or function.parameters
    if not isinstance(parameters, dict):
        raise invalid("json_schema.parameters must be an object: the JSON Schema of the arguments")
    settings = dict(kept.settings)
    if sent.return_char_limit is not None:
        settings["limit"] = max(1, min(sent.return_char_limit, _MAX_RETURN))
    if sent.default_requires_approval is not None:
        settings["approval"] = sent.default_requires_approval
    return structs.replace(
        kept,
        name=function.name,
        description=sent.description or str(schema.get("description") or function.description),
        parameters=cast("dict[str, object]", parameters),
        code=source,
        settings=settings,
        tags=kept.tags if sent.tags is None else tuple(dict.fromkeys(sent.tags)),
        metadata=kept.metadata if sent.metadata_ is None else sent.metadata_,
    )


@routes.get("/v1/tools/{tool}")
async def retrieve(call: Call) -> ToolResponse:
    for tool in built_in().values():
        if tool.id == call.path("tool"):
            return tool
    return describe_tool(await call.find(KeptTool))


@routes.patch("/v1/tools/{tool}")
async def update(call: Call) -> ToolResponse:
    require_custom_tools(call.tenant)
    sent = await call.body(ToolFields)
    async with lock_of(call.tenant, TOOL_NAMES):
        kept = await call.find(KeptTool)
        changed = read_tool(kept, sent)
        if changed.name != kept.name:
            reason = f"the function is called {changed.name!r} and the tool {kept.name!r}"
            raise invalid(f"{reason}; agents have it under that name: make another tool instead")
        return describe_tool(await call.catalog.change(changed))


@routes.delete("/v1/tools/{tool}")
async def delete(call: Call) -> None:
    """Also from the agents that have it: a tool of the same name that comes later is another one."""
    kept = await call.find(KeptTool)
    for holder in await call.catalog.find(Profile, limit=_MAX_COUNT):
        if kept.name in holder.tools:
            async with lock_of(call.tenant, holder.id):
                profile = await call.find(Profile, holder.id)
                left = tuple(name for name in profile.tools if name != kept.name)
                await call.catalog.change(structs.replace(profile, tools=left))
    await call.catalog.delete(KeptTool, kept.id)


# --- running tools, and approving their calls


@routes.post("/v1/tools/run")
async def run_source(call: Call) -> ToolExecutionResult:
    require_custom_tools(call.tenant)
    sent = await call.body(RunSource)
    function = read_source(sent.source_code, sent.name or "")
    return await execute(sent.source_code, function.name, sent.args, RETURN_LIMIT)


@routes.post("/v1/agents/{agent}/tools/{name}/run")
async def run_tool(call: Call) -> ToolExecutionResult:
    require_custom_tools(call.tenant)
    profile = await call.agent()
    name = call.path("name")
    sent = await call.body(RunArguments)
    tool = await find_custom(call.catalog, name) if name in profile.tools and name not in built_in() else None
    if tool is None:
        raise Problem(404, "unknown", f"the agent has no tool of a client called {name[:100]!r}; only those can be run")
    return await execute(tool.code, tool.name, sent.args or {}, return_limit(tool))


@routes.patch("/v1/agents/{agent}/tools/approval/{name}")
async def require_approval(call: Call) -> Table:
    """Whether a person must approve this agent's calls of this tool: a rule more, or a rule less."""
    name = call.path("name")
    sent = await call.body(ApprovalUpdate)
    rule: dict[str, object] = {"type": "requires_approval", "tool_name": name}

    async def change(profile: Profile) -> Profile:
        if name not in profile.tools:
            raise unknown("tool of this agent", name)
        rules = as_list(profile.settings.get("tool_rules"))
        rules = [each for each in rules if not rule.items() <= as_table(each).items()]
        if sent.requires_approval:
            rules.append(rule)
        return structs.replace(profile, settings={**profile.settings, "tool_rules": rules})

    return await change_agent(call, change)
