"""What a tool's source says of itself: its name, what it does, what it takes. Read as a tree; nothing in it is run."""

import ast
import re
from collections.abc import Mapping

from msgspec import Struct

from chargehand.server.problem import Problem

Schema = dict[str, object]
MAX_LENGTH = 256 * 1024
_MAX_DEPTH = 12  # annotations inside annotations
_TYPES: Mapping[str, str] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "Dict": "object",
    "Mapping": "object",
    "list": "array",
    "List": "array",
    "Sequence": "array",
    "tuple": "array",
    "Tuple": "array",
    "set": "array",
    "Set": "array",
    "None": "null",
    "NoneType": "null",
    "bytes": "string",
}
_FILLED_IN = frozenset(("agent_state", "self"))  # parameters that a model does not know of
_ARGUMENT = re.compile(r"\s+(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.+)")
_HEADING = re.compile(r"\s*(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?)\s*:\s*$")


class SourceFunction(Struct, frozen=True):
    name: str
    description: str
    parameters: Schema


def read_source(source: str, name: str = "") -> SourceFunction:
    """The function of this name, or the last one; a problem if there is none that could be a tool."""
    functions = [node for node in _parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = [function for function in functions if name in ("", function.name)]
    if not named:
        raise _refused(f"there is no function {name!r} in it" if name else "there is no function in it")
    function = named[-1]
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise _refused(f"{function.name} takes *, ** or positional arguments; give each argument a name")
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
    description, said = _read_docstring(ast.get_docstring(function) or "")
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for argument, default in zip((*arguments.args, *arguments.kwonlyargs), defaults, strict=True):
        if argument.arg in _FILLED_IN:
            continue
        properties[argument.arg] = schema_of(argument.annotation)
        if argument.arg in said:
            properties[argument.arg]["description"] = said[argument.arg]
        if default is None:
            required.append(argument.arg)
    return SourceFunction(
        function.name,
        description or f"Calls {function.name}.",
        {"type": "object", "properties": properties, "required": required},
    )


def _parse(source: str) -> ast.Module:
    if len(source) > MAX_LENGTH:
        raise _refused(f"it has {len(source):,} characters; {MAX_LENGTH:,} are the most")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise _refused(f"it is not Python: {error.msg} in line {error.lineno}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused("it is nested too deep, or holds a NUL character") from error


def _refused(why: str) -> Problem:
    return Problem(422, "not_a_tool", f"this source cannot be a tool: {why}")


def schema_of(annotation: ast.expr | None, depth: int = 0) -> Schema:
    """The JSON Schema of an annotation; one that cannot be read allows anything."""
    if annotation is None or depth > _MAX_DEPTH:
        return {}
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {"type": _TYPES[name]} if name in _TYPES else {}
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):  # an annotation in quotes
            try:
                return schema_of(ast.parse(text[:1000].strip(), mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return {}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right], depth + 1)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner], depth + 1)
        case _:
            return {}


def _generic(name: str, inner: list[ast.expr], depth: int) -> Schema:
    first = schema_of(inner[0], depth) if inner and name != "Literal" else {}
    if name == "Literal":
        values = [each.value for each in inner if isinstance(each, ast.Constant)]
        known = [value for value in values if isinstance(value, str | int | bool)]
        return {"enum": known} if known else {}
    if name in ("Optional", "Annotated"):
        return {} if first == {"type": "null"} and name == "Optional" else first
    if name == "Union":
        return _union(inner, depth)
    kind = _TYPES.get(name)
    if kind == "array":
        return {"type": kind, "items": first}
    if kind == "object" and len(inner) == 2:
        return {"type": kind, "additionalProperties": schema_of(inner[1], depth)}
    return {"type": kind} if kind else {}


def _union(options: list[ast.expr], depth: int) -> Schema:
    """Null is left out where there is anything else: leaving an argument out says the same."""
    schemas = [schema_of(option, depth) for option in options]
    left = [schema for schema in schemas if schema != {"type": "null"}]
    if not left or {} in left:
        return {}
    return left[0] if len(left) == 1 else {"anyOf": left}


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each argument under a heading such as `Args:`."""
    summary: list[str] = []
    arguments: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if match := _HEADING.fullmatch(line):
            heading = match[1]
        elif not heading:
            summary.append(line)
        elif heading in ("Args", "Arguments", "Parameters") and (match := _ARGUMENT.fullmatch(line)):
            arguments[match[1]] = match[2].strip()
    return "\n".join(summary).strip(), arguments
