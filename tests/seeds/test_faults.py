"""The faults of the code the project grew from, one test each, so that none of them comes back."""

import pytest

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import PlanInvalid
from chargehand.runtime.executor import Done, Proposal, Refined, StepContext
from tests.requests import request
from tests.virtual import Stage

CLOSED = Move(fail="logic", message="the source is closed")
DEAD = Move(fail="network", message="the line went dead")


def task(number: int, *after: int | Edge, worker: str = "worker") -> Task:
    needs = tuple(one if isinstance(one, Edge) else TaskId(f"T{one}") for one in after)
    return Task(TaskId(f"T{number}"), f"carry out part {number} of the report", worker, after=needs)


EXERCISE = Plan((task(1), task(2), task(3, 1), task(4, 2), task(5, 3, 4)))


def attempts(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in stage.events(ev.AttemptStarted):
        found[event.task] = found.get(event.task, 0) + 1
    return found


def test_a_failed_input_does_not_take_the_plan_with_it() -> None:
    """Fault 1: one failure raised "Plan stuck" and threw away what had nothing to do with it."""
    stage = Stage(ScriptedExecutor(Script({"T1": (CLOSED,)})))
    found = stage.start(request(EXERCISE))
    assert found.ending == "partial"
    assert found.results.keys() == {"T2", "T4"}
    assert {gap.task: (gap.status, gap.because) for gap in found.gaps} == {
        "T1": ("failed", ""),
        "T3": ("skipped", "T1"),
        "T5": ("skipped", "T3"),
    }


def test_a_retry_forgets_nothing_that_was_completed() -> None:
    """Fault 2: the second pass began with an empty map, so a plan whose last task failed came back unfinished."""
    stage = Stage(ScriptedExecutor(Script({"T1": (DEAD, Move()), "T5": (DEAD, DEAD, Move())})))
    found = stage.start(request(EXERCISE))
    assert found.ending == "complete"
    assert attempts(stage) == {"T1": 2, "T2": 1, "T3": 1, "T4": 1, "T5": 3}
    assert found.results[TaskId("T5")] == {
        "did": "carry out part 5 of the report",
        "from": {"T3": "carry out part 3 of the report", "T4": "carry out part 4 of the report"},
    }


def test_whoever_refines_a_task_is_told_what_went_wrong() -> None:
    """Fault 3: the error was cleared before it was handed over."""
    told: list[tuple[str, str]] = []

    class Refiner(ScriptedExecutor):
        async def refine(self, brief: Brief, context: StepContext) -> Refined:
            told.append((brief.instruction, brief.failure))
            return Refined(f"carry it out better ({len(told)})")

    moves = (CLOSED, Move(fail="logic", message="no date given"), Move())
    found = Stage(Refiner(Script({"T1": moves}))).start(request(Plan((task(1),), "none")))
    assert told == [
        ("carry out part 1 of the report", "the source is closed"),
        ("carry it out better (1)", "no date given"),
    ]
    assert found.results[TaskId("T1")] == {"did": "carry it out better (2)"}


@pytest.mark.parametrize("move", [CLOSED, DEAD], ids=["refined", "unchanged"])
def test_three_tries_are_three(move: Move) -> None:
    """Fault 6: the words said three, the code counted two."""
    stage = Stage(ScriptedExecutor(Script({"T1": (move,)})))
    stage.start(request(Plan((task(1),))))
    assert attempts(stage) == {"T1": 3}
    assert Policy().retry.attempts == 3


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ((task(1, 2), task(2, 1)), "cycle"),
        ((task(1, worker="wizard"),), "unknown_worker"),
        ((task(1, 7),), "unknown_task"),
        ((task(1), task(1)), "duplicate_id"),
    ],
    ids=["cycle", "worker", "dependency", "id"],
)
def test_a_plan_is_checked_before_a_worker_sees_it(tasks: tuple[Task, ...], code: str) -> None:
    """Fault 8: the words demanded a check and the code had none."""
    with pytest.raises(PlanInvalid) as caught:
        Stage(ScriptedExecutor(Script())).start(request(Plan(tasks)))
    assert code in [finding.code for finding in caught.value.findings]
    # from a planner: it goes back in words, and nothing has been started
    stage = Stage(ScriptedExecutor(Script(plans=(Plan(tasks), EXERCISE))))
    assert stage.start(request()).ending == "complete"
    (failed,) = stage.events(ev.SupervisionFailed)
    assert code in [finding.code for finding in failed.findings]
    assert attempts(stage) == {"T1": 1, "T2": 1, "T3": 1, "T4": 1, "T5": 1}


def test_a_worker_who_does_not_exist_does_not_shift_the_results_of_the_others() -> None:
    """Fault 9: the step was left out, and whoever read results by position got those of the wrong step."""
    given: dict[str, list[str]] = {}
    heard: list[str] = []

    class Planner(ScriptedExecutor):
        async def plan(self, brief: Brief, context: StepContext) -> Proposal:
            heard.extend(finding.message for finding in brief.findings)
            who = "worker" if brief.findings else "wizard"
            return Proposal((task(1), task(2, worker=who), task(3), task(4, 3), task(5, 2)), "none")

        async def attempt(self, brief: Brief, context: StepContext) -> Done:
            given[brief.work.task] = [one.task for one in brief.inputs]
            return Done(f"result of {brief.work.task}")

    found = Stage(Planner(Script())).start(request())
    assert len(heard) == 1
    assert "'wizard'" in heard[0]
    assert given == {"T1": [], "T2": [], "T3": [], "T4": ["T3"], "T5": ["T2"]}
    assert found.results == {name: f"result of {name}" for name in given}


def test_whoever_writes_the_answer_gets_failures_as_data() -> None:
    """Fault 12: failures came as text among the results."""
    seen: list[Brief] = []

    class Writer(ScriptedExecutor):
        async def answer(self, brief: Brief, context: StepContext) -> Done:
            seen.append(brief)
            return Done("what there is")

    Stage(Writer(Script({"T1": (CLOSED,)}))).start(request(EXERCISE))
    (brief,) = seen
    assert [one.task for one in brief.inputs] == ["T2", "T4"]
    assert all(one.value is not None and not one.gaps for one in brief.inputs)
    assert [(gap.task, gap.status, gap.reason, gap.because) for gap in brief.gaps] == [
        ("T1", "failed", "logic", ""),
        ("T3", "skipped", "input", "T1"),
        ("T5", "skipped", "input", "T3"),
    ]
    assert brief.gaps[0].message == "the source is closed"
