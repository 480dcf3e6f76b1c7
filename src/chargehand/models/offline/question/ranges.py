"""Whether numbers lie within the bounds that another table sets: "is it out of range", "which of them are too high".

Only a table of bounds with one row a thing, tied to a table with one number a row, is understood.
"""

import re

from msgspec import Struct

from chargehand.models.offline.question.conditions import Condition
from chargehand.models.offline.question.draft import Draft
from chargehand.models.offline.question.measures import Measure
from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Column, Link, Relation, identifier
from chargehand.models.offline.words import stem

_SAID = re.compile(
    r"\b(?:(?P<out>(?:out of|outside|beyond)(?:\s+(?:of|the|its|their|normal|allowed))*\s+(?:range|limits?|bounds)"
    r"|abnormal)"
    r"|too\s+(?P<too>high|low)|(?P<side>above|below)(?:\s+(?:the|its|their|normal))*\s+range"
    r"|(?P<inside>(?:within|inside|in)(?:\s+(?:the|its|their|normal|allowed))*\s+(?:range|limits?|bounds)))\b",
    re.IGNORECASE,
)
_SIDES = {"high": "above", "low": "below"}
_LOW = frozenset(map(stem, ("low", "lower", "minimum", "min", "lowest")))
_HIGH = frozenset(map(stem, ("high", "upper", "maximum", "max", "highest")))
_MOST = 50


class _Bounds(Struct, frozen=True):
    """`number` is compared with `low` and `high`, which stand in the table that `link` leads to."""

    number: Column
    low: Column
    high: Column
    link: Link


def asks_for_bounds(reading: Reading) -> bool:
    """Whether it is asked if something lies within bounds, and there is a table of bounds."""
    return _SAID.search(reading.text) is not None and any(_sides(one) for one in reading.schema)


def held_against_bounds(reading: Reading, draft: Draft) -> str:
    """A query for the numbers with their bounds and on which side they lie; empty where it cannot be made."""
    said, bounds = _SAID.search(reading.text), _bounds(reading)
    if said is None or bounds is None or draft.limits or draft.absent or draft.ratio:
        return ""
    rows, held = reading.table(bounds.number.table), {bounds.number.table, bounds.low.table}
    if any(one.column.table not in held or one.negated for one in draft.tests):
        return ""
    reading.use(*(at for at, one in enumerate(reading.words) if said.start() <= one.start < said.end()))
    day = next((one for one in rows.columns if one.dated), None)
    where = [_own(one, bounds) for one in draft.tests]
    if draft.time.where or draft.time.never or draft.time.contrast:
        if day is None or not draft.time.where or draft.time.contrast or draft.time.never:
            return ""
        where.append(draft.time.where.format(day.sql))
    if (measured := draft.measured) is not None:
        return _count(measured, draft, bounds, [*where, f"{_side(bounds)} {_wanted(said)}"])
    which = reading.words[0].low in {"which", "list", "show", "what", "who"}
    where += [f"{_side(bounds)} {_wanted(said)}"] if which else []
    shown = [one for one in rows.columns if not one.key]
    columns = ", ".join(f"{one.sql} AS {identifier(one.name)}" for one in (*shown, bounds.low, bounds.high))
    sql = f"SELECT {columns}, {_side(bounds)} AS its_range FROM {identifier(rows.name)}"  # noqa: S608 - names are quoted
    sql += _joined(bounds)
    sql += f" WHERE {' AND '.join(where)}" if where else ""
    return f"{sql} ORDER BY {day.sql if day else 1}{' DESC' if day else ''} LIMIT {_MOST}"


def _count(measured: Measure, draft: Draft, bounds: _Bounds, where: list[str]) -> str:
    """How many of the rows lie there; nothing else is worked out from them."""
    rows = bounds.number.table
    if measured.kind != "COUNT" or measured.inner != "*" or measured.tables != (rows,) or draft.groups or draft.ranked:
        return ""
    sql = f"SELECT COUNT(*) AS {identifier(measured.label)} FROM {identifier(rows)}"  # noqa: S608 - names are quoted
    return f"{sql}{_joined(bounds)} WHERE {' AND '.join(where)}"


def _joined(bounds: _Bounds) -> str:
    return f" JOIN {identifier(bounds.low.table)} ON {bounds.link.many.sql} = {bounds.link.one.sql}"


def _own(test: Condition, bounds: _Bounds) -> str:
    return test.sql.replace(bounds.link.one.sql, bounds.link.many.sql)


def _side(bounds: _Bounds) -> str:
    number, low, high = bounds.number.sql, bounds.low.sql, bounds.high.sql
    return f"CASE WHEN {number} > {high} THEN 'above' WHEN {number} < {low} THEN 'below' ELSE 'within' END"


def _wanted(said: re.Match[str]) -> str:
    if said["inside"]:
        return "= 'within'"
    side = _SIDES.get((said["too"] or "").lower(), "") or (said["side"] or "").lower()
    return f"= '{side}'" if side else "<> 'within'"


def _bounds(reading: Reading) -> _Bounds | None:
    for link in reading.links:
        sides = _sides(reading.table(link.one.table))
        numbers = [one for one in reading.table(link.many.table).columns if one.numeric and not one.key]
        if sides is not None and len(numbers) == 1:
            return _Bounds(numbers[0], *sides, link)
    return None


def _sides(table: Relation) -> tuple[Column, Column] | None:
    low = [one for one in table.columns if one.numeric and _LOW & set(one.stems)]
    high = [one for one in table.columns if one.numeric and _HIGH & set(one.stems)]
    return (low[0], high[0]) if len(low) == 1 and len(high) == 1 else None
