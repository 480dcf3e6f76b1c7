"""JSON Schemas that people wrote: whether values can be held to one, and what of a value does not fit it, in words.

Covers what schemas made from types use; keywords it does not know are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

_FARTHEST = 100  # references to references
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
