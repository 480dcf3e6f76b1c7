"""Check values against a JSON Schema, and check a schema itself.

The keywords that schemas made from types use are checked; others are ignored.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

_MAX_REFERENCES = 100  # references to references
JsonType: TypeAlias = Literal["object", "array", "string", "boolean", "null", "integer", "number"]
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
_WORDS = {"dict": "an object", "list": "a list", "str": "a text", "NoneType": "null", "bool": "true or false"}


def problems(
    value: object, schema: dict[str, Any], place: str = "$", root: dict[str, Any] | None = None
) -> Iterator[str]:
    """Yield what of a value does not fit a schema, in words.

    Raises:
        ValueError: the schema refers to itself and says nothing.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        target = _resolve(schema["$ref"], root)
        if target is None:
            raise ValueError(f"the schema refers to itself and says nothing at {place}")
        schema = target
    options: list[dict[str, Any]] | None = schema.get("anyOf") or schema.get("oneOf")
    if options and all(any(problems(value, option, place, root)) for option in options):
        yield f"{place} fits none of the allowed forms"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}; allowed are {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{place} must be {schema['const']!r}"
    kinds = schema.get("type")
    allowed: list[str] = [kinds] if isinstance(kinds, str) else kinds or []
    if allowed and not any(_is(value, kind) for kind in allowed):
        yield f"{place} must be {' or '.join(allowed)}, not {_WORDS.get(type(value).__name__, 'a number')}"
    else:
        yield from _inner_problems(value, schema, place, root)


def _inner_problems(value: object, schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong inside a value of the right type."""
    if isinstance(value, dict):
        yield from _in_object(cast("dict[str, object]", value), schema, place, root)
    elif isinstance(value, list):
        items = cast("list[object]", value)
        yield from _in_bounds(f"{place} has {len(items)} items", len(items), schema, "Items")
        if isinstance(schema.get("items"), dict):
            for number, item in enumerate(items):
                yield from problems(item, schema["items"], f"{place}[{number}]", root)
    elif isinstance(value, str):
        yield from _in_bounds(f"{place} has {len(value)} characters", len(value), schema, "Length")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _in_bounds(f"{place} is {value}", value, schema, "imum")


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS.get(kind, (object,)))


def _in_object(value: dict[str, object], schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place} lacks {name!r}"
    rest: object = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            yield from problems(item, properties[name], f"{place}.{name}", root)
        elif rest is False:
            yield f"{place} has {name!r}, which is not wanted"
        elif isinstance(rest, dict):
            yield from problems(item, cast("dict[str, Any]", rest), f"{place}.{name}", root)


def _in_bounds(words: str, number: float, schema: dict[str, Any], of: str) -> Iterator[str]:
    """Check `minItems` and `maxItems`, `minLength` and `maxLength`, `minimum` and `maximum`."""
    if number < schema.get(f"min{of}", number):
        yield f"{words}; it must be at least {schema[f'min{of}']}"
    if number > schema.get(f"max{of}", number):
        yield f"{words}; it must be at most {schema[f'max{of}']}"


# --- schemas that people wrote


class _Schema(Struct, rename={"definitions_by_name": "$defs", "reference": "$ref"}):
    """The keywords that are checked, each with what it may hold."""

    type: JsonType | list[JsonType] | None = None
    properties: dict[str, "_Schema"] = {}
    definitions_by_name: dict[str, "_Schema"] = {}
    definitions: dict[str, "_Schema"] = {}
    patternProperties: dict[str, "_Schema"] = {}  # noqa: N815 - as in JSON Schema, like the ones below
    additionalProperties: "_Schema | bool" = True  # noqa: N815
    items: "_Schema | bool" = True
    anyOf: list["_Schema"] = []  # noqa: N815
    oneOf: list["_Schema"] = []  # noqa: N815
    allOf: list["_Schema"] = []  # noqa: N815
    required: list[str] = []
    enum: list[object] = []
    reference: str = ""
    minItems: int = 0  # noqa: N815
    maxItems: int = 0  # noqa: N815
    minLength: int = 0  # noqa: N815
    maxLength: int = 0  # noqa: N815
    minimum: float = 0
    maximum: float = 0


def schema_problem(schema: object) -> str:
    """Return what is wrong with a schema, and where; empty if values can be checked against it."""
    try:
        msgspec.convert(schema, _Schema)
    except msgspec.ValidationError as error:
        return str(error)
    for reference in _references(schema):
        if _resolve(reference, schema) is None:
            return f"it refers to {reference!r}, which is not in it; name a part of it, as #/$defs/NAME"
    return ""


def _references(schema: object) -> Iterator[str]:
    """Yield every reference in a schema."""
    if isinstance(schema, dict):
        table = cast("dict[str, object]", schema)
        reference = table.get("$ref")
        if isinstance(reference, str):
            yield reference
        for part in table.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in cast("list[object]", schema):
            yield from _references(part)


def _resolve(reference: object, root: object) -> dict[str, Any] | None:
    """Return the part of a schema that a reference leads to, through other references; None where it leads nowhere."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        target: Any = root
        for key in reference.removeprefix("#/").split("/"):
            target = cast("dict[str, Any]", target).get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            return None
        table = cast("dict[str, Any]", target)
        if "$ref" not in table:
            return table
        reference = table["$ref"]
    return None
