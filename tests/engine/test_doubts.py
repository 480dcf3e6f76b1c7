"""Effects in doubt, kept steps and open questions, one entry at a time."""

import pytest
from msgspec import Raw, structs

from chargehand.engine import events as ev
from chargehand.engine.admit import admit
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.decide import decide
from chargehand.engine.failure import EarlierCall, Failure, Gap, Question
from chargehand.engine.fold import fold, replay
from chargehand.engine.owed import brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.engine.state import RunState, Work
from chargehand.engine.view import gaps
from chargehand.errors import Refused
from tests.requests import request

PAY = TaskId("pay")
ASK = TaskId("ask")
ROSTER = Roster((Agent("ann", model="m", fallbacks=("bob",), timeout=60.0), Agent("bob", timeout=60.0)))
PLAN = Plan((Task(PAY, "pay the bill at once", "ann"), Task(ASK, "ask a person for leave", "bob")), "none")
POLICY = Policy(retry=Retry(attempts=3, base=0.0), breaking=Breaking(consecutive=1), refine=False)

REQUEST = structs.replace(request(PLAN, ROSTER, policy=POLICY), deadline=100.0)


def started(task: TaskId, attempt: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(task, attempt, "ann" if task == PAY else "bob", until=100.0)


def effect(*, look: bool) -> ev.StepStarted:
    arguments = Raw(b'{"bill":"A"}')
    return ev.StepStarted(
        PAY, 1, step=1, name="wire", effect="effect", request="x", key="run/pay/x", arguments=arguments, look=look
    )


def in_doubt() -> ev.AttemptFailed:
    return ev.AttemptFailed(PAY, 1, Failure("uncertain", "an effect is in doubt"))


def asks_leave() -> tuple[ev.Event, ...]:
    question = Question("tool", "send", call=1, key="k")
    failure = Failure("approval", "send({})", question=question)
    return (
        started(ASK),
        ev.AttemptFailed(ASK, 1, failure),
        ev.InputRequested(1, "tool", ASK, text="send({})", question=question),
    )


def state_after(*events: tuple[float, ev.Event] | ev.Event) -> RunState:
    """The state after these events, each a second after the one before it or at its own time."""
    at = 0.0
    entries = [ev.Entry(1, at, REQUEST)]
    for number, event in enumerate(events, 2):
        at, fact = event if isinstance(event, tuple) else (at + 1.0, event)
        entries.append(ev.Entry(number, at, fact))
    return replay(entries)


def test_failed_tasks_wait_for_the_answer_when_the_deadline_passes_while_a_person_is_asked() -> None:
    line = Failure("network", "the line broke")
    state = state_after(started(PAY), *asks_leave(), (90.0, ev.AttemptFailed(PAY, 1, line)))
    assert decide(state, 95.0) == []
    late = (95.0, ev.InputAnswered(1, "approve"))
    answered = state_after(started(PAY), *asks_leave(), (90.0, ev.AttemptFailed(PAY, 1, line)), late)
    assert decide(answered, 95.0)[0] == ev.RetryScheduled(PAY, 95.0, keep=True)


def test_an_attempt_that_looks_up_its_effect_stays_with_its_worker() -> None:
    state = state_after(
        started(PAY),
        effect(look=True),
        ev.AttemptStarted(ASK, 1, "ann", until=100.0),
        ev.AttemptFailed(ASK, 1, Failure("network", "no line")),
        ev.RetryScheduled(ASK, 90.0),
        in_doubt(),
        ev.RetryScheduled(PAY, 6.0, keep=True),
    )
    assert [event for event in decide(state, 8.0) if isinstance(event, ev.AttemptStarted) and event.task == PAY] == []
    opened = state.breakers["model:m"].until
    assert [event.worker for event in decide(state, opened) if isinstance(event, ev.AttemptStarted)][:1] == ["ann"]


def test_a_call_refused_in_a_team_that_waited_is_a_gap_when_the_time_runs_out_before_it_goes_on() -> None:
    question = Question("tool", "send", run="run/pay/1/1", call=1, key="k")
    refused = Gap(PAY, "refused", "person", "a person did not allow it", run="run/pay/1/1", tool="send")
    state = state_after(
        started(PAY),
        ev.AttemptFailed(PAY, 1, Failure("approval", "send({})", question=question, gaps=(refused,))),
        ev.InputRequested(1, "tool", PAY, text="send({})", question=question),
        (90.0, ev.InputAnswered(1, "approve")),
        (400.0, ev.TimeRanOut()),
    )
    assert [gap.reason for gap in gaps(state) if gap.task == PAY] == ["deadline", "person"]
    going_on = state_after(
        started(PAY),
        ev.AttemptFailed(PAY, 1, Failure("approval", "send({})", question=question, gaps=(refused,))),
        ev.InputRequested(1, "tool", PAY, text="send({})", question=question),
        ev.InputAnswered(1, "approve"),
        started(PAY),
    )
    assert [gap.reason for gap in gaps(going_on) if gap.task == PAY] == ["unfinished"], "its run will say it itself"


def test_an_effect_that_was_looked_up_is_no_longer_in_doubt_when_the_time_runs_out() -> None:
    state = state_after(
        started(PAY),
        effect(look=True),
        in_doubt(),
        ev.RetryScheduled(PAY, 3.0, keep=True),
        started(PAY, 2),
        ev.StepFinished(PAY, 2, 1, Raw(b'{"value":"paid"}')),
        (95.0, ev.TimeRanOut()),
    )
    assert [gap.reason for gap in gaps(state) if gap.task == PAY] == ["deadline"]


def test_an_effect_that_nobody_looked_up_is_in_doubt_when_the_time_runs_out() -> None:
    state = state_after(
        started(PAY), effect(look=True), in_doubt(), ev.RetryScheduled(PAY, 3.0, keep=True), (95.0, ev.TimeRanOut())
    )
    assert [(gap.reason, gap.tool) for gap in gaps(state) if gap.task == PAY] == [("uncertain", "wire")]


def test_an_attempt_that_goes_on_after_an_answer_is_told_what_failed_before_it() -> None:
    question, failure = Question("tool", "send", call=1, key="k"), Failure("logic", "no sources given")
    state = state_after(
        started(ASK),
        ev.AttemptFailed(ASK, 1, failure),
        ev.RetryScheduled(ASK, 2.0),
        started(ASK, 2),
        ev.AttemptFailed(ASK, 2, Failure("approval", "send({})", question=question)),
        ev.InputRequested(1, "tool", ASK, text="send({})", question=question),
        ev.InputAnswered(1, "approve"),
        started(ASK, 2),
    )
    assert brief(state, Work("attempt", ASK, 2)).failure == "no sources given"


def test_nothing_is_reported_of_work_that_a_cancel_stopped() -> None:
    state = state_after(
        started(PAY),
        ev.StepStarted(PAY, 1, step=1, name="team", kind="subteam", effect="idempotent"),
        ev.CancelRequested("enough"),
        ev.WorkStopped(),
    )
    for report in (ev.AttemptSucceeded(PAY, 1, Raw(b'"late"')), ev.StepFinished(PAY, 1, 1, Raw(b'"late"'))):
        with pytest.raises(Refused, match="no longer under way"):
            admit(state, report)


def test_a_task_that_stands_in_for_a_failed_one_is_told_what_the_failed_one_did_in_an_earlier_run() -> None:
    paid = EarlierCall("wire", {"bill": "A"}, "receipt 1", run="earlier", task=PAY)
    again = TaskId("pay-again")
    state = state_after(
        ev.ResultsOffered("earlier", (), calls=(paid,)),
        started(PAY),
        ev.AttemptFailed(PAY, 1, Failure("logic", "no")),
        ev.TaskFailed(PAY, Failure("logic", "no")),
        ev.SupervisionStarted("plan", 1, until=100.0, why="replan"),
        ev.TasksAdded(1, (Task(again, "pay the bill at once", "bob", replaces=PAY),)),
        ev.AttemptStarted(again, 1, "bob", until=100.0),
    )
    assert brief(state, Work("attempt", again, 1)).earlier == (paid,)


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_in_doubt_stays_a_gap_where_another_task_was_done_in_its_place(*, inside: bool) -> None:
    again = TaskId("pay-again")
    gap = Gap(PAY, "unfinished", "uncertain", "nobody knows", tool="wire")
    doubt = Failure("uncertain", "an effect is in doubt", gaps=(gap,) if inside else ())
    state = state_after(
        started(PAY),
        *(() if inside else (effect(look=False),)),
        ev.AttemptFailed(PAY, 1, doubt),
        ev.TaskFailed(PAY, doubt),
        ev.SupervisionStarted("plan", 1, until=100.0, why="replan"),
        ev.TasksAdded(1, (Task(again, "pay the bill at once", "bob", replaces=PAY),)),
        ev.AttemptStarted(again, 1, "bob", until=100.0),
        ev.AttemptSucceeded(again, 1, Raw(b'"paid"')),
    )
    assert {(gap.task, gap.reason) for gap in gaps(state)} == {(PAY, "uncertain"), (ASK, "unfinished")}


@pytest.mark.parametrize("over", [(ev.CancelRequested("enough"),), (ev.TimeRanOut(), ev.RunResumed(3))])
def test_a_run_that_is_over_after_a_crash_first_ends_the_run_that_the_dead_process_left(over: tuple[ev.Event]) -> None:
    state = state_after(
        started(PAY),
        ev.StepStarted(PAY, 1, step=1, name="team", kind="subteam", effect="idempotent"),
        ev.RunResumed(2),
        *over,
    )
    assert decide(state, 10.0) == [ev.WorkStopped()]
    fold(state, ev.Entry(state.seq + 1, 10.0, ev.WorkStopped()))
    assert decide(state, 10.0) == []
    gap = Gap(PAY, "unfinished", "uncertain", "nobody knows", tool="wire")
    fold(state, ev.Entry(state.seq + 1, 10.1, admit(state, ev.AttemptStopped(PAY, 1, (gap,)))))
    (ended,) = decide(state, 10.1)
    assert isinstance(ended, ev.RunEnded)
    assert gap in ended.gaps


@pytest.mark.parametrize(("resumable", "spent"), [(True, 30), (False, 100)])
def test_a_nested_run_that_a_crash_left_is_charged_once(*, resumable: bool, spent: int) -> None:
    """It is charged with what it used, or with all that was reserved where the crash was charged at once."""
    state = state_after(
        started(PAY),
        ev.StepStarted(
            PAY,
            1,
            step=1,
            name="team",
            kind="subteam",
            effect="idempotent",
            reserve=Amount(tokens=100),
            resumable=resumable,
        ),
        ev.RunResumed(2),
        ev.CancelRequested("enough"),
        ev.WorkStopped(),
        ev.AttemptStopped(PAY, 1, used=Amount(tokens=30)),
    )
    assert (state.ledger.spent, state.ledger.reserved) == (Amount(tokens=spent), NOTHING)


def test_an_answer_to_a_nested_run_is_not_handed_on_by_the_next_attempt() -> None:
    """The nested run of the next attempt counts its questions from 1 again."""
    question = Question("tool", "send", call=1, key="k", run="run/ask/1/1/x", number=1)
    state = state_after(
        started(ASK),
        ev.AttemptFailed(ASK, 1, Failure("approval", "send({})", question=question)),
        ev.InputRequested(1, "tool", ASK, text="send({})", question=question),
        ev.InputAnswered(1, "approve"),
        started(ASK),
    )
    assert brief(state, Work("attempt", ASK, 1)).handed_on is not None
    again = (
        ev.AttemptFailed(ASK, 1, Failure("network", "the line went dead")),
        ev.RetryScheduled(ASK, 6.0, keep=True),
        ev.BackoffEnded(ASK),
        started(ASK, 2),
    )
    for event in again:
        fold(state, ev.Entry(state.seq + 1, 6.0, event))
    assert brief(state, Work("attempt", ASK, 2)).handed_on is None
