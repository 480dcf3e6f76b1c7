"""Dates in a text, where they stand and what they are in one form. Nothing here knows what day it is.

Normal forms: 2026-05-30 (day), 2026-05 (month), 2026-Q2, 2026-H1, 2026 (year); `--05` and the like without a year.
"""

import re
from datetime import date

from msgspec import Struct

from chargehand.models.offline.vocabulary import MONTHS


class Dated(Struct, frozen=True):
    """A date as it was written (`text`, from `start` to `end`) and in its normal form."""

    start: int
    end: int
    text: str
    normal: str


_MONTH = "(?:" + "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in MONTHS) + r"|sept)\.?"
_YEAR = r"(?P<year>(?:19|20)\d\d)(?![\d.,-]\d)"
_LATER = r"(?:,?\s*(?:of\s+)?(?P<year>(?:19|20)\d\d)\b)?"
_ORDINAL = {"first": "1", "second": "2", "third": "3", "fourth": "4", "last": "4", "1st": "1", "2nd": "2", "3rd": "3"}
_BEFORE_YEAR = (
    "in|of|for|since|during|year|until|till|from|through|to|and|between|by|vs|versus|than|fy|after|before|the"
)
_PATTERNS = (
    re.compile(r"(?<![\w-])(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])"),
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<name>{_MONTH}){_LATER}(?!\w)", re.IGNORECASE),
    re.compile(rf"\b(?P<name>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?{_LATER}(?![\w%])", re.IGNORECASE),
    re.compile(rf"\b(?P<name>{_MONTH}),?\s+(?:of\s+)?{_YEAR}\b", re.IGNORECASE),
    re.compile(r"(?<![\w-])(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2])(?![\w-])"),
    re.compile(rf"\b(?P<part>[QH])(?P<nth>[1-4]){_LATER}(?!\w)", re.IGNORECASE),
    re.compile(r"\b(?P<year>(?:19|20)\d\d)[- ]?(?P<part>[QH])(?P<nth>[1-4])\b", re.IGNORECASE),
    re.compile(rf"\b(?P<word>{'|'.join(_ORDINAL)})\s+(?P<part>quarter|half){_LATER}(?!\w)", re.IGNORECASE),
    re.compile(
        rf"(?<=\b(?:in|of|to) )(?P<name>{_MONTH})(?!\w)|\b(?P<full>{'|'.join(MONTHS)})\b(?<!may)", re.IGNORECASE
    ),
    re.compile(rf"\b(?:{_BEFORE_YEAR})\s+{_YEAR}(?!\s*(?:%|(?-i:[A-Z]{{3}})\b|[$\u20ac\u00a3]))\b", re.IGNORECASE),
    re.compile(
        r"(?:\A|(?<=[(,]))\s*(?P<year>20\d\d)(?=\s*(?:[,;:)]|\Z))"
        r"|(?<=[a-z]) (?P<last>20\d\d)(?=\s*(?:[,;:)?!.]\s|[?!.)]?\Z))"
    ),
)


def dates(text: str) -> list[Dated]:
    """The dates in it, in order. One without a year takes the year that is named next to it, if one is."""
    found: list[Dated] = []
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if (normal := _normal(match)) is None:
                continue
            start, end = _span(match)
            if not any(other.start < end and start < other.end for other in found):
                found.append(Dated(start, end, text[start:end], normal))
    found.sort(key=lambda dated: dated.start)
    years = [(dated.start, dated.normal[:4]) for dated in found if not dated.normal.startswith("--")]
    return [_with_year(dated, years) for dated in found]


def _span(match: re.Match[str]) -> tuple[int, int]:
    """Without the preposition before a bare year."""
    groups = match.groupdict()
    alone = [name for name, value in groups.items() if value is not None]
    if alone in (["year"], ["last"]):
        return match.span(alone[0])
    return match.span()


def _normal(match: re.Match[str]) -> str | None:
    given = match.groupdict()
    year = given.get("year") or given.get("last") or "-"
    if part := given.get("part"):
        nth = given.get("nth") or _ORDINAL[given["word"].lower()]
        half = part[0].upper() == "H"
        return f"{year}-{part[0].upper()}{'2' if half and nth == '4' else nth}" if not half or nth in "124" else None
    month = given.get("month") or _month(given.get("name") or given.get("full"))
    if not month:
        return year
    if not (day := given.get("day")):
        return f"{year}-{month}"
    try:
        date(int(year) if year != "-" else 2000, int(month), int(day))
    except ValueError:
        return None
    return f"{year}-{month}-{int(day):02}"


def _month(name: str | None) -> str:
    if not name:
        return ""
    return next(f"{at:02}" for at, month in enumerate(MONTHS, 1) if month.startswith(name.lower().rstrip(".")[:3]))


def _with_year(dated: Dated, years: list[tuple[int, str]]) -> Dated:
    if not dated.normal.startswith("--") or not years:
        return dated
    _, year = min(years, key=lambda other: (other[0] < dated.start, abs(other[0] - dated.start)))
    return Dated(dated.start, dated.end, dated.text, f"{year}{dated.normal[1:]}")
