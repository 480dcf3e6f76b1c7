"""What is made from results of others: charts, conversions between currencies, texts and shaped output."""

import re

import msgspec
from msgspec import Raw, Struct

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.results import (
    Material,
    as_number,
    column_numbers,
    format_value,
    number_columns,
    read_product,
)
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import content_stems, join_words, shorten, stem_set, stems, word_set
from chargehand.models.exhibits import Figure
from chargehand.models.subject import Working

# --- charts

_TIME_LABEL = re.compile(
    r"\d{4}(?:-\d\d){0,2}|(?:Q[1-4]|January|February|March|April|May|June|July)\b.*", re.IGNORECASE
)
_CHART_OF = re.compile(
    r"\b(?:charts?|graphs?|plots?|diagrams?)\s+(?:of|for|showing|about|with)\s+(?P<what>.+)", re.IGNORECASE
)
_DRAWING = stem_set("draw plot chart graph visualise visualize bar line diagram picture result")
_MOST_VALUES = 50


def chart_subject(clause: Clause) -> str:
    """What a clause wants drawn, in its own words; nothing where it only points back."""
    match = _CHART_OF.search(clause.text)
    what = (match["what"] if match else clause.text.partition(" ")[2]).rstrip("?. ")
    return what.removeprefix("the ") if set(content_stems(what)) - _DRAWING else ""


def chart_arguments(clause: Clause, given: Material) -> dict[str, object]:
    """The arguments of a chart of the first table of numbers that was given."""
    words = {token.stem for token in clause.content}
    if "pie" in words:
        raise RefusedError("only bars and lines can be drawn")
    tables = [table for table in given.tables if number_columns(table)]
    if not tables:
        raise RefusedError("there is no table of numbers to draw")
    table = tables[0]
    if len(table.rows) > _MOST_VALUES:
        raise RefusedError(f"there are {len(table.rows)} values, and a chart takes at most {_MOST_VALUES}")
    numbers = number_columns(table)
    value_at = next((at for at in numbers if set(stems(table.columns[at])) & words), numbers[0])
    label_at = next((at for at in range(len(table.columns)) if at not in numbers), 0)
    rows = [row for row in table.rows if row[value_at] is not None]
    labels = [str(row[label_at]) for row in rows]
    columns = [table.columns[at].replace("_", " ") for at in dict.fromkeys((value_at, label_at))]
    title = chart_subject(clause) or " by ".join(columns)
    over_time = all(_TIME_LABEL.fullmatch(label) for label in labels)
    return {
        "title": title[:1].upper() + title[1:],
        "labels": labels,
        "values": [row[value_at] for row in rows],
        "kind": "line" if ("line" in words or over_time) and "bar" not in words else "bar",
    }


# --- currencies

_CURRENCIES = {
    "USD": r"\b(?:to|into|in) (?:us[- ]?)?dollars?\b|\busd\b",
    "GBP": r"\b(?:to|into|in) (?:british )?pounds?\b|\bgbp\b",
    "CHF": r"\b(?:to|into|in) swiss francs?\b|\bchf\b",
}


_NAMED_AMOUNT = re.compile(
    r"convert (?P<amount>\d[\d,]*(?:\.\d+)?) (?:euros?|eur) (?:to|into) (?:\w+ )?\w+ (?:at the rate of|on) \d",
    re.IGNORECASE,
)


class Conversion(Struct, frozen=True):
    """An amount in euros, the currency it is turned into, and how the rate is asked for."""

    amount: str
    target: str
    arguments: dict[str, object]

    def in_words(self, result: str, rate: Figure) -> str:
        target = f"{format_value(as_number(result), 2)} {self.target}"
        amount = f"{format_value(as_number(self.amount), 2)} EUR"
        label = rate.label or f"{self.target} per EUR"
        return f"Converted amount: {target} ({amount} at {rate.value} {label})."


def read_conversion(clause: Clause, tool: ToolCard, given: Material) -> Conversion:
    """The conversion of the amount that was given, else of the one that the clause names."""
    named = _NAMED_AMOUNT.match(clause.text)
    amount = named["amount"].replace(",", "") if named and not given.tables else _given_amount(clause, given)
    targets = [code for code, pattern in _CURRENCIES.items() if re.search(pattern, clause.text, re.IGNORECASE)]
    if len(targets) != 1:
        raise RefusedError("which currency is to be turned into which is not clear")
    chosen = next((parameter.name for parameter in tool.parameters if targets[0] in parameter.choices), "")
    if not chosen:
        raise RefusedError(f"there is no rate from EUR to {targets[0]}")
    days = [period.first.isoformat() for period in clause.periods if period.is_day and period.year]
    parameters = [parameter.name for parameter in tool.parameters if parameter.type == "day"]
    if len(parameters) != 1 or len(days) != 1:
        raise RefusedError("the day of the rate is not said; name one, such as 29 May 2026")
    return Conversion(amount, targets[0], {chosen: targets[0], parameters[0]: days[0]})


def _given_amount(clause: Clause, given: Material) -> str:
    """The amount in the first table with one column of numbers: its one row, or the total."""
    for table in given.tables:
        numbers = number_columns(table)
        if len(numbers) != 1:
            continue
        if not table.columns[numbers[0]].lower().endswith("_eur") or (len(table.rows) > 1 and not clause.wants_total):
            raise RefusedError("which amount in euros is to be converted is not clear")
        return str(sum(column_numbers(table, numbers[0])))
    raise RefusedError("the amount to convert is not there")


# --- texts

_FORMS = {form: form.capitalize() for form in word_set("memo report summary outline letter reply note overview")}
_WRITING = stem_set("write draft compose short brief paragraph sentence blog memo based findings result them client")
_FRAMES = {"Letter": ("Dear client,", "Yours sincerely"), "Reply": ("Dear customer,", "Kind regards")}


def text_form(clause: Clause) -> str:
    """Memo, letter and so on; nothing for forms that cannot be put together from facts."""
    return next((_FORMS[token.text.lower()] for token in clause.tokens if token.text.lower() in _FORMS), "")


def writing_leftover(clause: Clause, known: set[str]) -> list[str]:
    """Words of a writing clause that neither writing nor the rest of the request accounts for."""
    return [
        token.text
        for token in clause.content
        if token.stem not in _WRITING and token.text.lower() not in _FORMS and token.stem not in known
    ]


def write_text(clause: Clause, subject: Working) -> str:
    """The facts that were given, in order, under a heading: no prose of its own."""
    form = text_form(clause)
    if not form:
        raise RefusedError("only memos, letters, reports and other texts made of facts can be put together here")
    texts = [read_product(given.value).text for given in subject.inputs]
    facts = [f"- {line.strip()}" for text in texts for line in text.splitlines() if line.strip()]
    if not facts:
        raise RefusedError("there are no results to write from")
    missing = [f"- {gap.message}" for gap in subject.gaps if gap.message]
    opening, closing = _FRAMES.get(form, (form, ""))
    unknown = "\n".join(["Not known:", *missing]) if missing else ""
    return "\n\n".join(filter(None, [opening, "\n".join(facts), unknown, closing]))


# --- shapes


class _Property(Struct, frozen=True):
    """What a JSON Schema says of a field."""

    type: object = None
    enum: list[object] | None = None


class _Shape(Struct, frozen=True):
    """What a JSON Schema says of an object."""

    type: object = None
    properties: dict[str, _Property] = {}
    required: list[str] | None = None


def fill_shape(schema: Raw, found: Material, text: str) -> str:
    """What was found as JSON of a shape: numbers and one text by type and name, nothing invented."""
    shape = msgspec.json.decode(bytes(schema), type=_Shape)
    if shape.type == "string":
        return msgspec.json.encode(text).decode()
    if not shape.properties:
        raise RefusedError("what was found does not fit the shape that is asked for")
    types = [about.type for about in shape.properties.values() if not about.enum]
    values = _labelled_numbers(found)
    is_only_number = len(values) == 1 and types.count("number") + types.count("integer") == 1
    filled: dict[str, object] = {}
    for name, about in shape.properties.items():
        if about.type == "string" and not about.enum and text and types.count("string") == 1:
            filled[name] = text
        elif about.type in ("number", "integer"):
            filled |= _number_field(name, values, is_only=is_only_number)
    required = list(shape.properties) if shape.required is None else shape.required
    missing = [name.replace("_", " ") for name in required if name not in filled]
    if missing:
        raise RefusedError(f"what was found does not say {join_words(missing)}: {shorten(text, 200)}")
    return msgspec.json.encode(filled).decode()


def _number_field(name: str, values: list[tuple[str, float]], *, is_only: bool) -> dict[str, float]:
    """A field with the one number that has a word of its name; nothing where there are several."""
    named = {value for label, value in values if is_only or set(stems(name)) & set(stems(label))}
    return {name: named.pop()} if len(named) == 1 else {}


def _labelled_numbers(found: Material) -> list[tuple[str, float]]:
    labelled = [(figure.label, as_number(figure.value)) for figure in found.figures]
    for table in found.tables:
        if len(table.rows) == 1:
            labelled += [(table.columns[at], as_number(table.rows[0][at])) for at in number_columns(table)]
    numbers = [(label, float(number)) for label, number in labelled if number is not None]
    return [(label, int(number) if number.is_integer() else number) for label, number in numbers]
