"""The timeline and the counts of a run: only what failed is called failed, and nobody's waiting is called work."""

from io import StringIO

from msgspec import Raw

from chargehand.cli.console import Console
from chargehand.cli.diagrams import timeline_lines
from chargehand.cli.transcript import Transcript
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.runtime.trace import Trace, trace
from tests.requests import request

T1 = TaskId("t1")
PLAN = Plan((Task(T1, "say how high the Rhine is", "worker"),))
WISH = b'{"calls":[{"id":"1","name":"level","arguments":"{\\"river\\":\\"Rhine\\"}"}],"finish":"tools"}'


def traced(*events: tuple[float, ev.Event]) -> Trace:
    entries = [ev.Entry(1, 100.0, request(PLAN))]
    entries += [ev.Entry(number, 100.0 + at, event) for number, (at, event) in enumerate(events, 2)]
    return trace("run", entries)


APPROVED = traced(
    (0.0, ev.AttemptStarted(T1, 1, "worker", 160.0)),
    (1.0, ev.AttemptFailed(T1, 1, ev.Failure("approval", "level(Rhine)"))),
    (1.0, ev.InputRequested(1, "tool", T1, "level(Rhine)")),
    (8.0, ev.InputAnswered(1, "approve")),
    (8.0, ev.AttemptStarted(T1, 1, "worker", 160.0)),
    (10.0, ev.AttemptSucceeded(T1, 1, Raw(b"7"))),
)
INTERRUPTED = traced(
    (0.0, ev.AttemptStarted(T1, 1, "worker", 160.0)),
    (0.0, ev.StepStarted(T1, 1, 1, "model", "model")),
    (1.0, ev.StepFinished(T1, 1, 1, Raw(WISH))),
    (1.0, ev.StepStarted(T1, 1, 2, "level")),
    (8.0, ev.RunResumed(2)),
    (8.0, ev.AttemptStarted(T1, 1, "worker", 160.0)),
    (8.0, ev.StepStarted(T1, 1, 2, "level")),
    (9.0, ev.StepFinished(T1, 1, 2, Raw(b'{"value":7}'))),
    (10.0, ev.AttemptSucceeded(T1, 1, Raw(b"7"))),
)
RETRIED = traced(
    (0.0, ev.AttemptStarted(T1, 1, "worker", 160.0)),
    (1.0, ev.AttemptFailed(T1, 1, ev.Failure("network", "the line went dead"))),
    (1.0, ev.RetryScheduled(T1, 103.0)),
    (3.0, ev.BackoffEnded(T1)),
    (3.0, ev.AttemptStarted(T1, 2, "worker", 160.0)),
    (4.0, ev.AttemptSucceeded(T1, 2, Raw(b"7"))),
)


def test_an_attempt_that_waited_for_a_person_or_was_interrupted_did_not_fail() -> None:
    for run, worked in ((APPROVED, 3.0), (INTERRUPTED, 3.0)):
        (line,) = timeline_lines(run, 60)
        assert "x" not in line
        assert line.endswith(f"│ {worked:.1f} s")
        assert (run.tasks[0].attempt_count, run.tasks[0].seconds_worked) == (1, worked)


def test_an_attempt_that_failed_is_counted_and_marked() -> None:
    (line,) = timeline_lines(RETRIED, 60)
    assert "─x·" in line
    assert line.endswith("│ 2.0 s, 2 attempts")
    assert (RETRIED.tasks[0].attempt_count, RETRIED.tasks[0].seconds_worked) == (2, 2.0)


def test_a_call_that_is_repeated_after_an_interruption_keeps_its_arguments() -> None:
    calls = [step for attempt in INTERRUPTED.tasks[0].attempts for step in attempt.steps if step.name == "level"]
    assert [step.arguments for step in calls] == [{"river": "Rhine"}] * 2


def test_lines_of_the_supervisor_stand_below_each_other_before_and_after_there_is_a_plan() -> None:
    page = StringIO()
    console = Console(page)
    tasks = tuple(Task(TaskId(f"t{number}"), "look", "worker") for number in range(1, 11))
    events: list[ev.Event] = [
        request(None),
        ev.SupervisionStarted("plan", 1, 160.0),
        ev.TasksAdded(1, tasks),
        ev.SupervisionStarted("answer", 1, 160.0),
    ]
    transcript = Transcript(console, console, jsonl=False)
    transcript.show("run", [ev.Entry(number, 100.0, event) for number, event in enumerate(events, 1)])
    lines = [line for line in page.getvalue().splitlines() if " supervisor " in line]
    assert len(lines) == 3
    assert len({line.index("supervisor") for line in lines}) == 1
