"""Retry amplification: how many calls reach a provider that answers none of them, beside one call a task."""

import asyncio
from random import Random

import pytest

from chargehand.agents.worker import Worker
from chargehand.models.failed import CallFailed
from chargehand.models.faults import FaultServer
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter
from chargehand.models.messages import Request
from chargehand.models.scripted import ScriptedModel
from chargehand.runtime.driver import Driver
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Plan, Task, TaskId
from chargehand.terms.policy import Limits, Policy
from tests.sim.loop import VirtualLoop

ANN, GOAL = Worker("ann", "carries things out"), "Carry out all of it."
OUTAGES = {
    "500": CallFailed(Failure("network", "answered 500"), status=500),
    "cut": CallFailed(Failure("network", "the connection was cut")),
    "late": CallFailed(Failure("timeout", "it took too long")),
}


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize(("runs", "together"), [(1, True), (4, True), (4, False), (200, True), (200, False)])
def test_in_an_outage_two_hundred_tasks_make_no_more_calls_than_they_would_on_a_good_day(
    kind: str, runs: int, together: bool
) -> None:
    per = 200 // runs
    loop = VirtualLoop(1_000_000.0, most_steps=5_000_000)
    line = ScriptedModel([OUTAGES[kind]], latency=0.05, repeat=True)
    guarded = Guarded(line, limiter=Limiter(clock=loop.time), clock=loop.time, random=Random(7))
    tasks = tuple(Task(TaskId(f"t{n}"), f"carry out part number {n} of it", "ann") for n in range(per))
    bounds = Policy(limits=Limits(tasks=max(Limits().tasks, per)))
    team = Supervisor([ANN], model=guarded, plan=Plan(tasks, "none"), policy=bounds)

    async def play() -> None:
        async with team.crew() as crew:
            driver = Driver(MemoryJournal(), crew, wall=loop.time, ticks=loop.time)
            if not together:
                for n in range(runs):
                    await driver.start(f"r{n}", team.request(GOAL, loop.time()))
                return
            async with asyncio.TaskGroup() as jobs:
                for n in range(runs):
                    jobs.create_task(driver.start(f"r{n}", team.request(GOAL, loop.time())))

    loop.run_until_complete(play())
    assert len(line.requests) <= 1.10 * 200
    assert len(line.requests) <= 0.40 * 200  # as measured: the breaker bars most of them


@pytest.mark.parametrize("mode", ["500", "reset-before", "html"])
async def test_the_same_over_real_sockets(mode: str) -> None:
    tasks = tuple(Task(TaskId(f"t{n}"), f"carry out part number {n} of it", "ann") for n in range(200))
    async with FaultServer() as server:
        team = Supervisor(
            [ANN], model=f"openai+{server.url(mode)}#any", plan=Plan(tasks, "none"), seconds=2.0,
            policy=Policy(limits=Limits(tasks=200)), lookup=lambda _: None,
        )  # fmt: skip
        found = await team.run(GOAL)
        assert (found.ending, len(found.gaps)) == ("failed", 200)
        assert 1 <= server.requests[mode] <= 0.20 * 200


async def test_a_retry_is_one_of_ten_calls_of_the_last_minute_or_three_at_once() -> None:
    """The knob by itself: without a breaker to help, ten tasks in a hundred may be tried again below the task."""
    now = [0.0]
    limiter = Limiter(clock=lambda: now[0])
    refused = CallFailed(Failure("resource", "slow down"), status=429)
    line = ScriptedModel([refused], repeat=True)

    async def still(_seconds: float) -> None:
        await asyncio.sleep(0)

    guarded = Guarded(line, limiter=limiter, clock=lambda: now[0], sleep=still, random=Random(7))

    async def ask() -> None:
        with pytest.raises(CallFailed):
            await guarded.reply(Request([]))

    async with asyncio.TaskGroup() as jobs:
        for _ in range(200):
            jobs.create_task(ask())
    assert len(line.requests) <= 1.10 * 200
