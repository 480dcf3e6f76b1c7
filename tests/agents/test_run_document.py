"""The run document: each state of a run, and what it asks, as every API tells it."""

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.run_document import RunDocument, describe_question, read_document
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import EarlierCall, PendingCall, Question
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.journal.memory import MemoryJournal
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.agents.test_pending_calls import Bank

ONE_TASK = Plan((Task(TaskId("t1"), "Say something.", "ann"),), "forward")
"""A plan of one task, whose result is the answer."""


def team_that_says(line: str, *, plan: Plan = ONE_TASK, budget: Budget | None = None, approve: bool = False) -> Team:
    model = ScriptedModel(lambda _: line)
    supervisor = Supervisor(plan=plan, model=model)
    return Team(
        [Worker("ann", model=model)],
        supervisor=supervisor,
        budget=budget or Budget(),
        policy=Policy(approve=approve),
        journal=MemoryJournal(),
    )


async def document_of(team: Team) -> RunDocument:
    result = await team.run("Do it.", run="r")
    return read_document("r", replay(result.entries))


async def test_a_complete_run_has_an_answer_and_no_reason_in_words() -> None:
    document = await document_of(team_that_says("The shed is blue."))
    assert (document.state, document.reason, document.why) == ("complete", "done", "")
    assert (document.answer, document.gaps, document.question) == ("The shed is blue.", (), None)
    assert document.calls == 1


async def test_a_run_out_of_budget_names_the_cap() -> None:
    tasks = tuple(Task(TaskId(name), "Say something.", "ann") for name in ("t1", "t2"))
    document = await document_of(team_that_says("Blue.", plan=Plan(tasks, "forward"), budget=Budget(calls=1)))
    assert (document.state, document.reason) == ("partial", "budget")
    assert document.cap is not None
    assert document.why == document.cap.describe()


async def test_a_question_lists_all_calls_and_says_them_in_words() -> None:
    bank = Bank()
    result = await bank.ask()
    document = read_document("r", replay(result.entries))
    question = document.question
    assert document.state == "needs_input"
    assert question is not None
    assert [call.arguments for call in question.calls] == [{"supplier": name} for name in ("Ott", "Lehm", "Ute")]
    assert question.verdicts == ("approve", "reject")
    for nth, name in enumerate(("Ott", "Lehm", "Ute"), 1):
        line = next(line for line in question.message.splitlines() if name in line)
        assert line.startswith(f"{nth} of 3 (call {nth + 1})")
    assert "wanted by ann" in question.message


async def test_a_cancelled_run_says_why_and_who_cancelled_it() -> None:
    bank = Bank()
    await bank.ask()
    result = await bank.team.resume("r", ev.CancelRequested("wrong supplier", by="laptop"))
    document = read_document("r", replay(result.entries))
    assert (document.state, document.reason) == ("cancelled", "cancelled")
    assert document.why == "cancelled: wrong supplier (by laptop)"


async def test_a_plan_that_waits_is_listed() -> None:
    question = (await document_of(team_that_says("Blue.", approve=True))).question
    assert question is not None
    assert (question.what, question.calls, question.plan) == ("plan", (), ("t1 (ann): Say something.",))
    assert "- t1 (ann): Say something." in question.message


def test_a_repeated_call_is_told_with_the_earlier_one_and_its_result() -> None:
    earlier = EarlierCall("pay", {"to": "Ott"}, "receipt 7", at=1_700_000_000.0, run="r1", task=TaskId("t1"))
    question = Question(tool="pay", arguments={"to": "Ott"}, because="repeated", call=1, earlier=earlier)
    message = describe_question(ev.InputRequested(1, "tool", TaskId("t1"), text="pay(Ott)", question=question))
    assert (
        'it repeats pay with {"to":"Ott"} of task t1 in run r1 at 2023-11-14 22:13:20 UTC, which returned "receipt 7"'
        in message
    )


def test_effects_in_doubt_are_told_with_their_keys() -> None:
    other = PendingCall(call=2, text="mail(Bob)", tool="mail", key="k2")
    question = Question(what="effect", tool="pay", arguments={"to": "Ott"}, key="k1", also=(other,))
    message = describe_question(ev.InputRequested(1, "effect", TaskId("t1"), text="pay(Ott)", question=question))
    assert message.splitlines() == [
        "The outcome of these 2 calls is unknown; a person must say what happened to each:",
        '1 of 2 (call 1): pay({"to":"Ott"})',
        "  its idempotency key: k1",
        "2 of 2 (call 2): mail(Bob)",
        "  its idempotency key: k2",
    ]
