"""Dollars before they are spent: the forecast of a plan against what its run cost, with scripted models and prices."""

import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from chargehand.agents.checks import Verifier
from chargehand.agents.draft import CostForecast, foreseen
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.plan import Combine, Edge, Plan, Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.models.messages import Reply, Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Reviewing, Working
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls

DEAR = ModelCard("dear", micros_in=3.0, micros_out=15.0, micros_cached=0.3)
CHEAP = ModelCard("cheap", micros_in=0.25, micros_out=2.0)
QUICK = Policy(retry=Retry(base=0.001))


@tool
def look_up(word: str) -> str:
    """Find what the cellar book says about a word."""
    return f"{word}: {'apples and pears ' * 40}"


def read_by(request: Request) -> int:
    """Tokens of a request, as providers count: messages, tools and schema."""
    text = sum(len(one.text) + sum(len(each.arguments) for each in one.calls) for one in request.messages)
    tools = sum(len(one.name) + len(one.description) + len(bytes(one.parameters)) for one in request.tools)
    return (text + tools + len(bytes(request.schema or b""))) // 4


def charged(card: ModelCard, reply: Reply, request: Request, chance: random.Random) -> Reply:
    """The reply with the bill of a provider, which has some of the request in its cache."""
    told = len(request.messages[0].text) // 4
    usage = Usage(read_by(request), max(1, len(reply.text) // 4 + 20 * len(reply.calls)), chance.choice((0, told)))
    assert card.micros_in is not None
    assert card.micros_out is not None
    cached = card.micros_in if card.micros_cached is None else card.micros_cached
    micros = (usage.input - usage.cached) * card.micros_in + usage.cached * cached + usage.output * card.micros_out
    return structs.replace(reply, usage=usage, micros=round(micros + 0.5))


def clerk(card: ModelCard, chance: random.Random) -> ScriptedModel:
    """A model that looks things up, is cut off or refuses now and then, and bills what it read and wrote."""

    def script(request: Request) -> Reply:
        said = sum(one.role == "assistant" for one in request.messages)
        if isinstance(request.subject, Reviewing):
            made = Reply('{"problems": [], "accepted": true}')
        elif isinstance(request.subject, Working) and len(request.tools) > 1 and said < chance.randrange(6):
            made = calls(call("look_up", said, word=f"shelf {said}"))
        elif isinstance(request.subject, Working) and said < 2 and not chance.randrange(6):
            made = Reply("too long", finish="length")
        elif isinstance(request.subject, Working) and not chance.randrange(12):
            made = Reply("I will not.", finish="refused")
        else:
            made = Reply("It is so, " * chance.choice((1, 5, 60, 300)))
        return charged(card, made, request, chance)

    return ScriptedModel(script, card=card)


def chosen(chance: random.Random) -> tuple[Team, Plan]:
    """A team and a plan for it, by chance."""
    models = [clerk(DEAR, chance), clerk(CHEAP, chance)]
    workers = [
        Worker(
            f"w{number}",
            "looks things up",
            prompt="You know the cellar. " * chance.randrange(30),
            model=chance.choice(models),
            tools=[look_up] if chance.random() < 0.6 else [],
            settings=Settings(max_tokens=chance.choice((None, 1000))),
            steps=chance.choice((7, 10)),
            fallback_models=[chance.choice(models)] if chance.random() < 0.2 else (),
            accept=("sound",) if chance.random() < 0.2 else (),
        )
        for number in range(3)
    ]
    tasks: list[Task] = []
    for number in range(chance.randrange(1, 9)):
        earlier = chance.sample(tasks, min(len(tasks), chance.randrange(3)))
        after = tuple(one.id if chance.random() < 0.7 else Edge(one.id, "optional") for one in earlier)
        asked = f"Say what the cellar book says about shelf {number}. " * chance.randrange(1, 5)
        tasks.append(Task(TaskId(f"t{number}"), asked, chance.choice(workers).name, after=after))
    combine: Sequence[Combine] = ("merge", "forward", "vote", "select", "reduce", "none")
    plan = Plan(tuple(tasks), chance.choice(combine), "What does the cellar book say?")
    policy = structs.replace(QUICK, limits=Limits(answers=chance.choice((1, 3))))
    return Team(
        workers,
        supervisor=Supervisor(model=chance.choice(models), plan=plan),
        policy=policy,
        checks={"sound": Verifier()},
    ), plan


async def estimated(team: Team, plan: Plan) -> CostForecast:
    async with team.executor() as executor:
        cost = foreseen(executor, plan, team.request(plan.goal, 0.0, plan=plan)).usd
    assert cost is not None
    return cost


@pytest.mark.parametrize("seed", range(12))
async def test_the_estimate_is_within_ten_times_of_what_the_run_cost(seed: int) -> None:
    team, plan = chosen(random.Random(seed))
    cost = await estimated(team, plan)
    done = await team.run(plan.goal)
    assert cost.about is not None
    assert 0 < done.cost < 10 * cost.about
    if done.ending == "complete":  # who gives up early costs less
        assert cost.about < 10 * done.cost
    assert (cost.unknown, cost.grows, cost.above_budget) == ((), "", False)


async def test_no_run_costs_more_than_its_budget_which_the_forecast_names() -> None:
    team, plan = chosen(random.Random(3))
    free = await estimated(team, plan)
    assert free.about is not None
    bound = team.bounded(budget=Budget(usd=free.about / 2))
    cost = await estimated(bound, plan)
    assert (cost.about, cost.budget, cost.above_budget) == (free.about, pytest.approx(free.about / 2, abs=1e-6), True)
    assert (await bound.run(plan.goal)).cost <= free.about / 2


ONE = Plan((Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),), "forward", "How many apples are there?")


def alone(worker: Worker, policy: Policy = QUICK) -> Team:
    return Team([worker], supervisor=Supervisor(model=ScriptedModel(["fine"], card=CHEAP), plan=ONE), policy=policy)


async def test_the_sum_can_be_followed_by_hand() -> None:
    model = ScriptedModel(["twelve"], card=ModelCard("exact", micros_in=1.0, micros_out=100.0, window=10_000))
    team = Team([Worker("ann", model=model)], supervisor=Supervisor(model="demo", plan=ONE))
    cost = await estimated(team, ONE)
    assert (await team.run(ONE.goal)).ending == "complete"
    read = read_by(model.requests[0])
    assert cost.about == pytest.approx((read + 500 * 100) / 1_000_000, rel=0.01)


async def test_models_that_cost_nothing_make_a_plan_that_costs_nothing() -> None:
    assert (await estimated(Team([Worker("ann")], supervisor=Supervisor(model="demo", plan=ONE)), ONE)).about == 0


async def test_a_model_nobody_knows_the_price_of_is_named_and_nothing_is_guessed() -> None:
    strange = ScriptedModel(["fine"], handle="strange")
    cost = await estimated(alone(Worker("ann", model=strange)), ONE)
    assert (cost.about, cost.unknown) == (None, ("strange",))
    assert (await estimated(Team([Worker("ann")], supervisor=Supervisor(model=strange, plan=ONE)), ONE)).unknown == (
        "strange",
    )


async def test_an_estimate_stands_in_for_a_price_nobody_knows() -> None:
    worker = Worker("ann", model=ScriptedModel(["fine"], handle="strange"), estimate=Amount(micros=70))
    cost = await estimated(alone(worker), ONE)
    assert (cost.about, cost.unknown) == (0.00007, ())


async def test_what_may_grow_is_said() -> None:
    inner = Team([Worker("bob")], supervisor=Supervisor(model=ScriptedModel(["fine"], card=CHEAP)), name="inner")
    outer = Team([inner.as_worker("ann")], supervisor=Supervisor(model=ScriptedModel(["fine"], card=CHEAP), plan=ONE))
    assert (await estimated(outer, ONE)).grows == "ann is a team that plans for itself"
    free = Team([Team([Worker("bob")], name="inner").as_worker("ann")], supervisor=Supervisor(plan=ONE))
    assert (await estimated(free, ONE)).grows == ""
    again = alone(Worker("ann"), policy=Policy(limits=Limits(replans=1)))
    assert (await estimated(again, ONE)).grows == "what fails may be planned anew"


async def test_a_draft_is_told_with_its_dollars() -> None:
    written = '{"goal": "g", "tasks": {"t1": {"instruction": "Count the apples in the cellar.", "worker": "ann"}}}'
    planner = ScriptedModel([written], card=CHEAP, usage=Usage(10, 5), micros=7)
    draft = await Team([Worker("ann")], supervisor=Supervisor(model=planner)).plan("How many apples are there?")
    assert draft.forecast is not None
    assert draft.forecast.usd is not None
    assert draft.forecast.usd.about is not None
    assert draft.forecast.usd.about > 0
    assert len(planner.requests) == 1
