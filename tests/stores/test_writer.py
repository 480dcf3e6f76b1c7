"""The writing thread: one commit for all that wait, and nobody pays for another's mistake."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from chargehand.errors import Fenced, Refused, StoreError, StoreUnavailable
from chargehand.journal.ownership import Owner
from chargehand.journal.store import open_journal
from chargehand.sqlite.connection import open_writer
from chargehand.sqlite.database import WriterThread
from tests.stores.faults import Fault, failing
from tests.stores.samples import entries, noted, numbers

Work = Callable[[sqlite3.Connection], object]


class Bench:
    """A writer, a gate to hold it at, and the statements it ran."""

    def __init__(self, path: Path, *, stale: float = 30.0) -> None:
        self.path = path
        self.fault = Fault()
        self.gate = threading.Event()

        def reopen() -> sqlite3.Connection:
            return open_writer(path, 5.0, "process", failing(self.fault))

        owner = Owner(path, stale=stale)
        connection = reopen()
        owner.register(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER NOT NULL UNIQUE)")
        self.writer = WriterThread(path, connection, owner, reopen)

    def hold(self) -> asyncio.Future[bool]:
        """From here on everything queues up, until the gate is opened."""
        entered = threading.Event()
        held = self.writer.submit(lambda _: entered.set() or self.gate.wait(10))
        assert entered.wait(10)
        return held

    def add(self, number: object) -> asyncio.Future[object]:
        return self.writer.submit(lambda db: db.execute("INSERT INTO numbers VALUES (?)", (number,)).lastrowid)

    def numbers(self) -> list[int]:
        reader = sqlite3.connect(self.path)
        found = [row[0] for row in reader.execute("SELECT number FROM numbers ORDER BY number")]
        reader.close()
        return found


@pytest.fixture
def bench(path: Path) -> Iterator[Bench]:
    made = Bench(path)
    yield made
    made.gate.set()
    made.writer.stop()


async def outcome(wait: Awaitable[object]) -> object:
    try:
        return await wait
    except StoreError as error:
        return type(error)
    except Refused as error:
        return type(error)


async def test_all_that_waits_goes_with_one_commit(bench: Bench) -> None:
    held = bench.hold()
    waits = [bench.add(number) for number in range(100)]
    before = bench.fault.statements.count("COMMIT")
    bench.gate.set()
    await held
    for wait in waits:
        await wait
    assert bench.fault.statements.count("COMMIT") - before == 2
    assert bench.numbers() == list(range(100))


@pytest.mark.parametrize("bad", [1, None, 2**70, "\ud800", object()])
async def test_a_bad_submission_does_not_fail_its_mates(bench: Bench, bad: object) -> None:
    await bench.add(1)
    held = bench.hold()
    waits = [bench.add(2), bench.add(bad), bench.add(3)]
    bench.gate.set()
    await held
    found = [await outcome(wait) for wait in waits]
    assert found[1] in (StoreError, StoreUnavailable)
    assert all(isinstance(one, int) for one in (found[0], found[2]))
    assert bench.numbers() == [1, 2, 3]


async def test_a_refusal_does_not_fail_its_mates(bench: Bench) -> None:
    def refuse(_: sqlite3.Connection) -> None:
        raise Refused("no")

    held = bench.hold()
    waits: list[asyncio.Future[object]] = [bench.add(1), bench.writer.submit(refuse), bench.add(2)]
    bench.gate.set()
    await held
    found = [await outcome(wait) for wait in waits]
    assert found[1] is Refused
    assert bench.numbers() == [1, 2]
    assert bench.fault.statements.count("ROLLBACK") == 0


async def test_whoever_stops_waiting_is_written_all_the_same(bench: Bench) -> None:
    held = bench.hold()
    first = bench.add(1)
    second = bench.add(2)
    first.cancel()
    bench.gate.set()
    await held
    await second
    assert bench.numbers() == [1, 2]


def test_a_loop_that_ends_does_not_stop_the_writer(bench: Bench) -> None:
    async def leave() -> None:
        bench.hold()
        bench.add(1)

    asyncio.run(leave())
    bench.gate.set()

    async def come() -> None:
        await bench.add(2)

    asyncio.run(come())
    assert bench.numbers() == [1, 2]


def test_loops_in_several_threads_share_the_writer(bench: Bench) -> None:
    async def add(start: int) -> None:
        for number in range(start, start + 50):
            await bench.add(number)

    def run(start: int) -> None:
        asyncio.run(add(start))

    threads = [threading.Thread(target=run, args=(start,)) for start in (0, 50, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.numbers() == list(range(150))


async def test_what_has_queued_up_is_written_before_it_stops(bench: Bench) -> None:
    held = bench.hold()
    waits = [bench.add(number) for number in range(10)]
    stopping = asyncio.get_running_loop().run_in_executor(None, bench.writer.stop)
    bench.gate.set()
    await held
    await stopping
    for wait in waits:
        await wait
    assert bench.numbers() == list(range(10))
    with pytest.raises(StoreError, match="closed"):
        bench.add(11)
    bench.writer.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_the_writer_leaves_nobody_waiting(bench: Bench) -> None:
    def broken(_: sqlite3.Connection) -> None:
        raise KeyError("a bug")

    held = bench.hold()
    waits: list[asyncio.Future[object]] = [bench.add(1), bench.writer.submit(broken), bench.add(2)]
    bench.gate.set()
    await held
    assert [await outcome(wait) for wait in waits] == [StoreError] * 3
    assert bench.numbers() == []
    with pytest.raises(StoreError):
        await bench.add(3)


async def test_it_beats_while_nobody_writes_and_while_many_do(path: Path) -> None:
    bench = Bench(path, stale=0.09)
    reader = sqlite3.connect(path)

    async def beats(count: int) -> None:
        seen: set[float] = set()
        async with asyncio.timeout(10):
            while len(seen) < count:
                seen.add(reader.execute("SELECT beat FROM owners").fetchone()[0])
                await asyncio.sleep(0.005)

    await beats(4)

    async def busy() -> None:
        for number in range(100_000):
            await bench.add(number)

    async with asyncio.TaskGroup() as jobs:
        job = jobs.create_task(busy())
        await beats(4)
        job.cancel()
    reader.close()
    bench.writer.stop()


async def test_a_cancelled_append_breaks_nothing(store: str) -> None:
    """Cancelled at any moment, it may be made again, and the next one follows."""
    journal = await open_journal(store, durability="process")
    lease = await journal.claim("r", new=True)
    seq = 0
    for attempt in range(200):
        batch = entries(seq + 1, seq + 2, seq + 3)
        try:
            async with asyncio.timeout(0.0002 * (attempt % 7)):
                await journal.append(lease, batch)
        except TimeoutError:
            await journal.append(lease, batch)
        seq += 3
        assert lease.seq == seq
    assert numbers(await journal.read("r")) == list(range(1, seq + 1))
    await journal.close()


async def test_a_cancelled_claim_can_be_made_again(store: str) -> None:
    journal = await open_journal(store, durability="process")
    for number in range(50):
        try:
            async with asyncio.timeout(0.0001 * (number % 5)):
                lease = await journal.claim(f"r{number}", new=True)
        except TimeoutError:
            lease = await journal.claim(f"r{number}", new=True)
        await journal.append(lease, entries(1))
    assert len(await journal.runs()) == 50
    await journal.close()


async def test_a_closed_journal_says_so(store: str) -> None:
    journal = await open_journal(store)
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries(1))
    await journal.close()
    await journal.close()
    for work in (journal.append(lease, entries(2)), journal.read("r"), journal.runs(), journal.claim("r")):
        with pytest.raises(StoreError, match="closed"):
            await work


async def test_a_thousand_large_and_small_ones_do_not_wait_for_each_other_for_long(store: str) -> None:
    journal = await open_journal(store, durability="process")

    async def drive(run: str, size: int) -> None:
        lease = await journal.claim(run, new=True)
        for seq in range(1, 11):
            await journal.append(lease, [noted(seq, f"{run} {seq} " + "x" * size)])

    began = time.monotonic()
    async with asyncio.TaskGroup() as jobs:
        for number in range(20):
            jobs.create_task(drive(f"r{number}", 100_000 if number % 5 == 0 else 100))
    assert time.monotonic() - began < 10
    for number in range(20):
        assert numbers(await journal.read(f"r{number}")) == list(range(1, 11))
    await journal.close()


async def test_a_fenced_writer_writes_nothing_more(path: Path) -> None:
    bench = Bench(path)
    foreign = sqlite3.connect(path)
    with foreign:
        foreign.execute("DELETE FROM owners")
    waits = [bench.add(number) for number in range(3)]
    assert [await outcome(wait) for wait in waits] == [Fenced] * 3
    assert bench.numbers() == []
    bench.writer.stop()
    foreign.close()
