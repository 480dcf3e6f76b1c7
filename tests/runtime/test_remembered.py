"""Opening a team's memory: what is declared is there, what a crew wrote stays, and everybody has their share."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chargehand.agents.memory_session import SharedMemory, id_of, open_memory
from chargehand.agents.roles import Worker
from chargehand.engine.roster import Match
from chargehand.errors import ChargehandError
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, TEAM, Append, Block, Grant, Rethink
from chargehand.memory.catalog import Catalog, Group, Memory, Profile
from chargehand.memory.session import OpenMemory
from chargehand.memory.sqlite_catalog import SqliteCatalog

ANN = Worker("ann", "counts", tags=["fruit", "north"])
BOB = Worker("bob", "sums", tags=["fruit"])
NOTES = Block("notes", "begun", share="append")
GUIDE = Block("guidelines", "Be brief.", trusted=True)
OLD = Archive("old", embedding="words")
NEW = Archive("new", embedding="words", share="read")


def nothing(_name: str) -> str | None:
    return None


@asynccontextmanager
async def opened(memory: Memory, *workers: Worker, team: str = "team") -> AsyncGenerator[OpenMemory]:
    async with open_memory(memory, team, workers or (ANN, BOB), nothing) as found:
        yield found


async def grants(memory: OpenMemory, worker: str) -> dict[str, Grant]:
    found = await memory.catalog.attached(memory.agents[worker])
    return {one.thing.label if isinstance(one.thing, Block) else one.thing.name: one.grant for one in found}


async def block(catalog: Catalog, label: str = "notes") -> Block:
    return next(one for one in await catalog.find(Block) if one.label == label)


async def test_what_is_declared_is_made_and_shared(tmp_path: Path) -> None:
    declared = Memory(tmp_path / "deep" / "memory.db", [NOTES, GUIDE], [OLD, NEW])
    ann = Worker("ann", tags=["fruit", "north"], blocks={"notes": "write", "guidelines": Grant("append", tainted=True)})
    bob = Worker("bob", tags=["fruit"], blocks={"guidelines": "none"}, archives=["new"])
    for _ in range(2):
        async with opened(declared, ann, bob) as memory:
            assert await grants(memory, "ann") == {
                "notes": Grant("write"),
                "guidelines": Grant("append", tainted=True),
                "old": Grant("write"),
                "new": Grant("read"),
            }
            assert await grants(memory, "bob") == {"notes": Grant("append"), "new": Grant("read")}
            [group] = await memory.catalog.find(Group)
            assert group.id == memory.team
            assert set(memory.agents.values()) < set(group.members)
            matching = await memory.catalog.find(Profile, tags=Match(all=("fruit", "north")))
            assert [one.id for one in matching] == [memory.agents["ann"]]
            assert [one.origin for one in await memory.catalog.history((await block(memory.catalog)).id)] == [TEAM]
            assert len(await memory.catalog.find(Block)) == 2
            assert len(await memory.catalog.find(Archive)) == 2


async def test_opening_again_writes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    async with opened(Memory(place, [NOTES], [OLD])):
        pass
    async with opened(Memory(place, [NOTES], [OLD])) as memory:
        things = [*await memory.catalog.find(Block), *await memory.catalog.find(Profile)]
        [group] = await memory.catalog.find(Group)
    async with opened(Memory(place, [NOTES], [OLD])) as memory:
        assert await memory.catalog.find(Group) == [group]
        assert [*await memory.catalog.find(Block), *await memory.catalog.find(Profile)] == things


async def test_a_block_that_nobody_changed_follows_its_declaration(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    async with opened(Memory(place, [NOTES])):
        pass
    for text, limit in (("begun anew, and longer", 22), ("short", 5)):
        changed = Block("notes", text, "what was found", limit=limit, trusted=True, share="write", tags=("x",))
        async with opened(Memory(place, [changed])) as memory:
            found = await block(memory.catalog)
            assert (found.value, found.description, found.limit, found.trusted, found.tags) == (
                text,
                "what was found",
                limit,
                True,
                ("x",),
            )
            assert await grants(memory, "ann") == {"notes": Grant("write")}
            assert {one.origin.by for one in await memory.catalog.history(found.id)} == {"team"}


async def test_what_was_written_stays_and_only_its_settings_follow(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    async with opened(Memory(place, [NOTES])) as memory:
        await memory.catalog.edit((await block(memory.catalog)).id, Append("by hand"), PERSON)
    async with opened(Memory(place, [Block("notes", "other", "new", read_only=True)])) as memory:
        found = await block(memory.catalog)
        assert (found.value, found.description, found.read_only) == ("begun\nby hand", "new", True)
    async with opened(Memory(place, [Block("notes", "begun\nby hand")])) as memory:
        assert (await block(memory.catalog)).version == 2


async def test_what_is_no_longer_declared_is_let_go_and_what_a_person_attached_is_not(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    own = Worker("ann", blocks={"notes": "write"}, archives=["old"])
    async with opened(Memory(place, [NOTES, GUIDE], [OLD, NEW]), own) as memory:
        extra = await memory.catalog.add(Block("extra", "by hand"))
        await memory.catalog.attach(memory.agents["ann"], extra.id, Grant("read"))
    async with opened(Memory(place, [NOTES], [OLD, NEW]), Worker("ann")) as memory:
        assert await grants(memory, "ann") == {
            "extra": Grant("read"),
            "notes": Grant("append"),
            "old": Grant("write"),
            "new": Grant("read"),
        }
        assert (await block(memory.catalog, "guidelines")).value == "Be brief.", "it is kept all the same"


async def test_teams_in_one_file_are_kept_apart_unless_they_share_a_space(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    async with (
        opened(Memory(place, [NOTES]), team="north") as north,
        opened(Memory(place, [NOTES]), team="south") as south,
    ):
        await north.catalog.edit((await block(north.catalog)).id, Rethink("cold"), PERSON)
        assert (await block(south.catalog)).value == "begun"
    both = Memory(place, [NOTES], space="ours")
    async with opened(both, team="north") as north, opened(both, team="south") as south:
        await north.catalog.edit((await block(north.catalog)).id, Rethink("cold"), PERSON)
        assert (await block(south.catalog)).value == "cold"
        assert north.team != south.team


async def test_many_may_open_at_once(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    seen: list[dict[str, Grant]] = []

    async def one(number: int) -> None:
        async with opened(Memory(place, [Block("notes", f"text {number % 2}"), GUIDE], [OLD])) as memory:
            seen.append(await grants(memory, "ann"))

    async with asyncio.TaskGroup() as jobs:
        for number in range(6):
            jobs.create_task(one(number))
    assert all(set(each) == {"notes", "guidelines", "old"} for each in seen)
    async with opened(Memory(place, [GUIDE])) as memory:
        assert len(await memory.catalog.find(Block)) == 2
        assert len(await memory.catalog.find(Profile)) == 3


def test_processes_that_open_it_at_once_come_to_the_same(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from chargehand.agents.roles import Worker
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Memory
from chargehand.agents.memory_session import open_memory

async def main():
    memory = Memory(sys.argv[1], [Block("notes", "begun", share="append")])
    async with open_memory(memory, "team", [Worker("ann"), Worker("bob")], lambda name: None) as found:
        print(found.team, *sorted(found.agents.values()), len(await found.catalog.attached(found.agents["ann"])))

asyncio.run(main())
"""
    place = str(tmp_path / "memory.db")
    running = [
        subprocess.Popen([sys.executable, "-c", code, place], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = {one.communicate(timeout=50)[0] for one in running}
    assert [one.returncode for one in running] == [0, 0, 0]
    assert len(said) == 1
    assert said.pop().endswith(" 1\n")


async def test_runs_at_once_share_one_opening_and_the_last_one_closes_it(tmp_path: Path) -> None:
    shared = SharedMemory(Memory(tmp_path / "memory.db", [NOTES]), "team", [ANN], nothing)
    async with shared.opened() as first:
        async with shared.opened() as second:
            assert first is second
        await first.catalog.find(Block)
    with pytest.raises(ChargehandError):
        await first.catalog.edit((await block(first.catalog)).id, Append("late"), PERSON)
    async with shared.opened() as third:
        assert third is not first
        assert (await block(third.catalog)).value == "begun"


async def test_a_catalog_that_is_handed_in_stays_open() -> None:
    catalog = await SqliteCatalog.open(None, space="mine")
    async with opened(Memory(catalog, [NOTES])) as memory:
        assert memory.catalog is catalog
    assert (await block(catalog)).value == "begun"
    await catalog.close()


async def test_sources_are_put_in_once_and_follow_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "a.md").write_text("Apples are red.")
    (folder / "b.md").write_text("Pears are green.")
    declared = Memory(tmp_path / "memory.db", archives=[OLD], sources={"old": folder})
    for expected in (["Apples are red.", "Pears are green."], ["Apples are brown.", "Plums are blue."]):
        for _ in range(2):
            async with opened(declared) as memory:
                archive = id_of(Archive, "team", "old")
                assert sorted(one.text for one in await memory.catalog.passages(archive)) == expected
                [hit] = await memory.search([Archive("old", embedding="words", id=archive)], expected[0].split()[2])
                assert hit.passage.origin.source == "a.md"
        (folder / "a.md").write_text("Apples are brown.")
        (folder / "b.md").unlink(missing_ok=True)
        (folder / "c.md").write_text("Plums are blue.")
