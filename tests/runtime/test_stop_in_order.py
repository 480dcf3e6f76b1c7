"""A run that is stopped in order lets calls that change something finish, so that nothing of them is in doubt."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from chargehand import Plan, Policy, Reply, Request, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool
from chargehand.engine import events as ev
from chargehand.engine.plan import TaskId


class Bank:
    """A bank that is told when a payment has begun, and says when it may end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.paid: list[str] = []


def office(bank: Bank, journal: Path) -> Team:
    @tool(effect="effect")
    async def pay(bill: str) -> str:
        """Pay a bill."""
        bank.begun.set()
        await bank.may_end.wait()
        bank.paid.append(bill)
        return "paid"

    def clerk(request: Request) -> Reply | str:
        if request.messages[-1].role == "tool":
            return "Done."
        return Reply(calls=(ToolCall("1", "pay", '{"bill": "A"}'),), finish="tools")

    plan = Plan((Task(TaskId("bill"), "Pay the bill.", "clerk"),), "forward")
    worker = Worker("clerk", "Pays bills.", tools=[pay], model=ScriptedModel(clerk))
    policy = Policy(uncertain="fail")
    return Team([worker], supervisor=Supervisor(plan=plan), journal=journal, policy=policy)


@pytest.mark.parametrize("depth", [0, 1])
async def test_a_run_that_is_cancelled_lets_a_payment_finish_and_goes_on_after_it(tmp_path: Path, depth: int) -> None:
    bank = Bank()
    team = office(bank, tmp_path / "runs.db")
    if depth:
        plan = Plan((Task(TaskId("outer"), "Have the bill paid.", "desk"),), "forward")
        team = Team([team.as_worker("desk", "pays")], supervisor=Supervisor(plan=plan), journal=tmp_path / "runs.db")
    async with asyncio.TaskGroup() as jobs:
        run = jobs.create_task(team.run("Pay.", run="may"))
        await bank.begun.wait()
        run.cancel()
        await asyncio.sleep(0)  # the cancellation arrives
        assert not run.done()
        bank.may_end.set()
    assert run.cancelled()
    done = await team.resume("may")
    assert (done.ending, bank.paid) == ("complete", ["A"])


async def test_a_second_cancellation_stops_at_once_and_the_payment_is_in_doubt(tmp_path: Path) -> None:
    bank = Bank()
    team = office(bank, tmp_path / "runs.db")
    async with asyncio.TaskGroup() as jobs:
        run = jobs.create_task(team.run("Pay.", run="may"))
        await bank.begun.wait()
        for _ in range(2):
            run.cancel()
            await asyncio.sleep(0)
    assert run.cancelled()
    done = await team.resume("may")
    assert (done.ending, [gap.reason for gap in done.gaps], bank.paid) == ("failed", ["uncertain"], [])


async def test_a_stream_that_is_left_lets_a_payment_finish(tmp_path: Path) -> None:
    bank = Bank()
    team = office(bank, tmp_path / "runs.db")
    async with aclosing(team.stream("Pay.", run="may")) as entries:
        async for entry in entries:
            if isinstance(entry.event, ev.StepStarted) and entry.event.name == "pay":
                await bank.begun.wait()
                bank.may_end.set()
                break
    done = await team.resume("may")
    assert (done.ending, bank.paid) == ("complete", ["A"])
