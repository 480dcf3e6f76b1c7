"""The strategy `plan`: one plan for the whole request."""

from collections.abc import Coroutine
from typing import Any

from chargehand.agents import planner
from chargehand.agents.strategies.base import StrategyBase
from chargehand.agents.supervision import Lead
from chargehand.engine.owed import Brief
from chargehand.runtime.executor import Proposal, StepContext


class Whole(StrategyBase, frozen=True, tag="plan"):
    """One plan for the whole request; more only when the planner reviews or replans."""

    def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        return planner.plan(lead, brief, context)
