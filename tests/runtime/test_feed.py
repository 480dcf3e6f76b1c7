"""The feed: whenever somebody begins to read, and however slowly, they see the journal's order, whole, once."""

import asyncio
import gc
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine.events import Entry, Noted, RunEnded
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Refused, RunUnknown, StoreUnavailable
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal, Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.runtime.feed import MANY, Feed, Reader
from chargehand.runtime.runner import Runner
from tests.requests import request
from tests.sim.loop import VirtualLoop

END = RunEnded("complete", "done")


class Slow(MemoryJournal):
    """Answers reads only after other jobs had their turns, as a journal on a disk does."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.reads = 0
        self.broken = False
        self._rng = random.Random(seed)

    async def read(self, run: str, *, after: int = 0) -> list[Entry]:
        self.reads += 1
        if self.broken:
            raise StoreUnavailable("the disk is gone")
        await turns(self._rng.randint(0, 3))
        found = await super().read(run, after=after)
        await turns(self._rng.randint(0, 3))
        return found


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Writer:
    """Writes notes, and an end, and tells the feed as a driver does: after they are durable."""

    def __init__(self, journal: Journal, feed: Feed, lease: Lease) -> None:
        self.journal = journal
        self.feed = feed
        self.lease = lease
        self.seq = 0

    async def write(self, count: int, *, end: bool = False) -> list[Entry]:
        entries = [Entry(self.seq + 1 + n, 1.0 + n, Noted(f"note {n}")) for n in range(count)]
        entries += [Entry(self.seq + 1 + count, 9.0, END)] if end else []
        self.seq += len(entries)
        await self.journal.append(self.lease, entries)
        await asyncio.sleep(0)
        self.feed(self.lease.run, entries)
        return entries


async def story(*, most: int = 1000, seed: int = 0) -> tuple[Slow, Feed, Writer]:
    journal = Slow(seed)
    feed = Feed(journal, most=most)
    return journal, feed, Writer(journal, feed, await journal.claim("r", new=True))


async def everything(reader: Reader) -> list[int]:
    return [entry.seq async for entry in reader]


async def test_a_late_reader_sees_what_was_written_before_and_what_comes() -> None:
    _, feed, writer = await story()
    await writer.write(3)
    async with asyncio.TaskGroup() as jobs:
        reading = jobs.create_task(everything(feed.subscribe("r")))
        await turns(20)
        await writer.write(2)
        await writer.write(1, end=True)
    assert reading.result() == [1, 2, 3, 4, 5, 6, 7]


async def test_a_reader_may_come_before_the_run() -> None:
    _, feed, writer = await story()
    with pytest.raises(RunUnknown):
        await anext(feed.subscribe("r"))
    async with asyncio.TaskGroup() as jobs:
        reading = jobs.create_task(everything(feed.subscribe("r", expected=True)))
        await turns(20)
        await writer.write(2, end=True)
    assert reading.result() == [1, 2, 3]


@pytest.mark.parametrize("after", range(-1, 6))
async def test_a_reader_goes_on_after_the_entry_it_names(after: int) -> None:
    _, feed, writer = await story()
    await writer.write(4, end=True)
    assert await everything(feed.subscribe("r", after)) == list(range(max(after, 0) + 1, 6))


async def test_a_reader_that_has_seen_the_end_is_at_the_end() -> None:
    _, feed, writer = await story()
    await writer.write(4, end=True)
    reader = feed.subscribe("r")
    assert await everything(reader) == [1, 2, 3, 4, 5]
    assert await everything(reader) == []


async def test_a_reader_ahead_of_the_journal_is_told_instead_of_left_waiting() -> None:
    _, feed, writer = await story()
    await writer.write(4)
    with pytest.raises(Refused, match="no entry 9"):
        await anext(feed.subscribe("r", 9))


async def test_a_slow_reader_holds_little_and_loses_nothing() -> None:
    journal, feed, writer = await story(most=10)
    await writer.write(1)
    reader = feed.subscribe("r")
    assert (await anext(reader)).seq == 1
    held = 0
    for _ in range(300):
        await writer.write(3)
        held = max(held, len(reader._live))
    assert held <= 10
    assert len(reader._past) == 0
    await writer.write(0, end=True)
    assert await everything(reader) == list(range(2, 903))
    assert journal.reads == 2  # one to begin with, and one to catch up


async def test_what_another_process_wrote_is_fetched_before_what_follows() -> None:
    journal, feed, writer = await story()
    await writer.write(1)
    reader = feed.subscribe("r")
    assert (await anext(reader)).seq == 1
    await journal.append(writer.lease, [Entry(2, 2.0, Noted("unheard"))])
    writer.seq = 2
    await writer.write(1, end=True)
    assert await everything(reader) == [2, 3, 4]


async def test_a_reader_outlives_timeouts_and_a_journal_that_is_away() -> None:
    journal, feed, writer = await story()
    await writer.write(1)
    reader = feed.subscribe("r")
    journal.broken = True
    with pytest.raises(StoreUnavailable):
        await anext(reader)
    journal.broken = False
    assert (await anext(reader)).seq == 1
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(reader)
    await writer.write(2, end=True)
    assert await everything(reader) == [2, 3, 4]


async def test_a_reader_that_is_cancelled_leaves_nothing_behind() -> None:
    _, feed, writer = await story()
    await writer.write(1)
    async with asyncio.TaskGroup() as jobs:
        waiting = [jobs.create_task(everything(feed.subscribe("r"))) for _ in range(10)]
        await turns(20)
        assert feed.readers == 10
        while waiting:
            waiting.pop().cancel()
    gc.collect()
    assert feed.readers == 0
    assert len(feed._readers) == 0
    assert len(asyncio.all_tasks()) == 1
    await writer.write(1, end=True)


async def test_readers_of_one_run_do_not_see_another() -> None:
    journal, feed, writer = await story()
    other = Writer(journal, feed, await journal.claim("other", new=True))
    await writer.write(1)
    await other.write(5)
    async with asyncio.TaskGroup() as jobs:
        first = jobs.create_task(everything(feed.subscribe("r")))
        second = jobs.create_task(everything(feed.subscribe("other")))
        await turns(20)
        await writer.write(1, end=True)
        await other.write(0, end=True)
    assert (first.result(), second.result()) == ([1, 2, 3], [1, 2, 3, 4, 5, 6])


async def reconnecting(feed: Feed, rng: random.Random) -> list[Entry]:
    """A client whose line breaks now and then; it says which entry it saw last and reads on."""
    seen: list[Entry] = []
    while not seen or not isinstance(seen[-1].event, RunEnded):
        reader = feed.subscribe("r", seen[-1].seq if seen else 0, expected=True)
        for _ in range(rng.choice((1, 1, 2, 5, 100))):
            try:
                async with asyncio.timeout(rng.choice((0.0, 1.0, 60.0))):
                    seen.append(await anext(reader))
            except TimeoutError:
                break
            except StopAsyncIteration:
                break
            await turns(rng.choice((0, 0, 1, 30)))
    return seen


@pytest.mark.timeout(300)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 12), max_size=25), most=st.integers(1, 20))
def test_any_client_with_any_reconnects_sees_the_journals_order(seed: int, sizes: Sequence[int], most: int) -> None:
    async def play() -> None:
        journal, feed, writer = await story(most=most, seed=seed)
        rng = random.Random(seed)
        async with asyncio.TaskGroup() as jobs:
            clients = [jobs.create_task(reconnecting(feed, random.Random(f"{seed}/{n}"))) for n in range(4)]
            for size in sizes:
                await asyncio.sleep(rng.choice((0.0, 0.5, 2.0)))
                await writer.write(size)
            await writer.write(1, end=True)
        written = await journal.read("r")
        assert all(client.result() == written for client in clients)
        del clients
        gc.collect()
        assert feed.readers == 0

    loop = VirtualLoop()
    gc.freeze()  # as after collection: what other tests left behind need not be looked through sixty times
    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


async def test_fifty_readers_of_a_real_run_on_disk_agree_with_its_journal(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    feed = Feed(journal, most=8)
    tasks = tuple(Task(TaskId(f"t{n}"), f"carry out part {n} of many", "worker") for n in range(30))
    executor = ScriptedExecutor(Script(otherwise=Move(seconds=0.002)))
    async with asyncio.TaskGroup() as jobs:
        early = [jobs.create_task(everything(feed.subscribe("r", expected=True))) for _ in range(25)]
        run = jobs.create_task(Runner(journal, executor, listener=feed).start("r", request(Plan(tasks))))
        await anext(feed.subscribe("r", expected=True))
        late = [jobs.create_task(everything(feed.subscribe("r"))) for _ in range(25)]
    assert run.result().ending == "complete"
    written = [entry.seq for entry in await journal.read("r")]
    assert all(reader.result() == written for reader in (*early, *late))
    await journal.close()


async def test_many_readers_are_handed_together_what_is_written_within_a_moment_and_the_end_at_once() -> None:
    journal, feed, writer = await story()
    await writer.write(1)
    readers = [feed.subscribe("r") for _ in range(MANY)]
    assert [[one.seq for one in await reader.first()] for reader in readers] == [[1]] * MANY
    await writer.write(1)
    await writer.write(1)
    assert [reader.at_once() for reader in readers] == [[]] * MANY  # it is gathered yet
    reads = journal.reads
    late = feed.subscribe("r", 2)
    assert [one.seq for one in await late.first()] == [3]
    assert journal.reads == reads  # what was just written is there without the journal
    assert [(await anext(reader)).seq for reader in readers] == [2] * MANY
    await writer.write(1, end=True)
    assert [[one.seq for one in reader.at_once()] for reader in readers] == [[3, 4, 5]] * MANY
    assert [one.seq for one in late.at_once()] == [4, 5]
    assert all(reader.over for reader in (*readers, late))


async def test_who_comes_back_to_a_run_of_many_readers_sees_everything_once() -> None:
    _, feed, writer = await story(most=8)
    await writer.write(2)
    readers = [feed.subscribe("r") for _ in range(MANY)]
    async with asyncio.TaskGroup() as jobs:
        reading = [jobs.create_task(everything(reader)) for reader in readers]
        late: list[asyncio.Task[list[int]]] = []
        for number in range(12):
            await writer.write(3)
            late.append(jobs.create_task(everything(feed.subscribe("r", number * 3))))
            await asyncio.sleep(0.001 * (number % 3))
        await writer.write(0, end=True)
    assert [job.result() for job in reading] == [list(range(1, 40))] * MANY
    assert [job.result() for job in late] == [list(range(number * 3 + 1, 40)) for number in range(12)]
