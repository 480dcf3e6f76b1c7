"""What is made from results of others: charts, conversions between currencies, texts and shaped output."""

import re
from typing import cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.results import (
    Material,
    as_number,
    column_total,
    format_value,
    number_columns,
    read_product,
)
from chargehand.models.demo.tools import ToolCard
from chargehand.models.demo.words import content_stems, join_words, number_value, stem, stems, word_set
from chargehand.models.exhibits import Figure, Table
from chargehand.models.subject import Given, Working

# --- charts

_TIME_LABEL = re.compile(
    r"\d{4}(?:-\d\d){0,2}|(?:Q[1-4]|January|February|March|April|May|June|July)\b.*", re.IGNORECASE
)
_CHART_OF = re.compile(
    r"\b(?:charts?|graphs?|plots?|diagrams?)\s+(?:of|for|showing|about|with)\s+(?P<what>.+)", re.IGNORECASE
)
_DRAWING = frozenset(
    map(stem, word_set("draw plot chart charts graph visualise visualize bar line diagram picture result results"))
)
_MOST_VALUES = 50


def chart_subject(clause: Clause) -> str:
    """What a clause wants drawn, in its own words; nothing where it only points back."""
    match = _CHART_OF.search(clause.text)
    what = match["what"].rstrip("?. ") if match else " ".join(clause.text.split()[1:]).rstrip("?. ")
    words = [word for word in content_stems(what) if word not in _DRAWING]
    return (
        what.removeprefix("the ") if words and not re.fullmatch(r"(?:it|that|this|them)", what, re.IGNORECASE) else ""
    )


def chart_arguments(clause: Clause, given: Material, inputs: tuple[Given, ...]) -> dict[str, object] | str:
    """The arguments of a chart of what was given, or why there are none."""
    words = {token.stem for token in clause.content}
    if "pie" in words:
        return "only bars and lines can be drawn"
    for table in given.tables:
        numbers = number_columns(table)
        labels = [at for at in range(len(table.columns)) if at not in numbers]
        if not numbers or not table.rows:
            continue
        if len(table.rows) > _MOST_VALUES:
            return f"there are {len(table.rows)} values, and a chart takes at most {_MOST_VALUES}"
        named = [at for at in numbers if set(stems(table.columns[at])) & words]
        value_at = (named or numbers)[0]
        names = [_label(row, labels) for row in table.rows]
        shown = [
            (name, float(as_number(row[value_at]) or 0))
            for name, row in zip(names, table.rows, strict=True)
            if row[value_at] is not None
        ]
        title = chart_subject(clause) or _column_title(table, value_at, labels)
        over_time = all(_TIME_LABEL.fullmatch(name) for name, _ in shown)
        kind = "line" if ("line" in words or over_time) and "bar" not in words else "bar"
        return {
            "title": title[:1].upper() + title[1:],
            "labels": [name for name, _ in shown],
            "values": [int(value) if value == int(value) else value for _, value in shown],
            "kind": kind,
        }
    return "there is no table of numbers to draw" if inputs else "nothing was given to draw"


def _label(row: tuple[object, ...], labels: list[int]) -> str:
    return str(row[labels[0]]) if labels else str(row[0])


def _column_title(table: Table, value_at: int, labels: list[int]) -> str:
    value = table.columns[value_at].replace("_", " ")
    return f"{value} by {table.columns[labels[0]].replace('_', ' ')}" if labels else value


# --- currencies

_CURRENCIES = {
    "USD": r"\b(?:us[- ]?dollars?|dollars?|usd)\b|\$",
    "GBP": r"\b(?:british pounds?|pounds?(?: sterling)?|sterling|gbp)\b|£",
    "CHF": r"\b(?:swiss francs?|francs?|chf)\b",
    "SEK": r"\b(?:swedish (?:kron[ao]r?|crowns?)|kron[ao]r?|sek)\b",
    "NOK": r"\b(?:norwegian (?:kroner?|crowns?)|nok)\b",
    "JPY": r"\b(?:japanese yen|yen|jpy)\b|¥",
    "EUR": r"\b(?:euros?|eur)\b|€",
}
_CONVERTING = frozenset(
    map(
        stem,
        word_set(
            """convert rate exchange amount total sum value day into dollars us swiss british swedish sterling on"""
        ),
    )
)


class Conversion(Struct, frozen=True):
    """An amount, the currency it is turned into, and how the rate is asked for."""

    amount: str
    source: str
    target: str
    arguments: dict[str, object]

    def in_words(self, result: str, rate: Figure) -> str:
        target = f"{format_value(as_number(result), 2)} {self.target}"
        amount = f"{format_value(as_number(self.amount), 2)} {self.source}"
        label = rate.label or f"{self.target} per {self.source}"
        return f"Converted amount: {target} ({amount} at {rate.value} {label})."


def find_currencies(text: str) -> list[str]:
    """The currencies a text names, in their order."""
    found: list[tuple[int, str]] = []
    for code, pattern in _CURRENCIES.items():
        if match := re.search(pattern, text, re.IGNORECASE):
            found.append((match.start(), code))
    return [code for _, code in sorted(found)]


def read_conversion(clause: Clause, tool: ToolCard, given: Material) -> Conversion | str:
    """The conversion a clause asks for, or what is missing for it."""
    amount, source = _amount(clause, given)
    if not given.tables and (leftover := _conversion_leftover(clause)):
        return f"nothing here says {join_words([repr(word) for word in leftover])}"
    named = find_currencies(clause.text)
    targets = [code for code in named if code != source]
    if not amount:
        return "the amount to convert is not there"
    if len(targets) != 1 or not source:
        return "which currency is to be turned into which is not clear"
    chosen = next((held for held in tool.parameters if targets[0] in held.choices), None)
    if chosen is None or source != "EUR":
        return f"there is no rate from {source} to {targets[0]}"
    days = [period for period in clause.periods if period.is_day and period.year]
    wanted = [held for held in tool.parameters if held.type == "day"]
    if len(wanted) != 1 or len(days) != 1:
        return "the day of the rate is not said; name one, such as 29 May 2026"
    arguments: dict[str, object] = {chosen.name: targets[0], wanted[0].name: days[0].first.isoformat()}
    return Conversion(amount=amount, source=source, target=targets[0], arguments=arguments)


def _conversion_leftover(clause: Clause) -> list[str]:
    """Words and further numbers of a conversion that nothing accounts for."""
    numbers = [token.text for token in clause.tokens if token.is_number]
    words = [
        token.text
        for token in clause.content
        if not token.is_number and token.stem not in _CONVERTING and not find_currencies(token.text)
    ]
    return [*numbers[1:], *words]


def _amount(clause: Clause, given: Material) -> tuple[str, str]:
    """The amount and its currency: from what was given if it is one number, else from the clause."""
    for table in given.tables:
        numbers = number_columns(table)
        if len(numbers) != 1 or not table.rows:
            continue
        code = table.columns[numbers[0]].rsplit("_", 1)[-1].upper()
        if code not in _CURRENCIES or (len(table.rows) > 1 and not clause.wants_total):
            return "", ""
        return str(column_total(table, numbers[0])), code
    for at, token in enumerate(clause.tokens):
        number = number_value(token.text) if token.is_number else None
        if number is not None and at + 1 < len(clause.tokens):
            code = find_currencies(clause.tokens[at + 1].text)
            return str(int(number) if number == int(number) else number), code[0] if code else ""
    return "", ""


# --- texts

_FORMS = {
    "memo": "Memo",
    "report": "Report",
    "summary": "Summary",
    "outline": "Outline",
    "letter": "Letter",
    "reply": "Reply",
    "note": "Note",
    "notes": "Notes",
    "post": "Post",
    "email": "Reply",
    "mail": "Reply",
    "overview": "Overview",
    "brief": "Brief",
}
_WRITING = frozenset(
    map(
        stem,
        word_set(
            """write draft compose short brief paragraph sentence blog memo based findings result results them client"""
        ),
    )
)


class NotWritten(Struct, frozen=True):
    reason: str


def text_form(clause: Clause) -> str:
    """Memo, letter and so on; nothing for forms that cannot be put together from facts."""
    for token in clause.tokens:
        if token.text.lower() in _FORMS:
            return _FORMS[token.text.lower()]
    return ""


def writing_leftover(clause: Clause, known: set[str]) -> list[str]:
    """Words of a writing clause that neither writing nor the rest of the request accounts for."""
    return [
        token.text
        for token in clause.content
        if token.stem not in _WRITING and token.text.lower() not in _FORMS and token.stem not in known
    ]


def write_text(clause: Clause, subject: Working) -> str | NotWritten:
    """The facts that were given, in order, under a heading: no prose of its own."""
    form = text_form(clause)
    if not form:
        return NotWritten("only memos, letters, reports and other texts made of facts can be put together here")
    facts: list[str] = []
    for given in subject.inputs:
        text = read_product(given.value).text.strip()
        facts += [f"- {line.strip()}" for line in text.splitlines() if line.strip()]
    if not facts:
        return NotWritten("there are no results to write from")
    missing = [f"- {gap.message}" for gap in subject.gaps if gap.message]
    opening = {"Letter": "Dear client,", "Reply": "Dear customer,"}.get(form, form)
    closing = {"Letter": "Yours sincerely", "Reply": "Kind regards"}.get(form, "")
    parts = [opening, "\n".join(facts)]
    if missing:
        parts.append("Not known:\n" + "\n".join(missing))
    if closing:
        parts.append(closing)
    return "\n\n".join(parts)


# --- shapes


class Shaped(Struct, frozen=True):
    """JSON of the shape that was asked for, or the fields nothing was found for."""

    json: str = ""
    missing: tuple[str, ...] = ()


def fill_shape(schema: Raw, found: Material, text: str) -> Shaped:
    """What was found in the shape of a JSON Schema: numbers, texts and lists by type and name, nothing invented."""
    about = cast("dict[str, object]", msgspec.json.decode(bytes(schema)))
    properties = cast("dict[str, dict[str, object]]", about.get("properties") or {})
    required = cast("list[str]", about.get("required") or list(properties))
    if not properties:
        return (
            Shaped(msgspec.json.encode(text).decode())
            if about.get("type") == "string"
            else Shaped(missing=("anything in this shape",))
        )
    filled: dict[str, object] = {}
    texts = [name for name, held in properties.items() if held.get("type") == "string" and not held.get("enum")]
    numbers = [name for name, held in properties.items() if held.get("type") in {"number", "integer"}]
    values = _numbers_found(found)
    for name in numbers:
        named = [value for label, value in values if set(stems(name)) & set(stems(label))]
        if len(set(named)) == 1:
            filled[name] = named[0]
        elif len(numbers) == 1 and len(values) == 1:
            filled[name] = values[0][1]
    if len(texts) == 1 and text:
        filled[texts[0]] = text
    for name, held in properties.items():
        if held.get("type") == "array" and found.tables:
            filled[name] = _column_values(found.tables[0], name)
    missing = tuple(name.replace("_", " ") for name in required if name not in filled)
    return Shaped(missing=missing) if missing else Shaped(msgspec.json.encode(filled).decode())


def _numbers_found(found: Material) -> list[tuple[str, float]]:
    values: list[tuple[str, float]] = []
    for table in found.tables:
        if len(table.rows) == 1:
            values += [(table.columns[at], float(as_number(table.rows[0][at]) or 0)) for at in number_columns(table)]
    for figure in found.figures:
        number = as_number(figure.value)
        if number is not None:
            values.append((figure.label, float(number)))
    return [(label, int(value) if value == int(value) else value) for label, value in values]


def _column_values(table: Table, name: str) -> list[object]:
    named = [at for at, column in enumerate(table.columns) if set(stems(column)) & set(stems(name))]
    at = named[0] if named else 0
    return [row[at] for row in table.rows]
