"""What a worker makes of earlier results: charts, and conversions between currencies."""

import re
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct

from chargehand.models.artifacts import Figure, Table
from chargehand.models.demo.honesty import Account
from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.results import (
    ResultMaterial,
    as_number,
    column_numbers,
    format_value,
    number_columns,
)
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import content_stems, said_words, stem_set, stems

_WORDS = {
    "draw": stem_set("draw plot chart graph visualise visualize bar line diagram picture result"),
    "convert": stem_set(
        "convert exchange rate total sum amount euros eur us dollars usd british pounds gbp swiss francs chf result"
    ),
}
"""Words that say what is to be made."""
_MADE = {"draw": "drawn", "convert": "converted"}


def check_words(clause: Clause, sources: Sequence[str]) -> None:
    """RefusedError unless a clause says no more than what to make, and of which tasks; `sources` are their texts."""
    account = Account(clause)
    account.use_words(_WORDS[clause.kind])
    for source in sources:
        account.use_words(said_words(source))
        account.used_periods.update(period for period in clause.periods if period.text in source)
    if clause.kind == "convert":
        account.used_periods.update(period for period in clause.periods if period.day)
        amount = _NAMED_AMOUNT.match(clause.text)
        if amount is not None:
            account.use_span(amount.start("amount"), amount.end("amount"))
    account.settle(f"only a whole result can be {_MADE[clause.kind]}, and nothing there says")


# --- charts

_TIME_LABEL = re.compile(r"\d{4}(?:-\d\d){0,2}")
_CHART_OF = re.compile(
    r"\b(?:charts?|graphs?|plots?|diagrams?)\s+(?:of|for|showing|about|with)\s+(?P<what>.+)", re.IGNORECASE
)
_AS_CHART = re.compile(r"\s+(?:as|in|with) an? (?:\w+ )?(?:chart|graph|diagram)\Z", re.IGNORECASE)
_MOST_VALUES = 50


def chart_subject(clause: Clause) -> str:
    """What a clause wants drawn, in its own words; nothing where it only points back."""
    match = _CHART_OF.search(clause.text)
    what = _AS_CHART.sub("", (match["what"] if match else clause.text.partition(" ")[2]).rstrip("?. "))
    return what.removeprefix("the ") if content_stems(what) - _WORDS["draw"] else ""


def chart_arguments(clause: Clause, material: ResultMaterial) -> dict[str, object]:
    """The arguments of a chart of the first table of numbers that was given."""
    words = clause.stems
    tables = [table for table in material.of(Table) if number_columns(table)]
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


def read_conversion(clause: Clause, tool: ToolCard, material: ResultMaterial) -> Conversion:
    """The conversion of the amount that was given, else of the one that the clause names."""
    targets = [code for code, pattern in _CURRENCIES.items() if re.search(pattern, clause.text, re.IGNORECASE)]
    currencies = [parameter.name for parameter in tool.parameters if set(targets).intersection(parameter.choices)]
    if len(targets) != 1 or len(currencies) != 1:
        raise RefusedError("there is no rate from EUR to the one currency that is named")
    days = [period.first_day.isoformat() for period in clause.periods if period.day and period.year]
    parameters = [parameter.name for parameter in tool.parameters if parameter.type == "day"]
    if len(parameters) != 1 or len(days) != 1:
        raise RefusedError("the day of the rate is not said; name one, such as 29 May 2026")
    return Conversion(_read_amount(clause, material), targets[0], {currencies[0]: targets[0], parameters[0]: days[0]})


def _read_amount(clause: Clause, material: ResultMaterial) -> Decimal:
    """The amount in euros that a clause names, else the one number of the one table that was given."""
    tables = material.of(Table)
    amount = _NAMED_AMOUNT.match(clause.text)
    if amount and not tables:
        return Decimal(amount["amount"].replace(",", ""))
    if len(tables) == 1 and len(tables[0].rows) == 1 and len(number_columns(tables[0])) == 1:
        column = number_columns(tables[0])[0]
        if tables[0].columns[column].lower().endswith("_eur"):
            return column_numbers(tables[0], column)[0]
    raise RefusedError("which amount in euros is to be converted is not clear")
