"""Group commit: one thread takes whatever writes have queued up, and one commit carries them.

The commit is the batching window, so there is no timer.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar, cast

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, StoreError, StoreUnavailable
from chargehand.sqlite.connection import concerns_all, explain, undo

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
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]


class Writer:
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        submission = Submission(work, loop, cast("asyncio.Future[object]", future))
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
        waiting: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[object], object]]] = {}
        for submission, outcome in zip(batch, outcomes, strict=True):
            waiting.setdefault(submission.loop, []).append((submission.future, outcome))
        for loop, answers in waiting.items():
            try:
                loop.call_soon_threadsafe(_answer, answers)
            except RuntimeError:
                logger.debug("the event loop of %d writes to %s is closed", len(answers), self._path)

    def _leave(self, batch: list[Submission]) -> None:
        with self._submitting:
            self._closed = True
        while not self._queue.empty():
            if (submission := self._queue.get()) is not None:
                batch.append(submission)
        # an answer once given stays: this is for callers whom a bug of ours would leave waiting for ever
        self._wake(batch, [StoreError(f"the writer of {self._path} has ended; open it again") for _ in batch])
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._owner.leave(self._connection)
            self._connection.close()
        self._owner.unlock()


def _answer(answers: list[tuple[asyncio.Future[object], object]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
