"""Teams whose models, time or money fail them: the best there is, what is missing, what to do, the right ending."""

import asyncio

import pytest
from msgspec import structs

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.cli.exit_codes import exit_code
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.fold import replay
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear
from chargehand.models.request_facts import Planning, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import call, calls, model, of_kind, plan
from tests.agents.playhouse import run_on_virtual_time

GOAL = "Count the apples in the cellar."
FAST = Policy(retry=Retry(base=0.01))
ANN = Worker("ann", "counts apples and pears in the cellar")
BOB = Worker("bob", "writes letters to customers")
BOTH = plan(("Count the apples in the cellar.", "ann", []), ("Write a letter to the customers.", "bob", []))
GONE = Failure("network", "the line is dead")


def dead(handle: str = "dead", failure: Failure = GONE) -> ScriptedModel:
    return ScriptedModel([failure], handle=handle, repeat=True)


def hangs(handle: str = "slow") -> ScriptedModel:
    async def late(_request: Request) -> Line:
        await asyncio.sleep(60.0)
        return "too late"

    return ScriptedModel(late, handle=handle)


def good(**more: object) -> ScriptedModel:
    return model(work=_work, **more)  # pyright: ignore[reportArgumentType] - options of a test


def _work(request: Request) -> Line:
    assert isinstance(request.subject, Working)
    return "There are 7 apples." if "apples" in request.subject.instruction else "Dear customers, yours."


def timed(team: Team) -> Result:
    return run_on_virtual_time(team, GOAL)


def ended(found: Result) -> tuple[str, str, int]:
    return found.ending, found.reason, exit_code(found.ending, found.reason)


# --- the planner


@pytest.mark.parametrize(
    "planner",
    [
        ScriptedModel(["no plan at all"], repeat=True, handle="muddled"),
        ScriptedModel([plan(("Count the apples in it.", "nobody", []))], repeat=True, handle="muddled"),
        dead(),
        dead(failure=Failure("resource", "invalid api key", permanent=True)),
    ],
    ids=["garbage", "a plan that cannot run", "dead", "no key"],
)
async def test_without_a_planner_the_request_goes_to_who_fits_and_that_is_said(planner: ScriptedModel) -> None:
    for workers in ((ANN, BOB), (BOB, ANN)):
        found = await Team(workers, supervisor=Supervisor(model=good(), planner=planner), policy=FAST).run(GOAL)
        assert ended(found) == ("partial", "gaps", 3)
        assert [(task.worker, task.instruction) for task in found.plan.tasks] == [("ann", GOAL)]
        assert str(found.answer).startswith("There are 7 apples.")
        assert "parts may have been left out" in str(found.answer)
        added = [entry.event for entry in found.entries if isinstance(entry.event, ev.TasksAdded)]
        failed = [entry.event for entry in found.entries if isinstance(entry.event, ev.SupervisionFailed)]
        assert [event.fallback for event in added] == [failed[-1].failure]


async def test_a_single_worker_is_given_all_of_it() -> None:
    muddled = ScriptedModel(["no plan at all"], repeat=True)
    found = await Team([BOB], supervisor=Supervisor(model=good(), planner=muddled), policy=FAST).run(GOAL)
    assert ended(found) == ("complete", "done", 0)
    assert found.answer == "There are 7 apples."
    assert len(muddled.requests) == 3  # it had all its tries


async def test_where_nobody_fits_the_run_fails_with_words() -> None:
    muddled = ScriptedModel(["no plan at all"], repeat=True)
    found = await Team([ANN, BOB], supervisor=Supervisor(model=good(), planner=muddled), policy=FAST).run(
        "Book a flight to Lisbon."
    )
    assert ended(found) == ("failed", "no_plan", 1)
    assert [gap.status for gap in found.gaps] == ["unplanned"]
    assert "There is no answer: scripted: the reply is not JSON" in str(found.answer)
    assert "Run it again, with another model or in other words" in str(found.answer)
    assert found.plan.tasks == ()


async def test_that_somebody_can_write_is_no_reason_to_give_them_all_of_it() -> None:
    workers = (Worker("ann", "finds prices"), Worker("bob", "writes things up"))
    muddled = ScriptedModel(["no plan at all"], repeat=True)
    found = await Team(workers, supervisor=Supervisor(model=good(), planner=muddled), policy=FAST).run("Report")
    assert ended(found) == ("failed", "no_plan", 1)


async def test_nobody_is_asked_who_needs_the_very_model_that_is_dead() -> None:
    line = dead()
    found = await Team([ANN, BOB], supervisor=Supervisor(model=line), policy=FAST).run(GOAL)
    assert ended(found) == ("failed", "no_plan", 1)
    assert "the line is dead. Run it again when the model can be reached" in str(found.answer)
    assert len(line.requests) == 3
    spare = structs.replace(ANN, fallback_models=[good()])
    assert "7 apples" in str(
        (await Team([spare, BOB], supervisor=Supervisor(model=dead()), policy=FAST).run(GOAL)).answer
    )


class Halfway(ScriptedModel):
    """Says half a plan and dies; when it is asked again, at once."""

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if hear is not None and not self.requests:
            hear(BOTH.partition(', {"id": "t2"')[0])
            for _ in range(50):  # while the task is taken up: turns of the loop, and not a time
                await asyncio.sleep(0.001)
        return await super().reply(request)


async def test_tasks_that_came_before_a_planner_died_are_what_there_is() -> None:
    planner = Halfway([GONE], handle="half", repeat=True)
    found = await Team(
        [ANN, BOB], supervisor=Supervisor(model=good(), planner=planner, stream_plan=True), policy=FAST
    ).run(GOAL)
    assert [task.id for task in found.plan.tasks] == ["t1"]
    assert ended(found) == ("partial", "gaps", 3)
    assert "the plan was never finished" in str(found.answer)


class Pondering(ScriptedModel):
    """Thinks of a task that is in no plan of its."""

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if hear is not None:
            hear(BOTH.replace("apples", "lemons"), "thought")
            for _ in range(50):  # as above
                await asyncio.sleep(0.001)
        return await super().reply(request, hear)


async def test_a_task_that_a_planner_only_thinks_of_is_not_begun() -> None:
    planner = Pondering([BOTH], handle="pondering", repeat=True)
    found = await Team(
        [ANN, BOB], supervisor=Supervisor(model=good(), planner=planner, stream_plan=True), policy=FAST
    ).run(GOAL)
    assert [task.id for task in found.plan.tasks] == ["t1", "t2"]
    assert "lemons" not in str(found.plan)


async def test_a_planner_that_dies_while_its_only_plan_grows_is_not_stood_in_for() -> None:
    planner = Halfway([Failure("resource", "the key was taken back", permanent=True)], handle="half", repeat=True)
    found = await Team(
        [ANN, BOB], supervisor=Supervisor(model=good(), planner=planner, stream_plan=True), policy=FAST
    ).run(GOAL)
    assert [task.instruction for task in found.plan.tasks] == ["Count the apples in the cellar."]
    added = [entry.event for entry in found.entries if isinstance(entry.event, ev.TasksAdded)]
    assert [event.fallback for event in added] == [None] * len(added)


def test_a_planner_that_hangs_leaves_time_for_who_steps_in() -> None:
    found = timed(Team([ANN, BOB], supervisor=Supervisor(model=good(), planner=hangs()), timeout=4.0, policy=FAST))
    assert ended(found) == ("partial", "gaps", 3)
    assert "There are 7 apples." in str(found.answer)
    assert "no plan could be made (the time allowed to plan was over)" in str(found.answer)


def test_a_planner_that_hangs_where_nobody_else_can_help_is_a_matter_of_time() -> None:
    quick = Policy(grace=0.2)
    found = timed(Team([ANN], supervisor=Supervisor(model=hangs()), timeout=1.0, policy=quick))
    assert ended(found) == ("failed", "deadline", 5)
    assert found.answer == (
        "There is no answer: the time ran out. Give it more time and run it again: what is finished can be taken over."
    )


# --- workers


@pytest.mark.parametrize("failure", [GONE, Failure("timeout", "it took too long"), Failure("logic", "it is dark")])
async def test_who_cannot_be_reached_is_a_gap_and_the_rest_is_answered(failure: Failure) -> None:
    away = structs.replace(BOB, model=dead(failure=failure))
    found = await Team([ANN, away], supervisor=Supervisor(model=good(plans=[BOTH])), policy=FAST).run(GOAL)
    assert ended(found) == ("partial", "gaps", 3)
    assert [(gap.task, gap.message) for gap in found.gaps] == [("t2", failure.message)]
    assert failure.message in str(found.answer)
    assert found.results.keys() == {"t1"}


async def test_where_nobody_can_be_reached_the_run_fails_and_says_what_to_do() -> None:
    twice = Policy(retry=Retry(attempts=2, base=0.01))
    found = await Team([ANN, BOB], supervisor=Supervisor(model=dead(), planner=good(plans=[BOTH])), policy=twice).run(
        GOAL
    )
    assert ended(found) == ("failed", "no_results", 1)
    assert "- t1, t2: the line is dead" in str(found.answer)
    assert "Run it again when the model can be reached, or name another model" in str(found.answer)


async def pick(tree: str) -> int:
    """Pick all apples of a tree."""
    await asyncio.sleep(60.0)
    return len(tree)


@pytest.mark.parametrize(
    ("line", "running", "advice"),
    [
        (ScriptedModel([calls(call("pick", tree="old"))], repeat=True), "pick", "Give the worker a longer timeout, or"),
        (hangs(), "model", "Run it again when the model can be reached"),
    ],
)
def test_a_worker_that_is_late_says_what_was_still_running(line: ScriptedModel, running: str, advice: str) -> None:
    slow = Worker("ann", tools=[pick], model=line, timeout=2.0)
    found = timed(
        Team([slow], supervisor=Supervisor(model=good(plans=[plan(("Pick the apples.", "ann", []))])), policy=FAST)
    )
    assert ended(found) == ("failed", "no_results", 1)
    assert [gap.message for gap in found.gaps] == [f"the time allowed to work was over; still running: {running}"]
    failed = [entry.event for entry in found.entries if isinstance(entry.event, ev.AttemptFailed)]
    assert {step.name for event in failed for step in event.failure.running} == {running}
    assert advice in str(found.answer)


def test_a_tool_that_hangs_does_not_shut_the_model_that_others_use() -> None:
    def reply(request: Request) -> Line:
        return calls(call("pick", tree="old")) if "pick" in [tool.name for tool in request.tools] else "There are 7."

    shared = ScriptedModel(reply)
    workers = [Worker("ann", tools=[pick], model=shared, timeout=2.0), Worker("bob", model=shared)]
    hung = [Task(TaskId(f"a{number}"), "Pick.", "ann") for number in range(30)]
    last = Task(TaskId("b"), "Count.", "bob", after=(Edge(TaskId("a29"), "optional"),))
    found = timed(Team(workers, supervisor=Supervisor(plan=Plan((*hung, last), "none")), policy=FAST, timeout=600.0))
    assert found.results == {"b": {"text": "There are 7."}}
    assert not replay(found.entries).breakers


def test_what_waits_for_a_model_that_is_shut_waits_no_longer_than_there_is_time() -> None:
    bounds = Policy(retry=Retry(attempts=1), breaking=Breaking(consecutive=1), limits=Limits(width=1))
    line = dead()
    found = timed(
        Team([ANN, BOB], supervisor=Supervisor(model=line, planner=good(plans=[BOTH])), timeout=1.0, policy=bounds)
    )
    assert ended(found) == ("failed", "deadline", 5)
    assert len(line.requests) == 1
    assert "- t1: the line is dead\n- t2: the time ran out before it could start" in str(found.answer)
    assert "Give it more time and run it again" in str(found.answer)


async def test_a_provider_that_dies_in_the_middle_costs_only_what_came_after() -> None:
    whole = good(plans=[BOTH])

    def dying(request: Request) -> object:
        if isinstance(request.subject, Planning) or len(line.requests) == 2:
            return whole.reply(request)
        return GONE

    line = ScriptedModel(dying)  # pyright: ignore[reportArgumentType] - it may be awaited
    once = Policy(retry=Retry(base=0.01), limits=Limits(width=1))
    found = await Team([ANN, BOB], supervisor=Supervisor(model=line), policy=once).run(GOAL)
    assert ended(found) == ("partial", "gaps", 3)
    assert "There are 7 apples." in str(found.answer)
    assert "- t2: the line is dead" in str(found.answer)
    assert "no answer was written from them: the line is dead" in str(found.answer)


# --- the answer


async def test_without_a_model_for_the_answer_the_results_are_shown_as_they_are() -> None:
    found = await Team([ANN, BOB], supervisor=Supervisor(model=good(plans=[BOTH]), judge=dead()), policy=FAST).run(GOAL)
    assert ended(found) == ("partial", "gaps", 3)
    assert found.answer == (
        "There are 7 apples.\n\nDear customers, yours.\n\n"
        "These are the results as they came; no answer was written from them: the line is dead. Run it again when the "
        "model can be reached, or name another model: what is finished can be taken over."
    )


async def test_without_an_answer_all_results_it_would_have_been_written_from_are_shown() -> None:
    chain = plan(("Count the apples in the cellar.", "ann", []), ("Write a letter about that.", "bob", ["t1"]))
    found = await Team([ANN, BOB], supervisor=Supervisor(model=good(plans=[chain]), judge=dead()), policy=FAST).run(
        GOAL
    )
    assert str(found.answer).startswith("There are 7 apples.\n\nDear customers, yours.\n\nThese are the results")


def test_an_answer_that_never_comes_is_not_waited_for_beyond_the_deadline() -> None:
    quick = Policy(grace=0.3)
    team = Team(
        [ANN],
        supervisor=Supervisor(model=good(plans=[plan((GOAL, "ann", []))]), judge=hangs()),
        timeout=1.0,
        policy=quick,
    )
    found = timed(team)
    assert ended(found) == ("partial", "deadline", 5)
    assert found.entries[-1].at <= found.entries[0].at + 1.0 + 0.3
    assert str(found.answer).startswith("There are 7 apples.\n\nThese are the results as they came")
    assert "Give it more time" in str(found.answer)


# --- time and money


def test_near_the_deadline_the_time_for_the_answer_is_kept() -> None:
    slow = structs.replace(BOB, model=hangs())
    found = timed(Team([ANN, slow], supervisor=Supervisor(model=good(plans=[BOTH])), timeout=2.0, policy=FAST))
    assert ended(found) == ("partial", "deadline", 5)
    assert "- t2: the time ran out before it was finished" in str(found.answer)
    assert len(of_kind(found.entries, ev.AnswerWritten)) == 1  # by the model: a fifth of the time was left for it
    assert found.entries[-1].at <= found.entries[0].at + 2.0


@pytest.mark.parametrize("most", range(5))
async def test_when_the_money_is_nearly_gone_what_it_bought_is_told(most: int) -> None:
    found = await Team(
        [ANN, BOB], supervisor=Supervisor(model=good(plans=[BOTH])), budget=Budget(calls=most), policy=FAST
    ).run(GOAL)
    assert found.spent.calls <= most
    assert len(found.results) == max(0, min(2, most - 1))
    said = str(found.answer)
    if most == 4:
        assert ended(found) == ("complete", "done", 0)
        return
    assert "Allow it more and run it again" in said
    for result, words in (("t1", "There are 7 apples."), ("t2", "Dear customers, yours.")):
        assert (words in said) is (result in found.results)
    assert all(gap.task in said for gap in found.gaps)
    assert ended(found)[1:] == ("budget", 5), "also where only the answer could not be paid for"


async def test_a_run_that_was_called_off_or_waits_is_left_as_it_is() -> None:
    asking = Policy(approve=True)
    found = await Team([ANN], supervisor=Supervisor(model=good()), policy=asking).run(GOAL)
    assert (found.ending, found.answer) == ("needs_input", "Not answered:\n- t1: it is not finished yet")
