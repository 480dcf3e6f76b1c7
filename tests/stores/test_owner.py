"""Many processes use one journal: the living keep their runs, the dead lose them at once, the frozen are fenced."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from chargehand.errors import Fenced, RunBusy, StoreError, StoreUnavailable
from chargehand.journal.ownership import locks_of
from chargehand.journal.protocol import Journal, Lease, RunRow
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import list_runs, open_journal
from chargehand.sqlite.connection import connect, migrate
from chargehand.store_url import StoreUrl
from tests.stores.other_process import MANY, Other
from tests.stores.samples import entries, noted, numbers
from tests.support.hunts import hunt_size


def reader_rows(path: StoreUrl) -> list[RunRow]:
    """The runs as another process sees them that opens nothing."""
    return list_runs(path)


@pytest.fixture
def other_of_store(store: str) -> Iterator[Other]:
    made = Other(store)
    yield made
    made.end()


@pytest.fixture
def other(path: Path) -> Iterator[Other]:
    made = Other(path)
    yield made
    made.end()


async def claim_of_dead(journal: Journal, store: str) -> Lease:
    """The lease of a run whose process was killed just now. A server must first see that its connection is closed."""
    for _ in range(1000 if store.startswith("postgresql:") else 0):
        try:
            return await journal.claim("r")
        except RunBusy:
            await asyncio.sleep(0.01)
    return await journal.claim("r")


def later() -> float:
    """The clock of somebody who has waited for a minute."""
    return time.monotonic() + 60


async def test_two_processes_write_their_own_runs_and_a_claim_is_refused_with_its_holder(
    store: str, other_of_store: Other
) -> None:
    assert other_of_store.hear() == "open"
    assert other_of_store.tell("append") == "done 1"
    journal = await open_journal(store)
    with pytest.raises(RunBusy, match=f"driven by process {other_of_store.process.pid}"):
        await journal.claim("r")
    lease = await journal.claim("mine", new=True)
    for seq in range(1, 20):
        await journal.append(lease, [noted(seq)])
        assert other_of_store.tell("append") == f"done {seq + 1}"
    assert {row.run: row.held for row in await journal.runs()} == {"mine": True, "r": True}
    second = Other(store)
    answer = second.hear()
    second.end()
    assert answer.startswith("Refused run 'r' exists already")
    await journal.close()
    assert {row.run: row.held for row in reader_rows(store)} == {"mine": False, "r": True}


async def test_eight_processes_that_write_at_once_lose_nothing(store: str) -> None:
    others = [Other(store, f"many {number}") for number in range(8)]
    assert [one.hear() for one in others] == ["open"] * 8  # six or eight may make the new file at the same moment
    for one in others:
        one.send("go")
    assert [one.hear() for one in others] == [f"done {MANY}"] * 8
    for one in others:
        one.end()
    journal = await open_journal(store)
    for number in range(8):
        assert numbers(await journal.read(f"many {number}")) == list(range(1, MANY + 1))
    await journal.close()


async def test_a_link_to_a_journal_is_the_same_journal(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    await journal.claim("r", new=True)
    link = path.with_name("link.db")
    link.symlink_to(path)
    linked = await SqliteJournal.open(link)
    with pytest.raises(RunBusy, match="driven by this process"):
        await linked.claim("r", new=True)
    await journal.close()
    await linked.close()


async def test_a_killed_process_makes_room_at_once(store: str, other_of_store: Other) -> None:
    assert other_of_store.hear() == "open"
    assert other_of_store.tell("append") == "done 1"
    journal = await open_journal(store)
    with pytest.raises(RunBusy, match=f"process {other_of_store.process.pid}"):
        await journal.claim("r")
    other_of_store.end()
    lease = await claim_of_dead(journal, store)
    assert (lease.epoch, lease.seq) == (2, 1)
    await journal.append(lease, [noted(2)])
    assert numbers(await journal.read("r")) == [1, 2]
    await journal.close()


async def test_what_dead_processes_leave_behind_is_cleared_away(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    other.end()
    assert [row.held for row in reader_rows(path)] == [False]
    journal = await SqliteJournal.open(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT pid FROM owners").fetchall() == [(os.getpid(),)]
    assert len(list(locks_of(path).iterdir())) == 1
    await journal.close()
    assert list(locks_of(path).iterdir()) == []


async def test_of_two_who_resume_one_wins_and_the_other_is_told_who(store: str) -> None:
    first = await open_journal(store)
    lease = await first.claim("r", new=True)
    await first.append(lease, entries(1))
    await first.release(lease)
    second = await open_journal(store)  # a connection of its own, as another process has
    won: list[Lease] = []
    refused: list[RunBusy] = []

    async def claim(journal: Journal) -> None:
        try:
            won.append(await journal.claim("r"))
        except RunBusy as error:
            refused.append(error)

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(claim(first))
        jobs.create_task(claim(second))
    assert (len(won), len(refused)) == (1, 1)
    assert "driven by this process" in str(refused[0])
    await first.close()
    await second.close()


def test_threads_with_loops_of_their_own_share_one_writer(store: str) -> None:
    async def drive(number: int) -> None:
        journal = await open_journal(store)
        lease = await journal.claim(f"r{number}", new=True)
        for seq in range(1, 11):
            await journal.append(lease, [noted(seq)])
        await journal.release(lease)
        await journal.close()

    def run(number: int) -> None:
        asyncio.run(drive(number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(40)))
    assert {row.run: (row.seq, row.held) for row in reader_rows(store)} == {f"r{n}": (10, False) for n in range(40)}


async def test_whoever_closes_first_does_not_close_it_for_the_others(store: str) -> None:
    first = await open_journal(store)
    second = await open_journal(store)
    lease = await second.claim("r", new=True)
    await first.close()
    with pytest.raises(StoreError, match="closed"):
        await first.read("r")
    await second.append(lease, entries(1))
    assert numbers(await second.read("r")) == [1]
    await second.close()


async def test_a_journal_that_was_moved_away_is_not_taken_for_the_new_one(path: Path) -> None:
    old = await SqliteJournal.open(path)
    lease = await old.claim("r", new=True)
    await old.append(lease, entries(1))
    aside = path.with_name("aside")
    aside.mkdir()
    for file in path.parent.glob("runs.db*"):
        file.rename(aside / file.name)
    new = await SqliteJournal.open(path)
    assert await new.runs() == []
    await new.close()
    await old.close()


async def test_nothing_acknowledged_is_lost_with_a_killed_process(store: str) -> None:
    acknowledged = 0
    kills = hunt_size(quick=2, thorough=5)
    for _ in range(kills):
        other = Other(store, "pour")
        assert other.hear() == "open"
        for _ in range(50):
            acknowledged = int(other.hear())
        other.end()
        journal = await open_journal(store)
        stored = numbers(await journal.read("r"))
        assert stored == list(range(1, len(stored) + 1))
        assert acknowledged <= len(stored) <= acknowledged + 10_000
        await journal.close()
    assert acknowledged >= 50 * kills


async def test_a_frozen_process_is_fenced_when_it_thaws(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    other.process.send_signal(signal.SIGSTOP)
    early = await SqliteJournal.open(path)
    with pytest.raises(RunBusy):  # it was seen alive a moment ago
        await early.claim("r")
    await early.close()
    journal = await SqliteJournal.open(path, clock=later)
    lease = await journal.claim("r")
    await journal.append(lease, [noted(2, "by the new one")])
    other.process.send_signal(signal.SIGCONT)
    assert other.tell("append") == "Fenced"
    assert other.tell("append") == "Fenced"
    assert await journal.read("r") == [noted(1, "by the other"), noted(2, "by the new one")]
    await journal.append(lease, [noted(3)])
    await journal.close()


async def test_a_process_frozen_in_the_middle_of_a_write_must_be_ended(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    other.process.send_signal(signal.SIGSTOP)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")  # in its stead
    with pytest.raises(StoreUnavailable, match=f"process {other.process.pid}, which stands still"):
        await SqliteJournal.open(path, clock=later, patience=0.05)
    held.close()
    await (await SqliteJournal.open(path, clock=later)).close()


async def test_a_forked_child_does_not_keep_a_closed_journal(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    child = int(other.tell("fork"))
    other.leave()
    other.process.wait(10)
    journal = await SqliteJournal.open(path)
    os.kill(child, signal.SIGKILL)
    assert numbers(await journal.read("r")) == [1]
    await journal.close()


async def test_only_one_of_many_gets_a_new_run(path: Path) -> None:
    others = [Other(path) for _ in range(4)]
    answers = sorted(one.hear().split()[0] for one in others)
    assert answers == ["RunBusy"] * 3 + ["open"]
    for one in others:
        one.end()


async def test_a_journal_that_another_process_makes_just_now_is_not_damaged(path: Path) -> None:
    """The other writes the schema between two questions about what kind of file this is."""

    class Slow(sqlite3.Connection):
        def execute(self, sql: str, parameters: Sequence[object] = (), /) -> sqlite3.Cursor:  # pyright: ignore[reportIncompatibleMethodOverride]
            if "sqlite_master" in sql and not schema_written.is_set():
                schema_written.set()
                with closing(connect(path, 0.0)) as other, suppress(sqlite3.OperationalError):
                    migrate(other)
            return super().execute(sql, tuple(parameters))

    def connect_slowly(place: Path, patience: float) -> sqlite3.Connection:
        return sqlite3.connect(place, timeout=patience, isolation_level=None, check_same_thread=False, factory=Slow)

    schema_written = threading.Event()
    journal = await SqliteJournal.open(path, connect=connect_slowly)
    await journal.claim("r", new=True)
    await journal.close()
    assert schema_written.is_set()


async def test_an_owner_that_was_taken_for_dead_is_fenced(path: Path) -> None:
    """Its lock file is gone, so another process forgets it and frees its runs."""
    first = await SqliteJournal.open(path)
    lease = await first.claim("r", new=True)
    await first.append(lease, entries(1))
    for lock in locks_of(path).iterdir():
        lock.unlink()
    second = await SqliteJournal.open(path, patience=4.0)
    with pytest.raises(Fenced, match="taken for dead"):
        await first.append(lease, entries(2))
    with pytest.raises(Fenced):
        await first.claim("other", new=True)
    await first.release(lease)
    await first.close()
    taken = await second.claim("r")
    await second.append(taken, entries(2))
    assert numbers(await second.read("r")) == [1, 2]
    await second.close()


class Counted:
    """A clock that counts who looks at it: a few times a beat, and thousands of times a second if somebody spins."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return time.monotonic()


async def test_a_fenced_owner_does_not_spin(path: Path) -> None:
    """It is told once a beat, not as fast as it can ask."""
    clock = Counted()
    first = await SqliteJournal.open(path, stale=0.3, clock=clock)
    for lock in locks_of(path).iterdir():
        lock.unlink()
    second = await SqliteJournal.open(path, stale=0.3)  # takes the first for dead
    await asyncio.sleep(0.5)
    assert clock.looks < 300
    await first.close()
    await second.close()


async def test_a_file_that_became_read_only_does_not_make_the_owner_spin(path: Path) -> None:
    clock = Counted()
    journal = await SqliteJournal.open(path, stale=0.3, clock=clock)
    connection = journal._database._writer._connection
    assert connection is not None
    connection.execute("PRAGMA query_only = ON")
    await asyncio.sleep(0.5)
    assert clock.looks < 300
    await journal.close()


async def test_an_opening_that_nobody_waits_for_any_more_leaves_the_journal_free(path: Path) -> None:
    begun = threading.Event()
    held = threading.Event()

    def slowly(file: Path, patience: float) -> sqlite3.Connection:
        begun.set()
        held.wait(5)
        return connect(file, patience)

    async with asyncio.TaskGroup() as jobs:
        opening = jobs.create_task(SqliteJournal.open(path, connect=slowly))
        await asyncio.to_thread(begun.wait, 5)
        opening.cancel()
        await asyncio.sleep(0)
        held.set()
    for _ in range(500):
        if not list(locks_of(path).glob("*")):
            return
        await asyncio.sleep(0.01)
    pytest.fail("the journal is still open for somebody who is gone")
