"""Whether a JSON Schema is one that providers can hold a model to. One that is not is still shown to the model."""

from typing import cast

import msgspec
from msgspec import Raw

_KNOWN = frozenset(
    (
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description"),
        *("enum", "items", "properties", "required", "title", "type"),
    )
)
_MOST_DEPTH = 20


def strict(schema: Raw, *, optional: bool) -> bool:
    """Whether every object names all it may hold, and nothing is asked that strict modes refuse.

    They refuse lengths, ranges and patterns. Unless `optional`, an object must also need all it may hold.
    """
    try:
        found: object = msgspec.json.decode(schema)
    except (ValueError, RecursionError):
        return False
    root = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return root.get("type") == "object" and _fits(root, _MOST_DEPTH, optional=optional)


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
