"""Retry amplification: how many calls reach a provider that answers none of them, beside one call a task."""

import asyncio
import time
from collections.abc import Callable
from random import Random

import pytest

from chargehand.agents.roles import Hedge, Supervisor, Worker
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy
from chargehand.journal.memory import MemoryJournal
from chargehand.models.call_errors import CallFailed
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Model
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from tests.sim.loop import VirtualLoop
from tests.support.hunts import hunt_size

ANN = Worker("ann", "carries things out")
GOAL = "Carry out all of it."
TASKS = 200
WIDE = Policy(limits=Limits(max_tasks=TASKS))


def slow_down(wait: float = 0.0) -> CallFailed:
    return CallFailed(Failure("resource", "slow down", wait), status=429)


OUTAGES: dict[str, Line] = {
    "500": CallFailed(Failure("network", "answered 500"), status=500),
    "cut": CallFailed(Failure("network", "the connection was cut")),
    "garbage": CallFailed(Failure("network", "the reply cannot be used")),
    "late": CallFailed(Failure("timeout", "it took too long")),
    "429": slow_down(),
    "429, in 1 s": slow_down(1.0),
    "429, in 20 s": slow_down(20.0),
    "429, in a day": slow_down(86_400.0),
    "empty": CallFailed(Failure("logic", "the model answered with nothing")),
    "too large": CallFailed(Failure("resource", "the reply is larger than 8 bytes")),
    "filtered": Reply("I cannot", finish="refused"),
}
ANSWERED = ("empty", "too large", "filtered")
"""What is no outage: no waiting mends it, so that no breaker counts it. Each task hears it from its own call."""


def most(kind: str) -> float:
    """As measured: the breaker bars most of them; refusals come in bursts of 64, 32, 16 and so on until it is sure."""
    if kind in ANSWERED:
        return 1.10
    return 0.70 if kind.startswith("429") else 0.40


MOST = {kind: most(kind) for kind in OUTAGES}
KINDS = hunt_size(quick=["500", "429", "429, in 20 s", "empty"], thorough=list(OUTAGES))


class Line200:
    """A provider behind its guard, on a loop where time is a number, and 200 tasks for it."""

    def __init__(self, script: Line | Callable[[VirtualLoop], Callable[[Request], Line]], latency: float = 0.05):
        self.loop = VirtualLoop(1_000_000.0, most_steps=5_000_000)
        said = script(self.loop) if callable(script) else [script]
        self.line = ScriptedModel(said, latency=latency, repeat=True)
        self.model = self.guarded(self.line)
        self.gaps = 0

    def guarded(self, line: Model) -> Guarded:
        return Guarded(line, limiter=Limiter(clock=self.loop.time), clock=self.loop.time, random=Random(7))

    @property
    def share(self) -> float:
        return len(self.line.requests) / TASKS

    def play(self, team: Team, runs: int, *, together: bool = True) -> None:
        async def one(driver: Runner, n: int) -> None:
            found = await driver.start(f"r{n}", team.request(GOAL, self.loop.time(), seed=n))
            self.gaps += len(found.gaps)

        async def story() -> None:
            async with team.executor() as executor:
                driver = Runner(MemoryJournal(), executor, wall=self.loop.time, ticks=self.loop.time)
                if not together:
                    for n in range(runs):
                        await one(driver, n)
                    return
                async with asyncio.TaskGroup() as jobs:
                    for n in range(runs):
                        jobs.create_task(one(driver, n))

        self.loop.run_until_complete(story())


def tasks(count: int, worker: str = "ann") -> Plan:
    return Plan(tuple(Task(TaskId(f"t{n}"), f"carry out part number {n} of it", worker) for n in range(count)), "none")


RUNS = hunt_size(
    quick=[(1, True), (4, False), (200, True)],
    thorough=[(1, True), (4, True), (4, False), (200, True), (200, False)],
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("runs", "together"), RUNS)
def test_in_an_outage_two_hundred_tasks_make_no_more_calls_than_they_would_on_a_good_day(
    kind: str, runs: int, together: bool
) -> None:
    stage = Line200(OUTAGES[kind])
    stage.play(
        Team([ANN], supervisor=Supervisor(model=stage.model, plan=tasks(TASKS // runs)), policy=WIDE),
        runs,
        together=together,
    )
    assert stage.gaps == TASKS
    assert stage.share <= MOST[kind]
    if kind in ANSWERED:
        assert stage.loop.time() - 1_000_000.0 <= 0.05 * 2 * TASKS, "nobody waits for what no waiting mends"


@pytest.mark.parametrize("kind", KINDS)
def test_hedging_adds_nothing_to_an_outage(kind: str) -> None:
    for hedge in (None, Hedge(after=0.01)):
        stage = Line200(OUTAGES[kind])
        stage.play(Team([ANN], supervisor=Supervisor(model=stage.model, plan=tasks(50), hedge=hedge), policy=WIDE), 4)
        twice = 0.0 if hedge is None else 0.05 * max(1.0, MOST[kind])  # of what is no outage calls are hedged as ever
        assert stage.share <= MOST[kind] + twice


@pytest.mark.parametrize("kind", KINDS)
def test_nor_do_teams_within_teams_add_to_it(kind: str) -> None:
    """Ten tasks, each of them done by a team with twenty tasks of its own."""
    stage = Line200(OUTAGES[kind])
    inner = Team([ANN], supervisor=Supervisor(model=stage.model, plan=tasks(20)), name="inner", policy=WIDE)
    outer = Team(
        [inner.as_worker("crowd", "does it")],
        supervisor=Supervisor(model=stage.model, plan=tasks(10, "crowd")),
        policy=WIDE,
    )
    stage.play(outer, 1)
    assert stage.gaps == 10  # every task of the outer team
    assert stage.share <= 1.10
    assert stage.share <= MOST[kind] + 0.05


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "filtered"])  # which is a reply all the same
@pytest.mark.parametrize(
    ("runs", "together"), hunt_size(quick=[(1, True), (200, False)], thorough=[(1, True), (200, True), (200, False)])
)
def test_with_another_model_everything_is_done_and_the_dead_one_hardly_asked(
    kind: str, runs: int, together: bool
) -> None:
    stage = Line200(OUTAGES[kind])
    spare = ScriptedModel(["done"], handle="spare", latency=0.05, repeat=True)
    ann = Worker("ann", "carries things out", model=stage.model, fallback_models=[stage.guarded(spare)])
    stage.play(Team([ann], supervisor=Supervisor(plan=tasks(TASKS // runs)), policy=WIDE), runs, together=together)
    assert (stage.gaps, len(spare.requests)) == (0, TASKS)
    assert stage.share <= MOST[kind]


# --- a provider that is well, and wants no more than so much


def bucket(rate: float, burst: float, wait: float) -> Callable[[VirtualLoop], Callable[[Request], Line]]:
    """So many requests a second, so many at once; beyond that 429."""

    def made(loop: VirtualLoop) -> Callable[[Request], Line]:
        held = [burst, loop.time()]

        def script(_: Request) -> Line:
            held[0] = min(burst, held[0] + (loop.time() - held[1]) * rate)
            held[1] = loop.time()
            if held[0] < 1.0:
                return slow_down(wait)
            held[0] -= 1.0
            return "done"

        return script

    return made


def window(most: int, seconds: float, wait: float) -> Callable[[VirtualLoop], Callable[[Request], Line]]:
    """So many requests in each window of time; beyond that 429."""

    def made(loop: VirtualLoop) -> Callable[[Request], Line]:
        held = [0, 0]

        def script(_: Request) -> Line:
            number = int(loop.time() / seconds)
            held[:] = [number, (held[1] if number == held[0] else 0) + 1]
            return "done" if held[1] <= most else slow_down(wait)

        return script

    return made


LIMITED = {
    "20 a second": (bucket(20, 20, 0.0), 15.0),
    "20 a second, says 1 s": (bucket(20, 20, 1.0), 15.0),
    "20 a second, one at a time": (bucket(20, 1, 0.0), 20.0),
    "20 in each second": (window(20, 1.0, 0.0), 15.0),
    "20 in each second, says 1 s": (window(20, 1.0, 1.0), 15.0),
    "5 a second": (bucket(5, 5, 0.0), 50.0),
    "60 in each minute": (window(60, 60.0, 0.0), 240.0),
    "60 in each minute, says 10 s": (window(60, 60.0, 10.0), 240.0),
}


@pytest.mark.parametrize(
    "limit",
    hunt_size(
        quick=["20 a second", "20 in each second, says 1 s", "60 in each minute"],
        thorough=list(LIMITED),
    ),
)
@pytest.mark.parametrize("runs", hunt_size(quick=[1, 200], thorough=[1, 4, 200]))
def test_a_provider_with_a_rate_limit_is_not_shut_and_every_task_is_done(limit: str, runs: int) -> None:
    script, seconds = LIMITED[limit]
    stage = Line200(script)
    stage.play(Team([ANN], supervisor=Supervisor(model=stage.model, plan=tasks(TASKS // runs)), policy=WIDE), runs)
    assert stage.gaps == 0
    assert stage.loop.time() - 1_000_000.0 <= seconds


# --- what is no outage


@pytest.mark.parametrize("kind", ANSWERED)
@pytest.mark.parametrize("runs", [1, 200])
def test_replies_of_no_use_to_half_of_all_tasks_cost_the_other_half_nothing(kind: str, runs: int) -> None:
    """Ten tasks in a row, and then ten others."""
    numbers = iter(range(10**6))
    stage = Line200(lambda _: lambda _: OUTAGES[kind] if next(numbers) // 10 % 2 else "done")
    stage.play(Team([ANN], supervisor=Supervisor(model=stage.model, plan=tasks(TASKS // runs)), policy=WIDE), runs)
    assert 80 <= stage.gaps <= 100
    assert stage.share <= 1.10
    assert stage.model.breaker.opened == 0


def test_work_that_does_not_fit_its_shape_costs_what_the_policy_says_and_no_more() -> None:
    """The provider answers, the worker's results are no good: no waiting mends that, so no breaker counts it.

    A task costs three attempts with three replies each and two refinements: 11 calls, alone or among others.
    """
    size = hunt_size(quick=40, thorough=TASKS)
    nonsense = "Well, as for that, I would not know."
    fussy = Worker("ann", "carries things out", output=int)
    alone = Line200(Reply(nonsense))
    alone.play(Team([fussy], supervisor=Supervisor(model=alone.model, plan=tasks(1)), policy=WIDE), size)
    assert len(alone.line.requests) == 11 * size
    crowd = Line200(Reply(nonsense))
    crowd.play(Team([fussy], supervisor=Supervisor(model=crowd.model, plan=tasks(size)), policy=WIDE), 1)
    assert len(crowd.line.requests) == 11 * size


# --- over real sockets


async def load_client(server: FaultServer) -> None:
    """Make one call that is answered: what is loaded for the first call must not count against a short deadline."""
    model = f"openai+{server.url('ok')}#any"
    await Team([ANN], supervisor=Supervisor(model=model, plan=tasks(1)), timeout=60.0, lookup=lambda _: None).run(GOAL)


@pytest.mark.parametrize(
    "mode",
    hunt_size(
        quick=["500", "null-content", "429"],
        thorough=["500", "garbage", "html", "null-content", "refused", "429", "429-day"],
    ),
)
async def test_the_same_over_real_sockets(mode: str) -> None:
    async with FaultServer() as server:
        await load_client(server)
        team = Team(
            [ANN],
            supervisor=Supervisor(model=f"openai+{server.url(mode)}#any", plan=tasks(TASKS)),
            timeout=0.8,
            policy=WIDE,
            lookup=lambda _: None,
        )
        found = await team.run(GOAL)
        assert (found.ending, len(found.gaps)) == ("failed", TASKS)
        assert 1 <= server.requests[mode] <= (1.10 if mode in ("null-content", "refused") else 0.20) * TASKS


@pytest.mark.parametrize("mode", ["429-nonsense", "null-content"])
async def test_the_same_over_real_sockets_for_two_hundred_runs_at_once(mode: str) -> None:
    async with FaultServer() as server:
        await load_client(server)
        team = Team(
            [ANN],
            supervisor=Supervisor(model=f"openai+{server.url(mode)}#any", plan=tasks(1)),
            timeout=1.5,
            policy=WIDE,
            lookup=lambda _: None,
        )
        async with team.driven() as driver, asyncio.TaskGroup() as jobs:
            for n in range(TASKS):
                jobs.create_task(driver.start(f"r{n}", team.request(GOAL, time.time())))
        assert 1 <= server.requests[mode] <= (1.10 if mode == "null-content" else 0.70) * TASKS


async def test_a_dead_provider_beside_a_living_one_over_real_sockets() -> None:
    async with FaultServer() as server:
        ann = Worker(
            "ann",
            "carries things out",
            model=f"openai+{server.url('garbage')}#any",
            fallback_models=[f"openai+{server.url('ok')}#any"],
        )
        found = await Team(
            [ann], supervisor=Supervisor(plan=tasks(TASKS)), timeout=30.0, policy=WIDE, lookup=lambda _: None
        ).run(GOAL)
        assert (found.ending, found.gaps) == ("complete", ())
        assert server.requests["ok"] == TASKS
        assert server.requests["garbage"] <= 0.20 * TASKS


async def test_a_retry_is_one_of_ten_calls_of_the_last_minute_or_three_at_once() -> None:
    """The knob by itself: without a breaker to help, ten tasks in a hundred may be tried again below the task."""
    limiter = Limiter(clock=lambda: 0.0)
    line = ScriptedModel([CallFailed(Failure("network", "the connection was cut"))], repeat=True)

    async def still(_seconds: float) -> None:
        await asyncio.sleep(0)

    never = Breaking(consecutive=10**6, sample=10**6)
    guarded = Guarded(line, limiter=limiter, clock=lambda: 0.0, sleep=still, random=Random(7), breaking=never)

    async def ask() -> None:
        with pytest.raises(CallFailed):
            await guarded.reply(Request([]))

    async with asyncio.TaskGroup() as jobs:
        for _ in range(TASKS):
            jobs.create_task(ask())
    assert TASKS < len(line.requests) <= 1.10 * TASKS
