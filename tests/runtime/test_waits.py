"""Whoever looks on sees why a call is not made yet, while it is not made."""

import asyncio

from msgspec import structs

from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.executor import Done, StepContext
from chargehand.runtime.runner import Runner
from chargehand.waits import Wait, collect_waits, waiting
from tests.requests import request


class Spends(ScriptedExecutor):
    """Each task makes one call that takes most of the budget while it is under way."""

    def __init__(self, waits: list[Wait]) -> None:
        super().__init__(Script())
        self.seen: list[Wait] = []
        self._waits = waits

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        async def call(_key: str) -> Done:
            await asyncio.sleep(0.02)
            self.seen.extend(self._waits)
            return Done("found", Amount(micros=10, calls=1))

        return Done(await context.step("model", call, kind="model", reserve=Amount(micros=800, calls=1)))


def test_a_call_that_waits_for_the_budget_says_so() -> None:
    tasks = tuple(Task(TaskId(name), "look into it", "worker") for name in ("a", "b"))

    async def drive() -> Spends:
        with collect_waits() as waits:
            executor = Spends(waits)
            asked = structs.replace(request(Plan(tasks, "none")), budget=Budget(usd=0.001))
            outcome = await Runner(MemoryJournal(), executor).start("run", asked)
            assert outcome.ending == "complete"
            return executor

    seen = asyncio.run(drive()).seen
    assert [(wait.who, wait.why) for wait in seen] == [("b", "the budget is reserved for calls under way")]


def test_where_nobody_looks_on_nothing_is_collected() -> None:
    with waiting("somebody", "something"):
        pass
