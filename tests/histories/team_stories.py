"""Runs of real teams, for histories: every strategy, tools, checks, teams inside teams, people. On virtual time.

A story returns the entries of the run that is kept. Models are scripted; all else is what a user's program would use.
"""

import asyncio
import json
from collections.abc import Callable, Sequence

from chargehand import Supervisor, Team, Worker, tool
from chargehand.agents.checks import Rule, Verifier
from chargehand.agents.messages import MAIL, ONE
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route
from chargehand.engine import events as ev
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import (
    Answering,
    Planning,
    ProgressLedger,
    Reviewing,
    Speaking,
    Splitting,
    Working,
)
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Outcome, Runner
from tests.agents.playhouse import Playhouse
from tests.runtime.desk import desk

CARD = ModelCard("scripted", micros_in=1.0, micros_out=2.0)
QUICK = Policy(retry=Retry(attempts=2, base=0.5))
ANN = Worker("ann", "counts apples", tags=["fruit"])
BOB = Worker("bob", "counts pears", tags=["fruit"])
CID = Worker("cid", "writes letters", tags=["prose"])
Reading = Callable[[Request], Line]


def model(reads: Reading, *, latency: float = 0.7) -> ScriptedModel:
    return ScriptedModel(reads, usage=Usage(90, 10), micros=40, card=CARD, latency=latency)


def by_subject(**lines: Line | Callable[[Request], Line]) -> Reading:
    """A model that replies by what it is asked for: `working`, `planning`, `answering` and so on."""

    def read(request: Request) -> Line:
        kind = "" if request.subject is None else str(type(request.subject).__struct_config__.tag)
        line = lines.get(kind, "It is done.")
        return line(request) if callable(line) else line

    return read


def make_team(reads: Reading, *workers: Worker, supervisor: Supervisor | None = None, **more: object) -> Team:
    lead = supervisor or Supervisor()
    lead = Supervisor(**{name: getattr(lead, name) for name in ("plan", "strategy", "ask_person")}, model=model(reads))
    options: dict[str, object] = {"policy": QUICK, "journal": MemoryJournal(), "name": "crew", **more}
    return Team(workers or (ANN, BOB, CID), supervisor=lead, **options)  # pyright: ignore[reportArgumentType] - by name


def played(team: Team, goal: str = "Count the fruit and write it down.") -> list[ev.Entry]:
    return Playhouse().run(team, goal, "run")


def answered(team: Team, *answers: ev.InputAnswered) -> list[ev.Entry]:
    """A run that stops to ask, and goes on in another process with each answer."""
    house = Playhouse()
    house.run(team, "Count the fruit and write it down.", "run")
    for answer in answers:
        house.wait(20.0)
        house.play(lambda answer=answer: house.drive(team, lambda driver: driver.resume("run", answer)))
    return house.entries["run"]


def call(name: str, number: int = 1, **arguments: object) -> ToolCall:
    return ToolCall(f"call_{number}", name, json.dumps(arguments))


def calls(*made: ToolCall) -> Reply:
    return Reply(calls=made, finish="tools")


def tasks(*planned: Task) -> Supervisor:
    return Supervisor(plan=Plan(planned))


def count(name: str, worker: str = "ann", *after: str | Edge) -> Task:
    needs = tuple(need if isinstance(need, Edge) else TaskId(need) for need in after)
    return Task(TaskId(name), f"Count what {name} stands for.", worker, after=needs)


# --- strategies


def _route(goal: str) -> list[ev.Entry]:
    """In real time: words are compared in a thread."""
    lead = Supervisor(strategy=Route(router="words"), model=model(by_subject(), latency=0.02))
    return list(asyncio.run(Team([ANN, BOB, CID], supervisor=lead, name="crew").run(goal, run="run")).entries)


def routed() -> list[ev.Entry]:
    return _route("Count the apples.")


def routed_nowhere() -> list[ev.Entry]:
    return _route("Translate Beowulf into Basque.")


def looped() -> list[ev.Entry]:
    def look(request: Request) -> Line:
        assert isinstance(request.subject, ProgressLedger)
        steps = [("ann", "Count the apples."), ("bob", "Count the pears.")]
        at = len(request.subject.tasks)
        told: dict[str, object] = {"why": "so it is", "done": at >= len(steps), "looping": False, "progress": True}
        return json.dumps(told | ({"next": steps[at][0], "instruction": steps[at][1]} if at < len(steps) else {}))

    return played(
        make_team(by_subject(ledger=look, answering="12 and 7 [t1] [t2]."), supervisor=Supervisor(strategy=Loop()))
    )


def broadcast() -> list[ev.Entry]:
    return played(make_team(by_subject(), supervisor=Supervisor(strategy=Broadcast(match_all=("fruit",)))))


def round_robin() -> list[ev.Entry]:
    return played(make_team(by_subject(), supervisor=Supervisor(strategy=RoundRobin(max_turns=4))))


def dynamic() -> list[ev.Entry]:
    def choose(request: Request) -> Line:
        assert isinstance(request.subject, Speaking)
        names = ("ann", "cid", None)
        return json.dumps({"next": names[min(len(request.subject.said), 2)], "why": "it is their turn"})

    return played(make_team(by_subject(speaking=choose), supervisor=Supervisor(strategy=Dynamic(max_turns=5))))


def recursive() -> list[ev.Entry]:
    def split(request: Request) -> Line:
        assert isinstance(request.subject, Splitting)
        if request.subject.instruction.startswith("Count the fruit"):
            parts: list[dict[str, object]] = [
                {"instruction": "Count the apples.", "worker": "ann", "after": []},
                {"instruction": "Count the pears.", "worker": "bob", "after": []},
                {"instruction": "Write it down.", "worker": "cid", "after": [1, 2]},
            ]
            return json.dumps({"why": "it is much", "simple": False, "subtasks": parts})
        return json.dumps({"why": "it is little", "simple": True, "worker": "ann"})

    return played(make_team(by_subject(splitting=split), supervisor=Supervisor(strategy=Recursive(depth=2))))


# --- tools, checks, models


@tool(quick=True)
def shelf(place: str) -> str:
    """What is on a shelf."""
    return f"12 apples on {place}"


def tool_calls() -> list[ev.Entry]:
    """Calls with ids: one of a tool that there is not, which is never made, two at once, and the same ids again."""

    def work(request: Request) -> Line:
        turns = sum(message.role == "assistant" for message in request.messages)
        made: Sequence[Reply | str] = (
            calls(call("shelve", 1, place="the left"), call("shelf", 2, place="the left")),
            calls(call("shelf", 1, place="the right"), call("shelf", 2, place="the cellar")),
            "36 apples.",
        )
        return made[min(turns, 2)]

    worker = Worker("ann", "counts apples", tools=[shelf])
    return played(make_team(by_subject(working=work), worker, supervisor=tasks(count("apples"))))


def checked() -> list[ev.Entry]:
    """A result that a rule sends back and a verifier refuses; then one that both accept."""
    replies = iter(("12", "There are 12 apples on the shelf.", "There are 12 apples on the left shelf."))
    verdicts = iter((False, True))

    def review(request: Request) -> Line:
        assert isinstance(request.subject, Reviewing)
        accepted = next(verdicts, True)
        return json.dumps({"problems": [] if accepted else ["which shelf?"], "accepted": accepted})

    reads = by_subject(working=lambda _: next(replies, "There are 12 apples on the left shelf."), reviewing=review)
    worker = Worker("ann", "counts apples", accept=("long", "look"))
    checks = {"long": Rule(min_words=3), "look": Verifier()}
    return played(make_team(reads, worker, supervisor=tasks(count("apples")), checks=checks))


def other_model() -> list[ev.Entry]:
    """The model of a worker does not answer; the next one does."""
    dead = ScriptedModel([ev.Failure("network", "the line is dead")], repeat=True, card=CARD, handle="dead")
    spare = model(by_subject())
    worker = Worker("ann", "counts apples", model=dead, fallback_models=[spare])
    return played(make_team(by_subject(), worker, supervisor=tasks(count("apples"))))


def breaker_open() -> list[ev.Entry]:
    """The only model of a worker is dead: its breaker opens, the fallback worker takes over, later tasks wait."""
    dead = ScriptedModel([ev.Failure("network", "the line is dead")], repeat=True, card=CARD)
    ann = Worker("ann", "counts apples", model=dead, fallbacks=["bob"])
    policy = Policy(retry=Retry(attempts=2, base=0.5), breaking=Breaking(consecutive=2, open=3.0), refine=False)
    supervisor = tasks(count("one"), count("two"), count("three", "bob", Edge(TaskId("one"), "optional")))
    return played(make_team(by_subject(), ann, BOB, supervisor=supervisor, policy=policy))


# --- runs inside runs


def _nested() -> Playhouse:
    inner = make_team(by_subject(), supervisor=tasks(count("apples"), count("pears", "bob", "apples")), name="cellar")
    outer = make_team(
        by_subject(answering="All is counted [cellar] [letter]."),
        inner.as_worker("cellar", "counts what is in the cellar"),
        CID,
        supervisor=tasks(count("cellar", "cellar"), count("letter", "cid", "cellar")),
    )
    house = Playhouse()
    house.run(outer, "Count the fruit and write it down.", "run")
    return house


def nested() -> list[ev.Entry]:
    return _nested().entries["run"]


def nested_inside() -> list[ev.Entry]:
    """The run of the team inside."""
    house = _nested()

    async def read() -> list[ev.Entry]:
        (inside,) = await house.journal.inside("run")
        return await house.journal.read(inside)

    return house.loop.run_until_complete(read())


def messages() -> list[ev.Entry]:
    """A worker writes to another, who answers in a run of its own."""

    def work(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        if request.subject.worker.name != "ann" or any(message.role == "tool" for message in request.messages):
            return "There are 12."
        return calls(call(ONE, 1, message="How many apples?", worker="bob"))

    ann = Worker("ann", "counts apples", tools=MAIL, contacts=["bob"])
    return played(make_team(by_subject(working=work), ann, BOB, supervisor=tasks(count("apples"))))


def background() -> list[ev.Entry]:
    """The run of a worker that looks back on three others, after they have ended."""

    async def story() -> list[ev.Entry]:
        journal = MemoryJournal()
        team = desk(journal=journal)
        for number in range(1, 4):
            await team.run("What is the price of a room in Ghent?", run=f"turn-{number}")
            await team.rest()
        return await journal.read("desk-librarian-1")

    return asyncio.run(story())


# --- people


def asked_inside() -> list[ev.Entry]:
    """A team inside asks a person: the question comes up to the outermost run."""

    def work(request: Request) -> Line:
        if any(message.role == "tool" for message in request.messages):
            return "They are painted."
        return calls(call("ask_person", 1, question="Which colour?", options=["red", "blue"], free_text=True))

    painter = Worker("painter", "paints shelves", tools=["ask_person"])
    inner = make_team(by_subject(working=work), painter, supervisor=tasks(count("paint", "painter")), name="painters")
    outer = make_team(
        by_subject(), inner.as_worker("painters", "paint shelves"), supervisor=tasks(count("all", "painters"))
    )
    return answered(outer, ev.InputAnswered(1, "answer", result="green", by="ada"))


def planner_asks() -> list[ev.Entry]:
    def plan(request: Request) -> Line:
        assert isinstance(request.subject, Planning)
        if "The person answered" not in request.messages[-1].text:
            return json.dumps({"question": "Which cellar?", "options": ["left", "right"], "tasks": []})
        listed = [{"id": "t1", "instruction": "Count the apples.", "worker": "ann"}]
        return json.dumps({"tasks": listed, "combine": "forward"})

    team = make_team(by_subject(planning=plan), supervisor=Supervisor(ask_person=True))
    return answered(team, ev.InputAnswered(1, "answer", result="left", by="ada"))


@tool(effect="effect", approve=True, quick=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def call_rejected() -> list[ev.Entry]:
    """Two calls of one reply need leave: one is rejected, the other approved; the worker goes on with that."""

    def work(request: Request) -> Line:
        if any(message.role == "tool" for message in request.messages):
            return "One letter was sent."
        return calls(call("send", 1, to="Ott"), call("send", 2, to="Lehm"))

    worker = Worker("cid", "writes letters", tools=[send])
    team = make_team(by_subject(working=work), worker, supervisor=tasks(count("letters", "cid")))
    also = (ev.CallVerdict(2, "approve"),)
    return answered(team, ev.InputAnswered(1, "reject", "Ott has moved", also=also, by="ada"))


def cancelled_inside() -> list[ev.Entry]:
    """The outer run is cancelled while a team inside has an effect under way: the effect is in doubt."""

    @tool(effect="effect", trusted=True)
    async def ship(to: str) -> str:
        """Ship a crate."""
        await asyncio.sleep(100.0)
        return f"shipped to {to}"

    docker = Worker("docker", "ships crates", tools=[ship])
    reads = by_subject(working=calls(call("ship", 1, to="Ott")))
    inner = make_team(reads, docker, supervisor=tasks(count("crates", "docker")), name="dock")
    outer = make_team(reads, inner.as_worker("dock", "ships crates"), supervisor=tasks(count("all", "dock")))
    house = Playhouse()

    async def drive(driver: Runner) -> Outcome:
        async with asyncio.TaskGroup() as jobs:
            found = jobs.create_task(driver.start("run", outer.request("Ship it.", house.loop.time(), seed=7)))
            await asyncio.sleep(20.0)
            await driver.ask("run", ev.CancelRequested("nobody needs it any more", command="c1"))
        return found.result()

    house.play(lambda: house.drive(outer, drive))
    return house.entries["run"]


# --- ends that are none


def unanswered() -> list[ev.Entry]:
    """Everything is done, and the answer cannot be written."""

    def answer(request: Request) -> Line:
        assert isinstance(request.subject, Answering)
        return ev.Failure("network", "no line to the judge")

    return played(make_team(by_subject(answering=answer), supervisor=tasks(count("apples"), count("pears", "bob"))))


STORIES: tuple[Callable[[], list[ev.Entry]], ...] = (
    routed,
    routed_nowhere,
    looped,
    broadcast,
    round_robin,
    dynamic,
    recursive,
    tool_calls,
    checked,
    other_model,
    breaker_open,
    nested,
    nested_inside,
    messages,
    background,
    asked_inside,
    cancelled_inside,
    planner_asks,
    call_rejected,
    unanswered,
)
