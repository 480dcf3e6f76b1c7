"""What the benchmarks share: a stopwatch, a counter of calls, a crew that waits, and bare asyncio doing the same."""

import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from types import FrameType
from typing import ParamSpec, TypeVar

from msgspec import Struct, field

from chargehand.engine.budget import Budget
from chargehand.engine.events import RunRequested
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Combine, Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext
from chargehand.runtime.runner import Runner

MICRO = 1e6
MILLI = 1e3
ONE_WORKER = Roster((Agent("worker"),))
Given = ParamSpec("Given")
Found = TypeVar("Found")


class Settings(Struct, frozen=True):
    """`quick` measures less and less often; `data` is a folder that may hold `dag60.json`."""

    quick: bool = False
    data: Path | None = None

    @property
    def repeat(self) -> int:
        return 3 if self.quick else 7


# --- clocks and counters


class Lap(Struct):
    """What one piece of work took, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def timed() -> Generator[Lap, None, None]:
    """Wall and CPU time of what is done within; earlier garbage is not its business."""
    gc.collect()
    lap = Lap()
    wall = time.perf_counter()
    cpu = time.process_time()
    yield lap
    lap.wall = time.perf_counter() - wall
    lap.cpu = time.process_time() - cpu


class Laps(Struct):
    """The repetitions of one contender."""

    laps: list[Lap] = field(default_factory=list[Lap])

    def wall(self, scale: float = 1.0) -> tuple[float, ...]:
        return tuple(lap.wall * scale for lap in self.laps)

    def cpu(self, scale: float = 1.0) -> tuple[float, ...]:
        return tuple(lap.cpu * scale for lap in self.laps)


async def in_turn(repeat: int, *contenders: Callable[[], Awaitable[Lap]], warm: bool = True) -> list[Laps]:
    """Each once, then each again, so that a noisy minute hits all of them; before that, one round to warm up."""
    found = [Laps() for _ in contenders]
    for number in range(-warm, repeat):
        for contender, laps in zip(contenders, found, strict=True):
            lap = await contender()
            if number >= 0:
                laps.laps.append(lap)
    return found


class Calls:
    """Counts function calls of this thread, C functions and resumed coroutines included, between start and stop."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, _frame: FrameType, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1

    def __enter__(self) -> "Calls":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def resident(*, peak: bool = False) -> float:
    """Bytes of memory this process holds, or ever held. Only Linux says so."""
    label = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(label):
            return 1024.0 * int(line.split()[1])
    raise LookupError(label)


def fdatasync(times: int = 20) -> float:
    """Seconds the disk asks, right now, to make 4 KB at the end of a file durable."""
    took: list[float] = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(times):
            file.write(b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
            time.sleep(0.01)
    return median(took)


def fresh(work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """What it returns in a new interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args, **named).result()


# --- graphs


class Graph(Struct, frozen=True):
    """How long each task takes and what it comes after; inputs stand before their readers."""

    seconds: dict[TaskId, float]
    after: dict[TaskId, tuple[TaskId, ...]]

    def tasks(self) -> tuple[Task, ...]:
        return tuple(
            Task(task, f"carry out part {task} of the work", "worker", after=self.after[task], seconds=takes)
            for task, takes in self.seconds.items()
        )

    def critical(self) -> float:
        ends: dict[TaskId, float] = {}
        for task, takes in self.seconds.items():
            ends[task] = takes + max((ends[need] for need in self.after[task]), default=0.0)
        return max(ends.values())

    def waves(self) -> list[list[TaskId]]:
        level: dict[TaskId, int] = {}
        for task in self.seconds:
            level[task] = 1 + max((level[need] for need in self.after[task]), default=-1)
        return [[task for task in level if level[task] == number] for number in range(1 + max(level.values()))]


def flat(count: int) -> Graph:
    """Tasks that need nothing."""
    return Graph({TaskId(f"t{n}"): 0.0 for n in range(count)}, {TaskId(f"t{n}"): () for n in range(count)})


def layered(count: int, across: int = 100) -> Graph:
    """Layers of so many tasks, each of which needs two of the layer before."""
    names = [TaskId(f"t{n}") for n in range(count)]
    after: dict[TaskId, tuple[TaskId, ...]] = {}
    for n, name in enumerate(names):
        above = n - n % across - across
        after[name] = (names[above + n % across], names[above + (n + 1) % across]) if above >= 0 else ()
    return Graph(dict.fromkeys(names, 0.0), after)


def scattered(count: int = 60, *, seed: int = 7) -> Graph:
    """Six random layers, one to three inputs a task, sleeps of 20 to 400 ms: of the kind of `dag60.json`."""
    rng = random.Random(seed)
    names = [TaskId(f"t{n:02}") for n in range(count)]
    across = count // 6
    seconds = {name: min(0.4, max(0.02, rng.lognormvariate(-2.2, 0.8))) for name in names}
    after: dict[TaskId, tuple[TaskId, ...]] = {}
    for n, name in enumerate(names):
        start = n - n % across
        if not start:
            after[name] = ()
            continue
        nearest = rng.choice(names[start - across : start])
        after[name] = tuple(dict.fromkeys([nearest, *rng.choices(names[:start], k=rng.randint(0, 2))]))
    return Graph(seconds, after)


# --- ours


class Sleeper(Executor):
    """An executor that proposes what it was given, waits as long as it was told and counts how often it was asked."""

    def __init__(
        self, tasks: Sequence[Task] = (), *, seconds: float = 0.0, takes: Mapping[TaskId, float] | None = None
    ) -> None:
        self.calls = 0
        self._proposal = Proposal(tuple(tasks))
        self._seconds = seconds
        self._takes = takes or {}

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        await self._wait(brief)
        return self._proposal

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        await self._wait(brief)
        return Done("done")

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        await self._wait(brief)
        return Done("the answer")

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        raise AssertionError("nothing here fails, so nothing is refined")

    async def _wait(self, brief: Brief) -> None:
        self.calls += 1
        await asyncio.sleep(self._takes.get(brief.work.task, self._seconds))


def request(plan: Plan | None = None, *, width: int = 1000, roster: Roster = ONE_WORKER) -> RunRequested:
    """A request that no limit but the width stands in the way of."""
    policy = Policy(limits=Limits(width=width, max_tasks=10**6, max_depth=10**6, fan_out=10**6))
    return RunRequested(
        goal="the goal", roster=roster, policy=policy, budget=Budget(), deadline=time.time() + 3600, seed=7, plan=plan
    )


async def planned(journal: Journal, graph: Graph, *, run: str = "run", width: int = 1000) -> Lap:
    """A run whose supervisor plans the graph and writes an answer."""
    executor = Sleeper(graph.tasks())
    wanted = request(width=width)
    with timed() as lap:
        found = await Runner(journal, executor).start(run, wanted)
    assert (found.ending, len(found.results)) == ("complete", len(graph.seconds)), found.gaps
    assert executor.calls == len(graph.seconds) + 2, "a plan, an attempt a task and an answer"
    return lap


async def given(journal: Journal, graph: Graph, *, run: str = "run", combine: Combine = "none") -> Lap:
    """A run that was handed the graph as its plan, whose tasks really sleep."""
    executor = Sleeper(takes=graph.seconds)
    wanted = request(Plan(graph.tasks(), combine))
    with timed() as lap:
        found = await Runner(journal, executor).start(run, wanted)
    assert (found.ending, len(found.results)) == ("complete", len(graph.seconds)), found.gaps
    assert executor.calls == len(graph.seconds), "an attempt a task"
    return lap


# --- the floor


class Bare:
    """The same calls by bare asyncio, which keeps nothing, checks nothing and survives nothing."""

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, seconds: float) -> str:
        self.calls += 1
        await asyncio.sleep(seconds)
        return "done"

    async def fan(self, count: int, seconds: float = 0.0) -> list[str]:
        """A plan, so many tasks, an answer."""
        await self.call(seconds)
        async with asyncio.TaskGroup() as jobs:
            tasks = [jobs.create_task(self.call(seconds)) for _ in range(count)]
        await self.call(seconds)
        return [task.result() for task in tasks]

    async def flow(self, graph: Graph) -> None:
        """Each task as soon as its inputs are there."""
        left = {task: len(after) for task, after in graph.after.items()}
        readers: dict[TaskId, list[TaskId]] = {task: [] for task in left}
        for task, after in graph.after.items():
            for need in after:
                readers[need].append(task)

        async def one(task: TaskId) -> None:
            await self.call(graph.seconds[task])
            for reader in readers[task]:
                left[reader] -= 1
                if not left[reader]:
                    jobs.create_task(one(reader))

        async with asyncio.TaskGroup() as jobs:
            for task in [task for task, count in left.items() if not count]:
                jobs.create_task(one(task))

    async def waves(self, graph: Graph) -> None:
        """Each task when all of the wave before it is done."""
        for wave in graph.waves():
            async with asyncio.TaskGroup() as jobs:
                for task in wave:
                    jobs.create_task(self.call(graph.seconds[task]))


async def bare_fan(count: int) -> Lap:
    bare = Bare()
    with timed() as lap:
        await bare.fan(count)
    assert bare.calls == count + 2
    return lap


async def bare_flow(graph: Graph) -> Lap:
    bare = Bare()
    with timed() as lap:
        await bare.flow(graph)
    assert bare.calls == len(graph.seconds)
    return lap


async def bare_waves(graph: Graph) -> Lap:
    bare = Bare()
    with timed() as lap:
        await bare.waves(graph)
    assert bare.calls == len(graph.seconds)
    return lap
