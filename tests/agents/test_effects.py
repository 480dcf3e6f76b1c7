"""What acts in the world is done once: a failure that is sure may be tried again, one that is not never is."""

import asyncio
import threading

import pytest

from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.policy import Policy
from chargehand.models.messages import Reply, Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Planning
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.tools.tool import ToolFailed, tool
from tests.agents.crowd import call, calls, model, plan, team


def sends_until_sent(request: Request) -> Line:
    if len(request.messages) == 2:
        return calls(call("send", to="bob"))
    last = request.messages[-1].text
    return calls(call("give_up", reason="could not send")) if "error" in last else "It is sent."


async def test_an_effect_that_says_it_did_not_happen_is_tried_again() -> None:
    asked: list[str] = []

    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        asked.append(to)
        if len(asked) == 1:
            raise ToolFailed("the post office is closed until noon; nothing was sent")
        return "sent"

    unasked = Policy(tainted_effects="allow")
    found = await team(model(work=sends_until_sent), Worker("ann", tools=[send]), policy=unasked).run("Count")
    assert (found.ending, asked) == ("complete", ["bob", "bob"])


async def test_an_effect_that_happened_is_not_repeated_by_the_next_attempt() -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    def gives_up_once(request: Request) -> Line:
        if len(request.messages) == 2:
            return calls(call("send", to="bob"))
        if not any("Do it, but better" in one.text for one in request.messages):
            return calls(call("give_up", reason="the pen broke"))
        return "It is sent."

    found = await team(model(work=gives_up_once), Worker("ann", tools=[send])).run("Count")
    assert (found.ending, sent) == ("complete", ["bob"])


@pytest.mark.parametrize("kind", ["late", "broken"])
async def test_an_effect_nobody_is_sure_of_is_never_repeated_in_silence(kind: str) -> None:
    begun: list[str] = []
    never = threading.Event()

    @tool(effect="effect", timeout=0.1)
    def send(to: str) -> str:
        """Send a letter."""
        begun.append(to)
        if kind == "broken":
            raise ConnectionResetError("the line went dead")
        never.wait(20)
        return "sent"

    found = await team(model(work=sends_until_sent), Worker("ann", tools=[send])).run("Count")
    never.set()
    assert (found.ending, begun) == ("needs_input", ["bob"])
    assert found.question is not None
    [pending] = found.question.calls
    assert (found.question.what, pending.tool, pending.arguments) == ("effect", "send", {"to": "bob"})


async def test_an_effect_nobody_is_sure_of_fails_its_task_where_nobody_is_asked() -> None:
    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        raise ConnectionResetError("the line went dead")

    worker = Worker("ann", tools=[send])
    found = await team(model(work=sends_until_sent), worker, policy=Policy(uncertain="fail")).run("Count")
    assert found.ending == "failed"
    [gap] = found.gaps
    assert (gap.status, gap.reason, gap.tool, gap.arguments) == ("failed", "uncertain", "send", {"to": "bob"})


async def test_a_person_can_say_what_became_of_it() -> None:
    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a letter."""
        raise ConnectionResetError("the line went dead")

    executor = team(model(work=sends_until_sent), Worker("ann", tools=[send]))
    asked = await executor.run("Count", run="r")
    assert asked.question is not None
    assert asked.question.what == "effect"
    found = await executor.resume("r", ev.InputAnswered(asked.question.number, "done", result="sent by hand"))
    assert (found.ending, found.results) == ("complete", {"t1": {"text": "It is sent."}})


async def test_the_time_a_person_takes_is_not_the_runs() -> None:
    @tool(effect="effect", approve=True)
    def send(to: str) -> str:
        """Send a letter."""
        return "sent"

    executor = team(model(work=sends_until_sent), Worker("ann", tools=[send]), timeout=0.5)
    asked = await executor.run("Count", run="r")
    assert asked.question is not None
    await asyncio.sleep(0.51)
    found = await executor.resume("r", ev.InputAnswered(asked.question.number, "approve"))
    assert (found.ending, found.results) == ("complete", {"t1": {"text": "It is sent."}})


async def test_money_that_is_about_to_come_back_is_waited_for() -> None:
    many = [(f"Count the apples on shelf {n} of the cellar.", "ann", ()) for n in range(1, 11)]

    def says(request: Request) -> Line:
        return plan(*many) if isinstance(request.subject, Planning) else Reply("done")

    card = ModelCard("exact", micros_in=1.0, micros_out=1.0)
    script = ScriptedModel(says, usage=Usage(10, 5), micros=15, latency=0.01, card=card)
    found = await team(script, budget=Budget(usd=0.009)).run("Count")
    assert (found.ending, len(found.results), found.spent.micros) == ("complete", 10, 180)


async def test_money_that_nobody_gives_back_is_not_waited_for() -> None:
    card = ModelCard("dear", micros_in=100.0, micros_out=100.0)
    script = model(plans=[plan(("Count the apples in the cellar.", "ann", ()))], card=card)
    worker = Worker("ann", settings=Settings(max_tokens=5000))
    found = await asyncio.wait_for(team(script, worker, budget=Budget(usd=0.45)).run("Count"), 20)
    assert (found.ending, found.reason, found.gaps[0].reason) == ("failed", "budget", "budget")
    assert (found.spent.micros, len(script.requests)) == (7, 1)
