"""What people declare in Python: keywords that do not exist, values of other types, durations as text."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, wraps
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta, Struct, StructMeta
from msgspec import inspect as type_inspect

from chargehand.errors import Invalid
from chargehand.text.words import listed, nearest_names

_MAX_SHOWN = 80
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
    if wrapper := _wrapper_of(value):
        return Invalid(f"{owner}: {name} is {_show(value)}; wrap it: call={wrapper}(..., effect=...)")
    return Invalid(f"{owner}: {name} is {_show(value)}; write {describe_type(declared)}{hint}")


_WRAPPERS = {
    "pydantic_ai": "chargehand.integrations.pydantic_ai.from_pydantic_ai",
    "langgraph": "chargehand.integrations.langgraph.from_langgraph",
    "agents.agent": "chargehand.integrations.openai_agents.from_openai_agents",
    "crewai": "chargehand.integrations.crewai.from_crewai",
}
"""What makes a worker's `call` of an agent of another framework, by the module of the agent's class."""


def _wrapper_of(value: object) -> str:
    """What wraps an agent of another framework; empty: it is none."""
    for base in type(value).__mro__:
        for module, wrapper in _WRAPPERS.items():
            if f"{base.__module__}.".startswith(f"{module}."):
                return wrapper
    return ""


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
        bounds = [_describe_bounds(extra) for extra in arguments[1:] if isinstance(extra, Meta)]
        return words[0] if words else f"{describe_type(arguments[0])}{''.join(bounds)}"
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


def _describe_bounds(bounds: Meta) -> str:
    least = "" if bounds.ge is None else f" from {bounds.ge:g}"
    return least if bounds.le is None else f"{least} to {bounds.le:g}"


def _show(value: object) -> str:
    """A value as it was written, or what it is where that would be long."""
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        text = f"[{', '.join(map(_show, items))}]"
    elif isinstance(value, _PLAIN_DATA):
        text = repr(cast("object", value))
    else:
        text = value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _fits_generic(value: object, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is Annotated:
        return fits_type(value, arguments[0]) and all(_is_within(value, extra) for extra in arguments[1:])
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


def _is_within(value: Any, bounds: object) -> bool:
    """Whether a number keeps to the bounds that are declared for it; NaN keeps to none."""
    if not isinstance(bounds, Meta):
        return True
    return (bounds.ge is None or value >= bounds.ge) and (bounds.le is None or value <= bounds.le)


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


_P = ParamSpec("_P")
_Made = TypeVar("_Made")

_MEANT = {
    "approval": ("approve",),
    "ask": ("approve",),
    "backstory": ("prompt",),
    "capacity": ("concurrency",),
    "cost": ("usd",),
    "deadline": ("timeout",),
    "does": ("description",),
    "dollars": ("usd",),
    "effects": ("effect",),
    "fallback": ("fallbacks",),
    "fallbacks": ("fallback",),
    "functions": ("tools",),
    "goal": ("description",),
    "human_input": ("approve",),
    "instructions": ("prompt",),
    "llm": ("model",),
    "max_iterations": ("steps",),
    "max_seconds": ("timeout",),
    "max_steps": ("steps",),
    "max_turns": ("steps",),
    "max_usd": ("usd",),
    "micros": ("usd",),
    "output": ("output_schema",),
    "output_schema": ("output",),
    "output_type": ("output", "output_schema"),
    "persona": ("prompt",),
    "python": ("call",),
    "requires_approval": ("approve",),
    "response_format": ("output", "output_schema"),
    "reasoning": ("effort",),
    "reasoning_effort": ("effort",),
    "role": ("description",),
    "seconds": ("timeout",),
    "sec": ("seconds", "timeout"),
    "secs": ("seconds", "timeout"),
    "stop_sequences": ("stop",),
    "system": ("prompt",),
    "system_prompt": ("prompt", "instructions"),
    "thinking": ("effort",),
    "tier": ("service_tier",),
    "time_limit": ("timeout",),
    "wall": ("timeout",),
}
"""Words that people write, from other libraries or from the other side, and what they are called here."""
_SHORT_UNITS = ("sec", "secs")
"""So short that what looks like them means something else."""
_LONGEST_WORD = 80
_SHORTEST_BEGINNING = 3
_MOST_LISTED = 16


def synonym_of(word: str, keywords: Collection[str]) -> str:
    """The keyword that is called `word` elsewhere; empty when there is none."""
    return next((meant for meant in _MEANT.get(word, ()) if meant in keywords), "")


def nearest_keyword(word: str, keywords: Collection[str]) -> str:
    """The keyword that `word` was probably meant to be; empty when none is near."""
    if synonym := synonym_of(word, keywords):
        return synonym
    if len(word) > _LONGEST_WORD or word in _SHORT_UNITS:
        return ""
    near = nearest_names(word, keywords, count=1)
    begun = [name for name in keywords if len(word) >= _SHORTEST_BEGINNING and name.startswith(word)]
    return next(iter((*near, *begun)), "")


def check_keywords(
    owner: str, given: Iterable[str], known: Collection[str], elsewhere: tuple[str, Collection[str]] = ("", ())
) -> None:
    """Raise TypeError for a keyword that `owner` does not take; it names the one that was meant, or all there are.

    `elsewhere` is who else it may have been meant for, and the keywords of that.
    """
    for word in given:
        if word not in known:
            names = list(known)
            meant = nearest_keyword(word, names)
            listed = ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
            hint = f"did you mean {meant!r}?" if meant else f"it takes {listed}"
            other, theirs = elsewhere
            theirs_meant = word if word in theirs else "" if meant else nearest_keyword(word, theirs)
            if theirs_meant:
                hint = f"did you mean {other}({theirs_meant}=...)?"
            raise TypeError(f"{owner}() has no keyword {word!r}; {hint}")


class _CheckingMeta(StructMeta):
    """Type checkers see the constructor of the struct; this only adds words to what it refuses."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **keywords: object) -> object:  # noqa: N805 - a metaclass
            if keywords:
                check_keywords(cls.__name__, keywords, cls.__struct_fields__)
            types = _types_of(cls)
            for name, value in (*zip(cls.__match_args__, args, strict=False), *keywords.items()):
                declared = types[name]
                if type(value) is not declared and not fits_type(value, declared):  # most are exactly of their type
                    raise wrong_value(_owner(cls, args, keywords), name, value, declared)
            try:
                return super().__call__(*args, **keywords)
            except TypeError:
                if len(args) > len(cls.__match_args__):
                    raise _too_many(cls, args, keywords) from None
                raise


class Declared(Struct, frozen=True, metaclass=_CheckingMeta):
    """A struct that people write in Python: keywords it does not have and values of other types are refused.

    What was meant, or what to write, is in the words of the refusal.
    """


def _too_many(struct: StructMeta, args: Sequence[object], keywords: Mapping[str, object]) -> TypeError:
    """The refusal of values without a keyword; it names the keyword that the first of them may have been meant for."""
    positional: tuple[str, ...] = struct.__match_args__
    value = args[len(positional)]
    open_fields = [name for name in struct.__struct_fields__ if name not in positional and name not in keywords]
    own_first = sorted(open_fields, key=lambda name: name not in struct.__annotations__)
    types = _types_of(struct)
    meant = next((name for name in own_first if fits_type(value, types[name])), "")
    shown = repr(value) if isinstance(value, str | int | float) and len(repr(value)) <= _LONGEST_WORD else "..."
    taken = f"only {len(positional)} values" if positional else "no values"
    hint = f"write {struct.__name__}({meant}={shown})" if meant else f"it takes {', '.join(open_fields)}"
    return TypeError(f"{struct.__name__}() takes {taken} without a keyword; {hint}")


def _owner(struct: StructMeta, args: Sequence[object], keywords: Mapping[str, object]) -> str:
    """What is declared, with its name where it has one."""
    fields: tuple[str, ...] = struct.__struct_fields__
    values = dict(zip(fields, args, strict=False)) | dict(keywords)
    name = values.get("name")
    return f"{struct.__name__} {name!r}" if isinstance(name, str) else struct.__name__


@cache
def _types_of(declared: Callable[..., object]) -> dict[str, Any]:
    """The types of fields or parameters. They may name what is imported later, so they are read when first needed."""
    return get_type_hints(declared, include_extras=True)


def check_declared(
    owner: str, elsewhere: tuple[str, Collection[str]] = ("", ()), settings: Callable[..., object] = dict
) -> Callable[[Callable[_P, _Made]], Callable[_P, _Made]]:
    """The same for a function, or for the `__init__` of a class; `settings` is a TypedDict of further keywords."""

    def decorate(function: Callable[_P, _Made]) -> Callable[_P, _Made]:
        parameters = list(inspect.signature(function).parameters.values())
        known = [each.name for each in parameters if each.name != "self" and each.kind is not each.VAR_KEYWORD]
        known += getattr(settings, "__annotations__", ())
        positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        others = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")

        def check(name: str, value: object) -> None:
            types = _types_of(function) | _types_of(settings)
            if name in types and not fits_type(value, types[name]):
                raise wrong_value(owner, name, value, types[name])

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> _Made:
            check_keywords(owner, keywords, known, elsewhere)
            for name, value in (*zip(positional, args, strict=False), *keywords.items()):
                check(name, value)
            for value in args[len(positional) :]:
                check(others, value)
            return function(*args, **keywords)  # which says itself what is missing or too much

        return checked

    return decorate


WrittenDuration: TypeAlias = Annotated[
    float | str, Write('a duration such as 90, "90s" or "5m"'), written_as("Timeout")
]
"""A number of seconds, or text such as `5m`."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d)", re.ASCII)
_MAX_DURATION = 366 * 86400.0
_MAX_WRITTEN = 60


def parse_duration(written: object, *, longest: float = _MAX_DURATION) -> float:
    """The seconds of a duration; ValueError, as the end of a sentence about it, for what is none."""
    if isinstance(written, str):
        text = written.replace(" ", "")
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"is {show_value(written)}; write a duration such as 90s, 5m, 1h30m or 250ms")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif isinstance(written, int | float) and not isinstance(written, bool):
        seconds = float(written)
    else:
        raise ValueError(f"is {show_value(written)}; write a duration such as 90s")  # noqa: TRY004 - one kind of complaint
    if not 0 <= seconds <= longest:
        raise ValueError(f"is {show_value(written)}; a duration is between 0s and {longest / 86400:.0f}d")
    return seconds


def parse_timeout(written: object) -> float:
    """The seconds of a duration that is longer than nothing; ValueError as `parse_duration` raises it."""
    seconds = parse_duration(written)
    if not seconds:
        raise ValueError(f"is {show_value(written)}; it must be longer than nothing, for example 90s")
    return seconds


def seconds_of(name: str, written: WrittenDuration) -> float:
    """The seconds of a duration that is called `name`; Invalid for what is none, and for nothing at all."""
    try:
        return parse_timeout(written)
    except ValueError as error:
        raise Invalid(f"{name} {error}") from None


def show_value(written: object) -> str:
    """A value as it stands in a file, cut where it is long."""
    text = repr(written) if isinstance(written, str) else str(written).lower()
    return text if len(text) <= _MAX_WRITTEN else f"{text[: _MAX_WRITTEN - 1]}…"


# --- data that does not fit its shape


_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_REPLACEMENTS = (("Expected ", "must be "), (", got ", ", not "), (" | ", " or "), ("`", ""))
_MAX_VALUE_CHARS = 60


class Misfit(Struct, frozen=True):
    """One thing that does not fit."""

    place: str
    """Where, as in `$.tasks[0].worker`; `$` is all of it."""
    message: str

    def __str__(self) -> str:
        return self.message if self.place == "$" else f"{self.place}: {self.message}"


def describe_misfit(error: msgspec.ValidationError, shape: Any, sent: object = UNSET) -> Misfit:
    """What is wrong with data that is not of this shape. `sent` is the data, where it is at hand."""
    problem, _, place = str(error).partition(" - at `")
    place = place.rstrip("`") or "$"
    kinds = [_type_of(shape)]
    value = sent
    for step in _STEP.finditer(place):
        kinds = [inner for kind in kinds for inner in _types_inside(kind, step[1])]
        value = _value_inside(value, step)
    return Misfit(place, _describe(problem, [each for kind in kinds for each in _alternatives(kind)], value))


@lru_cache(maxsize=256)
def _type_of(shape: Any) -> type_inspect.Type:
    return type_inspect.type_info(shape)


def _alternatives(kind: type_inspect.Type) -> Iterator[type_inspect.Type]:
    if isinstance(kind, type_inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    elif isinstance(kind, type_inspect.Metadata):
        yield from _alternatives(kind.type)
    else:
        yield kind


def _types_inside(kind: type_inspect.Type, name: str | None) -> Iterator[type_inspect.Type]:
    """What stands one step further inside: in the field `name`, or among the items."""
    for each in _alternatives(kind):
        if isinstance(each, type_inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == name)
            if each.tag_field == name:
                yield type_inspect.LiteralType((each.tag,))
        elif isinstance(each, type_inspect.DictType):
            yield each.value_type
        elif isinstance(each, type_inspect.CollectionType):
            yield each.item_type
        elif isinstance(each, type_inspect.TupleType):
            yield from each.item_types


def _value_inside(value: object, step: re.Match[str]) -> object:
    if isinstance(value, dict):
        return cast("dict[object, object]", value).get(step[1], UNSET)
    items = cast("list[object]", value) if isinstance(value, list | tuple) else []
    at = int(step[2] or 0)
    return items[at] if step[2] and at < len(items) else UNSET  # of a key that is there twice, `value` is the last


def _describe(problem: str, kinds: list[type_inspect.Type], value: object) -> str:
    """The words of msgspec in ours. `kinds` are what may stand there, `value` what does."""
    table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    field_names = _field_names(kinds, table)
    if unknown := _UNKNOWN.fullmatch(problem):
        meant = nearest_keyword(unknown[1], field_names)
        hint = f"did you mean {meant!r}?" if meant else f"the fields are {listed(field_names) or 'not known'}"
        return f"there is no field {unknown[1][:_MAX_VALUE_CHARS]!r}; {hint}"
    if missing := _MISSING.fullmatch(problem):
        meant = nearest_keyword(missing[1], [key for key in table if key not in field_names])
        hint = f"; was it meant by {meant[:_MAX_VALUE_CHARS]!r}?" if meant else ""
        return f"the field {missing[1]!r} is missing{hint}"
    choices = [str(choice) for kind in kinds if isinstance(kind, type_inspect.LiteralType) for choice in kind.values]
    if (chosen := _CHOICE.fullmatch(problem)) and choices:
        return f"{chosen[1][:_MAX_VALUE_CHARS]} is not allowed; it must be one of {', '.join(dict.fromkeys(choices))}"
    wanted = problem
    for theirs, ours in _REPLACEMENTS:
        wanted = wanted.replace(theirs, ours)
    return f"{wanted} (it is {value!r:.{_MAX_VALUE_CHARS}})" if isinstance(value, str | int | float) else wanted


def _field_names(kinds: list[type_inspect.Type], table: dict[str, object]) -> list[str]:
    """The fields of the structs that may stand there; where they have tags, of the one that is named."""
    names: dict[str, None] = {}
    for kind in kinds:
        if isinstance(kind, type_inspect.StructType) and table.get(kind.tag_field or "", kind.tag) == kind.tag:
            names |= dict.fromkeys(field.encode_name for field in kind.fields)
    return list(names)
