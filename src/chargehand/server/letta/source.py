"""What a tool's source says of itself: its name, what it does, what it takes. Read as a tree; nothing in it is run."""

import ast
import re
from collections.abc import Mapping

from msgspec import Struct

from chargehand.server.problem import Problem

Schema = dict[str, object]
LONGEST = 256 * 1024
_DEEPEST = 12  # annotations inside annotations
_PLAIN: Mapping[str, str] = {
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


class Described(Struct, frozen=True):
    name: str
    description: str
    parameters: Schema


def described(source: str, name: str = "") -> Described:
    """The function of this name, or the last one; a problem in words where there is none that could be a tool."""
    function = _function(_parsed(source), name)
    summary, said = _docstring(ast.get_docstring(function) or "")
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise _refused(f"{function.name} takes *, ** or positional arguments; give each argument a name")
    named = [one for one in (*arguments.args, *arguments.kwonlyargs) if one.arg not in _FILLED_IN]
    optional = _optional(arguments)
    properties: dict[str, Schema] = {}
    for one in named:
        schema = schema_of(one.annotation)
        properties[one.arg] = {**schema, "description": said[one.arg]} if one.arg in said else schema
    required = [one.arg for one in named if one.arg not in optional]
    return Described(
        function.name,
        summary or f"Calls {function.name}.",
        {"type": "object", "properties": properties, "required": required},
    )


def _parsed(source: str) -> ast.Module:
    if len(source) > LONGEST:
        raise _refused(f"it has {len(source):,} characters; {LONGEST:,} are the most")
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise _refused(f"it is not Python: {error.msg} in line {error.lineno}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused("it is nested too deep, or holds a NUL character") from error


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = [one for one in functions if one.name == name] if name else functions
    if not found:
        raise _refused(f"there is no function {name!r} in it" if name else "there is no function in it")
    return found[-1]


def _optional(arguments: ast.arguments) -> set[str]:
    from_right = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    only_named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {one.arg for one in from_right} | {one.arg for one, usual in only_named if usual is not None}


def schema_of(annotation: ast.expr | None, depth: int = 0) -> Schema:
    """The JSON Schema of an annotation; one that cannot be read allows anything."""
    if annotation is None or depth > _DEEPEST:
        return {}
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {"type": _PLAIN[name]} if name in _PLAIN else {}
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _quoted(text, depth)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([schema_of(left, depth + 1), schema_of(right, depth + 1)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, list(inner.elts) if isinstance(inner, ast.Tuple) else [inner], depth + 1)
        case _:
            return {}


def _quoted(text: str, depth: int) -> Schema:
    """An annotation that stands in quotes."""
    try:
        return schema_of(ast.parse(text[:1000].strip(), mode="eval").body, depth + 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _generic(name: str, inner: list[ast.expr], depth: int) -> Schema:
    if name == "Literal":
        values = [one.value for one in inner if isinstance(one, ast.Constant)]
        told = [one for one in values if isinstance(one, str | int | bool)]
        return {"enum": told} if told else {}
    if name == "Optional":
        return _either([schema_of(inner[0], depth), {"type": "null"}]) if inner else {}
    if name == "Union":
        return _either([schema_of(one, depth) for one in inner])
    if name == "Annotated":
        return schema_of(inner[0], depth) if inner else {}
    kind = _PLAIN.get(name)
    if kind == "array":
        return {"type": kind, "items": schema_of(inner[0], depth) if inner else {}}
    if kind == "object" and len(inner) == 2:
        return {"type": kind, "additionalProperties": schema_of(inner[1], depth)}
    return {"type": kind} if kind else {}


def _either(kinds: list[Schema]) -> Schema:
    """Null is left out where there is anything else: leaving an argument out says the same."""
    left = [one for one in kinds if one != {"type": "null"}]
    if not left or {} in left:
        return {}
    return left[0] if len(left) == 1 else {"anyOf": left}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each argument under a heading such as `Args:`."""
    summary: list[str] = []
    said: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if found := _HEADING.fullmatch(line):
            heading = found[1]
        elif not heading:
            summary.append(line)
        elif heading in ("Args", "Arguments", "Parameters") and (about := _ARGUMENT.fullmatch(line)):
            said[about[1]] = about[2].strip()
    return "\n".join(summary).strip(), said


def _refused(why: str) -> Problem:
    return Problem(422, "not_a_tool", f"this source cannot be a tool: {why}")
