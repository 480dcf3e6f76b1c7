"""Databases: work on a connection, run in a thread. A file that processes share, or memory of this process.

What is read and written there is not decided here.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from chargehand.concurrency import answer_futures
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, StoreError, StoreUnavailable
from chargehand.sqlite.connection import (
    FILE_ERRORS,
    Connect,
    Durability,
    FileKind,
    check_version,
    concerns_all,
    connect,
    explain,
    migrate,
    open_reader,
    open_writer,
    patiently,
    sync_directory,
    undo,
)

# --- group commit: one thread commits all queued writes together


Outcome = TypeVar("Outcome")
Open = Callable[[], sqlite3.Connection]

logger = logging.getLogger(__name__)

UNFIT = (sqlite3.Error, ValueError, TypeError, OverflowError)
"""What a statement raises: SQLite's own, and Python's for values that do not fit a column."""


class Ownership(Protocol):
    """What a file belongs to, as far as its writer must know."""

    def register(self, connection: sqlite3.Connection) -> None:
        """Enter this owner in a file that was just opened, and bring its schema up to date."""
        ...

    def until_beat(self) -> Seconds | None:
        """How long the writer may wait for work; None: as long as it likes."""
        ...

    def due(self) -> bool: ...

    def check(self, connection: sqlite3.Connection, *, beat: bool) -> None:
        """Raise whatever forbids to write now. Called within every transaction, first."""
        ...

    def leave(self, connection: sqlite3.Connection) -> None: ...

    def unlock(self) -> None: ...


class Submission(Struct, frozen=True):
    """Work for the writer, and the future of its caller. A ChargehandError is raised only before it has written."""

    work: Callable[[sqlite3.Connection], object]
    future: asyncio.Future[object]


class WriterThread:
    def __init__(self, path: Path, connection: sqlite3.Connection, owner: Ownership, reopen: Open) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._owner = owner
        self._reopen = reopen
        self._queue: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._submitting = threading.Lock()
        self._closed = False
        self.trouble = ""
        """Why nothing could be written the last time it was tried; empty when it could."""
        # a forgotten close must not keep the process from ending: a commit is whole or not at all
        self._thread = threading.Thread(target=self._serve, name="chargehand-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], Outcome]) -> asyncio.Future[Outcome]:
        """The work's outcome, once it is durable. Cancelling the wait does not stop the work."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        submission = Submission(work, cast("asyncio.Future[object]", future))
        with self._submitting:
            if self._closed:
                raise StoreError(f"{self._path} was closed; open it again")
            self._queue.put(submission)
        return future

    def stop(self) -> None:
        """Write what has queued up, then end. Blocks."""
        with self._submitting:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        batch: list[Submission] = []
        try:
            goes_on = True
            while goes_on:
                batch, goes_on = self._take()
                self._wake(batch, self._commit(batch))
        finally:
            self._leave(batch)

    def _take(self) -> tuple[list[Submission], bool]:
        """All that waits, as soon as anything does or a beat is due; and whether more may come."""
        batch: list[Submission] = []
        try:
            pause = self._owner.until_beat()
            submission = self._queue.get(timeout=None if pause is None else max(0.0, pause))
            while submission is not None:
                batch.append(submission)
                submission = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _commit(self, batch: list[Submission], *, alone: bool = False) -> list[object]:
        """What became of each: its result, or its error. One bad submission does not fail its mates."""
        try:
            return self._transact(batch)
        except ChargehandError as error:  # not of one submission: we are fenced, or the file is no journal any more
            self._undo()
            self.trouble = str(error)
            if not batch:
                logger.warning("no beat for %s: %s", self._path, error)
            return [error for _ in batch]
        except UNFIT as error:
            self._undo()
            if not batch:
                logger.warning("no beat for %s: %s", self._path, error)
            # a lone one too: if only the answer was lost, it finds itself written already
            if not alone and not concerns_all(error):
                return [outcome for submission in batch for outcome in self._commit([submission], alone=True)]
            explained = explain(error, self._path)
            self.trouble = str(explained) if isinstance(explained, StoreUnavailable) else ""
            return [explain(error, self._path) for _ in batch]

    def _transact(self, batch: list[Submission]) -> list[object]:
        beat = self._owner.due()  # before anything can fail
        if self._connection is None:
            self._connection = self._reopen()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        self._owner.check(connection, beat=beat)
        outcomes: list[object] = []
        for submission in batch:
            try:
                outcomes.append(submission.work(connection))
            except ChargehandError as error:
                outcomes.append(error)
        connection.execute("COMMIT")
        self.trouble = ""
        return outcomes

    def _undo(self) -> None:
        if self._connection is None:
            return
        try:
            undo(self._connection)
        except sqlite3.Error:
            # closing rolls back as well
            self._connection.close()
            self._connection = None

    def _wake(self, batch: list[Submission], outcomes: list[object]) -> None:
        answer_futures(zip((submission.future for submission in batch), outcomes, strict=True))

    def _leave(self, batch: list[Submission]) -> None:
        with self._submitting:
            self._closed = True
        while not self._queue.empty():
            if (submission := self._queue.get()) is not None:
                batch.append(submission)
        # an answer once given stays: this is for callers that a bug of ours would leave waiting for ever
        self._wake(batch, [StoreError(f"the writer of {self._path} has ended; open it again") for _ in batch])
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._owner.leave(self._connection)
            self._connection.close()
        self._owner.unlock()


# --- databases


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
        self._writer = WriterThread(path, self._register(owner, reopen, patience), owner, reopen)
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
