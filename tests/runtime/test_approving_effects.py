"""A function of the program is asked what became of an effect, and says so in words; a yes says nothing of it."""

import asyncio
from collections.abc import Callable

import pytest

from chargehand import (
    ApprovalRequest,
    Plan,
    Policy,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)
from chargehand.engine.plan import TaskId
from chargehand.journal.memory import MemoryJournal


class Office:
    """A clerk that pays two bills in one reply, and is stopped in the midst of both."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.both_begun = asyncio.Event()
        self.begun: list[str] = []
        self.paid: list[str] = []

    def team(self, decide: Callable[[ApprovalRequest], bool | str | None] | None = None) -> Team:
        @tool(effect="effect")
        async def pay(bill: str) -> str:
            """Pay a bill."""
            if not self.both_begun.is_set():
                self.begun.append(bill)
                if len(self.begun) == len("AB"):
                    self.both_begun.set()
                await asyncio.Event().wait()
            self.paid.append(bill)
            return f"receipt {bill}"

        def clerk(request: Request) -> Reply | str:
            results = [message.text for message in request.messages if message.role == "tool"]
            if results:
                return f"I have {' and '.join(results)}"
            return Reply(calls=tuple(ToolCall(bill, "pay", f'{{"bill": "{bill}"}}') for bill in "AB"), finish="tools")

        plan = Plan((Task(TaskId("bills"), "Pay the bills.", "clerk"),), "forward")
        worker = Worker("clerk", "Pays bills.", tools=[pay], model=ScriptedModel(clerk))
        return Team(
            [worker],
            supervisor=Supervisor(plan=plan),
            journal=self.journal,
            policy=Policy(uncertain="ask"),
            on_approval=decide,
        )

    async def die(self) -> None:
        """Begin both payments, and stop at once."""
        async with asyncio.TaskGroup() as jobs:
            run = jobs.create_task(self.team().run("Pay.", run="may"))
            await self.both_begun.wait()
            for _ in range(2):  # the first cancellation lets payments finish
                run.cancel()
                await asyncio.sleep(0)


async def test_a_function_says_what_became_of_each_effect() -> None:
    office = Office()
    await office.die()
    asked: list[ApprovalRequest] = []

    def decide(request: ApprovalRequest) -> str:
        asked.append(request)
        return "done: receipt 7" if request.arguments == {"bill": "A"} else "again"

    done = await office.team(decide).resume("may")
    assert (done.ending, office.paid) == ("complete", ["B"])
    assert "receipt 7" in str(done.answer)
    assert "receipt B" in str(done.answer)
    assert [(request.what, request.tool, request.worker, request.task) for request in asked] == [
        ("effect", "pay", "clerk", "bills"),
        ("effect", "pay", "clerk", "bills"),
    ]
    assert all(request.key for request in asked)


@pytest.mark.parametrize("verdict", [True, False, "approve", "reject: too dear", None])
async def test_a_function_that_only_allows_or_forbids_leaves_an_effect_open(verdict: bool | str | None) -> None:
    office = Office()
    await office.die()
    done = await office.team(lambda _: verdict).resume("may")
    assert (done.ending, office.paid) == ("needs_input", [])
    answered = await office.team().resume("may", {1: "again", 2: "done: null"})
    assert (answered.ending, office.paid) == ("complete", ["A"])


async def test_calls_without_a_verdict_are_asked_about_next() -> None:
    office = Office()
    await office.die()
    team = office.team()
    await team.resume("may")
    waiting = await team.resume("may", {1: "done: receipt A"})
    assert (waiting.ending, office.paid) == ("needs_input", [])
    assert waiting.question is not None
    assert [call.arguments for call in waiting.question.calls] == [{"bill": "B"}]
    done = await team.resume("may", "done: receipt B")
    assert (done.ending, office.paid) == ("complete", [])
