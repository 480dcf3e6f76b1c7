"""A supervisor that splits what is too big, and the parts again: `python examples/exercises/recursive.py`.

The one who splits would go on for ever: every part is called too big and split in three. Depth and breadth are counted
by the library, so there is an end, and a bill for each depth.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import json
import re
from collections import Counter

from chargehand import Limits, Policy, Recursive, Request, Result, ScriptedModel, Supervisor, Team, Usage, Worker

# a fifth of a cent a call
PRICE = 2_000
USED = Usage(900, 100)
PARTS = ("history", "present", "future")


class Splitter:
    """Whoever splits. It counts how often it is asked on each level: a part says in its text where it comes from."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()

    def __call__(self, request: Request) -> str:
        text = request.messages[-1].text
        found = re.search(r"^Task: (.*)", text, re.MULTILINE)
        if found is None:
            return "All of it, put together."  # it writes the answer as well
        task = found[1].rstrip(".")
        self.calls[1 + task.count(" of the ")] += 1
        asked = [f"Describe the {one} of the {task.removeprefix('Describe the ')}." for one in PARTS]
        subtasks = [{"instruction": one, "worker": "reader"} for one in asked]
        return json.dumps({"why": "it is too big", "simple": False, "subtasks": subtasks})


def run(depth: int, breadth: int = 3, most: int = 50) -> tuple[Result, Splitter]:
    splitter = Splitter()
    lead = ScriptedModel(splitter, handle="lead", micros=PRICE, usage=USED)
    reader = ScriptedModel(["Read."], handle="reader", micros=PRICE, usage=USED, repeat=True)
    workers = [Worker("reader", "reads and describes", model=reader), Worker("clerk", "files", model=reader)]
    team = Team(
        workers,
        supervisor=Supervisor(model=lead, strategy=Recursive(depth=depth, breadth=breadth)),
        policy=Policy(limits=Limits(max_tasks=most)),
    )
    return team.run_sync("Describe the harbour"), splitter


def tree(result: Result) -> None:
    shown: set[str] = set()
    for task in result.plan.tasks:
        place = task.id.split(".")
        for level in range(1, len(place) + 1):
            name = ".".join(place[:level])
            if name not in shown:
                print(f"  {'  ' * level}{name}{'' if level < len(place) else f'  {task.instruction}'}")
                shown.add(name)


if __name__ == "__main__":
    for depth in (1, 2, 3):
        result, splitter = run(depth)
        levels = ", ".join(f"level {level}: {count}" for level, count in sorted(splitter.calls.items()))
        print(f"depth {depth}: {len(result.plan.tasks)} tasks, ${result.cost:.3f}, calls to split: {levels}")
    tree(run(2)[0])
    narrow, _ = run(1, breadth=2)
    print(f"breadth 2: {len(narrow.plan.tasks)} tasks, {narrow.ending}:")
    print(f"  {narrow.gaps[0].message}")
    result, splitter = run(8, most=20)
    print(f"depth 8, at most 20 tasks: {len(result.plan.tasks)} tasks, {splitter.calls.total()} calls to split")
