"""Values that people declare in Python, held against the types of the parameters and fields they are for."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, cast, get_args, get_origin

from msgspec import Meta, Struct

from chargehand.errors import Invalid
from chargehand.text.names import nearest_names

_LONGEST_SHOWN = 80
_PLAIN_DATA = (str, bytes, int, float, list, tuple, dict, set, NoneType)
_WORDS: dict[object, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type: "a type",
    object: "any value",
    Any: "any value",
}


class Write(Struct, frozen=True):
    """In `Annotated`: what to write for a value of this type, where the type itself does not say it well."""

    words: str


def written_as(scalar: str) -> Meta:
    """In `Annotated`: how a team file writes a value: `Duration`, `Timeout`, `Size`, `Dollars` (`config.schema`)."""
    return Meta(extra={"scalar": scalar})


Count: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
"""How many, at least one."""
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
"""How many, at least one, with no upper bound."""
Number: TypeAlias = Annotated[int, Meta(ge=0)]
"""How many, perhaps none."""
Length: TypeAlias = Annotated[float, written_as("Timeout")]
"""A time in seconds that is longer than nothing; in a team file `90s` or `5m`."""
Wait: TypeAlias = Annotated[float, written_as("Duration")]
"""A time in seconds, perhaps none."""


def wrong_value(owner: str, name: str, value: object, declared: object) -> Invalid:
    """The refusal of a value that is not of the declared type; it says what to write."""
    near = nearest_names(value, _literal_words(declared), count=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return Invalid(f"{owner}: {name} is {_show(value)}; write {describe_type(declared)}{hint}")


def fits_type(value: object, declared: object) -> bool:
    """Whether a value is of a type. What cannot be told of a type at runtime is taken on trust."""
    origin = get_origin(declared)
    if origin is not None:
        return _fits_generic(value, origin, get_args(declared))
    if declared is None:
        return value is None
    if not isinstance(declared, type) or declared in (object, Any):
        return True
    if declared in (int, float):
        numbers = int if declared is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if declared is type or _is_unchecked_protocol(declared):  # list[int] is no `type`, and yet it is one
        return not isinstance(value, _PLAIN_DATA)
    return isinstance(value, declared)


def is_async(function: object) -> bool:
    """Whether calling it gives something to wait for: an async function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - an object with an async __call__


def argument_problem(function: Callable[..., object], /, *arguments: object, **keywords: object) -> str:
    """Why a function cannot be called with these arguments; empty: it can, or has no signature that can be read."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions that are written in C
        return ""
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        return str(error)
    return ""


def describe_type(declared: object) -> str:
    """What to write for a value of a type."""
    origin = get_origin(declared)
    arguments = get_args(declared)
    if origin is Annotated:
        words = [extra.words for extra in arguments[1:] if isinstance(extra, Write)]
        return words[0] if words else describe_type(arguments[0])
    if origin in (Union, UnionType):
        options = [describe_type(option) for option in arguments if option is not NoneType]
        return " or ".join(dict.fromkeys(options))
    if origin is Literal:
        return ", ".join(map(repr, arguments))
    if _is_mapping(origin):
        return f"a dict of {describe_type(arguments[1])}"
    if _is_sequence(origin):
        return f"a list of {describe_type(arguments[0])}"
    if origin is Callable:
        return "a function"
    if not isinstance(declared, type):
        return "another value"
    return _WORDS.get(declared) or f"{declared.__name__}(...)"


def _show(value: object) -> str:
    """A value as it was written, or what it is where that would be long."""
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        shown = f"[{', '.join(map(_show, items))}]"
    elif isinstance(value, _PLAIN_DATA):
        shown = repr(cast("object", value))
    else:
        shown = value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _fits_generic(value: object, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is Annotated:
        return fits_type(value, arguments[0])
    if origin in (Union, UnionType):
        return any(fits_type(value, option) for option in arguments)
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in arguments)
    if origin is Callable:
        return callable(value)
    if _is_mapping(origin):
        if not isinstance(value, Mapping):
            return False
        pairs = cast("Mapping[object, object]", value).items()
        return all(fits_type(key, arguments[0]) and fits_type(item, arguments[1]) for key, item in pairs)
    if _is_sequence(origin):
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            return False
        items = cast("Sequence[object]", value)
        return all(fits_type(item, arguments[0]) for item in items)
    return True


def _is_mapping(origin: object) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_sequence(origin: object) -> bool:
    """Lists and tuples alike: all tuples that people declare are of one type, as long as they like."""
    return isinstance(origin, type) and issubclass(origin, Sequence)


def _is_unchecked_protocol(declared: type) -> bool:
    return getattr(declared, "_is_protocol", False) and not getattr(declared, "_is_runtime_protocol", False)


def _literal_words(declared: object) -> list[str]:
    """The words that a type allows."""
    if get_origin(declared) is Literal:
        return [word for word in get_args(declared) if isinstance(word, str)]
    return [word for option in get_args(declared) for word in _literal_words(option)]
