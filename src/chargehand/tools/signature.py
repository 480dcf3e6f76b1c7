"""What a function says about its parameters: names, types, defaults, descriptions. What JSON makes of them is `schema`.

Annotations are read from functions that the program itself defines, never made from text that comes from outside.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NewType, cast, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, field

from chargehand.errors import Invalid

CallKey = NewType("CallKey", str)
"""A parameter of this type is given the key of the call: the same however often the call is repeated after a crash."""


class Caller(Struct, frozen=True):
    """Who makes a call, written down by the engine. A parameter of this type is filled in; no model can.

    `key` is a CallKey: `run/task/attempt/number`. `tainted` says that the worker has seen text from outside in this
    attempt; `seen` are the versions of the blocks as they were last shown to it. `mark` is another for another run
    of the same name: what a tool writes may outlive the journal.
    """

    key: str
    worker: str = ""
    tainted: bool = False
    seen: Mapping[str, int] = field(default_factory=dict[str, int])
    run: str = ""
    task: str = ""
    mark: str = ""


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
    description, said = _split(text)
    bound = _bound(function)
    found: list[Parameter] = []
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
        kind = _described(hints[parameter.name], said.get(parameter.name, ""))
        optional = parameter.default is not parameter.empty
        found.append(Parameter(parameter.name, kind, optional, parameter.default if optional else None))
    return Signature(parameters=tuple(found), description=description, key=key, caller=caller)


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


def _described(kind: Any, said: str) -> Any:
    """The type with its description where msgspec finds it: from Annotated text, else from the docstring."""
    extras = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    if any(isinstance(extra, Meta) and extra.description for extra in extras):
        return kind
    words = [extra if isinstance(extra, str) else getattr(extra, "description", None) for extra in extras]
    text = next((word for word in words if isinstance(word, str) and word), said)
    return cast("Any", Annotated[kind, Meta(description=text)]) if text else kind


def _split(text: str) -> tuple[str, dict[str, str]]:
    """A docstring without its section on arguments, and what that says of each."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    said: dict[str, str] = {}
    name = ""
    margin = ""
    end = start + 1
    for end in range(start + 1, len(lines) + 1):
        line = lines[end] if end < len(lines) else ""
        entry = _ENTRY.fullmatch(line)
        if entry and (not margin or entry[1] == margin):
            margin = entry[1]
            name = entry[2]
            said[name] = entry[3]
        elif name and line.startswith(margin + " "):
            said[name] += " " + line.strip()
        else:
            break
    rest = [line.rstrip() for line in (*lines[:start], *lines[end:])]
    return "\n".join(rest).strip(), {name: words.strip() for name, words in said.items()}
