"""A store that fails under a real driver: the run waits and goes on, or a clear error says why not."""

import asyncio
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from msgspec import structs

from chargehand.engine.events import VERSIONS, Entry, InputAnswered
from chargehand.engine.fold import replay
from chargehand.engine.policy import Policy
from chargehand.errors import Corrupt, StoreUnavailable
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.runtime import run_loop as drive
from chargehand.runtime.runner import outcome
from chargehand.sqlite.connection import connect
from tests.runtime.story import ASKED, Story
from tests.sim.loop import VirtualLoop
from tests.stores.faults import Fault, failing, prepared
from tests.support.hunts import hunt_size

Result = TypeVar("Result")


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: for tests that open hundreds of files."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as directory:
        yield Path(directory)


# --- the n-th call fails


class Failing(MemoryJournal):
    """Fails its n-th call and those right after it, before or after each took effect. A claim never half happens."""

    instant = False

    def __init__(self, at: int, *, times: int, after: bool) -> None:
        super().__init__()
        self.calls = self.fired = 0
        self._which = range(at, at + times)
        self._after = after

    async def _around(self, work: Callable[[], Awaitable[Result]], *, after: bool) -> Result:
        self.calls += 1
        if self.calls not in self._which:
            return await work()
        self.fired += 1
        if after:
            await work()
        raise StoreUnavailable(f"told to fail at call {self.calls}")

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        return await self._around(lambda: super(Failing, self).claim(run, new=new, steal=steal), after=False)

    async def append(self, lease: Lease, entries: Sequence[Entry]) -> None:
        await self._around(lambda: super(Failing, self).append(lease, entries), after=self._after)

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        return await self._around(lambda: super(Failing, self).read(run, after=after), after=self._after)

    async def release(self, lease: Lease) -> None:
        await self._around(lambda: super(Failing, self).release(lease), after=self._after)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after it took effect"])
@pytest.mark.parametrize("times", [1, 2, 7])
def test_whichever_call_of_the_store_fails_the_run_comes_to_its_end(times: int, after: bool) -> None:
    at = 0
    fired = True
    while fired:
        at += 1
        loop = VirtualLoop()
        journal = Failing(at, times=times, after=after)
        story = Story(journal, loop.time)
        found = loop.run_until_complete(story.play())
        fired = journal.fired > 0
        story.judge(found, loop.run_until_complete(MemoryJournal.read(journal, "r")))
        assert loop.time() < 40
        loop.close()
    assert at > 15


def test_a_store_that_stays_away_ends_in_a_clear_error_after_the_deadline() -> None:
    loop = VirtualLoop()
    journal = Failing(8, times=10**9, after=False)
    story = Story(journal, loop.time)
    with pytest.raises(StoreUnavailable, match="told to fail"):
        loop.run_until_complete(story.driver.start("r", structs.replace(ASKED, policy=Policy(), deadline=60.0)))
    assert 65.0 < loop.time() < 75.0
    stored = loop.run_until_complete(MemoryJournal.read(journal, "r"))
    assert story.told == stored
    assert len(stored) > 3
    assert asyncio.all_tasks(loop) == set()
    loop.close()


@pytest.mark.parametrize(("times", "after"), [(1, True), (3, False), (9, True)])
def test_whichever_statement_of_sqlite_fails_the_run_comes_to_its_end(
    fast: Path, monkeypatch: pytest.MonkeyPatch, times: int, after: bool
) -> None:
    monkeypatch.setattr(drive, "_FIRST_PAUSE", 0.0005)

    async def play(fault: Fault, path: Path) -> None:
        async def opened() -> SqliteJournal:
            return await SqliteJournal.open(path, durability="process", connect=failing(fault))

        journal = None
        while journal is None:
            try:
                journal = await opened()
            except StoreUnavailable as error:
                assert str(path) in str(error)  # noqa: PT017 - any other error goes on
        story = Story(journal)
        found = await story.play()
        assert all(str(path) in refusal for refusal in story.refusals)
        await journal.close()
        healthy = await SqliteJournal.open(path, durability="process")
        story.judge(found, await healthy.read("r"))
        await healthy.close()

    step = hunt_size(quick=6, thorough=1)
    at = times % step + 1 - step
    fired = True
    while fired:
        at += step
        fault = Fault(at, times=times, after=after)
        asyncio.run(play(fault, fast / f"{at}.db"))
        fired = fault.fired > 0
    assert at > 60


# --- trouble that passes


class HeldUp(logging.Handler):
    """Rings when a run is held up."""

    def __init__(self) -> None:
        super().__init__()
        self.turn_signal = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "is held up" in record.getMessage():
            self.turn_signal.set()


@pytest.mark.parametrize(
    ("trouble", "cure", "said"),
    [
        ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 100000", "disk is full"),
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF", "read-only"),
    ],
    ids=["full", "read-only"],
)
async def test_a_run_goes_on_by_itself_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str, cure: str, said: str
) -> None:
    made: list[sqlite3.Connection] = []

    def kept(path: Path, patience: float) -> sqlite3.Connection:
        made.append(connect(path, patience))
        return made[-1]

    held_up = HeldUp()
    caplog.set_level(logging.WARNING, drive.__name__)
    logging.getLogger(drive.__name__).addHandler(held_up)
    journal = await SqliteJournal.open(tmp_path / "runs.db", connect=kept)
    story = Story(journal)

    def begin() -> None:
        if len(story.told) >= 5:
            made[0].execute(trouble)
            story.on_told = lambda: None

    story.on_told = begin
    async with asyncio.TaskGroup() as jobs:
        running = jobs.create_task(story.play())
        await asyncio.wait_for(held_up.turn_signal.wait(), 10)
        made[0].execute(cure)
        began = time.monotonic()
        found = await running
    logging.getLogger(drive.__name__).removeHandler(held_up)
    assert time.monotonic() - began < 10.0
    assert said in caplog.text
    story.judge(found, await journal.read("r"))
    await journal.close()


# --- what is stored is not what it should be


async def test_a_run_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    story = Story(journal)
    monkeypatch.setitem(VERSIONS, "input.requested", 2)
    await story.driver.start("r", story.asked)
    monkeypatch.undo()
    before = rows(tmp_path / "runs.db")
    number = len(before)
    for _ in range(2):
        with pytest.raises(Corrupt, match=rf"entry {number} of run 'r' is a 'input.requested' of version 2"):
            await story.driver.resume("r", InputAnswered(1, "approve"))
    assert rows(tmp_path / "runs.db") == before
    (row,) = await journal.runs()
    assert (row.seq, row.held) == (number, False)
    await journal.close()


def rows(path: Path) -> list[object]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT * FROM entries ORDER BY run, seq").fetchall()
    connection.close()
    return found


def test_a_run_whose_tail_was_torn_off_is_carried_on_from_there(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    torn = tmp_path / "torn.db"

    async def write() -> list[Entry]:
        journal = await SqliteJournal.open(tmp_path / "runs.db", connect=prepared("PRAGMA page_size = 512"))
        await Story(journal).play()
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"runs.db{suffix}", f"{whole}{suffix}")
        written = await journal.read("r")
        await journal.close()
        return written

    async def carry_on() -> int:
        journal = await SqliteJournal.open(torn, durability="process")
        stored = await journal.read("r") if await journal.runs() else []
        assert stored == written[: len(stored)]
        if 0 < len(stored) < len(written):
            found = await Story(journal).driver.resume("r")
            if found.question is not None:
                found = await Story(journal).driver.resume("r", InputAnswered(found.question.number, "approve"))
            assert found.ending == "complete"
            assert found == outcome("r", replay(await journal.read("r")))
        await journal.close()
        return len(stored)

    written = asyncio.run(write())
    log = Path(f"{whole}-wal").read_bytes()
    lengths: set[int] = set()
    for offset in range(0, len(log) + 1, max(1, len(log) // 60)):
        shutil.copy(whole, torn)
        Path(f"{torn}-wal").write_bytes(log[:offset])
        lengths.add(asyncio.run(carry_on()))
        for suffix in ("", "-wal", "-shm", "-lock"):
            Path(f"{torn}{suffix}").unlink(missing_ok=True)
    assert len(lengths) > 10
