"""Why a call is not made yet: what a view may show while nothing else happens. Nothing of it is kept."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from chargehand.engine.policy import Instant, Seconds


class Wait(Struct, frozen=True):
    """`who` is a model or a task. `until` is when the wait is over, by the wall clock; None where that is unknown."""

    who: str
    why: str
    until: Instant | None = None


_COLLECTED: ContextVar[list[Wait] | None] = ContextVar("chargehand_waits", default=None)


@contextmanager
def collect_waits() -> Generator[list[Wait]]:
    """A list that holds, at every moment, what waits in this context and in the jobs begun in it."""
    waits: list[Wait] = []
    token = _COLLECTED.set(waits)
    try:
        yield waits
    finally:
        _COLLECTED.reset(token)


@contextmanager
def waiting(who: str, why: str, seconds: Seconds | None = None) -> Generator[None]:
    """Show this wait to collectors while the block lasts."""
    waits = _COLLECTED.get()
    if waits is None:
        yield
        return
    wait = Wait(who, why, None if seconds is None else time.time() + seconds)
    waits.append(wait)
    try:
        yield
    finally:
        waits.remove(wait)
