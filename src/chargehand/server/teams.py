"""The teams of a tenant: loaded from their files when it is opened, their executors ready from the first run on.

A team's memory is the tenant's, whatever its file says: two tenants with the same team share nothing.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from chargehand.agents.background import MAX_RUNS, DueRun, background_request, find_due
from chargehand.agents.webhooks import Webhook
from chargehand.config.load import load_team
from chargehand.config.python_objects import is_python_name
from chargehand.config.source import find_team
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget, Ledger, usd_of
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Seconds
from chargehand.engine.roster import Agent
from chargehand.errors import Invalid, Refused, RunBusy
from chargehand.evals.report_files import reports_folder
from chargehand.runtime.approving import Callbacks
from chargehand.runtime.dispatch_port import Dispatcher, queue_of
from chargehand.runtime.executor import Executor
from chargehand.runtime.files import with_material
from chargehand.runtime.nested import requests_around
from chargehand.runtime.runner import Outcome, Runner, checked, outcome
from chargehand.server.settings import TeamSource
from chargehand.server.tenant_runs import retry_when_full
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, unknown
from chargehand.team import Team
from chargehand.trace_context import TRACEPARENT

logger = logging.getLogger(__name__)

_MAX_OUTER_REQUESTS = 1000
_MANY = 2**53  # a cap that is never reached
_RETIRED_FOR: Seconds = 30.0
"""How long the executor of a team that was replaced stays open at least: a run may be about to begin on it."""


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
    material: tuple[ev.Material, ...] = ()
    """What it is given besides the goal."""
    answer_format: ev.AnswerFormat | None = None
    """What the caller takes as an answer; None: what the team says."""
    scope: str = ""
    """Whose earlier turns its workers are shown (`memory.conversations.scope_of`)."""


class ServedTeam:
    """A team that takes requests. `enforceable` has a budget that its executor can enforce."""

    def __init__(
        self, tenant: Tenant, team: Team, executor: Executor, enforceable: Team, stack: AsyncExitStack
    ) -> None:
        self.team = team
        self.stack = stack
        """Closes the executor."""
        self.executor = executor
        callbacks = None if team.on_approval is None else Callbacks(team.on_approval, on_error=_log_error)
        self.runner = tenant.open_runner(executor, tenant.on_entries, tenant.on_words, callbacks)
        self._tenant = tenant
        self._enforceable = enforceable

    async def keep_budget(self, bounds: Bounds = USUAL) -> Team:
        """The team within these bounds, with a budget that can be enforceable."""
        return await bounds.around(self.team).keep_budget(self._tenant.finder)

    async def begin(self, new: NewRun, run: str = "", seed: int | None = None) -> str:
        """Begin a run; its name, when it is on disk."""
        self._tenant.runs.check()
        if any(item.file is not None for item in new.material):
            self.team.check_takes_files()
        now = time.time()
        team = await self.keep_budget(new.bounds)
        wanted = team.request(new.goal, now, plan=new.plan, seed=seed)
        wanted = structs.replace(
            wanted,
            labels=dict(new.labels),
            scope=new.scope,
            answer_format=new.answer_format or wanted.answer_format,
        )
        request = checked(with_material(wanted, new.material), now)
        name = run or self.new_name()
        await self.start(team, request, name, *new.also)
        return name

    async def start(self, team: Team, request: ev.RunRequested, run: str, *also: ev.Event) -> "asyncio.Future[Outcome]":
        """Start a run with a request that was checked; back when it is on disk, with what will become of it."""
        request = self._tenant.redact(_traced(request))
        events = (*also, *await team.offered(self._tenant.journal, request))
        clean_events = [self._tenant.redact(event) for event in events]
        if not request.turns:  # nobody asked for a background run
            await self._owe_webhooks(run)
        dispatcher = self._tenant.dispatcher
        if dispatcher is None:
            outcome = await self._tenant.runs.begin(run, lambda: self.runner.start(run, request, also=clean_events))
            return self._look_back_after(request, outcome)
        await self._check_backlog()
        request = structs.replace(request, queue=queue_of(request))
        await self.runner.create(run, request, also=clean_events)
        await dispatcher.begin(run, queue=request.queue)
        outcome = self._tenant.runs.watch(partial(self._wait_elsewhere, dispatcher, run))
        return self._look_back_after(request, outcome)

    def _look_back_after(
        self, request: ev.RunRequested, outcome: "asyncio.Future[Outcome]"
    ) -> "asyncio.Future[Outcome]":
        """Have background workers look back on a run when it is over, unless it is one of theirs."""
        if self.team.background_agents and not request.turns:
            outcome.add_done_callback(lambda _: self._tenant.part(BackgroundWork).look_back(self))
        return outcome

    async def _owe_webhooks(self, run: str) -> None:
        """Before the run begins: from then on its webhooks are called, whatever happens to this process."""
        deliveries = self._tenant.journal.deliveries
        keys = [webhook_key(self.team.name, webhook) for webhook in self.team.webhooks]
        if keys and deliveries is not None:
            await deliveries.add(run, keys, time.time())

    async def _check_backlog(self) -> None:
        """Raise 429 where the tenant has too many runs open already: with an engine the store is their queue."""
        jobs = self._tenant.journal.jobs
        most = self._tenant.settings.limits.backlog
        if jobs is not None and await jobs.count_open(most=most) >= most:
            detail = f"{most} runs of this tenant are open already; nothing was begun: try again later"
            raise Problem(429, "overloaded", detail, after=5.0)

    def new_name(self) -> str:
        return f"{self.team.name}-{secrets.token_hex(6)}"

    async def resume(self, run: str, first: ev.Entry, *answers: ev.Event) -> "asyncio.Future[Outcome]":
        """Resume a run that no process drives. `first` is its first entry."""
        if isinstance(first.event, ev.RunRequested):
            self._enforceable.check_recorded(first.event.budget)
            self._tenant.stats.runs.follow(run, first.event, first.at)
        clean_answers = [self._tenant.redact(answer) for answer in answers]
        dispatcher = self._tenant.dispatcher
        if not isinstance(first.event, ev.RunRequested):
            return await self._tenant.runs.begin(run, lambda: self.runner.resume(run, *clean_answers))
        if dispatcher is None:
            outcome = await self._tenant.runs.begin(run, lambda: self.runner.resume(run, *clean_answers))
            return self._look_back_after(first.event, outcome)
        for answer in clean_answers:
            await dispatcher.tell(run, answer)
        if not clean_answers:
            await dispatcher.begin(run, queue=queue_of(first.event))
        outcome = self._tenant.runs.watch(partial(self._wait_elsewhere, dispatcher, run))
        return self._look_back_after(first.event, outcome)

    async def drive(self, run: str, first: ev.Entry, *, steal: bool) -> Outcome:
        """Drive a run here that the engine has given to this process."""
        if isinstance(first.event, ev.RunRequested):
            self._enforceable.check_recorded(first.event.budget)
            self._tenant.stats.runs.follow(run, first.event, first.at)
        return await self.runner.resume(run, steal=steal)

    async def _wait_elsewhere(self, dispatcher: Dispatcher, run: str) -> Outcome:
        """What came of a run that another process drives."""
        await dispatcher.wait(run)
        return outcome(run, replay(await self._tenant.journal.read(run)))


class BackgroundWork:
    """Starts the background runs of a tenant's teams, one after the other in each team."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._teams: dict[str, bool] = {}
        """The teams whose background workers are at work, and whether another run ended meanwhile."""

    def look_back(self, served: ServedTeam) -> None:
        """Start what is due for a team now that one of its runs is over."""
        name = served.team.name
        is_at_work = name in self._teams
        if self._tenant.runs.closing:
            return
        self._teams[name] = True
        if not is_at_work:
            self._tenant.start_background(self._work(served, name))

    async def _work(self, served: ServedTeam, name: str) -> None:
        try:
            while self._teams[name]:
                self._teams[name] = False
                for agent, every in served.team.background_agents:
                    await self._run_due(served, agent, every)
        finally:
            del self._teams[name]

    async def _run_due(self, served: ServedTeam, agent: Agent, every: int) -> None:
        for _ in range(MAX_RUNS):
            due = await find_due(self._tenant.journal, served.team.name, agent.name, every)
            if due is None:
                return
            try:
                outcome = await asyncio.shield(await retry_when_full(lambda due=due: self._start(served, agent, due)))
            except RunBusy:  # another process drives it
                return
            except (Refused, Problem) as error:  # its name is taken, or the server stops
                logger.warning("background run %s of team %s: %s", due.run, served.team.name, error)
                return
            if outcome.ending not in ("complete", "partial"):  # it is tried again after the next run
                logger.warning("background run %s: %s (%s)", outcome.run, outcome.ending, outcome.reason)
                return

    async def _start(self, served: ServedTeam, agent: Agent, due: DueRun) -> "asyncio.Future[Outcome]":
        journal = self._tenant.journal
        if due.resumes:
            return await served.resume(due.run, (await journal.read(due.run))[0])
        team = await served.keep_budget()
        request = await background_request(team, journal, agent, due)
        return await served.start(team, request, due.run, *team.budget_notes())


def _log_error(run: str, error: Exception) -> None:
    logger.error("run %s: on_approval failed, so a person must answer instead", run, exc_info=error)


def webhook_key(team: str, webhook: Webhook) -> str:
    """What the store calls a webhook."""
    return f"{team}/{webhook.name}"


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
CALLER_TRACE: ContextVar[str] = ContextVar("chargehand_caller_trace", default="")
"""The header `traceparent` of the HTTP call that is answered: a run that it starts belongs to that trace."""


def _traced(request: ev.RunRequested) -> ev.RunRequested:
    """The request with the trace of the call that makes it, unless its labels name one."""
    trace = CALLER_TRACE.get()
    if TRACEPARENT in request.labels or not _TRACEPARENT.fullmatch(trace):
        return request
    return structs.replace(request, labels={**request.labels, TRACEPARENT: trace})


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
        self._served: dict[_Kind, ServedTeam] = {}
        self._outer_requests: dict[str, ev.RunRequested] = {}
        """Of runs that runs driven here are inside of: many may be inside one."""
        self._outer_lock = asyncio.Lock()
        self._lock = asyncio.Lock()
        settings = tenant.settings
        self.teams: dict[str, Team] = {}
        self._report_folders: dict[str, Path] = {}
        self._names: dict[TeamSource | None, str] = {}
        self._retired: list[tuple[Seconds, ServedTeam]] = []
        for source in settings.teams or (None,):
            self._add(source, self._load(source))
        tenant.stack.push_async_callback(self._close)

    def _load(self, source: TeamSource | None) -> Team:
        memory = self._tenant.stores.memory
        if isinstance(source, Team):
            return source.remembering_in(always=memory)
        return load_team(source, model=self._tenant.settings.model, elsewhere=memory)

    def _add(self, source: TeamSource | None, team: Team) -> None:
        if team.name in self.teams and self._names.get(source) != team.name:
            where = "" if isinstance(source, Team) else f"{source}: "
            raise Invalid(f"{where}another team is called {team.name!r}, too; give one of them another name")
        for webhook in team.webhooks:
            webhook.secret(self._tenant.lookup)  # one that is missing is told before anybody calls
        if team.name not in self.teams:
            self._log_remembering(team)
        self._names[source] = team.name
        self.teams[team.name] = team
        team_file = None if isinstance(source, Team) or is_python_name(source) else find_team(source)
        self._report_folders[team.name] = reports_folder(team_file).absolute()

    def _log_remembering(self, team: Team) -> None:
        """Log whose earlier tasks the workers of a team are shown, where they remember any."""
        if not (names := [worker.name for worker in team.spec.workers if worker.remembers]):
            return
        logger.warning(
            "team %s: %s %s earlier tasks; runs with a label `session` or `user` are kept apart by it, others %s",
            team.name,
            " and ".join(names),
            "remembers" if len(names) == 1 else "remember",
            "share one conversation, since no key is asked for"
            if self._tenant.settings.unlocked
            else "by the key of the caller",
        )

    async def reload(self, source: Path | str | None) -> Team:
        """Load a team anew. New runs have it from now on; those that are under way keep the one they have."""
        team = await asyncio.to_thread(self._load, source)
        before = self._names[source]
        self._add(source, team)
        if team.name != before:
            del self.teams[before]
        now = asyncio.get_running_loop().time()
        for kind in [kind for kind in self._served if kind.team == before]:
            self._retired.append((now, self._served.pop(kind)))
        return team

    async def close_retired(self) -> None:
        """Close the executors of teams that were replaced, once their runs are over."""
        now = asyncio.get_running_loop().time()
        for since, served in tuple(self._retired):
            if now - since > _RETIRED_FOR and not served.runner.under_way:
                self._retired.remove((since, served))
                self._tenant.runners.remove(served.runner)
                await served.stack.aclose()

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:  # all of them, whichever fails
            for served in (*self._served.values(), *(served for _, served in self._retired)):
                stack.push_async_callback(served.stack.aclose)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues whose runs can be driven with these teams."""
        return tuple(sorted({queue for team in self.teams.values() for queue in team.queues}))

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

    async def runner_of(self, run: str, requested: ev.RunRequested) -> Runner:
        """The runner to drive a run with: of a team, of a team inside it, or of a worker with a queue of either.

        Refused if none of the teams here is one of those that the run belongs to.
        """
        if len(self._outer_requests) > _MAX_OUTER_REQUESTS:
            self._outer_requests.clear()
        async with self._outer_lock:  # runs of one moment are mostly inside the same ones
            requests = await requests_around(self._tenant.journal, requested, self._outer_requests)
        for number, request in enumerate(requests, 1):
            if request.team in self.teams:
                served = await self.of(request.team, request.budget)
                parents = [inner.parent for inner in requests[number:] if inner.parent is not None]
                return served.runner.inside([parent.worker for parent in parents if parent.kind == "team"])
        teams = ", ".join(dict.fromkeys(repr(request.team) for request in requests if request.team)) or "no team"
        raise Refused(
            f"run {run!r} belongs to {teams}, which is not loaded here; start this process with its team file"
        )

    async def _serve(self, team: Team, kind: _Kind) -> ServedTeam:
        enforceable = team
        if kind != _kind(team.name, team.budget):
            caps = Budget(tokens=_MANY if kind.capped else None, usd=usd_of(_MANY) if kind.priced else None)
            enforceable = team.bounded(budget=team.budget.limited(caps.caps))
        enforceable = await enforceable.keep_budget(self._tenant.finder)
        async with AsyncExitStack() as stack:
            executor = await stack.enter_async_context(enforceable.executor(self._tenant.finder))
            return ServedTeam(self._tenant, team, executor, enforceable, stack.pop_all())
