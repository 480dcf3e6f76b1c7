"""The tools that agents may have: those of memory, those for messages, those that clients brought, and those they run.

A tool that a client brought is source text. It runs only in the sandbox, without a network, and only if the operator
allows it. A tool that a client runs itself is described with each message; the agent waits for what it returns.
"""

import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from chargehand.engine.value import encode_value
from chargehand.errors import ChargehandError
from chargehand.memory.catalog import Catalog, KeptTool, Profile
from chargehand.models.messages import ToolSpec
from chargehand.server.letta.agent_messages import MESSAGE_TOOLS, describe_message_tools
from chargehand.server.letta.message_log import ClientReturn
from chargehand.server.letta.request import NO_PARAMETERS
from chargehand.server.letta.wire import ClientTool, Table, ToolResponse
from chargehand.server.problem import Problem, unknown
from chargehand.server.tenants import Tenant
from chargehand.tools.json_schema import problems
from chargehand.tools.remember import described
from chargehand.tools.sandbox import Ran, available, python_sandbox
from chargehand.tools.tool import Caller, Tool, ToolFailed

RETURN_LIMIT = 50_000
"""Characters that a tool returns at most, unless its client says otherwise."""
_NAMESPACE = uuid.UUID("6d1d7b3c-6a0c-4f0e-9f57-3f2a6f0f7a11")
_MAX_PROBLEMS = 5
_SECONDS = 30.0
_MAX_ERROR = 2000  # characters of what a program printed in the end
_CALL = """

import asyncio as _asyncio, inspect as _inspect, json as _json, sys as _sys
_given = _json.loads(_sys.stdin.read())
_found = {name}(**_given)
if _inspect.isawaitable(_found):
    async def _awaited(): return await _found
    _found = _asyncio.run(_awaited())
_sys.stdout.flush()
print("\\n{mark}" + _json.dumps(_found, default=str))
"""


# --- as clients read them


@cache
def built_in() -> dict[str, ToolResponse]:
    """The tools that are always there, by name. Each has the same id everywhere."""
    tools: dict[str, ToolResponse] = {}
    for tool in (*described().values(), *describe_message_tools().values()):
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


def describe_tool(tool: KeptTool) -> ToolResponse:
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
        metadata_=tool.metadata or None,
        default_requires_approval=bool(tool.settings.get("approval")),
    )


def _schema(name: str, description: str, parameters: object) -> Table:
    return {"name": name, "description": description, "parameters": parameters}


def return_limit(tool: KeptTool) -> int:
    limit = tool.settings.get("limit")
    return limit if isinstance(limit, int) else RETURN_LIMIT


async def find_custom(catalog: Catalog, name: str) -> KeptTool | None:
    """The tool that a client brought under this name."""
    tools = await catalog.find(KeptTool, name=name, limit=1)
    return tools[0] if tools else None


async def tool_names(catalog: Catalog, names: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """The names of tools that were named or given by id; a tool that is not known is refused."""
    known = built_in()
    by_id = {tool.id: name for name, tool in known.items()}
    for name in names:
        if name not in known and await find_custom(catalog, name) is None:
            raise Problem(400, "unknown_tool", f"there is no tool {name[:100]!r}; there are {', '.join(known)}")
    wanted = [*names]
    for tool_id in ids:
        tool = None if tool_id in by_id else await catalog.get(KeptTool, tool_id)
        if tool is None and tool_id not in by_id:
            raise unknown("tool", tool_id)
        wanted.append(by_id[tool_id] if tool is None else tool.name)
    return tuple(dict.fromkeys(wanted))


async def describe_tools(tenant: Tenant, profiles: Iterable[Profile]) -> dict[str, ToolResponse]:
    """The tools that these agents have, by name, each looked up once.

    What is gone is left out, and so is what clients brought if the operator does not allow that any more.
    """
    tools: dict[str, ToolResponse] = {}
    for name in dict.fromkeys(name for profile in profiles for name in profile.tools):
        if name in built_in():
            tools[name] = built_in()[name]
        elif tenant.settings.custom_tools:
            custom = await find_custom(tenant.memory.catalog, name)
            if custom is not None:
                tools[name] = describe_tool(custom)
    return tools


# --- those that clients brought


class ToolExecutionResult(Struct):
    status: str
    func_return: object = None
    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])


def require_custom_tools(tenant: Tenant) -> None:
    """Raise a problem unless clients may bring tools here."""
    if not tenant.settings.custom_tools:
        advice = "its operator can allow them (serve --custom-tools): they run in a sandbox, without a network"
        raise Problem(403, "custom_tools_off", f"custom tools are off on this server; {advice}")
    if why := available():
        raise Problem(403, "no_sandbox", f"tools of clients run only in a sandbox, and there is none here: {why}")


async def execute(source: str, name: str, arguments: dict[str, object], limit: int) -> ToolExecutionResult:
    """Call the function `name` of this source with these arguments; what it printed comes along."""
    mark = secrets.token_hex(16)
    program = source + _CALL.replace("{name}", name).replace("{mark}", mark)
    sandbox = python_sandbox(seconds=_SECONDS)
    code = {"code": program, "stdin": msgspec.json.encode(arguments).decode()}
    ran = await sandbox.call(msgspec.json.encode(code).decode(), "")
    assert isinstance(ran, Ran)
    before, has_returned, rest = ran.stdout.partition(f"\n{mark}")
    value, _, after = rest.partition("\n")  # what it does on its way out may print as well
    result = ToolExecutionResult("success")
    result.stdout = [text for text in (before, after) if text]
    result.stderr = [ran.stderr] if ran.stderr else []
    if not has_returned or ran.exit or ran.note:
        result.status = "error"
        result.func_return = (
            ran.note or ran.stderr.strip()[-_MAX_ERROR:] or f"it ended with {ran.exit} and returned nothing"
        )
    else:
        result.func_return = _read_value(value, limit)
    return result


def _read_value(text: str, limit: int) -> object:
    """What a function returned, or as much of it as is allowed.

    What no JSON can hold (NaN, half a surrogate pair) stays the text it was printed as.
    """
    value: object = text
    try:
        value = msgspec.json.decode(text)
        encode_value(value)
    except (msgspec.MsgspecError, ChargehandError, UnicodeError, RecursionError):
        value = text
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(shown) <= limit:
        return value
    return f"{shown[:limit]}\n[cut here: {len(shown) - limit:,} of {len(shown):,} characters are not shown]"


def _read_arguments(tool: Tool, arguments: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ToolFailed(f"the arguments of {tool.name} must be one JSON object: {error}") from error


async def _no_function() -> None:
    """Stands where a tool has its function: that of a client's tool is not in this process."""


def _spec(name: str, description: str, parameters: Mapping[str, object]) -> ToolSpec:
    return ToolSpec(name, description, Raw(msgspec.json.encode(parameters)))


class CustomTool(Tool, frozen=True):
    """A client's tool as an agent has it. Its arguments are checked by its own function, in the sandbox."""

    source: str = ""
    limit: int = RETURN_LIMIT

    def check(self, arguments: str) -> None:
        _read_arguments(self, arguments)

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:  # noqa: ARG002 - not needed
        result = await execute(self.source, self.name, _read_arguments(self, arguments), self.limit)
        if result.status == "error":
            raise ToolFailed(f"{self.name} failed: {result.func_return}")
        return result.func_return


async def custom_tools(tenant: Tenant, profile: Profile) -> dict[str, Tool]:
    """The tools that clients brought and this agent has; none where they are not allowed."""
    tools: dict[str, Tool] = {}
    if not tenant.settings.custom_tools:
        return tools
    for name in profile.tools:
        kept = await find_custom(tenant.memory.catalog, name)
        if kept is not None:
            tools[name] = CustomTool(
                _spec(kept.name, kept.description, kept.parameters),
                partial(_no_function),
                timeout=_SECONDS + 15,
                approve=bool(kept.settings.get("approval")),
                source=kept.code,
                limit=return_limit(kept),
            )
    return tools


# --- those that clients run themselves

FindReturn = Callable[[str, str], Awaitable[ClientReturn | None]]
"""What the client sent for a call of this name with these arguments."""


class ClientSideTool(Tool, frozen=True):
    """A client's tool as an agent has it. Every call waits for its client, who sends what it returned."""

    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    find_return: FindReturn | None = None

    def check(self, arguments: str) -> None:
        if wrong := list(problems(_read_arguments(self, arguments), self.schema))[:_MAX_PROBLEMS]:
            raise ToolFailed(f"the arguments of {self.name} do not fit: {'; '.join(wrong)}")

    async def call(self, arguments: str, key: str, caller: Caller | None = None) -> object:  # noqa: ARG002 - not needed
        returned = None if self.find_return is None else await self.find_return(self.name, arguments)
        if returned is None:
            raise ToolFailed(f"the client sent no result of {self.name}; go on without it")
        if not returned.good:
            raise ToolFailed(f"{self.name} failed: {returned.text}")
        return returned.text


def client_side_tools(tools: Sequence[ClientTool], find_return: FindReturn) -> dict[str, Tool]:
    """The tools of a client, for the agent that it writes to."""
    made: dict[str, Tool] = {}
    for tool in tools:
        schema = tool.parameters or NO_PARAMETERS
        made[tool.name] = ClientSideTool(
            _spec(tool.name, tool.description or "", schema),
            partial(_no_function),
            approve=True,
            poll=True,
            schema=schema,
            find_return=find_return,
        )
    return made
