"""Drives the runs of jobs in this process: the side of a worker that no engine knows."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from chargehand.concurrency import BareTaskGroup
from chargehand.dispatch.dispatcher import JobDispatcher, jobs_of
from chargehand.dispatch.engine import Job
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, Fenced, RunBusy, RunUnknown
from chargehand.journal.protocol import Journal

logger = logging.getLogger(__name__)
_RETRY: Seconds = 0.25
GRACE: Seconds = 1.0
"""What a process has to release a run when the engine takes it for dead, and the store does not: it may be frozen."""
SILENCE: Seconds = 60.0
"""For how long a process waits for a store that does not answer before it leaves its runs to others."""


class DrivenTenant(Protocol):
    """A tenant whose runs can be driven here."""

    @property
    def journal(self) -> Journal: ...

    @property
    def dispatcher(self) -> JobDispatcher: ...

    async def drive(self, run: str, *, steal: bool) -> bool:
        """Drive a run; whether it has ended. Otherwise it needs a person."""
        ...


class JobHost(Protocol):
    """What runs are driven with in this process."""

    async def of(self, tenant: str) -> DrivenTenant: ...

    @property
    def busy(self) -> int:
        """How many runs are driven here, runs inside others too, that do more than wait for other runs."""
        ...

    @property
    def waiting(self) -> int:
        """How many only wait for other runs."""
        ...

    async def drain(self, patience: Seconds) -> None:
        """Begin nothing more in any run; back when no call is under way, at most `patience` later."""
        ...


class JobStopped(ChargehandError):
    """The engine: this process stops, or does not reach the store; give the job to another one at once."""


class JobFailed(ChargehandError):
    """The engine: runs of the job could not be driven; try again later."""


class JobDriver:
    """Does jobs. `slots` is how many runs are driven at once.

    The engine cannot know that a process which it hears of has lost the store. So after `silence` the process gives up
    its jobs, and takes none until the store answers again. `grace` is what a process that is taken for dead has to
    release a run before it is taken by force.
    """

    def __init__(
        self,
        host: JobHost,
        queues: Sequence[str],
        *,
        slots: int,
        silence: Seconds = SILENCE,
        grace: Seconds = GRACE,
    ) -> None:
        self._host = host
        self._silence = silence
        self._grace = grace
        self._watch: asyncio.Task[None] | None = None
        self._store_answers = True
        self._under_way: set[asyncio.Task[object]] = set()
        self._opening = 0
        """Jobs whose runs are being looked up. Each takes a slot meanwhile."""
        self._drives: set[asyncio.Task[None]] = set()
        """One for each run of a job here, those too that are being claimed."""
        self.queues = tuple(dict.fromkeys(queues))
        self.slots = slots
        self.draining = False

    @property
    def free(self) -> int:
        """Runs that only wait for others take no slot: else those might find none, and all would wait for ever."""
        if self.draining or not self._store_answers:
            return 0
        return self.slots - self._opening - max(self._host.busy, self.driving - self._host.waiting)

    @property
    def driving(self) -> int:
        """How many runs of jobs are here."""
        return len(self._drives)

    async def do(self, job: Job, *, attempt: int) -> None:
        """Drive the runs of a job. An `attempt` after the first means that its process is taken for dead."""
        task = asyncio.current_task()
        assert task is not None, "it is called by a task"
        reason = self._why_not()
        if not reason and self.free < 1:  # jobs of several queues may come at once
            reason = "this process has no free slot"
        if reason:
            raise JobStopped(reason)
        self._under_way.add(task)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_store(job.tenant))
        try:
            await self._do(job, attempt)
        except asyncio.CancelledError:
            if reason := self._why_not():
                task.uncancel()
                raise JobStopped(reason) from None
            raise
        finally:
            self._under_way.discard(task)

    def _why_not(self) -> str:
        """Why no job can be done here; empty if it can."""
        if self.draining:
            return "this process stops"
        return "" if self._store_answers else "this process does not reach the store"

    async def _watch_store(self, tenant: str) -> None:
        """From the first job on: notice when the store does not answer, and when it does again."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while self._under_way or not self._store_answers:
            try:
                async with asyncio.timeout(self._silence / 4):
                    await jobs_of((await self._host.of(tenant)).journal).settled(())
                answered = loop.time()
                self._store_answers = True
            except (TimeoutError, ChargehandError) as error:
                if self._store_answers and loop.time() - answered > self._silence:
                    logger.warning(
                        "%d jobs are left to other processes: %s", len(self._under_way), error or "no answer"
                    )
                    self._store_answers = False
                    for task in self._under_way:
                        task.cancel()
            await asyncio.sleep(self._silence / 12)
        self._watch = None

    async def drain(self, patience: Seconds) -> None:
        """Take no more jobs, let the calls under way end, and leave all runs for other processes."""
        self.draining = True
        await self._host.drain(patience)
        logger.info("stopping: %d runs are handed over to other processes", self.driving)
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(tuple(self._under_way))

    async def _do(self, job: Job, attempt: int) -> None:
        self._opening += 1
        try:
            tenant = await self._host.of(job.tenant)
            runs = await jobs_of(tenant.journal).open_runs(job.id)
        finally:
            self._opening -= 1
        here = runs[: max(1, self.free)]
        failures: list[str] = []
        async with BareTaskGroup() as drives:
            for run in here:
                drive = drives.create_task(self._drive(tenant, run, job, attempt, failures))
                self._drives.add(drive)
                drive.add_done_callback(self._drives.discard)
            if len(runs) > len(here):
                await tenant.dispatcher.move(runs[len(here) :], job)
        if failures:
            raise JobFailed("; ".join(failures[:5]))

    async def _drive(self, tenant: DrivenTenant, run: str, job: Job, attempt: int, failures: list[str]) -> None:
        try:
            has_ended = await self._take(tenant, run, is_retry=attempt > 1)
            if not has_ended:
                await self._park(tenant, run, job)
        except (RunBusy, RunUnknown, Fenced) as error:
            logger.info("run %s is left alone: %s", run, error)  # a living process drives it, or it was deleted
        except ChargehandError as error:
            if not await _has_ended(tenant.journal, run):
                failures.append(f"{run}: {error}")
                logger.warning("run %s cannot be driven: %s", run, error)

    async def _take(self, tenant: DrivenTenant, run: str, *, is_retry: bool) -> bool:
        """Drive a run. In a retry, one that is still held is taken by force after a grace."""
        until = asyncio.get_running_loop().time() + self._grace
        if is_retry:
            logger.info("run %s is taken over: another process gave it back, or was silent", run)
        while True:
            is_late = asyncio.get_running_loop().time() >= until
            try:
                return await tenant.drive(run, steal=is_retry and is_late)
            except RunBusy:
                if not is_retry or is_late:
                    raise
            await asyncio.sleep(min(_RETRY, self._grace))

    async def _park(self, tenant: DrivenTenant, run: str, job: Job) -> None:
        """Take a run that needs a person out of its job. A command may have come just before: then it goes on."""
        await jobs_of(tenant.journal).park(run, job.id)
        commands = tenant.journal.commands
        if commands is not None and await commands.open(run):
            await tenant.dispatcher.begin(run, queue=job.queue)


async def _has_ended(journal: Journal, run: str) -> bool:
    try:
        return (await journal.row(run)).ended is not None
    except ChargehandError:
        return False
