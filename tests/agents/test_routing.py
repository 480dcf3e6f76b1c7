"""The way `route`: one task for whoever fits, two for the best two; what is not clear is never decided in silence."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
from msgspec import structs

from chargehand.agents.prompts import Prompts
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.spending import Spending
from chargehand.agents.strategies import Route
from chargehand.agents.strategies.route import check_route, read_decision
from chargehand.agents.supervision import Lead
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.events import NotedFact
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.engine.state import Work
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.memory.archives import Embedding
from chargehand.models.demo.model import DemoModel
from chargehand.models.messages import Message, Request, Settings, Usage
from chargehand.models.model import Model, ModelCard
from chargehand.models.request_facts import Answering, Routing, WorkerCard, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.executor import KeptReply, Proposal, WorkFailed
from chargehand.runtime.load import WorkerLoad
from chargehand.team import Team
from tests.agents.crowd import FREE, of_kind
from tests.agents.test_routers import TEAM, Bag

WORKERS = tuple(Worker(card.name, card.description, tags=card.tags) for card in TEAM)
ALL = (*WORKERS, Worker("helper", "does whatever is left"))
CARDS = (*TEAM, WorkerCard("helper", "does whatever is left"))


class Notes:
    """A context that keeps what was noted and told to a model."""

    heard = False
    route_examples = None

    def __init__(self, load: dict[str, WorkerLoad] | None = None) -> None:
        self.load = load or {}
        self.noted: list[str] = []
        self.told: list[Sequence[Message]] = []

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        self.noted.append(text)

    def release(self, amount: Amount) -> None: ...

    def worker_loads(self) -> dict[str, WorkerLoad]:
        return self.load

    def expect_work(self, workers: Sequence[str]) -> None: ...

    def model_call(self) -> AbstractContextManager[int]:
        return nullcontext(1)

    def record_call(
        self,
        model: str,
        seconds: float,
        tokens: Mapping[str, int],
        used: Amount | None,
        call: int = 0,
        expected: Amount | None = None,
        kept: KeptReply | None = None,
    ) -> None:
        pass

    def recorded_reply(self, request: str) -> str | None:
        return None

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None:
        self.told.append(messages)


def says(primary: str | None, secondary: str | None = None, confidence: float = 0.9) -> str:
    said = {"primary": primary, "secondary": secondary, "confidence": confidence, "reason": "the model says so"}
    return json.dumps(said)


def scripted(*lines: Line) -> ScriptedModel:
    return ScriptedModel(list(lines), usage=Usage(10, 5), micros=7, card=FREE, repeat=True)


async def routed(
    strategy: Route,
    goal: str,
    model: Model | None = None,
    embedding: Embedding | None = None,
    load: dict[str, WorkerLoad] | None = None,
    **more: object,
) -> tuple[Proposal, str]:
    cards = CARDS if strategy.generalist or strategy.rules else TEAM
    lead = Lead(
        model=model or DemoModel(),
        prompts=Prompts(),
        cards=cards,
        instructions="",
        settings=Settings(),
        max_tasks=50,
        spending=Spending(Budget()),
        embedding=embedding,
    )
    brief = structs.replace(Brief(Work("plan", TaskId(""), 1), goal, 1e9), **more)
    context = Notes(load)
    found = await strategy.propose(lead, brief, context)  # pyright: ignore[reportArgumentType] - all it needs of a hand
    return found, "\n".join(context.noted)


def whom(found: Proposal) -> list[str]:
    return [one.worker for one in found.tasks]


async def test_one_task_for_whoever_fits_and_its_result_is_the_answer() -> None:
    found, noted = await routed(Route("meaning"), "mend the gate", embedding=Bag())
    assert [(one.id, one.instruction, one.worker) for one in found.tasks] == [("t1", "mend the gate", "smith")]
    assert (found.combine, found.closed, found.used) == ("forward", True, NOTHING)
    assert "route to smith, confidence 1.00, by meaning" in noted
    assert "scores: smith" in noted


async def test_the_best_two_where_a_secondary_is_wanted_and_both_are_merged() -> None:
    model = scripted(says("smith", "clerk", 0.3))
    found, _ = await routed(Route("model", secondary=True), "a gate and a bill", model)
    assert (whom(found), found.combine) == (["smith", "clerk"], "merge")
    assert [one.id for one in found.tasks] == ["t1", "t2"]
    assert found.used == Amount(15, 7, 1)


async def test_rules_come_before_every_router() -> None:
    model = scripted(says("clerk"))
    for router in ("auto", "model", "rules", "words"):
        found, noted = await routed(Route(router, rules={"gate": "helper"}), "mend the gate", model)
        assert whom(found) == ["helper"]
        assert "by rules: the rule for 'gate'" in noted
    assert model.requests == []


async def test_a_stranger_goes_to_the_generalist_and_that_is_said() -> None:
    found, noted = await routed(Route("meaning", generalist="helper"), "quantum lecture", embedding=Bag())
    assert whom(found) == ["helper"]
    assert "the generalist gets it: it is like nothing that a worker says" in noted


async def test_without_a_generalist_a_stranger_is_refused_in_words() -> None:
    found, noted = await routed(Route("meaning"), "quantum lecture", embedding=Bag())
    assert found.tasks == ()
    (said,) = found.unserved
    assert said.startswith("No worker on the team fits this request")
    assert "baker: bakes bread, cakes and oven rolls; smith:" in said
    assert "route to no worker" in noted


async def test_what_is_not_clear_goes_to_the_generalist_too() -> None:
    strategy = Route("meaning", generalist="helper")
    found, noted = await routed(strategy, "a cake and a gate", embedding=Bag())
    assert whom(found) == ["helper"]
    assert "not clear enough whether" in noted
    lax, _ = await routed(structs.replace(strategy, threshold=0.0), "a cake and a gate", embedding=Bag())
    assert whom(lax) == ["smith"]


async def test_a_model_is_asked_only_where_meaning_is_not_clear_and_only_about_the_nearest() -> None:
    model = scripted(says("clerk"))
    found, _ = await routed(Route("hybrid"), "bake a cake", model, Bag())
    assert (whom(found), found.used, model.requests) == (["baker"], NOTHING, [])
    found, noted = await routed(Route("hybrid"), "a cake and a gate", model, Bag())
    assert (whom(found), found.used) == (["clerk"], Amount(15, 7, 1))
    assert "not clear by meaning" in noted
    subject = model.requests[0].subject
    assert isinstance(subject, Routing)
    assert len(subject.workers) <= 4


async def test_a_model_that_fails_leaves_a_hybrid_with_what_meaning_says() -> None:
    model = scripted(Failure("network", "the line went dead"))
    strategy = Route("hybrid", threshold=0.0)
    found, noted = await routed(strategy, "a cake and a gate", model, Bag())
    assert whom(found) == ["smith"]
    assert "the line went dead" in noted


async def test_auto_takes_the_best_router_there_is() -> None:
    model = scripted(says("clerk"))
    by = [
        (await routed(Route(), "mend the gate", model, Bag()))[1],
        (await routed(Route(), "mend the gate", DemoModel(), Bag()))[1],
        (await routed(Route(), "mend the gate", model))[1],
    ]
    small = ScriptedModel([says("clerk")], card=ModelCard("local:small", in_process=True))
    by.append((await routed(Route(), "mend the gate", small, Bag()))[1])
    assert ["by hybrid" in by[0], "by meaning" in by[1], "by model" in by[2], "by meaning" in by[3]] == [True] * 4
    assert len(model.requests) == 1
    assert whom((await routed(Route(), "forge ten nails"))[0]) == ["smith"], "the demo model"


async def test_the_load_may_shift_it_and_the_reason_is_noted() -> None:
    model = scripted(says("smith", "clerk", 0.5))
    found, noted = await routed(
        Route("model"), "a gate", model, load={"smith": WorkerLoad(4, 4), "clerk": WorkerLoad(0, 4)}
    )
    assert whom(found) == ["clerk"]
    assert "clerk instead of smith" in noted


async def test_a_useless_reply_goes_back_as_a_finding() -> None:
    model = scripted(says("zoe"), says("smith"))
    with pytest.raises(WorkFailed) as caught:
        await routed(Route("model"), "a gate", model)
    (finding,) = caught.value.findings
    assert "no worker 'zoe'" in finding.message
    found, _ = await routed(Route("model"), "a gate", model, findings=(finding,))
    assert whom(found) == ["smith"]
    assert "no worker 'zoe'" in model.requests[1].messages[1].text


async def test_asked_again_only_those_who_have_not_had_it_come_into_question() -> None:
    failed = Task(TaskId("t1"), "mend the gate", "smith")
    gap = Gap(TaskId("t1"), "failed", "logic", "the fire went out")
    again, _ = await routed(
        Route("meaning", generalist="helper"),
        "mend the gate",
        embedding=Bag(),
        tasks=(failed,),
        gaps=(gap,),
        replan=True,
    )
    (task,) = again.tasks
    assert (task.id, task.worker, task.replaces) == ("t2", "helper", "t1")
    enough, _ = await routed(Route("meaning"), "mend the gate", embedding=Bag(), tasks=(failed,))
    assert (enough.tasks, enough.closed) == ((), True)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (Route(generalist="zoe"), "generalist 'zoe' is not on the team"),
        (Route(rules={"a": "zoe"}), "a rule of the route names 'zoe'"),
    ],
)
async def test_a_way_that_names_nobody_there_is_refused(strategy: Route, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        check_route(strategy, ["ann"])
    with pytest.raises(WorkFailed) as caught:
        await routed(strategy, "a gate")
    assert caught.value.failure.permanent


# --- whole runs


def executor(request: Request) -> Line:
    match request.subject:
        case Routing():
            return says("smith", "clerk", 0.6)
        case Working() as subject:
            return f"{subject.worker.name} did it."
        case Answering():
            return "Both did it [t1] [t2]."
        case _:
            raise AssertionError(f"nobody asks for this in a route: {request.subject}")


def team(strategy: Route, model: Model | str) -> Team:
    quick = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
    return Team(
        WORKERS if not strategy.generalist else ALL,
        supervisor=Supervisor(model=model, strategy=strategy),
        journal=MemoryJournal(),
        policy=quick,
    )


async def test_a_run_by_route_forwards_the_result_and_keeps_the_reason_in_its_journal() -> None:
    model = ScriptedModel(executor, usage=Usage(10, 5), micros=7, card=FREE)
    found = await team(Route(), model).run("The gate is broken")
    assert (found.ending, found.answer) == ("complete", "smith did it.")
    assert len(model.requests) == 2, "the router and the worker: nobody writes an answer anew"
    (note,) = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
    assert "route to smith, confidence 0.60, by model: the model says so" in note


async def test_a_run_with_a_secondary_merges_what_both_say() -> None:
    model = ScriptedModel(executor, usage=Usage(10, 5), micros=7, card=FREE)
    found = await team(Route(secondary=True), model).run("The gate is broken")
    assert (found.ending, found.answer) == ("complete", "Both did it [t1] [t2].")
    assert [one.worker for one in found.plan.tasks] == ["smith", "clerk"]


async def test_a_run_that_nobody_is_meant_for_says_what_the_team_can_do() -> None:
    found = await team(Route(), "demo").run("How far is it to Jupiter?")
    assert found.ending != "complete"
    assert "The team can do this: baker" in str(found.answer) + str(found.gaps)


async def test_a_router_that_keeps_naming_a_stranger_is_told_and_then_the_generalist_gets_it() -> None:
    model = ScriptedModel(lambda request: says("zoe") if isinstance(request.subject, Routing) else "Done.", card=FREE)
    found = await team(Route("model", generalist="helper"), model).run("The gate is broken")
    assert (found.ending, found.answer, found.gaps) == ("complete", "Done.", ())
    assert [one.worker for one in found.plan.tasks] == ["helper"]
    routing = [one for one in model.requests if isinstance(one.subject, Routing)]
    assert ["There is no worker 'zoe'" in one.messages[1].text for one in routing] == [False, True, True]
    (added,) = [one for one in of_kind(found.entries, ev.TasksAdded) if isinstance(one, ev.TasksAdded)]
    assert added.fallback is not None
    assert "there is no worker 'zoe'; there are baker" in added.fallback.message


async def test_a_router_nobody_can_reach_leaves_strange_requests_to_the_generalist_and_says_so() -> None:
    dead = ScriptedModel(lambda _: Failure("network", "the line is dead"), handle="dead")
    quick = Policy(retry=Retry(attempts=1, base=0.001))
    workers = ScriptedModel(["It is far."], card=FREE)
    strategy = Route("model", generalist="helper")
    found = await Team(ALL, supervisor=Supervisor(model=workers, planner=dead, strategy=strategy), policy=quick).run(
        "How far is Jupiter?"
    )
    assert [one.worker for one in found.plan.tasks] == ["helper"]
    assert found.ending == "partial"
    assert "no plan could be made (the line is dead): helper was given the whole request" in str(found.answer)


# --- how sure a model is, as it writes it


@pytest.mark.parametrize(
    ("written", "meant"), [(0.1, 0.1), ("0.1", 0.1), ("10%", 0.1), (" 90 % ", 0.9), (7, 1.0), (None, 0.5)]
)
def test_a_confidence_is_read_however_it_is_written(written: object, meant: float) -> None:
    decision = read_decision(json.dumps({"primary": "smith", "confidence": written}), ["smith"])
    assert decision.confidence == pytest.approx(meant)


@pytest.mark.parametrize("written", ["high", "", "nan"])
def test_a_confidence_that_is_no_number_is_sent_back(written: str) -> None:
    with pytest.raises(Invalid, match="it is a number from 0 to 1"):
        read_decision(json.dumps({"primary": "smith", "confidence": written}), ["smith"])


async def test_a_request_that_a_second_decision_serves_is_not_told_as_refused() -> None:
    lead = ScriptedModel([says(None), says("smith")])
    workers = [Worker(name, "answers", model=ScriptedModel(["Done."], repeat=True)) for name in ("smith", "baker")]
    supervisor = Supervisor(model=lead, strategy=Route(router="model"))
    policy = Policy(limits=Limits(replans=1))
    result = await Team(workers, supervisor=supervisor, policy=policy, journal=MemoryJournal()).run("Do it.")
    assert (result.ending, result.answer, result.gaps) == ("complete", "Done.", ())
