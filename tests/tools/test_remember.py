"""The memory tools, called as a model would call them: what they say, what they refuse, and what they hand back."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from chargehand.memory.archives import Archive, Embedding, Passage
from chargehand.memory.blocks import Access, Block, Grant, Origin
from chargehand.memory.catalog import Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.session import OpenMemory
from chargehand.memory.sqlite_catalog import SqliteCatalog
from chargehand.models.artifacts import Passages
from chargehand.tools.remember import NAMES, Recalled, described, memory_tools, usual_tools
from chargehand.tools.tool import Caller, Tool, ToolFailed

KEY = "run/a/t1/2/7"


def ann_calls(step: int = 7, *, tainted: bool = False, seen: Mapping[str, int] | None = None) -> Caller:
    """A call that ann makes as one step of her attempt."""
    return Caller(f"run/a/t1/2/{step}", "ann", tainted, seen or {}, run="run/a", task="t1", attempt=2)


ANN = ann_calls()
MAY = 1_747_440_000.0  # 2025-05-17, midnight


def by_words(_handle: str) -> Embedding | None:
    return None


class Desk:
    def __init__(self, memory: OpenMemory, tools: dict[str, Tool]) -> None:
        self.memory = memory
        self.tools = tools

    async def by(self, caller: Caller, name: str, /, **given: object) -> object:
        return await self.tools[name].call(json.dumps(given), caller.key, caller)

    async def __call__(self, name: str, /, **given: object) -> object:
        return await self.by(ANN, name, **given)

    async def fails(self, name: str, /, **given: object) -> str:
        with pytest.raises(ToolFailed) as found:
            await self(name, **given)
        assert not found.value.unknown, "a definite failure"
        return str(found.value)

    async def block(self, label: str) -> Block:
        return next(one for one in await self.memory.catalog.find(Block) if one.label == label)

    async def archive(self, name: str) -> Archive:
        return next(one for one in await self.memory.catalog.find(Archive) if one.name == name)


@asynccontextmanager
async def desk(*things: Block | Archive, access: Access = "write", clock: float = MAY) -> AsyncGenerator[Desk]:
    catalog = await SqliteCatalog.open(None, space="s", clock=lambda: clock)
    memory = OpenMemory(catalog, by_words, clock=lambda: clock)
    ann = await catalog.add(Profile("ann"))
    memory.agents = {"ann": ann.id}
    kept = [(await catalog.add(one)).id for one in things if isinstance(one, Block)]
    kept += [(await catalog.add(one)).id for one in things if isinstance(one, Archive)]
    for which in kept:
        await catalog.attach(ann.id, which, Grant(access))
    yield Desk(memory, memory_tools(memory, "ann"))
    await memory.close()


NOTES = Block("notes", "one\ntwo\ntwo", limit=100)


def test_there_are_nine_and_they_say_what_they_do_in_the_world() -> None:
    tools = described()
    assert tuple(tools) == NAMES
    assert {name for name, one in tools.items() if one.effect == "read"} == {
        "archival_memory_search",
        "conversation_search",
    }
    assert {name for name, one in tools.items() if not one.trusted} == {"archival_memory_search", "conversation_search"}
    for one in tools.values():
        parameters = json.loads(bytes(one.spec.parameters))
        assert "caller" not in parameters["properties"], one.name
        assert all("description" in part for part in parameters["properties"].values()), one.name
        assert len(one.spec.description) > 40, one.name


@pytest.mark.parametrize(
    ("name", "given", "value", "said"),
    [
        ("core_memory_append", {"content": "three"}, "one\ntwo\ntwo\nthree", "appended"),
        ("core_memory_replace", {"old_content": "two", "new_content": "2"}, "one\n2\n2", "replaced"),
        ("memory_insert", {"new_string": "zero", "insert_line": 0}, "zero\none\ntwo\ntwo", "inserted"),
        ("memory_insert", {"new_string": "end"}, "one\ntwo\ntwo\nend", "inserted"),
        ("memory_replace", {"old_string": "one", "new_string": "1"}, "1\ntwo\ntwo", "replaced"),
        ("memory_apply_patch", {"patch": "-one\n+uno\n two"}, "uno\ntwo\ntwo", "patched"),
    ],
)
async def test_an_edit_is_made_and_acknowledged_without_the_text_of_others(
    name: str, given: dict[str, object], value: str, said: str
) -> None:
    async with desk(NOTES) as ann:
        told = await ann(name, label="notes", **given)
        block = await ann.block("notes")
        assert block.value == value
        assert told == f"{said}; notes is at version 2, {len(value)} of 100 characters"
        [change, _] = await ann.memory.catalog.history(block.id)
        assert change.origin == Origin(by="worker", name="ann", run="run/a", task="t1", attempt=2, key=KEY)


async def test_the_same_call_again_is_not_made_again() -> None:
    async with desk(NOTES) as ann:
        for _ in range(3):
            await ann("core_memory_append", label="notes", content="three")
        assert (await ann.block("notes")).version == 2
        await ann.by(ann_calls(8), "core_memory_append", label="notes", content="three")
        assert (await ann.block("notes")).version == 3


async def test_whether_the_writer_had_seen_text_from_outside_is_written_down() -> None:
    async with desk(NOTES, Archive("old", embedding="words")) as ann:
        await ann.by(ann_calls(tainted=True), "core_memory_append", label="notes", content="x")
        assert (await ann.block("notes")).tainted
        await ann.by(ann_calls(tainted=True), "archival_memory_insert", content="kept")
        [passage] = await ann.memory.catalog.passages((await ann.archive("old")).id)
        assert passage.origin == Origin(
            by="worker", name="ann", run="run/a", task="t1", attempt=2, key=KEY, tainted=True
        )


async def test_a_whole_text_is_made_from_the_version_that_was_seen() -> None:
    async with desk(NOTES) as ann:
        old = ann_calls(1, seen={"notes": 1})
        await ann("core_memory_append", label="notes", content="three")
        with pytest.raises(ToolFailed, match=r"notes was not changed: .*version 2 by now, not 1"):
            await ann.by(old, "memory_rethink", label="notes", new_memory="mine")
        new = ann_calls(3, seen={"notes": 2})
        assert await ann.by(new, "memory_rethink", label="notes", new_memory="mine") == (
            "rewritten; notes is at version 3, 4 of 100 characters"
        )
        unseen = ann_calls(4)
        with pytest.raises(ToolFailed, match="was not changed"):
            await ann.by(unseen, "memory_rethink", label="notes", new_memory="blind")


async def test_what_cannot_be_done_is_said_with_what_can() -> None:
    async with desk(NOTES, Block("plan", "")) as ann:
        assert "you have no block 'note'; there is 'notes'" in await ann.fails(
            "core_memory_append", label="note", content="x"
        )
        assert "'two' occurs" in await ann.fails("memory_replace", label="notes", old_string="two", new_string="2")
        assert "does not occur" in await ann.fails("memory_replace", label="notes", old_string="ten", new_string="x")
        assert "limit of 100" in await ann.fails("core_memory_append", label="notes", content="x" * 200)
        assert "0 (the top) to 3" in await ann.fails("memory_insert", label="notes", new_string="x", insert_line=9)
        assert (await ann.block("notes")).version == 1
        assert "lacks 'content'" in await ann.fails("core_memory_append", label="notes")


async def test_grants_hold_for_archives_too() -> None:
    async with desk(Archive("old", embedding="words"), access="read") as ann:
        assert await ann.fails("archival_memory_insert", content="x") == "you may search old, but not add to it"
        assert (await ann.memory.catalog.count((await ann.archive("old")).id))[0] == 0


async def test_a_text_is_kept_once_and_found_with_why() -> None:
    async with desk(Archive("old", embedding="words")) as ann:
        text = "The cellar in Lyon holds 12 barrels of cider."
        assert await ann("archival_memory_insert", content=text, tags=["cider", "lyon"]) == "kept in old"
        again = ann_calls(9)
        assert await ann.by(again, "archival_memory_insert", content=text, tags=["stock"]) == (
            "old has this text already; its tags are joined"
        )
        found = await ann("archival_memory_search", query="barrels cider")
        assert isinstance(found, Passages)
        [one] = found.found
        assert (one.text, set(one.tags), one.when) == (text, {"cider", "lyon", "stock"}, "2025-05-17T00:00:00Z")
        assert one.source == "old: ann, task t1 of run run/a"
        assert one.id.startswith("passage-")
        assert one.why
        assert "there is no text to keep" in await ann.fails("archival_memory_insert", content="  ")


async def test_long_texts_are_kept_in_parts() -> None:
    async with desk(Archive("old", embedding="words")) as ann:
        text = "\n\n".join(f"Paragraph {n} speaks of barrel {n} at some length. " * 20 for n in range(20))
        told = await ann("archival_memory_insert", content=text)
        assert isinstance(told, str)
        assert told.startswith("kept in old, in ")


async def test_tags_and_times_narrow_a_search_and_times_are_inclusive() -> None:
    async with desk(Archive("old", embedding="words")) as ann:
        archive = await ann.archive("old")
        day = 86_400.0
        passages = [
            Passage("apples counted", ("a",), created=MAY),
            Passage("apples eaten", ("a", "b"), created=MAY + day),
            Passage("apples sold", ("b",), created=MAY + 2 * day),
        ]
        await ann.memory.add(archive, passages)

        async def texts(**more: object) -> set[str]:
            found = await ann("archival_memory_search", query="apples", **more)
            assert isinstance(found, Passages), found
            return {one.text.split()[1] for one in found.found}

        assert await texts() == {"counted", "eaten", "sold"}
        assert await texts(tags=["a", "b"]) == {"counted", "eaten", "sold"}
        assert await texts(tags=["a", "b"], tag_match_mode="all") == {"eaten"}
        assert await texts(start_datetime="2025-05-18") == {"eaten", "sold"}
        assert await texts(end_datetime="2025-05-18") == {"counted", "eaten"}
        assert await texts(start_datetime="2025-05-18T00:00:00Z", end_datetime="2025-05-18T02:00:00+02:00") == {"eaten"}
        assert len(await texts(top_k=1)) == 1
        said = await ann.fails("archival_memory_search", query="apples", start_datetime="last week")
        assert "'last week' is no time; write it in ISO 8601, for example 2026-05-17" in said


async def test_nothing_found_says_what_there_is() -> None:
    async with desk(Archive("old", embedding="words"), Archive("new", embedding="words")) as ann:
        await ann.memory.add(await ann.archive("old"), [Passage("apples", ("fruit",))])
        said = await ann("archival_memory_search", query="zebra")
        assert said == "nothing found for 'zebra' in old, new; try other words, or fewer conditions"
        assert "say which archive: there is 'old' and 'new'" in await ann.fails("archival_memory_insert", content="x")
        assert await ann("archival_memory_insert", content="x", archive="new") == "kept in new"
        assert "you have no archive 'nwe'; there is 'new'" in await ann.fails(
            "archival_memory_search", query="x", archive="nwe"
        )


async def test_earlier_turns_are_found_by_word_role_and_day() -> None:
    async with desk() as ann:
        agent = ann.memory.agents["ann"]
        await ann.memory.catalog.say(agent, [Turn("user", "Count the apples.", when=MAY, run="r1", task="t1")])
        await ann.memory.catalog.say(agent, [Turn("assistant", "Twelve apples.", when=MAY + 90_000, run="r1")])
        assert len(await recalled(ann)) == 2
        [one] = await recalled(ann, roles=["assistant"])
        assert (one.text, one.when) == ("Twelve apples.", "2025-05-18T01:00:00Z")
        [one] = await recalled(ann, end_date="2025-05-17")
        assert (one.text, one.run, one.task) == ("Count the apples.", "r1", "t1")
        assert "nothing found for 'zebra'" in str(await ann("conversation_search", query="zebra"))
        assert "the arguments of conversation_search do not fit" in await ann.fails(
            "conversation_search", query="x", roles=["tool"]
        )


async def recalled(ann: Desk, **more: object) -> list[Recalled]:
    return msgspec.convert(await ann("conversation_search", query="apples", **more), list[Recalled])


async def test_without_a_memory_they_fail_in_words() -> None:
    with pytest.raises(ToolFailed, match="no memory here"):
        await described()["core_memory_append"].call('{"label": "a", "content": "b"}', KEY)


@pytest.mark.parametrize(
    ("blocks", "archives", "remembers", "names"),
    [
        ([], [], False, []),
        (["read", "none"], ["none"], False, []),
        (["append"], ["read"], False, ["core_memory_append", "archival_memory_search"]),
        (["write"], [], True, ["core_memory_append", "memory_insert", "memory_replace", "conversation_search"]),
        ([], ["append"], False, ["archival_memory_insert", "archival_memory_search"]),
    ],
)
def test_who_gets_which_without_asking(
    blocks: list[Access], archives: list[Access], remembers: bool, names: list[str]
) -> None:
    assert usual_tools(blocks, archives, remembers=remembers) == names
