"""Results that are used again: by the same task, while they are fresh, and never where anything was changed."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.setup import only_reads
from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.state import Status
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Memory
from chargehand.models.messages import Reply, Request
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime import cache
from chargehand.runtime.cache import earlier_results
from chargehand.runtime.runner import Runner
from chargehand.runtime.trace import ReusedResult
from chargehand.team import Team
from chargehand.tools.tool import Tool, tool
from tests.agents.crowd import call, calls
from tests.config.files import write

COUNT = Plan((Task(TaskId("t1"), "Count the apples in the cellar.", "ann"),), "forward")
CHAIN = Plan((*COUNT.tasks, Task(TaskId("t2"), "Say whether that is enough.", "ann", after=(TaskId("t1"),))), "forward")


@tool
def cellar() -> int:
    """How many apples there are."""
    return 7


@tool(effect="idempotent")
def order(count: int) -> str:
    """Order apples."""
    return f"ordered {count}"


class Clerk(ScriptedModel):
    """Does whatever is asked with one call of a tool, and says how often it was asked."""

    def __init__(self, name: str = "") -> None:
        self.worked = 0
        self._tool = name
        super().__init__(self._said)

    def _said(self, request: Request) -> Line:
        assert isinstance(request.subject, Working)
        if self._tool and len(request.messages) == 2:
            return calls(call(self._tool, **({"count": 2} if self._tool == "order" else {})))
        self.worked += 1
        return Reply(f"There are apples, says answer {'a' * self.worked}.")


def team(
    journal: MemoryJournal | SqliteJournal,
    model: ScriptedModel,
    tools: Sequence[Tool] = (),
    *,
    cache: float | None = 600.0,
    plan: Plan = COUNT,
    prompt: str = "You count.",
    description: str = "counts",
) -> Team:
    ann = Worker("ann", description, prompt, tools=tools)
    return Team([ann], supervisor=Supervisor(model=model, plan=plan), journal=journal, cache=cache, name="orchard")


async def test_the_same_task_is_not_paid_for_twice_and_the_trace_says_where_it_was_done() -> None:
    journal = MemoryJournal()
    model = Clerk("cellar")
    first = await team(journal, model, [cellar]).run("apples?", run="one")
    again = await team(journal, model, [cellar]).run("apples?", run="two")
    assert model.worked == 1
    assert (again.answer, again.ending) == (first.answer, "complete")
    assert again.spent.calls == 0
    (task,) = again.trace().tasks
    assert (task.reused, task.attempts) == (ReusedResult("cache", TaskId("one/t1")), [])


async def test_a_result_is_used_again_in_the_same_scope_only() -> None:
    journal = MemoryJournal()
    model = Clerk()
    executor = team(journal, model)
    for user, worked in (("ann", 1), ("bob", 2), ("", 3), ("ann", 3), ("", 3)):
        await executor.run("apples?", labels={"user": user} if user else {})
        assert model.worked == worked


async def test_nothing_is_used_again_unless_a_team_says_so() -> None:
    journal = MemoryJournal()
    model = Clerk()
    for run in ("one", "two"):
        await team(journal, model, cache=None).run("apples?", run=run)
    assert model.worked == 2


async def test_a_result_is_used_no_longer_than_it_is_fresh_however_often_it_was_used() -> None:
    journal = MemoryJournal()
    model = Clerk()
    executor = team(journal, model)
    await executor.run("apples?", run="one")
    await executor.run("apples?", run="two")
    assert model.worked == 1
    request = executor.request("apples?", time.time())
    lookers = frozenset(("ann",))
    now = time.time()
    assert await earlier_results(journal, request, 600.0, now + 599.0, lookers)
    assert not await earlier_results(journal, request, 600.0, now + 601.0, lookers)
    # the second run has only passed it on: it is as old as it was
    (offered,) = await earlier_results(journal, request, 600.0, now, lookers)
    assert [one.task for one in offered.offers] == ["one/t1"]


async def test_it_is_the_age_of_the_result_that_counts_and_not_that_of_its_run() -> None:
    kept = MemoryJournal()
    model = Clerk()
    now = time.time()
    executor = team(kept, model)
    await executor.run("apples?", run="one")
    entries = await kept.read("one")
    journal = MemoryJournal()  # the same run, had it gone on for an hour after the task was done
    times = [now - 3600.0] * (len(entries) - 1) + [now]
    lease = await journal.claim("long", new=True)
    await journal.append(lease, [structs.replace(one, at=at) for one, at in zip(entries, times, strict=True)])
    request = executor.request("apples?", now)
    assert not await earlier_results(journal, request, 600.0, now, frozenset(("ann",)))
    assert await earlier_results(journal, request, 7200.0, now, frozenset(("ann",)))


async def test_what_was_done_with_memory_at_hand_is_not_offered() -> None:
    journal = MemoryJournal()
    model = Clerk()
    for run in ("one", "two"):
        memory = Memory(blocks=[Block("notes", f"as of run {run}", share="read")])
        await Team(
            [Worker("ann", "counts")],
            supervisor=Supervisor(model=model, plan=COUNT),
            journal=journal,
            cache=600.0,
            memory=memory,
        ).run("apples?", run=run)
    assert model.worked == 2


@pytest.mark.parametrize("change", ["prompt", "tool", "instruction", "description"])
async def test_what_is_not_the_same_is_done_anew(change: str) -> None:
    journal = MemoryJournal()
    model = Clerk()
    await team(journal, model).run("apples?", run="one")
    other = structs.replace(COUNT.tasks[0], instruction="Count the pears in the cellar.")
    await team(
        journal,
        model,
        [cellar] if change == "tool" else [],
        prompt="You guess." if change == "prompt" else "You count.",
        plan=Plan((other,), "forward") if change == "instruction" else COUNT,
        description="sorts" if change == "description" else "counts",
    ).run("apples?", run="two")
    assert model.worked == 2


async def test_what_goes_in_counts_as_well() -> None:
    journal = MemoryJournal()
    model = Clerk()
    await team(journal, model, plan=CHAIN).run("apples?", run="one")
    assert model.worked == 2
    again = await team(journal, model, plan=CHAIN).run("apples?", run="two")
    assert model.worked == 2
    assert [task.reused.task for task in again.trace().tasks if task.reused] == ["one/t1", "one/t2"]
    # the first is done anew, with another result: what works from it must be as well
    moved = (structs.replace(CHAIN.tasks[0], instruction="Count the apples again."), CHAIN.tasks[1])
    await team(journal, model, plan=Plan(moved, "forward")).run("apples?", run="three")
    assert model.worked == 4


@pytest.mark.parametrize("used", [True, False], ids=["used", "only at hand"])
async def test_work_that_may_change_something_is_never_offered(used: bool) -> None:
    journal = MemoryJournal()
    model = Clerk("order" if used else "")
    for run in ("one", "two"):
        await team(journal, model, [order]).run("apples?", run=run)
    assert model.worked == 2


@pytest.mark.parametrize(
    ("made", "looks"),
    [
        (cellar, True),
        (order, False),
        (structs.replace(cellar, effect="effect"), False),
        (structs.replace(cellar, approve=True), False),
        (structs.replace(cellar, poll=True), False),
    ],
    ids=["reads", "idempotent", "effect", "asks first", "polls"],
)
def test_who_only_looks(made: Tool, looks: bool) -> None:
    assert only_reads(Worker("ann", tools=[made])) is looks


async def test_what_failed_or_was_put_into_other_words_is_not_offered() -> None:
    journal = MemoryJournal()
    said: list[Line] = [Reply(calls=(call("give_up", reason="it is dark"),), finish="tools"), "Take a lamp.", "7"]
    await team(journal, ScriptedModel(said)).run("apples?", run="one")
    request = team(journal, Clerk()).request("apples?", time.time())
    assert replay(await journal.read("one")).tasks[TaskId("t1")].status is Status.DONE
    assert not await earlier_results(journal, request, 600.0, time.time(), frozenset(("ann",)))


async def test_a_run_that_took_results_over_goes_on_after_a_crash() -> None:
    class Crashing(MemoryJournal):
        instant = False

        left = 10**9

        async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt  # the process is gone
            await super().append(lease, entries)

    for crash in range(1, 4):
        journal = Crashing()
        model = Clerk()
        executor = team(journal, model, plan=CHAIN)
        await executor.run("apples?", run="one")
        request = executor.request("apples?", time.time())
        also = await executor.offered(journal, request)
        async with executor.executor() as staff:
            journal.left = crash
            with suppress(KeyboardInterrupt):
                await Runner(journal, staff).start("two", request, also=also)
            journal.left = 10**9
            if replay(await journal.read("two")).ended is None:
                await Runner(journal, staff).resume("two", steal=True)
        done = replay(await journal.read("two"))
        assert done.ended is not None
        assert done.ended.ending == "complete"
        assert model.worked == 2, crash


async def test_offers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    model = Clerk()
    tasks = tuple(Task(TaskId(f"t{n}"), f"Count the apples on shelf {n}.", "ann") for n in range(6))
    for run in ("one", "two", "three"):
        plan = Plan(tuple(structs.replace(one, instruction=f"{one.instruction} {run}") for one in tasks), "forward")
        await team(journal, model, plan=plan).run("apples?", run=run)
    request = team(journal, model).request("apples?", time.time())
    lookers = frozenset(("ann",))

    async def sources() -> list[str]:
        (offered,) = await earlier_results(journal, request, 600.0, time.time(), lookers)
        return [one.task for one in offered.offers]

    assert len(await sources()) == 18
    monkeypatch.setattr(cache, "MOST_OFFERS", 8)
    assert len(await sources()) == 8
    monkeypatch.setattr(cache, "MOST_RUNS", 1)
    assert {one.partition("/")[0] for one in await sources()} == {"three"}


async def test_it_works_on_a_file_and_a_damaged_run_is_left_out(tmp_path: Path) -> None:
    model = Clerk()
    path = tmp_path / "runs.db"
    for run in ("one", "two", "three"):
        if run == "three":
            with closing(sqlite3.connect(path)) as file, file:
                file.execute("UPDATE entries SET body = x'7b7d' WHERE type = 'attempt.succeeded'")
        journal = await SqliteJournal.open(path)
        await team(journal, model).run("apples?", run=run)
        await journal.close()
        assert model.worked == (2 if run == "three" else 1)


def test_a_team_file_says_for_how_long(tmp_path: Path) -> None:
    write(tmp_path, "version: 1\ncache: 10m\nworkers:\n  ann: counts\n")
    assert load_team(tmp_path).cache == 600.0
    with pytest.raises(Invalid, match="cache is -1"):
        Team([Worker("ann")], cache=-1)
