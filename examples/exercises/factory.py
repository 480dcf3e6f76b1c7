"""Workers made for their tasks, against workers that were there before: `python examples/exercises/factory.py`.

Ten tasks are done by ten workers from a list, then by ten that a factory makes on the fly: for each task a prompt and
the tools it needs. What the making costs is measured, in processor time: the least of several runs in turns, for
whatever else a machine does can only add to it.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

from time import process_time

import msgspec

from chargehand import Factory, Plan, Result, Supervisor, Task, Team, Worker, tool

REPEAT = 7
GOAL = "Fill in the price list."
GOODS = ("anvils", "bellows", "hammers", "rivets", "tongs")


@tool(quick=True)
def stock(product: str) -> int:
    """How many of a product are in stock: anvils, bellows, hammers, rivets or tongs."""
    return 7 * GOODS.index(product) + 3


@tool(quick=True)
def price(product: str) -> float:
    """The price of a product in euros: anvils, bellows, hammers, rivets or tongs."""
    return 12.5 * (GOODS.index(product) + 1)


TASKS = [
    (tool_, f"{what} {product}.")
    for product in GOODS
    for tool_, what in ((stock, "Look up the stock of"), (price, "Look up the price of"))
]


def static() -> Team:
    """A registry: who does which task was written down by somebody, with the prompt and the tools."""
    workers = [Worker(f"w{at}", f"does: {text}", tools=[tool_]) for at, (tool_, text) in enumerate(TASKS)]
    tasks = tuple(Task(f"t{at}", text, f"w{at}") for at, (_, text) in enumerate(TASKS))
    return Team(workers, supervisor=Supervisor(plan=Plan(tasks, "none")))


def dynamic() -> Team:
    """A factory: all it knows is the tools it may hand out."""
    tasks = tuple(Task(f"t{at}", text, "factory") for at, (_, text) in enumerate(TASKS))
    factory = Factory(tools=[stock, price], max_tools=1, concurrency=10)
    return Team([], supervisor=Supervisor(factory=factory, plan=Plan(tasks, "none")))


def measured(*teams: Team) -> tuple[list[float], list[Result]]:
    """The least processor time of a run of each team, in turns, after one that does not count; and the last runs."""
    took: list[list[float]] = [[] for _ in teams]
    last = [team.run_sync(GOAL) for team in teams]
    for _ in range(REPEAT):
        for at, team in enumerate(teams):
            began = process_time()
            last[at] = team.run_sync(GOAL)
            took[at].append(process_time() - began)
    return [min(one) for one in took], last


if __name__ == "__main__":
    (before, after), (listed, made) = measured(static(), dynamic())
    for task in made.trace().tasks:
        step = msgspec.convert(task.attempts[0].steps[0].result, dict[str, object])
        print(f"{task.instruction:30} tools {step['tools']}, prompt: {str(step['persona'])[:58]}...")
    agree = sum(made.results[name] == value for name, value in listed.results.items())
    more = after - before
    print(f"{agree} of {len(TASKS)} results are the same as those of the static workers")
    print(f"static: {before * 1000:.1f} ms of CPU a run; made on the fly: {after * 1000:.1f} ms (least of {REPEAT})")
    print(f"overhead: {more / len(TASKS) * 1e6:.0f} us a worker, {more / after:.0%} of the run")
    print(f"calls of models: {listed.spent.calls} static, {made.spent.calls} made on the fly: one more for each worker")
