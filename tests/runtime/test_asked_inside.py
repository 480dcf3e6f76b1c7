"""A question of a team inside another is one of the outer run: asked there, answered there, acted on once."""

from collections.abc import Callable, Sequence
from typing import Literal

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import Refused
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, refused_calls

Verdict = Literal["approve", "reject", "done", "again", "fail"]
PLAN = Plan((Task(TaskId("o"), "Have the bill paid now.", "in"),), "forward")


class Bank:
    """Teams inside each other, of which the innermost pays; and what was paid."""

    def __init__(
        self,
        levels: int = 1,
        journal: MemoryJournal | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        work: Callable[[Request], Line] | None = None,
    ) -> None:
        self.paid: list[tuple[str, int]] = []
        self.journal = journal or MemoryJournal()

        @tool(effect="effect", approve=True)
        def pay(supplier: str, euros: int) -> str:
            """Pay a supplier."""
            self.paid.append((supplier, euros))
            if self.cut_off:
                raise ConnectionResetError("the line went dead")
            return f"paid {supplier}"

        self.cut_off = False
        bill = Plan((Task(TaskId("bill"), "Pay Ott 120 euros now.", "clerk"),), "forward")
        clerk = Worker("clerk", "pays", tools=[pay])
        team = Team(
            [clerk],
            supervisor=Supervisor(model=model(work=work or _pays), plan=bill),
            name="inner",
            policy=policy or Policy(),
            journal=self.journal,
        )
        for level in range(levels - 1):
            plan = Plan((Task(TaskId("m"), "Have the bill paid now.", f"in{level}"),), "forward")
            inner = team.as_worker(f"in{level}", "pays")
            team = Team(
                [inner], supervisor=Supervisor(model=model(), plan=plan), name=f"middle{level}", journal=self.journal
            )
        self.outer = Team(
            [team.as_worker("in", "pays")],
            supervisor=Supervisor(model=model(), plan=PLAN),
            journal=self.journal,
            budget=budget or Budget(),
        )

    async def answered(self, found: Result, verdict: Verdict, feedback: str = "", knows: object = None) -> Result:
        assert found.question is not None
        answer = ev.InputAnswered(found.question.number, verdict, feedback, result=knows)
        return await self.outer.resume("r", answer)


def _pays(request: Request) -> Line:
    last = request.messages[-1]
    return f"I heard: {last.text}" if last.role == "tool" else calls(call("pay", supplier="Ott", euros=120))


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_a_call_inside_is_asked_about_outside_with_who_wants_what(levels: int) -> None:
    bank = Bank(levels)
    found = await bank.outer.run("Pay.", run="r")
    assert (found.ending, bank.paid) == ("needs_input", [])
    assert found.question is not None
    asked = found.question.question
    assert asked is not None
    assert (found.question.what, found.question.task, asked.tool) == ("tool", "o", "pay")
    assert asked.arguments == {"supplier": "Ott", "euros": 120}
    middle = [f"in{level}" for level in reversed(range(levels - 1))]
    assert (asked.workers, asked.task) == (("in", *middle, "clerk"), "bill")
    assert asked.run.count("/") == 4 * levels
    found = await bank.answered(found, "approve")
    assert (found.ending, bank.paid) == ("complete", [("Ott", 120)])


@pytest.mark.parametrize("levels", [1, 2])
async def test_an_answer_to_the_run_inside_is_refused_and_the_outer_one_is_named(levels: int) -> None:
    bank = Bank(levels)
    found = await bank.outer.run("Pay.", run="r")
    assert found.question is not None
    inside = [row.run for row in await bank.journal.runs() if row.run != "r"]
    assert len(inside) == levels
    for run in inside:
        with pytest.raises(Refused, match=rf"run '{run}' works for run 'r.*answer that one"):
            await bank.outer.resume(run, ev.InputAnswered(1, "approve"))
    assert bank.paid == []
    found = await bank.answered(found, "approve")
    assert (found.ending, bank.paid) == ("complete", [("Ott", 120)])


@pytest.mark.parametrize("levels", [1, 2])
async def test_a_call_inside_that_a_person_does_not_allow_is_not_made_and_the_worker_reads_why(levels: int) -> None:
    bank = Bank(levels)
    found = await bank.answered(await bank.outer.run("Pay.", run="r"), "reject", "Ott was paid in April.")
    assert (found.ending, bank.paid) == ("partial", [])
    [gap] = found.gaps
    assert (gap.status, gap.task, gap.tool, gap.arguments) == (
        "refused",
        "o",
        "pay",
        {"supplier": "Ott", "euros": 120},
    )
    assert "Ott was paid in April." in gap.message
    assert "Ott was paid in April." in str(found.answer)


@pytest.mark.parametrize("levels", [1, 2])
async def test_a_team_that_fails_because_a_person_said_no_does_not_ask_again(levels: int) -> None:
    def gives_up(request: Request) -> Line:
        last = request.messages[-1]
        pays = calls(call("pay", supplier="Ott", euros=120))
        return calls(call("give_up", 2, reason="not allowed")) if last.role == "tool" else pays

    bank = Bank(levels, work=gives_up)
    found = await bank.answered(await bank.outer.run("Pay.", run="r"), "reject", "Ott was paid in April.")
    assert (found.ending, bank.paid) == ("failed", [])
    assert "A person did not allow a call of it" in found.gaps[0].message


@pytest.mark.parametrize("levels", [1, 2])
async def test_after_a_crash_anywhere_it_is_paid_once_and_the_question_is_still_there(levels: int) -> None:
    whole = Bank(levels)
    found = await whole.answered(await whole.outer.run("Pay.", run="r"), "approve")
    assert found.ending == "complete"
    written = [(row.run, entry) for row in await whole.journal.runs() for entry in await whole.journal.read(row.run)]
    written.sort(key=lambda each: (each[1].at, each[0], each[1].seq))
    for at in range(1, len(written)):
        kept: dict[str, list[ev.Entry]] = {}
        for run, entry in written[:at]:
            kept.setdefault(run, []).append(entry)
        if "r" not in kept:
            continue
        bank = Bank(levels, await _journal(kept))
        begun = _effects(kept)
        again = bank.outer.resume("r")
        try:
            result = await again
        except Refused:
            assert isinstance(kept["r"][-1].event, ev.RunEnded)
            continue
        if result.question is not None and result.question.what == "effect":
            assert begun, at
            result = await bank.answered(result, "done", knows="paid Ott")
        elif result.question is not None:
            result = await bank.answered(result, "approve")
        assert (result.ending, len(bank.paid) + len(begun)) == ("complete", 1), at


async def _journal(kept: dict[str, list[ev.Entry]]) -> MemoryJournal:
    journal = MemoryJournal()
    for run, entries in kept.items():
        lease = await journal.claim(run, new=True)
        await journal.append(lease, entries)
        await journal.release(lease)
    return journal


def _effects(kept: dict[str, Sequence[ev.Entry]] | dict[str, list[ev.Entry]]) -> list[ev.Event]:
    every = [entry.event for entries in kept.values() for entry in entries]
    return [event for event in every if isinstance(event, ev.StepStarted) and event.effect == "effect"]


async def test_two_questions_inside_are_asked_one_after_the_other() -> None:
    journal = MemoryJournal()
    paid: list[str] = []

    @tool(effect="effect", approve=True)
    def pay(supplier: str) -> str:
        """Pay a supplier."""
        paid.append(supplier)
        return "paid"

    def both(request: Request) -> Line:
        made = sum(one.role == "tool" for one in request.messages)
        return "done" if made == 2 else calls(call("pay", supplier=("Ott", "Lehm")[made]))

    bill = Plan((Task(TaskId("bill"), "Pay both.", "clerk"),), "forward")
    inner = Team([Worker("clerk", tools=[pay])], supervisor=Supervisor(model=model(work=both), plan=bill), name="inner")
    outer = Team([inner.as_worker("in", "pays")], supervisor=Supervisor(model=model(), plan=PLAN), journal=journal)
    found = await outer.run("Pay.", run="r")
    for verdict in ("reject", "approve"):
        assert found.question is not None
        found = await outer.resume("r", ev.InputAnswered(found.question.number, verdict))
    assert (found.ending, paid) == ("partial", ["Lehm"])
    assert refused_calls(found) == [("pay", {"supplier": "Ott"})]


@pytest.mark.parametrize(("verdict", "times"), [("done", 1), ("again", 2), ("fail", 1)])
async def test_what_became_of_an_effect_inside_is_asked_outside(verdict: Verdict, times: int) -> None:
    bank = Bank()
    bank.cut_off = True
    found = await bank.answered(await bank.outer.run("Pay.", run="r"), "approve")
    assert (found.ending, bank.paid) == ("needs_input", [("Ott", 120)])
    assert found.question is not None
    asked = found.question.question
    assert asked is not None
    assert (found.question.what, asked.tool, asked.arguments) == (
        "effect",
        "pay",
        {"supplier": "Ott", "euros": 120},
    )
    bank.cut_off = False
    found = await bank.answered(found, verdict, knows="paid Ott" if verdict == "done" else None)
    assert found.ending == ("failed" if verdict == "fail" else "complete")
    assert len(bank.paid) == times


async def test_the_plan_of_a_team_inside_is_asked_about_outside_and_cannot_be_edited_there() -> None:
    bank = Bank(policy=Policy(approve=True))
    found = await bank.outer.run("Pay.", run="r")
    assert found.question is not None
    assert (found.question.what, found.question.text) == ("plan", "bill (clerk): Pay Ott 120 euros now.")
    with pytest.raises(Refused, match="approve, reject"):
        await bank.outer.resume("r", ev.InputAnswered(1, "edit", plan=PLAN))
    found = await bank.answered(found, "approve")
    assert found.question is not None
    assert found.question.what == "tool"
    found = await bank.answered(found, "approve")
    assert (found.ending, bank.paid) == ("complete", [("Ott", 120)])


async def test_a_capped_team_that_waits_for_a_person_does_not_pass_the_cap() -> None:
    bank = Bank(budget=Budget(calls=20))
    found = await bank.answered(await bank.outer.run("Pay.", run="r"), "approve")
    assert (found.ending, bank.paid) == ("complete", [("Ott", 120)])
    assert found.spent.calls <= 20
