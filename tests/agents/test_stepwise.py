"""Leading step by step: it ends when it is done, and it ends when it leads nowhere, whatever the model says."""

import asyncio
import json
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.agents.strategies import Loop
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Edge, LoopState
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Usage
from chargehand.models.request_facts import Answering, ProgressLedger, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE, call, calls, of_kind
from tests.agents.options import make_team

ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
PAIR = (Worker("ann", "counts apples"), Worker("bob", "counts pears"))
FRUIT = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "grapes")
Look = Callable[[ProgressLedger], Line]


def says(
    worker: str = "",
    instruction: str = "",
    *,
    done: bool = False,
    looping: bool = False,
    progress: bool = True,
    why: str = "so it is",
    replaces: str = "",
) -> str:
    found: dict[str, object] = {"why": why, "done": done, "looping": looping, "progress": progress}
    more = {"next": worker, "instruction": instruction, "replaces": replaces}
    return json.dumps(found | {name: text for name, text in more.items() if text})


DONE = says(done=True)


def model(look: Look, work: Callable[[Working], Line] | None = None) -> ScriptedModel:
    """A model whose every reply depends on what it is shown and on nothing else, so that a resumed run goes on."""

    def script(request: Request) -> Line:
        match request.subject:
            case ProgressLedger() as subject:
                return look(subject)
            case Working() as subject:
                return f"did: {subject.instruction}" if work is None else work(subject)
            case Answering():
                return "The answer."
            case _:
                return "Do it better."

    return ScriptedModel(script, usage=Usage(10, 5), micros=7, card=FREE)


def team(script: ScriptedModel, strategy: Loop = Loop(), *workers: Worker, **more: object) -> Team:  # noqa: B008 - frozen
    options: dict[str, object] = {"journal": MemoryJournal(), "policy": ONCE, **more}
    return make_team(workers or PAIR, model=script, strategy=strategy, **options)


def in_turn(*lines: Line) -> Look:
    """One line for each number of tasks there are; the last repeats."""
    return lambda subject: lines[min(len(subject.tasks), len(lines) - 1)]


def looks(script: ScriptedModel) -> list[Request]:
    return [one for one in script.requests if isinstance(one.subject, ProgressLedger)]


def notes(found: Result) -> list[str]:
    return [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]


def ids(found: Result) -> list[str]:
    return [one.id for one in found.plan.tasks]


def turns(found: Result) -> list[str]:
    """The tasks, each with what was recorded of the loop when it was given."""
    names: list[str] = []
    fresh_starts = 0
    for event in of_kind(found.entries, ev.TasksAdded):
        assert isinstance(event, ev.TasksAdded)
        loop = event.loop or LoopState()
        mark = f"-stall{loop.stalls}" if loop.stalls else ""
        if loop.fresh_starts > fresh_starts:
            mark = f"-fresh{loop.fresh_starts}"
        fresh_starts = loop.fresh_starts
        names += [f"{task.id}{mark}" for task in event.tasks]
    return names


def unserved(found: Result) -> list[str]:
    return [one.message for one in found.gaps if one.status == "unserved"]


async def test_it_works_task_by_task_until_it_is_done() -> None:
    script = model(in_turn(says("ann", "Count the apples."), says("bob", "Count the pears."), DONE))
    found = await team(script).run("How much fruit is there?")
    assert (found.ending, ids(found), found.answer) == ("complete", ["t1", "t2"], "The answer.")
    assert [one.worker for one in found.plan.tasks] == ["ann", "bob"]
    assert found.plan.tasks[1].after == (Edge(found.plan.tasks[0].id, "optional"),)
    assert "did: Count the apples." in looks(script)[1].messages[1].text, "it sees what came of the first task"
    (second,) = [r for r in script.requests if isinstance(r.subject, Working) and "pears" in r.subject.instruction]
    assert isinstance(second.subject, Working)
    assert [one.task for one in second.subject.inputs] == ["t1"]


async def test_what_the_ledger_says_is_in_the_trace_in_words() -> None:
    script = model(
        in_turn(says("ann", "Count the apples.", why="nothing is known yet"), says(done=True, why="12 it is"))
    )
    found = await team(script).run("How many apples?")
    assert notes(found) == [
        "turn 1: not done, not looping, progress; next ann: Count the apples. (why: nothing is known yet)",
        "turn 2: done (why: 12 it is)",
    ]


async def test_the_words_of_the_only_task_are_the_answer() -> None:
    script = model(in_turn(says("ann", "Count the apples."), DONE), lambda _: "12 apples")
    found = await team(script).run("How many apples?")
    assert (found.ending, found.answer, len(script.requests)) == ("complete", "12 apples", 3)


async def test_done_before_anything_was_done_is_sent_back() -> None:
    first = iter((DONE,))
    script = model(lambda subject: next(first, says("ann", "Count the apples.")) if not subject.tasks else DONE)
    found = await team(script).run("How many apples?")
    assert (found.ending, ids(found)) == ("complete", ["t1"])
    assert "Nothing has been delivered yet" in looks(script)[1].messages[1].text


async def test_always_done_and_never_a_task_ends_with_the_reason() -> None:
    script = model(lambda _: DONE)
    found = await team(script).run("How many apples?")
    assert (found.ending, found.reason, len(script.requests)) == ("failed", "no_plan", 2)
    assert unserved(found) == ["This stalled after 0 tasks: it was called done without a result."]


async def test_what_nobody_can_do_is_said_and_nothing_is_tried() -> None:
    line = json.dumps({"why": "x", "done": True, "looping": False, "progress": True, "unserved": ["Nobody flies."]})
    found = await team(model(lambda _: line)).run("Fly me to Rome")
    assert (found.ending, unserved(found)) == ("failed", ["Nobody flies."])
    look = in_turn(says("ann", "Count the apples."), line)
    again = await team(model(look), policy=Policy(limits=Limits(replans=1))).run("Count the apples and fly")
    assert unserved(again) == ["Nobody flies."], "asked once more, it is not said twice"


async def test_without_progress_it_makes_fresh_starts_and_then_ends_with_what_there_is() -> None:
    script = model(
        lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}.", progress=False, why="no luck")
    )
    found = await team(script, Loop(stalls=3, fresh_starts=1)).run("How much fruit?")
    assert turns(found) == ["t1", "t2-stall1", "t3-stall2", "t4-fresh1", "t5-stall1", "t6-stall2"]
    assert found.ending == "partial"
    assert unserved(found) == ["This stalled after 6 tasks and 1 fresh start: no progress: no luck."]
    afresh = [one for one in looks(script) if "this is a fresh start" in one.messages[1].text]
    assert len(afresh) == 1
    assert isinstance(afresh[0].subject, ProgressLedger)
    assert len(afresh[0].subject.tasks) == 3
    assert "Not answered:\n- This stalled after 6 tasks" in str(found.answer)


async def test_a_model_that_says_it_loops_is_stopped_too() -> None:
    script = model(lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}.", looping=True))
    found = await team(script, Loop(stalls=2, fresh_starts=0)).run("How much fruit?")
    assert turns(found) == ["t1", "t2-stall1"]
    assert "goes round in circles" in unserved(found)[0]


async def test_progress_ends_a_row_of_stalls() -> None:
    def look(subject: ProgressLedger) -> Line:
        done = len(subject.tasks)
        return DONE if done == 8 else says("ann", f"Count the {FRUIT[done]}.", progress=done % 2 == 0)

    found = await team(model(look), Loop(stalls=2, fresh_starts=0)).run("How much fruit?")
    assert found.ending == "complete"
    assert turns(found)[:4] == ["t1", "t2-stall1", "t3", "t4-stall1"]


async def test_a_fresh_start_that_helps_leads_to_a_whole_answer() -> None:
    def look(subject: ProgressLedger) -> Line:
        if len(subject.tasks) == 4:
            return DONE
        return says("ann", f"Count the {FRUIT[len(subject.tasks)]}.", progress=False)

    found = await team(model(look)).run("How much fruit?")
    assert (found.ending, turns(found)[-1], unserved(found)) == ("complete", "t4-fresh1", [])


async def test_an_exact_repeat_is_sent_back_and_then_ends_it() -> None:
    script = model(lambda _: says("ann", "Count the  APPLES."))
    found = await team(script).run("How many apples?")
    assert (ids(found), found.ending) == (["t1"], "partial")
    assert "ann was asked this before" in looks(script)[2].messages[1].text
    assert len(looks(script)) == 3
    assert unserved(found) == ["This stalled after 1 task: ann was to be asked the same again."]


async def test_after_a_repeat_that_was_sent_back_it_goes_on() -> None:
    sent: list[str] = []

    def look(subject: ProgressLedger) -> Line:
        if len(subject.tasks) == 1 and not sent:
            sent.append("again")
            return says("ann", "Count the apples.")
        return in_turn(says("ann", "Count the apples."), says("bob", "Weigh the apples."), DONE)(subject)

    found = await team(model(look)).run("How many apples?")
    assert (found.ending, turns(found)) == ("complete", ["t1", "t2"])


async def test_failing_tasks_are_stalls_and_the_ledger_sees_why_they_failed() -> None:
    script = model(
        lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}."),
        lambda _: calls(call("give_up", reason="the cellar is locked")),
    )
    found = await team(script, Loop(stalls=2, fresh_starts=1)).run("How much fruit?")
    assert turns(found) == ["t1", "t2-stall1", "t3-fresh1", "t4-stall1"]
    assert (found.ending, found.reason) == ("failed", "no_results")
    assert "the cellar is locked" in looks(script)[1].messages[1].text
    assert "This stalled after 4 tasks and 1 fresh start: the last task failed." in unserved(found)
    assert len(looks(script)) == 5, "a failure is known before the ledger is asked, so no call is lost on it"


async def test_a_task_in_place_of_one_that_failed_closes_its_gap() -> None:
    script = model(
        in_turn(says("ann", "Count the apples."), says("bob", "Weigh the apples.", replaces="t1"), DONE),
        lambda task: "12 kilos" if task.worker.name == "bob" else calls(call("give_up", reason="dark")),
    )
    found = await team(script).run("How many apples?")
    assert (found.ending, list(found.results), found.gaps) == ("complete", ["t2"], ())


async def test_a_failure_nothing_replaces_stays_a_gap() -> None:
    script = model(
        in_turn(says("ann", "Count the apples."), says("bob", "Count the pears.", replaces="t7"), DONE),
        lambda task: "12" if task.worker.name == "bob" else calls(call("give_up", reason="dark")),
    )
    found = await team(script).run("How much fruit?")
    assert (found.ending, [gap.task for gap in found.gaps]) == ("partial", ["t1"])


async def test_it_takes_no_more_tasks_than_it_may_and_asks_once_whether_that_was_enough() -> None:
    script = model(lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}."))
    found = await team(script, Loop(max_turns=3)).run("How much fruit?")
    assert (len(ids(found)), len(looks(script)), found.ending) == (3, 4, "partial")
    assert unserved(found)[0].startswith("This ended after 3 tasks: 3 tasks are all it may take")
    enough = await team(model(in_turn(*[says("ann", f"Count the {one}.") for one in FRUIT[:3]], DONE)), Loop(3)).run(
        "?"
    )
    assert enough.ending == "complete"


async def test_the_limit_of_the_run_counts_as_well() -> None:
    policy = Policy(limits=Limits(max_tasks=2))
    script = model(lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}."))
    found = await team(script, policy=policy).run("How much fruit?")
    assert (len(ids(found)), "2 tasks are all" in unserved(found)[0]) == (2, True)


async def test_a_run_that_may_replan_does_not_say_twice_that_it_stalled() -> None:
    policy = Policy(retry=Retry(attempts=1), refine=False, limits=Limits(replans=2))
    script = model(lambda _: says("ann", "Count the apples."))
    found = await team(script, policy=policy).run("How many apples?")
    assert (len(unserved(found)), len(looks(script))) == (1, 3)


async def test_prose_a_list_and_a_stranger_are_sent_back() -> None:
    lines = iter(["I would ask ann.", "[1]"])
    script = model(lambda subject: next(lines, says("ANN", "Count the apples.")) if not subject.tasks else DONE)
    found = await team(script).run("How many apples?")
    assert (found.ending, found.plan.tasks[0].worker) == ("complete", "ann")
    assert "not JSON" in looks(script)[1].messages[1].text
    stranger = model(in_turn(says("eve", "Count the apples.")))
    await team(stranger).run("How many apples?")
    assert "`next` is one of ann, bob" in looks(stranger)[1].messages[1].text
    assert len(looks(stranger)) == 3


async def test_the_only_worker_need_not_be_named() -> None:
    script = model(in_turn(says("", "Count the apples."), DONE))
    assert (await team(script, Loop(), PAIR[0]).run("Count")).ending == "complete"


async def test_no_more_is_asked_than_the_budget_covers() -> None:
    script = model(lambda subject: says("ann", f"Count the {FRUIT[len(subject.tasks)]}."))
    for most in range(1, 9):
        script.requests.clear()
        found = await team(script, budget=Budget(calls=most)).run("How much fruit?")
        assert len(script.requests) <= most, most
        assert found.ending in ("partial", "failed")


async def test_a_crash_after_any_entry_loses_and_repeats_nothing() -> None:
    def look(subject: ProgressLedger) -> Line:
        done = len(subject.tasks)
        if done == 5:
            return DONE
        return says(("ann", "bob")[done % 2], f"Count the {FRUIT[done]}.", progress=done < 2)

    def work(task: Working) -> Line:
        return calls(call("give_up", reason="none left")) if "plums" in task.instruction else f"some {task.instruction}"

    whole = await team(model(look, work)).run("How much fruit?", run="r")
    assert turns(whole) == ["t1", "t2", "t3-stall1", "t4-stall2", "t5-fresh1"]
    assert (whole.ending, [gap.task for gap in whole.gaps]) == ("partial", ["t3"])
    asked: list[int] = []
    for at in range(1, len(whole.entries)):
        script = model(look, work)
        found = await team(script, journal=await cut(whole.entries, at)).resume("r")
        assert (ids(found), found.results, found.gaps) == (ids(whole), whole.results, whole.gaps), at
        asked.append(len(script.requests))
    assert asked == sorted(asked, reverse=True), "the later the crash, the less is paid again"
    assert asked[-1] == 0


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


REPLY = st.fixed_dictionaries(
    {},
    optional={
        "done": st.sampled_from([False, False, False, True, "yes", None]),
        "looping": st.sampled_from([True, False, "no"]),
        "progress": st.sampled_from([True, False, 3]),
        "next": st.sampled_from(["ann", "bob", "eve", "", 7]),
        "instruction": st.sampled_from([f"Count the {one}." for one in FRUIT] + ["", "Count the apples again."]),
        "replaces": st.sampled_from(["t1", "t2", "t9", 1]),
        "unserved": st.sampled_from([["x"], "x", [1]]),
    },
)


@settings(max_examples=40, deadline=None)
@given(st.lists(REPLY, min_size=1, max_size=12), st.integers(0, 4), st.integers(0, 3), st.integers(1, 6))
def test_whatever_the_ledger_says_it_ends_within_its_bounds(
    replies: list[dict[str, object]], stalls: int, fresh: int, most: int
) -> None:
    turn = iter(range(1000))
    script = model(lambda _: json.dumps(replies[next(turn) % len(replies)]))
    found = asyncio.run(team(script, Loop(most, stalls, fresh)).run("How much fruit?"))
    assert found.ending in ("complete", "partial", "failed")
    assert len(ids(found)) <= max(1, most)
    assert len(looks(script)) <= 3 * (max(1, most) + 1)
    asked = [(one.worker, one.instruction) for one in found.plan.tasks]
    assert len(set(asked)) == len(asked), "nobody is asked the same twice"
