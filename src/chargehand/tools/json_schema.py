"""JSON Schemas that people wrote: whether values can be held to one, and what of a value does not fit it, in words.

Covers what schemas made from types use; keywords it does not know are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

_MAX_REFERENCES = 100  # references to references
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
    """What of a value does not fit a schema, in words."""
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
    """What is wrong inside a value of the right type."""
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


def _in_bounds(words: str, number: float, schema: dict[str, Any], of: str) -> Iterator[str]:
    """`minItems` and `maxItems`, `minLength` and `maxLength`, `minimum` and `maximum`."""
    if number < schema.get(f"min{of}", number):
        yield f"{words}; it must be at least {schema[f'min{of}']}"
    if number > schema.get(f"max{of}", number):
        yield f"{words}; it must be at most {schema[f'max{of}']}"


# --- schemas that people wrote, checked before values are held to them

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
    if "$ref" in table and _resolve(table["$ref"], root) is None:
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


def _resolve(reference: object, root: object) -> dict[str, Any] | None:
    """The part of a schema that a reference leads to, through other references; None where it leads nowhere."""
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
