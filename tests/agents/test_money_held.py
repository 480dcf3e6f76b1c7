"""More calls than one for a duty: each is held before it is made, and what is not covered is not made."""

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.fold import begin, fold
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.engine.roster import Agent, Roster
from chargehand.engine.value import encode_value
from chargehand.engine.view import key_of
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Settings, Usage
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.models.request_facts import Answering, Judging
from chargehand.models.testing.scripted import Line, ScriptedModel
from tests.agents.crowd import FREE, model, of_kind, plan, team
from tests.runtime.test_nesting import kept_within

PAIR = (Worker("ann", "counts"), Worker("bob", "counts"))
CLASH = {"ann": "There are 12 apples in the cellar.", "bob": "There are 14 apples in the cellar."}
BOTH = plan(("Count the apples in the cellar.", "ann", ()), ("Count the apples in the cellar.", "bob", ()))
ONCE = Policy(retry=Retry(attempts=1), refine=False)


def judge(answer: Line = "There are 14 apples [t2].") -> ScriptedModel:
    def line(request: Request) -> Line:
        if isinstance(request.subject, Answering):
            return answer
        assert isinstance(request.subject, Judging)
        return '{"why": "It counted twice.", "ruling": "14", "winner": "t2"}'

    return ScriptedModel(line, usage=Usage(10, 5), micros=7, card=FREE)


def counting() -> ScriptedModel:
    return model(plans=[BOTH], work=lambda request: CLASH[request.subject.worker.name])  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportUnknownMemberType] - of a worker


def held(found: Result, duty: str) -> int:
    events = [one for one in of_kind(found.entries, ev.SupervisionStarted) if isinstance(one, ev.SupervisionStarted)]
    return sum(one.reserve.calls for one in events if one.duty == duty and one.reserve is not None)


@pytest.mark.parametrize("most", range(3, 9))
async def test_a_contradiction_is_ruled_on_where_the_money_that_is_left_covers_it(most: int) -> None:
    judges = judge()
    workers = counting()
    found = await team(workers, *PAIR, judge=judges, budget=Budget(calls=most)).run("How many apples?")
    assert len(judges.requests) + len(workers.requests) == found.spent.calls <= most
    kept_within(found.entries)
    if most >= 5:  # a plan, two tasks, a ruling, and the answer
        assert "Ruled for 14 [t2]" in str(found.answer)
        assert held(found, "answer") == 2
    elif most >= 4:
        assert "This is open: there is no ruling." in str(found.answer)
    else:
        assert (found.ending, found.reason) == ("partial", "budget")
        assert "There are 12 apples" in str(found.answer)


async def test_what_is_kept_for_the_answer_is_not_spent_on_a_ruling() -> None:
    budget = Budget(calls=8, floor=Amount(calls=4))
    judges = judge()
    found = await team(counting(), *PAIR, judge=judges, budget=budget).run("How many apples?")
    assert [type(one.subject) for one in judges.requests] == [Answering]
    assert "This is open" in str(found.answer)


@pytest.mark.parametrize("silent", [False, True])
async def test_a_call_of_each_model_that_may_be_asked_is_held_before_the_first(*, silent: bool) -> None:
    """One that fails before another answers is a call as well."""
    broken = ScriptedModel(lambda _: Failure("network", "gone"), card=FREE)
    spare = ScriptedModel(lambda _: "12", usage=None if silent else Usage(10, 5), micros=0, card=FREE)
    ann = Worker("ann", model=broken, fallback_models=[spare])
    fixed = Plan((Task(TaskId("t1"), "Count.", "ann"), Task(TaskId("t2"), "Weigh.", "ann")), "forward")
    for most in range(6):
        broken.requests.clear()
        spare.requests.clear()
        found = await team(model(), ann, plan=fixed, budget=Budget(calls=most), policy=ONCE).run("Count")
        made = len(broken.requests) + len(spare.requests)
        assert made == found.spent.calls <= most
        assert made % 2 == 0, "where the second could not be paid for, the first is not asked"


async def test_a_failed_call_that_says_what_it_cost_is_charged_once() -> None:
    def line(_: Request) -> Line:
        return ModelFailed(Failure("network", "it broke off"), Usage(100, 200))

    dear = ModelCard("dear", micros_in=1.0, micros_out=1.0)
    ann = Worker("ann", model=ScriptedModel(line, card=dear), settings=Settings(max_tokens=300))
    fixed = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
    capped = await team(model(), ann, plan=fixed, budget=Budget(calls=1), policy=ONCE).run("Count")
    assert capped.spent.calls == 1
    kept_within(capped.entries)
    free = await team(model(), ann, plan=fixed, policy=ONCE).run("Count")
    assert free.spent == Amount(300, 300, 1), "without caps it costs what the provider says"


async def test_a_supervisor_writes_no_more_than_the_budget_covers_and_nothing_where_that_is_too_little() -> None:
    dear = ModelCard("dear", micros_in=0.0, micros_out=1.0)
    script = model(plans=[BOTH], work=["12"], card=dear)
    found = await team(script, *PAIR, settings=Settings(max_tokens=5000), budget=Budget(usd=0.006)).run("Count")
    assert script.requests[0].settings.max_tokens == 1000 + (6000 - 1000 - 1000) // 2, "half of what is left"
    assert found.ending != "failed"
    kept_within(found.entries)
    script = model(plans=[BOTH], work=["12"], card=dear)
    found = await team(script, *PAIR, settings=Settings(max_tokens=5000), budget=Budget(usd=0.0009)).run("Count")
    assert (found.ending, found.reason, script.requests) == ("failed", "budget", [])


def test_what_is_offered_later_does_not_take_the_place_of_what_was_offered_before() -> None:
    tasks = (Task(TaskId("t1"), "Count.", "ann"), Task(TaskId("t2"), "Weigh.", "ann"))
    roster = Roster((Agent("ann"),))
    request = ev.RunRequested(
        goal="g", roster=roster, policy=Policy(), budget=Budget(), deadline=100.0, seed=1, plan=Plan(tasks)
    )
    state = begin(ev.Entry(1, 0.0, request))
    keys = [key_of(state, one) for one in state.tasks.values()]
    for number, (key, run) in enumerate(zip((keys[0], keys[1], keys[0]), ("fork", "cache", "cache"), strict=True), 2):
        offer = ev.Offer(key, TaskId("t"), encode_value(run))
        fold(state, ev.Entry(number, 0.0, ev.ResultsOffered(run, (offer,))))
    assert [[run for run, _ in state.offers[key]] for key in keys] == [["fork", "cache"], ["cache"]]


async def test_what_a_plan_holds_more_is_one_duty_in_the_trace() -> None:
    judges = judge()
    journal = MemoryJournal()
    found = await team(counting(), *PAIR, judge=judges, journal=journal, budget=Budget(calls=20)).run(
        "How many apples?"
    )
    answers = [one for one in found.trace().supervision if one.duty == "answer"]
    assert [(one.number, one.ending, one.used.calls) for one in answers] == [(1, "succeeded", 2)]


async def test_where_only_calls_are_capped_long_results_cost_no_more_than_short_ones() -> None:
    judges = judge("Many [t1] [t2].")
    script = model(plans=[BOTH], work=["apple " * 2500, "pear " * 2500])
    found = await team(script, *PAIR, judge=judges, budget=Budget(calls=5)).run("How many apples?")
    assert found.ending == "complete"
    assert "cut here" not in judges.requests[-1].messages[1].text
    assert kept_within(found.entries).calls == 4


@pytest.mark.parametrize("caps", [Budget(calls=5), Budget(calls=5, usd=1000.0), Budget(calls=5, tokens=10**9)])
async def test_where_only_calls_are_short_a_long_request_is_planned_as_a_short_one_is(caps: Budget) -> None:
    script = model(plans=[BOTH], card=ModelCard("priced", micros_in=1.0, micros_out=1.0))
    found = await team(script, *PAIR, judge=judge("Many [t1] [t2]."), budget=caps).run("How many apples? " * 4000)
    assert found.ending == "complete"
    assert kept_within(found.entries).calls <= 5
