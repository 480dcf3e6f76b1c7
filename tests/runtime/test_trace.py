"""A trace holds what the entries tell, at every moment of a run, and nothing is counted twice."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.state import Progress, RunState, Status
from chargehand.engine.value import encode_value
from chargehand.errors import Corrupt
from chargehand.runtime.trace import (
    Interruption,
    InterruptionCause,
    RequestedCall,
    Trace,
    calls_in,
    critical_path,
    trace,
)
from tests.requests import request

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))
A = TaskId("a")
B = TaskId("b")
PLAN = Plan((Task(A, "look into the matter", "worker"), Task(B, "write it down", "worker", after=(A,))))


def kept(history: Path) -> list[ev.Entry]:
    return [msgspec.json.decode(line, type=ev.Entry) for line in history.read_bytes().splitlines()]


def told(*events: tuple[float, ev.Event]) -> Trace:
    first = ev.Entry(1, 100.0, request(PLAN))
    return trace("run", [first, *(ev.Entry(at, 100.0 + when, one) for at, (when, one) in enumerate(events, 2))])


def _status(state: RunState, progress: Progress) -> str:
    """What a task is called: nobody works on it any more once its run has ended."""
    is_open = state.ended is not None and not progress.settled and progress.status is not Status.EXPANDED
    return "unfinished" if is_open else progress.status.value


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_every_recorded_run_can_be_traced_at_every_moment(history: Path) -> None:
    entries = kept(history)
    for cut in range(1, len(entries) + 1):
        found = trace("run", entries[:cut])
        state = replay(entries[:cut])
        assert {task.id for task in found.tasks} == set(state.tasks)
        assert {task.id: task.status for task in found.tasks} == {k: _status(state, v) for k, v in state.tasks.items()}
        assert found.used == state.ledger.spent
        assert bool(found.ending) == (state.ended is not None)
        msgspec.json.encode(found)
    found = trace("run", entries)
    started = sum(isinstance(entry.event, ev.AttemptStarted) for entry in entries)
    assert sum(len(task.attempts) for task in (*found.tasks, *found.dropped)) == started


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_no_part_costs_more_than_the_whole_and_attempts_add_up(history: Path) -> None:
    found = trace("run", kept(history))
    tasks = (*found.tasks, *found.dropped)
    for task in tasks:
        refining = [one.used.calls for one in found.supervision if one.task == task.id]
        assert sum(one.used.calls for one in task.attempts) + sum(refining) <= task.used.calls
        for attempt in task.attempts:
            assert sum(step.used.calls for step in attempt.steps) <= attempt.used.calls
    whole = sum(task.used.calls for task in tasks)
    whole += sum(one.used.calls for one in found.supervision if not one.task)
    assert whole <= found.used.calls


def test_a_run_that_went_well_is_told_step_by_step() -> None:
    reply = b'{"calls":[{"id":"1","name":"look","arguments":"{\\"where\\":\\"here\\"}"}],"finish":"tools"}'
    found = told(
        (1.0, ev.AttemptStarted(A, 1, "worker", 160.0)),
        (
            1.0,
            ev.PromptSent(
                duty="attempt",
                number=1,
                model="demo",
                messages=Raw(b'[{"role":"user","text":"look"}]'),
                task=A,
                tools=("look",),
            ),
        ),
        (1.0, ev.StepStarted(A, 1, 1, "model", "model")),
        (2.0, ev.StepFinished(A, 1, 1, Raw(reply), used=Amount(tokens=10, calls=1))),
        (2.0, ev.StepStarted(A, 1, 2, "look")),
        (2.5, ev.StepFinished(A, 1, 2, Raw(b'{"value":7}'))),
        (3.0, ev.AttemptSucceeded(A, 1, Raw(b"7"), used=Amount())),
        (3.0, ev.AttemptStarted(B, 1, "worker", 160.0)),
        (4.0, ev.AttemptSucceeded(B, 1, Raw(b'"seven"'), used=Amount(tokens=5, micros=3, calls=1))),
        (4.0, ev.SupervisionStarted("answer", 1, 160.0)),
        (6.0, ev.AnswerWritten(1, Raw(b'"It is seven."'), used=Amount(tokens=1))),
        (6.0, ev.RunEnded("complete", "done")),
    )
    one, other = found.tasks
    (attempt,) = one.attempts
    assert attempt.prompts[0].tools == ("look",)
    assert attempt.prompts[0].messages == [{"role": "user", "text": "look"}]
    assert [(step.name, step.seconds, step.arguments) for step in attempt.steps] == [
        ("model", 1.0, None),
        ("look", 0.5, {"where": "here"}),
    ]
    assert (one.used, other.used) == (Amount(tokens=10, calls=1), Amount(tokens=5, micros=3, calls=1))
    assert (found.answer, found.ending, found.seconds) == ("It is seven.", "complete", 6.0)
    assert found.serial == 2.0 + 1.0 + 2.0
    assert found.critical_path == (A, B)
    assert found.used == Amount(tokens=16, micros=3, calls=2)


def test_failures_retries_and_refinements_are_kept() -> None:
    lost = ev.Failure("network", "the line went dead")
    wrong = ev.Failure("logic", "that is no number")
    found = told(
        (0.0, ev.AttemptStarted(A, 1, "worker", 160.0)),
        (1.0, ev.AttemptFailed(A, 1, lost)),
        (1.0, ev.RetryScheduled(A, 103.0)),
        (3.0, ev.BackoffEnded(A)),
        (3.0, ev.AttemptStarted(A, 2, "worker", 160.0)),
        (4.0, ev.AttemptFailed(A, 2, wrong)),
        (4.0, ev.SupervisionStarted("refine", 2, 160.0, A)),
        (5.0, ev.TaskRefined(A, 2, "look into the matter, and say a number")),
        (5.0, ev.RetryScheduled(A, 105.0)),
        (5.0, ev.AttemptStarted(A, 3, "worker", 160.0)),
    )
    task = found.tasks[0]
    assert [one.failure for one in task.attempts] == [lost, wrong, None]
    assert [one.ending for one in task.attempts] == ["failed", "failed", "under way"]
    assert [(one.at, one.wait) for one in task.retries] == [(1.0, 2.0), (5.0, 0.0)]
    assert task.refinements == ["look into the matter, and say a number"]
    assert task.attempts[2].instruction == task.refinements[0]
    assert [(one.duty, one.task, one.seconds) for one in found.supervision] == [("refine", A, 1.0)]


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (ev.Noted("it works"), "lost"),
        (ev.RunReleased(), "released"),
        (ev.InputRequested(1, "tool", A, "look({})"), "asked"),
    ],
)
def test_an_interruption_says_what_can_be_known_of_it(before: ev.Event, cause: InterruptionCause) -> None:
    asked = ev.AttemptFailed(A, 1, ev.Failure("approval", "look({})"))
    ended = () if cause != "asked" else ((2.0, asked),)
    run = told((1.0, ev.AttemptStarted(A, 1, "worker", 160.0)), *ended, (3.0, before), (45.0, ev.RunResumed(2)))
    assert run.interruptions == [Interruption(3.0, 45.0, cause)]


def test_a_question_beside_work_under_way_does_not_explain_an_interruption() -> None:
    plan = Plan((Task(A, "look into the matter", "worker"), Task(B, "write it down", "worker")))
    events = (
        ev.AttemptStarted(A, 1, "worker", 160.0),
        ev.AttemptStarted(B, 1, "worker", 160.0),
        ev.AttemptFailed(A, 1, ev.Failure("approval", "look({})")),
        ev.InputRequested(1, "tool", A, "look({})"),
        ev.RunResumed(2),
    )
    entries = [ev.Entry(seq, 100.0 + seq, event) for seq, event in enumerate((request(plan), *events), 1)]
    assert trace("run", entries).interruptions == [Interruption(4.0, 5.0, "lost")]


def test_a_step_has_the_arguments_of_the_call_that_it_names() -> None:
    reply = {"calls": [{"id": str(at), "name": "look", "arguments": f'{{"at": {at}}}'} for at in (1, 2)]}
    again = {"calls": [{"id": "1", "name": "look", "arguments": '{"at": 3}'}]}
    run = told(
        (1.0, ev.AttemptStarted(A, 1, "worker", 160.0)),
        (1.0, ev.StepStarted(A, 1, 1, "model", "model")),
        (1.5, ev.StepFinished(A, 1, 1, encode_value(reply))),  # the first of its calls is never made
        (2.0, ev.StepStarted(A, 1, 2, "look", call="2")),
        (2.5, ev.StepFinished(A, 1, 2, encode_value({"value": "nothing"}))),
        (3.0, ev.StepStarted(A, 1, 3, "model", "model")),
        (3.5, ev.StepFinished(A, 1, 3, encode_value(again))),
        (4.0, ev.StepStarted(A, 1, 4, "look", call="1")),
    )
    steps = run.tasks[0].attempts[0].steps
    assert [(step.call, step.arguments) for step in steps if step.kind == "tool"] == [
        ("2", {"at": 2}),
        ("1", {"at": 3}),
    ]
    assert [step.result for step in steps if step.kind == "tool"] == [{"value": "nothing"}, None]


def test_an_attempt_that_asks_a_person_has_not_failed() -> None:
    asked = next(history for history in HISTORIES if history.stem == "asked")
    task = next(task for task in trace("run", kept(asked)).tasks if task.id == "send")
    attempts = [(attempt.attempt, attempt.ending, attempt.failure) for attempt in task.attempts]
    assert attempts == [(1, "asked", None), (1, "succeeded", None)]


def test_the_time_between_a_crash_and_the_resume_is_nobodys_work() -> None:
    found = told(
        (0.0, ev.AttemptStarted(A, 1, "worker", 160.0)),
        (2.0, ev.StepStarted(A, 1, 1, "look")),
        (900.0, ev.RunResumed(2)),
    )
    (attempt,) = found.tasks[0].attempts
    assert (attempt.seconds, attempt.ending) == (2.0, "stopped")
    assert found.serial == 2.0


def test_the_critical_path_goes_back_along_the_inputs_that_came_last() -> None:
    c = TaskId("c")
    d = TaskId("d")
    tasks = [Task(A, "x"), Task(B, "x"), Task(c, "x", after=(A, B)), Task(d, "x")]
    assert critical_path(tasks, {A: 1.0, B: 4.0, c: 9.0, d: 5.0}) == (B, c)
    assert critical_path(tasks, {A: 1.0}) == (A,)
    assert critical_path(tasks, {}) == ()


def test_a_task_whose_items_are_under_way_is_on_the_critical_path() -> None:
    listed = Task(A, "list the shelves", "worker")
    each = Task(B, "count a shelf", "worker", for_each=A)
    entries = [
        (0.0, request(Plan((listed, each)))),
        (0.0, ev.AttemptStarted(A, 1, "worker", 160.0)),
        (1.0, ev.AttemptSucceeded(A, 1, Raw(b"[1,2]"), items=2)),
        (1.0, ev.TaskExpanded(B, 2)),
        (2.0, ev.AttemptStarted(TaskId("b[0]"), 1, "worker", 160.0)),
    ]
    run = trace("run", [ev.Entry(at, 100.0 + when, event) for at, (when, event) in enumerate(entries, 1)])
    assert run.critical_path == (A, B)


def test_the_critical_path_leaves_skipped_tasks_out_and_counts_those_under_way_up_to_now() -> None:
    given_up = ev.Failure("logic", "that is no number", permanent=True)
    begun = ((0.0, ev.AttemptStarted(A, 1, "worker", 160.0)),)
    assert told(*begun).critical_path == (A,)
    lost = (*begun, (2.0, ev.AttemptFailed(A, 1, given_up)), (2.0, ev.TaskFailed(A, given_up)))
    assert told(*lost, (2.0, ev.TaskSkipped(B, "input", A))).critical_path == (A,)


@pytest.mark.parametrize("said", [None, 7, [], {"calls": 3}, {"calls": [{"nome": "x"}]}, {"text": "no calls"}])
def test_what_is_no_reply_of_a_model_asks_for_no_calls(said: object) -> None:
    assert calls_in(said) == []


def test_arguments_that_are_no_json_are_kept_as_they_were_written() -> None:
    assert calls_in({"calls": [{"name": "look", "arguments": "{here"}]}) == [RequestedCall("", "look", "{here")]


@pytest.mark.parametrize("entries", [[], [ev.Entry(1, 0.0, ev.TimeRanOut())]])
def test_what_does_not_begin_with_a_request_is_no_run(entries: Sequence[ev.Entry]) -> None:
    with pytest.raises(Corrupt):
        trace("run", entries)
