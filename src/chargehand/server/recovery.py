"""Resume runs that a crash or a stop left open, a bounded number at once, when their tenant is opened.

Runs that wait for a person or are paused stay as they are. Nested runs are resumed by their parent.
"""

import asyncio
import logging
from collections.abc import Awaitable

from chargehand.engine.state import RunState
from chargehand.errors import ChargehandError, RunBusy
from chargehand.journal.store import list_open_runs
from chargehand.server.letta.sessions import Sessions
from chargehand.server.problem import Problem
from chargehand.server.run_control import read_run, resume_run
from chargehand.server.settings import check_tenant
from chargehand.server.tenant_runs import retry_when_full
from chargehand.server.tenants import Tenant, Tenants

logger = logging.getLogger(__name__)

_SHARE = 2
"""Recovery takes one in so many slots: who calls meanwhile is served too."""


class Recovery:
    """What became of the open runs of one tenant. `tenant.part(Recovery)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._slots = asyncio.Semaphore(max(1, tenant.settings.limits.runs // _SHARE))
        self.resumed = 0
        self.left: dict[str, str] = {}
        """Runs that cannot be resumed here, and why."""

    async def resume_teams(self) -> None:
        """Resume the open runs of teams; returns when each has ended or waits for a person."""
        rows = await self._tenant.journal.open_runs()
        async with asyncio.TaskGroup() as jobs:
            for row in sorted(rows, key=lambda row: row.started):
                jobs.create_task(self._resume_in_slot(row.run))
        if self.left:
            examples = "; ".join(f"{run}: {why}" for run, why in list(self.left.items())[:20])
            logger.warning("%d open runs are left as they are (%s)", len(self.left), examples)

    async def _resume_in_slot(self, run: str) -> None:
        async with self._slots:
            try:
                recorded = await read_run(self._tenant, run)
                if recorded.requested.team and goes_on(recorded.state):
                    outcome = await retry_when_full(lambda: resume_run(self._tenant, recorded))
                    self.resumed += 1
                    await asyncio.shield(outcome)
            except Problem as problem:
                self.left[run] = problem.detail
            except RunBusy:
                return  # another process drives it
            except ChargehandError as error:
                self.left[run] = str(error)


def goes_on(state: RunState) -> bool:
    """Whether an open run that no other run waits for can go on without a person."""
    if state.requested.parent is not None or state.paused or state.ended is not None:
        return False
    is_startable = state.approved and bool(state.ready_queues)
    return state.input is None or bool(state.owing or state.timers or is_startable)


async def recover(tenant: Tenant) -> None:
    """What there is to do for a tenant that was opened."""
    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(_try(tenant, tenant.part(Recovery).resume_teams()))
        jobs.create_task(_try(tenant, tenant.part(Sessions).resume_all()))


async def _try(tenant: Tenant, work: Awaitable[object]) -> None:
    """What stops one API must not stop the others."""
    try:
        await work
    except Exception:
        logger.exception("not every open run of %s was resumed", tenant.name)


async def reopen(tenants: Tenants) -> None:
    """Open every tenant that has open runs, one after the other."""
    for name in tenants.settings.tenants():
        try:
            check_tenant(name)
            if await asyncio.to_thread(list_open_runs, tenants.settings.stores(name).journal):
                await tenants.of(name)
        except ChargehandError as error:
            logger.warning("tenant %s cannot be opened: %s", name, error)
