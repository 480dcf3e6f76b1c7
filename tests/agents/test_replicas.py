"""Replicas: several models that serve the calls of one worker."""

import asyncio
import json
from pathlib import Path

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy
from chargehand.config.load import load_team
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Planning, ProgressLedger, Routing, Speaking, Splitting
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.models.wrappers import ReplicaPool
from chargehand.team import Team
from tests.agents.crowd import plan
from tests.agents.options import make_team
from tests.config.files import write

APPLES = "Count the apples on shelf"
ONCE = Policy(retry=Retry(attempts=1), refine=False)


def shelves(count: int) -> Plan:
    return Plan(tuple(Task(TaskId(f"t{n}"), f"{APPLES} {n}.", "ann") for n in range(1, count + 1)), "none")


def scripted(name: str, latency: float = 0.0) -> ScriptedModel:
    return ScriptedModel(["done"], handle=name, repeat=True, latency=latency)


def team(models: list[ScriptedModel], tasks: int, **more: object) -> Team:
    worker = Worker("ann", "counts", replicas=models, concurrency=2)
    return make_team([worker], model=models[-1], plan=shelves(tasks), journal=MemoryJournal(), **more)


async def test_each_call_goes_to_the_least_loaded_replica() -> None:
    models = [scripted("one", 0.005), scripted("two", 0.005)]
    found = await team(models, 6).run("Count")
    assert found.ending == "complete"
    assert [len(model.requests) for model in models] == [3, 3]
    assert {task.worker for task in found.trace().tasks} == {"ann"}


async def test_a_quick_replica_gets_more_calls_than_a_slow_one() -> None:
    quick, slow = scripted("quick", 0.005), scripted("slow", 0.1)
    await team([slow, quick], 8).run("Count")
    assert len(quick.requests) > len(slow.requests)


async def test_runs_at_once_do_not_all_begin_with_the_same_replica() -> None:
    models = [scripted("one", 0.005), scripted("two", 0.005)]
    same = team(models, 1)
    async with asyncio.TaskGroup() as jobs:
        for _ in range(4):
            jobs.create_task(same.run("Count"))
    assert [len(model.requests) for model in models] == [2, 2]


async def test_a_call_that_fails_goes_to_another_replica_and_the_failed_one_rests() -> None:
    dead = ScriptedModel([Failure("network", "the line is dead")], handle="dead", repeat=True)
    well = scripted("well")
    found = await team([dead, well], 8, policy=ONCE).run("Count")
    assert found.ending == "complete"
    assert len(dead.requests) <= 2, "once for each of the two tasks that began together"


async def test_where_all_replicas_fail_the_fallback_model_answers() -> None:
    dead = [ScriptedModel([Failure("network", "dead")], handle=name, repeat=True) for name in ("one", "two")]
    well = scripted("well")
    worker = Worker("ann", "counts", replicas=dead, fallback_models=[well])
    found = await Team([worker], supervisor=Supervisor(model=well, plan=shelves(1)), policy=ONCE).run("Count")
    assert found.ending == "complete"
    assert [len(model.requests) for model in dead] == [1, 1]


async def test_a_call_costs_what_the_replica_that_answered_costs() -> None:
    cards = [ModelCard(name, micros_in=price, micros_out=price) for name, price in (("cheap", 1.0), ("dear", 9.0))]
    models = [ScriptedModel(["done"], card=card, repeat=True, usage=Usage(10, 10)) for card in cards]
    assert ReplicaPool(models, {}).card.price(Usage(10, 10)) == 180, "what is reserved is the price of the dearest"
    found = await team(models, 2, budget=Budget(usd=1.0)).run("Count")
    assert found.spent.micros == 200


# --- those who lead know one worker


def leader(request: Request) -> Line:
    """One model for all ways of leading: ann, then an end."""
    match request.subject:
        case Routing():
            said = {"primary": "ann", "secondary": "bob", "confidence": 0.9, "reason": "she counts"}
            return json.dumps(said)
        case Splitting():
            parts = [{"instruction": f"{APPLES} {n}.", "worker": "ann"} for n in (1, 2)]
            return json.dumps({"simple": False, "subtasks": parts})
        case ProgressLedger():
            done = bool(request.subject.tasks)
            said = {"done": done, "progress": True, "next": "ann", "instruction": f"{APPLES} 1.", "why": "so"}
            return json.dumps(said)
        case Speaking():
            return json.dumps({"next": "ann", "why": "it is her turn"})
        case Planning():
            return plan((f"{APPLES} 1.", "ann", []))
        case Answering():
            return "All is counted [t1]."
        case _:
            return "Seven apples."


STRATEGIES = (Broadcast(), RoundRobin(max_turns=3), Dynamic(max_turns=2), Loop(), Recursive(depth=1), Route("model"))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
async def test_every_way_of_leading_works_with_replicas(strategy: Strategy) -> None:
    models = [ScriptedModel(leader, handle=name) for name in ("one", "two")]
    workers = (Worker("ann", "counts apples", replicas=models), Worker("bob", "sums up"))
    found = await Team(workers, supervisor=Supervisor(model=models[0], strategy=strategy), policy=ONCE).run(
        "Count the apples"
    )
    assert found.ending == "complete", found.gaps
    expected: dict[type[Strategy], list[str]] = {
        Broadcast: ["ann", "bob"],
        RoundRobin: ["ann", "bob", "ann"],
        Dynamic: ["ann", "bob"],
        Loop: ["ann"],
        Recursive: ["ann", "ann"],
        Route: ["ann"],
    }
    assert [task.worker for task in found.plan.tasks] == expected[type(strategy)]


# --- what cannot be


@pytest.mark.parametrize("given", [None, 2, True, "demo"])
def test_what_is_no_list_of_models_is_refused(given: object) -> None:
    with pytest.raises(Invalid, match=r"Worker 'ann': replicas is .*; write a list of models"):
        Worker("ann", replicas=given)  # pyright: ignore[reportArgumentType] - that is the point


def test_a_model_and_replicas_are_refused() -> None:
    with pytest.raises(Invalid, match="has a model and replicas"):
        Worker("ann", model="demo", replicas=["demo"])


FILE = """version: 1
name: shop
workers:
  ann:
    description: counts apples
    {more}
  bob: sums up
"""


def test_a_team_file_names_the_replicas(tmp_path: Path) -> None:
    loaded = load_team(write(tmp_path, FILE.format(more="replicas: [openai:a, openai:b]")))
    assert [agent.model for agent in loaded.roster.agents] == ["openai:a | openai:b", "demo"]


@pytest.mark.parametrize(
    ("wrong", "place"),
    [("replicas: 3", r"team.yaml:6.*workers.ann.replicas"), ("replicas: [demo]\n    model: demo", r"team.yaml:4.*ann")],
)
def test_what_is_wrong_with_replicas_is_said_of_their_worker(tmp_path: Path, wrong: str, place: str) -> None:
    with pytest.raises(Invalid, match=place):
        load_team(write(tmp_path, FILE.format(more=wrong)))
