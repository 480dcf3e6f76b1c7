"""The health of workers, tools and models, as it can be read off journals: real runs on virtual time."""

import asyncio
import time

import pytest
from msgspec import structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.runtime.stats import WorkerHealth, health
from chargehand.team import Team
from chargehand.tools.tool import ToolFailed, tool
from tests.agents.crowd import call, calls, model, plan
from tests.requests import request
from tests.virtual import NOW, Stage

PAIR = Roster((Agent("ann", model="m:one"), Agent("bob", model="m:two")))
ONCE = Policy(retry=Retry(attempts=1), refine=False)
DEAD = Move(fail="network", message="the line went dead", seconds=2.0)


def tasks(count: int, worker: str = "ann") -> Plan:
    return Plan(tuple(Task(TaskId(f"t{n}"), f"carry out part {n} of it", worker) for n in range(count)), "none")


def of(found: tuple[WorkerHealth, ...], what: str, name: str) -> WorkerHealth:
    return next(one for one in found if (one.what, one.name) == (what, name))


def test_attempts_failures_and_times_are_those_of_the_runs() -> None:
    slow = {f"t{n}": (Move(seconds=float(n)),) for n in range(1, 20)}
    stage = Stage(ScriptedExecutor(Script({**slow, "t0": (DEAD, Move(seconds=1.0))})))
    stage.start(request(tasks(20), PAIR, policy=Policy(limits=Limits(width=1))))
    found = health([("run", stage.entries["run"])], stage.loop.time())
    ann = of(found, "worker", "ann")
    assert (ann.attempts, ann.failures, ann.rate) == (21, {"network": 1}, pytest.approx(1 / 21))
    assert (ann.median, ann.p95) == (pytest.approx(9.0), pytest.approx(18.0))
    assert (ann.state, ann.in_flight) == ("closed", 0)
    assert [one.name for one in found] == ["ann"]


def test_a_breaker_that_opened_says_when_it_may_be_tried_again() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=DEAD)))
    stage.start(request(tasks(5), PAIR, policy=ONCE))
    opened = max(entry.at for entry in stage.entries["run"] if isinstance(entry.event, ev.AttemptFailed))
    told = [("run", stage.entries["run"])]
    for what, name in (("model", "m:one"), ("worker", "ann")):  # who needs the model is barred with it
        shut = of(health(told, opened + 10.0), what, name)
        assert (shut.state, shut.retry_at) == ("open", pytest.approx(opened + 30.0))
        later = of(health(told, opened + 31.0), what, name)
        assert (later.state, later.retry_at) == ("half-open", 0.0)
    assert of(health(told, opened), "worker", "ann").failures == {"network": 5}


def test_workers_of_two_teams_that_share_a_name_are_told_apart() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    for team in ("north", "south"):
        stage.start(structs.replace(request(tasks(2 if team == "north" else 1), PAIR, policy=ONCE), team=team), team)
    lines = health(list(stage.entries.items()), stage.loop.time())
    workers = [(line.team, line.name, line.attempts) for line in lines if line.what == "worker"]
    assert sorted(workers) == [("north", "ann", 2), ("south", "ann", 1)]


def test_bad_work_shuts_nobody() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(fail="logic"))))
    stage.start(request(tasks(5), PAIR, policy=ONCE))
    found = health([("run", stage.entries["run"])], stage.loop.time())
    assert [(one.what, one.name, one.state) for one in found] == [("worker", "ann", "closed")]


def test_a_later_run_that_went_well_is_what_counts() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=DEAD)))
    stage.start(request(tasks(5), PAIR, policy=ONCE), "bad")
    good = Stage(ScriptedExecutor(Script()))
    good.loop.now = stage.loop.now + 1.0
    good.start(request(tasks(1), PAIR, policy=ONCE), "good")
    both = [("good", good.entries["good"]), ("bad", stage.entries["bad"])]
    assert of(health(both[1:], good.loop.now), "worker", "ann").state == "open"
    assert of(health(both, good.loop.now), "worker", "ann").state == "closed"
    assert of(health(both, good.loop.now), "worker", "ann").attempts == 6


def test_what_is_open_is_under_way_only_where_somebody_drives_it() -> None:
    stage = Stage(ScriptedExecutor(Script({"t0": (Move(seconds=100.0),)})))

    async def look() -> tuple[tuple[WorkerHealth, ...], tuple[WorkerHealth, ...]]:
        async with asyncio.TaskGroup() as jobs:
            job = jobs.create_task(stage.driver.start("run", request(tasks(2), PAIR, seconds=1e9)))
            await asyncio.sleep(50.0)
            entries = await stage.journal.read("run")
            job.cancel()
        return health([("run", entries)], NOW + 50.0), health([("run", entries)], NOW + 50.0, driven=())

    driven, left = stage.play(look)
    assert of(driven, "worker", "ann").in_flight == 1
    assert of(left, "worker", "ann").in_flight == 0


async def health_of(journal: MemoryJournal, now: float) -> tuple[WorkerHealth, ...]:
    runs = [(row.run, await journal.read(row.run)) for row in await journal.runs()]
    return health(runs, now, driven={row.run for row in await journal.runs() if row.held})


async def test_tools_and_models_have_their_own_lines() -> None:
    @tool
    def lookup(word: str) -> str:
        """Look a word up."""
        raise ToolFailed("the shelf is empty")

    said: list[Line] = [calls(call("lookup", n, word=f"w{n}")) for n in range(5)]
    script = model(plans=[plan(("Look five words up.", "ann", []))], work=[*said, Reply("Nothing was found.")])
    team = Team(
        [Worker("ann", "looks words up", tools=[lookup])],
        supervisor=Supervisor(model=script),
        journal=(kept := MemoryJournal()),
    )
    assert (await team.run("Look five words up.")).ending == "complete"
    found = await health_of(kept, time.time())
    assert [(one.what, one.name) for one in found] == [("worker", "ann"), ("tool", "lookup"), ("model", "scripted")]
    worker, shelf, asked = found
    assert (worker.attempts, worker.failures) == (1, {})
    assert (shelf.attempts, shelf.failures, shelf.rate, shelf.state) == (5, {"failed": 5}, 1.0, "failing")
    assert (asked.attempts, asked.failures) == (8, {})  # one to plan, six to work, one to answer


async def test_a_model_that_another_stands_in_for_has_failed_and_the_other_has_not() -> None:
    dead = ScriptedModel([Failure("network", "gone")], handle="dead", repeat=True)
    spare = ScriptedModel(["done"], handle="spare", repeat=True)
    kept = MemoryJournal()
    worker = Worker("ann", "works", model=dead, fallback_models=[spare])
    once = Plan((Task(TaskId("t1"), "Do the one thing there is.", "ann"),), "forward")
    await Team([worker], supervisor=Supervisor(plan=once), journal=kept).run("it")
    found = await health_of(kept, time.time())
    assert of(found, "model", "dead").failures == {"passed on": 1}
    assert (of(found, "model", "spare").attempts, of(found, "model", "spare").failures) == (1, {})


async def test_a_call_that_waits_for_a_person_has_not_failed() -> None:
    @tool(approve=True)
    def send(word: str) -> str:
        """Send a word."""
        return word

    kept = MemoryJournal()
    script = model(work=[calls(call("send", word="hello"))], plans=[plan(("Send a word to them.", "ann", []))])
    team = Team([Worker("ann", "sends words", tools=[send])], supervisor=Supervisor(model=script), journal=kept)
    assert (await team.run("Send a word to them.")).ending == "needs_input"
    ann = of(await health_of(kept, time.time()), "worker", "ann")
    assert (ann.attempts, ann.failures, ann.in_flight) == (1, {}, 0)


def test_an_attempt_that_a_crash_cut_short_is_one_attempt() -> None:
    class Dies(ScriptedExecutor):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            if stage.loop.time() < NOW + 5.0:
                await asyncio.sleep(100.0)
            raise WorkFailed(Failure("logic", "no", permanent=True))

    stage = Stage(Dies(Script()))

    async def crash() -> None:
        async with asyncio.TaskGroup() as jobs:
            job = jobs.create_task(stage.driver.start("run", request(tasks(1), PAIR, seconds=1e9)))
            await asyncio.sleep(10.0)
            job.cancel()

    stage.play(crash)
    stage.resume()
    ann = of(health([("run", stage.entries["run"])], stage.loop.time()), "worker", "ann")
    assert (ann.attempts, ann.failures) == (1, {"logic": 1})


def test_nothing_is_known_of_nothing() -> None:
    assert health([], NOW) == ()
    assert health([("run", [])], NOW) == ()
