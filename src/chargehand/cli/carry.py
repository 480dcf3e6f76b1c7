"""Carry one run in this process: the journal, the crew, whatever goes on beside it, Ctrl-C and SIGTERM."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

from chargehand.agents.crew import Crew
from chargehand.cli.terminated import Interruption, Termination
from chargehand.cli.verbs import Interrupted
from chargehand.errors import ChargehandError, StoreUnavailable
from chargehand.runtime.drive import Listener, Whisper
from chargehand.runtime.driver import Driver, Outcome
from chargehand.stores.database import Durability
from chargehand.stores.sqlite import SqliteJournal

Act: TypeAlias = Callable[[Driver, SqliteJournal], Awaitable[Outcome]]
Leave: TypeAlias = Callable[[], object]
Beside: TypeAlias = Callable[[Driver, Leave], Coroutine[None, None, None]]


def carry(
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
