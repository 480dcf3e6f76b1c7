"""What may stand where on a command line, read off the parsers: for completion and the reference. It prints nothing."""

from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

Kind: TypeAlias = Literal["choice", "file", "folder", "other"]

_FILES = ("PATH", "FILE", "SCRIPT", "TEXT|FILE")
_FOLDERS = ("DIR",)


class Wanted(Struct, frozen=True):
    """What stands after an option, or as a word of its own. `other` is what nobody can guess."""

    kind: Kind
    choices: tuple[str, ...] = ()


class Option(Struct, frozen=True):
    """`wanted` is left out where nothing follows it, or perhaps nothing."""

    names: tuple[str, ...]
    about: str
    wanted: Wanted | None = None


class Place(Struct, frozen=True):
    """Behind a verb, a verb of a verb, or (the path is empty) the program's name. `many`: the last word is repeated."""

    path: str
    verbs: dict[str, str] = {}
    options: tuple[Option, ...] = ()
    words: tuple[Wanted, ...] = ()
    many: bool = False


def places(parser: ArgumentParser, path: str = "") -> Iterator[Place]:
    """The place of a parser, then those of its verbs, in the order of the help."""
    actions = parser._actions  # noqa: SLF001 - argparse has no other list of them
    nested = [one for one in actions if verbs_of(one)]
    options = [Option(tuple(one.option_strings), one.help or "", _after(one)) for one in actions if one.option_strings]
    words = [one for one in actions if not one.option_strings and one not in nested]
    names = {name: about for one in nested for name, about in _told(one).items()}
    many = bool(words) and words[-1].nargs in ("*", "+")
    yield Place(path, names, tuple(options), tuple(_wanted(one) for one in words), many)
    for one in nested:
        for name, inner in verbs_of(one).items():
            yield from places(inner, f"{path} {name}".strip())


def verbs_of(action: Action) -> Mapping[str, ArgumentParser]:
    """The verbs an action chooses between, each with its parser; none where it is no such action."""
    found = action.choices
    if not isinstance(found, Mapping):
        return {}
    return cast("Mapping[str, ArgumentParser]", found)


def _told(action: Action) -> dict[str, str]:
    listed = action._get_subactions()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] # noqa: SLF001 - as above
    return {one.dest: one.help or "" for one in cast("list[Action]", listed)}


def _after(action: Action) -> Wanted | None:
    return None if action.nargs in (0, "?") else _wanted(action)


def _wanted(action: Action) -> Wanted:
    if action.choices is not None:
        return Wanted("choice", tuple(str(one) for one in action.choices))
    if action.metavar in _FILES:
        return Wanted("file")
    return Wanted("folder" if action.metavar in _FOLDERS else "other")
