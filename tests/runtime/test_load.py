"""Live load: who is busy, failing, slow or dear in the runs of a team, and what a router makes of it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw, structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.routing.decision import Decision, shift_by_load
from chargehand.agents.strategies import Route
from chargehand.engine import events as ev
from chargehand.engine.facts import RouteChosen
from chargehand.engine.failure import Failure, FailureKind
from chargehand.engine.fold import begin
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Usage
from chargehand.models.request_facts import Routing, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.load import MAX_ATTEMPTS, WINDOW, LoadView, WorkerLoad
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from tests.agents.test_routing import says
from tests.requests import request

ONCE = Policy(retry=Retry(attempts=1), refine=False)
QUICK = Policy(retry=Retry(attempts=1), refine=False, breaking=Breaking(consecutive=2))
STRATEGY = Route("words", threshold=0.0, learn=False)
GOAL = "sell ripe apples"


class Hands:
    """A clock that stands still unless somebody moves it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Stall:
    """A worker's model: it waits while it is shut, then says its line. It moves a clock by as long as it takes."""

    def __init__(
        self, name: str, line: Line = "sold", *, micros: int = 0, latency: float = 0.0, clock: Hands | None = None
    ) -> None:
        self._clock = clock
        self._takes = latency
        latency = 0.0 if clock else latency
        self.open = asyncio.Event()
        self.open.set()
        self.line = line
        self.name = name
        self.model = ScriptedModel(self._reply, handle=name, usage=Usage(10, 5), micros=micros, latency=latency)

    async def _reply(self, asked: Request) -> Line:
        assert isinstance(asked.subject, Working)
        await self.open.wait()
        if self._clock is not None:
            self._clock.now += self._takes
        return self.line


class Market:
    """Runs of one driver, by number."""

    def __init__(self, team: Team, driver: Runner) -> None:
        self._team = team
        self._driver = driver
        self._count = 0

    async def sell(self, only: str = "", goal: str = GOAL) -> tuple[str, str]:
        """One run, for one worker where one is named: who did it, and how it was routed."""
        self._count += 1
        run = f"r{self._count}"
        plan = Plan((Task(TaskId("t1"), goal, only),), "forward") if only else None
        await self._driver.start(run, self._team.request(goal, time.time(), plan=plan))
        events = [entry.event for entry in await self._driver.journal.read(run)]
        who = [one.worker for one in events if isinstance(one, ev.AttemptStarted)]
        noted = [one for one in events if isinstance(one, ev.Noted) and isinstance(one.fact, RouteChosen)]
        assert all(isinstance(one.fact, RouteChosen) and who[:1] == list(one.fact.workers[:1]) for one in noted)
        return who[0] if who else "", "\n".join(one.text for one in noted)

    async def flood(self, worker: str, count: int) -> None:
        """One run with so many tasks for one worker."""
        tasks = [Task(TaskId(f"t{n}"), f"sell ripe apples of tree {n}", worker) for n in range(count)]
        self._count += 1
        await self._driver.start(
            f"r{self._count}", self._team.request(GOAL, time.time(), plan=Plan(tuple(tasks), "none"))
        )

    async def routed(self, count: int) -> None:
        """Wait until so many runs under way have their task."""
        async with asyncio.timeout(60):
            while sum(bool(state.tasks) for state in self._driver.under_way.values()) < count:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.001)

    async def busy(self, worker: str) -> None:
        """Wait until somebody is at work."""
        async with asyncio.timeout(20):
            while not any(state.load.get(worker) for state in self._driver.under_way.values()):  # noqa: ASYNC110 - nobody rings
                await asyncio.sleep(0.001)


@asynccontextmanager
async def market(
    *stalls: Stall,
    strategy: Route = STRATEGY,
    policy: Policy = ONCE,
    concurrency: int = 0,
    clock: Hands | None = None,
    **does: str,
) -> AsyncGenerator[Market]:
    """Everybody does the same, unless it is said what else."""
    workers = [
        Worker(one.name, does.get(one.name, "sells ripe apples"), model=one.model, concurrency=concurrency)
        for one in stalls
    ]
    team = Team(
        workers, supervisor=Supervisor(strategy=strategy, combine="forward"), policy=policy, journal=MemoryJournal()
    )
    if clock is not None:
        async with team.executor() as executor:
            yield Market(team, Runner(MemoryJournal(), executor, wall=clock, ticks=clock))
        return
    async with team.driven() as driver:
        yield Market(team, driver)


# --- with real runs


async def test_who_is_at_capacity_gives_way_to_one_that_fits_as_well_and_the_journal_says_why() -> None:
    north = Stall("north")
    south = Stall("south")
    north.open.clear()
    async with market(north, south, concurrency=1) as runs, asyncio.TaskGroup() as jobs:
        first = jobs.create_task(runs.sell())
        await runs.busy("north")
        who, why = await runs.sell()
        north.open.set()
        assert who == "south"
        assert "south instead of north, which fits about as well, because it is less busy" in why
        assert "north 1 of 1 at work" in why
        assert (await first)[0] == "north"
        assert "instead of" not in (await first)[1], "nothing was known when it was routed"


async def test_a_task_that_waits_counts_as_well_as_one_at_work() -> None:
    north = Stall("north")
    south = Stall("south")
    north.open.clear()
    async with market(north, south, concurrency=4) as runs, asyncio.TaskGroup() as jobs:
        jobs.create_task(runs.flood("north", 8))
        await runs.busy("north")
        who, why = await runs.sell()
        north.open.set()
        assert who == "south"
        assert "north 4 of 4 at work, 4 waiting" in why


async def test_who_keeps_failing_gives_way() -> None:
    north = Stall("north", Failure("logic", "no apples left", permanent=True))
    south = Stall("south")
    async with market(north, south) as runs:
        found = [await runs.sell() for _ in range(6)]
    assert [who for who, _ in found][:1] == ["north"]
    assert found[-1][0] == "south"
    shift = next(why for who, why in found if who == "south")
    assert "100% failed lately" in shift


async def test_a_clearly_better_fit_is_not_passed_over_for_load() -> None:
    north = Stall("north")
    south = Stall("south")
    north.open.clear()
    async with market(north, south, concurrency=1, south="mends ripe shoes") as runs, asyncio.TaskGroup() as jobs:
        first = jobs.create_task(runs.sell())
        await runs.busy("north")
        second = jobs.create_task(runs.sell())
        await asyncio.sleep(0.05)
        north.open.set()
        assert [(await first)[0], (await second)[0]] == ["north", "north"]
        assert "load: north 1 of 1 at work" in (await second)[1]


async def test_a_breaker_that_opened_in_another_run_sends_it_to_who_fits_about_as_well() -> None:
    north = Stall("north")
    south = Stall("south")
    async with market(north, south, policy=QUICK) as runs:
        await runs.sell("north")
        north.line = Failure("network", "the line is dead")
        for _ in range(2):
            await runs.sell("north")
        who, why = await runs.sell()
        assert (who, "out of order" in why) == ("south", False), "each run counts for itself, and none saw two failures"
        await runs.flood("north", 2)
        who, why = await runs.sell()
        assert who == "south"
        assert "because it is in order" in why
        assert "out of order" in why
        north.line = "sold"
        await runs.sell("north")
        _, why = await runs.sell()
        assert "out of order" not in why, "it has worked since"


async def test_the_generalist_gets_it_when_the_only_fit_is_out_of_order() -> None:
    north = Stall("north", Failure("network", "the line is dead"))
    clerk = Stall("clerk")
    strategy = Route("words", threshold=0.0, generalist="clerk", learn=False)
    async with market(north, clerk, strategy=strategy, policy=QUICK, clerk="does whatever is left") as runs:
        await runs.flood("north", 2)
        who, why = await runs.sell()
    assert who == "clerk"
    assert "the generalist gets it: north is out of order, and no other worker fits" in why


async def test_without_a_generalist_it_stays_with_the_only_fit() -> None:
    north = Stall("north", Failure("network", "the line is dead"))
    south = Stall("south")
    async with market(north, south, policy=QUICK, south="mends shoes") as runs:
        await runs.flood("north", 2)
        north.line = "sold"
        who, why = await runs.sell()
    assert who == "north"
    assert "north 0 at work, 100% failed lately, out of order" in why


async def test_runs_that_begin_together_spread() -> None:
    stalls = [Stall(name, latency=0.03) for name in ("north", "south", "west")]
    async with market(*stalls) as runs, asyncio.TaskGroup() as jobs:
        found = [jobs.create_task(runs.sell()) for _ in range(9)]
    who = [one.result()[0] for one in found]
    counts = [who.count(one.name) for one in stalls]
    assert sum(counts) == 9
    assert min(counts) >= 2, "without a limit a little more at one of them is no reason"


async def test_when_all_are_full_the_shorter_line_is_taken() -> None:
    stalls = [Stall(name) for name in ("north", "south")]
    for stall in stalls:
        stall.open.clear()
    async with market(*stalls, concurrency=2) as runs, asyncio.TaskGroup() as jobs:
        found = [jobs.create_task(runs.sell()) for _ in range(10)]
        await runs.routed(10)
        for stall in stalls:
            stall.open.set()
    who = [one.result()[0] for one in found]
    assert {one.name: who.count(one.name) for one in stalls} == {"north": 5, "south": 5}


async def test_alone_and_unknown_nothing_changes() -> None:
    async with market(Stall("north"), Stall("south")) as runs:
        who, why = await runs.sell()
    assert who == "north"
    assert "load" not in why


async def test_a_model_that_chooses_hears_nothing_of_the_load_which_shifts_its_choice_afterwards() -> None:
    north = Stall("north")
    south = Stall("south")
    planner = ScriptedModel([says("north", "south", 0.4)], usage=Usage(1, 1), repeat=True)
    workers = [Worker(one.name, "sells ripe apples", model=one.model, concurrency=1) for one in (north, south)]
    team = Team(
        workers, supervisor=Supervisor(planner=planner, strategy=Route("model")), policy=ONCE, journal=MemoryJournal()
    )
    north.open.clear()
    async with team.driven() as driver, asyncio.TaskGroup() as jobs:
        runs = Market(team, driver)
        jobs.create_task(runs.sell())
        await runs.busy("north")
        who, why = await runs.sell()
        north.open.set()
        assert who == "south"
        assert "by model" in why
    asked = [one for one in planner.requests if isinstance(one.subject, Routing)]
    assert len(asked) == 2
    assert asked[0].messages == asked[1].messages


# --- runs that are driven apart


async def test_runs_begun_apart_at_the_same_time_see_each_other() -> None:
    north = Stall("north")
    south = Stall("south")
    workers = [Worker(one.name, "sells ripe apples", model=one.model, concurrency=1) for one in (north, south)]
    team = Team(
        workers, supervisor=Supervisor(strategy=STRATEGY, combine="forward"), policy=ONCE, journal=MemoryJournal()
    )
    north.open.clear()
    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(team.run(GOAL))
        async with asyncio.timeout(20):
            while not north.model.requests:  # noqa: ASYNC110 - nobody rings
                await asyncio.sleep(0.001)
        second = await team.run(GOAL)
        north.open.set()
    assert [one.worker for one in second.trace().tasks] == ["south"]


def test_a_run_knows_what_earlier_ones_came_to_each_in_a_loop_of_its_own() -> None:
    north, south = (
        ScriptedModel([line], handle=name, repeat=True)
        for name, line in (("north", Failure("logic", "no apples left", permanent=True)), ("south", "sold"))
    )
    workers = [Worker(one.card.handle, "sells ripe apples", model=one) for one in (north, south)]
    team = Team(
        workers, supervisor=Supervisor(strategy=STRATEGY, combine="forward"), policy=ONCE, journal=MemoryJournal()
    )
    found = [team.run_sync(GOAL) for _ in range(6)]
    assert found[0].ending == "failed"
    assert [one.worker for one in found[-1].trace().tasks] == ["south"]


def test_threads_stand_apart() -> None:
    stalls = [ScriptedModel(["sold"], handle=name, repeat=True, latency=0.002) for name in ("north", "south")]
    workers = [Worker(one.card.handle, "sells ripe apples", model=one) for one in stalls]
    team = Team(workers, supervisor=Supervisor(strategy=STRATEGY, combine="forward"), policy=ONCE)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(team.run_sync, [f"{GOAL} of tree {number}" for number in range(40)]))
    assert {one.ending for one in found} == {"complete"}


# --- what is told, piece by piece


def loads_after(count: int, failure: Failure | None = None, later: float = 0.0) -> dict[str, WorkerLoad]:
    """What is known some time after so many attempts of one second, one every ten seconds."""
    view = LoadView()
    for number in range(count):
        task = TaskId(f"t{number}")
        at = 10.0 * number
        over = ev.AttemptSucceeded(task, 1, Raw(b"1")) if failure is None else ev.AttemptFailed(task, 1, failure)
        started = ev.AttemptStarted(task, 1, "north", at + 60)
        view.hear("run", [ev.Entry(1, at, started), ev.Entry(2, at + 1, over)])
    view.leave("run", begin(ev.Entry(1, 0.0, request(roster=Roster((Agent("north"),))))))
    return view.loads(10.0 * count + later, ())


def test_old_attempts_do_not_count_nor_do_more_than_the_latest() -> None:
    load = loads_after(MAX_ATTEMPTS + 5)["north"]
    assert (load.attempts, load.seconds, load.failures) == (MAX_ATTEMPTS, 1.0, 0.0)
    assert loads_after(5)["north"].attempts == 5
    assert loads_after(5, later=WINDOW - 20.0)["north"].attempts == 2
    assert loads_after(5, later=WINDOW) == {}


@pytest.mark.parametrize("kind", ["budget", "deadline", "approval"])
def test_what_is_nobodys_fault_is_no_failure(kind: FailureKind) -> None:
    assert loads_after(5, Failure(kind, "not mine")) == {}


def test_a_near_tie_goes_to_the_idler_and_a_lead_of_half_only_for_much() -> None:
    tie = Decision(
        worker="ann", second="bob", confidence=0.5, scores=(("ann", 0.5), ("bob", 0.48)), why="it fits", router="words"
    )
    lead = Decision(
        worker="ann", second="bob", confidence=0.6, scores=(("ann", 0.6), ("bob", 0.35)), why="it fits", router="words"
    )
    assert shift_by_load(tie, {"ann": WorkerLoad(1, attempts=0)}).worker == "bob"
    assert shift_by_load(lead, {"ann": WorkerLoad(1, attempts=0)}) is lead
    assert shift_by_load(lead, {"ann": WorkerLoad(2, 2, attempts=0)}).worker == "bob"
    assert shift_by_load(tie, {"ann": WorkerLoad(1, attempts=0), "bob": WorkerLoad(1, attempts=0)}) is tie


def test_of_two_that_are_full_the_line_counts_unless_the_shorter_one_is_that_of_who_fails() -> None:
    tie = Decision(
        worker="ann", second="bob", confidence=0.5, scores=(("ann", 0.5), ("bob", 0.48)), why="it fits", router="words"
    )
    lead = Decision(
        worker="ann", second="bob", confidence=0.6, scores=(("ann", 0.6), ("bob", 0.35)), why="it fits", router="words"
    )
    long = WorkerLoad(2, 2, queue=3, attempts=0)
    short = WorkerLoad(2, 2, queue=1, attempts=0)
    assert shift_by_load(tie, {"ann": long, "bob": short}).worker == "bob"
    assert shift_by_load(tie, {"ann": short, "bob": long}) is tie
    assert shift_by_load(lead, {"ann": long, "bob": short}).worker == "bob"
    assert shift_by_load(lead, {"ann": short, "bob": WorkerLoad(2, 2, queue=1)}) is lead
    assert shift_by_load(tie, {"ann": long, "bob": WorkerLoad(2, 2, 0.5, attempts=4)}) is tie


def test_one_failure_is_no_rate() -> None:
    lead = Decision(
        worker="ann", second="bob", confidence=0.6, scores=(("ann", 0.6), ("bob", 0.35)), why="it fits", router="words"
    )
    assert shift_by_load(lead, {"ann": WorkerLoad(failures=1.0, attempts=1)}) is lead
    assert shift_by_load(lead, {"ann": WorkerLoad(failures=1.0, attempts=4)}).worker == "bob"


def test_of_several_that_fit_about_as_well_the_idlest_is_taken() -> None:
    found = Decision(
        worker="ann",
        second="bob",
        confidence=0.4,
        scores=(("ann", 0.36), ("bob", 0.33), ("cyd", 0.31)),
        why="it fits",
        router="words",
    )
    load = {"ann": WorkerLoad(2, 2), "bob": WorkerLoad(1, 2), "cyd": WorkerLoad(0, 2)}
    assert shift_by_load(found, load).worker == "cyd"


async def test_a_model_that_is_dead_in_a_team_inside_is_known_to_be_dead_outside() -> None:
    dead = ScriptedModel([Failure("network", "the line is dead")], handle="north", repeat=True)
    inner = Team(
        [Worker("cyd", "packs", model=dead)], name="packers", policy=structs.replace(QUICK, limits=Limits(width=1))
    )
    north = Stall("north")
    south = Stall("south")
    workers = [Worker(one.name, "sells ripe apples", model=one.model) for one in (north, south)]
    team = Team(
        workers, supervisor=Supervisor(strategy=STRATEGY, combine="forward"), policy=ONCE, journal=MemoryJournal()
    )
    async with team.driven() as driver, inner.executor() as executor, asyncio.TaskGroup() as jobs:
        below = driver.nested_runner(executor)
        tasks = tuple(Task(TaskId(f"t{n}"), f"pack box number {n} well", "cyd") for n in range(3))
        packing = jobs.create_task(below.start("inside", inner.request("Pack", time.time(), plan=Plan(tasks, "none"))))
        async with asyncio.timeout(20):
            while not any(one.opened for state in below.under_way.values() for one in state.breakers.values()):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
        who, why = await Market(team, driver).sell()
        packing.cancel()
    assert who == "south"
    assert "because it is in order" in why
