"""A journal file without owning a run of it: reading, pruning, backup and restore, while other processes use it."""

import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import Corrupt, Refused, RunUnknown, StoreError, StoreUnavailable
from chargehand.journal import rows
from chargehand.journal.blobs import BLOBS_SUFFIX, FileBlobs
from chargehand.journal.ownership import is_locked, locks_of
from chargehand.journal.protocol import BackedUp, Pruned, Readable, RunRow, check_name
from chargehand.journal.sqlite import SqliteJournal
from chargehand.sqlite.connection import (
    FILE_ERRORS,
    JOURNAL,
    Durability,
    check_kind,
    connect,
    explain,
    has_tables,
    is_ours,
    open_reader,
    sync_directory,
)
from chargehand.sqlite.database import read_at_once
from chargehand.sqlite.examine import Examined, examine

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
_ALL_BLOBS = "SELECT DISTINCT blob FROM entries WHERE blob <> ''"

_Outcome = TypeVar("_Outcome")


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

    def runs(self) -> list[RunRow]:
        with self._reading() as connection:
            return read_at_once(connection, self._list)

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
        held: list[str] = []
        references: set[str] = set()
        with self._maintaining() as connection:
            for begin in range(0, len(runs), _BATCH):
                with _transaction(connection):
                    for run in runs[begin : begin + _BATCH]:
                        self._delete(connection, run, deleted=deleted, held=held, references=references)
            with _transaction(connection):
                sizes = self._delete_blobs(connection, references)
        return Pruned(runs=tuple(deleted), held=tuple(held), blobs=len(sizes), bytes=sum(sizes))

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
        self, connection: sqlite3.Connection, run: str, *, deleted: list[str], held: list[str], references: set[str]
    ) -> None:
        row = connection.execute(_HELD, (run,)).fetchone()
        if row is not None and is_locked(locks_of(self._path) / row[0]):
            held.append(run)
            return
        references.update(reference for (reference,) in connection.execute(_REFERENCES, (run,)).fetchall())
        connection.execute(_DELETE_ENTRIES, (run,))
        connection.execute(_DELETE_RUN, (run,))
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
