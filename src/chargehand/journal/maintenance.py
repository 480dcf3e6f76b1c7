"""Upkeep of a journal file while other processes use it: delete runs, back it up, put a backup in its place."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Corrupt, Refused, StoreUnavailable
from chargehand.journal.blobs import BLOBS_SUFFIX, FileBlobs
from chargehand.journal.ownership import is_locked, locks_of
from chargehand.sqlite.connection import JOURNAL, check_kind, connect, explain, sync_directory

_PATIENCE: Seconds = 30.0
_BATCH = 100
"""How many runs go with one transaction: others who write wait for no longer than that takes."""
_RECENT: Seconds = 3600.0
"""A blob that was put so lately may be waiting for the entry that names it."""

_HELD = "SELECT owners.token FROM runs JOIN owners ON owners.number = runs.owner WHERE runs.run = ?"
_REFERENCES = "SELECT DISTINCT blob FROM entries WHERE run = (SELECT number FROM runs WHERE run = ?) AND blob <> ''"
_DELETE_ENTRIES = "DELETE FROM entries WHERE run = (SELECT number FROM runs WHERE run = ?)"
_DELETE_RUN = "DELETE FROM runs WHERE run = ?"

_Outcome = TypeVar("_Outcome")


class Pruned(Struct, frozen=True):
    """What was deleted. `held` are runs that a living process drives, which stay."""

    runs: tuple[str, ...]
    held: tuple[str, ...]
    blobs: int
    bytes: int
    """The size of the blobs. Pages of the file itself are used again, it does not shrink."""


class BackedUp(Struct, frozen=True):
    runs: int
    blobs: int


def prune_runs(journal: Path, runs: Sequence[str]) -> Pruned:
    """Delete these runs, but for those that a living process drives."""
    with closing(_opened(journal)) as connection:
        deleted: list[str] = []
        held: list[str] = []
        references: set[str] = set()
        for begin in range(0, len(runs), _BATCH):
            batch = runs[begin : begin + _BATCH]
            _within(
                connection,
                journal,
                lambda db, batch=batch: _delete(
                    connection=db, journal=journal, runs=batch, deleted=deleted, held=held, references=references
                ),
            )
        unused = _within(connection, journal, lambda db: _delete_blobs(db, journal, references))
    return Pruned(runs=tuple(deleted), held=tuple(held), blobs=len(unused), bytes=sum(unused))


def back_up(journal: Path, target: Path) -> BackedUp:
    """A copy of a journal and its blobs, as of one moment. Refused if the target exists."""
    _check_free(target)
    source = _opened(journal)
    partial = target.with_name(target.name + ".partial")
    try:
        with closing(source), closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            source.backup(copy)  # in one step: with several, every write of another process would begin it anew
            copy.execute("DELETE FROM owners")
            copy.execute("UPDATE runs SET holder = NULL, owner = NULL")
            copied = _copy_blobs(copy, journal, target)
            runs = int(copy.execute("SELECT count(*) FROM runs WHERE seq > 0").fetchone()[0])
        partial.replace(target)
        sync_directory(target.parent)
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be written: {error}; name another file") from error
    finally:
        partial.unlink(missing_ok=True)
    return BackedUp(runs=runs, blobs=copied)


def restore(backup: Path, journal: Path) -> BackedUp:
    """Put a backup where there is no journal; Corrupt, and nothing done, if the backup is damaged."""
    with closing(_opened(backup)) as connection:
        damage = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if damage != "ok":
            raise Corrupt(f"{backup} is damaged: {damage}; take another backup")
    journal.parent.mkdir(parents=True, exist_ok=True)
    return back_up(backup, journal)


def _check_free(target: Path) -> None:
    for file in (target, target.with_name(target.name + "-wal"), target.with_name(target.name + BLOBS_SUFFIX)):
        if file.exists():
            raise Refused(f"{file} exists already, and nothing is overwritten; move it away or name another file")


def _opened(journal: Path) -> sqlite3.Connection:
    if not journal.exists():  # SQLite would make it
        raise Refused(f"there is no journal {journal}; name another with --journal")
    try:
        connection = connect(journal, _PATIENCE)
        try:
            check_kind(connection, journal, JOURNAL)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    return connection


def _within(connection: sqlite3.Connection, journal: Path, work: Callable[[sqlite3.Connection], _Outcome]) -> _Outcome:
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcome = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    return outcome


def _delete(
    connection: sqlite3.Connection,
    journal: Path,
    runs: Sequence[str],
    deleted: list[str],
    held: list[str],
    references: set[str],
) -> None:
    locks = locks_of(journal)
    for run in runs:
        row = connection.execute(_HELD, (run,)).fetchone()
        if row is not None and is_locked(locks / row[0]):
            held.append(run)
            continue
        references.update(reference for (reference,) in connection.execute(_REFERENCES, (run,)).fetchall())
        connection.execute(_DELETE_ENTRIES, (run,))
        connection.execute(_DELETE_RUN, (run,))
        deleted.append(run)


def _delete_blobs(connection: sqlite3.Connection, journal: Path, references: set[str]) -> list[int]:
    """Delete those that no entry names any more; their sizes."""
    if not references:
        return []
    used = {blob for (blob,) in connection.execute("SELECT DISTINCT blob FROM entries WHERE blob <> ''").fetchall()}
    blobs = FileBlobs.beside(journal)
    sizes = [blobs.delete(reference, before=time.time() - _RECENT) for reference in sorted(references - used)]
    return [size for size in sizes if size]


def _copy_blobs(copy: sqlite3.Connection, journal: Path, target: Path) -> int:
    references = [blob for (blob,) in copy.execute("SELECT DISTINCT blob FROM entries WHERE blob <> ''").fetchall()]
    if not references:
        return 0
    source = FileBlobs.beside(journal)
    folder = FileBlobs.beside(target)
    for reference in references:
        folder.put(source.get(reference))
    return len(references)
