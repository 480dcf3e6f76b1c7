"""What no second try can change is not tried again: money that does not reach, failures that are for good."""

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Loop, Recursive, Route, Strategy, Whole
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import PlanInvalid
from chargehand.models.model import ModelCard
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team

DEAR = ModelCard("dear", micros_in=10.0, micros_out=100.0)
QUICK = Policy(retry=Retry(base=0.001))
FOR_GOOD = Failure("logic", "the key is not valid", permanent=True)
ONE = Plan((Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),), "merge", "How many apples are there?")
GOAL = "How many apples are there in the cellar?"
HOUSE_RULES = "Be brief and name your source. " * 600


@pytest.mark.parametrize("strategy", [Whole(), Loop(), Recursive(), Route(router="model")])
async def test_a_budget_too_small_to_plan_is_said_at_once(strategy: Strategy) -> None:
    model = ScriptedModel(["never asked"], card=DEAR)
    workers = [Worker("ann", "writes letters"), Worker("bob", "paints walls")]
    team = Team(
        workers,
        supervisor=Supervisor(model=model, strategy=strategy, instructions=HOUSE_RULES),
        budget=Budget(usd=0.15),
    )
    found = await team.run(GOAL)
    assert (found.ending, found.reason) == ("failed", "budget")
    assert "the budget does not cover" in str(found.answer)
    assert model.requests == []
    tries = [one.event for one in found.entries if isinstance(one.event, ev.SupervisionFailed)]
    assert [(one.failure.kind, one.failure.permanent) for one in tries] == [("budget", True)]


async def test_a_worker_who_costs_nothing_still_gets_what_nobody_can_pay_to_plan() -> None:
    model = ScriptedModel(["never asked"], card=DEAR)
    free = ScriptedModel(["Twelve."], card=ModelCard("free", micros_in=0.0, micros_out=0.0))
    worker = Worker("ann", "counts apples", model=free)
    budget = Budget(usd=0.15)
    team = Team([worker], supervisor=Supervisor(model=model, judge=free, instructions=HOUSE_RULES), budget=budget)
    found = await team.run(GOAL)
    assert found.ending == "complete"
    assert model.requests == []


async def test_a_draft_is_not_asked_for_again_where_that_is_of_no_use() -> None:
    for failure, times in ((FOR_GOOD, 1), (Failure("logic", "a slip"), 3)):
        model = ScriptedModel([failure], repeat=True)
        with pytest.raises(PlanInvalid, match=failure.message):
            await Team([Worker("ann")], supervisor=Supervisor(model=model), policy=QUICK).plan("How many apples?")
        assert len(model.requests) == times


async def test_an_answer_that_fails_for_good_is_asked_for_once() -> None:
    for failure, times in ((FOR_GOOD, 1), (Failure("network", "a slip"), 3)):
        judge = ScriptedModel([failure], repeat=True)
        team = Team(
            [Worker("ann")],
            supervisor=Supervisor(model=ScriptedModel(["Twelve."]), judge=judge, plan=ONE),
            policy=QUICK,
        )
        found = await team.run(ONE.goal)
        assert (found.ending, len(judge.requests)) == ("partial", times)
        assert "Twelve." in str(found.answer)
