"""Journals by URL: `sqlite:///runs.db` (with four slashes an absolute path), `postgresql://host/database`, `memory:`.

A bare path is a SQLite file.

Another kind of store is one module with a `JournalStore`, and a line in `journal_store`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.engine.events import Entry
from chargehand.journal.deliveries import Delivery
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import BackedUp, Journal, JournalStore, Pruned, Readable, RunRow
from chargehand.store_url import MEMORY, PostgresUrl, StoreUrl, parse_store_url

if TYPE_CHECKING:
    from chargehand.sqlite.connection import Durability, Examined


NEWEST = 2**62
"""A number above that of every run."""


def journal_store(url: StoreUrl) -> JournalStore:
    """The store that keeps a journal; Invalid for a URL that names none."""
    place = parse_store_url(url)
    if isinstance(place, PostgresUrl):
        from chargehand.journal.postgres import PostgresJournalStore  # noqa: PLC0415 - an extra

        return PostgresJournalStore(place)
    from chargehand.journal.sqlite import SqliteFile  # noqa: PLC0415 - a journal in memory needs no SQLite

    return SqliteFile(place)


async def open_journal(url: StoreUrl, *, durability: "Durability" = "machine", create: bool = True) -> Journal:
    """A journal to write and read; Refused if it is not there and is not to be created."""
    if url == MEMORY:
        return MemoryJournal()
    return await journal_store(url).open(durability=durability, create=create)


@asynccontextmanager
async def opened_journal(
    url: StoreUrl, *, durability: "Durability" = "machine", create: bool = True
) -> AsyncGenerator[Journal]:
    """`open_journal`, closed at the end."""
    journal = await open_journal(url, durability=durability, create=create)
    try:
        yield journal
    finally:
        await journal.close()


def read_run(url: StoreUrl, run: str, *, after: int = 0) -> list[Entry]:
    """The entries of a run that follow number `after`; RunUnknown if it has none at all."""
    return journal_store(url).read(run, after=after)


def read_readable(url: StoreUrl, run: str) -> Readable:
    """The entries of a run up to the first that is damaged, with what is wrong there."""
    return journal_store(url).read_readable(run)


def read_row(url: StoreUrl, run: str) -> RunRow:
    """One run as listings have it; RunUnknown if it has no entries."""
    return journal_store(url).row(run)


def latest_runs(url: StoreUrl, *, before: int = NEWEST, limit: int) -> list[RunRow]:
    """At most `limit` runs with a lower number than `before`, the latest first."""
    return journal_store(url).latest(before=before, limit=limit)


def run_names(url: StoreUrl, prefix: str) -> list[str]:
    """The names that begin so, the latest first; without damaged ones."""
    return journal_store(url).names(prefix)


def list_inside(url: StoreUrl, run: str) -> list[str]:
    """The names of the runs nested in a run, at any depth, sorted."""
    return journal_store(url).inside(run)


def list_runs(url: StoreUrl) -> list[RunRow]:
    """Every run, the latest first. One that is damaged says so in its row."""
    return sorted(journal_store(url).runs(), key=lambda row: row.started, reverse=True)


def list_open_runs(url: StoreUrl) -> list[RunRow]:
    """The runs that have not ended, the latest first."""
    return [row for row in list_runs(url) if row.ended is None and not row.damage]


def list_deliveries(url: StoreUrl) -> list[Delivery]:
    """What is owed to webhooks, and what was given up, by run."""
    return journal_store(url).deliveries()


def examine_journal(url: StoreUrl) -> "Examined":
    """What is wrong with a journal that is there; takes a few seconds at most."""
    return journal_store(url).examine()


def prune_runs(url: StoreUrl, runs: Sequence[str]) -> Pruned:
    """Delete these runs, but for those that a living process drives."""
    return journal_store(url).prune(runs)


def back_up(url: StoreUrl, target: Path) -> BackedUp:
    """A copy of a journal as of one moment, in a file. Refused if the file exists."""
    return journal_store(url).back_up(target)


def restore(backup: Path, url: StoreUrl) -> BackedUp:
    """Put a backup where there is no journal; Corrupt, and nothing done, if the backup is damaged."""
    return journal_store(url).restore(backup)
