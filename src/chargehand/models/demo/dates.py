"""Days, months, quarters and years in a text. Words that depend on today are not read: whoever says them is refused."""

import calendar
import re
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

_MONTHS = {
    **{name.lower(): number for number, name in enumerate(calendar.month_name) if name},
    **{name.lower(): number for number, name in enumerate(calendar.month_abbr) if name},
    "sept": 9,
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
_YEAR = r"(?:19[89]\d|20\d\d)"
_PATTERN = re.compile(
    rf"""
      \b(?P<iso>{_YEAR}-\d\d-\d\d)\b
    | \b(?P<iso_month>{_YEAR}-\d\d)\b
    | \b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<month>{_MONTH})\b\.?(?:,?\s+(?P<year>{_YEAR}))?(?!\w)
    | \b(?P<month_first>{_MONTH})\s+(?P<day_second>\d{{1,2}})(?:st|nd|rd|th)?
        (?:,?\s+(?P<year_second>{_YEAR}))?(?![\w,]*\d)
    | \b(?P<only_month>{_MONTH})\b\.?(?:\s+(?:of\s+)?(?P<month_year>{_YEAR}))?(?!\w)
    | \b(?:(?P<quarter>first|second|third|fourth|1st|2nd|3rd|4th)\s+quarter|Q(?P<q>[1-4]))
        (?:\s+(?:of\s+)?(?P<quarter_year>{_YEAR}))?(?!\w)
    | \b(?P<half>first|second)\s+half(?:\s+of)?\s+(?P<half_year>{_YEAR})(?!\w)
    | (?<![\w.,-])(?P<only_year>{_YEAR})(?![\w-]|[.,]\d)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BEFORE_YEAR = re.compile(
    r"\b(?:in|of|during|since|for|from|to|until|till|before|after|than|and|or|year|between|through|per|by)\s+\Z",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\s+(?:i|we|you|they|he|she|it|the|be|not|a|an)\b", re.IGNORECASE)


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
    found = [period for match in _PATTERN.finditer(text) if (period := _read(text, match)) is not None]
    for at in range(len(found) - 2, -1, -1):
        if not found[at].year and found[at + 1].year and found[at + 1].start - found[at].end < 12:
            found[at] = found[at].of_year(found[at + 1].year)
    known = 0
    for at, period in enumerate(found):
        if known:
            found[at] = period.of_year(known)
        known = found[at].year or known
    return found


def _read(text: str, match: re.Match[str]) -> Period | None:
    if match["iso"] or match["iso_month"]:
        year, month, *day = (int(part) for part in match[0].split("-"))
        return _period(match, year, month, month, day[0] if day else 0)
    if match["only_year"]:
        before = text[max(0, match.start() - 12) : match.start()]
        return _period(match, int(match["only_year"]), 1, 12) if _BEFORE_YEAR.search(before) else None
    if match["quarter"] or match["q"]:
        quarter = int(match["q"] or _ORDINALS[match["quarter"].lower()])
        return _period(match, int(match["quarter_year"] or 0), 3 * quarter - 2, 3 * quarter)
    if match["half"]:
        half = _ORDINALS[match["half"].lower()]
        return _period(match, int(match["half_year"]), 6 * half - 5, 6 * half)
    name = match["month"] or match["month_first"] or match["only_month"]
    year = int(match["year"] or match["year_second"] or match["month_year"] or 0)
    if match["only_month"] and not year and (not name[0].isupper() or _PRONOUN.match(text, match.end())):
        return None  # "may", "march": no month, or it cannot be told
    month = _MONTHS[name.lower()]
    return _period(match, year, month, month, int(match["day"] or match["day_second"] or 0))


def _period(match: re.Match[str], year: int, first_month: int, last_month: int, day: int = 0) -> Period | None:
    try:
        date(year or 2024, first_month, day or 1)
    except ValueError:
        return None
    return Period(
        words=match[0].rstrip("."),
        start=match.start(),
        end=match.end(),
        year=year,
        first_month=first_month,
        last_month=last_month,
        day=day,
    )
