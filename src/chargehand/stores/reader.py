"""Looking into a journal file without taking it over: a run can be looked at while another process drives it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from chargehand.errors import Refused, StoreError
from chargehand.stores import rows
from chargehand.stores.blobs import FileBlobs
from chargehand.stores.database import connect, explain, open_reader
from chargehand.stores.journal import RunRow, check_name
from chargehand.stores.owner import locks_of
from chargehand.terms.events import Entry, RunEnded

_PATIENCE = 5.0


class Found(Struct, frozen=True):
    """One run in a listing: its row, how it ended if it did, and whether a living process drives it."""

    row: RunRow
    ended: RunEnded | None
    driven: bool


def read_run(journal: Path, run: str, *, after: int = 0) -> list[Entry]:
    """The entries of a run that follow number `after`; RunUnknown if it has none at all."""
    check_name(run)
    with closing(_opened(journal)) as connection:
        try:
            return rows.read(connection, _blobs(journal), run, after)
        except sqlite3.Error as error:
            raise explain(error, journal) from error


def read_runs(journal: Path) -> list[Found]:
    """Every run, the latest first."""
    with closing(_opened(journal)) as connection:
        try:
            found = [_found(connection, journal, row) for row in rows.listing(connection, locks_of(journal))]
        except sqlite3.Error as error:
            raise explain(error, journal) from error
    return sorted(found, key=lambda one: one.row.started, reverse=True)


def open_runs(journal: Path) -> list[RunRow]:
    """The runs that have not ended, by name."""
    with closing(_opened(journal)) as connection:
        try:
            return [row for row in rows.listing(connection, locks_of(journal)) if row.type != "run.ended"]
        except sqlite3.Error as error:
            raise explain(error, journal) from error


def _found(connection: sqlite3.Connection, journal: Path, row: RunRow) -> Found:
    ended: RunEnded | None = None
    if row.type == "run.ended":
        last = rows.read(connection, _blobs(journal), row.run, row.seq - 1)[-1].event
        ended = last if isinstance(last, RunEnded) else None
    return Found(row, ended, row.held and ended is None)


def _blobs(journal: Path) -> FileBlobs:
    return FileBlobs.beside(journal)


def _opened(journal: Path) -> sqlite3.Connection:
    if not journal.exists():  # SQLite would make it
        raise Refused(f"there is no journal {journal}; run something first, or name another with --journal")
    try:
        connection = open_reader(journal, _PATIENCE, connect)
        try:
            found = connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('runs', 'entries', 'owners')")
            known = found.fetchone()[0] == 3
        except sqlite3.Error:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, journal) from error
    if not known:
        connection.close()
        raise StoreError(f"{journal} is not a journal; name another file with --journal")
    return connection
