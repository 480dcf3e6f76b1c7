"""What must come of a calm scenario, worked out from the plan and the fates alone, without any scheduling."""

from chargehand.engine.plan import Edge, Task, TaskId
from tests.sim.scenario import Scenario
from tests.sim.world import World


def expected(plot: Scenario, world: World) -> dict[TaskId, str]:
    """The status every task of the plan must end with, when time, money and crashes play no part."""
    status: dict[TaskId, str] = {}
    counts: dict[TaskId, int] = {}
    for task in plot.plan.tasks:  # scenarios list inputs first
        needs = [(edge.task, edge.need) if isinstance(edge, Edge) else (edge, "required") for edge in task.after]
        if task.for_each:
            needs.append((task.for_each, "required"))
        good = [need for need in needs if status[need[0]] == "done"]
        missing = any(need[1] == "required" and need not in good for need in needs)
        if missing or sum(1 for need in good if need[1] == "quorum") < task.quorum:
            status[task.id] = "skipped"
        elif task.for_each:
            counts[task.id] = counts[task.for_each]
            names = [TaskId(f"{task.id}[{index}]") for index in range(counts[task.id])]
            for index, name in enumerate(names):
                there = status.get(TaskId(f"{task.for_each}[{index}]"), "done") == "done"
                status[name] = _tried(plot, world, task, name) if there else "skipped"
            done = sum(status[name] == "done" for name in names)
            status[task.id] = "done" if done >= min(task.at_least, len(names)) else "failed"
        else:
            status[task.id] = _tried(plot, world, task, task.id)
            value = world.value(task.id)
            counts[task.id] = len(value) if isinstance(value, list) else 0  # pyright: ignore[reportUnknownArgumentType]
    return status


def _tried(plot: Scenario, world: World, task: Task, name: TaskId) -> str:
    agents = {agent.name: agent for agent in plot.roster.agents}
    named = [task.worker] if task.worker else []
    if task.match is not None:
        named = [agent.name for agent in agents.values() if set(task.match.some) & set(agent.tags)]
    others = len({*named, *agents[named[0]].fallbacks}) - 1
    number = 0 if plot.earlier is None else plot.earlier.count
    for stage in range(1 + others):
        quota = plot.policy.retry.fallback_attempts if stage else plot.policy.retry.attempts
        for _ in range(quota):
            number += 1
            fate = world.fate(name, number)
            if fate == "fine":
                return "done"
            if fate in ("permanent", "park", "bug", "refused"):
                break
    return "failed"
