"""A tool that asks a database: an SQLite file, or CSV files as tables. It can read, for a while, and nothing else."""

import asyncio
import contextlib
import csv
import io
import os
import re
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.artifacts import Table
from chargehand.text.words import did_you_mean, nearest_names, printable_line
from chargehand.tools.query_process import (
    GRACE_SECONDS,
    ROWS,
    TEMPORARY_FILE_BYTES,
    cut_text,
    open_file,
    open_image,
)
from chargehand.tools.sandbox import interpreter
from chargehand.tools.tool import Tool, ToolFailed, tool

_CSV = (".csv", ".tsv")
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
    """Return a name that needs no quotes in SQL."""
    name = re.sub(r"\W+", "_", text.strip().casefold())[:LONGEST_NAME].strip("_")
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


# --- the description of the tables
#
# A model reads the description of a tool as instructions. So it holds nothing that an outsider may have written: names
# are cut and quoted, types are SQLite's own words, and values are shown only of columns that the declaration lists.
# The demo model is a set of rules that follows no instructions: it is given the values of all columns, as data.


MOST_TABLES = 50
MOST_COLUMNS = 60
LONGEST_NAME = 60
"""Characters of a name of a table, a column or a file that are shown."""
LONGEST_VALUE = 40
"""Characters of a value that is shown; longer ones are left out."""
MOST_WORDS = 4
"""Words of a value that is shown; more read like a sentence."""
_FEW = 8
_SAMPLE = 20_000
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SENTENCE = re.compile(r"[.:;!?](?:\s|$)")
_AFFINITIES = {
    "INT": "INTEGER",
    "CHAR": "TEXT",
    "CLOB": "TEXT",
    "TEXT": "TEXT",
    "BLOB": "BLOB",
    "REAL": "REAL",
    "FLOA": "REAL",
    "DOUB": "REAL",
}
"""The type that SQLite takes a declared one for, by a part of it."""
_KEYWORDS_WORDS = (
    "add all alter and as asc between by case check collate commit create cross default delete desc distinct drop else "
    "end escape except exists foreign from full group having in index inner insert intersect into is isnull join key "
    "left like limit not notnull null of offset on or order outer over primary references right select set table then "
    "to transaction union unique update using values when where with"
)
_KEYWORDS = frozenset(_KEYWORDS_WORDS.split())
_TYPES_WORDS = (
    "INTEGER INT TINYINT SMALLINT MEDIUMINT BIGINT REAL DOUBLE FLOAT NUMERIC DECIMAL BOOLEAN TEXT CHARACTER CHAR "
    "VARCHAR NCHAR NVARCHAR CLOB BLOB DATE DATETIME TIME TIMESTAMP"
)
_TYPES = frozenset(_TYPES_WORDS.split())
ShownColumns: TypeAlias = Mapping[str, Sequence[str]]
"""The columns whose values a description may show, by table."""


class StoredColumn(Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: str
    """Its type in words of SQLite; empty: it has none."""
    values: tuple[object, ...] = ()
    """Its values if they are few, else the least, a middle and the greatest."""
    all: bool = False
    """Whether these are all the values that it holds."""


class StoredTable(Struct, frozen=True):
    """One table or view."""

    name: str
    columns: tuple[StoredColumn, ...]
    more: int = 0
    """How many columns are left out."""
    rows: int | None = None
    """How many rows it has; None: they could not be counted in time."""


def stored_tables(connection: sqlite3.Connection) -> tuple[StoredTable, ...]:
    """Return every table and view, with a look at the values of each column."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
        "ORDER BY name"
    ).fetchall()
    return tuple(_stored(connection, name) for (name,) in names)


def showing(tables: Sequence[StoredTable], shown: ShownColumns) -> tuple[StoredTable, ...]:
    """Return the tables with the values that may be shown; Invalid where `shown` names what is not there."""
    names = [table.name for table in tables]
    if unknown := [name for name in shown if name not in names]:
        raise Invalid(f"show_values names the table {unknown[0]!r}; {did_you_mean(unknown[0], names)}")
    return tuple(_showing(table, shown.get(table.name, ())) for table in tables)


def _showing(table: StoredTable, shown: Sequence[str]) -> StoredTable:
    names = [column.name for column in table.columns]
    if unknown := [name for name in shown if name not in names]:
        hint = did_you_mean(unknown[0], names)
        raise Invalid(f"show_values of {table.name!r} names the column {unknown[0]!r}; {hint}")
    columns: list[StoredColumn] = []
    for column in table.columns:
        values = tuple(value for value in column.values if column.name in shown and may_be_shown(value))
        columns.append(structs.replace(column, values=values, all=column.all and len(values) == len(column.values)))
    return structs.replace(table, columns=tuple(columns))


def described(tables: Sequence[StoredTable]) -> str:
    """Return one line for each table."""
    lines = [f"table {shown_name(table.name)}({_columns(table)}){_row_count(table)}" for table in tables[:MOST_TABLES]]
    if len(tables) > MOST_TABLES:
        names = ", ".join(shown_name(table.name) for table in tables[MOST_TABLES:])
        lines.append(f"and {len(tables) - MOST_TABLES} more: {names}")
    return "\n".join(lines)


def outlined(tables: Sequence[StoredTable]) -> str:
    """Return every table with the names of its columns, for a planner that lets others query them."""
    names = [
        f"{shown_name(table.name)}({', '.join(shown_name(column.name) for column in table.columns)})"
        for table in tables[:MOST_TABLES]
    ]
    more = len(tables) - MOST_TABLES
    return ", ".join([*names, f"{more} more"] if more > 0 else names)


def quoted(name: str) -> str:
    """Return the name as SQL wants it."""
    if _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def shown_name(name: str) -> str:
    """Return the name for a description: on one line, quoted unless it is plain, and cut where it is long."""
    return quoted(printable_line(name, LONGEST_NAME))


def may_be_shown(value: object) -> bool:
    """Check that a value is a number, or a short text that does not read like a sentence."""
    if not isinstance(value, str):
        return isinstance(value, int | float)
    is_short = len(value) <= LONGEST_VALUE and len(value.split()) <= MOST_WORDS
    return is_short and value.isprintable() and not _SENTENCE.search(value)


def _row_count(table: StoredTable) -> str:
    return "" if table.rows is None else f", {table.rows} row{'' if table.rows == 1 else 's'}"


def _columns(table: StoredTable) -> str:
    parts = [_column(column) for column in table.columns]
    return ", ".join([*parts, f"and {table.more} more"] if table.more else parts)


def _column(column: StoredColumn) -> str:
    words = f"{shown_name(column.name)} {column.kind}".rstrip()
    if not column.values:
        return words
    return f"{words} {'one of' if column.all else 'like'} {','.join(map(_literal, column.values))}"


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    short = value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 3] + "..."
    return "'" + " ".join(short.split()).replace("'", "''") + "'"


def _stored(connection: sqlite3.Connection, name: str) -> StoredTable:
    rows = connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
    columns = [
        _with_values(connection, name, StoredColumn(str(row[1]), _type_of(str(row[2]))), is_key=bool(row[5]))
        for row in rows[:MOST_COLUMNS]
    ]
    try:
        (count,) = connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()  # noqa: S608 - a quoted name
    except sqlite3.Error:  # for example a view on a table that is gone, or too many rows for the time there is
        count = None
    return StoredTable(name, tuple(columns), max(0, len(rows) - MOST_COLUMNS), count)


def _type_of(declared: str) -> str:
    """Return the type of a column in one word; SQLite takes any text as a type, so others are put into its words."""
    word = declared.partition("(")[0].strip()
    if not word or word.upper() in _TYPES:
        return word.upper()
    return next((kind for part, kind in _AFFINITIES.items() if part in word.upper()), "NUMERIC")


def _with_values(connection: sqlite3.Connection, table: str, column: StoredColumn, *, is_key: bool) -> StoredColumn:
    """Return the column with some of its values. A number that is the key of its table says nothing."""
    if is_key and "INT" in column.kind:
        return column
    name = quoted(column.name)
    # the beginning of a long text is enough: one that is longer than there is room for is never shown whole
    value = f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {LONGEST_VALUE + 1}) ELSE {name} END"
    sample = f"(SELECT {value} AS v FROM {quoted(table)} LIMIT {_SAMPLE + 1})"  # noqa: S608 - quoted names
    query = f"SELECT v FROM {sample} WHERE v IS NOT NULL AND typeof(v) <> 'blob' GROUP BY v ORDER BY v"  # noqa: S608
    try:
        values = [row[0] for row in connection.execute(query)]
        (count,) = connection.execute(f"SELECT count(*) FROM {sample}").fetchone()  # noqa: S608
    except sqlite3.Error:
        return column
    if count <= _SAMPLE and len(values) <= _FEW and all(len(str(value)) <= LONGEST_VALUE for value in values):
        return structs.replace(column, values=tuple(values), all=True)
    picked = (values[0], values[len(values) // 2], values[-1])
    return structs.replace(column, values=tuple(dict.fromkeys(picked)))


# --- the tool


_DESCRIBE_SECONDS: Seconds = 5.0
_NO_MATCH = "no row matches; check the conditions and the spelling of the values"


class _Database(Struct, frozen=True):
    """Where to read: an SQLite file by its URI, or the image of a database made from CSV files."""

    name: str
    file: str = ""
    image: bytes = b""
    csv_files: dict[str, str] = {}
    """By the name of a table, the CSV file it was made from."""

    def open(self) -> sqlite3.Connection:
        """A connection to describe it with; queries have their own, in another process."""
        connection = open_image(self.image) if self.image else open_file(self.file)
        connection.text_factory = cut_text
        return connection

    def sources_of(self, tables: set[str]) -> str:
        """Which files or tables an answer comes from."""
        names = [self.csv_files.get(table) or f"{self.name}#{table}" for table in sorted(tables)]
        return ", ".join(dict.fromkeys(names)) or self.name


_NOT_SHOWN: ShownColumns = {}


def sql(
    path: Path | str | Sequence[Path | str],
    name: str = "query",
    *,
    seconds: Seconds = 5.0,
    show_values: ShownColumns = _NOT_SHOWN,
) -> Tool:
    """Make a tool over an SQLite file, a folder of CSV files, or CSV files; Invalid when they cannot be used.

    Its description shows the tables as they are now: make the tool anew when they change.

    Args:
        path: The SQLite file, the folder, or the CSV files.
        name: The name of the tool.
        seconds: How long a query may take.
        show_values: The columns of which the description shows values, by table: `{"orders": ["status"]}`. A model
            reads a description as instructions, so name only columns that no outsider writes to.
    """
    database = _open_database(path)
    try:
        with contextlib.closing(database.open()) as connection:
            until = monotonic() + _DESCRIBE_SECONDS
            connection.set_progress_handler(lambda: monotonic() > until, 10_000)
            tables = stored_tables(connection)
    except sqlite3.Error as error:
        raise Invalid(f"{database.name} cannot be read as an SQLite database: {error}") from error
    if not tables:
        raise Invalid(f"{database.name} has no tables; there is nothing to ask")

    example = f"SELECT count(*) FROM {shown_name(tables[-1].name)}"  # noqa: S608 - shown to a model, not executed
    statement = Meta(description="One SELECT statement", examples=[example])

    async def query(sql: Annotated[str, statement]) -> Table:
        reply = await _run_query(database, sql, seconds)
        if isinstance(reply, _Failure):
            raise ToolFailed(_explain(reply, tables, seconds))
        read_tables = {table.name for table in tables} & set(reply.tables)
        return Table(
            columns=reply.columns,
            rows=reply.rows,
            source=database.sources_of(read_tables),
            query=" ".join(sql.split()),
            more=reply.more,
            note="" if any(value is not None for row in reply.rows for value in row) else _NO_MATCH,
        )

    head = f"Ask {printable_line(database.name, LONGEST_NAME)} with SQL (SQLite, read-only, at most {ROWS} rows)."
    make = tool(
        name=name,
        description=f"{head}\n{described(showing(tables, show_values))}",
        data=f"{head}\n{described(tables)}",
        summary=f"a database with the tables {outlined(tables)}",
        timeout=seconds + _most_seconds(seconds) + 1,
        stable=bool(database.image),  # others may write to a file, but not to a copy of it
    )
    return make(query)


def _open_database(path: Path | str | Sequence[Path | str]) -> _Database:
    if not isinstance(path, str | Path):
        return _from_csv([Path(part) for part in path], "no CSV files were named; name at least one")
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in _CSV and file.is_file())
        problem = f"there are no .csv files in {place}; name a folder that has some, or an SQLite file"
        return _from_csv(files, problem, place.resolve().name)
    if not place.is_file():
        raise Invalid(f"there is no file or folder {place}; name an SQLite file, a CSV file or a folder of them")
    if place.suffix.lower() in _CSV:
        return _from_csv([place])
    return _Database(place.name, file=place.resolve().as_uri())


def _from_csv(files: list[Path], if_none: str = "", name: str = "") -> _Database:
    if not files:
        raise Invalid(if_none)
    image, csv_files = csv_database(files)
    return _Database(name or ", ".join(file.name for file in files), image=image, csv_files=csv_files)


# --- queries, each in a process of its own


MEMORY = 256 << 20
MAX_RUNNING = 8
_REPLY_BYTES = 64 << 20
_START_SECONDS: Seconds = 10.0
_PROGRAM = Path(__file__).with_name("query_process.py")
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "SQLITE_TMPDIR")


class _Request(Struct, frozen=True, eq=False):
    """What the process reads; the image of a database follows it."""

    sql: str
    seconds: Seconds
    file: str
    image_bytes: int
    memory: int = MEMORY


class _Rows(Struct, frozen=True, tag="rows"):
    """What a query returned."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    tables: tuple[str, ...]
    """The tables it read."""
    more: int
    """How many rows were left out."""


class _Failure(Struct, frozen=True, tag="failure"):
    """Why a query returned nothing."""

    kind: Literal[
        "time",
        "memory",
        "disk",
        "crash",
        "no_query",
        "read_only",
        "statements",
        "unknown_column",
        "unknown_table",
        "unknown_function",
        "sqlite",
    ]
    message: str = ""
    """SQLite's own words."""
    name: str = ""
    """The column, table or function that does not exist."""


_RUNNING: set[_Request] = set()
"""The queries of this process that run now, in all its event loops."""
os.register_at_fork(after_in_child=_RUNNING.clear)


def _most_seconds(seconds: Seconds) -> Seconds:
    """The longest a process may take: it starts, runs the query, and is ended."""
    return _START_SECONDS + seconds + 2 * GRACE_SECONDS


async def _run_query(database: _Database, text: str, seconds: Seconds) -> _Rows | _Failure:
    """Run one query in a process of its own; the process never outlives the call."""
    request = _Request(sql=text, seconds=seconds, file=database.file, image_bytes=len(database.image))
    await _wait_for_turn(seconds)
    _RUNNING.add(request)
    try:
        process = await _start_process()
        is_read = False
        try:
            line = await _exchange(process, msgspec.json.encode(request) + b"\n" + database.image, seconds)
            is_read = True
        finally:
            if not is_read:
                process.kill()
            await process.communicate()  # until it has ended
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=_Rows | _Failure)
        return _Failure("time" if process.returncode == -signal.SIGALRM else "crash")
    except TimeoutError:
        return _Failure("time")
    finally:
        _RUNNING.discard(request)


async def _wait_for_turn(seconds: Seconds) -> None:
    """Wait until another query may run. It polls, because queries come from several event loops."""
    until = monotonic() + seconds
    while len(_RUNNING) >= MAX_RUNNING:
        if monotonic() > until:
            raise ToolFailed(f"{MAX_RUNNING} queries are running already; ask again later")
        await asyncio.sleep(0.01)


async def _start_process() -> asyncio.subprocess.Process:
    variables = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    try:
        return await asyncio.create_subprocess_exec(
            *(str(interpreter()), "-I", "-S", "-B", str(_PROGRAM)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            # one arena: the C library sets address space aside for each, which the limit on memory would count
            env={**variables, "MALLOC_ARENA_MAX": "1"},
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the parent
            limit=_REPLY_BYTES,
        )
    except OSError as error:
        raise ToolFailed(f"no process for the query could be started: {error}. Do without it.", broken=True) from error


async def _exchange(process: asyncio.subprocess.Process, request: bytes, seconds: Seconds) -> bytes:
    """The line that the process replies with; nothing, or a part of it, where it ends too early."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.close()
    async with asyncio.timeout(_most_seconds(seconds)):
        return await process.stdout.readline()


# --- failures in words for the model


_FAILURES = {
    "no_query": "that is no question; write one SELECT statement",
    "time": "the query did not finish within {seconds:g} s; ask for less, or join on fewer rows",
    "memory": f"the query needs more than {MEMORY >> 20} MiB of memory; ask for fewer or shorter values",
    "read_only": "this database can only be read: write one SELECT statement",
    "statements": "only one statement at a time: write one SELECT statement",
    "crash": "the process of the query ended before it had an answer; ask for less",
}


def _explain(failure: _Failure, tables: tuple[StoredTable, ...], seconds: Seconds) -> str:
    if failure.kind in _FAILURES:
        return _FAILURES[failure.kind].format(seconds=seconds)
    return f"SQLite says: {failure.message}{_advice(failure, tables)}"


def _advice(failure: _Failure, tables: tuple[StoredTable, ...]) -> str:
    match failure.kind:
        case "disk":
            return f"; temporary files are limited to {TEMPORARY_FILE_BYTES >> 20} MiB, so sort or group fewer rows"
        case "unknown_function":
            return "; only SQLite's own functions can be used: for dates strftime('%Y-%m', column) and date('now')"
        case "unknown_table" | "unknown_column":
            wanted = failure.name.rpartition(".")[2].strip("\"'`[]").lower()
            names = [table.name for table in tables]
            if failure.kind == "unknown_column":
                names = [column.name for table in tables for column in table.columns]
            near = nearest_names(wanted, [name.lower() for name in names])
            if near and wanted not in near:  # else it is a column of another table
                return f"; did you mean {' or '.join(near)}? There is {outlined(tables)}"
            return f"; there is {outlined(tables)}"
        case _:
            return ""
