"""Calls that a person refused stand in the result, whatever a model says of them."""

from collections.abc import Callable

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, plan, refused_calls, team
from tests.agents.test_break_resume import APPLES, PEARS, by_step
from tests.agents.test_redoing import fork

OTT = ("pay", {"to": "Ott"})
QUICK = Policy(retry=Retry(base=0.001, ceiling=0.001), tainted_effects="allow")


class Desk:
    """A tool whose calls a person approves, and the payments it made."""

    def __init__(self) -> None:
        self.paid: list[str] = []

        @tool(effect="effect", trusted=True, quick=True, approve=True)
        def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return f"{to} was paid"

        self.pay = pay

    def team(self, work: Callable[[Request], Line]) -> Team:
        return team(model(work=work), Worker("ann", tools=[self.pay]), policy=QUICK)


def pay_to(name: str) -> Line:
    return calls(call("pay", to=name))


async def answered(executor: Team, *words: str, why: str = "") -> Result:
    """Run and answer each question with the next word."""
    found = await executor.run("Count", run="r")
    for word in words:
        assert found.ending == "needs_input"
        found = await executor.resume("r", word, reason=why)
    return found


async def test_a_refused_call_is_a_gap_with_tool_arguments_and_reason() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), "Then not.")), "reject", why="he was paid in April")
    assert (found.ending, found.reason, desk.paid) == ("partial", "gaps", [])
    [gap] = found.gaps
    assert (gap.task, gap.status, gap.reason, gap.tool, gap.arguments) == ("t1", "refused", "person", *OTT)
    assert gap.message == 'a person did not allow pay({"to":"Ott"}): he was paid in April'


async def test_a_model_that_claims_a_refused_call_does_not_hide_it() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), "Ott was paid.")), "reject")
    assert (found.ending, refused_calls(found), desk.paid) == ("partial", [OTT], [])
    assert "did not allow" in str(found.answer)


async def test_a_refused_call_that_is_wanted_again_is_not_asked_about_again() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), pay_to("Ott"), "Ott was paid.")), "reject")
    assert (found.ending, refused_calls(found), desk.paid) == ("partial", [OTT], [])


async def test_a_later_call_for_something_else_does_not_make_a_refused_one_good() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), pay_to("Lehm"), "Paid.")), "reject", "approve")
    assert (found.ending, refused_calls(found), desk.paid) == ("partial", [OTT], ["Lehm"])


async def test_a_call_refused_twice_is_one_gap_for_each_no() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), pay_to("Lehm"), "Then not.")), "reject", "reject")
    assert (found.ending, refused_calls(found)) == ("partial", [OTT, ("pay", {"to": "Lehm"})])


async def test_a_refused_call_stays_a_gap_over_the_next_attempt() -> None:
    desk = Desk()

    def work(request: Request) -> Line:
        if "better" in request.messages[1].text:
            return "Ott was paid."
        return by_step(pay_to("Ott"), "")(request)

    found = await answered(desk.team(work), "reject")
    assert (found.ending, refused_calls(found), desk.paid) == ("partial", [OTT], [])


async def test_refused_calls_of_two_tasks_each_name_their_own() -> None:
    desk = Desk()

    def work(request: Request) -> Line:
        to = "Ott" if "apples" in request.messages[1].text else "Lehm"
        return by_step(pay_to(to), f"{to} was paid.")(request)

    workers = (Worker("ann", tools=[desk.pay]), Worker("bob", tools=[desk.pay]))
    executor = team(model(plans=[plan(APPLES, PEARS)], work=work), *workers, policy=QUICK)
    found = await answered(executor, "reject", "reject")
    assert found.ending == "partial"
    assert {(gap.task, gap.arguments["to"]) for gap in found.gaps} == {("t1", "Ott"), ("t2", "Lehm")}


@pytest.mark.parametrize("levels", [1, 2])
async def test_a_call_refused_in_a_nested_team_is_a_gap_of_the_outer_run(levels: int) -> None:
    desk, journal = Desk(), MemoryJournal()
    script = model(work=by_step(pay_to("Ott"), "Ott was paid."))
    outer = team(script, Worker("ann", tools=[desk.pay]), journal=journal)
    for level in range(levels):
        task = Task(TaskId("o"), "Have Ott paid now.", f"in{level}")
        supervisor = Supervisor(model=model(), plan=Plan((task,), "forward"))
        inner = outer.as_worker(f"in{level}", "pays")
        outer = Team([inner], supervisor=supervisor, name=f"n{level}", journal=journal)
    found = await answered(outer, "reject", why="too dear")
    assert (found.ending, refused_calls(found), desk.paid) == ("partial", [OTT], [])
    assert "too dear" in found.gaps[0].message


async def test_a_question_in_words_that_nobody_answers_is_no_refused_call() -> None:
    ask = calls(call("ask_person", question="Which account?"))
    worker = Worker("ann", tools=["ask_person"])
    executor = team(model(work=by_step(ask, "The usual one.")), worker, policy=QUICK)
    found = await executor.run("Count", run="r")
    assert found.question is not None
    found = await executor.resume("r", ev.InputAnswered(found.question.number, "reject", "I do not know"))
    assert (found.ending, refused_calls(found)) == ("complete", [])


async def test_a_run_that_redoes_the_work_asks_again_about_a_refused_call() -> None:
    desk, journal = Desk(), MemoryJournal()
    script = model(work=by_step(pay_to("Ott"), "Ott was paid."))
    executor = team(script, Worker("ann", tools=[desk.pay]), policy=QUICK, journal=journal)
    assert refused_calls(await answered(executor, "reject")) == [OTT]
    found = await fork(executor)
    assert found.question is not None
    assert (found.ending, found.question.calls[0].because, desk.paid) == ("needs_input", "declared", [])
    assert (await executor.resume("r2", "approve")).ending == "complete"
    assert desk.paid == ["Ott"]


async def test_an_equal_call_is_asked_about_as_a_repeat_with_the_result_of_the_first() -> None:
    desk = Desk()
    found = await answered(desk.team(by_step(pay_to("Ott"), pay_to("Ott"), "Paid twice.")), "approve")
    assert found.question is not None
    [pending] = found.question.calls
    assert (pending.because, pending.text) == ("repeated", 'pay({"to": "Ott"}), for time number 2')
    assert pending.earlier is not None
    assert (pending.earlier.arguments, pending.earlier.result, pending.earlier.task) == (
        {"to": "Ott"},
        "Ott was paid",
        "t1",
    )
    assert desk.paid == ["Ott"]
