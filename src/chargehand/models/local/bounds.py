"""Makes a JSON Schema finite, and says how long its longest output is.

A small model fills any room it is given: what has no bound never ends, and what is cut off is no JSON.
"""

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec

Json: TypeAlias = dict[str, object]

_MOST_TEXT = 400
_MOST_ITEMS = 8
_MOST_NUMBER = 10**15
_NUMBER = 24
_DEEPEST = 6
_FREE = 600  # what a value of no particular shape may come to
_UNIONS = ("anyOf", "oneOf", "allOf")


def bound(schema: Mapping[str, object], text: int = _MOST_TEXT) -> Json:
    """The same schema with references written out, and with a bound on every text, list and whole number."""
    return _bound(schema, schema, text, 0)


def longest(schema: Mapping[str, object]) -> int:
    """At most so many characters. Only for what `bound` returned."""
    if "const" in schema:
        return len(msgspec.json.encode(schema["const"]))
    options = _list(schema.get("enum"))
    if options:
        return max(len(msgspec.json.encode(option)) for option in options)
    for union in _UNIONS:
        branches = [longest(_object(branch)) for branch in _list(schema.get(union))]
        if branches:
            return sum(branches) if union == "allOf" else max(branches)
    kinds = schema.get("type")
    names = [str(kind) for kind in _list(kinds)] or [str(kinds)]
    return max(_longest_of(name, schema) for name in names)


def _longest_of(kind: str, schema: Mapping[str, object]) -> int:
    if kind == "string":
        return _count(schema, "maxLength", _MOST_TEXT) + 2
    if kind == "array":
        items = [longest(_object(item)) for item in _list(schema.get("prefixItems"))]
        rest = max(0, _count(schema, "maxItems", _MOST_ITEMS) - len(items))
        return sum(items) + rest * (longest(_object(schema.get("items"))) + 2) + 2
    if kind == "object":
        fields = _object(schema.get("properties"))
        if not fields:
            return _FREE
        return sum(len(name) + 6 + longest(_object(field)) for name, field in fields.items()) + 2
    return {"boolean": 5, "null": 4, "integer": _NUMBER, "number": _NUMBER}.get(kind, _FREE)


def _bound(schema: Mapping[str, object], root: Mapping[str, object], text: int, depth: int) -> Json:
    if depth > _DEEPEST:
        return {"type": "object"}
    schema = _resolved(schema, root)
    done: Json = {name: value for name, value in schema.items() if name not in ("$defs", "definitions", "default")}
    for union in _UNIONS:
        if union in schema:
            done[union] = [_bound(_object(branch), root, text, depth + 1) for branch in _list(schema[union])]
    kind = schema.get("type")
    if "properties" in schema:
        fields = _object(schema["properties"]).items()
        done["properties"] = {name: _bound(_object(field), root, text, depth + 1) for name, field in fields}
        done["additionalProperties"] = False
    if "items" in schema:
        done["items"] = _bound(_object(schema["items"]), root, text, depth + 1)
    if _may_be(kind, "array"):
        done["maxItems"] = _count(schema, "maxItems", _MOST_ITEMS)
    if _may_be(kind, "string") and "enum" not in schema and "const" not in schema:
        done["maxLength"] = _count(schema, "maxLength", text)
    if _may_be(kind, "integer"):
        done.setdefault("minimum", -_MOST_NUMBER)
        done.setdefault("maximum", _MOST_NUMBER)
    return done


def _resolved(schema: Mapping[str, object], root: Mapping[str, object]) -> Mapping[str, object]:
    """What a reference stands for; one that leads nowhere stands for any object."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    found: object = root
    for step in reference.removeprefix("#/").split("/"):
        found = _object(found).get(step)
    return _object(found) or {"type": "object"}


def _may_be(kind: object, name: str) -> bool:
    return kind == name or name in _list(kind)


def _count(schema: Mapping[str, object], name: str, otherwise: int) -> int:
    value = schema.get(name)
    return min(value, 10 * otherwise) if isinstance(value, int) else otherwise


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
