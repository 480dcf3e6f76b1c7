"""The time of a run: follows the wall clock, but never goes back and never jumps while a process lives."""

import time
from collections.abc import Callable
from typing import TypeAlias

from chargehand.engine.policy import Instant

Clock: TypeAlias = Callable[[], Instant]


def steady(wall: Clock = time.time, ticks: Clock = time.monotonic, *, least: Instant = 0.0) -> Clock:
    """A clock that starts at the wall's time, or at `least` if the wall was set back, and then only ticks."""
    return _SteadyClock(max(wall(), least), ticks).now


class _SteadyClock:
    __slots__ = ("_first", "_start", "_ticks")

    def __init__(self, start: Instant, ticks: Clock) -> None:
        self._start = start
        self._ticks = ticks
        self._first = ticks()

    def now(self) -> Instant:
        return self._start + (self._ticks() - self._first)
