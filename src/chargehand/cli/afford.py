"""Whether a plan can be paid for at all, said before anybody is called. How dollars are reckoned is not known here."""

import asyncio
import sys

from chargehand.agents.outlook import Outlay, Outlook
from chargehand.cli.console import Console, clean
from chargehand.cli.phrases import dollars
from chargehand.errors import Invalid
from chargehand.runtime.draft import foreseen
from chargehand.team import Supervisor
from chargehand.terms.events import RunRequested

EXIT = 5
"""As of a run that its budget ended."""


def keep_budget(team: Supervisor) -> Supervisor:
    """The team with a budget that can be kept, with a warning where that is one on calls instead of dollars."""
    if team.budget.usd is None:
        return team
    kept = asyncio.run(team.keep_budget())
    if kept.call_cap is not None:
        Console(sys.stderr).prose(f"warning: {clean(kept.call_cap.warning)}", "warn")
    return kept


def refused(team: Supervisor, request: RunRequested) -> bool:
    """Whether even the least that a plan costs is above the budget; then that is said."""
    if request.plan is None or request.budget.micros is None or team.cache is not None:
        return False  # what a plan will be is not known, nothing is capped, or results may be had for nothing
    found = asyncio.run(outlook(team, request)).usd
    if found is None or not found.too_much:
        return False
    Console(sys.stderr).line(f"chargehand: {clean(above(found))}", "bad")
    return True


async def outlook(team: Supervisor, request: RunRequested) -> Outlook:
    """What the plan of a request takes."""
    if request.plan is None:
        raise Invalid("there is no plan to reckon with; name one with --plan")
    async with team.crew() as crew:
        return foreseen(crew, request.plan, request)


def above(found: Outlay) -> str:
    """That a plan costs more than there is, in words."""
    least, budget = (round(1_000_000 * (one or 0)) for one in (found.least, found.budget))
    return (
        f"this plan costs {dollars(least)} at the least, the budget is {dollars(budget)}; nobody was asked: "
        "allow it more with --budget-usd, leave tasks out of it, or name a cheaper model with --model"
    )
