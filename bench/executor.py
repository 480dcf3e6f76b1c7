"""What a team costs through `Team.run`, beside bare asyncio: fan-out with model calls, a tool loop, many runs."""

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from statistics import median

import msgspec

from bench.measure import MICRO, Bare, Calls, Lap, Laps, Settings, bare_fan, fresh, in_turn, resident, timed
from bench.table import Row, Target, shown
from chargehand.agents.executor import Assignment
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.request_facts import Planning, Working
from chargehand.runtime.executor import StepContext
from chargehand.team import Team
from chargehand.tools.tool import tool

_USAGE = Usage(100, 20)


class Fake:
    """A model that answers at once, or after some seconds: a plan of so many tasks, so many tool calls, then words."""

    card = ModelCard("fake", micros_in=0.0, micros_out=0.0)

    def __init__(self, tasks: int, turns: int = 0, seconds: float = 0.0) -> None:
        self.calls = 0
        self._plan = _plan(tasks)
        self._turns = turns
        self._seconds = seconds

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        await asyncio.sleep(self._seconds)
        subject = request.subject
        if isinstance(subject, Planning):
            return Reply(self._plan, usage=_USAGE, micros=3)
        if isinstance(subject, Working) and len(request.messages) < 2 + 2 * self._turns:
            call = ToolCall(f"c{len(request.messages)}", "count", f'{{"number":{len(request.messages)}}}')
            return Reply(calls=(call,), finish="tools", usage=_USAGE, micros=3)
        return Reply("It is done.", usage=_USAGE, micros=3)


@cache
def _plan(tasks: int) -> str:
    listed = {f"t{n}": {"instruction": f"Carry out part {n} of it.", "worker": "worker"} for n in range(1, tasks + 1)}
    return msgspec.json.encode({"goal": "the goal", "tasks": listed, "combine": "merge"}).decode()


@tool
async def count(number: int) -> int:
    """Count one further."""
    return number + 1


_ALONE = Plan((Task(TaskId("t1"), "Count one further, again and again.", "worker"),), "forward")


def team(model: Fake, turns: int = 0, journal: Journal | None = None) -> Team:
    """With turns: one worker who is handed its task, as a worker alone would be."""
    policy = Policy(limits=Limits(width=1000, max_tasks=10**6, max_depth=10**6, fan_out=10**6))
    worker = Worker("worker", "does parts", tools=[count] if turns else [], steps=turns + 1)
    supervisor = Supervisor(model=model, plan=_ALONE if turns else None)
    return Team([worker], supervisor=supervisor, policy=policy, timeout=3600, journal=journal)


async def carried(journal: Journal, tasks: int, turns: int = 0, *, run: str = "run") -> Lap:
    """One run of a team that has run before: a plan, so many workers with their calls, an answer."""
    model = Fake(tasks, turns)
    await team(model, turns).run("the goal")
    model.calls = 0
    measured = team(model, turns, journal)
    with timed() as lap:
        found = await measured.run("the goal", run=run)
    assert (found.ending, len(found.results)) == ("complete", tasks), found.gaps
    assert model.calls == (turns + 1 if turns else tasks + 2), "every call really happened"
    return lap


def fan_out(settings: Settings) -> list[Row]:
    """W1 and W4: plan, 100 workers with a model call each, synthesis; in memory and in SQLite."""
    tasks = 100
    ours, floor = asyncio.run(
        in_turn(settings.repeat * 3, lambda: carried(MemoryJournal(), tasks), lambda: bare_fan(tasks))
    )
    kept = asyncio.run(_kept(tasks, settings.repeat))
    counted = asyncio.run(calls_a_task(tasks))
    us = MICRO / tasks
    return [
        Row(f"team: plan, {tasks} model calls, answer", "CPU us a task", ours.cpu(us), floor.cpu(us), Target("<=", 80)),
        Row("  the same", "function calls a task", (counted,), (), Target("<=", 450)),
        Row("  the same in SQLite FULL", "wall us a task", kept.wall(us), (), Target("<=", 300)),
    ]


async def _done(_assignment: Assignment, _context: StepContext) -> str:
    return "done"


async def called(tasks: int) -> Lap:
    """One run of so many tasks that a function does: no plan is made, and no answer is written."""
    plan = Plan(tuple(Task(TaskId(f"t{number}"), "Do it.", "worker") for number in range(tasks)), "none")
    policy = Policy(limits=Limits(width=1000, max_tasks=10**6, max_depth=10**6, fan_out=10**6))
    measured = Team([Worker("worker", call=_done)], supervisor=Supervisor(plan=plan), policy=policy, timeout=3600)
    await measured.run("the goal")
    with timed() as lap:
        found = await measured.run("the goal")
    assert (found.ending, len(found.results)) == ("complete", tasks), found.gaps
    return lap


def function_workers(settings: Settings) -> list[Row]:
    """Tasks that `Worker(call=)` does, in memory; beside them, bare asyncio."""
    tasks = 100
    ours, floor = asyncio.run(in_turn(settings.repeat * 3, lambda: called(tasks), lambda: bare_fan(tasks)))
    us = MICRO / tasks
    row = Row(f"{tasks} tasks of a function", "CPU us a task", ours.cpu(us), floor.cpu(us), Target("<=", 80))
    return [row]


async def _kept(tasks: int, repeat: int) -> Laps:
    with tempfile.TemporaryDirectory() as folder:
        journal = await SqliteJournal.open(Path(folder) / "runs.db")
        laps = Laps()
        for number in range(repeat + 1):
            lap = await carried(journal, tasks, run=f"run{number}")
            if number:
                laps.laps.append(lap)
        await journal.close()
    return laps


async def calls_a_task(tasks: int) -> float:
    """Function calls of one run, by its tasks; the second time, when what is cached is there."""
    await carried(MemoryJournal(), tasks)
    model = Fake(tasks)
    measured = team(model)
    with Calls() as seen:
        await measured.run("the goal")
    assert model.calls == tasks + 2
    return seen.count / tasks


async def calls_a_turn(turns: int) -> float:
    """Function calls of one worker's loop, by its turns."""
    await carried(MemoryJournal(), 1, 5)
    measured = team(Fake(1, turns), turns)
    with Calls() as seen:
        found = await measured.run("the goal")
    assert found.ending == "complete"
    return seen.count / turns


def tool_loop(settings: Settings) -> list[Row]:
    """W5: one worker, sequential tool calls."""
    rows: list[Row] = []
    for turns, target in ((50, 70), (500, 60)):
        ours, floor = asyncio.run(
            in_turn(settings.repeat, lambda n=turns: carried(MemoryJournal(), 1, n), lambda n=turns: _bare_loop(n))
        )
        us = MICRO / turns
        what = f"one worker, {turns} tool calls in a row"
        rows.append(Row(what, "CPU us a call", ours.cpu(us), floor.cpu(us), Target("<=", target)))
    return rows


async def _bare_loop(turns: int) -> Lap:
    bare = Bare()
    with timed() as lap:
        for number in range(turns):
            await bare.call(0.0)
            await count.function(number)
    return lap


def many(settings: Settings) -> list[Row]:
    """W3: teams at once, each a plan, three workers and an answer, 50 ms a call."""
    runs = 200 if settings.quick else 1000
    ours = [fresh(_many, runs) for _ in range(3)]
    floor = [fresh(_bare_many, runs) for _ in range(3)]
    rate, bare = (tuple(runs / lap for lap, _ in side) for side in (ours, floor))
    memory = tuple(bytes_ / runs / 1000 for _, bytes_ in ours)
    also = f"wall {shown(median(lap for lap, _ in ours))} s, ideal 0.15"
    return [
        Row(
            what=f"{runs:,} teams at once",
            unit="runs a second",
            ours=rate,
            floor=bare,
            target=Target(">=", 1200),
            also=also,
        ),
        Row("  the same", "kB a live run", memory, (), Target("<=", 45)),
    ]


def _many(runs: int) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        measured = team(model := Fake(3, seconds=0.05))
        await _all(runs // 10, lambda _n: _run(measured))
        gc.collect()
        gc.freeze()
        before = resident()
        made = model.calls
        with timed() as lap:
            await _all(runs, lambda _n: _run(measured))
        assert model.calls - made == 5 * runs
        return lap.wall, resident(peak=True) - before

    return asyncio.run(main())


async def _run(measured: Team) -> None:
    found = await measured.run("the goal")
    assert found.ending == "complete"


async def _all(count_: int, make: Callable[[int], Awaitable[None]]) -> None:
    async def one(number: int) -> None:
        await make(number)

    async with asyncio.TaskGroup() as jobs:
        for number in range(count_):
            jobs.create_task(one(number))


def _bare_many(runs: int) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        bare = Bare()

        async def one(_number: int) -> None:
            await bare.fan(3, 0.05)

        with timed() as lap:
            await _all(runs, one)
        return lap.wall, 0.0

    return asyncio.run(main())
