"""The load of every worker over all runs of a team in one thread, for routers: how busy it is, and how well it does.

Read off the runs under way and the statistics of those that were driven here. Runs of other processes are not seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

from msgspec import Struct, field

from chargehand.agents.routing.decision import Board, ConfirmedExamples, Load
from chargehand.engine import events as ev
from chargehand.engine.attempts import breaker_name
from chargehand.engine.breaker import Breaker, stand
from chargehand.engine.policy import Instant
from chargehand.engine.roster import Agent
from chargehand.engine.state import RunState, Status
from chargehand.runtime.clock import Clock
from chargehand.runtime.stats import Outcome, Stats

WINDOW = 600.0
"""For how many seconds an attempt counts."""
MAX_ATTEMPTS = 50
"""How many attempts of each worker count: the latest."""
_FAULTS = frozenset(("", "network", "timeout", "logic", "resource"))  # outcomes that say something about the worker
_MODEL = "model:"


class RunsSeen(Protocol):
    """What is needed of a runner."""

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    def route_examples(self, run: str) -> ConfirmedExamples | None:
        """The confirmed examples of its team, for a run under way; None where it does not learn."""
        ...

    def around(self) -> Iterable[RunState]:
        """The runs of runners above and beneath, who ask the same models."""
        ...


class _WorkerLoad(Struct):
    """The load of one worker, over runs."""

    concurrency: int
    busy: int = 0
    queue: int = 0
    attempts: list[Outcome] = field(default_factory=list[Outcome])
    shut: bool = True

    @property
    def is_known(self) -> bool:
        return bool(self.busy or self.queue or self.attempts or self.shut)

    def summary(self) -> Load:
        attempts = self.attempts
        count = len(attempts)
        times = sorted(attempt.seconds for attempt in attempts if attempt.failure in ("", "timeout"))
        failed = sum(1 for attempt in attempts if attempt.failure)
        return Load(
            busy=self.busy,
            concurrency=self.concurrency,
            failures=failed / max(1, count),
            queue=self.queue,
            attempts=count,
            seconds=times[len(times) // 2] if times else None,
            micros=sum(attempt.micros for attempt in attempts) // count if count else None,
            shut=self.shut,
        )


def load_view(executor: object, driver: RunsSeen, clock: Clock) -> "LoadView":
    """The load of the team of an executor, as all its runners see it; an executor of no team has one of its own."""
    board = getattr(executor, "board", None)
    view = board.watch if isinstance(board, Board) else None
    if not isinstance(view, LoadView) or view.clock != clock:
        view = LoadView(clock)
        if isinstance(board, Board):
            board.watch = view
    view.join(driver)
    return view


class LoadView:
    """Listens to the runs of some runners, and says how loaded their workers are."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._drivers: WeakSet[RunsSeen] = WeakSet()
        self._stats = Stats()
        self._agents: dict[str, Agent] = {}
        self._chosen: dict[str, Sequence[str]] = {}

    def join(self, driver: RunsSeen) -> None:
        """Listen to the runs of one more runner."""
        self._drivers.add(driver)

    def _driver_of(self, run: str) -> RunsSeen | None:
        return next((driver for driver in self._drivers if run in driver.under_way), None)

    # --- what is written

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        for entry in entries:
            if isinstance(entry.event, ev.RunResumed):
                driver = self._driver_of(run)
                if driver is not None:
                    self._stats.follow(run, driver.under_way[run].requested, entry.at)
            elif isinstance(entry.event, ev.TasksAdded | ev.SupervisionFailed):
                self._chosen.pop(run, None)  # who was chosen has the task now
        self._stats.record(run, entries)

    def leave(self, run: str, state: RunState) -> None:
        """A run is no longer driven: what it learned of those that are out of order is kept."""
        self._chosen.pop(run, None)
        self._agents.update(state.agents)
        self._stats.leave(run)
        self._stats.keep_breakers(state)

    # --- what routers ask

    def drives(self, run: str) -> bool:
        return self._driver_of(run) is not None

    def chose(self, run: str, names: Sequence[str]) -> None:
        self._chosen[run] = names

    def route_examples(self, run: str) -> ConfirmedExamples | None:
        driver = self._driver_of(run)
        return None if driver is None else driver.route_examples(run)

    def loads(self) -> dict[str, Load]:
        now = self.clock()
        states = [state for driver in self._drivers for state in driver.under_way.values()]
        shut = self._shut_breakers(states, now)
        agents = dict(self._agents)
        for state in states:
            agents.update(state.agents)
        workers: dict[str, _WorkerLoad] = {}
        for agent in agents.values():
            worker = workers[agent.name] = _WorkerLoad(agent.concurrency)
            worker.attempts.extend(self._attempts_of(agent.name, now))
            worker.shut = worker.shut and breaker_name(agent) in shut
        self._count_tasks(states, workers)
        return {name: worker.summary() for name, worker in workers.items() if worker.is_known}

    def _attempts_of(self, name: str, now: Instant) -> list[Outcome]:
        stats = self._stats.calls["worker"].get(name)
        if stats is None:
            return []
        attempts = [outcome for outcome in stats.recent if outcome.failure in _FAULTS]
        return [outcome for outcome in attempts[-MAX_ATTEMPTS:] if outcome.at >= now - WINDOW]

    def _count_tasks(self, states: Sequence[RunState], workers: Mapping[str, _WorkerLoad]) -> None:
        """What is at work and what waits. What may be done by one of several workers waits for none of them."""
        for state in states:
            for name, busy in state.load.items():
                workers[name].busy += busy
            for lane in state.lanes.values():
                names = {name for name in lane.candidates if name in state.agents}
                if len(names) == 1:
                    ready = sum(state.ordered[at].status is Status.READY for _, at in lane.heap)
                    workers[names.pop()].queue += ready
        for names in self._chosen.values():
            for name in names:
                if name in workers:
                    workers[name].queue += 1

    def _shut_breakers(self, states: Sequence[RunState], now: Instant) -> set[str]:
        """The breakers that bar calls now, unless whom they bar has worked since, in another run."""
        kept = self._stats.breakers
        shut = {name for name, breaker in kept.items() if self._bars(name, breaker, now)}
        for state in states:
            shut |= {name for name, breaker in state.breakers.items() if self._bars(name, breaker, now)}
        for state in (state for driver in self._drivers for state in driver.around()):
            models = [(name, breaker) for name, breaker in state.breakers.items() if name.startswith(_MODEL)]
            shut |= {name for name, breaker in models if self._bars(name, breaker, now)}
        return shut

    def _bars(self, name: str, breaker: Breaker, now: Instant) -> bool:
        return stand(breaker, now) in ("open", "probing") and self._stats.in_force(name, breaker)
