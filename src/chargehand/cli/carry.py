"""Carry one run in this process: the journal, the crew that plays the script, and Ctrl-C."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from chargehand.agents.scripted import ScriptedCrew
from chargehand.cli.script import Story
from chargehand.errors import ChargehandError, Refused, RunUnknown, StoreUnavailable
from chargehand.runtime.drive import Listener
from chargehand.runtime.driver import Driver, Outcome
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.events import CancelRequested

_AGAIN = 0.05
Act = Callable[[Driver, SqliteJournal], Awaitable[Outcome]]


def carry(
    run: str,
    act: Act,
    *,
    story: Story,
    journal: Path,
    durability: Durability,
    listener: Listener,
    warn: Callable[[int], None],
) -> Outcome:
    """Do `act`. `warn` is told of each Ctrl-C: the first cancels the run, the second ends this process at once."""
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{journal.parent} cannot be made: {error.strerror}; name another --journal") from error

    async def main() -> Outcome:
        opened = await SqliteJournal.open(journal, durability=durability)
        try:
            driver = Driver(opened, ScriptedCrew(story), listener=listener)
            return await _unless_interrupted(run, driver, lambda: act(driver, opened), warn)
        finally:
            await opened.close()

    return asyncio.run(main())


async def _unless_interrupted(
    run: str, driver: Driver, act: Callable[[], Awaitable[Outcome]], warn: Callable[[int], None]
) -> Outcome:
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def press() -> None:
        warn(2 if pressed.is_set() else 1)
        if pressed.is_set():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        pressed.set()

    loop.add_signal_handler(signal.SIGINT, press)
    try:
        return await _watched(act, _cancel_when(pressed, run, driver))
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _cancel_when(pressed: asyncio.Event, run: str, driver: Driver) -> None:
    await pressed.wait()
    while True:
        try:
            return await driver.ask(run, CancelRequested("Ctrl-C"))
        except RunUnknown:
            await asyncio.sleep(_AGAIN)  # it is about to begin, or has just ended
        except Refused:
            return None


async def _watched(act: Callable[[], Awaitable[Outcome]], watch: Coroutine[None, None, None]) -> Outcome:
    """Do `act` while watching; what it raises is raised bare, which a group of jobs would wrap."""
    trouble: ChargehandError | None = None
    found: Outcome | None = None
    async with asyncio.TaskGroup() as jobs:
        watcher = jobs.create_task(watch)
        try:
            found = await act()
        except ChargehandError as error:
            trouble = error
        finally:
            watcher.cancel()
    if found is None:
        assert trouble is not None, "it either came to something or raised"
        raise trouble
    return found
