"""Several teams, threads and streams on one journal, and teams that live long without one."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chargehand import Plan, Reply, Request, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.errors import RunBusy
from chargehand.journal.store import list_runs
from chargehand.models.model import Hear, ModelCard

BOATS = Task("a", "Count the boats in the harbour.", "ann")
CATS = Task("b", "Count the cats in the harbour.", "ann")
PLAN = Plan((BOATS, CATS), "none")


class Slow:
    card = ModelCard("slow")

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        await asyncio.sleep(0.02)
        return Reply("seven")


def team(journal: Path | None = None, name: str = "harbour") -> Team:
    model = Slow()
    return Team([Worker("ann", model=model)], supervisor=Supervisor(model=model, plan=PLAN), journal=journal, name=name)


def test_forty_runs_of_one_team_in_eight_threads_all_complete(tmp_path: Path) -> None:
    shared = team(tmp_path / "runs.db")

    def run(number: int) -> str:
        return shared.run_sync(f"count {number}").ending

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, range(40))) == ["complete"] * 40
    assert [row.held for row in list_runs(tmp_path / "runs.db")] == [False] * 40


async def test_two_teams_on_one_path_run_at_once(tmp_path: Path) -> None:
    first = team(tmp_path / "runs.db", "first")
    second = team(tmp_path / "runs.db", "second")
    async with asyncio.TaskGroup() as jobs:
        runs = [jobs.create_task(one.run("count", run=f"{one.name}-{n}")) for one in (first, second) for n in range(3)]
    assert [job.result().ending for job in runs] == ["complete"] * 6
    assert len(list_runs(tmp_path / "runs.db")) == 6


@pytest.mark.parametrize("file", [True, False])
async def test_a_run_whose_stream_was_left_can_be_resumed_at_once(tmp_path: Path, file: bool) -> None:
    executor = team(tmp_path / "runs.db" if file else None)
    async for entry in executor.stream("count", run="dropped"):
        if entry.seq >= 3:
            break
    assert (await executor.resume("dropped")).ending == "complete"
    held = executor.stream("count", run="held")
    async for entry in held:
        if entry.seq >= 3:
            break
    assert (await executor.resume("held")).ending == "complete"


async def test_a_run_whose_stream_is_being_read_cannot_be_resumed(tmp_path: Path) -> None:
    executor = team(tmp_path / "runs.db")
    begun = asyncio.Event()

    async def read() -> int:
        count = 0
        async for _ in executor.stream("count", run="r"):
            begun.set()
            count += 1
        return count

    async with asyncio.TaskGroup() as jobs:
        reading = jobs.create_task(read())
        await begun.wait()
        with pytest.raises(RunBusy, match="driven by this process"):
            await executor.resume("r")
    assert reading.result() > 5


async def test_a_team_without_a_journal_forgets_the_oldest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chargehand.team._MAX_ENDED_RUNS", 5)
    model = ScriptedModel(["fine"], repeat=True)
    executor = Team([Worker("ann", model=model)], supervisor=Supervisor(model=model, plan=PLAN))
    for number in range(20):
        assert (await executor.run("count", run=f"r{number}")).ending == "complete"
    gc.collect()
    async with executor.driven() as driver:
        assert [row.run for row in await driver.journal.runs()] == [f"r{number}" for number in range(15, 20)]
