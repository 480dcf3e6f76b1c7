"""A journal in one SQLite file. What is acknowledged survives kill -9, and by default the loss of power.

It belongs to one process at a time (`owner`), and one thread writes it (`writer`). Bodies over 64 KB lie beside it.
"""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chargehand.errors import Fenced, StoreError
from chargehand.stores import rows
from chargehand.stores.blobs import LIMIT, Blobs, FileBlobs, sync_directory
from chargehand.stores.codec import encode
from chargehand.stores.database import Connect, Durability, connect, explain, open_reader, open_writer
from chargehand.stores.journal import Ends, Lease, RunRow, check_name, check_numbers
from chargehand.stores.lessons import JournalDoor, Lessons
from chargehand.stores.opening import in_thread
from chargehand.stores.owner import Clock, Owner
from chargehand.stores.readers import Readers
from chargehand.stores.writer import Open, Writer
from chargehand.terms.events import Entry
from chargehand.terms.policy import Seconds


class SqliteJournal:
    """`await SqliteJournal.open(path)` gives one; `close` lets it go."""

    def __init__(self, path: Path, writer: Writer, blobs: Blobs, reader: Open) -> None:
        self._path = path
        self._writer = writer
        self._blobs = blobs
        self._readers = Readers(path, reader)
        self._unanswered: dict[str, str] = {}

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
        """Take the journal over, or raise RunBusy if a living process has it.

        A process that has not beaten for `stale` seconds counts as frozen. `patience` is how long to wait when another
        program holds a lock on the file.
        """

        def take() -> SqliteJournal:
            place = Path(path).resolve()
            reopen = partial(open_writer, place, patience, durability, connect)
            owner = Owner(place, stale=stale, clock=clock)
            writer = Writer(place, _taken(place, owner, reopen), owner, reopen)
            beside = FileBlobs(place.with_name(place.name + "-blobs")) if blobs is None else blobs
            return cls(place, writer, beside, partial(open_reader, place, patience, connect))

        return await in_thread(take, SqliteJournal._close)

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        holder = self._unanswered.pop(run, None) or secrets.token_hex(8)
        try:
            return await self._writer.submit(lambda db: rows.claim(db, run, holder, new=new, steal=steal))
        except (StoreError, asyncio.CancelledError):
            # it may hold the run all the same, so the next claim must be able to say: that was me
            self._unanswered[run] = holder
            raise

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        if not entries:
            return
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
        return await self._readers.look(lambda db: rows.read(db, self._blobs, run, after))

    async def release(self, lease: Lease) -> None:
        try:
            await self._writer.submit(lambda db: rows.release(db, lease))
        except Fenced:
            return

    async def runs(self) -> list[RunRow]:
        return await self._readers.look(rows.listing)

    async def inside(self, run: str) -> list[str]:
        """The runs inside a run, at any depth, by name."""
        return await self._readers.look(lambda db: rows.inside(db, run))

    async def latest(self, *, before: int, limit: int) -> list[Ends]:
        """So many runs with a lower number than `before`, the latest first."""
        return await self._readers.look(lambda db: rows.latest(db, self._blobs, before, limit))

    def lessons(self, team: str) -> Lessons:
        """What a team learnt from its runs, in the same file."""
        return Lessons(JournalDoor(self._writer, self._readers), team, str(self._path))

    @property
    def trouble(self) -> str:
        """Why nothing can be written just now; empty when all is well. Known within seconds, also when nothing is."""
        return self._writer.trouble

    async def close(self) -> None:
        """Write what has queued up, then let the file go."""
        self._readers.refuse()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.stop()
        self._readers.close()


def _taken(path: Path, owner: Owner, reopen: Open) -> sqlite3.Connection:
    """A connection to a file that is ours."""
    try:
        known = path.exists()
        connection = reopen()
        try:
            if not known:
                sync_directory(path.parent)
            owner.take(connection)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path) from error
    return connection
