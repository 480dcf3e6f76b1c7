"""A journal's rows, and the statements that read and write them. Threads and transactions are not their business.

Every function here raises its refusals before it has written anything.
"""

import shlex
import sqlite3
import struct
import zlib
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from chargehand.engine.events import Entry
from chargehand.errors import Corrupt, RunUnknown
from chargehand.journal.blobs import Blobs
from chargehand.journal.codec import TAGS, decode, version_of
from chargehand.journal.ownership import Owner, is_alive
from chargehand.journal.protocol import (
    DamagedRun,
    Ends,
    Lease,
    Readable,
    RunRow,
    check_claim,
    damaged,
    differs,
    fenced,
    misfit,
)
from chargehand.sqlite.connection import FILE_ERRORS, is_damage, undo

_STAND = "SELECT number, epoch, seq, holder, owner FROM runs WHERE run = ?"
_HOLD = """
    INSERT INTO runs (run, epoch, seq, holder, owner) VALUES (?, ?, 0, ?, ?)
    ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, owner = excluded.owner
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
_TABLE_WITH_ENDS = """
    SELECT number, CAST(runs.run AS BLOB), typeof(runs.run) = 'text', runs.epoch, runs.seq,
        (SELECT CAST(token AS BLOB) FROM owners WHERE owners.number = runs.owner),
        first.seq, first.at, first.epoch, first.type, first.version, first.body, first.blob, first.crc,
        last.seq, last.at, last.epoch, last.type, last.version, last.body, last.blob, last.crc,
        EXISTS (SELECT 1 FROM entries WHERE entries.run = runs.number AND entries.seq > runs.seq)
    FROM runs NOT INDEXED
    LEFT JOIN entries AS first ON first.run = runs.number AND first.seq = 1
    LEFT JOIN entries AS last ON last.run = runs.number AND last.seq = runs.seq
"""
_INDEX = "SELECT number, CAST(run AS BLOB) FROM runs INDEXED BY sqlite_autoindex_runs_1"
_LATEST = "SELECT number, CAST(run AS BLOB), seq FROM runs WHERE number < ? AND seq <> 0 ORDER BY number DESC"
_INSIDE = "SELECT run FROM runs WHERE run > ? AND run < ? AND seq > 0 ORDER BY run"
_MOST = 1 << 62
_NUMBERS = struct.Struct("<qdqq")

Stand: TypeAlias = tuple[int, int, int, str | None, int | None]
"""Number, epoch, last entry, holder and owner of a run."""
_NO_RUN: Stand = (0, 0, 0, None, None)

StoredEntry: TypeAlias = tuple[int, float, int, str, int, bytes, str, int]
"""A row without its run."""


Row: TypeAlias = tuple[int, int, float, int, str, int, bytes, str, int]
"""One entry as stored: run, seq, at, epoch, type, version, body, blob, crc. A large body lies in the blob named."""


_UNFIT = (TypeError, ValueError, AttributeError, OverflowError, struct.error)
"""What is raised over columns that hold another type than they should."""


def _checksum(run: str, seq: int, at: float, epoch: int, kind: str, version: int, body: bytes, blob: str) -> int:
    head = _NUMBERS.pack(seq, at, epoch, version) + f"{run}\0{kind}\0{blob}".encode()
    return zlib.crc32(body, zlib.crc32(head))


def made(lease: Lease, entry: Entry, body: bytes, blob: str = "") -> Row:
    """The row of an entry under this lease."""
    run = lease.run
    seq = entry.seq
    at = entry.at
    epoch = lease.epoch
    event = entry.event
    kind = TAGS[type(event)]
    version = version_of(event)
    body = b"" if blob else body
    crc = _checksum(run=run, seq=seq, at=at, epoch=epoch, kind=kind, version=version, body=body, blob=blob)
    return lease.number, seq, at, epoch, kind, version, body, blob, crc


def claim(connection: sqlite3.Connection, run: str, holder: str, owner: Owner, *, new: bool, steal: bool) -> Lease:
    _, epoch, seq, present, present_owner = _stand(connection, run) or _NO_RUN
    if present != holder:  # else this very claim was written already and its answer lost
        process = 0 if present_owner is None else owner.process_holding(connection, present_owner)
        check_claim(run, seq=seq, process=process, new=new, steal=steal)
        connection.execute(_HOLD, (run, epoch + 1, holder, owner.number))
    number, epoch, seq, _, _ = _stand(connection, run) or _NO_RUN
    return Lease(run=run, epoch=epoch, seq=seq, number=number)


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
        f"the row of run {run!r} in the list of runs is damaged, so nobody knows which entries are its own. "
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
    with _one_moment(connection):  # a run that grows while it is read would look damaged
        return _read_readable(connection, blobs, run, after)


def _read_readable(connection: sqlite3.Connection, blobs: Blobs, run: str, after: int) -> Readable:
    number, epoch, last = _known(connection, run)
    entries: list[Entry] = []
    expected = max(after, 0)
    highest = 0
    try:
        with closing(connection.execute(_AFTER, (number, expected))) as cursor:
            for row in cursor:
                expected += 1
                entries.append(_verified(blobs, run, expected, row))
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


def _known(connection: sqlite3.Connection, run: str) -> tuple[int, int, int]:
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


def _verified(blobs: Blobs, run: str, expected: int, row: StoredEntry) -> Entry:
    """The entry in a row, if it is the one expected and as it was written."""
    seq, at, epoch, kind, version, body, blob, crc = row
    if seq != expected:
        raise damaged(run, expected, "is missing")
    try:
        if crc != _checksum(run=run, seq=seq, at=at, epoch=epoch, kind=kind, version=version, body=body, blob=blob):
            raise damaged(run, seq, "is damaged")
        content = blobs.get(blob) if blob else body
    except _UNFIT as error:
        raise damaged(run, seq, "is damaged") from error
    except Corrupt as error:
        if error.run:
            raise
        raise damaged(run, seq, f"cannot be read: {error}") from error
    return Entry(seq, at, decode(kind, version, content, run=run, seq=seq))


def listing(connection: sqlite3.Connection, locks: Path) -> list[RunRow]:
    """Every run that has entries, by name. Damage in one does not keep anybody from the others.

    Which of their owners live is seen by the files in `locks`.
    """
    with _one_moment(connection):
        return _listing(connection, locks)


@contextmanager
def _one_moment(connection: sqlite3.Connection) -> Generator[None]:
    """What is read in here is the file as it was at one moment, whoever writes meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        undo(connection)


def _listing(connection: sqlite3.Connection, locks: Path) -> list[RunRow]:
    names = dict(connection.execute(_INDEX).fetchall())
    living: dict[object, bool] = {}
    rows: list[RunRow] = []
    for stored in _stored_runs(connection):
        number, name, is_text, epoch, seq, token = stored[:6]
        if token not in living:
            living[token] = is_alive(locks, token)
        held = living[token]
        is_sound = names.pop(number, None) == name and bool(is_text)
        row = _quick_row(stored, held=held) if is_sound else None
        if row is not None:
            rows.append(row)
        elif seq != 0 or connection.execute(_MORE, (number, 0)).fetchone() is not None:
            rows.append(_run_row(connection, number, name, epoch, seq, held=held, is_sound=is_sound))
    for name in names.values():  # in the index only
        run = _shown_name(name)
        rows.append(
            RunRow(
                run=run, seq=0, started=0.0, changed=0.0, type="", epoch=0, held=False, damage=str(_damaged_run(run))
            )
        )
    return sorted(rows, key=lambda row: row.run)


def _stored_runs(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All rows of the runs, each with its first and last entry; without these where one of them cannot be read."""
    try:
        return connection.execute(_TABLE_WITH_ENDS).fetchall()
    except FILE_ERRORS as error:
        if not is_damage(error):
            raise
    return connection.execute(_TABLE).fetchall()


def _quick_row(stored: tuple[Any, ...], *, held: bool) -> RunRow | None:
    """The row of a run in which nothing is damaged; None for one that has to be looked at closely."""
    _, name, _, epoch, seq, _, *ends = stored
    if not ends or not seq:
        return None
    first = ends[:8]
    last = ends[8:16]
    is_cut = ends[16]
    try:
        run = name.decode()
        _check_sum(run, first)
        _check_sum(run, last)
        if is_cut or last[2] > epoch or last[0] != seq:
            return None
    except (Corrupt, *_UNFIT):
        return None
    return RunRow(run=run, seq=seq, started=first[1], changed=last[1], type=last[3], epoch=epoch, held=held)


def _shown_name(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _run_row(
    connection: sqlite3.Connection, number: int, name: object, epoch: object, seq: object, *, held: bool, is_sound: bool
) -> RunRow:
    run = _shown_name(name)
    last = seq if _is_count(seq) else 0
    try:
        if not is_sound or not last or not _is_count(epoch):
            raise _damaged_run(run)
        first_row = _stored(connection, number, run, 1)
        last_row = _stored(connection, number, run, last)
        _check_sum(run, first_row)
        _check_sum(run, last_row)
        if last_row[2] > epoch or connection.execute(_MORE, (number, last)).fetchone() is not None:
            raise _damaged_run(run)
    except Corrupt as error:
        return RunRow(run=run, seq=last, started=0.0, changed=0.0, type="", epoch=0, held=held, damage=str(error))
    return RunRow(
        run=run, seq=last, started=first_row[1], changed=last_row[1], type=last_row[3], epoch=epoch, held=held
    )


def _check_sum(run: str, row: Sequence[Any]) -> None:
    """Raise Corrupt for a row that is not as it was written."""
    try:
        sound = row[-1] == _checksum(run, *row[:-1])
    except _UNFIT:
        sound = False
    if not sound:
        raise damaged(run, row[0], "is damaged")


def _stored(connection: sqlite3.Connection, number: int, run: str, seq: int) -> StoredEntry:
    try:
        row: Row | None = connection.execute(_BETWEEN, (number, seq, seq)).fetchone()
    except FILE_ERRORS as error:
        if not is_damage(error):
            raise
        raise damaged(run, seq, f"cannot be read ({error})") from error
    if row is None:
        raise damaged(run, seq, "is missing")
    return row[1:]


def inside(connection: sqlite3.Connection, run: str) -> list[str]:
    """The names that begin with that of a run and a slash, found by the index."""
    found = connection.execute(_INSIDE, (f"{run}/", f"{run}0")).fetchall()  # 0 is what follows the slash
    return [name for (name,) in found]


def latest(connection: sqlite3.Connection, blobs: Blobs, before: int, limit: int) -> list[Ends | DamagedRun]:
    """Runs with a lower number than `before`, the latest first: what is looked at does not grow with the journal."""
    ends: list[Ends | DamagedRun] = []
    with closing(connection.execute(_LATEST, (before,))) as cursor:  # left open it would hold on to what was there
        for number, name, seq in cursor:
            if len(ends) >= limit:
                break
            run = _shown_name(name)
            try:
                if not _is_count(seq) or run.encode() != name:
                    raise _damaged_run(run)
                first, last = (_verified(blobs, run, at, _stored(connection, number, run, at)) for at in (1, seq))
                ends.append(Ends(number, run, first, last))
            except Corrupt as error:
                ends.append(DamagedRun(number, run, str(error)))
    return ends
