"""A tool that asks a database: an SQLite file, or CSV files as tables. It can read, for a while, and nothing else."""

import math
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import Annotated

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.models.exhibits import Table
from chargehand.terms.policy import Seconds
from chargehand.tools.csv_tables import csv_database
from chargehand.tools.tables import Stored, described, quoted, stored_tables
from chargehand.tools.tool import Tool, ToolFailed, tool

ROWS = 200
_CELL = 2_000
_STRIDE = 10_000
_COUNTED = 100_000
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}
_UNKNOWN = re.compile(r"no such (column|table|function): (\S+)")


class _Database(Struct, frozen=True):
    """Where to read: a file, or an image of a database that every call gets a copy of."""

    name: str
    path: Path | None = None
    image: bytes = b""
    sources: dict[str, str] = {}

    def open(self) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None)
            connection.deserialize(self.image)
        else:
            connection = _open_file(self.path)
        connection.text_factory = _decoded
        return connection

    def source(self, tables: set[str]) -> str:
        """Which files or tables an answer comes from."""
        found = [self.sources.get(table) or f"{self.name}#{table}" for table in sorted(tables)]
        return ", ".join(dict.fromkeys(found)) or self.name


def sql(path: Path | str | Sequence[Path | str], name: str = "query", *, seconds: Seconds = 5.0) -> Tool:
    """A tool over an SQLite file, a folder of CSV files, or CSV files; Invalid when they cannot be used.

    Its description shows what the tables hold now: make the tool anew when that changes.
    """
    database = _database(path)
    try:
        with closing(database.open()) as connection:
            tables = stored_tables(connection)
    except sqlite3.Error as error:
        raise Invalid(f"{database.name} cannot be read as an SQLite database: {error}") from error
    if not tables:
        raise Invalid(f"{database.name} has no tables; there is nothing to ask")

    def query(sql: Annotated[str, "One SELECT statement in SQLite's dialect"]) -> Table:
        return _answer(database, tables, sql, seconds)

    description = (
        f"Ask {database.name} with SQL (SQLite, read-only, at most {ROWS} rows come back).\n{described(tables)}"
    )
    return tool(name=name, description=description, timeout=seconds + 5)(query)


def _database(path: Path | str | Sequence[Path | str]) -> _Database:
    if not isinstance(path, str | Path):
        files = [Path(part) for part in path]
        if not files:
            raise Invalid("no CSV files were named; name at least one")
        image, sources = csv_database(files)
        return _Database(", ".join(file.name for file in files), None, image, sources)
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in (".csv", ".tsv") and file.is_file())
        if not files:
            raise Invalid(f"there are no .csv files in {place}; name a folder that has some, or an SQLite file")
        image, sources = csv_database(files)
        return _Database(place.resolve().name, None, image, sources)
    if not place.is_file():
        raise Invalid(f"there is no file or folder {place}; name an SQLite file, a CSV file or a folder of them")
    if place.suffix.lower() in (".csv", ".tsv"):
        return _database([place])
    return _Database(place.name, place.resolve())


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")


def _open_file(path: Path) -> sqlite3.Connection:
    """Read-only. A file in WAL mode in a folder we may not write to opens only as one that does not change."""
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.OperationalError as error:
            connection.close()
            problem = error
        except sqlite3.Error:
            connection.close()
            raise
        else:
            return connection
    raise problem


def _answer(database: _Database, tables: tuple[Stored, ...], text: str, seconds: Seconds) -> Table:
    read: set[str] = set()
    try:
        with closing(database.open()) as connection:
            _confine(connection, read, monotonic() + seconds)
            cursor = connection.execute(text)
            if cursor.description is None:
                raise ToolFailed("that is no question; write one SELECT statement")
            rows = tuple(tuple(_cell(value) for value in row) for row in cursor.fetchmany(ROWS))
            columns = tuple(str(column[0]) for column in cursor.description)
            known = {table.name for table in tables} & read
            return Table(columns, rows, database.source(known), " ".join(text.split()), _left(cursor))
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise ToolFailed(_explained(error, tables, seconds)) from error


def _confine(connection: sqlite3.Connection, read: set[str], until: Seconds) -> None:
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    connection.execute("PRAGMA query_only = ON")

    def allow(action: int, one: str | None, two: str | None, _database: str | None, _trigger: str | None) -> int:
        if action == sqlite3.SQLITE_READ and one:
            read.add(one)
        dangerous = action == sqlite3.SQLITE_FUNCTION and (two or "").lower() in ("load_extension", "fts3_tokenizer")
        return sqlite3.SQLITE_DENY if dangerous or action not in _READING else sqlite3.SQLITE_OK

    connection.set_authorizer(allow)
    connection.set_progress_handler(lambda: monotonic() > until, _STRIDE)


def _left(cursor: sqlite3.Cursor) -> int:
    """How many rows follow, counted as far as it is worth the time."""
    count = 0
    try:
        while count < _COUNTED and cursor.fetchone() is not None:
            count += 1
    except sqlite3.OperationalError:
        return max(count, 1)  # the time is up, and there was at least one more
    return count


def _cell(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _CELL else value[:_CELL] + "..."
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _explained(error: Exception, tables: tuple[Stored, ...], seconds: Seconds) -> str:
    words = str(error)
    if re.search("not authorized|prohibited|authorization denied|readonly", words):
        return "this database can only be read: write one SELECT statement"
    if words == "interrupted":
        return f"the query did not finish within {seconds:g} s; ask for less, or join on fewer rows"
    if "one statement at a time" in words:
        return "only one statement at a time: write one SELECT statement"
    unknown = _UNKNOWN.search(words)
    return f"SQLite says: {words}" + (_nearest(unknown[1], unknown[2], tables) if unknown else "")


def _nearest(kind: str, name: str, tables: tuple[Stored, ...]) -> str:
    wanted = name.rpartition(".")[2].strip("\"'`[]").lower()
    if kind == "function":
        return "; only SQLite's own functions can be used"
    names = [table.name for table in tables]
    if kind == "column":
        names = [column.name for table in tables for column in table.columns]
    near = get_close_matches(wanted, {each.lower(): each for each in names}, 3, 0.5)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if kind == "table":
        return f"; the tables are {', '.join(map(quoted, names))}"
    return "; the columns are " + ", ".join(f"{quoted(t.name)}({', '.join(c.name for c in t.columns)})" for t in tables)
