"""T1 fails for good. What becomes of T3 and T5, who come after it? `python examples/exercises/cascade.py`.

T1 and T2 run side by side, T3 needs T1, T4 needs T2, and T5 comes after T3 and T4.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import re

from chargehand import (
    Edge,
    Failure,
    Plan,
    Policy,
    Request,
    Result,
    Retry,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    Worker,
)

GOAL = "How did the shop do, and what did customers complain about?"


def clerk(request: Request) -> str | Failure:
    """A model that reads what it is given: the sales cannot be had, however often it is asked."""
    asked = request.messages[-1].text
    if "Fetch the sales" in asked:
        return Failure("network", "the sales database does not answer")
    if "Fetch the tickets" in asked:
        return "412 tickets came in: 190 late parcels, 121 wrong sizes, 101 others."
    if "Compare" in asked:
        return "Sales fell from 9,100 to 8,300 euros."
    if "Group" in asked:
        return "Late parcels lead with 190 of 412 tickets."
    part, whole = map(int, re.findall(r"(\d+) of (\d+)", asked)[0])  # what T4 found
    without = " Whether sales suffered is not known: there are no figures." if "Missing: T3" in asked else ""
    return f"Late parcels are {part / whole:.0%} of all complaints.{without}"


def run(*last: str | Edge) -> Result:
    """The five tasks, the last of which comes after these."""
    tasks = (
        Task("T1", "Fetch the sales of both quarters.", "clerk"),
        Task("T2", "Fetch the tickets of the quarter.", "clerk"),
        Task("T3", "Compare the sales of both quarters.", "clerk", after=("T1",)),
        Task("T4", "Group the tickets by cause and count each group.", "clerk", after=("T2",)),
        Task("T5", "Relate the complaints to the sales, as far as there are figures.", "clerk", after=last),
    )
    worker = Worker("clerk", "fetches, counts and compares", model=ScriptedModel(clerk))
    team = Team([worker], supervisor=Supervisor(plan=Plan(tasks)), policy=Policy(retry=Retry(base=0.01)))
    return team.run_sync(GOAL)


def show(title: str, result: Result) -> None:
    print(f"{title}: {result.ending}, {len(result.coverage.covered)} of {len(result.plan.tasks)} parts")
    why = {gap.task: gap.message for gap in result.gaps}
    for task in result.trace().tasks:
        tried = f"{len(task.attempts)} attempts" if len(task.attempts) > 1 else ""
        print(f"  {task.id}  {task.status:8} {', '.join(filter(None, (tried, why.get(task.id))))}".rstrip())
    print(f"\n{result.answer}\n")


if __name__ == "__main__":
    show("T5 needs T3 and T4", run("T3", "T4"))
    show("T5 needs T4, and takes T3 if there is one", run(Edge("T3", "optional"), "T4"))
