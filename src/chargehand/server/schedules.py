"""Runs that the schedules of team files begin, for the first tenant.

A time is begun once: its run has a key made of team, schedule and time, so servers that share a store, and a server
that restarts, find the run that was begun. After a restart the last time of the past ten minutes is made up for.
"""

import asyncio
import logging
import time

from chargehand.agents.schedules import Schedule
from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import ChargehandError
from chargehand.server.extension import TenantClient
from chargehand.server.routing import ApiCaller
from chargehand.server.settings import FIRST
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenants
from chargehand.server.wire import Problem

LABEL = "schedule"
"""The label of a run that holds the schedule which began it."""
_MADE_UP: Seconds = 600.0
_LOOK: Seconds = 30.0
_TRIES = 10
_PAUSE: Seconds = 15.0

logger = logging.getLogger(__name__)


async def run_schedules(tenants: Tenants) -> None:
    """Begin the runs of all schedules, each at its time, until cancelled."""
    tenant = await tenants.of(FIRST)
    client = TenantClient(tenant, ApiCaller(FIRST, scope="run", name=LABEL), LABEL)
    async with asyncio.TaskGroup() as jobs:
        for team in tenant.part(Teams).teams.values():
            for schedule in team.schedules:
                jobs.create_task(_follow(client, team.name, schedule))


async def _follow(client: TenantClient, team: str, schedule: Schedule) -> None:
    missed = schedule.latest_time(time.time(), _MADE_UP)
    if missed is not None:
        await _begin(client, team, schedule, missed)
    at = schedule.next_time(time.time())
    while True:
        wait = at - time.time()
        if wait > 0:
            await asyncio.sleep(min(wait, _LOOK))  # in pieces: the clock may be set meanwhile
            continue
        await _begin(client, team, schedule, at)
        at = schedule.next_time(max(at, time.time()))


async def _begin(client: TenantClient, team: str, schedule: Schedule, at: Instant) -> None:
    """Begin the run of one time; where the server is full or the store is away, again a few times."""
    key = f"{team}/{schedule.name}/{int(at)}"
    for _ in range(_TRIES):
        try:
            begun = await client.begin(team, schedule.request, key=key, labels={LABEL: schedule.name})
        except (Problem, ChargehandError) as error:
            logger.warning("schedule %s of team %s could not begin its run: %s", schedule.name, team, error)
            await asyncio.sleep(_PAUSE)
        else:
            if not begun.replayed:
                logger.info("schedule %s of team %s began run %s", schedule.name, team, begun.run)
            return
