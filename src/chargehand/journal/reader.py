"""Looking into a journal file without taking it over: a run can be looked at while another process drives it."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from chargehand.engine.events import Entry
from chargehand.errors import Corrupt, Refused, RunUnknown, StoreError
from chargehand.journal import rows
from chargehand.journal.blobs import FileBlobs
from chargehand.journal.ownership import locks_of
from chargehand.journal.protocol import Readable, RunRow, check_name
from chargehand.sqlite.connection import FILE_ERRORS, connect, explain, has_tables, is_ours, open_reader

_PATIENCE = 5.0


def read_run(journal: Path, run: str, *, after: int = 0) -> list[Entry]:
    """The entries of a run that follow number `after`; RunUnknown if it has none at all."""
    with _reading(journal, run) as connection:
        return rows.read(connection, FileBlobs.beside(journal), run, after)


def read_readable(journal: Path, run: str) -> Readable:
    """The entries of a run up to the first that is damaged, with what is wrong there."""
    with _reading(journal, run) as connection:
        return rows.read_readable(connection, FileBlobs.beside(journal), run, 0)


def read_rows(journal: Path) -> list[RunRow]:
    """The row of every run, the latest first. One that is damaged says so in its row."""
    with _reading(journal) as connection:
        listed = rows.listing(connection, locks_of(journal))
    return sorted(listed, key=lambda row: row.started, reverse=True)


def open_runs(journal: Path) -> list[RunRow]:
    """The runs that have not ended, the latest first."""
    return [row for row in read_rows(journal) if row.type != "run.ended" and not row.damage]


@contextmanager
def _reading(journal: Path, run: str = "") -> Generator[sqlite3.Connection]:
    """A connection; what goes wrong with the file, or with the run that is looked for, is said in our words."""
    if run:
        check_name(run)
    with closing(_opened(journal)) as connection:
        try:
            yield connection
        except RunUnknown as error:
            raise _missing(connection, error, run, locks_of(journal)) from error
        except FILE_ERRORS as error:
            raise explain(error, journal) from error


def _missing(connection: sqlite3.Connection, unknown: RunUnknown, run: str, locks: Path) -> RunUnknown | Corrupt:
    """A run that is not there may be one whose name is damaged."""
    names = [row.run for row in rows.listing(connection, locks) if row.damage]
    if not names:
        return unknown
    said = f"there is no run {run!r} in this journal that can be read, and these are damaged: {', '.join(names[:5])}"
    return Corrupt(f"{said}. It may be one of them; restore the journal from a backup", run=run)


def _opened(journal: Path) -> sqlite3.Connection:
    if not journal.exists():  # SQLite would make it
        raise Refused(f"there is no journal {journal}; run something first, or name another with --journal")
    try:
        connection = open_reader(journal, _PATIENCE, connect)
        try:
            known = has_tables(connection)
        except FILE_ERRORS:
            connection.close()
            raise
    except FILE_ERRORS as error:
        raise explain(error, journal) from error
    if not known:
        connection.close()
        if is_ours(journal):
            raise Corrupt(f"{journal} is damaged: its tables are not there. Restore it from a backup")
        raise StoreError(f"{journal} is not a journal; name another file with --journal")
    return connection
