"""Whether what a question measures was recorded for different values of a number beside it, such as steps for sizes.

Adding these up answers nothing. What is done instead is decided in `draft`.
"""

from collections.abc import Collection

from chargehand.models.offline.question.measures import Measure, function_place
from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Column, Relation
from chargehand.models.offline.words import stem

# numbers that say how many or how much of it there was: what stands beside these is added up
_COUNTED = """quantity qty units pieces copies stock amount price cost fee fare value discount rate rating score grade
percent points level budget age votes stars priority rank number count days minutes"""
_AMOUNTS = frozenset(map(stem, _COUNTED.split()))
_LEAST = 2
_SPREAD = 2.0


def parameter(reading: Reading, measured: Measure, held: Collection[str]) -> Column | None:
    """The column that says for what the measured numbers were recorded; None where adding them up is meant, or right.

    `held`: the columns a question already tells apart or is limited to.
    """
    if measured.kind != "SUM" or " * " in measured.inner or function_place(reading) >= 0:
        return None
    table = reading.table(measured.tables[0])
    own = next((one for one in table.columns if one.sql == measured.inner), None)
    if own is None or own.steps or any(one.dated for one in table.columns):
        return None  # of few rows each number may be anything; what has a day happened, and is added up
    return next((one for one in _before(table, own) if one.sql not in held and _rises(one)), None)


def recorded_for(reading: Reading, own: Column, other: Column) -> bool:
    """Whether the numbers of one column were recorded for those of the other: steps for sizes."""
    if own.table != other.table or own.steps:
        return False
    return other in _before(reading.table(own.table), own) and _rises(other)


def _before(table: Relation, own: Column) -> list[Column]:
    """The columns between the one that names the rows and the one measured: first for what, then how much."""
    first, place = table.columns[0], table.columns.index(own)
    return list(table.columns[1:place]) if first.values else []


def _rises(column: Column) -> bool:
    """A few whole numbers, far apart, that count nothing by their name."""
    if column.key or not column.type.upper().startswith("INT") or len(column.steps) <= _LEAST:
        return False
    if _AMOUNTS & set(column.stems) or stem("year") in column.stems:
        return False
    numbers = sorted(float(one) for one in column.steps)
    return numbers[0] > 0 and numbers[-1] >= _SPREAD * numbers[0]
