"""A model that asks for what it has: it is told so, it costs no step, and in the end it must answer or give up."""

from pathlib import Path

import pytest
from msgspec import structs

from chargehand.agents.result import Result
from chargehand.agents.roles import REPEATS, Worker
from chargehand.engine import events as ev
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, ToolCall
from chargehand.models.testing.scripted import Line
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.rules import RequiredBeforeExit
from chargehand.tools.sql import sql
from chargehand.tools.tool import Tool, tool
from tests.agents.crowd import call, calls, model, of_kind, team

ONCE = Policy(retry=Retry(attempts=1), refine=False)


class Counted:
    """A tool that knows how often it was really called."""

    def __init__(self, *, stable: bool, answers: list[str] | None = None) -> None:
        self.times = 0
        self._answers = answers or ["three orders"]

        @tool(quick=True, stable=stable)
        def look(place: str = "cellar") -> str:
            """Look into a place."""
            self.times += 1
            return self._answers[min(self.times, len(self._answers)) - 1]

        self.tool = look


@tool(effect="effect", quick=True)
def move(box: int) -> str:
    """Move a box."""
    return f"moved {box}"


def tool_steps(found: Result) -> int:
    steps = [one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted)]
    return sum(one.name != "model" for one in steps)


async def test_a_repeated_call_of_a_stable_tool_is_answered_without_calling_it() -> None:
    counted = Counted(stable=True)
    script = model(work=[calls(call("look")), calls(call("look", 2)), "Three orders."])
    found = await team(script, Worker("ann", tools=[counted.tool]), policy=ONCE).run("Count")
    assert (found.ending, counted.times, tool_steps(found)) == ("complete", 1, 1)
    last = script.requests[-1].messages[-1].text
    assert "three orders" in last
    assert "You have this already" in last
    assert "Answer now" in last


async def test_the_order_of_keys_and_white_space_make_no_other_call() -> None:
    counted = Counted(stable=True)
    again = ToolCall("c2", "look", ' { "place" : "cellar" } ')
    script = model(work=[calls(call("look", place="cellar")), calls(again), "Three orders."])
    await team(script, Worker("ann", tools=[counted.tool]), policy=ONCE).run("Count")
    assert counted.times == 1


async def test_any_other_read_is_made_again_and_shown_again_only_if_it_changed() -> None:
    long = "running, " * 200
    counted = Counted(stable=False, answers=[long, long, "done"])
    script = model(work=[calls(call("look")), calls(call("look", 2)), calls(call("look", 3)), "Done."])
    found = await team(script, Worker("ann", tools=[counted.tool]), policy=ONCE).run("Count")
    assert (found.ending, counted.times) == ("complete", 3)
    same, changed = (script.requests[at].messages[-1].text for at in (-2, -1))
    assert "You have this already" in same
    assert len(same) < 200, "the long result is not shown a second time"
    assert "done" in changed
    assert "already" not in changed


async def test_fifty_polls_of_a_tool_that_is_for_polling_are_all_made_and_shown() -> None:
    times = 0

    @tool(quick=True, poll=True)
    def status(job: int) -> str:
        """How far a job is."""
        nonlocal times
        times += 1
        return "running" if times < 50 else "finished"

    def polled(request: Request) -> Line:
        over = "finished" in request.messages[-1].text
        return "Finished." if over else calls(call("status", len(request.messages), job=7))

    found = await team(model(work=polled), Worker("ann", tools=[status], steps=60), policy=ONCE).run("Wait")
    assert (found.ending, times) == ("complete", 50)


async def test_repeats_count_as_no_step() -> None:
    counted = Counted(stable=True)
    lines: list[Line] = [calls(call("look")), calls(call("look", 2)), "Three orders."]
    found = await team(model(work=lines), Worker("ann", tools=[counted.tool], steps=2), policy=ONCE).run("Count")
    assert found.ending == "complete"


async def test_no_more_than_a_few_repeats_are_free() -> None:
    """Each new call lets all earlier ones be repeated once: without a bound, steps would bound nothing."""
    calculate = calculator()

    def endless(request: Request) -> Line:
        number = sum(message.role == "assistant" for message in request.messages)
        known = number // 2 if number % 2 == 0 else max(0, number // 2 - 1)
        return calls(call("calculate", number, expression=f"{known} + 1"))

    script = model(work=endless)
    worker = Worker("ann", tools=[calculate], steps=6)
    found = await team(script, worker, policy=ONCE).run("Count")
    assert "no result after 6 steps" in found.gaps[0].message
    assert len(script.requests) == 1 + worker.max_replies == 1 + 6 + REPEATS


async def test_the_third_time_the_model_can_only_answer_or_give_up() -> None:
    def stubborn(request: Request) -> Line:
        names = [one.name for one in request.tools]
        return calls(call("look", len(request.messages))) if "look" in names else f"Three orders; I had {names}."

    counted = Counted(stable=True)
    script = model(work=stubborn)
    found = await team(script, Worker("ann", tools=[counted.tool]), policy=ONCE).run("Count")
    assert found.ending == "complete"
    assert "I had ['give_up']" in str(found.answer)
    assert len(script.requests) == 1 + 4


async def test_in_a_circle_it_may_still_give_up() -> None:
    def stubborn(request: Request) -> Line:
        names = [one.name for one in request.tools]
        return calls(call("look", 1) if "look" in names else call("give_up", reason="it never says how many"))

    found = await team(model(work=stubborn), Worker("ann", tools=[Counted(stable=True).tool]), policy=ONCE).run("Count")
    assert found.gaps[0].message == "it never says how many"


async def test_the_same_error_three_times_ends_the_attempt_at_once() -> None:
    script = model(work=[calls(call("calculate", expression="one + one"))])
    found = await team(script, Worker("ann", tools=[calculator()]), policy=ONCE).run("Count")
    assert "no progress" in found.gaps[0].message
    assert len(script.requests) == 1 + 3


async def test_who_must_call_a_tool_before_the_end_is_not_asked_to_answer_without_it() -> None:
    counted = Counted(stable=True)
    worker = Worker("ann", tools=[counted.tool, move], rules=[RequiredBeforeExit("move")])
    found = await team(model(work=[calls(call("look"))]), worker, policy=ONCE).run("Count")
    assert "no progress" in found.gaps[0].message


async def test_after_an_effect_a_stable_tool_is_called_again() -> None:
    counted = Counted(stable=True, answers=["three orders", "two orders"])
    lines: list[Line] = [calls(call("look")), calls(call("move", 2, box=1)), calls(call("look", 3)), "Two orders."]
    script = model(work=lines)
    unasked = structs.replace(ONCE, tainted_effects="allow")
    found = await team(script, Worker("ann", tools=[counted.tool, move]), policy=unasked).run("Count")
    assert (found.ending, counted.times) == ("complete", 2)
    assert "two orders" in script.requests[-1].messages[-1].text


async def test_identical_calls_of_one_step_are_made_once_and_all_answered() -> None:
    counted = Counted(stable=True)
    several = [call("look", number) for number in range(1, 6)]
    script = model(work=[calls(*several), "Three orders."])
    found = await team(script, Worker("ann", tools=[counted.tool]), policy=ONCE).run("Count")
    assert (found.ending, counted.times) == ("complete", 1)
    answered = [message.call for message in script.requests[-1].messages if message.role == "tool"]
    assert answered == [one.id for one in several], "every call has its answer, as providers demand"


async def test_an_attempt_that_is_resumed_anywhere_is_told_the_same() -> None:
    """What was answered from an earlier result is in no journal: it follows from what is."""
    lines: list[Line] = [calls(call("look")), calls(call("look", 2)), "Three orders."]
    counted = Counted(stable=True)

    def by_reply(request: Request) -> Line:
        return lines[sum(message.role == "assistant" for message in request.messages)]

    worker = Worker("ann", tools=[counted.tool])
    whole = await team(model(work=by_reply), worker, policy=ONCE).run("Count", run="r")
    for at in range(1, len(whole.entries)):
        journal = MemoryJournal()
        lease = await journal.claim("r", new=True)
        await journal.append(lease, whole.entries[:at])
        await journal.release(lease)
        found = await team(model(work=by_reply), worker, policy=ONCE, journal=journal).resume("r")
        assert (found.ending, found.answer) == ("complete", whole.answer), at


@pytest.mark.parametrize("wrong", [{"poll": True}, {"effect": "effect"}, {"effect": "idempotent"}])
def test_what_is_polled_or_changes_something_is_not_stable(wrong: dict[str, object]) -> None:
    def look() -> str:
        """Look."""
        return ""

    with pytest.raises(Invalid, match="is stable, so it only reads"):
        tool(stable=True, **wrong)(look)  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_the_tools_that_read_what_nobody_changes_are_stable(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "a.csv").write_text("a,b\n1,2\n")
    (folder / "a.md").write_text("# One\n\nSome words.\n")
    stable: list[Tool] = [calculator(), chart(), documents(folder), sql(folder)]
    assert all(one.stable for one in stable)
