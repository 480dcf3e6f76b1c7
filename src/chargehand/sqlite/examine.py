"""Whether a SQLite file of ours is in order, for who looks after a set-up. Its content is neither read nor changed.

SQLite may tidy up after a process that was killed, as at any opening. Nothing here takes longer than a few seconds.
"""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Corrupt, StoreError
from chargehand.sqlite.connection import FILE_ERRORS, FileKind, check_kind, connect, explain, locked

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
    if (found := _damage(connection, seconds)) != "ok":
        return Examined("damaged", f"{path} is damaged: {found.splitlines()[-1][:120]}")
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
    told = explain(error, path, kind)
    if locked(error):
        return Examined("locked", f"{path} is locked by another program")
    if isinstance(told, Corrupt):
        return Examined("damaged", str(told))
    if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_NOTADB:
        return Examined("foreign", str(told))
    return Examined("unusable", str(told))
