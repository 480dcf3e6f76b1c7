"""Three workers try the same, a judge picks one and says why: `python examples/exercises/select_by_judge.py`."""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

from chargehand import Plan, Result, Supervisor, Task, Team, Worker, tool

GOAL = "Where can small children swim on a rainy day?"


@tool
def guide() -> str:
    """Where small children can swim on a rainy day, by the printed guide."""
    return "The lake has a sandy beach."


@tool
def neighbour() -> str:
    """Where small children can swim on a rainy day, by a neighbour."""
    return "Children can swim at the lake."


@tool
def town_hall() -> str:
    """Where small children can swim on a rainy day, by the town hall."""
    return "Small children can swim in the town bath, which has a roof, on a rainy day too."


def run() -> Result:
    workers = [Worker(one.name, "knows where to swim", tools=[one]) for one in (guide, neighbour, town_hall)]
    tasks = tuple(Task(f"t{at}", GOAL, worker.name) for at, worker in enumerate(workers, 1))
    return Team(workers, supervisor=Supervisor(plan=Plan(tasks, "select"))).run_sync(GOAL)


if __name__ == "__main__":
    result = run()
    for task in result.trace().tasks:
        print(f"{task.id} by {task.worker}: {result.results[task.id]}")
    print(f"\n{result.answer}")
