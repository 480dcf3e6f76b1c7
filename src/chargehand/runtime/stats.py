"""Statistics of runs: calls, failures, times and cost of every worker, tool and model, counted as entries are written.

One projection for `/metrics`, the load that routing reads, `doctor --workers` and the health API. Breakers of workers
and models are those that the runs themselves decide by: `keep_breakers` takes them from the state of a run. The breaker
of a tool is kept here, by the same rules.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import asdict

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker, Stand, lease, next_change, note, stand
from chargehand.engine.budget import Amount
from chargehand.engine.facts import ModelFellBack
from chargehand.engine.fold import replay
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.policy import Breaking, Instant, Seconds
from chargehand.engine.roster import Agent, breaker_name, model_breaker_name
from chargehand.engine.state import RunState

Called: TypeAlias = Literal["worker", "tool", "model"]
_CALLED: tuple[Called, ...] = ("worker", "tool", "model")
Labels: TypeAlias = tuple[str, ...]
Counter: TypeAlias = defaultdict[Labels, float]

OTHER = "other"
"""The name under which everything is counted that has no line of its own."""

_MAX_RUNS = 5000  # followed at once
_RECENT = 200  # outcomes kept of each worker, tool and model
_LONG = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds, in seconds, of the histograms of what should be quick."""


class Histogram:
    """How often something took how long, by labels."""

    def __init__(self, bounds: Sequence[Seconds]) -> None:
        self.bounds = tuple(bounds)
        self.rows: dict[Labels, list[float]] = {}
        """A count for each bound and for what exceeds them all; then the sum and the count of everything."""

    def add(self, labels: Labels, seconds: Seconds) -> None:
        row = self.rows.get(labels)
        if row is None:
            row = self.rows[labels] = [0.0] * (len(self.bounds) + 3)
        row[bisect_left(self.bounds, seconds)] += 1
        row[-2] += max(0.0, seconds)
        row[-1] += 1


class CallOutcome(Struct, frozen=True, gc=False):
    """A call that is over."""

    at: Instant
    seconds: Seconds
    failure: str = ""
    """The kind of failure; empty if it succeeded."""
    micros: int = 0


class CallStats(Struct):
    """The calls of one worker (its attempts), tool or model."""

    calls: int = 0
    in_flight: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """By kind."""
    failures_in_row: int = 0
    recent: deque[CallOutcome] = field(default_factory=lambda: deque[CallOutcome](maxlen=_RECENT))
    last: Instant = 0.0
    """When one was last called, or came back."""
    agent: Agent | None = None
    """Of a worker: its card in the run that called it last."""
    breaker: Breaker | None = None
    """Of a tool."""
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    """Of a model, by kind: `input`, `output`, and `unsplit` where only the sum is known.

    Of the input `cached`, `cache_written` and `cache_written_hour`, of the output `reasoning`.
    """
    micros: int = 0
    """What the calls of a model cost."""


class _OpenCall(Struct):
    """A call that has not come back."""

    stats: CallStats
    since: Instant
    tool: str = ""
    agent: Agent | None = None
    """The worker, of an attempt."""
    micros: int = 0


class _Run(Struct):
    """What must be known of a run while it goes on."""

    team: str
    started: Instant | None = None
    agents: Mapping[str, Agent] = {}
    breaking: Breaking = Breaking()
    counted: dict[TaskId, int] = field(default_factory=dict[TaskId, int])
    """The attempt of each task that was counted last: one that is resumed is not another."""
    attempts: dict[TaskId, _OpenCall] = field(default_factory=dict[TaskId, _OpenCall])
    steps: dict[tuple[TaskId, int], _OpenCall] = field(default_factory=dict[tuple[TaskId, int], _OpenCall])
    duties: dict[tuple[str, TaskId], _OpenCall] = field(default_factory=dict[tuple[str, TaskId], _OpenCall])
    duty_started: dict[tuple[str, TaskId], Instant] = field(default_factory=dict[tuple[str, TaskId], Instant])


class _Tokens(Struct):
    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    cache_written_hour: int = 0
    reasoning: int = 0


class _StepSummary(Struct):
    """What the result of a step says: tokens of a model; whether a tool is broken, or was not called at all."""

    usage: _Tokens | None = None
    broken: bool = False
    barred: bool = False


_NOTHING_SAID = _StepSummary()
_STEP_RESULT = msgspec.json.Decoder(_StepSummary)


class Stats:
    """Statistics of all runs whose entries are recorded here.

    `max_names` bounds the workers, tools, models and teams that have lines of their own: names come from outside.
    """

    def __init__(self, *, max_names: int | None = None) -> None:
        self._max_names = max_names
        self.calls: dict[Called, dict[str, CallStats]] = {"worker": {}, "tool": {}, "model": {}}
        self.runs: Counter = defaultdict(float)
        """Runs that ended, by team and ending; so are tasks and attempts counted."""
        self.tasks: Counter = defaultdict(float)
        self.attempts: Counter = defaultdict(float)
        self.resumed: Counter = defaultdict(float)
        """Runs that were taken over from another process, or continued after a stop."""
        self.run_seconds = Histogram(_LONG)
        self.tool_seconds = Histogram(QUICK)
        self.breakers: dict[str, Breaker] = {}
        """The breakers that had opened when a run was left, by `breaker_name`."""
        self._last_success: dict[str, Instant] = {}
        self._teams: set[str] = set()
        self._runs: dict[str, _Run] = {}

    def record(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Count what was written."""
        for entry in entries:
            count = self._counters.get(type(entry.event))
            if count is None:
                continue
            followed = self._runs.get(run)
            if followed is None:
                requested = entry.event if isinstance(entry.event, ev.RunRequested) else None
                followed = self.follow(run, requested, entry.at)
            count(self, followed, entry.event, entry.at)
            if isinstance(entry.event, ev.RunEnded):
                self.leave(run)

    def follow(self, run: str, requested: ev.RunRequested | None, at: Instant) -> _Run:
        """Begin to count a run; what was requested is not known of one that was begun elsewhere."""
        if run in self._runs:
            return self._runs[run]
        if requested is None:
            followed = _Run(OTHER)
        else:
            agents = {agent.name: agent for agent in requested.roster.agents}
            followed = _Run(self._bounded(self._teams, requested.team), at, agents, requested.policy.breaking)
            self._teams.add(followed.team)
        self._runs[run] = followed
        if len(self._runs) > _MAX_RUNS:
            self.leave(next(iter(self._runs)))
        return followed

    def leave(self, run: str) -> None:
        """A run is not driven any more: what was under way in it is so no longer."""
        followed = self._runs.pop(run, None)
        if followed is not None:
            _drop_open_calls(followed)

    def keep_breakers(self, state: RunState) -> None:
        """Remember who is out of order by what a run knows."""
        self.breakers.update((name, breaker) for name, breaker in state.breakers.items() if breaker.opened)

    def in_force(self, name: str, breaker: Breaker) -> bool:
        """Whether a breaker still says something: what it bars may have worked since, in another run."""
        last_failure = breaker.recent[-1][0] if breaker.recent else 0.0
        return breaker.opened > 0 and self._last_success.get(name, 0.0) <= last_failure

    def _bounded(self, names: set[str] | dict[str, CallStats], name: str) -> str:
        if self._max_names is not None and name not in names and len(names) >= self._max_names:
            return OTHER
        return name or "none"

    def _stats_of(self, called: Called, name: str) -> CallStats:
        table = self.calls[called]
        bounded = self._bounded(table, name)
        if bounded not in table:
            table[bounded] = CallStats()
        return table[bounded]

    def _open(self, called: Called, name: str, at: Instant, *, counts: bool = True) -> _OpenCall:
        stats = self._stats_of(called, name)
        stats.calls += counts
        stats.in_flight += 1
        stats.last = max(stats.last, at)
        return _OpenCall(stats, at, name if called == "tool" else "")

    # --- attempts

    def _attempt_started(self, run: _Run, event: ev.AttemptStarted, at: Instant) -> None:
        call = self._open("worker", event.worker, at, counts=run.counted.get(event.task) != event.attempt)
        run.counted[event.task] = event.attempt
        call.agent = run.agents.get(event.worker)
        call.stats.agent = call.agent or call.stats.agent
        run.attempts[event.task] = call

    def _attempt_succeeded(self, run: _Run, event: ev.AttemptSucceeded, at: Instant) -> None:
        self.attempts[run.team, "succeeded"] += 1
        self.tasks[run.team, "done"] += 1
        call = run.attempts.pop(event.task, None)
        if call is None:
            return
        _close(call, at, used=event.used)
        if call.agent is not None:
            self._last_success[breaker_name(call.agent)] = at

    def _attempt_failed(self, run: _Run, event: ev.AttemptFailed, at: Instant) -> None:
        kind = event.failure.kind
        self.attempts[run.team, kind] += 1
        call = run.attempts.pop(event.task, None)
        if kind == "approval":  # nothing failed: it waits for a person
            if call is not None:
                call.stats.in_flight -= 1
            return
        for key in [key for key in run.steps if key[0] == event.task]:
            step = run.steps.pop(key)
            _close(step, at, kind)
            if step.tool and kind == "uncertain":
                _note_tool(run, step, at, good=False)
        if call is not None:
            _close(call, at, kind, event.used)

    def _task_settled(self, run: _Run, event: ev.TaskFailed | ev.TaskSkipped | ev.ResultReused, _at: Instant) -> None:
        self.tasks[run.team, _TASK_ENDINGS[type(event)]] += 1

    # --- steps

    def _step_started(self, run: _Run, event: ev.StepStarted, at: Instant) -> None:
        attempt = run.attempts.get(event.task)
        agent = None if attempt is None else attempt.agent
        if event.kind == "model":
            if agent is not None and agent.model:
                run.steps[event.task, event.step] = self._open("model", agent.model, at)
        elif event.kind == "tool":
            run.steps[event.task, event.step] = self._open("tool", event.name, at)

    def _step_finished(self, run: _Run, event: ev.StepFinished, at: Instant) -> None:
        attempt = run.attempts.get(event.task)
        if attempt is not None and event.used is not None:
            attempt.micros += event.used.micros
        call = run.steps.pop((event.task, event.step), None)
        if call is None:
            return
        if not call.tool:
            _count_tokens(call.stats, _read_result(event.result).usage)
            call.stats.micros += 0 if event.used is None else event.used.micros
            _close(call, at, "" if event.good else "failed")
            return
        result = _NOTHING_SAID if event.good else _read_result(event.result)
        if result.barred:  # it was out of order, and so it was not called
            call.stats.calls -= 1
            call.stats.in_flight -= 1
            return
        _close(call, at, "" if event.good else "failed")
        self.tool_seconds.add((self._bounded(self.calls["tool"], call.tool),), at - call.since)
        if event.good or result.broken:
            _note_tool(run, call, at, good=event.good)

    def _noted(self, run: _Run, event: ev.Noted, at: Instant) -> None:
        """Another model takes over from one that did not answer."""
        if not isinstance(event.fact, ModelFellBack):
            return
        for key, call in run.steps.items():
            if key[0] == event.task and not call.tool:
                _close(call, at, "passed on")
                run.steps[key] = self._open("model", event.fact.model, at)
                return

    # --- the supervisor

    def _duty_started(self, run: _Run, event: ev.SupervisionStarted, at: Instant) -> None:
        run.duty_started[event.duty, event.task] = at

    def _prompted(self, run: _Run, event: ev.PromptSent, at: Instant) -> None:
        key = (event.duty, event.task)
        if event.duty != "attempt" and key not in run.duties:
            run.duties[key] = self._open("model", event.model, run.duty_started.pop(key, at))

    def _duty_ended(self, run: _Run, event: ev.Event, at: Instant) -> None:
        key, failure, used = _duty_of(event)
        call = run.duties.get(key)
        if used is not None and (used.tokens or used.micros):  # what went in and what came out is not told apart
            stats = call.stats if call is not None else self._stats_of("model", OTHER)
            stats.tokens["unsplit"] = stats.tokens.get("unsplit", 0) + used.tokens
            stats.micros += used.micros
        if call is not None and not (isinstance(event, ev.TasksAdded) and not event.done):
            del run.duties[key]
            _close(call, at, failure)

    # --- runs

    def _run_requested(self, run: _Run, event: ev.RunRequested, at: Instant) -> None:
        """It is followed from now on: `record` saw to that."""

    def _resumed(self, run: _Run, event: ev.RunResumed, at: Instant) -> None:
        self.resumed[()] += 1
        self._interrupted(run, event, at)

    def _interrupted(self, run: _Run, _event: ev.Event, _at: Instant) -> None:
        """What was under way is so no longer, and how it would have ended is not known."""
        _drop_open_calls(run)

    def _run_ended(self, run: _Run, event: ev.RunEnded, at: Instant) -> None:
        self.runs[run.team, event.ending] += 1
        if run.started is not None:
            self.run_seconds.add((run.team,), at - run.started)

    _counters: ClassVar[dict[type, Callable[[Any, _Run, Any, Instant], None]]] = {
        ev.RunRequested: _run_requested,
        ev.AttemptStarted: _attempt_started,
        ev.AttemptSucceeded: _attempt_succeeded,
        ev.AttemptFailed: _attempt_failed,
        ev.TaskFailed: _task_settled,
        ev.TaskSkipped: _task_settled,
        ev.ResultReused: _task_settled,
        ev.StepStarted: _step_started,
        ev.StepFinished: _step_finished,
        ev.Noted: _noted,
        ev.SupervisionStarted: _duty_started,
        ev.PromptSent: _prompted,
        ev.SupervisionFailed: _duty_ended,
        ev.TasksAdded: _duty_ended,
        ev.TaskRefined: _duty_ended,
        ev.AnswerWritten: _duty_ended,
        ev.RunResumed: _resumed,
        ev.TimeRanOut: _interrupted,
        ev.RunEnded: _run_ended,
    }


def _close(call: _OpenCall, at: Instant, failure: str = "", used: Amount | None = None) -> None:
    """A call came back."""
    stats = call.stats
    stats.in_flight -= 1
    stats.last = max(stats.last, at)
    micros = call.micros + (used.micros if used is not None else 0)
    stats.recent.append(CallOutcome(at, max(0.0, at - call.since), failure, micros))
    if failure:
        stats.failures[failure] = stats.failures.get(failure, 0) + 1
        stats.failures_in_row += 1
    else:
        stats.failures_in_row = 0


def _drop_open_calls(run: _Run) -> None:
    for calls in (run.attempts, run.steps, run.duties):
        for call in calls.values():
            call.stats.in_flight -= 1
        calls.clear()


def _note_tool(run: _Run, call: _OpenCall, at: Instant, *, good: bool) -> None:
    """Book an outcome for the breaker of a tool, as its caller did."""
    stats = call.stats
    if stats.breaker is None:
        if good:
            return
        stats.breaker = Breaker()
    if stand(stats.breaker, call.since) == "half-open":
        lease(stats.breaker, call.since, run.breaking)
    note(stats.breaker, at, run.breaking, good=good)


def _read_result(result: Raw) -> _StepSummary:
    try:
        return _STEP_RESULT.decode(result)
    except msgspec.MsgspecError:  # executors may keep results of any shape
        return _NOTHING_SAID


def _count_tokens(stats: CallStats, usage: _Tokens | None) -> None:
    if usage is None:
        return
    for kind, count in asdict(usage).items():
        if count > 0 or kind in ("input", "output", "cached"):
            stats.tokens[kind] = stats.tokens.get(kind, 0) + max(0, count)


def _duty_of(event: ev.Event) -> tuple[tuple[str, TaskId], str, Amount | None]:
    """The duty that an event ends, the kind of failure it ended in, and what it used."""
    match event:
        case ev.SupervisionFailed():
            kind = "" if event.failure.kind == "approval" else event.failure.kind  # the planner asks a person
            return (event.duty, event.task), kind, event.used
        case ev.TaskRefined():
            return ("refine", event.task), "", event.used
        case ev.AnswerWritten():
            return ("answer", NO_TASK), "", event.used
        case ev.TasksAdded():
            return ("plan", NO_TASK), "", event.used
        case _:
            raise AssertionError(f"{event!r} ends no duty")


_TASK_ENDINGS: dict[type, str] = {ev.TaskFailed: "failed", ev.TaskSkipped: "skipped", ev.ResultReused: "reused"}


State: TypeAlias = Stand | Literal["failing"]

MAX_RUNS = 200
"""How many runs are looked at, the latest ones."""

_FAILURES_IN_ROW = Breaking().consecutive


class WorkerHealth(Struct, frozen=True, kw_only=True):
    """One worker, tool or model."""

    what: Called
    name: str
    team: str = ""
    """The team whose runs called it."""
    attempts: int = 0
    """Attempts of a worker, calls of a tool or a model."""
    failures: dict[str, int] = {}
    """By kind."""
    rate: float = 0.0
    """The share of failures."""
    median: Seconds | None = None
    """Of the latest calls that came back; so is `p95`."""
    p95: Seconds | None = None
    state: State = "closed"
    retry_at: Instant = 0.0
    """When one that is open may be tried again."""
    in_flight: int = 0
    """How many are under way."""
    last: Instant = 0.0


def health(
    runs: Iterable[tuple[str, Sequence[ev.Entry]]], now: Instant, *, driven: Container[str] | None = None
) -> tuple[WorkerHealth, ...]:
    """How all workers, tools and models are doing that were called in these runs, by team, the latest called first.

    `driven` names the runs that a process drives: what the others left open is not under way. Left out, all are.
    """
    teams: dict[str, Stats] = {}  # workers of different teams may have the same name
    written = [(run, entries) for run, entries in runs if entries]
    for run, entries in sorted(written, key=lambda item: item[1][0].at):
        requested = entries[0].event
        assert isinstance(requested, ev.RunRequested), "a journal begins with run.requested"
        stats = teams.setdefault(requested.team, Stats())
        stats.record(run, entries)
        if any(isinstance(entry.event, ev.AttemptFailed) for entry in entries):  # no other event opens a breaker
            stats.keep_breakers(replay(entries))
        if driven is not None and run not in driven:
            stats.leave(run)
    lines = [line for team, stats in teams.items() for line in report(stats, now, team)]
    return tuple(sorted(lines, key=lambda line: (_CALLED.index(line.what), -line.last, line.name)))


def report(stats: Stats, now: Instant, team: str) -> list[WorkerHealth]:
    """What was called in the runs of a team, or is out of order."""
    lines: list[WorkerHealth] = []
    for called, table in stats.calls.items():
        lines += [
            _health(stats, team, called, name, calls=calls, now=now) for name, calls in table.items() if calls.calls
        ]
    lines += [_health(stats, team, "model", name, calls=CallStats(), now=now) for name in _barred_models(stats)]
    return lines


def _barred_models(stats: Stats) -> list[str]:
    """Models out of order that no call was recorded of."""
    names = [breaker.model for breaker in stats.breakers.values() if breaker.model]
    return [name for name in names if name not in stats.calls["model"] or not stats.calls["model"][name].calls]


def _health(stats: Stats, team: str, called: Called, name: str, *, calls: CallStats, now: Instant) -> WorkerHealth:
    breaker = _breaker(stats, called, name, calls)
    state: State = "closed" if breaker is None else stand(breaker, now)
    if called == "tool" and breaker is None and calls.failures_in_row >= _FAILURES_IN_ROW:
        state = "failing"
    times = sorted(outcome.seconds for outcome in calls.recent)
    return WorkerHealth(
        what=called,
        name=name,
        team=team,
        attempts=calls.calls,
        failures=dict(sorted(calls.failures.items())),
        rate=sum(calls.failures.values()) / max(1, calls.calls),
        median=_quantile(times, 0.5),
        p95=_quantile(times, 0.95),
        state=state,
        retry_at=next_change(breaker) if breaker is not None and state in ("open", "probing") else 0.0,
        in_flight=calls.in_flight,
        last=calls.last,
    )


def _breaker(stats: Stats, called: Called, name: str, calls: CallStats) -> Breaker | None:
    """The open breaker that bars it; a worker that needs a model is barred by the breaker of that model."""
    if called == "tool":
        return calls.breaker if calls.breaker is not None and calls.breaker.opened else None
    key = model_breaker_name(name)
    if called == "worker":
        key = "" if calls.agent is None else breaker_name(calls.agent)
    breaker = stats.breakers.get(key)
    return breaker if breaker is not None and stats.in_force(key, breaker) else None


def _quantile(times: Sequence[Seconds], share: float) -> Seconds | None:
    """The time that this share of the calls did not exceed."""
    return times[max(0, ceil(share * len(times)) - 1)] if times else None
