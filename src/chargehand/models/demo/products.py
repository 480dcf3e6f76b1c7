"""What is made from results of others: charts, conversions between currencies, texts and shaped output."""

import re
from decimal import Decimal

from msgspec import Struct

from chargehand.models.artifacts import Figure, Table
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
from chargehand.models.demo.words import content_stems, stem_set, stems, word_set
from chargehand.models.request_facts import Working

# --- charts

_TIME_LABEL = re.compile(r"\d{4}(?:-\d\d){0,2}")
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
    words = clause.stems
    if "pie" in words:
        raise RefusedError("only bars and lines can be drawn")
    tables = [table for table in given.of(Table) if number_columns(table)]
    if not tables or len(tables[0].rows) > _MOST_VALUES:
        raise RefusedError(f"there is no table of at most {_MOST_VALUES} numbers to draw")
    table = tables[0]
    numbers = number_columns(table)
    value_at = next((at for at in numbers if words.intersection(stems(table.columns[at]))), numbers[0])
    label_at = next((at for at in range(len(table.columns)) if at not in numbers), 0)
    rows = [row for row in table.rows if row[value_at] is not None]
    labels = [str(row[label_at]) for row in rows]
    title = chart_subject(clause) or f"{table.columns[value_at]} by {table.columns[label_at]}".replace("_", " ")
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

    amount: Decimal
    target: str
    arguments: dict[str, object]

    def in_words(self, result: str, rate: Figure) -> str:
        target = f"{format_value(as_number(result), 2)} {self.target}"
        label = rate.label or f"{self.target} per EUR"
        return f"Converted amount: {target} ({format_value(self.amount, 2)} EUR at {rate.value} {label})."


def read_conversion(clause: Clause, tool: ToolCard, given: Material) -> Conversion:
    """The conversion of the amount that was given, else of the one that the clause names."""
    targets = [code for code, pattern in _CURRENCIES.items() if re.search(pattern, clause.text, re.IGNORECASE)]
    currencies = [parameter.name for parameter in tool.parameters if set(targets).intersection(parameter.choices)]
    if len(targets) != 1 or len(currencies) != 1:
        raise RefusedError("there is no rate from EUR to the one currency that is named")
    days = [period.first.isoformat() for period in clause.periods if period.is_day and period.year]
    parameters = [parameter.name for parameter in tool.parameters if parameter.type == "day"]
    if len(parameters) != 1 or len(days) != 1:
        raise RefusedError("the day of the rate is not said; name one, such as 29 May 2026")
    return Conversion(_read_amount(clause, given), targets[0], {currencies[0]: targets[0], parameters[0]: days[0]})


def _read_amount(clause: Clause, given: Material) -> Decimal:
    """The amount in euros that a clause names, else the one number of the one table that was given."""
    named = _NAMED_AMOUNT.match(clause.text)
    if named and not given.of(Table):
        return Decimal(named["amount"].replace(",", ""))
    tables = [table for table in given.of(Table) if len(table.rows) == 1 and len(number_columns(table)) == 1]
    if len(tables) == 1:
        column = number_columns(tables[0])[0]
        if tables[0].columns[column].lower().endswith("_eur"):
            return column_numbers(tables[0], column)[0]
    raise RefusedError("which amount in euros is to be converted is not clear")


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
