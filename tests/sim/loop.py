"""An asyncio loop on which time is a number: no sockets, no waiting, the same every time."""

import asyncio
from collections.abc import Callable
from typing import Any


class Deadlock(AssertionError):
    """Nothing is ready and nothing is scheduled: somebody waits for ever."""


class StepLimit(AssertionError):
    """The loop turned too often: something spins."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, start: float = 0.0, most_steps: int = 200_000) -> None:
        super().__init__()
        self.now = start
        self.steps = 0
        self.most_steps = most_steps
        self.on_idle: Callable[[], None] | None = None
        self._selector = self
        self._clock_resolution = 1e-9

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            raise Deadlock("nothing is ready and nothing is scheduled")
        if timeout > 0:
            if self.on_idle is not None:
                self.on_idle()
            self.now += timeout
        return ()

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a function at once: while a thread worked, time would run on."""
        return call_at_once(self, func, *args)

    def __del__(self, _warn: object = None) -> None:
        pass  # it holds nothing that would need closing

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > self.most_steps:
            raise StepLimit(f"more than {self.most_steps} turns")
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - asyncio's own name


def call_at_once(loop: asyncio.AbstractEventLoop, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Call a function that would run in a thread; return a future that has its outcome."""
    future = loop.create_future()
    try:
        future.set_result(func(*args))
    except Exception as error:  # noqa: BLE001 - whoever awaits the future gets it
        future.set_exception(error)
    return future
