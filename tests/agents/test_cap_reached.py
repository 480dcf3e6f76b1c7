"""A run that a cap ends early names the cap: which one, its limit, what was used and what the next call needed."""

import asyncio

import pytest
from msgspec import structs

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.agents.result import Result
from chargehand.agents.spending import PriceUnknown
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget, CapReached
from chargehand.engine.fold import begin
from chargehand.engine.plan import TaskId
from chargehand.engine.view import time_cap
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.token_count import TokenRates, measure_request
from tests.agents.playhouse import Playhouse

EXACT = ModelCard("exact", micros_in=10.0, micros_out=10.0)
THREE = Plan(tuple(Task(TaskId(f"t{number}"), f"Count shelf {number}.", "ann") for number in range(3)), "none")


def counting(usage: Usage | None = None) -> ScriptedModel:
    return ScriptedModel(["Three."], repeat=True, usage=usage or Usage(10, 10), card=EXACT)


def team(model: ScriptedModel, budget: Budget, plan: Plan | None = THREE) -> Team:
    return Team([Worker("ann", model=model)], supervisor=Supervisor(model=model, plan=plan), budget=budget)


def ended(result: Result) -> ev.RunEnded:
    last = result.entries[-1].event
    assert isinstance(last, ev.RunEnded)
    return last


async def test_the_cap_on_calls_is_named() -> None:
    found = await team(counting(), Budget(calls=2)).run("Count")
    assert (found.ending, found.reason) == ("partial", "budget")
    assert found.cap == CapReached("calls", limit=2, used=2, needed=1)
    assert ended(found).cap == found.trace().cap == found.cap
    assert [gap.cap for gap in found.gaps] == [found.cap]


async def test_the_cap_on_tokens_is_named() -> None:
    found = await team(counting(Usage(10, 900)), Budget(tokens=2_500)).run("Count")
    assert found.reason == "budget"
    assert found.cap is not None
    assert (found.cap.cap, found.cap.limit, found.cap.used) == ("tokens", 2_500, 1_820)
    assert found.cap.used + found.cap.needed > found.cap.limit


async def test_the_cap_on_dollars_is_named_in_dollars() -> None:
    found = await team(counting(Usage(10, 900)), Budget(usd=0.025)).run("Count")
    assert found.reason == "budget"
    assert found.cap is not None
    assert (found.cap.cap, found.cap.limit, found.cap.used) == ("usd", 0.025, 0.0182)
    assert 0.0068 < found.cap.needed < 0.1


class Caching:
    """A model that writes all it reads to the provider's cache, and writes as much as it may."""

    def __init__(self) -> None:
        self.card = ModelCard("caching", micros_in=10.0, micros_cache_write=12.5, micros_out=0.01, keeps_limit=True)
        self.bill = 0

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        read = TokenRates().estimate(measure_request(request))
        used = Usage(read, request.settings.max_tokens or 0, cache_written=read)
        self.bill += self.card.price(used) or 0
        return Reply("Three.", usage=used, micros=self.card.price(used))


async def test_a_cap_in_dollars_holds_where_all_that_is_read_is_written_to_the_cache() -> None:
    bills: set[int] = set()
    for cap in range(4_000, 16_000, 250):
        model = Caching()
        worker = Worker("ann", model=model)
        supervisor = Supervisor(model=model, plan=THREE)
        found = await Team([worker], supervisor=supervisor, budget=Budget(usd=cap / 1_000_000)).run("Count")
        assert model.bill == found.spent.micros <= cap
        bills.add(model.bill)
    assert len(bills) >= 4, "caps that cover none, one, two and three calls"


async def test_a_task_that_is_skipped_names_the_cap_that_its_estimate_does_not_fit_under() -> None:
    worker = Worker("ann", model=counting(), estimate=Amount(tokens=50_000))
    found = await Team([worker], supervisor=Supervisor(model=counting(), plan=THREE), budget=Budget(tokens=40_000)).run(
        "Count"
    )
    skipped = [entry.event for entry in found.entries if isinstance(entry.event, ev.TaskSkipped)]
    assert [event.reason for event in skipped] == ["budget"] * 3
    assert skipped[0].cap == CapReached("tokens", limit=40_000, used=0, needed=50_000)
    assert found.cap == skipped[0].cap


@pytest.mark.parametrize("budget", [Budget(calls=0), Budget(tokens=0), Budget(usd=0.0)])
async def test_a_budget_of_nothing_makes_no_call_and_says_so(budget: Budget) -> None:
    model = counting()
    for plan in (None, THREE):
        found = await team(model, budget, plan).run("Count")
        assert (found.ending, found.reason) == ("failed", "budget")
        assert found.cap is not None
        assert (found.cap.limit, found.cap.used) == (0, 0)
        assert found.cap.needed > 0
    assert model.requests == []


async def test_a_budget_of_no_dollars_is_refused_for_a_model_of_unknown_price() -> None:
    model = ScriptedModel(["Three."], repeat=True, card=ModelCard("mystery"))
    with pytest.raises(PriceUnknown, match=r"the price of mystery is unknown.*--price IN/OUT"):
        await team(model, Budget(usd=0.0)).run("Count")
    assert model.requests == []


async def test_an_answer_that_the_budget_does_not_cover_names_the_cap() -> None:
    plan = Plan(THREE.tasks, "merge")
    found = await team(counting(), Budget(calls=3), plan).run("Count")
    assert found.reason == "budget"
    assert found.cap is not None
    assert (found.cap.cap, found.cap.limit) == ("calls", 3)


@pytest.mark.parametrize("tokens", [1_500, 3_000, 5_000])
async def test_nothing_is_kept_for_an_answer_that_no_model_writes(tokens: int) -> None:
    plan = Plan(THREE.tasks[:1], "forward")
    model = counting()
    found = await team(model, Budget(tokens=tokens), plan).run("Count")
    assert (found.ending, found.answer, len(model.requests)) == ("complete", "Three.", 1)


async def test_the_gap_names_what_was_kept_for_the_answer() -> None:
    plan = Plan(THREE.tasks[:1], "merge")
    found = await team(counting(), Budget(tokens=4_500), plan).run("Count")
    (gap,) = found.gaps
    assert gap.cap is not None
    assert gap.cap.kept == 4_000
    assert "the cap of 4,500 tokens: 0 tokens used, 4,000 tokens kept for the answer" in gap.message


class Sleeping:
    """A model that takes longer than there is time."""

    card = ModelCard("sleeping")

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        await asyncio.sleep(1_000)
        return Reply("too late")


def test_time_is_a_cap_too() -> None:
    model = Sleeping()
    entries = Playhouse().run(
        Team([Worker("ann", model=model)], supervisor=Supervisor(model=model, plan=THREE), timeout=20.0)
    )
    last = entries[-1].event
    assert isinstance(last, ev.RunEnded)
    assert last.reason == "deadline"
    assert last.cap == CapReached("time", limit=20.0, used=16.0, kept=4.0)
    assert {gap.cap for gap in last.gaps} == {last.cap}


def test_a_cap_of_time_is_named_as_it_was_set_whatever_went_by_before_the_run_began() -> None:
    request = team(counting(), Budget(seconds=60.0)).request("Go.", 0.0)
    late = structs.replace(request, deadline=60.0)
    state = begin(ev.Entry(1, 1.3, late))
    assert time_cap(state).limit == 60.0
    inside = structs.replace(late, parent=ev.Parent("outer", "outer", TaskId("t1"), 1, 1, "ann", 1))
    assert time_cap(begin(ev.Entry(1, 1.3, inside))).limit == pytest.approx(58.7)


async def test_the_cap_of_a_team_inside_ends_the_run_around_it() -> None:
    inner = team(counting(), Budget(calls=2), Plan(THREE.tasks, "none"))
    outer = Team(
        [inner.as_worker("desk", description="Counts.")],
        supervisor=Supervisor(model=counting(), plan=Plan((Task(TaskId("t1"), "Count.", "desk"),), "forward")),
        journal=MemoryJournal(),
    )
    found = await outer.run("Count", run="outer")
    assert (found.ending, found.reason) == ("partial", "budget")
    assert found.cap == CapReached("calls", limit=2, used=2, needed=1)


async def test_an_overspent_budget_names_the_cap_that_was_passed() -> None:
    found = await team(counting(Usage(10, 30_000)), Budget(tokens=9_000), Plan(THREE.tasks[:1], "none")).run("Count")
    assert (found.ending, found.reason) == ("complete", "overspent")
    assert found.cap == CapReached("tokens", limit=9_000, used=30_010)


def test_a_cap_is_described_in_its_unit() -> None:
    assert CapReached("calls", limit=1, used=1, needed=1).describe() == (
        "the cap of 1 call: 1 call used, 1 call needed for the next call"
    )
    assert CapReached("usd", limit=0.5, used=0.4821, needed=0.02, kept=0.01).describe() == (
        "the cap of $0.50: $0.4821 used, $0.01 kept for the answer, $0.02 needed for the next call"
    )
    assert CapReached("time", limit=20.0, used=16.0, kept=4.0).describe() == (
        "the cap of 20.0 s: 16.0 s used, 4.0 s kept for the answer"
    )
