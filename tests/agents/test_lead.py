"""The supervisor: plans that are sent back until they can run, tasks put better, answers that hide no gap."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.agents.answer import with_gaps
from chargehand.agents.planner import PlanStream, read, schema
from chargehand.agents.roles import Factory, Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.json_schema import problems
from chargehand.engine.lint import lint
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.errors import Invalid, PlanInvalid
from chargehand.models.messages import Request, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.request_facts import Planning, Refining
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.tools.tool import tool
from tests.agents.crowd import FREE, call, calls, model, of_kind, plan, team
from tests.support.hunts import hunt_size

APPLES = ("Count the apples in the cellar.", "ann", ())
PEARS = ("Count the pears in the attic.", "bob", ())
BOTH = ("Add the apples and the pears.", "ann", ("t1", "t2"))
PAIR = (Worker("ann", "counts apples"), Worker("bob", "counts pears"))


async def test_a_plan_becomes_tasks_that_hand_on_their_results() -> None:
    script = model(plans=[plan(APPLES, PEARS, BOTH)], work=lambda request: f"did: {request.messages[1].text[-40:]}")
    found = await team(script, *PAIR).run("How much fruit is there?")
    assert found.ending == "complete"
    assert [(one.id, one.worker, one.after) for one in found.plan.tasks] == [
        ("t1", "ann", ()),
        ("t2", "bob", ()),
        ("t3", "ann", ("t1", "t2")),
    ]
    (third,) = [one for one in script.requests if one.tools and "Add the apples" in one.messages[1].text]
    assert "Task: Count the apples" in third.messages[1].text
    assert "Task: Count the pears" in third.messages[1].text
    assert found.answer == "The answer [t1]."


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n{}\n```",
        "Here is the plan:\n```\n{}\n```\nGood luck!",
        "{} is my plan",
    ],
)
async def test_a_plan_in_a_fence_or_in_prose_is_found(wrapped: str) -> None:
    found = await team(model(plans=[wrapped.replace("{}", plan(APPLES))])).run("Count")
    assert found.ending == "complete"


async def test_malformed_json_goes_back_in_words_and_the_next_plan_counts() -> None:
    script = model(plans=["{tasks: oh no", plan(APPLES)])
    found = await team(script).run("Count")
    assert found.ending == "complete"
    assert "not JSON" in script.requests[1].messages[1].text
    subject = script.requests[1].subject
    assert isinstance(subject, Planning)
    assert subject.findings


async def test_a_hallucinated_worker_goes_back_with_the_names_there_are() -> None:
    script = model(plans=[plan(("Count the apples in the cellar.", "anna", ())), plan(APPLES)])
    found = await team(script, *PAIR).run("Count")
    assert found.ending == "complete"
    assert "'anna'" in script.requests[1].messages[1].text
    assert "ann" in script.requests[1].messages[1].text


async def test_after_three_useless_plans_the_run_fails_and_says_so() -> None:
    script = model(plans=["no", "no", "no", plan(APPLES)])
    found = await team(script, *PAIR).run("Translate this letter")
    assert (found.ending, len(script.requests)) == ("failed", 3)
    assert "no plan could be made: scripted: the reply is not JSON (" in found.gaps[0].message


async def test_only_the_model_is_told_to_send_json_and_people_what_was_wrong() -> None:
    script = model(plans=["no", "no", plan(APPLES)])
    found = await team(script, *PAIR).run("Count")
    order = "one JSON value and nothing else"
    assert [order in one.messages[1].text for one in script.requests[:3]] == [False, True, True]
    failed = [one for one in of_kind(found.entries, ev.SupervisionFailed) if isinstance(one, ev.SupervisionFailed)]
    assert [one.failure.message.partition(" (")[0] for one in failed] == ["scripted: the reply is not JSON"] * 2
    assert [one.message.partition(" (")[0] for each in failed for one in each.findings] == ["The reply is not JSON"] * 2
    assert not any(order in str(one) for one in failed)


async def test_after_three_useless_plans_the_only_worker_there_is_gets_it_all() -> None:
    script = model(plans=["no", "no", "no"], work=["twelve"])
    found = await team(script).run("Count the apples")
    assert (found.ending, found.results) == ("complete", {"t1": {"text": "twelve"}})


async def test_a_model_that_answers_with_nothing_is_a_failure() -> None:
    script = model(plans=["", "  ", ""])
    policy = Policy(retry=Retry(base=0.01))
    found = await team(script, *PAIR, policy=policy).run("Translate this letter")
    assert found.ending == "failed"
    failed = [one for one in of_kind(found.entries, ev.SupervisionFailed) if isinstance(one, ev.SupervisionFailed)]
    assert "answered with nothing" in failed[0].failure.message


async def test_what_nobody_can_do_is_a_gap_of_the_run() -> None:
    script = model(plans=[plan(APPLES, combine="forward", unserved=["Nobody here can book a flight."])])
    found = await team(script).run("Count the apples and book a flight")
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert found.gaps == (Gap(TaskId(""), "unserved", "unserved", "Nobody here can book a flight."),)
    assert "Nobody here can book a flight." in str(found.answer)


async def test_a_request_nobody_can_serve_ends_at_once_and_says_why() -> None:
    script = model(plans=[plan(unserved=["Nobody here can book a flight."])])
    found = await team(script).run("Book a flight")
    assert (found.ending, found.reason, len(script.requests)) == ("failed", "no_plan", 1)
    assert [one.message for one in found.gaps] == ["Nobody here can book a flight."]


async def test_one_worker_is_enough_and_its_words_are_handed_through() -> None:
    script = model(plans=[plan(APPLES, combine="forward")], work=["There are exactly 12 apples, 3 of them red."])
    found = await team(script).run("Count")
    assert found.answer == "There are exactly 12 apples, 3 of them red."
    assert len(script.requests) == 2, "nobody is asked to write it again"


async def test_a_task_that_failed_is_put_better_with_the_error_in_view() -> None:
    script = model(
        plans=[plan(APPLES)],
        work=lambda request: (
            "12"
            if "second shelf" in request.messages[1].text
            else calls(call("give_up", reason="the first shelf is empty"))
        ),
        refine="Count the apples in the cellar, on the second shelf.",
    )
    found = await team(script).run("Count")
    assert (found.ending, found.results) == ("complete", {"t1": {"text": "12"}})
    (asked,) = [one for one in script.requests if isinstance(one.subject, Refining)]
    assert "the first shelf is empty" in asked.messages[1].text
    assert isinstance(asked.subject, Refining)
    assert asked.subject.failure == "the first shelf is empty"


async def test_a_failed_task_is_replanned_when_that_is_allowed() -> None:
    second = json.dumps({"goal": "g", "tasks": {"t9": {"instruction": "Count the apples by weight.", "worker": "bob"}}})
    script = model(
        plans=[plan(APPLES), second],
        work=lambda request: (
            "by weight 12" if "by weight" in request.messages[1].text else calls(call("give_up", reason="dark"))
        ),
    )
    policy = Policy(retry=Retry(attempts=1), refine=False, limits=Limits(replans=1))
    found = await team(script, *PAIR, policy=policy).run("Count")
    assert found.results == {"t9": {"text": "by weight 12"}}
    assert "dark" in script.requests[2].messages[1].text


async def test_a_planner_that_reviews_sees_results_and_may_add_tasks() -> None:
    more = json.dumps(
        {"goal": "g", "tasks": {"t2": {"instruction": "Count the apples once more, by hand.", "worker": "ann"}}}
    )
    none = json.dumps({"goal": "g", "tasks": {}})
    script = model(plans=[plan(APPLES), more, none], work=["minus three apples", "twelve apples"])
    found = await team(script, review=True).run("Count")
    assert found.ending == "complete"
    assert list(found.results) == ["t1", "t2"]
    assert "minus three apples" in script.requests[2].messages[1].text


async def test_gaps_reach_whoever_answers() -> None:
    script = model(
        plans=[plan(APPLES, PEARS)],
        work=lambda request: (
            "12" if "apples" in request.messages[1].text else calls(call("give_up", reason="no attic"))
        ),
        answer="There are 12 apples [t1].",
    )
    found = await team(script, *PAIR, policy=Policy(retry=Retry(attempts=1), refine=False)).run("Count")
    assert (found.ending, [gap.task for gap in found.gaps]) == ("partial", ["t2"])
    assert "no attic" in script.requests[-1].messages[1].text
    assert str(found.answer) == "There are 12 apples [t1].\n\nNot answered:\n- t2: no attic"


async def test_a_function_can_write_the_answer() -> None:
    def add_up(goal: str, results: Mapping[str, object], gaps: Sequence[Gap]) -> str:
        return f"{goal}: {len(results)} results, {len(gaps)} gaps"

    found = await team(model(plans=[plan(APPLES, PEARS)]), *PAIR, combine=add_up).run("Count")
    assert found.answer == "Count: 2 results, 0 gaps"


async def test_more_than_the_window_holds_is_reduced_first() -> None:
    small = ModelCard("small", window=2000, micros_in=0.0, micros_out=0.0)
    script = model(plans=[plan(APPLES, PEARS)], work=["apple " * 900, "pear " * 900], card=small)
    big = model(plans=[plan(APPLES, PEARS)], work=["apple " * 900, "pear " * 900])
    found = await team(big, *PAIR, judge=script, combine="reduce").run("Count")
    assert found.ending == "complete"
    assert len([one for one in script.requests if one.subject is None]) >= 2
    assert len(script.requests[-1].messages[1].text) < 2000 * 4


async def test_select_asks_for_the_best_of_several() -> None:
    script = model(plans=[plan(APPLES, PEARS, combine="select")], work=["It is done.", "It is done, twice."])
    await team(script, *PAIR).run("Count")
    assert "Choose the best result" in script.requests[-1].messages[0].text


async def test_planner_workers_and_judge_may_be_different_models() -> None:
    planner, worker, judge = (model(plans=[plan(APPLES, PEARS)]) for _ in range(3))
    executor = team(model(), Worker("ann", model=worker), Worker("bob", model=worker), planner=planner, judge=judge)
    await executor.run("Count")
    assert [len(one.requests) for one in (planner, worker, judge)] == [1, 2, 1]


async def test_prompts_can_be_replaced() -> None:
    script = model()
    await team(script, prompts={"plan": "PLAN for {{workers}}, please"}).run("Count")
    assert script.requests[0].messages[0].text == "PLAN for - ann: counts things, please"


def test_a_prompt_with_an_unknown_slot_or_name_is_refused() -> None:
    with pytest.raises(Invalid, match="slot 'goals'"):
        team(model(), prompts={"plan": "{{goals}}"})
    with pytest.raises(Invalid, match="no prompt 'plans'"):
        team(model(), prompts={"plans": "x"})


class Writes:
    """A model that writes its plan piece by piece and waits in between until somebody has begun to work."""

    card = FREE

    def __init__(self, text: str) -> None:
        self.text = text
        self.begun = asyncio.Event()
        self.done = False

    async def reply(self, request: Request, hear: Hear | None = None) -> object:
        from chargehand.models.messages import Reply

        if isinstance(request.subject, Planning):
            assert hear is not None
            half = self.text.index('"t2"')
            hear(self.text[:half])
            await asyncio.wait_for(self.begun.wait(), 20)
            hear(self.text[half:])
            self.done = True
            return Reply(self.text, usage=Usage(1, 1), micros=0)
        self.begun.set()
        return Reply("done", usage=Usage(1, 1), micros=0)


async def test_tasks_start_while_the_plan_is_still_being_written() -> None:
    writes = Writes(plan(APPLES, PEARS, BOTH))
    found = await team(writes, *PAIR, stream_plan=True).run("Count")  # pyright: ignore[reportArgumentType] - a model
    assert (found.ending, list(found.results)) == ("complete", ["t1", "t2", "t3"])
    kinds = [type(entry.event).__name__ for entry in found.entries]
    assert kinds.index("AttemptStarted") < len(kinds) - 1 - kinds[::-1].index("TasksAdded")


async def test_what_acts_waits_until_the_plan_is_whole() -> None:
    order: list[str] = []

    @tool(effect="effect")
    def send() -> str:
        """Send it."""
        order.append("sent")
        return "ok"

    class Sends(Writes):
        async def reply(self, request: Request, hear: Hear | None = None) -> object:
            if not isinstance(request.subject, Planning) and len(request.messages) == 2 and request.tools:
                self.begun.set()
                return calls(call("send"))
            found = await super().reply(request, hear)
            if isinstance(request.subject, Planning):
                await asyncio.sleep(0.1)
                order.append("planned")
            return found

    sends = Sends(plan(APPLES, PEARS))
    worker = Worker("ann", tools=[send])
    found = await team(sends, worker, PAIR[1], stream_plan=True).run("Count")  # pyright: ignore[reportArgumentType]
    assert found.ending == "complete"
    assert order[0] == "planned"


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


async def test_a_worker_is_made_for_a_task_nobody_is_meant_for() -> None:
    script = model(
        plans=[plan(("Add 1 and 2 and return the sum.", "factory", ()), combine="forward")],
        make='{"persona": "You add.", "tools": ["add", "launch"]}',
        work=[calls(call("add", a=1, b=2)), "3"],
    )
    found = await team(script, factory=Factory([add])).run("Add")
    assert found.results == {"t1": {"text": "3"}}
    told = [one for one in script.requests if one.tools]
    assert {one.name for one in told[0].tools} == {"add", "give_up"}, "only what the factory may hand out"
    assert "You add." in told[0].messages[0].text


async def test_no_worker_can_be_made_of_nonsense() -> None:
    script = model(plans=[plan(("Add 1 and 2 and return the sum.", "factory", ()))], make="no")
    found = await team(script, factory=Factory([add]), policy=Policy(retry=Retry(attempts=1), refine=False)).run("Add")
    assert "no worker could be made" in found.gaps[0].message


def test_a_draft_costs_no_more_than_the_planning() -> None:
    script = model(plans=[plan(("Count the apples in the cellar.", "anna", ())), plan(APPLES)])
    found = asyncio.run(team(script).plan("Count"))
    assert [one.worker for one in found.plan.tasks] == ["ann"]
    assert (len(script.requests), found.spent and found.spent.calls) == (2, 2)
    assert found.forecast is not None


def test_a_draft_that_never_can_run_says_what_is_wrong() -> None:
    with pytest.raises(PlanInvalid, match="anna"):
        asyncio.run(team(model(plans=[plan(("Count the apples in the cellar.", "anna", ()))])).plan("Count"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "must be a JSON object"),
        ('{"tasks": "many"}', "no plan: Expected `object \\| array`, got `str` - at `\\$.tasks`"),
        ('{"tasks": ["count"]}', "task 1 cannot be read: Expected `object`, got `str`"),
        ('{"tasks": [{"worker": "w"}]}', "missing required field `instruction`"),
        ('{"tasks": [{"instruction": " "}]}', "task 't1' has no instruction"),
        ('{"tasks": [{"id": "t2", "instruction": "x", "after": [0]}]}', "'t2' cannot be read: .* at `\\$.after"),
    ],
)
def test_what_is_no_plan_says_why(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        read(text)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(Invalid):
        read(text)


@settings(max_examples=hunt_size(quick=40, thorough=500))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["tasks", "t1", "instruction", "worker", "after", "id", "combine"]), inner
            )
        ),
    )
)
def test_no_json_breaks_the_reader(value: object) -> None:
    with contextlib.suppress(Invalid):
        read(json.dumps(value))


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_plan_in_the_form_that_is_asked_for_can_run(count: int, random: Random) -> None:
    tasks: list[dict[str, object]] = []
    for number in range(1, count + 1):
        earlier = [f"t{n}" for n in range(1, number)]
        after = random.sample(earlier, random.randint(0, len(earlier)))
        instruction = f"Count the apples on shelf {number} of the cellar."
        whose = {"id": f"t{number}", "title": "Apples", "tool": "sql", "worker": "ann"}
        tasks.append({**whose, "instruction": instruction, "after": after, "optional": []})
    body: dict[str, object] = {"tasks": tasks, "combine": "merge", "assumptions": [], "unserved": []}
    wanted = json.loads(bytes(schema(("ann",), ("sql",), 12)))
    assert list(problems(body, wanted)) == []
    found = read(json.dumps(body)).proposal
    assert lint(found.tasks, Roster((Agent("ann"),)), Limits(max_depth=50, fan_out=50)).errors == ()
    assert list(problems({**body, "tasks": [{**tasks[0], "worker": "eve"}]}, wanted)) != []


def test_a_task_goes_to_the_only_worker_who_has_the_tool_that_it_names() -> None:
    holders = {"sql": ["ann"], "calculator": ["ann", "bob"]}
    tools = ("sql", "calculator", "none")
    tasks = [{"id": f"t{n}", "instruction": "Do it.", "tool": tool, "worker": "bob"} for n, tool in enumerate(tools, 1)]
    text = json.dumps({"tasks": tasks})
    assert [task.worker for task in read(text, holders).proposal.tasks] == ["ann", "bob", "bob"]
    assert [task.worker for task in PlanStream(holders).feed(text)] == ["ann", "bob", "bob"]


def test_a_task_that_comes_after_itself_comes_after_nothing() -> None:
    body = {"tasks": [{"id": "t1", "worker": "ann", "instruction": "Count.", "after": ["t1"], "optional": []}]}
    assert read(json.dumps(body)).proposal.tasks[0].after == ()


async def test_an_unknown_key_of_a_task_goes_back_to_the_planner() -> None:
    first = {"id": "t1", "instruction": "Count the apples in the cellar.", "worker": "ann"}
    second = {"id": "t2", "instruction": "Double the number of apples.", "worker": "ann"}
    wrong = json.dumps({"tasks": [first, {**second, "needs": ["t1"]}], "combine": "forward"})
    right = json.dumps({"tasks": [first, {**second, "after": ["t1"]}], "combine": "forward"})
    script = model(plans=[wrong, right])
    found = await team(script).run("How many?")
    assert found.ending == "complete"
    assert found.plan.tasks[1].after == ("t1",)
    finding = "Task 't2' cannot be read: Object contains unknown field `needs`; the keys of a task are instruction, id,"
    assert finding in script.requests[1].messages[1].text


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(0, 3))
def test_a_plan_read_piece_by_piece_is_the_plan_read_whole(cuts: list[int], extra: int) -> None:
    text = plan(
        ('Count "all" the {apples} in the [\\ cellar.', "ann", ()), *([PEARS] * extra), BOTH if extra else APPLES
    )
    stream = PlanStream()
    at = 0
    found: list[Task] = []
    for cut in cuts * 60:
        found += stream.feed(text[at : at + cut])
        at += cut
    assert tuple(found) == read(text).proposal.tasks[: len(found)]
    assert len(found) == len(read(text).proposal.tasks) if at >= len(text) else True


def test_every_gap_is_named_once() -> None:
    gaps = (Gap(TaskId("t2"), "failed", "logic", "no attic"), Gap(TaskId(""), "unserved", "unserved", "No flights."))
    assert with_gaps("Apples [t1]; t2 is missing.", gaps).count("t2") == 1
    assert with_gaps("Apples.", gaps).endswith("- t2: no attic\n- No flights.")
    assert with_gaps("Apples.", ()) == "Apples."


async def test_a_planner_that_is_down_is_asked_again_later() -> None:
    faults = {1: Failure("network", "the line is dead")}
    planner = ScriptedModel([plan(APPLES, combine="forward")], faults=faults, usage=Usage(1, 1), micros=0)
    found = await team(model(), planner=planner, policy=Policy(retry=Retry(base=0.01))).run("Count")
    assert found.ending == "complete"
