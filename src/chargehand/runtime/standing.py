"""How busy and how well every worker is, over all runs of a team in one thread: what a router may reckon with.

It is read off the runs under way and off what is written; nothing is decided here. Reports of runs elsewhere, and of
those before this process began, are not known.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

from msgspec import Struct, field

from chargehand.agents.instances import kind_of
from chargehand.agents.routers.decision import Board, Learnt, Load
from chargehand.core.attempts import breaker_name
from chargehand.core.state import RunState, Status
from chargehand.runtime.clock import Clock
from chargehand.terms import events as ev
from chargehand.terms.breaker import Breaker, stand
from chargehand.terms.plan import TaskId
from chargehand.terms.policy import Instant, Seconds
from chargehand.terms.roster import Agent

WINDOW = 600.0  # seconds that an attempt counts
MOST = 50  # attempts of each worker that count: the latest
_FAULTS = frozenset(("network", "timeout", "logic", "resource"))
_MODEL = "model:"


class Sees(Protocol):
    """What is needed of a driver."""

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    def book(self, run: str) -> Learnt | None:
        """What its team learnt, for a run under way; None where it does not learn."""
        ...

    def around(self) -> Iterable[RunState]:
        """The runs of drivers above and beneath, who ask the same models."""
        ...


class _Open(Struct):
    """An attempt under way."""

    worker: str
    since: Instant
    micros: int = 0


class _Tried(Struct, frozen=True):
    """An attempt that is over. `seconds` is left out where it ended too early to tell how long one takes."""

    at: Instant
    good: bool
    micros: int
    seconds: Seconds | None = None


class _Sum(Struct):
    """What comes together for one worker, over its instances and over runs."""

    capacity: int
    busy: int = 0
    queue: int = 0
    tried: list[_Tried] = field(default_factory=list[_Tried])
    shut: bool = True

    @property
    def tells(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.busy or self.queue or self.tried or self.shut)

    def load(self) -> Load:
        tried = self.tried
        times = sorted(one.seconds for one in tried if one.seconds is not None)
        failed = sum(not one.good for one in tried)
        return Load(
            self.busy, self.capacity, failed / max(1, len(tried)), self.queue, len(tried),
            times[len(times) // 2] if times else None,
            sum(one.micros for one in tried) // len(tried) if tried else None, self.shut,
        )  # fmt: skip


def standing(crew: object, driver: Sees, clock: Clock) -> "Standing":
    """How the team of a crew stands, as all its drivers see it; a crew that is nobody's stands for itself."""
    board = getattr(crew, "board", None)
    found = board.watch if isinstance(board, Board) else None
    if not isinstance(found, Standing) or found.clock != clock:
        found = Standing(clock)
        if isinstance(board, Board):
            board.watch = found
    found.join(driver)
    return found


class Standing:
    """Hears what the runs of some drivers write; tells how everybody in them stands."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._drivers: WeakSet[Sees] = WeakSet()
        self._agents: dict[str, Agent] = {}
        self._open: dict[tuple[str, TaskId], _Open] = {}
        self._tried: dict[str, deque[_Tried]] = {}
        self._worked: dict[str, Instant] = {}  # when somebody, or a model, last did what it should
        self._left: dict[str, Breaker] = {}  # of runs that are over
        self._chosen: dict[str, Sequence[str]] = {}

    def join(self, driver: Sees) -> None:
        """One more whose runs are heard."""
        self._drivers.add(driver)

    def _driving(self, run: str) -> Sees | None:
        return next((one for one in self._drivers if run in one.under_way), None)

    def _states(self) -> list[RunState]:
        return [state for one in self._drivers for state in one.under_way.values()]

    # --- what is heard

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """What was written just now."""
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.AttemptStarted):
                self._open[run, event.task] = _Open(event.worker, entry.at)
            elif isinstance(event, ev.StepFinished) and event.used is not None and (run, event.task) in self._open:
                self._open[run, event.task].micros += event.used.micros
            elif isinstance(event, ev.AttemptSucceeded | ev.AttemptFailed):
                self._over(run, event, entry.at)
            elif isinstance(event, ev.TasksAdded | ev.SupervisionFailed):
                self._chosen.pop(run, None)  # who was chosen has the task now

    def _over(self, run: str, event: ev.AttemptSucceeded | ev.AttemptFailed, at: Instant) -> None:
        found = self._open.pop((run, event.task), None)
        kind = event.failure.kind if isinstance(event, ev.AttemptFailed) else ""
        if found is None or (kind and kind not in _FAULTS):
            return
        tried = self._tried.setdefault(found.worker, deque(maxlen=MOST))
        micros = found.micros + (event.used.micros if event.used is not None else 0)
        tried.append(_Tried(at, not kind, micros, at - found.since if kind in ("", "timeout") else None))
        driver = self._driving(run)
        if not kind and driver is not None:
            agent = driver.under_way[run].agents[found.worker]
            self._worked[breaker_name(agent)] = at

    def leave(self, run: str, state: RunState) -> None:
        """A run is no longer driven: what it learned of those that are out of order is kept."""
        self._chosen.pop(run, None)
        for key in [key for key in self._open if key[0] == run]:
            del self._open[key]
        self._agents.update(state.agents)
        self._left.update((name, one) for name, one in state.breakers.items() if one.opened)

    # --- what is told

    def drives(self, run: str) -> bool:
        return self._driving(run) is not None

    def chose(self, run: str, names: Sequence[str]) -> None:
        self._chosen[run] = names

    def lessons(self, run: str) -> Learnt | None:
        driver = self._driving(run)
        return None if driver is None else driver.book(run)

    def loads(self) -> dict[str, Load]:
        now, states = self.clock(), self._states()
        shut = self._shut(states, now)
        agents = dict(self._agents)
        for state in states:
            agents.update(state.agents)
        sums: dict[str, _Sum] = {}
        for agent in agents.values():
            found = sums.get(kind := kind_of(agent))
            if found is None:
                found = sums[kind] = _Sum(agent.capacity)
            else:
                found.capacity = found.capacity and agent.capacity and found.capacity + agent.capacity
            found.tried.extend(one for one in self._tried.get(agent.name, ()) if one.at >= now - WINDOW)
            found.shut = found.shut and breaker_name(agent) in shut
        self._count(states, sums)
        return {name: one.load() for name, one in sums.items() if one.tells}

    def _count(self, states: Sequence[RunState], sums: Mapping[str, _Sum]) -> None:
        """What is at work and what waits. What may be done by one of several workers waits for none of them."""
        for state in states:
            for name, busy in state.load.items():
                sums[kind_of(state.agents[name])].busy += busy
            for lane in state.lanes.values():
                kinds = {kind_of(state.agents[name]) for name in lane.candidates if name in state.agents}
                if len(kinds) == 1:
                    ready = sum(state.ordered[at].status is Status.READY for _, at in lane.heap)
                    sums[kinds.pop()].queue += ready
        for name in (one for names in self._chosen.values() for one in names):
            if name in sums:
                sums[name].queue += 1

    def _shut(self, states: Sequence[RunState], now: Instant) -> frozenset[str]:
        """The breakers that bar calls now, unless whom they bar has worked since, in another run."""
        here = [self._left.items(), *(state.breakers.items() for state in states)]
        found = {name for items in here for name, one in items if self._bars(name, one, now)}
        for state in (each for one in self._drivers for each in one.around()):
            found.update(
                name for name, one in state.breakers.items() if name.startswith(_MODEL) and self._bars(name, one, now)
            )
        return frozenset(found)

    def _bars(self, name: str, breaker: Breaker, now: Instant) -> bool:
        since = breaker.recent[-1][0] if breaker.recent else 0.0
        return stand(breaker, now) in ("open", "probing") and self._worked.get(name, 0.0) <= since
