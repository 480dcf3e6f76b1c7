"""`python -m tests.histories.make`: write down runs that every later version must understand. Overwrites nothing."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import FailureKind
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Edge, Plan, Task, TaskId
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from chargehand.engine.roster import Agent, Match, Roster
from chargehand.engine.state import Step
from chargehand.models.messages import Message
from chargehand.runtime.executor import Done, Proposal, StepContext, WorkFailed
from tests.histories.kept import HERE, expected_of, lines_of, names
from tests.histories.team_stories import STORIES
from tests.requests import request
from tests.virtual import NOW, Stage

CALL = Amount(tokens=100, micros=250, calls=1)
ROSTER = Roster(
    (
        Agent(
            name="ann",
            description="finds facts",
            tags=("facts", "fast"),
            tools=("search",),
            model="model-a",
            fallbacks=("bob",),
            concurrency=2,
            estimate=CALL,
            seconds=5.0,
            timeout=60.0,
            spec="v1",
        ),
        Agent("bob", "finds them too", ("facts",), estimate=CALL),
        Agent("cid", "writes", ("prose",), estimate=CALL, model="model-b"),
    ),
    supervision=CALL,
)
PAID = Move(used=CALL)


def task(name: str, *after: str | Edge, worker: str = "ann", **more: object) -> Task:
    needs = tuple(one if isinstance(one, Edge) else TaskId(one) for one in after)
    return structs.replace(Task(TaskId(name), f"carry out {name} of the report", worker, after=needs), **more)


def fails(kind: FailureKind, message: str, **more: object) -> Move:
    return structs.replace(Move(fail=kind, message=message, used=CALL), **more)


class Tools(ScriptedExecutor):
    """Works in steps: a search, an idempotent note and, for tasks called `send`, an effect. Plans in two pieces."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        for number, effect in enumerate(("read", "idempotent", "effect")):
            if effect == "effect" and not brief.work.task.startswith("send"):
                continue
            await asyncio.sleep(1.0)

            async def call(key: str, number: int = number) -> Done:
                await asyncio.sleep(1.0)
                return Done({"step": number, "found": ["x", "y"]}, CALL)

            await context.step("tool", call, request=f"{brief.work.task}/{number}", effect=effect, reserve=CALL)
            context.note(f"step {number} of {brief.work.task} is over")
        return await super().attempt(brief, context)

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        if brief.work.number > 1:
            more = (task("third", "second", worker="cid"),)
            return Proposal(more if len(brief.tasks) < 3 else (), "forward", used=CALL)
        await context.grow([task("first")])
        await asyncio.sleep(3.0)
        return Proposal((task("second", "first"),), "merge", closed=False, wake="any", used=CALL)


def crashed(stage: Stage, executor: ScriptedExecutor, last: Callable[[ev.Event], bool]) -> Stage:
    """Another process that finds what a first one left that died right after this event."""
    entries = stage.entries["run"]
    cut = next(entry.seq for entry in entries if last(entry.event))
    second = Stage(executor)
    second.loop.now = entries[cut - 1].at + 30.0
    second.entries["run"] = entries[:cut]

    async def restore() -> None:
        lease = await second.journal.claim("run", new=True)
        await second.journal.append(lease, entries[:cut])
        await second.journal.release(lease)

    second.play(restore)
    return second


def retries() -> Stage:
    moves = {
        "a": (fails("network", "the line went dead"), fails("resource", "busy", retry_after=2.0), PAID),
        "b": (fails("logic", "no sources given"), PAID),
        "c": (fails("timeout", "too slow"), fails("timeout", "too slow"), fails("timeout", "too slow"), PAID),
    }
    answers = (fails("network", "no line to the judge"), Move(result="It is done.", used=CALL))
    stage = Stage(
        ScriptedExecutor(Script(moves, refined={"b": "carry out b with sources"}, otherwise=PAID, answers=answers))
    )
    plan = Plan((task("a"), task("b"), task("c"), task("d", "a", "b", Edge(TaskId("c"), "optional"), worker="cid")))
    stage.start(request(plan, ROSTER, budget=Budget(calls=50, usd=0.05, floor=CALL)))
    return stage


def cascade() -> Stage:
    moves = {"T1": (fails("logic", "the source is closed"),)}
    plan = Plan((task("T1"), task("T2"), task("T3", "T1"), task("T4", "T2"), task("T5", "T3", "T4")))
    stage = Stage(ScriptedExecutor(Script(moves, otherwise=PAID)))
    stage.start(request(plan, ROSTER, policy=Policy(retry=Retry(base=0.0))))
    return stage


def approval() -> Stage:
    first = Plan((task("a"), task("b", worker="cid")))
    better = Plan((task("a"), task("b", "a", worker="cid"), task("c", "b")))
    stage = Stage(ScriptedExecutor(Script(plans=(first, better), otherwise=PAID)))
    stage.start(request(None, ROSTER, policy=Policy(approve=True)))
    stage.resume(ev.InputAnswered(1, "reject", "b cannot begin before a"))
    edited = Plan((task("a"), task("b", "a", worker="cid"), task("e", "b", instruction="carry out the end")), "select")
    stage.resume(ev.InputAnswered(2, "edit", plan=edited))
    return stage


def repeated() -> Stage:
    moves = {
        "list": (Move(result=["v", "w", "x", "y", "z"], used=CALL),),
        "each[1]": (fails("logic", "y is not there", permanent=True),),
    }
    each = task("each", for_each=TaskId("list"), at_least=3, worker="", match=Match(("facts",), ("fast", "prose")))
    stage = Stage(ScriptedExecutor(Script(moves, otherwise=PAID)))
    plan = Plan((task("list"), each, task("reduce", "each", worker="cid")), "reduce")
    stage.start(
        request(
            plan, structs.replace(ROSTER, agents=(structs.replace(ROSTER.agents[0], fallbacks=()), *ROSTER.agents[1:]))
        )
    )
    return stage


def streamed() -> Stage:
    stage = Stage(Tools(Script(otherwise=PAID)))
    stage.start(request(None, ROSTER))
    return stage


def budget() -> Stage:
    stage = Stage(ScriptedExecutor(Script(otherwise=PAID, answers=(PAID,))))
    plan = Plan(tuple(task(f"t{n}", *([f"t{n - 2}"] if n > 1 else []), worker="bob") for n in range(10)))
    stage.start(request(plan, ROSTER, budget=Budget(calls=8, usd=0.002, tokens=900, floor=CALL)))
    return stage


def deadline() -> Stage:
    moves = {"slow": (Move(seconds=500.0),), "slower": (fails("network", "no line", retry_after=25.0),)}
    stage = Stage(ScriptedExecutor(Script(moves, otherwise=PAID)))
    quick = [task("quick"), task("next", "quick"), task("then", "next")]
    plan = Plan((*quick, task("slow", worker="bob"), task("slower", worker="cid"), task("last", "slow")))
    stage.start(request(plan, ROSTER, policy=Policy(retry=Retry(attempts=5))), seconds=100.0)
    return stage


def crash() -> Stage:
    executor = Tools(Script({"b": (fails("logic", "not like this"), PAID)}, otherwise=PAID))
    stage = Stage(executor)
    stage.start(request(Plan((task("a"), task("b"), task("send", "a", worker="cid"))), ROSTER))

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepStarted) and (event.task, event.step) == ("b", 2)

    second = crashed(stage, executor, died)
    second.resume()
    return second


def abandoned() -> Stage:
    """The process dies in the same attempt until it is given up; a fallback worker takes the task."""
    executor = ScriptedExecutor(Script(otherwise=PAID))
    stage = Stage(executor)
    policy = Policy(limits=Limits(resumes=2))
    stage.start(request(Plan((task("a"), task("b", "a", worker="cid"))), ROSTER, policy=policy))
    for life in range(1, 4):
        starts = (entry.event for entry in stage.entries["run"] if isinstance(entry.event, ev.AttemptStarted))
        last_start = list(starts)[life - 1]
        stage = crashed(stage, executor, lambda event, start=last_start: event is start)
        stage.resume()
    return stage


def uncertain() -> Stage:
    executor = Tools(Script(otherwise=PAID))
    plan = Plan((task("a"), task("send", worker="cid"), task("after", "send")))
    stage = Stage(executor)
    stage.start(request(plan, ROSTER, policy=Policy(uncertain="ask")))

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepStarted) and event.effect == "effect"

    second = crashed(stage, executor, died)
    found = second.resume()
    assert found.question is not None
    second.resume(ev.InputAnswered(found.question.number, "done", result={"sent": True}))
    return second


def effect_again() -> Stage:
    """A person says that an effect in doubt was not had: it is made again."""
    executor = Tools(Script(otherwise=PAID))
    stage = Stage(executor)
    stage.start(request(Plan((task("send", worker="cid"),)), ROSTER, policy=Policy(uncertain="ask")))

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepStarted) and event.effect == "effect"

    second = crashed(stage, executor, died)
    found = second.resume()
    assert found.question is not None
    second.resume(ev.InputAnswered(found.question.number, "again", by="ada"))
    return second


def crashed_twice() -> Stage:
    """The process dies while it plans, and the next one in the middle of a task."""
    executor = Tools(Script(otherwise=PAID))
    stage = Stage(executor)
    stage.start(request(None, ROSTER))
    second = crashed(stage, executor, lambda event: isinstance(event, ev.TasksAdded))
    second.resume()

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepFinished) and event.step == 2

    third = crashed(second, executor, died)
    third.resume()
    return third


def cancelled_asking() -> Stage:
    """A run that waits for a person is cancelled; one task had not begun, one was done."""
    stage = Stage(Asks(Script(otherwise=PAID)))
    stage.start(request(None, ROSTER))
    stage.resume(ev.CancelRequested("nobody answers"))
    return stage


def items_of_items() -> Stage:
    """A task for each item of what a task for each item found; some items fail, one is tried again."""
    moves = {
        "list": (Move(result=["v", "w", "x"], used=CALL),),
        "each[2]": (fails("logic", "x is not there", permanent=True),),
        "again[0]": (fails("network", "no line"), PAID),
    }
    each = task("each", for_each=TaskId("list"), at_least=1, worker="bob")
    again = task("again", for_each=TaskId("each"), at_least=1, worker="cid")
    stage = Stage(ScriptedExecutor(Script(moves, otherwise=PAID)))
    stage.start(request(Plan((task("list"), each, again)), ROSTER, policy=Policy(retry=Retry(attempts=2, base=1.0))))
    return stage


def cancelled() -> Stage:
    stage = Stage(Tools(Script(otherwise=Move(seconds=30.0, used=CALL))))
    asked = structs.replace(
        request(Plan((task("a"), task("b", "a"), task("send", worker="cid"))), ROSTER), deadline=NOW + 600
    )

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", asked))
            await asyncio.sleep(10.0)
            await stage.driver.ask("run", ev.PauseSet(True, "lunch"))
            await asyncio.sleep(20.0)
            await stage.driver.ask("run", ev.PauseSet(False))
            await asyncio.sleep(10.0)
            await stage.driver.ask("run", ev.CancelRequested("nobody needs it any more"))

    stage.play(story)
    return stage


def steered() -> Stage:
    """A person skips a task, gives one to another worker and stops an attempt, while the others go on."""
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=30.0, used=CALL))))
    tasks = (task("a"), task("b", "a"), task("c", "b"), task("d", "a"), task("hangs", worker="bob"))
    asked = structs.replace(request(Plan(tasks), ROSTER), deadline=NOW + 600)

    async def story() -> None:
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(stage.driver.start("run", asked))
            await asyncio.sleep(10.0)
            await stage.driver.ask("run", ev.TaskSkipped(TaskId("b"), "person", by="ada"))
            await stage.driver.ask("run", ev.TaskReassigned(TaskId("d"), "cid", by="ada"))
            stopped = ev.Failure("stopped", "ada stopped it")
            await stage.driver.ask("run", ev.AttemptFailed(TaskId("hangs"), 1, stopped))

    stage.play(story)
    return stage


def forked() -> Stage:
    stage = Stage(ScriptedExecutor(Script({"a": (Move(result=[1, 2], used=CALL),)}, otherwise=PAID)))
    old = Plan((task("a"), task("b"), task("c", "a"), task("d", "b", "c")))
    stage.start(request(old, ROSTER), "first")
    changed = task("b", instruction="carry out b anew")
    more = [task("e", "d"), task("f", "e"), task("g", "b"), task("h", "f", "g")]
    asked = request(Plan((old.tasks[0], changed, *old.tasks[2:], *more)), ROSTER)
    asked = structs.replace(asked, deadline=NOW + 600)
    stage.play(lambda: stage.driver.fork("first", "run", asked))
    return stage


def replanned() -> Stage:
    """A planner that errs, breakers that open, a quorum, and a second plan that closes a gap."""
    cyclic = Plan((task("x", "y"), task("y", "x")))
    voters = [task(f"v{n}") for n in range(4)]
    quorum = tuple(Edge(one.id, "quorum") for one in voters)
    first = Plan((*voters, task("vote", *quorum, quorum=2, worker="cid"), task("gone", worker="cid")), "vote")
    second = Plan((task("instead", worker="bob", instruction="look it up elsewhere", replaces=TaskId("gone")),), "vote")
    moves = {
        "v2": (fails("network", "no line"),),
        "v3": (fails("network", "no line"),),
        "gone": (fails("logic", "not allowed", permanent=True),),
    }
    policy = Policy(
        retry=Retry(attempts=2, base=0.1),
        breaking=Breaking(consecutive=2, open=5.0),
        limits=Limits(replans=1, fan_out=20),
        refine=False,
    )
    stage = Stage(ScriptedExecutor(Script(moves, plans=(cyclic, first, second), otherwise=PAID)))
    stage.start(request(None, ROSTER, policy=policy))
    return stage


class Asks(Tools):
    """Says what its model is told, asks a person before it sends, and leaves a part of the request to nobody."""

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        context.prompt("model-a", (Message("system", "You plan."), Message("user", brief.goal)))
        tasks = (task("a"), task("send", "a", worker="cid"))
        return Proposal(tasks, "merge", used=CALL, unserved=("Nobody can fly.",))

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        context.prompt("model-a", (Message("system", "You work."), Message("user", brief.instruction)), ("send",))
        if brief.work.task == "send" and "send({})" not in (brief.answers or {}):
            question = ev.Question("tool", "send", {"to": "all"}, "tainted", ("cid",), key="send({})")
            raise WorkFailed(ev.Failure("approval", "send({})", question=question), CALL)
        return await super().attempt(brief, context)


def asked() -> Stage:
    stage = Stage(Asks(Script(otherwise=PAID)))
    stage.start(request(None, ROSTER))
    stage.resume(ev.InputAnswered(1, "approve"))
    return stage


class Wonders(Asks):
    """Says what its model took, and asks a person in words."""

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        await asyncio.sleep(2.0)
        context.record_call("model-a", 2.0, {"input": 90, "output": 10}, CALL)
        return Proposal((task("a"),), "merge", used=CALL)

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        if "colour" not in (brief.replies or {}):
            question = ev.Question("question", workers=("ann",), key="colour", options=("red", "blue"))
            raise WorkFailed(ev.Failure("approval", "Which colour?", question=question), CALL)
        return await super().attempt(brief, context)


def question() -> Stage:
    stage = Stage(Wonders(Script(otherwise=PAID)))
    stage.start(request(None, ROSTER))
    stage.resume(ev.InputAnswered(1, "answer", result="blue", by="ada"))
    return stage


def released() -> Stage:
    """Five orderly stops in the middle of one long attempt."""
    stage = Stage(ScriptedExecutor(Script(otherwise=Move(seconds=40.0, used=CALL))))
    patient = structs.replace(request(Plan((task("a"), task("b", "a"))), ROSTER), deadline=NOW + 600)

    async def story() -> None:
        for life in range(5):
            driving = stage.driver.resume("run") if life else stage.driver.start("run", patient)
            job = asyncio.get_running_loop().create_task(driving)
            await asyncio.sleep(10.0)
            job.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await job

    stage.play(story)
    stage.resume()
    return stage


class Refusing(ScriptedExecutor):
    """The first call of each task is refused by the provider: it costs nothing but itself."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        async def call(_key: str) -> Done:
            await asyncio.sleep(1.0)
            if brief.work.number == 1:
                raise WorkFailed(ev.Failure("resource", "too many calls", 2.0), Amount(calls=1))
            return Done("found", CALL)

        await context.step("model", call, kind="model", reserve=structs.replace(CALL, micros=900))
        return await super().attempt(brief, context)


def refused() -> Stage:
    stage = Stage(Refusing(Script(otherwise=Move())))
    capped = structs.replace(request(Plan((task("a"), task("b", "a"))), ROSTER), budget=Budget(usd=0.009))
    stage.start(structs.replace(capped, deadline=NOW + 600))
    return stage


def unplanned() -> Stage:
    """A planner that never finds a plan: the generalist gets the whole request."""
    cyclic = Plan((task("x", "y"), task("y", "x")))
    stage = Stage(ScriptedExecutor(Script(plans=(cyclic,), otherwise=PAID)))
    stage.start(request(None, structs.replace(ROSTER, generalist="cid", planner="model-a")))
    return stage


class Pays(ScriptedExecutor):
    """Makes two payments side by side, writes a note and then does what its script says; payments can be looked up."""

    def __init__(self, script: Script, *, looks: bool = False) -> None:
        super().__init__(script)
        self._looks = looks

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        task = brief.work.task

        async def pay(bill: str) -> None:
            async def call(_key: str) -> Done:
                await asyncio.sleep(1.0)
                return Done({"value": f"receipt of {bill}"}, CALL)

            await context.step(
                "pay",
                call,
                request=bill,
                effect="effect",
                reserve=CALL,
                arguments=f'{{"bill":"{bill}"}}',
                look=self._looks,
            )

        async def note(_key: str) -> Done:
            return Done("noted")

        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(pay(f"{task}/1"))
            jobs.create_task(pay(f"{task}/2"))
        await context.step("note", note, request=task)
        return await super().attempt(brief, context)

    async def look_up(self, brief: Brief, step: Step) -> Done | None:
        await asyncio.sleep(1.0)
        bill = str(step.decoded_arguments["bill"])
        return None if bill.endswith("1") else Done({"value": f"found {bill}"})


def retry_keeps_steps() -> Stage:
    """The line breaks after two payments: the next attempt goes on from them. After wrong work it begins anew."""
    moves = {"a": (fails("network", "the line broke"), fails("logic", "no total given"), PAID)}
    stage = Stage(Pays(Script(moves, otherwise=PAID)))
    stage.start(request(Plan((task("a"), task("b", "a"))), ROSTER, policy=Policy(refine=False)))
    return stage


def doubts_answered() -> Stage:
    """The process dies in payments of three tasks. A person answers for some of them, and is asked about the rest."""
    executor = Pays(Script(otherwise=PAID))
    stage = Stage(executor)
    stage.start(request(Plan((task("a"), task("b", worker="bob"), task("c", worker="cid"))), ROSTER))
    last = [event.task for event in stage.events(ev.StepStarted) if event.step == 2][-1]

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepStarted) and (event.task, event.step) == (last, 2)

    second = crashed(stage, executor, died)
    second.resume()
    asked = replay(second.entries["run"]).input
    assert asked is not None
    _, repeated, failed = dict.fromkeys(call.task for call in asked.calls)
    also = tuple(ev.CallVerdict(call.call, "again") for call in asked.calls if call.task == repeated)
    first = next(call.call for call in asked.calls if call.task == failed)
    also = (*also, ev.CallVerdict(first, "fail"))
    second.resume(ev.InputAnswered(1, "done", result="receipt 7", also=also, by="ada"))
    second.resume(ev.InputAnswered(2, "again"))
    return second


def looked_up() -> Stage:
    """Two payments are under way when the process dies. Their tool knows that one happened, and one did not."""
    executor = Pays(Script(otherwise=PAID), looks=True)
    stage = Stage(executor)
    stage.start(request(Plan((task("a"), task("b", "a", worker="cid"))), ROSTER))

    def died(event: ev.Event) -> bool:
        return isinstance(event, ev.StepStarted) and event.step == 2

    second = crashed(stage, executor, died)
    second.resume()
    return second


def call_refused() -> Stage:
    """A person refuses a call; the model says that all is done."""
    stage = Stage(Asks(Script(otherwise=PAID)))
    stage.start(request(None, ROSTER))
    stage.resume(ev.InputAnswered(1, "reject", "not to all of them", by="ada"))
    return stage


HISTORIES: tuple[Callable[[], Stage], ...] = (
    asked,
    question,
    retries,
    cascade,
    approval,
    repeated,
    streamed,
    budget,
    deadline,
    crash,
    abandoned,
    uncertain,
    cancelled,
    steered,
    forked,
    replanned,
    released,
    refused,
    unplanned,
    effect_again,
    crashed_twice,
    cancelled_asking,
    items_of_items,
    retry_keeps_steps,
    doubts_answered,
    looked_up,
    call_refused,
)


def entries_of_stage(tell: Callable[[], Stage]) -> list[ev.Entry]:
    stage = tell()
    return stage.play(lambda: stage.journal.read("run"))


def main() -> int:
    there = set(names())
    stories = {tell.__name__: partial(entries_of_stage, tell) for tell in HISTORIES}
    for name, tell in {**stories, **{story.__name__: story for story in STORIES}}.items():
        if name in there:
            print(f"{name} is there already and stays as it is")
            continue
        entries = tell()
        kept = b"".join(msgspec.json.encode(line) + b"\n" for line in lines_of(entries))
        expected = msgspec.json.encode(expected_of(replay(entries)))
        (HERE / f"{name}.jsonl").write_bytes(kept)
        (HERE / f"{name}.expected.json").write_bytes(msgspec.json.format(expected) + b"\n")
        print(f"{name}: {len(entries)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
