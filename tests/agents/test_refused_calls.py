"""Calls that a person refused stand in the result, whatever a model says of them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import Struct

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.request_facts import Answering, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import ToolFailed, tool
from tests.agents.crowd import call, calls, model, of_kind, plan, refused_calls, team
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


# --- the text of the answer, and those who work from a result


NOTE = ("Write to Ott what was paid.", "bob", ("t1",))


class Letter(Struct):
    text: str


PAYS = ("Pay the carpenter named Ott.", "ann", ())
CITED = "Ott was paid 120 euros [t1]."
TOLD = 'Not answered:\n- t1: a person did not allow pay({"to":"Ott"}): too dear'


class Office:
    """A task whose call is refused and whose worker claims it, and one that works from its result.

    Args:
        merging: how the results become the answer.
        more: options of the team.
    """

    def __init__(self, merging: str = "merge", *, tasks: int = 2, **more: Any) -> None:
        desk = Desk()

        def work(request: Request) -> Line:
            if "Write to Ott" in request.messages[1].text:
                return "The letter says what [t1] says: Ott was paid."
            return by_step(pay_to("Ott"), "I paid Ott 120 euros, says t1.")(request)

        def answer(request: Request) -> Line:
            return CITED if request.schema is None else '{"text": "Ott was paid [t1]."}'

        self.desk = desk
        self.script = model(plans=[plan(*(PAYS, NOTE)[:tasks], combine=merging)], work=work, answer=answer)
        workers = (Worker("ann", tools=[desk.pay]), Worker("bob"))
        self.team = team(self.script, *workers, policy=QUICK, **more)

    async def refuse(self) -> Result:
        return await answered(self.team, "reject", why="too dear")


@pytest.mark.parametrize("combine", ["merge", "reduce", "forward", "select", "vote"])
async def test_an_answer_that_cites_the_task_of_a_refused_call_says_that_it_was_refused(combine: str) -> None:
    found = await Office(combine).refuse()
    assert isinstance(found.answer, str)
    assert "[t1]" in found.answer
    assert found.answer.count(TOLD) == 1


async def test_a_forwarded_result_that_names_its_own_task_says_that_its_call_was_refused() -> None:
    found = await Office("forward", tasks=1).refuse()
    assert str(found.answer).startswith(f"I paid Ott 120 euros, says t1.\n\n{TOLD}")


async def test_the_words_of_a_refusal_are_not_said_twice() -> None:
    told = TOLD.removeprefix("Not answered:\n- t1: ")
    desk = Desk()
    script = model(work=by_step(pay_to("Ott"), f"Not paid: {told}."))
    found = await answered(team(script, Worker("ann", tools=[desk.pay]), policy=QUICK), "reject", why="too dear")
    assert str(found.answer).count("did not allow") == 1


def worked(script: ScriptedModel, instruction: str) -> list[Request]:
    """Return the requests of the worker whose task has these words."""
    asked = [request for request in script.requests if isinstance(request.subject, Working)]
    return [request for request in asked if instruction in request.messages[1].text]


def paid_to(_goal: str, _results: dict[str, object], _gaps: Sequence[ev.Gap]) -> str:
    return CITED


async def test_the_text_of_a_function_that_answers_says_that_a_call_was_refused() -> None:
    found = await Office(combine=paid_to).refuse()
    assert str(found.answer) == f"{CITED}\n\n{TOLD}"


async def test_an_answer_in_a_format_has_the_refused_call_below_it() -> None:
    found = await Office(output=Letter).refuse()
    [written] = of_kind(found.entries, ev.AnswerWritten)
    assert isinstance(written, ev.AnswerWritten)
    assert found.answer == {"text": "Ott was paid [t1]."}
    assert [section.text for section in written.sections if section.kind == "gaps"] == [TOLD]


async def test_a_task_that_works_from_a_result_is_told_which_call_of_it_was_refused() -> None:
    office = Office()
    found = await office.refuse()
    [prompt] = worked(office.script, "Write to Ott")
    assert "I paid Ott 120 euros" in prompt.messages[1].text
    assert "Missing: a call of t1 (refused)" in prompt.messages[1].text
    assert 'a person did not allow pay({"to":"Ott"}): too dear' in prompt.messages[1].text
    assert set(found.results) == {"t1", "t2"}, "it runs all the same"


async def test_a_result_made_with_a_refused_call_before_it_is_not_reused_once_the_call_was_made() -> None:
    office = Office()
    first = await office.refuse()
    assert (await fork(office.team)).ending == "needs_input"
    second = await office.team.resume("r2", "approve")
    assert (refused_calls(second), second.results[TaskId("t1")]) == ([], first.results[TaskId("t1")])
    assert len(worked(office.script, "Write to Ott")) == 2


async def test_the_writer_is_told_of_a_refused_call_once() -> None:
    office = Office()
    await office.refuse()
    [prompt] = [request for request in office.script.requests if isinstance(request.subject, Answering)]
    assert prompt.messages[1].text.count("did not allow") == 1


async def test_each_item_of_a_list_is_told_of_the_refused_call_behind_its_element() -> None:
    desk = Desk()
    tasks = (
        Task(TaskId("t1"), "Pay the carpenter named Ott.", "ann"),
        Task(TaskId("t2"), "Write a letter to each.", "bob", for_each=TaskId("t1")),
    )

    def work(request: Request) -> Line:
        if "Write a letter" in request.messages[1].text:
            return "Written."
        return by_step(pay_to("Ott"), '["Ott", "Ute"]')(request)

    script = model(work=work)
    supervisor = Supervisor(model=script, plan=Plan(tasks, "forward"))
    workers = [Worker("ann", tools=[desk.pay], model=script, output=list[str]), Worker("bob", model=script)]
    executor = Team(workers, supervisor=supervisor, policy=QUICK, journal=MemoryJournal())
    found = await answered(executor, "reject", why="too dear")
    prompts = worked(script, "Write a letter")
    assert len(prompts) == 2, found.gaps
    assert all("a person did not allow" in prompt.messages[1].text for prompt in prompts)


@pytest.mark.parametrize("failed", [False, True])
async def test_a_call_refused_in_a_nested_team_is_told_to_the_next_task_and_in_the_answer(*, failed: bool) -> None:
    desk, journal = Desk(), MemoryJournal()
    inner = team(model(work=by_step(pay_to("Ott"), "Ott was paid.")), Worker("ann", tools=[desk.pay]), journal=journal)
    tasks = (
        Task(TaskId("t1"), "Have Ott paid now.", "payer"),
        Task(TaskId("t2"), "Write to Ott what was paid.", "bob", after=(TaskId("t1"),)),
    )
    script = model(work=["Ott was paid, says t1."], answer="" if failed else CITED)
    supervisor = Supervisor(model=script, plan=Plan(tasks, "merge"))
    members = [inner.as_worker("payer", "pays"), Worker("bob", model=script)]
    outer = Team(members, supervisor=supervisor, name="outer", policy=QUICK, journal=journal)
    found = await answered(outer, "reject", why="too dear")
    [prompt] = worked(script, "Write to Ott")
    assert "Missing: a call of t1 (refused)" in prompt.messages[1].text
    assert 'did not allow pay({"to":"Ott"})' in str(found.answer)


async def test_a_refusal_does_not_reach_back_to_an_equal_call_that_failed_before_it() -> None:
    asked: list[int] = []

    @tool(effect="effect", quick=True)
    def mail(to: str) -> str:
        """Mail somebody."""
        raise ToolFailed("the box is full")

    def work(request: Request) -> Line:
        asked.append(len(request.messages))
        tries = sum(message.role == "tool" for message in request.messages)
        return calls(call("mail", to="Ott")) if tries < 2 else "Not mailed."

    executor = team(model(work=work), Worker("ann", tools=[mail]))
    found = await answered(executor, "reject")
    assert (found.ending, len(asked)) == ("partial", 3), "the model is asked once for each reply"
