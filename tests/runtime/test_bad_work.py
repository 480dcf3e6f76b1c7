"""Whatever a worker or a supervisor hands over, it is their own work that fails, never the run."""

from collections.abc import Awaitable, Callable
from math import inf, nan

import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import Done, Proposal, Refined, StepContext, WorkFailed
from tests.requests import request
from tests.virtual import Stage

HALF = "\ud800"


def task(name: str) -> Task:
    return Task(TaskId(name), f"carry out {name} of the work", "worker")


GOOD = Plan((task("a"), task("b")))


def circle() -> object:
    found: list[object] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"x": [1.0, nan]}, "$.x[1] is nan"),
        ([inf], "$[0] is inf"),
        ({"text": [HALF]}, "$.text[0] is text with half a surrogate pair"),
        ({HALF: 1}, "half a surrogate pair"),
        ([0, {"big": 10**400}], "$[1].big is an integer outside 64 bits"),
        (object(), "$ is of type object"),
        ({"a": {1: "x", "1": "y"}}, "$.a has two keys"),
        (circle(), "levels deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_that_json_cannot_carry_fails_its_task_alone_and_names_the_place(value: object, place: str) -> None:
    class Odd(ScriptedExecutor):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            return Done(value if brief.work.task == "a" else "fine")

    stage = Stage(Odd(Script()))
    found = stage.start(request(GOOD))
    (gap,) = found.gaps
    assert (gap.task, gap.status, gap.reason) == ("a", "failed", "logic")
    assert place in gap.message
    assert (found.ending, found.results) == ("partial", {"b": "fine"})
    assert replay(stage.play(lambda: stage.journal.read("run"))).ended is not None


async def _raise(context: StepContext) -> Done:
    raise ValueError(f"no {HALF} here")


async def _fail_oddly(context: StepContext) -> Done:
    raise WorkFailed(ev.Failure("network", "gone", retry_after=nan))


async def _note(context: StepContext) -> Done:
    context.note(HALF)
    return Done(1)


async def _charge(context: StepContext) -> Done:
    return Done(1, structs.replace(Amount(), tokens=1.5))


async def _charge_a_step(context: StepContext) -> Done:
    async def call(key: str) -> Done:
        return Done(1, structs.replace(Amount(), tokens=1.5))

    return Done(await context.step("look", call))


async def _name_a_step(context: StepContext) -> Done:
    async def call(key: str) -> Done:
        return Done(1)

    return Done(await context.step(HALF, call))


@pytest.mark.parametrize("trick", [_raise, _fail_oddly, _note, _charge, _charge_a_step, _name_a_step])
def test_nothing_a_worker_says_can_break_its_run(trick: Callable[[StepContext], Awaitable[Done]]) -> None:
    class Odd(ScriptedExecutor):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            return await trick(context) if brief.work.task == "a" else Done("fine")

    found = Stage(Odd(Script())).start(request(GOOD))
    assert [(gap.task, gap.status, gap.reason) for gap in found.gaps] == [("a", "failed", "logic")]
    assert found.ending == "partial"


def test_what_a_worker_tried_to_say_is_still_shown() -> None:
    class Odd(ScriptedExecutor):
        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            return await _raise(context)

    found = Stage(Odd(Script())).start(request(Plan((task("a"),))))
    assert "ValueError: no \\ud800 here" in found.gaps[0].message


def test_nothing_a_supervisor_says_can_break_its_run() -> None:
    class Odd(ScriptedExecutor):
        async def plan(self, brief: Brief, context: StepContext) -> Proposal:
            bad = brief.work.number == 1
            return Proposal((structs.replace(task("a"), instruction=f"look at {HALF}"),) if bad else GOOD.tasks)

        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            raise WorkFailed(ev.Failure("logic", "no"))

        async def refine(self, brief: Brief, context: StepContext) -> Refined:
            return Refined(HALF)

    stage = Stage(Odd(Script()))
    found = stage.start(request())
    assert (found.ending, {gap.task for gap in found.gaps}) == ("failed", {"a", "b"})
    assert {event.duty for event in stage.events(ev.SupervisionFailed)} == {"plan", "refine"}


def test_an_answer_that_cannot_be_kept_leaves_the_results() -> None:
    stage = Stage(ScriptedExecutor(Script(answers=(Move(result={"x": nan}),))))
    found = stage.start(request(GOOD))
    assert (found.ending, found.answer, len(found.results)) == ("partial", None, 2)


# --- a worker that asks otherwise when its attempt is taken up again after a crash


class Letters(ScriptedExecutor):
    """Looks things up and sends letters, in the order it is told."""

    def __init__(self, *calls: tuple[str, ev.Effect]) -> None:
        super().__init__(Script())
        self.calls = calls
        self.made: list[str] = []

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        for asked, effect in self.calls:

            async def call(key: str, asked: str = asked) -> Done:
                self.made.append(asked)
                return Done(f"did {asked}")

            assert await context.step("tool", call, request=asked, effect=effect) == f"did {asked}"
        return Done("all done")


def cut_off(executor: ScriptedExecutor, kind: type[ev.Event], number: int) -> list[ev.Entry]:
    """The entries of a run up to the n-th event of a kind: all that a crash right after it leaves."""
    stage = Stage(executor)
    stage.start(request(Plan((task("a"),), "none")))
    places = [entry.seq for entry in stage.entries["run"] if isinstance(entry.event, kind)]
    return stage.entries["run"][: places[number - 1]]


async def restore(journal: Journal, entries: list[ev.Entry]) -> None:
    lease = await journal.claim("run", new=True)
    await journal.append(lease, entries)
    await journal.release(lease)


Call = tuple[str, ev.Effect]
LOOK: Call = ("look", "read")
LOOK_ELSEWHERE: Call = ("look elsewhere", "read")
SEND: Call = ("send", "effect")
SEND_MORE: Call = ("send more", "effect")


@pytest.mark.parametrize(
    ("second", "made"),
    [
        ((LOOK, SEND, SEND_MORE), ["send more"]),
        ((LOOK_ELSEWHERE, SEND, SEND_MORE), ["look elsewhere", "send more"]),
        ((SEND, LOOK, SEND_MORE), ["look", "send more"]),
        ((SEND, SEND_MORE), ["send more"]),
        ((SEND_MORE, SEND), ["send more"]),
    ],
)
def test_an_effect_is_not_done_again_by_a_worker_that_changed_its_mind(
    second: tuple[Call, ...], made: list[str]
) -> None:
    entries = cut_off(Letters(LOOK, SEND, SEND_MORE), ev.StepFinished, 2)
    executor = Letters(*second)
    stage = Stage(executor)
    stage.play(lambda: restore(stage.journal, entries))
    assert stage.resume().results == {"a": "all done"}
    assert executor.made == made
