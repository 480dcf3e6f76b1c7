"""What durability costs: tasks on a SQLite journal, appends by many runs at once, and reading a long run back."""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Raw

from bench.measure import MICRO, MILLI, Lap, Laps, Settings, bare_fan, fdatasync, flat, in_turn, planned, request, timed
from bench.table import Row, Target, shown
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.state import Status
from chargehand.journal.protocol import Journal, Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.sqlite.connection import Durability

_COUNT = 1000
_TEXT = Raw(b'"' + b"x" * 300 + b'"')  # with what surrounds it an entry of some 400 bytes
_ROUND = 50  # tasks a planner adds at a time


@asynccontextmanager
async def _journal(durability: Durability = "machine") -> AsyncGenerator[SqliteJournal, None]:
    with tempfile.TemporaryDirectory() as folder:
        journal = await SqliteJournal.open(Path(folder) / "journal.db", durability=durability)
        try:
            yield journal
        finally:
            await journal.close()


def tasks(settings: Settings) -> list[Row]:
    """The tasks of `scheduling.overhead` once more, on disk."""
    return asyncio.run(_tasks(settings))


async def _tasks(settings: Settings) -> list[Row]:
    graph = flat(_COUNT)
    runs = 0

    async def ours(width: int) -> Lap:
        nonlocal runs
        runs += 1
        return await planned(journal, graph, run=f"run {runs}", width=width)

    async with _journal() as journal:
        contenders = (partial(ours, _COUNT), partial(ours, 16), partial(bare_fan, _COUNT))
        wide, narrow, floor = await in_turn(settings.repeat, *contenders)
    scale = MICRO / _COUNT
    bare = floor.wall(scale)
    disk = shown(MILLI * fdatasync())
    also = f"CPU {shown(median(wide.cpu(scale)))}, fdatasync {disk} ms"
    also_narrow = f"CPU {shown(median(narrow.cpu(scale)))}"
    return [
        Row(
            what="1,000 no-op tasks, SQLite FULL",
            unit="wall us a task",
            ours=wide.wall(scale),
            floor=bare,
            target=Target("<=", 250),
            also=also,
        ),
        Row(
            what="  the same, width 16",
            unit="wall us a task",
            ours=narrow.wall(scale),
            floor=bare,
            target=None,
            also=also_narrow,
        ),
    ]


# --- appends


def appends(settings: Settings) -> list[Row]:
    """Runs that append one entry after another, each waiting until it is durable."""
    return asyncio.run(_appends(settings))


async def _appends(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    kinds: tuple[tuple[Durability, str], ...] = (("machine", "FULL"), ("process", "NORMAL"))
    for durability, word in kinds:
        for runs, each in ((1, 40), (32, 40), (256, 10)) if settings.quick else ((1, 200), (32, 60), (256, 20)):
            async with _journal(durability) as journal:
                (laps,) = await in_turn(settings.repeat, Appender(journal, runs, each), warm=not settings.quick)
            count = runs * each
            also = f"CPU {shown(median(laps.cpu(MICRO / count)))} us an event"
            speed = tuple(count / wall for wall in laps.wall())
            who = f"{runs} runs" if runs > 1 else "1 run"
            rows.append(Row(f"appends by {who}, {word}", "events/s", speed, also=also))
    return rows


class Appender:
    """So many runs at once, so many entries each; every round goes on where the last one ended."""

    def __init__(self, journal: Journal, runs: int, each: int) -> None:
        self._journal = journal
        self._runs = runs
        self._each = each
        self._leases: list[Lease] = []

    async def __call__(self) -> Lap:
        if not self._leases:
            self._leases = [await self._journal.claim(f"run {n}", new=True) for n in range(self._runs)]
        before = sum(lease.seq for lease in self._leases)
        with timed() as lap:
            async with asyncio.TaskGroup() as jobs:
                for lease in self._leases:
                    jobs.create_task(self._append(lease))
        assert sum(lease.seq for lease in self._leases) - before == self._runs * self._each
        return lap

    async def _append(self, lease: Lease) -> None:
        for seq in range(lease.seq + 1, lease.seq + 1 + self._each):
            event = ev.StepFinished(TaskId("t1"), 1, seq, _TEXT)
            await self._journal.append(lease, [ev.Entry(seq, time.time(), event)])


# --- a long run


def fold(settings: Settings) -> list[Row]:
    """A run of 100,000 entries: read, decoded and folded."""
    return asyncio.run(_fold(100_000, settings))


async def _fold(count: int, settings: Settings) -> list[Row]:
    reading = Laps()
    folding = Laps()
    floor = Laps()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        journal = await SqliteJournal.open(path, durability="process")
        await write_long(journal, count)
        for _ in range(2 if settings.quick else settings.repeat):
            with timed() as lap:
                entries = await journal.read("long")
            reading.laps.append(lap)
            with timed() as lap:
                state = replay(entries)
            folding.laps.append(lap)
            assert (len(entries), state.seq) == (count, count)
            assert sum(one.status is Status.DONE for one in state.tasks.values()) >= (count - 200) // 5
            del entries, state
            floor.laps.append(_bare_read(path, count))
        await journal.close()
    parts = zip(reading.laps, folding.laps, strict=True)
    whole = Laps([Lap(one.wall + other.wall, one.cpu + other.cpu) for one, other in parts])
    seconds = [f"{word} {shown(median(part))}" for word, part in (("read", reading.cpu()), ("fold", folding.cpu()))]
    also = f"{', '.join(seconds)}, wall {shown(median(whole.wall()))}"
    return [
        Row(
            what="100,000 events read and folded",
            unit="CPU s",
            ours=whole.cpu(),
            floor=floor.cpu(),
            target=Target("<=", 1.5),
            also=also,
        )
    ]


async def write_long(journal: Journal, count: int) -> None:
    lease = await journal.claim("long", new=True)
    batch: list[ev.Entry] = []
    for entry in _long(count):
        batch.append(entry)
        if len(batch) == 1000:
            await journal.append(lease, batch)
            batch = []
    await journal.append(lease, batch)
    await journal.release(lease)


def _long(count: int) -> Iterator[ev.Entry]:
    """A planner adds tasks in rounds, and each is an attempt with one recorded step."""
    events = _rounds()
    for seq in range(1, count + 1):
        yield ev.Entry(seq, float(seq), next(events))


def _rounds() -> Iterator[ev.Event]:
    yield request()
    number = 0
    while True:
        names = [TaskId(f"t{number * _ROUND + n}") for n in range(_ROUND)]
        number += 1
        added = tuple(Task(name, f"carry out part {name} of the work", "worker") for name in names)
        yield ev.TasksAdded(number, added, done=False, closed=False)
        for name in names:
            yield ev.AttemptStarted(name, 1, "worker", 1e9)
            yield ev.StepStarted(name, 1, 1, "model", "model", request="0" * 32)
            yield ev.StepFinished(name, 1, 1, _TEXT)
            yield ev.AttemptSucceeded(name, 1, _TEXT)


def _bare_read(path: Path, count: int) -> Lap:
    """The least it can take: every body out of the file and through a JSON decoder."""
    connection = sqlite3.connect(path)
    try:
        with timed() as lap:
            found = [msgspec.json.decode(body) for (body,) in connection.execute("SELECT body FROM entries")]
    finally:
        connection.close()
    assert len(found) == count
    return lap
