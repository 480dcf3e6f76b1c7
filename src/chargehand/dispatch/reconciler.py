"""Starts the open runs that no process drives: runs whose job was never started, or which the engine has lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chargehand.dispatch.dispatcher import JobDispatcher, jobs_of
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError
from chargehand.journal.protocol import Journal

logger = logging.getLogger(__name__)
INTERVAL: Seconds = 15.0
_MAX_RUNS = 1000
"""The most runs of a tenant that are looked at in one round: the oldest."""


async def reconcile(journal: Journal, dispatcher: JobDispatcher) -> int:
    """One round for a tenant; how many runs were found that no process drives."""
    undriven = await jobs_of(journal).undriven(limit=_MAX_RUNS)
    await dispatcher.start_again(undriven)
    return len(undriven)


async def keep_reconciling(
    is_turn: Callable[[], Awaitable[bool]], reconcile_all: Callable[[], Awaitable[None]]
) -> None:
    """Rounds for ever. `is_turn` says whether this process is the one that does the next round."""
    while True:
        await asyncio.sleep(INTERVAL)
        try:
            if await is_turn():
                await reconcile_all()
        except ChargehandError as error:
            logger.warning("open runs were not looked at: %s", error)
