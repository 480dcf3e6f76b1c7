"""What happens in runs, for `logging`: retries, breakers, refusals, mistakes in code, resumed runs.

It says what the journal says, to whoever listens to `logging.getLogger("chargehand")`; it decides nothing.
"""

import logging
import time
from collections.abc import Mapping
from typing import Literal

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker
from chargehand.engine.facts import BreakerChanged
from chargehand.engine.failure import CodeError
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState

logger = logging.getLogger(__name__)

LOGGED = frozenset((ev.AttemptFailed, ev.SupervisionFailed, ev.Noted, ev.RetryScheduled, ev.TaskFailed, ev.RunResumed))
"""The events that are worth a line."""


class RunLog:
    """The lines of one run. What is true of many tasks, a mistake in code or a refusal, is said once."""

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
            case _:
                failure = ev.failure_in(event)
                if failure is not None:
                    self._failure(failure)

    def breaker(self, text: str, *, opened: bool) -> None:
        """A breaker changed."""
        logger.log(logging.WARNING if opened else logging.INFO, "run %s: %s", self._run, text)

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


_LONGEST = 120
_DAY = 86_400.0
_Attempted = ev.AttemptStarted | ev.AttemptSucceeded | ev.AttemptFailed


def breaker_states(breakers: Mapping[str, Breaker]) -> dict[str, tuple[int, Instant]]:
    """How breakers stand: how often each opened, and until when its probe may take."""
    return {name: (one.opened, one.leased) for name, one in breakers.items()}


def breaker_changes(
    state: RunState, before: dict[str, tuple[int, Instant]], event: ev.Event
) -> list[tuple[ev.Noted, bool]]:
    """What an event changed, and whether a breaker opened. `before` is how they stood; it is brought up to date."""
    if not isinstance(event, _Attempted):
        return []
    now = breaker_states(state.breakers)
    changed = [name for name, found in now.items() if found != before.get(name, (0, 0.0))]
    notes: list[tuple[ev.Noted, bool]] = []
    for name in changed:
        was = before.get(name, (0, 0.0))
        opened = now[name][0] > was[0]
        change = _change(state, name, was, event)
        if change is not None:
            text, stands = change
            fact = BreakerChanged(name, stands)
            notes.append((ev.Noted(f"breaker {stands}: {text}", event.task, event.attempt, fact=fact), opened))
    before.update(now)
    return notes


def _change(
    state: RunState, name: str, was: tuple[int, Instant], event: _Attempted
) -> tuple[str, Literal["open", "half-open", "closed"]] | None:
    """What became of a breaker in words, and how it stands; None where nothing is worth a note."""
    breaker = state.breakers[name]
    who = name.replace(":", " ", 1)
    opened, leased = was
    if breaker.opened > opened and isinstance(event, ev.AttemptFailed):
        why = f"{event.failure.kind}: {' '.join(event.failure.message.split())[:_LONGEST]}"
        what = f"the probe of {who} failed" if opened else f"{who} is out of order, {_count(state, breaker)}"
        return f"{what}; it is not asked for {_wait(breaker.until, state.at)} ({why})", "open"
    if opened and not breaker.opened:
        how = "the probe succeeded" if leased else "a call that was under way came back"
        return f"{who} works again, {how}", "closed"
    if breaker.leased and breaker.leased != leased and isinstance(event, ev.AttemptStarted):
        probe = f"attempt {event.attempt} of {event.task} by {event.worker}"
        return f"{who} is tried again, {probe} is the probe", "half-open"
    return None


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
