"""Data that does not fit its shape, in our words: where it is wrong, what was sent, and what would be right."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, inspect

from chargehand.engine.declared import nearest_keyword
from chargehand.text.names import listed

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_WORDS = (("Expected ", "must be "), (", got ", ", not "), (" | ", " or "), ("`", ""))
_MAX_SHOWN = 60


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
def _type_of(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _alternatives(each)
    elif isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    else:
        yield kind


def _types_inside(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """What stands one step further inside: in the field `name`, or among the items."""
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield from (field.type for field in each.fields if field.encode_name == name)
            if each.tag_field == name:
                yield inspect.LiteralType((each.tag,))
        elif isinstance(each, inspect.DictType):
            yield each.value_type
        elif isinstance(each, inspect.CollectionType):
            yield each.item_type
        elif isinstance(each, inspect.TupleType):
            yield from each.item_types


def _value_inside(value: object, step: re.Match[str]) -> object:
    if isinstance(value, dict):
        return cast("dict[object, object]", value).get(step[1], UNSET)
    items = cast("list[object]", value) if isinstance(value, list | tuple) else []
    at = int(step[2] or 0)
    return items[at] if step[2] and at < len(items) else UNSET  # of a key that is there twice, `value` is the last


def _describe(problem: str, kinds: list[inspect.Type], value: object) -> str:
    """The words of msgspec in ours. `kinds` are what may stand there, `value` what does."""
    table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    known = _field_names(kinds, table)
    if unknown := _UNKNOWN.fullmatch(problem):
        meant = nearest_keyword(unknown[1], known)
        hint = f"did you mean {meant!r}?" if meant else f"the fields are {listed(known) or 'not known'}"
        return f"there is no field {unknown[1][:_MAX_SHOWN]!r}; {hint}"
    if missing := _MISSING.fullmatch(problem):
        meant = nearest_keyword(missing[1], [key for key in table if key not in known])
        return f"the field {missing[1]!r} is missing" + (f"; was it meant by {meant[:_MAX_SHOWN]!r}?" if meant else "")
    choices = [str(choice) for kind in kinds if isinstance(kind, inspect.LiteralType) for choice in kind.values]
    if (chosen := _CHOICE.fullmatch(problem)) and choices:
        return f"{chosen[1][:_MAX_SHOWN]} is not allowed; it must be one of {', '.join(dict.fromkeys(choices))}"
    wanted = problem
    for theirs, ours in _WORDS:
        wanted = wanted.replace(theirs, ours)
    return f"{wanted} (it is {value!r:.{_MAX_SHOWN}})" if isinstance(value, str | int | float) else wanted


def _field_names(kinds: list[inspect.Type], table: dict[str, object]) -> list[str]:
    """The fields of the structs that may stand there; where they have tags, of the one that is named."""
    names: dict[str, None] = {}
    for kind in kinds:
        if isinstance(kind, inspect.StructType) and table.get(kind.tag_field or "", kind.tag) == kind.tag:
            names |= dict.fromkeys(field.encode_name for field in kind.fields)
    return list(names)
