"""What size costs: a graph of 100,000 tasks, and 1,000 runs at once. Each is measured in an interpreter of its own."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

from msgspec import Struct

from bench.measure import (
    MICRO,
    Bare,
    Graph,
    Lap,
    Laps,
    Settings,
    Sleeper,
    bare_flow,
    flat,
    fresh,
    in_turn,
    layered,
    planned,
    request,
    resident,
    timed,
)
from bench.table import Row, Target, shown
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Runner

_SMALL = 1000


class Grown(Struct, frozen=True):
    """One interpreter's account: CPU and wall seconds a task, small and large, and bytes a task."""

    small: Lap
    large: Lap
    memory: float


def tasks(settings: Settings) -> list[Row]:
    """Layers of 100 tasks, 10 of them and 1,000 of them."""
    count = 10_000 if settings.quick else 100_000
    repeat = 1 if settings.quick else 5
    ours: list[Grown] = []
    floor: list[Grown] = []
    for _ in range(repeat):
        ours.append(fresh(grown, count))
        floor.append(fresh(bare_grown, count))
    small, large = (tuple(MICRO * lap.cpu for lap in laps) for laps in _sides(ours))
    bare_small, bare_large = (tuple(MICRO * lap.cpu for lap in laps) for laps in _sides(floor))
    growth = tuple(one / other for one, other in zip(large, small, strict=True))
    bare_growth = tuple(one / other for one, other in zip(bare_large, bare_small, strict=True))
    memory = tuple(one.memory for one in ours)
    bare_memory = tuple(one.memory for one in floor)
    also = f"wall {shown(median(MICRO * one.large.wall for one in ours))}"
    traced = f"tracemalloc at 10,000: {shown(fresh(allocated, 10_000))}"
    what = f"{count:,} tasks in layers"
    return [
        Row(what=what, unit="CPU us a task", ours=large, floor=bare_large, target=None, also=also),
        Row("  the same by that at 1,000", "ratio", growth, bare_growth, Target("<=", 1.5)),
        Row(
            what="  the same, memory",
            unit="bytes a task",
            ours=memory,
            floor=bare_memory,
            target=Target("<=", 4096),
            also=traced,
        ),
    ]


def _sides(found: list[Grown]) -> tuple[list[Lap], list[Lap]]:
    return [one.small for one in found], [one.large for one in found]


def grown(count: int) -> Grown:
    return asyncio.run(_grown(count, lambda graph: planned(MemoryJournal(), graph)))


def bare_grown(count: int) -> Grown:
    return asyncio.run(_grown(count, bare_flow))


async def _grown(count: int, carry_out: Callable[[Graph], Awaitable[Lap]]) -> Grown:
    """The small size before and after the large one, whose memory is all that the process took for it at most."""

    def small() -> Awaitable[Lap]:
        return carry_out(layered(_SMALL))

    (early,) = await in_turn(5, small)
    gc.collect()
    before = resident()
    large = await carry_out(layered(count))
    memory = (resident(peak=True) - before) / count
    (late,) = await in_turn(5, small)
    both = Laps(early.laps + late.laps)
    return Grown(_each(Lap(median(both.wall()), median(both.cpu())), _SMALL), _each(large, count), memory)


def _each(lap: Lap, count: int) -> Lap:
    return Lap(lap.wall / count, lap.cpu / count)


def allocated(count: int) -> float:
    """Bytes a task that Python itself asked for at most, by its own account."""
    asyncio.run(planned(MemoryJournal(), flat(10)))
    tracemalloc.start()
    asyncio.run(planned(MemoryJournal(), layered(count)))
    return tracemalloc.get_traced_memory()[1] / count


# --- many runs at once


class Crowd(Struct, frozen=True):
    ours: Laps
    floor: Laps
    memory: float


_RUNS = 1000
_SECONDS = 0.05
_IDEAL = 3 * _SECONDS


def runs(settings: Settings) -> list[Row]:
    """Runs of a plan, three tasks and an answer, each a wait of 50 ms."""
    found: dict[str, list[Crowd]] = {"default gc": [], "gc frozen, 50,000": []}
    for _ in range(1 if settings.quick else 4):
        for word, crowds in found.items():
            crowds.append(fresh(crowd, 2, tuned=word != "default gc"))
    rows = [row for word, crowds in found.items() for row in _crowd_rows(word, crowds)]
    memory = tuple(one.memory for one in found["default gc"])
    return [*rows, Row("  the same, memory", "bytes a run", memory, (fresh(bare_memory),))]


def _crowd_rows(word: str, crowds: list[Crowd]) -> list[Row]:
    ours, floor = (Laps([lap for laps in side for lap in laps.laps]) for side in _contenders(crowds))
    scale = MICRO / _RUNS
    also = f"{shown(median(ours.wall()))} s, ideal {_IDEAL:.2f} s"
    wall = ours.wall(1 / _IDEAL)
    bare_wall = floor.wall(1 / _IDEAL)
    return [
        Row(
            what=f"1,000 runs at once, {word}",
            unit="wall / ideal",
            ours=wall,
            floor=bare_wall,
            target=Target("<=", 1.5),
            also=also,
        ),
        Row("  the same", "CPU us a run", ours.cpu(scale), floor.cpu(scale)),
    ]


def _contenders(crowds: list[Crowd]) -> tuple[list[Laps], list[Laps]]:
    return [one.ours for one in crowds], [one.floor for one in crowds]


def crowd(repeat: int, *, tuned: bool) -> Crowd:
    """`tuned`: as an application may choose to, what lives for long is frozen and collections are rarer."""
    asyncio.run(_ours(10))
    if tuned:
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
    before = resident()
    asyncio.run(_ours(_RUNS))
    memory = (resident(peak=True) - before) / _RUNS
    ours, floor = asyncio.run(in_turn(repeat, partial(_ours, _RUNS), partial(_bare, _RUNS), warm=False))
    return Crowd(ours, floor, memory)


def bare_memory() -> float:
    asyncio.run(_bare(10))
    before = resident()
    asyncio.run(_bare(_RUNS))
    return (resident(peak=True) - before) / _RUNS


async def _ours(count: int) -> Lap:
    executor = Sleeper(flat(3).tasks(), seconds=_SECONDS)
    wanted = request(width=16)
    driver = Runner(MemoryJournal(), executor)
    with timed() as lap:
        async with asyncio.TaskGroup() as jobs:
            started = [jobs.create_task(driver.start(f"run {n}", wanted)) for n in range(count)]
    assert [job.result().ending for job in started] == ["complete"] * count
    assert executor.calls == 5 * count, "a plan, three attempts and an answer each"
    return lap


async def _bare(count: int) -> Lap:
    bare = Bare()
    with timed() as lap:
        async with asyncio.TaskGroup() as jobs:
            for _ in range(count):
                jobs.create_task(bare.fan(3, _SECONDS))
    assert bare.calls == 5 * count
    return lap
