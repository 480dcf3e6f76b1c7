"""Which number an argument means: one the task says beside its name, the next one it says, or one that was given."""

import re
from collections.abc import Sequence
from decimal import Decimal

from chargehand.models.offline.choosing import Parameter
from chargehand.models.offline.material import Material, Series, number, series
from chargehand.models.offline.task_text import says
from chargehand.models.offline.words import numbers, tokens

_LIMITS = frozenset({"limit", "top", "k", "n", "max", "results", "most", "count"})
UNITS = tuple(
    frozenset(line.split())
    for line in (
        "percent %", "kg kilogram kilograms kilo kilos", "gram grams g", "lb pound pounds", "ton tons tonne tonnes",
        "cm centimetre centimetres centimeter centimeters", "m metre metres meter meters", "foot feet", "inch inches",
        "km kilometre kilometres kilometer kilometers", "mile miles", "second seconds", "minute minutes", "hour hours",
        "day days", "week weeks", "month months", "year years", "mbit megabit megabits", "gigabit gigabits",
        "mb megabyte megabytes", "gb gigabyte gigabytes", "tb terabyte terabytes",
    )
)  # fmt: skip
_ROW = re.compile(r"(?<![\d.,])\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*,? and \d+(?:\.\d+)?(?![\d.,]*\d)")
_VALUE = r"(?P<value>-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?)"
_NAMED = re.compile(rf"(?P<name>[^:]{{3,80}}): {_VALUE}(?: (?P<unit>[^\W\d]+))?\.?\Z")
_MONEY = re.compile(rf"(?<![\w.]){_VALUE} (?P<unit>euros?|dollars?|pounds|francs|EUR|USD|GBP|CHF)\b")


_OF_ANSWER = re.compile(
    r"\b\w+\s+(?:figures|numbers|charts|examples|sentences|facts|bullets|lines|options|ideas|tables)\b", re.IGNORECASE
)  # two figures are how much is to be said, and no amount


def amount(parameter: Parameter, text: str, have: Material, taken: set[str], *, alone: bool = False) -> list[object]:
    """A number for an argument, as the kind of number it wants; none where nothing says one.

    `alone`: there is one number, and no other argument that could mean it.
    """
    words = tokens(parameter.name)
    foreign = _foreign(parameter, text)
    beside = _beside(words, text) or _in_unit(parameter, text)
    if beside in foreign:
        return []
    if not beside and set(words) & _LIMITS:
        found = re.search(r"\b(?:top|first|best|last|up to)\s+(\w+)", text, re.IGNORECASE)
        beside = (numbers(found[1]) or [""])[0] if found else ""
        if beside or not parameter.required:
            return _as(parameter, beside)
    if beside:
        return _as(parameter, beside)
    if not parameter.required and not alone:
        return []
    said = [one for one in numbers(_OF_ANSWER.sub("", text)) if one not in taken and one not in foreign]
    return _as(parameter, said[0] if said else given(text, have))


def _beside(words: list[str], text: str) -> str:
    """The number next to the name of the argument: "quantity 5", "5 nights", "limit of 3"."""
    for word in words:
        name = rf"{re.escape(word.removesuffix('s'))}s?"
        link = r"(?:\s+(?:of|is|to|=|at|by)|\s*[:=])?\s+"
        after = re.search(rf"\b{name}\b{link}([$\u20ac\u00a3]?-?[\d.,]*\d\w*)", text, re.IGNORECASE)
        before = re.search(rf"(-?[\d.,]*\d|\b\w+)\s+{name}\b", text, re.IGNORECASE)
        for found in (before, after):
            if found and (said := numbers(found[1])):
                return said[0]
    return ""


def each(parameter: Parameter, text: str) -> list[object]:
    """Several numbers said in a row, each of which is asked for: "with 100, 200 and 400 items"."""
    found = _ROW.findall(text)
    return [value for one in numbers(found[0]) for value in _as(parameter, one)] if len(found) == 1 else []


def sure(parameter: Parameter, text: str) -> bool:
    """Whether the task says which number an argument means, so that it is not taken for another."""
    if parameter.type not in {"integer", "number"}:
        return False
    return bool(_beside(tokens(parameter.name), text) or _in_unit(parameter, text))


def _in_unit(parameter: Parameter, text: str) -> str:
    """The only number in the unit that the argument is given in: "3.5 percent", "80 kg"."""
    own = set(tokens(f"{parameter.name} {parameter.description}"))
    for units in UNITS:
        if own & units:
            said = re.findall(
                rf"(-?\d[\d.,]*)\s*(?:{'|'.join(sorted(map(re.escape, units)))})(?!\w)", text, re.IGNORECASE
            )
            return (numbers(said[0].rstrip(".,")) or [""])[0] if len(said) == 1 else ""
    return ""


def _foreign(parameter: Parameter, text: str) -> set[str]:
    """Numbers in another unit than the argument is given in: 24 months are not 24 years."""
    own = set(tokens(f"{parameter.name} {parameter.description}"))
    mine = frozenset[str]().union(*(units for units in UNITS if own & units))
    others = {word for units in UNITS for word in units} - mine if mine else set[str]()
    said = re.findall(r"(\d[\d.,]*)\s*([a-z%]+)(?!\w)", text, re.IGNORECASE)
    return {one for value, unit in said if unit.lower() in others for one in numbers(value.rstrip(".,"))}


def given(text: str, have: Material) -> str:
    """The number the task points to in what was given: a single one, or the total of a column."""
    for table in have.tables:
        if found := series(table, text):
            return of_series(found, text)
    values = [one.value for one in have.figures if number(one.value)]
    if values:
        return number(values[-1])
    for one in have.objects:
        for value in one.values():
            if said := number(value):
                return said
    return ""


def of_series(found: Series, text: str) -> str:
    """One number out of a column: of the row the task names, else the largest or the smallest, else all together."""
    named = [value for label, value in zip(found.labels, found.values, strict=True) if label.lower() in text.lower()]
    if len(named) == 1 and not says(text, "total"):
        return named[0]
    values = [Decimal(value) for value in found.values]
    together = says(text, "total", "sum") or len(values) == 1
    if not together and says(text, "highest", "largest", "biggest", "top", "most"):
        return str(max(values))
    if not together and says(text, "lowest", "smallest", "least", "fewest"):
        return str(min(values))
    return str(sum(values, Decimal(0)))


def _as(parameter: Parameter, said: str) -> list[object]:
    if not said:
        return []
    value = Decimal(said)
    if parameter.type == "integer":
        return [int(value)] if value == value.to_integral_value() else []
    return [float(value)]


def said_values(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The numbers that others said, with their names; none unless each of them said exactly one that is meant."""
    found = [_said(one) for one in texts]
    return [(label, value) for label, value, _ in found if value] if found and all(one[1] for one in found) else []


def said_unit(texts: Sequence[str]) -> str:
    """The unit that all of them named, if it is the same."""
    units = {_said(one)[2] for one in texts}
    return units.pop() if len(units) == 1 else ""


def _said(text: str) -> tuple[str, str, str]:
    """Name, number and unit out of "Ropes at the harbour: 60." or of a sentence with one amount of money."""
    plain = " ".join(text.split())
    if named := _NAMED.match(plain):
        return named["name"], number(named["value"].replace(",", "")), named["unit"] or ""
    sums = list(_MONEY.finditer(plain))
    if len(sums) != 1:
        return "", "", ""
    return plain[: sums[0].start()].strip(), number(sums[0]["value"].replace(",", "")), sums[0]["unit"]
