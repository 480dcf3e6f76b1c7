"""The times of a question to tables: which column they are of, which rows they leave, or what is set side by side."""

from datetime import date

from msgspec import Struct

from chargehand.models.demo.dates import Period
from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_schema import Column
from chargehand.models.demo.table_sql import Condition, Group, quote
from chargehand.models.demo.table_words import Item, Scope
from chargehand.models.demo.words import stem, word_set

_UNTIL = word_set("to until till through -")
_BESIDE = frozenset(("and", "or", "and in", "with", "vs", "versus", "to", "compared with", "compared to"))
_COMPARING = frozenset(map(stem, word_set("change versus vs compared")))
_SIGNS = {"since": ">=", "after": ">", "before": "<", "until": "<=", "till": "<="}
_TWO_READINGS = word_set("by from to within through")


class TimePart(Struct, frozen=True):
    """What the times of a clause make of a query, and the places of the words that say so."""

    condition: Condition
    words: str
    used: set[int]
    group: Group | None = None
    """Of times that are compared."""
    refusal: RefusedError | None = None
    """Why there is no answer although the times are understood."""


def read_times(clause: Clause, scope: Scope) -> TimePart | None:
    """One time, a range between two, or two that are compared."""
    if not clause.periods:
        return None
    column = scope.day_column()
    periods, refusal = _with_years(clause.periods, column)
    sign = _word_before(clause.periods, scope.items)
    before = sign.low if sign is not None else ""
    used = {item.at for item in scope.items if column in item.columns or item is sign}
    comparing = {item.at for item in scope.items if item.stems[0] in _COMPARING}
    first = periods[0]
    last = periods[-1]
    group = None
    if len(periods) == 1:
        test = f"{column.sql} {_test(first, before)}"
        words = f"{before or ('on' if first.is_day else 'in')} {first.words}"
    else:
        between = clause.text[first.end : clause.periods[1].start].lower().replace(" the ", " ").strip(" ,")
        is_range = between in _UNTIL or (between == "and" and before == "between")
        if len(periods) > 2 or not (is_range or (between in _BESIDE and not before)):
            raise RefusedError("how the times belong together is not clear")
        test = f"{column.sql} BETWEEN {quote(first.first.isoformat())} AND {quote(last.last.isoformat())}"
        words = f"from {first.words} to {last.words}"
        if comparing or not is_range:
            cases = " ".join(f"WHEN {column.sql} {_test(period)} THEN {quote(period.words)}" for period in periods)
            group = Group(f"CASE {cases} END", "period", (column.table,), order=f"MIN({column.sql})")
            test = f"{group.sql} IS NOT NULL"
            words = ""
            used |= comparing
    return TimePart(Condition(test, "", (column.table,)), words, used, group, refusal)


def _with_years(periods: tuple[Period, ...], column: Column) -> tuple[list[Period], RefusedError | None]:
    """The periods with the one year each can be of, and why one of them is of none or of several."""
    days = sorted(map(date.fromisoformat, column.values))
    first = days[0]
    last = days[-1]
    refusal = None
    dated: list[Period] = []
    for period in periods:
        known = [period.of_year(year) for year in range(first.year, last.year + 1)]
        on_record = list(dict.fromkeys(held for held in known if held.first <= last and held.last >= first))
        if len(on_record) != 1:
            reason = f"which year {period.words} is of is not said"
            if not on_record:
                reason = (
                    f"nothing is on record for {period.words}: the rows of {column.table} are from {first} to {last}"
                )
            refusal = RefusedError(reason, is_known=True)
        dated += (on_record or known)[:1]
    return dated, refusal


def _word_before(periods: tuple[Period, ...], items: list[Item]) -> Item | None:
    """since, before and so on, where such a word stands before the first period."""
    before = [item for item in items if item.end <= periods[0].start and item.low not in {"the", "in", "of", "month"}]
    if not before or (before[-1].low not in _SIGNS and before[-1].low not in _TWO_READINGS | {"between"}):
        return None
    word = before[-1]
    if word.low in _TWO_READINGS:
        if len(periods) == 1:
            raise RefusedError(f"{word.low} {periods[0].words} can be read in two ways")
        return None
    return word


def _test(period: Period, before: str = "") -> str:
    first = quote(period.first.isoformat())
    last = quote(period.last.isoformat())
    if before == "between":
        raise RefusedError("the second of two times is not said")
    if before:
        return f"{_SIGNS[before]} {first if before in {'since', 'before'} else last}"
    return f"BETWEEN {first} AND {last}"
