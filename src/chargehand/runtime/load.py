"""The load of every worker over all runs of a team in one thread, for routers: how busy it is, and how well it does.

Read off the runs under way and the statistics of those that were driven here. Runs of other processes are not seen.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker, stand
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, breaker_name
from chargehand.engine.state import RunState, Status
from chargehand.runtime.stats import CallOutcome, Stats

WINDOW = 600.0
"""For how many seconds an attempt counts."""
MAX_ATTEMPTS = 50
"""How many attempts of each worker count: the latest."""
_FAULTS = frozenset(("", "network", "timeout", "logic", "resource"))  # outcomes that say something about the worker
_ENOUGH = 4  # attempts from which their share of failures, pace and price say something
_ROOM = 4  # tasks at once that half fill a worker without a limit


class WorkerLoad(Struct, frozen=True):
    """How busy and how well a worker is: tasks at work, at most so many (0: no limit), the share of late failures.

    `queue` are tasks that wait for it. Of its late `attempts` (None: not counted) `seconds` is how long each took and
    `micros` what it cost. A worker that is `shut` failed so often that it is not asked now.
    """

    busy: int = 0
    concurrency: int = 0
    failures: float = 0.0
    queue: int = 0
    attempts: int | None = None
    seconds: Seconds | None = None
    micros: int | None = None
    shut: bool = False

    @property
    def strain(self) -> float:
        """0 for idle and healthy, 1 for full, 2 for full and failing, and more than that for who is shut."""
        here = self.busy + self.queue
        full = min(1.0, here / self.concurrency) if self.concurrency else here / (here + _ROOM)
        confidence = 1.0 if self.attempts is None else min(1.0, self.attempts / _ENOUGH)  # one failure is no rate
        return full + confidence * min(1.0, max(0.0, self.failures)) + 3 * self.shut

    @property
    def crowd(self) -> float:
        """How many times full it is, with those that wait; 0 for who has no limit."""
        return (self.busy + self.queue) / self.concurrency if self.concurrency else 0.0

    @property
    def known(self) -> bool:
        """Whether its pace and price are more than chance."""
        return (self.attempts or 0) >= _ENOUGH

    def __str__(self) -> str:
        parts = [f"{self.busy} of {self.concurrency} at work" if self.concurrency else f"{self.busy} at work"]
        parts += [f"{self.queue} waiting"] if self.queue else []
        parts += [f"{self.failures:.0%} failed lately"] if self.failures else []
        parts += [f"{self.seconds:.1f} s each"] if self.seconds is not None else []
        parts += [f"${self.micros / 1_000_000:.4f} each"] if self.micros else []
        return ", ".join([*parts, "out of order"] if self.shut else parts)


class _Counts(Struct):
    """What is counted of one worker, over runs."""

    concurrency: int
    busy: int = 0
    queue: int = 0
    attempts: list[CallOutcome] = field(default_factory=list[CallOutcome])
    shut: bool = True

    @property
    def is_known(self) -> bool:
        return bool(self.busy or self.queue or self.attempts or self.shut)

    def summary(self) -> WorkerLoad:
        attempts = self.attempts
        count = len(attempts)
        times = sorted(attempt.seconds for attempt in attempts if attempt.failure in ("", "timeout"))
        failed = sum(1 for attempt in attempts if attempt.failure)
        return WorkerLoad(
            busy=self.busy,
            concurrency=self.concurrency,
            failures=failed / max(1, count),
            queue=self.queue,
            attempts=count,
            seconds=times[len(times) // 2] if times else None,
            micros=sum(attempt.micros for attempt in attempts) // count if count else None,
            shut=self.shut,
        )


class LoadView:
    """Follows the runs of one team, and says how loaded its workers are."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[str, RunState]] = {}
        self._stats = Stats()
        self._agents: dict[str, Agent] = {}
        self._expected: dict[str, Sequence[str]] = {}

    def enter(self, run: str, state: RunState) -> None:
        """A run is driven from now on."""
        self._runs[id(state)] = (run, state)

    def hear(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Take in what a run wrote."""
        for entry in entries:
            if isinstance(entry.event, ev.RunResumed):
                requested = next(state.requested for name, state in self._runs.values() if name == run)
                self._stats.follow(run, requested, entry.at)
            elif isinstance(entry.event, ev.TasksAdded | ev.SupervisionFailed):
                self._expected.pop(run, None)  # the workers have their tasks now
        self._stats.record(run, entries)

    def leave(self, run: str, state: RunState) -> None:
        """A run is no longer driven: what it learned of open breakers is kept."""
        self._runs.pop(id(state), None)
        self._expected.pop(run, None)
        self._agents.update(state.agents)
        self._stats.leave(run)
        self._stats.keep_breakers(state)

    def expect_work(self, run: str, workers: Sequence[str]) -> None:
        """The plan of a run will have a task for each of these workers."""
        self._expected[run] = workers

    def loads(self, now: Instant, related: Iterable[RunState]) -> dict[str, WorkerLoad]:
        """The load of every worker. `related` are runs of other teams, around these and inside them."""
        states = [state for _, state in self._runs.values()]
        shut = self._shut_breakers(states, related, now)
        agents = dict(self._agents)
        for state in states:
            agents.update(state.agents)
        counts: dict[str, _Counts] = {}
        for agent in agents.values():
            counted = counts[agent.name] = _Counts(agent.concurrency)
            counted.attempts.extend(self._attempts_of(agent.name, now))
            counted.shut = counted.shut and breaker_name(agent) in shut
        self._count_tasks(states, counts)
        return {name: counted.summary() for name, counted in counts.items() if counted.is_known}

    def _attempts_of(self, name: str, now: Instant) -> list[CallOutcome]:
        stats = self._stats.calls["worker"].get(name)
        if stats is None:
            return []
        attempts = [outcome for outcome in stats.recent if outcome.failure in _FAULTS]
        return [outcome for outcome in attempts[-MAX_ATTEMPTS:] if outcome.at >= now - WINDOW]

    def _count_tasks(self, states: Sequence[RunState], workers: Mapping[str, _Counts]) -> None:
        """What is at work and what waits. What may be done by one of several workers waits for none of them."""
        for state in states:
            for name, busy in state.load.items():
                workers[name].busy += busy
            for lane in state.ready_queues.values():
                names = {name for name in lane.candidates if name in state.agents}
                if len(names) == 1:
                    ready = sum(state.ordered[at].status is Status.READY for _, at in lane.heap)
                    workers[names.pop()].queue += ready
        for names in self._expected.values():
            for name in names:
                if name in workers:
                    workers[name].queue += 1

    def _shut_breakers(self, states: Sequence[RunState], related: Iterable[RunState], now: Instant) -> set[str]:
        """The breakers that bar calls now, unless what they guard has worked since, in another run.

        Teams above and below call the same models.
        """
        breakers = self._stats.breakers
        shut = {name for name, breaker in breakers.items() if self._bars(name, breaker, now)}
        for state in states:
            shut |= {name for name, breaker in state.breakers.items() if self._bars(name, breaker, now)}
        for state in related:
            models = [(name, breaker) for name, breaker in state.breakers.items() if breaker.model]
            shut |= {name for name, breaker in models if self._bars(name, breaker, now)}
        return shut

    def _bars(self, name: str, breaker: Breaker, now: Instant) -> bool:
        return stand(breaker, now) in ("open", "probing") and self._stats.in_force(name, breaker)


class ThreadLoad(threading.local):
    """The load of a team in the runs of one thread: threads do not wait for each other over it."""

    def __init__(self) -> None:
        self.view = LoadView()
