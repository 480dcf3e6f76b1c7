"""Offline, step by step and by splitting: the tasks of the plan, one at a time or all at once."""

from typing import TypedDict

import msgspec

from chargehand.agents.ways import Loop, Recursive, Way
from chargehand.agents.worker import Worker
from chargehand.models.offline.ledger import stand
from chargehand.models.offline.splitting import split
from chargehand.models.subject import Given, Ledger, Planned, Splitting, WorkerCard
from chargehand.runtime.result import Result
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms.events import Gap
from chargehand.terms.plan import TaskId
from chargehand.tools.tool import tool
from tests.models.offline.teams import CLINIC, RETAIL, planned

GOAL = "What was revenue by category in 2025? Draw a chart of it, and find what the handbook says about returns."


class Said(TypedDict, total=False):
    done: bool
    next: str
    instruction: str
    replaces: str
    unserved: list[str]
    simple: bool
    worker: str
    subtasks: list[dict[str, object]]


def looked(goal: str, team: tuple[WorkerCard, ...], *more: object) -> Said:
    return msgspec.json.decode(stand(Ledger(goal, team, *more)), type=Said)  # pyright: ignore[reportArgumentType] - one test's tasks, results and gaps


def walked(goal: str, team: tuple[WorkerCard, ...], mark: str = "") -> tuple[list[tuple[str, str]], Said]:
    """Every task in turn, each of them done, and what was said at the end."""
    tasks: list[Planned] = []
    results: list[Given] = []
    for number in range(1, 20):
        said = looked(goal, team, tuple(tasks), tuple(results))
        if said.get("done"):
            return [(one.worker, one.instruction) for one in tasks], said
        task = Planned(f"t{number}{mark}", said.get("instruction", ""), said.get("next", ""))
        tasks.append(task)
        results.append(Given(task.id, task.instruction, task.worker, "12"))
    raise AssertionError("it never ends")


def test_the_tasks_of_the_plan_are_handed_out_in_order_and_then_it_is_done() -> None:
    wanted = [(one["worker"], one["instruction"]) for one in planned(GOAL, RETAIL)["tasks"].values()]
    found, said = walked(GOAL, RETAIL)
    assert found == wanted
    assert len(found) == 3
    assert said.get("unserved") == []


def test_tasks_speak_of_others_by_the_names_they_have_in_the_run() -> None:
    found, _ = walked("How many appointments were there per department? Draw a chart of it.", CLINIC, "-stall1")
    assert len(found) == 2
    assert "t1-stall1" in found[1][1]


def test_what_needs_a_task_that_failed_waits_and_the_rest_goes_on() -> None:
    first = looked(GOAL, RETAIL)
    task = Planned("t1", first.get("instruction", ""), first.get("next", ""))
    gap = Gap(TaskId("t1"), "failed", "logic", "no such table")
    said = looked(GOAL, RETAIL, (task,), (), (gap,))
    assert said.get("next") == "librarian"
    after = (task, Planned("t2", said.get("instruction", ""), "librarian"))
    ended = looked(GOAL, RETAIL, after, (Given("t2", after[1].instruction, "librarian", "30 days"),), (gap,))
    assert ended.get("done"), "the chart cannot be drawn without the figures"


def test_a_task_that_failed_is_tried_by_somebody_else_who_can() -> None:
    twins = (*CLINIC, msgspec.structs.replace(CLINIC[0], name="deputy"))
    goal = "How many appointments were there in 2025?"
    first = looked(goal, twins)
    task = Planned("t1", first.get("instruction", ""), first.get("next", ""))
    gap = Gap(TaskId("t1"), "failed", "logic", "the line went dead")
    said = looked(goal, twins, (task,), (), (gap,))
    assert {first.get("next"), said.get("next")} == {"registrar", "deputy"}
    assert said.get("replaces") == "t1"
    other = Planned("t2", said.get("instruction", ""), said.get("next", ""))
    done = looked(goal, twins, (task, other), (Given("t2", other.instruction, other.worker, 12),))
    assert done.get("done")


def test_what_nobody_can_do_is_named_at_the_end() -> None:
    said = looked("Sing me a lullaby", CLINIC)
    assert said.get("done")
    assert said.get("unserved")


def test_a_request_with_several_tasks_is_split_into_those() -> None:
    found = msgspec.json.decode(split(Splitting(GOAL, RETAIL, 4)), type=Said)
    assert not found.get("simple")
    parts = found.get("subtasks", [])
    assert [one["worker"] for one in parts] == ["analyst", "painter", "librarian"]
    assert [one["after"] for one in parts] == [[], [1], []]
    for one in parts:
        again = msgspec.json.decode(split(Splitting(str(one["instruction"]), RETAIL, 4)), type=Said)
        assert again.get("simple"), one


def test_a_request_with_one_task_is_simple_and_so_is_one_that_may_not_be_split() -> None:
    one = msgspec.json.decode(split(Splitting("How many orders were there in 2025?", RETAIL, 4)), type=Said)
    assert (one.get("simple"), one.get("worker")) == (True, "analyst")
    kept = msgspec.json.decode(split(Splitting(GOAL, RETAIL, 1)), type=Said)
    assert (kept.get("simple"), "subtasks" in kept) == (True, False)


@tool
def count_apples() -> int:
    """Count the apples in the cellar."""
    return 12


@tool
def count_pears() -> int:
    """Count the pears in the attic."""
    return 30


async def ran(way: Way) -> Result:
    workers = (
        Worker("ann", "counts apples in the cellar", tools=[count_apples]),
        Worker("bob", "counts pears in the attic", tools=[count_pears]),
    )
    crew = Supervisor(workers, model="offline", journal=MemoryJournal(), way=way)
    return await crew.run("Count the apples in the cellar. Count the pears in the attic.")


async def test_a_team_without_any_language_model_works_step_by_step() -> None:
    found = await ran(Loop())
    assert (found.ending, [one.id for one in found.plan.tasks]) == ("complete", ["t1", "t2"])
    assert [one.worker for one in found.plan.tasks] == ["ann", "bob"]
    assert "12" in str(found.answer)
    assert "30" in str(found.answer)


async def test_a_team_without_any_language_model_splits() -> None:
    found = await ran(Recursive())
    assert (found.ending, [one.id for one in found.plan.tasks]) == ("complete", ["t1", "t2"])
    assert "12" in str(found.answer)
    assert "30" in str(found.answer)
