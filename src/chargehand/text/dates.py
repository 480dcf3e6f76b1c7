"""Dates in prose, however they are written."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct

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
_LONGEST_MONTH = 10  # letters, and a full stop

MONTH = r"(?=[jfmasond])(?:" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\b\.?"
"""A pattern for the name of a month, to be used without regard to case."""

_ISO_DAY = r"\d{4}-\d\d-\d\d(?![\d-])"

DIGIT_RUN = re.compile(rf"{_ISO_DAY}|\d+(?:[.,:'/\u2019\u00a0\u202f-](?!{_ISO_DAY})\d+)*")
"""Digits with the signs that can stand inside a number, a date or a time."""

_ISO = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_TIME_BEHIND = re.compile(r"[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?(?!\w)")
_MONTH_BEHIND = re.compile(r"(?:st|nd|rd|th|\.)?[ \u00a0](?:of )?([^\W\d_]{3,9})\.?(?:,? (\d{4})(?!\w))?")
_YEAR_BEHIND = re.compile(r"(?:st|nd|rd|th)?(?:,? (\d{4})(?!\w))?")
_BEFORE_MONTH = frozenset(" \u00a0.snrt")


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
    position = 0
    for run in DIGIT_RUN.finditer(text):
        start, end = run.span()
        if start < position or (start and text[start - 1].isalnum()):
            continue
        date = read_date(text, start, end)
        if date is not None:
            position = date.end
            yield date


def read_date(text: str, start: int, end: int) -> Date | None:
    """The date that a run of digits is, alone or with the month beside it."""
    run = text[start:end]
    if len(run) > 5:
        return None if run.isdigit() else _read_numeric_date(text, start, end)
    if not run.isdigit():
        return None
    return _read_month_behind(text, start, end) or _read_month_before(text, start, end)


def month_number(name: str) -> int:
    """The number of the month with this name; 0 if there is none."""
    return _MONTHS.get(name.casefold(), 0)


def _read_numeric_date(text: str, start: int, end: int) -> Date | None:
    run = text[start:end]
    if run[4:5] == "-" and (match := _ISO.fullmatch(run)):
        if time := _TIME_BEHIND.match(text, end):
            end = time.end()
        return _make_date(int(match[1]), int(match[2]), int(match[3] or 0), text=text, start=start, end=end)
    if "." in run[:3] and (match := _DOTTED.fullmatch(run)):
        return _make_date(int(match[3]), int(match[2]), int(match[1]), text=text, start=start, end=end)
    if "/" in run[:3] and (match := _SLASHED.fullmatch(run)):
        first = int(match[1])
        second = int(match[2])
        year = int(match[3])
        if first > 12:
            return _make_date(year, second, first, text=text, start=start, end=end)
        other = (year, second, first) if second <= 12 else None
        return _make_date(year, first, second, text=text, start=start, end=end, other=other)
    return None


def _read_month_behind(text: str, start: int, end: int) -> Date | None:
    """`5 March 2024`, `5th of March`, `5. März`."""
    if end - start > 2 or text[end : end + 1] not in _BEFORE_MONTH:
        return None
    match = _MONTH_BEHIND.match(text, end)
    month = month_number(match[1]) if match is not None else 0
    if match is None or not month:
        return None
    year = int(match[2] or 0)
    day = int(text[start:end])
    return _make_date(year, month, day, text=text, start=start, end=match.end())


def _read_month_before(text: str, start: int, end: int) -> Date | None:
    """`March 2024`, `March 5`, `March 5th, 2024`."""
    if start < 4 or text[start - 1] not in " \u00a0" or not (text[start - 2].isalpha() or text[start - 2] == "."):
        return None
    word = text[max(0, start - 2 - _LONGEST_MONTH) : start - 1].rsplit(maxsplit=1)[-1].lstrip("([\"'*_")
    month = month_number(word.rstrip("."))
    if not month:
        return None
    begin = start - 1 - len(word)
    if end - start == 4:
        return _make_date(int(text[start:end]), month, 0, text=text, start=begin, end=end)
    if end - start > 2:
        return None
    match = _YEAR_BEHIND.match(text, end)
    year = int(match[1] or 0) if match is not None else 0
    day = int(text[start:end])
    return _make_date(year, month, day, text=text, start=begin, end=match.end() if match is not None else end)


def _make_date(
    year: int,
    month: int,
    day: int,
    *,
    text: str,
    start: int,
    end: int,
    other: tuple[int, int, int] | None = None,
) -> Date | None:
    if not 1 <= month <= 12 or day > 31:
        return None
    return Date(year=year, month=month, day=day, text=text[start:end], start=start, end=end, other=other)


# --- ISO 8601


def parse_instant(text: str, *, end_of_day: bool = False) -> float:
    """The seconds since 1970 of a day or time in ISO 8601, in UTC where no zone is named; ValueError for what is none.

    A day alone is its first moment or, with `end_of_day`, its last.
    """
    written = text.strip()
    try:
        moment = datetime.fromisoformat(written)
        if end_of_day and len(written) <= len("2026-05-17") and ":" not in written and "T" not in written:
            moment += timedelta(days=1, microseconds=-1)
        # into UTC, as it is told again: there the first hours of the first year are none any more
        return (moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{written[:60]!r} is no ISO 8601 time") from error
