"""The part of a JSON Schema that providers can hold a model to. What they cannot is checked when the reply is there."""

from typing import cast

import msgspec
from msgspec import Raw

_KNOWN = frozenset(
    (
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description"),
        *("enum", "items", "properties", "required", "title", "type"),
    )
)
_BOUNDS = frozenset(
    (
        *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern", "format", "default"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"),
    )
)
"""Strict modes refuse lengths, ranges and patterns. Whoever asked for them checks them."""
_MOST_DEPTH = 20


def strict_schema(schema: Raw, *, optional: bool) -> Raw | None:
    """The schema without its bounds, if a strict mode takes that; None if it does not.

    Every object has to name all it may hold. Unless `optional`, it must also need all of it.
    """
    try:
        decoded: object = msgspec.json.decode(schema)
        plain = _without_bounds(decoded)
    except (ValueError, RecursionError):
        return None
    root = cast("dict[str, object]", plain) if isinstance(plain, dict) else {}
    if root.get("type") != "object" or not _fits(root, _MOST_DEPTH, optional=optional):
        return None
    return Raw(msgspec.json.encode(root))


def _without_bounds(schema: object) -> object:
    if isinstance(schema, list):
        return [_without_bounds(part) for part in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, object] = {}
    for name, part in cast("dict[str, object]", schema).items():
        if name in ("properties", "$defs"):  # what is in there are names, not keywords
            kept[name] = {key: _without_bounds(value) for key, value in _mapping(part).items()}
        elif name in ("enum", "const", "required"):
            kept[name] = part
        elif name not in _BOUNDS:
            kept[name] = _without_bounds(part)
    return kept


def _fits(schema: object, depth: int, *, optional: bool) -> bool:
    if not isinstance(schema, dict) or depth == 0:
        return False
    fields = cast("dict[str, object]", schema)
    if not _KNOWN.issuperset(fields):
        return False
    if (fields.get("type") == "object" or "properties" in fields) and not _closed(fields, optional=optional):
        return False
    return all(_fits(part, depth - 1, optional=optional) for part in _parts(fields))


def _closed(fields: dict[str, object], *, optional: bool) -> bool:
    if fields.get("additionalProperties") is not False:
        return False
    named = _mapping(fields.get("properties"))
    needed = fields.get("required")
    return optional or set(named) == set(cast("list[str]", needed) if isinstance(needed, list) else ())


def _parts(fields: dict[str, object]) -> list[object]:
    parts = [*_mapping(fields.get("properties")).values(), *_mapping(fields.get("$defs")).values()]
    choices = fields.get("anyOf")
    if isinstance(choices, list):
        parts += cast("list[object]", choices)
    if "items" in fields:
        parts.append(fields["items"])
    return parts


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
