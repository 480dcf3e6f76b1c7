"""What happens in runs, for `logging`: retries, breakers, refusals, mistakes in code, resumed runs.

It repeats what the journal has, for listeners of `logging.getLogger("chargehand")`; it decides nothing.
"""

import logging
import time
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker
from chargehand.engine.facts import BreakerChanged
from chargehand.engine.failure import CodeError
from chargehand.engine.policy import Instant
from chargehand.engine.roster import breaker_name
from chargehand.engine.state import RunState

logger = logging.getLogger(__name__)

LOGGED = frozenset(
    (
        ev.AttemptFailed,
        ev.InputRequested,
        ev.Noted,
        ev.RetryScheduled,
        ev.RunEnded,
        ev.RunResumed,
        ev.SupervisionFailed,
        ev.TaskFailed,
        ev.TasksAdded,
    )
)
"""The events that are worth a line."""
_DETAILS = frozenset(
    (ev.AnswerWritten, ev.AttemptStarted, ev.AttemptSucceeded, ev.StepFinished, ev.StepStarted, ev.SupervisionStarted)
)
"""Those that are worth one to who looks for a fault."""


def logged_events() -> frozenset[type]:
    """The events to log, by the level that is set now."""
    return LOGGED | _DETAILS if logger.isEnabledFor(logging.DEBUG) else LOGGED


class RunLog:
    """The lines of one run. What is true of many tasks, a mistake in code or a refusal, is said once.

    Each record has the run, and the task and the attempt it is about, as attributes of these names.
    """

    __slots__ = ("_run", "_said")

    def __init__(self, run: str) -> None:
        self._run = run
        self._said: set[tuple[str, ...]] = set()

    def hear(self, state: RunState, event: ev.Event) -> None:
        """Log an event that was just written; `state` is as it is after it."""
        match event:
            case ev.RunResumed():
                self._line(logging.INFO, event, f"resumed after entry {state.seq - 1}")
            case ev.RetryScheduled():
                self._retry(state, event)
            case ev.TaskFailed():
                self._line(logging.INFO, event, f"task {event.task} failed ({event.failure.kind})")
            case ev.Noted(fact=BreakerChanged(state=stands)):
                self._line(logging.WARNING if stands == "open" else logging.INFO, event, event.text)
            case ev.RunEnded() | ev.TasksAdded() | ev.InputRequested():
                self._line(logging.INFO, event, _progress(state, event))
            case _ if type(event) in _DETAILS:
                self._line(logging.DEBUG, event, _detail(event))
            case _:
                failure = ev.failure_in(event)
                if failure is not None:
                    self._failure(event, failure)

    def _line(self, level: int, event: ev.Event, text: str) -> None:
        if logger.isEnabledFor(level):
            about = {"run": self._run, "task": ev.task_of(event), "attempt": getattr(event, "attempt", 0)}
            logger.log(level, "run %s: %s", self._run, text, extra=about)

    def _retry(self, state: RunState, event: ev.RetryScheduled) -> None:
        failure = state.tasks[event.task].failure
        kind = "" if failure is None else f" after {failure.kind}: {failure.message[:200]}"
        if event.worker:
            self._line(logging.INFO, event, f"task {event.task} goes to {event.worker}{kind}")
        else:
            wait = max(0.0, event.after - state.at)
            self._line(logging.INFO, event, f"task {event.task} is tried again in {wait:.1f} s{kind}")

    def _failure(self, event: ev.Event, failure: ev.Failure) -> None:
        mistake = failure.code_error
        refusal = failure.refusal
        if failure.kind == "uncertain":
            self._line(logging.WARNING, event, failure.message)
        if mistake is not None and self._first(mistake.exception, mistake.place() or mistake.message):
            text = f"a mistake in code: {mistake.describe()}\n{traceback_text(mistake)}"
            self._line(logging.ERROR, event, text)
        if refusal is not None and self._first(refusal.model, refusal.cause):
            self._line(logging.WARNING, event, refusal.headline())

    def _first(self, *key: str) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True


def _progress(state: RunState, event: ev.RunEnded | ev.TasksAdded | ev.InputRequested) -> str:
    match event:
        case ev.RunEnded():
            spent = state.ledger.spent
            took = (
                f"{state.at - state.began:.1f} s, {spent.calls} calls, {spent.tokens} tokens, {spent.usd:.4f} dollars"
            )
            return f"ended: {event.ending} ({event.reason}) after {took}"
        case ev.TasksAdded():
            return f"{len(event.tasks)} tasks were planned"
        case ev.InputRequested():
            return f"waits for a person ({event.what})"


def _detail(event: ev.Event) -> str:
    match event:
        case ev.AttemptStarted():
            return f"attempt {event.attempt} of task {event.task} by {event.worker} began"
        case ev.AttemptSucceeded():
            return f"attempt {event.attempt} of task {event.task} succeeded"
        case ev.StepStarted():
            return f"step {event.step} of task {event.task} began: {event.kind} {event.name} ({event.effect})"
        case ev.StepFinished():
            return f"step {event.step} of task {event.task} {'came back' if event.good else 'failed'}"
        case ev.SupervisionStarted():
            return f"the supervisor is asked: {event.duty} {event.number}"
        case _:
            return "the answer was written"


def traceback_text(mistake: CodeError) -> str:
    """The end of a traceback, as Python prints it."""
    lines = ["Traceback (most recent call last, its end):"] if mistake.frames else []
    for frame in mistake.frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if frame.source:
            lines.append(f"    {frame.source}")
    lines.append(f"{mistake.exception}: {mistake.message}" if mistake.message else mistake.exception)
    return "\n".join(lines)


# --- breakers, in words for the journal


_MAX_REASON = 120
_DAY = 86_400.0
Attempted: TypeAlias = ev.AttemptStarted | ev.AttemptSucceeded | ev.AttemptFailed
"""The events that may change a breaker: that of the worker who makes the attempt."""


class BreakerWatch(Struct, frozen=True):
    """A breaker as it was before an event, to tell what the event changed."""

    event: Attempted
    name: str
    opened: int = 0
    leased: Instant = 0.0

    def change(self, state: RunState) -> ev.Noted | None:
        """The note on what became of it; None where nothing is worth one. `state` is as it is after the event."""
        event = self.event
        breaker = state.breakers.get(self.name)
        if breaker is None:
            return None
        who = self.name.replace(":", " ", 1)
        if breaker.opened > self.opened and isinstance(event, ev.AttemptFailed):
            reason = f"{event.failure.kind}: {' '.join(event.failure.message.split())[:_MAX_REASON]}"
            what = f"the probe of {who} failed" if self.opened else f"{who} is out of order, {_count(state, breaker)}"
            text = f"{what}; it is not asked for {_wait(breaker.until, state.at)} ({reason})"
            return self._note("open", text)
        if self.opened and not breaker.opened:
            how = "the probe succeeded" if self.leased else "a call that was under way came back"
            return self._note("closed", f"{who} works again, {how}")
        if breaker.leased != self.leased and isinstance(event, ev.AttemptStarted):
            probe = f"attempt {event.attempt} of {event.task} by {event.worker}"
            return self._note("half-open", f"{who} is tried again, {probe} is the probe")
        return None

    def _note(self, state: Literal["open", "half-open", "closed"], text: str) -> ev.Noted:
        fact = BreakerChanged(self.name, state)
        return ev.Noted(f"breaker {state}: {text}", self.event.task, self.event.attempt, fact=fact)


def watch_breaker(state: RunState, event: ev.Event) -> BreakerWatch | None:
    """The breaker that an event may change, before it does; None for events that change none."""
    if not isinstance(event, Attempted):
        return None
    worker = event.worker if isinstance(event, ev.AttemptStarted) else state.tasks[event.task].worker
    name = breaker_name(state.agents[worker])
    breaker = state.breakers.get(name)
    if breaker is None:
        return BreakerWatch(event, name)
    return BreakerWatch(event, name, breaker.opened, breaker.leased)


def _wait(until: Instant, now: Instant) -> str:
    """How long, and by the clock; beyond a day the clock alone would mislead, and beyond all calendars it has none."""
    seconds = until - now
    clock = f", until {time.strftime('%H:%M:%S', time.gmtime(until))} UTC" if seconds < _DAY else ""
    return f"{seconds:.{0 if seconds >= 1 else 1}f} s{clock}"


def _count(state: RunState, breaker: Breaker) -> str:
    """How often it failed, as the policy counts."""
    if breaker.row >= state.requested.policy.breaking.consecutive:
        return f"{breaker.row} failures in a row"
    bad = sum(not good for _, good in breaker.recent)
    return f"{bad} of the last {len(breaker.recent)} attempts failed"
