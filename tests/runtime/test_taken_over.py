"""Runs that change their process: created for another, given to the same process again, drained before it stops."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest
from msgspec import structs

from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Fenced, Invalid, Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext
from chargehand.runtime.runner import Runner
from tests.requests import request
from tests.virtual import NOW, Stage

PLAN = Plan((Task(TaskId("a"), "carry out a of the work", "worker"),), combine="none")
ASKED = structs.replace(request(PLAN), deadline=NOW + 86_400)


class Calls(Executor):
    """A worker that makes calls of 10 seconds, one after the other, each a step."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.begun: list[int] = []
        self.ended: list[int] = []

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        raise AssertionError("its plan is given")

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        for number in range(self.count):
            await context.step("call", self._call(number), request=str(number))
        return Done("all made")

    def _call(self, number: int) -> Callable[[str], Awaitable[Done]]:
        async def call(_key: str) -> Done:
            self.begun.append(number)
            await asyncio.sleep(10.0)
            self.ended.append(number)
            return Done(number)

        return call

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        raise AssertionError("it does not fail")

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        raise AssertionError("nobody wants one")


def test_a_run_that_is_given_to_the_same_process_again_can_still_be_spoken_to() -> None:
    stage = Stage(Calls())

    async def story() -> tuple[str, list[type[Exception]]]:
        errors: list[type[Exception]] = []

        async def first() -> None:
            try:
                await stage.driver.start("run", ASKED)
            except Fenced as error:
                errors.append(type(error).__mro__[1])

        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(first())
            await asyncio.sleep(5.0)
            again = jobs.create_task(stage.driver.resume("run", steal=True))  # it was taken for dead, and is not
            await asyncio.sleep(5.0)
            assert set(stage.driver.under_way) == {"run"}
            await stage.driver.ask("run", ev.CancelRequested("enough"))
        return again.result().ending, errors

    assert stage.play(story) == ("cancelled", [Fenced])


def test_the_earlier_drive_writes_what_it_has_before_the_later_one_begins() -> None:
    executor = Calls()
    stage = Stage(executor)

    async def story() -> str:
        async with asyncio.TaskGroup() as jobs:
            first = jobs.create_task(_until_fenced(stage.driver.start("run", ASKED)))
            await asyncio.sleep(15.0)
            again = jobs.create_task(stage.driver.resume("run", steal=True))
        assert first.result()
        return again.result().ending

    assert stage.play(story) == "complete"
    assert executor.ended == [0, 1, 2]  # of the finished calls none was repeated
    assert executor.begun == [0, 1, 1, 2]
    assert len(stage.events(ev.RunReleased)) == 1


async def _until_fenced(drive: Awaitable[object]) -> bool:
    try:
        await drive
    except Fenced:
        return True
    return False


def test_a_created_run_is_driven_by_another_process_and_was_not_interrupted() -> None:
    stage = Stage(ScriptedExecutor(Script()))

    async def story() -> str:
        await Runner(stage.driver.journal, ScriptedExecutor(Script()), wall=lambda: NOW).create("run", ASKED)
        return (await stage.driver.resume("run")).ending

    assert stage.play(story) == "complete"
    assert stage.events(ev.RunResumed) == []


def test_what_is_given_along_with_a_created_run_is_checked_and_written_with_it() -> None:
    journal = MemoryJournal()
    runner = Runner(journal, ScriptedExecutor(Script()), wall=lambda: NOW)

    async def story() -> None:
        await runner.create("run", ASKED, also=[ev.PauseSet(paused=True)])
        assert [type(entry.event) for entry in await journal.read("run")] == [ev.RunRequested, ev.PauseSet]
        with pytest.raises(Refused):
            await runner.create("other", ASKED, also=[ev.InputAnswered(number=1, verdict="approve")])
        with pytest.raises(Invalid):
            await runner.create("other", structs.replace(ASKED, deadline=NOW - 600))
        assert [row.run for row in await journal.runs()] == ["run"]

    asyncio.run(story())


class Function(Calls):
    """A worker that makes no steps: it is a function, or an agent of another framework."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        return await self._call(0)("")


@pytest.mark.parametrize(
    ("executor", "patience", "begun"),
    [
        (Calls(), 60.0, [0, 1, 2]),
        (Calls(), 1.0, [0, 0, 1, 2]),
        (Function(), 60.0, [0]),
        (Function(), 1.0, [0, 0]),
    ],
)
def test_a_drained_run_begins_no_step_and_what_is_under_way_may_finish(
    executor: Calls, patience: float, begun: list[int]
) -> None:
    stage = Stage(executor)

    async def story() -> str:
        job = asyncio.get_running_loop().create_task(stage.driver.start("run", ASKED))
        await asyncio.sleep(5.0)
        began = asyncio.get_running_loop().time()
        await stage.driver.drain(patience)
        assert asyncio.get_running_loop().time() - began < 6.0
        job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return (await job).ending
        return (await stage.driver.resume("run")).ending

    assert stage.play(story) == "complete"
    assert executor.begun == begun


class Killed(BaseException):
    """The process is gone."""


class Mortal(MemoryJournal):
    dead = False

    def _append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        if self.dead:
            raise Killed
        super()._append(lease, entries)


class Waits(Calls):
    """A worker whose only step is a run of its own."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        await context.step("team", self._call(0), kind="subteam", effect="idempotent")
        return Done("it ended")


@pytest.mark.parametrize(("executor", "ending"), [(Waits(), "complete"), (Calls(1), "failed")])
def test_crashes_while_an_attempt_waits_for_a_run_of_its_own_do_not_use_it_up(executor: Calls, ending: str) -> None:
    stage = Stage(executor)
    journal = Mortal()
    stage.driver._journal = journal

    async def story() -> str:
        for life in range(6):
            drive = stage.driver.start("run", ASKED) if life == 0 else stage.driver.resume("run", steal=True)
            job = asyncio.get_running_loop().create_task(drive)
            await asyncio.sleep(5.0)
            journal.dead = not job.done()
            job.cancel()
            with contextlib.suppress(asyncio.CancelledError, Killed):
                await job
            if not journal.dead:
                break
            journal.dead = False
        else:
            return (await stage.driver.resume("run", steal=True)).ending
        return job.result().ending

    assert stage.play(story) == ending
