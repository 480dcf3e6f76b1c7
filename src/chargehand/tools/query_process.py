"""The process that runs one SQL query: a JSON request on standard input, a JSON reply on standard output.

It runs as a program of its own, without this package, and stays short. Its memory is limited by the kernel, and it can
be killed: SQLite cannot be interrupted inside one function call, and a thread cannot be stopped at all.
"""

import contextlib
import json
import math
import os
import re
import resource
import select
import signal
import sqlite3
import sys
import threading
from time import monotonic

ROWS = 200
CELL_CHARACTERS = 2_000
RESULT_CHARACTERS = 1_000_000
COUNTED_ROWS = 100_000
TEMPORARY_FILE_BYTES = 256 << 20
GRACE_SECONDS = 1.0
"""How long after the time of a query its process is killed, where SQLite has not stopped by itself.

A query that may take less than this is killed after twice its time.
"""
_PROGRESS_STEPS = 10_000
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
}
_FAILURE_KINDS = {
    sqlite3.SQLITE_INTERRUPT: "time",
    sqlite3.SQLITE_AUTH: "read_only",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_FULL: "disk",
    sqlite3.SQLITE_IOERR: "disk",
}
"""By SQLite's primary error code, the kind of failure it is."""
_UNKNOWN = re.compile(r"no such (column|table|function): (\S+)")
_DANGEROUS_FUNCTIONS = ("load_extension", "fts3_tokenizer")


def open_file(path: str) -> sqlite3.Connection:
    """A read-only connection. A file in WAL mode in a folder we may not write to opens only as one that never changes.

    `path` is a file URI. Statements are not cached: the authorizer must see each of them.
    """
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path}?{options}", uri=True, isolation_level=None, cached_statements=0)
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


def open_image(image: bytes) -> sqlite3.Connection:
    """A connection to a copy of a database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.deserialize(image)
    return connection


def cut_text(text: bytes) -> str:
    """A cell of text, cut before it is decoded: four bytes are the longest character."""
    decoded = text[: 4 * CELL_CHARACTERS + 4].decode(errors="replace")
    return decoded if len(decoded) <= CELL_CHARACTERS else decoded[:CELL_CHARACTERS] + "..."


def _plain_cell(value: object) -> object:
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _confine(connection: sqlite3.Connection, tables: set[str], until: float) -> None:
    """Allow reading only, until then; the names of the tables that are read go into `tables`."""
    connection.text_factory = cut_text
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    connection.execute("PRAGMA query_only = ON")

    def authorize(action: int, first: str | None, second: str | None, _database: str | None, _view: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            tables.add(first)
        if action not in _READING:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _DANGEROUS_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    connection.set_authorizer(authorize)
    connection.set_progress_handler(lambda: monotonic() > until, _PROGRESS_STEPS)


def _read_rows(cursor: sqlite3.Cursor) -> list[list[object]]:
    """The first rows, as many as fit. Each is cut before the next is read."""
    rows: list[list[object]] = []
    characters = 0
    while len(rows) < ROWS and characters <= RESULT_CHARACTERS:
        row = cursor.fetchone()
        if row is None:
            break
        cells = [_plain_cell(value) for value in row]
        characters += sum(len(cell) for cell in cells if isinstance(cell, str))
        rows.append(cells)
    return rows


def _count_rows(cursor: sqlite3.Cursor) -> int:
    """How many rows follow, counted as far as it is worth the time."""
    count = 0
    try:
        while count < COUNTED_ROWS and cursor.fetchone() is not None:
            count += 1
    except sqlite3.OperationalError:
        return max(count, 1)  # the time is up, and there was at least one more
    return count


def run_query(connection: sqlite3.Connection, sql: str, seconds: float) -> dict[str, object]:
    """The reply to one request."""
    tables: set[str] = set()
    _confine(connection, tables, monotonic() + seconds)
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        if cursor.description is None:
            return {"type": "failure", "kind": "no_query"}
        columns = [str(column[0]) for column in cursor.description]
        rows = _read_rows(cursor)
        more = _count_rows(cursor)
    return {"type": "rows", "columns": columns, "rows": rows, "tables": sorted(tables), "more": more}


def _reply(request: dict[str, object], image: bytes) -> dict[str, object]:
    """The reply to the request, also where the query fails."""
    try:
        opened = open_image(image) if image else open_file(str(request["file"]))
        with contextlib.closing(opened) as connection:
            return run_query(connection, str(request["sql"]), float(str(request["seconds"])))
    except MemoryError:
        return {"type": "failure", "kind": "memory"}
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return _failure(error)


def _failure(error: Exception) -> dict[str, object]:
    """What failed, by SQLite's error code; where SQLite has only a text, it is read here and nowhere else."""
    message = str(error)
    failure: dict[str, object] = {"type": "failure", "kind": "sqlite", "message": message}
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of the module itself have none
    if code in _FAILURE_KINDS:
        failure["kind"] = _FAILURE_KINDS[code]
    elif "one statement at a time" in message:
        failure["kind"] = "statements"
    elif unknown := _UNKNOWN.search(message):
        failure["kind"] = f"unknown_{unknown[1]}"
        failure["name"] = unknown[2]
    return failure


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(most: int) -> None:
    """Where the kernel does not count address space, SQLite at least counts what it allocates."""
    with contextlib.suppress(ValueError, OSError):
        _limit(resource.RLIMIT_AS, most)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {most}")  # of the whole process


def _end_with_parent() -> None:
    """End this process as soon as no process reads its reply, also in the middle of the query."""
    poll = select.poll()
    poll.register(1, 0)  # only the end of it is reported
    poll.poll()
    os._exit(0)


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    size = int(request["image_bytes"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, TEMPORARY_FILE_BYTES)
    _limit_memory(int(request["memory"]) + 2 * size)  # an image is there twice while it is loaded
    image = sys.stdin.buffer.read(size)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    seconds = float(request["seconds"])
    signal.setitimer(signal.ITIMER_REAL, seconds + min(seconds, GRACE_SECONDS))
    reply = _reply(request, image)
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
