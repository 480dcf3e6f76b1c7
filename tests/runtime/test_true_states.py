"""What is said of runs and tasks is so: who waits for a person, what was cancelled, and why there is no answer."""

import asyncio
import json
import time
from pathlib import Path

from chargehand.agents.result import fallback_answer
from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.store import read_run
from chargehand.models.messages import Reply, Request, ToolCall
from chargehand.models.request_facts import Answering
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.trace import trace
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.cli.commands import chargehand

_PLANLESS = ScriptedModel(["never asked"], repeat=True)


@tool(effect="effect", approve=True)
def pay(supplier: str, euros: int) -> str:
    """Pay a supplier."""
    return f"{supplier} has {euros}"


def _clerk() -> Worker:
    wanted = ToolCall("1", "pay", '{"supplier": "Ott", "euros": 120}')
    return Worker("clerk", "pays", tools=[pay], model=ScriptedModel([Reply(calls=(wanted,), finish="tools"), "done"]))


def _one_task(name: str, worker: str) -> Plan:
    return Plan((Task(TaskId(name), "Have the bill paid now.", worker),), "forward")


def _nested(journal: Path) -> Team:
    """A clerk in a team in a team in a team; the clerk needs leave to pay."""
    inner = Team([_clerk()], supervisor=Supervisor(model=_PLANLESS, plan=_one_task("bill", "clerk")), name="inner")
    middle = Team(
        [inner.as_worker("in", "pays")],
        supervisor=Supervisor(model=_PLANLESS, plan=_one_task("m", "in")),
        name="middle",
    )
    return Team(
        [middle.as_worker("mid", "pays")],
        supervisor=Supervisor(model=_PLANLESS, plan=_one_task("o", "mid")),
        journal=journal,
    )


def _statuses(journal: Path) -> list[str]:
    """The states of the runs, the latest first, as the command line lists them."""
    listed = chargehand(journal.parent, "runs", "--journal", journal, "--json")
    return [row["state"] for row in json.loads(listed.stdout)]


def test_a_run_that_waits_for_a_person_says_so_whatever_was_written_since(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"

    async def write(_request: Request) -> Line:
        await asyncio.sleep(0.2)  # the clerk has asked by then
        return "It is written."

    slow = ScriptedModel(write, handle="slow")
    plan = Plan((*_one_task("bill", "clerk").tasks, Task(TaskId("letter"), "Write a letter.", "bob")), "merge")
    team = Team(
        [_clerk(), Worker("bob", "writes", model=slow)],
        supervisor=Supervisor(model=_PLANLESS, plan=plan),
        journal=journal,
    )
    assert team.run_sync("Pay it.", run="r").ending == "needs_input"
    kinds = [type(entry.event) for entry in read_run(journal, "r")]
    assert kinds[-1] is not ev.InputRequested, "other work went on, or the process let go of it"
    assert _statuses(journal) == ["needs_input"]


def test_runs_inside_one_that_is_cancelled_do_not_wait_for_a_person(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    team = _nested(journal)
    assert team.run_sync("Pay it.", run="r").ending == "needs_input"
    assert _statuses(journal) == ["needs_input"] * 3
    assert team.resume_sync("r", ev.CancelRequested("never mind")).ending == "cancelled"
    assert _statuses(journal) == ["cancelled"] * 3


async def test_tasks_of_a_cancelled_run_are_not_running() -> None:
    begun = asyncio.Event()

    async def hang(_request: Request) -> Line:
        begun.set()
        await asyncio.sleep(60)
        return "too late"

    team = Team(
        [Worker("bob", model=ScriptedModel(hang))], supervisor=Supervisor(model=_PLANLESS, plan=_one_task("t", "bob"))
    )
    async with team.driven() as driver, asyncio.TaskGroup() as jobs:
        carried = jobs.create_task(driver.start("r", team.request("Do it.", time.time())))
        await begun.wait()
        await driver.ask("r", ev.CancelRequested("never mind"))
        assert (await carried).ending == "cancelled"
        entries = await driver.journal.read("r")
    (task,) = trace("r", entries).tasks
    assert task.status == "unfinished"


def test_an_answer_that_could_not_be_written_is_a_gap_with_its_cause() -> None:
    def says(request: Request) -> Line:
        if isinstance(request.subject, Answering):
            return Failure("logic", "the model talks of the weather", permanent=True)
        return "There are 12 apples."

    model = ScriptedModel(says)
    tasks = tuple(Task(TaskId(name), "Count the apples.", "bob") for name in ("t1", "t2"))
    policy = Policy(retry=Retry(base=0.01))
    team = Team([Worker("bob", "counts")], supervisor=Supervisor(model=model, plan=Plan(tasks, "merge")), policy=policy)
    found = team.run_sync("How many apples?", run="r")
    assert found.ending == "partial"
    unwritten = [gap for gap in found.gaps if gap.status == "unwritten"]
    assert [(gap.task, gap.reason) for gap in unwritten] == [("", "logic")]
    assert "the model talks of the weather" in unwritten[0].message
    assert "the model talks of the weather" in str(found.answer)
    assert fallback_answer(replay(found.entries)).count("the model talks of the weather") == 1
