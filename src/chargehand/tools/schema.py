"""Parameters of a function, the JSON schema a model is shown of them, and its arguments checked against it.

Annotations are read from functions that the program itself defines, never made from text that comes from outside.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NewType, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct, structs

from chargehand.engine.declared_types import argument_problem
from chargehand.errors import Invalid
from chargehand.text.names import nearest_names
from chargehand.tools.calling import ToolFailed
from chargehand.tools.json_schema import problems, schema_problem

if TYPE_CHECKING:
    from chargehand.runtime.executor import StepContext

CallKey = NewType("CallKey", str)
"""A parameter of this type is given the key of the call: the same however often the call is repeated after a crash."""


class Caller(Struct, frozen=True):
    """Who makes a call, written down by the engine. A parameter of this type is filled in; no model can.

    `key` is a CallKey: `run/task/attempt/number`. `tainted` says that the worker has seen text from outside in this
    attempt; `seen` are the versions of the blocks as they were last shown to it. `mark` is another for another run
    of the same name: what a tool writes may outlive the journal. `context` is what the call may ask of the runtime;
    None where the tool is called outside of a run.
    """

    key: str
    worker: str = ""
    tainted: bool = False
    seen: Mapping[str, int] = {}
    run: str = ""
    task: str = ""
    mark: str = ""
    context: "StepContext | None" = None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SECTION = re.compile(r"\s*(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)")


class Parameter(Struct, frozen=True):
    """`type` may be Annotated; `default` counts only where the parameter is optional."""

    name: str
    type: Any
    optional: bool = False
    default: Any = None


class Signature(Struct, frozen=True):
    """`key` and `caller` name the parameters that take the key of the call and who makes it, if there are any."""

    parameters: tuple[Parameter, ...]
    description: str
    key: str = ""
    caller: str = ""


def name_of(function: Callable[..., Any], given: str = "") -> str:
    """What the tool is called; Invalid when models could not call it that."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = given or getattr(inner, "__name__", type(inner).__name__.lower())
    if not _NAME.fullmatch(name):
        raise Invalid(f"a tool cannot be called {name!r}; give it a name of letters, digits and _: tool(name='...')")
    return name


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """The parameters a caller can fill; Invalid says which one cannot become an argument, and what to do."""
    hints = _hints(function, name)
    text = inspect.cleandoc(getattr(_told(function), "__doc__", None) or "")
    description, docs = _split(text)
    bound = _bound(function)
    parameters: list[Parameter] = []
    key = caller = ""
    for parameter in _parameters(function, name):
        if parameter.name in bound:
            continue  # already given, and not the model's to change
        _check(parameter, name, hints)
        if hints[parameter.name] is CallKey:
            key = parameter.name
            continue
        if hints[parameter.name] is Caller:
            caller = parameter.name
            continue
        kind = _described(hints[parameter.name], docs.get(parameter.name, ""))
        optional = parameter.default is not parameter.empty
        parameters.append(Parameter(parameter.name, kind, optional, parameter.default if optional else None))
    return Signature(parameters=tuple(parameters), description=description, key=key, caller=caller)


def _bound(function: Callable[..., Any]) -> set[str]:
    return set(function.keywords) if isinstance(function, functools.partial) else set()


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the words and the types stand: not on a partial or on an object that can be called."""
    if isinstance(function, functools.partial):
        return _told(function.func)
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    told = _told(function)
    try:
        return get_type_hints(told.__init__ if isinstance(told, type) else told, include_extras=True)
    except Exception as error:  # resolving names runs whatever stands in the annotations
        raise Invalid(
            f"the annotations of tool {name!r} cannot be resolved ({error}); define the types they name in the module, "
            "not inside a function"
        ) from error


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Invalid(f"tool {name!r} has no signature that can be read; wrap it in a typed function") from error


def _check(parameter: inspect.Parameter, name: str, hints: dict[str, Any]) -> None:
    where = f"tool {name!r}: parameter {parameter.name!r}"
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise Invalid(f"{where} takes any number of values (*{parameter.name}); use one parameter of type list[...]")
    if parameter.kind is parameter.VAR_KEYWORD:
        raise Invalid(f"{where} takes any name (**{parameter.name}); name each parameter, or use one dict[str, ...]")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise Invalid(f"{where} cannot be given by name; take the / out of the signature")
    if parameter.name not in hints:
        raise Invalid(f"{where} has no type; annotate it, for example `{parameter.name}: str`")


def _described(kind: Any, doc: str) -> Any:
    """The type with its description where msgspec finds it: from Annotated text, else from the docstring."""
    extras = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    if any(isinstance(extra, Meta) and extra.description for extra in extras):
        return kind
    words = [extra if isinstance(extra, str) else getattr(extra, "description", None) for extra in extras]
    text = next((word for word in words if isinstance(word, str) and word), doc)
    return cast("Any", Annotated[kind, Meta(description=text)]) if text else kind


def _split(text: str) -> tuple[str, dict[str, str]]:
    """A docstring without its section on arguments, and what that says of each."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    docs: dict[str, str] = {}
    name = ""
    margin = ""
    end = start + 1
    for end in range(start + 1, len(lines) + 1):
        line = lines[end] if end < len(lines) else ""
        entry = _ENTRY.fullmatch(line)
        if entry and (not margin or entry[1] == margin):
            margin = entry[1]
            name = entry[2]
            docs[name] = entry[3]
        elif name and line.startswith(margin + " "):
            docs[name] += " " + line.strip()
        else:
            break
    rest = [line.rstrip() for line in (*lines[:start], *lines[end:])]
    return "\n".join(rest).strip(), {name: words.strip() for name, words in docs.items()}


_TYPES = "str, int, float, bool, Literal, an enum, list, dict, a Struct, a dataclass or a pydantic model"
_REFERENCE = "#/$defs/"
_MOST_MISFITS = 5
_PLAIN = (str, int, float, bool, type(None))


class Shape(Struct, frozen=True):
    """The arguments of one tool. `key` and `caller` name the parameters that the engine fills in."""

    tool: str
    schema: Raw
    decoder: msgspec.json.Decoder[Any]
    optional: frozenset[str]
    key: str = ""
    caller: str = ""

    def read(self, text: str) -> dict[str, Any]:
        """The arguments in this text; ToolFailed says, in words for the model, why there are none."""
        try:
            return structs.asdict(self.decoder.decode(text or "{}"))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return self._second_look(text or "{}", error)

    def _second_look(self, text: str, error: Exception) -> dict[str, Any]:
        """Null for an argument that may be left out means that it is; all else is explained."""
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as broken:
            raise ToolFailed(f"the arguments of {self.tool} are not JSON ({broken}). {self.expected()}") from broken
        if not isinstance(decoded, dict):
            raise ToolFailed(f"the arguments of {self.tool} must be one JSON object. {self.expected()}") from error
        arguments = cast("dict[str, Any]", decoded)
        known = self._properties()
        unknown = [name for name in arguments if name not in known]
        if unknown:
            words = _named(unknown, tuple(known))
            raise ToolFailed(f"{self.tool} has no argument {words}. {self.expected()}") from error
        kept = {name: value for name, value in arguments.items() if value is not None or name not in self.optional}
        try:
            return structs.asdict(self.decoder.decode(msgspec.json.encode(kept)))
        except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
            missing = [name for name in known if name not in kept and name not in self.optional]
            if missing:
                raise ToolFailed(f"{self.tool} needs {' and '.join(map(repr, missing))}. {self.expected()}") from wrong
            raise ToolFailed(f"an argument of {self.tool} is wrong: {wrong}. {self.expected()}") from wrong

    def expected(self) -> str:
        """The shape in one line."""
        parts = [
            f'"{name}": {_kind(part)}{" (optional)" if name in self.optional else ""}'
            for name, part in self._properties().items()
        ]
        return f"Expected: {{{', '.join(parts)}}}"

    def _properties(self) -> dict[str, dict[str, Any]]:
        return msgspec.json.decode(self.schema)["properties"]


class DeclaredShape(Shape, frozen=True):
    """The arguments of a tool that was declared by a JSON Schema: they stay plain data."""

    def read(self, text: str) -> dict[str, Any]:
        """The arguments in this text; ToolFailed says what does not fit the schema."""
        try:
            arguments = self.decoder.decode(text or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolFailed(f"the arguments of {self.tool} are no JSON object ({error}). {self.expected()}") from error
        if not self._misfits(arguments):
            return arguments
        # null for an argument that may be left out means that it is
        kept = {name: value for name, value in arguments.items() if value is not None or name not in self.optional}
        if misfits := self._misfits(kept):
            raise ToolFailed(f"the arguments of {self.tool} do not fit: {'; '.join(misfits)}. {self.expected()}")
        return kept

    def _misfits(self, arguments: dict[str, Any]) -> list[str]:
        return list(problems(arguments, msgspec.json.decode(self.schema)))[:_MOST_MISFITS]


def declared_shape(schema: Mapping[str, Any], tool: str, function: Callable[..., object]) -> DeclaredShape:
    """The shape that a JSON Schema declares; Invalid says what is wrong with the schema, or with the function for it.

    Arguments that neither the schema names nor the function takes are refused.
    """
    whole: dict[str, Any] = {"type": "object", "properties": {}, **schema}
    problem = schema_problem(whole)
    if not problem and whole["type"] != "object":
        problem = f"$.type is {whole['type']!r}; arguments are an object"
    if problem:
        raise Invalid(f"the schema of tool {tool!r} is wrong: {problem}")
    required = whole.get("required", ())
    if not _COMBINED & schema.keys():
        _check_takes(function, tool, whole["properties"], required)
        if argument_problem(function, **dict.fromkeys(whole["properties"]), **{_UNDECLARED: None}):
            whole.setdefault("additionalProperties", False)
    return DeclaredShape(
        tool=tool,
        schema=Raw(msgspec.json.encode(whole)),
        decoder=msgspec.json.Decoder(dict[str, Any]),
        optional=frozenset(name for name in whole["properties"] if name not in required),
    )


_COMBINED = frozenset(("$ref", "allOf", "anyOf", "oneOf"))
"""Keywords of a schema by which it names arguments elsewhere."""
_UNDECLARED = "an argument that nobody declared"


def _check_takes(function: Callable[..., object], tool: str, names: Iterable[str], required: Iterable[str]) -> None:
    """Raise Invalid for a function that cannot be called with all arguments, or with only those that are required."""
    if problem := argument_problem(function, **dict.fromkeys(names)):
        raise Invalid(
            f"tool {tool!r}: the function cannot take the arguments of the schema by keyword: {problem}; "
            "give it their names, or **arguments"
        )
    if problem := argument_problem(function, **dict.fromkeys(required)):
        raise Invalid(
            f"tool {tool!r}: the function cannot be called with only what the schema requires: {problem}; "
            "give it a default, or name it in `required`"
        )


def shape_of(signature: Signature, tool: str) -> Shape:
    """The shape of a function's arguments; Invalid names the parameter that JSON cannot fill."""
    struct = msgspec.defstruct(
        "Arguments", [_field(part) for part in signature.parameters], kw_only=True, forbid_unknown_fields=True
    )
    try:
        schema = _schema(struct, signature.parameters)
        decoder = msgspec.json.Decoder(struct, dec_hook=_foreign)
    except TypeError as error:
        raise _blame(signature.parameters, tool, error) from error
    optional = frozenset(part.name for part in signature.parameters if part.optional)
    return Shape(
        tool=tool,
        schema=Raw(msgspec.json.encode(schema)),
        decoder=decoder,
        optional=optional,
        key=signature.key,
        caller=signature.caller,
    )


def _field(part: Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    if not part.optional:
        return part.name, part.type
    if isinstance(part.default, _PLAIN):
        return part.name, part.type, part.default
    default = part.default  # as Python does it: one and the same object for every call
    return part.name, part.type, msgspec.field(default_factory=lambda: default)


def _schema(struct: type, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    _, parts = msgspec.json.schema_components(
        (struct,), schema_hook=lambda kind: _foreign_schema(kind, shared), ref_template=_REFERENCE + "{name}"
    )
    root = parts.pop("Arguments")
    root.pop("title")
    for part in parameters:
        if part.optional and (default := _shown(part.default)) is not msgspec.UNSET:
            root["properties"][part.name]["default"] = default
    enums = {name: part for name, part in parts.items() if "enum" in part}
    root = cast("dict[str, Any]", _inlined(root, enums))
    rest = {name: _inlined(part, enums) for name, part in (parts | shared).items() if name not in enums}
    return root | {"$defs": rest} if rest else root


def _inlined(schema: object, enums: dict[str, Any]) -> object:
    """The schema with choices written where they are used: readers of small schemas follow no references."""
    if isinstance(schema, list):
        return [_inlined(item, enums) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, object]", schema)
    reference = str(table.get("$ref", "")).removeprefix(_REFERENCE)
    if reference in enums:
        return {name: part for name, part in enums[reference].items() if name != "title"} | {
            name: part for name, part in table.items() if name != "$ref"
        }
    return {name: _inlined(part, enums) for name, part in table.items()}


def _shown(default: object) -> object:
    try:
        return msgspec.to_builtins(default)
    except (TypeError, ValueError):
        return msgspec.UNSET


def _foreign(kind: type, value: object) -> object:
    """Types msgspec does not know: those with pydantic's two methods, and `object`, which is anything."""
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError
    return cast("Callable[[object], object]", validate)(value)


def _foreign_schema(kind: type, shared: dict[str, Any]) -> dict[str, Any]:
    if kind is object:
        return {"type": ["string", "number", "boolean", "array", "object", "null"]}  # {} would count as no schema
    write = getattr(kind, "model_json_schema", None)
    if write is None or not hasattr(kind, "model_validate"):
        raise TypeError(kind)  # not NotImplementedError: that is forgiven where the type has a description
    schema = dict(cast("Callable[..., dict[str, Any]]", write)(ref_template=_REFERENCE + "{model}"))
    shared.update(schema.pop("$defs", {}))
    return schema


def _blame(parameters: tuple[Parameter, ...], tool: str, error: TypeError) -> Invalid:
    for part in parameters:
        try:
            msgspec.json.schema_components((part.type,), schema_hook=lambda kind: _foreign_schema(kind, {}))
        except TypeError:
            return Invalid(f"tool {tool!r}: parameter {part.name!r} has a type that JSON cannot fill; use {_TYPES}")
    return Invalid(f"tool {tool!r}: its parameters cannot be read from JSON ({error}); use {_TYPES}")


def _named(unknown: list[str], known: tuple[str, ...]) -> str:
    words: list[str] = []
    for name in unknown[:5]:
        near = nearest_names(name, known, count=2)
        words.append(f"{name[:80]!r}" + (f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""))
    return ", ".join(words) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(msgspec.json.encode(choice).decode() for choice in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if "$ref" in schema:
        return schema["$ref"].removeprefix(_REFERENCE)
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"[{_kind(schema.get('items') or {})}, ...]"
    return kind if isinstance(kind, str) else "anything"
