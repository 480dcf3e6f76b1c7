"""What scheduling may cost, counted in function calls: a clock would flake, a count does not. Times: `make bench`."""

import asyncio

from bench.executor import calls_a_task as model_calls_a_task
from bench.executor import calls_a_turn
from bench.measure import Calls, Sleeper, flat, layered, request
from bench.scheduling import calls_a_task
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.executor import Done, StepContext
from chargehand.runtime.runner import Runner
from tests.support.hunts import hunt_size

MOST = 250


async def test_a_task_costs_few_calls() -> None:
    assert await calls_a_task(flat(1000), width=1000) <= MOST


async def test_four_times_the_tasks_cost_four_times_the_calls() -> None:
    count = hunt_size(quick=250, thorough=1000)
    small = await calls_a_task(layered(count), width=1000)
    large = await calls_a_task(layered(4 * count), width=1000)
    assert large <= 1.1 * small


async def test_many_ready_tasks_and_few_slots_cost_no_more() -> None:
    assert await calls_a_task(flat(2000), width=8) <= MOST


class Jam(Sleeper):
    """The slow worker does not finish before the quick one has done so many tasks, whose calls are counted."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.seen = Calls()
        self._count = count
        self._begun = 0
        self._over = asyncio.Event()

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        if brief.worker == "slow":
            await self._over.wait()
            return await super().attempt(brief, context)
        self._begun += 1
        if self._begun == 1:
            self.seen.start()
        elif self._begun == self._count:
            self.seen.stop()
            self._over.set()
        return await super().attempt(brief, context)


async def calls_beside(waiting: int, count: int = 1000) -> float:
    """Calls a task of one worker while so many tasks wait for another, who takes one at a time."""
    slow = [Task(TaskId(f"s{n}"), f"carry out slow part {n}", "slow", seconds=100.0) for n in range(waiting)]
    quick = [Task(TaskId(f"q{n}"), f"carry out quick part {n}", "quick", seconds=1.0) for n in range(count)]
    executor = Jam(count)
    roster = Roster((Agent("slow", concurrency=1), Agent("quick", concurrency=0)))
    found = await Runner(MemoryJournal(), executor).start(
        "run", request(Plan((*slow, *quick), "none"), width=8, roster=roster)
    )
    assert (found.ending, executor.calls) == ("complete", waiting + count)
    return executor.seen.count / count


async def test_a_long_queue_at_one_worker_makes_the_starts_of_another_no_dearer() -> None:
    alone = await calls_beside(1)
    beside = await calls_beside(2000)
    assert beside <= MOST
    assert beside <= 1.1 * alone


async def test_a_task_with_a_model_call_costs_few_calls() -> None:
    assert await model_calls_a_task(100) <= 450


async def test_a_long_tool_loop_costs_the_same_at_every_turn() -> None:
    short = await calls_a_turn(50)
    long = await calls_a_turn(500)
    assert long <= 375
    assert long <= 1.05 * short
