"""Whether a question is about days of which a table says nothing: before its first row, or after its last.

Which days a question is about is read in `periods`.
"""

import re

from chargehand.models.offline.question.periods import Timing
from chargehand.models.offline.schema_text import Column

_LEAST = 2
_FROM, _TO = re.compile(r"\{0\} >= '([\d-]+)'"), re.compile(r"\{0\} < '([\d-]+)'")


def nothing_then(time: Timing, column: Column | None) -> str:
    """That a table has no such days, in words; empty where it has some, or where that is not known."""
    held = sorted((*(column.values or column.samples),)) if column is not None else []
    if column is None or len(held) < _LEAST or not time.periods or "NOT" in time.where:
        return ""
    first, last = held[0][:10], held[-1][:10]
    when = _outside(time, first, last)
    return f"nothing is on record {when}: the rows of {column.table} are from {first} to {last}" if when else ""


def _outside(time: Timing, first: str, last: str) -> str:
    """The time of which no row can be, in words: each of several periods, or a span, which one side may leave open."""
    if time.contrast:
        known = [one for one in time.periods if one.begin]
        gone = [one.name for one in known if one.begin > last or one.end <= first]
        return f"for {' and '.join(gone)}" if gone else ""
    begins, ends = _FROM.findall(time.where), _TO.findall(time.where)
    if not (begins and begins[0] > last) and not (ends and ends[-1] <= first):
        return ""
    name = time.periods[0].name
    if begins and ends:
        return f"for {name}" if len(time.periods) == 1 else f"from {begins[0]} to before {ends[-1]}"
    return f"since {begins[0]}" if begins else f"before {ends[-1]}"
