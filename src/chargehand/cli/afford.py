"""Budgets on the command line: caps that can be kept, and plans that are estimated to cost more."""

import asyncio
import sys

from chargehand.agents.cost_forecast import CostForecast, PlanForecast
from chargehand.cli.console import Console, clean
from chargehand.cli.phrases import dollars
from chargehand.errors import Invalid
from chargehand.runtime.draft import foreseen
from chargehand.team import Supervisor
from chargehand.terms.events import RunRequested


def keep_budget(team: Supervisor) -> Supervisor:
    """The team with a budget that can be kept, with a warning where that is one on calls instead of dollars."""
    if team.budget.usd is None:
        return team
    kept = asyncio.run(team.keep_budget())
    if kept.call_cap is not None:
        Console(sys.stderr).prose(f"warning: {clean(kept.call_cap.warning)}", "warn")
    return kept


def warn_above_budget(team: Supervisor, request: RunRequested) -> None:
    """Say it where a plan is estimated to cost more than the run may."""
    if request.plan is None or request.budget.micros is None or team.cache is not None:
        return  # what a plan will be is not known, nothing is capped, or results may be had for nothing
    cost = asyncio.run(forecast_plan(team, request)).usd
    if cost is not None and cost.above_budget:
        Console(sys.stderr).prose(f"warning: {clean(above_budget(cost))}", "warn")


async def forecast_plan(team: Supervisor, request: RunRequested) -> PlanForecast:
    """What the plan of a request takes."""
    if request.plan is None:
        raise Invalid("there is no plan to reckon with; name one with --plan")
    async with team.crew() as crew:
        return foreseen(crew, request.plan, request)


def above_budget(cost: CostForecast) -> str:
    """That a plan costs more than there is, in words."""
    about = dollars(round(1_000_000 * (cost.about or 0)))
    budget = dollars(round(1_000_000 * (cost.budget or 0)))
    return (
        f"this plan is estimated at {about}, the budget is {budget}: the run stops where that is used up. Allow it "
        "more with --budget-usd, leave tasks out of the plan, or name a cheaper model with --model"
    )
