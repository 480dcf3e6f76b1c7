"""Several calls of one reply that need leave: each verdict is about its own call, one by one or all at once."""

from typing import Literal

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, refused_calls, team

WANTED = ("Ott", "Lehm", "Ute")
Word = Literal["approve", "reject"]


class Bank:
    """A clerk that wants to pay three suppliers in one reply, and what was paid."""

    def __init__(self, *names: str) -> None:
        self.paid: list[str] = []
        self.last = ""
        wanted = [call("pay", nth, supplier=name) for nth, name in enumerate(names or WANTED, 1)]

        @tool(effect="effect", quick=True, approve=True)
        def pay(supplier: str) -> str:
            """Pay a supplier."""
            self.paid.append(supplier)
            return f"{supplier} was paid"

        @tool(quick=True)
        def look() -> str:
            """Look at the bills."""
            return "three bills"

        def clerk(request: Request) -> Line:
            if request.messages[-1].role != "tool":
                return calls(call("look", 9), *wanted)
            self.last = "\n".join(one.text for one in request.messages if one.role == "tool")
            return "Done."

        worker = Worker("ann", tools=[pay, look])
        self.script = model(work=clerk)
        self.team = team(self.script, worker)

    async def ask(self) -> Result:
        return await self.team.run("Pay the bills.", run="r")


def others(found: Result) -> tuple[int, ...]:
    """The places of the calls that wait besides the first."""
    assert found.question is not None
    assert found.question.question is not None
    return tuple(one.call for one in found.question.question.also)


async def test_a_question_names_every_call_of_the_reply_that_needs_leave() -> None:
    bank = Bank()
    found = await bank.ask()
    assert found.question is not None
    asked = found.question.question
    assert asked is not None
    assert (asked.call, asked.arguments) == (2, {"supplier": "Ott"}), "the first call needs none"
    assert [(one.call, one.tool, one.arguments) for one in asked.also] == [
        (3, "pay", {"supplier": "Lehm"}),
        (4, "pay", {"supplier": "Ute"}),
    ]


@pytest.mark.parametrize("allowed", range(3))
async def test_verdicts_on_all_of_them_are_each_about_their_own_call(allowed: int) -> None:
    bank = Bank()
    assert others(await bank.ask()) == (3, 4)
    words: list[Word] = ["approve" if place == allowed else "reject" for place in range(3)]
    also = (ev.CallVerdict(4, words[2], "not Ute"), ev.CallVerdict(3, words[1], "not Lehm"))
    found = await bank.team.resume("r", ev.InputAnswered(1, words[0], "not Ott", also=also))
    assert (found.ending, bank.paid) == ("partial", [WANTED[allowed]])
    refused = [{"supplier": name} for place, name in enumerate(WANTED) if place != allowed]
    assert sorted(refused_calls(found), key=str) == sorted((("pay", supplier) for supplier in refused), key=str)
    assert [f"not {name}" in bank.last for name in WANTED] == [word == "reject" for word in words]
    assert len(bank.script.requests) == 3, "it is not asked again what it wants: plan, calls, answer"


async def test_what_is_not_answered_is_asked_about_next() -> None:
    bank = Bank()
    await bank.ask()
    found = await bank.team.resume("r", ev.InputAnswered(1, "reject", also=(ev.CallVerdict(4, "approve"),)))
    assert (found.ending, others(found), bank.paid) == ("needs_input", (), [])
    assert found.question is not None
    assert "Lehm" in found.question.text
    found = await bank.team.resume("r", ev.InputAnswered(2, "reject"))
    assert (found.ending, bank.paid) == ("partial", ["Ute"])
    assert refused_calls(found) == [("pay", {"supplier": "Ott"}), ("pay", {"supplier": "Lehm"})]


@pytest.mark.parametrize(
    "answers",
    [
        (ev.InputAnswered(1, "approve", also=(ev.CallVerdict(1, "approve"),)),),
        (ev.InputAnswered(1, "approve", also=(ev.CallVerdict(2, "approve"),)),),
        (ev.InputAnswered(1, "approve", also=(ev.CallVerdict(3, "approve"), ev.CallVerdict(3, "reject"))),),
        (ev.InputAnswered(2, "approve"),),
        (ev.InputAnswered(2, "reject"), ev.InputAnswered(1, "approve")),
        (ev.InputAnswered(1, "approve"), ev.InputAnswered(2, "approve")),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_and_nothing_is_written(answers: tuple[ev.Event, ...]) -> None:
    bank = Bank()
    before = (await bank.ask()).entries
    with pytest.raises(Refused):
        await bank.team.resume("r", *answers)
    found = await bank.team.resume("r")
    assert (found.ending, bank.paid) == ("needs_input", [])
    assert [one.event for one in found.entries if not isinstance(one.event, ev.RunResumed)] == [
        one.event for one in before
    ]


@pytest.mark.parametrize("call", [2, 3], ids=["the first", "another"])
async def test_a_second_verdict_on_a_call_is_refused_as_that(call: int) -> None:
    bank = Bank()
    await bank.ask()
    also = (ev.CallVerdict(3, "approve"), ev.CallVerdict(call, "reject"))
    with pytest.raises(Refused, match=f"call {call} was given two verdicts; give one for each call"):
        await bank.team.resume("r", ev.InputAnswered(1, "approve", also=also))


async def test_the_same_call_twice_in_a_reply_is_asked_about_once_and_made_once() -> None:
    bank = Bank("Ott", "Ott", "Lehm", "Ott")
    assert others(await bank.ask()) == (4,)
    found = await bank.team.resume("r", ev.InputAnswered(1, "approve", also=(ev.CallVerdict(4, "reject"),)))
    assert (found.ending, bank.paid) == ("partial", ["Ott"])
    assert refused_calls(found) == [("pay", {"supplier": "Lehm"})]


async def test_verdicts_on_calls_of_a_team_inside_are_handed_on_with_the_calls_they_name() -> None:
    bank = Bank()
    journal = MemoryJournal()
    plan = Plan((Task(TaskId("o"), "Have the bills paid.", "in"),), "forward")
    inner = bank.team.as_worker("in", "pays")
    outer = Team([inner], supervisor=Supervisor(model=model(), plan=plan), journal=journal)
    assert others(await outer.run("Pay.", run="r")) == (3, 4)
    also = (ev.CallVerdict(4, "approve"), ev.CallVerdict(3, "reject"))
    found = await outer.resume("r", ev.InputAnswered(1, "reject", also=also))
    assert (found.ending, bank.paid) == ("partial", ["Ute"])
    assert refused_calls(found) == [("pay", {"supplier": "Ott"}), ("pay", {"supplier": "Lehm"})]
