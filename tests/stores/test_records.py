"""What every catalog promises of records: all it holds can be read out, and loaded into another catalog."""

import struct
from itertools import count

from chargehand.memory.archives import Archive, Passage
from chargehand.memory.blocks import Block, Grant, Origin
from chargehand.memory.catalog import (
    SECTIONS,
    START,
    Catalog,
    Group,
    KeptConversation,
    MemoryRecord,
    PassageRecord,
    Profile,
    Section,
    TurnRecord,
)
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Append, Rethink, Undo
from chargehand.memory.session import open_catalog
from chargehand.memory.vectors import unit

WORKER = Origin("worker", "ann", run="r1", task="t1", attempt=1, key="r1/t1/1", tainted=True, mark="m")
HANDLE = "test:four"


def vector(*numbers: float) -> bytes:
    return unit([struct.pack("<4f", *numbers)])[0]


async def fill(catalog: Catalog) -> None:
    """Some of everything a catalog can hold."""
    ann = await catalog.add(Profile("ann", tags=("fast",), metadata={"a": [1, None]}, settings={"b": "é"}))
    bob = await catalog.add(Profile("bob"))
    crew = await catalog.add(Group("crew", members=(ann.id, bob.id)))
    notes = await catalog.add(
        Block("notes", "first", share="append", tags=("own",)), Origin(source="a file", tainted=True)
    )
    rules = await catalog.add(Block("rules", "Cite.", trusted=True))
    await catalog.attach(crew.id, rules.id, Grant("read"))
    await catalog.attach(ann.id, notes.id, Grant("write", tainted=True))
    await catalog.attach(bob.id, notes.id, Grant("none"))
    await catalog.edit(notes.id, Append("second"), WORKER, agent=ann.id)
    await catalog.edit(notes.id, Rethink("third"), Origin(key="k"))
    await catalog.edit(notes.id, Undo(), Origin())
    beside = await catalog.add(KeptConversation("beside", agent=ann.id, tags=(ann.id,)))
    await catalog.say(bob.id, [Turn("user", "forgotten")], key="before the reset")
    await catalog.reset(bob.id)
    for number in range(4):
        await catalog.say(
            ann.id, [Turn("user", f"question {number}", run="r"), Turn("assistant", "yes")], key=f"{number}"
        )
        await catalog.say(beside.id, [Turn("user", f"aside {number}", tainted=True)])
    turns = await catalog.turns(ann.id)
    await catalog.summarise(ann.id, Turn("summary", "four questions", upto=turns[3].number))
    await catalog.summarise(ann.id, Turn("summary", "more of them", upto=turns[5].number))
    papers = await catalog.add(Archive("papers", "What we read."))
    words = await catalog.add(Archive("words", embedding="words"))
    texts = [Passage(f"soil number {n}", ("wet",), {"n": n}, WORKER, document="d", part=n) for n in range(5)]
    vectors = [vector(1, n, 0, 0.1) for n in range(5)]
    await catalog.insert(papers.id, texts, vectors, handle=HANDLE)
    await catalog.insert(papers.id, [Passage("without a vector")])
    await catalog.insert(words.id, [Passage("plain words")])


async def records(catalog: Catalog, section: Section, limit: int = 500) -> list[MemoryRecord]:
    """All of a section, page by page."""
    found: list[MemoryRecord] = []
    after = START
    while True:
        page = await catalog.export(section, after=after, limit=limit)
        found += page.records
        after = page.position
        if len(page.records) < limit:
            return found


async def clone(catalog: Catalog) -> Catalog:
    """A catalog in memory with the same records."""
    copy = await open_catalog()
    for section in SECTIONS:
        await copy.load(await records(catalog, section))
    return copy


async def test_pages_of_any_size_give_the_same_records(catalog: Catalog) -> None:
    await fill(catalog)
    for section in SECTIONS:
        whole = await records(catalog, section)
        assert whole
        assert await records(catalog, section, limit=1) == whole
        assert await records(catalog, section, limit=3) == whole


async def test_what_is_loaded_reads_the_same_and_may_be_loaded_again(catalog: Catalog) -> None:
    source = await open_catalog()
    await fill(source)
    for section in SECTIONS:
        whole = await records(source, section)
        await catalog.load(whole[:2])
        await catalog.load(whole)
        await catalog.load(whole)
        assert await records(catalog, section) == whole
    assert await catalog.spaces() == ["default"]


async def test_a_copy_answers_as_the_original_does(catalog: Catalog) -> None:
    await fill(catalog)
    copy = await clone(catalog)
    assert await records(copy, "passages") == await records(catalog, "passages")
    for kind in (Profile, Group, Block, Archive, KeptConversation):
        assert await copy.find(kind) == await catalog.find(kind)
    agents = await catalog.find(Profile)
    assert await copy.attached_to([agent.id for agent in agents]) == await catalog.attached_to([a.id for a in agents])
    notes = (await catalog.find(Block, name="notes"))[0].id
    assert await copy.history(notes) == await catalog.history(notes)
    assert [await copy.text_at(notes, version) for version in range(1, 5)] == [
        "first",
        "first\nsecond",
        "third",
        "first\nsecond",
    ]
    ann = agents[0].id
    for old in (False, True):
        shown = [turn.text for turn in await catalog.turns(ann, old=old)]
        assert [turn.text for turn in await copy.turns(ann, old=old)] == shown
    papers = (await catalog.find(Archive, name="papers"))[0].id
    assert await copy.count(papers) == (6, 5)
    for asked in (None, vector(1, 3, 0, 0.1)):
        hits = await copy.search([papers], "soil", asked, handle=HANDLE if asked else "", limit=1)
        assert hits[0].passage.text.startswith("soil number")
        if asked:
            assert hits[0].passage.text == "soil number 3"


async def test_a_copy_knows_what_was_done_before(catalog: Catalog) -> None:
    """Keys of edits, of turns and of passages hold on the other side."""
    source = await open_catalog()
    await fill(source)
    for section in SECTIONS:
        await catalog.load(await records(source, section))
    ann, bob = await catalog.find(Profile)
    (notes,) = await catalog.find(Block, name="notes")
    assert await catalog.edit(notes.id, Append("second"), WORKER, agent=ann.id) == notes
    again = Origin("worker", "ann", run="r1", task="t1", attempt=2, key="r1/t1/2", tainted=True, mark="m")
    assert await catalog.edit(notes.id, Append("second"), again, agent=ann.id) == notes
    assert await catalog.edit(notes.id, Rethink("other"), Origin(key="k")) == notes
    assert not await catalog.say(ann.id, [Turn("user", "?")], key="3")
    assert not await catalog.say(bob.id, [Turn("user", "?")], key="before the reset")
    (papers,) = await catalog.find(Archive, name="papers")
    (known,) = await catalog.insert(papers.id, [Passage("other words", origin=WORKER, part=4)])
    assert not known.new
    edited = await catalog.edit(notes.id, Append("fourth"), Origin())
    assert (edited.version, edited.value) == (5, "first\nsecond\nfourth")


async def test_summaries_stand_for_the_same_turns_on_both_sides(catalog: Catalog) -> None:
    await fill(catalog)
    ann = (await catalog.find(Profile, name="ann"))[0].id
    turns = [one.turn for one in await records(catalog, "turns") if isinstance(one, TurnRecord) and one.speaker == ann]
    assert [turn.number for turn in turns] == list(range(1, 11))
    assert [turn.upto for turn in turns if turn.role == "summary"] == [4, 6]
    copy = await clone(catalog)
    assert await copy.summarise(ann, Turn("summary", "all", upto=(await copy.turns(ann))[-1].number))
    assert [turn.text for turn in await copy.turns(ann)] == ["all"]


async def test_a_summary_of_forgotten_turns_comes_before_those_that_are_there(catalog: Catalog) -> None:
    ann = await catalog.add(Profile("ann"))
    await catalog.say(ann.id, [Turn("user", "forgotten")])
    stale = (await catalog.turns(ann.id))[-1].number
    await catalog.reset(ann.id)
    await catalog.say(ann.id, [Turn("user", "kept"), Turn("assistant", "yes")])
    assert await catalog.summarise(ann.id, Turn("summary", "of what is gone", upto=stale))
    expected = ["of what is gone", "kept", "yes"]
    assert [turn.text for turn in await catalog.turns(ann.id)] == expected
    copy = await clone(catalog)
    assert [turn.text for turn in await copy.turns(ann.id)] == expected
    assert await records(copy, "turns") == await records(catalog, "turns")


async def test_vectors_are_kept_to_the_last_bit(catalog: Catalog) -> None:
    source = await open_catalog()
    (papers,) = [await source.add(Archive("papers"))]
    tenths = count(1)
    vectors = [vector(0.1, next(tenths) / 10, 1 / 3, -0.7) for _ in range(20)]
    await source.insert(papers.id, [Passage(f"text {n}") for n in range(20)], vectors, handle=HANDLE)
    await catalog.load([*await records(source, "things"), *await records(source, "passages")])
    kept = await records(catalog, "passages")
    assert kept == await records(source, "passages")
    assert all(isinstance(one, PassageRecord) and one.vector for one in kept)
