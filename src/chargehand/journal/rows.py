"""The rows of a journal in SQLite, and the statements that read and write them, within transactions of the caller.

Every function here raises its refusals before it has written anything.
"""

import os
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard

from msgspec import structs

from chargehand.engine.events import Entry
from chargehand.errors import Corrupt, RunUnknown, StoreUnavailable
from chargehand.journal.ownership import Owner, is_alive
from chargehand.journal.protocol import (
    Lease,
    Readable,
    RunRow,
    check_claim,
    damaged,
    differs,
    fenced,
    misfit,
    nested_runs,
)
from chargehand.journal.stored_entry import StoredEntry, stored_entry, verified
from chargehand.sqlite.connection import FILE_ERRORS, is_damage, sync_directory

# --- blobs: bodies too large for a row, found again by their content


LIMIT = 64 * 1024
"""The size in bytes above which a journal puts a body here and keeps only its reference."""

BLOBS_SUFFIX = "-blobs"
_REFERENCE = re.compile(r"[0-9a-f]{64}")


class Blobs(Protocol):
    """May block, so journals that wait for a disk call it in a thread."""

    def put(self, body: bytes) -> str:
        """Durable on return; the same body always has the same reference."""
        ...

    def get(self, reference: str) -> bytes:
        """The very bytes that were put; Corrupt if they are damaged or gone."""
        ...


class FileBlobs:
    """One file a body, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def beside(cls, journal: Path) -> "FileBlobs":
        """The directory with the bodies of a journal file."""
        return cls(journal.with_name(journal.name + BLOBS_SUFFIX))

    def put(self, body: bytes) -> str:
        reference = sha256(body).hexdigest()
        try:
            if not self._directory.is_dir():
                self._directory.mkdir(parents=True, exist_ok=True)
                sync_directory(self._directory.parent)
            try:
                os.utime(self._directory / reference)  # it is needed again, so it is not deleted as old
            except FileNotFoundError:
                self._write(reference, body)
            # also when it was there: the process that put it may have died before this line
            sync_directory(self._directory)
        except OSError as error:
            raise StoreUnavailable(
                f"a body of {len(body)} bytes could not be kept in {self._directory}: {error}. "
                "Make room there, or make it writable, and try again"
            ) from error
        return reference

    def _write(self, reference: str, body: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=".new-", dir=self._directory)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._directory / reference)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def delete(self, reference: str, *, before: float) -> int:
        """Delete a body that was put last before this time; its size, 0 if it was put since or is not there.

        It is moved aside first, so that a process that puts it again at this moment is noticed, or writes it anew.
        """
        body = self._directory / reference
        aside = self._directory / f".old-{reference}"
        try:
            body.replace(aside)
            status = aside.stat()
            if status.st_mtime >= before:
                aside.replace(body)
                return 0
            aside.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreUnavailable(f"{body} cannot be deleted: {error}; make its folder writable") from error
        return max(status.st_size, 1)

    def get(self, reference: str) -> bytes:
        # a damaged reference must not lead out of the directory
        if not _REFERENCE.fullmatch(reference):
            raise Corrupt(f"{reference!r} is not the name of a blob in {self._directory}")
        try:
            body = (self._directory / reference).read_bytes()
        except FileNotFoundError as error:
            raise Corrupt(f"blob {reference} is missing from {self._directory}; restore it from a backup") from error
        except OSError as error:
            raise StoreUnavailable(f"blob {reference} in {self._directory} cannot be read: {error}") from error
        if sha256(body).hexdigest() != reference:
            raise Corrupt(f"blob {reference} in {self._directory} is damaged; restore it from a backup")
        return body


# --- runs and entries


_STAND = "SELECT number, epoch, seq, holder, owner FROM runs WHERE run = ?"
_HOLD = """
    INSERT INTO runs (run, epoch, seq, holder, owner) VALUES (?, ?, 0, ?, ?)
    ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, owner = excluded.owner
"""
_CREATE = """
    INSERT INTO runs (run, epoch, seq) VALUES (?, 0, ?)
    ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, holder = NULL, owner = NULL
"""
_ADVANCE = "UPDATE runs SET seq = ? WHERE number = ? AND run = ? AND epoch = ? AND seq = ? AND holder IS NOT NULL"
_INSERT = """
    INSERT INTO entries (run, seq, at, epoch, type, version, body, blob, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_BETWEEN = """
    SELECT run, seq, at, epoch, type, version, body, blob, crc FROM entries
    WHERE run = ? AND seq BETWEEN ? AND ? ORDER BY seq
"""
_AFTER = "SELECT seq, at, epoch, type, version, body, blob, crc FROM entries WHERE run = ? AND seq > ? ORDER BY seq"
_FREE = "UPDATE runs SET holder = NULL, owner = NULL WHERE run = ? AND epoch = ?"
_NAME = "SELECT CASE typeof(run) WHEN 'text' THEN CAST(run AS BLOB) END FROM runs WHERE number = ?"
_UNINDEXED = "SELECT 1 FROM runs NOT INDEXED WHERE run = ?"
_MORE = "SELECT 1 FROM entries WHERE run = ? AND seq > ? LIMIT 1"
# names as bytes: one that is damaged must not keep the others from being read
_TABLE = """
    SELECT number, CAST(run AS BLOB), typeof(run) = 'text', epoch, seq,
        (SELECT CAST(token AS BLOB) FROM owners WHERE owners.number = runs.owner)
    FROM runs NOT INDEXED
"""
_ONE = _TABLE.replace("NOT INDEXED", "WHERE run = ?")
_LATEST = _TABLE + "WHERE number < ? AND seq <> 0 ORDER BY number DESC"
_ENDS = """
    SELECT seq, at, epoch, type, version, body, blob, crc FROM entries WHERE run = ?1 AND seq IN (1, ?2, ?2 + 1)
"""
_INDEX = "SELECT number, CAST(run AS BLOB) FROM runs INDEXED BY sqlite_autoindex_runs_1"
_NAMED_INSIDE = _TABLE.replace("NOT INDEXED", "WHERE run > ? AND run < ? ORDER BY run")
_MOST = 1 << 62

Stand: TypeAlias = tuple[int, int, int, str | None, int | None]
"""Number, epoch, last entry, holder and owner of a run."""
_NO_RUN: Stand = (0, 0, 0, None, None)

Row: TypeAlias = tuple[int, int, float, int, str, int, bytes, str, int]
"""One entry as stored: run, seq, at, epoch, type, version, body, blob, crc. A large body lies in the blob named."""


def make_row(lease: Lease, entry: Entry, body: bytes, blob: str = "") -> Row:
    """The row of an entry under this lease."""
    return lease.number, *stored_entry(lease, entry, body, blob)


def claim(connection: sqlite3.Connection, run: str, holder: str, owner: Owner, *, new: bool, steal: bool) -> Lease:
    _, epoch, seq, present, present_owner = _stand(connection, run) or _NO_RUN
    if present != holder:  # else this very claim was written already and its answer lost
        process = 0 if present_owner is None else owner.process_holding(connection, present_owner)
        check_claim(run, seq=seq, process=process, new=new, steal=steal)
        connection.execute(_HOLD, (run, epoch + 1, holder, owner.number))
    number, epoch, seq, _, _ = _stand(connection, run) or _NO_RUN
    return Lease(run=run, epoch=epoch, seq=seq, number=number)


def create(connection: sqlite3.Connection, run: str, owner: Owner, entries: Sequence[Row]) -> None:
    """Write a new run that no process holds. The rows have no number of the run yet."""
    number, _, seq, _, present_owner = _stand(connection, run) or _NO_RUN
    stored = connection.execute(_BETWEEN, (number, 1, len(entries))).fetchall()
    if stored and stored == [(number, *row[1:]) for row in entries]:
        return
    process = 0 if present_owner is None else owner.process_holding(connection, present_owner)
    check_claim(run, seq=seq, process=process, new=True, steal=False)
    connection.execute(_CREATE, (run, len(entries)))
    (number,) = connection.execute("SELECT number FROM runs WHERE run = ?", (run,)).fetchone()
    connection.executemany(_INSERT, [(number, *row[1:]) for row in entries])


def _stand(connection: sqlite3.Connection, run: str) -> Stand | None:
    """How a run stands; None if there is no such run."""
    row = connection.execute(_STAND, (run,)).fetchone()
    if row is None:
        return None
    number, epoch, seq, holder, owner = row
    if not _is_count(epoch) or not _is_count(seq) or not isinstance(holder, str | None):
        raise _damaged_run(run)
    if not isinstance(owner, int | None):
        raise _damaged_run(run)
    return number, epoch, seq, holder, owner


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 <= value < _MOST


def _damaged_run(run: str) -> Corrupt:
    return Corrupt(
        f"the row of run {run!r} in the list of runs is damaged, so it is not certain which entries are its own. "
        "Other runs can still be read: chargehand runs. Restore the journal from a backup",
        run=run,
    )


def append(connection: sqlite3.Connection, lease: Lease, entries: Sequence[Row]) -> None:
    first = entries[0][1]
    epoch = lease.epoch
    number = lease.number
    last = first - 1 + len(entries)
    # the update is the check: it finds its row only if epoch, place and hold are as the lease says
    if connection.execute(_ADVANCE, (last, number, lease.run, epoch, first - 1)).rowcount == 1:
        connection.executemany(_INSERT, entries)
        return
    _, present, seq, holder, _ = _stand(connection, lease.run) or _NO_RUN
    if present != epoch or holder is None:
        raise fenced(lease.run, epoch)
    if seq < last:
        raise misfit(lease.run, seq, first)
    if connection.execute(_BETWEEN, (number, first, last)).fetchall() != list(entries):
        raise differs(lease.run, first)


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    connection.execute(_FREE, (lease.run, lease.epoch))


def _contradicted_run(run: str, last: int, there: int) -> Corrupt:
    return Corrupt(
        f"the row of run {run!r} in the list of runs is damaged: it says {last} entries, and there are {there}. "
        f"They can be read: chargehand runs show {shlex.quote(run)}. Restore the journal from a backup",
        run=run,
    )


def read(connection: sqlite3.Connection, blobs: Blobs, run: str, after: int) -> list[Entry]:
    """The entries that follow number `after`; Corrupt if one of them cannot be read."""
    readable = read_readable(connection, blobs, run, after)
    if readable.damage is not None:
        raise readable.damage
    return readable.entries


def read_readable(connection: sqlite3.Connection, blobs: Blobs, run: str, after: int) -> Readable:
    """The entries that follow number `after`, up to the first that cannot be read."""
    number, epoch, last = _find_run(connection, run)
    entries: list[Entry] = []
    expected = max(after, 0)
    highest = 0
    try:
        with closing(connection.execute(_AFTER, (number, expected))) as cursor:
            for row in cursor:
                expected += 1
                entries.append(verified(run, expected, row, blobs.get))
                highest = max(highest, row[2])
        if entries and (expected > last or highest > epoch):
            return Readable(entries, _contradicted_run(run, last, expected))
    except Corrupt as error:
        return Readable(entries, error)
    except FILE_ERRORS as error:
        if not is_damage(error):
            raise
        return Readable(entries, damaged(run, len(entries) + max(after, 0) + 1, f"cannot be read ({error})"))
    if expected < last:
        return Readable(entries, damaged(run, expected + 1, "is missing"))
    return Readable(entries)


def _find_run(connection: sqlite3.Connection, run: str) -> tuple[int, int, int]:
    """Number, epoch and last entry of a run; RunUnknown if there is none, Corrupt if its row is damaged.

    The name is kept twice, in the table and in its index: where they differ, one of them is damaged.
    """
    stand = _stand(connection, run)
    if stand is None:
        if connection.execute(_UNINDEXED, (run,)).fetchone() is not None:
            raise _damaged_run(run)
        raise RunUnknown(run)
    number, epoch, last, _, _ = stand
    if connection.execute(_NAME, (number,)).fetchone() != (run.encode(),):
        raise _damaged_run(run)
    if not last:
        if connection.execute(_MORE, (number, 0)).fetchone() is not None:
            raise _damaged_run(run)
        raise RunUnknown(run)
    return number, epoch, last


class Listing:
    """Runs as rows. Damage in one does not keep the others from being listed.

    Which of their owners live is seen by the files in `locks`.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: Blobs, locks: Path) -> None:
        self._connection = connection
        self._blobs = blobs
        self._locks = locks
        self._living: dict[object, bool] = {}

    def runs(self) -> list[RunRow]:
        """Every run that has entries, by name."""
        # the name is kept twice, in the table and in its index: where they differ, one of them is damaged
        names = dict(self._connection.execute(_INDEX).fetchall())
        rows: list[RunRow] = []
        for stored in self._connection.execute(_TABLE).fetchall():
            row = self._row(stored, is_indexed=names.pop(stored[0], None) == stored[1])
            if row is not None:
                rows.append(row)
        for number, name in names.items():  # in the index only
            run = _shown_name(name)
            rows.append(RunRow(run, number=number, seq=0, damage=str(_damaged_run(run))))
        return sorted(rows, key=lambda row: row.run)

    def row(self, run: str) -> RunRow:
        """One run; RunUnknown if it has no entries."""
        stored = self._connection.execute(_ONE, (run,)).fetchone()
        row = None if stored is None else self._row(stored)
        if row is None:
            raise RunUnknown(run)
        return row

    def inside(self, run: str) -> list[str]:
        """The names of the runs inside a run, which begin with its name and a slash."""
        named = self._connection.execute(_NAMED_INSIDE, (f"{run}/", f"{run}0"))  # 0 is what follows the slash
        rows = [self._row(stored) for stored in named.fetchall()]
        return nested_runs([run], [row for row in rows if row is not None])

    def latest(self, before: int, limit: int) -> list[RunRow]:
        """Runs with a lower number than `before`, the latest first: the cost does not grow with the journal."""
        rows: list[RunRow] = []
        with closing(self._connection.execute(_LATEST, (before,))) as cursor:
            for stored in cursor:
                if len(rows) >= limit:
                    break
                row = self._row(stored)
                if row is not None:
                    rows.append(row)
        return rows

    def _row(self, stored: tuple[Any, ...], *, is_indexed: bool = True) -> RunRow | None:
        """One run; None if it has no entries."""
        number, name, is_text, epoch, seq, token = stored
        run = _shown_name(name)
        if token not in self._living:
            self._living[token] = is_alive(self._locks, token)
        row = RunRow(run, number=number, seq=seq if _is_count(seq) else 0, held=self._living[token])
        try:
            is_sound = is_indexed and is_text and run.encode() == name and _is_count(epoch) and _is_count(seq)
            ends = self._ends(number, run, row.seq)
            if not ends and seq == 0:
                return None
            if not is_sound or not seq or seq + 1 in ends:
                raise _damaged_run(run)
            first = self._verified(run, 1, ends)
            last = self._verified(run, seq, ends)
            if ends[seq][2] > epoch:
                raise _damaged_run(run)
        except Corrupt as error:
            return structs.replace(row, damage=str(error))
        return structs.replace(row, epoch=epoch, first=first, last=last)

    def _ends(self, number: int, run: str, seq: int) -> dict[int, StoredEntry]:
        """The first and the last entry, and the one behind it if there is one, which there must not be."""
        try:
            return {row[0]: row for row in self._connection.execute(_ENDS, (number, seq)).fetchall()}
        except FILE_ERRORS as error:
            if not is_damage(error):
                raise
            raise damaged(run, seq, f"cannot be read ({error})") from error

    def _verified(self, run: str, seq: int, ends: dict[int, StoredEntry]) -> Entry:
        if seq not in ends:
            raise damaged(run, seq, "is missing")
        return verified(run, seq, ends[seq], self._blobs.get)


def _shown_name(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
