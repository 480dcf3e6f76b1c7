"""Runs that a crash or a stop left open go on by themselves, so many at once, when their house is opened.

Those that wait for a person, or were paused, are left as they are. Runs inside runs are gone on with by the run that
waits for them. How a door goes on with its own is its business.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence

from chargehand.core.fold import replay
from chargehand.core.state import RunState
from chargehand.errors import ChargehandError, Refused
from chargehand.server.letta.sessions import Sessions
from chargehand.server.problem import Problem
from chargehand.server.settings import check_tenant
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant, Tenants
from chargehand.stores.reader import open_runs
from chargehand.terms.events import RunRequested

logger = logging.getLogger(__name__)

_PART = 2
"""Recovery takes every so manieth place: who calls meanwhile is served too."""
_TRIES = 100


class Recovery:
    """What became of the open runs of one house. `house.part(Recovery)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.resumed = 0
        self.left: dict[str, str] = {}
        """Runs that nobody here can go on with, and why."""

    async def of_teams(self) -> None:
        """Go on with what teams have open; back when all of it has ended or waits for somebody."""
        found = deque(await self._open())
        hands = max(1, self._tenant.settings.limits.runs // _PART)
        async with asyncio.TaskGroup() as jobs:
            for _ in range(min(hands, len(found))):
                jobs.create_task(self._work_off(found))
        if self.left:
            named = "; ".join(f"{run}: {why}" for run, why in list(self.left.items())[:20])
            logger.warning("%d open runs are left as they are (%s)", len(self.left), named)

    async def _open(self) -> list[tuple[str, RunRequested]]:
        """Runs and what was asked, in the order in which they were begun."""
        rows = [row for row in await self._tenant.journal.runs() if row.type != "run.ended"]
        found: list[tuple[str, RunRequested]] = []
        for row in sorted(rows, key=lambda one: one.started):
            try:
                state = replay(await self._tenant.journal.read(row.run))
            except ChargehandError as error:
                self.left[row.run] = str(error)
                continue
            if state.requested.team and goes_on(state):
                found.append((row.run, state.requested))
        return found

    async def _work_off(self, found: deque[tuple[str, RunRequested]]) -> None:
        while found:
            run, asked = found.popleft()
            try:
                await self._resume(run, asked)
            except Problem as problem:
                self.left[run] = problem.detail
            except ChargehandError as error:
                if not isinstance(error, Refused):  # else somebody was faster, which is as well
                    self.left[run] = str(error)

    async def _resume(self, run: str, asked: RunRequested) -> None:
        teams = self._tenant.part(Teams)
        if asked.team not in teams.teams:
            self.left[run] = f"its team {asked.team!r} is not served any more"
            return
        served = await teams.of(asked.team, asked.budget)
        for _ in range(_TRIES):
            try:
                done = await served.resume(run)
                self.resumed += 1
                await asyncio.shield(done)
            except Problem as problem:
                if problem.status != 429 or problem.after is None:
                    raise
                await asyncio.sleep(problem.after)
            else:
                return
        self.left[run] = "there was no place for it; it goes on when the server is started again"


def goes_on(state: RunState) -> bool:
    """Whether an open run of nobody else's can go on without a person."""
    if state.requested.parent is not None or state.paused or state.ended is not None:
        return False
    startable = state.approved and bool(state.lanes)
    return state.input is None or bool(state.owing or state.timers or startable)


async def recover(tenant: Tenant) -> None:
    """What there is to do in a house that was opened."""
    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(_tried(tenant, tenant.part(Recovery).of_teams()))
        jobs.create_task(_tried(tenant, tenant.part(Sessions).resume_all()))


async def _tried(tenant: Tenant, work: Awaitable[object]) -> None:
    """What stops one door must not stop the others."""
    try:
        await work
    except Exception:
        logger.exception("not every open run of %s was gone on with", tenant.name)


async def reopen(tenants: Tenants) -> None:
    """Open every house in which something is open, one after the other."""
    for tenant in await asyncio.to_thread(_unfinished, tenants):
        try:
            await tenants.of(tenant)
        except ChargehandError as error:
            logger.warning("the house of %s cannot be opened: %s", tenant, error)


def _unfinished(tenants: Tenants) -> Sequence[str]:
    found: list[str] = []
    for journal in sorted(tenants.settings.data.glob("*/runs.db")):
        try:
            check_tenant(journal.parent.name)
            if open_runs(journal):
                found.append(journal.parent.name)
        except ChargehandError as error:
            logger.warning("%s cannot be read: %s", journal, error)
    return found
