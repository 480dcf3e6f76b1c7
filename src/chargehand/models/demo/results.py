"""What tools returned and what tasks found, put into words and tables, and the answer written from it."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import TypeVar, cast

import msgspec
from msgspec import Struct, field

from chargehand.models.artifacts import Artifact, Figure, FoundPassage, Passages, Product, Table
from chargehand.models.demo.request import MENTIONS_MODEL, shorten, stems, without_returns
from chargehand.models.messages import Message, ToolCall
from chargehand.models.partial_text import LEFT
from chargehand.models.request_facts import Answering, Given

_ENVELOPE = re.compile(r'<data ([0-9a-f]+) from "[^"\n]*">\n(.*)\n</data \1>', re.DOTALL)
_DEEPEST = 4
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


class DemoMaterial(Struct):
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


def _decode(text: str) -> object:
    """JSON as what it is, and anything else as text."""
    envelope = _ENVELOPE.match(text)  # what a loop may have written after it is not part of it
    body = envelope[2] if envelope else text
    try:
        return cast("object", msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return body


def gather(values: Iterable[object]) -> DemoMaterial:
    """All values by kind."""
    material = DemoMaterial()
    for value in values:
        _add(material, value, 0)
    return material


def _add(material: DemoMaterial, value: object, depth: int) -> None:
    if value is None or depth > _DEEPEST:
        return
    if isinstance(value, bool):
        material.texts.append("Yes." if value else "No.")
    elif isinstance(value, str):
        material.texts.append(value)
    elif isinstance(value, int | float):
        material.artifacts.append(Figure(str(value)))
    elif isinstance(value, dict):
        _add_object(material, cast("dict[str, object]", value), depth)
    elif isinstance(value, list | tuple):
        _add_list(material, list(cast("Sequence[object]", value)), depth)


def _add_list(material: DemoMaterial, items: list[object], depth: int) -> None:
    """Objects that are no artifacts are the rows of a table."""
    rows = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    if rows and len(rows) == len(items) and "kind" not in rows[0]:
        columns = tuple(dict.fromkeys(key for row in rows for key in row))
        material.artifacts.append(Table(columns, tuple(tuple(row.get(key) for key in columns) for row in rows)))
        return
    for item in items[:_MOST_ITEMS]:
        _add(material, item, depth + 1)


def _add_object(material: DemoMaterial, value: dict[str, object], depth: int) -> None:
    """An artifact as it is; of any other object one line with its plain fields, and what is nested behind it."""
    product = _as_product(value)
    if product is not None:
        material.artifacts += product.artifacts
        material.texts += [product.text] if product.text else []
        return
    nested = [key for key, item_value in value.items() if isinstance(item_value, dict | list)]
    plain = [f"{key.replace('_', ' ')} {format_value(value[key])}" for key in value if key not in nested]
    if plain:
        line = ", ".join(plain)
        material.texts.append(f"{line[:1].upper()}{line[1:]}.")
    for key in nested:
        item_value = value[key]
        if isinstance(item_value, list) and all(isinstance(item, str) for item in cast("list[object]", item_value)):
            listed = ", ".join(cast("list[str]", item_value)) or "none"
            material.texts.append(f"{key.replace('_', ' ').capitalize()}: {listed}.")
        else:
            _add(material, value[key], depth + 1)


def _as_product(value: dict[str, object]) -> Product | None:
    """What a tool or a worker returned; None for any other object."""
    try:
        if "artifacts" in value or {"text"} <= set(value) <= {"text", "sources"}:
            return msgspec.convert(value, Product, strict=False)
        if "kind" in value:
            return Product("", (msgspec.convert(value, Artifact, strict=False),))
    except msgspec.ValidationError:
        pass
    return None


def read_product(value: object) -> Product:
    """A result as what its worker said and what its tools returned."""
    material = gather([value])
    return Product("\n".join(material.texts), tuple(material.artifacts))


# --- numbers


def as_number(value: object) -> Decimal | None:
    """A number, or a text that is one."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and not isinstance(value, bool) else None


def _cell_number(value: object) -> Decimal | None:
    """A cell as a number; texts are none, though they may have digits."""
    return None if isinstance(value, str) else as_number(value)


def _decimals(number: Decimal) -> int:
    return max(0, -int(number.normalize().as_tuple().exponent))


def format_value(value: object, decimals: int | None = None) -> str:
    """A cell as people read it: thousands separated, with as many decimals as it has."""
    number = _cell_number(value)
    if number is None:
        return "none" if value is None else str(value)
    return f"{number:,.{_decimals(number) if decimals is None else decimals}f}"


def column_numbers(table: Table, at: int) -> list[Decimal]:
    """The numbers in a column."""
    return [number for row in table.rows if (number := _cell_number(row[at])) is not None]


def column_decimals(table: Table, at: int) -> int:
    """How many decimals a column is shown with: none, or for money at least two."""
    decimals = max(map(_decimals, column_numbers(table, at)), default=0)
    is_money = table.columns[at].lower().endswith(_CURRENCIES)
    return max(2, decimals) if decimals and is_money else decimals


def number_columns(table: Table) -> list[int]:
    """The columns that hold numbers to be read as such."""
    numbers: list[int] = []
    for at, name in enumerate(table.columns):
        values = [row[at] for row in table.rows if row[at] is not None]
        if table.rows and not _YEAR_COLUMN.search(name) and len(values) == len(column_numbers(table, at)):
            numbers.append(at)
    return numbers


def format_cell(table: Table, row: Sequence[object], at: int) -> str:
    if _YEAR_COLUMN.search(table.columns[at]) and isinstance(row[at], int):
        return str(row[at])
    return format_value(row[at], column_decimals(table, at))


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
    parts: list[str] = []
    for row in table.rows[:_MOST_LISTED]:
        cells = [format_cell(table, row, at) for at in names]
        if len(numbers) == 1 and len(names) < 2:
            parts.append(f"{', '.join(cells)} {format_cell(table, row, numbers[0])}".strip())
        else:
            cells += [f"{table.columns[at].replace('_', ' ')} {format_cell(table, row, at)}" for at in numbers]
            parts.append(", ".join(cells))
    separator = ", " if len(names) < 2 and len(numbers) < 2 else "; "
    hidden = len(table.rows) - _MOST_LISTED
    more = f" and {hidden} more" if hidden > 0 else ""
    return f"{title}: {separator.join(parts) or 'none'}{more}."


def figure_in_words(figure: Figure, label: str = "") -> str:
    """A figure with its label and unit."""
    name = figure.label or label
    number = as_number(figure.value)
    text = f"{figure.value if number is None else format_value(number)} {figure.unit}".strip()
    return f"{name[:1].upper()}{name[1:]}: {text}." if name else f"{text}."


def passage_in_words(passage: FoundPassage) -> str:
    """A quotation with its source."""
    return f"{' '.join(passage.text.split())} ({passage.source})"


# --- the answer


_KEPT = ("Kept in the archive", "Added to the block", "Not kept:")
_SOURCE_BEHIND = re.compile(r"\s\([\w./-]+\.\w+(?:#[\w-]+)?\)\Z")
_FORMS = ("Memo", "Report", "Summary", "Outline", "Letter", "Reply", "Note", "Overview")
_LONGEST_LINE = 600


class AnswerPart(Struct, frozen=True):
    """The result of one task, cut into what was found, what was kept and what was left out."""

    result: Given
    text: str
    artifacts: tuple[Artifact, ...]
    lines: list[str]
    memory_lines: list[str]
    missing: list[str]

    @property
    def task(self) -> str:
        return self.result.task

    @property
    def is_text(self) -> bool:
        """Whether it was written as one text, such as the answer of a team; it is shown whole."""
        if len(self.lines) < 2:
            return False
        marks = ("#", "    ", "\t")  # headings, code
        return self.lines[0].startswith(_FORMS) or any(line.startswith(marks) for line in self.text.splitlines())


def write_answer(subject: Answering) -> str:
    """One answer from all results, in Markdown."""
    parts = [_read_part(result) for result in subject.results if result.value is not None]
    texts = [part for part in parts if part.is_text]
    written = "\n".join(part.text for part in texts)
    facts = [part for part in parts if not part.is_text]
    sections = [f"{part.text.strip()}\n\n[{part.task}]" for part in texts]
    sections.append(_section("", _bullets(facts, written)))
    if subject.combine != "reduce":
        sections += _tables(parts)
        sections.append(_section("### Notes\n\n", _notes(facts, written)))
    sections.append(_section("## Sources\n\n", _sources(parts)))
    sections.append(
        _section("## Kept\n\n", [f"- [{part.task}] {line}" for part in parts for line in part.memory_lines])
    )
    if missing := _missing(subject, parts):
        sections.append(_section("## Not answered\n\n", missing) + f"\n\n{MENTIONS_MODEL}")
    return "\n\n".join(filter(None, sections)) or f"Nothing was found. {MENTIONS_MODEL}"


def _section(heading: str, lines: Iterable[str]) -> str:
    text = "\n".join(dict.fromkeys(lines))
    return heading + text if text else ""


def _read_part(result: Given) -> AnswerPart:
    product = read_product(result.value)
    lines = [line.strip() for line in product.text.splitlines() if line.strip() and not line.startswith("Sources: ")]
    if not lines:
        lines = [figure_in_words(artifact) for artifact in product.artifacts if isinstance(artifact, Figure)]
        lines += [table_in_words(artifact, "Result") for artifact in product.artifacts if isinstance(artifact, Table)]
    return AnswerPart(
        result=result,
        text=product.text,
        artifacts=product.artifacts,
        lines=[line for line in lines if not line.startswith((*_KEPT, LEFT))],
        memory_lines=[line for line in lines if line.startswith(_KEPT)],
        missing=[line.removeprefix(LEFT) for line in lines if line.startswith(LEFT)],
    )


def _bullets(facts: list[AnswerPart], written: str) -> list[str]:
    """The first line of each result with its task; with the worker where all were asked the same."""
    listed = [part for part in facts if part.lines and part.lines[0] not in written]
    asked_alike = len(listed) > 1 and len({part.result.instruction.partition("\n")[0] for part in listed}) == 1
    bullets: list[str] = []
    for part in listed:
        text = _SOURCE_BEHIND.sub("", shorten(part.lines[0], _LONGEST_LINE))
        cited = f"{text[:-1]} [{part.task}]." if text.endswith(".") else f"{text} [{part.task}]"
        bullets.append(f"- {part.result.worker}: {cited}" if asked_alike else f"- {cited}")
    return bullets


def _tables(parts: list[AnswerPart]) -> list[str]:
    headings: dict[str, str] = {}
    for part in parts:
        heading = without_returns(part.result.instruction).partition(". ")[0].rstrip("?. ")
        for table in part.artifacts:
            if isinstance(table, Table) and (len(table.rows) > 1 or (table.rows and len(table.columns) > 2)):
                headings.setdefault(markdown_table(table), f"### {shorten(heading, 100)} [{part.task}]")
    return [f"{heading}\n\n{text}" for text, heading in headings.items()]


def _notes(facts: list[AnswerPart], written: str) -> list[str]:
    """What a result says beyond its first line, and how figures were worked out."""
    notes: list[str] = []
    for part in facts:
        lines = [line for line in part.lines[1:] if line not in written]
        notes += [f"- {shorten(line, _LONGEST_LINE)} [{part.task}]" for line in lines]
        figures = [artifact for artifact in part.artifacts if isinstance(artifact, Figure) and artifact.expression]
        notes += [f"- Worked out as `{figure.expression}` [{part.task}]." for figure in figures]
    return notes


def _sources(parts: list[AnswerPart]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        sources: list[str] = []
        for artifact in part.artifacts:
            if isinstance(artifact, Passages):
                sources += [passage.source for passage in artifact.found if passage.text.strip()[:40] in part.text]
            elif isinstance(artifact, Table) and artifact.query:
                sources.append(f"{artifact.source}: `{artifact.query}`")
            elif isinstance(artifact, Table | Figure) and artifact.source:
                sources.append(artifact.source)
        if sources and "## Sources" not in part.text:  # a team has named them
            lines.append(f"- [{part.task}] {'; '.join(dict.fromkeys(sources))}")
    return lines


def _missing(subject: Answering, parts: list[AnswerPart]) -> list[str]:
    """The gaps of tasks, and what results say they left out; what no task was planned for is added to every answer."""
    instructions = {result.task: without_returns(result.instruction).rstrip("?. ") for result in subject.results}
    lines: list[tuple[str, str]] = []
    for gap in subject.gaps:
        if gap.message and gap.task:
            is_of_run = gap.reason != "logic" and gap.task in instructions  # it does not say what was asked
            lines.append(
                (gap.task, f"{instructions[gap.task]}: {gap.message.rstrip('.')}." if is_of_run else gap.message)
            )
    lines += [(part.task, line) for part in parts for line in part.missing]
    plain = [(task, line.replace(MENTIONS_MODEL, "").strip()) for task, line in lines]
    return [f"- {line[:1].upper()}{line[1:]} [{task}]" for task, line in plain]
