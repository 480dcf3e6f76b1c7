"""A run and what it writes, in one loop: it goes on while it is read, and stops when the reader leaves."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager, suppress
from types import AsyncGeneratorType

from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.journal.protocol import Journal
from chargehand.runtime.approving import OnApproval
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner


async def follow(
    journal: Journal,
    executor: Executor,
    run: str,
    request: ev.RunRequested,
    also: Sequence[ev.Event] = (),
    on_approval: OnApproval | None = None,
) -> AsyncGenerator[ev.Entry]:
    """Start a run and yield its entries once they are written, until it has ended or waits for a person.

    Leaving early stops it; it can be resumed. What the runner raises is raised after the last entry.
    """
    line: asyncio.Queue[Sequence[ev.Entry]] = asyncio.Queue()
    trouble: list[Exception] = []

    async def drive() -> None:
        try:
            driver = Runner(
                journal, executor, listener=lambda _run, entries: line.put_nowait(entries), on_approval=on_approval
            )
            await driver.start(run, request, also=also)
        except Exception as error:  # noqa: BLE001 - raised below: from a group it would cancel the reader
            trouble.append(error)
        finally:
            line.put_nowait(())

    async with BareTaskGroup() as jobs:  # that the reader left must reach it as such
        job = jobs.create_task(drive())
        try:
            while entries := await line.get():
                for entry in entries:
                    yield entry
        finally:
            job.cancel()
    if trouble:
        raise trouble[0]


_LEAVING = 10.0
"""How many seconds a stream that was left has to stop its run."""


class _Reading:
    """A stream that holds its run. `closed` is set when it has let go of it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = asyncio.Event()


class OpenStreams:
    """The streams of a team, by run, so that a run whose stream was left can be resumed at once.

    Leaving `async for` does not close a generator: Python does so later, and not at all while a variable holds it.
    """

    def __init__(self) -> None:
        self._generators: weakref.WeakValueDictionary[str, AsyncGenerator[ev.Entry]] = weakref.WeakValueDictionary()
        self._readings: dict[str, _Reading] = {}

    def remember(self, run: str, entries: AsyncGenerator[ev.Entry]) -> None:
        self._generators[run] = entries

    @contextmanager
    def reading(self, run: str) -> Generator[None]:
        """Within the generator of a stream: while it may hold the run."""
        reading = self._readings[run] = _Reading()
        try:
            yield
        finally:
            reading.closed.set()
            if self._readings.get(run) is reading:
                del self._readings[run]

    async def close_left(self, run: str) -> None:
        """Close the stream of a run if it is not read any more, and wait until the run is released."""
        reading = self._readings.get(run)
        if reading is None or reading.loop is not asyncio.get_running_loop():
            return
        entries = self._generators.get(run)
        if entries is None:  # it is not referenced, so Python is closing it
            with suppress(TimeoutError):
                await asyncio.wait_for(reading.closed.wait(), _LEAVING)
        elif isinstance(entries, AsyncGeneratorType) and not entries.ag_running:
            await entries.aclose()
