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

LOGGED = frozenset((ev.AttemptFailed, ev.SupervisionFailed, ev.Noted, ev.RetryScheduled, ev.TaskFailed, ev.RunResumed))
"""The events that are worth a line."""


class RunLog:
    """The lines of one run. What is true of many tasks, a mistake in code or a refusal, is said once."""

    __slots__ = ("_run", "_said")

    def __init__(self, run: str) -> None:
        self._run = run
        self._said: set[tuple[str, ...]] = set()

    def hear(self, state: RunState, event: ev.Event) -> None:
        """Log an event that was just written; `state` is as it is after it."""
        match event:
            case ev.RunResumed():
                logger.info("run %s: resumed after entry %d", self._run, state.seq - 1)
            case ev.RetryScheduled():
                self._retry(state, event)
            case ev.TaskFailed():
                logger.info("run %s: task %s failed (%s)", self._run, event.task, event.failure.kind)
            case ev.Noted(fact=BreakerChanged(state=stands)):
                level = logging.WARNING if stands == "open" else logging.INFO
                logger.log(level, "run %s: %s", self._run, event.text)
            case _:
                failure = ev.failure_in(event)
                if failure is not None:
                    self._failure(failure)

    def _retry(self, state: RunState, event: ev.RetryScheduled) -> None:
        failure = state.tasks[event.task].failure
        kind = "" if failure is None else f" after {failure.kind}: {failure.message[:200]}"
        if event.worker:
            logger.info("run %s: task %s goes to %s%s", self._run, event.task, event.worker, kind)
        else:
            wait = max(0.0, event.after - state.at)
            logger.info("run %s: task %s is tried again in %.1f s%s", self._run, event.task, wait, kind)

    def _failure(self, failure: ev.Failure) -> None:
        mistake = failure.code_error
        refusal = failure.refusal
        if mistake is not None and self._first(mistake.exception, mistake.place()):
            logger.error("run %s: a mistake in code: %s\n%s", self._run, mistake.describe(), traceback_text(mistake))
        if refusal is not None and self._first(refusal.model, refusal.cause):
            logger.warning("run %s: %s", self._run, refusal.headline())

    def _first(self, *key: str) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True


def traceback_text(mistake: CodeError) -> str:
    """The end of a traceback, as Python prints it."""
    lines = ["Traceback (most recent call last, its end):"]
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
