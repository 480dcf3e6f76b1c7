"""How a catalog, or confirmed examples, get at their database: a file that processes share, or memory of its own.

What is read and written there is not decided here.
"""

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, StoreError
from chargehand.sqlite.connection import (
    CATALOG,
    Connect,
    Durability,
    FileKind,
    check_version,
    connect,
    explain,
    migrate,
    open_reader,
    open_writer,
    patiently,
    sync_directory,
    undo,
)
from chargehand.sqlite.readers import Readers
from chargehand.sqlite.writer import UNFIT, Writer

Outcome = TypeVar("Outcome")


class Door(Protocol):
    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        """The work's outcome, once it is durable. The work raises a ChargehandError only before it has written."""
        ...

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        """What the work finds; all it looks at is of one moment."""
        ...

    async def close(self) -> None: ...


class MemoryDoor:
    """A database of this process alone. There is nothing to wait for, so no thread is asked."""

    def __init__(self, kind: FileKind = CATALOG) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._closed = False
        migrate(self._connection, kind)
        # it lives as long as a team does, which nobody closes; newer Pythons warn of what is left open
        weakref.finalize(self, self._connection.close)

    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return self._do("BEGIN IMMEDIATE", work)

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return self._do("", work)

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()

    def _do(self, begin: str, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        with self._lock:
            if self._closed:
                raise StoreError("this memory was closed, and with it all it held")
            try:
                if begin:
                    self._connection.execute(begin)
                outcome = work(self._connection)
                if begin:
                    self._connection.execute("COMMIT")
            except UNFIT as error:
                undo(self._connection)
                raise explain(error, Path("the memory of this process"), self._kind) from error
            except BaseException:
                undo(self._connection)
                raise
            return outcome


class Everybodys:
    """Ownership of a file that any process may write: nobody beats, and nobody is fenced."""

    def __init__(self, path: Path, kind: FileKind) -> None:
        self._path = path
        self._kind = kind

    def until_beat(self) -> None:
        return None

    def due(self) -> bool:
        return False

    def check(self, connection: sqlite3.Connection, *, beat: bool) -> None:  # noqa: ARG002 - there is no beat
        check_version(connection, self._path, self._kind)  # another process may have brought it up to its own

    def leave(self, connection: sqlite3.Connection) -> None:
        """Nobody needs to know."""

    def unlock(self) -> None:
        """There is no lock."""


class FileDoor:
    """One thread writes and a few read. Other processes may do the same to the same file."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability,
        patience: Seconds,
        connect: Connect = connect,
        kind: FileKind = CATALOG,
    ) -> None:
        reopen = partial(_opened, path=path, patience=patience, durability=durability, connect=connect, kind=kind)
        self._path = path
        self._kind = kind
        self._writer = Writer(path, reopen(), Everybodys(path, kind), reopen)
        self._readers = Readers(path, partial(open_reader, path, patience, connect))

    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return await self._writer.submit(partial(_whatever_happens, work))

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return await self._readers.look(partial(_at_one_moment, self._path, self._kind, work))

    async def close(self) -> None:
        self._readers.refuse()
        # whoever waits may be cancelled before a thread has begun with it, and nobody would close it then
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close_now))

    def close_now(self) -> None:
        """The same for code without an event loop. Blocks."""
        self._writer.stop()
        self._readers.close()


def _whatever_happens(work: Callable[[sqlite3.Connection], Outcome], db: sqlite3.Connection) -> Outcome:
    """A bug in one piece of work must not end the thread that writes for all."""
    try:
        return work(db)
    except (ChargehandError, *UNFIT):
        raise
    except Exception as error:  # it may be any: this one is undone, and whoever asked is told
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _at_one_moment(
    path: Path, kind: FileKind, work: Callable[[sqlite3.Connection], Outcome], db: sqlite3.Connection
) -> Outcome:
    db.execute("BEGIN")
    try:
        return work(db)
    except (ValueError, TypeError, OverflowError) as error:  # Python's own, for values that fit no column
        raise explain(error, path, kind) from error
    finally:
        undo(db)


def _opened(
    path: Path, patience: Seconds, durability: Durability, connect: Connect, kind: FileKind
) -> sqlite3.Connection:
    """A connection to a file that is ours to write, made if it is missing, with the schema we know."""
    try:
        known = path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = patiently(
            partial(open_writer, path=path, patience=patience, durability=durability, connect=connect, kind=kind),
            patience,
        )
        try:
            if not known:
                sync_directory(path.parent)
            connection.execute("BEGIN IMMEDIATE")
            check_version(connection, path, kind)
            migrate(connection, kind)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path, kind) from error
    return connection
