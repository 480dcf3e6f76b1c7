"""Days, months and years in a text. Words that depend on today are not read: whoever says them is refused."""

import calendar
import re
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from chargehand.text.dates import MONTH, find_dates, month_number

_YEAR = r"(?:19[89]\d|20\d\d)"
_PERIOD = re.compile(
    rf"""
      \b(?P<month>{MONTH})(?!\w)(?!\s+(?:i|we|you|they|he|she|it|the|be|not|a|an)\b)
    | (?:\b(?:in|of|during|since|for|from|to|until|till|before|after|than|and|or|year|between|through|per|by)\s+)
        (?P<year>{_YEAR})(?![\w-]|[.,]\d)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NEAR = 12


class Period(Struct, frozen=True):
    """A time that is named in a text: its first and last day, how it is written, and where it stands.

    Without a year (`year` is 0) it is of no use until one is found for it.
    """

    words: str
    start: int
    end: int
    year: int
    first_month: int = 1
    last_month: int = 12
    day: int = 0

    @property
    def first(self) -> date:
        return date(self.year, self.first_month, self.day or 1)

    @property
    def last(self) -> date:
        end = calendar.monthrange(self.year, self.last_month)[1]
        return date(self.year, self.last_month, self.day or end)

    @property
    def is_day(self) -> bool:
        return self.day > 0

    def of_year(self, year: int) -> "Period":
        """The same period with a year, if it had none."""
        return self if self.year else replace(self, year=year, words=f"{self.words} {year}")


def find_periods(text: str) -> list[Period]:
    """All periods in order. A year that is missing is taken from the one nearest after it, else before it."""
    periods = [
        Period(
            words=found.text.rstrip("."),
            start=found.start,
            end=found.end,
            year=found.year,
            first_month=found.month,
            last_month=found.month,
            day=found.day,
        )
        for found in find_dates(text)
        if found.other is None and found.day <= calendar.monthrange(found.year or 2024, found.month)[1]
    ]
    for match in _PERIOD.finditer(text):
        period = _read_period(match)
        if period is not None and not any(held.start < period.end and period.start < held.end for held in periods):
            periods.append(period)
    periods.sort(key=lambda period: period.start)
    for at in range(len(periods) - 2, -1, -1):
        if periods[at + 1].year and periods[at + 1].start - periods[at].end < _NEAR:
            periods[at] = periods[at].of_year(periods[at + 1].year)
    known = 0
    for at, period in enumerate(periods):
        if known:
            periods[at] = period.of_year(known)
        known = periods[at].year or known
    return periods


def _read_period(match: re.Match[str]) -> Period | None:
    """A month without a day, or a year."""
    if match["year"]:
        return Period(match["year"], match.start("year"), match.end("year"), int(match["year"]))
    words = match[0].rstrip(".")
    if not words[0].isupper():
        return None  # "may" and "march" are no months, or it cannot be told
    month = month_number(words)
    return Period(words, match.start(), match.start() + len(words), year=0, first_month=month, last_month=month)
