"""The times of a question to tables: which column they are of, which rows they leave, or what is set side by side."""

from datetime import date

from msgspec import Struct

from chargehand.models.demo.dates import Period
from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.table_schema import Column
from chargehand.models.demo.table_sql import Condition, Group, quote
from chargehand.models.demo.table_words import Scope
from chargehand.models.demo.words import stem, word_set

_UNTIL = word_set("to until till through -")
_BESIDE = frozenset(("and", "or", "and in", "with", "vs", "versus", "to", "compared with", "compared to"))
_COMPARING = frozenset(map(stem, word_set("change versus vs compared")))
_TESTS = {
    "": "BETWEEN '{first}' AND '{last}'",
    "since": ">= '{first}'",
    "after": "> '{last}'",
    "before": "< '{first}'",
    "until": "<= '{last}'",
    "till": "<= '{last}'",
}
_TWO_READINGS = word_set("by from to within through between")
_SKIPPED = word_set("the in of month")


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
    first = periods[0]
    last = periods[-1]
    words = [item for item in scope.items if item.end <= first.start and item.low not in _SKIPPED]
    before = words[-1].low if words and words[-1].low in _TESTS.keys() | _TWO_READINGS else ""
    used = {item.at for item in scope.items if column in item.columns}
    used |= {words[-1].at} if before else set()
    comparing = {item.at for item in scope.items if item.stems[0] in _COMPARING}
    if len(periods) == 1:
        if before in _TWO_READINGS:
            raise RefusedError(f"{before} {first.words} can be read in two ways")
        condition = _condition(f"{column.sql} {_test(first, last, before)}", column)
        said = f"{before or ('on' if first.is_day else 'in')} {first.words}"
        return TimePart(condition, said, used, refusal=refusal)
    between = clause.text[first.end : clause.periods[1].start].lower().replace(" the ", " ").strip(" ,")
    is_range = between in _UNTIL or (between == "and" and before == "between")
    is_list = between in _BESIDE and before not in _TESTS.keys() - {""}
    if len(periods) > 2 or not (is_range or is_list):
        raise RefusedError("how the times belong together is not clear")
    if is_range and not comparing:
        condition = _condition(f"{column.sql} {_test(first, last)}", column)
        return TimePart(condition, f"from {first.words} to {last.words}", used, refusal=refusal)
    cases = " ".join(f"WHEN {column.sql} {_test(held, held)} THEN {quote(held.words)}" for held in periods)
    group = Group(f"CASE {cases} END", "period", (column.table,), order=f"MIN({column.sql})")
    return TimePart(_condition(f"{group.sql} IS NOT NULL", column), "", used | comparing, group, refusal)


def _condition(sql: str, column: Column) -> Condition:
    return Condition(sql, "", (column.table,))


def _test(first: Period, last: Period, before: str = "") -> str:
    return _TESTS[before].format(first=first.first, last=last.last)


def _with_years(periods: tuple[Period, ...], column: Column) -> tuple[list[Period], RefusedError | None]:
    """The periods with the one year each can be of, and why one of them is of none or of several."""
    first = date.fromisoformat(min(column.values))
    last = date.fromisoformat(max(column.values))
    refusal = None
    dated: list[Period] = []
    for period in periods:
        known = [period.of_year(year) for year in range(first.year, last.year + 1)]
        on_record = list(dict.fromkeys(held for held in known if held.first <= last and held.last >= first))
        if len(on_record) > 1:
            refusal = RefusedError(f"which year {period.words} is of is not said", is_known=True)
        elif not on_record:
            reason = f"nothing is on record for {period.words}: the rows of {column.table} are from {first} to {last}"
            refusal = RefusedError(reason, is_known=True)
        dated += (on_record or known)[:1]
    return dated, refusal
