"""`python -m tests.sim.scale`: a cluster of 10,000 workers that does 1,000,000 tasks, on virtual time.

Real are the engine, the run loop, the agents with their tool loop, the guard, the limiter and a journal in memory.
Simulated are the provider (it takes its time and replies), the hosts (each is a `Runner` that may die as by kill -9)
and the service that spreads runs over hosts and notices a dead host after a heartbeat. Docs: docs/scale.md.
"""

import argparse
import asyncio
import gc
import logging
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from msgspec import Struct, field, structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.engine.roster import Match
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import JournalProxy, Lease, fenced
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter, Pace, Ticket
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.request_facts import Working
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.sim.loop import VirtualLoop

_EPOCH = 1_000_000.0
_MINUTE = 60.0
_USAGE = Usage(600, 300)
_TOKENS = _USAGE.input + _USAGE.output
_MICRO = 1e6
_TOLD = 1000
"""Progress is told whenever so many runs have ended."""
_MATCH = Match(all=("parts",))


class Cluster(Struct, frozen=True):
    """What is simulated."""

    hosts: int = 100
    runs_at_once: int = 10
    """Runs that one host drives at the same time."""
    workers: int = 10
    """Workers of one run; each does one task at a time."""
    runs: int = 10_000
    tasks: int = 100
    """Tasks of one run, in layers twice as wide as its team."""
    calls_at_once: int = 8_000
    """The provider's limits: calls at once, calls a minute, tokens a minute."""
    requests_per_minute: int = 60_000
    tokens_per_minute: int = 60_000_000
    call_seconds: float = 6.0
    """How long a call of the model takes on average, exponentially distributed."""
    tool_share: float = 0.1
    """Tasks that call a tool, and therefore the model twice."""
    failing: float = 0.002
    """Calls of the model that fail on the way."""
    commit_seconds: float = 0.005
    """How long an append takes until it is durable."""
    deaths: int = 20
    """Hosts that die, spread evenly over the shortest possible time."""
    heartbeat: float = 15.0
    """Seconds until a dead host is noticed."""
    restart: float = 60.0
    """Seconds until it is back."""
    seed: int = 1

    @property
    def slots(self) -> int:
        """Workers that can be busy at the same time."""
        return self.hosts * self.runs_at_once * self.workers

    @property
    def ideal(self) -> float:
        """The shortest possible time: the provider at its tightest limit, or all workers busy all the time."""
        calls = self.runs * self.tasks * (1 + self.tool_share) * (1 + self.failing)
        return max(
            calls / self.requests_per_minute * _MINUTE - _MINUTE,  # the first minute's worth may go at once
            calls * _TOKENS / self.tokens_per_minute * _MINUTE - _MINUTE,
            calls * self.call_seconds / min(self.calls_at_once, self.slots),
        )


class Figures(Struct):
    """What came of it. Times are virtual seconds, except `cpu`."""

    makespan: float = 0.0
    endings: dict[str, int] = field(default_factory=dict[str, int])
    tasks_done: int = 0
    queued: list[float] = field(default_factory=list[float])
    """How long each run waited for a host."""
    limited: list[float] = field(default_factory=list[float])
    """How long each call waited for the provider's limits."""
    takeovers: list[float] = field(default_factory=list[float])
    """How long each run of a dead host waited until another drove it."""
    calls: int = 0
    cut: int = 0
    """Calls that were under way in a host that died: they were made again."""
    repeated: int = 0
    """Calls that were made again although their reply was in the journal."""
    peak_calls: int = 0
    peak_minute: int = 0
    """The most calls in any 60 seconds."""
    cpu: float = 0.0
    memory: float = 0.0


@tool(quick=True)
def look_up(word: str) -> str:
    """Look up a word."""
    return f"{word}: a word"


class Provider:
    """A model that takes its time."""

    card = ModelCard("provider", micros_in=0.0, micros_out=0.0)

    def __init__(self, cluster: Cluster, loop: VirtualLoop, figures: Figures) -> None:
        self.recorded: dict[str, int] = {}
        """By instruction: the replies that were in the journal when another host took over."""
        self._cluster = cluster
        self._loop = loop
        self._figures = figures
        self._chance = random.Random(f"provider/{cluster.seed}")
        self._active = 0
        self._recent: deque[float] = deque()

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        turn = sum(message.role == "assistant" for message in request.messages)
        assert isinstance(request.subject, Working)
        if turn < self.recorded.get(request.subject.instruction, 0):
            self._figures.repeated += 1
        self._count_start()
        chance = self._chance
        try:
            await asyncio.sleep(chance.expovariate(1 / self._cluster.call_seconds))
        except asyncio.CancelledError:
            self._figures.cut += 1
            raise
        finally:
            self._active -= 1
        if chance.random() < self._cluster.failing:
            self.recorded.pop(request.subject.instruction, None)  # where the attempt fails, the next begins anew
            raise ModelFailed(Failure("network", "provider: the connection was lost"))
        if not turn and chance.random() < self._cluster.tool_share:
            call = ToolCall("c1", "look_up", '{"word":"pear"}')
            return Reply(calls=(call,), finish="tools", usage=_USAGE, micros=1)
        return Reply("It is done.", usage=_USAGE, micros=1)

    def _count_start(self) -> None:
        figures = self._figures
        now = self._loop.time()
        figures.calls += 1
        self._active += 1
        figures.peak_calls = max(figures.peak_calls, self._active)
        self._recent.append(now)
        while self._recent[0] <= now - _MINUTE:
            self._recent.popleft()
        figures.peak_minute = max(figures.peak_minute, len(self._recent))


class TimedLimiter(Limiter):
    """A limiter that writes down how long each call waited."""

    def __init__(self, cluster: Cluster, loop: VirtualLoop, figures: Figures) -> None:
        pace = Pace(cluster.calls_at_once, cluster.requests_per_minute, cluster.tokens_per_minute)
        super().__init__(pace, clock=loop.time)
        self._waits = figures.limited
        self._now = loop.time

    async def enter(self, tokens: int = 0) -> Ticket:
        began = self._now()
        ticket = await super().enter(tokens)
        self._waits.append(self._now() - began)
        return ticket


class HostJournal(JournalProxy):
    """The journal as one host reaches it: an append takes a while, and nothing of a dead host arrives."""

    def __init__(self, journal: MemoryJournal, commit_seconds: float) -> None:
        super().__init__(journal)
        self.is_dead = False
        self._commit_seconds = commit_seconds

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        await asyncio.sleep(self._commit_seconds)
        if self.is_dead:
            raise fenced(lease.run, lease.epoch)
        await super().append(lease, entries)

    async def release(self, lease: Lease) -> None:
        if not self.is_dead:
            await super().release(lease)


class Host:
    """A process that drives runs. `jobs` are the runs it has."""

    def __init__(self, journal: HostJournal, executor: Executor, loop: VirtualLoop) -> None:
        self.journal = journal
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self.runner = Runner(journal, executor, wall=loop.time, ticks=loop.time)


class Simulation:
    """One cluster from the first run to the last."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.figures = Figures()
        self.loop = VirtualLoop(_EPOCH, most_steps=sys.maxsize)
        self.provider = Provider(cluster, self.loop, self.figures)
        self._journal = MemoryJournal(max_ended_runs=0)
        self._queue = deque(f"run{number}" for number in range(cluster.runs))
        self._orphaned: dict[str, float] = {}
        """When the host of a run died that nobody has taken over yet."""
        self._hosts: list[Host] = []
        self._left = cluster.runs
        self._chance = random.Random(f"hosts/{cluster.seed}")
        self._team = self._make_team()

    def _make_team(self) -> Team:
        cluster = self.cluster
        limiter = TimedLimiter(cluster, self.loop, self.figures)
        model = Guarded(
            self.provider, limiter=limiter, clock=self.loop.time, random=random.Random(f"guard/{cluster.seed}")
        )
        workers = [
            Worker(
                f"w{number}",
                "does parts",
                tags=_MATCH.all,
                tools=[look_up],
                concurrency=1,
                timeout=10 * cluster.ideal,
            )
            for number in range(cluster.workers)
        ]
        limits = Limits(width=cluster.workers, max_tasks=cluster.tasks, max_depth=cluster.tasks, fan_out=10**6)
        return Team(
            workers,
            supervisor=Supervisor(model=model, combine="none"),
            policy=Policy(limits=limits),
            timeout=10 * cluster.ideal + 3600,
        )

    def play(self) -> Figures:
        """All of it, to the end."""
        cpu = time.process_time()
        self.loop.run_until_complete(self._play())
        self.figures.cpu = time.process_time() - cpu
        self.figures.memory = _peak_memory()
        return self.figures

    async def _play(self) -> None:
        cluster = self.cluster
        began = self.loop.time()
        async with self._team.executor() as executor, asyncio.TaskGroup() as jobs:
            self._jobs = jobs
            self._executor = executor
            for _ in range(cluster.hosts):
                self._add_host()
            for number in range(cluster.deaths):
                self.loop.call_later(cluster.ideal * (number + 1) / (cluster.deaths + 1), self._kill_host)
        self.figures.makespan = self.loop.time() - began

    # --- the service that spreads runs

    def _add_host(self) -> None:
        journal = HostJournal(self._journal, self.cluster.commit_seconds)
        self._hosts.append(Host(journal, self._executor, self.loop))
        self._spread()

    def _spread(self) -> None:
        """Give waiting runs to hosts with room, the least loaded first."""
        while self._queue:
            host = min(self._hosts, key=lambda host: len(host.jobs), default=None)
            if host is None or len(host.jobs) >= self.cluster.runs_at_once:
                return
            run = self._queue.popleft()
            host.jobs[run] = self._jobs.create_task(self._drive(host, run))

    def _kill_host(self) -> None:
        if len(self._hosts) < 2 or not self._left:  # somebody must be there to go on
            return
        host = self._hosts.pop(self._chance.randrange(len(self._hosts)))
        host.journal.is_dead = True
        for job in host.jobs.values():
            job.cancel()
        runs = list(host.jobs)
        now = self.loop.time()
        self._orphaned.update(dict.fromkeys(runs, now))
        self.loop.call_later(self.cluster.heartbeat, self._notice_death, runs)
        self.loop.call_later(self.cluster.restart, self._add_host)

    def _notice_death(self, runs: Sequence[str]) -> None:
        self._queue.extendleft(reversed(runs))
        self._spread()

    async def _drive(self, host: Host, run: str) -> None:
        now = self.loop.time()
        try:
            if (died := self._orphaned.pop(run, None)) is None:
                self.figures.queued.append(now - _EPOCH)
                outcome = await host.runner.start(run, self._request(run))
            else:
                self.figures.takeovers.append(now - died)
                await self._note_recorded(run)
                outcome = await host.runner.resume(run, steal=True)
        except asyncio.CancelledError:
            if not host.journal.is_dead:
                raise
            return
        del host.jobs[run]
        endings = self.figures.endings
        endings[outcome.ending] = endings.get(outcome.ending, 0) + 1
        self.figures.tasks_done += len(outcome.results)
        self._left -= 1
        if self._left and self._left % _TOLD == 0:
            print(f"{self._left:,} runs left after {self.loop.time() - _EPOCH:,.0f} s", file=sys.stderr, flush=True)
        self._spread()

    def _request(self, run: str) -> ev.RunRequested:
        cluster = self.cluster
        across = 2 * cluster.workers
        tasks: list[Task] = []
        for number in range(cluster.tasks):
            above = number - number % across - across
            inputs = (above + number % across, above + (number + 1) % across) if above >= 0 else ()
            after = tuple(TaskId(f"t{other}") for other in inputs)
            tasks.append(Task(TaskId(f"t{number}"), _instruction(run, number), match=_MATCH, after=after))
        return self._team.request(run, self.loop.time(), plan=Plan(tuple(tasks), "none"), seed=cluster.seed)

    async def _note_recorded(self, run: str) -> None:
        """Remember which replies the journal has: they may not be asked for again."""
        model_steps: set[tuple[TaskId, int]] = set()
        recorded: Counter[str] = Counter()
        for entry in await self._journal.read(run):
            event = entry.event
            if isinstance(event, ev.StepStarted) and event.kind == "model":
                model_steps.add((event.task, event.step))
            elif isinstance(event, ev.StepFinished) and (event.task, event.step) in model_steps:
                recorded[_instruction(run, int(event.task[1:]))] += 1
            elif isinstance(event, ev.AttemptFailed):  # the next attempt begins anew
                recorded[_instruction(run, int(event.task[1:]))] = 0
        self.provider.recorded.update(recorded)


def _instruction(run: str, number: int) -> str:
    return f"Do part {number} of {run}."


def _peak_memory() -> float:
    """Bytes this process held at most; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    lines = status.read_text(encoding="ascii").splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def problems(cluster: Cluster, figures: Figures) -> list[str]:
    """What must not be so."""
    found: list[str] = []
    if figures.endings != {"complete": cluster.runs}:
        found.append(f"of {cluster.runs} runs ended: {figures.endings}")
    if figures.tasks_done != cluster.runs * cluster.tasks:
        found.append(f"{figures.tasks_done} tasks have results, not {cluster.runs * cluster.tasks}")
    if figures.repeated:
        found.append(f"{figures.repeated} calls were made again although their replies were recorded")
    if figures.peak_calls > cluster.calls_at_once:
        found.append(f"{figures.peak_calls} calls at once, of {cluster.calls_at_once} allowed")
    if figures.peak_minute > cluster.requests_per_minute:
        found.append(f"{figures.peak_minute} calls within a minute, of {cluster.requests_per_minute} allowed")
    return found


def report(cluster: Cluster, figures: Figures) -> str:
    """The figures as lines of text."""
    tasks = cluster.runs * cluster.tasks
    lines = [
        (
            f"{cluster.slots:,} workers on {cluster.hosts} hosts, {tasks:,} tasks in {cluster.runs:,} runs, "
            f"{cluster.hosts * cluster.runs_at_once:,} runs at once"
        ),
        f"throughput    {tasks / figures.makespan:,.0f} tasks/s of virtual time",
        f"makespan      {figures.makespan:,.0f} s, {figures.makespan / cluster.ideal:.3f} x the ideal",
        f"runs queued   {_spread_text(figures.queued)}",
        f"calls queued  {_spread_text(figures.limited)}",
        f"provider      {figures.calls:,} calls",
        f"  at once     {figures.peak_calls:,} at most, {cluster.calls_at_once:,} allowed",
        f"  a minute    {figures.peak_minute:,} at most, {cluster.requests_per_minute:,} allowed",
        f"host deaths   {len(figures.takeovers):,} runs taken over, {_spread_text(figures.takeovers)}",
        (
            f"repeated      {figures.cut:,} calls under way when a host died ({figures.cut / figures.calls:.3%}), "
            f"{figures.repeated} recorded ones"
        ),
        f"cost here     {_MICRO * figures.cpu / tasks:,.0f} us of CPU a task, {figures.memory / 1e6:,.0f} MB at most",
    ]
    return "\n".join(lines)


def _spread_text(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    parts = {"median": 0.5, "p99": 0.99, "longest": 1.0}
    return ", ".join(f"{name} {ordered[ceil(part * len(ordered)) - 1]:,.1f} s" for name, part in parts.items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.scale", description=__doc__)
    usual = Cluster()
    for name, default in structs.asdict(usual).items():
        kind = int if isinstance(default, int) else float
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, metavar="N")
    cluster = Cluster(**vars(parser.parse_args()))
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # fewer collections of so many live objects
    logging.disable(logging.WARNING)  # each death is logged for every run of the host
    figures = Simulation(cluster).play()
    print(report(cluster, figures))
    found = problems(cluster, figures)
    print("\n".join(f"WRONG: {problem}" for problem in found) or "every run is complete; no limit was exceeded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
