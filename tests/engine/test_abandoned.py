"""An attempt whose process died too often is given up: by a recorded history, decided anew at each of its resumes."""

from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.decide import decide
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from tests.histories.kept import entries_of, read_lines


def test_an_attempt_is_given_up_after_as_many_crashes_as_are_allowed_and_not_before() -> None:
    entries = entries_of(read_lines("abandoned"), "abandoned")
    request = entries[0].event
    assert isinstance(request, ev.RunRequested)
    resumes = [place for place, entry in enumerate(entries, 1) if isinstance(entry.event, ev.RunResumed)]
    given_up: list[bool] = []
    for place in resumes:
        decided = decide(replay(entries[:place]), entries[place - 1].at)
        given_up.append(any(isinstance(event, ev.AttemptAbandoned) for event in decided))
    allowed = request.policy.limits.resumes
    assert given_up[: allowed + 1] == [False] * allowed + [True]


def test_crashes_of_an_attempt_do_not_count_for_the_next() -> None:
    task = Task(TaskId("t"), "write the report", "bob")
    request = ev.RunRequested(
        goal="the report",
        roster=Roster((Agent("bob"),)),
        policy=Policy(limits=Limits(resumes=1), retry=Retry(base=0.0), refine=False),
        budget=Budget(),
        deadline=1000.0,
        seed=0,
        plan=Plan((task,)),
    )
    history: list[ev.Event] = [
        request,
        ev.AttemptStarted(task.id, 1, "bob", 500.0),
        ev.RunResumed(2),
        ev.AttemptStarted(task.id, 1, "bob", 500.0),
        ev.AttemptFailed(task.id, 1, ev.Failure("logic", "no report")),
        ev.RetryScheduled(task.id, 1.0),
        ev.AttemptStarted(task.id, 2, "bob", 500.0),
        ev.RunResumed(3),
    ]
    decided = decide(replay([ev.Entry(seq, 1.0, event) for seq, event in enumerate(history, 1)]), 1.0)
    assert [(event.attempt, event.worker) for event in decided if isinstance(event, ev.AttemptStarted)] == [(2, "bob")]
