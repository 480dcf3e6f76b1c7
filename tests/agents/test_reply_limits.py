"""How long replies may be: what is sent with every call, what is reserved for it, and what becomes of a cut one."""

import asyncio
import socket

import pytest
from msgspec import structs

from chargehand.agents.prompts import Prompts
from chargehand.agents.roles import Factory, Supervisor, Worker
from chargehand.agents.spending import Spending
from chargehand.agents.supervision import SupervisorCalls, SupervisorRole
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.models.prices import flat
from chargehand.models.reply_limit import GENEROUS_LIMIT, USUAL_LIMIT, known_limit
from chargehand.models.request_facts import Answering, Planning, Refining, Working
from chargehand.models.resolve import Finder
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.executor import Claim
from chargehand.team import Team
from tests.agents.crowd import FREE, model, of_kind, plan, team
from tests.agents.judges import Desk
from tests.runtime.test_nesting import kept_within

DEAR = ModelCard("dear", micros_in=2.0, micros_out=10.0)
ONCE = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
ALONE = Plan((Task(TaskId("t1"), "Count the apples.", "ann"),), "forward")


class Wordy:
    """A model of one's own that writes as much as it likes, whatever it is asked for, and keeps its own bill."""

    def __init__(self, output: int, card: ModelCard = DEAR) -> None:
        self.card = card
        self.bill = 0
        self.limits: list[int | None] = []
        self.outputs: list[int] = []  # of the next replies, before all others
        self.first: Model | None = None  # says what the first reply says
        self.fails = False
        self.replied: list[int] = []
        self.under_way_then: list[int] = []  # as many as were under way when each call began
        self.replies_then: list[int] = []  # as many as had been given
        self._under_way = 0
        self._output = output

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.limits.append(request.settings.max_tokens)
        self._under_way += 1
        self.under_way_then.append(self._under_way)
        self.replies_then.append(len(self.replied))
        await asyncio.sleep(0.001)  # others are under way meanwhile
        self._under_way -= 1
        if self.fails:
            raise ModelFailed(Failure("network", "no line"), billed=False)
        text = "fine"
        output = self.outputs.pop(0) if self.outputs else self._output
        if self.first is not None:
            text = (await self.first.reply(request)).text
            output = 100
            self.first = None
        self.replied.append(output)
        micros = self.card.price(Usage(200, output)) or 0
        self.bill += micros
        return Reply(text, usage=Usage(200, output), micros=micros)


def chapters(model: Model, budget: Budget, count: int = 16) -> Team:
    tasks = tuple(Task(TaskId(f"t{at}"), f"Read chapter number {at} of it.", "ann") for at in range(count))
    return Team(
        [Worker("ann", model=model)], supervisor=Supervisor(model=model, plan=Plan(tasks, "none")), budget=budget
    )


@pytest.mark.parametrize("output", [900, 8_000, 20_000])
@pytest.mark.parametrize("cap", [200_000, 1_000_000])
async def test_a_model_that_ignores_its_limit_passes_the_cap_by_its_first_reply_at_most(output: int, cap: int) -> None:
    wordy = Wordy(output)
    found = await chapters(wordy, Budget(usd=cap / 1_000_000)).run("go")
    first = wordy.card.price(Usage(200, output)) or 0
    assert wordy.bill <= max(cap, first)
    assert found.spent.micros == wordy.bill
    assert found.overspent.micros == max(0, wordy.bill - cap)
    if wordy.bill > cap:
        assert found.ending != "complete"


async def test_the_same_where_several_teams_inside_share_the_model_and_the_cap() -> None:
    wordy = Wordy(20_000)
    below = [
        Team([Worker("ann")], supervisor=Supervisor(model=wordy, plan=ALONE), name=f"team{at}").as_worker(
            description="reads"
        )
        for at in range(5)
    ]
    tasks = tuple(Task(TaskId(f"t{at}"), f"Read chapter number {at} of it.", f"team{at}") for at in range(5))
    top = Team(below, supervisor=Supervisor(model=wordy, plan=Plan(tasks, "none")), budget=Budget(usd=0.5), policy=ONCE)
    found = await top.run("go")
    assert 0 < wordy.bill <= 500_000
    assert found.spent.micros == wordy.bill


async def test_calls_of_a_model_not_known_to_keep_its_limit_start_slowly_under_a_cap() -> None:
    for budget, card, first in (
        (Budget(usd=1000.0), DEAR, [1, 1, 2]),
        (Budget(usd=1000.0), structs.replace(DEAR, keeps_limit=True), [1, 2, 3]),
        (Budget(), DEAR, [1, 2, 3]),
    ):
        wordy = Wordy(900, card)
        found = await chapters(wordy, budget, count=40).run("go")
        assert found.ending == "complete"
        assert wordy.under_way_then[:3] == first
        assert max(wordy.under_way_then) > 5


@pytest.mark.parametrize("first_fails", [False, True])
async def test_a_fallback_nobody_knows_holds_nobody_up_while_it_is_not_called(first_fails: bool) -> None:
    """And once it is called, it starts slowly like any other."""
    known = Wordy(900, structs.replace(DEAR, handle="known", keeps_limit=True))
    spare = Wordy(20_000, structs.replace(DEAR, handle="spare"))
    known.fails = first_fails
    tasks = tuple(Task(TaskId(f"t{at}"), f"Read chapter number {at} of it.", "ann") for at in range(4))
    ann = Worker("ann", model=known, fallback_models=[spare])
    found = await Team([ann], supervisor=Supervisor(plan=Plan(tasks, "none")), budget=Budget(usd=3.0)).run("go")
    assert known.under_way_then[:3] == [1, 2, 3]
    assert found.ending == "complete"
    assert found.spent.micros <= 3_000_000
    assert spare.under_way_then[:1] == ([1] if first_fails else [])
    assert spare.under_way_then[1:2] == ([1] if first_fails else []), "the second waits for the first reply"


async def test_a_model_that_writes_more_than_ever_starts_slowly_again() -> None:
    wordy = Wordy(900)
    supervisor = chapters(wordy, Budget(usd=1000.0), count=48)
    wordy.outputs = [*[900] * 20, 20_000]
    found = await supervisor.run("go")
    assert found.ending == "complete"
    surprised = wordy.replied.index(20_000)
    later = [
        (under_way, replies - surprised)
        for under_way, replies in zip(wordy.under_way_then, wordy.replies_then, strict=True)
        if surprised + 1 < replies <= surprised + 16
    ]
    assert later
    assert all(under_way <= replies_since for under_way, replies_since in later), later


async def test_a_supervisor_that_wrote_a_short_plan_is_no_leave_for_long_replies_of_many() -> None:
    """One short reply lets two calls in, and not all of them."""
    tasks = [(f"Read chapter number {at} of it.", "ann", ()) for at in range(12)]
    script = model(plans=[plan(*tasks)], card=DEAR)
    wordy = Wordy(20_000)
    wordy.first = script
    found = await Team([Worker("ann")], supervisor=Supervisor(model=wordy, combine="none"), budget=Budget(usd=1.0)).run(
        "go"
    )
    assert found.spent.micros <= 1_000_000
    assert wordy.under_way_then[:3] == [1, 1, 2]


@pytest.mark.parametrize("cap", [300_000, 2_000_000])
async def test_a_supervisor_that_waited_for_the_first_reply_holds_what_was_learned_from_it(cap: int) -> None:
    """The refinement is asked for while the first call of the same model is under way."""
    wordy = Wordy(20_000)
    failing = ScriptedModel([Failure("logic", "wrong shelf"), "It is done."], card=FREE)
    tasks = (
        Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),
        Task(TaskId("t2"), "Read all of the chapter.", "bob"),
    )
    workers = [Worker("ann", model=failing), Worker("bob", model=wordy)]
    policy = Policy(retry=Retry(attempts=2, base=0.0001))
    top = Team(
        workers,
        supervisor=Supervisor(model=wordy, plan=Plan(tasks, "none")),
        budget=Budget(usd=cap / 1_000_000),
        policy=policy,
    )
    found = await top.run("go")
    held = [
        one.reserve for one in of_kind(found.entries, ev.SupervisionStarted) if isinstance(one, ev.SupervisionStarted)
    ]
    assert wordy.bill == found.spent.micros <= cap
    assert wordy.under_way_then == ([1, 1] if cap > 400_000 else [1])
    assert max(one.micros for one in held if one) > 100_000 or cap < 400_000


async def test_what_a_model_was_seen_to_write_is_reserved_from_then_on() -> None:
    wordy = Wordy(10_000)
    found = await chapters(wordy, Budget(usd=2.0), count=30).run("go")
    steps = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
    assert steps[-1].reserve is not None
    assert steps[-1].reserve.tokens >= 10_000


async def test_a_run_that_spent_more_than_its_cap_and_did_all_its_work_says_so() -> None:
    wordy = Wordy(20_000)
    found = await chapters(wordy, Budget(usd=0.15), count=1).run("go")
    assert (found.ending, found.reason) == ("complete", "overspent")
    assert found.overspent == Amount(micros=wordy.bill - 150_000)


async def test_every_call_says_how_long_its_reply_may_be() -> None:
    tasks = (("Add 1 and 2 and return the sum.", "factory", ()), ("Count the apples in the cellar.", "ann", ()))
    failing = iter([Failure("logic", "wrong shelf")])

    def work(_: Request) -> Line:
        return next(failing, "It is done.")

    for budget in (Budget(), Budget(usd=1000.0), Budget(tokens=10**7), Budget(calls=50)):
        script = model(plans=[plan(*tasks)], work=work)
        found = await team(script, factory=Factory([]), budget=budget, policy=Policy(retry=Retry(base=0.001))).run("Go")
        assert found.ending == "complete"
        assert all(one.settings.max_tokens == USUAL_LIMIT for one in script.requests)
    asked = {type(one.subject) for one in script.requests}
    assert asked >= {Planning, Working, Answering}


@pytest.mark.parametrize(
    ("card", "capped", "sent"),
    [
        (ModelCard("m", micros_in=0.0, micros_out=0.0), False, USUAL_LIMIT),
        (ModelCard("m", micros_in=0.0, micros_out=0.0, max_tokens=128_000), False, GENEROUS_LIMIT),
        (ModelCard("m", micros_in=0.0, micros_out=0.0, max_tokens=128_000), True, USUAL_LIMIT),
        (ModelCard("m", micros_in=0.0, micros_out=0.0, max_tokens=4_096), False, 4_096),
    ],
)
async def test_without_a_setting_it_goes_by_the_model_and_the_budget(card: ModelCard, capped: bool, sent: int) -> None:
    script = model(card=card)
    budget = Budget(usd=1000.0) if capped else Budget()
    await team(script, plan=ALONE, budget=budget).run("Count")
    assert [one.settings.max_tokens for one in script.requests] == [sent]
    set_by_hand = model(card=card)
    ann = Worker("ann", settings=Settings(max_tokens=77))
    await team(set_by_hand, ann, plan=ALONE, budget=budget).run("Count")
    assert [one.settings.max_tokens for one in set_by_hand.requests] == [77]


async def test_where_little_is_left_less_is_asked_for_and_below_a_floor_nothing() -> None:
    for cap, asked in ((200_000, USUAL_LIMIT), (50_000, None), (9_000, 0)):
        script = ScriptedModel(lambda _: "done", usage=Usage(100, 50), micros=700, card=DEAR)
        found = await team(script, plan=ALONE, budget=Budget(usd=cap / 1_000_000), policy=ONCE).run("Count")
        limits = [one.settings.max_tokens or 0 for one in script.requests]
        if asked is None:
            assert 1_000 <= limits[0] < USUAL_LIMIT
            assert (DEAR.price(Usage(0, limits[0])) or 0) <= cap
        elif asked:
            assert limits == [asked]
        else:
            assert (limits, found.ending, found.reason) == ([], "failed", "budget")
        kept_within(found.entries)


# --- replies that are cut


def cutting(*lines: str, card: ModelCard = FREE) -> ScriptedModel:
    """Each of these is cut off; after them a worker's work is whole."""
    left = list(lines)

    def line(request: Request) -> Line:
        if isinstance(request.subject, Working | Answering | Refining | Planning) and left:
            return Reply(left.pop(0), finish="length")
        return plan(("Count.", "ann", [])) if isinstance(request.subject, Planning) else "There are 12 [t1]."

    return ScriptedModel(line, usage=Usage(10, 5), micros=0, card=card)


async def test_a_workers_cut_reply_is_asked_for_again_with_more_room_and_never_taken_as_whole() -> None:
    script = cutting("There are tw")
    found = await team(script, plan=ALONE).run("Count")
    assert found.ending == "complete"
    assert "There are 12" in str(found.answer)
    assert [one.settings.max_tokens for one in script.requests] == [USUAL_LIMIT, 2 * USUAL_LIMIT]
    always = cutting(*["There are tw"] * 9)
    found = await team(always, plan=ALONE, policy=ONCE).run("Count")
    assert found.ending == "failed"
    assert "cut off" in found.gaps[0].message


async def test_a_cut_plan_is_asked_for_again_with_more_room() -> None:
    script = cutting('{"goal": "g", "tasks"')
    found = await team(script).run("Count")
    assert found.ending == "complete"
    assert [one.settings.max_tokens for one in script.requests][:2] == [USUAL_LIMIT, 2 * USUAL_LIMIT]


async def test_an_answer_that_stays_cut_says_that_it_is_not_whole() -> None:
    def line(request: Request) -> Line:
        if isinstance(request.subject, Answering):
            return Reply("There are 12 apples and", finish="length")
        return "There are 12."

    judge = ScriptedModel(line, usage=Usage(10, 5), micros=0, card=FREE)
    merged = Plan(ALONE.tasks, "merge")
    found = await team(judge, plan=merged).run("Count")
    assert str(found.answer).startswith("There are 12 apples and")
    assert "This answer is not whole: " in str(found.answer)
    assert found.ending == "partial"
    assert [gap.status for gap in found.gaps] == ["unwritten"]


# --- calls that never got through


async def test_a_host_that_cannot_be_reached_costs_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for plan_given in (ALONE, None):
        finder = Finder(lambda _: None)  # one each: a breaker that has opened would be waited for
        try:
            url = f"openai+http://127.0.0.1:{port}/v1#m"
            gone = finder.find(url, price=flat(2.0, 10.0), retry=Retry(base=0.001))
            await finder.prepare()
            budget = Budget(usd=0.5, tokens=50_000)
            found = await team(gone, plan=plan_given, budget=budget, policy=ONCE).run("Count")  # pyright: ignore[reportArgumentType]
            assert (found.ending, found.spent.tokens, found.spent.micros) == ("failed", 0, 0)
        finally:
            await finder.close()


@pytest.mark.parametrize("billed", [False, True])
async def test_a_failed_call_of_unknown_cost_is_charged_what_it_was_expected_to_use_unless_it_was_not_billed(
    billed: bool,
) -> None:
    dead = ModelFailed(Failure("network", "gone"), billed=billed)
    script = ScriptedModel(lambda _: dead, card=DEAR)
    found = await team(script, plan=ALONE, budget=Budget(usd=0.5), policy=ONCE).run("Count")
    (started,) = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
    assert started.expected is not None
    assert found.spent == (started.expected if billed else Amount(calls=1))
    assert found.lost == (started.expected if billed else NOTHING)
    kept_within(found.entries)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("gpt-4o-mini", 16_384),
        ("gpt-4o-2024-05-13", 4_096),
        ("gpt-4.1", 32_768),
        ("gpt-4", 4_096),
        ("gpt-5-mini", 128_000),
        ("openai/o3-mini", 100_000),
        ("claude-3-5-sonnet-20241022", 8_192),
        ("claude-sonnet-4-5", 64_000),
        ("claude-opus-4-1", 32_000),
        ("claude-opus-4-5", 64_000),
        ("gemini-2.5-pro", 65_536),
        ("llama3", 0),
        ("phi4", 0),
    ],
)
def test_what_models_write_at_most_is_known_by_their_names(name: str, limit: int) -> None:
    assert known_limit(name) == limit


class LateNews(Desk):
    """A desk at which it is learned, while money is being held, that the model writes more than it is asked for."""

    def __init__(self, spending: Spending, wordy: Wordy) -> None:
        super().__init__()
        self._spending = spending
        self._wordy = wordy

    async def hold(self, claim: Claim, *, extra: bool = False) -> bool:
        reply = Reply("x", usage=Usage(100, 20_000))
        self._spending.observations.of(self._wordy).add_reply(self._wordy.card, read=100, limit=8192, reply=reply)
        return await super().hold(claim, extra=extra)


async def test_more_is_held_for_a_model_that_was_seen_to_write_more_meanwhile() -> None:
    wordy = Wordy(20_000)
    spending = Spending(Budget(usd=1.0))
    role = SupervisorRole(wordy, Prompts(), "", Settings(), spending)
    calls = SupervisorCalls(role, LateNews(spending, wordy))
    reserved = await calls.hold(Request((Message("user", "Plan."),)))
    assert reserved is not None
    assert reserved.claim is not None
    first = reserved.claim.held
    await calls.call(reserved)
    assert reserved.claim.held.micros > first.micros
