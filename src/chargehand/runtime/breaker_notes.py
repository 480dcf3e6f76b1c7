"""What becomes of breakers, in words for the journal: who is out of order and why, who is tried again, who works again.

Breakers are part of a run's state and have no events of their own; a note decides nothing. What a run had learned
before it was resumed is not said again.
"""

import time
from collections.abc import Iterator, Mapping

from chargehand.core.state import RunState
from chargehand.terms import events as ev
from chargehand.terms.breaker import Breaker
from chargehand.terms.policy import Instant

MARK = "breaker "  # how each of these notes begins
_LONGEST = 120
_DAY = 86_400.0
_Attempted = ev.AttemptStarted | ev.AttemptSucceeded | ev.AttemptFailed


def stood(breakers: Mapping[str, Breaker]) -> dict[str, tuple[int, Instant]]:
    """How breakers stand: how often each opened, and until when its probe may take."""
    return {name: (one.opened, one.leased) for name, one in breakers.items()}


def told(state: RunState, before: dict[str, tuple[int, Instant]], event: ev.Event) -> list[tuple[ev.Noted, bool]]:
    """What an event changed, and whether a breaker opened. `before` is how they stood; it is brought up to date."""
    if not isinstance(event, _Attempted):
        return []
    now = stood(state.breakers)
    changed = [name for name, found in now.items() if found != before.get(name, (0, 0.0))]
    notes: list[tuple[ev.Noted, bool]] = []
    for name in changed:
        was = before.get(name, (0, 0.0))
        opened = now[name][0] > was[0]
        notes += [(ev.Noted(said, event.task, event.attempt), opened) for said in _words(state, name, was, event)]
    before.update(now)
    return notes


def _words(state: RunState, name: str, was: tuple[int, Instant], event: _Attempted) -> Iterator[str]:
    breaker = state.breakers[name]
    who = name.replace(":", " ", 1)
    opened, leased = was
    if breaker.opened > opened and isinstance(event, ev.AttemptFailed):
        why = f"{event.failure.kind}: {' '.join(event.failure.message.split())[:_LONGEST]}"
        what = f"the probe of {who} failed" if opened else f"{who} is out of order, {_count(state, breaker)}"
        yield f"{MARK}open: {what}; it is not asked for {_wait(breaker.until, state.at)} ({why})"
    elif opened and not breaker.opened:
        how = "the probe succeeded" if leased else "a call that was under way came back"
        yield f"{MARK}closed: {who} works again, {how}"
    elif breaker.leased and breaker.leased != leased and isinstance(event, ev.AttemptStarted):
        probe = f"attempt {event.attempt} of {event.task} by {event.worker}"
        yield f"{MARK}half-open: {who} is tried again, {probe} is the probe"


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
