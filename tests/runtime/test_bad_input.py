"""What cannot be used is refused with a typed error, and the journal has no trace of it."""

import asyncio
from math import inf, nan

import pytest
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.plan import Plan, Task, TaskId, parse
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Match
from chargehand.errors import ChargehandError, Invalid, NotJson, PlanInvalid, Refused, RunBusy, RunUnknown
from chargehand.journal.codec import TAGS
from chargehand.journal.protocol import RunRow
from tests.requests import request
from tests.support.hunts import hunt_size
from tests.virtual import NOW, Stage

HALF = "\ud800"
DEEP = hunt_size(quick=2_000, thorough=10_000)
ROOMY = Limits(max_tasks=2 * DEEP, max_depth=2 * DEEP)


def task(name: str, *after: str, worker: str = "worker") -> Task:
    return Task(TaskId(name), f"carry out {name} of the work", worker, after=tuple(map(TaskId, after)))


def chain(length: int) -> Plan:
    return Plan(tuple(task(f"t{n}", *([f"t{n - 1}"] if n else [])) for n in range(length)), "none")


GOOD = Plan((task("a"), task("b")))
SEEN = tuple[str, int, str, bool]


def _tag(row: RunRow) -> str:
    assert row.last is not None
    return TAGS[type(row.last.event)]


def seen(stage: Stage) -> list[SEEN]:
    return [(row.run, row.seq, _tag(row), row.held) for row in stage.play(stage.journal.runs)]


# --- plans


@pytest.mark.parametrize(
    ("plan", "limits", "code"),
    [
        (Plan((task("a", "b"), task("b", "a"))), Limits(), "cycle"),
        (Plan((task("a", "a"),)), Limits(), "cycle"),
        (Plan((task("a"), task("b", "nowhere"))), Limits(), "unknown_task"),
        (Plan((task("a"), task("a"))), Limits(), "duplicate_id"),
        (Plan((task("a", worker="nobody"),)), Limits(), "unknown_worker"),
        (Plan((structs.replace(task("a"), worker="", match=Match(("gold",))),)), Limits(), "no_match"),
        (Plan(()), Limits(), "empty_plan"),
        (chain(DEEP), Limits(), "too_many_tasks"),
        (chain(DEEP), Limits(max_tasks=2 * DEEP), "too_deep"),
        (Plan((task("a[0]"),)), Limits(), "bad_id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_plan_that_cannot_run_leaves_no_trace(plan: Plan, limits: Limits, code: str) -> None:
    stage = Stage(ScriptedExecutor(Script()))
    with pytest.raises(PlanInvalid) as caught:
        stage.start(request(plan, policy=Policy(limits=limits)))
    assert code in [finding.code for finding in caught.value.findings]
    assert seen(stage) == []


def test_a_chain_of_thousands_runs_where_it_is_allowed() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    found = stage.start(request(chain(DEEP), policy=Policy(limits=ROOMY)))
    assert (found.ending, len(found.results)) == ("complete", DEEP)


@pytest.mark.parametrize(
    "source",
    [
        "not json",
        b"\xff\xfe",
        "",
        "[]",
        "{}",
        '{"tasks": 3}',
        '{"tasks": [{"id": "a"}]}',
        '{"tasks": [{"id": "a", "instruction": "x", "status": "done"}]}',
        '{"tasks": [{"id": "a", "instruction": "x", "seconds": NaN}]}',
        '{"tasks": ' + "[" * DEEP + "]" * DEEP + "}",
        {"tasks": [{"id": 3, "instruction": "x"}]},
        {"tasks": "all of them"},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_plan_is_said_to_be_none(source: bytes | str | dict[str, object]) -> None:
    with pytest.raises(PlanInvalid) as caught:
        parse(source)
    assert caught.value.findings[0].code in ("not_json", "wrong_shape", "too_deep")


# --- requests


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"budget": Budget(calls=-1)}, Invalid, "budget.calls is -1"),
        ({"budget": Budget(usd=5e-06, floor=Amount(micros=9))}, Invalid, "budget.floor.micros keeps 9"),
        ({"budget": Budget(seconds=nan)}, Invalid, "budget.seconds is nan"),
        ({"deadline": NOW - 3600}, Invalid, "3600.0 s in the past"),
        ({"deadline": nan}, Invalid, "deadline"),
        ({"deadline": inf}, NotJson, "run.requested"),
        ({"policy": Policy(retry=structs.replace(Retry(), attempts=-3))}, Invalid, "policy.attempts is -3"),
        ({"policy": Policy(retry=Retry(base=-0.5))}, Invalid, "policy.base is -0.5"),
        ({"policy": Policy(limits=structs.replace(Limits(), width=0))}, Invalid, "policy.width is 0"),
        ({"policy": Policy(limits=structs.replace(Limits(), max_depth=-1))}, Invalid, "policy.max_depth is -1"),
        ({"policy": Policy(breaking=Breaking(open=nan))}, Invalid, "policy.open is nan"),
        ({"policy": Policy(grace=-1.0)}, Invalid, "policy.grace is -1.0"),
        ({"policy": Policy(supervision=inf)}, NotJson, "run.requested"),
        ({"goal": HALF}, NotJson, "run.requested"),
        ({"parent": ev.Parent("p", "p", TaskId("t"), 1, 1, "ann", nesting=99)}, Invalid, "nested 99 deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_makes_no_sense_leaves_no_trace(
    changes: dict[str, object], error: type[ChargehandError], said: str
) -> None:
    stage = Stage(ScriptedExecutor(Script()))
    asked = structs.replace(request(GOOD), **({"deadline": NOW + 60} | changes))
    with pytest.raises(error, match=said):
        stage.play(lambda: stage.driver.start("run", asked))
    assert seen(stage) == []
    assert stage.start(request(GOOD)).ending == "complete"  # the name is still free


@pytest.mark.parametrize("name", ["", HALF])
def test_a_name_that_cannot_be_kept_is_refused(name: str) -> None:
    stage = Stage(ScriptedExecutor(Script()))
    with pytest.raises(Invalid):
        stage.start(request(GOOD), name)
    assert seen(stage) == []


# --- runs that are not as the caller thinks


def test_a_run_is_resumed_only_when_it_is_there_unfinished_and_free() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=10.0))))

    async def story() -> None:
        asked = structs.replace(request(GOOD), deadline=NOW + 600)
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", asked))
            await asyncio.sleep(1.0)
            with pytest.raises(RunBusy, match="'run' is being driven"):
                await stage.driver.resume("run")
            with pytest.raises(Refused, match="'run' exists already"):
                await stage.driver.start("run", asked)
            with pytest.raises(RunUnknown, match="'other'"):
                await stage.driver.resume("other")
            with pytest.raises(RunUnknown, match="'other'"):
                await stage.driver.fork("other", "new", asked)
            with pytest.raises(Refused, match="'other' is not under way"):
                await stage.driver.ask("other", ev.CancelRequested())

    stage.play(story)
    before = seen(stage)
    with pytest.raises(Refused, match=r"has ended \(complete\)"):
        stage.resume()
    with pytest.raises(Refused, match="exists already"):
        stage.start(request(GOOD))
    assert seen(stage) == before == [("run", before[0][1], "run.ended", False)]


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    stage = Stage(ScriptedExecutor(Script()))
    found = stage.start(request(GOOD, policy=Policy(approve=True)))
    assert found.question is not None
    number = found.question.number
    before = seen(stage)
    cyclic = Plan((task("a", "b"), task("b", "a")))
    refused: list[tuple[ev.Event, type[ChargehandError], str]] = [
        (ev.InputAnswered(number + 1, "approve"), Refused, f"question {number + 1} is not being asked"),
        (ev.InputAnswered(number, "again"), Refused, "does not answer this question"),
        (ev.InputAnswered(number, "edit"), Refused, "comes with the edited plan"),
        (ev.InputAnswered(number, "edit", plan=cyclic), PlanInvalid, "in a circle"),
        (ev.InputAnswered(number, "reject", HALF), NotJson, "input.answered"),
        (ev.RunEnded("complete", "done"), Refused, "never reported"),
    ]
    for answer, error, said in refused:
        with pytest.raises(error, match=said):
            stage.resume(answer)
        assert seen(stage) == before
    assert stage.resume(ev.InputAnswered(number, "approve")).ending == "complete"


def test_a_request_that_cannot_be_kept_does_not_disturb_the_run() -> None:
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=10.0))))

    async def story() -> ev.Ending:
        asked = structs.replace(request(GOOD), deadline=NOW + 600)
        async with asyncio.TaskGroup() as jobs:
            run = jobs.create_task(stage.driver.start("run", asked))
            await asyncio.sleep(1.0)
            with pytest.raises(NotJson, match="cancel_requested"):
                await stage.driver.ask("run", ev.CancelRequested(HALF))
        return run.result().ending

    assert stage.play(story) == "complete"
