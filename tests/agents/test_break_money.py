"""Caps that are tried: no run spends more than it may, whatever fails, whoever is asked and whatever nobody knows."""

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Factory, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Settings, Usage
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.models.request_facts import Making, Planning
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team

EXACT = ModelCard("exact", micros_in=1.0, micros_out=1.0)
QUICK = Policy(retry=Retry(base=0.001))
MANY = [(f"Count the apples on shelf {n} of the cellar.", "ann", ()) for n in range(1, 11)]


@tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def worker(request: Request) -> Line:
    rounds = sum(one.role == "assistant" for one in request.messages)
    return calls(call("add", a=rounds, b=1)) if rounds < 3 else "done"


@pytest.mark.parametrize("cap", [*range(14), 20, 30, 44])
async def test_calls_are_never_more_than_the_cap(cap: int) -> None:
    script = model(plans=[plan(*MANY)], work=worker)
    found = await team(script, Worker("ann", tools=[add]), budget=Budget(calls=cap), policy=QUICK).run("Count")
    assert len(script.requests) <= cap
    assert found.spent.calls == len(script.requests)
    assert found.ending != "complete" or cap >= 42


@pytest.mark.parametrize("cap", [0, 1, 4, 5, 12, 40])
async def test_calls_for_making_workers_count_before_they_are_made(cap: int) -> None:
    tasks = [(f"Add {n} and {n} and return the sum.", "factory", ()) for n in range(1, 7)]
    script = model(plans=[plan(*tasks)], work=["done"])
    found = await team(script, factory=Factory([add]), budget=Budget(calls=cap), policy=QUICK).run("Add")
    assert len(script.requests) <= cap
    assert found.spent.calls == len(script.requests)


@pytest.mark.parametrize("cap", [0, 6, 100, 3999, 4000, 20_000, 50_000])
async def test_dollars_are_never_more_than_the_cap_where_prices_are_exact(cap: int) -> None:
    def lines(request: Request) -> Line:
        return (
            plan(*MANY) if isinstance(request.subject, Planning) else worker(request) if request.tools else "The end."
        )

    script = ScriptedModel(lines, usage=Usage(1000, 500), micros=1500, card=EXACT)
    executor = team(
        script,
        Worker("ann", tools=[add], settings=Settings(max_tokens=1500)),
        budget=Budget(usd=cap / 1_000_000),
        policy=QUICK,
    )
    found = await executor.run("Count")
    assert found.spent.micros == 1500 * len(script.requests)
    assert found.spent.micros <= cap


async def test_nothing_is_asked_of_a_supervisor_once_the_money_is_gone() -> None:
    """The price of a handle is known only once it is connected: still no call is made with an empty spending."""
    dear = ScriptedModel(
        lambda request: plan(*MANY[:2]) if isinstance(request.subject, Planning) else "done",
        usage=Usage(10, 10),
        micros=600,
        card=ModelCard("dear", micros_in=0.0001, micros_out=0.0001),
    )
    found = await team(dear, budget=Budget(usd=0.001), policy=QUICK).run("Count")
    assert found.spent.micros <= 1000 + 600
    assert len(dear.requests) <= 2
    assert found.ending in ("failed", "partial")


async def test_an_estimate_stands_in_for_a_price_nobody_knows() -> None:
    def lines(request: Request) -> Line:
        return plan(*MANY) if isinstance(request.subject, Planning) else "done"

    unknown = ScriptedModel(lines, usage=Usage(5, 5), card=ModelCard("mystery"))
    executor = team(
        model(plans=[plan(*MANY)], card=ModelCard("free", micros_in=0.0, micros_out=0.0)),
        Worker("ann", model=unknown, estimate=Amount(micros=100)),
        budget=Budget(usd=0.00035),
        policy=QUICK,
    )
    found = await executor.run("Count")
    assert len(unknown.requests) == 3
    assert found.reason == "budget"


async def test_a_floor_stands_in_for_what_a_supervisor_costs() -> None:
    unknown = ScriptedModel(
        lambda request: plan(*MANY[:2]) if isinstance(request.subject, Planning) else "done",
        usage=Usage(5, 5),
        micros=40,
        card=ModelCard("mystery"),
    )
    worker = Worker("ann", estimate=Amount(micros=40))
    found = await team(unknown, worker, budget=Budget(usd=0.00013, floor=Amount(micros=40)), policy=QUICK).run("Count")
    assert (found.ending, len(found.results), found.spent.micros) == ("partial", 1, 120)
    assert found.answer


@pytest.mark.parametrize("cap", [Budget(usd=0.0), Budget(usd=1e-06), Budget(usd=1.0, tokens=10**6, calls=50)])
async def test_what_is_free_runs_under_any_cap_in_dollars(cap: Budget) -> None:
    executor = Team([Worker("ann", "doubles numbers", tools=[double])], budget=cap)
    found = await executor.run("Double the number 4.")
    assert found.ending == "complete"
    assert found.spent.micros == 0


async def test_usage_nobody_reports_is_charged_as_reserved() -> None:
    def lines(request: Request) -> Line:
        return plan(*MANY) if isinstance(request.subject, Planning) else "done"

    silent = ScriptedModel(lines, card=EXACT)
    found = await team(silent, budget=Budget(usd=0.01, calls=100), policy=QUICK).run("Count")
    assert {gap.reason for gap in found.gaps} == {"budget"}
    assert 0 < found.spent.micros <= 10_000


async def test_failed_calls_are_paid_for() -> None:
    dead = ModelFailed(Failure("network", "the line is dead"), Usage(100, 50))
    planner = ScriptedModel([dead, plan(*MANY[:1], combine="forward")], usage=Usage(10, 5), micros=15, card=EXACT)
    first = ScriptedModel([dead], card=EXACT, handle="first")
    second = ScriptedModel(["done"], usage=Usage(10, 5), micros=15, card=EXACT)
    found = await team(
        model(card=EXACT),
        Worker("ann", model=first, fallback_models=[second]),
        planner=planner,
        budget=Budget(usd=1.0),
        policy=QUICK,
    ).run("Count")
    assert found.ending == "complete"
    assert found.spent == Amount(150 + 15 + 150 + 15, 150 + 15 + 150 + 15, 4)


async def test_what_a_dear_second_model_may_cost_is_reserved() -> None:
    cheap = model(card=ModelCard("cheap", micros_in=0.0, micros_out=0.0))
    dear = model(card=ModelCard("dear", micros_in=100.0, micros_out=100.0))
    found = await team(cheap, Worker("ann", fallback_models=[dear]), budget=Budget(usd=1000.0)).run("Count")
    (step,) = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
    assert step.reserve is not None
    assert step.reserve.micros > 100_000


async def test_tokens_are_counted_for_models_without_a_price() -> None:
    script = ScriptedModel(
        lambda request: plan(*MANY[:1]) if isinstance(request.subject, Planning) else "done",
        usage=Usage(10, 5),
        card=ModelCard("mystery"),
    )
    found = await team(script).run("Count")
    assert found.spent == Amount(45, 0, 3)


def spending(found: Result) -> list[int]:
    return [
        one.used.calls
        for one in of_kind(found.entries, ev.StepFinished)
        if isinstance(one, ev.StepFinished) and one.used
    ]


@pytest.mark.parametrize("cap", [3, 5, 9, 100])
async def test_a_crash_does_not_open_a_new_purse(cap: int) -> None:
    script = model(plans=[plan(*MANY[:3])], work=worker)
    whole = await team(script, Worker("ann", tools=[add]), budget=Budget(calls=cap), policy=QUICK).run("Count", run="r")
    assert sum(spending(whole)) <= cap
    for at in range(1, len(whole.entries)):
        journal = MemoryJournal()
        lease = await journal.claim("r", new=True)
        await journal.append(lease, whole.entries[:at])
        await journal.release(lease)
        again = model(plans=[plan(*MANY[:3])], work=worker)
        executor = team(again, Worker("ann", tools=[add]), budget=Budget(calls=cap), policy=QUICK, journal=journal)
        found = await executor.resume("r")
        assert found.spent.calls <= cap, at


async def test_making_a_worker_that_fails_is_paid_for() -> None:
    def lines(request: Request) -> Line:
        if isinstance(request.subject, Planning):
            return plan(("Add 1 and 2 and return the sum.", "factory", ()))
        return Failure("network", "dead") if isinstance(request.subject, Making) else "x"

    script = ScriptedModel(lines, usage=Usage(1, 1), micros=2, card=EXACT)
    found = await team(script, factory=Factory([add]), budget=Budget(calls=3), policy=QUICK).run("Add")
    assert len(script.requests) <= 3
    assert found.ending == "failed"
