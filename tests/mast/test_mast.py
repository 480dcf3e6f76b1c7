"""Every way in which crews fail has a crew that fails in it: it is stopped, or the audit of its journal names it."""

import re
import sqlite3
from pathlib import Path

import msgspec
import pytest

from chargehand.agents.audit.failure_modes import KNOWN, MODES, FailureMode, audit_run
from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.agents.strategies import Loop
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import Corrupt
from chargehand.models.artifacts import Table
from chargehand.models.messages import Request
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import ProgressLedger, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.tools.rules import RequiredBeforeExit
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, plan, team
from tests.mast.reproducers import (
    COUNT,
    COUNTED,
    GOAL,
    LETTER,
    ONCE,
    REPRODUCERS,
    by_task,
    is_checked_wrongly,
    kept,
    look,
    send,
)

PAGE = Path(__file__).parents[2] / "docs" / "when-things-fail.md"
NOTIFY = plan(("Send the baker a letter about the apples.", "ann", ()), combine="forward")
SENT = "The letter about the apples was sent to the baker."


def audited(found: Result) -> tuple[FailureMode, ...]:
    return audit_run(found.entries)


def modes(found: Result) -> list[str]:
    return [one.mode for one in audited(found)]


# --- all of them


@pytest.mark.parametrize("mode", REPRODUCERS)
async def test_a_crew_that_fails_in_this_way_is_stopped_or_named_and_nothing_else_is_said(mode: str) -> None:
    wrong = REPRODUCERS[mode]
    found = await wrong.run()
    assert found.ending == wrong.ending
    first = audited(found)[0]
    assert (first.mode, first.task, first.prevented) == (mode, wrong.task, wrong.prevented)
    assert wrong.words in first.message
    assert first.evidence
    assert set(modes(found)) == {mode}


def test_there_is_a_team_for_each_mode_that_can_be_known() -> None:
    assert set(REPRODUCERS) == KNOWN
    assert len(MODES) == 14


def test_the_page_has_a_line_for_every_mode() -> None:
    assert re.findall(r"^\| (\d\.\d) ", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(MODES)


# --- 1: what they were told to be


async def test_what_is_no_plan_is_sent_back() -> None:
    found = await team(model(plans=["Let us count apples!", plan(COUNT, combine="forward")], work=[COUNTED])).run(GOAL)
    assert (found.ending, modes(found)) == ("complete", ["1.1"])


async def test_a_tool_that_is_not_its_own_is_never_called() -> None:
    erased: list[str] = []

    @tool
    def erase(what: str) -> str:
        """Erase a place."""
        erased.append(what)
        return "gone"

    work = by_task(ann=calls(call("erase", what="cellar")), bob="Nothing to say about apples.")
    script = model(plans=[plan(COUNT, combine="forward")], work=work)
    found = await team(script, Worker("ann", tools=[look]), Worker("bob", tools=[erase]), policy=ONCE).run(GOAL)
    assert (found.ending, erased) == ("failed", [])
    assert "3 calls could not be made" in found.gaps[0].message
    assert [(one.mode, one.prevented) for one in audited(found)] == [("1.2", True)]


async def test_a_worker_nobody_has_is_never_given_work() -> None:
    plans = [plan(("Count the apples.", "zoe", ())), plan(COUNT, combine="forward")]
    found = await team(model(plans=plans, work=[COUNTED]), Worker("ann"), Worker("bob")).run(GOAL)
    (one,) = audited(found)
    assert (one.mode, one.prevented, "'zoe'" in one.evidence) == ("1.2", True, True)
    assert [task.worker for task in found.trace().tasks] == ["ann"]


async def test_a_planner_that_goes_round_in_circles_is_stopped() -> None:
    renamed = plan(COUNT).replace('"t1"', '"t2"')
    script = model(plans=[plan(COUNT), renamed], work=[calls(call("give_up", reason="it is dark"))])
    policy = Policy(limits=Limits(replans=2), retry=Retry(attempts=1, base=0.001), refine=False)
    found = await team(script, policy=policy).run(GOAL)
    assert found.ending == "failed"
    assert set(modes(found)) == {"1.3"}
    assert all(one.prevented for one in audited(found))


async def test_what_a_worker_is_to_do_and_its_inputs_stay_before_it_however_long_it_works() -> None:
    @tool
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page} " + "crates of apples and pears " * 110

    seen: list[str] = []

    def reads_on(request: Request) -> Line:
        if by_task(ann="", bob="b")(request) == "":
            return COUNTED
        seen.append("\n".join(one.text for one in request.messages))
        return calls(call("read", page=len(seen))) if len(seen) < 9 else LETTER

    plans = [plan(COUNT, ("Write a letter about the apples to the baker.", "bob", ("t1",)), combine="forward")]
    card = ModelCard("small", micros_in=0.0, micros_out=0.0, window=4000)
    script = model(plans=plans, work=reads_on, card=card)
    found = await team(script, Worker("ann"), Worker("bob", tools=[read], steps=12), policy=ONCE).run(GOAL)
    assert any("shortened" in note.text for note in found.trace().notes)
    assert all(COUNTED in text and "letter about the apples" in text for text in seen)
    assert modes(found) == []


async def test_each_item_of_a_list_is_looked_for_where_it_was_given() -> None:
    tasks = (
        Task(TaskId("shelves"), "List the shelves in the cellar.", "ann"),
        Task(TaskId("count"), "Count the apples on this shelf of the cellar.", "bob", for_each=TaskId("shelves")),
        Task(TaskId("sum"), "Add up the apples on all shelves of the cellar.", "cid", after=(TaskId("count"),)),
    )

    def counts(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        name = request.subject.worker.name
        inputs = request.subject.inputs
        if name == "ann":
            return '["left upper shelf near the window", "right lower shelf behind the barrels"]'
        return f"There are 206 apples on the {inputs[0].value}." if name == "bob" else "Together 412 apples, 206 each."

    executor = (Worker("ann", output=list[str]), Worker("bob"), Worker("cid"))
    found = await team(model(work=counts), *executor, plan=Plan(tasks, "forward")).run(GOAL)
    assert (found.ending, len(found.trace().tasks), modes(found)) == ("complete", 5, [])


async def test_a_planner_that_never_comes_to_an_end_is_stopped() -> None:
    many = plan(*((f"Count the apples on shelf {n} of the cellar.", "ann", ()) for n in range(1, 8)))
    policy = Policy(limits=Limits(max_tasks=5), retry=Retry(base=0.001))
    found = await team(model(plans=[many]), policy=policy).run(GOAL)
    assert len(found.plan.tasks) <= 5
    assert {(one.mode, one.prevented) for one in audited(found)} == {("1.5", True)}


# --- 2: how they work together


async def test_nobody_goes_on_from_a_journal_with_a_hole(tmp_path: Path) -> None:
    script = model(work=[calls(call("look", place="cellar")), COUNTED])
    executor = team(script, Worker("ann", tools=[look]), journal=None)
    whole = await executor.run(GOAL)
    at = next(n for n, one in enumerate(whole.entries) if isinstance(one.event, ev.StepFinished))
    holed = (*whole.entries[:at], *whole.entries[at + 1 :])
    (one,) = audit_run(holed)
    assert (one.mode, one.evidence) == ("2.1", f"entry {at + 2} stands where {at + 1} belongs")

    place = tmp_path / "runs.db"
    asking = model(plans=[NOTIFY], work=[calls(call("send", to="the baker")), SENT])
    guarded = Worker("ann", tools=[tool(effect="effect", approve=True)(send.function)])
    filed = await team(asking, guarded, journal=place).run(GOAL, run="r")  # pyright: ignore[reportArgumentType] - a path
    assert filed.ending == "needs_input"
    with sqlite3.connect(place) as database:
        (table,) = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name = 'entries'")]
        database.execute(f"DELETE FROM {table} WHERE seq = 3")
    database.close()
    asked = len(asking.requests)
    with pytest.raises(Corrupt, match="missing"):
        await team(asking, guarded, journal=place).resume("r", ev.InputAnswered(1, "approve"))  # pyright: ignore[reportArgumentType] - a path
    assert len(asking.requests) == asked


async def test_entries_that_do_not_follow_from_one_another_are_named() -> None:
    whole = await team(model(work=[COUNTED])).run(GOAL)
    started = next(n for n, one in enumerate(whole.entries) if isinstance(one.event, ev.TasksAdded))
    left = (*whole.entries[:started], *whole.entries[started + 1 :])
    renumbered = [msgspec.structs.replace(one, seq=n) for n, one in enumerate(left, 1)]
    assert [one.mode for one in audit_run(renumbered)] == ["2.1"]
    assert [one.mode for one in audit_run(())] == ["2.1"]
    assert [one.mode for one in audit_run(whole.entries[1:])] == ["2.1"]


async def test_a_run_that_goes_on_after_a_crash_goes_on_where_it_was() -> None:
    work = [calls(call("look", place="cellar")), COUNTED]
    whole = await team(model(work=work), Worker("ann", tools=[look]), policy=ONCE).run(GOAL)
    done = [at for at, one in enumerate(whole.entries, 1) if isinstance(one.event, ev.StepFinished)]
    script = model(work=[COUNTED])
    found = await team(script, Worker("ann", tools=[look]), policy=ONCE, journal=await kept(whole, done[1])).resume(
        "again"
    )
    assert (found.results, len(script.requests), modes(found)) == (whole.results, 1, [])


async def test_what_tools_found_goes_along_whatever_the_worker_says_of_it() -> None:
    @tool
    def table(place: str) -> Table:
        """Look things up."""
        return Table(("fruit", "count"), (("apples", 412),), source=f"{place}.csv")

    script = model(work=[calls(call("table", place="cellar")), "Apples were counted."])
    found = await team(script, Worker("ann", tools=[table])).run(GOAL)
    result = found.results[TaskId("t1")]
    assert isinstance(result, dict)
    assert result["sources"] == ["cellar.csv"]
    assert modes(found) == []


async def test_no_answer_of_a_model_can_hide_what_is_missing_and_a_function_that_does_is_noticed() -> None:
    plans = [plan(COUNT, ("Count the pears in the attic.", "bob", ()))]
    work = by_task(ann=COUNTED, bob=calls(call("give_up", reason="it is dark")))
    hides = "All is well: 412 apples, 230 on the left shelf and 182 in wooden crates [t1]."
    executor = (Worker("ann"), Worker("bob"))
    found = await team(model(plans=plans, work=work, answer=hides), *executor, policy=ONCE).run(GOAL)
    assert "t2: it is dark" in str(found.answer)
    assert modes(found) == []

    def own(goal: str, results: object, gaps: object) -> str:
        return hides

    found = await team(model(plans=plans, work=work), *executor, policy=ONCE, combine=own).run(GOAL)
    (one,) = audited(found)
    assert (one.mode, one.task, "it is dark" in one.evidence) == ("2.4", "", True)


# --- 3: how they check and end


async def test_a_worker_that_would_end_too_early_does_the_call_first() -> None:
    script = model(work=[COUNTED, calls(call("look", place="cellar")), COUNTED])
    worker = Worker("ann", tools=[look], rules=[RequiredBeforeExit("look")])
    found = await team(script, worker, policy=ONCE).run(GOAL)
    assert (found.ending, modes(found)) == ("complete", [])


def led(*turns: str) -> ScriptedModel:
    """A model that leads turn by turn and does the work; the last turn is repeated."""
    asked = 0

    def script(request: Request) -> Line:
        nonlocal asked
        if isinstance(request.subject, ProgressLedger):
            asked += 1
            return turns[min(asked, len(turns)) - 1]
        return COUNTED

    return ScriptedModel(script)


async def test_whoever_leads_in_a_loop_cannot_end_before_there_is_anything_nor_ask_for_the_same_for_ever() -> None:
    done = '{"done": true, "looping": false, "progress": true, "next": "", "instruction": "", "why": "enough"}'
    more = '{"done": false, "looping": false, "progress": true, "next": "ann", "instruction": "Count the apples in the'
    more += ' cellar.", "why": "they are to be counted"}'
    found = await team(led(done, more, done), strategy=Loop()).run(GOAL)
    assert (found.ending, set(modes(found))) == ("complete", {"3.1"})
    found = await team(led(more), strategy=Loop(stalls=1, fresh_starts=0)).run(GOAL)
    assert found.ending != "complete"


async def test_a_run_is_not_complete_while_a_task_is_not_done_whatever_the_planner_says() -> None:
    work = by_task(ann=COUNTED, bob=calls(call("give_up", reason="it is dark")))
    plans = [plan(COUNT, ("Count the pears in the attic.", "bob", ())), plan()]
    policy = Policy(limits=Limits(replans=1), retry=Retry(attempts=1), refine=False)
    script = model(plans=plans, work=work, answer="All is done [t1].")
    found = await team(script, Worker("ann"), Worker("bob"), policy=policy).run(GOAL)
    assert (found.ending, [one.task for one in found.gaps], modes(found)) == ("partial", ["t2"], [])


@pytest.mark.parametrize("checked", ["by a task", "by a look", "by a person"])
async def test_an_effect_that_somebody_checks_is_no_finding(checked: str) -> None:
    sends = tool(effect="effect", name="send", approve=checked == "by a person")(send.function)
    plans = [NOTIFY]
    lines: list[Line] = [calls(call("send", to="the baker")), SENT]
    if checked == "by a task":
        later = ("Check that the letter reached the baker.", "ann", ("t1",))
        plans = [plan(("Send the baker a letter about the apples.", "ann", ()), later, combine="forward")]
        lines += [calls(call("look", place="outbox")), "The letter reached the baker."]
    if checked == "by a look":
        lines.insert(1, calls(call("look", place="outbox")))
    executor = team(model(plans=plans, work=lines), Worker("ann", tools=[sends, look]), policy=ONCE)
    found = await executor.run("Send the baker a letter about the apples", run="r")
    if checked == "by a person":
        found = await executor.resume("r", ev.InputAnswered(1, "approve"))
    assert (found.ending, modes(found)) == ("complete", [])


async def test_a_wrong_check_is_not_claimed_to_be_found() -> None:
    found = await is_checked_wrongly()
    assert (found.ending, modes(found)) == ("complete", [])
    assert "512 apples is correct" in str(found.answer)
