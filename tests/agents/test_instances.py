"""Workers that are there several times: led as one, at work as many, each with its own model, capacity and breaker."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.agents.copies import instances
from chargehand.agents.instances import kind_of, meant, tag_of
from chargehand.agents.mail import ONE
from chargehand.agents.ways import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Way
from chargehand.agents.worker import Worker
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.memory.blocks import Block
from chargehand.memory.declared import Memory
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.subject import Answering, Ledger, Planning, Routing, Speaking, Splitting, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.health import health
from chargehand.runtime.result import Result
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms import events as ev
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Plan, Task, TaskId
from chargehand.terms.policy import Breaking, Policy, Retry
from chargehand.terms.roster import Match
from tests.agents.crowd import call, calls, model, of_kind, plan
from tests.config.files import write

APPLES = "Count the apples on shelf"
ONCE = Policy(retry=Retry(attempts=1), refine=False)


def shelves(count: int, worker: str = "ann", combine: str = "none") -> Plan:
    tasks = tuple(Task(TaskId(f"t{n}"), f"{APPLES} {n}.", worker) for n in range(1, count + 1))
    return Plan(tasks, combine)  # pyright: ignore[reportArgumentType] - one of them


def crew(script: ScriptedModel, *workers: Worker, **more: object) -> Supervisor:
    options: dict[str, object] = {"journal": MemoryJournal(), **more}
    return Supervisor(workers, model=script, **options)  # pyright: ignore[reportArgumentType] - options of one test


def started(entries: Sequence[ev.Entry]) -> list[str]:
    return [one.worker for one in of_kind(entries, ev.AttemptStarted) if isinstance(one, ev.AttemptStarted)]


def counted(found: Result) -> dict[str, int]:
    who = started(found.entries)
    return {name: who.count(name) for name in sorted(set(who))}


# --- who works


async def test_tasks_go_to_the_idlest_instance_and_the_trace_names_it() -> None:
    script = ScriptedModel(["done"], repeat=True, latency=0.01)
    found = await crew(script, Worker("ann", "counts", instances=3), plan=shelves(9)).run("Count")
    assert counted(found) == {"ann-1": 3, "ann-2": 3, "ann-3": 3}
    assert {one.worker for one in found.trace().tasks} == {"ann-1", "ann-2", "ann-3"}


async def test_each_instance_has_the_capacity_of_the_worker() -> None:
    now = most = 0

    async def work(_request: Request) -> Line:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        return "done"

    await crew(ScriptedModel(work), Worker("ann", "counts", instances=2, capacity=2), plan=shelves(12)).run("Count")
    assert most == 4


async def test_runs_begin_with_another_instance_each() -> None:
    team = crew(ScriptedModel(["done"], repeat=True), Worker("ann", "counts", instances=3), plan=shelves(1))
    first = [team.request("Count", time.time(), seed=seed).roster.names() for seed in range(4)]
    assert first[0] == ("ann-1", "ann-2", "ann-3")
    assert first[1] == ("ann-2", "ann-3", "ann-1")
    assert first[3] == first[0]


async def test_each_may_have_a_model_of_its_own() -> None:
    models = [ScriptedModel(["done"], handle=name, repeat=True, latency=0.005) for name in ("one", "two")]
    found = await crew(models[0], Worker("ann", "counts", instances=models), plan=shelves(6)).run("Count")
    assert found.ending == "complete"
    assert [len(one.requests) for one in models] == [3, 3]
    assert [agent.model for agent in crew(models[0], Worker("ann", instances=models)).roster.agents] == ["one", "two"]


async def test_a_dead_one_is_left_out_once_its_breaker_opens_and_the_others_do_its_work() -> None:
    dead = ScriptedModel([Failure("network", "the line is dead")], handle="dead", repeat=True)
    well = ScriptedModel(["done"], handle="well", repeat=True, latency=0.002)
    policy = Policy(retry=Retry(attempts=1), breaking=Breaking(consecutive=2))
    worker = Worker("ann", "counts", instances=[dead, well, well], capacity=1)
    found = await crew(well, worker, plan=shelves(12), policy=policy).run("Count")
    assert found.ending == "complete"
    assert len(dead.requests) == 2
    noted = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
    assert any(text.startswith("breaker open: model dead is out of order, 2 failures in a row") for text in noted)
    state = {one.name: one.state for one in health([("r", found.entries)], time.time())}
    assert (state["ann-1"], state["ann-2"], state["ann-3"]) == ("open", "closed", "closed")


async def test_what_one_cannot_do_its_twins_are_not_asked_for() -> None:
    script = ScriptedModel([Failure("logic", "nobody could", permanent=True)], repeat=True)
    twins = Worker("ann", "counts", instances=8, fallbacks=["bob"])
    bob = Worker("bob", "counts", prompt="Count.")
    found = await crew(script, twins, bob, plan=shelves(1), policy=ONCE).run("Count")
    assert found.ending == "failed"
    assert len(started(found.entries)) == 2, "one of the eight, and who stands in"


async def test_a_fallback_that_is_there_several_times_stands_in_with_the_idlest_of_them() -> None:
    def work(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        dead = request.subject.worker.name == "ann"
        return Failure("logic", "cannot", permanent=True) if dead else "done"

    ann = Worker("ann", "counts", fallbacks=["bob"])
    bob = Worker("bob", "counts too", instances=2)
    found = await crew(ScriptedModel(work), ann, bob, plan=shelves(2), policy=ONCE).run("Count")
    assert found.ending == "complete"
    assert set(started(found.entries)) <= {"ann", "bob-1", "bob-2"}
    assert found.trace().tasks[0].worker.startswith("bob-")


# --- who leads


async def test_a_planner_sees_one_and_names_it() -> None:
    script = model(plans=[plan((f"{APPLES} 1.", "ann", []), (f"{APPLES} 2.", "Ann", []))])
    found = await crew(script, Worker("ann", "counts", instances=2), Worker("bob", "sums up")).run("Count")
    assert found.ending == "complete"
    asked = next(one.subject for one in script.requests if isinstance(one.subject, Planning))
    assert [card.name for card in asked.workers] == ["ann", "bob"]
    assert not any("ann-1" in part.text for one in script.requests for part in one.messages)
    assert sorted(started(found.entries)) == ["ann-1", "ann-2"]
    assert [meant(task) for task in found.plan.tasks] == ["ann", "ann"]


async def test_a_plan_that_is_streamed_or_names_nobody_finds_them_too() -> None:
    for given in ("ann", ""):
        script = model(plans=[plan((f"{APPLES} 1.", given, []), (f"{APPLES} 2.", given, []))])
        found = await crew(script, Worker("ann", "counts", instances=2), stream_plan=True).run("Count")
        assert found.ending == "complete"
        assert len(started(found.entries)) == 2
        assert set(started(found.entries)) <= {"ann-1", "ann-2"}


async def test_one_who_refines_or_replans_hears_only_the_name() -> None:
    script = model(
        plans=[plan((f"{APPLES} 1.", "ann", [])), plan((f"{APPLES} 2.", "bob", []))],
        work=lambda request: (
            Failure("logic", "the shelf is gone")
            if isinstance(request.subject, Working) and request.subject.worker.name == "ann"
            else "done"
        ),
    )
    limits = Policy(retry=Retry(attempts=2))
    team = crew(script, Worker("ann", "counts", instances=2), Worker("bob", "counts"), policy=limits, review=True)
    await team.run("Count")
    told = "\n".join(part.text for one in script.requests for part in one.messages)
    assert "t1 (ann" in told
    assert "ann-1" not in told
    assert "ann-2" not in told


def leader(request: Request) -> Line:
    """One model for all ways of leading: ann, then an end."""
    match request.subject:
        case Routing():
            said = {"primary": "ann", "secondary": "bob", "confidence": 0.9, "reason": "she counts"}
            return json.dumps(said)
        case Splitting():
            parts = [{"instruction": f"{APPLES} {n}.", "worker": "ann"} for n in (1, 2)]
            return json.dumps({"simple": False, "subtasks": parts})
        case Ledger():
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


WAYS = (Broadcast(), RoundRobin(most_turns=3), Dynamic(most_turns=2), Loop(), Recursive(depth=1), Route("model"))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: type(way).__name__)
async def test_every_way_of_leading_sees_one_and_asks_one_of_them(way: Way) -> None:
    script = ScriptedModel(leader)
    workers = (Worker("ann", "counts apples", instances=2), Worker("bob", "sums up"))
    found = await crew(script, *workers, way=way, policy=ONCE).run("Count the apples")
    assert found.ending == "complete", found.gaps
    names = [meant(task) for task in found.plan.tasks]
    expected: dict[type[Way], list[str]] = {
        Broadcast: ["ann", "bob"],
        RoundRobin: ["ann", "bob", "ann"],
        Dynamic: ["ann", "bob"],
        Loop: ["ann"],
        Recursive: ["ann", "ann"],
        Route: ["ann"],
    }
    assert names == expected[type(way)]
    assert set(started(found.entries)) <= {"ann-1", "ann-2", "bob"}
    assert not any("ann-" in part.text for one in script.requests for part in one.messages)


async def test_rules_and_the_generalist_of_a_route_name_the_worker() -> None:
    way = Route("rules", rules={"apples": "ann"}, generalist="bob")
    workers = (Worker("ann", "counts", instances=2), Worker("bob", "helps", instances=2))
    team = crew(ScriptedModel(["done"], repeat=True), *workers, way=way)
    assert started((await team.run("Count the apples")).entries)[0].startswith("ann-")
    assert started((await team.run("Mow the lawn")).entries)[0].startswith("bob-")


async def test_nobody_can_plan_and_the_only_worker_gets_it_all() -> None:
    lost = ScriptedModel([Failure("logic", "no plan")], handle="lost", repeat=True)
    team = crew(ScriptedModel(["done"], repeat=True), Worker("ann", "counts", instances=3), planner=lost)
    found = await team.run("Count the apples")
    assert found.ending == "complete"
    assert started(found.entries)[0].startswith("ann-")


async def test_a_person_may_send_a_plan_that_names_the_worker() -> None:
    script = model(plans=[plan((f"{APPLES} 1.", "ann", []))])
    team = crew(script, Worker("ann", "counts", instances=2), policy=Policy(approve=True))
    first = await team.run("Count", run="r")
    assert first.ending == "needs_input"
    assert first.question is not None
    edited = ev.InputAnswered(first.question.number, "edit", plan=shelves(2))
    found = await team.resume("r", edited)
    assert found.ending == "complete"
    assert len(started(found.entries)) == 2


# --- after a crash


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


async def test_a_run_resumed_after_any_entry_comes_to_the_same() -> None:
    def team(journal: MemoryJournal | None = None) -> Supervisor:
        dead = ScriptedModel([Failure("network", "the line is dead")], handle="dead", repeat=True)
        nothing: list[str] = []
        script = model(plans=[plan(*((f"{APPLES} {n}.", "ann", nothing) for n in range(1, 5)))])
        policy = Policy(retry=Retry(attempts=1), breaking=Breaking(consecutive=2))
        worker = Worker("ann", "counts", instances=[dead, script, script])
        return crew(script, worker, policy=policy, journal=journal or MemoryJournal())

    whole = await team().run("Count", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(whole.entries)):
        found = await team(await cut(whole.entries, at)).resume("r")
        assert (found.ending, found.results) == ("complete", whole.results), at
        notes = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
        assert sum(text.startswith("breaker open: model dead is out of order") for text in notes) <= 1, at


# --- what goes by name


async def test_a_message_by_name_or_to_all_has_one_reply_for_each_worker() -> None:
    team = crew(ScriptedModel(["seven"], repeat=True), Worker("ann", tags=["x"], instances=3), Worker("bob"))
    one = await team.message("How many?", workers=["ann"])
    assert [(reply.worker, reply.status) for reply in one.replies] == [("ann", "answered")]
    everybody = await team.message("How many?")
    assert [reply.worker for reply in everybody.replies] == ["ann", "bob"]
    assert team.tags() == {"x": ("ann",)}
    again = await team.message("How many?", match_some=["x"], run="m")
    assert (await team.message("How many?", match_some=["x"], run="m")).replies == again.replies
    assert again["ann"].text == "seven"


async def test_workers_write_to_the_worker_and_never_to_a_copy_of_themselves() -> None:
    def work(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        if request.subject.worker.name == "bob" or len(request.messages) > 2:
            return request.messages[-1].text if request.subject.worker.name == "ann" else "seven"
        asked = [("bob", "c1"), ("ann", "c2")]
        return Reply(
            calls=tuple(ToolCall(key, ONE, json.dumps({"message": "How many?", "worker": to})) for to, key in asked),
            finish="tools",
        )

    ann = Worker("ann", "asks", tools=[ONE], contacts=["*"], instances=2)
    script = ScriptedModel(work)
    found = await crew(script, ann, Worker("bob", "counts", instances=2), plan=shelves(1), policy=ONCE).run("Count")
    assert found.ending == "complete"
    told = "\n".join(part.text for part in script.requests[-1].messages if part.role == "tool")
    assert '"status":"answered","worker":"bob"' in told.replace(" ", "")
    assert "That is yourself" in told


async def test_all_instances_share_what_the_worker_may_and_what_it_remembers() -> None:
    def work(request: Request) -> Line:
        if len(request.messages) > 2:
            return "noted"
        return calls(call("core_memory_append", label="notes", content="seven on one shelf"))

    script = ScriptedModel(work, usage=Usage(10, 5))
    memory = Memory(blocks=[Block("notes", "", "what was found")])
    worker = Worker("ann", "counts", instances=2, blocks={"notes": "write"}, remembers=True, capacity=1)
    team = crew(script, worker, plan=shelves(2), memory=memory)
    found = await team.run("Count")
    assert found.ending == "complete", found.gaps
    assert counted(found) == {"ann-1": 1, "ann-2": 1}
    async with team.remembering() as opened:
        assert list(opened.agents) == ["ann"]
        (block,) = [one.thing for one in await opened.catalog.attached(opened.agents["ann"])]
        assert isinstance(block, Block)
        assert block.value.count("seven on one shelf") == 2


async def test_what_one_instance_did_is_used_again_whichever_comes_first() -> None:
    script = ScriptedModel(["seven"], repeat=True)
    team = crew(script, Worker("ann", "counts", instances=3), plan=shelves(1, combine="forward"), cache=60.0)
    for _ in range(4):
        assert (await team.run("Count")).ending == "complete"
    assert len(script.requests) == 1


async def test_a_team_may_be_there_several_times() -> None:
    inner = Supervisor(
        [Worker("cyd", "counts")],
        model=ScriptedModel(["seven"], repeat=True),
        name="counters",
        plan=shelves(1, "cyd", "forward"),
    )
    worker = inner.as_worker("ann", "counts")
    team = crew(ScriptedModel(["seven"], repeat=True), structs.replace(worker, instances=2), plan=shelves(4))
    found = await team.run("Count")
    assert (found.ending, counted(found)) == ("complete", {"ann-1": 2, "ann-2": 2})


# --- what cannot be


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (0, "has 0 instances; give it 1 to 64"),
        (-2, "has -2 instances"),
        (65, "has 65 instances"),
        ([], "has 0 instances"),
        (["demo"] * 65, "has 65 instances"),
        ("demo", "has the instances 'demo'; give a number, or a list of models"),
    ],
)
def test_a_number_that_is_none_is_refused(given: object, said: str) -> None:
    with pytest.raises(Invalid, match=r"worker 'ann' ") as caught:
        Supervisor([Worker("ann", instances=given)])  # pyright: ignore[reportArgumentType] - that is the point
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([Worker("ann", instances=2), Worker("ann-2")], "an instance called 'ann-2', as another worker is"),
        ([Worker("ann", instances=2), Worker("bob", tags=["one of ann"])], "which 'bob' has; drop it"),
        ([Worker("ann", model="demo", instances=["demo", "demo"])], "names one for each instance"),
    ],
)
def test_names_that_would_mean_two_are_refused(workers: list[Worker], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        Supervisor(workers)
    assert said in str(caught.value)


def test_one_instance_is_the_worker_itself() -> None:
    assert Supervisor([Worker("ann", instances=1)]).roster.names() == ("ann",)
    one = Supervisor([Worker("ann", instances=["demo"])])
    assert [(agent.name, agent.model) for agent in one.roster.agents] == [("ann", "demo")]


def test_only_what_is_an_instance_counts_as_one() -> None:
    team = Supervisor([Worker("ann", instances=2), Worker("bob", tags=["one of a kind"]), Worker("cyd")])
    assert [kind_of(agent) for agent in team.roster.agents] == ["ann", "ann", "bob", "cyd"]
    assert meant(Task(TaskId("t"), "x", match=Match((tag_of("ann"),)))) == "ann"
    assert meant(Task(TaskId("t"), "x", match=Match((tag_of("ann"), "y")))) == ""


def test_the_name_of_an_instance_is_nobody_elses_written_differently() -> None:
    many = instances([Worker("ann", instances=2), Worker("ann2", instances=3)])
    tasks = [Task(TaskId("t"), "x", name) for name in ("ann-2", "ann", "ANN 2")]
    assert [meant(one) for one in many.spread(tasks)] == ["ann-2", "ann", "ann2"]


# --- in a team file

FILE = """version: 1
name: shop
workers:
  ann:
    description: counts apples
    instances: {instances}
  bob: sums up
"""


def test_a_team_file_says_how_many_or_which_models(tmp_path: Path) -> None:
    team = load_team(write(tmp_path, FILE.format(instances=3)))
    assert team.roster.names() == ("ann-1", "ann-2", "ann-3", "bob")
    team = load_team(write(tmp_path, FILE.format(instances="[demo, demo]")))
    assert [agent.model for agent in team.roster.agents][:2] == ["demo", "demo"]


@pytest.mark.parametrize("wrong", ["0", "-1", "65", "[]", "many", "1.5"])
def test_what_is_wrong_with_it_is_said_of_its_line(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(Invalid) as caught:
        load_team(write(tmp_path, FILE.format(instances=wrong)))
    assert "team.yaml:6" in str(caught.value)
    assert "workers.ann.instances" in str(caught.value)
