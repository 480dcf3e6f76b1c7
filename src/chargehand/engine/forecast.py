"""What a plan will take before a cent is spent: its critical path, how much runs at once, how long, how much money.

Of several workers that fit, the first counts. Inputs from outside are there already. Tasks in a circle are left out.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.plan import Plan, TaskId, in_order, needs
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import USUAL_SECONDS, Agent, Match, Roster, fits


class Forecast(Struct, frozen=True, omit_defaults=True):
    """`critical`: nothing limits the tasks, of which `width` then run at once. `makespan`: as the policy allows.

    `cost` is one attempt a task, one plan and one answer, by what workers state; nothing if one of them states nothing.
    `unbounded` tasks are repeated over a list of unknown length: they count once. Not `timed`: it is not stated how
    long some of the tasks take, and a usual time counts.
    """

    critical_path: tuple[TaskId, ...] = ()
    critical: Seconds = 0.0
    serial: Seconds = 0.0
    makespan: Seconds = 0.0
    width: int = 0
    speedup: float = 1.0
    cost: Amount = NOTHING
    unbounded: tuple[TaskId, ...] = ()
    timed: bool = True


class CostForecast(Struct, frozen=True):
    """Dollars for a whole plan."""

    about: float | None
    """The estimate; None where the price of a model is not known."""
    unknown: tuple[str, ...] = ()
    """The models whose price is not known."""
    grows: str = ""
    """Why there may be more to it than the estimate counts, in words."""
    budget: float | None = None
    """The cap of the run."""

    @property
    def above_budget(self) -> bool:
        return self.about is not None and self.budget is not None and self.about > self.budget


def forecast(plan: Plan, roster: Roster, policy: Policy) -> Forecast:
    tasks, _ = in_order(plan.tasks)
    counts = Counter([task.worker or task.match for task in tasks])
    lines = {key: in_line(key, roster) for key in counts}
    stated = {key: line[0].seconds if line else None for key, line in lines.items()}
    stated_times = [stated[task.worker or task.match] if task.seconds is None else task.seconds for task in tasks]
    takes = [USUAL_SECONDS if seconds is None else max(0.0, seconds) for seconds in stated_times]
    index = {task.id: at for at, task in enumerate(tasks)}
    readers: list[list[int]] = [[] for _ in tasks]
    ranks = takes.copy()  # how long it is from the start of a task to the end of the plan
    for at in range(len(tasks) - 1, -1, -1):
        ranks[at] += max([ranks[reader] for reader in readers[at]], default=0.0)
        for name, _ in needs(tasks[at]):
            if name in index:
                readers[index[name]].append(at)
    critical, width = _played(readers, takes, ranks, len(tasks))
    slots = max(1, policy.limits.width)
    serial = sum(takes)
    makespan = critical if width <= slots else _played(readers, takes, ranks, slots)[0]
    path = [ranks.index(max(ranks))] if ranks else []
    while path and readers[path[-1]]:
        path.append(max(readers[path[-1]], key=ranks.__getitem__))
    cost = _cost([(count, lines[key]) for key, count in counts.items()], plan, roster, policy)
    critical_path = tuple(tasks[at].id for at in path)
    unbounded = tuple(task.id for task in tasks if task.for_each)
    speedup = serial / critical if critical else 1.0
    timed = None not in stated_times
    return Forecast(
        critical_path=critical_path,
        critical=critical,
        serial=serial,
        makespan=makespan,
        width=width,
        speedup=speedup,
        cost=cost,
        unbounded=unbounded,
        timed=timed,
    )


def in_line(key: str | Match | None, roster: Roster) -> list[Agent]:
    agents = {agent.name: agent for agent in roster.agents}
    names = [key] if isinstance(key, str) else [a.name for a in roster.agents if key is None or fits(key, a.tags)]
    fallbacks = agents[names[0]].fallbacks if names and names[0] in agents else ()
    return [agents[name] for name in dict.fromkeys((*names, *fallbacks)) if name in agents]


def _played(readers: list[list[int]], takes: list[Seconds], ranks: list[Seconds], slots: int) -> tuple[Seconds, int]:
    """When the last task ends and how many ran at once, if free slots go to the longest way to the end."""
    unmet = Counter(reader for line in readers for reader in line)
    ready = [(-rank, at) for at, rank in enumerate(ranks) if at not in unmet]
    heapify(ready)
    running: list[tuple[Seconds, int]] = []
    now = 0.0
    most = 0
    while ready or running:
        while ready and len(running) < slots:
            _, at = heappop(ready)
            heappush(running, (now + takes[at], at))
        now = running[0][0]
        most = max(most, len(running))
        while running and running[0][0] == now:
            for reader in readers[heappop(running)[1]]:
                unmet[reader] -= 1
                if not unmet[reader]:
                    heappush(ready, (-ranks[reader], reader))
    return now, most


def _cost(lines: Sequence[tuple[int, Sequence[Agent]]], plan: Plan, roster: Roster, policy: Policy) -> Amount:
    if not all(line and line[0].estimate != NOTHING for _, line in lines):
        return NOTHING  # the supervisor's part alone would pass for all of it
    answers = 0 if plan.combine in ("none", "forward") else min(1, policy.limits.answers)
    supervision = roster.supervision * (1 + answers)
    return sum((line[0].estimate * count for count, line in lines), supervision)
