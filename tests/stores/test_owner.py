"""One process per journal: the living keep it, the dead lose it at once, the frozen are fenced when they thaw."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chargehand.errors import Fenced, RunBusy, StoreError
from chargehand.stores.database import connect
from chargehand.stores.sqlite import SqliteJournal
from tests.stores.samples import entries, noted, numbers

ROOT = Path(__file__).parents[2]


class Other:
    """Another process: it opens the journal, and appends when told to or without end (`serve`, `pour`)."""

    def __init__(self, path: Path, manner: str = "serve") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.test_owner", str(path), manner],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def forked() -> int:
    """A child that has all our files and does nothing."""
    child = os.fork()
    if child == 0:
        os.close(1)
        signal.pause()
    return child


async def serve(path: str) -> None:
    try:
        journal = await SqliteJournal.open(path)
    except StoreError as error:
        print(type(error).__name__, error, flush=True)
        return
    except RunBusy as error:
        print("RunBusy", error, flush=True)
        return
    lease = await journal.claim("r", new=True)
    print("open", flush=True)
    while command := await asyncio.to_thread(sys.stdin.readline):
        try:
            if command.strip() == "fork":
                print(forked(), flush=True)
                continue
            await journal.append(lease, [noted(lease.seq + 1, "by the other")])
        except StoreError as error:
            print(type(error).__name__, flush=True)
        else:
            print("done", lease.seq, flush=True)
    await journal.close()


async def pour(path: str) -> None:
    """Append without end, and say each time what is durable."""
    journal = await SqliteJournal.open(path)
    known = {row.run for row in await journal.runs()}
    lease = await journal.claim("r", new="r" not in known)
    print("open", flush=True)
    while True:
        await journal.append(lease, [noted(lease.seq + 1)])
        print(lease.seq, flush=True)


@pytest.fixture
def other(path: Path) -> Iterator[Other]:
    made = Other(path)
    yield made
    made.end()


def later() -> float:
    """The clock of somebody who has waited for a minute."""
    return time.monotonic() + 60


async def test_a_second_process_is_refused_and_told_whom_to_ask(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    second = Other(path)
    answer = second.hear()
    second.end()
    assert answer.startswith("RunBusy")
    assert f"process {os.getpid()}" in answer
    with pytest.raises(RunBusy):
        await SqliteJournal.open(path)
    link = path.with_name("link.db")
    link.symlink_to(path)
    with pytest.raises(RunBusy):
        await SqliteJournal.open(link)
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries(1))
    await journal.close()
    await (await SqliteJournal.open(path)).close()


async def test_a_killed_process_makes_room_at_once(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    with pytest.raises(RunBusy, match=f"process {other.process.pid}"):
        await SqliteJournal.open(path)
    other.end()
    journal = await SqliteJournal.open(path)
    lease = await journal.claim("r")
    assert (lease.epoch, lease.seq) == (2, 1)
    await journal.append(lease, [noted(2)])
    assert numbers(await journal.read("r")) == [1, 2]
    await journal.close()


async def test_nothing_acknowledged_is_lost_with_a_killed_process(path: Path) -> None:
    acknowledged = 0
    for _ in range(5):
        other = Other(path, "pour")
        assert other.hear() == "open"
        for _ in range(50):
            acknowledged = int(other.hear())
        other.end()
        journal = await SqliteJournal.open(path)
        stored = numbers(await journal.read("r"))
        assert stored == list(range(1, len(stored) + 1))
        assert acknowledged <= len(stored) <= acknowledged + 10_000
        await journal.close()
    assert acknowledged >= 250


async def test_a_frozen_process_is_fenced_when_it_thaws(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    other.process.send_signal(signal.SIGSTOP)
    with pytest.raises(RunBusy):  # it was seen alive a moment ago
        await SqliteJournal.open(path)
    journal = await SqliteJournal.open(path, clock=later)
    lease = await journal.claim("r")
    await journal.append(lease, [noted(2, "by the new one")])
    other.process.send_signal(signal.SIGCONT)
    assert other.tell("append") == "Fenced"
    assert other.tell("append") == "Fenced"
    assert await journal.read("r") == [noted(1, "by the other"), noted(2, "by the new one")]
    # the old lock ends with the thawed one, and still nobody else gets in
    other.end()
    with pytest.raises(RunBusy, match=f"process {os.getpid()}"):
        await SqliteJournal.open(path)
    await journal.append(lease, [noted(3)])
    await journal.close()


async def test_a_process_frozen_in_the_middle_of_a_write_must_be_ended(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    other.process.send_signal(signal.SIGSTOP)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")  # in its stead
    with pytest.raises(RunBusy, match=f"process {other.process.pid}, which stands still"):
        await SqliteJournal.open(path, clock=later, patience=0.05)
    held.close()
    await (await SqliteJournal.open(path, clock=later)).close()


async def test_a_frozen_process_that_never_thaws_is_no_hindrance(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    other.process.send_signal(signal.SIGSTOP)
    journal = await SqliteJournal.open(path, clock=later)
    await journal.close()
    await (await SqliteJournal.open(path)).close()


async def test_a_forked_child_does_not_keep_a_closed_journal(path: Path, other: Other) -> None:
    assert other.hear() == "open"
    assert other.tell("append") == "done 1"
    child = int(other.tell("fork"))
    assert other.process.stdin is not None
    other.process.stdin.close()
    other.process.wait(10)
    journal = await SqliteJournal.open(path)
    os.kill(child, signal.SIGKILL)
    assert numbers(await journal.read("r")) == [1]
    await journal.close()


async def test_only_one_of_many_gets_a_new_journal(path: Path) -> None:
    others = [Other(path) for _ in range(4)]
    answers = sorted(one.hear().split()[0] for one in others)
    assert answers == ["RunBusy"] * 3 + ["open"]
    for one in others:
        one.end()


async def test_two_in_one_process_exclude_each_other_by_token(path: Path) -> None:
    """The lock file is gone, so only the token is left to tell who owns it."""
    first = await SqliteJournal.open(path)
    lease = await first.claim("r", new=True)
    await first.append(lease, entries(1))
    path.with_name(path.name + "-lock").unlink()
    second = await SqliteJournal.open(path)
    with pytest.raises(Fenced, match="taken over"):
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
    path.with_name(path.name + "-lock").unlink()  # as if another process had been let in
    second = await SqliteJournal.open(path, stale=0.3)
    await asyncio.sleep(0.5)
    assert clock.looks < 300
    await first.close()
    await second.close()


async def test_a_file_that_became_read_only_does_not_make_the_owner_spin(path: Path) -> None:
    clock = Counted()
    journal = await SqliteJournal.open(path, stale=0.3, clock=clock)
    connection = journal._writer._connection
    assert connection is not None
    connection.execute("PRAGMA query_only = ON")
    await asyncio.sleep(0.5)
    assert clock.looks < 300
    await journal.close()


async def test_an_opening_that_nobody_waits_for_any_more_leaves_the_journal_free(path: Path) -> None:
    begun, held = threading.Event(), threading.Event()

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
        try:
            journal = await SqliteJournal.open(path)
        except RunBusy:
            await asyncio.sleep(0.01)
        else:
            await journal.close()
            return
    pytest.fail("the journal still belongs to somebody who is gone")


if __name__ == "__main__":
    asyncio.run(pour(sys.argv[1]) if sys.argv[2] == "pour" else serve(sys.argv[1]))
