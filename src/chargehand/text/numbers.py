"""Numbers in prose: where they stand, how they can be read and how exact they are."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from msgspec import Struct

from chargehand.text.dates import DIGIT_RUN, read_date
from chargehand.text.units import spell_unit, unit_behind
from chargehand.text.words import LETTERS

Reading = tuple[Decimal, Decimal]
"""A value, and what its last digit is worth."""

_PLAIN_NUMBER = re.compile(
    r"\d{1,3}(?:\.\d{3})+,\d{1,30}|\d{1,3}(?:[,'\u2019\u00a0\u202f]\d{3})+(?:\.\d{1,30})?|\d{1,3}(?:\.\d{3}){2,}"
    r"|\d{1,40}(?:[.,]\d{1,40})?"
)
_SEPARATOR = re.compile(r"([-,'\u2019\u00a0\u202f])")
_APOSTROPHES_AND_SPACES = re.compile(r"['\u2019\u00a0\u202f]")
_POINT_OR_THOUSANDS = re.compile(r"\d{1,3}[.,]\d{3}")
_DECIMAL_COMMA = re.compile(r"\d{1,60},\d{1,60}")
_DIGITS = re.compile(r"[0-9]+")
_LETTERS_THEN_DIGIT = re.compile(r"[^\W\d_]{1,20}\d")
_WORD_BEHIND = re.compile(r"\s?(%|[^\W\d_]{1,20}|[$€£¥])")
_SCALE_BEHIND = re.compile(r"\s?([^\W\d_]{1,9})(?!\w)")
_SCALE_LETTERS = frozenset("kKtTmMbB")
_CURRENCY_SIGNS = frozenset("$€£¥")
_CURRENCY_CODES = frozenset(("EUR", "USD", "GBP", "CHF", "JPY"))
_ORDINALS = ("st", "nd", "rd", "th")
_SCALES = {
    "k": 3,
    "m": 6,
    "mn": 6,
    "mio": 6,
    "bn": 9,
    "thousand": 3,
    "million": 6,
    "millions": 6,
    "billion": 9,
    "billions": 9,
}
_LONGEST = 60  # digits and signs of a run that are read
_LONGEST_NUMBER_WORD = 9
_ONE = Decimal(1)

_UNITS_AND_TEENS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_GERMAN = "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
NUMBER_WORDS: dict[str, int] = {
    **{word: value for value, word in enumerate(_UNITS_AND_TEENS.split())},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), 2)},
    **{word: value for value, word in enumerate(_GERMAN.split(), 2)},
    "none": 0,
    "no": 0,
    "once": 1,
    "twice": 2,
    "dozen": 12,
}
"""Numbers that are written as one word."""

_NO_COUNTS = frozenset(("none", "no", "once", "one", "zero", "twice", "dozen"))


class Number(Struct, frozen=True, gc=False):
    """A number where it stands in a text, with the ways to read it: `1,500` is 1500, or 1.5 with a decimal comma.

    `kind` says what it is a part of: a `name` (A-1042, 3rd), a `date` or a `time` (10:30, also fractions and
    versions); a `number` or a `word` (seven) stands for itself.
    """

    text: str
    readings: tuple[Reading, ...]
    start: int
    end: int
    kind: Literal["number", "word", "name", "date", "time"] = "number"
    currency: str = ""
    """The sign or the code of a currency before it."""
    dates: tuple[tuple[int, int, int], ...] = ()
    """Of a date, what it can be: year, month and day, 0 for what is not said."""

    @property
    def values(self) -> tuple[Decimal, ...]:
        return tuple([value for value, _ in self.readings])


class Quantity(Struct, frozen=True):
    """A number that counts or measures something."""

    text: str
    readings: tuple[Reading, ...]
    unit: str
    """The word or sign behind it, else the currency before it, in one spelling."""
    start: int
    end: int
    measure: str = ""
    """The unit of measure or the currency, where it is a known one."""


def find_numbers(text: str) -> Iterator[Number]:
    """Every number of a text: those in digits in their order, then those in words."""
    position = 0
    for run in DIGIT_RUN.finditer(text):
        start, end = run.span()
        if start < position:
            continue
        date = read_date(text, start, end)
        if date is not None:
            position = date.end
            parts = tuple([(Decimal(part), _ONE) for part in date.readings[0] if part])
            yield Number(
                text=run[0], readings=parts, start=start, end=date.end, kind="date", dates=tuple(date.readings)
            )
        elif _is_in_name(text, start, end):
            is_plain = _PLAIN_NUMBER.fullmatch(run[0]) is not None
            readings = _read_number(text, run[0], end) if is_plain else _read_parts(run[0])
            yield Number(text=run[0], readings=readings, start=start, end=end, kind="name")
        else:
            yield from _read_run(text, start, end)
    yield from find_number_words(text)


def find_number_words(text: str) -> Iterator[Number]:
    """The numbers of a text that are written out; `twenty-three` is one."""
    tens: Number | None = None
    for word in LETTERS.finditer(text):
        is_short = word.end() - word.start() <= _LONGEST_NUMBER_WORD
        value = NUMBER_WORDS.get(word[0].casefold()) if is_short else None
        if tens is not None:
            is_compound = value is not None and 0 < value < 10 and text[tens.end : word.start()] in ("-", " ")
            if value is not None and is_compound:
                whole = tens.readings[0][0] + value
                yield Number(
                    text=text[tens.start : word.end()],
                    readings=((whole, _ONE),),
                    start=tens.start,
                    end=word.end(),
                    kind="word",
                )
                tens = None
                continue
            yield tens
            tens = None
        if value is not None:
            number = Number(
                text=word[0], readings=((Decimal(value), _ONE),), start=word.start(), end=word.end(), kind="word"
            )
            if value >= 20:
                tens = number
            else:
                yield number
    if tens is not None:
        yield tens


def find_quantities(text: str) -> Iterator[Quantity]:
    """The numbers in digits that count or measure: not those of dates, times, ordinals and short names (web-1)."""
    for number in find_numbers(text):
        if number.kind == "word":
            return
        if number.kind == "number" or (number.kind == "name" and _is_numbered_name(text, number)):
            yield _read_quantity(text, number)


def find_counts(text: str) -> Iterator[Quantity]:
    """The numbers from two upwards that are written out."""
    for number in find_number_words(text):
        if number.text.casefold() not in _NO_COUNTS:
            measure = unit_behind(text, number.end)
            yield Quantity(
                text=number.text,
                readings=number.readings,
                unit=measure,
                start=number.start,
                end=number.end,
                measure=measure,
            )


def normalize_unit(unit: str) -> str:
    """A word that stands behind a number in one spelling: `Euros` is `eur`, `orders` is `order`."""
    plain = unit.casefold()
    if len(plain) > 3 and plain.endswith("s"):
        plain = plain[:-1]
    return {"percent": "%", "$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "euro": "eur", "dollar": "usd"}.get(
        plain, plain
    )


def plain_numbers(text: str) -> list[str]:
    """The ways to read the digits of a number as a decimal, without separators of thousands."""
    bare = _APOSTROPHES_AND_SPACES.sub("", text)
    if bare.count(",") == 1 and bare.count(".") >= 1 and bare.index(".") < bare.index(","):
        return [bare.replace(".", "").replace(",", ".")]
    if _POINT_OR_THOUSANDS.fullmatch(bare):
        return [bare.replace(",", "").replace(".", ""), bare.replace(",", ".")]
    if _DECIMAL_COMMA.fullmatch(bare):
        return [bare.replace(",", ".")]
    if bare.count(".") > 1:
        return [bare.replace(".", "")]
    return [bare.replace(",", "")]


def _is_in_name(text: str, start: int, end: int) -> bool:
    """Whether digits are a part of a name: B12, A-1042, 3rd, 4x4."""
    before = text[start - 1] if start else " "
    if before.isalpha() or before == "_" or (before in "-/" and start > 1 and text[start - 2].isalpha()):
        return True
    behind = text[end : end + 2]
    if not behind[:1].isalpha():
        return False
    return behind in _ORDINALS or _LETTERS_THEN_DIGIT.match(text, end) is not None


def _is_numbered_name(text: str, number: Number) -> bool:
    """Whether a name has a number long enough to be looked up: A-104, but neither web-1 nor B12."""
    is_behind_sign = number.start > 1 and text[number.start - 1] in "-/"
    is_plain = _PLAIN_NUMBER.fullmatch(number.text) is not None
    return is_behind_sign and is_plain and len(number.text) >= 3 and text[number.end : number.end + 2] not in _ORDINALS


def _read_run(text: str, start: int, end: int) -> Iterator[Number]:
    run = text[start:end]
    if ":" in run or "/" in run:
        yield Number(text=run, readings=_read_parts(run), start=start, end=end, kind="time")
        return
    if run.isdigit() or ("-" not in run and _PLAIN_NUMBER.fullmatch(run)):
        yield Number(run, _read_number(text, run, end), start, end, currency=_currency_before(text, start))
        return
    position = start
    for part in _SEPARATOR.split(run[:_LONGEST]):
        part_end = position + len(part)
        if part[:1].isdigit():
            if part.count(".") > 1:
                yield Number(text=part, readings=_read_parts(part), start=position, end=part_end, kind="time")
            else:
                currency = _currency_before(text, position)
                yield Number(part, _read_number(text, part, part_end), position, part_end, currency=currency)
        position = part_end


def _read_number(text: str, run: str, end: int) -> tuple[Reading, ...]:
    behind = text[end : end + 2].strip()[:1]
    scale = _SCALE_BEHIND.match(text, end) if behind in _SCALE_LETTERS else None
    power = _SCALES.get(scale[1].casefold(), 0) if scale is not None else 0
    if run.isdigit() and not power:
        return ((Decimal(run[:_LONGEST]), _ONE),)
    readings: list[Reading] = []
    for plain in plain_numbers(run[:_LONGEST]):
        value = Decimal(plain)
        step = _ONE.scaleb(-len(plain.partition(".")[2]))
        readings.append((value, step))
        if power:
            readings.append((value.scaleb(power), step.scaleb(power)))
    return tuple(readings)


def _read_parts(run: str) -> tuple[Reading, ...]:
    return tuple([(Decimal(digits), _ONE) for digits in _DIGITS.findall(run[:_LONGEST])])


def _currency_before(text: str, start: int) -> str:
    before = text[max(0, start - 4) : start].strip()
    if before[-1:] in _CURRENCY_SIGNS:
        return before[-1:]
    return before[-3:] if before[-3:] in _CURRENCY_CODES else ""


def _read_quantity(text: str, number: Number) -> Quantity:
    behind = _WORD_BEHIND.match(text, number.end)
    unit = normalize_unit(behind[1] if behind is not None else number.currency)
    readings = number.readings if number.kind == "number" else _read_number(text, number.text, number.end)
    if unit == "%":
        readings += tuple([(value.scaleb(-2), step.scaleb(-2)) for value, step in readings])
    measure = spell_unit(number.currency) or unit_behind(text, number.end)
    return Quantity(text=number.text, readings=readings, unit=unit, start=number.start, end=number.end, measure=measure)
