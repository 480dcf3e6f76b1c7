"""Temporal as the engine: a job is a standalone activity with the names of its runs, and nothing else of them.

There are no workflows, so nothing is replayed. Temporal tells which process is dead (heartbeats), gives its jobs to
others and shares queues between tenants; what a run has done is in the journal alone.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import cache
from importlib.metadata import version
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import ActivityIDConflictPolicy, Priority, RetryPolicy
from temporalio.envconfig import ClientConfigProfile
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RetryConfig, RPCError, RPCStatusCode
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerTuner,
)

from chargehand.dispatch.engine import EngineUrl, Job, QueueDriver
from chargehand.dispatch.heartbeats import Beat, Heartbeats
from chargehand.dispatch.job_driver import JobFailed, JobStopped
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid, StoreUnavailable

logger = logging.getLogger(__name__)
ACTIVITY = "chargehand.drive.v1"
_LONGEST = timedelta(days=30)
_RPC_TIMEOUT = timedelta(seconds=10)
RETRY_TIME: Seconds = 10.0
"""How long a call is repeated while no server listens at the address."""
_AT_ONCE = timedelta(milliseconds=1)
FIRST_RETRY: Seconds = 0.2
"""After how long a job that failed for the first time is done again; each later time after twice as long."""
_LONGEST_RETRY = timedelta(seconds=10)
_QUIET = ApplicationErrorCategory.BENIGN
"""Of errors that were logged here: Temporal's library logs all others with their traceback, for each attempt."""
_STOPPING: Seconds = 30.0
"""What a worker has for its shutdown after it was drained."""
_LOOK: Seconds = 0.02
_POLLERS = 2
_NO_NAMESPACE = "NamespaceNotFoundFailure"
"""How the server calls the missing of a namespace in the details of an error."""
_MAX_SUMMARY = 200


class TemporalEngine:
    """One deployment on a Temporal server. `await TemporalEngine.connect(...)` gives one."""

    def __init__(
        self, client: Client, url: EngineUrl, deployment: str, *, heartbeat: Seconds, first_retry: Seconds
    ) -> None:
        self.client = client
        self._url = url
        self._heartbeat = timedelta(seconds=heartbeat)
        self._retries = RetryPolicy(
            initial_interval=timedelta(seconds=first_retry), backoff_coefficient=2.0, maximum_interval=_LONGEST_RETRY
        )
        self.deployment = deployment

    @classmethod
    async def connect(
        cls,
        url: EngineUrl,
        *,
        deployment: str,
        heartbeat: Seconds = 15.0,
        retry_time: Seconds = RETRY_TIME,
        first_retry: Seconds = FIRST_RETRY,
    ) -> "TemporalEngine":
        """Invalid if the server cannot do what is needed of it. TLS and API keys: as Temporal reads the environment."""
        try:
            client = await _connect(url, retry_time)
        except RuntimeError as error:
            raise StoreUnavailable(f"{url} cannot be reached; start Temporal, or correct --engine ({error})") from error
        engine = cls(client, url, deployment, heartbeat=heartbeat, first_retry=first_retry)
        await engine._check()
        return engine

    async def _check(self) -> None:
        """Ask for a job that there is not: only a server that knows jobs says so."""
        try:
            await self.client.get_activity_handle(f"{self.deployment}:none").describe(rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            is_namespace_missing = any(detail.type_url.endswith(_NO_NAMESPACE) for detail in error.grpc_status.details)
            if error.status != RPCStatusCode.NOT_FOUND or is_namespace_missing:
                raise self.explain(error) from error

    async def start(self, job: Job) -> None:
        try:
            await self.client.start_activity(
                ACTIVITY,
                args=[job.tenant, list(job.runs)],
                id=job.id,
                task_queue=self.task_queue(job.queue),
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=self._heartbeat,
                retry_policy=self._retries,
                id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
                priority=Priority(fairness_key=job.tenant),
                summary=", ".join(job.runs)[:_MAX_SUMMARY],
                rpc_timeout=_RPC_TIMEOUT,
            )
        except RPCError as error:
            raise self.explain(error) from error

    def task_queue(self, queue: str) -> str:
        return f"{self.deployment}-{queue}"

    @asynccontextmanager
    async def serving(self, driver: QueueDriver) -> AsyncGenerator[None]:
        """Do the jobs of its queues. Drain the driver before leaving: what is under way then is cut."""
        heartbeats = Heartbeats(self._open_beat, pulse=self._heartbeat.total_seconds() / 4)
        workers = [self._worker(queue, driver, heartbeats) for queue in driver.queues]
        async with heartbeats.watching(), asyncio.TaskGroup() as jobs:
            for worker in workers:
                jobs.create_task(worker.run())
            try:
                yield
            finally:
                async with asyncio.TaskGroup() as stopping:
                    for worker in workers:
                        stopping.create_task(worker.shutdown())

    async def _open_beat(self) -> Beat:
        """Heartbeats over a connection of the event loop that calls this."""
        client = await _connect(self._url)

        async def beat(token: bytes) -> None:
            await client.get_async_activity_handle(task_token=token).heartbeat(rpc_timeout=_RPC_TIMEOUT)

        return beat

    def _worker(self, queue: str, driver: QueueDriver, heartbeats: Heartbeats) -> Worker:
        slots = _Slots(driver)
        tuner = WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(1),
            activity_supplier=slots,
            local_activity_supplier=FixedSizeSlotSupplier(1),
            nexus_supplier=FixedSizeSlotSupplier(1),
        )
        return Worker(
            self.client,
            task_queue=self.task_queue(queue),
            identity=process_identity(os.getpid(), socket.gethostname()),
            activities=[_activity(queue, driver, slots, heartbeats, self._heartbeat.total_seconds() / 6)],
            tuner=tuner,
            build_id=version(
                "chargehand"
            ),  # else Temporal reads every module of the process to make one, which takes seconds
            max_concurrent_activity_task_polls=_POLLERS,
            max_heartbeat_throttle_interval=self._heartbeat / 4,
            default_heartbeat_throttle_interval=self._heartbeat / 4,
            graceful_shutdown_timeout=timedelta(seconds=_STOPPING),
        )

    def explain(self, error: RPCError) -> Invalid | StoreUnavailable:
        """The error that an operator can act on."""
        if error.status == RPCStatusCode.UNIMPLEMENTED:
            return Invalid(
                f"{self._url} has no standalone activities, which carry runs ({error.message}); use Temporal 1.32 or "
                "newer, and set activity.enableStandalone to true in its dynamic configuration if that is off"
            )
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
            return Invalid(f"{self._url} cannot be used: {error.message}; name another namespace in --engine")
        return StoreUnavailable(f"{self._url} does not answer: {error.message}")


def process_identity(pid: int, host: str) -> str:
    """The name under which a process asks for jobs."""
    return f"{pid}@{host}"


@cache
def _runtime() -> Runtime:
    """The library's own core. Its warnings are logged like all others: by itself it writes them to standard error."""
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    logs = LoggingConfig(levels, LogForwardingConfig(logging.getLogger(f"{__name__}.core")))
    return Runtime(telemetry=TelemetryConfig(logging=logs))


async def _connect(url: EngineUrl, retry_time: Seconds = RETRY_TIME) -> Client:
    settings = ClientConfigProfile.load(disable_file=True).to_client_connect_config()
    settings["target_host"] = url.address
    settings["namespace"] = url.namespace
    # with the usual time, these are the values of the library
    retries = RetryConfig(
        initial_interval_millis=round(10 * retry_time),
        max_interval_millis=round(500 * retry_time),
        max_elapsed_time_millis=round(1000 * retry_time),
    )
    return await Client.connect(**settings, retry_config=retries, runtime=_runtime())


def _activity(
    queue: str, driver: QueueDriver, slots: "_Slots", heartbeats: Heartbeats, pulse: Seconds
) -> Callable[[str, list[str]], Coroutine[Any, Any, None]]:
    @activity.defn(name=ACTIVITY)
    async def drive(tenant: str, runs: list[str]) -> None:
        info = activity.info()
        job = Job(info.activity_id, tenant, queue, tuple(runs))
        async with _beating(heartbeats, info.task_token, pulse):
            try:
                with slots.working():
                    await driver.do(job, attempt=info.attempt)
            except (JobStopped, asyncio.CancelledError) as error:  # an attempt that was given up hears no answer
                raise ApplicationError(str(error) or "stopped", next_retry_delay=_AT_ONCE, category=_QUIET) from error
            except JobFailed as error:
                raise ApplicationError(str(error), category=_QUIET) from error

    return drive


@asynccontextmanager
async def _beating(heartbeats: Heartbeats, token: bytes, pulse: Seconds) -> AsyncGenerator[None]:
    """Tell the engine that this process lives while a job is done."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(pulse)

    heartbeats.add(token)
    beating = asyncio.get_running_loop().create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        heartbeats.discard(token)


class _Slots(CustomSlotSupplier):
    """The slots of one queue: as many jobs are asked for as runs can be driven now."""

    def __init__(self, driver: QueueDriver) -> None:
        self._driver = driver
        self._held = 0
        """Permits that were given, and not given back yet."""
        self._under_way = 0
        """Jobs that the driver knows of."""

    @contextmanager
    def working(self) -> Generator[None]:
        """Meanwhile, the driver counts a job itself."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002 - as the interface has it
        while self._driver.free <= self._held - self._under_way:  # noqa: ASYNC110 - it changes with every step of a run
            await asyncio.sleep(_LOOK)
        self._held += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - as above
        return None  # only workflows start activities eagerly

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        pass

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002 - as above
        self._held -= 1
