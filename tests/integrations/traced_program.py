"""A run whose spans are sent, to be killed.

Each of its tasks calls a tool twice, so that it has spans all its life.
"""

import time
from pathlib import Path

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Usage, Worker, tool
from chargehand.engine.plan import TaskId
from chargehand.integrations.otel import OtelListener

RUN = "killed-run"
TASKS = 20


def make_team(journal: Path, listener: OtelListener, seconds: float) -> Team:
    @tool
    def wait(number: int) -> int:
        """Wait a little."""
        time.sleep(seconds)
        return number

    call = Reply(calls=(ToolCall("c1", "wait", '{"number": 1}'),), usage=Usage(100, 10))
    replies = [call, Reply("done", usage=Usage(120, 20))]
    workers = [Worker(f"w{number}", model=ScriptedModel(replies, repeat=True), tools=[wait]) for number in range(TASKS)]
    tasks = tuple(
        Task(TaskId(f"t{number}"), "Wait.", f"w{number}", after=(TaskId(f"t{number - 2}"),) if number > 1 else ())
        for number in range(TASKS)
    )
    team = Team(workers, supervisor=Supervisor(plan=Plan(tasks, "none")), journal=journal, name="waiters")
    team.add_listener(listener)
    return team


def main(journal: str, verb: str) -> None:
    """Start the run, which takes a while, or resume it; print how it ended."""
    team = make_team(Path(journal), OtelListener(delay=0.05), seconds=0.3 if verb == "start" else 0.01)
    result = team.run_sync("Wait", run=RUN) if verb == "start" else team.resume_sync(RUN)
    print(result.ending)
