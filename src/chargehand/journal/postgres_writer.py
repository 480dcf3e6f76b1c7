"""The writer of an opened journal: its row among the owners, and the connection that carries all appends.

Appends of many runs that wait at the same moment go with one statement and one commit. The connection holds a lock
that ends with it, and beats: a run can be claimed from a process that is dead at once, from one that is frozen when its
beat is stale. After a restart of the server no process holds its lock; a process whose beat is recent still counts as
alive, so it has time to reconnect.
"""

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from msgspec import Struct

from chargehand.concurrency import answer_futures
from chargehand.engine.policy import Seconds
from chargehand.errors import StoreError, StoreUnavailable
from chargehand.journal.protocol import Lease, differs, fenced, misfit
from chargehand.journal.stored_entry import StoredEntry
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection, driver_errors, explain, is_lost, is_repeatable

logger = logging.getLogger(__name__)

STALE: Seconds = 30.0
"""A process without a heartbeat for so long counts as frozen."""
CHANNEL = "chargehand_entries"
_MAX_ENTRIES = 2000
"""Entries of one statement."""
_MAX_BYTES = 16 * 1024 * 1024
_MAX_NOTICE = 7900  # bytes: PostgreSQL takes 7999
_LOCK_CLASS = 0x4368676F
"""The first key of the advisory locks of owners; the second is in their row."""

# taken before the row names it, because an owner whose lock is not held counts as dead
_TAKE_LOCK = """
    WITH next AS MATERIALIZED (SELECT nextval('owner_locks')::int AS lock)
    SELECT lock, pg_advisory_lock($1, lock) FROM next
"""
_REGISTER = "INSERT INTO owners (pid, host, lock, beat) VALUES ($1, $2, $3, clock_timestamp()) RETURNING number"
_REGISTER_AGAIN = "UPDATE owners SET lock = $2, beat = clock_timestamp() WHERE number = $1 RETURNING number"
_BEAT = "UPDATE owners SET beat = clock_timestamp() WHERE number = $1"
LIVING = f"""
    SELECT number FROM owners WHERE beat > clock_timestamp() - interval '{STALE} s' AND (
        beat < pg_postmaster_start_time() OR EXISTS (
            SELECT FROM pg_locks
            WHERE locktype = 'advisory' AND classid = {_LOCK_CLASS}::oid AND objid = owners.lock::oid AND objsubid = 2
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    )
"""  # noqa: S608 - numbers of our own
"""A query for the owners that live."""
_FORGET_DEAD = f"""
    WITH dead AS (
        DELETE FROM owners WHERE tenant = current_tenant() AND number NOT IN ({LIVING}) RETURNING number
    )
    UPDATE runs SET holder = NULL, owner = NULL WHERE owner IN (SELECT number FROM dead)
"""  # noqa: S608 - as above
_UNREGISTER = """
    WITH gone AS (DELETE FROM owners WHERE number = $1)
    UPDATE runs SET holder = NULL, owner = NULL WHERE owner = $1
"""
# The update is the check: it finds a row only if epoch, place and hold are as the lease says. Runs come in the order of
# their numbers, so that two processes with some of the same runs lock them in the same order. Should they wait for each
# other all the same, the server undoes one of the two, which is then repeated. Locking them in a step of its own, which
# would rule that out, costs a fifth of the throughput.
_APPEND = """
    WITH moved AS (
        UPDATE runs SET seq = batch.last, ended = batch.ends,
            holder = CASE WHEN batch.ends THEN NULL ELSE runs.holder END,
            owner = CASE WHEN batch.ends THEN NULL ELSE runs.owner END
        FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[])
            AS batch (number, run, epoch, before, last, ends)
        WHERE runs.number = batch.number AND runs.run = batch.run AND runs.epoch = batch.epoch
            AND runs.seq = batch.before AND runs.holder IS NOT NULL
        RETURNING runs.number
    ), written AS (
        INSERT INTO entries (run, seq, at, epoch, type, version, body, crc, tenant)
        SELECT entry.*, (SELECT current_tenant()) FROM unnest(
            $7::bigint[], $8::bigint[], $9::float8[], $10::bigint[],
            $11::text[], $12::int[], $13::bytea[], $14::bigint[]
        ) AS entry (run, seq, at, epoch, type, version, body, crc)
        WHERE entry.run IN (SELECT number FROM moved)
    )
    SELECT array_agg(number), pg_notify($15, $16) FROM moved
"""
_RUN_POSITION = "SELECT epoch, seq, holder IS NOT NULL, ended FROM runs WHERE tenant = current_tenant() AND run = $1"
_ENTRIES_BETWEEN = """
    SELECT seq, at, epoch, type, version, body, '', crc FROM entries WHERE run = $1 AND seq BETWEEN $2 AND $3
    ORDER BY seq
"""


class QueuedAppend(Struct, frozen=True, eq=False):
    """Entries that wait to be written, and the future of their caller."""

    lease: Lease
    rows: Sequence[StoredEntry]
    ends: bool
    """The last of them ends the run."""
    future: asyncio.Future[None]

    @property
    def bytes(self) -> int:
        return sum(len(row[5]) for row in self.rows)


@lru_cache(maxsize=4096)
def run_digest(run: str) -> str:
    """The name of a run in a notice."""
    return blake2b(run.encode(), digest_size=8).hexdigest()


def notice_of(tenant: int, runs: Iterable[str]) -> str:
    """Which runs of a tenant were written; a star for more than a notice can name."""
    notice = f"{tenant} {' '.join(map(run_digest, runs))}"
    return notice if len(notice) <= _MAX_NOTICE else f"{tenant} *"


class PostgresWriter:
    """One for each opened journal. Everything but `submit` runs in the thread of all connections."""

    def __init__(self, database: PostgresDatabase, *, synchronous: bool) -> None:
        self._database = database
        self._synchronous = synchronous
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._queue: deque[QueuedAppend] = deque()
        self._arrived = asyncio.Event()
        self._stopped = asyncio.Event()
        self._closed = False
        self._beaten = 0.0
        self.owner = 0
        """Its number among the owners; another one after it was taken for dead."""
        self.process = 0
        """The process of the server that serves its connection."""
        self.trouble = ""
        """Why nothing could be written the last time it was tried; empty when it could."""

    def submit(self, lease: Lease, rows: Sequence[StoredEntry], *, ends: bool) -> "asyncio.Future[None]":
        """Done once they are durable. Cancelling the wait does not stop the work. From any event loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise StoreError(f"{self._database.url} was closed; open it again")
            is_first = not self._queue
            self._queue.append(QueuedAppend(lease, rows, ends, future))
        if is_first:
            client_thread().loop.call_soon_threadsafe(self._arrived.set)
        return future

    async def start(self) -> None:
        try:
            await self._connected()
        except driver_errors() as error:
            raise explain(error, self._database.url) from error
        client_thread().spawn(self._serve())

    async def stop(self) -> None:
        """Write what has queued up, then release all runs that are held."""
        with self._lock:
            self._closed = True
        self._arrived.set()
        await self._stopped.wait()

    # --- the loop

    async def _serve(self) -> None:
        batch: list[QueuedAppend] = []
        try:
            while True:
                await self._wait()
                batch = self._next_batch()
                if batch:
                    answer_futures(await self._commit(batch))
                elif self._closed:
                    await self._unregister()
                    return
                if self._until_beat() <= 0:
                    await self._beat()
        finally:
            with self._lock:
                self._closed = True
                unanswered = [append.future for append in (*batch, *self._queue)]
            # futures that are done are skipped: after an unexpected error no caller waits for ever
            answer_futures(
                (future, StoreError(f"the writer of {self._database.url} has ended")) for future in unanswered
            )
            if self._connection is not None:
                self._connection.terminate()
            self._stopped.set()

    async def _wait(self) -> None:
        """Until something arrives, or a beat is due."""
        if self._queue:
            return
        try:
            async with asyncio.timeout(max(0.0, self._until_beat())):
                await self._arrived.wait()
        except TimeoutError:
            return
        self._arrived.clear()

    def _next_batch(self) -> list[QueuedAppend]:
        """Appends from the queue, one for each run; a second append of a run stays for the next batch."""
        batch: dict[int, QueuedAppend] = {}
        later: list[QueuedAppend] = []
        entries = 0
        size = 0
        with self._lock:
            while self._queue and entries < _MAX_ENTRIES and size < _MAX_BYTES:
                append = self._queue.popleft()
                if append.lease.number in batch:
                    later.append(append)
                    continue
                batch[append.lease.number] = append
                entries += len(append.rows)
                size += append.bytes
            self._queue.extendleft(reversed(later))
        return [batch[number] for number in sorted(batch)]

    # --- appends

    async def _commit(self, batch: list[QueuedAppend]) -> list[tuple["asyncio.Future[None]", object]]:
        """The outcome of each append: None, or its error. One that does not fit does not fail the others."""
        outcomes: list[tuple[asyncio.Future[None], object]] = []
        for attempt in range(2):
            try:
                moved = await self._write(batch)
                for append in batch:
                    outcome = None if append.lease.number in moved else await self._check_unwritten(append)
                    outcomes.append((append.future, outcome))
            except driver_errors() as error:
                outcomes.clear()
                if is_lost(error):
                    self._disconnect()
                if not attempt and is_repeatable(error):  # it may be committed, with only the reply lost
                    continue
                return await self._fail(batch, error)
            else:
                self.trouble = ""
                return outcomes
        return outcomes

    async def _fail(self, batch: list[QueuedAppend], error: Exception) -> list[tuple["asyncio.Future[None]", object]]:
        explained = explain(error, self._database.url)
        if len(batch) > 1 and not isinstance(explained, StoreUnavailable):
            return [outcome for append in batch for outcome in await self._commit([append])]
        self.trouble = str(explained) if isinstance(explained, StoreUnavailable) else ""
        return [(append.future, explain(error, self._database.url)) for append in batch]

    async def _write(self, batch: list[QueuedAppend]) -> set[int]:
        """Write the appends that match their leases; the numbers of those runs."""
        connection = await self._connected()
        leases = [append.lease for append in batch]
        run_columns = (
            [lease.number for lease in leases],
            [lease.run for lease in leases],
            [lease.epoch for lease in leases],
            [append.rows[0][0] - 1 for append in batch],
            [append.rows[-1][0] for append in batch],
            [append.ends for append in batch],
        )
        rows = [(append.lease.number, *row) for append in batch for row in append.rows]
        run, seq, at, epoch, kind, version, body, _, crc = zip(*rows, strict=True)
        entry_columns = (run, seq, at, epoch, kind, version, body, crc)
        notice = notice_of(self._database.tenant, (lease.run for lease in leases))
        answer = await connection.fetchrow(_APPEND, *run_columns, *entry_columns, CHANNEL, notice)
        assert answer is not None, "an aggregate has a row"
        return set(answer[0] or ())

    async def _check_unwritten(self, append: QueuedAppend) -> Exception | None:
        """Why an append does not fit; None if it was written before."""
        connection = await self._connected()
        lease = append.lease
        first = append.rows[0][0]
        last = append.rows[-1][0]
        epoch, seq, is_held, has_ended = await connection.fetchrow(_RUN_POSITION, lease.run) or (0, 0, False, False)
        was_released_by_end = has_ended and last <= seq
        if epoch != lease.epoch or not (is_held or was_released_by_end):
            return fenced(lease.run, lease.epoch)
        if seq < last:
            return misfit(lease.run, seq, first)
        stored = await connection.fetch(_ENTRIES_BETWEEN, lease.number, first, last)
        if [tuple(row) for row in stored] != list(append.rows):
            return differs(lease.run, first)
        return None

    # --- the connection and its owner

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            connection = await self._database.connect()
            try:
                await self._register(connection)
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
            self.process = connection.get_server_pid()
        return self._connection

    async def _register(self, connection: Connection) -> None:
        await connection.execute("SET plan_cache_mode = force_generic_plan")  # planning takes as long as appending
        if not self._synchronous:
            await connection.execute("SET synchronous_commit = off")
        lock = await connection.fetchval(_TAKE_LOCK, _LOCK_CLASS)
        returned = await connection.fetchval(_REGISTER_AGAIN, self.owner, lock) if self.owner else None
        if returned is None:
            await connection.execute(_FORGET_DEAD)
            self.owner = await connection.fetchval(_REGISTER, os.getpid(), socket.gethostname(), lock)
        self._beaten = asyncio.get_running_loop().time()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _until_beat(self) -> Seconds:
        return self._beaten + STALE / 3 - asyncio.get_running_loop().time()

    async def _beat(self) -> None:
        # set before the beat: one that fails is not tried again without a pause
        self._beaten = asyncio.get_running_loop().time()
        try:
            connection = await self._connected()
            await connection.execute(_BEAT, self.owner)
            self.trouble = ""
        except driver_errors() as error:
            self._disconnect()
            self.trouble = str(explain(error, self._database.url))
            logger.warning("no beat: %s", self.trouble)

    async def _unregister(self) -> None:
        try:
            connection = await self._connected()
            await connection.execute(_UNREGISTER, self.owner)
            await connection.close(timeout=STALE / 10)
        except driver_errors() as error:
            logger.info("a journal was closed without telling its server: %s", explain(error, self._database.url))
