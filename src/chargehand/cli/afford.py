"""Whether a plan can be paid for at all, said before anybody is called. How dollars are reckoned is not known here."""

import asyncio
import sys

from msgspec import structs

from chargehand.agents.money import PriceUnknown
from chargehand.agents.outlook import Outlay, Outlook
from chargehand.cli.console import Console, clean
from chargehand.cli.phrases import counted, dollars
from chargehand.errors import Invalid
from chargehand.runtime.draft import foreseen
from chargehand.team import Supervisor
from chargehand.terms.events import RunRequested

_MICROS_A_CALL = 10_000  # a call for each cent of a budget
_LEAST_CALLS = 10
EXIT = 5
"""As of a run that its budget ended."""


def keep_budget(team: Supervisor) -> Supervisor:
    """The team with a cap that can be kept: on calls instead of dollars, with a warning, where a price is unknown."""
    if team.budget.micros is None:
        return team
    try:
        asyncio.run(_open(team))
    except PriceUnknown as unknown:
        calls = max(_LEAST_CALLS, team.budget.micros // _MICROS_A_CALL)
        if team.budget.calls is not None:
            calls = min(calls, team.budget.calls)
        models = clean(" and ".join(unknown.models))
        Console(sys.stderr).prose(
            f"warning: nobody knows what {models} costs, so the budget of {dollars(team.budget.micros)} cannot be kept "
            f"in dollars; at most {counted(calls, 'call')} are made instead. --price IN/OUT says what it costs, in "
            "dollars per million tokens",
            "warn",
        )
        return team.bounded(budget=structs.replace(team.budget, usd=None, calls=calls))
    return team


async def _open(team: Supervisor) -> None:
    """Have the prices of all models looked up."""
    async with team.crew():
        return


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
