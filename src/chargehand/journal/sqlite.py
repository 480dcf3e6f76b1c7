"""A journal in one SQLite file. What is acknowledged survives kill -9, and by default the loss of power.

Many processes and threads may use it at once: the claim is per run (`owner`), and SQLite lets one write at a time. One
thread writes for a process (`sharing`, `writer`). Bodies over 64 KB lie beside it.
"""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import Fenced, StoreError
from chargehand.journal import rows
from chargehand.journal.blobs import LIMIT, Blobs, FileBlobs
from chargehand.journal.codec import encode
from chargehand.journal.ownership import Clock, Owner, locks_of
from chargehand.journal.protocol import DamagedRun, Ends, Lease, Readable, RunRow, check_name, check_numbers
from chargehand.journal.route_examples import JournalDatabase, RouteExamples
from chargehand.journal.sharing import USES, Backend, Use
from chargehand.sqlite.connection import (
    FILE_ERRORS,
    Connect,
    Durability,
    connect,
    explain,
    open_reader,
    open_writer,
    patiently,
    sync_directory,
)
from chargehand.sqlite.opening import in_thread
from chargehand.sqlite.readers import Readers
from chargehand.sqlite.writer import Open, Writer

_Found = TypeVar("_Found")


class SqliteJournal:
    """`await SqliteJournal.open(path)` gives one; `close` lets it go."""

    def __init__(self, use: Use, backend: Backend) -> None:
        self._use = use
        self._path = backend.path
        self._owner = backend.owner
        self._writer = backend.writer
        self._blobs = backend.blobs
        self._readers = backend.readers
        self._unanswered: dict[str, str] = {}
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        durability: Durability = "machine",
        stale: Seconds = 30.0,
        patience: Seconds = 5.0,
        blobs: Blobs | None = None,
        connect: Connect = connect,
        clock: Clock = time.monotonic,
    ) -> "SqliteJournal":
        """Open a journal; other processes, threads and teams may have it open, too.

        A process that has not beaten for `stale` seconds counts as frozen: its runs can be claimed. `patience` is how
        long to wait while another process writes.
        """

        def take() -> SqliteJournal:
            place = Path(path).resolve()
            key = (place, durability, stale, patience, blobs, connect, clock)
            opener = partial(
                _opened,
                path=place,
                durability=durability,
                stale=stale,
                patience=patience,
                blobs=blobs,
                connect=connect,
                clock=clock,
            )
            return cls(*USES.acquire(key, opener))

        return await in_thread(take, SqliteJournal._close)

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        self._check_open()
        owner = self._owner
        holder = self._unanswered.pop(run, None) or secrets.token_hex(8)
        try:
            return await self._writer.submit(lambda db: rows.claim(db, run, holder, owner, new=new, steal=steal))
        except (StoreError, asyncio.CancelledError):
            # it may hold the run all the same, so the next claim must be able to say: that was me
            self._unanswered[run] = holder
            raise

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._check_open()
        check_numbers(lease.run, entries)
        written = await self._rows(lease, entries)
        await self._writer.submit(lambda db: rows.append(db, lease, written))
        lease.seq = max(lease.seq, entries[-1].seq)

    async def _rows(self, lease: Lease, entries: Sequence[Entry]) -> list[rows.Row]:
        bodies = [encode(entry.event) for entry in entries]
        if max(map(len, bodies), default=0) <= LIMIT:
            return [rows.made(lease, entry, body) for entry, body in zip(entries, bodies, strict=True)]
        # large bodies first: a row must never name one that is not there
        put = self._blobs.put
        blobs = await self._readers.run(lambda: [put(body) if len(body) > LIMIT else "" for body in bodies])
        return [rows.made(lease, *parts) for parts in zip(entries, bodies, blobs, strict=True)]

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        check_name(run)
        return await self._look(lambda db: rows.read(db, self._blobs, run, after))

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        """The entries up to the first that is damaged, with what is wrong there. For looking: do not go on from it."""
        check_name(run)
        return await self._look(lambda db: rows.read_readable(db, self._blobs, run, after))

    async def release(self, lease: Lease) -> None:
        try:
            await self._writer.submit(lambda db: rows.release(db, lease))
        except Fenced:
            return

    async def runs(self) -> list[RunRow]:
        return await self._look(lambda db: rows.listing(db, locks_of(self._path)))

    async def inside(self, run: str) -> list[str]:
        """The runs inside a run, at any depth, by name."""
        return await self._look(lambda db: rows.inside(db, run))

    async def latest(self, *, before: int, limit: int) -> list[Ends | DamagedRun]:
        """So many runs with a lower number than `before`, the latest first."""
        return await self._look(lambda db: rows.latest(db, self._blobs, before, limit))

    def route_examples(self, team: str) -> RouteExamples:
        """The confirmed examples of a team's routes, in the same file."""
        return RouteExamples(JournalDatabase(self._writer, self._readers), team)

    @property
    def trouble(self) -> str:
        """Why nothing can be written just now; empty when all is well. Known within seconds, also when nothing is."""
        return self._writer.trouble

    async def close(self) -> None:
        """Write what has queued up, then let the file go, if nobody else in this process has it open."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._use.release)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._use.release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._path} was closed; open it again")

    async def _look(self, work: Callable[[sqlite3.Connection], _Found]) -> _Found:
        self._check_open()
        return await self._readers.look(work)


def _opened(
    path: Path,
    durability: Durability,
    stale: Seconds,
    patience: Seconds,
    blobs: Blobs | None,
    connect: Connect,
    clock: Clock,
) -> Backend:
    reopen = partial(open_writer, path, patience, durability, connect)
    owner = Owner(path, stale=stale, clock=clock)
    writer = Writer(path, _registered(path, owner, reopen, patience), owner, reopen)
    readers = Readers(path, partial(open_reader, path, patience, connect))
    beside = FileBlobs.beside(path) if blobs is None else blobs
    return Backend(path=path, owner=owner, writer=writer, readers=readers, blobs=beside)


def _registered(path: Path, owner: Owner, reopen: Open, patience: Seconds) -> sqlite3.Connection:
    """A connection to a file in which this owner is entered."""
    try:
        known = path.exists()
        connection = patiently(reopen, patience)
        try:
            if not known:
                sync_directory(path.parent)
            owner.register(connection)
        except BaseException:
            connection.close()
            raise
    except (*FILE_ERRORS, OSError) as error:
        raise explain(error, path) from error
    return connection
