"""One circuit breaker as pure data: closed, open, half-open with one leased probe.

A breaker says who may be asked now; it never acts. Half-open lasts only as long as the probe's lease, so a probe
that hangs cannot keep it half-open for ever.
"""

from typing import Literal

from msgspec import Struct

from chargehand.engine.policy import Breaking, Instant

Stand = Literal["closed", "open", "half-open", "probing"]


class Breaker(Struct):
    """`opened` counts openings since the last recovery; the wait grows with it."""

    row: int = 0
    opened: int = 0
    until: Instant = 0.0
    leased: Instant = 0.0
    recent: list[tuple[Instant, bool]] = []
    model: str = ""
    """The model whose calls it bars, for all workers that need it."""
    worker: str = ""
    """The worker that it bars, where it is no model that failed."""


def stand(breaker: Breaker, now: Instant) -> Stand:
    """Closed and half-open admit a call (half-open exactly one, which must take the lease); the others do not."""
    if not breaker.opened:
        return "closed"
    if now < breaker.leased:
        return "probing"
    return "half-open" if now >= breaker.until else "open"


def next_change(breaker: Breaker) -> Instant:
    """When it may admit a call again."""
    return max(breaker.until, breaker.leased)


def lease(breaker: Breaker, now: Instant, numbers: Breaking) -> None:
    """A probe goes out."""
    breaker.leased = now + numbers.lease


def forget_probe(breaker: Breaker) -> None:
    """The probe's owner died; the next may try at once."""
    breaker.leased = 0.0


def note(breaker: Breaker, now: Instant, numbers: Breaking, *, good: bool) -> None:
    """Book one outcome."""
    recent = breaker.recent
    horizon = now - numbers.window
    recent.append((now, good))
    while recent[0][0] < horizon or len(recent) > 4 * numbers.sample:
        del recent[0]
    if good:
        breaker.row = 0
        if breaker.opened:  # the probe, or a call sent before it opened: either way it answers again
            breaker.opened = 0
            breaker.leased = 0.0
            breaker.recent = []
        return
    breaker.row += 1
    if breaker.opened:
        if breaker.leased:  # the probe failed: open again, for longer
            _open(breaker, now, numbers)
        return
    bad = sum(not good for _, good in breaker.recent)
    if breaker.row >= numbers.consecutive or (
        len(breaker.recent) >= numbers.sample and bad >= numbers.share * len(breaker.recent)
    ):
        _open(breaker, now, numbers)


def _open(breaker: Breaker, now: Instant, numbers: Breaking) -> None:
    breaker.opened += 1
    breaker.leased = 0.0
    breaker.until = now + min(numbers.open * breaker.opened, numbers.open_ceiling)
