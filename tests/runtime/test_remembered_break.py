"""A team's memory opened in haste: by several event loops, by who is cancelled, with texts that two files share."""

import asyncio
import threading
from pathlib import Path

from chargehand.agents.memory_session import SharedMemory, open_memory
from chargehand.agents.messages import ONE
from chargehand.agents.roles import Worker
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, Append, Block
from chargehand.memory.catalog import Memory
from chargehand.models.messages import Request
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from tests.agents.crowd import call, calls, team
from tests.support.hunts import hunt_size

ANN = Worker("ann")
NOTES = Block("notes", "begun", share="append")


def nothing(_name: str) -> str | None:
    return None


def test_event_loops_in_several_threads_have_one_memory() -> None:
    shared = SharedMemory(Memory(blocks=[NOTES]), "team", [ANN], nothing)
    ready = threading.Barrier(8)

    async def write() -> None:
        async with shared.opened() as memory:
            [block] = await memory.catalog.find(Block)
            await memory.catalog.edit(block.id, Append("line"), PERSON)

    def alone() -> None:
        ready.wait(5)
        asyncio.run(write())

    threads = [threading.Thread(target=alone) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    async def read() -> str:
        async with shared.opened() as memory:
            return (await memory.catalog.find(Block))[0].value

    assert asyncio.run(read()).split("\n") == ["begun", *["line"] * 8]


async def test_whoever_is_cancelled_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    shared = SharedMemory(Memory(tmp_path / "memory.db", [NOTES]), "team", [ANN], nothing)
    before = set(threading.enumerate())

    def writers() -> list[threading.Thread]:
        return [
            thread for thread in threading.enumerate() if thread.name == "chargehand-writer" and thread not in before
        ]

    async def use() -> None:
        async with shared.opened() as memory:
            await memory.catalog.find(Block)

    for pauses in range(0, 40, hunt_size(quick=3, thorough=1)):
        async with asyncio.TaskGroup() as jobs:
            job = jobs.create_task(use())
            for _ in range(pauses):
                await asyncio.sleep(0.0005)
            job.cancel()
        assert not shared._uses
    await use()
    for _ in range(1000):
        if not writers():
            break
        await asyncio.sleep(0.01)
    assert not writers()


async def test_a_text_that_two_files_have_stays_until_neither_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    same = "The same terms apply to all."
    other = "Apples are red. " * 100
    (folder / "a.md").write_text(same)
    (folder / "b.md").write_text(f"{other}\n\n# Terms\n\n{other}")
    (folder / "c.md").write_text(same)
    declared = Memory(tmp_path / "memory.db", archives=[Archive("old", embedding="words")], sources={"old": folder})

    async def texts() -> str:
        async with open_memory(declared, "team", [ANN], nothing) as memory:
            [archive] = await memory.catalog.find(Archive)
            return "\n".join(one.text for one in await memory.catalog.passages(archive.id))

    assert same in await texts()
    (folder / "a.md").write_text("Pears are green.")
    found = await texts()
    assert same in found
    assert "Pears are green." in found
    (folder / "c.md").unlink()
    found = await texts()
    assert same not in found
    assert "Apples are red." in found


async def test_a_run_whose_name_begins_like_the_key_of_anothers_call_is_not_mistaken_for_it() -> None:
    told = asyncio.Event()
    over = asyncio.Event()

    async def play(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        if request.subject.worker.name == "bob":
            return "three"
        if not told.is_set():  # the first to be asked works until the other is done
            told.set()
            await over.wait()
            return "done"
        said = sum(one.role == "assistant" for one in request.messages)
        return [calls(call(ONE, 1, message="How many?", worker="bob")), "done"][said]

    script = ScriptedModel(play)
    executor = team(
        script,
        Worker("ann", tools=[ONE], contacts=["bob"]),
        Worker("bob"),
        plan=Plan((Task(TaskId("t1"), "Ask.", "ann"),), "none"),
    )
    async with executor.driven() as driver, asyncio.TaskGroup() as jobs:
        jobs.create_task(driver.start("a/t1/1", executor.request("Count", 4e9)))
        await told.wait()
        found = await driver.start("a", executor.request("Count", 4e9))
        over.set()
    assert found.ending == "complete"
    assert "three" in next(one.text for one in script.requests[-1].messages if one.role == "tool")
