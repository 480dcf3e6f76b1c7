"""A store that fails: a clean error or success, never a wrong state, and it goes on when the trouble is over."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from chargehand.engine.events import Entry
from chargehand.errors import RunUnknown, StoreUnavailable
from chargehand.journal.protocol import Journal, Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.sqlite.connection import connect
from tests.stores.faults import Fault, failing, prepared
from tests.stores.samples import entries, noted, numbers
from tests.support.hunts import hunt_size

Outcome = TypeVar("Outcome")

PLANNED = {"a": entries(*range(1, 7)), "b": entries(*range(1, 5))}


class Story:
    """One use of a journal, and what it was told is durable."""

    def __init__(self, path: Path, fault: Fault, tries: int) -> None:
        self.path = path
        self.fault = fault
        self.tries = tries
        self.told: dict[str, list[Entry]] = {"a": [], "b": []}

    async def tried(self, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        for _ in range(self.tries - 1):
            with suppress(StoreUnavailable):
                return await work()
        return await work()

    async def run(self) -> None:
        journal = await self.tried(
            lambda: SqliteJournal.open(self.path, durability="process", connect=failing(self.fault))
        )
        try:
            await self._tell(journal)
        finally:
            await journal.close()

    async def _tell(self, journal: Journal) -> None:
        a = await self.tried(lambda: journal.claim("a", new=True))
        await self._append(journal, "a", a, 0, 2)
        b = await self.tried(lambda: journal.claim("b", new=True))
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(self._append(journal, "a", a, 2, 4))
            jobs.create_task(self._append(journal, "b", b, 0, 3))
        await self._append(journal, "a", a, 4, 5)
        await self.tried(lambda: journal.release(a))
        assert await self.tried(lambda: journal.read("a")) == self.told["a"]
        a = await self.tried(lambda: journal.claim("a"))
        await self._append(journal, "a", a, 5, 6)
        await self._append(journal, "b", b, 3, 4)

    async def _append(self, journal: Journal, run: str, lease: Lease, start: int, end: int) -> None:
        await self.tried(lambda: journal.append(lease, PLANNED[run][start:end]))
        self.told[run] = PLANNED[run][:end]


async def stored(path: Path) -> dict[str, list[Entry]]:
    journal = await SqliteJournal.open(path, durability="process")
    found: dict[str, list[Entry]] = {}
    for run in PLANNED:
        try:
            found[run] = await journal.read(run)
        except RunUnknown:
            found[run] = []
    await journal.close()
    return found


@pytest.mark.parametrize(
    ("first", "tries", "times", "after", "code"),
    [
        (1, 1, 1, False, 0),
        (2, 1, 1, True, 0),
        (3, 1, 3, False, 0),
        (1, 1, 3, True, 0),
        (2, 5, 1, True, 0),
        (3, 5, 3, False, 0),
        (1, 5, 3, True, 0),
        (2, 5, 1, False, sqlite3.SQLITE_FULL),
        (3, 5, 1, False, sqlite3.SQLITE_BUSY),
        (1, 5, 2, True, sqlite3.SQLITE_IOERR),
    ],
)
def test_whichever_statement_fails_nothing_wrong_is_stored(
    fast: Path, first: int, tries: int, times: int, after: bool, code: int
) -> None:
    """The quick hunt has every third statement fail, from the `first` one on: all cases together, each of them."""
    step = hunt_size(quick=3, thorough=1)
    at = hunt_size(quick=first, thorough=1) - step
    fired = True
    while fired:
        at += step
        path = fast / f"{at}.db"
        story = Story(path, Fault(at, times=times, after=after, code=code), tries)
        failed = True
        try:
            asyncio.run(story.run())
            failed = False
        except* StoreUnavailable as group:
            assert all(str(path) in str(error) for error in group.exceptions)  # noqa: PT017 - any other error goes on
        fired = story.fault.fired > 0
        found = asyncio.run(stored(path))
        for run, planned in PLANNED.items():
            assert found[run][: len(story.told[run])] == story.told[run], at
            assert planned[: len(found[run])] == found[run], at
        assert not (failed and tries > times + 1), at
        if not failed:
            assert found == PLANNED, at
    assert at > 50


async def test_a_full_disk_fails_the_append_and_room_heals_it(path: Path) -> None:
    made: list[sqlite3.Connection] = []

    def small(path: Path, patience: float) -> sqlite3.Connection:
        made.append(prepared("PRAGMA max_page_count = 40")(path, patience))
        return made[-1]

    journal = await SqliteJournal.open(path, connect=small)
    lease = await journal.claim("r", new=True)
    seq = 0
    while (error := await fails(journal.append(lease, [noted(seq + 1, "x" * 5000)]))) is None:
        seq += 1
    assert "disk is full" in str(error)
    assert 5 < seq < 40
    assert lease.seq == seq
    assert numbers(await journal.read("r")) == list(range(1, seq + 1))
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await journal.append(lease, [noted(seq + 1, "x" * 5000)])
    # a small one may still fit, and one that does not fit fails alone
    async with asyncio.TaskGroup() as jobs:
        large = jobs.create_task(fails(journal.append(lease, [noted(seq + 1, "x" * 60_000)])))
        small_one = jobs.create_task(journal.claim("other", new=True))
    assert isinstance(large.result(), StoreUnavailable)
    assert small_one.result().epoch == 1
    made[0].execute("PRAGMA max_page_count = 100000")
    await journal.append(lease, [noted(seq + 1, "x" * 5000)])
    assert numbers(await journal.read("r")) == list(range(1, seq + 2))
    await journal.close()


async def fails(work: Awaitable[object]) -> BaseException | None:
    try:
        await work
    except StoreUnavailable as error:
        return error
    return None


async def test_a_file_that_cannot_be_written_is_told(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries(1))
    await journal.close()

    def read_only(path: Path, patience: float) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    with pytest.raises(StoreUnavailable, match="read-only"):
        await SqliteJournal.open(path, connect=read_only)

    # it becomes read-only under way
    made: list[sqlite3.Connection] = []

    def kept(path: Path, patience: float) -> sqlite3.Connection:
        made.append(connect(path, patience))
        return made[-1]

    journal = await SqliteJournal.open(path, connect=kept)
    lease = await journal.claim("r")
    made[0].execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await journal.append(lease, entries(2))
    assert lease.seq == 1
    made[0].execute("PRAGMA query_only = OFF")
    await journal.append(lease, entries(2))
    assert numbers(await journal.read("r")) == [1, 2]
    await journal.close()


async def test_a_foreign_lock_fails_everybody_at_once_and_passes(path: Path) -> None:
    journal = await SqliteJournal.open(path, patience=0.3)
    leases = [await journal.claim(f"r{number}", new=True) for number in range(30)]
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    async with asyncio.TaskGroup() as jobs:
        waits = [jobs.create_task(fails(journal.append(lease, entries(1)))) for lease in leases]
    assert time.monotonic() - began < 4.5, "one after the other they wait for 9 s"
    assert all("holds a lock" in str(wait.result()) for wait in waits)
    foreign.execute("ROLLBACK")
    foreign.close()
    for lease in leases:
        await journal.append(lease, entries(1))
        assert numbers(await journal.read(lease.run)) == [1]
    await journal.close()


async def test_a_journal_opens_only_where_a_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteJournal.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        await SqliteJournal.open(tmp_path / "file" / "runs.db")
    await (await SqliteJournal.open(tmp_path / "made" / "runs.db")).close()
    (tmp_path / "runs.db-locks").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="cannot hold a lock"):
        await SqliteJournal.open(tmp_path / "runs.db")


async def test_a_blob_that_cannot_be_kept_leaves_the_run_as_it_was(path: Path) -> None:
    (path.parent / "runs.db-blobs").write_text("in the way")
    journal = await SqliteJournal.open(path)
    lease = await journal.claim("r", new=True)
    with pytest.raises(StoreUnavailable, match="could not be kept"):
        await journal.append(lease, [noted(1), noted(2, "x" * 70_000)])
    assert lease.seq == 0
    (path.parent / "runs.db-blobs").unlink()
    await journal.append(lease, [noted(1), noted(2, "x" * 70_000)])
    assert numbers(await journal.read("r")) == [1, 2]
    await journal.close()
