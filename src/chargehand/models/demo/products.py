"""What a worker makes of earlier results: charts, and conversions between currencies."""

import re
from decimal import Decimal

from chargehand.models.artifacts import Table
from chargehand.models.demo.request import Account, Clause, RefusedError
from chargehand.models.demo.results import (
    ResultMaterial,
    column_numbers,
    number_columns,
)
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import said_words, stem_set, stems

_WORDS = {
    "draw": stem_set("draw plot chart graph visualise visualize bar diagram picture result"),
    "convert": stem_set(
        "convert exchange rate total sum amount euros eur us dollars usd british pounds gbp swiss francs chf result"
    ),
}
"""Words that say what is to be made."""
_MADE = {"draw": "drawn", "convert": "converted"}


def check_words(clause: Clause, source: str) -> None:
    """RefusedError unless a clause says no more than what to make, and of which task; `source` is its text."""
    account = Account(clause)
    account.use_words(_WORDS[clause.kind])
    account.use_words(said_words(source))
    account.used_periods.update(period for period in clause.periods if period.text in source)
    if clause.kind == "convert":
        account.used_periods.update(period for period in clause.periods if period.day)
    account.settle(f"only a whole result can be {_MADE[clause.kind]}, and nothing there says")


# --- charts

_MOST_VALUES = 50


def chart_arguments(clause: Clause, material: ResultMaterial) -> dict[str, object]:
    """The arguments of a chart of the first table of numbers that was given."""
    tables = [table for table in material.of(Table) if number_columns(table)]
    if not tables or len(tables[0].rows) > _MOST_VALUES:
        raise RefusedError(f"there is no table of at most {_MOST_VALUES} numbers to draw")
    table = tables[0]
    numbers = number_columns(table)
    value_at = next((at for at in numbers if clause.stems.intersection(stems(table.columns[at]))), numbers[0])
    label_at = next((at for at in range(len(table.columns)) if at not in numbers), 0)
    rows = [row for row in table.rows if row[value_at] is not None]
    subject = clause.text.rstrip("?. ").partition(" of ")[2].removeprefix("the ")
    title = subject or table.columns[value_at].replace("_", " ")
    return {
        "title": title[:1].upper() + title[1:],
        "labels": [str(row[label_at]) for row in rows],
        "values": [row[value_at] for row in rows],
    }


# --- currencies

_CURRENCIES = {
    "USD": r"\b(?:to|into|in) (?:us[- ]?)?dollars?\b|\busd\b",
    "GBP": r"\b(?:to|into|in) (?:british )?pounds?\b|\bgbp\b",
    "CHF": r"\b(?:to|into|in) swiss francs?\b|\bchf\b",
}


def rate_arguments(clause: Clause, tool: ToolCard) -> tuple[str, dict[str, object]]:
    """The currency that is named, and the arguments by which its rate is asked for."""
    targets = [code for code, pattern in _CURRENCIES.items() if re.search(pattern, clause.text, re.IGNORECASE)]
    currencies = [parameter.name for parameter in tool.parameters if set(targets).intersection(parameter.choices)]
    if len(targets) != 1 or len(currencies) != 1:
        raise RefusedError("there is no rate from EUR to the one currency that is named")
    days = [period.first_day.isoformat() for period in clause.periods if period.day and period.year]
    parameters = [parameter.name for parameter in tool.parameters if parameter.type == "day"]
    if len(parameters) != 1 or len(days) != 1:
        raise RefusedError("the day of the rate is not said; name one, such as 29 May 2026")
    return targets[0], {currencies[0]: targets[0], parameters[0]: days[0]}


def read_amount(material: ResultMaterial) -> Decimal:
    """The one amount in euros of the one table that was given."""
    tables = material.of(Table)
    if len(tables) == 1 and len(tables[0].rows) == 1 and len(number_columns(tables[0])) == 1:
        column = number_columns(tables[0])[0]
        if tables[0].columns[column].lower().endswith("_eur"):
            return column_numbers(tables[0], column)[0]
    raise RefusedError("which amount in euros is to be converted is not clear")
