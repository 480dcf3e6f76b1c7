"""A run and what it writes, in one loop: it goes on while somebody reads, and stops when they leave."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from chargehand.agents.crew import Crew
from chargehand.runtime.driver import Driver
from chargehand.stores.journal import Journal
from chargehand.terms import events as ev


async def follow(
    journal: Journal, crew: Crew, run: str, request: ev.RunRequested, also: Sequence[ev.Event] = ()
) -> AsyncGenerator[ev.Entry]:
    """Start a run and yield its entries once they are written, until it has ended or waits for a person.

    Whoever leaves early stops it; it can be resumed. What the driver raises is raised after the last entry.
    """
    line: asyncio.Queue[Sequence[ev.Entry]] = asyncio.Queue()
    trouble: list[Exception] = []

    async def drive() -> None:
        try:
            driver = Driver(journal, crew, listener=lambda _run, entries: line.put_nowait(entries))
            await driver.start(run, request, also=also)
        except Exception as error:  # noqa: BLE001 - raised below: from a group it would cancel whoever reads
            trouble.append(error)
        finally:
            line.put_nowait(())

    try:
        async with asyncio.TaskGroup() as jobs:
            job = jobs.create_task(drive())
            try:
                while entries := await line.get():
                    for entry in entries:
                        yield entry
            finally:
                job.cancel()
    except BaseExceptionGroup as group:  # that somebody left must reach them as such
        raise group.exceptions[0] from group
    if trouble:
        raise trouble[0]
