"""What one seed asks for: a team, a plan, policies, and which faults are on. A pure function of the seed."""

import random

from msgspec import Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Match, Roster

FAULTS = (
    "crash",  # the process dies right after (or instead of) the n-th write: three times at most, or again and again
    "store",  # a write fails before or after it took effect
    "provider",  # network, timeout, resource, hang, garbage
    "work",  # wrong work: logic failures, exceptions, results JSON cannot carry
    "late",  # a cancelled worker reports all the same
    "jump",  # the wall clock is an hour off after a restart
    "zombie",  # somebody else takes the run over while this one still runs
    "cancel",
    "pause",
    "tight",  # a budget that does not suffice
    "usage",  # missing, negative or larger usage than reserved
    "short",  # a deadline that does not suffice
    "silence",  # a person who never answers
    "planner",  # a planner that proposes nonsense, or fails
    "outage",  # a model that is dead for a while
    "pauses",  # planner, refiner or answerer is told to come back later: after seconds, or after days
    "mistakes",  # programming errors in workers, workers that give up honestly, refusals of a provider
    "partial",  # results that leave out a part of their task
    "steered",  # a person who skips tasks, gives them to others, and stops attempts
    "doubts",  # effects that break off or hang, several at once, and tools that are asked what became of them
    "slow",  # answers after the deadline of many a run, or only looks
)
_DRAWN_APART = frozenset(("pauses", "mistakes", "partial"))
"""Added later, and drawn from a stream of their own: what a seed meant before stays what it means."""
_DRAWN_ALONE = frozenset(("steered", "doubts", "slow"))
"""Added later still, each from a stream of its own."""
HARSH = frozenset(
    (
        "crash",
        "store",
        "jump",
        "zombie",
        "cancel",
        "tight",
        "short",
        "silence",
        "outage",
        "pause",
        "usage",
        "pauses",
        "steered",
        "doubts",
        "slow",
    )
)
"""With one of these on, the ending depends on when things happen, so that no single one is right."""


class Scenario(Struct, frozen=True):
    seed: int
    faults: frozenset[str]
    roster: Roster
    plan: Plan
    policy: Policy
    budget: Budget
    seconds: float
    style: str  # fixed, whole, pieces, rounds
    crashes: int = 3
    """How often the process dies at most, with the fault `crash`."""
    writes: int = 30
    """How many writes it lives at most before it does."""
    earlier: ev.EarlierAttempts | None = None
    """What attempts in the run around this one left for the only task of the plan."""
    callers_tools: bool = False
    """The caller has tools, and the answer calls them: nothing is planned."""

    @property
    def calm(self) -> bool:
        return not self.faults & HARSH


def scenario(seed: int, faults: frozenset[str] | None = None, max_tasks: int = 12) -> Scenario:
    rng = random.Random(f"scenario/{seed}")
    drawn = {fault for fault in FAULTS if fault not in _DRAWN_APART | _DRAWN_ALONE and rng.random() < 0.25}
    apart = random.Random(f"apart/{seed}")
    drawn |= {fault for fault in FAULTS if fault in _DRAWN_APART and apart.random() < 0.25}
    if random.Random(f"steered/{seed}").random() < 0.2:
        drawn |= {"steered"}
    drawn |= {fault for fault in ("doubts", "slow") if random.Random(f"{fault}/{seed}").random() < 0.25}
    on = frozenset(drawn if faults is None else drawn & faults)
    roster = _roster(rng)
    if apart.random() < 0.4:  # who gets everything when no plan can be made
        generalist = apart.choice(roster.agents).name
        roster = structs.replace(roster, generalist=generalist, planner=apart.choice(("", "m1")))
    plan = _plan(rng, roster, max_tasks)
    policy = _policy(rng)
    tight = rng.randint(2, 3 * len(plan.tasks) + 4)
    floor = rng.choice((NOTHING, Amount(calls=1, micros=5)))
    budget = (
        Budget(calls=tight + floor.calls, usd=tight / 100_000, floor=floor) if "tight" in on else Budget(floor=floor)
    )
    if rng.random() < 0.3 and "tight" not in on:
        budget = Budget(calls=10_000, usd=10.0)
    seconds = rng.uniform(5, 60) if "short" in on else 50_000.0
    if "provider" in on and "outage" not in on:  # breakers bring time into play; without outages they do nothing
        policy = structs.replace(policy, breaking=Breaking(consecutive=10_000, sample=10_000))
    style = rng.choice(("fixed", "fixed", "whole", "pieces", "rounds"))
    if "silence" in on:
        policy = structs.replace(policy, approve=rng.random() < 0.5, uncertain="ask")
        seconds = min(seconds, 500.0)
    plot = Scenario(
        seed=seed, faults=on, roster=roster, plan=plan, policy=policy, budget=budget, seconds=seconds, style=style
    )
    return _asked_elsewhere(_fragile(plot) if "crash" in on else plot)


def _asked_elsewhere(plot: Scenario) -> Scenario:
    """Some runs are the attempt of a worker in another process, some answer by calling tools of who asks."""
    rng = random.Random(f"elsewhere/{plot.seed}")
    kind = rng.choices(("", "earlier", "caller"), (90, 5, 5))[0]
    if kind == "earlier":
        earlier = ev.EarlierAttempts(
            count=rng.randint(1, 3),
            failure=Failure("logic", "not there either"),
            effects={"elsewhere": ev.NULL},
            answers={"elsewhere": "too dear"},
            replies={"elsewhere": ev.NULL},
            refused=("elsewhere",),
        )
        plan = structs.replace(plot.plan, tasks=plot.plan.tasks[:1])
        policy = structs.replace(plot.policy, approve=False)  # an edited plan has other tasks
        return structs.replace(plot, plan=plan, policy=policy, style="fixed", earlier=earlier)
    if kind == "caller":
        return structs.replace(plot, plan=Plan((), plot.plan.combine), style="whole", callers_tools=True)
    return plot


def _fragile(plot: Scenario) -> Scenario:
    """In some of the worlds that crash, one attempt dies more often than it may be resumed."""
    rng = random.Random(f"fragile/{plot.seed}")
    if rng.random() < 0.7:
        return plot
    limits = structs.replace(plot.policy.limits, resumes=rng.randint(0, 2))
    return structs.replace(plot, policy=structs.replace(plot.policy, limits=limits), crashes=6, writes=4)


def _roster(rng: random.Random) -> Roster:
    names = ["ada", "bob", "cyd", "dee"][: rng.randint(1, 4)]
    paid = rng.random() < 0.7
    agents = [
        Agent(
            name,
            tags=tuple(sorted(rng.sample(("red", "green", "blue"), rng.randint(0, 3)))),
            model=rng.choice(("", "m1", "m2")),
            fallbacks=tuple(other for other in names if other != name and rng.random() < 0.3),
            concurrency=rng.choice((0, 0, 1, 2)),
            estimate=Amount(calls=1, micros=rng.randint(1, 9)) if paid else NOTHING,
            seconds=rng.uniform(1, 20),
            timeout=rng.choice((40.0, 300.0)),
        )
        for name in names
    ]
    return Roster(tuple(agents), Amount(calls=1, micros=5) if paid else NOTHING)


def _plan(rng: random.Random, roster: Roster, most: int) -> Plan:
    tasks: list[Task] = []
    tags = [tag for tag in ("red", "green", "blue") if any(tag in agent.tags for agent in roster.agents)]
    for number in range(rng.randint(1, most)):
        earlier = [task.id for task in tasks]
        picked = rng.sample(earlier, min(len(earlier), rng.choice((0, 1, 1, 2, 3))))
        kinds = [rng.choice(("required", "required", "optional", "quorum")) for _ in picked]
        quorum = kinds.count("quorum")
        lists = [task.id for task in tasks if task.id.startswith("l") and task.id not in picked]
        each = rng.choice(lists) if lists and rng.random() < 0.5 else TaskId("")
        name = TaskId(f"{'l' if rng.random() < 0.2 else 't'}{number}")
        match = Match(some=(rng.choice(tags),)) if tags and rng.random() < 0.3 else None
        tasks.append(
            Task(
                name,
                f"carry out part {number} of the work",
                worker="" if match else rng.choice(roster.agents).name,
                match=match,
                after=tuple(_edge(task, kind) for task, kind in zip(picked, kinds, strict=True)),
                quorum=rng.randint(1, quorum) if quorum else 0,
                for_each=each,
                at_least=rng.randint(0, 2) if each else 1,
                seconds=rng.choice((None, 1.0, 30.0)),
            )
        )
    return Plan(tuple(tasks), rng.choice(("merge", "merge", "none")))


def _edge(task: TaskId, kind: str) -> TaskId | Edge:
    if kind == "optional":
        return Edge(task, "optional")
    return Edge(task, "quorum") if kind == "quorum" else task


def _policy(rng: random.Random) -> Policy:
    return Policy(
        retry=Retry(attempts=rng.randint(1, 3), base=rng.choice((0.0, 0.5))),
        breaking=Breaking(consecutive=rng.choice((2, 5)), sample=8),
        limits=Limits(width=rng.randint(1, 6), replans=rng.choice((0, 0, 1))),
        refine=rng.random() < 0.7,
        approve=rng.random() < 0.15,
        uncertain=rng.choice(("fail", "ask", "ask")),
    )
