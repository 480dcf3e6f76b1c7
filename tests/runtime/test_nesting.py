"""Teams that work for teams: runs inside runs that share money and time, are cancelled together and repeat nothing."""

import asyncio
import json
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from chargehand import config
from chargehand.agents.messages import ONE
from chargehand.agents.nested import RunnableTeam
from chargehand.agents.roles import Supervisor, Worker
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.fold import begin, fold
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal, Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.messages import Reply, Request, Settings, ToolCall, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Planning, Refining, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from chargehand.tools.calculator import calculator
from chargehand.tools.tool import tool
from tests.agents.crowd import of_kind, plan
from tests.agents.options import make_team
from tests.agents.playhouse import run_on_virtual_time
from tests.runtime.streams import rows, written

FREE = ModelCard("scripted", micros_in=0.0, micros_out=0.0)
EXACT = ModelCard("exact", micros_in=1.0, micros_out=1.0)
ONCE = Policy(retry=Retry(attempts=1))
Says = Callable[[str, Request], Line | Awaitable[Line]]


def told(request: Request) -> str:
    return request.messages[-1].text


def model(says: Says, plans: Mapping[str, str], card: ModelCard = FREE, **more: object) -> ScriptedModel:
    """One model for a tree of teams: a team is known by those who work in it, and each has one plan."""

    def line(request: Request) -> Line | Awaitable[Line]:
        match request.subject:
            case Planning(workers=workers):
                return plans[workers[0].name]
            case Working(worker=worker):
                return says(worker.name, request)
            case Answering(results=results):
                return "; ".join(f"{one.value} [{one.task}]" for one in results if one.value is not None)
            case Refining(instruction=instruction):
                return f"{instruction} Again."
            case _:
                return "?"

    options: dict[str, object] = {"usage": Usage(10, 5), "micros": 0, **more}
    return ScriptedModel(line, card=card, **options)  # pyright: ignore[reportArgumentType] - options of one test


def three(script: ScriptedModel, journal: Journal | None = None, **more: object) -> Team:
    """Ann works in `bottom`, which works in `middle` beside Bob, which works in `top`."""
    inner = {name: value for name, value in more.items() if name == "policy"}
    bottom = make_team([Worker("ann", "counts")], model=script, name="bottom", **inner)
    middle = make_team([bottom.as_worker(), Worker("bob")], model=script, name="middle", **inner)
    return make_team([middle.as_worker()], model=script, name="top", journal=journal or MemoryJournal(), **more)


PLANS = {
    "ann": plan(("Count the pears.", "ann", []), ("Count the figs.", "ann", [])),
    "bottom": plan(("Have the fruit counted.", "bottom", []), ("Look at the weather.", "bob", [])),
    "middle": plan(("Find out about the garden.", "middle", [])),
}


def plainly(name: str, request: Request) -> Line:
    return f"{name} says 3"


def requested(entries: Sequence[ev.Entry]) -> ev.RunRequested:
    first = entries[0].event
    assert isinstance(first, ev.RunRequested)
    return first


# --- three levels


@pytest.mark.parametrize("kept", ["memory", "file"])
async def test_three_levels_work_for_one_answer_in_a_journal_of_runs_below_each_other(
    kept: str, tmp_path: Path
) -> None:
    journal: Journal = MemoryJournal() if kept == "memory" else await SqliteJournal.open(tmp_path / "runs.db")
    try:
        script = model(plainly, PLANS)
        found = await three(script, journal).run("What about the garden?", run="r")
        assert found.ending == "complete"
        assert str(found.answer).count("ann says 3") == 2
        assert "bob says 3" in str(found.answer)
        assert found.spent.calls == len(script.requests) == 9
        runs = await rows(journal)
        assert len(runs) == 3
        middle, bottom = sorted(runs)[1:]
        assert middle.startswith("r/t1/1/1/")
        assert bottom.startswith(f"{middle}/t1/1/1/")
        first = TaskId("t1")
        assert requested(runs[middle]).parent == ev.Parent(
            "r", "r", first, attempt=1, step=1, worker="middle", nesting=1
        )
        assert requested(runs[bottom]).parent == ev.Parent(
            middle, "r", first, attempt=1, step=1, worker="bottom", nesting=2
        )
        assert requested(runs[bottom]).goal.startswith("Have the fruit counted.")
        assert found.trace().tasks[0].attempts[0].nested == [middle]
        assert any(middle in note.text for note in found.trace().notes)
    finally:
        await journal.close()


async def test_what_a_team_is_given_reaches_those_who_work_in_it_as_data() -> None:
    seen: list[tuple[str, str]] = []

    def says(name: str, request: Request) -> Line:
        seen.append((name, told(request)))
        return f"{name} says 3"

    script = model(
        says, {"ann": plan(("Add one.", "ann", [])), "below": plan(("Count.", "eve", []), ("Go on.", "below", ["t1"]))}
    )
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below")
    journal = MemoryJournal()
    top = Team([below.as_worker(), Worker("eve")], supervisor=Supervisor(model=script), journal=journal)
    found = await top.run("Count and add one", run="r")
    assert found.ending == "complete"
    inner = next(requested(entries) for run, entries in (await rows(journal)).items() if run != "r")
    assert inner.goal == "Go on."
    assert [(given.name, b"eve says 3" in bytes(given.value)) for given in inner.inputs] == [("t1", True)]
    assert inner.outside
    planning = next(
        request for request in script.requests if "below" not in told(request) and "Go on." in told(request)
    )
    assert "eve says 3" in told(planning), "the planner sees it as well"
    assert "<data " in dict(seen)["ann"]
    assert "eve says 3" in dict(seen)["ann"]


async def test_tasks_a_team_cites_are_not_taken_for_those_of_whom_it_works_for() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "the shed is locked", permanent=True) if name == "eve" else "3"

    script = model(
        says,
        {"ann": PLANS["ann"], "below": plan(("Count.", "below", []), ("Open the shed.", "eve", []), combine="forward")},
    )
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below")
    top = Team([below.as_worker(), Worker("eve")], supervisor=Supervisor(model=script), policy=ONCE)
    found = await top.run("Count")
    assert "[below_t2]" in str(found.answer)
    assert "- t2: the shed is locked" in str(found.answer), "its own t2 is named although the team cites one too"


async def test_one_team_does_two_tasks_at_once() -> None:
    both = asyncio.Event()
    inside: list[str] = []

    async def says(name: str, request: Request) -> Line:
        inside.append(name)
        if len(inside) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 20)
        return "3"

    plans = {"ann": plan(("Count.", "ann", [])), "below": plan(("Left.", "below", []), ("Right.", "below", []))}
    script = model(says, plans)
    journal = MemoryJournal()
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below")
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script), journal=journal).run("Count", run="r")
    assert found.ending == "complete"
    assert len(await journal.runs()) == 3


async def test_a_team_steps_in_for_a_worker_and_is_found_by_its_tags() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "it is dark", permanent=True) if name == "eve" else "3"

    script = model(says, {"ann": plan(("Count.", "ann", []))})
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below").as_worker(
        name="garden", tags=["fruit"]
    )
    top = Team(
        [Worker("eve", fallbacks=["garden"]), below],
        supervisor=Supervisor(model=script, plan=Plan((Task(TaskId("t1"), "Count.", "eve"),), "forward")),
    )
    found = await top.run("Count")
    assert found.ending == "complete"
    assert top.tags() == {"fruit": ("garden",)}
    replies = await top.message("How many?", match_all=["fruit"])
    assert [(one.worker, one.status) for one in replies.replies] == [("garden", "answered")]


async def test_workers_of_a_team_may_be_called_like_those_who_wait_outside() -> None:
    """Ann asks the team, in which Bob asks another Ann."""

    def says(name: str, request: Request) -> Line:
        assert isinstance(request.subject, Working)
        asks = "garden" if "outside" in request.subject.worker.description else "ann" if name == "bob" else ""
        if asks and request.messages[-1].role == "user":
            call = ToolCall("c1", ONE, json.dumps({"message": "How many?", "worker": asks}))
            return Reply(calls=(call,), finish="tools")
        return told(request) if asks else f"{name} says 3"

    script = model(says, {"bob": plan(("Ask.", "bob", [])), "ann": plan(("Ask.", "ann", []))})
    below = Team(
        [Worker("bob", tools=[ONE], contacts=["ann"]), Worker("ann")],
        supervisor=Supervisor(model=script),
        name="garden",
    )
    top = Team(
        [Worker("ann", "is outside", tools=[ONE], contacts=["garden"]), below.as_worker()],
        supervisor=Supervisor(model=script),
    )
    found = await top.run("Count")
    assert "ann says 3" in str(found.answer)
    assert "waiting" not in str(found.answer)


def test_a_team_inside_itself_is_refused() -> None:
    team = Team([Worker("ann")], name="team")
    outer = Team([team.as_worker()], name="outer")
    with pytest.raises(Invalid, match="'team' is inside itself"):
        team.__init__([outer.as_worker()], name="team")  # nobody gets one otherwise
    one = Team([Worker("ann")], name="one")
    with pytest.raises(Invalid, match="leave it out"):
        one.__init__([one.as_worker()], name="one")


def test_a_team_may_be_there_twice_and_below_each_other_by_two_ways() -> None:
    one = Team([Worker("ann")], name="one")
    two = Team([one.as_worker()], name="two")
    three = Team([one.as_worker("a"), one.as_worker("b"), two.as_worker()])
    assert [each.name for each in three.teams] == ["one", "one", "two"]


def test_a_worker_that_is_a_team_has_nothing_of_its_own_to_work_with() -> None:
    inner: RunnableTeam = Team([Worker("ann")])
    with pytest.raises(Invalid, match="is a team and has a prompt of its own"):
        Team([Worker("x", prompt="You are kind.", team=inner)])


# --- what goes wrong


async def test_why_the_lowest_failed_stands_in_the_answer_of_the_highest() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "the well is dry", permanent=True) if name == "ann" else "sunny"

    found = await three(model(says, PLANS)).run("What about the garden?")
    assert "sunny" in str(found.answer)
    assert "the well is dry" in str(found.answer)
    assert "Have the fruit counted: " in str(found.answer)


async def test_where_all_fail_the_reason_is_a_gap_at_the_top() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "the well is dry", permanent=True)

    script = model(says, PLANS)
    found = await three(script, policy=Policy(refine=False)).run("What about the garden?")
    assert (found.ending, found.reason) == ("failed", "no_results")
    assert found.gaps[0].reason == "logic"
    assert "the well is dry" in found.gaps[0].message
    assert len(script.requests) == 3 + 3, "what fails for good is not tried again on any level"


async def test_part_of_an_answer_is_handed_on_with_what_is_missing() -> None:
    def says(name: str, request: Request) -> Line:
        return Failure("logic", "the figs are gone", permanent=True) if "figs" in told(request) else "3 pears"

    found = await three(model(says, PLANS)).run("What about the garden?")
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert "3 pears" in str(found.answer)
    assert "middle: bottom: Count the figs: the figs are gone" in str(found.answer)
    (done,) = [entry.event for entry in found.entries if isinstance(entry.event, ev.AttemptSucceeded)]
    assert done.missing is not None
    assert done.missing.parts == ("middle: bottom: Count the figs: the figs are gone",)
    assert [(gap.worker, gap.message) for gap in done.missing.gaps] == [("middle > bottom", "the figs are gone")]


async def test_what_a_team_left_out_is_named_even_if_whoever_answers_does_not_mention_it() -> None:
    def line(request: Request) -> Line:
        match request.subject:
            case Planning(workers=workers):
                return PLANS[workers[0].name]
            case Working() if "figs" in told(request):
                return Failure("logic", "the figs are gone", permanent=True)
            case _:
                return "All is well."

    found = await three(ScriptedModel(line, card=FREE)).run("What about the garden?")
    assert "middle: bottom: Count the figs: the figs are gone" in str(found.answer)


@pytest.mark.parametrize(("kind", "tries"), [("network", 3), ("timeout", 3), ("resource", 3), ("uncertain", 1)])
async def test_the_class_of_a_failure_passes_through_so_that_the_usual_rules_apply(kind: str, tries: int) -> None:
    def says(name: str, request: Request) -> Line:
        return Failure(kind, "no luck")  # pyright: ignore[reportArgumentType] - one of the kinds

    script = model(says, {"ann": plan(("Count.", "ann", [])), "below": plan(("Count.", "below", []))})
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    quick = Policy(retry=Retry(base=0.001))
    journal = MemoryJournal()
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script), journal=journal, policy=quick).run(
        "Count", run="r"
    )
    assert found.gaps[0].reason == kind
    assert len(await journal.runs()) == 1 + tries


async def test_a_second_attempt_is_a_new_run_and_what_the_first_spent_counts() -> None:
    tried: list[str] = []

    def says(name: str, request: Request) -> Line:
        tried.append(name)
        return Failure("network", "the line is dead") if len(tried) == 1 else "3"

    plans = {"ann": plan(("Count.", "ann", [])), "below": plan(("Count.", "below", []))}
    script = model(says, plans)
    journal = MemoryJournal()
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    quick = Policy(retry=Retry(base=0.001))
    found = await Team([below.as_worker()], supervisor=Supervisor(model=script), journal=journal, policy=quick).run(
        "Count", run="r"
    )
    assert found.ending == "complete"
    runs = await rows(journal)
    assert [run.split("/")[1:3] for run in sorted(runs)[1:]] == [["t1", "1"], ["t1", "2"]]
    inside = sum(kept_within(entries).calls for run, entries in runs.items() if run != "r")
    assert found.spent.calls == 2 + inside
    assert inside == 5


async def test_a_team_that_has_had_an_effect_and_failed_is_not_tried_again() -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    def says(name: str, request: Request) -> Line:
        if request.messages[-1].role == "tool":
            return Failure("network", "the line is dead")
        return Reply(calls=(ToolCall("c1", "send", '{"to": "eve"}'),), finish="tools")

    plans = {"ann": plan(("Write.", "ann", [])), "below": plan(("Write.", "below", []))}
    script = model(says, plans)
    below = Team([Worker("ann", tools=[send])], supervisor=Supervisor(model=script), name="below", policy=ONCE)
    found = await Team(
        [below.as_worker()], supervisor=Supervisor(model=script), policy=Policy(retry=Retry(base=0.001))
    ).run("Write")
    assert sent == ["eve"]
    assert "not tried again" in found.gaps[0].message


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_teams_are_nested_as_deep_as_the_outermost_allows_and_no_deeper(most: int) -> None:
    script = model(plainly, PLANS)
    journal = MemoryJournal()
    policy = Policy(limits=Limits(max_nesting=most), retry=Retry(attempts=1))
    bottom = Team([Worker("ann", "counts")], supervisor=Supervisor(model=script), name="bottom")
    middle = Team([bottom.as_worker(), Worker("bob")], supervisor=Supervisor(model=script), name="middle")
    top = Team([middle.as_worker()], supervisor=Supervisor(model=script), name="top", journal=journal, policy=policy)
    found = await top.run("What about the garden?")
    assert len(await journal.runs()) == 1 + most
    assert ("is a team inside" in str(found.answer)) == (most < 2)
    assert len(script.requests) == {0: 1, 1: 5, 2: 9}[most], "nothing is spent on what is too deep"


# --- time


async def test_each_level_has_less_time_than_the_one_above() -> None:
    script = model(plainly, PLANS)
    journal = MemoryJournal()
    await three(script, journal, timeout=20.0).run("What about the garden?", run="r")
    runs = await rows(journal)
    ends = [requested(runs[run]).deadline for run in sorted(runs)]
    assert ends[0] > ends[1] > ends[2]
    for run in sorted(runs)[1:]:
        parent = requested(runs[run]).parent
        assert parent is not None
        started = of_kind(runs[parent.run], ev.AttemptStarted)
        until = [one.until for one in started if isinstance(one, ev.AttemptStarted) and one.task == parent.task]
        grace = requested(runs[run]).policy.grace
        assert requested(runs[run]).deadline + grace < until[0], "it ends while somebody still waits for it"


def test_a_team_that_runs_out_of_time_hands_over_what_it_has() -> None:
    async def says(name: str, request: Request) -> Line:
        if "figs" in told(request):
            await asyncio.sleep(30)
        return "3 pears"

    found = run_on_virtual_time(three(model(says, PLANS), timeout=3.0), "What about the garden?")
    assert "3 pears" in str(found.answer)
    assert "the time ran out" in str(found.answer)


@pytest.mark.parametrize("kept", ["memory", "file"])
async def test_cancelling_the_highest_ends_all(kept: str, tmp_path: Path) -> None:
    journal: Journal = MemoryJournal() if kept == "memory" else await SqliteJournal.open(tmp_path / "runs.db")
    begun = asyncio.Event()
    stopped = asyncio.Event()

    async def says(name: str, request: Request) -> Line:
        if name == "ann":
            begun.set()
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                stopped.set()
                raise
        return "3"

    team = three(model(says, PLANS), journal)
    try:
        async with team.executor() as executor, asyncio.TaskGroup() as jobs:
            driver = Runner(journal, executor)
            job = jobs.create_task(driver.start("r", team.request("What about the garden?", time.time())))
            await begun.wait()
            await driver.ask("r", ev.CancelRequested("enough"))
            assert (await job).ending == "cancelled"
        assert stopped.is_set()
        runs = await rows(journal)
        assert len(runs) == 3
        ends = [entries[-1].event for entries in runs.values()]
        assert [isinstance(one, ev.RunEnded) and one.ending for one in ends] == ["cancelled"] * 3
    finally:
        await journal.close()


async def test_whoever_leaves_can_go_on_later_on_every_level() -> None:
    begun = asyncio.Event()

    async def waits(name: str, request: Request) -> Line:
        if name == "ann":
            begun.set()
            await asyncio.sleep(30)
        return f"{name} says 3"

    journal = MemoryJournal()
    async with asyncio.TaskGroup() as jobs:
        job = jobs.create_task(three(model(waits, PLANS), journal).run("What about the garden?", run="r"))
        await begun.wait()
        job.cancel()
    runs = await rows(journal)
    assert len(runs) == 3
    assert not any(of_kind(entries, ev.RunEnded) for entries in runs.values())
    found = await three(model(plainly, PLANS), journal).resume("r")
    assert found.ending == "complete"
    assert len(await journal.runs()) == 3


# --- crashes


def bought(entries: Sequence[ev.Entry]) -> int:
    """How many calls of a model were written down."""
    models = {
        (one.task, one.attempt, one.step)
        for one in of_kind(entries, ev.StepStarted)
        if isinstance(one, ev.StepStarted) and one.name == "model"
    }
    steps = [one for one in of_kind(entries, ev.StepFinished) if isinstance(one, ev.StepFinished)]
    planned = [one for one in of_kind(entries, ev.TasksAdded) if isinstance(one, ev.TasksAdded) and one.done]
    return (
        sum((one.task, one.attempt, one.step) in models for one in steps)
        + len(planned)
        + len(of_kind(entries, ev.AnswerWritten))
    )


@pytest.mark.parametrize("capped", [False, True])
async def test_after_a_crash_anywhere_no_call_that_was_paid_for_is_made_again(*, capped: bool) -> None:
    """All journals are cut as a crash would cut them: in the order in which they were written."""
    budget = Budget(calls=40 if capped else None)
    order: list[tuple[str, ev.Entry]] = []

    class Ordered(MemoryJournal):
        instant = False

        async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
            order.extend((lease.run, one) for one in entries)
            await super().append(lease, entries)

    whole = await three(model(plainly, PLANS), Ordered(), budget=budget).run("What about the garden?", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(order)):
        runs: dict[str, list[ev.Entry]] = {"r": []}
        for run, entry in order[:at]:
            runs.setdefault(run, []).append(entry)
        if of_kind(runs["r"], ev.RunEnded):
            continue
        paid = sum(bought(entries) for entries in runs.values())
        journal = await written(runs)
        script = model(plainly, PLANS)
        found = await three(script, journal, budget=budget).resume("r")
        assert found.ending == "complete", f"after entry {at}"
        assert len(script.requests) == 9 - paid, f"after entry {at}"
        assert found.answer == whole.answer
        after = await rows(journal)
        assert len(after) == 3, "what runs inside is taken up, not made anew"
        for entries in after.values():
            kept_within(entries)
        if capped:
            assert 9 <= found.spent.calls <= 40
        else:
            assert found.spent.calls <= 9 + 1, "a call of the supervisor that was under way may be made again"


async def test_what_a_team_was_given_before_a_crash_is_its_to_spend_after_it() -> None:
    """There is not enough to reserve it a second time, and there need not be."""
    plans = {"ann": plan(("Count.", "ann", [])), "one": plan(("Left.", "one", []))}
    journal = MemoryJournal()
    budget = Budget(calls=22, floor=Amount(calls=1))

    def top(script: ScriptedModel, kept: Journal) -> Team:
        one = Team([Worker("ann")], supervisor=Supervisor(model=script), name="one").as_worker(
            estimate=Amount(calls=20)
        )
        return Team([one], supervisor=Supervisor(model=script), journal=kept, budget=budget)

    await top(model(plainly, plans), journal).run("Count", run="r")
    entries = (await rows(journal))["r"]
    begun = next(at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepStarted))
    cut = await written({"r": entries[:begun]})
    found = await top(model(plainly, plans), cut).resume("r")
    assert found.ending == "complete"
    assert found.spent.calls == 5, "the dead process made no call of it"
    assert found.lost == NOTHING
    caps = [requested(one).budget.calls for run, one in (await rows(cut)).items() if run != "r"]
    assert caps == [20]


# --- money


def kept_within(entries: Sequence[ev.Entry]) -> Amount:
    """What a run spent, having looked at the ledger after every entry."""
    state = begin(entries[0])
    for entry in entries[1:]:
        fold(state, entry)
        ledger = state.ledger
        budget = state.requested.budget
        for name in ("tokens", "micros", "calls"):
            cap = getattr(budget, name)
            assert cap is None or getattr(ledger, name) + getattr(ledger, f"held_{name}") <= cap
    return state.ledger.spent


def tree(chance: random.Random, script: ScriptedModel, depth: int, name: str) -> Team:
    """A team of workers and teams, whose plan has something for each of them."""
    count = chance.randrange(1, 4)
    settings = Settings(max_tokens=1000)
    estimate = Amount(micros=chance.choice([0, 0, 9000]))
    workers: list[Worker] = []
    for number in range(count):
        if depth and chance.random() < 0.6:
            below = tree(chance, script, depth - 1, f"{name}{number}")
            workers.append(below.as_worker(estimate=estimate))
        else:
            workers.append(Worker(f"{name}{number}w", settings=settings, steps=3))
    made = [Task(TaskId(f"t{at}"), f"Do part {at}.", one.name) for at, one in enumerate(workers, 1)]
    if len(made) > 1 and chance.random() < 0.5:
        made[1] = Task(made[1].id, made[1].instruction, made[1].worker, after=(made[0].id,))
    cap = Budget(usd=chance.choice([None, None, 0.012, 0.04]))
    quick = Policy(retry=Retry(base=0.001, attempts=2), refine=chance.random() < 0.5)
    return Team(
        workers, supervisor=Supervisor(model=script, plan=Plan(tuple(made))), name=name, policy=quick, budget=cap
    )


@pytest.mark.parametrize("seed", range(200))
async def test_no_run_of_a_tree_spends_more_than_it_may(seed: int) -> None:
    chance = random.Random(seed)
    paid: list[str] = []

    def line(request: Request) -> Line:
        if chance.random() < 0.15:
            return Failure("logic", "no", permanent=chance.random() < 0.5)
        if chance.random() < 0.1:
            return Failure("network", "dead")
        paid.append(type(request.subject).__name__)
        return "done"

    script = ScriptedModel(line, card=EXACT, usage=Usage(600, 400), micros=1000)
    cap = chance.choice([0, 4_000, 20_000, 60_000, 400_000])
    budget = (
        Budget(usd=cap / 1_000_000)
        if chance.random() < 0.5
        else Budget(usd=cap / 1_000_000, calls=chance.randrange(40))
    )
    journal = MemoryJournal()
    top = tree(chance, script, 3, "a").bounded(budget=budget)
    async with top.executor() as executor:
        driver = Runner(journal, executor)
        found = await driver.start("r", top.request("Do it", time.time(), seed=seed))
    runs = await rows(journal)
    spent = {run: kept_within(entries) for run, entries in runs.items()}
    assert found.spent == spent["r"]
    assert found.spent.micros <= cap
    assert found.spent.micros >= 1000 * len(paid), "what was paid below is counted above"
    assert found.spent.calls >= len(paid)
    for run, entries in runs.items():
        parent = requested(entries).parent
        if parent is not None:
            assert requested(entries).budget.micros is not None, "who works for a capped team is capped"
            assert spent[run].micros <= spent[parent.run].micros


async def test_teams_beside_each_other_get_equal_shares_and_leave_what_the_answer_costs() -> None:
    plans = {"ann": plan(("Count.", "ann", [])), "one": plan(*((f"Part {n}.", "one", ()) for n in range(3)))}
    script = model(plainly, plans)
    journal = MemoryJournal()
    below = Team([Worker("ann")], supervisor=Supervisor(model=script), name="one")
    found = await Team(
        [below.as_worker()], supervisor=Supervisor(model=script), journal=journal, budget=Budget(calls=32)
    ).run("Count", run="r")
    assert found.ending == "complete"
    runs = await rows(journal)
    shares = [requested(entries).budget.calls for run, entries in runs.items() if run != "r"]
    assert shares == [10, 10, 10], "one call was the plan, and one is for the answer"
    assert found.spent.calls == 1 + 3 * 3 + 1


async def test_what_a_team_may_use_is_its_estimate_and_never_more_than_its_own_cap() -> None:
    plans = {"ann": plan(("Count.", "ann", [])), "one": plan(("Left.", "one", []), ("Right.", "two", []))}
    script = model(plainly, plans)
    journal = MemoryJournal()
    one = Team([Worker("ann")], supervisor=Supervisor(model=script), name="one").as_worker(estimate=Amount(calls=7))
    two = Team([Worker("ann")], supervisor=Supervisor(model=script), name="two", budget=Budget(calls=4)).as_worker()
    found = await Team([one, two], supervisor=Supervisor(model=script), journal=journal, budget=Budget(calls=50)).run(
        "Count", run="r"
    )
    assert found.ending == "complete"
    caps = {run: requested(entries).budget.calls for run, entries in (await rows(journal)).items()}
    assert sorted(cap for run, cap in caps.items() if run != "r" and cap is not None) == [4, 7]


async def test_a_team_with_too_little_money_fails_for_that_reason_and_is_not_tried_again() -> None:
    plans = {"ann": plan(("Count.", "ann", [])), "one": plan(("Left.", "one", []))}
    script = model(plainly, plans)
    journal = MemoryJournal()
    one = Team([Worker("ann")], supervisor=Supervisor(model=script), name="one").as_worker(estimate=Amount(calls=1))
    found = await Team([one], supervisor=Supervisor(model=script), journal=journal, budget=Budget(calls=50)).run(
        "Count", run="r"
    )
    assert found.ending == "failed"
    assert found.reason == "budget"
    assert len(await journal.runs()) == 2


async def test_without_caps_what_a_team_used_is_still_counted() -> None:
    script = model(plainly, PLANS, micros=7)
    found = await three(script).run("What about the garden?")
    assert found.spent == Amount(9 * 15, 9 * 7, 9)
    assert found.spent != NOTHING


# --- without a model


async def test_the_shop_works_for_an_office_without_a_language_model(tmp_path: Path) -> None:
    shutil.copytree(Path(config.__file__).parent / "templates" / "shop", tmp_path / "shop")
    shop = load_team(tmp_path / "shop").as_worker(description="knows the shop's orders, revenue, documents and rates")
    office = Team([shop, Worker("clerk", "adds up and multiplies numbers", tools=[calculator()])], name="office")
    found = await office.run("What was the revenue in Germany in May 2026, and what is 17 * 23?")
    assert found.ending == "complete"
    assert "2,427.50" in str(found.answer)
    assert "391" in str(found.answer)
    assert "No language model is used" in found.notice
    more = await office.run("What was the revenue in Germany in May 2026? What was it in Italy in May 2026?")
    assert "2,427.50" in str(more.answer)
    assert more.ending in ("complete", "partial")
