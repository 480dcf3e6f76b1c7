"""A dispatcher whose other processes are runners of their own on the same journal, in this process."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.errors import Refused
from chargehand.journal.protocol import Journal
from chargehand.runtime.nested import requests_around
from chargehand.runtime.runner import Runner
from chargehand.team import Team


class Elsewhere:
    """Drives what it is told to begin with `far`, the runner of the same team in another process."""

    def __init__(self, journal: Journal, jobs: asyncio.TaskGroup) -> None:
        self.journal = journal
        self.far: Runner | None = None
        self.begun: list[tuple[str, str]] = []
        self.told: list[tuple[str, ev.Event]] = []
        self._jobs = jobs
        self._driving: dict[str, asyncio.Task[None]] = {}

    async def begin(self, run: str, *, queue: str) -> None:
        self.begun.append((run, queue))
        self._drive(run)

    async def tell(self, run: str, event: ev.Event) -> None:
        self.told.append((run, event))
        runner = await self._runner(run)
        while (job := self._driving.get(run)) is not None and not job.done() and run not in runner.under_way:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)  # it is being taken up
        if replay(await self.journal.read(run)).ended is not None:
            raise Refused(f"run {run!r} has ended")
        if run in runner.under_way:
            await runner.ask(run, event)
        else:
            self._drive(run, event)
            await self.wait(run)

    async def wait(self, run: str) -> None:
        job = self._driving.get(run)
        if job is not None:
            await asyncio.wait({job})

    def kill(self, run: str) -> None:
        """End the process that drives a run, in an orderly way; another takes the run up at the next `begin`."""
        self._driving.pop(run).cancel()

    async def _runner(self, run: str) -> Runner:
        assert self.far is not None, "the other process is up"
        requested = (await self.journal.row(run)).request
        assert requested is not None, "it was created"
        parents = [request.parent for request in await requests_around(self.journal, requested, {})]
        return self.far.inside([parent.worker for parent in parents if parent is not None and parent.kind == "team"])

    def _drive(self, run: str, *events: ev.Event) -> None:
        job = self._driving.get(run)
        if job is None or job.done():
            self._driving[run] = self._jobs.create_task(self._drive_to_end(run, events))

    async def _drive_to_end(self, run: str, events: tuple[ev.Event, ...]) -> None:
        runner = await self._runner(run)
        with suppress(Refused):  # it has ended
            await runner.resume(run, *events, quiet=True)

    def stop(self) -> None:
        for job in self._driving.values():
            job.cancel()


@asynccontextmanager
async def two_processes(
    make_team: Callable[[], Team],
    journal: Journal,
    *,
    far_journal: Journal | None = None,
    dispatcher: type[Elsewhere] = Elsewhere,
) -> AsyncGenerator[tuple[Runner, Elsewhere]]:
    """A runner of a team, and the dispatcher that has runs driven by the same team in another process.

    That one has the same journal open as `far_journal`.
    """
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        elsewhere = dispatcher(journal, jobs)
        near = await stack.enter_async_context(make_team().executor())
        far = await stack.enter_async_context(make_team().executor())
        elsewhere.far = Runner(far_journal or journal, far, dispatcher=elsewhere)
        yield Runner(journal, near, dispatcher=elsewhere), elsewhere
        elsewhere.stop()
