"""Whether numbers, days and names of a sentence stand in the row that it names. Pure, and rather blind than wrong.

A sentence names rows by the texts in them. How it means them is tried in more than one way: it is doubted only if no
way of reading it agrees with the tables.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from chargehand.agents.evidence import Evidence, NamedRows
from chargehand.text.dates import Date
from chargehand.text.numbers import Quantity

_ADJACENT = re.compile(r"\s+(?:%\s+)?(?:(?:in|for|of|from|at|by|to|on|the)\s+){0,2}$", re.IGNORECASE)
_BETWEEN = re.compile(
    r"[\s*_`]*(?:[:|(=\u2013\u2014-]|,?\s(?:is|was|has been|as|ist|war)(?:\s(?:the|our|a|an|der|die|das))?\s)[\s*_`]*",
    re.IGNORECASE,
)


class Placed(Struct, frozen=True):
    """Something of a sentence that stands in the sources: a number or a day. `claim` is its place among the claims."""

    claim: int
    start: int
    end: int
    quantity: Quantity | None = None
    day: Date | None = None


def misplaced_values(sentence: str, sources: Sequence[Evidence], placed: Sequence[Placed]) -> tuple[int, ...]:
    """The claims whose rows are others than the ones that the sentence names for them."""
    for source in sources:
        names = source.rows.named(sentence)
        if not names:
            continue
        values = [(one, rows) for one in placed if (rows := _rows(source, one))]
        quoted = source.rows.quoted_spans(sentence) if values else ()
        values = [(one, rows) for one, rows in values if not _inside(one, names) and not _is_quoted(one, quoted)]
        elsewhere = {
            one.claim for one, _ in values if any(_held(other, one) for other in sources if other is not source)
        }
        values = [(one, rows) for one, rows in values if one.claim not in elsewhere]
        wrong = _by_place(sentence, names, values)
        if wrong and not _in_order(names, values):
            return tuple(one.claim for one in wrong)
    return ()


def _inside(one: Placed, names: Sequence[NamedRows]) -> bool:
    return any(name.start <= one.start < name.end for name in names)


def _is_quoted(one: Placed, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= one.start < end for start, end in spans)


def _rows(source: Evidence, one: Placed) -> set[int]:
    """The rows in which something stands; none where it stands outside of rows, too."""
    if one.quantity is not None:
        places = source.occurrences(one.quantity)
        return set() if any(place.row < 0 for place in places) else {place.row for place in places}
    return {row for reading in one.day.readings for row in source.row_of_day(reading)} if one.day is not None else set()


def _held(source: Evidence, one: Placed) -> bool:
    if one.quantity is not None:
        return source.holds(one.quantity)
    return one.day is not None and source.days.hold(one.day)


def _by_place(sentence: str, names: Sequence[NamedRows], values: Sequence[tuple[Placed, set[int]]]) -> list[Placed]:
    """Those that do not belong to the name right behind them, or else to the one before them."""
    wrong: list[Placed] = []
    for one, rows in values:
        behind = next((name for name in names if name.start >= one.end), None)
        before = [name for name in names if name.end <= one.start]
        adjacent = behind is not None and _ADJACENT.fullmatch(sentence[one.end : behind.start]) is not None
        meant = [behind] if behind is not None and adjacent else before[-1:]
        if meant and not meant[0].rows & rows and not _together(before, rows):
            wrong.append(one)
    return wrong


def _together(names: Sequence[NamedRows], rows: set[int]) -> bool:
    """Whether the names before it name its row between them, like an order and its customer."""
    last = names[-2:]
    return len(last) > 1 and bool(last[0].rows & rows) and bool(last[0].rows & last[1].rows)


def _in_order(names: Sequence[NamedRows], values: Sequence[tuple[Placed, set[int]]]) -> bool:
    """Whether the first value belongs to the first name, the second to the second, and so on."""
    return len(names) == len(values) and all(name.rows & rows for name, (_, rows) in zip(names, values, strict=True))


def misplaced_pairs(sentence: str, sources: Sequence[Evidence]) -> Iterator[str]:
    """Two texts of a table that the sentence says of each other, and that stand together in no row."""
    for source in sources:
        names = source.rows.named(sentence)
        for first, second in pairwise(names):
            if (
                first.is_column
                or second.is_column
                or first.rows & second.rows
                or not _BETWEEN.fullmatch(sentence[first.end : second.start])
            ):
                continue
            tables = {table for table, _ in first.columns} & {table for table, _ in second.columns}
            if tables and not first.columns & second.columns:
                yield sentence[first.start : second.end]
