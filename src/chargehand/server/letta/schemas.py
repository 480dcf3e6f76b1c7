"""JSON Schemas that clients send: looked through when they come, so that none fails when a reply is held to it."""

from collections.abc import Iterator
from typing import cast

from chargehand.agents.shape import objection

_NAMED = ("properties", "$defs", "definitions", "patternProperties")
_LISTED = ("anyOf", "oneOf", "allOf")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
_BOUNDS = ("minimum", "maximum")
_FARTHEST = 50  # references to references


def schema_problem(schema: object) -> str:
    """What is wrong with a schema, and where; nothing if replies can be held to it."""
    return next(_problems(schema, "$", schema), "") or objection(schema)


def _problems(schema: object, place: str, root: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{place} must be an object"
        return
    table = cast("dict[str, object]", schema)
    yield from _keywords(table, place, root)
    for name in _NAMED:
        inner = table.get(name, {})
        if not isinstance(inner, dict):
            yield f"{place}.{name} must be an object"
            continue
        for key, part in cast("dict[str, object]", inner).items():
            yield from _problems(part, f"{place}.{name}.{key[:60]}", root)
    for name in _LISTED:
        parts = table.get(name, [])
        if not isinstance(parts, list):
            yield f"{place}.{name} must be a list"
            continue
        for number, part in enumerate(cast("list[object]", parts)):
            yield from _problems(part, f"{place}.{name}[{number}]", root)
    for name in ("items", "additionalProperties"):
        if not isinstance(table.get(name, True), bool):
            yield from _problems(table[name], f"{place}.{name}", root)


def _keywords(table: dict[str, object], place: str, root: object) -> Iterator[str]:
    """What is wrong with the keywords that hold no schemas."""
    for name in ("required", "enum"):
        if not isinstance(table.get(name, []), list):
            yield f"{place}.{name} must be a list"
    if not isinstance(table.get("type", ""), str | list):
        yield f"{place}.type must be a text, or a list of them"
    for name in (*_COUNTS, *_BOUNDS):
        value = table.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int if name in _COUNTS else (int, float)):
            yield f"{place}.{name} must be a number"
    if "$ref" in table and not _leads_somewhere(table["$ref"], root):
        yield f"{place}.$ref must lead to a part of the schema, as #/$defs/NAME"


def _leads_somewhere(reference: object, root: object) -> bool:
    for _ in range(_FARTHEST):
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return False
        part = root
        for key in reference.removeprefix("#/").split("/"):
            part = cast("dict[str, object]", part).get(key) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            return False
        target = cast("dict[str, object]", part)
        if "$ref" not in target:
            return True
        reference = target["$ref"]
    return False
