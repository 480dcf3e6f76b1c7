"""What is gained by working side by side, and what is not: `python examples/exercises/parallel.py`.

Four workers wait as long as real ones would wait for a model. The plan is done twice: as usual, and one task at a time.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

from chargehand import Limits, Plan, Policy, Result, ScriptedModel, Supervisor, Task, Team, Worker

WAITS = {"research": 0.3, "code": 0.2, "prices": 0.2, "report": 0.1}
PLAN = Plan(
    (
        Task("research", "Find out how others store tents over the winter.", "research"),
        Task("code", "Write a function that counts tents by size.", "code"),
        Task("prices", "List what dry storage costs in town.", "prices"),
        Task("report", "Write a page from what was found and what it costs.", "report", after=("research", "prices")),
    ),
    "none",
)


def run(width: int) -> Result:
    """The plan with so many tasks at work at once."""
    workers = [Worker(name, model=ScriptedModel(["Done."], handle=name, latency=wait)) for name, wait in WAITS.items()]
    return Team(workers, supervisor=Supervisor(plan=PLAN), policy=Policy(limits=Limits(width=width))).run_sync(
        "Where do tents winter?"
    )


def show(title: str, result: Result) -> float:
    trace = result.trace()
    print(f"{title}: {trace.seconds:.2f} s")
    for task in trace.tasks:
        print(f"  {task.id:8} from {task.began or 0:.2f} to {task.ended or 0:.2f} s")
    return trace.seconds


if __name__ == "__main__":
    run(16)  # what is loaded only once shall not count
    together = run(16)
    fast = show("side by side", together)
    slow = show("one at a time", run(1))
    path = together.trace().critical_path
    least = sum(WAITS[name] for name in path)
    print(f"{slow / fast:.1f} times faster")
    print(f"critical path: {' > '.join(path)}, {least:.2f} s of waiting; no number of workers makes it shorter")
    print('for a team of yours: chargehand run --max-parallel 1 "..."')
