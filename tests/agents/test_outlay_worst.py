"""The most a plan may cost, against teams that take all they can get: every call, step, attempt and long text."""

import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from chargehand.agents.acceptance import Reviewer, Verifier
from chargehand.agents.hedging import Hedge
from chargehand.agents.outlook import Outlay
from chargehand.agents.worker import Worker
from chargehand.models.messages import Reply, Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.scripted import ScriptedModel
from chargehand.models.subject import Refining, Reviewing, Working
from chargehand.team import Supervisor
from chargehand.terms.budget import Amount, Budget
from chargehand.terms.plan import Combine, Edge, Plan, Task, TaskId
from chargehand.terms.policy import Breaking, Limits, Policy, Retry
from chargehand.terms.roster import Match
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls
from tests.agents.test_outlay import reckoned

DEAR = ModelCard("dear", 16_000, micros_in=3.0, micros_out=15.0, micros_cached=0.3, micros_call=7)
CHEAP = ModelCard("cheap", 8_000, micros_in=0.25, micros_out=2.0, dearer=((2_000, 1.0, 4.0), (4_000, 5.0, 9.0)))
REPLY = 8192


@tool(quick=True)
def browse(word: str) -> str:
    """Read everything there is about a word."""
    return f"{word} 0123456789\n" * 2_000


def billed(card: ModelCard, reply: Reply, request: Request) -> Reply:
    """The bill of a provider that counts a token for three bytes, and whose every reply is as long as it may be."""
    texts = [f"{one.text}{''.join(each.arguments for each in one.calls)}" for one in request.messages]
    texts += [f"{one.name}{one.description}{bytes(one.parameters).decode()}" for one in request.tools]
    read = sum(len(one.encode()) for one in texts) // 3 + len(bytes(request.schema or b"")) // 3
    out = request.settings.max_tokens or REPLY
    return structs.replace(reply, text=reply.text[: 3 * out], usage=Usage(read, out), micros=card.price(read, out))


def glutton(card: ModelCard, chance: random.Random, *, fails: float) -> ScriptedModel:
    """A model that makes many calls at a time, refuses in its last step, and puts tasks in many words."""

    def made(request: Request) -> Reply:
        subject = request.subject
        if isinstance(subject, Reviewing):
            return Reply('{"problems": ["no"], "accepted": %s}' % ("false" if chance.random() < fails else "true"))
        if isinstance(subject, Refining):
            return Reply("Say it in many more words, äöü. " * 200)
        if not isinstance(subject, Working):
            return Reply("The number of shelves is 12. " * 20)
        said = sum(one.role == "assistant" for one in request.messages)
        if len(request.tools) > 1 and said < 2:
            return calls(*(call("browse", 10 * said + at, word=f"w{at}") for at in range(6)))
        if said < 2 and chance.random() < 0.5:
            return Reply("x" * 3 * REPLY, finish="length")
        if chance.random() < fails:
            return Reply("I will not.", finish="refused")
        return Reply(f"The number of shelves is {chance.randrange(9)}. " * 400)

    return ScriptedModel(lambda request: billed(card, made(request), request), card=card)


def greedy(chance: random.Random) -> tuple[Supervisor, Plan]:
    fails = chance.choice((0.0, 0.6, 0.95))
    models = [glutton(DEAR, chance, fails=fails), glutton(CHEAP, chance, fails=fails)]
    workers = [
        Worker(
            f"w{number}", "looks things up", prompt="You know the cellar. " * chance.randrange(30), tags=("any",),
            model=chance.choice(models), tools=[browse] if chance.random() < 0.6 else [], steps=3,
            settings=Settings(max_tokens=chance.choice((None, 1000, 9000))),
            fallback_models=[chance.choice(models)] if chance.random() < 0.3 else (),
            fallbacks=["w2"] if number < 2 and chance.random() < 0.5 else (),
            accept=(("sound",), ("seen",), ())[number if chance.random() < 0.5 else 2],
        )
        for number in range(3)
    ]  # fmt: skip
    tasks: list[Task] = []
    for number in range(chance.randrange(1, 5)):
        earlier = chance.sample(tasks, min(len(tasks), chance.randrange(3)))
        who, match = (chance.choice(workers).name, None) if chance.random() < 0.6 else ("", Match(all=("any",)))
        after = tuple(Edge(one.id, "optional") for one in earlier)
        asked = f"Say what the cellar book says about shelf {number}. " * chance.choice((1, 3, 200))
        tasks.append(Task(TaskId(f"t{number}"), asked, who, match, after))
    combine: Sequence[Combine] = ("merge", "forward", "vote", "select", "reduce", "none")
    plan = Plan(tuple(tasks), chance.choice(combine), "What does the cellar book say?")
    retry = Retry(attempts=chance.choice((1, 2, 3)), fallback_attempts=chance.choice((1, 2)), base=0.0)
    limits, never = Limits(answers=chance.choice((1, 2))), Breaking(consecutive=10_000, share=2.0)
    policy = Policy(retry=retry, breaking=never, limits=limits, refine=chance.random() < 0.7)
    checks = {"sound": Verifier("Look closely. " * 50), "seen": Reviewer("w2")}
    hedge = Hedge(after=0.001, share=0.5) if chance.random() < 0.2 else None
    team = Supervisor(workers, model=chance.choice(models), policy=policy, plan=plan, checks=checks, hedge=hedge)
    return team, plan


@pytest.mark.parametrize("seed", range(40))
async def test_not_even_the_greediest_team_costs_more_than_was_foreseen(seed: int) -> None:
    team, plan = greedy(random.Random(seed))
    found = await reckoned(team, plan)
    done = await team.run(plan.goal)
    assert found.most is not None
    assert 0 < done.cost <= found.most


# --- one thing at a time

GOAL = "How many shelves are there?"
ONCE = Policy(retry=Retry(attempts=1), limits=Limits(answers=1), refine=False)
ALONE = Plan((Task(TaskId("t1"), "Count the shelves.", "ann"),), "forward", GOAL)


def said(card: ModelCard, *texts: str) -> ScriptedModel:
    """A model that says these in turn, the last of them for ever, and is billed for it."""
    line = list(texts)
    return ScriptedModel(lambda request: billed(card, Reply(line.pop(0) if line[1:] else line[0]), request), card=card)


async def test_a_step_may_make_many_calls_and_all_of_their_results_are_read() -> None:
    def script(request: Request) -> Reply:
        asked = any(one.role == "tool" for one in request.messages)
        wide = calls(*(call("browse", at, word=f"w{at}") for at in range(20)))
        return billed(large, Reply("Twelve.") if asked else wide, request)

    large = ModelCard("large", micros_in=3.0, micros_out=0.0)
    worker = Worker("ann", model=ScriptedModel(script, card=large), tools=[browse], steps=2)
    team = Supervisor([worker], model="offline", plan=ALONE, policy=ONCE)
    found, done = await reckoned(team, ALONE), await team.run(GOAL)
    assert found.most is not None
    assert 0.3 < done.cost <= found.most


async def test_of_several_who_may_do_a_task_the_dearest_may_be_the_first() -> None:
    cheap, dear = ModelCard("cheap", micros_in=0.0, micros_out=0.001), ModelCard("dear", micros_in=0.0, micros_out=9.0)
    workers = [Worker("ann", model=said(cheap, "no"), capacity=1), Worker("bob", model=said(dear, "no"), steps=1)]
    tasks = tuple(Task(TaskId(f"t{at}"), f"Count shelf {at}.", match=Match()) for at in range(2))
    policy = Policy(retry=Retry(attempts=5, base=0.0), refine=False)
    team = Supervisor(workers, model="offline", plan=Plan(tasks, "forward", GOAL), policy=policy)
    found = await reckoned(team, Plan(tasks, "forward", GOAL))
    assert [one.most for one in found.tasks] == [pytest.approx(5 * 9 * REPLY / 1_000_000, rel=0.01)] * 2


async def test_fees_for_calls_and_dearer_prices_for_long_ones_are_reckoned() -> None:
    plain = ModelCard("m", micros_in=1.0, micros_out=1.0)
    found: list[Outlay] = []
    for card in (plain, structs.replace(plain, micros_call=5_000), structs.replace(plain, dearer=((10, 2.0, 3.0),))):
        team = Supervisor(
            [Worker("ann", model=said(card, "Twelve."), steps=1)], model="offline", plan=ALONE, policy=ONCE
        )
        found.append(await reckoned(team, ALONE))
        assert (found[-1].least or 0) <= (await team.run(GOAL)).cost <= (found[-1].most or 0)
    bare, fee, dearer = found
    assert fee.least == pytest.approx((bare.least or 0) + 0.005)
    assert fee.most == pytest.approx((bare.most or 0) + 0.005)
    assert dearer.least == bare.least
    assert 2 < (dearer.most or 0) / (bare.most or 1) < 3


async def test_who_reviews_at_a_price_nobody_knows_is_named() -> None:
    strange = ScriptedModel(["fine"], handle="strange")
    workers = [Worker("ann", model=said(DEAR, "Twelve."), accept=["seen"]), Worker("eve", model=strange)]
    team = Supervisor(workers, model="offline", plan=ALONE, checks={"seen": Reviewer("eve")})
    found = await reckoned(team, ALONE)
    assert (found.least, found.most, found.unknown) == (None, None, ("strange",))
    workers[1] = structs.replace(workers[1], estimate=Amount(micros=70))
    team = Supervisor(workers, model="offline", plan=ALONE, checks={"seen": Reviewer("eve")})
    assert (await reckoned(team, ALONE)).unknown == ()


async def test_a_team_that_costs_nothing_may_still_be_verified_for_money() -> None:
    free = said(ModelCard("free", micros_in=0.0, micros_out=0.0), "Twelve.")
    counts = Plan((structs.replace(ALONE.tasks[0], worker="bob"),), "forward", GOAL)
    inner = Supervisor([Worker("bob", model=free)], model="offline", name="inner", plan=counts).as_worker("ann")
    worker, judge = structs.replace(inner, accept=["sound"]), said(DEAR, '{"problems": [], "accepted": true}')
    team = Supervisor([worker], model="offline", plan=ALONE, checks={"sound": Verifier(model=judge)})
    found, done = await reckoned(team, ALONE), await team.run(GOAL)
    assert judge.requests
    assert found.most is not None
    assert 0 < done.cost <= found.most


async def test_a_judge_may_be_needed_although_only_one_result_was_to_be_the_last() -> None:
    first = [Task(TaskId(f"t{at}"), f"Count shelf {at}.", "ann") for at in (1, 2)]
    last = Task(TaskId("t3"), "Choose.", "bob", after=(TaskId("t1"), TaskId("t2")))
    plan = Plan((*first, last), "select", GOAL)
    refuses = ScriptedModel([Reply("no", finish="refused")] * 9, card=ModelCard("free", micros_in=0.0, micros_out=0.0))
    judge = said(DEAR, '{"why": "it is longer", "winner": "t2"}')
    workers = [Worker("ann", model=said(DEAR, "Twelve.", "Quite a few, I think.")), Worker("bob", model=refuses)]
    team = Supervisor(workers, model=judge, plan=plan, policy=structs.replace(ONCE, answer=5.0))
    found = await reckoned(team, plan)
    await team.run(GOAL)
    assert judge.requests
    assert (found.answer.least, (found.answer.most or 0) > 0.06) == (0, True)


async def test_a_budget_of_exactly_the_least_is_not_refused_and_is_kept() -> None:
    team = Supervisor([Worker("ann", model=said(DEAR, "Twelve."))], model="offline", plan=ALONE, policy=ONCE)
    least = (await reckoned(team, ALONE)).least
    assert least
    bound = team.bounded(budget=Budget(usd=least))
    found = await reckoned(bound, ALONE)
    assert (found.too_much, found.least, found.most) == (False, least, least)
    assert (await bound.run(GOAL)).cost <= least
    less = team.bounded(budget=Budget(usd=least - 1e-6))
    assert (await reckoned(less, ALONE)).too_much


async def test_what_is_done_for_each_of_a_list_costs_no_more_than_the_longest_list_allows() -> None:
    def script(request: Request) -> Reply:
        listed = isinstance(request.subject, Working) and request.subject.worker.name == "ann"
        return billed(DEAR, Reply('["a", "b", "c"]' if listed else "It is so. " * 300), request)

    model = ScriptedModel(script, card=DEAR)
    each = Task(TaskId("t2"), "Weigh it.", "bob", for_each=TaskId("t1"))
    plan = Plan((*ALONE.tasks, each), "merge", GOAL)
    workers = [Worker("ann", model=model, output=list[str], steps=1), Worker("bob", model=model, steps=1)]
    policy = structs.replace(ONCE, limits=Limits(items=3, answers=1))
    team = Supervisor(workers, model=model, plan=plan, policy=policy)
    found, done = await reckoned(team, plan), await team.run(GOAL)
    assert (done.ending, len(model.requests)) == ("complete", 5)
    assert found.least is not None
    assert found.most is not None
    assert found.least <= done.cost <= found.most
