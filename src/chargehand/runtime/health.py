"""How workers, their tools and their models are doing, read off the entries of runs. Nothing is called or decided here.

Breakers of workers and models are those that the runs themselves decide by. That of a tool is reckoned from its calls:
one that only ever objects to what it is asked is not out of order, and is said to be failing.
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from math import ceil
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.core.fold import begin, fold
from chargehand.errors import Corrupt
from chargehand.runtime.health_cases import HEARS, Case, Visit, What
from chargehand.stores.journal import Journal
from chargehand.terms import events as ev
from chargehand.terms.breaker import Stand, next_change, stand
from chargehand.terms.policy import Breaking, Instant, Seconds

State: TypeAlias = Stand | Literal["failing"]

MOST_RUNS = 200
"""How many runs are looked at, the latest ones."""

_IN_A_ROW = Breaking().consecutive
_ORDER: dict[What, int] = {"worker": 0, "tool": 1, "model": 2}
_BARS: dict[Stand, int] = {"closed": 0, "half-open": 1, "probing": 2, "open": 3}


class WorkerHealth(Struct, frozen=True):
    """One worker, tool or model. `attempts` are those of a worker; of a tool or a model, the calls of it.

    `failures` counts by kind, `rate` is their share. `median` and `p95` are seconds of the latest calls that came back,
    `again` the instant at which one that is open may be tried again, `flying` what is under way now.
    """

    what: What
    name: str
    attempts: int
    failures: dict[str, int]
    rate: float
    median: Seconds | None
    p95: Seconds | None
    state: State
    again: Instant = 0.0
    flying: int = 0
    last: Instant = 0.0


def health(
    runs: Iterable[tuple[str, Sequence[ev.Entry]]], now: Instant, *, driven: Container[str] | None = None
) -> tuple[WorkerHealth, ...]:
    """How everybody is doing who was called in these runs: workers, tools, models, the latest called first.

    `driven` names the runs that somebody drives: what the others left open is not under way. Left out, all are.
    """
    ward = _Ward()
    for run, entries in sorted(runs, key=lambda one: one[1][0].at if one[1] else 0.0):
        if entries:
            ward.take_in(entries, living=driven is None or run in driven)
    return ward.found(now)


async def health_of(journal: Journal, now: Instant, *, most: int = MOST_RUNS) -> tuple[WorkerHealth, ...]:
    """The same for the latest runs of an open journal."""
    rows = sorted(await journal.runs(), key=lambda row: row.changed, reverse=True)[:most]
    runs: list[tuple[str, list[ev.Entry]]] = []
    for row in rows:
        with suppress(Corrupt):  # the others are worth a look all the same
            runs.append((row.run, await journal.read(row.run)))
    return health(runs, now, driven={row.run for row in rows if row.held})


class _Ward:
    def __init__(self) -> None:
        self._cases: dict[tuple[What, str], Case] = {}

    def take_in(self, entries: Sequence[ev.Entry], *, living: bool) -> None:
        state = begin(entries[0])
        visit = Visit(self.case, state)
        for entry in entries[1:]:
            hears = HEARS.get(type(entry.event))
            if hears is not None:
                hears(visit, entry.event, entry.at)
            fold(state, entry)
        visit.close(living=living and state.ended is None)

    def case(self, what: What, name: str) -> Case:
        found = self._cases.get((what, name))
        if found is None:
            found = self._cases[what, name] = Case(failures={}, times=deque())
        return found

    def found(self, now: Instant) -> tuple[WorkerHealth, ...]:
        known = [key for key, case in self._cases.items() if case.calls or case.shut]
        known.sort(key=lambda key: (_ORDER[key[0]], -self._cases[key].last, key[1]))
        return tuple(self._report(what, name, self._cases[what, name], now) for what, name in known)

    def _report(self, what: What, name: str, case: Case, now: Instant) -> WorkerHealth:
        state, again = self._stand(case, now)
        if what == "tool" and case.row >= _IN_A_ROW and not case.shut:
            state = "failing"
        failed, times = sum(case.failures.values()), sorted(case.times)
        return WorkerHealth(
            what, name, case.calls, dict(sorted(case.failures.items())), failed / max(1, case.calls),
            _at(times, 0.5), _at(times, 0.95), state, again, case.flying, case.last,
        )  # fmt: skip

    def _stand(self, case: Case, now: Instant) -> tuple[State, Instant]:
        """Where its breaker stands, and when that changes. Who needs a model is barred where the model is."""
        behind = self._cases.get(("model", case.model))
        held = [one.breaker for one in (case, behind) if one is not None and one.breaker is not None]
        state = _firmest([stand(one, now) for one in held])
        again = max((next_change(one) for one in held), default=0.0)
        return state, again if state in ("open", "probing") else 0.0


def _firmest(stands: Sequence[Stand]) -> Stand:
    found: Stand = "closed"
    for one in stands:
        found = one if _BARS[one] > _BARS[found] else found
    return found


def _at(times: Sequence[float], share: float) -> Seconds | None:
    """The time that this share of the calls did not exceed."""
    return times[max(0, ceil(share * len(times)) - 1)] if times else None
