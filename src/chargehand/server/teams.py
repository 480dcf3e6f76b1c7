"""The teams of a tenant: loaded from their files when it is opened, their executors ready from the first run on.

A team's memory is the tenant's, whatever its file says: two tenants with the same team share nothing.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct, structs

from chargehand.config.load import load_team
from chargehand.config.source import find_team
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget, Ledger, usd_of
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Seconds
from chargehand.evals.report_files import reports_folder
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, checked
from chargehand.server.tenants import Tenant
from chargehand.server.wire import unknown
from chargehand.team import Team

_MANY = 2**53  # a cap that is never reached


class Bounds(Struct, frozen=True):
    """What one run may use, where that is less than its team may; `approve`: a person must agree to its plan."""

    budget: Budget = Budget()
    seconds: Seconds | None = None
    approve: bool | None = None

    def around(self, team: Team) -> Team:
        if self == USUAL:
            return team
        seconds = team.timeout if self.seconds is None else min(team.timeout, self.seconds)
        policy = team.policy if self.approve is None else structs.replace(team.policy, approve=self.approve)
        return team.bounded(budget=team.budget.limited(self.budget.caps), timeout=seconds, policy=policy)

    def describe_cuts(self, team: Team) -> str:
        """What is asked for beyond what the team may use, and what is granted instead; empty if nothing is."""
        pairs = (
            ("seconds", self.seconds, team.timeout),
            ("budget.usd", self.budget.usd, team.budget.usd),
            ("budget.tokens", self.budget.tokens, team.budget.tokens),
            ("budget.calls", self.budget.calls, team.budget.calls),
        )
        cuts: list[str] = []
        for name, wanted, allowed in pairs:
            if wanted is not None and allowed is not None and wanted > allowed:
                cuts.append(f"{name} is {allowed:.12g}, not {wanted:.12g}")
        return f"{', '.join(cuts)}: that is the most team {team.name} may use" if cuts else ""


USUAL = Bounds()


class NewRun(Struct, frozen=True):
    """A run to start. `also` are events appended with the request."""

    goal: str
    bounds: Bounds
    plan: Plan | None = None
    also: tuple[ev.Event, ...] = ()
    labels: Mapping[str, str] = {}


class ServedTeam:
    """A team that takes requests. `enforceable` has a budget that its executor can enforce."""

    def __init__(self, tenant: Tenant, team: Team, executor: Executor, enforceable: Team) -> None:
        self.team = team
        self.executor = executor
        self.runner = tenant.open_runner(executor, tenant.on_entries, tenant.on_words)
        self._tenant = tenant
        self._enforceable = enforceable

    async def keep_budget(self, bounds: Bounds = USUAL) -> Team:
        """The team within these bounds, with a budget that can be enforceable."""
        return await bounds.around(self.team).keep_budget(self._tenant.finder)

    async def begin(self, new: NewRun, run: str = "", seed: int | None = None) -> str:
        """Begin a run; its name, when it is on disk."""
        self._tenant.runs.check()
        now = time.time()
        team = await self.keep_budget(new.bounds)
        wanted = structs.replace(team.request(new.goal, now, plan=new.plan, seed=seed), labels=dict(new.labels))
        request = checked(wanted, now)
        name = run or self.new_name()
        await self.start(team, request, name, *new.also)
        return name

    async def start(self, team: Team, request: ev.RunRequested, run: str, *also: ev.Event) -> "asyncio.Future[Outcome]":
        """Start a run with a request that was checked; back when it is on disk, with what will become of it."""
        request = self._tenant.redact(request)
        events = (*also, *await team.offered(self._tenant.journal, request))
        clean_events = [self._tenant.redact(event) for event in events]
        return await self._tenant.runs.begin(run, lambda: self.runner.start(run, request, also=clean_events))

    def new_name(self) -> str:
        return f"{self.team.name}-{secrets.token_hex(6)}"

    async def resume(self, run: str, first: ev.Entry, *answers: ev.Event) -> "asyncio.Future[Outcome]":
        """Resume a run that no process drives. `first` is its first entry."""
        if isinstance(first.event, ev.RunRequested):
            self._enforceable.check_recorded(first.event.budget)
            self._tenant.stats.runs.follow(run, first.event, first.at)
        clean_answers = [self._tenant.redact(answer) for answer in answers]
        return await self._tenant.runs.begin(run, lambda: self.runner.resume(run, *clean_answers))


class _Kind(Struct, frozen=True):
    """What the executor of a team is made for: one that nothing is capped for does not reckon."""

    team: str
    capped: bool
    priced: bool


def _kind(team: str, budget: Budget) -> _Kind:
    return _Kind(team, Ledger(budget).capped, budget.usd is not None)


class Teams:
    """The teams of one tenant, by name; the bundled one where none are named. `tenant.part(Teams)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._stack = AsyncExitStack()
        self._served: dict[_Kind, ServedTeam] = {}
        self._lock = asyncio.Lock()
        settings = tenant.settings
        self.teams: dict[str, Team] = {}
        self._report_folders: dict[str, Path] = {}
        for path in settings.teams or (None,):
            team = load_team(path, model=settings.model, elsewhere=tenant.stores.memory)
            self.teams[team.name] = team
            self._report_folders[team.name] = reports_folder(find_team(path)).absolute()
        tenant.stack.push_async_callback(self._stack.aclose)

    def get(self, name: str) -> Team:
        """404, with the names that are alike, if there is none of this name."""
        team = self.teams.get(name)
        if team is None:
            raise unknown("team", name, self.teams)
        return team

    def report_folder(self, name: str) -> Path:
        """Where `chargehand eval` saves the reports of a team; 404 as for `get`."""
        return self._report_folders[self.get(name).name]

    async def of(self, name: str, budget: Budget | None = None) -> ServedTeam:
        """A team with its executor. `budget` is what a run may use, where that is less than the team may."""
        team = self.get(name)
        kind = _kind(name, team.budget if budget is None else team.budget.limited(budget.caps))
        if kind not in self._served:
            async with self._lock:
                if kind not in self._served:
                    self._served[kind] = await self._serve(team, kind)
        return self._served[kind]

    async def _serve(self, team: Team, kind: _Kind) -> ServedTeam:
        enforceable = team
        if kind != _kind(team.name, team.budget):
            caps = Budget(tokens=_MANY if kind.capped else None, usd=usd_of(_MANY) if kind.priced else None)
            enforceable = team.bounded(budget=team.budget.limited(caps.caps))
        enforceable = await enforceable.keep_budget(self._tenant.finder)
        executor = await self._stack.enter_async_context(enforceable.executor(self._tenant.finder))
        return ServedTeam(self._tenant, team, executor, enforceable)
