"""JSON that a model wrote: finding it in its text, and holding it to a schema in words a model can act on.

Covers what schemas made from types use; keywords it does not know are not checked.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Raw

from chargehand.engine.plan import Finding
from chargehand.errors import Invalid

_FENCE = re.compile(r"```(?:json)?[ \t\r]*\n(.*?)```", re.DOTALL)  # no two parts match the same: it stays linear
_MOST = 5
_FARTHEST = 100  # references to references
_UNREAD = frozenset(("not_a_plan", "not_an_answer", "no_route"))  # findings about replies that nobody could read


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
    for one in tries:
        try:
            return msgspec.json.decode(one)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            problem = problem or str(error)
    raise Invalid(f"the reply is not JSON ({problem})")


def find_object(text: str) -> Mapping[str, object]:
    """The JSON object in a model's text; Invalid where there is none."""
    value = find_json(text)
    if not isinstance(value, dict):
        raise Invalid(f"the reply must be a JSON object, not a {type(value).__name__}")
    return cast("dict[str, object]", value)


def one_line(value: object, max_length: int) -> str:
    """A text that a model wrote, on one line; empty for what is no text."""
    return " ".join(value.split())[:max_length] if isinstance(value, str) else ""


def useless(model: str, error: Invalid) -> str:
    """What was wrong with the reply of a model, for people who read why something failed."""
    said = str(error)
    return f"the reply of {model} {said.removeprefix('the reply ')}" if said.startswith("the reply ") else said


def sent_back(findings: Sequence[Finding], *, places: bool = False) -> str:
    """What was wrong with a reply, for the model that is asked again, with what to do about it."""
    said = [f"{one.place}: {one.message}" if places else one.message for one in findings]
    if any(one.code in _UNREAD for one in findings):
        said.append("Send one JSON value and nothing else.")
    return "\n".join(f"- {one}" for one in dict.fromkeys(said))


class Shape:
    """What a result must look like: a JSON Schema to show to a model, and a check of what it sends."""

    def __init__(self, wanted: type | dict[str, Any]) -> None:
        self._type = None if isinstance(wanted, dict) else wanted
        self.schema: dict[str, Any] = wanted if isinstance(wanted, dict) else _schema_of(wanted)
        self.raw = msgspec.Raw(msgspec.json.encode(self.schema))

    def read(self, text: str) -> object:
        """The value in a text; Invalid lists what does not fit."""
        value = find_json(text)
        if found := list(problems(value, self.schema))[:_MOST]:
            raise Invalid("the reply does not have the wanted shape: " + "; ".join(found))
        if self._type is not None:
            foreign: Callable[[object], object] | None = getattr(self._type, "model_validate", None)
            try:
                foreign(value) if foreign is not None else msgspec.convert(value, self._type, strict=True)
            except ValueError as error:  # so are msgspec's, and those of validators that people write
                raise Invalid(f"the reply does not have the wanted shape: {error}") from error
        return value


def _schema_of(wanted: type) -> dict[str, Any]:
    foreign: Callable[[], dict[str, Any]] | None = getattr(wanted, "model_json_schema", None)
    return foreign() if foreign is not None else msgspec.json.schema(wanted)


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def problems(
    value: object, schema: dict[str, Any], place: str = "$", root: dict[str, Any] | None = None
) -> Iterator[str]:
    """What of a value does not fit a schema, in words."""
    root = schema if root is None else root
    for _ in range(_FARTHEST):
        if "$ref" not in schema:
            break
        schema = _followed(schema["$ref"], root)
    else:
        raise ValueError(f"the schema refers to itself and says nothing at {place}")
    options: list[dict[str, Any]] | None = schema.get("anyOf") or schema.get("oneOf")
    if options and not any(not list(problems(value, one, place, root)) for one in options):
        yield f"{place} fits none of the allowed forms"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}; allowed are {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{place} must be {schema['const']!r}"
    kinds = schema.get("type")
    wanted: list[str] = [kinds] if isinstance(kinds, str) else kinds or []
    if wanted and not any(_is(value, kind) for kind in wanted):
        yield f"{place} must be {' or '.join(wanted)}, not {type(value).__name__}"
    elif isinstance(value, dict):
        yield from _in_object(cast("dict[str, object]", value), schema, place, root)
    elif isinstance(value, list):
        yield from _in_list(cast("list[object]", value), schema, place, root)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield from _bounds(value, schema, place)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS.get(kind, (object,)))


# --- schemas that people wrote: checked before values are held to them

_SCHEMAS_BY_NAME = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf")
_SCHEMAS = ("items", "additionalProperties")  # true and false are schemas, too
_KEYWORDS: tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...] = (
    (_SCHEMAS_BY_NAME, (dict,), "an object"),
    ((*_SCHEMA_LISTS, "required", "enum"), (list,), "a list"),
    (_SCHEMAS, (dict, bool), "an object"),
    (("type",), (str, list), "a text, or a list of them"),
    (("minItems", "maxItems", "minLength", "maxLength"), (int,), "a number"),
    (("minimum", "maximum"), (int, float), "a number"),
)


def schema_problem(schema: object) -> str:
    """What is wrong with a schema, and where; empty if values can be held to it."""
    return next(_schema_problems(schema, "$", schema), "")


def _schema_problems(schema: object, place: str, root: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{place} must be an object"
        return
    table = cast("dict[str, Any]", schema)
    for names, kinds, words in _KEYWORDS:
        for name in names:
            if name in table and not isinstance(table[name], kinds):
                yield f"{place}.{name} must be {words}"
                return
    types: list[object] = table["type"] if isinstance(table.get("type"), list) else [table.get("type", "object")]
    for unknown in [kind for kind in types if kind not in _KINDS]:
        yield f"{place}.type: {unknown!r} is no type of JSON; there are {', '.join(_KINDS)}"
    if "$ref" in table and not _resolves(table["$ref"], root):
        yield f"{place}.$ref refers to {table['$ref']!r}, which is not in it; name a part of it, as #/$defs/NAME"
    for name, part in inner_schemas(table):
        yield from _schema_problems(part, f"{place}.{name}", root)


def inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The schemas inside a schema, and where they are."""
    for name in _SCHEMAS_BY_NAME:
        for key, part in schema.get(name, {}).items():
            yield f"{name}.{key[:60]}", part
    for name in _SCHEMA_LISTS:
        for number, part in enumerate(schema.get(name, ())):
            yield f"{name}[{number}]", part
    for name in _SCHEMAS:
        if isinstance(schema.get(name), dict):
            yield name, schema[name]


def _resolves(reference: object, root: object) -> bool:
    for _ in range(_FARTHEST):
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return False
        target: Any = root
        for key in reference.removeprefix("#/").split("/"):
            target = cast("dict[str, Any]", target).get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            return False
        if "$ref" not in target:
            return True
        reference = cast("object", target["$ref"])
    return False


def _followed(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part, {})
    return found


def _in_object(value: dict[str, object], schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    known: dict[str, dict[str, Any]] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place} lacks {name!r}"
    rest: object = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in known:
            yield from problems(item, known[name], f"{place}.{name}", root)
        elif rest is False:
            yield f"{place} has {name!r}, which is not wanted"
        elif isinstance(rest, dict):
            yield from problems(item, cast("dict[str, Any]", rest), f"{place}.{name}", root)


def _in_list(value: list[object], schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{place} has {len(value)} items; at least {schema['minItems']} are wanted"
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{place} has {len(value)} items; at most {schema['maxItems']} are wanted"
    items: object = schema.get("items")
    for number, item in enumerate(value) if isinstance(items, dict) else ():
        yield from problems(item, cast("dict[str, Any]", items), f"{place}[{number}]", root)


def _bounds(value: str | float, schema: dict[str, Any], place: str) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"{place} is too short; at least {schema['minLength']} characters are wanted"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{place} is too long; at most {schema['maxLength']} characters are wanted"
    elif value < schema.get("minimum", value) or value > schema.get("maximum", value):
        yield f"{place} is {value}, which is out of bounds"


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
