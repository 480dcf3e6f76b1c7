"""Ctrl-C and SIGTERM stop a command in order: what it has by then is kept."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, TypeVar

from chargehand.cli.exit_codes import Interrupted, Terminated

_T = TypeVar("_T")
_SAME_SIGNAL = {signal.SIGINT: 0.2, signal.SIGTERM: 1.0}
"""Seconds within which several count as one: of an impatient person, and of `timeout`, which sends it twice."""


class StopSignals:
    """Ctrl-C and SIGTERM while the block lasts: the first stops what is run, a later one ends the process at once.

    Before something is run here the first is raised. What runs is cancelled. After that nothing happens, so that what
    came of it can be written. `announce` is called in the event loop after Ctrl-C. `farewell` is written to standard
    error before a second Ctrl-C ends the process; it must be safe to show. Where Ctrl-C is ignored, it stays so.
    """

    def __init__(
        self,
        announce: Callable[[], None] = lambda: None,
        farewell: str = "",
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._announce = announce
        self._farewell = farewell
        self._ticks = ticks
        self._first: float | None = None
        self._error: type[KeyboardInterrupt] = Interrupted
        self._has_run = False
        self._stop: Callable[[], object] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        for number in (signal.SIGINT, signal.SIGTERM):
            if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, main: Coroutine[None, None, _T]) -> _T:
        """Like asyncio.run; Interrupted or Terminated where a signal cut it short, or had come before."""
        self._has_run = True
        try:
            return asyncio.run(self._run_cancellable(main))
        except asyncio.CancelledError:
            if self._first is None:
                raise
            raise self._error from None

    async def _run_cancellable(self, main: Coroutine[None, None, _T]) -> _T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None, "asyncio.run makes one"

        def stop() -> None:
            if self._error is Interrupted:
                self._announce()
            task.cancel()

        self._stop = lambda: loop.call_soon_threadsafe(stop)
        try:
            if self._first is not None:
                main.close()
                raise asyncio.CancelledError
            return await main
        finally:
            self._stop = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # a signal may come in the middle of a write: nothing is printed here but with the system's own call
        now = self._ticks()
        if self._first is not None:
            if now - self._first > _SAME_SIGNAL[signal.Signals(number)]:
                self._end_process(number)
            return
        self._first = now
        self._error = Terminated if number == signal.SIGTERM else Interrupted
        if self._stop is not None:
            self._stop()
        elif not self._has_run:
            raise self._error

    def _end_process(self, number: int) -> None:
        if number == signal.SIGINT:
            cursor = "\x1b[?25h" if os.isatty(2) else ""  # a live view may have hidden it
            with suppress(OSError):
                os.write(2, f"{cursor}{self._farewell}\n".encode(errors="backslashreplace"))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
