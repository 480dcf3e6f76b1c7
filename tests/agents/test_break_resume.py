"""Resumed teams, as an adversary would have it: a crash after every entry, and nothing is paid, asked or done twice."""

from collections.abc import Callable, Sequence

import pytest

from chargehand.agents.result import Result
from chargehand.agents.roles import Factory, Worker
from chargehand.engine import events as ev
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Reply, Request, ToolCall
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import CallKey, Tool, tool
from tests.agents.crowd import call, calls, model, of_kind, plan, refused_calls, team

QUICK = Policy(retry=Retry(base=0.001))
UNASKED = Policy(tainted_effects="allow")
APPLES = ("Count the apples in the cellar.", "ann", ())
PEARS = ("Count the pears in the attic.", "bob", ())
BOTH = ("Add the apples and the pears.", "ann", ("t1", "t2"))


class World:
    """Tools that remember what they did, with the keys they were given."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.stored: list[tuple[str, str]] = []

        @tool(effect="effect")
        def send(to: str, key: CallKey) -> str:
            """Send a letter."""
            self.sent.append((to, key))
            return f"sent to {to}"

        @tool(effect="idempotent")
        def store(name: str, key: CallKey) -> str:
            """Store a name."""
            self.stored.append((name, key))
            return f"stored {name}"

        @tool(effect="effect", approve=True)
        def pay(to: str) -> str:
            """Pay somebody."""
            self.sent.append((to, ""))
            return f"paid {to}"

        @tool
        def add(a: int, b: int) -> int:
            """Add two whole numbers."""
            return a + b

        self.tools: dict[str, Tool] = {one.name: one for one in (send, store, pay, add)}

    def pick(self, *names: str) -> list[Tool]:
        return [self.tools[name] for name in names]


def step(request: Request) -> int:
    """How many replies of its own a worker sees: a script that depends on what it is shown and on nothing else."""
    return sum(one.role == "assistant" for one in request.messages)


def by_step(*lines: Line) -> Callable[[Request], Line]:
    return lambda request: lines[min(step(request), len(lines) - 1)]


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


def undone(entries: Sequence[ev.Entry]) -> bool:
    """Whether an effect was begun in these entries and not finished."""
    begun = {
        (e.task, e.attempt, e.step)
        for one in entries
        if isinstance(e := one.event, ev.StepStarted) and e.effect == "effect"
    }
    return bool(begun - {(e.task, e.attempt, e.step) for one in entries if isinstance(e := one.event, ev.StepFinished)})


async def say_done(executor: Team, found: Result) -> Result:
    """Say of every effect in doubt that it happened."""
    assert found.question is not None
    assert found.question.what == "effect"
    others = tuple(ev.CallVerdict(pending.call, "done", result="it happened") for pending in found.question.calls[1:])
    return await executor.resume(
        "r", ev.InputAnswered(found.question.number, "done", result="it happened", also=others)
    )


async def test_parallel_calls_survive_a_crash_after_any_entry() -> None:
    work = by_step(
        calls(
            call("send", 1, to="ann"), call("store", 2, name="bob"), call("add", 3, a=1, b=2), call("send", 4, to="eve")
        ),
        "All is done.",
    )
    first = World()
    whole = await team(model(work=work), Worker("ann", tools=first.pick("send", "store", "add"))).run("Count", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(whole.entries)):
        again = World()
        executor = team(
            model(work=work),
            Worker("ann", tools=again.pick("send", "store", "add")),
            journal=await cut(whole.entries, at),
        )
        found = await executor.resume("r")
        if undone(whole.entries[:at]):
            found = await say_done(executor, found)
            assert (found.ending, found.results) == ("complete", whole.results), at
            continue
        assert (found.ending, found.results) == ("complete", whole.results), at
        recorded = {
            one.step for one in of_kind(whole.entries[:at], ev.StepFinished) if isinstance(one, ev.StepFinished)
        }
        assert len(again.sent) == 2 - len(recorded & {2, 5}), at
        keys = {key for _, key in (*first.sent, *first.stored)}
        assert {key for _, key in (*again.sent, *again.stored)} <= keys, "a repeated call has the key of the first"


async def test_a_task_with_inputs_is_not_paid_again_either() -> None:
    def work(request: Request) -> Line:
        if "Add the apples" not in request.messages[1].text:
            return "12"
        return by_step(calls(call("add", a=12, b=12)), calls(call("send", 2, to="bob")), "24")(request)

    def executor(world: World, script: ScriptedModel, journal: MemoryJournal | None = None) -> Team:
        workers = (Worker("ann", tools=world.pick("add", "send")), Worker("bob"))
        return team(script, *workers, journal=journal, policy=UNASKED)

    whole = await executor(World(), model(plans=[plan(APPLES, PEARS, BOTH)], work=work)).run("Count", run="r")
    assert whole.ending == "complete"
    asked: list[int] = []
    for at in range(1, len(whole.entries)):
        script = model(plans=[plan(APPLES, PEARS, BOTH)], work=work)
        world = World()
        resumed = executor(world, script, await cut(whole.entries, at))
        found = await resumed.resume("r")
        if undone(whole.entries[:at]):
            found = await say_done(resumed, found)
            assert (found.ending, found.results, world.sent) == ("complete", whole.results, []), at
            continue
        assert (found.ending, found.results) == ("complete", whole.results), at
        asked.append(len(script.requests))
        notes = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
        assert not [one for one in notes if "diverged" in one], at
    assert asked == sorted(asked, reverse=True), "the later the crash, the less is asked again"


async def test_a_person_is_asked_once_for_a_task_with_inputs() -> None:
    world = World()
    script = model(
        plans=[plan(APPLES, PEARS, BOTH)],
        work=lambda request: (
            by_step(calls(call("pay", to="bob")), "paid")(request) if "Add the" in request.messages[1].text else "12"
        ),
    )
    executor = team(script, Worker("ann", tools=world.pick("pay")), Worker("bob"))
    asked = await executor.run("Count", run="r")
    assert asked.question is not None
    before = len(script.requests)
    found = await executor.resume("r", ev.InputAnswered(asked.question.number, "approve"))
    assert (found.ending, world.sent) == ("complete", [("bob", "")])
    assert len(script.requests) == before + 2, "one more step and the answer; what was recorded is not asked again"


async def test_approval_survives_a_crash_after_any_entry() -> None:
    work = by_step(calls(call("add", a=1, b=1)), calls(call("pay", to="bob"), call("add", 2, a=2, b=2)), "paid")
    first = World()
    executor = team(model(work=work), Worker("ann", tools=first.pick("pay", "add")))
    asked = await executor.run("Count", run="r")
    assert asked.question is not None
    whole = await executor.resume("r", ev.InputAnswered(asked.question.number, "approve"))
    assert (whole.ending, first.sent) == ("complete", [("bob", "")])
    for at in range(1, len(whole.entries)):
        world = World()
        again = team(
            model(work=work), Worker("ann", tools=world.pick("pay", "add")), journal=await cut(whole.entries, at)
        )
        found = await again.resume("r")
        answered = any(isinstance(one.event, ev.InputAnswered) for one in whole.entries[:at])
        if undone(whole.entries[:at]):
            found = await say_done(again, found)
            assert (found.ending, found.results, world.sent) == ("complete", whole.results, []), at
            continue
        if not answered:
            assert (found.ending, world.sent) == ("needs_input", []), at
            assert found.question is not None
            assert found.question.text == 'pay({"to": "bob"})'
            found = await again.resume("r", ev.InputAnswered(found.question.number, "approve"))
        assert (found.ending, found.results) == ("complete", whole.results), at


async def test_two_tasks_that_ask_at_once_are_both_heard_one_after_the_other() -> None:
    world = World()

    def work(request: Request) -> Line:
        who = "ann" if "apples" in request.messages[1].text else "bob"
        return "paid" if step(request) else calls(call("pay", to=who))

    workers = (Worker("ann", tools=world.pick("pay")), Worker("bob", tools=world.pick("pay")))
    executor = team(model(plans=[plan(APPLES, PEARS)], work=work), *workers)
    found = await executor.run("Count", run="r")
    texts: list[str] = []
    for _ in range(2):
        assert found.question is not None
        texts.append(found.question.text)
        verdict = "approve" if "ann" in found.question.text else "reject"
        found = await executor.resume("r", ev.InputAnswered(found.question.number, verdict))
    assert sorted(texts) == ['pay({"to": "ann"})', 'pay({"to": "bob"})']
    assert (found.ending, world.sent) == ("partial", [("ann", "")])
    assert refused_calls(found) == [("pay", {"to": "bob"})]


async def test_leave_for_one_call_is_not_leave_for_the_same_call_again() -> None:
    world = World()
    work = by_step(calls(call("pay", to="bob")), calls(call("pay", 2, to="bob")), "paid twice")
    executor = team(model(work=work), Worker("ann", tools=world.pick("pay")))
    found = await executor.run("Count", run="r")
    assert found.question is not None
    found = await executor.resume("r", ev.InputAnswered(found.question.number, "approve"))
    assert (found.ending, len(world.sent)) == ("needs_input", 1)
    assert found.question is not None
    assert "pay" in found.question.text
    found = await executor.resume("r", ev.InputAnswered(found.question.number, "approve"))
    assert (found.ending, len(world.sent)) == ("complete", 2)


async def test_two_equal_calls_of_one_step_need_leave_once_and_are_made_once() -> None:
    world = World()
    work = by_step(calls(call("pay", to="bob"), call("pay", 2, to="bob")), "paid")
    executor = team(model(work=work), Worker("ann", tools=world.pick("pay")))
    found = await executor.run("Count", run="r")
    assert found.question is not None
    found = await executor.resume("r", ev.InputAnswered(found.question.number, "approve"))
    assert (found.ending, world.sent) == ("complete", [("bob", "")])


async def test_refinement_survives_a_crash_after_any_entry_and_effects_stay_done() -> None:
    def work(request: Request) -> Line:
        if "better" in request.messages[1].text:
            return by_step(calls(call("send", to="bob"), call("send", 2, to="eve")), "sent")(request)
        return by_step(calls(call("send", to="bob")), calls(call("give_up", reason="no stamps for eve")))(request)

    first = World()
    sender = Worker("ann", tools=first.pick("send"))
    whole = await team(model(work=work), sender, policy=UNASKED).run("Count", run="r")
    assert whole.ending == "complete"
    assert [to for to, _ in first.sent] == ["bob", "eve"], "the second attempt does not send the first letter again"
    for at in range(1, len(whole.entries)):
        world = World()
        sender = Worker("ann", tools=world.pick("send"))
        journal = await cut(whole.entries, at)
        found = await team(model(work=work), sender, journal=journal, policy=UNASKED).resume("r")
        if undone(whole.entries[:at]):
            assert found.gaps[0].reason == "uncertain", at
            continue
        assert (found.ending, found.results) == ("complete", whole.results), at
        sent = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
        assert len([one for one in sent if one.name == "send"]) == 2, at


@pytest.mark.parametrize(
    "second", ['{"to":"bob","copies":2}', '{"copies": 2, "to": "bob"}', '{\n"to": "bob",\n"copies": 2\n}']
)
async def test_an_effect_stays_done_however_its_arguments_are_written(second: str) -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def post(to: str, copies: int) -> str:
        """Post a letter."""
        sent.append(f"{copies} to {to}")
        return "posted"

    def work(request: Request) -> Line:
        written = second if "better" in request.messages[1].text else '{"to": "bob", "copies": 2}'
        last = "posted" if "better" in request.messages[1].text else calls(call("give_up", reason="tired"))
        return by_step(Reply(calls=(ToolCall("c1", "post", written),), finish="tools"), last)(request)

    found = await team(model(work=work), Worker("ann", tools=[post])).run("Count")
    assert (found.ending, sent) == ("complete", ["2 to bob"])


async def test_a_made_worker_is_the_same_after_a_crash() -> None:
    made = iter(f'{{"persona": "Person {n}", "tools": ["add", "send"]}}' for n in range(1000))

    def executor(world: World, journal: MemoryJournal | None = None) -> tuple[Team, ScriptedModel]:
        script = model(
            plans=[plan(("Add 1 and 2 and send it.", "factory", ()), combine="forward")],
            work=by_step(calls(call("add", a=1, b=2), call("send", 2, to="bob")), "3"),
            make=next(made),
        )
        return team(script, factory=Factory(world.pick("add", "send")), journal=journal), script

    supervisor, _ = executor(World())
    whole = await supervisor.run("Add", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(whole.entries)):
        supervisor, script = executor(World(), await cut(whole.entries, at))
        found = await supervisor.resume("r")
        if undone(whole.entries[:at]):
            continue
        assert (found.ending, found.results) == ("complete", whole.results), at
        kept = of_kind(whole.entries[:at], ev.StepFinished)
        told = [one.messages[0].text for one in script.requests if one.tools]
        assert all("Person 0" in one for one in told) == bool(kept) or not told, at


async def test_a_streamed_plan_survives_a_crash_after_any_entry() -> None:
    text = plan(APPLES, PEARS, BOTH)

    def executor(journal: MemoryJournal | None = None) -> Team:
        return team(
            model(plans=[text], work=lambda r: f"did {r.messages[1].text[:30]}"),
            Worker("ann"),
            Worker("bob"),
            journal=journal,
            stream_plan=True,
            policy=QUICK,
        )

    whole = await executor().run("Count", run="r")
    assert whole.ending == "complete"
    for at in range(1, len(whole.entries)):
        found = await executor(await cut(whole.entries, at)).resume("r")
        assert (found.ending, sorted(found.results)) == ("complete", ["t1", "t2", "t3"]), at


async def test_a_streamed_plan_with_a_bad_task_loses_none_of_the_others() -> None:
    bad = plan(APPLES, ("Count the pears in the attic.", "bobby", ()), BOTH)
    script = model(plans=[bad, plan(APPLES, PEARS, BOTH)])
    found = await team(script, Worker("ann"), Worker("bob"), stream_plan=True, policy=QUICK).run("Count")
    assert (found.ending, sorted(found.results)) == ("complete", ["t1", "t2", "t3"])


async def test_a_streamed_plan_that_never_gets_whole_does_not_pass_for_complete() -> None:
    bad = plan(APPLES, ("Count the pears in the attic.", "bobby", ()))
    found = await team(model(plans=[bad]), Worker("ann"), Worker("bob"), stream_plan=True, policy=QUICK).run("Count")
    assert found.ending != "complete"
