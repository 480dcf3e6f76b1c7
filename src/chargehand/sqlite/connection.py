"""A SQLite file: opening it, its schema, and its errors in words. What the rows mean is not decided here."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Corrupt, StoreError, StoreUnavailable

Durability = Literal["machine", "process"]
"""What an acknowledged entry survives: the loss of power, or only the end of the process."""

Connect = Callable[[Path, Seconds], sqlite3.Connection]


class FileKind(Struct, frozen=True):
    """What a file is for. `application` keeps other files from being mistaken for it.

    `schema` names the scripts that lead to each version, in order.
    """

    application: int
    schema: tuple[tuple[str, ...], ...]
    noun: str


JOURNAL = FileKind(
    0x43686764,
    (("001.sql",), ("route-examples-1.sql",), ("003.sql",), ("deliveries-1.sql",), ("files-1.sql",)),
    "journal",
)
CATALOG = FileKind(0x4368674D, (("catalog-1.sql", "passages-1.sql"),), "memory file")
_SYNCHRONOUS: dict[Durability, str] = {
    "machine": "PRAGMA synchronous = FULL",
    "process": "PRAGMA synchronous = NORMAL",
}
_WORDS = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "it is read-only; make the file and its directory writable",
    sqlite3.SQLITE_BUSY: "another program holds a lock on it; close that program",
    sqlite3.SQLITE_LOCKED: "another program holds a lock on it; close that program",
    sqlite3.SQLITE_PROTOCOL: "another program stands still while it holds a lock on it; end that program",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the disk",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that it is no folder, and that the one it is in exists",
    sqlite3.SQLITE_PERM: "access is denied; change the permissions",
    sqlite3.SQLITE_NOMEM: "memory ran out; free some",
}
_PAUSE = 0.02
_FOR_ALL = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)


FILE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What using a file raises: SQLite's own, and Python's where a message of SQLite is no text."""
_JOURNAL_TABLES = ("runs", "entries", "owners")
_COUNT_TABLES = f"SELECT count(*) FROM sqlite_master WHERE name IN {_JOURNAL_TABLES}"  # noqa: S608 - names of ours
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG})
"""What SQLite says of a damaged file. Our statements are fixed, so a mistake in one is a mistake in the schema."""
_DAMAGED_PAGES = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_DATA, sqlite3.SQLITE_IOERR_CORRUPTFS})


def connect(path: Path, patience: Seconds) -> sqlite3.Connection:
    """A connection that waits this long for locks, without transactions of its own making."""
    return sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)


def open_writer(
    path: Path, patience: Seconds, durability: Durability, connect: Connect, kind: FileKind = JOURNAL
) -> sqlite3.Connection:
    connection = connect(path, patience)
    try:
        check_kind(connection, path, kind)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_SYNCHRONOUS[durability])
    except BaseException:
        connection.close()
        raise
    return connection


def patiently(attempt: Callable[[], sqlite3.Connection], patience: Seconds) -> sqlite3.Connection:
    """What the attempt opens, tried for so long while other processes hold locks.

    While another process opens the same new file, SQLite refuses at once, whatever it was told to wait.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not locked(error) or time.monotonic() >= until:
                raise
            time.sleep(_PAUSE)


def open_reader(path: Path, patience: Seconds, connect: Connect) -> sqlite3.Connection:
    connection = connect(path, patience)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])


def check_kind(connection: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Raise StoreError for a file of another kind, Corrupt for one of the future; an empty one may be anything."""
    # before anything is changed: it may be the file of another program. In one transaction, because another process may
    # be writing the schema of a new file just now.
    connection.execute("BEGIN")
    try:
        app_id = _number(connection, "PRAGMA application_id")
        is_empty = not _number(connection, "SELECT count(*) FROM sqlite_master")
        headless = app_id != kind.application and kind is JOURNAL and has_tables(connection)
    finally:
        connection.rollback()
    if is_empty and app_id != kind.application:
        return
    if headless:
        raise _damaged_file(path, "its header does not say that it is a journal")
    if app_id != kind.application:
        whose = {other.application: f"a {other.noun} of chargehand" for other in (JOURNAL, CATALOG)}
        raise StoreError(
            f"{path} is {whose.get(app_id, 'a database of another program')}; name another file for the {kind.noun}"
        )
    check_version(connection, path, kind)


def check_version(connection: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Raise Corrupt for a schema of the future."""
    version = _number(connection, "PRAGMA user_version")
    if version > len(kind.schema):
        raise Corrupt(
            f"{path} has schema {version} and this chargehand knows {len(kind.schema)}: "
            "a newer version wrote it; upgrade chargehand",
            newer=True,
        )


def migrate(connection: sqlite3.Connection, kind: FileKind = JOURNAL) -> None:
    """Bring the schema up to date, within the transaction that is open."""
    version = _number(connection, "PRAGMA user_version")
    for scripts in kind.schema[version:]:
        for name in scripts:
            script = resources.files("chargehand.sqlite").joinpath("schema", name).read_text(encoding="utf-8")
            for statement in _statements(script):
                connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):  # not within a trigger, a comment or a text
            yield statement
            statement = ""


def undo(connection: sqlite3.Connection) -> None:
    """Roll back where a transaction is open; after some errors SQLite has done so itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def concerns_all(error: Exception) -> bool:
    """Whether everybody who writes now would meet the same error."""
    return _code(error) in _FOR_ALL


def locked(error: Exception) -> bool:
    """Whether another process held it just then."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: Exception) -> bool:
    """Whether SQLite could not make sense of what is in the file."""
    if isinstance(error, UnicodeDecodeError):  # SQLite's message quotes a schema that is no text
        return True
    code = getattr(error, "sqlite_errorcode", None) or 0
    if not code:  # Python's own: a text that is no text
        return isinstance(error, sqlite3.OperationalError) and "decode" in str(error)
    return code & 0xFF in _DAMAGE or code in _DAMAGED_PAGES


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables of a journal are there."""
    return _number(connection, _COUNT_TABLES) == len(_JOURNAL_TABLES)


def is_ours(path: Path, kind: FileKind = JOURNAL) -> bool:
    """Whether the file is of this kind, also where it is damaged: its header says so, or locks lie beside it."""
    if kind is JOURNAL and path.with_name(f"{path.name}-locks").exists():
        return True
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:
        return False
    return header[68:72] == kind.application.to_bytes(4, "big")


def _is_header_damaged(code: int, path: Path, kind: FileKind) -> bool:
    """Whether it is the header that keeps SQLite from using a file of ours, or from writing it."""
    if code == sqlite3.SQLITE_NOTADB:
        return is_ours(path, kind)
    if code == sqlite3.SQLITE_READONLY and is_ours(path, kind):
        with path.open("rb") as file:
            versions = file.read(20)[18:]
        return not set(versions) <= {1, 2}
    return False


def _damaged_file(path: Path, problem: object) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: {problem}. Some runs may still be read: chargehand runs --journal {path}. "
        "Restore it from a backup"
    )


def explain(error: Exception, path: Path, kind: FileKind = JOURNAL) -> StoreError:
    """What went wrong, in words, by who can act."""
    explained = _explained(error, path, kind)
    explained.__cause__ = error
    return explained


def _explained(error: Exception, path: Path, kind: FileKind) -> StoreError:
    code = _code(error)
    if is_damage(error):
        return _damaged_file(path, error)
    if _is_header_damaged(code, path, kind):
        return _damaged_file(path, f"its header cannot be read ({error})")
    if code in _WORDS:
        return StoreUnavailable(f"{path} cannot be used: {_WORDS[code]}, and try again. Nothing was lost ({error})")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path} is not a {kind.noun}, nor any SQLite database; name another file ({error})")
    if isinstance(error, sqlite3.Error | OSError) and code != sqlite3.SQLITE_CONSTRAINT:
        return StoreUnavailable(f"{path} could not be used: {error}. Nothing was lost; try again")
    return StoreError(f"{path} could not take what it was given: {error}")


def _code(error: Exception) -> int:
    # the low byte is the kind, the rest a detail of it
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, not only the bytes behind them."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- examination


Fault: TypeAlias = Literal["", "damaged", "newer", "foreign", "locked", "unusable"]

_PATIENCE: Seconds = 0.3


class Examined(Struct, frozen=True):
    """`said` tells of the fault."""

    fault: Fault = ""
    said: str = ""


def examine(path: Path, kind: FileKind, seconds: Seconds = 2.0) -> Examined:
    """What is wrong with a file that is there. A large one is looked through for as long as `seconds`."""
    try:
        with closing(connect(path, _PATIENCE)) as connection:
            return _examined(connection, path, kind, seconds)
    except Corrupt as error:
        return Examined("newer" if error.newer else "damaged", str(error))
    except StoreError as error:
        return Examined("foreign", str(error))
    except FILE_ERRORS as error:
        return _fault(error, path, kind)


def _examined(connection: sqlite3.Connection, path: Path, kind: FileKind, seconds: Seconds) -> Examined:
    check_kind(connection, path, kind)
    if (damage := _damage(connection, seconds)) != "ok":
        return Examined("damaged", f"{path} is damaged: {damage.splitlines()[-1][:120]}")
    connection.execute("BEGIN IMMEDIATE")  # whether anybody could write now
    connection.execute("ROLLBACK")
    return Examined()


def _damage(connection: sqlite3.Connection, seconds: Seconds) -> str:
    # not with a progress handler: older versions of SQLite do not call it during a check
    is_over = threading.Event()
    watch = threading.Thread(target=_interrupt_after, args=(connection, seconds, is_over))
    watch.start()
    try:
        return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        return "ok"  # as far as there was time
    finally:
        is_over.set()
        watch.join()  # an interrupt that comes late would end another statement


def _interrupt_after(connection: sqlite3.Connection, seconds: Seconds, is_over: threading.Event) -> None:
    """Interrupt a statement that takes longer, again and again: an interrupt before it begins has no effect."""
    is_finished = is_over.wait(seconds)
    while not is_finished:
        connection.interrupt()
        is_finished = is_over.wait(0.005)


def _fault(error: Exception, path: Path, kind: FileKind) -> Examined:
    explained = explain(error, path, kind)
    if locked(error):
        return Examined("locked", f"{path} is locked by another program")
    if isinstance(explained, Corrupt):
        return Examined("damaged", str(explained))
    if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_NOTADB:
        return Examined("foreign", str(explained))
    return Examined("unusable", str(explained))
