"""Letting go of those who wait for a run's driver. Who waits, and for what, is the driver's business."""

import asyncio
from collections.abc import Iterable

from chargehand.errors import Refused


def release(waiting: list[asyncio.Future[None]]) -> None:
    """Let everybody on a list go on, and empty it."""
    released = list(waiting)
    waiting[:] = []
    for future in released:
        if not future.done():
            future.set_result(None)


def refuse(waiting: Iterable[asyncio.Future[None]], run: str) -> None:
    """Tell everybody that what they wait for will not come."""
    for future in waiting:
        if not future.done():
            future.set_exception(no_longer(run))


def no_longer(run: str) -> Refused:
    """What somebody hears who asks something of a run whose driver is through with it."""
    return Refused(f"run {run!r} is no longer driven here")
