"""A tool that asks a database: an SQLite file, or CSV files as tables. It can read, for a while, and nothing else."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Annotated

from msgspec import Meta, Struct

from chargehand.errors import Invalid
from chargehand.models.exhibits import Table
from chargehand.terms.policy import Seconds
from chargehand.text.names import nearest_names
from chargehand.tools.csv_tables import csv_database
from chargehand.tools.query_pool import GRACE_SECONDS, MEMORY, START_SECONDS, Failure, Query, Source
from chargehand.tools.query_process import ROWS, TEMPORARY_FILE_BYTES, cut_text, open_file, open_image
from chargehand.tools.tables import Stored, described, outlined, quoted, stored_tables
from chargehand.tools.threads import THREADS, GivenUp
from chargehand.tools.tool import Tool, ToolFailed, tool

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
