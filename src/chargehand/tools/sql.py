"""A tool that asks a database: an SQLite file, or CSV files as tables. It can read, for a while, and nothing else."""

import csv
import io
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Annotated

from msgspec import Meta, Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.artifacts import Table
from chargehand.text.names import nearest_names
from chargehand.tools.query_pool import GRACE_SECONDS, MEMORY, START_SECONDS, Failure, Query, Source
from chargehand.tools.query_process import ROWS, TEMPORARY_FILE_BYTES, cut_text, open_file, open_image
from chargehand.tools.threads import THREADS, GivenUp
from chargehand.tools.tool import Tool, ToolFailed, tool

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


MOST_TABLES = 50
MOST_COLUMNS = 60
_FEW = 8
_SAMPLE = 20_000
_ROOM = 40
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS_WORDS = (
    "add all alter and as asc between by case check collate commit create cross default delete desc distinct drop else "
    "end escape except exists foreign from full group having in index inner insert intersect into is isnull join key "
    "left like limit not notnull null of offset on or order outer over primary references right select set table then "
    "to transaction union unique update using values when where with"
)
_KEYWORDS = frozenset(_KEYWORDS_WORDS.split())


class Column(Struct, frozen=True):
    name: str
    kind: str
    values: tuple[object, ...] = ()
    all: bool = False


class Stored(Struct, frozen=True):
    """One table or view."""

    name: str
    columns: tuple[Column, ...]
    more: int = 0


def stored_tables(connection: sqlite3.Connection) -> tuple[Stored, ...]:
    """Every table and view, with a look at the values of each column."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
        "ORDER BY name"
    ).fetchall()
    return tuple(_stored(connection, name) for (name,) in names)


def described(tables: Sequence[Stored]) -> str:
    """The lines, one a table."""
    lines = [f"table {quoted(table.name)}({_columns(table)})" for table in tables[:MOST_TABLES]]
    if len(tables) > MOST_TABLES:
        lines.append(f"and {len(tables) - MOST_TABLES} more: {', '.join(quoted(t.name) for t in tables[MOST_TABLES:])}")
    return "\n".join(lines)


def outlined(tables: Sequence[Stored]) -> str:
    """Every table with the names of its columns, for somebody who asks others to query them."""
    names = [f"{table.name}({', '.join(column.name for column in table.columns)})" for table in tables[:MOST_TABLES]]
    more = len(tables) - MOST_TABLES
    return ", ".join([*names, f"{more} more"] if more > 0 else names)


def quoted(name: str) -> str:
    """The name as SQL wants it."""
    if _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _columns(table: Stored) -> str:
    parts = [_column(column) for column in table.columns]
    return ", ".join([*parts, f"and {table.more} more"] if table.more else parts)


def _column(column: Column) -> str:
    words = f"{quoted(column.name)} {column.kind}".rstrip()
    if not column.values:
        return words
    return f"{words} {'one of' if column.all else 'like'} {','.join(map(_literal, column.values))}"


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    short = value if len(value) <= _ROOM else value[: _ROOM - 3] + "..."
    return "'" + " ".join(short.split()).replace("'", "''") + "'"


def _stored(connection: sqlite3.Connection, name: str) -> Stored:
    rows = connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
    columns = [_looked_at(connection, name, str(row[1]), str(row[2]), key=bool(row[5])) for row in rows[:MOST_COLUMNS]]
    return Stored(name, tuple(columns), max(0, len(rows) - MOST_COLUMNS))


def _looked_at(connection: sqlite3.Connection, table: str, name: str, kind: str, *, key: bool) -> Column:
    """The column with some of its values. A number that is the key of its table says nothing."""
    if key and "INT" in kind.upper():
        return Column(name, kind)
    column = quoted(name)
    # the beginning of a long text is enough: one that is longer than there is room for is never shown whole
    value = f"CASE typeof({column}) WHEN 'text' THEN substr({column}, 1, {_ROOM + 1}) ELSE {column} END"
    sample = f"(SELECT {value} AS v FROM {quoted(table)} LIMIT {_SAMPLE + 1})"  # noqa: S608 - quoted names
    query = f"SELECT v FROM {sample} WHERE v IS NOT NULL AND typeof(v) <> 'blob' GROUP BY v ORDER BY v"  # noqa: S608
    try:
        values = [row[0] for row in connection.execute(query)]
        (count,) = connection.execute(f"SELECT count(*) FROM {sample}").fetchone()  # noqa: S608
    except sqlite3.Error:
        return Column(name, kind)  # for example a view on a table that is gone
    if count <= _SAMPLE and len(values) <= _FEW and all(len(str(value)) <= _ROOM for value in values):
        return Column(name, kind, tuple(values), all=True)
    picked = (values[0], values[len(values) // 2], values[-1])
    return Column(name, kind, tuple(dict.fromkeys(picked)))


_DESCRIBE_SECONDS: Seconds = 5.0
_UNKNOWN = re.compile(r"no such (column|table|function): (\S+)")
_DATE_PARTS = {
    "year": "strftime('%Y', column) = '2026'",
    "month": "strftime('%m', column) = '03'",
    "day": "strftime('%d', column) = '01'",
    "date_trunc": "strftime('%Y-%m', column)",
    "date_format": "strftime('%Y-%m', column)",
    "to_char": "strftime('%Y-%m', column)",
    "extract": "strftime('%Y', column)",
    "now": "date('now')",
    "curdate": "date('now')",
}
"""What SQLite has for functions of other databases."""
_NO_MATCH = "no row matches; check the conditions and the spelling of the values"


class _Database(Struct, frozen=True):
    """Where to read, and which file each table comes from."""

    name: str
    source: Source
    files: dict[str, str] = {}

    def open(self) -> sqlite3.Connection:
        """A connection to describe it with; queries have their own, in another process."""
        connection = open_image(self.source.image) if self.source.image else open_file(self.source.file)
        connection.text_factory = cut_text
        return connection

    def files_of(self, tables: set[str]) -> str:
        """Which files or tables an answer comes from."""
        names = [self.files.get(table) or f"{self.name}#{table}" for table in sorted(tables)]
        return ", ".join(dict.fromkeys(names)) or self.name


def sql(path: Path | str | Sequence[Path | str], name: str = "query", *, seconds: Seconds = 5.0) -> Tool:
    """A tool over an SQLite file, a folder of CSV files, or CSV files; Invalid when they cannot be used.

    Its description shows what the tables hold now: make the tool anew when that changes.
    """
    database = _database(path)
    try:
        with closing(database.open()) as connection:
            until = monotonic() + _DESCRIBE_SECONDS
            connection.set_progress_handler(lambda: monotonic() > until, 10_000)
            tables = stored_tables(connection)
    except sqlite3.Error as error:
        raise Invalid(f"{database.name} cannot be read as an SQLite database: {error}") from error
    if not tables:
        raise Invalid(f"{database.name} has no tables; there is nothing to ask")

    example = f"SELECT count(*) FROM {quoted(tables[-1].name)}"  # noqa: S608 - shown to a model, not executed
    statement = Meta(description="One SELECT statement", examples=[example])

    async def query(sql: Annotated[str, statement]) -> Table:
        return await _answer(database, tables, sql, seconds)

    description = f"Ask {database.name} with SQL (SQLite, read-only, at most {ROWS} rows).\n{described(tables)}"
    summary = f"a database with the tables {outlined(tables)}"
    copied = bool(database.source.image)  # others may write to a file; nobody writes to a copy of it
    return tool(name=name, description=description, timeout=_most_seconds(seconds) + 1, stable=copied, summary=summary)(
        query
    )


def _most_seconds(seconds: Seconds) -> Seconds:
    """The longest a call may take: it waits for others, starts a process, runs, and is ended."""
    return seconds + START_SECONDS + seconds + GRACE_SECONDS


def _database(path: Path | str | Sequence[Path | str]) -> _Database:
    if not isinstance(path, str | Path):
        files = [Path(part) for part in path]
        if not files:
            raise Invalid("no CSV files were named; name at least one")
        image, sources = csv_database(files)
        return _Database(", ".join(file.name for file in files), Source(image=image), sources)
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in (".csv", ".tsv") and file.is_file())
        if not files:
            raise Invalid(f"there are no .csv files in {place}; name a folder that has some, or an SQLite file")
        image, sources = csv_database(files)
        return _Database(place.resolve().name, Source(image=image), sources)
    if not place.is_file():
        raise Invalid(f"there is no file or folder {place}; name an SQLite file, a CSV file or a folder of them")
    if place.suffix.lower() in (".csv", ".tsv"):
        return _database([place])
    return _Database(place.name, Source(file=place.resolve().as_uri()))


async def _answer(database: _Database, tables: tuple[Stored, ...], text: str, seconds: Seconds) -> Table:
    query = Query(database.source, text, seconds)
    try:
        reply = await THREADS.call(query.run, {}, _most_seconds(seconds))
    except GivenUp:
        reply = Failure("time")
    finally:
        query.cancel()
    if isinstance(reply, Failure):
        raise ToolFailed(_explain(reply, tables, seconds))
    known = {table.name for table in tables} & set(reply.tables)
    return Table(
        columns=reply.columns,
        rows=reply.rows,
        source=database.files_of(known),
        query=" ".join(text.split()),
        more=reply.more,
        note="" if any(value is not None for row in reply.rows for value in row) else _NO_MATCH,
    )


def _explain(failure: Failure, tables: tuple[Stored, ...], seconds: Seconds) -> str:
    if failure.kind == "no_query":
        return "that is no question; write one SELECT statement"
    if failure.kind == "time":
        return f"the query did not finish within {seconds:g} s; ask for less, or join on fewer rows"
    if failure.kind == "memory":
        return f"the query needs more than {MEMORY >> 20} MiB of memory; ask for fewer or shorter values"
    if failure.kind == "crash":
        return "the process of the query ended before it had an answer; ask for less"
    return _explain_error(failure.message, tables)


def _explain_error(words: str, tables: tuple[Stored, ...]) -> str:
    if re.search("not authorized|prohibited|authorization denied|readonly", words):
        return "this database can only be read: write one SELECT statement"
    if "one statement at a time" in words:
        return "only one statement at a time: write one SELECT statement"
    if "disk" in words:
        most = TEMPORARY_FILE_BYTES >> 20
        return f"SQLite says: {words}; temporary files are limited to {most} MiB, so sort or group fewer rows"
    unknown = _UNKNOWN.search(words)
    return f"SQLite says: {words}" + (_nearest(unknown[1], unknown[2], tables) if unknown else "")


def _nearest(kind: str, name: str, tables: tuple[Stored, ...]) -> str:
    wanted = name.rpartition(".")[2].strip("\"'`[]").lower()
    if kind == "function":
        instead = f"; use {_DATE_PARTS[wanted]}" if wanted in _DATE_PARTS else ""
        return f"; only SQLite's own functions can be used{instead}"
    if kind == "column" and (holders := _holders(wanted, tables)):
        return f"; {wanted} is a column of {' and of '.join(holders)}: join that table"
    names = [table.name for table in tables]
    if kind == "column":
        names = [column.name for table in tables for column in table.columns]
    near = nearest_names(wanted, {each.lower(): each for each in names})
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if kind == "table":
        return f"; the tables are {', '.join(map(quoted, names))}"
    return "; the columns are " + ", ".join(f"{quoted(t.name)}({', '.join(c.name for c in t.columns)})" for t in tables)


def _holders(column: str, tables: tuple[Stored, ...]) -> list[str]:
    """The tables that have a column of this name, with all their columns: what they can be joined on is among them."""
    return [
        f"{quoted(table.name)}({', '.join(each.name for each in table.columns)})"
        for table in tables
        if column in (each.name.lower() for each in table.columns)
    ]
