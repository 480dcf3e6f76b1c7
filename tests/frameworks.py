"""`python -m tests.frameworks`: agents of four frameworks in one team, where one fails and the process is stopped.

For the environment of `make frameworks`, which has CrewAI (800 MB) beside the others.
"""

import asyncio
import os
import sys
from importlib import import_module
from typing import Any, cast

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

from chargehand import Budget, MemoryJournal, Plan, Supervisor, Task, Team, Worker
from chargehand.engine.plan import TaskId
from chargehand.integrations.crewai import from_crewai
from tests.integrations.mixed_team import POLICY, mixed_workers, outages

crewai: Any = import_module("crewai")  # not in the usual environment


class ScriptedLLM(crewai.BaseLLM):
    """Always says the same."""

    def call(self, messages: Any, *args: Any, **options: Any) -> str:
        return "Thought: I know it.\nFinal Answer: 3 crates"

    async def acall(self, messages: Any, *args: Any, **options: Any) -> str:
        return self.call(messages)


def make_team(journal: MemoryJournal, failures: int, held: asyncio.Event | None = None) -> Team:
    agent = crewai.Agent(role="counter", goal="count", backstory="counts", llm=ScriptedLLM(model="scripted"))
    crew = crewai.Crew(
        agents=[agent], tasks=[crewai.Task(description="{task}", expected_output="a number", agent=agent)]
    )
    workers = [*mixed_workers(outages(failures), held), Worker("crates", call=from_crewai(crew, effect="read"))]
    plan = Plan(
        (
            Task(TaskId("t1"), "Count these words.", "words"),
            Task(TaskId("t2"), "Count the plums.", "away"),
            Task(TaskId("t4"), "Count the crates.", "crates"),
            Task(TaskId("t3"), "Count the pears.", "pears", after=(TaskId("t1"), TaskId("t2"), TaskId("t4"))),
        ),
        "none",
    )
    return Team(workers, supervisor=Supervisor(plan=plan), policy=POLICY, budget=Budget(usd=1.0), journal=journal)


async def main() -> int:
    journal = MemoryJournal()
    held = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        job = group.create_task(make_team(journal, 9, held).run("Count.", run="r1"))
        await asyncio.wait_for(held.wait(), 120)
        job.cancel()
    result = await make_team(journal, 0).resume("r1")
    print(result.ending, result.results, result.spent)
    results = cast("dict[str, dict[str, object]]", result.results)
    texts = {task: value.get("text") for task, value in results.items()}
    is_right = result.ending == "complete" and texts["t4"] == "3 crates" and texts["t3"] == "7 pears"
    return 0 if is_right and result.spent.micros > 0 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
