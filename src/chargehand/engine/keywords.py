"""What people declare: keywords that do not exist, with the one that was meant, and values of other types."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_type_hints

from msgspec import Struct, StructMeta

from chargehand.engine.declared_types import fits_type, wrong_value
from chargehand.text.names import nearest_names

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
    "requires_approval": ("approve",),
    "response_format": ("output", "output_schema"),
    "role": ("description",),
    "seconds": ("timeout",),
    "sec": ("seconds", "timeout"),
    "secs": ("seconds", "timeout"),
    "system": ("prompt",),
    "system_prompt": ("prompt", "instructions"),
    "time_limit": ("timeout",),
    "wall": ("timeout",),
}
"""Words that people write, from other libraries or from the other side, and what they are called here."""
_SHORT_UNITS = ("sec", "secs")
"""So short that what looks like them means something else."""
_LONGEST_WORD = 80
_SHORTEST_BEGINNING = 3
_MOST_LISTED = 16


def synonym_of(word: str, known: Collection[str]) -> str:
    """The keyword that is called `word` elsewhere; empty when there is none."""
    return next((meant for meant in _MEANT.get(word, ()) if meant in known), "")


def nearest_keyword(word: str, known: Collection[str]) -> str:
    """The keyword that somebody who wrote `word` meant; empty when none is near."""
    if synonym := synonym_of(word, known):
        return synonym
    if len(word) > _LONGEST_WORD or word in _SHORT_UNITS:
        return ""
    near = nearest_names(word, known, count=1)
    begun = [name for name in known if len(word) >= _SHORTEST_BEGINNING and name.startswith(word)]
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
    given = dict(zip(fields, args, strict=False)) | dict(keywords)
    name = given.get("name")
    return f"{struct.__name__} {name!r}" if isinstance(name, str) else struct.__name__


@cache
def _types_of(declared: Callable[..., object]) -> dict[str, Any]:
    """The types of fields or parameters. They may name what is imported later, so they are read when first needed."""
    return get_type_hints(declared, include_extras=True)


def check_declared(
    owner: str, elsewhere: tuple[str, Collection[str]] = ("", ())
) -> Callable[[Callable[_P, _Made]], Callable[_P, _Made]]:
    """The same for a function, or for the `__init__` of a class."""

    def decorate(function: Callable[_P, _Made]) -> Callable[_P, _Made]:
        signature = inspect.signature(function)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
        known = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> _Made:
            check_keywords(owner, keywords, known, elsewhere)
            try:
                given = signature.bind(*args, **keywords).arguments
            except TypeError:  # the function itself says which argument is missing
                return function(*args, **keywords)
            types = _types_of(function)
            for parameter in parameters:
                name = parameter.name
                if name in given and name in types:
                    values = given[name] if parameter.kind is parameter.VAR_POSITIONAL else (given[name],)
                    for value in values:
                        if not fits_type(value, types[name]):
                            raise wrong_value(owner, name, value, types[name])
            return function(*args, **keywords)

        return checked

    return decorate
