"""What a worker has to work from: what its tools returned and what it was given, as exhibits, texts and plain values.

Nothing is chosen or worked out here, except which columns of a table are names and which are numbers.
"""

import re
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from msgspec import Struct, field

from chargehand.models.envelope import unwrap
from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Product, Table
from chargehand.models.messages import Message, ToolCall
from chargehand.models.offline.words import related, terms

_OPENING = re.compile(r"<data ([0-9a-f]+) from")
_CODES = frozenset({"eur", "usd", "gbp", "chf", "sek", "nok", "dkk", "jpy", "cad", "aud"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")


class Outcome(Struct, frozen=True):
    """What came of one call: an error in words, or a value."""

    call: ToolCall
    step: int
    error: str = ""
    value: object = None


class Material(Struct):
    tables: list[Table] = field(default_factory=list[Table])
    figures: list[Figure] = field(default_factory=list[Figure])
    passages: list[Passages] = field(default_factory=list[Passages])
    charts: list[Chart] = field(default_factory=list[Chart])
    texts: list[str] = field(default_factory=list[str])
    objects: list[dict[str, object]] = field(default_factory=list[dict[str, object]])

    @property
    def empty(self) -> bool:
        return not (self.tables or self.figures or self.passages or self.charts or self.texts or self.objects)


class Series(Struct, frozen=True):
    """Names and numbers out of a table, and the columns they stand in."""

    labels: tuple[str, ...]
    values: tuple[str, ...]
    label: str
    value: str


def outcomes(messages: Sequence[Message]) -> list[Outcome]:
    """Every call that was answered, in order."""
    asked: dict[str, tuple[ToolCall, int]] = {}
    found: list[Outcome] = []
    step = 0
    for message in messages:
        if message.role == "assistant" and message.calls:
            step += 1
            asked.update({call.id: (call, step) for call in message.calls})
        elif message.role == "tool" and message.call in asked:
            call, number = asked[message.call]
            found.append(_outcome(call, number, message.text))
    return found


def _outcome(call: ToolCall, step: int, text: str) -> Outcome:
    body = _body(text)
    value = _decoded(body)
    said = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if set(said) == {"error"}:
        return Outcome(call, step, str(said["error"]))
    return Outcome(call, step, value=cast("object", value))


def _body(text: str) -> str:
    """The data in an envelope; what a loop may have written after it is not part of it."""
    if opening := _OPENING.match(text):
        closing = f"</data {opening[1]}>"
        text = text[: text.rfind(closing) + len(closing)]
    found = unwrap(text)
    return found[1] if found else text


def _decoded(body: str) -> object:
    """JSON as what it is, a table that was cut as far as it goes, and anything else as text."""
    for attempt in (body, body[: body.rfind("],") + 1] + "]}" if '"rows":[[' in body else ""):
        try:
            return msgspec.json.decode(attempt) if attempt else body
        except (msgspec.DecodeError, RecursionError):
            continue
    return body


def gather(values: Iterable[object]) -> Material:
    found = Material()
    for value in values:
        _add(found, value)
    return found


def _add(found: Material, value: object, depth: int = 0) -> None:
    if value is None or depth > 4:
        return
    if isinstance(value, str):
        found.texts.append(value)
    elif isinstance(value, int | float):
        found.figures.append(Figure(_plain(value)))
    elif isinstance(value, list | tuple):
        _add_list(found, list(cast("Sequence[object]", value)), depth)
    elif isinstance(value, dict):
        _add_object(found, cast("dict[str, object]", value), depth)


def _add_list(found: Material, items: list[object], depth: int) -> None:
    rows = [cast("dict[str, object]", one) for one in items if isinstance(one, dict)]
    if rows and len(rows) == len(items) and "kind" not in rows[0] and not any(_nested(row) for row in rows):
        columns = tuple(dict.fromkeys(key for row in rows for key in row))
        found.tables.append(Table(columns, tuple(tuple(row.get(key) for key in columns) for row in rows)))
        return
    for one in items[:50]:
        _add(found, one, depth + 1)


def _nested(row: dict[str, object]) -> bool:
    return any(isinstance(value, dict | list) for value in row.values())


def _add_object(found: Material, value: dict[str, object], depth: int) -> None:
    try:
        if "kind" in value:
            _place(found, msgspec.convert(value, Exhibit, strict=False))
            return
        if "exhibits" in value or set(value) <= {"text", "sources"}:
            product = msgspec.convert(value, Product, strict=False)
            for one in product.exhibits:
                _place(found, one)
            if product.text:
                found.texts.append(product.text)
            return
    except msgspec.ValidationError:
        pass
    found.objects.append(value)
    for one in value.values():
        if isinstance(one, dict) or (
            isinstance(one, list) and any(isinstance(item, dict) for item in cast("list[object]", one))
        ):
            _add(found, cast("object", one), depth + 1)


def _place(found: Material, exhibit: Exhibit) -> None:
    match exhibit:
        case Table():
            found.tables.append(exhibit)
        case Figure():
            found.figures.append(exhibit)
        case Passages():
            found.passages.append(exhibit)
        case Chart():
            found.charts.append(exhibit)


def number(value: object) -> str:
    """A value as a plain decimal, or nothing where it is none."""
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return _plain(value)
    said = str(value).strip().replace(",", "")
    return said if _NUMBER.match(said) else ""


def _plain(value: float) -> str:
    if isinstance(value, float):
        return f"{value:.10f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else repr(value)
    return str(value)


def series(table: Table, wanted: str) -> Series | None:
    """The first column of names and the column of numbers that the words want; None in a table without both."""
    places = range(len(table.columns))
    numeric = [at for at in places if _all(table, at)] or [at for at in places if at and _written(table, at)]
    names = [at for at in places if at not in numeric]
    if not numeric or not table.rows:
        return None
    label = names[0] if names else numeric[0]
    rest = [at for at in numeric if at != label] or numeric
    value = max(rest, key=lambda at: (_fit(table.columns[at], wanted), -at))
    labels = tuple(str(row[label]) for row in table.rows)
    if len(names) > 1 and len(set(labels)) < len(labels):  # the first column alone does not tell them apart
        labels = tuple(", ".join(str(row[at]) for at in names) for row in table.rows)
    if len(set(labels)) < len(labels) and len(rest) > 1:  # numbers may be groups too: steps by algorithm and size
        whole = tuple(f"{name}, {row[rest[0]]}" for name, row in zip(labels, table.rows, strict=True))
        labels, value = (whole, rest[-1]) if len(set(whole)) == len(whole) else (labels, value)
    values = tuple(number(row[value]) for row in table.rows)
    return Series(labels, values, table.columns[label], table.columns[value])


def _all(table: Table, at: int) -> bool:
    cells = [row[at] for row in table.rows if len(row) > at]
    name = table.columns[at].lower()
    if not cells or name.endswith("_id") or name in {"id", "year"} or any(isinstance(cell, str) for cell in cells):
        return False
    return all(number(cell) for cell in cells)


def _written(table: Table, at: int) -> bool:
    """Numbers that came as text count only where a table has no others."""
    return all(number(row[at]) for row in table.rows if len(row) > at)


def _fit(column: str, wanted: str) -> float:
    """How much the words speak of a column."""
    theirs = terms(wanted)
    return max((related(one, other) for one in terms(column) for other in theirs), default=0.0)


def words_of(column: str) -> str:
    """The name of a column as words: `revenue_eur` is revenue in EUR."""
    parts = column.replace("-", "_").split("_")
    if len(parts) > 1 and parts[-1].lower() in _CODES:
        return f"{' '.join(parts[:-1])} in {parts[-1].upper()}"
    if len(parts) > 1 and parts[-1] == "percent":
        return f"{' '.join(parts[:-1])} in percent"
    return " ".join(parts)
