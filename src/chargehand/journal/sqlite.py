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
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from chargehand.engine.events import Entry
from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import Corrupt, Fenced, Refused, RunUnknown, StoreError, StoreUnavailable
from chargehand.journal import rows
from chargehand.journal.codec import encode
from chargehand.journal.deliveries import Delivery, SqliteDeliveries, list_deliveries
from chargehand.journal.files import SqliteFiles
from chargehand.journal.ownership import Clock, Owner, is_locked, locks_of
from chargehand.journal.protocol import (
    BackedUp,
    Lease,
    Pruned,
    Readable,
    RunRow,
    SqliteRouteExamples,
    check_first_entries,
    check_name,
    check_numbers,
    list_example_teams,
)
from chargehand.journal.rows import BLOBS_SUFFIX, LIMIT, Blobs, FileBlobs
from chargehand.sqlite.connection import (
    FILE_ERRORS,
    JOURNAL,
    Connect,
    Durability,
    Examined,
    check_kind,
    connect,
    examine,
    explain,
    has_tables,
    is_ours,
    open_reader,
    sync_directory,
)
from chargehand.sqlite.database import FileDatabase, open_in_thread, read_at_once

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


class _RunUse:
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
        self._uses: dict[_Key, _RunUse] = {}

    def acquire(self, key: _Key, opener: Callable[[], _OpenFile]) -> tuple[_RunUse, _OpenFile]:
        """The file of this key, opened if it is not open yet. Blocks."""
        use = self._find(key)
        with use.lock:
            if use.file is None:
                use.file = opener()
            use.count += 1
            return use, use.file

    def _find(self, key: _Key) -> _RunUse:
        with self._lock:
            # a process may open many files in its life: those it has closed are dropped
            self._uses = {name: use for name, use in self._uses.items() if name == key or use.file is not None}
            use = self._uses.setdefault(key, _RunUse())
            if use.file is not None and not use.file.is_current():
                use = self._uses[key] = _RunUse()  # the file was replaced: users of the old one keep it
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
    notices = None
    """A file sends no notices."""
    commands = None
    """Nor does it carry commands from one process to another."""
    words = None
    """Nor what models write."""
    jobs = None
    """A file is on one host."""

    def __init__(self, use: _RunUse, file: _OpenFile) -> None:
        self._use = use
        self._database = file.database
        self._owner = file.owner
        self._blobs = file.blobs
        self.deliveries = SqliteDeliveries(file.database)
        self.files = SqliteFiles(file.database)
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

    async def create(self, run: str, entries: Sequence[Entry]) -> None:
        check_first_entries(run, entries)
        self._check_open()
        written = await self._rows(Lease(run=run, epoch=0, seq=0), entries)
        await self._database.write(lambda db: rows.create(db, run, self._owner, written))

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

    async def row(self, run: str) -> RunRow:
        check_name(run)
        return await self._read(lambda db: self._listing(db).row(run))

    async def runs(self) -> list[RunRow]:
        return await self._read(lambda db: self._listing(db).runs())

    async def open_runs(self) -> list[RunRow]:
        return [row for row in await self.runs() if row.ended is None and not row.damage]

    async def changed_since(self, since: Instant) -> list[RunRow]:
        return [row for row in await self.runs() if row.changed >= since]

    async def latest(self, *, before: int, limit: int) -> list[RunRow]:
        return await self._read(lambda db: self._listing(db).latest(before, limit))

    async def inside(self, run: str) -> list[str]:
        return await self._read(lambda db: self._listing(db).inside(run))

    def route_examples(self, team: str) -> SqliteRouteExamples:
        return SqliteRouteExamples(self._database, team)

    async def example_teams(self) -> list[str]:
        self._check_open()
        return await list_example_teams(self._database)

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


# --- the file


_READ_PATIENCE: Seconds = 5.0
_WRITE_PATIENCE: Seconds = 30.0
_BATCH = 100
"""How many runs go with one transaction: other writers wait for no longer than that takes."""
_RECENT: Seconds = 3600.0
"""A blob that was put so lately may be waiting for the entry that names it."""

_HELD = "SELECT owners.token FROM runs JOIN owners ON owners.number = runs.owner WHERE runs.run = ?"
_REFERENCES = "SELECT DISTINCT blob FROM entries WHERE run = (SELECT number FROM runs WHERE run = ?) AND blob <> ''"
_DELETE_ENTRIES = "DELETE FROM entries WHERE run = (SELECT number FROM runs WHERE run = ?)"
_DELETE_RUN = "DELETE FROM runs WHERE run = ?"
_DELETE_EXAMPLES = "DELETE FROM route_examples WHERE run = ?"
_ALL_BLOBS = "SELECT DISTINCT blob FROM entries WHERE blob <> ''"


class SqliteFile:
    """A `JournalStore` in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blobs = FileBlobs.beside(path)

    async def open(self, *, durability: Durability, create: bool) -> SqliteJournal:
        if not create:
            self._check_exists()
        return await SqliteJournal.open(self._path, durability=durability)

    # --- reading

    def read(self, run: str, *, after: int) -> list[Entry]:
        return self._read_run(run, lambda db: rows.read(db, self._blobs, run, after))

    def read_readable(self, run: str) -> Readable:
        return self._read_run(run, lambda db: rows.read_readable(db, self._blobs, run, 0))

    def row(self, run: str) -> RunRow:
        return self._read_run(run, lambda db: rows.Listing(db, self._blobs, locks_of(self._path)).row(run))

    def runs(self) -> list[RunRow]:
        with self._reading() as connection:
            return read_at_once(connection, self._list)

    def latest(self, *, before: int, limit: int) -> list[RunRow]:
        with self._reading() as connection:
            listing = rows.Listing(connection, self._blobs, locks_of(self._path))
            return read_at_once(connection, lambda _: listing.latest(before, limit))

    def names(self, prefix: str) -> list[str]:
        latest = sorted(self.runs(), key=lambda row: row.started, reverse=True)
        return [row.run for row in latest if row.run.startswith(prefix) and not row.damage]

    def inside(self, run: str) -> list[str]:
        with self._reading() as connection:
            listing = rows.Listing(connection, self._blobs, locks_of(self._path))
            return read_at_once(connection, lambda _: listing.inside(run))

    def deliveries(self) -> list[Delivery]:
        with self._reading() as connection:
            return read_at_once(connection, list_deliveries)

    def _list(self, connection: sqlite3.Connection) -> list[RunRow]:
        return rows.Listing(connection, self._blobs, locks_of(self._path)).runs()

    def _read_run(self, run: str, work: Callable[[sqlite3.Connection], _Outcome]) -> _Outcome:
        check_name(run)
        with self._reading() as connection:
            try:
                return read_at_once(connection, work)
            except RunUnknown as error:  # it may be one whose name is damaged
                names = [row.run for row in self._list(connection) if row.damage]
                if not names:
                    raise
                raise Corrupt(
                    f"there is no run {run!r} in this journal that can be read, and these are damaged: "
                    f"{', '.join(names[:5])}. It may be one of them; restore the journal from a backup",
                    run=run,
                ) from error

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        self._check_exists()
        try:
            with closing(open_reader(self._path, _READ_PATIENCE, connect)) as connection:
                if not has_tables(connection):
                    raise self._not_a_journal()
                yield connection
        except FILE_ERRORS as error:
            raise explain(error, self._path) from error

    def _check_exists(self) -> None:
        if not self._path.exists():  # SQLite would make it
            raise Refused(f"there is no journal {self._path}; run something first, or name another with --journal")

    def _not_a_journal(self) -> StoreError:
        if is_ours(self._path):
            return Corrupt(f"{self._path} is damaged: its tables are not there. Restore it from a backup")
        return StoreError(f"{self._path} is not a journal; name another file with --journal")

    # --- upkeep

    def examine(self) -> Examined:
        return examine(self._path, JOURNAL)

    def prune(self, runs: Sequence[str]) -> Pruned:
        """Delete these runs, but for those that a living process drives."""
        deleted: list[str] = []
        claimed: list[str] = []
        references: set[str] = set()
        with self._maintaining() as connection:
            for begin in range(0, len(runs), _BATCH):
                with _transaction(connection):
                    for run in runs[begin : begin + _BATCH]:
                        self._delete(connection, run, deleted=deleted, claimed=claimed, references=references)
            with _transaction(connection):
                sizes = self._delete_blobs(connection, references)
        return Pruned(runs=tuple(deleted), held=tuple(claimed), blobs=len(sizes), bytes=sum(sizes))

    def back_up(self, target: Path) -> BackedUp:
        """A copy of a journal and its blobs, as of one moment. Refused if the target exists."""
        for file in (target, target.with_name(target.name + "-wal"), target.with_name(target.name + BLOBS_SUFFIX)):
            if file.exists():
                raise Refused(f"{file} exists already, and nothing is overwritten; move it away or name another file")
        partial = target.with_name(target.name + ".partial")
        try:
            with self._maintaining() as source, closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                source.backup(copy)  # in one step: with several, every write of another process would begin it anew
                copy.execute("DELETE FROM owners")
                copy.execute("UPDATE runs SET holder = NULL, owner = NULL")
                references = _blobs_of(copy)
                for reference in references:
                    FileBlobs.beside(target).put(self._blobs.get(reference))
                runs = int(copy.execute("SELECT count(*) FROM runs WHERE seq > 0").fetchone()[0])
            partial.replace(target)
            sync_directory(target.parent)
        except OSError as error:
            raise StoreUnavailable(f"{target} cannot be written: {error}; name another file") from error
        finally:
            partial.unlink(missing_ok=True)
        return BackedUp(runs=runs, blobs=len(references))

    def restore(self, backup: Path) -> BackedUp:
        """Put a backup where there is no journal; Corrupt, and nothing done, if the backup is damaged."""
        copy = SqliteFile(backup)
        with copy._maintaining() as connection:
            damage = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if damage != "ok":
                raise Corrupt(f"{backup} is damaged: {damage}; take another backup")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return copy.back_up(self._path)

    @contextmanager
    def _maintaining(self) -> Generator[sqlite3.Connection]:
        self._check_exists()
        try:
            with closing(connect(self._path, _WRITE_PATIENCE)) as connection:
                check_kind(connection, self._path, JOURNAL)
                yield connection
        except sqlite3.Error as error:
            raise explain(error, self._path) from error

    def _delete(
        self, connection: sqlite3.Connection, run: str, *, deleted: list[str], claimed: list[str], references: set[str]
    ) -> None:
        row = connection.execute(_HELD, (run,)).fetchone()
        if row is not None and is_locked(locks_of(self._path) / row[0]):
            claimed.append(run)
            return
        references.update(reference for (reference,) in connection.execute(_REFERENCES, (run,)).fetchall())
        connection.execute(_DELETE_ENTRIES, (run,))
        connection.execute(_DELETE_RUN, (run,))
        connection.execute(_DELETE_EXAMPLES, (run,))
        deleted.append(run)

    def _delete_blobs(self, connection: sqlite3.Connection, references: set[str]) -> list[int]:
        """Delete those that no entry names any more; their sizes."""
        if not references:
            return []
        unused = sorted(references.difference(_blobs_of(connection)))
        sizes = [self._blobs.delete(reference, before=time.time() - _RECENT) for reference in unused]
        return [size for size in sizes if size]


def _blobs_of(connection: sqlite3.Connection) -> list[str]:
    return [blob for (blob,) in connection.execute(_ALL_BLOBS).fetchall()]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
