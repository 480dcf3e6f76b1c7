"""A cap in dollars with a model whose price nobody knows: calls are capped instead, with a warning."""

import logging

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Factory, Supervisor, Worker
from chargehand.agents.spending import PriceUnknown, calls_for
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Usage
from chargehand.models.model import ModelCard
from chargehand.models.prices import flat
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import model
from tests.agents.options import make_team

PRICED = ModelCard("exact", micros_in=1.0, micros_out=1.0)
UNPRICED = ModelCard("mystery")
WARNING = (
    "the price of mystery is unknown, so the budget of $0.50 cannot be kept in dollars; at most 50 calls are made "
    "instead. --price IN/OUT says what it costs"
)
ONE = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")


def mystery() -> ScriptedModel:
    return ScriptedModel(["Three."], repeat=True, usage=Usage(10, 10), card=UNPRICED)


def team(**more: object) -> Team:
    given = {"model": mystery(), "budget": Budget(usd=0.5), "plan": ONE, **more}
    return make_team([Worker("ann")], **given)


def requested(entries: tuple[ev.Entry, ...]) -> ev.RunRequested:
    first = entries[0].event
    assert isinstance(first, ev.RunRequested)
    return first


def notes(entries: tuple[ev.Entry, ...]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, ev.Noted)]


def check(found: Result, caplog: pytest.LogCaptureFixture) -> None:
    assert found.ending == "complete"
    assert requested(found.entries).budget == Budget(calls=50)
    assert any(note.startswith(WARNING) for note in notes(found.entries))
    assert WARNING.removeprefix("the") in found.notice
    logged = [record for record in caplog.records if record.name.startswith("chargehand.")]
    assert any(WARNING in record.getMessage() and record.levelno == logging.WARNING for record in logged)


async def test_a_run_is_warned_about_and_its_calls_are_capped(caplog: pytest.LogCaptureFixture) -> None:
    check(await team().run("Count"), caplog)


def test_a_run_without_a_loop_is_too(caplog: pytest.LogCaptureFixture) -> None:
    check(team().run_sync("Count"), caplog)


async def test_a_stream_is_too() -> None:
    entries = tuple([entry async for entry in team().stream("Count")])
    assert requested(entries).budget == Budget(calls=50)
    assert any(note.startswith(WARNING) for note in notes(entries))


async def test_a_message_and_a_plan_are_too() -> None:
    journal = MemoryJournal()
    asked = team(journal=journal)
    replies = await asked.message("How many?", run="asked")
    assert [reply.text for reply in replies.replies] == ["Three."]
    entries = tuple(await journal.read("asked"))
    assert requested(entries).budget.calls == 50
    assert any(note.startswith(WARNING) for note in notes(entries))
    planner = model(card=UNPRICED)
    drafted = await team(model=planner, plan=None).plan("Count the apples.")
    assert drafted.notes[0].startswith(WARNING)


async def test_the_cap_on_calls_holds() -> None:
    script = mystery()
    many = Plan(tuple(Task(TaskId(f"t{n}"), f"Count shelf {n}.", "ann") for n in range(20)), "none")
    found = await team(model=script, plan=many, budget=Budget(usd=0.02)).run("Count")
    assert len(script.requests) == found.spent.calls == 10
    assert found.ending == "partial"


@pytest.mark.parametrize(("usd", "calls", "most"), [(0.5, None, 50), (0.5, 7, 7), (0.001, None, 10), (3.0, 400, 300)])
async def test_there_is_a_call_for_each_cent_and_ten_at_least(usd: float, calls: int | None, most: int) -> None:
    kept = await team(budget=Budget(usd=usd, calls=calls)).keep_budget()
    assert kept.budget == Budget(calls=most)
    assert calls_for(round(usd * 1_000_000)) >= most


async def test_every_model_that_may_be_called_counts() -> None:
    known = ScriptedModel(["done"], repeat=True, card=PRICED)
    unknown = mystery()
    inner = Team([Worker("bob", model=unknown)], supervisor=Supervisor(model=known), name="inner")
    teams = [
        Team([Worker("ann")], supervisor=Supervisor(model=known, planner=unknown), budget=Budget(usd=1.0)),
        Team([Worker("ann")], supervisor=Supervisor(model=known, judge=unknown), budget=Budget(usd=1.0)),
        Team(
            [Worker("ann")], supervisor=Supervisor(model=known, factory=Factory(model=unknown)), budget=Budget(usd=1.0)
        ),
        Team([Worker("ann", model=unknown)], supervisor=Supervisor(model=known), budget=Budget(usd=1.0)),
        Team([Worker("ann", fallback_models=[unknown])], supervisor=Supervisor(model=known), budget=Budget(usd=1.0)),
        Team([inner.as_worker(description="Counts.")], supervisor=Supervisor(model=known), budget=Budget(usd=1.0)),
    ]
    for one in teams:
        kept = await one.keep_budget()
        assert kept.call_cap is not None
        assert kept.call_cap.models == ("mystery",)
        assert kept.budget == Budget(calls=100)
    estimated = Worker("ann", model=unknown, estimate=Amount(micros=500))
    team_of_estimates = Team([estimated], supervisor=Supervisor(model=known), budget=Budget(usd=1.0))
    assert await team_of_estimates.keep_budget() is team_of_estimates, "an estimate stands in for a price"


async def test_a_team_inside_another_keeps_its_own_cap_in_calls() -> None:
    inner = Team(
        [Worker("bob", model=mystery())],
        supervisor=Supervisor(model=mystery(), plan=Plan((Task(TaskId("t1"), "Count.", "bob"),), "forward")),
        name="inner",
        budget=Budget(usd=0.5),
    )
    outer = Team(
        [inner.as_worker("desk", description="Counts.")],
        supervisor=Supervisor(model=mystery(), plan=Plan((Task(TaskId("t1"), "Count.", "desk"),), "forward")),
        journal=(journal := MemoryJournal()),
    )
    found = await outer.run("Count", run="outer")
    assert found.ending == "complete"
    inside = next(line.run for line in await journal.runs() if line.run != "outer")
    entries = tuple(await journal.read(inside))
    assert requested(entries).budget == Budget(calls=50)
    assert any(note.startswith(WARNING) for note in notes(entries))


async def test_a_price_keeps_the_budget_in_dollars_for_a_model_of_ones_own() -> None:
    async def own(messages: object) -> str:
        return "Three."

    priced = team(model=own).priced(flat(1.0, 2.0))
    found = await priced.run("Count")
    assert requested(found.entries).budget == Budget(usd=0.5)
    assert notes(found.entries) == []
    assert found.spent.micros > 0, "what was reserved is charged where a model does not say what it used"


async def test_a_run_that_waits_goes_on_with_its_cap_on_calls() -> None:
    journal = MemoryJournal()
    asking = team(journal=journal, policy=Policy(approve=True), plan=None, model=model(card=UNPRICED))
    waiting = await asking.run("Count the apples.", run="asked")
    assert waiting.ending == "needs_input"
    found = await asking.resume("asked", "approve")
    assert found.ending == "complete"
    assert requested(found.entries).budget == Budget(calls=50)


async def test_a_run_that_began_with_a_cap_in_dollars_is_not_resumed_without_a_price() -> None:
    journal = MemoryJournal()
    known = team(journal=journal, policy=Policy(approve=True), plan=None, model=model(card=PRICED))
    assert (await known.run("Count the apples.", run="asked")).ending == "needs_input"
    with pytest.raises(PriceUnknown, match="the price of mystery is unknown"):
        await team(journal=journal, model=model(card=UNPRICED)).resume("asked", "approve")


async def test_a_crew_for_a_budget_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(Invalid, match="the price of mystery is unknown"):
        async with team().executor():
            pass


async def test_a_cap_in_dollars_holds_for_a_providers_model_behind_a_gateway_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FaultServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url("ok"))
        paid = await team(model="openai:gpt-5-mini", budget=Budget(usd=0.5)).run("Count.")
        refused = await team(model="openai:gpt-5-mini", budget=Budget(usd=0.000_001)).run("Count.")
    assert paid.ending == "complete"
    assert paid.cost > 0
    assert requested(paid.entries).budget == Budget(usd=0.5)
    assert refused.reason == "budget"
    assert server.requests["ok"] == 1
