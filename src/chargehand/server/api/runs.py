"""Runs: begin one, list them, show one. What is not on disk yet is not told."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import UNSET, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.audit.assessment import answer_tracings, cited_by_task, count_traced
from chargehand.agents.draft import PlanForecast, foreseen
from chargehand.agents.result import fallback_answer, noted_facts, planned
from chargehand.agents.run_document import (
    RunQuestion,
    State,
    explain_end,
    read_calls_in_doubt,
    read_question,
    read_state,
)
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.fold import begin, fold, replay
from chargehand.engine.forecast import forecast
from chargehand.engine.plan import Plan, title_of
from chargehand.engine.policy import Seconds
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps
from chargehand.errors import ChargehandError, Corrupt
from chargehand.journal.protocol import RunRow
from chargehand.memory.conversations import scope_of
from chargehand.runtime.files import read_files
from chargehand.runtime.trace import Tracer
from chargehand.server.api.operations import Handler, operation
from chargehand.server.api.shapes import (
    LATEST,
    AmountInfo,
    BoundedBody,
    ListChanges,
    NewRunBody,
    OpenQuestion,
    RequestBody,
    RunCreated,
    RunFilter,
    RunInfo,
    RunLimits,
    RunPage,
    RunQuery,
    RunSummary,
    TaskInfo,
    show,
)
from chargehand.server.idempotency import BegunRun, RunKey, key_of
from chargehand.server.latest_runs import WorkerTimes
from chargehand.server.routing import asker_of
from chargehand.server.run_control import read_run
from chargehand.server.streams import MEDIA_TYPE, event, streamed
from chargehand.server.teams import Bounds, NewRun, Teams
from chargehand.server.tenant_runs import root_of
from chargehand.server.tenants import Tenant
from chargehand.server.wire import reply

_MAX_KEPT = 10_000
_PAGE = 100
_MAX_LOOKED_AT = 2000
_MAX_READ = 300  # runs whose entries have to be read for one page
_GATHERED: Seconds = 0.1  # changes of the list are told so late, together
_CACHE = "cache"  # what offers results of many runs


# --- begin


def begins_run(path: str) -> Callable[[Handler], Handler]:
    """An operation that begins a run."""
    return operation("POST", path, scope="run", reply=RunCreated, creates=True)


@begins_run("/api/runs")
async def create_run(tenant: Tenant, request: Request, body: NewRunBody) -> Response:
    """Begin a run; answered when it is on disk."""

    async def begin(key: RunKey | None) -> str:
        material = await read_files(tenant.journal.files, body.files)
        scope = scope_of(body.labels, asker=asker_of(request))
        new = NewRun(body.goal, bounds_of(body), body.plan, labels=body.labels, material=material, scope=scope)
        return await begin_run(tenant, body.team, new, key)

    return await begin_once(tenant, request, body, begin)


def bounds_of(sent: BoundedBody) -> Bounds:
    caps = sent.budget
    budget = Budget() if caps is None else Budget(tokens=caps.tokens, usd=caps.usd, calls=caps.calls)
    return Bounds(budget, sent.seconds, sent.approve)


async def begin_run(tenant: Tenant, team: str, new: NewRun, key: RunKey | None) -> str:
    served = await tenant.part(Teams).of(team, new.bounds.budget)
    return await served.begin(new) if key is None else await served.begin(new, key.run, key.seed)


async def begin_once(
    tenant: Tenant, request: Request, sent: RequestBody, begin: Callable[[RunKey | None], Awaitable[str]]
) -> Response:
    """Begin a run; 201 when it is on disk. A call that is made again is answered by the run that it began.

    That is so also when its team is gone, or nothing more can be begun.
    """
    key = key_of(request, tenant, sent)
    begun = BegunRun(await begin(None)) if key is None else await key.begin(tenant, lambda: begin(key))
    entries = await tenant.journal.read(begun.run)
    first = entries[0]
    assert isinstance(first.event, ev.RunRequested), "a run begins with its request"
    team = tenant.part(Teams).teams.get(first.event.team)
    created = RunCreated(
        run=begun.run,
        team=first.event.team,
        goal=first.event.goal,
        started=first.at,
        deadline=first.event.deadline,
        source=source_of(replay(entries)),
        notice=bounds_of(sent).describe_cuts(team) if isinstance(sent, BoundedBody) and team is not None else "",
    )
    headers = {"Location": f"/api/runs/{begun.run}"}
    if begun.replayed:
        headers["Idempotency-Replayed"] = "true"
    return reply(created, 201, headers)


def source_of(state: RunState) -> str:
    """The run that results are taken over from; empty if there is none."""
    return next((run for run in state.offered_by if run != _CACHE), "")


# --- show


@operation("GET", "/api/runs/{run}")
async def show_run(tenant: Tenant, run: str, query: RunQuery) -> RunInfo:
    """A run as it stands: plan, tasks, attempts, cost, gaps, answer, and the question it asks."""
    info = await run_info(tenant, run, plain=query.plain)
    return structs.replace(info, plan=Plan(()), tasks=(), notes=(), answer=None) if query.lean else info


async def run_info(tenant: Tenant, run: str, *, plain: bool = False) -> RunInfo:
    """A run as it stands, folded once; `plain`: its answer without the sections below it."""
    entries = await tenant.journal.read(run)
    tracer = Tracer.replay(run, entries)
    traced = tracer.snapshot()
    state = tracer.state
    budget = state.requested.budget
    team = tenant.part(Teams).teams.get(state.requested.team)
    tracings = answer_tracings(state)
    plan = planned(state)
    is_asked = is_program_asked(tenant, run, state)
    is_held = await _is_held_elsewhere(tenant, run, state)
    is_driven = is_held or tenant.runs.is_running(root_of(run, state.requested))
    return RunInfo(
        summary=summary_of(tenant, run, state, is_held=is_held),
        plan=plan,
        tasks=tuple(show(task, TaskInfo) for task in traced.tasks),
        gaps=traced.gaps,
        answer=_answer_of(state, traced.answer, plain=plain),
        notice=" ".join(filter(None, ("" if team is None else team.notice, *noted_facts(entries)))),
        question=None if state.ended is not None or is_asked else state.input,
        deadline=state.requested.deadline,
        limits=RunLimits(budget.usd, budget.tokens, budget.calls) if state.ledger.capped else None,
        notes=tuple(traced.notes),
        traced=count_traced(tracings.values()),
        untraced={task: tracing.untraced for task, tracing in tracings.items() if tracing.untraced},
        now=time.time(),
        forecast=None if state.ended is not None or not plan.tasks else await _forecast(tenant, state, plan),
        asks=None if is_asked else read_question(state),
        in_doubt=read_calls_in_doubt(state, is_driven=is_driven),
        citations=cited_by_task(state),
    )


def _answer_of(state: RunState, with_sections: object, *, plain: bool) -> object:
    """The answer; of a run that ended before one was written, its results and why, as everywhere else."""
    written = state.answer_written
    if written is None:
        return fallback_answer(state) or None
    return decode_value(written.answer) if plain else with_sections


async def _forecast(tenant: Tenant, state: RunState, plan: Plan) -> PlanForecast:
    """What the whole plan takes; dollars too where the team is served here."""
    roster = await tenant.part(WorkerTimes).fill_in(state.requested.team, state.requested.roster)
    requested = structs.replace(state.requested, roster=roster)
    teams = tenant.part(Teams)
    if requested.team in teams.teams:
        with suppress(ChargehandError):  # a run can be read also where its team cannot be opened
            served = await teams.of(requested.team, requested.budget)
            return foreseen(served.executor, plan, requested, closed=state.closed)
    return PlanForecast(**structs.asdict(forecast(plan, requested.roster, requested.policy)))


async def _is_held_elsewhere(tenant: Tenant, run: str, state: RunState) -> bool:
    """Whether another process drives an open run."""
    root = root_of(run, state.requested)
    if state.ended is not None or tenant.runs.is_running(root):
        return False
    return (await tenant.journal.row(root)).held


def is_program_asked(tenant: Tenant, run: str, state: RunState) -> bool:
    """Return whether the open question of a run is decided by a function of its team just now, not by a person."""
    runner = tenant.runner_of(run)
    return runner is not None and state.input is not None and runner.keeps_question(run, state.input.number)


def state_of(tenant: Tenant, run: str, state: RunState, *, is_held: bool = False) -> State:
    """Return where a run stands. `is_held`: a process has claimed it."""
    if state.ended is None and is_program_asked(tenant, run, state):
        return "running"
    return read_state(state, is_driven=is_held or tenant.runs.is_running(root_of(run, state.requested)))


def summary_of(tenant: Tenant, run: str, state: RunState, *, is_held: bool = False) -> RunSummary:
    requested = state.requested
    end = state.ended
    question = None if is_program_asked(tenant, run, state) else read_question(state)
    tasks = [progress for progress in state.tasks.values() if progress.parent is None]
    return RunSummary(
        run=run,
        team=requested.team,
        goal=requested.goal,
        state=state_of(tenant, run, state, is_held=is_held),
        started=state.began,
        changed=state.at,
        ended=None if end is None else state.at,
        reason="" if end is None else end.reason,
        entries=state.seq,
        spent=show(state.ledger.spent, AmountInfo),
        lost=show(state.ledger.lost, AmountInfo),
        tasks=len(tasks),
        done=sum(progress.status is Status.DONE for progress in tasks),
        gaps=len(gaps(state) if end is None else end.gaps),
        parent="" if requested.parent is None else requested.parent.run,
        source=source_of(state),
        title=title_of(requested.goal),
        running=0 if end is not None else sum(progress.status is Status.RUNNING for progress in tasks),
        failed=sum(progress.status is Status.FAILED for progress in tasks),
        question=None if question is None else _open_question(question),
        labels=requested.labels,
        workers=tuple(dict.fromkeys(name for task in tasks if (name := task.worker or task.task.worker))),
        cap=None if end is None else end.cap,
        why=explain_end(state),
    )


def _open_question(asked: RunQuestion) -> OpenQuestion:
    tool = asked.calls[0].tool if asked.calls else ""
    return OpenQuestion(what=asked.what, task=asked.task, text=asked.text, tool=tool, calls=len(asked.calls))


# --- list


class RunSummaries:
    """Lines of runs that have ended: these do not change any more. `tenant.part(RunSummaries)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._kept: dict[str, RunSummary] = {}

    async def of(self, run: str, *, over: bool) -> RunSummary:
        """`over`: its last entry says that it has ended."""
        summary = self._kept.get(run) if over else None
        if summary is None:
            try:
                recorded = await read_run(self._tenant, run)
                is_held = await _is_held_elsewhere(self._tenant, run, recorded.state)
                summary = summary_of(self._tenant, run, recorded.state, is_held=is_held)
            except Corrupt as error:
                return await _damaged_summary(self._tenant, run, str(error))
            if over:
                self._kept[run] = summary
                if len(self._kept) > _MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
        return summary

    def knows(self, run: str) -> bool:
        return run in self._kept

    def forget(self, runs: Iterable[str]) -> None:
        """They were deleted."""
        for run in runs:
            self._kept.pop(run, None)


async def _damaged_summary(tenant: Tenant, run: str, reason: str) -> RunSummary:
    """The summary of a run that is damaged, with what its readable entries say."""
    try:
        entries = (await tenant.journal.read_readable(run)).entries
    except ChargehandError:  # not even that
        entries = []
    if not entries:
        return RunSummary(run=run, state="damaged", reason=reason)
    readable = summary_of(tenant, run, replay(entries))
    return structs.replace(readable, state="damaged", reason=reason)


@operation("GET", "/api/runs")
async def list_runs(tenant: Tenant, query: RunFilter) -> RunPage:
    """Runs, the latest first; `before` is the `next` of the page before."""
    before = query.before
    page_runs: list[RunSummary] = []
    looked_at = 0
    read = 0
    summaries = tenant.part(RunSummaries)
    has_filter = structs.replace(query, before=0, limit=1) != RunFilter(before=0, limit=1)
    size = max(_PAGE, query.limit) if has_filter else query.limit
    while looked_at < _MAX_LOOKED_AT:
        page = await tenant.journal.latest(before=before, limit=size)
        for row in page:
            before = row.number
            looked_at += 1
            if not row.damage and not _may_fit(row, query):
                continue  # its entries need not be read
            read += not summaries.knows(row.run)
            summary = await _summary(tenant, row)
            if _fits(summary, query):
                page_runs.append(summary)
            if len(page_runs) >= query.limit or read >= _MAX_READ:
                return RunPage(tuple(page_runs), before)
        if len(page) < size:
            return RunPage(tuple(page_runs), None)
    return RunPage(tuple(page_runs), before)


# --- the list as it changes


class _Changes:
    """The runs that changed since one reader of the list was last told."""

    def __init__(self, runs: Iterable[str]) -> None:
        self._runs = dict.fromkeys(runs)
        self._wakeup = asyncio.Event()
        self._wakeup.set()

    def add(self, run: str) -> None:
        self._runs[run] = None
        self._wakeup.set()

    async def take(self) -> list[str]:
        """The runs that changed, once there are any; changes within a moment are told together."""
        await self._wakeup.wait()
        await asyncio.sleep(_GATHERED)
        return self.take_now()

    def take_now(self) -> list[str]:
        self._wakeup.clear()
        runs = list(self._runs)
        self._runs.clear()
        return runs

    def look(self) -> None:
        """Have the reader look, though no run is known to have changed."""
        self._wakeup.set()


class _RunsElsewhere:
    """The runs that other processes write, for one reader of the list: told from the length of the latest and the open.

    There are none where the journal is not told of other processes.
    """

    def __init__(self, tenant: Tenant, on_notice: Callable[[], None]) -> None:
        self._tenant = tenant
        self._on_notice = on_notice
        self._seqs: dict[str, int] = {}
        self._open: set[str] = set()
        self._may_have_changed = tenant.journal.notices is not None
        notices = tenant.journal.notices
        self.close = _nothing if notices is None else notices.subscribe_all(self._hear)

    def _hear(self) -> None:
        self._may_have_changed = True
        self._on_notice()

    async def changed(self) -> list[str]:
        """Those that changed since they were last asked for; at first, all that are open."""
        if not self._may_have_changed:
            return []
        self._may_have_changed = False
        journal = self._tenant.journal
        rows = [*await journal.latest(before=LATEST, limit=_PAGE), *await journal.open_runs()]
        seqs = {row.run: row.seq for row in rows}
        is_first = not self._seqs
        changed = {row.run for row in rows if row.ended is None} if is_first else _changes(self._seqs, seqs)
        changed |= self._open - seqs.keys()
        self._seqs = seqs
        self._open = {row.run for row in rows if row.ended is None}
        return [run for run in changed if not self._tenant.runs.is_running(run)]


def _changes(before: Mapping[str, int], now: Mapping[str, int]) -> set[str]:
    return {run for run, seq in now.items() if before.get(run) != seq}


def _nothing() -> None:
    """Of what is not subscribed to."""


class LiveSummaries:
    """Summaries of runs under way, kept up to date by what is written. `tenant.part(LiveSummaries)` is it.

    A run that is not known yet is read once.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._states: dict[str, RunState] = {}
        self._missed: set[str] = set()
        """Runs that wrote something which was not folded: what is being read of them may lack it."""
        self._readers: set[_Changes] = set()
        tenant.entry_listeners.append(self.hear)

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Take in what was written."""
        if not self._readers:
            self._states.clear()  # they would be out of date when the next reader comes
            return
        state = self._states.get(run)
        for entry in entries:
            if entry.seq == 1:
                state = self._states[run] = begin(entry)
            elif state is not None and entry.seq == state.seq + 1:
                fold(state, entry)
        if entries and (state is None or state.seq != entries[-1].seq):
            self._states.pop(run, None)
            self._missed.add(run)
        for reader in self._readers:
            reader.add(run)

    async def follow(self, query: ListChanges) -> AsyncGenerator[bytes]:
        """An event for each run under way, and for each that changes from now on."""
        changes = _Changes(run for runner in self._tenant.runners for run in runner.under_way)
        self._readers.add(changes)
        elsewhere = _RunsElsewhere(self._tenant, changes.look)
        try:
            while True:
                runs = await changes.take()
                for run in await elsewhere.changed():
                    self._states.pop(run, None)
                    runs.append(run)
                for run in dict.fromkeys(runs):
                    line = await self._summary(run)
                    if line is not None and not line.parent and query.team in (UNSET, line.team):
                        yield event(line, name="run.line")
        finally:
            elsewhere.close()
            self._readers.discard(changes)

    async def _summary(self, run: str) -> RunSummary | None:
        state = self._states.get(run)
        if state is None:
            self._missed.discard(run)
            try:
                state = (await read_run(self._tenant, run)).state
            except ChargehandError:  # it is damaged, or was never written: the list itself tells
                return None
            if run not in self._missed:
                self._states[run] = state
        if state.ended is not None:
            self._states.pop(run, None)
        is_held = await _is_held_elsewhere(self._tenant, run, state)
        return summary_of(self._tenant, run, state, is_held=is_held)


@operation("GET", "/api/runs/events", media=(MEDIA_TYPE,))
async def follow_list(tenant: Tenant, query: ListChanges) -> Response:
    """Summaries as server-sent events `run.line`: of the runs under way, then of each that changes. They have no ids:
    who reconnects reads the list again.
    """  # noqa: D205 - it is one summary
    return streamed(tenant.part(LiveSummaries).follow(query), slot=tenant.runs.take_stream_slot())


async def _summary(tenant: Tenant, row: RunRow) -> RunSummary:
    if row.damage:
        return await _damaged_summary(tenant, row.run, row.damage)
    return await tenant.part(RunSummaries).of(row.run, over=row.ended is not None)


def _may_fit(row: RunRow, query: RunFilter) -> bool:
    """Whether a run may be wanted, by its first entry alone."""
    requested = row.request
    if requested is None:
        return False
    parent = "" if requested.parent is None else requested.parent.run
    summary = RunSummary(
        run=row.run,
        state="running",
        team=requested.team,
        goal=requested.goal,
        started=row.started,
        parent=parent,
        labels=requested.labels,
    )
    return _fits(summary, structs.replace(query, state=UNSET, cost=0.0, worker=UNSET))


def _fits(summary: RunSummary, query: RunFilter) -> bool:
    if summary.parent and not query.nested:
        return False
    if query.team not in (UNSET, summary.team) or query.state not in (UNSET, summary.state):
        return False
    if summary.started < query.since or summary.spent.usd < query.cost:
        return False
    if query.worker is not UNSET and query.worker not in summary.workers:
        return False
    labels = {f"{name}:{value}" for name, value in summary.labels.items()}
    if not labels.issuperset(query.label):
        return False
    text = query.text.casefold()
    return text in summary.goal.casefold() or text in summary.run.casefold()
