"""The JSON Schema of team files, for editors. The loader is stricter: it also follows what a file refers to."""

from typing import Any, cast

import msgspec

from chargehand.config.keys import sections
from chargehand.config.scalars import Dollars, Duration, Size, Span
from chargehand.config.shapes import SOURCES, TeamShape

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLACE = r"\$\{[A-Za-z_]"
_TIME = r"(\d+(\.\d+)?(ms|s|m|h|d) ?)+"
_SCALARS: dict[type, dict[str, Any]] = {
    Duration: {
        "description": "a duration such as 90s, 5m, 1h30m or 250ms; a bare number is seconds",
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^{_TIME}$|{_PLACE}"}],
    },
    Span: {
        "description": "from the shortest to the longest wait, such as 1s..20s",
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": rf"^{_TIME}(\.\.{_TIME})?$|{_PLACE}"},
        ],
    },
    Size: {
        "description": "a whole number, or a size such as 200k, 1.5M or 16KiB",
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": rf"^\d+(\.\d+)?([kKmMgG]([iI][bB])?)?$|{_PLACE}"},
        ],
    },
    Dollars: {
        "description": "US dollars, such as 0.50",
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _PLACE}],
    },
}


def json_schema() -> dict[str, Any]:
    """A schema for the whole file, shorthand forms and variables included."""
    made = msgspec.json.schema(TeamShape, schema_hook=_reference)
    parts = {_name(name): _clean(part) for name, part in made["$defs"].items()}
    _add_defaults(parts)
    parts["Tool"]["oneOf"] = [{"required": [source]} for source in SOURCES]
    parts["Rule"] |= {"minProperties": 1, "maxProperties": 1}
    team = parts.pop("Team")
    scalars = {kind.__name__: dict(shape) for kind, shape in _SCALARS.items()}
    return {"$schema": DIALECT, **team, "title": "chargehand team file", "$defs": parts | scalars}


def _add_defaults(parts: dict[str, Any]) -> None:
    """Say what holds where a key is left out. Where a shape serves two sections, only what holds in both is said."""
    defaults: dict[tuple[str, str], set[str]] = {}
    for section in sections():
        for key in section.keys:
            defaults.setdefault((_name(section.shape.__name__), key.name), set()).add(key.default)
    for (part, key), values in defaults.items():
        if len(values) == 1 and values != {""}:
            parts[part]["properties"][key]["description"] += f"; default {values.pop()}"


def _reference(kind: type) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _name(name: str) -> str:
    return name.removesuffix("Shape")


def _clean(part: object) -> Any:
    """Without the word Shape, without null (a key is left out, not emptied), and with variables where numbers stand."""
    if isinstance(part, list):
        return [_clean(one) for one in cast("list[object]", part) if one != {"type": "null"}]
    if not isinstance(part, dict):
        return part
    fields: dict[str, Any] = {key: _clean(value) for key, value in cast("dict[str, object]", part).items()}
    for key in ("$ref", "title"):
        if isinstance(fields.get(key), str):
            fields[key] = _name(fields[key])
    if len(fields.get("anyOf", ())) == 1:
        fields |= fields.pop("anyOf")[0]
    if "default" in fields and not isinstance(fields["default"], bool | int) and not fields["default"]:
        del fields["default"]
    if isinstance(fields.get("default"), dict):
        del fields["default"]
    if fields.get("type") in ("integer", "number", "boolean"):
        description = {"description": fields.pop("description")} if "description" in fields else {}
        return {"anyOf": [fields, {"type": "string", "pattern": _PLACE}], **description}
    return fields
