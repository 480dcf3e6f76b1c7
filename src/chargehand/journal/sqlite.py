"""A journal in one SQLite file. What is acknowledged survives kill -9, and by default the loss of power.

Many processes and threads may use it at once: the claim is per run (`ownership`), and SQLite lets one write at a time.
All who open the same file in a process, whatever their thread or loop, share one writer: the group commit carries what
all of them write, and they do not wait for each other's locks. Bodies over 64 KB lie beside the file.
"""

import asyncio
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import Fenced, StoreError
from chargehand.journal import rows
from chargehand.journal.blobs import LIMIT, Blobs, FileBlobs
from chargehand.journal.codec import encode
from chargehand.journal.ownership import Clock, Owner, locks_of
from chargehand.journal.protocol import Lease, Readable, RunRow, check_name, check_numbers
from chargehand.journal.route_examples import SqliteRouteExamples
from chargehand.sqlite.connection import JOURNAL, Connect, Durability, connect
from chargehand.sqlite.database import FileDatabase, open_in_thread

_Outcome = TypeVar("_Outcome")
_Key: TypeAlias = tuple[object, ...]
"""The file, and everything about how it was opened."""


class _OpenFile:
    """What this process has open of one journal file."""

    def __init__(self, database: FileDatabase, owner: Owner, blobs: Blobs) -> None:
        self.database = database
        self.owner = owner
        self.blobs = blobs
        self._identity = _identity(database.path)

    def is_current(self) -> bool:
        """Whether the path still leads to the file that is open."""
        return self._identity == _identity(self.database.path)


class _Use:
    """An open file and how many have it open. The lock is held while it is opened or closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.file: _OpenFile | None = None

    def release(self) -> None:
        """Close the file if this was the last user. Blocks."""
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.file is not None:
                self.file.database.close_now()
                self.file = None


class _Uses:
    """The files this process has open. The first user opens a file, the last one closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[_Key, _Use] = {}

    def acquire(self, key: _Key, opener: Callable[[], _OpenFile]) -> tuple[_Use, _OpenFile]:
        """The file of this key, opened if it is not open yet. Blocks."""
        use = self._find(key)
        with use.lock:
            if use.file is None:
                use.file = opener()
            use.count += 1
            return use, use.file

    def _find(self, key: _Key) -> _Use:
        with self._lock:
            # a process may open many files in its life: those it has closed are dropped
            self._uses = {known: use for known, use in self._uses.items() if known == key or use.file is not None}
            use = self._uses.setdefault(key, _Use())
            if use.file is not None and not use.file.is_current():
                use = self._uses[key] = _Use()  # the file was replaced: users of the old one keep it
            return use

    def forget(self) -> None:
        """After a fork: threads and connections of the parent are worth nothing here."""
        self._lock = threading.Lock()
        self._uses = {}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


_USES = _Uses()
os.register_at_fork(after_in_child=_USES.forget)


class SqliteJournal:
    """`await SqliteJournal.open(path)` gives one; `close` lets it go."""

    append_now = None
    """Every append waits for a commit."""

    def __init__(self, use: _Use, file: _OpenFile) -> None:
        self._use = use
        self._database = file.database
        self._owner = file.owner
        self._blobs = file.blobs
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

        def open_file(place: Path) -> _OpenFile:
            owner = Owner(place, stale=stale, clock=clock)
            database = FileDatabase(
                place, kind=JOURNAL, durability=durability, patience=patience, connect=connect, owner=owner
            )
            return _OpenFile(database, owner, FileBlobs.beside(place) if blobs is None else blobs)

        def take() -> SqliteJournal:
            place = Path(path).resolve()
            key = (place, durability, stale, patience, blobs, connect, clock)
            return cls(*_USES.acquire(key, partial(open_file, place)))

        return await open_in_thread(take, SqliteJournal._close)

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        self._check_open()
        owner = self._owner
        holder = self._unanswered.pop(run, None) or secrets.token_hex(8)
        try:
            return await self._database.write(lambda db: rows.claim(db, run, holder, owner, new=new, steal=steal))
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
        await self._database.write(lambda db: rows.append(db, lease, written))
        lease.seq = max(lease.seq, entries[-1].seq)

    async def _rows(self, lease: Lease, entries: Sequence[Entry]) -> list[rows.Row]:
        bodies = [encode(entry.event) for entry in entries]
        if max(map(len, bodies), default=0) <= LIMIT:
            return [rows.make_row(lease, entry, body) for entry, body in zip(entries, bodies, strict=True)]
        # large bodies first: a row must never name one that is not there
        put = self._blobs.put
        blobs = await self._database.run(lambda: [put(body) if len(body) > LIMIT else "" for body in bodies])
        return [rows.make_row(lease, *parts) for parts in zip(entries, bodies, blobs, strict=True)]

    async def release(self, lease: Lease) -> None:
        try:
            await self._database.write(lambda db: rows.release(db, lease))
        except Fenced:
            return

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        check_name(run)
        return await self._read(lambda db: rows.read(db, self._blobs, run, after))

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        check_name(run)
        return await self._read(lambda db: rows.read_readable(db, self._blobs, run, after))

    async def runs(self) -> list[RunRow]:
        return await self._read(lambda db: self._listing(db).runs())

    async def open_runs(self) -> list[RunRow]:
        return [row for row in await self.runs() if row.ended is None and not row.damage]

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return await self._read(lambda db: self._listing(db).latest(before, limit))

    async def inside(self, run: str) -> list[str]:
        return await self._read(lambda db: rows.inside(db, run))

    def route_examples(self, team: str) -> SqliteRouteExamples:
        return SqliteRouteExamples(self._database, team)

    @property
    def trouble(self) -> str:
        return self._database.trouble

    async def close(self) -> None:
        """Write what has queued up, then let the file go, if this was its last user in the process."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._use.release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._database.path} was closed; open it again")

    def _listing(self, connection: sqlite3.Connection) -> rows.Listing:
        return rows.Listing(connection, self._blobs, locks_of(self._database.path))

    async def _read(self, work: Callable[[sqlite3.Connection], _Outcome]) -> _Outcome:
        self._check_open()
        return await self._database.read(work)
