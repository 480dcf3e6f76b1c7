"""What the latest runs of a team tell: how long its workers take, and which tasks found a passage of an archive."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from chargehand.engine.events import Entry, StepFinished
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, Roster
from chargehand.errors import Corrupt
from chargehand.journal.protocol import RunRow
from chargehand.models.artifacts import Passages
from chargehand.runtime.stats import MAX_RUNS, health
from chargehand.server.api.shapes import PassageUse, PassageUses
from chargehand.server.tenants import Tenant

_LATEST = 2**53


async def _latest_rows(tenant: Tenant, team: str) -> list[RunRow]:
    rows = await tenant.journal.latest(before=_LATEST, limit=MAX_RUNS)
    return [row for row in rows if row.request is not None and row.request.team == team]


async def _read(tenant: Tenant, rows: Sequence[RunRow]) -> list[tuple[str, list[Entry]]]:
    """The entries of runs by name; a damaged run is left out: the others tell enough."""
    runs: list[tuple[str, list[Entry]]] = []
    for row in rows:
        with suppress(Corrupt):
            runs.append((row.run, await tenant.journal.read(row.run)))
    return runs


# --- how long workers take, for forecasts of what has not begun

_MAX_TIMED_RUNS = 20
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
            medians = self._medians[team] = _Medians(now, await self._find(team, now))
        return medians.by_worker

    async def _find(self, team: str, now: Instant) -> Mapping[str, Seconds]:
        rows = await _latest_rows(self._tenant, team)
        small = [row for row in rows if row.ended is not None and row.seq <= _MAX_ENTRIES]
        lines = health(await _read(self._tenant, small[:_MAX_TIMED_RUNS]), now, driven=())
        return {line.name: line.median for line in lines if line.what == "worker" and line.median is not None}


def _with_median(agent: Agent, medians: Mapping[str, Seconds]) -> Agent:
    if agent.seconds is not None or agent.name not in medians:
        return agent
    return structs.replace(agent, seconds=medians[agent.name])


# --- which tasks found a passage

_MAX_SEARCHED_RUNS = 100


class _Returned(Struct):
    """What a search of archives returned, as its step has it."""

    value: Passages


async def find_uses(tenant: Tenant, team: str, passage: str) -> PassageUses:
    """The searches that found a passage, the latest first."""
    rows = (await _latest_rows(tenant, team))[:_MAX_SEARCHED_RUNS]
    uses = [use for run, entries in await _read(tenant, rows) for use in _uses_in(run, entries, passage)]
    return PassageUses(tuple(sorted(uses, key=lambda use: use.at, reverse=True)), len(rows))


def _uses_in(run: str, entries: list[Entry], passage: str) -> Iterator[PassageUse]:
    wanted = passage.encode()
    for entry in entries:
        event = entry.event
        if not isinstance(event, StepFinished) or wanted not in bytes(event.result):
            continue  # most results need not be decoded
        with suppress(msgspec.ValidationError):  # another tool, which returned a text with this id in it
            returned = msgspec.json.decode(event.result, type=_Returned).value
            for hit in returned.found:
                if hit.id == passage:
                    yield PassageUse(
                        run=run,
                        task=event.task,
                        attempt=event.attempt,
                        at=entry.at,
                        query=returned.query,
                        score=hit.score,
                    )
