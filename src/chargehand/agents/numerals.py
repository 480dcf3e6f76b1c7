"""Every number and every day in a long text, quickly: what results are made of, not what is said about them. Pure."""

import re
from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from chargehand.agents.dates import month_number
from chargehand.agents.quantities import NUMBER_WORDS, plain_numbers, scales

_RUN = re.compile(r"\d+(?:[.,:'/\u2019\u00a0\u202f-]\d+)*")
_WORD = re.compile(r"[^\W\d_]+")
_GLUED = re.compile(r"[^\W\d_]{1,20}\d")
_ISO = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_NUMBER = re.compile(
    r"\d{1,3}(?:\.\d{3})+,\d{1,30}|\d{1,3}(?:[,'\u2019\u00a0\u202f]\d{3})+(?:\.\d{1,30})?|\d{1,3}(?:\.\d{3}){2,}"
    r"|\d{1,40}(?:[.,]\d{1,40})?"
)
_SCALED = re.compile(r"\s?([^\W\d_]{1,9})(?!\w)")
_MONTH_BEHIND = re.compile(r"(?:st|nd|rd|th|\.)?[ \u00a0](?:of )?([^\W\d_]{3,9})\.?(?:,? (\d{4})(?!\d))?")
_YEAR_BEHIND = re.compile(r"(?:st|nd|rd|th)?,? (\d{4})(?!\d)")
_BEFORE_MONTH = frozenset(" \u00a0.snrt")
_SCALING = frozenset("kKtTmMbB")
_SIGNS = frozenset("$€£¥")
_MONEY = frozenset(("EUR", "USD", "GBP", "CHF", "JPY"))
_LONGEST = 60  # digits and signs of a run that are read


class Numeral(Struct, frozen=True, gc=False):
    """A number in a text and what it may be worth. `embedded`: it is a part of a name, a day or a time.

    `days` are those it may be, as year, month and day; 0 for what is not said.
    """

    values: tuple[Decimal, ...]
    start: int
    end: int
    currency: str = ""
    embedded: bool = False
    days: tuple[tuple[int, int, int], ...] = ()


def find_numerals(text: str) -> Iterator[Numeral]:
    """The numbers of a text in digits, then those in words."""
    skip = 0
    for run in _RUN.finditer(text):
        start, end = run.span()
        if start < skip:
            continue
        day = _day(text, run[0], start, end)
        if day is not None:
            skip = day.end
            yield day
        elif _in_name(text, start, end):
            yield Numeral(_whole(run[0]), start, end, embedded=True)
        else:
            yield from _numbers(text, run[0], start, end)
    for word in _WORD.finditer(text):
        value = NUMBER_WORDS.get(word[0].casefold()) if len(word[0]) < 10 else None
        if value is not None:
            yield Numeral((value,), *word.span())


def _in_name(text: str, start: int, end: int) -> bool:
    """Whether digits are a part of a name: B12, A-1042, 3rd, 4x4."""
    before = text[start - 1] if start else " "
    if before.isalpha() or before == "_" or (before in "-/" and start > 1 and text[start - 2].isalpha()):
        return True
    behind = text[end : end + 2]
    if not behind[:1].isalpha():
        return False
    return behind in ("st", "nd", "rd", "th") or _GLUED.match(text, end) is not None


def _day(text: str, run: str, start: int, end: int) -> Numeral | None:
    days: tuple[tuple[int, int, int], ...] = ()
    if len(run) > 5:
        days = _written_day(run) if not run.isdigit() else ()
    elif run.isdigit():
        days, end = _beside_month(text, run, start, end)
    if not days:
        return None
    parts = tuple(Decimal(part) for part in days[0] if part)
    return Numeral(parts, start, end, embedded=True, days=days)


def _beside_month(text: str, run: str, start: int, end: int) -> tuple[tuple[tuple[int, int, int], ...], int]:
    """The day that a number and the name of a month beside it make, and where it ends."""
    if len(run) <= 2 and text[end : end + 1] in _BEFORE_MONTH:
        found = _MONTH_BEHIND.match(text, end)
        month = month_number(found[1]) if found is not None else 0
        if found is not None and month:
            return ((int(found[2] or 0), month, int(run)),), found.end()
    if start > 3 and text[start - 1] == " " and text[start - 2].isalpha() | (text[start - 2] == "."):
        word = text[max(0, start - 12) : start - 1].rstrip(".").rpartition(" ")[2]
        month = month_number(word)
        if month and len(run) == 4:
            return ((int(run), month, 0),), end
        if month and len(run) <= 2:
            year = _YEAR_BEHIND.match(text, end)
            return ((int(year[1]) if year else 0, month, int(run)),), year.end() if year else end
    return (), end


def _written_day(run: str) -> tuple[tuple[int, int, int], ...]:
    if run[4:5] == "-" and (found := _ISO.match(run)):
        return ((int(found[1]), int(found[2]), int(found[3] or 0)),) if int(found[2]) <= 12 else ()
    if "." in run[:3] and (found := _DOTTED.fullmatch(run)):
        return ((int(found[3]), int(found[2]), int(found[1])),)
    if "/" in run[:3] and (found := _SLASHED.fullmatch(run)):
        return ((int(found[3]), int(found[1]), int(found[2])), (int(found[3]), int(found[2]), int(found[1])))
    return ()


def _numbers(text: str, run: str, start: int, end: int) -> Iterator[Numeral]:
    if ":" in run or "/" in run:
        yield Numeral(_whole(run), start, end, embedded=True)
        return
    if run.isdigit() or ("-" not in run and _NUMBER.fullmatch(run)):
        yield Numeral(tuple(_worth(text, run, end)), start, end, _currency(text, start))
        return
    at = start
    for part in re.split(r"([-,'\u2019\u00a0\u202f])", run[:_LONGEST]):
        if part[:1].isdigit():
            if part.count(".") > 1:
                yield Numeral(_whole(part), at, at + len(part), embedded=True)
            else:
                yield Numeral(tuple(_worth(text, part, at + len(part))), at, at + len(part))
        at += len(part)


def _currency(text: str, start: int) -> str:
    """The sign or the name of a currency before a number."""
    before = text[max(0, start - 4) : start].strip()
    if before[-1:] in _SIGNS:
        return before[-1:]
    return before[-3:] if before[-3:] in _MONEY else ""


def _worth(text: str, run: str, end: int) -> list[Decimal]:
    behind = text[end : end + 2].strip()[:1]
    scaled = _SCALED.match(text, end) if behind in _SCALING else None
    power = scales(scaled[1]) if scaled is not None else 0
    if run.isdigit() and not power:
        return [Decimal(run[:_LONGEST])]
    values: list[Decimal] = []
    for plain in plain_numbers(run[:_LONGEST]):
        value = Decimal(plain)
        values.append(value)
        if power:
            values.append(value.scaleb(power))
    return values


def _whole(run: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(part) for part in re.findall(r"[0-9]+", run[:_LONGEST]))
