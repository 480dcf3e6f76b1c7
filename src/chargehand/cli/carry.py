"""Carry one run in this process: the journal, the crew, whatever goes on beside it, Ctrl-C and SIGTERM."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

from chargehand.agents.crew import Crew
from chargehand.cli.terminated import Termination
from chargehand.errors import ChargehandError, Refused, StoreUnavailable
from chargehand.runtime.drive import Listener, Whisper
from chargehand.runtime.driver import Driver, Outcome
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.events import CancelRequested

_AGAIN = 0.05
Act: TypeAlias = Callable[[Driver, SqliteJournal], Awaitable[Outcome]]
Leave: TypeAlias = Callable[[], object]
Beside: TypeAlias = Callable[[Driver, Leave], Coroutine[None, None, None]]


def carry(
    run: str,
    act: Act,
    *,
    crew: Callable[[], AbstractAsyncContextManager[Crew]],
    journal: Path,
    durability: Durability,
    listener: Listener,
    whisper: Whisper,
    warn: Callable[[int], None],
    termination: Termination,
    beside: Sequence[Beside] = (),
) -> Outcome | None:
    """Do `act`; None if it was left where it stands.

    `warn` is told of each Ctrl-C: the first cancels the run, the second ends this process at once. SIGTERM leaves
    the run where it stands, and raises Terminated. What goes on `beside` may leave the run, and is stopped when the run
    is over.
    """
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{journal.parent} cannot be made: {error.strerror}; name another --journal") from error

    async def main() -> Outcome | None:
        opened = await SqliteJournal.open(journal, durability=durability)
        try:
            async with crew() as hired:
                driver = Driver(opened, hired, listener=listener, whisper=whisper)
                return await _unless_interrupted(run, driver, lambda: act(driver, opened), warn, beside)
        finally:
            await opened.close()

    return termination.run(main())


async def _unless_interrupted(
    run: str,
    driver: Driver,
    act: Callable[[], Awaitable[Outcome]],
    warn: Callable[[int], None],
    beside: Sequence[Beside],
) -> Outcome | None:
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def press() -> None:
        warn(2 if pressed.is_set() else 1)
        if pressed.is_set():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        pressed.set()

    async def cancel(driver: Driver, _leave: Leave) -> None:
        await _cancel_when(pressed, run, driver)

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        return await _watched(act, driver, (cancel, *beside))
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _cancel_when(pressed: asyncio.Event, run: str, driver: Driver) -> None:
    await pressed.wait()
    while True:
        try:
            return await driver.ask(run, CancelRequested("Ctrl-C"))
        except Refused:
            await asyncio.sleep(_AGAIN)  # it is about to begin, or has just ended


async def _watched(act: Callable[[], Awaitable[Outcome]], driver: Driver, beside: Sequence[Beside]) -> Outcome | None:
    """Do `act` with company; what it raises is raised bare, which a group of jobs would wrap."""
    trouble: ChargehandError | None = None
    found: Outcome | None = None

    async def do() -> None:
        nonlocal found, trouble
        try:
            found = await act()
        except ChargehandError as error:
            trouble = error
        finally:
            for one in company:
                one.cancel()

    async with asyncio.TaskGroup() as jobs:
        company: list[asyncio.Task[None]] = []
        doing = jobs.create_task(do())
        company += [jobs.create_task(one(driver, doing.cancel)) for one in beside]
    if trouble is not None:
        raise trouble
    return found
