"""What was found, in a few plain sentences: numbers with their names, quotations with their sources."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import cast

from msgspec import Struct

from chargehand.models.exhibits import Chart, Figure, Passage, Passages, Table
from chargehand.models.offline.evidence import answers
from chargehand.models.offline.material import Material, number, series, words_of
from chargehand.models.offline.references import when
from chargehand.models.offline.text_to_sql import Asked
from chargehand.models.offline.words import related, terms

_MONEY_WORDS = "revenue price cost profit amount fee total sales income turnover value spend eur usd gbp chf sek"
_MONEY = frozenset(_MONEY_WORDS.split())
_WITH = re.compile(r"\bwith (-?\d+(?:,\d{3})*(?:\.\d+)?)")
_ROWS = 8
_NO_AMOUNT = frozenset(
    {"id", "year", "period", "code", "no", "number", "zip", "isbn", "founded", "launched", "built", "published", "born"}
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'])")
_QUOTED = 3
# words for documents: that a text has them does not make it one about the matter
_PAPERS = frozenset(terms("document incident report note policy contract file page say rule agreement find passage"))


class Named(Struct, frozen=True):
    """A computed number, what it is called, and what it was made from."""

    figure: Figure
    label: str
    unit: str = ""
    of: str = ""


def shown(value: object, *, money: bool = False) -> str:
    """A number as people write it; anything else as it is."""
    plain = number(value)
    if not plain:
        return "nothing" if value is None else str(value)
    if isinstance(value, str) and (plain.startswith("0") and len(plain) > 1 and not plain.startswith("0.")):
        return value  # a code with a leading zero is no number
    amount = Decimal(plain)
    if amount == amount.to_integral_value():
        return f"{amount:,.2f}" if money else f"{amount.to_integral_value():,}"
    if money or abs(amount) >= 100:
        return f"{amount:,.2f}" if money else f"{amount.quantize(Decimal('0.01')):,}"
    return f"{amount.quantize(Decimal('0.0001')).normalize():f}"


def exact(value: str) -> str:
    """A computed number as it is where that is short, else rounded."""
    whole, _, rest = value.partition(".")
    if len(rest) == 1 and len(whole.lstrip("-")) > 2:
        rest += "0"  # amounts of some size are shown with two places, all alike
    return (
        f"{int(whole):,}.{rest}" if 0 < len(rest) <= 4 and number(value) and whole not in {"-0", ""} else shown(value)
    )


_CHANGE = re.compile(r"\bby how much\b|\bdifference\b|\bhow (?:much )?did \S+ change\b", re.IGNORECASE)


def is_money(column: str) -> bool:
    return bool(_MONEY & set(column.lower().split("_"))) and "percent" not in column


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def table_text(table: Table, text: str, asked: Asked | None = None) -> str:
    """A table in one or a few sentences."""
    about = f" for {', '.join(asked.about)}" if asked and asked.about and len(asked.about) <= 4 else ""
    about += f" without {', '.join(asked.left_out)}" if asked and asked.left_out else ""
    period = f" {when(text)}" if asked and when(text) and not asked.contrast else ""
    if not table.rows or all(cell is None for row in table.rows for cell in row):
        return f"No rows were found{about}{period}."
    if len(table.rows) == 1:
        return _row_text(table, about + period)
    if asked and asked.parameter and len(table.columns) == 2:
        listed = "; ".join(f"{words_of(asked.parameter)} {row[0]}: {shown(row[1])}" for row in table.rows[: 3 * _ROWS])
        return f"{capital(words_of(asked.measured))}{about}{period}: {listed}."
    values = series(table, text) if not (asked and asked.parameter) else None
    if values is None or len(table.columns) > 3 or len(table.columns) - 1 > len(values.label.split(",")) + 1:
        return _lines(table, about + period)
    money = is_money(values.value) and any("." in one for one in _column(table, values.value))
    digits = 0 if money else max(-int(Decimal(one).as_tuple().exponent) for one in values.values)
    cells = [_even(one, digits) if 0 < digits <= 2 else shown(one, money=money) for one in values.values]
    cells = list(values.values) if _NO_AMOUNT & set(values.value.lower().split("_")) else cells
    listed = [f"{label} {cell}" for label, cell in zip(values.labels, cells, strict=True)]
    more = len(listed) - _ROWS + table.more
    shown_rows = ", ".join(listed[:_ROWS]) + (f", and {more} more" if more > 0 else "")
    grouped = f" by {words_of(values.label)}" if not asked or asked.grouped else ""
    together = _together(values.values, values.value, asked, table)
    return f"{capital(words_of(values.value))}{grouped}{about}{period}: {shown_rows}.{together}"


def _column(table: Table, name: str) -> list[str]:
    at = table.columns.index(name)
    return [str(row[at]) for row in table.rows if len(row) > at]


def _even(value: str, digits: int) -> str:
    return f"{Decimal(value):,.{digits}f}"


def _together(values: Sequence[str], column: str, asked: Asked | None, table: Table) -> str:
    """The total, where adding up makes sense and all is there."""
    if asked is None or asked.limited or asked.contrast or table.more or not asked.measured or len(asked.grouped) != 1:
        return ""
    if {"average", "highest", "lowest", "percent", "rate"} & set(column.split("_")) or asked.measured != column:
        return ""
    cents = is_money(column) and any("." in one for one in _column(table, column))
    return f" Together: {shown(str(sum(map(Decimal, values))), money=cents)}."


def _row_text(table: Table, about: str) -> str:
    cells = dict(zip(table.columns, table.rows[0], strict=False))
    if len(cells) == 1:
        ((column, value),) = cells.items()
        return f"{capital(words_of(column))}{about}: {_cell(column, value)}."
    return f"{capital(_cells(table.columns, table.rows[0]))}{about}."


def _lines(table: Table, about: str) -> str:
    rows = [f"- {_named(table, row)}" for row in table.rows[:_ROWS]]
    if len(table.columns) == 1:
        listed = ", ".join(str(row[0]) for row in table.rows[: 3 * _ROWS])
        return f"{capital(words_of(table.columns[0]))}{about}: {listed}."
    more = len(table.rows) - len(rows) + table.more
    lines = [f"{len(table.rows) + table.more} rows{about}:", *rows]
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def _named(table: Table, row: Sequence[object]) -> str:
    """A row after its name, where the first column has a name of its own for each."""
    names = [each[0] for each in table.rows if each]
    if len(row) < 3 or not all(isinstance(one, str) and not number(one) for one in names) or len({*names}) < len(names):
        return _cells(table.columns, row)
    return f"{row[0]}: {_cells(table.columns[1:], row[1:])}"


def _cells(columns: Sequence[str], row: Sequence[object]) -> str:
    pairs = zip(columns, row, strict=False)
    return ", ".join(f"{words_of(column)} {_cell(column, cell)}" for column, cell in pairs)


def _cell(column: str, cell: object) -> str:
    if _NO_AMOUNT & set(column.lower().split("_")):
        return str(cell)  # an order has a number, not an amount
    return shown(cell, money=is_money(column) and "." in str(cell))


def figure_text(figure: Figure, label: str = "", unit: str = "") -> str:
    name = label or figure.label
    value = shown(figure.value, money=True) if len(unit) == 3 and unit.isupper() else exact(figure.value)
    said = " ".join(part for part in (value, unit or figure.unit) if part)
    if not name:
        return f"{figure.expression} is {said}." if figure.expression else f"{capital(said)}."
    return f"{name} = {said}." if name == figure.expression else f"{capital(name)}: {said}."


def passages_text(found: Passages, text: str) -> str:
    """The passages that say most about the task, each with its source, shortened to the sentences that matter."""
    if not found.found:
        return f"Nothing was found about {found.query}."
    wanted = [term for term in (*terms(found.query), *terms(text)) if not term[0].isdigit()]
    named = [one for one in found.found if _shared(_file(one.source), wanted) >= 1]
    fitting = [one for one in found.found if answers(text, one)]
    pool = (named if not fitting or any(one in named for one in fitting) else fitting) if named else list(found.found)
    kept = _telling(sorted(pool, key=lambda one: -round(_shared(f"{one.source} {one.text}", wanted))), wanted)
    return "\n".join(f"{_best(one.text, wanted)} ({one.source})" for one in kept)


def _telling(pool: Sequence[Passage], wanted: Sequence[str]) -> list[Passage]:
    """Few passages: the best, those nearly as good, and those that speak of something the others do not."""
    top = max(one.score for one in pool)
    kept: list[Passage] = []
    seen: set[str] = set()
    most = 0
    for one in pool:
        said, own = _said(one, wanted)
        most = most or len(own)
        as_good = bool(own) and 2 * len(own) >= most and one.score >= top / 2
        if not kept or as_good or (said - seen and one.score >= top / 4):
            kept.append(one)
            seen |= said
    few = kept[:_QUOTED]
    parts = {one.source.partition("#")[2] for one in few}
    if len(few) < 2 or len(parts) > 1 or "" in parts:
        return few
    # the same clause of several contracts: none is left out
    return [one for one in pool if one.source.partition("#")[2] in parts]


def _said(one: Passage, wanted: Sequence[str]) -> tuple[set[str], set[str]]:
    """The words of a task that a passage says, and those of them that are not only the name of its document."""
    said = {term for term in terms(f"{one.source} {one.text}") if term in wanted and not term[0].isdigit()} - _PAPERS
    return said, said - set(terms(_file(one.source)))


def _file(source: str) -> str:
    """The words of a document's name: a task that names it wants that one."""
    return re.sub(r"\.\w+$", "", source.partition("#")[0])


def _best(text: str, wanted: Sequence[str]) -> str:
    """Up to three sentences of a passage in their order, those that share most words with the task."""
    sentences = _SENTENCE.split(" ".join(text.split()))
    ranked = sorted(range(len(sentences)), key=lambda at: (-_shared(sentences[at], wanted), at))[:_QUOTED]
    return " ".join(sentences[at] for at in sorted(ranked))


def _shared(sentence: str, wanted: Sequence[str]) -> float:
    own = terms(sentence)
    return sum(max((related(one, other) for other in own), default=0.0) for one in set(wanted))


def chart_text(chart: Chart) -> str:
    told = chart.summary or "the values as given"
    cents = any("." in value for value in _WITH.findall(told))
    if cents and is_money("_".join(chart.title.lower().split())):
        told = _WITH.sub(lambda found: f"with {Decimal(found[1].replace(',', '')):,.2f}", told)
    return f'The chart "{chart.title}" shows: {told}'


def objects_text(objects: Iterable[dict[str, object]], text: str = "") -> list[str]:
    """Each object in a line, with what the task speaks of first."""
    found: list[str] = []
    wanted = terms(text)
    for one in objects:
        plain = {key: said for key, value in one.items() if (said := _plain(value)) is not None}
        order = sorted(plain, key=lambda key: -_shared(words_of(key), wanted))
        parts = [f"{words_of(key)} {shown(plain[key])}" for key in order]
        if parts:
            found.append(capital("; ".join(parts)) + ".")
    return found


def _plain(value: object) -> object:
    """A value that fits in a line: also a short list of such; None for anything else."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        listed = ", ".join(str(one) for one in items[:_ROWS]) + (", ..." if len(items) > _ROWS else "")
        return None if any(isinstance(one, dict | list) for one in items) else listed or "none"
    return None if isinstance(value, dict) else value


def _figures(figures: Sequence[Figure], computed: Sequence[Named]) -> list[str]:
    """What was computed first, then what it was computed from, where the first does not say it already."""
    named = {one.figure.expression: one for one in computed}
    made = [named[one.expression] for one in figures if one.expression and one.expression in named]
    rest = [one for one in figures if not one.expression or one.expression not in named]
    said = [_made(one) for one in made]
    said += [figure_text(one) for one in rest if not (one.label and any(one.label in other.of for other in made))]
    return said


def _made(one: Named) -> str:
    text = figure_text(one.figure, one.label, one.unit)
    return f"{text.rstrip('.')} ({one.of})." if one.of else text


def _by_how_much(table: Table, text: str) -> str:
    """The difference between two periods, where it is asked for and nobody had a calculator."""
    values = series(table, text)
    if not _CHANGE.search(text) or values is None or len(values.values) != 2 or len(table.rows) != 2:
        return ""
    (early, one), (late, other) = sorted(zip(values.labels, values.values, strict=True))
    return f"Difference from {early} to {late}: {shown(str(Decimal(other) - Decimal(one)))}."


def nothing(table: Table) -> bool:
    """Whether a table holds no number but zero: of days that are not on record that is no count."""
    return all(cell is None or cell == 0 for row in table.rows for cell in row)


def findings(have: Material, text: str, asked: Asked | None, computed: Sequence[Named]) -> str:
    """Everything a worker's tools returned, in the order of what it says most."""
    parts = [table_text(one, text, asked) for one in have.tables]
    parts += [f"{capital(asked.gone)}."] if asked and asked.gone else []
    parts += [passages_text(one, text) for one in have.passages]
    parts += _figures(have.figures, computed)
    parts += [chart_text(one) for one in have.charts]
    parts += objects_text(have.objects, text)
    parts += [one if len(one) <= 1500 else one[:1500] + "..." for one in have.texts]
    if asked and asked.contrast and not computed and len(have.tables) == 1:
        parts.append(_by_how_much(have.tables[0], text))
    if asked and asked.overlooked:
        parts.append(f"Not taken into account, because no table says it: {', '.join(asked.overlooked)}.")
    return "\n".join(part for part in parts if part)
