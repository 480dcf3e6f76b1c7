"""Dates in prose, however they are written, and instants in ISO 8601."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct

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


class Date(Struct, frozen=True):
    """A date as it stands in a text; 0 where the year or the day is not said. `other` is a second way to read it."""

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
