"""Requests for tests, with what a test does not care about filled in."""

import time

from chargehand.engine.budget import Budget
from chargehand.engine.events import Parent, RunRequested
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Agent, Roster

ALONE = Roster((Agent("worker"),))
USUAL = Policy()
UNLIMITED = Budget()


def request(
    plan: Plan | None = None,
    roster: Roster = ALONE,
    *,
    policy: Policy = USUAL,
    budget: Budget = UNLIMITED,
    seconds: float = 60.0,
    parent: Parent | None = None,
) -> RunRequested:
    return RunRequested(
        goal="the goal",
        roster=roster,
        policy=policy,
        budget=budget,
        deadline=time.time() + seconds,
        seed=7,
        plan=plan,
        parent=parent,
    )
