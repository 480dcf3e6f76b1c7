"""Leading by splitting: the tree is as deep and broad as it may be, whatever the model says, and all of it is paid."""

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.agents.strategies import Recursive
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import StoreError
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.request_facts import Answering, Planning, Splitting, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE, call, calls, of_kind
from tests.agents.options import make_team

ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
PAIR = (Worker("ann", "counts apples"), Worker("bob", "counts pears"))
Judge = Callable[[str], Line]


def simple(worker: str = "ann") -> str:
    return json.dumps({"why": "it is little", "simple": True, "worker": worker})


def parts(*given: tuple[str, str, Sequence[int]], unserved: Sequence[str] = ()) -> str:
    listed = [{"instruction": text, "worker": worker, "after": list(after)} for text, worker, after in given]
    return json.dumps({"why": "it is much", "simple": False, "subtasks": listed, "unserved": list(unserved)})


def model(
    judge: Judge,
    work: Callable[[Working], Line] | None = None,
    usage: Usage | None = Usage(10, 5),  # noqa: B008 - frozen
) -> ScriptedModel:
    def script(request: Request) -> Line:
        match request.subject:
            case Splitting() as subject:
                return judge(subject.instruction)
            case Working() as subject:
                return f"did: {subject.instruction}" if work is None else work(subject)
            case Answering():
                return "The answer."
            case Planning():
                return json.dumps({"goal": "g", "tasks": {"t9": {"instruction": "Weigh the apples.", "worker": "bob"}}})
            case _:
                return "Do it better."

    return ScriptedModel(script, usage=usage, micros=7, card=FREE)


def team(script: ScriptedModel, strategy: Recursive = Recursive(), *workers: Worker, **more: object) -> Team:  # noqa: B008 - frozen
    options: dict[str, object] = {"journal": MemoryJournal(), "policy": ONCE, **more}
    return make_team(workers or PAIR, model=script, strategy=strategy, **options)


def judged(script: ScriptedModel) -> list[str]:
    return [one.subject.instruction for one in script.requests if isinstance(one.subject, Splitting)]


def notes(found: Result) -> list[str]:
    return [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]


def added(found: Result) -> ev.TasksAdded:
    (one,) = [one for one in of_kind(found.entries, ev.TasksAdded) if isinstance(one, ev.TasksAdded)]
    return one


def ids(found: Result) -> list[str]:
    return [one.id for one in found.plan.tasks]


def by_text(**lines: Line) -> Judge:
    """What is said of a task by its first word; all else is simple."""
    return lambda text: lines.get(text.partition(" ")[0].lower(), simple())


TWO = parts(("Count all apples.", "ann", []), ("Count all pears.", "bob", [1]))


def max_calls(strategy: Recursive, max_tasks: int) -> int:
    """How many calls a whole tree may take."""
    calls = 1
    level = 1
    for _ in range(1, strategy.depth):
        level = min(level * max(1, strategy.breadth), max(1, max_tasks))
        calls += level
    return calls


async def test_a_simple_request_is_one_task_for_the_best_worker() -> None:
    script = model(lambda _: simple("bob"))
    found = await team(script).run("Weigh the pears in the attic")
    assert [(one.id, one.worker, one.instruction) for one in found.plan.tasks] == [
        ("t1", "bob", "Weigh the pears in the attic")
    ]
    assert found.answer == "did: Weigh the pears in the attic"
    assert len(script.requests) == 2
    assert "the request is simple: bob does it (why: it is little)" in notes(found)


async def test_a_big_request_is_split_and_each_part_again() -> None:
    script = model(
        by_text(
            list=parts(("Sum up all fruit.", "ann", []), ("Sort all fruit.", "bob", [1])),
            sum=parts(("Count the apples.", "ann", []), ("Count the pears.", "bob", [])),
        )
    )
    found = await team(script).run("List all fruit we have")
    assert [(one.id, one.worker, one.after) for one in found.plan.tasks] == [
        ("t1.1", "ann", ()),
        ("t1.2", "bob", ()),
        ("t2", "ann", ("t1.1", "t1.2")),
    ]
    assert (found.ending, found.plan.combine) == ("complete", "merge")
    assert judged(script) == ["List all fruit we have", "Sum up all fruit.", "Sort all fruit."]
    assert "List all fruit we have" in script.requests[1].messages[1].text, "who judges a part sees what it is part of"
    assert notes(found)[:2] == [
        "the request is split into t1, t2 (why: it is much)",
        "t1 is split into t1.1, t1.2 (why: it is much)",
    ]


async def test_what_a_part_needs_all_its_own_parts_are_given() -> None:
    script = model(
        by_text(
            list=parts(("Sum up all fruit.", "ann", []), ("Sort all fruit.", "bob", [1])),
            sort=parts(("Order the apples.", "ann", []), ("Order the pears.", "bob", [1])),
        )
    )
    found = await team(script).run("List all fruit we have")
    assert [(one.id, one.after) for one in found.plan.tasks] == [
        ("t1", ()),
        ("t2.1", ("t1",)),
        ("t2.2", ("t1", "t2.1")),
    ]


async def test_a_depth_of_nothing_is_one_task_whatever_the_model_says() -> None:
    script = model(lambda _: TWO)
    found = await team(script, Recursive(depth=0)).run("Count it all")
    assert (ids(found), found.plan.tasks[0].instruction, len(judged(script))) == (["t1"], "Count it all", 1)
    alone = model(lambda _: TWO)
    await team(alone, Recursive(depth=0), PAIR[0]).run("Count it all")
    assert judged(alone) == [], "with one worker there is nothing to choose"


async def test_every_call_is_paid_for_and_one_that_reports_no_usage_counts_as_a_call() -> None:
    found = await team(model(by_text(list=TWO))).run("List all fruit")
    assert added(found).used == Amount(45, 21, 3)

    def judge(text: str) -> Line:
        line = TWO if text.startswith("List") else simple()
        return line if "pears" in text else Reply(line, usage=Usage(10, 5), micros=7)

    assert added(await team(model(judge, usage=None)).run("List all fruit")).used == Amount(30, 14, 3)


async def test_a_part_that_cannot_be_judged_is_a_task() -> None:
    def judge(text: str) -> Line:
        if text.startswith("List"):
            return parts(("Count the apples.", "ann", []), ("Weigh the pears.", "bob", []), ("Rate it.", "ann", []))
        return Failure("network", "the line went dead") if "apples" in text else "no JSON" if "pears" in text else "[]"

    found = await team(model(judge)).run("List all fruit")
    assert (found.ending, ids(found)) == ("complete", ["t1", "t2", "t3"])
    assert "t1 could not be judged and is not split further: the line went dead" in notes(found)
    assert len([one for one in notes(found) if "could not be judged" in one]) == 3


async def test_a_model_that_raises_anything_spoils_only_its_own_part() -> None:
    def judge(text: str) -> Line:
        if "pears" in text:
            raise RuntimeError("boom")
        return TWO if text.startswith("List") else simple()

    found = await team(model(judge)).run("List all fruit")
    assert (found.ending, ids(found)) == ("complete", ["t1", "t2"])
    assert "t2 could not be judged and is not split further: RuntimeError: boom" in notes(found)


async def test_a_request_that_cannot_be_judged_is_asked_about_again() -> None:
    strange = parts(("Count it all.", "eve", []), ("Weigh it all.", "ann", []))
    for lines in (["prose", simple("eve"), TWO], [strange, "[]", TWO]):
        rest = iter(lines)
        script = model(lambda text, rest=rest: next(rest) if text.startswith("List") else simple())
        found = await team(script, Recursive(depth=1)).run("List all fruit")
        assert (found.ending, ids(found)) == ("complete", ["t1", "t2"])
        sent = [one.messages[1].text for one in script.requests[1:3]]
        wanted = ("not JSON", "`worker` is one of ann, bob") if lines[0] == "prose" else ("no worker 'eve'", "object")
        assert wanted[0] in sent[0]
        assert wanted[1] in sent[1]


async def test_parts_of_a_level_are_judged_at_the_same_time() -> None:
    running = 0
    most = 0

    async def script(request: Request) -> Line:
        nonlocal running, most
        if not isinstance(request.subject, Splitting):
            return "fine"
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        names = ("apples", "pears", "plums", "figs")
        is_root = request.subject.instruction.startswith("List")
        return parts(*((f"Count the {one}.", "ann", ()) for one in names)) if is_root else simple()

    found = await team(ScriptedModel(script, usage=Usage(1, 1), micros=0, card=FREE)).run("List all fruit")
    assert (len(ids(found)), most) == (4, 4)


async def test_a_part_like_the_whole_is_not_judged_again() -> None:
    script = model(by_text(list=parts(("LIST  all fruit", "ann", []), ("Count the pears.", "bob", []))))
    found = await team(script, Recursive(depth=4)).run("List all fruit")
    assert (ids(found), judged(script)) == (["t1", "t2"], ["List all fruit", "Count the pears."])


async def test_the_same_part_twice_is_one_part_and_one_part_is_no_split() -> None:
    twice = parts(("Count the apples.", "ann", []), ("count the  apples.", "ann", []), ("Weigh it.", "bob", [2]))
    found = await team(model(by_text(list=twice)), Recursive(depth=1)).run("List all fruit")
    assert [(one.id, one.after) for one in found.plan.tasks] == [("t1", ()), ("t2", ("t1",))]
    one = await team(model(by_text(list=parts(("Count the apples.", "bob", []))))).run("List all fruit")
    assert [(task.worker, task.instruction) for task in one.plan.tasks] == [("bob", "List all fruit")]


MANY = parts(*((f"Count the things on shelf {n}.", "ann", ()) for n in range(5)))


async def test_parts_beyond_the_breadth_are_left_out_and_named() -> None:
    script = model(by_text(list=MANY))
    found = await team(script, Recursive(depth=1, breadth=3)).run("List all fruit")
    assert ids(found) == ["t1", "t2", "t3"]
    (gap,) = found.gaps
    assert gap.message == (
        "A request is split into at most 3 parts; these are left out: "
        "Count the things on shelf 3.; Count the things on shelf 4."
    )


async def test_a_part_that_is_to_be_split_too_far_stays_whole() -> None:
    script = model(by_text(list=parts(("Sum up all fruit.", "ann", []), ("Sort it.", "bob", [])), sum=MANY))
    found = await team(script, Recursive(breadth=3)).run("List all fruit")
    assert (ids(found), found.ending) == (["t1", "t2"], "complete")


async def test_what_nobody_can_do_is_named() -> None:
    line = parts(("Count the apples.", "ann", []), ("Count the pears.", "bob", []), unserved=["Nobody flies."])
    found = await team(model(by_text(list=line))).run("List all fruit and fly")
    assert (found.ending, [gap.message for gap in found.gaps]) == ("partial", ["Nobody flies."])
    none = json.dumps({"why": "x", "simple": True, "unserved": ["Nobody flies."]})
    lost = await team(model(lambda _: none)).run("Fly me to Rome")
    assert (lost.ending, [gap.message for gap in lost.gaps]) == ("failed", ["Nobody flies."])


async def test_in_a_run_with_caps_it_is_split_as_deep_as_half_of_the_money_allows() -> None:
    judge = by_text(
        list=TWO, count=parts(("Sort the rest.", "ann", []), ("Weigh the rest.", "bob", [])), sort=TWO, weigh=TWO
    )
    found = await team(model(judge), budget=Budget(calls=60)).run("List all fruit")
    free = await team(model(judge)).run("List all fruit")
    assert found.ending == "complete"
    assert ids(found) == ids(free), "there is enough for all of it"
    script = model(by_text(list=TWO))
    small = await team(script, budget=Budget(calls=4)).run("List all fruit")
    assert judged(script) == ["List all fruit", "Count all apples."]
    (note,) = [text for text in notes(small) if "could not be judged" in text]
    assert "t2 could not be judged and is not split further: the budget does not cover" in note


async def test_whatever_the_caps_no_more_calls_are_made_than_they_allow_and_all_is_held_before() -> None:
    judge = by_text(list=TWO, count=parts(("Sort the rest.", "ann", []), ("Weigh the rest.", "bob", [])))
    for most in range(1, 20):
        script = model(judge)
        found = await team(script, budget=Budget(calls=most)).run("List all fruit")
        assert len(script.requests) <= most, most
        held = [
            one.reserve
            for one in of_kind(found.entries, ev.SupervisionStarted)
            if isinstance(one, ev.SupervisionStarted) and one.duty == "plan"
        ]
        assert sum(one.calls for one in held if one is not None) >= len(judged(script)), "held before it was spent"


async def test_a_plan_that_a_crash_cut_off_is_charged_with_the_call_under_way() -> None:
    judge = by_text(list=TWO)
    whole = await team(model(judge), budget=Budget(calls=20)).run("List all fruit", run="r")
    starts = [at for at, one in enumerate(whole.entries, 1) if isinstance(one.event, ev.SupervisionStarted)]
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, whole.entries[: starts[1]])
    await journal.release(lease)
    found = await team(model(judge), journal=journal, budget=Budget(calls=20)).resume("r")
    assert (found.ending, ids(found)) == ("complete", ids(whole))
    assert found.spent.calls == whole.spent.calls + 1, (
        "the first reply is written; what became of the second call is not"
    )


async def test_what_failed_is_planned_anew_where_that_is_allowed() -> None:
    policy = Policy(retry=Retry(attempts=1), refine=False, limits=Limits(replans=1))
    script = model(
        lambda _: simple(),
        lambda task: "12 kilos" if "Weigh" in task.instruction else calls(call("give_up", reason="dark")),
    )
    found = await team(script, policy=policy).run("Count the apples")
    assert list(found.results) == ["t9"]


async def test_a_crash_after_any_entry_repeats_nothing_that_was_recorded() -> None:
    judge = by_text(list=TWO)
    whole = await team(model(judge)).run("List all fruit", run="r")
    asked: list[int] = []
    for at in range(1, len(whole.entries)):
        journal = MemoryJournal()
        script = model(judge)
        lease = await journal.claim("r", new=True)
        await journal.append(lease, whole.entries[:at])
        await journal.release(lease)
        found = await team(script, journal=journal).resume("r")
        assert (found.ending, ids(found), found.results) == ("complete", ids(whole), whole.results), at
        asked.append(len(script.requests))
    assert asked == sorted(asked, reverse=True)
    assert (asked[0], asked[-1]) == (6, 0)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 30),
    st.integers(1, 7),
    st.lists(st.lists(st.integers(-1, 8), max_size=3), min_size=7, max_size=7),
)
def test_a_model_that_always_splits_is_held_to_depth_breadth_and_tasks(
    depth: int, breadth: int, most: int, wanted: int, after: list[list[int]]
) -> None:
    def judge(text: str) -> Line:
        needed = [[place for place in after[n] if 0 < place <= n] for n in range(wanted)]
        return parts(*((f"{text} / shelf {n}", ("ann", "bob")[n % 2], needed[n]) for n in range(wanted)))

    script = model(judge)
    policy = Policy(retry=Retry(attempts=1), refine=False, limits=Limits(max_tasks=most, max_depth=1000))
    found = asyncio.run(team(script, Recursive(depth, breadth), policy=policy).run("Count everything"))
    assert found.plan.tasks, found.gaps
    assert len(ids(found)) <= min(most, max(1, breadth) ** max(0, depth))
    assert max(one.count(".") + 1 for one in ids(found)) <= max(1, depth)
    assert max(int(place) for one in ids(found) for place in one[1:].split(".")) <= max(1, breadth)
    assert len(judged(script)) <= 1 + max_calls(Recursive(depth, breadth), most)
    assert len(set(ids(found))) == len(ids(found))


async def test_a_part_may_need_a_later_one_of_the_list() -> None:
    lines = parts(("Write a summary of the pears.", "bob", (2,)), ("Count the pears.", "ann", ()))
    found = await team(model(by_text(list=lines))).run("List all pears")
    assert [(one.id, one.after) for one in found.plan.tasks] == [("t1", ("t2",)), ("t2", ())]


@pytest.mark.parametrize(
    ("after", "why"),
    [([1], "come after 1"), ([9], "come after 9"), ([0], "come after 0"), ([2], "wait for each other")],
)
async def test_parts_that_cannot_be_ordered_are_sent_back(after: Sequence[int], why: str) -> None:
    replies = iter([parts(("Write.", "bob", after), ("Count.", "ann", (1,))), TWO])
    script = model(lambda text: next(replies) if text.startswith("List") else simple())
    found = await team(script, Recursive(depth=1)).run("List all fruit")
    assert [one.id for one in found.plan.tasks] == ["t1", "t2"]
    assert why in script.requests[1].messages[-1].text


async def test_a_part_whose_parts_cannot_be_ordered_stays_whole() -> None:
    circle = parts(("Write.", "bob", (2,)), ("Read.", "ann", (1,)))
    found = await team(model(by_text(list=TWO, count=circle))).run("List all fruit")
    assert ids(found) == ["t1", "t2"]
    assert any("t1 could not be judged and is not split further" in note for note in notes(found))


# --- a journal that fails


class FailingJournal(MemoryJournal):
    """Fails from one append on."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self.left = appends

    def _append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk is full")
        super()._append(lease, entries)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("appends", range(1, 9))
async def test_a_run_that_cannot_be_written_while_parts_are_judged_ends(appends: int) -> None:
    async def judge(request: Request) -> str:
        await asyncio.sleep(0)
        assert isinstance(request.subject, Splitting)
        return parts(*[(f"{request.subject.instruction} {number}", "ann", ()) for number in range(3)])

    script = ScriptedModel(judge, card=FREE)
    journal = FailingJournal(appends)
    run = team(script, Recursive(depth=3, breadth=3), journal=journal, budget=Budget(calls=60)).run("Do it all.")
    with pytest.raises(StoreError, match="the disk is full"):
        await run
