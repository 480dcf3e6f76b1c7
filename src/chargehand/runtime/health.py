"""How workers, their tools and their models are doing, by the statistics of runs. Nothing is called or decided here.

A tool that only ever objects to what it is asked is not out of order; it is reported as failing.
"""

from collections.abc import Container, Iterable, Sequence
from math import ceil
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker, Stand, next_change, stand
from chargehand.engine.fold import replay
from chargehand.engine.policy import Breaking, Instant, Seconds
from chargehand.engine.roster import breaker_name
from chargehand.runtime.stats import Called, CallStats, Stats

State: TypeAlias = Stand | Literal["failing"]

MAX_RUNS = 200
"""How many runs are looked at, the latest ones."""

_FAILURES_IN_ROW = Breaking().consecutive


class WorkerHealth(Struct, frozen=True, kw_only=True):
    """One worker, tool or model."""

    what: Called
    name: str
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
    """How all workers, tools and models are doing that were called in these runs, the latest called first.

    `driven` names the runs that a process drives: what the others left open is not under way. Left out, all are.
    """
    stats = Stats()
    for run, entries in sorted(runs, key=lambda named: named[1][0].at if named[1] else 0.0):
        if entries:
            stats.record(run, entries)
            stats.keep_breakers(replay(entries))
            if driven is not None and run not in driven:
                stats.leave(run)
    return report(stats, now)


def report(stats: Stats, now: Instant) -> tuple[WorkerHealth, ...]:
    """Workers first, then tools, then models; those that were called, or are out of order."""
    lines: list[WorkerHealth] = []
    for called, table in stats.calls.items():
        known = [_health(stats, called, name, calls, now) for name, calls in table.items() if calls.calls]
        if called == "model":
            known += [_health(stats, called, name, CallStats(), now) for name in _barred_models(stats)]
        lines += sorted(known, key=lambda line: (-line.last, line.name))
    return tuple(lines)


def _barred_models(stats: Stats) -> list[str]:
    """Models out of order that no call was recorded of."""
    names = [name.removeprefix("model:") for name in stats.breakers if name.startswith("model:")]
    return [name for name in names if name not in stats.calls["model"] or not stats.calls["model"][name].calls]


def _health(stats: Stats, called: Called, name: str, calls: CallStats, now: Instant) -> WorkerHealth:
    breaker = _breaker(stats, called, name, calls)
    state: State = "closed" if breaker is None else stand(breaker, now)
    if called == "tool" and breaker is None and calls.failures_in_row >= _FAILURES_IN_ROW:
        state = "failing"
    times = sorted(outcome.seconds for outcome in calls.recent)
    return WorkerHealth(
        what=called,
        name=name,
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
    key = f"model:{name}"
    if called == "worker":
        key = "" if calls.agent is None else breaker_name(calls.agent)
    breaker = stats.breakers.get(key)
    return breaker if breaker is not None and stats.in_force(key, breaker) else None


def _quantile(times: Sequence[Seconds], share: float) -> Seconds | None:
    """The time that this share of the calls did not exceed."""
    return times[max(0, ceil(share * len(times)) - 1)] if times else None
