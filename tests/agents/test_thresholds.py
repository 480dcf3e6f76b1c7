"""Calls above a threshold wait for a person, and the others do not; what was decided stays decided."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chargehand import Caller, Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool
from chargehand.agents.result import Result
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line
from chargehand.tools.rules import RequiresApproval, ToolRule
from chargehand.tools.tool import Tool
from tests.config.files import write

PLAN = Plan((Task("t1", "Pay the bills.", "clerk"),), "forward")


class Bank:
    """Pays, and says what it paid."""

    def __init__(self) -> None:
        self.paid: list[float] = []

    def tool(self, **settings: Any) -> Tool:
        @tool(effect="effect", trusted=True, **settings)
        def pay(euros: float, to: str = "Ott") -> str:
            """Pay a supplier."""
            self.paid.append(euros)
            return f"{to} got {euros}"

        return pay


def paying(*steps: Sequence[float]) -> Callable[[Request], Line]:
    """A model that asks for these payments, step by step."""

    def think(request: Request) -> Line:
        done = sum(message.role == "assistant" for message in request.messages)
        if done == len(steps):
            return "Paid."
        calls = [ToolCall(f"{done}.{n}", "pay", json.dumps({"euros": euros})) for n, euros in enumerate(steps[done])]
        return Reply(calls=tuple(calls), finish="tools")

    return think


def team(pay: Tool, think: Callable[[Request], Line], rules: Sequence[ToolRule] = (), **more: Any) -> Team:
    clerk = Worker("clerk", "pays", tools=[pay], rules=rules, model=ScriptedModel(think))
    return Team([clerk], supervisor=Supervisor(plan=PLAN), **more)


def asked(result: Result) -> list[object]:
    question = result.question
    return [] if question is None else [call.arguments for call in question.calls]


def above(limit: float) -> Callable[..., bool]:
    def decide(euros: float) -> bool:
        return euros > limit

    return decide


@pytest.mark.parametrize("written", ["function", "conditions", "rule"])
def test_only_the_calls_above_the_threshold_are_asked_about(written: str) -> None:
    bank = Bank()
    settings = {"function": {"approve": above(500)}, "conditions": {"approve": {"euros": "> 500"}}, "rule": {}}
    rules = [RequiresApproval("pay", {"euros": "> 500"})] if written == "rule" else []
    desk = team(bank.tool(**settings[written]), paying([20], [30, 501, 502]), rules, journal=MemoryJournal())
    result = desk.run_sync("Pay.", run="r")
    assert result.ending == "needs_input"
    assert asked(result) == [{"euros": 501}, {"euros": 502}]
    assert bank.paid == [20]
    result = desk.resume_sync("r", ev.InputAnswered(1, "approve", also=(ev.CallVerdict(3, "approve"),)))
    assert result.ending == "complete"
    assert sorted(bank.paid) == [20, 30, 501, 502]


@pytest.mark.parametrize("fault", [lambda: 1 / 0, lambda: None, lambda: "no", lambda: 0])
def test_a_function_that_does_not_decide_asks(fault: Callable[[], object]) -> None:
    def broken(euros: float) -> bool:
        return fault()  # pyright: ignore[reportReturnType] - a mistake of the user

    bank = Bank()
    result = team(bank.tool(approve=broken), paying([20])).run_sync("Pay.")
    assert (result.ending, asked(result), bank.paid) == ("needs_input", [{"euros": 20}], [])
    notes = [entry.event.text for entry in result.entries if isinstance(entry.event, ev.Noted)]
    assert any("whether pay needs approval could not be decided, so a person is asked" in note for note in notes)


def test_what_was_decided_before_a_call_holds_when_the_run_goes_on() -> None:
    times: list[float] = []

    def changing(euros: float) -> bool:
        """Ask about the second of two calls; asked anew, it would say the contrary."""
        times.append(euros)
        return euros == 30 if len(times) <= 2 else euros != 30

    bank = Bank()
    desk = team(bank.tool(approve=changing), paying([20, 30]), journal=MemoryJournal())
    result = desk.run_sync("Pay.", run="r")
    assert (asked(result), bank.paid) == ([{"euros": 30}], [])
    result = desk.resume_sync("r", "reject: too much")
    assert bank.paid == [20]
    assert times == [20, 30]
    assert result.ending != "needs_input"


def test_the_function_is_told_who_calls() -> None:
    callers: list[Caller] = []

    def decide(caller: Caller) -> bool:
        callers.append(caller)
        return False

    bank = Bank()
    assert team(bank.tool(approve=decide), paying([20])).run_sync("Pay.", run="r").ending == "complete"
    ((caller),) = callers
    assert (caller.worker, caller.run, caller.task, bank.paid) == ("clerk", "r", "t1", [20])


TEAM = """
version: 1
name: office
workers:
  clerk:
    description: Pays bills.
    tools: [pay]
    rules: [RULE]
tools:
  pay: {python: "tools:pay", effect: effectAPPROVE}
"""
TOOLS = """
def pay(euros: float, to: str = "Ott") -> str:
    \"\"\"Pay a supplier.\"\"\"
    return f"{to} got {euros}"
"""


@pytest.mark.parametrize(
    ("rule", "approve"),
    [
        ('{requires_approval_when: {tool: pay, when: {euros: "> 500"}}}', ""),
        ("", ', approve: {euros: "> 500"}'),
        ("{requires_approval_when: {tool: pay, when: {to: [Lehm, Ott]}}}", ""),
    ],
)
def test_a_team_file_says_which_calls_need_approval(tmp_path: Path, rule: str, approve: str) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    written = load_team(write(tmp_path, TEAM.replace("[RULE]", f"[{rule}]").replace("APPROVE", approve)))
    (clerk,) = written.spec.workers
    (pay,) = clerk.tools
    assert isinstance(pay, Tool)
    for euros in (20, 501):
        needs_input = "needs_input" if euros == 501 or "Lehm" in rule else "complete"
        assert team(pay, paying([euros]), clerk.rules).run_sync("Pay.").ending == needs_input


@pytest.mark.parametrize(
    ("rule", "approve", "words"),
    [
        (
            '{requires_approval_when: {tool: pay, when: {euro: "> 500"}}}',
            "",
            "workers.clerk.rules: 'pay' has no argument 'euro'; did you mean 'euros'?",
        ),
        (
            '{requires_approval_when: {tool: pay, when: {euros: "> much"}}}',
            "",
            "workers.clerk.rules: euros: '> much' compares with 'much', which is no number; use == or in for texts",
        ),
        (
            '{requires_approval_when: {tool: pay, when: {to: "not in (Ott, Lehm)"}}}',
            "",
            "workers.clerk.rules: to: 'not in (Ott, Lehm)' begins like an operator and is none; write one of '> 500'",
        ),
        (
            "",
            ', approve: {to: "notin [Ott]"}',
            "tools.pay: to: 'notin [Ott]' begins like an operator and is none; write one of '> 500'",
        ),
        (
            "",
            ", approve: {to: 5}",
            "tools.pay: a condition on 'pay' can never be decided: to must be string, not a number",
        ),
    ],
)
def test_a_condition_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, rule: str, approve: str, words: str
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    with pytest.raises(Invalid) as caught:
        load_team(write(tmp_path, TEAM.replace("[RULE]", f"[{rule}]").replace("APPROVE", approve)))
    assert words in str(caught.value)
