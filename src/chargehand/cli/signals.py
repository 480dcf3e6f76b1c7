"""Ctrl-C and SIGTERM stop a command in order: what it has by then is kept. And driving a run under them."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeAlias, TypeVar

from chargehand.cli.exit_codes import Interrupted, Terminated
from chargehand.concurrency import BareTaskGroup
from chargehand.journal.protocol import Journal
from chargehand.journal.store import open_journal
from chargehand.runtime.executor import Executor, Listener
from chargehand.runtime.run_loop import TextListener
from chargehand.runtime.runner import Outcome, Runner
from chargehand.sqlite.connection import Durability

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


@contextmanager
def deferred_interrupts() -> Generator[Callable[[], None]]:
    """Ctrl-C interrupts nothing while the block lasts, but is raised where the function that is given is called."""
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    def raise_pressed() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, press)
    try:
        yield raise_pressed
    finally:
        signal.signal(signal.SIGINT, before)


# --- a run

Act: TypeAlias = Callable[[Runner, Journal], Coroutine[None, None, Outcome]]
Leave: TypeAlias = Callable[[], object]
Beside: TypeAlias = Callable[[Runner, Leave], Coroutine[None, None, None]]


async def drive_run(
    act: Act,
    *,
    executor: Callable[[], AbstractAsyncContextManager[Executor]],
    journal: Path,
    durability: Durability,
    listener: Listener,
    on_text: TextListener,
    beside: Sequence[Beside] = (),
) -> Outcome | None:
    """Do `act`; None if it was left where it stands.

    What goes on `beside` may leave the run, and is stopped when the run is over.
    """
    opened = await open_journal(journal, durability=durability)
    try:
        async with executor() as opened_executor, BareTaskGroup() as jobs:
            runner = Runner(opened, opened_executor, listener=listener, on_text=on_text)
            run = jobs.create_task(act(runner, opened))
            company = [jobs.create_task(accompany(runner, run.cancel)) for accompany in beside]
            await asyncio.wait({run})
            for job in company:
                job.cancel()
        return None if run.cancelled() else run.result()
    finally:
        await opened.close()
