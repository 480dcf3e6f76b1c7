"""A result as Markdown, handed through: its words, its tables and figures, its sources. Nothing is added."""

from collections.abc import Sequence

import msgspec

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Product, Table
from chargehand.models.subject import Given

_ROWS = 20


def shown(given: Given) -> str:
    """A result with what backs it."""
    if isinstance(given.value, str):
        return given.value
    try:
        product = msgspec.convert(given.value, Product)
    except msgspec.ValidationError:
        return msgspec.json.format(msgspec.json.encode(given.value), indent=2).decode()
    parts = [product.text, *(text for one in product.exhibits if (text := _exhibit(one, product.text)))]
    named = f"Sources: {', '.join(product.sources)}"
    if product.sources and not product.text.endswith(named):  # the answer of a team has them already
        parts.append(named)
    return "\n\n".join(parts)


def _exhibit(exhibit: Exhibit, said: str) -> str:
    """An exhibit; nothing of it where the words of the result have it already."""
    found = _drawn(exhibit, " ".join(said.split()))
    return "" if found in said else found


def _drawn(exhibit: Exhibit, said: str) -> str:
    match exhibit:
        case Table():
            return _table(exhibit)
        case Chart():
            return f"Chart: {exhibit.title}" + (f" ({exhibit.summary})" if exhibit.summary else "")
        case Figure():
            return f"{exhibit.expression} = {exhibit.value} {exhibit.unit}".strip() if exhibit.expression else ""
        case Passages():
            quoted = [
                one for one in exhibit.found[:3] if " ".join(one.text.split()) not in said or one.source not in said
            ]
            return "\n".join(f"> {one.text.strip()}\n> ({one.source})" for one in quoted)


def _table(table: Table) -> str:
    rows = [_row(table.columns), _row(["---"] * len(table.columns)), *map(_row, table.rows[:_ROWS])]
    more = table.more + max(0, len(table.rows) - _ROWS)
    return "\n".join(rows) + (f"\n\n… and {more} more rows" if more else "")


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str('' if one is None else one).replace('|', '/') for one in cells)} |"
