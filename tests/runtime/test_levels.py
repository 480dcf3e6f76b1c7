"""What passes through the levels of teams in teams: gaps, endings, reasons, cancelling, deadlines, traces, caches."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Request
from chargehand.models.request_facts import Answering, Planning, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import Trace, whole_trace
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, plan
from tests.runtime.streams import rows
from tests.runtime.test_nesting import FREE, PLANS, model, plainly, requested, three, told

ONCE = Policy(retry=Retry(attempts=1), refine=False)
FIGS = Failure("logic", "the figs are gone", permanent=True)


def without_figs(name: str, request: Request) -> Line:
    return FIGS if "figs" in told(request) else "3 pears"


# --- gaps


async def test_what_is_missing_at_the_bottom_is_a_gap_at_the_top_that_says_where() -> None:
    journal = MemoryJournal()
    found = await three(model(without_figs, PLANS), journal).run("What about the garden?", run="r")
    bottom = max((row.run for row in await journal.runs()), key=len)
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert found.gaps == (
        Gap(
            TaskId("t1"),
            "failed",
            "logic",
            "the figs are gone",
            worker="middle > bottom",
            run=bottom,
            inner=TaskId("t2"),
        ),
    )
    shown = found.trace()
    assert (shown.ending, shown.gaps) == ("partial", found.gaps)


async def test_every_level_says_of_itself_that_it_is_partial() -> None:
    journal = MemoryJournal()
    await three(model(without_figs, PLANS), journal).run("What about the garden?", run="r")
    for run, entries in (await rows(journal)).items():
        end = replay(entries).ended
        assert end is not None
        assert end.ending == "partial", run


async def test_gaps_inside_stand_beside_those_outside() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "the shed is locked", permanent=True) if name == "eve" else without_figs(name, request)

    script = model(says, {"ann": PLANS["ann"], "below": plan(("Count.", "below", []), ("Open the shed.", "eve", []))})
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below")
    found = await Team([below.as_worker(), Worker("eve")], supervisor=Supervisor(model=script), policy=ONCE).run(
        "Count"
    )
    assert [(one.task, bool(one.run)) for one in found.gaps] == [(TaskId("t2"), False), (TaskId("t1"), True)]


async def test_a_task_that_was_done_in_the_place_of_one_with_gaps_makes_the_run_whole() -> None:
    rounds = iter(
        (
            plan(("Count.", "below", [])),
            '{"tasks": {"n2": {"instruction": "Count the figs by hand.", "worker": "eve", "replaces": "t1"}}}',
            '{"tasks": {}}',
        )
    )

    def line(request: Request) -> Line:
        match request.subject:
            case Planning(workers=workers) if workers[0].name == "below":
                return next(rounds)
            case Planning():
                return PLANS["ann"]
            case Working(worker=worker):
                return "7 figs" if worker.name == "eve" else without_figs(worker.name, request)
            case _:
                return "All of it [n2]."

    script = ScriptedModel(line, card=FREE)
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    found = await Team([below.as_worker(), Worker("eve")], supervisor=Supervisor(model=script, review=True)).run(
        "Count"
    )
    assert set(found.results) == {TaskId("t1"), TaskId("n2")}
    assert (found.ending, found.gaps) == ("complete", ())


async def test_a_first_try_that_left_something_out_of_nothing_does_not_count_after_a_second_that_did_not() -> None:
    tried: list[str] = []

    def says(name: str, request: Request) -> Line:
        tried.append(name)
        return Failure("network", "dead") if len(tried) <= 2 else "3"

    script = model(says, {"ann": PLANS["ann"], "below": plan(("Count.", "below", []))})
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    quick = Policy(retry=Retry(base=0.001))
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script), policy=quick).run("Count")
    assert (found.ending, found.gaps) == ("complete", ())


async def test_gaps_come_along_when_a_result_is_taken_over_by_another_run() -> None:
    journal = MemoryJournal()
    top = three(model(without_figs, PLANS), journal)
    first = await top.run("What about the garden?", run="r")
    async with top.executor() as executor:
        again = await Runner(journal, executor).fork(
            "r", "again", top.request("What about the garden?", time.time(), plan=first.plan)
        )
    assert (again.ending, again.gaps) == ("partial", first.gaps)


async def test_many_gaps_are_cut_and_counted() -> None:
    many = plan(("Count the pears.", "ann", []), unserved=[f"shelf {n} is dark" for n in range(30)])
    script = model(plainly, {"ann": many, "below": plan(("Count.", "below", []))})
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script)).run("Count")
    assert len(found.gaps) == 21
    assert found.gaps[-1].message == "and 10 more"


async def test_a_worker_whose_result_looks_like_that_of_a_team_is_not_taken_for_one() -> None:
    looks = {
        "kind": "partly",
        "text": "x",
        "missing": ["y"],
        "gaps": [{"task": "", "status": "failed", "reason": "logic", "message": "z", "worker": "w", "run": "r"}],
    }

    def line(request: Request) -> Line:
        import json

        return json.dumps(looks) if isinstance(request.subject, Working) else "?"

    tasks = Plan((Task(TaskId("t1"), "Count.", "ann"),), "none")
    worker = Worker("ann", output={"type": "object"})
    found = await Team([worker], supervisor=Supervisor(model=ScriptedModel(line, card=FREE), plan=tasks)).run("Count")
    assert found.results[TaskId("t1")] == looks
    assert (found.ending, found.gaps) == ("complete", ())


# --- money and time


async def test_money_that_ran_out_inside_is_the_reason_outside() -> None:
    """The inner team's own cap pays for a plan, one task and an answer; the outer team has no cap at all."""
    script = model(plainly, {"ann": PLANS["ann"], "below": plan(("Count.", "below", []))})
    below = Team(
        [Worker("ann", estimate=Amount(calls=1))],
        supervisor=Supervisor(model=script),
        name="below",
        budget=Budget(calls=3),
        policy=ONCE,
    )
    journal = MemoryJournal()
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script), journal=journal).run("Count", run="r")
    assert (found.ending, found.reason) == ("partial", "budget")
    assert [one.reason for one in found.gaps] == ["budget"]
    inside = next(entries for run, entries in (await rows(journal)).items() if run != "r")
    assert replay(inside).ledger.spent.calls <= 3


@tool
async def linger(seconds: float) -> str:
    """Wait for so many seconds, in a process of its own."""
    process = await asyncio.create_subprocess_exec("sleep", str(seconds))
    LIVING.append(process.pid)
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return "waited"


LIVING: list[int] = []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def slow(journal: SqliteJournal | MemoryJournal, seconds: float = 30.0, wide: float = 60.0) -> Team:
    """Three levels, at the lowest of which two tasks wait in a tool."""

    def line(request: Request) -> Line:
        match request.subject:
            case Planning(workers=workers):
                return PLANS[workers[0].name]
            case Working(worker=worker) if worker.name == "ann" and request.messages[-1].role != "tool":
                return calls(call("linger", seconds=seconds))
            case Working():
                return "3"
            case Answering():
                return "done"
            case _:
                return "?"

    script = ScriptedModel(line, card=FREE)
    bottom = Team([Worker("ann", "counts", tools=[linger])], supervisor=Supervisor(model=script), name="bottom")
    middle = Team([bottom.as_worker(), Worker("bob")], supervisor=Supervisor(model=script), name="middle")
    return Team([middle.as_worker()], supervisor=Supervisor(model=script), name="top", journal=journal, timeout=wide)


async def until(seen: int) -> None:
    for _ in range(2000):
        if len(LIVING) >= seen:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing began")


@pytest.mark.parametrize("kept", ["memory", "file"])
async def test_cancelling_the_outermost_ends_all_levels_within_a_second_and_leaves_nothing_running(
    kept: str, tmp_path: Path
) -> None:
    took: list[float] = []
    while len(took) < 3 and not (took and took[-1] < 1.0):  # a busy machine may stand still for as long in one of them
        journal = MemoryJournal() if kept == "memory" else await SqliteJournal.open(tmp_path / f"{len(took)}.db")
        try:
            took.append(await cancelled(journal))
        finally:
            await journal.close()
    assert took[-1] < 1.0


async def cancelled(journal: MemoryJournal | SqliteJournal) -> float:
    """Cancel three levels at work; how long it took until all had ended."""
    LIVING.clear()
    team = slow(journal)
    async with team.executor() as executor, asyncio.TaskGroup() as jobs:
        driver = Runner(journal, executor)
        job = jobs.create_task(driver.start("r", team.request("What about the garden?", time.time())))
        await until(2)
        before = time.monotonic()
        others = len(asyncio.all_tasks())
        assert others > 4
        await driver.ask("r", ev.CancelRequested("enough"))
        found = await job
        took = time.monotonic() - before
    assert found.ending == "cancelled"
    assert [alive(pid) for pid in LIVING] == [False, False]
    runs = await rows(journal)
    assert len(runs) == 3
    endings = [entries[-1].event for entries in runs.values()]
    assert [one.ending for one in endings if isinstance(one, ev.RunEnded)] == ["cancelled"] * 3
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return took


async def test_no_level_works_longer_than_the_outermost_may() -> None:
    LIVING.clear()
    journal = MemoryJournal()
    team = slow(journal, wide=2.0)
    began = time.time()
    found = await team.run("What about the garden?", run="r")
    assert time.time() - began < 15.0
    assert found.ending == "partial"  # what the middle had in time is answered from
    assert "bottom" in str(found.answer)
    runs = await rows(journal)
    assert len(runs) >= 3
    for run, entries in runs.items():
        parent = requested(entries).parent
        if parent is not None:
            assert requested(entries).deadline < requested(runs[parent.run]).deadline, run
    assert [alive(pid) for pid in LIVING] == [False] * len(LIVING)
    for entries in runs.values():
        assert isinstance(entries[-1].event, ev.RunEnded)


# --- what a team brings along


async def test_a_team_that_works_for_another_has_its_own_cache() -> None:
    seen: list[str] = []

    def says(name: str, request: Request) -> Line:
        seen.append(name)
        return "3"

    script = model(says, {"ann": PLANS["ann"], "below": plan(("Count.", "below", []))})
    journal = MemoryJournal()
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", cache=600.0)
    top = Team([below.as_worker()], supervisor=Supervisor(model=script), journal=journal)
    assert [(await top.run("Count", run=name)).ending for name in ("one", "two")] == ["complete", "complete"]
    assert seen == ["ann", "ann"], "the second time both were known"
    plain = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below")
    await Team([plain.as_worker()], supervisor=Supervisor(model=script), journal=journal).run("Count", run="three")
    assert len(seen) == 4, "without a cache of its own everything is done again"


async def test_what_a_team_was_handed_keeps_its_results_from_being_used_again() -> None:
    seen: list[str] = []

    def says(name: str, request: Request) -> Line:
        seen.append(name)
        return "3"

    plans = {"ann": PLANS["ann"], "below": plan(("Look.", "eve", []), ("Count.", "below", ["t1"]))}
    script = model(says, plans)
    journal = MemoryJournal()
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", cache=600.0)
    top = Team([below.as_worker(), Worker("eve")], supervisor=Supervisor(model=script), journal=journal)
    for name in ("one", "two"):
        await top.run("Count", run=name)
    assert seen.count("ann") == 4


async def test_a_supervisor_inside_a_capped_team_reserves_what_its_model_costs() -> None:
    inner = Team(
        [Worker("ann")],
        supervisor=Supervisor(model="openai:gpt-5-mini"),
        name="inner",
        lookup={"OPENAI_API_KEY": "sk-x"}.get,
    )
    capped = inner.bounded(budget=Budget(usd=1.0))
    assert capped.roster.supervision.micros == 1, "by its name alone nobody knows the price"
    async with capped.executor() as executor:
        known = getattr(executor, "supervision")(capped.budget)  # noqa: B009 - not every crew has it
    assert known.micros > 1


# --- the trace


def names(found: Trace) -> list[object]:
    inside = [one for task in found.tasks for attempt in task.attempts for one in attempt.runs]
    return [found.run, *(names(one) for one in inside)]


async def test_a_trace_holds_the_runs_inside_under_the_attempt_that_started_them() -> None:
    journal = MemoryJournal()
    script = model(plainly, PLANS)
    found = await three(script, journal).run("What about the garden?", run="r")
    await three(script, journal).run("What about the garden?", run="r2")
    whole = await whole_trace(journal, "r")
    runs = sorted((row.run for row in await journal.runs() if row.run.split("/")[0] == "r"), key=len)
    assert names(whole) == [runs[0], [runs[1], [runs[2]]]]
    assert whole.tasks[0].attempts[0].worker == "middle"
    middle = whole.tasks[0].attempts[0].runs[0]
    assert middle.used.calls + 2 == whole.used.calls == found.spent.calls
    assert found.trace().tasks[0].attempts[0].runs == [], "without the journal there is only the outer run"


async def test_a_trace_of_something_still_under_way_can_be_read(tmp_path: Path) -> None:
    LIVING.clear()
    journal = MemoryJournal()
    team = slow(journal)
    async with team.executor() as executor, asyncio.TaskGroup() as jobs:
        driver = Runner(journal, executor)
        jobs.create_task(driver.start("r", team.request("What about the garden?", time.time())))
        await until(2)
        whole = await whole_trace(journal, "r")
        await driver.ask("r", ev.CancelRequested("enough"))
    nested: Sequence[object] = names(whole)
    assert whole.ending == ""
    assert len(str(nested).split("/")) > 6
