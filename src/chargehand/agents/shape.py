"""JSON that a model wrote: finding it in its text, and holding it to a schema in words a model can act on."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw

from chargehand.engine.json_schema import problems
from chargehand.engine.plan import Finding
from chargehand.errors import Invalid

_FENCE = re.compile(r"```(?:json)?[ \t\r]*\n(.*?)```", re.DOTALL)  # no two parts match the same: it stays linear
_MOST = 5
_Reply = TypeVar("_Reply")
_UNREAD = frozenset(("not_a_plan", "not_an_answer", "no_route"))  # findings about replies that could not be read


def find_json(text: str) -> object:
    """The JSON value in a model's text: all of it, or what stands in a fence or between its outer brackets.

    Invalid says what is wrong where there is none: for people, who cannot be told to write it better.
    """
    stripped = text.strip()
    if not stripped:
        raise Invalid("the reply is empty; one JSON value is wanted")
    tries = [stripped, *_FENCE.findall(stripped)]
    for opening, closing in (("{", "}"), ("[", "]")):
        first = stripped.find(opening)
        last = stripped.rfind(closing)
        if 0 <= first < last:
            tries.append(stripped[first : last + 1])
    problem = ""
    for part in tries:
        try:
            return msgspec.json.decode(part)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            problem = problem or str(error)
    raise Invalid(f"the reply is not JSON ({problem})")


def find_object(text: str) -> Mapping[str, object]:
    """The JSON object in a model's text; Invalid where there is none."""
    value = find_json(text)
    if not isinstance(value, dict):
        raise Invalid(f"the reply must be a JSON object, not a {type(value).__name__}")
    return cast("dict[str, object]", value)


def read_reply(text: str, shape: type[_Reply]) -> _Reply:
    """What a model wrote, as a struct; Invalid, in words for the model, where it does not fit.

    Some models put truths and numbers in quotes: those are read as well.
    """
    try:
        return msgspec.convert(find_object(text), shape, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"the reply does not have the wanted shape: {error}") from error


def one_line(value: object, max_length: int) -> str:
    """A text that a model wrote, on one line; empty for what is no text."""
    return " ".join(value.split())[:max_length] if isinstance(value, str) else ""


def sent_back(findings: Sequence[Finding], *, places: bool = False) -> str:
    """What was wrong with a reply, for the model that is asked again, with what to do about it."""
    lines = [f"{finding.place}: {finding.message}" if places else finding.message for finding in findings]
    if any(finding.code in _UNREAD for finding in findings):
        lines.append("Send one JSON value and nothing else.")
    return "\n".join(f"- {line}" for line in dict.fromkeys(lines))


class JsonShape:
    """What a result must look like: a JSON Schema to show to a model, and a check of what it sends."""

    def __init__(self, wanted: type | dict[str, Any]) -> None:
        self._type = None if isinstance(wanted, dict) else wanted
        self.schema: dict[str, Any] = wanted if isinstance(wanted, dict) else _schema_of(wanted)
        self.raw = msgspec.Raw(msgspec.json.encode(self.schema))

    def read(self, text: str) -> object:
        """The value in a text; Invalid lists what does not fit."""
        value = find_json(text)
        if findings := list(problems(value, self.schema))[:_MOST]:
            raise Invalid("the reply does not have the wanted shape: " + "; ".join(findings))
        try:
            self.typed(value)
        except ValueError as error:  # so are msgspec's, and those of validators that people write
            raise Invalid(f"the reply does not have the wanted shape: {error}") from error
        return value

    def typed(self, value: object) -> object:
        """A value as the type that is wanted; as it is, where a schema is. ValueError where it does not fit."""
        if self._type is None:
            return value
        foreign: Callable[[object], object] | None = getattr(self._type, "model_validate", None)
        if foreign is not None:
            return foreign(value)
        return cast("object", msgspec.convert(value, self._type, strict=True))


def _schema_of(wanted: type) -> dict[str, Any]:
    foreign: Callable[[], dict[str, Any]] | None = getattr(wanted, "model_json_schema", None)
    return foreign() if foreign is not None else msgspec.json.schema(wanted)


# --- schemas of what a model is asked for, as strict modes take them


def object_schema(properties: Mapping[str, object]) -> dict[str, object]:
    """An object with all of these properties, and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def text_schema(max_length: int, *, min_length: int = 0) -> dict[str, object]:
    shortest = {"minLength": min_length} if min_length else {}
    return {"type": "string", **shortest, "maxLength": max_length}


def choice_schema(names: Sequence[str], *, or_null: bool = False) -> dict[str, object]:
    """One of these names; null, where that is allowed, is none of them."""
    choice: dict[str, object] = {"type": "string", "enum": list(names)}
    return {"anyOf": [choice, {"type": "null"}]} if or_null else choice


def list_schema(items: Mapping[str, object], max_items: int) -> dict[str, object]:
    return {"type": "array", "items": items, "maxItems": max_items}


def encode_schema(properties: Mapping[str, object]) -> Raw:
    """The schema of a whole reply: an object with these properties."""
    return Raw(msgspec.json.encode(object_schema(properties)))
