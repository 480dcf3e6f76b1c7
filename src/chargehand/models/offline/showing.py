"""Results as Markdown: tables, figures, passages, charts, and whatever else JSON can hold. Numbers keep every digit.

The order and what is said about them is the business of answering.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import msgspec
from msgspec import structs

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Product, Table

ROWS = 12
_QUOTE = 280
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_MONEY = re.compile(
    r"\b(?:eur|usd|gbp|chf|euros?|dollars?|revenue|price|cost|amount|paid|takings|fee)\b", re.IGNORECASE
)
_NO_AMOUNT = re.compile(
    r"\b(?:id|year|code|no|zip|phone|day|date|month|week|number|isbn|postcode|version)\b", re.IGNORECASE
)


def product(value: object) -> Product:
    """Any result as words and exhibits, never without either."""
    read = _read(value)
    if read.sources:  # what a team handed out ends with them already
        text = read.text.removesuffix(f"Sources: {', '.join(read.sources)}").rstrip()
        read = structs.replace(read, text=text)
    return read if read.text.strip() or read.exhibits else structs.replace(read, text="The result is empty.")


def _read(value: object) -> Product:
    plain = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    if _is_mapping(plain):
        try:
            return msgspec.convert(plain, Product)
        except msgspec.ValidationError:
            return _from_mapping(plain)
    if _is_list(plain):
        return _from_list(plain)
    if isinstance(plain, bool) or plain is None:
        return Product({True: "Yes.", False: "No."}.get(bool(plain), "") if plain is not None else "")
    return Product(plain.strip()) if isinstance(plain, str) else Product(amount(plain))


def _is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _from_mapping(value: Mapping[str, object]) -> Product:
    for key in ("text", "answer", "summary", "result", "value"):
        said = value.get(key)
        if isinstance(said, str) and said.strip():
            rest = {name: held for name, held in value.items() if name != key}
            return Product(said.strip(), _from_mapping(rest).exhibits if rest else ())
    rows = tuple((str(name), _cell(held)) for name, held in value.items())
    return Product("", (Table(("field", "value"), rows),)) if rows else Product("")


def _from_list(value: Sequence[object]) -> Product:
    if not value:
        return Product("The list is empty.")
    if all(_is_mapping(one) for one in value):
        columns = list(dict.fromkeys(str(key) for one in value if _is_mapping(one) for key in one))
        rows = tuple(tuple(_cell(one.get(key)) for key in columns) for one in value if _is_mapping(one))
        return Product("", (Table(tuple(columns), rows),) if columns else ())
    shown = [f"- {_cell(one)}" for one in value[:ROWS]]
    left = [f"- \u2026 {len(value) - ROWS} more"] if len(value) > ROWS else []
    return Product("\n".join([*shown, *left]))


def _cell(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return msgspec.json.encode(value).decode()[:200]
    except (TypeError, ValueError, msgspec.MsgspecError):
        return str(value)[:200]


def exhibit(shown: Exhibit) -> str:
    """One exhibit as Markdown."""
    match shown:
        case Table():
            return table(shown)
        case Figure():
            return figure(shown)
        case Passages():
            return passages(shown)
        case Chart():
            tail = f": {_line(shown.summary)}" if shown.summary else ""
            return f"Chart *{_line(shown.title) or 'untitled'}*{tail}"


def table(held: Table, most: int = ROWS) -> str:
    """A Markdown table, numbers to the right, at most so many rows."""
    if not held.columns:
        return "The table has no columns."
    if not held.rows:
        return f"No rows ({', '.join(map(_line, held.columns))})."
    numeric = [_amounts(name, [row[at] for row in held.rows if at < len(row)]) for at, name in enumerate(held.columns)]
    lines = [
        f"| {' | '.join(_line(name) for name in held.columns)} |",
        f"| {' | '.join('---:' if kind else '---' for kind in numeric)} |",
    ]
    for row in held.rows[:most]:
        cells = [_shown(cell, kind) for cell, kind in zip(row, numeric, strict=False)]
        lines.append(f"| {' | '.join(cells)} |")
    left = len(held.rows) - len(held.rows[:most]) + held.more
    return "\n".join([*lines, *([f"\n\u2026 {left:,} more rows"] if left else [])])


def _amounts(name: str, cells: Sequence[object]) -> str:
    """How a column is read: `amount` with separators, `money` with cents, `number` as it is (years, ids), or text."""
    held = [cell for cell in cells if cell is not None]
    if not held or any(isinstance(cell, bool) or not _PLAIN_NUMBER.fullmatch(str(cell)) for cell in held):
        return ""
    years = all(re.fullmatch(r"(?:19|20)\d\d", str(cell)) for cell in held)
    if years or _NO_AMOUNT.search(name.replace("_", " ")):
        return "number"
    cents = all(len(str(cell).partition(".")[2]) <= 2 for cell in held) and any("." in str(cell) for cell in held)
    return "money" if cents and _MONEY.search(name.replace("_", " ")) else "amount"


def _shown(cell: object, kind: str) -> str:
    if kind not in ("amount", "money"):
        return _line(cell)
    text = amount(cell)
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest:0<2}" if kind == "money" and text else text


def amount(value: object) -> str:
    """A number with separators between thousands and every digit it had; anything else as it is."""
    text = _line(value)
    if isinstance(value, bool) or not _PLAIN_NUMBER.fullmatch(text):
        return text
    whole, dot, rest = text.partition(".")
    return f"{int(whole):,}{dot}{rest}" if whole != "-0" else text


def figure(held: Figure) -> str:
    label = f"{_line(held.label)}: " if held.label else ""
    unit = f" {_line(held.unit)}" if held.unit else ""
    how = f" (worked out as `{_line(held.expression)}`)" if held.expression and held.expression != held.value else ""
    return f"{label}**{amount(held.value)}{unit}**{how}"


def passages(held: Passages) -> str:
    if not held.found:
        return f"Nothing was found for \u201c{_line(held.query)}\u201d."
    best = held.found[:3]
    return "\n\n".join(f"> {_brief(one.text)}\n>\n> \u2014 {_line(one.source)}" for one in best)


def _brief(text: str) -> str:
    line = _line(text).replace("\\|", "|")
    return line if len(line) <= _QUOTE else f"{line[:_QUOTE].rsplit(' ', 1)[0]} \u2026"


def _line(value: object) -> str:
    """On one line, and without what would end a table's cell."""
    return "" if value is None else " ".join(str(value).split()).replace("|", "\\|")
