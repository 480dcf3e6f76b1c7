"""Keywords that do not exist: which one was meant, in Python and in a team file."""

import inspect
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import Struct, StructMeta

from chargehand.text.names import nearest_names

_P = ParamSpec("_P")
_Made = TypeVar("_Made")

_MEANT = {
    "approval": ("approve",),
    "ask": ("approve",),
    "backstory": ("prompt",),
    "capacity": ("concurrency",),
    "concurrency": ("capacity",),
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
            if not meant and (meant := nearest_keyword(word, theirs)):
                hint = f"did you mean {other}({meant}=...)?"
            raise TypeError(f"{owner}() has no keyword {word!r}; {hint}")


class _SuggestingMeta(StructMeta):
    """Type checkers see the constructor of the struct; this only adds words to what it refuses."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **keywords: object) -> object:  # noqa: N805 - a metaclass
            if keywords:
                check_keywords(cls.__name__, keywords, cls.__struct_fields__)
            return super().__call__(*args, **keywords)


class Declared(Struct, frozen=True, metaclass=_SuggestingMeta):
    """A struct that people write in Python: a keyword that it does not have is refused with the one that was meant."""


def suggest_keywords(
    owner: str, elsewhere: tuple[str, Collection[str]] = ("", ())
) -> Callable[[Callable[_P, _Made]], Callable[_P, _Made]]:
    """The same for a function, or for the `__init__` of a class."""

    def decorate(function: Callable[_P, _Made]) -> Callable[_P, _Made]:
        parameters = inspect.signature(function).parameters.values()
        known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD and one.name != "self"]

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> _Made:
            check_keywords(owner, keywords, known, elsewhere)
            return function(*args, **keywords)

        return checked

    return decorate
