"""What tools returned and what others found: read from messages and inputs, and put into words and tables."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import cast

import msgspec
from msgspec import Struct, field

from chargehand.models.demo.words import shorten, stems
from chargehand.models.envelope import unwrap
from chargehand.models.exhibits import Chart, Exhibit, Figure, Passage, Passages, Product, Table
from chargehand.models.messages import Message, ToolCall

_OPENING = re.compile(r"<data ([0-9a-f]+) from")
_DEEPEST = 4
_MOST_LISTED = 12
_YEAR_COLUMN = re.compile(r"(?:^|_)(?:id|year|order|number|launched)$")


class Outcome(Struct, frozen=True):
    """What came of one call: an error in words, or a value."""

    call: ToolCall
    error: str = ""
    value: object = None

    @property
    def arguments(self) -> dict[str, object]:
        try:
            return msgspec.json.decode(self.call.arguments, type=dict[str, object])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return {}


class Material(Struct):
    """Everything there is to work from, by kind."""

    tables: list[Table] = field(default_factory=list[Table])
    figures: list[Figure] = field(default_factory=list[Figure])
    passages: list[Passage] = field(default_factory=list[Passage])
    charts: list[Chart] = field(default_factory=list[Chart])
    texts: list[str] = field(default_factory=list[str])

    @property
    def is_empty(self) -> bool:
        return not (self.tables or self.figures or self.passages or self.charts or self.texts)


def read_outcomes(messages: Sequence[Message]) -> list[Outcome]:
    """Every call that was answered, in order."""
    asked: dict[str, ToolCall] = {}
    outcomes: list[Outcome] = []
    for message in messages:
        if message.role == "assistant":
            asked.update({call.id: call for call in message.calls})
        elif message.role == "tool" and message.call in asked:
            outcomes.append(_outcome(asked[message.call], message.text))
    return outcomes


def _outcome(call: ToolCall, text: str) -> Outcome:
    value = _decoded(_body(text))
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if set(fields) == {"error"}:
        return Outcome(call, str(fields["error"]))
    return Outcome(call, value=cast("object", value))


def _body(text: str) -> str:
    """The data in an envelope; what a loop may have written after it is not part of it."""
    if opening := _OPENING.match(text):
        closing = f"</data {opening[1]}>"
        text = text[: text.rfind(closing) + len(closing)]
    held = unwrap(text)
    return held[1] if held else text


def _decoded(body: str) -> object:
    """JSON as what it is, a table that was cut as far as it goes, and anything else as text."""
    attempts = [body]
    if '"rows":[[' in body:
        attempts.append(body[: body.rfind("],") + 1] + "]}")
    for attempt in attempts:
        try:
            return cast("object", msgspec.json.decode(attempt))
        except (msgspec.DecodeError, RecursionError):
            continue
    return body


def gather(values: Iterable[object]) -> Material:
    """All values by kind."""
    material = Material()
    for value in values:
        _add(material, value, 0)
    return material


def _add(material: Material, value: object, depth: int) -> None:
    if value is None or depth > _DEEPEST:
        return
    if isinstance(value, bool):
        material.texts.append("Yes." if value else "No.")
    elif isinstance(value, str):
        material.texts.append(value)
    elif isinstance(value, int | float):
        material.figures.append(Figure(str(value)))
    elif isinstance(value, list | tuple):
        _add_list(material, list(cast("Sequence[object]", value)), depth)
    elif isinstance(value, dict):
        _add_object(material, cast("dict[str, object]", value), depth)


def _add_list(material: Material, items: list[object], depth: int) -> None:
    rows = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    if rows and len(rows) == len(items) and "kind" not in rows[0]:
        columns = tuple(dict.fromkeys(key for row in rows for key in row))
        material.tables.append(Table(columns, tuple(tuple(row.get(key) for key in columns) for row in rows)))
        return
    for item in items[:50]:
        _add(material, item, depth + 1)


def _add_object(material: Material, value: dict[str, object], depth: int) -> None:
    try:
        if "kind" in value:
            _place(material, msgspec.convert(value, Exhibit, strict=False))
            return
        if "exhibits" in value or (set(value) <= {"text", "sources"} and "text" in value):
            product = msgspec.convert(value, Product, strict=False)
            for exhibit in product.exhibits:
                _place(material, exhibit)
            if product.text:
                material.texts.append(product.text)
            return
    except msgspec.ValidationError:
        pass
    plain = {key: held for key, held in value.items() if not isinstance(held, dict | list)}
    if plain:
        said = ", ".join(f"{key.replace('_', ' ')} {format_value(held)}" for key, held in plain.items())
        material.texts.append(said[:1].upper() + said[1:] + ".")
    for key, held in value.items():
        if isinstance(held, list) and all(isinstance(item, str) for item in cast("list[object]", held)):
            listed = ", ".join(cast("list[str]", held)) or "none"
            material.texts.append(f"{key.replace('_', ' ').capitalize()}: {listed}.")
        elif isinstance(held, dict | list):
            _add(material, cast("object", held), depth + 1)


def _place(material: Material, exhibit: Exhibit) -> None:
    match exhibit:
        case Table():
            material.tables.append(exhibit)
        case Figure():
            material.figures.append(exhibit)
        case Passages():
            material.passages.extend(exhibit.found)
        case Chart():
            material.charts.append(exhibit)


def read_product(value: object) -> Product:
    """A result as what its worker said and what its tools returned."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if "exhibits" in fields or fields.get("kind") == "partly":  # of a team: its answer, with what is missing in it
            try:
                return msgspec.convert(fields, Product, strict=False)
            except msgspec.ValidationError:
                pass
    if isinstance(value, str):
        return Product(value)
    material = gather([cast("object", value)])
    exhibits: tuple[Exhibit, ...] = (*material.tables, *material.figures, *material.charts)
    return Product("\n".join(material.texts), exhibits)


# --- words


def as_number(value: object) -> Decimal | None:
    """A cell as a number, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def format_value(value: object, decimals: int | None = None) -> str:
    """A cell as people read it: thousands separated, two decimals where a column has any."""
    if value is None:
        return "none"
    number = as_number(value) if not isinstance(value, str) else None
    if number is None:
        return str(value)
    if decimals is None:
        decimals = -int(number.normalize().as_tuple().exponent) if number != number.to_integral_value() else 0
    return f"{number:,.{max(0, decimals)}f}"


def column_decimals(table: Table, at: int) -> int | None:
    """How many decimals a column is shown with."""
    numbers = [
        number for row in table.rows if not isinstance(row[at], str) and (number := as_number(row[at])) is not None
    ]
    places = [
        -int(number.normalize().as_tuple().exponent) for number in numbers if number != number.to_integral_value()
    ]
    if not places:
        return None
    is_money = table.columns[at].rsplit("_", 1)[-1].upper() in {"EUR", "USD", "GBP", "CHF", "SEK"}
    return max(2, *places) if is_money else max(places)


def number_columns(table: Table) -> list[int]:
    """The columns that hold numbers to be read as such."""
    return [
        at
        for at, name in enumerate(table.columns)
        if table.rows
        and not _YEAR_COLUMN.search(name)
        and all(
            row[at] is None or (not isinstance(row[at], str) and as_number(row[at]) is not None) for row in table.rows
        )
    ]


def format_cell(table: Table, row: Sequence[object], at: int) -> str:
    if _YEAR_COLUMN.search(table.columns[at]) and isinstance(row[at], int):
        return str(row[at])
    return format_value(row[at], column_decimals(table, at))


def markdown_table(table: Table, most: int = 50) -> str:
    """The table in Markdown, numbers to the right."""
    numbers = set(number_columns(table))
    lines = [
        "| " + " | ".join(name.replace("|", "/") for name in table.columns) + " |",
        "| " + " | ".join("---:" if at in numbers else "---" for at in range(len(table.columns))) + " |",
    ]
    for row in table.rows[:most]:
        cells = [format_cell(table, row, at).replace("|", "/").replace("\n", " ") for at in range(len(table.columns))]
        lines.append("| " + " | ".join(cells) + " |")
    left = len(table.rows) - most + table.more if len(table.rows) > most else table.more
    if left > 0:
        lines.append(f"\n{left} more rows are not shown.")
    return "\n".join(lines)


def table_in_words(table: Table, title: str, words: frozenset[str] = frozenset()) -> str:
    """One line: the number, or each name with a number, that of the column that `words` name."""
    if not table.rows:
        return f"{title}: none."
    numbers = number_columns(table)
    if len(table.rows) == 1 and len(table.columns) == 1:
        return f"{title}: {format_cell(table, table.rows[0], 0)}."
    if not numbers and len(table.columns) == 1:
        names = ", ".join(str(row[0]) for row in table.rows[:_MOST_LISTED])
        return f"{title}: {names}{_and_more(table)}."
    if len(table.rows) > 1:
        named = [at for at in numbers if words & set(stems(table.columns[at]))]
        numbers = [*named, *(at for at in numbers if at not in named)]
    parts = [_row_in_words(table, row, numbers) for row in table.rows[:_MOST_LISTED]]
    separator = ", " if len(table.columns) <= 2 and numbers else "; "
    return f"{title}: {separator.join(parts)}{_and_more(table)}."


def _and_more(table: Table) -> str:
    left = len(table.rows) - _MOST_LISTED
    return f" and {left} more" if left > 0 else ""


def _row_in_words(table: Table, row: Sequence[object], numbers: list[int]) -> str:
    names = [format_cell(table, row, at) for at in range(len(row)) if at not in numbers]
    if len(numbers) == 1 or (len(table.rows) > 1 and names and numbers):
        return " ".join([", ".join(names), format_cell(table, row, numbers[0])])
    figures = [f"{table.columns[at].replace('_', ' ')} {format_cell(table, row, at)}" for at in numbers]
    return ", ".join([*names, *figures])


def rows_in_words(table: Table, title: str) -> str:
    """The rows of a list by their first two columns; the table has the rest."""
    numbers = number_columns(table)
    names = [
        at
        for at in range(len(table.columns))
        if at not in numbers and (at == 0 or not table.columns[at].endswith("_id"))
    ]
    shown = [*names[:2], *numbers[:1]]
    parts = [" ".join(format_cell(table, row, at) for at in shown) for row in table.rows[:_MOST_LISTED]]
    return f"{title}: {'; '.join(parts)}{_and_more(table)}."


def column_total(table: Table, at: int) -> Decimal:
    """The sum of a column."""
    return sum((as_number(row[at]) or Decimal(0) for row in table.rows), Decimal(0))


def figure_in_words(figure: Figure, label: str = "") -> str:
    """A figure with its label and unit."""
    name = figure.label or label
    value = format_value(as_number(figure.value) if as_number(figure.value) is not None else figure.value)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", figure.value):
        value = figure.value
    text = f"{value} {figure.unit}".strip()
    return f"{name[:1].upper()}{name[1:]}: {text}." if name else f"{text}."


def passage_in_words(passage: Passage) -> str:
    """A quotation with its source."""
    return f"{' '.join(passage.text.split())} ({passage.source})"


def chart_in_words(chart: Chart) -> str:
    return f'The chart "{shorten(chart.title, 120)}" shows: {chart.summary}'
