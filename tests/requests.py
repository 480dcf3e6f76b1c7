"""Requests for tests, with what a test does not care about filled in."""

import time

from chargehand.terms.budget import Budget
from chargehand.terms.events import Parent, RunRequested
from chargehand.terms.plan import Plan
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster

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
    return RunRequested("the goal", roster, policy, budget, time.time() + seconds, 7, plan, parent)
