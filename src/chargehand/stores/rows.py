"""A journal's rows, and the statements that read and write them. Threads and transactions are not their business.

Every function here raises its refusals before it has written anything.
"""

import sqlite3
import struct
import zlib
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeAlias

from chargehand.errors import Corrupt, RunUnknown
from chargehand.stores.blobs import Blobs
from chargehand.stores.codec import TAGS, decode, version_of
from chargehand.stores.journal import Ends, Lease, RunRow, check_claim, differs, fenced, misfit
from chargehand.stores.owner import Owner, is_locked
from chargehand.terms.events import Entry

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
_LIST = """
    SELECT runs.run, runs.seq, first.at, last.at, last.type, runs.epoch, owners.token
    FROM runs
    LEFT JOIN owners ON owners.number = runs.owner
    JOIN entries AS first ON first.run = runs.number AND first.seq = 1
    JOIN entries AS last ON last.run = runs.number AND last.seq = runs.seq
    ORDER BY runs.run
"""
_LATEST = "SELECT number, run, seq FROM runs WHERE number < ? AND seq > 0 ORDER BY number DESC"
_INSIDE = "SELECT run FROM runs WHERE run > ? AND run < ? AND seq > 0 ORDER BY run"
_NUMBERS = struct.Struct("<qdqq")


Row: TypeAlias = tuple[int, int, float, int, str, int, bytes, str, int]
"""One entry as stored: run, seq, at, epoch, type, version, body, blob, crc. A large body lies in the blob named."""


def _checksum(run: str, seq: int, at: float, epoch: int, kind: str, version: int, body: bytes, blob: str) -> int:
    head = _NUMBERS.pack(seq, at, epoch, version) + f"{run}\0{kind}\0{blob}".encode()
    return zlib.crc32(body, zlib.crc32(head))


def made(lease: Lease, entry: Entry, body: bytes, blob: str = "") -> Row:
    """The row of an entry under this lease."""
    run, seq, at, epoch, event = lease.run, entry.seq, entry.at, lease.epoch, entry.event
    kind, version = TAGS[type(event)], version_of(event)
    body = b"" if blob else body
    crc = _checksum(run, seq, at, epoch, kind, version, body, blob)
    return lease.number, seq, at, epoch, kind, version, body, blob, crc


def claim(connection: sqlite3.Connection, run: str, holder: str, owner: Owner, *, new: bool, steal: bool) -> Lease:
    stand = connection.execute(_STAND, (run,)).fetchone()
    _, epoch, seq, present, present_owner = stand or (0, 0, 0, None, None)
    if present != holder:  # else this very claim was written already and its answer lost
        process = 0 if present_owner is None else owner.process_holding(connection, present_owner)
        check_claim(run, seq=seq, process=process, new=new, steal=steal)
        connection.execute(_HOLD, (run, epoch + 1, holder, owner.number))
    number, epoch, seq, _, _ = connection.execute(_STAND, (run,)).fetchone()
    return Lease(run, epoch, seq, number)


def append(connection: sqlite3.Connection, lease: Lease, entries: Sequence[Row]) -> None:
    first, epoch, number = entries[0][1], lease.epoch, lease.number
    last = first - 1 + len(entries)
    # the update is the check: it finds its row only if epoch, place and hold are as the lease says
    if connection.execute(_ADVANCE, (last, number, lease.run, epoch, first - 1)).rowcount == 1:
        connection.executemany(_INSERT, entries)
        return
    _, present, seq, holder, _ = connection.execute(_STAND, (lease.run,)).fetchone() or (0, 0, 0, None, None)
    if present != epoch or holder is None:
        raise fenced(lease.run, epoch)
    if seq < last:
        raise misfit(lease.run, seq, first)
    if connection.execute(_BETWEEN, (number, first, last)).fetchall() != list(entries):
        raise differs(lease.run, first)


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    connection.execute(_FREE, (lease.run, lease.epoch))


def read(connection: sqlite3.Connection, blobs: Blobs, run: str, after: int) -> list[Entry]:
    number, _, last, _, _ = connection.execute(_STAND, (run,)).fetchone() or (0, 0, 0, None, None)
    if not last:
        raise RunUnknown(run)
    entries: list[Entry] = []
    expected = max(after, 0)
    for seq, at, epoch, kind, version, body, blob, crc in connection.execute(_AFTER, (number, expected)).fetchall():
        expected += 1
        if seq != expected:
            raise Corrupt(f"entry {expected} of run {run!r} is missing; restore the journal from a backup")
        if crc != _checksum(run, seq, at, epoch, kind, version, body, blob):
            raise Corrupt(f"entry {seq} of run {run!r} is damaged; restore the journal from a backup")
        content = blobs.get(blob) if blob else body
        entries.append(Entry(seq, at, decode(kind, version, content, run=run, seq=seq)))
    if expected < last:
        raise Corrupt(f"entry {expected + 1} of run {run!r} is missing; restore the journal from a backup")
    return entries


def listing(connection: sqlite3.Connection, locks: Path) -> list[RunRow]:
    """Every run with entries. Which of their owners live is seen by the files in `locks`."""
    living: dict[str | None, bool] = {None: False}
    listed: list[RunRow] = []
    for *facts, token in connection.execute(_LIST).fetchall():
        if token not in living:
            living[token] = is_locked(locks / token)
        listed.append(RunRow(*facts, held=living[token]))
    return listed


def inside(connection: sqlite3.Connection, run: str) -> list[str]:
    """The names that begin with that of a run and a slash, found by the index."""
    found = connection.execute(_INSIDE, (f"{run}/", f"{run}0")).fetchall()  # 0 is what follows the slash
    return [name for (name,) in found]


def latest(connection: sqlite3.Connection, blobs: Blobs, before: int, limit: int) -> list[Ends]:
    """Runs with a lower number than `before`, the latest first: what is looked at does not grow with the journal.

    One that is damaged at either end is left out, so that it does not keep anybody from looking at the others.
    """
    found: list[Ends] = []
    with closing(connection.execute(_LATEST, (before,))) as cursor:  # left open it would hold on to what was there
        for number, run, seq in cursor:
            if len(found) >= limit:
                break
            with suppress(Corrupt):
                first, last = (_entry(connection, blobs, number, run, at) for at in (1, seq))
                found.append(Ends(number, run, first, last))
    return found


def _entry(connection: sqlite3.Connection, blobs: Blobs, number: int, run: str, seq: int) -> Entry:
    row: Row | None = connection.execute(_BETWEEN, (number, seq, seq)).fetchone()
    if row is None:
        raise Corrupt(f"entry {seq} of run {run!r} is missing; restore the journal from a backup")
    _, _, at, epoch, kind, version, body, blob, crc = row
    if crc != _checksum(run, seq, at, epoch, kind, version, body, blob):
        raise Corrupt(f"entry {seq} of run {run!r} is damaged; restore the journal from a backup")
    return Entry(seq, at, decode(kind, version, blobs.get(blob) if blob else body, run=run, seq=seq))
