"""Numbers in prose: how they can be read, how exact they are, and whether a collection of numbers bears them out.

What a number is about is not known here.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from decimal import Decimal

from msgspec import Struct

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_TOKEN = re.compile(
    rf"""(?P<skip>
        \b\d{{4}}-\d\d(?:-\d\d)?(?:[T ]\d\d:\d\d(?::\d\d)?)?\b        # days and moments
        | \b\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}}\b)?
        | \b{_MONTH}\s\d{{4}}\b
        | \b{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?\b(?![\d.,]*\d)
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
_WORDS = {word: Decimal(value) for value, word in enumerate(_NAMES)} | {
    word: Decimal(value) for word, value in (("none", 0), ("no", 0), ("once", 1), ("twice", 2), ("dozen", 12))
}
_UNITS = {"%": "%", "percent": "%", "$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "euro": "eur", "dollar": "usd"}
_HALF = Decimal("0.5")
_MOST = 50_000


class Quantity(Struct, frozen=True):
    """A number as it stands in a text. `readings` are what it may mean, each with the worth of its last digit."""

    text: str
    readings: tuple[tuple[Decimal, Decimal], ...]
    unit: str
    start: int
    end: int


def quantities(text: str) -> Iterator[Quantity]:
    """The numbers of a text: not those in dates, times, ordinals and names."""
    for found in _TOKEN.finditer(text):
        if found["number"]:
            unit = (found["unit"] or found["currency"] or "").casefold()
            start, end = found.span("number")
            yield Quantity(found["number"], tuple(_readings(found["number"], unit)), spelled(unit), start, end)


def numbers(text: str) -> Iterator[Decimal]:
    """Every number that a text may be said to hold, also in words, in dates and in names."""
    for found in _TOKEN.finditer(text):
        if found["number"]:
            yield from (value for value, _ in _readings(found["number"], (found["unit"] or "").casefold()))
        elif (word := found["word"]) is not None:
            if (value := _WORDS.get(word.casefold())) is not None:
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


def _readings(text: str, unit: str) -> Iterator[tuple[Decimal, Decimal]]:
    for plain in _plain(text):
        value, step = Decimal(plain), Decimal(1).scaleb(-len(plain.partition(".")[2]))
        yield value, step
        if unit in _SCALES:
            yield value.scaleb(_SCALES[unit]), step.scaleb(_SCALES[unit])
        if spelled(unit) == "%":
            yield value.scaleb(-2), step.scaleb(-2)


def _plain(text: str) -> list[str]:
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
