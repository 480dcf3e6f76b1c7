"""What the strict mode of each provider takes of a JSON Schema.

A keyword that it does not take is left out of the request. It is checked when the reply is there, against the whole
schema (`engine/json_schema.py`), and the model is told of it in words.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

import msgspec
from msgspec import Raw, Struct

_FORMATS = frozenset(("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"))


class StrictMode(Struct, frozen=True):
    """What one strict mode takes."""

    bounds: frozenset[str] = frozenset()
    """The keywords for lengths, ranges and patterns that may be sent."""
    formats: frozenset[str] = _FORMATS
    """The values of `format` that may be sent, if it may be."""
    most_min_items: int | None = None
    """The largest `minItems` that may be sent; None for any."""
    needs_all: bool = True
    """Every object must require all its properties."""
    recursive: bool = True
    """A definition may refer to itself."""


OPENAI = StrictMode(
    bounds=frozenset(
        (
            *("pattern", "format", "minItems", "maxItems"),
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        )
    )
)
"""https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas; not for fine-tuned models."""
ANTHROPIC = StrictMode(
    bounds=frozenset(("format", "minItems")),
    formats=_FORMATS | {"uri"},
    most_min_items=1,
    needs_all=False,
    recursive=False,
)
"""https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations"""
OTHERS = StrictMode()
"""Servers with OpenAI's protocol: what they take beyond types differs from one to the next."""

_KEPT = frozenset(("$ref", "additionalProperties", "const", "description", "enum", "required", "title", "type"))
_LEFT_OUT = frozenset(
    (
        *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern", "format", "default"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "minProperties", "maxProperties"),
        *("contains", "minContains", "maxContains", "propertyNames", "dependentRequired", "dependentSchemas"),
        *("not", "if", "then", "else", "contentEncoding", "contentMediaType"),
        *("$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly"),
    )
)
"""Keywords that only narrow what the others allow, or say nothing of a value."""
_TABLES = frozenset(("properties", "$defs", "definitions"))
_TYPED = frozenset(("$ref", "anyOf", "const", "enum", "type"))
"""A schema without any of these allows everything; no strict mode takes that."""
_NOT_REGULAR = re.compile(r"\(\?[=!<]|\\[1-9bB]")
"""Look-around, back-references and word boundaries: no strict mode takes them."""
_REFERENCE = re.compile(rb'"\$ref":"([^"]*)"')
_DEFINITION = re.compile(rb"#/(?:\$defs|definitions)/([^/]+)")
_MOST_DEPTH = 20


def strict_schema(schema: Raw, mode: StrictMode) -> Raw | None:
    """Return what a strict mode takes of a schema; None if it cannot be held to it.

    Every object has to name all it may hold.
    """
    strict = _strict_schema(bytes(schema), mode)
    return Raw(strict) if strict else None


@lru_cache(maxsize=256)
def _strict_schema(schema: bytes, mode: StrictMode) -> bytes:
    try:
        strict = _reduced(msgspec.json.decode(schema), mode, _MOST_DEPTH)
    except (ValueError, RecursionError):
        return b""
    if strict.get("type") != "object" or (not mode.recursive and _is_recursive(strict)):
        return b""
    return msgspec.json.encode(strict)


def _reduced(schema: object, mode: StrictMode, depth: int) -> dict[str, object]:
    """Return a schema without what the mode does not take; ValueError where it would refuse the rest."""
    if not isinstance(schema, dict) or depth == 0:
        raise ValueError("not a schema, or nested too deep")
    fields = cast("dict[str, object]", schema)
    if not _TYPED & fields.keys():
        raise ValueError("it allows everything")
    strict: dict[str, object] = {}
    for name, part in fields.items():
        if name in _TABLES:
            parts = cast("dict[str, object]", part).items()
            strict[name] = {key: _reduced(value, mode, depth - 1) for key, value in parts}
        elif name == "anyOf":
            strict[name] = [_reduced(value, mode, depth - 1) for value in cast("list[object]", part)]
        elif name == "items":
            strict[name] = _reduced(part, mode, depth - 1)
        elif name in _KEPT or (name in mode.bounds and _takes(mode, name, part)):
            strict[name] = part
        elif name not in _LEFT_OUT:
            raise ValueError(f"strict modes do not know {name}")
    if fields.get("type") == "object" or "properties" in fields:
        _check_object(fields, mode)
    return strict


def _takes(mode: StrictMode, keyword: str, value: object) -> bool:
    """Return whether the mode takes this value of a keyword that it knows."""
    if keyword == "format":
        return value in mode.formats
    if keyword == "pattern":
        return isinstance(value, str) and not _NOT_REGULAR.search(value)
    if keyword == "minItems":
        return isinstance(value, int) and (mode.most_min_items is None or value <= mode.most_min_items)
    return True


def _check_object(fields: Mapping[str, object], mode: StrictMode) -> None:
    properties = cast("dict[str, object]", fields.get("properties") or {})
    required = set(cast("list[str]", fields.get("required") or []))
    if fields.get("additionalProperties") is not False or (mode.needs_all and set(properties) != required):
        raise ValueError("an object does not name, or does not need, all it may hold")


def _is_recursive(schema: Mapping[str, object]) -> bool:
    """Return whether a definition leads back to itself."""
    definitions: dict[str, object] = {}
    for table in ("$defs", "definitions"):
        definitions |= cast("dict[str, object]", schema.get(table, {}))
    leads_to = {name: _names(part) for name, part in definitions.items()}
    if "" in _names(schema):
        return True
    for start, first in leads_to.items():
        seen: set[str] = set()
        waiting = set(first)
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                waiting |= leads_to.get(name, set())
    return False


def _names(schema: object) -> set[str]:
    """Return the definitions that a schema refers to; the empty name stands for any other part."""
    references = _REFERENCE.findall(msgspec.json.encode(schema))
    names = [_DEFINITION.fullmatch(reference) for reference in references]
    return {name[1].decode() if name else "" for name in names}
