"""Teams: who there is, what they may use, what a plan for a goal would take; and how their workers are doing."""

import asyncio
import time
from contextlib import suppress

from chargehand.agents.draft import draft
from chargehand.engine.events import Entry
from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import Corrupt
from chargehand.runtime.stats import MAX_RUNS, health
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import (
    LATEST,
    HealthReport,
    PlanBody,
    PlanDraft,
    TeamInfo,
    TeamLimits,
    TeamList,
    WorkerInfo,
    show,
)
from chargehand.server.run_control import root_of
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.team import Team

_MAX_DRAFTS = 8
_FRESH: Seconds = 2.0


class Drafts:
    """So many plans are drafted at once; others wait. `tenant.part(Drafts)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self.turn = asyncio.Semaphore(_MAX_DRAFTS)


@operation("GET", "/api/teams")
async def list_teams(tenant: Tenant) -> TeamList:
    """The teams of this server."""
    return TeamList(tuple(map(_team_info, tenant.part(Teams).teams.values())))


@operation("GET", "/api/teams/{team}")
async def show_team(tenant: Tenant, team: str) -> TeamInfo:
    """A team: its workers, how it is led, examples, limits."""
    return _team_info(tenant.part(Teams).get(team))


def _team_info(team: Team) -> TeamInfo:
    budget = team.budget
    limits = team.policy.limits
    return TeamInfo(
        name=team.name,
        strategy=str(type(team.supervisor.strategy).__struct_config__.tag),
        workers=tuple(show(worker, WorkerInfo) for worker in team.members),
        examples=tuple(team.supervisor.examples),
        limits=TeamLimits(
            seconds=team.timeout,
            usd=budget.usd,
            tokens=budget.tokens,
            calls=budget.calls,
            max_tasks=limits.max_tasks,
            max_depth=limits.max_depth,
            width=limits.width,
        ),
        approve=team.policy.approve,
        memory=team.remembers,
        notice=team.notice,
    )


@operation("POST", "/api/teams/{team}/plan", scope="run")
async def draft_plan(tenant: Tenant, team: str, body: PlanBody) -> PlanDraft:
    """A plan for a goal, checked and reckoned; nothing is done about it."""
    served = await tenant.part(Teams).of(team)
    tenant.runs.check()
    team_in_budget = await served.keep_budget()
    async with tenant.part(Drafts).turn:
        drafted = await draft(served.executor, team_in_budget.request(body.goal, time.time()))
    return PlanDraft(
        plan=drafted.plan,
        findings=drafted.findings,
        forecast=drafted.forecast,
        unserved=drafted.unserved,
        notes=(*(note.text for note in team_in_budget.budget_notes()), *drafted.notes),
        usd=None if drafted.spent is None else drafted.spent.usd,
    )


class LatestHealth:
    """What was found last: looking again costs as much as it did. `tenant.part(LatestHealth)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._last: HealthReport | None = None

    async def look(self, now: Instant) -> HealthReport:
        if self._last is None or not 0 <= now - self._last.at < _FRESH:
            journal = self._tenant.journal
            names = [row.run for row in await journal.latest(before=LATEST, limit=MAX_RUNS)]
            runs: list[tuple[str, list[Entry]]] = []
            driven: set[str] = set()
            for name in names:
                with suppress(Corrupt):  # the others are worth a look all the same
                    entries = await journal.read(name)
                    runs.append((name, entries))
                    if self._tenant.runs.is_running(root_of(name, entries[0].event)):
                        driven.add(name)
            self._last = HealthReport(health(runs, now, driven=driven), len(runs), now)
        return self._last


@operation("GET", "/api/health/workers")
async def show_health(tenant: Tenant) -> HealthReport:
    """How workers, tools and models are doing, by the latest runs."""
    return await tenant.part(LatestHealth).look(time.time())
