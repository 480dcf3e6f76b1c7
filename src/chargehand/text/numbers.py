"""Numbers in prose: where they stand, how they can be read and how exact they are."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from chargehand.text.dates import find_dates

Reading = tuple[Decimal, Decimal]
"""A value, and what its last digit is worth."""

_DIGIT_RUN = re.compile(r"\d+(?:[.,:'/\u2019\u00a0\u202f-]\d+)*")
_PLAIN_NUMBER = re.compile(
    r"\d{1,3}(?:\.\d{3})+,\d{1,30}|\d{1,3}(?:[,'\u2019\u00a0\u202f]\d{3})+(?:\.\d{1,30})?|\d{1,3}(?:\.\d{3}){2,}"
    r"|\d{1,40}(?:[.,]\d{1,40})?"
)
_PART = re.compile(r"[\d.]+")
_THOUSANDS = re.compile(r"['\u2019\u00a0\u202f]")
_POINT_OR_THOUSANDS = re.compile(r"\d{1,3}[.,]\d{3}")
_NAME_BEFORE = re.compile(r"[^\W\d_][-/]?$|_$")
_NAME_BEHIND = re.compile(r"(?:st|nd|rd|th)\b|[^\W\d_]{1,20}\d")
_UNIT = re.compile(r"\s?(%|°\s?[CF]\b|km/h|[^\W\d_]{1,20}|[$€£¥])")
_CURRENCY_BEFORE = re.compile(r"([$€£¥]|EUR|USD|GBP|CHF|JPY)\s?$")
_UNIT_SPELLINGS = {
    "percent": "%",
    "$": "usd",
    "€": "eur",
    "£": "gbp",
    "¥": "jpy",
    "euro": "eur",
    "dollar": "usd",
    "franc": "chf",
}
_SCALES = {"k": 3, "thousand": 3, "m": 6, "mn": 6, "mio": 6, "million": 6, "bn": 9, "billion": 9}
_LONGEST = 60  # digits and signs of a run that are read
_ONE = Decimal(1)

_UNITS = "one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_GERMAN = "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
NUMBER_WORDS: dict[str, int] = {
    **{word: value for value, word in enumerate(f"zero {_UNITS} {_TEENS}".split())},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), 2)},
    **{word: value for value, word in enumerate(_GERMAN.split(), 2)},
    "none": 0,
    "no": 0,
    "once": 1,
    "twice": 2,
    "dozen": 12,
}
"""Numbers that are written as one word."""

_NEGATIVE = re.compile(r"(?<![\w)])(?<![\d)]\s)[-\u2212]\d")
_COUNTING = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)%?")
_NUMBER_WORD = re.compile(
    rf"\b(?:(?:{_TENS.replace(' ', '|')})[- ](?:{_UNITS.replace(' ', '|')})|{'|'.join(NUMBER_WORDS)})\b", re.IGNORECASE
)


class Number(Struct, frozen=True, gc=False):
    """A number where it stands in a text, with the ways to read it: `1,500` is 1500, or 1.5 with a decimal comma."""

    text: str
    readings: tuple[Reading, ...]
    start: int
    end: int
    kind: Literal["number", "word", "name", "date", "time"] = "number"
    """What it is part of: a name (A-1042, 3rd), a date, or a time (10:30, also fractions and versions).

    A number or a word (seven) stands for itself.
    """
    unit: str = ""
    """The currency before it, else the word or sign behind it, in one spelling."""
    dates: tuple[tuple[int, int, int], ...] = ()
    """Of a date, what it can be: year, month and day, 0 for what is not said."""

    @property
    def values(self) -> tuple[Decimal, ...]:
        return tuple([value for value, _ in self.readings])


def find_numbers(text: str) -> Iterator[Number]:
    """Every number of a text: those of dates, then those in digits, then those in words, each kind in its order."""
    dates = list(find_dates(text))
    for date in dates:
        parts = [(Decimal(part), _ONE) for part in date.readings[0] if part]
        yield Number(date.text, tuple(parts), date.start, date.end, kind="date", dates=tuple(date.readings))
    plain = blank_spans(text, [(date.start, date.end) for date in dates])
    for run in _DIGIT_RUN.finditer(plain):
        start, end = run.span()
        if _NAME_BEFORE.search(plain[max(0, start - 2) : start]) or _NAME_BEHIND.match(plain, end):
            yield _read_number(plain, start, end, kind="name")
        elif ":" in run[0] or "/" in run[0]:
            yield _read_number(plain, start, end, kind="time")
        elif _PLAIN_NUMBER.fullmatch(run[0]):
            yield _read_number(plain, start, end)
        else:
            for part in _PART.finditer(plain, start, min(end, start + _LONGEST)):
                kind = "time" if part[0].count(".") > 1 else "number"
                yield _read_number(plain, part.start(), part.end(), kind=kind)
    yield from find_number_words(text)


def find_number_words(text: str) -> Iterator[Number]:
    """The numbers of a text that are written out; `twenty-three` is one."""
    for match in _NUMBER_WORD.finditer(text):
        words = re.split("[- ]", match[0].casefold())
        value = Decimal(sum(NUMBER_WORDS[word] for word in words))
        yield Number(match[0], ((value, _ONE),), match.start(), match.end(), kind="word")


def find_quantities(text: str) -> Iterator[Number]:
    """The numbers in digits that count or measure, and those of long names: A-104, but neither web-1 nor B12."""
    for number in find_numbers(text):
        is_long_name = number.kind == "name" and len(number.text) >= 3 and text[number.start - 1] in "-/"
        if number.kind == "number" or (is_long_name and _PLAIN_NUMBER.fullmatch(number.text)):
            yield number


def has_negative_number(text: str) -> bool:
    """Whether a number with a minus sign before it occurs."""
    return _NEGATIVE.search(text) is not None


def number_value(word: str) -> float | None:
    """The number that a word stands for: digits with separators of thousands, or a small number in letters."""
    low = word.lower()
    if low in NUMBER_WORDS and low not in {"no", "none", "once", "twice"}:
        return float(NUMBER_WORDS[low])
    return float(word.rstrip("%").replace(",", "")) if _COUNTING.fullmatch(word) else None


def blank_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with spaces in place of what stands from each start to its end; the spans are in order."""
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        pieces += (text[position:start], " " * (end - start))
        position = end
    return "".join([*pieces, text[position:]])


def _read_number(text: str, start: int, end: int, *, kind: Literal["number", "name", "time"] = "number") -> Number:
    run = text[start : min(end, start + _LONGEST)]
    if kind == "time" or not _PLAIN_NUMBER.fullmatch(run):
        parts = [(Decimal(digits), _ONE) for digits in re.findall("[0-9]+", run)]
        return Number(text[start:end], tuple(parts), start, end, kind=kind)
    behind = _UNIT.match(text, end)
    before = _CURRENCY_BEFORE.search(text, max(0, start - 4), start)
    word = "" if behind is None else _spell_unit(behind[1])
    unit = word if before is None else _spell_unit(before[1])
    power = -2 if word == "%" else _SCALES.get(word, 0)
    readings: list[Reading] = []
    for plain in _plain_spellings(run):
        value = Decimal(plain)
        step = _ONE.scaleb(-len(plain.partition(".")[2]))
        readings.append((value, step))
        if power:
            readings.append((value.scaleb(power), step.scaleb(power)))
    return Number(text[start:end], tuple(readings), start, end, kind=kind, unit=unit)


def _spell_unit(word: str) -> str:
    """A word or sign beside a number in one spelling: `Euros` is `eur`, `orders` is `order`."""
    plain = word.casefold()
    if len(plain) > 3:
        plain = plain.removesuffix("s")
    return _UNIT_SPELLINGS.get(plain, plain)


def _plain_spellings(text: str) -> list[str]:
    """The ways to read the digits of a number as a decimal, without separators of thousands."""
    bare = _THOUSANDS.sub("", text)
    if _POINT_OR_THOUSANDS.fullmatch(bare):
        return [bare.replace(",", "").replace(".", ""), bare.replace(",", ".")]
    if bare.rfind(",") > bare.rfind(".") and bare.count(",") == 1:  # 1.200,50 and 3,5
        return [bare.replace(".", "").replace(",", ".")]
    if bare.count(".") > 1:
        return [bare.replace(".", "")]
    return [bare.replace(",", "")]
