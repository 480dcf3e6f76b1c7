"""The numbers that an answer states, signs and all, and whether a wanted one is among them.

`text.numbers` reads prose; here stands what answers to be graded also hold: exponents, more ways to write
thousands, numbers in words, signs.
"""

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from msgspec import Struct

from chargehand.evals.cases import Number
from chargehand.text.numbers import find_number_words, find_quantities

_ASIDE = re.compile(r"`[^`\n]*\s[^`\n]*`|\[[^\[\]\s]{1,64}\]")
_EXACT, _ALIKE = Decimal("1e-9"), Decimal("1e-12")  # two numbers that differ by less, or by such a share, are the same
_MINUS, _PLUS = "-\u2212\u2012\u2013", "+"
_POWER = re.compile(r"(?<![\w.,])(\d{1,40}(?:\.\d{1,40})?)(?:[eE]|\s?[x\u00d7]\s?10\^)([+-]?\d{1,3})(?![\w.]*\w)")
_BARE = re.compile(r"(?<![\w.,])\.(?=\d)")  # .5
_DOTTED = re.compile(r"(?<![\w.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.]*\d)")  # 1.234.567; a version has other groups
_SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u202f\u2009]\d{3})+(?:[.,]\d{1,30})?(?![.,]?\w)")
_HUGE = 60  # the largest exponent that is written out


class Figure(Struct, frozen=True):
    """A number without its sign, and the sign where one stands before it: -1, 1, or 0 for none."""

    value: Decimal
    sign: int = 0


def figures(text: str) -> tuple[Figure, ...]:
    """The numbers an answer gives, also in words: not those of dates, names, cited tasks and quoted commands."""
    bare = stated(text)
    spaced = [Figure(value, _sign(bare, found.start())) for found in _SPACED.finditer(bare) for value in _spaced(found)]
    plain = _written_out(bare)
    read = [Figure(value, _sign(plain, one.start)) for one in find_quantities(plain) for value, _ in one.readings]
    words = [Figure(number.values[0]) for number in find_number_words(plain)]
    return (*read, *spaced, *words)


def told(text: str) -> tuple[float, ...]:
    """The numbers in digits as they are first read, with their signs, each once; bare digits are left out."""
    plain = _written_out(stated(text))
    found = [one for one in find_quantities(plain) if len(one.text) > 1]
    return tuple(dict.fromkeys(float(one.readings[0][0]) * (_sign(plain, one.start) or 1) for one in found))


def stated(text: str) -> str:
    """A text without the commands it quotes and the tasks it cites."""
    return _ASIDE.sub(" ", text)


def holds(found: tuple[Figure, ...], wanted: float | Number) -> bool:
    """Whether one of these is the wanted number, within what it allows.

    Signs are words as often as signs (a loss of 3, minus 3, -3), so one without a sign may be either; one that has
    the other sign is another number.
    """
    goal = wanted if isinstance(wanted, Number) else Number(wanted)
    exact = Decimal(str(goal.value))
    near = max(_EXACT, abs(exact) * _ALIKE)
    room = max(Decimal(str(goal.within)), abs(exact) * Decimal(str(goal.percent)) / 100, near)
    against = 1 if exact < 0 else -1 if exact > 0 else 2
    for one in found:
        if one.sign == against and abs(exact) > room:
            continue
        if abs(abs(exact) - one.value) <= room:
            return True
    return False


def _written_out(text: str) -> str:
    """The same with numbers as they are usually written."""

    def power(found: re.Match[str]) -> str:
        exponent = int(found[2])
        return f"{Decimal(found[1]).scaleb(exponent):f}" if abs(exponent) <= _HUGE else found[0]

    plain = _BARE.sub("0.", _POWER.sub(power, text))
    return _DOTTED.sub(lambda found: found[0].replace(".", ""), plain)


def _spaced(found: re.Match[str]) -> Iterator[Decimal]:
    """1 234,50: thousands with spaces between them, one of several readings."""
    whole = re.sub(r"\s", "", found[0]).replace(",", ".")
    try:
        yield Decimal(whole)
    except InvalidOperation:
        return


def _sign(text: str, start: int) -> int:
    """The sign right before a number, or before the currency it begins with. In 5-10 there is none."""
    before = text[max(0, start - 6) : start]
    before = re.sub(r"(?:[$\u20ac\u00a3\u00a5]|\b[A-Z]{3})\s?\Z", "", before)
    if not before or before[-1] not in _MINUS + _PLUS:
        return 0
    if len(before) > 1 and (before[-2].isalnum() or before[-2] in ").%$\u20ac\u00a3\u00a5"):
        return 0
    return 1 if before[-1] in _PLUS else -1
