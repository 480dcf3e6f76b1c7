"""Ctrl-C and SIGTERM stop a command in order: what it has by then is kept. And running a command under them."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeAlias, TypeVar

from chargehand.agents.crew import Crew
from chargehand.cli.exit_codes import Interrupted, Terminated
from chargehand.errors import ChargehandError, StoreUnavailable
from chargehand.runtime.drive import Listener, Whisper
from chargehand.runtime.driver import Driver, Outcome
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal

_T = TypeVar("_T")
_ONE = 1.0  # seconds within which several count as one: `timeout` sends it to the process and to its group
_ONE_PRESS = 0.2  # the same for Ctrl-C, which an impatient person presses twice


class Termination:
    """What SIGTERM does while the block lasts. A second one, later, ends the process at once.

    Before something is run here Terminated is raised, as KeyboardInterrupt would be. What runs is cancelled. After that
    nothing happens, so that what came of it can be written.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._first: float | None = None
        self._ran = False
        self._cancel: Callable[[], None] | None = None
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> "Termination":
        self._before = signal.signal(signal.SIGTERM, self._end)
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def run(self, main: Coroutine[None, None, _T]) -> _T:
        """Like asyncio.run; Terminated where SIGTERM cut it short, or had come before."""
        self._ran = True
        try:
            return asyncio.run(self._cancellable(main))
        except asyncio.CancelledError:
            if self._first is None:
                raise
            raise Terminated from None

    async def _cancellable(self, main: Coroutine[None, None, _T]) -> _T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None, "asyncio.run makes one"

        def cancel() -> None:
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)  # it may be asleep

        self._cancel = cancel
        try:
            if self._first is not None:
                main.close()
                raise asyncio.CancelledError
            return await main
        finally:
            self._cancel = None

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        now = self._ticks()
        if self._first is not None:
            if now - self._first > _ONE:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            return
        self._first = now
        if self._cancel is not None:
            self._cancel()
        elif not self._ran:
            raise Terminated


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


class Interruption:
    """What Ctrl-C does while the block lasts: the first stops what is bound, a later one ends the process at once.

    `announce` is called in the event loop after the first one. `farewell` is written to standard error before the
    process ends; it must be safe to show. Where Ctrl-C is ignored, it stays so.
    """

    def __init__(
        self, announce: Callable[[], None], farewell: str, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._announce = announce
        self._farewell = farewell
        self._ticks = ticks
        self._first: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] = lambda: None
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    @property
    def pressed(self) -> bool:
        return self._first is not None

    def __enter__(self) -> "Interruption":
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def bind(self, stop: Callable[[], object]) -> None:
        """From now on the first Ctrl-C calls `stop` in the running event loop; one that came before does so now."""
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        if self.pressed:
            self._stop_bound()

    def _stop_bound(self) -> None:
        self._announce()
        self._stop()

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        # a signal may come in the middle of a write: nothing is printed here but with the system's own call
        now = self._ticks()
        if self._first is None:
            self._first = now
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop_bound)
        elif now - self._first > _ONE_PRESS:
            cursor = "\x1b[?25h" if os.isatty(2) else ""  # a picture that moves may have hidden it
            with suppress(OSError):
                os.write(2, f"{cursor}{self._farewell}\n".encode(errors="backslashreplace"))
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


Act: TypeAlias = Callable[[Driver, SqliteJournal], Awaitable[Outcome]]
Leave: TypeAlias = Callable[[], object]
Beside: TypeAlias = Callable[[Driver, Leave], Coroutine[None, None, None]]


def run_until_stopped(
    act: Act,
    *,
    crew: Callable[[], AbstractAsyncContextManager[Crew]],
    journal: Path,
    durability: Durability,
    listener: Listener,
    whisper: Whisper,
    interruption: Interruption,
    termination: Termination,
    beside: Sequence[Beside] = (),
) -> Outcome | None:
    """Do `act`; None if it was left where it stands.

    The first Ctrl-C and SIGTERM leave the run where it stands, too: they raise Interrupted and Terminated. What goes on
    `beside` may leave the run, and is stopped when the run is over.
    """
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{journal.parent} cannot be made: {error.strerror}; name another --journal") from error

    async def main() -> Outcome | None:
        task = asyncio.current_task()
        assert task is not None, "asyncio.run makes one"
        interruption.bind(task.cancel)
        opened = await SqliteJournal.open(journal, durability=durability)
        try:
            async with crew() as hired:
                driver = Driver(opened, hired, listener=listener, whisper=whisper)
                return await _accompany(lambda: act(driver, opened), driver, beside)
        finally:
            await opened.close()

    with interruption:
        try:
            return termination.run(main())
        except asyncio.CancelledError:
            if not interruption.pressed:
                raise
            raise Interrupted from None


async def _accompany(act: Callable[[], Awaitable[Outcome]], driver: Driver, beside: Sequence[Beside]) -> Outcome | None:
    """Do `act` with company; what it raises is raised bare, which a group of jobs would wrap."""
    trouble: ChargehandError | None = None
    outcome: Outcome | None = None

    async def do() -> None:
        nonlocal outcome, trouble
        try:
            outcome = await act()
        except ChargehandError as error:
            trouble = error
        finally:
            for job in company:
                job.cancel()

    async with asyncio.TaskGroup() as jobs:
        company: list[asyncio.Task[None]] = []
        doing = jobs.create_task(do())
        company += [jobs.create_task(accompany(driver, doing.cancel)) for accompany in beside]
    if trouble is not None:
        raise trouble
    return outcome
