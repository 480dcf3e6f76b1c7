"""Days, months, quarters and years in a text. Words that depend on today are not read: whoever says them is refused."""

import calendar
import re
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from chargehand.text.dates import MONTH, find_dates, month_number

_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
_YEAR = r"(?:19[89]\d|20\d\d)"
_PERIOD = re.compile(
    rf"""
      \b(?P<month>{MONTH})(?!\w)(?!\s+(?:i|we|you|they|he|she|it|the|be|not|a|an)\b)
    | \b(?:(?P<quarter>first|second|third|fourth|1st|2nd|3rd|4th)\s+quarter|Q(?P<q>[1-4]))
        (?:\s+(?:of\s+)?(?P<quarter_year>{_YEAR}))?(?!\w)
    | \b(?P<half>first|second)\s+half(?:\s+of)?\s+(?P<half_year>{_YEAR})(?!\w)
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
    """A month without a day, a quarter, a half or a year."""
    words = match["year"] or match[0].rstrip(".")
    year = int(match["quarter_year"] or match["half_year"] or match["year"] or 0)
    start = match.start("year") if match["year"] else match.start()
    period = Period(words, start, start + len(words), year)
    if match["year"]:
        return period
    if match["month"]:
        month = month_number(words)
        is_name = words[0].isupper()  # "may" and "march" are no months, or it cannot be told
        return replace(period, first_month=month, last_month=month) if is_name else None
    number = int(match["q"] or _ORDINALS[(match["quarter"] or match["half"]).lower()])
    months = 6 if match["half"] else 3
    return replace(period, first_month=months * (number - 1) + 1, last_month=months * number)
