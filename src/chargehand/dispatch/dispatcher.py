"""Has the runs of one tenant driven by the processes of a deployment, through an engine and a journal they share."""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from chargehand.dispatch.batching import Batcher
from chargehand.dispatch.engine import Engine, Job, slices
from chargehand.engine.events import Event
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid, RunBusy, StoreUnavailable
from chargehand.journal.protocol import Jobs, Journal, UndrivenRun
from chargehand.runtime.commands import send_command
from chargehand.runtime.dispatch_port import queue_of

logger = logging.getLogger(__name__)
_LOOK: Seconds = 5.0
"""How often it is asked how a run stands that is waited for, should a notice be lost."""


class JobDispatcher:
    """A `Dispatcher`. The job of a run is recorded before it is started, so no run is in two jobs."""

    def __init__(self, engine: Engine, journal: Journal, tenant: str) -> None:
        self._engine = engine
        self._journal = journal
        self._jobs = jobs_of(journal)
        self._tenant = tenant
        self._queues: dict[str, Batcher[str, bool]] = {}
        self._settled = Batcher(self._look_up_settled)

    async def begin(self, run: str, *, queue: str) -> None:
        if queue not in self._queues:
            self._queues[queue] = Batcher(partial(self._begin_all, queue))
        await self._queues[queue].ask(run)

    async def tell(self, run: str, event: Event) -> None:
        async def resume() -> None:
            await self.begin(run, queue=await self._queue_of(run))

        await send_command(self._journal, run, event, resume)

    async def wait(self, run: str) -> None:
        changed = asyncio.Event()
        notices = self._journal.notices
        unsubscribe = None if notices is None else notices.subscribe(run, changed.set, own=True)
        try:
            while not await self._settled.ask(run):
                try:
                    await asyncio.wait_for(changed.wait(), _LOOK)
                except TimeoutError:
                    continue
                finally:
                    changed.clear()
        finally:
            if unsubscribe is not None:
                unsubscribe()

    async def move(self, runs: Sequence[str], job: Job) -> None:
        """Put runs of a job into another one, for a process that has room for them."""
        await self._start_all(job.queue, runs, instead_of=job.id)

    async def start_again(self, undriven: Sequence[UndrivenRun]) -> None:
        """Have runs driven whose job was lost or never made. Nothing happens where it waits or goes on."""
        recorded: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in undriven:
            if row.job is None:
                await self.begin(row.run, queue=row.queue)
            else:
                recorded[row.queue, row.job].append(row.run)
        for (queue, job), runs in recorded.items():
            await self._start(Job(job, self._tenant, queue, tuple(runs)))

    async def _begin_all(self, queue: str, runs: Sequence[str]) -> Mapping[str, bool]:
        await self._start_all(queue, runs, instead_of=None)
        return dict.fromkeys(runs, True)

    async def _start_all(self, queue: str, runs: Sequence[str], instead_of: str | None) -> None:
        for part in slices(runs):
            new = f"{self._engine.deployment}:{self._tenant}:{part[0]}:{secrets.token_hex(4)}"
            assigned = await self._jobs.assign(part, new, queue=queue, instead_of=instead_of)
            by_job: dict[str, list[str]] = defaultdict(list)
            for run, job in assigned.items():
                by_job[job].append(run)
            for job, members in by_job.items():
                await self._start(Job(job, self._tenant, queue, tuple(members)))

    async def _start(self, job: Job) -> None:
        """Start a job that is recorded: should the engine not answer, the reconciler starts it."""
        try:
            await self._engine.start(job)
        except StoreUnavailable as error:
            logger.warning("%d runs wait until they can be given to the engine: %s", len(job.runs), error)

    async def _queue_of(self, run: str) -> str:
        request = (await self._journal.row(run)).request
        queue = "" if request is None else queue_of(request)
        if not queue:
            raise RunBusy(f"run {run!r} is driven by no worker; its server goes on with it, or another one")
        return queue

    async def _look_up_settled(self, runs: Sequence[str]) -> Mapping[str, bool]:
        settled = await self._jobs.settled(runs)
        return {run: run in settled for run in runs}


def jobs_of(journal: Journal) -> Jobs:
    """The jobs of a journal; Invalid for one that the processes of a deployment cannot share."""
    if journal.jobs is None:
        raise Invalid("an engine needs a store that all processes share; name one: --store postgresql://USER@HOST/NAME")
    return journal.jobs
