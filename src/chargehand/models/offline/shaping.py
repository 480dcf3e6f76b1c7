"""A result as JSON of a wanted schema, filled from what was found; the names of what could not be filled otherwise."""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Raw

from chargehand.models.exhibits import Table
from chargehand.models.offline.choosing import Parameter, read_parameters
from chargehand.models.offline.material import Material, number, series
from chargehand.models.offline.words import related, stem, tokens

_PROSE = frozenset({"text", "summary", "answer", "description", "explanation", "reason", "comment", "note", "findings"})


def shaped(schema: Raw, have: Material, prose: str, task: str) -> tuple[str, list[str]]:
    """JSON of a schema, and what is missing from it."""
    try:
        whole = msgspec.json.decode(schema, type=dict[str, object])
    except msgspec.MsgspecError:
        return "", ["a schema that can be read"]
    if whole.get("type") == "object" or "properties" in whole or "$ref" in whole:
        fields = read_parameters(schema)
        value, missing = _object(fields, have, prose, task)
        return msgspec.json.encode(value).decode(), missing
    outer = {"properties": {"result": whole}, "required": ["result"], "$defs": whole.get("$defs", {})}
    wrapped = msgspec.json.encode(outer)
    value, missing = _object(read_parameters(Raw(wrapped)), have, prose, task)
    return msgspec.json.encode(value.get("result")).decode(), missing


def _object(fields: Sequence[Parameter], have: Material, prose: str, task: str) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    missing: list[str] = []
    for field in fields:
        value = _value(field, have, prose, task)
        if value is not None:
            found[field.name] = value
        elif field.required:
            missing.append(field.name)
    return found, missing


def _value(field: Parameter, have: Material, prose: str, task: str) -> object:
    if field.enum:
        said = f"{prose} {task}"
        return next((one for one in field.enum if re.search(rf"\b{re.escape(one)}\b", said, re.IGNORECASE)), None)
    match field.type:
        case "array":
            return _array(field, have, prose)
        case "object":
            value, missing = _object(field.fields, have, prose, task)
            return None if missing else value
        case "number" | "integer":
            return _number(field, have, prose)
        case "boolean":
            return None if have.empty else not re.search(r"\b(?:no|not|nothing|none)\b", prose, re.IGNORECASE)
        case _:
            return _text(field, have, prose)


def _array(field: Parameter, have: Material, prose: str) -> object:
    inner = field.items
    table = have.tables[0] if have.tables else None
    if inner is not None and inner.type == "object" and table is not None:
        rows = [_row(inner.fields, table, row) for row in table.rows]
        return rows if all(row is not None for row in rows) else None
    if inner is not None and inner.type in {"number", "integer"}:
        found = series(table, field.name) if table else None
        return [_cast(inner, value) for value in found.values] if found else None
    if table is not None and (found := series(table, field.name)):
        return list(found.labels)
    if table is not None:
        return [str(row[0]) for row in table.rows]
    if have.passages and {"source", "sources"} & set(tokens(field.name)):
        return [one.source for passages in have.passages for one in passages.found]
    lines = [line.removeprefix("- ") for line in prose.splitlines() if line.strip()]
    return lines or None


def _row(fields: Sequence[Parameter], table: Table, row: Sequence[object]) -> dict[str, object] | None:
    """A row as an object: each field from the column that is called most like it."""
    found: dict[str, object] = {}
    for field in fields:
        numeric = field.type in {"number", "integer"}
        fitting = [at for at in range(min(len(row), len(table.columns))) if bool(number(row[at])) is numeric]
        if not fitting:
            if field.required:
                return None
            continue
        at = max(fitting, key=lambda one: (_alike(field.name, table.columns[one]), -one))
        found[field.name] = _cast(field, number(row[at])) if numeric else str(row[at])
    return found


def _alike(one: str, other: str) -> float:
    return max((related(stem(a), stem(b)) for a in tokens(one) for b in tokens(other)), default=0.0)


def _number(field: Parameter, have: Material, prose: str) -> object:
    named: list[tuple[float, str]] = []
    for table in have.tables:
        for at, column in enumerate(table.columns):
            if len(table.rows) == 1 and (value := number(table.rows[0][at])):
                named.append((_alike(field.name, column) + 0.1, value))
    given = [(f"{one.label} {one.unit}", one.value) for one in have.figures]
    given += [(key, str(value)) for one in have.objects for key, value in one.items()]
    named += [(_alike(field.name, name) + 0.1, number(value)) for name, value in given if number(value)]
    if not named:
        first = re.escape((tokens(field.name) or [field.name])[0])
        said = re.search(rf"\b{first}\b\D{{0,20}}?(-?\d[\d,]*(?:\.\d+)?)", prose, re.IGNORECASE)
        return _cast(field, said[1].replace(",", "")) if said else None
    return _cast(field, max(named, key=lambda pair: pair[0])[1])


def _cast(field: Parameter, value: str) -> object:
    return round(float(value)) if field.type == "integer" else float(value)


def _text(field: Parameter, have: Material, prose: str) -> object:
    words = set(tokens(field.name))
    if words & _PROSE:
        return prose or None
    for one in have.objects:
        for key, value in one.items():
            if isinstance(value, str) and _alike(field.name, key) >= 0.8:
                return value
    for table in have.tables:
        for at, column in enumerate(table.columns):
            if table.rows and _alike(field.name, column) >= 0.8 and isinstance(table.rows[0][at], str):
                return cast("str", table.rows[0][at])
    if {"source", "sources"} & words and have.passages and have.passages[0].found:
        return have.passages[0].found[0].source
    return prose or None
