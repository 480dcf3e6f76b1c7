"""A process as one of many: the engine it is connected to, and the jobs that it does."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec import Struct

from chargehand.dispatch.dispatcher import JobDispatcher
from chargehand.dispatch.engine import MAX_SKEW, Engine
from chargehand.dispatch.job_driver import JobDriver
from chargehand.dispatch.reconciler import INTERVAL, keep_reconciling, reconcile
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, Invalid, RunUnknown
from chargehand.extras import OfExtra
from chargehand.journal.protocol import Journal
from chargehand.server.letta.sessions import Sessions
from chargehand.server.settings import FIRST, ServerSettings
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant, Tenants

logger = logging.getLogger(__name__)


class WorkSettings(Struct, frozen=True):
    """What a process does that only drives runs."""

    queues: tuple[str, ...] = ()
    """The queues it serves; left out, those of its teams."""
    slots: int = 64
    """Runs driven at once."""


async def connect_engine(settings: ServerSettings) -> Engine:
    """The engine of the settings; Invalid if it, or the clock of this machine, cannot be used."""
    assert settings.engine is not None, "checked before"
    assert settings.store is not None, "checked before"
    with OfExtra("--engine", "cluster"):
        from chargehand.dispatch.temporal import TemporalEngine  # noqa: PLC0415 - an extra
        from chargehand.journal.postgres_jobs import read_deployment  # noqa: PLC0415 - an extra
    sent_at = time.time()
    deployment = await read_deployment(settings.store)
    check_skew(deployment.now, sent_at, time.time())
    name = settings.deployment or deployment.name
    return await TemporalEngine.connect(settings.engine, deployment=name, heartbeat=settings.heartbeat)


def check_skew(database: float, sent_at: float, answered: float) -> None:
    """Raise Invalid if the clock here, when the database was asked and when it answered, is too far from its own."""
    skew = max(sent_at - database, database - answered)
    if skew > MAX_SKEW:
        raise Invalid(
            f"the clocks of this machine and of the database differ by {skew:.1f} s, and at most {MAX_SKEW:g} s are "
            "allowed; have both set their clocks by NTP"
        )


@asynccontextmanager
async def reconciling(tenants: Tenants, reopen: Callable[[Tenants], Awaitable[None]]) -> AsyncGenerator[None]:
    """Meanwhile, start the open runs that no process drives. `reopen` opens every tenant that has open runs."""
    from chargehand.journal.postgres_jobs import take_turn  # noqa: PLC0415 - an extra

    store = tenants.settings.store
    assert store is not None, "an engine needs one"

    async def reconcile_all() -> None:
        await reopen(tenants)
        for tenant in tenants.open:
            if tenant.dispatcher is not None:
                await reconcile(tenant.journal, tenant.dispatcher)

    async with asyncio.TaskGroup() as jobs:
        rounds = jobs.create_task(keep_reconciling(partial(take_turn, store, INTERVAL * 0.9), reconcile_all))
        yield
        rounds.cancel()


@asynccontextmanager
async def resuming_agents(tenants: Tenants) -> AsyncGenerator[None]:
    """Meanwhile, go on with messages to agents whose server has died: servers drive these themselves."""

    async def keep_resuming() -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            for tenant in tenants.open:
                try:
                    await tenant.part(Sessions).resume_left()
                except ChargehandError as error:
                    logger.warning("messages to agents of %s were not looked at: %s", tenant.name, error)

    async with asyncio.TaskGroup() as jobs:
        rounds = jobs.create_task(keep_resuming())
        yield
        rounds.cancel()


@asynccontextmanager
async def working(tenants: Tenants, work: WorkSettings) -> AsyncGenerator[JobDriver]:
    """Meanwhile, do the jobs of the queues that are served here."""
    engine = tenants.engine
    assert engine is not None, "connected before"
    teams = (await tenants.of(FIRST)).part(Teams)
    for team in teams.teams:
        await teams.of(team)  # what takes long is loaded before the first job arrives
    queues = work.queues or teams.queues
    if strange := [queue for queue in queues if queue not in teams.queues]:
        logger.warning("no team here has the queue %s; theirs are %s", ", ".join(strange), ", ".join(teams.queues))
    driver = JobDriver(TenantHost(tenants), queues, slots=work.slots)
    async with engine.serving(driver):
        yield driver


class TenantHost:
    """A `JobHost` of the tenants of this process, each opened with its first job."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    async def of(self, tenant: str) -> "TenantDriver":
        return TenantDriver(await self._tenants.of(tenant))

    @property
    def busy(self) -> int:
        driven, waiting = self._count()
        return driven - waiting

    @property
    def waiting(self) -> int:
        return self._count()[1]

    def _count(self) -> tuple[int, int]:
        counts = [runner.count_waiting() for tenant in self._tenants.open for runner in tenant.runners]
        return sum(driven for driven, _ in counts), sum(waiting for _, waiting in counts)

    async def drain(self, patience: Seconds) -> None:
        async with asyncio.TaskGroup() as jobs:
            for tenant in self._tenants.open:
                for runner in tenant.runners:
                    jobs.create_task(runner.drain(patience))


class TenantDriver:
    """A `DrivenTenant`."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        assert tenant.dispatcher is not None, "jobs come from an engine"
        self.dispatcher: JobDispatcher = tenant.dispatcher
        self.journal: Journal = tenant.journal

    async def drive(self, run: str, *, steal: bool) -> bool:
        row = await self.journal.row(run)
        request = row.request
        if row.ended is not None:
            return True
        if request is None or row.first is None:
            raise RunUnknown(run)
        teams = self._tenant.part(Teams)
        if request.parent is None:
            served = await teams.of(request.team, request.budget)
            outcome = await served.drive(run, row.first, steal=steal)
        else:
            outcome = await (await teams.runner_of(run, request)).resume(run, steal=steal, quiet=True)
        return outcome.state.ended is not None
