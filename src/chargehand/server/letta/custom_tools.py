"""Tools that clients bring as source text, and tools that clients run themselves.

A source is read as a tree when it is kept; nothing in it is run then. It runs only in the sandbox, without a network,
and only if the operator allows it. A tool that a client runs itself is described with each message; the agent waits for
what it returns.
"""

import ast
import secrets
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field

from chargehand.agents.setup import OURS
from chargehand.engine.value import encode_value
from chargehand.errors import ChargehandError, Invalid
from chargehand.memory.catalog import Catalog, KeptTool, Profile
from chargehand.server.letta.request import ClientReturns, call_key
from chargehand.server.letta.wire import ClientTool, Table
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, invalid
from chargehand.tools.sandbox import Ran, available, python_sandbox
from chargehand.tools.schema import split_docstring
from chargehand.tools.tool import Tool, ToolFailed, tool_from_schema

RETURN_LIMIT = 50_000
"""Characters that a tool returns at most, unless its client says otherwise."""
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


# --- reading a source: its name, what it does, what it takes

_MAX_LENGTH = 256 * 1024
_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("str", "bytes"), "string"),
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    **dict.fromkeys(("dict", "Dict", "Mapping"), "object"),
    **dict.fromkeys(("list", "List", "Sequence", "tuple", "Tuple", "set", "Set"), "array"),
}
_FILLED_IN = frozenset(("agent_state", "self"))  # parameters that a model does not know of


class SourceFunction(Struct, frozen=True):
    name: str
    description: str
    parameters: Table


def read_source(source: str, name: str = "") -> SourceFunction:
    """The function of this name, or the last one; a problem if there is none that could be a tool."""
    functions = [node for node in _parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    candidates = [function for function in functions if name in ("", function.name)]
    if not candidates:
        raise _refused(f"there is no function {name!r} in it" if name else "there is no function in it")
    function = candidates[-1]
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise _refused(f"{function.name} takes *, ** or positional arguments; give each argument a name")
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
    description, meanings = split_docstring(ast.get_docstring(function) or "")
    properties: dict[str, Table] = {}
    required: list[str] = []
    for argument, default in zip((*arguments.args, *arguments.kwonlyargs), defaults, strict=True):
        if argument.arg in _FILLED_IN:
            continue
        properties[argument.arg] = _schema_within_bounds(argument.annotation)
        if argument.arg in meanings:
            properties[argument.arg]["description"] = meanings[argument.arg]
        if default is None:
            required.append(argument.arg)
    parameters = {"type": "object", "properties": properties, "required": required}
    return SourceFunction(function.name, description or f"Calls {function.name}.", parameters)


def _parse(source: str) -> ast.Module:
    if len(source) > _MAX_LENGTH:
        raise _refused(f"it has {len(source):,} characters; {_MAX_LENGTH:,} are the most")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise _refused(f"it is not Python: {error.msg} in line {error.lineno}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused("it is nested too deep, or holds a NUL character") from error


def _refused(why: str) -> Problem:
    return Problem(422, "not_a_tool", f"this source cannot be a tool: {why}")


def _schema_within_bounds(annotation: ast.expr | None) -> Table:
    try:
        return schema_of(annotation)
    except RecursionError as error:
        raise _refused("an annotation is nested too deep") from error


def schema_of(annotation: ast.expr | None) -> Table:
    """The JSON Schema of an annotation; one that cannot be read allows anything."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _TYPES:
            return {"type": _TYPES[name]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case _:
            return {}


def _generic(name: str, inner: Sequence[ast.expr]) -> Table:
    if name == "Literal":
        values = [each.value for each in inner if isinstance(each, ast.Constant)]
        return {"enum": [value for value in values if isinstance(value, str | int | bool)]}
    if name in ("Optional", "Annotated"):
        return schema_of(inner[0])
    if name == "Union":
        return _union(inner)
    kind = _TYPES.get(name)
    if kind == "array":
        return {"type": kind, "items": schema_of(inner[0])}
    return {"type": kind} if kind else {}


def _union(options: Sequence[ast.expr]) -> Table:
    """Null is left out where there is anything else: leaving an argument out says the same."""
    is_null = [isinstance(option, ast.Constant) and option.value is None for option in options]
    schemas = [schema_of(option) for option, null in zip(options, is_null, strict=True) if not null]
    if not schemas or {} in schemas:
        return {}
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


# --- running a source


class ToolExecutionResult(Struct):
    status: str
    func_return: object = None
    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])


def require_custom_tools(tenant: Tenant, names: str = "") -> None:
    """Raise a problem unless clients may bring tools here; `names` are those they bring."""
    if not tenant.settings.custom_tools:
        advice = "its operator can allow them (serve --custom-tools): they run in a sandbox, without a network"
        raise Problem(403, "custom_tools_off", f"custom tools {names}are off on this server; {advice}")
    if why := available():
        raise Problem(403, "no_sandbox", f"tools of clients run only in a sandbox, and there is none here: {why}")


async def execute(tool: KeptTool, arguments: Table) -> ToolExecutionResult:
    """Call the function of a tool with these arguments; what it printed comes along."""
    mark = secrets.token_hex(16)
    program = tool.code + _CALL.replace("{name}", tool.name).replace("{mark}", mark)
    sandbox = python_sandbox(seconds=_SECONDS)
    code = {"code": program, "stdin": msgspec.json.encode(arguments).decode()}
    ran = await sandbox.call(msgspec.json.encode(code).decode(), "")
    assert isinstance(ran, Ran)
    before, has_returned, rest = ran.stdout.partition(f"\n{mark}")
    value, _, after = rest.partition("\n")  # what it does on its way out may print as well
    stdout = [text for text in (before, after) if text]
    stderr = [ran.stderr] if ran.stderr else []
    if not has_returned or ran.exit or ran.note:
        error = ran.note or ran.stderr.strip()[-_MAX_ERROR:] or f"it ended with {ran.exit} and returned nothing"
        return ToolExecutionResult("error", error, stdout, stderr)
    return ToolExecutionResult("success", _read_value(value, return_limit(tool)), stdout, stderr)


def return_limit(tool: KeptTool) -> int:
    limit = tool.settings.get("limit")
    return limit if isinstance(limit, int) else RETURN_LIMIT


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
    plain = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(plain) <= limit:
        return value
    return f"{plain[:limit]}\n[cut here: {len(plain) - limit:,} of {len(plain):,} characters are not shown]"


# --- as agents have them


async def find_custom(catalog: Catalog, name: str) -> KeptTool | None:
    """The tool that a client brought under this name."""
    tools = await catalog.find(KeptTool, name=name, limit=1)
    return tools[0] if tools else None


async def custom_tools(tenant: Tenant, profile: Profile) -> dict[str, Tool]:
    """The tools that clients brought and this agent has; none where they are not allowed."""
    tools: dict[str, Tool] = {}
    for name in profile.tools if tenant.settings.custom_tools else ():
        stored = await find_custom(tenant.memory.catalog, name)
        if stored is not None:
            tools[name] = custom_tool(stored)
    return tools


def custom_tool(stored: KeptTool) -> Tool:
    """A tool that a client brought; Invalid if no model could call it."""

    async def run(**arguments: object) -> object:
        result = await execute(stored, arguments)
        if result.status == "error":
            raise ToolFailed(f"{stored.name} failed: {result.func_return}")
        return result.func_return

    return tool_from_schema(
        stored.name,
        stored.description,
        stored.parameters,
        run,
        timeout=_SECONDS + 15,
        approve=bool(stored.settings.get("approval")),
    )


def client_side_tools(tools: Sequence[ClientTool], returns: ClientReturns) -> dict[str, Tool]:
    """The tools that a client runs itself, for the agent that it writes to. A problem if no model could call them.

    Every call waits for the client, which sends what it returned.
    """
    client_side: dict[str, Tool] = {}
    for number, tool in enumerate(tools):
        if tool.name in OURS or tool.name in client_side:
            raise invalid(f"client_tools[{number}].name is {tool.name[:80]!r}, which is taken; choose another")
        try:
            client_side[tool.name] = _client_side_tool(tool, returns)
        except Invalid as error:
            raise invalid(f"client_tools[{number}]: {error}") from error
    return client_side


def _client_side_tool(tool: ClientTool, returns: ClientReturns) -> Tool:
    async def read_return(**arguments: object) -> str:
        returned = returns.get(call_key(tool.name, arguments))
        if returned is None:
            raise ToolFailed(f"the client sent no result of {tool.name}; go on without it")
        if not returned.good:
            raise ToolFailed(f"{tool.name} failed: {returned.text}")
        return returned.text

    return tool_from_schema(
        tool.name, tool.description or "", tool.parameters or {}, read_return, approve=True, poll=True
    )
