"""What holds of the core whatever the run."""

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec
import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.decide import decide
from chargehand.engine.fold import FOLDS, begin, replay
from chargehand.engine.owed import owed, wake_at
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry, check
from chargehand.engine.state import RunState, Status
from chargehand.engine.view import gaps
from chargehand.errors import Invalid
from tests.requests import request
from tests.virtual import Stage


def test_every_event_has_a_fold() -> None:
    assert set(FOLDS) == set(get_args(ev.Event)) - {ev.RunRequested}


def test_a_journal_begins_with_a_request() -> None:
    with pytest.raises(AssertionError, match="begins with"):
        begin(ev.Entry(1, 0.0, ev.PauseSet(paused=True)))


def chain(count: int) -> Plan:
    ids = [TaskId(f"t{number}") for number in range(count)]
    tasks = [
        Task(name, "carry out one link of it", "worker", after=tuple(ids[max(0, n - 1) : n]))
        for n, name in enumerate(ids)
    ]
    return Plan(tuple(tasks), "none")


def states() -> Iterator[tuple[RunState, float]]:
    """Every state a run with a retry goes through, and the moment it stood at."""
    stage = Stage(ScriptedExecutor(Script({"t1": (Move(fail="network"), Move())}, otherwise=Move(seconds=1.0))))
    stage.start(request(chain(4)))
    entries = stage.entries["run"]
    for cut in range(1, len(entries)):
        yield replay(entries[:cut]), entries[cut - 1].at


def test_deciding_changes_nothing() -> None:
    for (state, now), (same, _) in zip(states(), states(), strict=True):
        assert decide(state, now) == decide(state, now) == decide(same, now)
        assert list(owed(state)) == list(owed(same))


def test_nothing_waits_without_a_timer_or_an_owner() -> None:
    for state, now in states():
        assert decide(state, now) or owed(state) or wake_at(state, now) is not None


def test_a_plan_handed_over_in_any_order_runs_in_the_right_one() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    shuffled = Plan(tuple(reversed(chain(6).tasks)), "none")
    found = stage.start(request(shuffled))
    assert found.ending == "complete"
    assert [one.task for one in stage.events(ev.AttemptStarted)] == [f"t{number}" for number in range(6)]


def test_a_very_long_chain_does_not_recurse() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    policy = Policy(limits=Limits(max_tasks=5000, max_depth=5000))
    found = stage.start(request(chain(3000), policy=policy))
    assert set(found.statuses.values()) == {Status.DONE}


@pytest.mark.parametrize(
    "policy",
    [
        Policy(retry=structs.replace(Retry(), attempts=0)),
        Policy(retry=Retry(base=-1.0)),
        Policy(limits=structs.replace(Limits(), width=0)),
        Policy(breaking=Breaking(window=float("nan"))),
        Policy(grace=-1.0),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: Policy) -> None:
    with pytest.raises(Invalid, match=r"policy\.\w+ is"):
        check(policy)


# --- what nobody can do


def asked_about(*unserved: str) -> list[ev.Entry]:
    """A plan that leaves something out, and the question whether it may run."""
    events: list[ev.Event] = [
        request(policy=Policy(approve=True)),
        ev.SupervisionStarted("plan", 1, 10.0),
        ev.TasksAdded(1, chain(1).tasks, unserved=unserved),
        ev.InputRequested(1, "plan"),
    ]
    return entries_of(events)


def entries_of(events: Sequence[ev.Event], after: int = 0) -> list[ev.Entry]:
    return [ev.Entry(number, float(number), event) for number, event in enumerate(events, after + 1)]


def left_out(entries: Sequence[ev.Entry]) -> list[str]:
    return [one.message for one in gaps(replay(entries)) if one.status == "unserved"]


def test_what_a_rejected_plan_left_out_is_for_the_next_one_to_say() -> None:
    before = asked_about("nobody feeds the cat", "nobody flies")
    assert left_out(before) == ["nobody feeds the cat", "nobody flies"]
    again = [ev.InputAnswered(1, "reject", "ann feeds the cat"), ev.SupervisionStarted("plan", 2, 20.0, why="rejected")]
    added = ev.TasksAdded(2, chain(2).tasks, unserved=("nobody flies",))
    assert left_out([*before, *entries_of([*again, added], len(before))]) == ["nobody flies"]


def test_what_was_left_out_of_an_edited_plan_stays_so() -> None:
    before = asked_about("nobody feeds the cat")
    edited = ev.InputAnswered(1, "edit", plan=chain(2))
    assert left_out([*before, *entries_of([edited], len(before))]) == ["nobody feeds the cat"]


def test_what_is_left_out_twice_is_missing_once() -> None:
    before = asked_about("nobody feeds the cat")
    more: list[ev.Event] = [
        ev.InputAnswered(1, "approve"),
        ev.SupervisionStarted("plan", 2, 20.0, why="replan"),
        ev.TasksAdded(2, (), unserved=("nobody flies", "nobody feeds the cat")),
    ]
    assert left_out([*before, *entries_of(more, len(before))]) == ["nobody feeds the cat", "nobody flies"]


def test_a_run_that_takes_over_a_plan_knows_what_that_left_out() -> None:
    offered = ev.ResultsOffered("first", (), ("nobody feeds the cat",))
    assert left_out(entries_of([request(chain(1)), offered])) == ["nobody feeds the cat"]


def test_an_offer_of_an_older_version_leaves_nothing_out() -> None:
    written = b'{"type":"run.offered","run":"first","offers":[]}'
    offered = msgspec.json.decode(written, type=ev.ResultsOffered)
    assert left_out(entries_of([request(chain(1)), offered])) == []
    assert msgspec.json.encode(offered) == written


def test_a_task_of_a_run_that_goes_on_is_not_said_to_have_ended() -> None:
    going = entries_of([request(chain(1))])
    assert [one.message for one in gaps(replay(going))] == ["it is not finished yet"]
    cancelled = [*going, ev.Entry(2, 2.0, ev.CancelRequested())]
    assert [one.message for one in gaps(replay(cancelled))] == ["the run ended before it was finished"]
