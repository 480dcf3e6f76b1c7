"""Expressions for a calculator, built from the words of a task and the numbers at hand. It computes nothing itself.

Which numbers are meant follows from the words: what was converted, what changed, what is part of what.
"""

import re
from decimal import Decimal

from msgspec import Struct

from chargehand.models.exhibits import Figure
from chargehand.models.offline.amounts import of_series, said_unit, said_values
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.material import Material, Series, number, series
from chargehand.models.offline.task_text import says
from chargehand.models.offline.words import numbers, stem

_WORDS = (
    (r"\bmultiplied by\b|\btimes\b|\bmultiply by\b|\u00d7", "*"), (r"\bdivided by\b|\bover\b|\u00f7", "/"),
    (r"\bplus\b", "+"), (r"\bminus\b|\u2212", "-"), (r"\bto the power of\b", "**"), (r"\bsquared\b", "** 2"),
    (r"(?:\bpercent of\b|\bper cent of\b|% of\b)(?=\s*[(\d])", "/ 100 *"), (r"(?<=\d),(?=\d{3}\b)", ""),
)  # fmt: skip
_ARITHMETIC = re.compile(r"(?:sqrt\s*)?[(\s]*-?\d[\d.]*(?:[\s()]*(?:\*\*|[-+*/^])[\s(]*-?\d[\d.]*[\s)]*)+")
_ISO = re.compile(r"\d{4}-\d\d(?:-\d\d)?")
_PART = re.compile(r"([\d.,]+)\s*(?:%|percent|per cent)")
_OF = re.compile(r"\d[\d.,]*\s*(?:%|percent|per cent)\s+of\b", re.IGNORECASE)
_ROOT = re.compile(r"square root of\s+([\d.,]+)", re.IGNORECASE)
_EACH = re.compile(
    r"([\d.,]*\d)\s+(\w+)\s+at\s+[$\u20ac\u00a3]?([\d.,]*\d)\s*\w*\s+(?:a|an|per|each)\s+(\w+)", re.IGNORECASE
)
_LONGEST = 450
_CHANGE = ("change", "changed", "grow", "growth", "grew", "increase", "increased", "decrease", "develop", "rise",
           "rose", "fall", "fell", "drop", "dropped")  # fmt: skip
_EXTRA = re.compile(
    r"\b(?:and|with|plus|including)\s+(?:the\s+|a\s+|its\s+|their\s+)?(?:grand\s+)?total\b|\b(?:altogether|in total)\b",
    re.IGNORECASE,
)


class Sum(Struct, frozen=True):
    """One expression and what its value is called; `unit` where it has one, `of` what it was made from."""

    expression: str
    label: str
    unit: str = ""
    of: str = ""


def sums(text: str, have: Material, *, rounds: bool, queried: bool = False) -> list[Sum]:
    """What to compute; nothing where the words ask for nothing, or its numbers are not there.

    `queried`: the numbers come from a query for this very task, so what it asked for is mostly done.
    """
    found = _converted(text, have, rounds=rounds)
    if not found:
        found = _changed(text, have, rounds=rounds)
    if not found and queried and _OF.search(text):
        return _percent(text, have)
    if not found and queried:
        return [_total(one) for one in _several(text, have)[:1]] if _EXTRA.search(text) else []
    return found or _written(text) or _percent(text, have) or _aggregate(text, have) or _pair(text, have)


def part_of(text: str) -> str:
    """So many percent of something, as it is written; empty where none is asked for."""
    found = _OF.search(text)
    return found[0].removesuffix("of").strip() if found else ""


def _written(text: str) -> list[Sum]:
    """Arithmetic that stands in the text."""
    if root := _ROOT.search(text):
        return [Sum(f"sqrt({root[1].replace(',', '')})", f"square root of {root[1]}")]
    if (each := _EACH.search(text)) and stem(each[2].lower()) == stem(each[4].lower()):
        return [Sum(f"{each[1].replace(',', '')} * {each[3].replace(',', '')}", f"{each[1]} {each[2]} at {each[3]}")]
    plain = _ISO.sub(" ", text)
    for pattern, sign in _WORDS:
        plain = re.sub(pattern, f" {sign} " if sign else "", plain, flags=re.IGNORECASE)
    matches = sorted(_ARITHMETIC.findall(plain), key=len)
    if not matches:
        return []
    expression = " ".join(matches[-1].split())
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:].strip()
    return [Sum(expression, expression)]


def _several(text: str, have: Material) -> list[Series]:
    found = [one for table in have.tables if (one := series(table, text)) is not None]
    return [one for one in found if len(one.values) > 1]


def _values(text: str, have: Material) -> list[tuple[str, str]]:
    """The numbers at hand, named: of a column, of figures and one-row tables, of the text, of what was said."""
    if columns := _several(text, have):
        return list(zip(columns[0].labels, columns[0].values, strict=True))
    found = [(one.label or one.expression, number(one.value)) for one in have.figures if number(one.value)]
    rows = [one for table in have.tables if len(table.rows) == 1 and (one := series(table, text))]
    found += [(one.labels[0] if one.label != one.value else one.value, one.values[0]) for one in rows]
    return found or [("", one) for one in numbers(text)] or said_values(have.texts)


def _changed(text: str, have: Material, *, rounds: bool) -> list[Sum]:
    """The difference and the change in percent between two numbers, the second against the first."""
    if not says(text, *_CHANGE, "difference", "differ", "compared", "compare", "versus", "vs"):
        return []
    values = _values(text, have)
    if len(values) != 2:
        return []
    (early, one), (late, other) = sorted(values) if all(re.match(r"\d{4}", label) for label, _ in values) else values
    names = f" from {early} to {late}" if early and late else ""
    found = [Sum(f"{other} - {_signed(one)}", f"difference{names}")]
    if Decimal(one) and (says(text, *_CHANGE, "percent", "percentage") or "%" in text):
        share = f"({other} - {_signed(one)}) / {_signed(one)} * 100"
        found.append(Sum(f"round({share}, 1)" if rounds else share, f"change{names}", "percent"))
    return found


def _signed(value: str) -> str:
    return f"({value})" if value.startswith("-") else value


def _converted(text: str, have: Material, *, rounds: bool) -> list[Sum]:
    """An amount at each rate that was looked up."""
    rates = {one.label: one for one in have.figures if _is_rate(one)}
    wanted = currencies(text)
    rest = Material(have.tables, [one for one in have.figures if not _is_rate(one)], objects=have.objects)
    amount = _amount(text, rest) if rates and wanted else ""
    return [_at_rate(text, amount, one, rounds=rounds) for one in rates.values()] if amount else []


def _at_rate(text: str, amount: str, rate: Figure, *, rounds: bool) -> Sum:
    sides, wanted = currencies(rate.label), currencies(text)
    target = sides[0] if sides else wanted[-1]
    backwards = len(sides) > 1 and _goal(text, wanted) == sides[1]
    expression = f"{amount} {'/' if backwards else '*'} {rate.value}"
    goal = sides[1] if backwards else target
    base = next((code for code in sides if code != goal), "")
    of = f"{_plain_total(amount):,.2f} {base}".strip() + f" at {rate.value} {rate.label}"
    return Sum(f"round({expression}, 2)" if rounds else expression, "converted amount", goal, of)


def _plain_total(amount: str) -> Decimal:
    return sum(map(Decimal, re.findall(r"-?\d[\d.]*", amount)), Decimal(0))


def _written_out(value: Decimal) -> str:
    return f"{value:,}" if value == value.to_integral_value() else f"{value:,.2f}"


def _goal(text: str, wanted: list[str]) -> str:
    into = re.findall(r"\b(?:in|into|to|as)\s+(?:\w+\s+)?(\S+(?:\s+\w+)?)", text)
    named = [code for tail in into for code in currencies(tail)]
    return named[-1] if named else wanted[-1]


def _is_rate(one: Figure) -> bool:
    pair = " per " in one.label and len(currencies(one.label)) > 1
    return bool(number(one.value)) and (pair or says(one.label, "rate"))


def _amount(text: str, have: Material) -> str:
    """What is converted: a number in the text, else what was given, all rows of a table together."""
    if said := [one for one in numbers(text) if not re.match(r"20\d\d$", one)]:
        return said[0]
    for table in have.tables:
        if one := series(table, text):
            together = _total(one).expression
            whole = of_series(one, text)
            alone = len(one.values) == 1 or Decimal(whole) != sum(map(Decimal, one.values))
            return whole if alone else f"({together})"
    return next((number(one.value) for one in have.figures if number(one.value)), "")


def _total(one: Series) -> Sum:
    expression = " + ".join(_signed(value) for value in one.values)
    if len(expression) > _LONGEST:  # more than a calculator reads at once
        expression = str(sum(map(Decimal, one.values)))
    return Sum(expression, f"total {one.value.replace('_', ' ')}".strip())


def _percent(text: str, have: Material) -> list[Sum]:
    """So many percent of what was given, or more, or less."""
    part = _PART.search(text)
    values = _values(re.sub(_PART, " ", text), have)
    if part is None or not values:
        return []
    share, base = part[1].replace(",", ""), values[0][1]
    if len(values) > 1 and (columns := _several(text, have)):
        base = f"({_total(columns[0]).expression})"
    if re.search(r"\b(?:add|plus|increase[ds]?|raise[ds]?|more|higher|with|including)\b", text, re.IGNORECASE):
        return [Sum(f"{base} * (1 + {share} / 100)", f"with {share} percent more")]
    if re.search(r"\b(?:less|minus|reduce[ds]?|discount|off|lower|subtract|deduct)\b", text, re.IGNORECASE):
        return [Sum(f"{base} * (1 - {share} / 100)", f"with {share} percent less")]
    return [Sum(f"{base} * {share} / 100", f"{share} percent of {_written_out(_plain_total(base))}")]


def _aggregate(text: str, have: Material) -> list[Sum]:
    """All numbers of a column, or of the text, together or on average."""
    columns = _several(text, have)
    values = [value for _, value in _values(text, have)]
    if len(values) < 2:
        return []
    together = _total(columns[0] if columns else Series((), tuple(values), "", "")).expression
    if says(text, "average", "mean"):
        return [Sum(f"({together}) / {len(values)}", "average")]
    if says(text, "total", "sum", "add", "altogether", "overall", "combined"):
        return [Sum(together, "total", said_unit(have.texts) if not columns and not have.figures else "")]
    return []


def _pair(text: str, have: Material) -> list[Sum]:
    """Two numbers against each other."""
    values = _values(text, have)
    if len(values) != 2:
        return []
    (name, one), (of, other) = values
    if says(text, "share", "percentage", "percent", "proportion") and Decimal(other):
        return [Sum(f"{one} / {_signed(other)} * 100", f"{name} as a share of {of}".strip(), "percent")]
    if says(text, "ratio", "divide", "divided", "quotient") and Decimal(other):
        return [Sum(f"{one} / {_signed(other)}", "ratio")]
    if says(text, "multiply", "product"):
        return [Sum(f"{one} * {other}", "product")]
    plain = re.sub(r"\bless than\b", "", text, flags=re.IGNORECASE)  # which compares, and takes nothing away
    return [Sum(f"{one} - {other}", "difference")] if says(plain, "subtract", "less", "minus") else []
