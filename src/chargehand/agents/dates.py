"""Days in prose, however they are written: found, and held against days that are known. Pure."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct

_NAMES = (
    ("jan", "january", "januar", "jänner"), ("feb", "february", "februar"), ("mar", "march", "märz"),
    ("apr", "april"), ("may", "mai"), ("jun", "june", "juni"), ("jul", "july", "juli"), ("aug", "august"),
    ("sep", "sept", "september"), ("oct", "october", "oktober", "okt"), ("nov", "november"),
    ("dec", "december", "dezember", "dez"),
)  # fmt: skip
_MONTHS = {name: number for number, names in enumerate(_NAMES, 1) for name in names}
MONTH = r"(?=[jfmasond])(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
_DAY = re.compile(
    rf"""\b(?=[\djfmasond])(?:
        (?P<iso_year>\d{{4}})-(?P<iso_month>\d\d)(?:-(?P<iso_day>\d\d))?(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?
        | (?P<dotted>\d{{1,2}}\.\d{{1,2}}\.\d{{4}})
        | (?P<slashed>\d{{1,2}}/\d{{1,2}}/\d{{4}})
        | (?P<day_first>\d{{1,2}})(?:st|nd|rd|th|\.)?\s(?:of\s)?(?P<month_after>{MONTH})(?:,?\s(?P<year_after>\d{{4}}))?
        | (?P<month_alone>{MONTH})\s(?P<year_alone>\d{{4}})
        | (?P<month_first>{MONTH})\s(?P<day_after>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s(?P<year_last>\d{{4}}))?(?![\d.,]*\d)
    )(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_TERM = 3650  # days


class Day(Struct, frozen=True):
    """A day as it stands in a text; 0 where the year or the day is not said. `other` is how else it may be read."""

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


def find_days(text: str) -> Iterator[Day]:
    """The days of a text, in order."""
    for found in _DAY.finditer(text):
        day = _read(found)
        if day is not None:
            yield day


def _read(found: re.Match[str]) -> Day | None:
    other = None
    if found["iso_year"]:
        year, month, day = int(found["iso_year"]), int(found["iso_month"]), int(found["iso_day"] or 0)
    elif found["dotted"]:
        day, month, year = map(int, found["dotted"].split("."))
    elif found["slashed"]:
        month, day, year = map(int, found["slashed"].split("/"))
        other = (year, day, month)
        if month > 12:
            month, day, other = day, month, None
    elif found["day_first"]:
        year, month, day = int(found["year_after"] or 0), _month(found["month_after"]), int(found["day_first"])
    elif found["month_alone"]:
        year, month, day = int(found["year_alone"]), _month(found["month_alone"]), 0
    else:
        year, month, day = int(found["year_last"] or 0), _month(found["month_first"]), int(found["day_after"])
    if not 1 <= month <= 12 or day > 31:
        return None
    return Day(year, month, day, found[0], *found.span(), other)


def month_number(name: str) -> int:
    """The number of a month; 0 for what is none."""
    return _MONTHS.get(name.casefold(), 0)


def _month(name: str) -> int:
    return _MONTHS[name.rstrip(".").casefold()]


def day_of(instant: float) -> date:
    """The day of an instant, in UTC."""
    try:
        return datetime.fromtimestamp(instant, UTC).date()
    except (OverflowError, ValueError, OSError):
        return date.min


def is_about(day: Day, today: date) -> bool:
    """Whether a day is today, or, elsewhere on earth and a little later, the day before or after."""
    near = (today - timedelta(days=1), today, today + timedelta(days=1)) if date.min < today < date.max else (today,)
    return any((one.month, one.day) == (day.month, day.day) and day.year in (0, one.year) for one in near)


class Days:
    """Days to look others up in."""

    def __init__(self, days: Iterable[tuple[int, int, int]]) -> None:
        self._days = frozenset(days)
        self._months = frozenset((year, month) for year, month, _ in self._days)
        self._yearless = frozenset((month, day) for _, month, day in self._days)
        self._without_year = frozenset((month, day) for year, month, day in self._days if not year)

    def hold(self, day: Day) -> bool:
        """Whether one of them is this day, or falls in this month."""
        return any(self._holds(*reading) for reading in day.readings)

    def _holds(self, year: int, month: int, day: int) -> bool:
        if not day:
            return (year, month) in self._months
        if not year:
            return (month, day) in self._yearless
        return (year, month, day) in self._days or (month, day) in self._without_year

    def reach(self, day: Day, terms: Iterable[int]) -> bool:
        """Whether this day lies so many days before or after one of them: due 30 days after an invoice."""
        wanted = _calendar(day.year, day.month, day.day)
        if wanted is None or len(self._days) > 200:
            return False
        steps = [timedelta(days=term) for term in terms if 0 < term <= _LONGEST_TERM][:200]
        known = {calendar for one in self._days if (calendar := _calendar(*one)) is not None}
        return any(wanted - step in known or wanted + step in known for step in steps)


def _calendar(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
