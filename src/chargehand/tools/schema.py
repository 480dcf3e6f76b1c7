"""The arguments of a tool: the JSON Schema a model is shown, and what it wrote checked against that schema.

The schema comes from the signature of a function, or is declared with the tool. Annotations are read from functions
that the program itself defines, never made from text that comes from outside.
"""

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NewType,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct, structs

from chargehand.engine.declared import argument_problem
from chargehand.engine.json_schema import problems, schema_problem
from chargehand.errors import Invalid
from chargehand.tools.calling import ToolFailed

# --- JSON Schemas


if TYPE_CHECKING:
    from chargehand.runtime.executor import StepContext

CallKey = NewType("CallKey", str)
"""A parameter of this type is given the key of the call: the same however often the call is repeated after a crash."""


class Caller(Struct, frozen=True):
    """Who makes a call, written down by the engine. A parameter of this type is filled in; no model can.

    `key` is a CallKey; `run`, `task` and `attempt` say where the call is made. `tainted` says that the worker has seen
    text from outside in this attempt; `seen` are the versions of the blocks as they were last shown to it. `mark` is
    another for another run of the same name: what a tool writes may outlive the journal. `context` is what the call may
    ask of the runtime; None where the tool is called outside of a run. `times` counts equal calls that the attempt
    made, with this one; calls that failed do not count.
    """

    key: str
    worker: str = ""
    tainted: bool = False
    seen: Mapping[str, int] = {}
    run: str = ""
    task: str = ""
    attempt: int = 0
    mark: str = ""
    times: int = 1
    context: "StepContext | None" = None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SECTION = re.compile(r"\s*(?:Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)")

_TYPES = "str, int, float, bool, Literal, an enum, list, dict, a Struct, a dataclass or a pydantic model"
_REFERENCE = "#/$defs/"
_MAX_PROBLEMS = 5
_OBJECT = msgspec.json.Decoder(dict[str, Any])


class Arguments(Struct, frozen=True):
    """The arguments of one tool."""

    tool: str
    schema: dict[str, Any]
    """What the model is shown."""
    decoder: msgspec.json.Decoder[Any] = _OBJECT
    """Makes of them what the function takes; without one of its own, they stay plain data."""
    description: str = ""
    """What the docstring of the function says, without its section on arguments."""
    key: str = ""
    """The parameter that takes the key of the call."""
    caller: str = ""
    """The parameter that takes the `Caller`."""

    def read(self, text: str) -> dict[str, Any]:
        """The arguments in this text; ToolFailed says, in words for the model, what does not fit."""
        if self.decoder is not _OBJECT:
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):  # explained below
                return structs.asdict(self.decoder.decode(text or "{}"))
        try:
            arguments = _OBJECT.decode(text or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolFailed(
                f"the arguments of {self.tool} are no JSON object ({error}). {self._expected()}"
            ) from error
        misfits = self._misfits(arguments)
        if misfits:  # null for an argument that may be left out means that it is
            required = self.schema.get("required", ())
            arguments = {name: value for name, value in arguments.items() if value is not None or name in required}
            misfits = self._misfits(arguments)
        if not misfits:
            try:
                decoded = self.decoder.decode(msgspec.json.encode(arguments))
                return structs.asdict(decoded) if isinstance(decoded, Struct) else decoded
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                misfits = [str(error)]
        raise ToolFailed(f"the arguments of {self.tool} do not fit: {'; '.join(misfits)}. {self._expected()}")

    def _misfits(self, arguments: dict[str, Any]) -> list[str]:
        return list(problems(arguments, self.schema))[:_MAX_PROBLEMS]

    def _expected(self) -> str:
        """The names and types in one line."""
        required = self.schema.get("required", ())
        parts: list[str] = []
        properties = cast("dict[str, object]", self.schema["properties"])
        for name, part in properties.items():
            kind = cast("dict[str, object]", part).get("type") if isinstance(part, dict) else None
            kind = kind or "see its schema"
            parts.append(f'"{name}": {kind}' if name in required else f'"{name}": {kind} (optional)')
        return f"Expected: {{{', '.join(parts)}}}"


# --- from a JSON Schema


_COMBINED = frozenset(("$ref", "allOf", "anyOf", "oneOf"))
"""Keywords of a schema by which it names arguments elsewhere."""
_UNDECLARED = "an argument that is not declared"


def declared_arguments(schema: Mapping[str, Any], tool: str, function: Callable[..., object]) -> Arguments:
    """The arguments that a JSON Schema declares; Invalid says what is wrong with it, or with the function for it.

    Arguments that neither the schema names nor the function takes are refused.
    """
    whole: dict[str, Any] = {"type": "object", "properties": {}, **schema}
    problem = schema_problem(whole)
    if not problem and whole["type"] != "object":
        problem = f"$.type is {whole['type']!r}; arguments are an object"
    if problem:
        raise Invalid(f"the schema of tool {tool!r} is wrong: {problem}")
    if not _COMBINED & schema.keys():
        names = dict.fromkeys(whole["properties"])
        if problem := argument_problem(function, **names):
            raise Invalid(
                f"tool {tool!r}: the function cannot take the arguments of the schema by keyword: {problem}; "
                "give it their names, or **arguments"
            )
        if problem := argument_problem(function, **dict.fromkeys(whole.get("required", ()))):
            raise Invalid(
                f"tool {tool!r}: the function cannot be called with only what the schema requires: {problem}; "
                "give it a default, or name it in `required`"
            )
        if argument_problem(function, **names, **{_UNDECLARED: None}):
            whole.setdefault("additionalProperties", False)
    return Arguments(tool, whole)


# --- from a function


def name_of(function: Callable[..., Any], name: str = "") -> str:
    """What the tool is called; Invalid when models could not call it that."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = name or getattr(inner, "__name__", type(inner).__name__.lower())
    if not _NAME.fullmatch(name):
        raise Invalid(f"a tool cannot be called {name!r}; give it a name of letters, digits and _: tool(name='...')")
    return name


def function_arguments(function: Callable[..., Any], tool: str) -> Arguments:
    """The arguments a model can fill; Invalid says which parameter cannot become one, and what to do."""
    documented = _documented(function)
    hints = _hints(documented, tool)
    description, docs = split_docstring(inspect.cleandoc(getattr(documented, "__doc__", None) or ""))
    bound = function.keywords if isinstance(function, functools.partial) else {}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, object] = {}
    filled_in: dict[object, str] = {}
    for parameter in _parameters(cast("Callable[..., Any]", function), tool):
        name = parameter.name
        if name in bound:
            continue  # already given, and not the model's to change
        _check_parameter(parameter, tool, hints)
        if hints[name] in (CallKey, Caller):
            filled_in[hints[name]] = name
            continue
        kind = _described(hints[name], docs.get(name, ""))
        if parameter.default is parameter.empty:
            fields.append((name, kind))
        else:
            defaults[name] = parameter.default
            # as Python does it: one and the same object for every call
            fields.append((name, kind, msgspec.field(default_factory=functools.partial(defaults.get, name))))
    struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return Arguments(
        tool=tool,
        schema=_schema(struct, defaults, tool),
        decoder=msgspec.json.Decoder(struct, dec_hook=_foreign),
        description=description,
        key=filled_in.get(CallKey, ""),
        caller=filled_in.get(Caller, ""),
    )


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """What has the docstring and the annotations: not a partial, nor an object that can be called."""
    if isinstance(function, functools.partial):
        return _documented(function.func)
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    try:
        return get_type_hints(function.__init__ if isinstance(function, type) else function, include_extras=True)
    except Exception as error:  # resolving names runs whatever stands in the annotations
        raise Invalid(
            f"the annotations of tool {tool!r} cannot be resolved ({error}); define the types they name in the module, "
            "not inside a function"
        ) from error


def _parameters(function: Callable[..., Any], tool: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Invalid(f"tool {tool!r} has no signature that can be read; wrap it in a typed function") from error


def _check_parameter(parameter: inspect.Parameter, tool: str, hints: dict[str, Any]) -> None:
    where = f"tool {tool!r}: parameter {parameter.name!r}"
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


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring without its section on arguments, and what that says of each."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    docs: dict[str, str] = {}
    name = ""
    margin = ""
    end = start + 1
    for line in lines[start + 1 :]:
        entry = _ENTRY.fullmatch(line)
        if entry and margin in ("", entry[1]):
            margin = entry[1]
            name = entry[2]
            docs[name] = entry[3].strip()
        elif name and line.startswith(margin + " "):
            docs[name] += " " + line.strip()
        else:
            break
        end += 1
    rest = [line.rstrip() for line in (*lines[:start], *lines[end:])]
    return "\n".join(rest).strip(), docs


# --- the schema of a function's arguments


def _schema(struct: type[Struct], defaults: dict[str, object], tool: str) -> dict[str, Any]:
    shared: dict[str, Any] = {}

    def foreign_schema(kind: type) -> dict[str, Any]:
        if kind is object:
            return {"type": ["string", "number", "boolean", "array", "object", "null"]}  # {} would count as no schema
        write = getattr(kind, "model_json_schema", None)
        if write is None or not hasattr(kind, "model_validate"):
            raise TypeError(f"JSON has nothing for {kind.__name__}")
        schema = dict(cast("Callable[..., dict[str, Any]]", write)(ref_template=_REFERENCE + "{model}"))
        shared.update(schema.pop("$defs", {}))
        return schema

    template = _REFERENCE + "{name}"
    for name, kind in get_type_hints(struct, include_extras=True).items():
        try:
            msgspec.json.schema_components((kind,), schema_hook=foreign_schema, ref_template=template)
        except TypeError as error:
            message = f"tool {tool!r}: parameter {name!r} has a type that JSON cannot fill; use {_TYPES}"
            raise Invalid(message) from error
    _, parts = msgspec.json.schema_components((struct,), schema_hook=foreign_schema, ref_template=template)
    root = parts.pop("Arguments")
    root.pop("title")
    for name, default in defaults.items():
        with contextlib.suppress(TypeError, ValueError):  # a default that JSON cannot show is not shown
            root["properties"][name]["default"] = msgspec.to_builtins(default)
    definitions = parts | shared
    return root | {"$defs": definitions} if definitions else root


def _foreign(kind: type, value: object) -> object:
    """Types msgspec does not know: those with pydantic's two methods, and `object`, which is anything."""
    if kind is object:
        return value
    return cast("Any", kind).model_validate(value)
