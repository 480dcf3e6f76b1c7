"""What a database holds, in lines a model (or a small program) can write SQL from. Asking it is `sql`.

One line a table: `table orders(id INTEGER, day TEXT like '2026-05-17', country TEXT one of 'DE','FR','US')`. Columns
are parted by a comma and a space, values by a comma; text is quoted as in SQL, and so are names that need it. `one of`
lists all there are, `like` the least, a middle and the greatest value.
"""

import re
import sqlite3
from collections.abc import Sequence

from msgspec import Struct

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
