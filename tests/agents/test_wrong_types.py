"""A value of the wrong kind is named in words, with what to write instead."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from chargehand import Budget, Supervisor, Team, Worker, tool, tool_from_schema
from chargehand.engine.policy import Limits, Retry
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Settings


def stock(product: str) -> int:
    """How many of a product are in stock."""
    return len(product)


LOOSE_WORKER: Any = Worker
LOOSE_TEAM: Any = Team
LOOSE_SUPERVISOR: Any = Supervisor
LOOSE_BUDGET: Any = Budget
LOOSE_TOOL: Any = tool
LOOSE_SCHEMA: Any = "x"
ANN = Worker("ann")
TEAM = LOOSE_TEAM([ANN])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LOOSE_WORKER("ann", tools=stock), "Worker 'ann': tools is a function; write a list of Tool(...)"),
        (lambda: LOOSE_WORKER("ann", tools="chart"), "Worker 'ann': tools is 'chart'; write a list of Tool(...)"),
        (lambda: LOOSE_WORKER("ann", steps="3"), "Worker 'ann': steps is '3'; write a whole number"),
        (lambda: LOOSE_WORKER("ann", steps=True), "Worker 'ann': steps is True; write a whole number"),
        (lambda: LOOSE_WORKER("ann", model=5), "Worker 'ann': model is 5; write a handle such as"),
        (
            lambda: Worker("ann", concurrency=-3),
            "Worker 'ann': concurrency is -3; write a whole number from 0 to 10000",
        ),
        (lambda: Worker("ann", steps=0), "Worker 'ann': steps is 0; write a whole number from 1 to 10000"),
        (lambda: Worker("ann", every=0), "Worker 'ann': every is 0; write a whole number from 1 to 10000"),
        (lambda: Retry(attempts=0), "Retry: attempts is 0; write a whole number from 1"),
        (lambda: Limits(width=0), "Limits: width is 0; write a whole number from 1"),
        (lambda: Settings(temperature=math.nan), "Settings: temperature is nan; write a number from 0 to 2"),
        (
            lambda: tool_from_schema("x", "", LOOSE_SCHEMA, stock),
            "schema is 'x'; write the JSON Schema of its arguments as",
        ),
        (lambda: Team([Worker("a b")]), "'a b' is no name for a worker; use up to 64 letters"),
        (lambda: LOOSE_TEAM(Worker("ann")), "workers is a Worker; write a list of workers: [Worker("),
        (lambda: LOOSE_TEAM([ANN], budget={"usd": 1}), "budget is {'usd': 1}; write Budget(...)"),
        (lambda: LOOSE_TEAM([ANN], memory="m.db"), "memory is 'm.db'; write Memory(...)"),
        (lambda: LOOSE_TEAM([ANN], policy={"approve": True}), "policy is {'approve': True}; write Policy(...)"),
        (lambda: LOOSE_SUPERVISOR(plan="do it"), "plan is 'do it'; write Plan(...)"),
        (lambda: LOOSE_TEAM([ANN], checks=["x"]), "checks is ['x']; write checks by name"),
        (lambda: LOOSE_TEAM([ANN], journal=5), "journal is 5; write a journal, or its URL or file"),
        (lambda: LOOSE_TEAM([ANN], on_approval="yes"), "on_approval is 'yes'; write a function"),
        (lambda: LOOSE_SUPERVISOR(combine="merg"), "combine is 'merg'; write 'merge', 'select', 'vote'"),
        (lambda: LOOSE_SUPERVISOR(combine="merg"), "or a function; did you mean 'merge'?"),
        (lambda: LOOSE_TEAM([ANN], timeout=None), "timeout is None; write a duration such as 90"),
        (lambda: LOOSE_BUDGET(calls=2.5), "Budget: calls is 2.5; write a whole number"),
        (lambda: TEAM.run_sync(12), "goal is 12; write what is to be done, in words"),
        (lambda: TEAM.run_sync(b"Count"), "goal is b'Count'; write what is to be done"),
        (lambda: TEAM.run_sync("Count", run=5), "run_sync: run is 5; write text"),
        (lambda: TEAM.resume_sync(TEAM, True), "run is a Team; write the name of a run: result.run"),
        (lambda: TEAM.resume_sync("x", 1), 'answers is 1; write "approve", "reject: why", True or False'),
        (lambda: TEAM.resume_sync("x", None), 'answers is None; write "approve"'),
        (lambda: TEAM.resume_sync("x", ["approve"]), "answers is ['approve']; write"),
        (lambda: TEAM.resume_sync("x", {"1": "approve"}), 'each by its number, as in {1: "approve"}'),
        (lambda: TEAM.resume_sync("x", reason="no"), "the reason 'no' belongs to no answer"),
        (lambda: LOOSE_TOOL(effect="efect"), "tool: effect is 'efect'; write 'read', 'idempotent', 'effect'; did you"),
        (lambda: LOOSE_TOOL(effect="write"), "effect is 'write'; write 'read', 'idempotent', 'effect'"),
        (lambda: LOOSE_TOOL(effect=""), "effect is ''; write"),
        (lambda: LOOSE_TOOL(effect=None), "effect is None; write"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(Invalid, match=re.escape(words)):
        make()


def test_what_fits_a_declared_type_is_taken() -> None:
    assert LOOSE_WORKER("ann", output=list[int], timeout="5m", tags=("a",), seconds=3).tags == ("a",)
    assert LOOSE_TEAM(
        [ANN], supervisor=Supervisor(combine=len), checks={"a": list[int], "b": {"type": "string"}}, timeout=5
    )
    assert LOOSE_BUDGET(usd=1, calls=2).usd == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_every_call_of_a_model_that_reports_no_usage_is_counted(workers: int) -> None:
    calls = 0

    async def model(messages: list[Message]) -> str:
        nonlocal calls
        calls += 1
        return "hello"

    team = Team([Worker(f"w{number}", "says things") for number in range(workers)], supervisor=Supervisor(model=model))
    assert team.run_sync("Say hello").spent.calls == calls > 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: LOOSE_SUPERVISOR("demo"),
            "Supervisor() takes no values without a keyword; write Supervisor(model='demo')",
        ),
        (lambda: LOOSE_BUDGET(5), "Budget() takes no values without a keyword; write Budget(tokens=5)"),
        (lambda: LOOSE_BUDGET(ANN), "Budget() takes no values without a keyword; it takes tokens, usd, calls"),
    ],
)
def test_a_value_without_its_keyword_is_refused_with_the_keyword(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        make()
