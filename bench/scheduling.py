"""What scheduling costs: CPU and function calls a task, and how near a graph comes to its critical path."""

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from bench.measure import (
    MICRO,
    MILLI,
    Bare,
    Calls,
    Graph,
    Lap,
    Settings,
    bare_fan,
    bare_flow,
    bare_waves,
    fdatasync,
    flat,
    given,
    in_turn,
    layered,
    planned,
    scattered,
)
from bench.table import Row, Target, shown
from chargehand.engine.plan import TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal

_COUNT = 1000


def overhead(settings: Settings) -> list[Row]:
    """Independent tasks that do nothing, all at once and sixteen at a time."""
    return asyncio.run(_overhead(settings))


async def _overhead(settings: Settings) -> list[Row]:
    graph = flat(_COUNT)

    async def ours(width: int) -> Lap:
        return await planned(MemoryJournal(), graph, width=width)

    contenders = (partial(ours, _COUNT), partial(ours, 16), partial(bare_fan, _COUNT))
    wide, narrow, floor = await in_turn(settings.repeat, *contenders)
    scale = MICRO / _COUNT
    bare = floor.cpu(scale)
    also = f"wall {shown(median(wide.wall(scale)))}"
    also_narrow = f"wall {shown(median(narrow.wall(scale)))}"
    return [
        Row(
            what="1,000 no-op tasks in memory",
            unit="CPU us a task",
            ours=wide.cpu(scale),
            floor=bare,
            target=Target("<=", 60),
            also=also,
        ),
        Row(
            what="  the same, width 16",
            unit="CPU us a task",
            ours=narrow.cpu(scale),
            floor=bare,
            target=None,
            also=also_narrow,
        ),
    ]


def calls(settings: Settings) -> list[Row]:
    """Calls of functions, which no noise can change."""
    return asyncio.run(_calls())


async def _calls() -> list[Row]:
    floor = (await _bare_calls(flat(_COUNT)),)
    rows = [("calls a task, 1,000 in memory", flat(_COUNT), _COUNT, Target("<=", 250))]
    rows += [("  the same, width 16", flat(_COUNT), 16, None), ("  1,000 in layers of 100", layered(_COUNT), 100, None)]
    return [Row(what, "calls", (await calls_a_task(graph, width),), floor, goal) for what, graph, width, goal in rows]


async def calls_a_task(graph: Graph, width: int) -> float:
    """Function calls of a run in memory by the number of its tasks, planning and answering included."""
    with Calls() as seen:
        await planned(MemoryJournal(), graph, width=width)
    return seen.count / len(graph.seconds)


async def _bare_calls(graph: Graph) -> float:
    bare = Bare()
    with Calls() as seen:
        await bare.fan(len(graph.seconds))
    assert bare.calls == len(graph.seconds) + 2
    return seen.count / len(graph.seconds)


# --- the makespan


class _Node(Struct, frozen=True):
    dur: float
    deps: tuple[TaskId, ...]


class _File(Struct, frozen=True):
    tasks: dict[TaskId, _Node]


def makespan(settings: Settings) -> list[Row]:
    """Sixty tasks that sleep, as soon as each can."""
    path = settings.data / "dag60.json" if settings.data is not None else None
    if path is None:
        return asyncio.run(_makespan("generated graph of 60", scattered(), settings))
    nodes = msgspec.json.decode(path.read_bytes(), type=_File).tasks
    seconds = {task: node.dur for task, node in nodes.items()}
    graph = Graph(seconds, {task: node.deps for task, node in nodes.items()})
    return asyncio.run(_makespan(path.name, graph, settings))


async def _makespan(name: str, graph: Graph, settings: Settings) -> list[Row]:
    runs = 0

    async def in_memory() -> Lap:
        return await given(MemoryJournal(), graph)

    async def on_disk() -> Lap:
        nonlocal runs
        runs += 1
        return await given(journal, graph, run=f"run {runs}")

    with tempfile.TemporaryDirectory() as folder:
        journal = await SqliteJournal.open(Path(folder) / "journal.db")
        contenders = (in_memory, on_disk, partial(bare_flow, graph))
        memory, disk, floor = await in_turn(1 if settings.quick else 5, *contenders, warm=False)
        await journal.close()
    disk_now = f"fdatasync {shown(MILLI * fdatasync())} ms"
    (waves,) = await in_turn(1, partial(bare_waves, graph), warm=False)
    scale = 1 / graph.critical()
    bare = floor.wall(scale)
    target = Target("<=", 1.02)
    whole = f"critical path {graph.critical():.3f} s"
    unit = "makespan / critical path"
    return [
        Row(what=f"{name}, in memory", unit=unit, ours=memory.wall(scale), floor=bare, target=target, also=whole),
        Row(what="  the same, SQLite FULL", unit=unit, ours=disk.wall(scale), floor=bare, target=target, also=disk_now),
        Row("  bare asyncio in ideal waves", unit, waves.wall(scale), bare),
    ]
