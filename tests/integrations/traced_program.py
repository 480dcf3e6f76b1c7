"""`python -m tests.integrations.traced_program JOURNAL start|resume`: a run whose spans are sent, to be killed.

Each of its tasks calls a tool twice, so that it has spans in every second of its life.
"""

import sys
import time
from pathlib import Path

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Usage, Worker, tool
from chargehand.cli.tracing import listener_from
from chargehand.engine.plan import TaskId
from chargehand.integrations.otel import OtelListener

RUN = "killed-run"
TASKS = 20


@tool
def wait(number: int) -> int:
    """Wait a little."""
    time.sleep(1.0 if sys.argv[2] == "start" else 0.01)  # it is killed before it is done
    return number


def make_team(journal: Path, listener: OtelListener) -> Team:
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


def main() -> None:
    journal, verb = sys.argv[1:]
    listener = listener_from({"CHARGEHAND_OTEL": "1"})
    assert listener is not None
    team = make_team(Path(journal), listener)
    result = team.run_sync("Wait", run=RUN) if verb == "start" else team.resume_sync(RUN)
    print(result.ending)


if __name__ == "__main__":
    main()
