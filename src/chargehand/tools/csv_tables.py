"""CSV files as tables of a database in memory: names made plain, types guessed, anything odd refused in words."""

import csv
import io
import re
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from chargehand.errors import Invalid

MOST_BYTES = 32 * 1024 * 1024
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")  # no leading zeros: those are codes, and 18 digits fit 64 bits
_REAL = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")


class _Sheet(Struct, frozen=True):
    """One file: every row has as many cells as there are columns."""

    table: str
    columns: tuple[str, ...]
    rows: list[list[str]]


def csv_database(paths: Sequence[Path]) -> tuple[bytes, dict[str, str]]:
    """An image of the database, and from which file each table comes; Invalid says what is wrong with which file."""
    sizes = sum(path.stat().st_size for path in paths if path.is_file())
    if sizes > MOST_BYTES:
        raise Invalid(f"the CSV files hold {sizes:,} bytes; {MOST_BYTES:,} is the most, so put them in an SQLite file")
    sources: dict[str, str] = {}
    connection = sqlite3.connect(":memory:")
    try:
        for path in paths:
            sheet = _read(path)
            if sheet.table in sources:
                raise Invalid(f"{path.name} and {sources[sheet.table]} both make a table {sheet.table!r}; rename one")
            sources[sheet.table] = path.name
            _fill(connection, sheet)
        connection.commit()
        return connection.serialize(), sources
    finally:
        connection.close()


def plain_name(text: str, otherwise: str) -> str:
    """A name that needs no quotes in SQL."""
    name = re.sub(r"\W+", "_", text.strip().casefold()).strip("_")
    return f"_{name}" if name[:1].isdigit() else name or otherwise


def _read(path: Path) -> _Sheet:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{path.name} is not UTF-8 (byte {error.start}); save it as CSV UTF-8") from error
    if "\0" in text:
        raise Invalid(f"{path.name} holds NUL characters; it is no CSV file")
    if not text.strip():
        raise Invalid(f"{path.name} is empty; its first line must name the columns")
    lines = _lines(text, path.name)
    _, header = next(lines)
    columns = tuple(plain_name(cell, f"column_{n}") for n, cell in enumerate(header, 1))
    twice = next((name for name in columns if columns.count(name) > 1), "")
    if twice:
        raise Invalid(f"{path.name} has two columns {twice!r}; rename one")
    rows: list[list[str]] = []
    for number, row in lines:
        if len(row) != len(columns):
            raise Invalid(f"{path.name}, line {number}: {len(row)} cells where the header has {len(columns)}")
        rows.append(row)
    return _Sheet(plain_name(path.stem, "data"), columns, rows)


def _lines(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of the line each ends on; blank lines are left out."""
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except csv.Error as error:
        raise Invalid(f"{name}, line {reader.line_num}: {error}; check the quotes there") from error


def _fill(connection: sqlite3.Connection, sheet: _Sheet) -> None:
    kinds = [_kind([row[n] for row in sheet.rows]) for n in range(len(sheet.columns))]
    columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(sheet.columns, kinds, strict=True))
    marks = ", ".join("?" * len(kinds))
    try:
        connection.execute(f'CREATE TABLE "{sheet.table}" ({columns})')
        connection.executemany(
            f'INSERT INTO "{sheet.table}" VALUES ({marks})',  # noqa: S608 - plain names, made above
            ([_value(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in sheet.rows),
        )
    except sqlite3.Error as error:
        raise Invalid(f"the CSV file of table {sheet.table!r} cannot be loaded: {error}") from error


def _kind(cells: list[str]) -> str:
    filled = [cell.strip() for cell in cells if cell.strip()]
    if not filled:
        return "TEXT"
    if all(_WHOLE.fullmatch(cell) for cell in filled):
        return "INTEGER"
    return "REAL" if all(_REAL.fullmatch(cell) for cell in filled) else "TEXT"


def _value(cell: str, kind: str) -> str | int | float | None:
    text = cell.strip()
    if not text:
        return None
    if kind == "INTEGER":
        return int(text)
    return float(text) if kind == "REAL" else text
