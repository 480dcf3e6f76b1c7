"""Dates and periods in prose, however they are written, and instants in ISO 8601."""

import calendar
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct, structs

from chargehand.text.words import LETTERS

_MONTH_NAMES = (
    "jan january januar jänner",
    "feb february februar",
    "mar march märz",
    "apr april",
    "may mai",
    "jun june juni",
    "jul july juli",
    "aug august",
    "sep sept september",
    "oct october oktober okt",
    "nov november",
    "dec december dezember dez",
)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}

MONTH = r"(?=[jfmasond])(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
"""A pattern for the name of a month, to be used without regard to case."""

_DATE = re.compile(
    rf"""
    (?<![^\W_])(?:
      (?P<iso>\d{{4}}-\d\d(?:-\d\d)?)(?![-.,]?\d)(?:[T\ ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?(?!\w))?
    | (?P<dotted>\d{{1,2}}\.\d{{1,2}}\.\d{{4}})(?![-.,]?\d)
    | (?P<slashed>\d{{1,2}}/\d{{1,2}}/\d{{4}})(?![-/.,]?\d)
    | (?P<worded>
        \d{{1,2}}(?:st|nd|rd|th|\.)?[\ \u00a0](?:of\ )?{MONTH}(?:,?\ \d{{4}}(?!\w))?
      | {MONTH}[\ \u00a0](?:\d{{4}}(?!\w|[-.,]\d)|\d{{1,2}}(?!\d|[-.,:/]\d)(?:st|nd|rd|th)?(?!\w)(?:,?\ \d{{4}}(?!\w))?)
      )
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)


_YEAR = r"(?:19[89]\d|20\d\d)"
_MONTH_OR_YEAR = re.compile(
    rf"""
      \b(?P<month>{MONTH})(?!\w)(?!\s+(?:i|we|you|they|he|she|it|the|be|not|a|an)\b)
    | (?:\b(?:in|of|during|since|for|from|to|until|till|before|after|than|and|or|year|between|through|per|by)\s+)
        (?P<year>{_YEAR})(?![\w-]|[.,]\d)
    """,
    re.IGNORECASE | re.VERBOSE,
)


class Date(Struct, frozen=True):
    """A day, a month or a year as it stands in a text; 0 for what is not said. `other` is a second way to read it."""

    year: int
    month: int
    day: int
    text: str
    start: int
    end: int
    other: tuple[int, int, int] | None = None

    @property
    def readings(self) -> list[tuple[int, int, int]]:
        first = (self.year, self.month, self.day)
        return [first] if self.other is None else [first, self.other]

    @property
    def first_day(self) -> date:
        """The day, or the first of the month or year."""
        return date(self.year, self.month or 1, self.day or 1)

    @property
    def last_day(self) -> date:
        month = self.month or 12
        return date(self.year, month, self.day or calendar.monthrange(self.year, month)[1])

    def of_year(self, year: int) -> "Date":
        """The same date with a year, if it had none."""
        return self if self.year else structs.replace(self, year=year, text=f"{self.text} {year}")


def find_dates(text: str) -> Iterator[Date]:
    """The dates of a text, in order."""
    for match in _DATE.finditer(text):
        form = match.lastgroup or ""
        digits = [int(part) for part in re.findall(r"\d+", match[form])]
        other = None
        match form:
            case "iso":
                year, month, day = (*digits, 0)[:3]
            case "dotted":
                day, month, year = digits
            case "slashed":
                month, day, year = digits
                if month > 12:
                    month, day = day, month
                elif day <= 12:
                    other = (year, day, month)
            case _:
                year = next((number for number in digits if number > 99), 0)
                month = max(month_number(word) for word in LETTERS.findall(match[form]))
                day = digits[0] if digits[0] != year else 0
        if 1 <= month <= 12 and day <= 31:
            start, end = match.span()
            yield Date(year=year, month=month, day=day, text=match[0], start=start, end=end, other=other)


def find_periods(text: str) -> list[Date]:
    """The days, months and years of a text in order. Where one year is said it is that of the others too.

    A date that can be read in two ways is left out, and so are words that may be no month: "may", "march".
    """
    periods = [
        structs.replace(mention, text=mention.text.rstrip("."))
        for mention in find_dates(text)
        if mention.other is None and mention.day <= calendar.monthrange(mention.year or 2024, mention.month)[1]
    ]
    for match in _MONTH_OR_YEAR.finditer(text):
        form = match.lastgroup or ""
        words = match[form].rstrip(".")
        start = match.start(form)
        end = start + len(words)
        is_known = any(period.start < end and start < period.end for period in periods)
        if not is_known and (form == "year" or words[0].isupper()):
            year = int(words) if form == "year" else 0
            periods.append(Date(year=year, month=month_number(words), day=0, text=words, start=start, end=end))
    years = {period.year for period in periods if period.year}
    if len(years) == 1:
        periods = [period.of_year(min(years)) for period in periods]
    return sorted(periods, key=lambda period: period.start)


def month_number(name: str) -> int:
    """The number of the month with this name; 0 if there is none."""
    return _MONTHS.get(name.casefold().rstrip("."), 0)


def parse_instant(text: str, *, end_of_day: bool = False) -> float:
    """The seconds since 1970 of a day or time in ISO 8601, in UTC where no zone is named; ValueError for what is none.

    A day alone is its first moment or, with `end_of_day`, its last.
    """
    written = text.strip()
    try:
        moment = datetime.fromisoformat(written)
        if end_of_day and len(written) <= len("2026-05-17") and ":" not in written and "T" not in written:
            moment += timedelta(days=1, microseconds=-1)
        # converted to UTC: there the first hours of year 1 are out of range
        return (moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{written[:60]!r} is no ISO 8601 time") from error
