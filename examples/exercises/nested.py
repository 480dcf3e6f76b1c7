"""Supervisors of supervisors, and a source that is gone for good: `python examples/exercises/nested.py`."""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import asyncio
from collections.abc import Iterator

from chargehand import Failure, MemoryJournal, Plan, ScriptedModel, Supervisor, Task, Team, Usage, Worker
from chargehand.runtime.trace import Trace, whole_trace

USED = Usage(300, 50)
SAYS: dict[str, str | Failure] = {
    "reader": "The harbour master counted 412 boats in May.",
    "caller": Failure("network", "the archive of April is gone", permanent=True),
    "counter": "412 boats in May are 13 a day.",
    "drawer": "One bar: May 412.",
    "writer": "May had 412 boats, 13 a day. April is not known.",
    "editor": "The page is short enough.",
}
TEAMS = {
    "research": {"reader": "Find the count of May.", "caller": "Find the count of April."},
    "analysis": {"counter": "Work out boats a day.", "drawer": "Draw the months."},
    "report": {"writer": "Write half a page.", "editor": "Check its length."},
}


def team(name: str, tasks: dict[str, str]) -> Worker:
    """A supervised team, as one worker of the office: each task of its own is for one of its own workers."""
    models = {one: ScriptedModel([SAYS[one]], handle=one, repeat=True, micros=4_000, usage=USED) for one in tasks}
    workers = [Worker(one, model=models[one]) for one in tasks]
    plan = Plan(tuple(Task(one, text, one) for one, text in tasks.items()))
    return Team(workers, supervisor=Supervisor(plan=plan), name=name).as_worker(description=f"does the {name}")


def office(journal: MemoryJournal) -> Team:
    """The interface between levels is a task and a result: the office knows three workers, and nobody inside them."""
    tasks = (
        Task("t1", "Find out how many boats came.", "research"),
        Task("t2", "Compare the months.", "analysis", after=("t1",)),
        Task("t3", "Write the report.", "report", after=("t1", "t2")),
    )
    judge = ScriptedModel(["May had 412 boats, 13 a day [t3]."], micros=9_000, usage=USED)
    teams = [team(*one) for one in TEAMS.items()]
    return Team(teams, supervisor=Supervisor(plan=Plan(tasks), judge=judge), name="office", journal=journal)


def flow(trace: Trace, level: int = 0) -> Iterator[str]:
    """Who was asked what, by whom, and what came back."""
    for task in trace.tasks:
        after = f" (with what {', '.join(task.after)} found)" if task.after else ""
        yield f"{'   ' * level}> {task.worker}: {task.instruction}{after}"
        for run in (one for attempt in task.attempts for one in attempt.runs):
            yield from flow(run, level + 1)
        yield f"{'   ' * level}< {task.worker}: {task.failure.message if task.failure else task.status}"


async def main() -> None:
    journal = MemoryJournal()
    result = await office(journal).run("How many boats came to the harbour?")
    top = await whole_trace(journal, result.run)
    print("\n".join(flow(top)))
    print(f"\n{result.ending}: {result.answer}\n")
    for gap in result.gaps:
        place = f"{gap.worker}, task {gap.inner}" if gap.run else "the office"
        print(f"gap in {gap.task}, from {place}: {gap.message}")
    inside = {one.worker: run for one in top.tasks for attempt in one.attempts for run in attempt.runs}
    own = top.used.micros - sum(one.used.micros for one in inside.values())
    print(f"cost: ${top.used.micros / 1e6:.3f}, of it the office itself ${own / 1e6:.3f}")
    for name, run in inside.items():
        print(f"  {name:8} ${run.used.micros / 1e6:.3f}  {run.ending}")


if __name__ == "__main__":
    asyncio.run(main())
