"""The teams of a house: loaded from their files when the house is opened, their crews ready from the first run on.

A team's memory is in the house, whatever its file says: two tenants with the same team share nothing.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.agents.crew import Crew
from chargehand.agents.nested import least
from chargehand.config.load import load_team
from chargehand.runtime.driver import Driver, Outcome, checked
from chargehand.server.problem import unknown
from chargehand.server.tenants import Tenant
from chargehand.team import Supervisor
from chargehand.terms import events as ev
from chargehand.terms.budget import Budget, Ledger, usd_of
from chargehand.terms.plan import Plan
from chargehand.terms.policy import Seconds

_MANY = 2**53  # a cap that nobody reaches
_Kind: TypeAlias = tuple[str, bool, bool]


class Bounds(Struct, frozen=True):
    """What one run may use, where that is less than its team may; `approve`: a person must agree to its plan."""

    budget: Budget = Budget()
    seconds: Seconds | None = None
    approve: bool | None = None

    def around(self, team: Supervisor) -> Supervisor:
        if self == USUAL:
            return team
        seconds = team.timeout if self.seconds is None else min(team.timeout, self.seconds)
        policy = team.policy if self.approve is None else structs.replace(team.policy, approve=self.approve)
        return team.bounded(budget=least(team.budget, self.budget), timeout=seconds, policy=policy)


USUAL = Bounds()


def load(paths: tuple[Path, ...], memory: Path, model: str = "") -> dict[str, Supervisor]:
    """Teams by name; without paths, the bundled one. Invalid, naming the file, where one cannot be loaded."""
    found = [load_team(path, model=model, elsewhere=memory) for path in paths]
    if not paths:
        found.append(load_team(None, model=model, elsewhere=memory))
    return {team.name: team for team in found}


class ServedTeam:
    """A team that takes requests. `kept` is it with a budget that can be kept, as its crew was made."""

    def __init__(self, tenant: Tenant, team: Supervisor, crew: Crew, driver: Driver, kept: Supervisor) -> None:
        self.team = team
        self.crew = crew
        self.driver = driver
        self._tenant = tenant
        self._kept = kept

    async def keep_budget(self, bounds: Bounds = USUAL) -> Supervisor:
        """The team within these bounds, with a budget that can be kept."""
        return await bounds.around(self.team).keep_budget(self._tenant.finder)

    async def begin(
        self,
        goal: str,
        run: str = "",
        *,
        bounds: Bounds = USUAL,
        plan: Plan | None = None,
        seed: int | None = None,
        also: Sequence[ev.Event] = (),
    ) -> tuple[str, "asyncio.Future[Outcome]"]:
        """Begin a run; back when it is on disk, with its name and what will become of it."""
        self._tenant.runs.check()
        now = time.time()
        team = await self.keep_budget(bounds)
        request = checked(team.request(goal, now, plan=plan, seed=seed), now)
        name = run or f"{team.name}-{secrets.token_hex(6)}"
        told = (*also, *await team.offered(self._tenant.journal, request))
        return name, await self._tenant.runs.begin(name, lambda: self.driver.start(name, request, also=told))

    async def resume(self, run: str, *answers: ev.Event) -> "asyncio.Future[Outcome]":
        """Go on with a run that nobody carries."""
        first = (await self._tenant.journal.read(run))[0]
        if isinstance(first.event, ev.RunRequested):
            self._kept.check_recorded(first.event.budget)
            self._tenant.stats.runs.follow(run, first.event, first.at)
        return await self._tenant.runs.begin(run, lambda: self.driver.resume(run, *answers))


class Teams:
    """The teams of one house. `house.part(Hall)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._stack = AsyncExitStack()
        settings = tenant.settings
        self.teams: Mapping[str, Supervisor] = load(settings.teams, tenant.folder / "memory.db", settings.model)
        self._served: dict[_Kind, ServedTeam] = {}
        self._gate = asyncio.Lock()
        tenant.stack.push_async_callback(self._stack.aclose)

    async def of(self, name: str, budget: Budget | None = None) -> ServedTeam:
        """A team with its crew; 404 if there is none of this name.

        `budget` is what a run may use, where that is less than the team may: a crew that nothing is capped for does
        not reckon, so runs with caps of their own get another.
        """
        team = self.teams.get(name)
        if team is None:
            raise unknown("team", name)
        kind = _kind(name, team.budget if budget is None else least(team.budget, budget))
        found = self._served.get(kind)
        if found is not None:
            return found
        async with self._gate:
            if kind not in self._served:
                self._served[kind] = await self._host(team, kind)
        return self._served[kind]

    async def _host(self, team: Supervisor, kind: _Kind) -> ServedTeam:
        _, capped, priced = kind
        if kind != _kind(team.name, team.budget):
            caps = Budget(tokens=_MANY if capped else None, usd=usd_of(_MANY) if priced else None)
            team = team.bounded(budget=least(team.budget, caps))
        team = await team.keep_budget(self._tenant.finder)
        crew = await self._stack.enter_async_context(team.crew(self._tenant.finder))
        driver = Driver(self._tenant.journal, crew, listener=self._tenant.heard, whisper=self._tenant.whispered)
        self._tenant.drivers.append(driver)
        return ServedTeam(tenant=self._tenant, team=self.teams[team.name], crew=crew, driver=driver, kept=team)


def _kind(name: str, budget: Budget) -> _Kind:
    return name, Ledger(budget).capped, budget.usd is not None
