"""How long the workers of a team take, by its latest runs: for forecasts of what has not begun."""

import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct, structs

from chargehand.engine.events import Entry
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, Roster
from chargehand.errors import Corrupt
from chargehand.runtime.stats import MAX_RUNS, health
from chargehand.server.tenants import Tenant

_LATEST = 2**53
_MAX_OF_TEAM = 20
_MAX_ENTRIES = 2000  # of a run that is read: larger ones would hold up other calls
_FRESH: Seconds = 60.0


class _Medians(Struct, frozen=True):
    at: Instant
    by_worker: Mapping[str, Seconds]


class WorkerTimes:
    """Medians of the latest 20 runs of each team, read at most once a minute. `tenant.part(WorkerTimes)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._medians: dict[str, _Medians] = {}

    async def fill_in(self, team: str, roster: Roster) -> Roster:
        """The roster with the median of each worker whose time the team does not state."""
        medians = await self._of(team)
        return structs.replace(roster, agents=tuple(_with_median(agent, medians) for agent in roster.agents))

    async def _of(self, team: str) -> Mapping[str, Seconds]:
        now = time.time()
        medians = self._medians.get(team)
        if medians is None or not medians.by_worker or not 0 <= now - medians.at < _FRESH:
            medians = self._medians[team] = _Medians(now, await self._read(team, now))
        return medians.by_worker

    async def _read(self, team: str, now: Instant) -> Mapping[str, Seconds]:
        journal = self._tenant.journal
        rows = await journal.latest(before=_LATEST, limit=MAX_RUNS)
        small = [row for row in rows if row.ended is not None and row.seq <= _MAX_ENTRIES]
        names = [row.run for row in small if row.request is not None and row.request.team == team]
        runs: list[tuple[str, list[Entry]]] = []
        for name in names[:_MAX_OF_TEAM]:
            with suppress(Corrupt):  # the others tell enough
                runs.append((name, await journal.read(name)))
        lines = health(runs, now, driven=())
        return {line.name: line.median for line in lines if line.what == "worker" and line.median is not None}


def _with_median(agent: Agent, medians: Mapping[str, Seconds]) -> Agent:
    if agent.seconds is not None or agent.name not in medians:
        return agent
    return structs.replace(agent, seconds=medians[agent.name])
