"""The run document: each state of a run, and what it asks, as every API tells it."""

import asyncio
from collections.abc import Sequence

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.run_document import CallInDoubt, RunDocument, describe_question, read_document
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import EarlierCall, PendingCall, Question
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, plan, team
from tests.agents.test_break_resume import APPLES, PEARS, by_step
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


QUICK = Policy(retry=Retry(base=0.001, ceiling=0.001))


class Till:
    """Two workers that pay: the payment of one waits for a person, that of the other loses its reply."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

        @tool(effect="effect", trusted=True, quick=True, approve=True)
        def transfer(to: str) -> str:
            """Pay by bank."""
            return f"{to} was paid"

        @tool(effect="effect", trusted=True)
        async def pay(to: str) -> str:
            """Pay in cash."""
            await self.asked.wait()
            raise ConnectionResetError("the line went dead")

        def work(request: Request) -> Line:
            name = "transfer" if "apples" in request.messages[1].text else "pay"
            return by_step(calls(call(name, to="Ott")), "Paid.")(request)

        workers = (Worker("ann", tools=[transfer]), Worker("bob", tools=[pay]))
        self.team = team(model(plans=[plan(APPLES, PEARS)], work=work), *workers, policy=QUICK)

    async def ask(self) -> Sequence[ev.Entry]:
        """Return the entries of a run that asks about the transfer, while the other payment is in doubt."""

        def listen(_run: str, entries: Sequence[ev.Entry]) -> None:
            if any(isinstance(entry.event, ev.InputRequested) for entry in entries):
                self.asked.set()

        return (await self.team.run("Count", run="r", listener=listen)).entries


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


async def test_a_call_in_doubt_that_waits_behind_another_question_is_listed_with_its_key() -> None:
    entries = await Till().ask()
    document = read_document("r", replay(entries))
    started = [entry.event for entry in entries if isinstance(entry.event, ev.StepStarted)]
    key = next(step.key for step in started if step.name == "pay")
    assert document.question is not None
    assert [pending.tool for pending in document.question.calls] == ["transfer"]
    call_in_doubt = CallInDoubt(task=TaskId("t2"), tool="pay", arguments={"to": "Ott"}, key=key, is_asked_next=True)
    assert document.in_doubt == (call_in_doubt,)
    told = f'also in doubt, asked about next: pay({{"to":"Ott"}}) of task t2, its idempotency key: {key}'
    assert document.question.message.splitlines()[-1] == told


async def test_a_call_in_doubt_that_is_asked_about_is_listed_in_the_question_only() -> None:
    till = Till()
    await till.ask()
    result = await till.team.resume("r", "approve")
    document = read_document("r", replay(result.entries))
    assert document.question is not None
    assert [pending.tool for pending in document.question.calls] == ["pay"]
    assert document.in_doubt == ()


async def test_a_call_under_way_is_in_doubt_once_no_process_drives_the_run() -> None:
    entries = await Till().ask()
    failed = next(
        entry.seq for entry in entries if isinstance(entry.event, ev.AttemptFailed) and entry.event.task == "t2"
    )
    state = replay([entry for entry in entries if entry.seq < failed])
    assert [call.tool for call in read_document("r", state).in_doubt] == ["pay"]
    assert read_document("r", state, is_driven=True).in_doubt == ()


async def test_a_cancelled_run_has_its_calls_in_doubt_among_its_gaps() -> None:
    till = Till()
    await till.ask()
    result = await till.team.resume("r", ev.CancelRequested())
    document = read_document("r", replay(result.entries))
    assert document.in_doubt == ()
    assert [(gap.reason, gap.tool) for gap in document.gaps if gap.tool] == [("uncertain", "pay")]
