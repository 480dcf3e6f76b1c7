"""Numbers in prose: how they can be read, how exact they are, and whether a collection of numbers bears them out.

What a number is about is not known here.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from decimal import Decimal

from msgspec import Struct

from chargehand.agents.dates import MONTH
from chargehand.agents.units import spell_unit, unit_behind

_TOKEN = re.compile(
    rf"""(?P<skip>
        \b\d{{4}}-\d\d(?:-\d\d)?(?:[T ]\d\d:\d\d(?::\d\d)?)?\b        # days and moments
        | \b\d{{1,2}}(?:st|nd|rd|th|\.)?\s(?:of\s)?{MONTH}(?:,?\s\d{{4}}\b)?
        | \b{MONTH}\s\d{{4}}\b
        | \b{MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?\b(?![\d.,]*\d)
        | \b\d{{1,4}}(?:[:/]\d{{1,4}})+\b                             # times, fractions
        | \b\d{{1,4}}(?:\.\d{{1,4}}){{2,}}\b(?!,\d)                   # versions, days
        | \b\d+(?:st|nd|rd|th)\b
        | \b\d+[^\W\d_]+\d\w*                                         # made of both: a name
    )
    | (?:(?P<currency>[$€£¥]|\b(?:EUR|USD|GBP|CHF|JPY)\b)\s?)?(?<!\w)
      (?P<number>\d{{1,3}}(?:\.\d{{3}})+,\d{{1,30}}
        | \d{{1,3}}(?:[,'\u2019\u00a0\u202f]\d{{3}})+(?!\d)(?:\.\d{{1,30}})?
        | \d{{1,40}}(?:[.,]\d{{1,40}})?)
      (?=\s?(?P<unit>%|[^\W\d_]{{1,20}}|[$€£¥])?)
    | (?P<word>[^\W\d]\w*(?:\.\d+)*)""",
    re.IGNORECASE | re.VERBOSE,
)
_SCALES = {
    "k": 3, "thousand": 3, "m": 6, "mn": 6, "mio": 6, "million": 6, "millions": 6, "bn": 9, "billion": 9, "billions": 9
}  # fmt: skip
_NAMES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
NUMBER_WORDS = {word: Decimal(value) for value, word in enumerate(_NAMES)} | {
    word: Decimal(value)
    for word, value in (
        ("none", 0), ("no", 0), ("once", 1), ("twice", 2), ("dozen", 12), ("zwei", 2), ("drei", 3), ("vier", 4),
        ("fünf", 5), ("sechs", 6), ("sieben", 7), ("acht", 8), ("neun", 9), ("zehn", 10), ("elf", 11), ("zwölf", 12),
    )
}  # fmt: skip
_UNITS = {"%": "%", "percent": "%", "$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "euro": "eur", "dollar": "usd"}
_LETTERS = re.compile(r"[^\W\d_]+")
_HALF = Decimal("0.5")
_NUMBERED = 3  # digits that make a name worth looking up: A-104, but not web-1
_MOST = 500_000


class Quantity(Struct, frozen=True):
    """A number as it stands in a text. `readings` are what it may mean, each with the worth of its last digit."""

    text: str
    readings: tuple[tuple[Decimal, Decimal], ...]
    unit: str
    start: int
    end: int
    measure: str = ""
    """The unit of measure or the currency in its one spelling, where it is one that is known."""


def _in_name(text: str, start: int) -> bool:
    """Whether a number that begins here is the end of a name: A-1042, web-1."""
    return start > 1 and text[start - 1] in "-_/" and text[start - 2].isalpha()


def number_words(text: str) -> Iterator[Quantity]:
    """Numbers from two to twenty that are written out."""
    for found in _LETTERS.finditer(text):
        value = NUMBER_WORDS.get(found[0].casefold())
        if value is not None and value > 1 and found[0].casefold() not in ("twice", "dozen"):
            measure = unit_behind(text, found.end())
            yield Quantity(found[0], ((value, Decimal(1)),), measure, *found.span(), measure)


def quantities(text: str) -> Iterator[Quantity]:
    """The numbers of a text: not those in dates, times, ordinals and names."""
    for found in _TOKEN.finditer(text):
        if found["number"]:
            unit = (found["unit"] or found["currency"] or "").casefold()
            start, end = found.span("number")
            if len(found["number"]) < _NUMBERED and _in_name(text, start):
                continue
            measure = spell_unit(found["currency"] or "") or unit_behind(text, end)
            yield Quantity(found["number"], tuple(_readings(found["number"], unit)), spelled(unit), start, end, measure)


def numbers(text: str) -> Iterator[Decimal]:
    """Every number that a text may be said to hold, also in words, in dates and in names."""
    for found in _TOKEN.finditer(text):
        if found["number"]:
            yield from (value for value, _ in _readings(found["number"], (found["unit"] or "").casefold()))
        elif (word := found["word"]) is not None:
            if (value := NUMBER_WORDS.get(word.casefold())) is not None:
                yield value
            elif not word.isalpha():
                yield from map(Decimal, re.findall(r"[0-9]{1,40}", word))
        else:
            yield from map(Decimal, re.findall(r"[0-9]{1,40}", found[0]))


def spelled(unit: str) -> str:
    """A unit in one spelling."""
    plain = unit.casefold()
    plain = _UNITS.get(plain, plain)
    return _UNITS.get(plain[:-1], plain[:-1]) if len(plain) > 3 and plain.endswith("s") else plain


def scales(unit: str) -> int:
    """By how many powers of ten a word behind a number multiplies it."""
    return _SCALES.get(unit.casefold(), 0)


def _readings(text: str, unit: str) -> Iterator[tuple[Decimal, Decimal]]:
    for plain in plain_numbers(text):
        value, step = Decimal(plain), Decimal(1).scaleb(-len(plain.partition(".")[2]))
        yield value, step
        if unit in _SCALES:
            yield value.scaleb(_SCALES[unit]), step.scaleb(_SCALES[unit])
        if spelled(unit) == "%":
            yield value.scaleb(-2), step.scaleb(-2)


def plain_numbers(text: str) -> list[str]:
    """A number without separators; of those that may stand for a point or for thousands, both."""
    bare = re.sub(r"['\u2019\u00a0\u202f]", "", text)
    if bare.count(",") == 1 and bare.count(".") >= 1 and bare.index(".") < bare.index(","):
        return [bare.replace(".", "").replace(",", ".")]
    if re.fullmatch(r"\d{1,3}[.,]\d{3}", bare):
        return [bare.replace(",", "").replace(".", ""), bare.replace(",", ".")]
    if re.fullmatch(r"\d+,\d+", bare):
        return [bare.replace(",", ".")]
    return [bare.replace(",", "")]


class Numbers:
    """Numbers to look others up in; quick however many there are."""

    def __init__(self, found: Iterable[Decimal]) -> None:
        kept: set[Decimal] = set()
        for one in found:
            kept.add(abs(one))
            if len(kept) >= _MOST:
                break
        self.full = len(kept) >= _MOST
        self._sorted = sorted(kept)

    @property
    def all(self) -> list[Decimal]:
        """Each once, the smallest first."""
        return self._sorted

    def near(self, one: Quantity) -> list[Decimal]:
        """Those that are this number, or what it was rounded from."""
        found: list[Decimal] = []
        for value, step in one.readings:
            at = bisect_left(self._sorted, value - step * _HALF)
            while at < len(self._sorted) and self._sorted[at] <= value + step * _HALF and len(found) < 100:
                found.append(self._sorted[at])
                at += 1
        return found

    def hold(self, one: Quantity, *, rough: bool = False) -> bool:
        """Whether one of them is this number, or is what it was rounded from."""
        return any(self._near(value, step * _HALF) for value, step in one.readings) or any(
            self._near(value, step * _HALF) for value, step in _rounded(one, rough=rough)
        )

    def _near(self, value: Decimal, within: Decimal) -> bool:
        at = bisect_left(self._sorted, value - within)
        return at < len(self._sorted) and self._sorted[at] <= value + within


def _rounded(one: Quantity, *, rough: bool) -> Iterator[tuple[Decimal, Decimal]]:
    """A number that ends in noughts may stand for any that is rounded to it: 1,200, and about 40."""
    for value, step in one.readings:
        if step < 1 or value == 0:
            continue
        digits = str(int(value))
        noughts = len(digits) - len(digits.rstrip("0"))
        if noughts and (rough or (noughts > 1 and len(digits) - noughts > 1)):
            yield value, Decimal(10) ** noughts
        elif rough and value >= 10:  # "about 45" may be 44 or 46
            yield value, value * Decimal("0.06")


def same(one: Quantity, other: Quantity) -> bool:
    """Whether two numbers may be one and the same, one of them rounded."""
    return Numbers(value for value, _ in one.readings).hold(other) or (
        Numbers(value for value, _ in other.readings).hold(one)
    )
