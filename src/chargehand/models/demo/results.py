"""What tools returned and what tasks found, by kind, and put into words and tables."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TypeVar, cast

import msgspec
from msgspec import Struct, field

from chargehand.models.artifacts import Artifact, Chart, Figure, FoundPassage, Passages, Table, WorkerOutput
from chargehand.models.demo.words import stems
from chargehand.models.messages import Message, ToolCall
from chargehand.text.words import shorten

_ENVELOPE = re.compile(r'<data ([0-9a-f]+) from "[^"\n]*">\n(.*)\n</data \1>', re.DOTALL)
_MOST_ITEMS = 50
_MOST_LISTED = 12
_YEAR_COLUMN = re.compile(r"(?:^|_)(?:id|year|order|number|launched)$")
_CURRENCIES = ("_eur", "_usd", "_gbp", "_chf", "_sek")


class ToolOutcome(Struct, frozen=True):
    """What came of one call: an error in words, or a value."""

    call: ToolCall
    error: str
    value: object


_Kind = TypeVar("_Kind", bound=Artifact)


class ResultMaterial(Struct):
    """Everything there is to work from."""

    artifacts: list[Artifact] = field(default_factory=list[Artifact])
    texts: list[str] = field(default_factory=list[str])

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        """The artifacts of a kind."""
        return [artifact for artifact in self.artifacts if isinstance(artifact, kind)]

    @property
    def passages(self) -> list[FoundPassage]:
        return [passage for passages in self.of(Passages) for passage in passages.found]


def read_outcomes(messages: Sequence[Message]) -> list[ToolOutcome]:
    """Every call that was answered, in order."""
    calls: dict[str, ToolCall] = {}
    outcomes: list[ToolOutcome] = []
    for message in messages:
        if message.role == "assistant":
            calls.update({call.id: call for call in message.calls})
        elif message.role == "tool" and message.call in calls:
            value = _decode(message.text)
            fields = cast("dict[str, object]", value if isinstance(value, dict) else {})
            error = str(fields["error"]) if list(fields) == ["error"] else ""
            outcomes.append(ToolOutcome(calls[message.call], error, cast("object", value)))
    return outcomes


def open_envelope(text: str) -> str:
    """What stands in an envelope, without what a loop may have written around it; a text without one as it is."""
    envelope = _ENVELOPE.search(text)
    return envelope[2] if envelope else text


def _decode(text: str) -> object:
    """JSON as what it is, and anything else as text."""
    body = open_envelope(text)
    try:
        return cast("object", msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return body


def gather(values: Iterable[object]) -> ResultMaterial:
    """All values by kind."""
    material = ResultMaterial()
    for value in values:
        _add(material, value)
    return material


def _add(material: ResultMaterial, value: object) -> None:
    if isinstance(value, bool):
        material.texts.append("Yes." if value else "No.")
    elif isinstance(value, str):
        material.texts.append(value)
    elif isinstance(value, int | float):
        material.artifacts.append(Figure(str(value)))
    elif isinstance(value, dict):
        _add_object(material, cast("dict[str, object]", value))
    elif isinstance(value, list | tuple):
        _add_list(material, list(cast("Sequence[object]", value)))


def _add_list(material: ResultMaterial, items: list[object]) -> None:
    """Objects that are no artifacts are the rows of a table."""
    rows = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    if rows and len(rows) == len(items) and "kind" not in rows[0]:
        columns = tuple(dict.fromkeys(key for row in rows for key in row))
        material.artifacts.append(Table(columns, tuple(tuple(row.get(key) for key in columns) for row in rows)))
        return
    for item in items[:_MOST_ITEMS]:
        _add(material, item)


def _add_object(material: ResultMaterial, value: dict[str, object]) -> None:
    """An artifact as it is; any other object as one line with its fields."""
    product = _as_product(value)
    if product is not None:
        material.artifacts += product.artifacts
        material.texts += [product.text] if product.text else []
    else:
        line = format_value(value)
        material.texts += [f"{line[:1].upper()}{line[1:]}."] if line else []


def _as_product(value: dict[str, object]) -> WorkerOutput | None:
    """What a tool or a worker returned; None for any other object."""
    try:
        if "artifacts" in value or {"text"} <= set(value) <= {"text", "sources"}:
            return msgspec.convert(value, WorkerOutput, strict=False)
        if "kind" in value:
            return WorkerOutput("", (msgspec.convert(value, Artifact, strict=False),))
    except msgspec.ValidationError:
        pass
    return None


# --- numbers


def as_number(value: object) -> Decimal | None:
    """A number, or a text that is one."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and not isinstance(value, bool) else None


def _decimals(number: Decimal) -> int:
    return max(0, -int(number.normalize().as_tuple().exponent))


def format_value(value: object, decimals: int | None = None) -> str:
    """A value as people read it: numbers with thousands separated and all their decimals, texts as they are."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return ", ".join(f"{name.replace('_', ' ')} {format_value(fields[name])}" for name in fields)
    if isinstance(value, list):
        return ", ".join(format_value(item) for item in cast("list[object]", value)) or "none"
    number = None if isinstance(value, str) else as_number(value)
    if number is None:
        return "none" if value is None else str(value)
    return f"{number:,.{_decimals(number) if decimals is None else decimals}f}"


def column_numbers(table: Table, at: int) -> list[Decimal]:
    """The numbers in a column; texts are none, though they may have digits."""
    cells = [row[at] for row in table.rows if not isinstance(row[at], str)]
    return [number for cell in cells if (number := as_number(cell)) is not None]


def number_columns(table: Table) -> list[int]:
    """The columns that hold numbers to be read as such."""
    numbers: list[int] = []
    for at, name in enumerate(table.columns):
        values = [row[at] for row in table.rows if row[at] is not None]
        if table.rows and not _YEAR_COLUMN.search(name) and len(values) == len(column_numbers(table, at)):
            numbers.append(at)
    return numbers


def format_cell(table: Table, row: Sequence[object], at: int) -> str:
    """A cell with as many decimals as its column has, and for money with two."""
    name = table.columns[at].lower()
    if _YEAR_COLUMN.search(name) and isinstance(row[at], int):
        return str(row[at])
    decimals = max(map(_decimals, column_numbers(table, at)), default=0)
    return format_value(row[at], max(2, decimals) if decimals and name.endswith(_CURRENCIES) else decimals)


# --- words


def markdown_table(table: Table) -> str:
    """The table in Markdown, numbers to the right."""
    numbers = number_columns(table)
    places = range(len(table.columns))
    rows = [list(table.columns), ["---:" if at in numbers else "---" for at in places]]
    rows += [[format_cell(table, row, at) for at in places] for row in table.rows[:_MOST_ITEMS]]
    lines = [" | ".join(cell.replace("|", "/").replace("\n", " ") for cell in row) for row in rows]
    text = "\n".join(f"| {line} |" for line in lines)
    hidden = max(0, len(table.rows) - _MOST_ITEMS) + table.more
    return f"{text}\n\n{hidden} more rows are not shown." if hidden else text


def table_in_words(table: Table, title: str, words: frozenset[str] = frozenset()) -> str:
    """One line: each row by its names with its numbers, or with that of the column that `words` name."""
    numbers = number_columns(table)
    names = [at for at in range(len(table.columns)) if at not in numbers]
    numbers = [at for at in numbers if words.intersection(stems(table.columns[at]))] or numbers
    is_plain = len(names) < 2 and len(numbers) < 2
    parts: list[str] = []
    for row in table.rows[:_MOST_LISTED]:
        cells = [format_cell(table, row, at) for at in names]
        for at in numbers:
            label = "" if is_plain else f"{table.columns[at].replace('_', ' ')} "
            cells.append(label + format_cell(table, row, at))
        parts.append((" " if is_plain else ", ").join(cells))
    hidden = max(0, len(table.rows) - _MOST_LISTED) + table.more
    more = f" and {hidden} more" if hidden > 0 else ""
    return f"{title}: {(', ' if is_plain else '; ').join(parts) or 'none'}{more}."


def figure_in_words(figure: Figure, label: str = "") -> str:
    """A figure with its label and unit."""
    name = figure.label or label
    number = as_number(figure.value)
    text = f"{figure.value if number is None else format_value(number)} {figure.unit}".strip()
    return f"{name[:1].upper()}{name[1:]}: {text}." if name else f"{text}."


def passage_in_words(passage: FoundPassage) -> str:
    """A quotation with its source."""
    return f"{' '.join(passage.text.split())} ({passage.source})"


def in_words(material: ResultMaterial, title: str, words: frozenset[str] = frozenset()) -> list[str]:
    """Everything that a tool returned; of tables the columns that `words` name."""
    texts = [table_in_words(table, title, words) for table in material.of(Table)]
    texts += [figure_in_words(figure, title) for figure in material.of(Figure)]
    texts += [passage_in_words(passage) for passage in material.passages]
    texts += [f'The chart "{shorten(chart.title, 120)}" shows: {chart.summary}' for chart in material.of(Chart)]
    return texts + [text.strip() for text in material.texts]
