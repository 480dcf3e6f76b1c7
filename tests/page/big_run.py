"""Runs of hundreds of tasks, written by the real driver on virtual time."""

import random

from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.events import Entry
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from tests.requests import request
from tests.virtual import Stage

_WORKERS = 12
_KINDS = (
    "Read the ledger of plant",
    "Check the certificate of",
    "Compare the quotes of supplier",
    "Draft the letter to customer",
)


def big_plan(size: int, seed: int = 1) -> Plan:
    """Each task needs up to three of those shortly before it."""
    rng = random.Random(seed)
    tasks: list[Task] = []
    for number in range(1, size + 1):
        near = [task.id for task in tasks[-40:]]
        count = min(len(near), rng.choice((0, 1, 1, 2, 3)) if number > size // 8 else 0)
        after = tuple(Edge(name, "required") for name in rng.sample(near, count))
        text = f"{rng.choice(_KINDS)} {number} and say what differs from last year."
        tasks.append(Task(TaskId(f"t{number}"), text, f"w{rng.randint(1, _WORKERS)}", after=after))
    return Plan(tuple(tasks))


def big_run(name: str, size: int) -> list[Entry]:
    """The entries of a run with so many tasks, one of which fails for good."""
    rng = random.Random(size)
    plan = big_plan(size)
    moves: dict[str, tuple[Move, ...]] = {}
    used = Amount(tokens=900, micros=1400, calls=1)
    for task in plan.tasks:
        done = Move(seconds=rng.uniform(0.03, 0.4), used=used, result=f"{task.id} differs by {rng.randint(1, 9)} %.")
        failed = Move(fail="network", message="the line went dead", seconds=0.05, used=used)
        moves[task.id] = (failed, done) if rng.random() < 0.04 else (done,)
    lost = plan.tasks[size // 2].id
    moves[lost] = (Move(fail="logic", message="no such ledger", permanent=True, used=used),)
    stage = Stage(ScriptedExecutor(Script(moves, otherwise=Move(used=used))))
    roster = Roster(tuple(Agent(f"w{number}", "reads ledgers") for number in range(1, _WORKERS + 1)))
    policy = Policy(
        retry=Retry(attempts=2, base=0.1), limits=Limits(width=16, max_tasks=3000, max_depth=500), refine=False
    )
    asked = request(plan, roster, policy=policy, budget=Budget(usd=5.0))
    asked = structs.replace(asked, goal=f"Audit {size} places and say what differs from last year.", team="incident")
    stage.start(asked, name, seconds=3600)
    return stage.entries[name]
