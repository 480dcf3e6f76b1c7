"""Databases: work on a connection, run in a thread. A file that processes share, or memory of this process.

What is read and written there is not decided here.
"""

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, StoreError, StoreUnavailable
from chargehand.sqlite.connection import (
    FILE_ERRORS,
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
from chargehand.sqlite.writer import UNFIT, Ownership, Writer

Outcome = TypeVar("Outcome")


class Database(Protocol):
    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        """The work's outcome, once it is durable. The work raises a ChargehandError only before it has written."""
        ...

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        """The work's outcome; all it reads is of one moment."""
        ...

    async def close(self) -> None: ...


class MemoryDatabase:
    """A database of this process alone. There is nothing to wait for, so no thread is used."""

    def __init__(self, kind: FileKind) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._closed = False
        migrate(self._connection, kind)
        # it lives as long as a team, which is not closed; newer Pythons warn of connections left open
        weakref.finalize(self, self._connection.close)

    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return self._run(work, "BEGIN IMMEDIATE")

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return self._run(work, "BEGIN")

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], Outcome], begin: str) -> Outcome:
        with self._lock:
            if self._closed:
                raise StoreError("this memory was closed, and with it all it held")
            try:
                self._connection.execute(begin)
                outcome = work(self._connection)
                self._connection.execute("COMMIT")
            except UNFIT as error:
                undo(self._connection)
                raise explain(error, Path("the memory of this process"), self._kind) from error
            except BaseException:
                undo(self._connection)
                raise
            return outcome


class SharedByAll:
    """Ownership of a file that any process may write: no heartbeat, no fencing."""

    def __init__(self, path: Path, kind: FileKind) -> None:
        self._path = path
        self._kind = kind

    def register(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        self.check(connection, beat=False)
        connection.execute("COMMIT")

    def until_beat(self) -> None:
        return None

    def due(self) -> bool:
        return False

    def check(self, connection: sqlite3.Connection, *, beat: bool) -> None:  # noqa: ARG002 - there is no beat
        check_version(connection, self._path, self._kind)  # another process may have brought it up to its own
        migrate(connection, self._kind)

    def leave(self, connection: sqlite3.Connection) -> None:
        """No other process needs to know."""

    def unlock(self) -> None:
        """There is no lock."""


class FileDatabase:
    """A file: one thread writes and two read. Other processes may do the same to the same file."""

    def __init__(
        self,
        path: Path,
        *,
        kind: FileKind,
        durability: Durability = "machine",
        patience: Seconds = 5.0,
        connect: Connect = connect,
        owner: Ownership | None = None,
    ) -> None:
        """Open the file, made with its folder if it is missing. `patience` is how long to wait for other writers."""
        self.path = path
        self._kind = kind
        owner = owner or SharedByAll(path, kind)
        reopen = partial(open_writer, path, patience, durability, connect, kind)
        self._writer = Writer(path, self._register(owner, reopen, patience), owner, reopen)
        self._connect = partial(open_reader, path, patience, connect)
        self._idle: list[sqlite3.Connection] = []
        # not the loop's own pool: there a slow tool could stand in the way
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="chargehand-reader")
        self._closed = False

    def _register(
        self, owner: Ownership, reopen: Callable[[], sqlite3.Connection], patience: Seconds
    ) -> sqlite3.Connection:
        """A connection to the file, with the schema we know, in which this owner is entered."""
        try:
            is_known = self.path.exists()
            self._make_folder()
            connection = patiently(reopen, patience)
            try:
                if not is_known:
                    sync_directory(self.path.parent)
                owner.register(connection)
            except BaseException:
                connection.close()
                raise
        except (*FILE_ERRORS, OSError) as error:
            raise explain(error, self.path, self._kind) from error
        return connection

    def _make_folder(self) -> None:
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be made: {error.strerror}; name another file") from error

    @property
    def trouble(self) -> str:
        """Why nothing could be written the last time it was tried; empty when it could."""
        return self._writer.trouble

    async def write(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return await self._writer.submit(partial(_run_safely, work))

    async def read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        return await self.run(partial(self._read, work))

    async def run(self, work: Callable[[], Outcome]) -> Outcome:
        """Work that needs no connection, in a thread of the readers."""
        if self._closed:
            raise StoreError(f"{self.path} was closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        self._closed = True
        # a wait that is cancelled before a thread has begun would leave the file open
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close_now))

    def close_now(self) -> None:
        """Write what has queued up, then let the file go. Blocks."""
        self._closed = True
        self._writer.stop()
        self._pool.shutdown()
        while self._idle:
            self._idle.pop().close()

    def _read(self, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect()
            try:
                outcome = read_at_once(connection, work)
            except BaseException:  # it may stand in the middle of a read, which would keep the file from shrinking
                connection.close()
                raise
        except (*FILE_ERRORS, ValueError, TypeError, OverflowError) as error:
            raise explain(error, self.path, self._kind) from error
        self._idle.append(connection)
        return outcome


def read_at_once(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
    """The work's outcome; it reads the file as it was at one moment, whatever others write meanwhile."""
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        undo(connection)


def _run_safely(work: Callable[[sqlite3.Connection], Outcome], connection: sqlite3.Connection) -> Outcome:
    """A bug in one piece of work must not end the thread that writes for all."""
    try:
        return work(connection)
    except (ChargehandError, *UNFIT):
        raise
    except Exception as error:  # any: this work is undone, and its caller gets the error
        raise ValueError(f"{type(error).__name__}: {error}") from error


async def open_in_thread(take: Callable[[], Outcome], close: Callable[[Outcome], object]) -> Outcome:
    """What `take` opens. If the wait for it is cancelled it is closed again, as soon as it is open."""
    opened = Future[Outcome]()

    def run() -> None:
        try:
            opened.set_result(take())
        except BaseException as error:  # noqa: BLE001 - raised by `result` below
            opened.set_exception(error)

    try:
        await asyncio.to_thread(run)
    except asyncio.CancelledError:  # the thread opens it all the same, and only this callback can close it
        opened.add_done_callback(lambda future: None if future.exception() else close(future.result()))
        raise
    return opened.result()
