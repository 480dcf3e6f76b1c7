"""Arguments for a tool, filled by its schema out of the words of a task and what the worker was given.

Every kind of argument has its own way; where none works out the argument is missing, and that is said, not guessed.
"""

import itertools
import math
import re
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from chargehand.models.offline.amounts import amount, each, sure
from chargehand.models.offline.axes import kind_of_chart
from chargehand.models.offline.choosing import Choice, Parameter
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.days import days, is_day
from chargehand.models.offline.material import Material, Series, series
from chargehand.models.offline.strings import TITLES, Said, text_for
from chargehand.models.offline.words import names, numbers, quoted, related, stem, tokens, with_nouns

_NAMED_NUMBER = re.compile(
    r"([A-Z][\w-]*(?: [A-Z][\w-]*)*|\b[a-z]+)\s*(?::|=|\bis\b|\bwith\b|\bhas\b)?\s+"
    r"(\d[\d,]*(?:\.\d+)?)(?=\s*(?:,|;|and\b|\.|$))"
)
MOST_CALLS = 16


class Filled(Struct, frozen=True):
    """Arguments for one call or several, or the names of those that are missing.

    `wanted`: how many calls there would have to be. More than `MOST_CALLS` are not made, and none is left out silently.
    """

    calls: tuple[dict[str, object], ...] = ()
    missing: tuple[str, ...] = ()
    wanted: int = 0


class _Task(Struct, frozen=True):
    """What arguments are filled from. `about` is what the tool says of itself.

    `only` is the only argument that is a number, `lone` the same where the task says only one.
    """

    text: str
    tool: str
    have: Material
    data: Series | None
    taken: set[str]
    about: str = ""
    lone: str = ""
    only: str = ""


def fill(choice: Choice, text: str, have: Material) -> Filled:
    """Everything a tool must be given, and of what it may be given that which the task says."""
    about = f"{choice.name} {choice.description}"
    counted = [one.name for one in choice.parameters if one.type in {"integer", "number"}]
    only = counted[0] if len(counted) == 1 else ""
    lone = only if len(numbers(text)) == 1 else ""
    data = _data(choice.parameters, text, have)
    return _fill(choice.parameters, _Task(text, choice.name, have, data, set(), about, lone, only))


def _fill(parameters: Sequence[Parameter], task: _Task) -> Filled:
    found: dict[str, list[object]] = {}
    missing: list[str] = []
    for parameter in sorted(parameters, key=lambda one: (not one.required, not sure(one, task.text))):
        values = _values(parameter, task)
        if values and not _anothers(parameter, values, parameters, task.text):
            found[parameter.name] = values
            task.taken.update(str(one).removesuffix(".0") for one in values)
        elif parameter.required:
            missing.append(parameter.name)
    if missing:
        return Filled(missing=tuple(missing))
    _apart(parameters, found)
    order = [one.name for one in parameters if one.name in found]
    rows = itertools.islice(itertools.product(*(found[name] for name in order)), MOST_CALLS)
    calls = tuple(dict(zip(order, row, strict=True)) for row in rows)
    return Filled(calls, wanted=math.prod(len(found[name]) for name in order))


def _anothers(parameter: Parameter, values: Sequence[object], parameters: Sequence[Parameter], text: str) -> bool:
    """Whether a number is called by the name of another argument: 5 million rows are no speed."""
    if parameter.type not in {"integer", "number"}:
        return False
    nouns = {noun for one, noun in with_nouns(text) if one in {str(value).removesuffix(".0") for value in values}}
    others = {stem(one.name) for one in parameters if one.type in {"integer", "number"} and one is not parameter}
    return bool(nouns & others) and not nouns & set(map(stem, tokens(parameter.name)))


def _apart(parameters: Sequence[Parameter], found: dict[str, list[object]]) -> None:
    """Two arguments with the same choices, of which a task says two, get one each, in the order they are said."""
    for parameter in parameters:
        alike = [one.name for one in parameters if one.enum and one.enum == parameter.enum and one.required]
        said = found.get(parameter.name, [])
        if 1 < len(alike) == len(said) and all(found.get(name) == said for name in alike):
            found.update({name: [value] for name, value in zip(alike, said, strict=True)})


def _values(parameter: Parameter, task: _Task) -> list[object]:
    """Alternatives for one argument: each of several makes a call of its own."""
    if parameter.enum:
        return [*_enum(parameter, task.text, task.data)]
    if is_day(parameter):
        return [*days(parameter, task.tool, task.text)] or _same(parameter, task.have)
    match parameter.type:
        case "integer" | "number":
            if task.only == parameter.name and (several := each(parameter, task.text)):
                return several
            alone = task.lone == parameter.name
            return _same(parameter, task.have) or amount(parameter, task.text, task.have, task.taken, alone=alone)
        case "boolean":
            return _truth(parameter, task.text)
        case "array":
            return _array(parameter, task)
        case "object":
            inner = _fill(parameter.fields, task)
            return [*inner.calls[:1]] if parameter.fields else []
        case _:
            said = Said(task.text, task.have, task.data, task.taken, task.about)
            return _same(parameter, task.have) or text_for(parameter, said)


def _same(parameter: Parameter, have: Material) -> list[object]:
    """A value that was given under the very name of the argument."""
    for one in have.objects:
        value = one.get(parameter.name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return [value]
    return []


def _data(parameters: Sequence[Parameter], text: str, have: Material) -> Series | None:
    """The table at hand as names and numbers, or numbers that the text or the figures at hand give a name each."""
    if not any(one.type == "array" or one.name.lower() in TITLES for one in parameters):
        return None
    for table in reversed(have.tables):
        if found := series(table, text):
            return found
    told = _NAMED_NUMBER.findall(text)
    if len(told) > 1:
        return Series(tuple(name for name, _ in told), tuple(value.replace(",", "") for _, value in told), "", "")
    labelled = [one for one in have.figures if one.label]
    if labelled:
        return Series(tuple(one.label for one in labelled), tuple(one.value for one in labelled), "", "")
    return None


def _enum(parameter: Parameter, text: str, data: Series | None) -> list[str]:
    if chart := kind_of_chart(parameter.enum, text, () if data is None else data.labels):
        return [chart]
    codes = {one.upper(): one for one in parameter.enum}
    if money := [codes[code] for code in currencies(text) if code in codes]:
        return _money(parameter, text, money)
    words = tokens(text)
    stems = [stem(word) for word in words]
    exact = [one for one in parameter.enum if _said(one, text, words, stems)]
    if exact:
        return sorted(exact, key=lambda one: text.lower().find(one.lower()))
    near = [one for one in parameter.enum if _alike(one, stems)]
    if near or not parameter.required:
        return near if {"all", "every", "each", "both"} & set(words) else _by_word(near, stems)
    return [parameter.enum[0]] if len(parameter.enum) == 1 else []


def _said(value: str, text: str, words: list[str], stems: list[str]) -> bool:
    if value.isupper() and len(value) <= 3:
        return re.search(rf"\b{re.escape(value)}\b", text) is not None
    parts = tokens(value)
    return bool(parts) and all(part in words or stem(part) in stems for part in parts)


def _by_word(near: list[str], stems: list[str]) -> list[str]:
    """Of choices that only sound alike, one for each word that means one of them."""
    chosen: list[str] = []
    for word in stems:
        fitting = [one for one in near if _alike(one, [word])]
        if fitting and not any(one in chosen for one in fitting):
            chosen.append(fitting[0])
    return chosen


def _alike(value: str, stems: list[str]) -> bool:
    return any(related(stem(part), word) >= 0.8 for part in tokens(value) for word in stems)


def _money(parameter: Parameter, text: str, codes: list[str]) -> list[str]:
    """Of several currencies those one converts to, or from, by what the argument is called."""
    tails = [text[found.end() : found.end() + 24] for found in re.finditer(r"\b(?:in|into|to|as|per)\b", text)]
    into = [code for code in codes if any(code in currencies(tail) for tail in tails)]
    if {"from", "source", "base"} & set(tokens(parameter.name)):
        return ([code for code in codes if code not in into] or codes)[:1]
    return into or codes


def _truth(parameter: Parameter, text: str) -> list[object]:
    words = [word for word in tokens(parameter.name) if word not in {"is", "has", "include", "with", "only"}]
    for word in words:
        if found := re.search(rf"\b{re.escape(stem(word))}\w*", text, re.IGNORECASE):
            return [not {"no", "not", "without", "excluding"} & set(tokens(text[: found.start()])[-2:])]
    return [False] if parameter.required else []


def _array(parameter: Parameter, task: _Task) -> list[object]:
    inner = parameter.items
    kind = inner.type if inner else ""
    data = task.data
    if kind in {"number", "integer"}:
        if data is None:
            return []
        values = [Decimal(value) for value in data.values]
        return [[int(one) if one == one.to_integral_value() else float(one) for one in values]]
    if kind == "object" and inner is not None and data is not None:
        return _objects(inner, data)
    if data is not None and len(data.labels) == len(data.values):
        return [[*data.labels]]
    said = quoted(task.text) or names(task.text)
    return [said] if said else []


def _objects(inner: Parameter, data: Series) -> list[object]:
    """One object a row: its text field is the name, its number field the number."""
    texts = [one.name for one in inner.fields if one.type == "string"]
    values = [one.name for one in inner.fields if one.type in {"number", "integer"}]
    if not texts or not values:
        return []
    return [[{texts[0]: label, values[0]: float(value)} for label, value in zip(data.labels, data.values, strict=True)]]
