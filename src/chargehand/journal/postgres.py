"""A journal in PostgreSQL: one tenant's runs, for any number of processes on any number of hosts.

Large bodies are in their rows. `postgres_writer` has appends, claims' owners and how a dead process is recognised.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from chargehand.engine.events import Entry, RunEnded, RunRequested
from chargehand.engine.policy import Instant
from chargehand.errors import ChargehandError, Corrupt, Fenced, Refused, RunUnknown, StoreError
from chargehand.journal.codec import encode
from chargehand.journal.deliveries import Delivery
from chargehand.journal.postgres_commands import PostgresCommands
from chargehand.journal.postgres_deliveries import PostgresDeliveries
from chargehand.journal.postgres_files import PostgresFiles
from chargehand.journal.postgres_jobs import PostgresJobs
from chargehand.journal.postgres_listener import PostgresListener
from chargehand.journal.postgres_notices import PostgresNotices
from chargehand.journal.postgres_route_examples import EXAMPLE_TEAMS, PostgresRouteExamples
from chargehand.journal.postgres_words import PostgresWords
from chargehand.journal.postgres_writer import LIVING, PostgresWriter
from chargehand.journal.protocol import (
    BackedUp,
    Lease,
    Pruned,
    Readable,
    RouteExamples,
    RunRow,
    check_claim,
    check_first_entries,
    check_name,
    check_numbers,
    damaged,
    nested_runs,
)
from chargehand.journal.stored_entry import StoredEntry, stored_entry, verified
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection, Row
from chargehand.postgres.grouped import GroupedCalls
from chargehand.sqlite.connection import Durability, Examined
from chargehand.store_url import PostgresUrl

_Outcome = TypeVar("_Outcome")
_READERS = 4
"""Statements that read entries, or look runs up, at once."""
_DECODED_INLINE = 200
"""Up to so many entries are decoded in the event loop, more in a thread."""
_BATCH = 100
"""How many runs are deleted in one transaction."""

_BEGIN = """
    INSERT INTO runs (run, epoch, seq, holder, owner) VALUES ($1, 1, 0, $2, $3) ON CONFLICT DO NOTHING RETURNING number
"""
_CREATE = """
    WITH created AS (
        INSERT INTO runs (run, epoch, seq, queue)
        SELECT new.run, 0, new.seq, new.queue FROM unnest($1::text[], $2::bigint[], $3::text[]) AS new (run, seq, queue)
        ON CONFLICT DO NOTHING RETURNING number, run
    ), written AS (
        INSERT INTO entries (run, seq, at, epoch, type, version, body, crc)
        SELECT created.number, entry.seq, entry.at, entry.epoch, entry.type, entry.version, entry.body, entry.crc
        FROM unnest(
            $4::text[], $5::bigint[], $6::float8[], $7::bigint[], $8::text[], $9::int[], $10::bytea[], $11::bigint[]
        ) AS entry (run, seq, at, epoch, type, version, body, crc) JOIN created ON created.run = entry.run
    )
    SELECT run FROM created
"""
# in a statement of its own: one that waits for a lock would show owners as they were before it waited
_LOCK_RUNS = """
    SELECT number FROM runs WHERE tenant = current_tenant() AND run = ANY ($1::text[]) ORDER BY number FOR UPDATE
"""
_CLAIM_STATUS = f"""
    SELECT runs.run, runs.number, runs.epoch, runs.seq, runs.holder, owners.pid, owners.host FROM runs
    LEFT JOIN owners ON owners.number = runs.owner AND owners.number IN ({LIVING})
    WHERE runs.tenant = current_tenant() AND runs.run = ANY ($1::text[])
"""  # noqa: S608 - of our own words
_CLAIM = """
    UPDATE runs SET epoch = epoch + 1, holder = claim.holder, owner = $3, parked = false
    FROM unnest($1::bigint[], $2::text[]) AS claim (number, holder) WHERE runs.number = claim.number
    RETURNING runs.run, runs.number, runs.epoch, runs.seq
"""
_RELEASE = "UPDATE runs SET holder = NULL, owner = NULL WHERE number = $1 AND run = $2 AND epoch = $3"
# of one snapshot, so all entries up to the number of the last one are there
_READ = """
    SELECT wanted.place, runs.seq, entries.seq, at, entries.epoch, type, version, body, '', crc
    FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS wanted (run, after, place)
    JOIN runs ON runs.tenant = current_tenant() AND runs.run = wanted.run AND runs.seq > 0
    LEFT JOIN entries ON entries.run = runs.number AND entries.seq > wanted.after AND entries.seq <= runs.seq
    ORDER BY wanted.place, entries.seq
"""
_FIRST_ENTRIES = """
    SELECT entries.seq, at, entries.epoch, type, version, body, '', crc FROM entries
    JOIN runs ON runs.number = entries.run
    WHERE runs.tenant = current_tenant() AND runs.run = $1 AND entries.seq <= $2 ORDER BY entries.seq
"""
_ROWS = f"""
    SELECT runs.number, runs.run, runs.epoch, runs.seq, coalesce(runs.owner IN ({LIVING}), false),
        first.seq, first.at, first.epoch, first.type, first.version, first.body, '', first.crc,
        last.seq, last.at, last.epoch, last.type, last.version, last.body, '', last.crc
    FROM runs
    LEFT JOIN entries AS first ON first.run = runs.number AND first.seq = 1
    LEFT JOIN entries AS last ON last.run = runs.number AND last.seq = runs.seq
    WHERE runs.tenant = current_tenant() AND runs.seq > 0
"""  # noqa: S608 - of our own words
_HAS_OPEN = """
    SELECT EXISTS (SELECT FROM runs WHERE tenant = current_tenant() AND NOT ended AND seq > 0)
        OR EXISTS (SELECT FROM deliveries WHERE tenant = current_tenant() AND NOT given_up)
"""
_NAMES = """
    SELECT run FROM runs WHERE tenant = current_tenant() AND run >= $1 AND starts_with(run, $1) AND seq > 0
    ORDER BY number DESC
"""
_DELETE = f"""
    WITH deleted AS (
        DELETE FROM runs WHERE tenant = current_tenant() AND run = ANY ($1::text[])
            AND coalesce(owner NOT IN ({LIVING}), true)
        RETURNING number, run
    ), emptied AS (DELETE FROM entries WHERE run IN (SELECT number FROM deleted)
    ), forgotten AS (
        DELETE FROM route_examples WHERE tenant = current_tenant() AND run IN (SELECT run FROM deleted)
    )
    SELECT run FROM deleted
"""  # noqa: S608 - of our own words


class PostgresJournal:
    """`await PostgresJournal.open(url)` gives one; `close` lets it go. Without a writer it can only be read."""

    append_now = None
    """Every append waits for a commit."""

    def __init__(self, database: PostgresDatabase, writer: PostgresWriter | None) -> None:
        self._database = database
        self._writer = writer
        self._listener = PostgresListener(database)
        self.notices = PostgresNotices(self._listener, lambda process: writer is not None and process == writer.process)
        self.commands = PostgresCommands(database, self._listener)
        self.jobs = PostgresJobs(database)
        self.deliveries = PostgresDeliveries(database)
        self.files = PostgresFiles(database)
        self.words = PostgresWords(database, self._listener)
        self._creating = GroupedCalls(self._create_all)
        self._claiming = GroupedCalls(self._claim_all)
        self._reading = GroupedCalls(self._read_all, lanes=_READERS)
        self._looking_up = GroupedCalls(self._look_up_all, lanes=_READERS)
        self._unanswered: dict[str, str] = {}
        self._closed = False

    @classmethod
    async def open(
        cls, url: PostgresUrl, *, durability: Durability = "machine", create: bool = True
    ) -> "PostgresJournal":
        """Open a journal to write and read; other processes may have it open, too."""
        database = await open_database(url, create=create)
        writer = PostgresWriter(database, synchronous=durability == "machine")
        await client_thread().run(writer.start())
        return cls(database, writer)

    @classmethod
    async def open_reader(cls, url: PostgresUrl) -> "PostgresJournal":
        """Open a journal to read only; Refused if there is none."""
        return cls(await open_database(url, create=False), None)

    # --- writing

    async def create(self, run: str, entries: Sequence[Entry]) -> None:
        check_first_entries(run, entries)
        self._need_writer()
        unheld = Lease(run=run, epoch=0, seq=0)
        rows = [stored_entry(unheld, entry, encode(entry.event)) for entry in entries]
        first = entries[0].event
        queue = first.queue if isinstance(first, RunRequested) else ""
        if await self._creating.submit(_NewRun(run, queue, rows)):
            return
        stored = await self._database.fetch(_FIRST_ENTRIES, run, len(rows))
        if [tuple(row) for row in stored] == rows:  # created before, and only the reply was lost
            return
        lease = await self.claim(run, new=True)  # only a claim that wrote nothing may be in the way
        await self.append(lease, entries)
        await self.release(lease)

    async def _create_all(self, news: Sequence["_NewRun"]) -> list[bool]:
        """Which of them are created now."""
        by_name = {new.run: new for new in reversed(news)}
        unique = [by_name[run] for run in sorted(by_name)]
        runs = ([new.run for new in unique], [len(new.rows) for new in unique], [new.queue for new in unique])
        rows = [(new.run, *row) for new in unique for row in new.rows]
        run, seq, at, epoch, kind, version, body, _, crc = zip(*rows, strict=True)
        created = await self._database.fetch(_CREATE, *runs, run, seq, at, epoch, kind, version, body, crc)
        names = {row[0] for row in created}
        return [new.run in names and by_name[new.run] is new for new in news]

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        check_name(run)
        owner = self._need_writer().owner
        holder = self._unanswered.pop(run, None) or secrets.token_hex(8)
        try:
            if new:
                begun = await self._database.fetch(_BEGIN, run, holder, owner)
                if begun:
                    return Lease(run=run, epoch=1, seq=0, number=begun[0][0])

            return await self._claiming.submit(_Claim(run, holder, new=new, steal=steal))
        except (StoreError, asyncio.CancelledError):
            # the claim may have been committed: the next one uses the same holder, so it is recognised
            self._unanswered[run] = holder
            raise

    async def _claim_all(self, claims: Sequence["_Claim"]) -> list[Lease | Exception]:
        owner = self._need_writer().owner
        by_run = {claim.run: claim for claim in reversed(claims)}
        first = list(by_run.values())

        async def take(connection: Connection) -> dict[str, Lease | Exception]:
            return await _claim_existing(connection, first, owner)

        leases = await self._database.write(take, idempotent=True)
        # a second claim of the same run comes after the first
        return [
            leases[claim.run] if by_run[claim.run] is claim else (await self._claim_all([claim]))[0] for claim in claims
        ]

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        writer = self._need_writer()
        check_numbers(lease.run, entries)
        rows = [stored_entry(lease, entry, encode(entry.event)) for entry in entries]
        ends = isinstance(entries[-1].event, RunEnded)
        await writer.submit(lease, rows, ends=ends)
        lease.seq = max(lease.seq, entries[-1].seq)
        lease.released = ends

    async def release(self, lease: Lease) -> None:
        if lease.released:
            return
        try:
            await self._database.fetch(_RELEASE, lease.number, lease.run, lease.epoch)
        except Fenced:
            return

    # --- reading

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        readable = await self.read_readable(run, after=after)
        if readable.damage is not None:
            raise readable.damage
        return readable.entries

    async def read_readable(self, run: str, *, after: int = 0) -> Readable:
        check_name(run)
        self._check_open()
        start = max(after, 0)

        stored = await self._reading.submit((run, start))
        if not stored:
            raise RunUnknown(run)
        last = stored[0][1]
        rows = [row[2:] for row in stored if row[2] is not None]
        if len(rows) > _DECODED_INLINE:
            return await asyncio.to_thread(_decode, run, start, last, rows)
        return _decode(run, start, last, rows)

    async def _read_all(self, wanted: Sequence[tuple[str, int]]) -> list[list[Row]]:
        rows: list[Row] = await self._database.fetch(_READ, [run for run, _ in wanted], [after for _, after in wanted])
        by_place: list[list[Row]] = [[] for _ in wanted]
        for row in rows:
            place: int = row[0]
            by_place[place - 1].append(row)
        return by_place

    async def row(self, run: str) -> RunRow:
        check_name(run)
        self._check_open()
        return _run_row(await self._looking_up.submit(run))

    async def _look_up_all(self, runs: Sequence[str]) -> list[Row | Exception]:
        rows = await self._database.fetch(_ROWS + "AND runs.run = ANY ($1::text[])", runs)
        by_name = {row[1]: row for row in rows}
        return [by_name[run] if run in by_name else RunUnknown(run) for run in runs]

    async def runs(self) -> list[RunRow]:
        return await self._rows("ORDER BY runs.run")

    async def open_runs(self) -> list[RunRow]:
        rows = await self._rows("AND NOT runs.ended ORDER BY runs.run")
        return [row for row in rows if not row.damage]

    async def changed_since(self, since: Instant) -> list[RunRow]:
        return await self._rows("AND last.at >= $1 ORDER BY runs.run", since)

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return await self._rows("AND runs.number < $1 ORDER BY runs.number DESC LIMIT $2", before, limit)

    async def names(self, prefix: str) -> list[str]:
        """The names that begin so, the latest first."""
        return [row[0] for row in await self._database.fetch(_NAMES, prefix)]

    async def inside(self, run: str) -> list[str]:
        # the character after `/` is `0`
        named = await self._rows("AND runs.run > $1 AND runs.run < $2 ORDER BY runs.run", f"{run}/", f"{run}0")
        return nested_runs([run], named)

    async def _rows(self, which: str, *values: object) -> list[RunRow]:
        self._check_open()
        return [_run_row(row) for row in await self._database.fetch(_ROWS + which, *values)]

    # --- the rest

    def route_examples(self, team: str) -> RouteExamples:
        return PostgresRouteExamples(self._database, team)

    async def example_teams(self) -> list[str]:
        self._check_open()
        return [row[0] for row in await self._database.fetch(EXAMPLE_TEAMS)]

    @property
    def trouble(self) -> str:
        return "" if self._writer is None else self._writer.trouble

    async def prune(self, runs: Sequence[str]) -> Pruned:
        """Delete these runs, but for those that a living process drives."""
        deleted: set[str] = set()
        for begin in range(0, len(runs), _BATCH):
            deleted |= {row[0] for row in await self._database.fetch(_DELETE, list(runs[begin : begin + _BATCH]))}
        existing = {row.run for row in await self.runs()}
        claimed = tuple(run for run in runs if run not in deleted and run in existing)
        return Pruned(runs=tuple(run for run in runs if run in deleted), held=claimed, blobs=0, bytes=0)

    async def close(self) -> None:
        """Write what has queued up, then release what is held."""
        if not self._closed:
            self._closed = True
            await client_thread().run(self._listener.close())
            if self._writer is not None:
                await client_thread().run(self._writer.stop())

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._database.url} was closed; open it again")

    def _need_writer(self) -> PostgresWriter:
        self._check_open()
        if self._writer is None:
            raise StoreError(f"{self._database.url} was opened to read; open it to write")
        return self._writer


class _NewRun(Struct, frozen=True, eq=False):
    """A run to create, with its first entries."""

    run: str
    queue: str
    rows: Sequence[StoredEntry]


class _Claim(Struct, frozen=True, eq=False):
    """A claim of a run that exists, or may exist."""

    run: str
    holder: str
    """Marks it, so that it is recognised if its reply was lost."""
    new: bool
    steal: bool


async def _claim_existing(connection: Connection, claims: Sequence[_Claim], owner: int) -> dict[str, Lease | Exception]:
    """Claim runs where `check_claim` allows it; what it raises for the others."""
    runs = [claim.run for claim in claims]
    await connection.fetch(_LOCK_RUNS, runs)
    rows = {row[0]: row for row in await connection.fetch(_CLAIM_STATUS, runs)}
    answers: dict[str, Lease | Exception] = {}
    allowed: list[tuple[int, str]] = []
    for claim in claims:
        try:
            lease = _held_already(claim, rows.get(claim.run))
        except ChargehandError as error:
            answers[claim.run] = error
        else:
            if lease is None:
                allowed.append((rows[claim.run][1], claim.holder))
            else:
                answers[claim.run] = lease
    numbers = [number for number, _ in allowed]
    claimed = await connection.fetch(_CLAIM, numbers, [holder for _, holder in allowed], owner) if allowed else ()
    for run, number, epoch, seq in claimed:
        answers[run] = Lease(run=run, epoch=epoch, seq=seq, number=number)
    return answers


def _held_already(claim: _Claim, row: Row | None) -> Lease | None:
    """The lease of a claim that was committed before, and only its reply was lost; None: it may claim the run."""
    if row is None:
        if claim.new:  # it was deleted a moment ago
            raise Refused(f"run {claim.run!r} is being deleted just now; try again")
        raise RunUnknown(claim.run)
    run, number, epoch, seq, holder, pid, host = row
    if holder == claim.holder:
        return Lease(run=run, epoch=epoch, seq=seq, number=number)
    check_claim(run, seq=seq, process=pid or 0, new=claim.new, steal=claim.steal, host=host or "")
    return None


def _decode(run: str, after: int, last: int, rows: Iterable[Row]) -> Readable:
    """The entries in these rows, up to the first that cannot be read; `last` is the number of the run's last entry."""
    entries: list[Entry] = []
    expected = after
    try:
        for row in rows:
            expected += 1
            entries.append(_verify(run, expected, row))
        if expected < last:
            raise damaged(run, expected + 1, "is missing")
    except Corrupt as error:
        return Readable(entries, error)
    return Readable(entries)


def _verify(run: str, expected: int, row: Row) -> Entry:
    stored: StoredEntry = tuple(row)
    return verified(run, expected, stored, _no_blob)


def _no_blob(blob: str) -> bytes:
    raise Corrupt(f"blob {blob} is named, and there are none in a database; restore it from a backup")


def _run_row(row: Row) -> RunRow:
    number, run, epoch, seq, is_held = row[:5]
    try:
        first = _verify_end(run, 1, row[5:13])
        last = _verify_end(run, seq, row[13:21])
    except Corrupt as error:
        return RunRow(run, number=number, seq=seq, held=is_held, damage=str(error))
    return RunRow(run, number=number, seq=seq, epoch=epoch, held=is_held, first=first, last=last)


def _verify_end(run: str, seq: int, row: Row) -> Entry:
    if row[0] is None:
        raise damaged(run, seq, "is missing")
    return _verify(run, seq, row)


async def tenants_with_open_runs(url: PostgresUrl) -> list[str]:
    """The names of the tenants of a database that have runs that have not ended, or webhooks to call."""
    database = await open_database(url)

    async def work(connection: Connection) -> list[str]:
        names: list[str] = []
        for number, name in await connection.fetch("SELECT number, name FROM tenants ORDER BY name"):
            # for this transaction: row level security shows one tenant at a time
            await connection.fetchval("SELECT set_config('chargehand.tenant', $1, true)", str(number))
            if await connection.fetchval(_HAS_OPEN):
                names.append(name)
        return names

    return await database.read(work)


# --- the database as a store


class PostgresJournalStore:
    """A `JournalStore` in PostgreSQL."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url

    async def open(self, *, durability: Durability, create: bool) -> PostgresJournal:
        return await PostgresJournal.open(self._url, durability=durability, create=create)

    def read(self, run: str, *, after: int) -> list[Entry]:
        return self._with_reader(lambda journal: journal.read(run, after=after))

    def read_readable(self, run: str) -> Readable:
        return self._with_reader(lambda journal: journal.read_readable(run))

    def row(self, run: str) -> RunRow:
        return self._with_reader(lambda journal: journal.row(run))

    def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return self._with_reader(lambda journal: journal.latest(before=before, limit=limit))

    def names(self, prefix: str) -> list[str]:
        return self._with_reader(lambda journal: journal.names(prefix))

    def inside(self, run: str) -> list[str]:
        return self._with_reader(lambda journal: journal.inside(run))

    def runs(self) -> list[RunRow]:
        return self._with_reader(lambda journal: journal.runs())

    def deliveries(self) -> list[Delivery]:
        return self._with_reader(lambda journal: journal.deliveries.list())

    def prune(self, runs: Sequence[str]) -> Pruned:
        return self._with_reader(lambda journal: journal.prune(runs))

    def examine(self) -> Examined:
        try:
            self._with_reader(lambda journal: journal.latest(before=1, limit=1))
        except Corrupt as error:
            return Examined("newer" if error.newer else "damaged", str(error))
        except StoreError as error:
            return Examined("unusable", str(error))
        except Refused:  # the first run makes it
            return Examined()
        return Examined()

    def back_up(self, target: Path) -> BackedUp:
        raise Refused(f"{self._url} is backed up as a whole, by the means of PostgreSQL: pg_dump --file {target} URL")

    def restore(self, backup: Path) -> BackedUp:
        raise Refused(f"{self._url} is restored as a whole, by the means of PostgreSQL: psql --file {backup} URL")

    def _with_reader(self, question: Callable[[PostgresJournal], Awaitable[_Outcome]]) -> _Outcome:
        async def work() -> _Outcome:
            return await question(await PostgresJournal.open_reader(self._url))

        return client_thread().wait(work())
