"""What every catalog promises of things, attachments, blocks and conversations. Passages are in test_passages."""

import asyncio
import struct
import uuid

import pytest
from msgspec.structs import replace

from chargehand.engine.roster import Match
from chargehand.errors import Conflict, Invalid, NotJson, Refused, StoreError, Unknown
from chargehand.memory.archives import Archive, Passage
from chargehand.memory.blocks import PERSON, TEAM, Access, Block, Change, Grant, Origin
from chargehand.memory.catalog import Catalog, Group, KeptTool, Profile, Thing
from chargehand.memory.edits import Append, Insert, Redo, Replace, Restore, Rethink, Undo

KINDS: list[Thing] = [
    Profile(
        name="ann",
        description="reads",
        prompt="You read.",
        model="m:x",
        tags=("a",),
        tools=("t",),
        metadata={"k": [1, None]},
        settings={"s": {"deep": "ü"}},
    ),
    Group("crew", ("agent-1",), tags=("a",)),
    KeptTool("add", "Adds.", {"type": "object"}, "def add(): ...", tags=("a",)),
    Block("facts", "one", "what we know", tags=("a",), metadata={"n": 1.5}),
    Archive("papers", "what we read", tags=("a",)),
]
kinds = pytest.mark.parametrize("thing", KINDS, ids=lambda thing: type(thing).__name__)


def worker(task: str = "t", attempt: int = 1, key: str = "", *, tainted: bool = False) -> Origin:
    return Origin(by="worker", name="ann", run="r", task=task, attempt=attempt, key=key, tainted=tainted)


async def made(catalog: Catalog, block: Block, access: Access = "write", *, tainted: bool = False) -> tuple[str, str]:
    """An agent and a block it may use, by their ids."""
    agent = await catalog.add(Profile("ann"))
    kept = await catalog.add(block)
    await catalog.attach(agent.id, kept.id, Grant(access, tainted))
    return agent.id, kept.id


async def value(catalog: Catalog, block: str) -> str:
    found = await catalog.get(Block, block)
    assert found is not None
    return found.value


# --- things by id


@kinds
async def test_a_thing_comes_back_as_it_was_kept(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    assert kept == replace(thing, id=kept.id, created=kept.created, updated=kept.created)
    assert kept.created >= 1000
    assert await catalog.get(type(thing), kept.id) == kept


@kinds
async def test_an_id_names_its_kind_and_may_be_brought(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    prefix, _, rest = kept.id.partition("-")
    assert prefix in ("agent", "group", "tool", "block", "archive")
    assert str(uuid.UUID(rest)) == rest
    own = f"{prefix}-{uuid.uuid5(uuid.NAMESPACE_URL, 'ours')}"
    assert (await catalog.add(replace(thing, id=own))).id == own
    with pytest.raises(Refused, match="already"):
        await catalog.add(replace(thing, id=own))
    assert len(await catalog.find(type(thing))) == 2


@pytest.mark.parametrize("bad", ["facts", "block-", "agent-" + str(uuid.UUID(int=0)), "block-" + "g" * 36])
async def test_an_id_of_another_form_is_invalid(catalog: Catalog, bad: str) -> None:
    with pytest.raises(Invalid, match="block-<uuid>"):
        await catalog.add(Block("facts", id=bad))


@kinds
async def test_another_kind_or_an_unknown_id_is_nothing(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    other = Block if not isinstance(thing, Block) else Profile
    assert await catalog.get(other, kept.id) is None
    assert await catalog.get(type(thing), kept.id + "0") is None


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", 2**70, object()])
async def test_what_json_cannot_carry_is_refused_and_nothing_is_kept(catalog: Catalog, bad: object) -> None:
    with pytest.raises(NotJson):
        await catalog.add(Profile("ann", metadata={"bad": bad}))
    assert await catalog.find(Profile) == []


@kinds
async def test_fields_are_changed_by_id(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    changed = await catalog.change(replace(kept, tags=("b", "b"), metadata={"new": True}, created=1.0))
    assert changed == replace(kept, tags=("b", "b"), metadata={"new": True}, updated=changed.updated)
    assert changed.updated > kept.updated
    assert await catalog.get(type(thing), kept.id) == changed
    assert await catalog.tags(type(thing)) == {"b": 1}
    with pytest.raises(Unknown):
        await catalog.change(replace(kept, id=kept.id[:-4] + "0000"))


@kinds
async def test_a_thing_that_was_changed_since_is_not_changed_again(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    changed = await catalog.change(replace(kept, description="one"), expect=kept.updated)
    with pytest.raises(Conflict, match="was changed meanwhile"):
        await catalog.change(replace(kept, description="two"), expect=kept.updated)
    assert await catalog.get(type(thing), kept.id) == changed
    assert (await catalog.change(replace(changed, description="two"), expect=changed.updated)).description == "two"


async def test_changing_a_block_leaves_its_text_and_versions(catalog: Catalog) -> None:
    block = await catalog.add(Block("facts", "one"))
    edited = await catalog.edit(block.id, Append("two"), PERSON)
    changed = await catalog.change(replace(block, label="news", value="gone", version=9, read_only=True))
    assert changed == replace(edited, label="news", read_only=True, updated=changed.updated)
    assert [found.label for found in await catalog.find(Block, name="news")] == ["news"]
    with pytest.raises(Refused, match="shorten"):
        await catalog.change(replace(changed, limit=3))


@kinds
async def test_a_deleted_thing_is_gone(catalog: Catalog, thing: Thing) -> None:
    kept = await catalog.add(thing)
    other = await catalog.add(thing)
    assert await catalog.delete(type(thing), kept.id)
    assert not await catalog.delete(type(thing), kept.id)
    assert await catalog.get(type(thing), kept.id) is None
    assert await catalog.find(type(thing)) == [other]
    assert await catalog.tags(type(thing)) == {"a": 1}


async def test_another_kind_is_not_deleted(catalog: Catalog) -> None:
    kept = await catalog.add(Block("facts"))
    assert not await catalog.delete(Profile, kept.id)
    assert await catalog.get(Block, kept.id) == kept


# --- finding


async def test_things_are_found_by_name_and_by_text(catalog: Catalog) -> None:
    await catalog.add(Profile("Ann", "Reads PAPERS"))
    await catalog.add(Profile("Bob", "writes, 100% sure"))
    await catalog.add(Block("facts", "Ärger in Oslo", "of towns"))

    async def profiles(name: str | None = None, text: str = "") -> list[str]:
        return [found.name for found in await catalog.find(Profile, name=name, text=text)]

    assert await profiles(name="Ann") == ["Ann"]
    assert await profiles(name="ann") == []
    assert await profiles(text="papers") == ["Ann"]
    assert await profiles(text="BOB") == ["Bob"]
    assert await profiles(text="%") == ["Bob"]
    assert await profiles(name="Bob", text="papers") == []
    for text in ("oslo", "ärger", "FACTS", "towns"):
        assert len(await catalog.find(Block, text=text)) == 1, text
    assert await catalog.find(Block, text="bergen") == []


async def test_tags_select_all_of_some_and_some_of_others(catalog: Catalog) -> None:
    for name, tags in (("a", ("x", "y")), ("b", ("x", "z")), ("c", ("y",)), ("d", ())):
        await catalog.add(Profile(name, tags=tags))
    await catalog.add(Group("g", tags=("x",)))

    async def names(*every: str, some: tuple[str, ...] = ()) -> str:
        found = await catalog.find(Profile, tags=Match(every, some))
        return "".join(profile.name for profile in found)

    assert await names() == "abcd"
    assert await names("x") == "ab"
    assert await names("x", "y") == "a"
    assert await names(some=("y", "z")) == "abc"
    assert await names("x", some=("z", "w")) == "b"
    assert await names("w") == ""
    assert await catalog.tags(Profile) == {"x": 2, "y": 2, "z": 1}
    assert list(await catalog.tags(Profile)) == ["x", "y", "z"]
    assert await catalog.tags(Group) == {"x": 1}
    assert await catalog.tags(Block) == {}


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_lead_forth_and_back_and_end(catalog: Catalog, order: str) -> None:
    direction = "asc" if order == "asc" else "desc"
    kept = [await catalog.add(Profile(str(number))) for number in range(7)]
    whole = kept if order == "asc" else kept[::-1]
    forth: list[Profile] = []
    for _ in range(4):
        after = forth[-1].id if forth else ""
        forth += await catalog.find(Profile, after=after, limit=3, order=direction)
    assert forth == whole
    assert await catalog.find(Profile, after=whole[-1].id, order=direction) == []
    back: list[Profile] = [whole[-1]]
    for _ in range(4):
        back = await catalog.find(Profile, before=back[0].id, limit=3, order=direction) + back
    assert back == whole
    between = await catalog.find(Profile, after=whole[1].id, before=whole[5].id, limit=2, order=direction)
    assert between == whole[2:4]


async def test_a_page_after_something_unknown_is_refused(catalog: Catalog) -> None:
    block = await catalog.add(Block("facts"))
    with pytest.raises(Unknown):
        await catalog.find(Profile, after=block.id)
    assert await catalog.find(Block, limit=0) == []
    assert await catalog.find(Block, limit=-1) == []


# --- spaces


async def test_another_space_sees_nothing_of_this_one(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts", "one", tags=("a",)))
    await catalog.say(agent, [])
    foreign = catalog.of("another")
    assert await foreign.get(Block, block) is None
    assert await foreign.find(Block) == []
    assert await foreign.find(Block, tags=Match(("a",))) == []
    assert await foreign.tags(Block) == {}
    assert not await foreign.delete(Block, block)
    theirs = await foreign.add(Profile("ann"))
    for refused in (
        foreign.edit(block, Append("two"), PERSON),
        foreign.history(block),
        foreign.text_at(block, 1),
        foreign.attached(agent),
        foreign.attach(theirs.id, block, Grant("write")),
        foreign.detach(agent, block),
        foreign.owners(block),
        foreign.turns(agent),
        foreign.recall(agent, "x"),
        foreign.reset(agent),
        foreign.say(agent, []),
        foreign.find(Block, after=block),
    ):
        with pytest.raises(Unknown):
            await refused
    assert await value(catalog, block) == "one"


async def test_two_spaces_may_use_the_same_id(catalog: Catalog) -> None:
    foreign = catalog.of("another")
    ours = await catalog.add(Block("facts", "ours", tags=("a",)))
    theirs = await foreign.add(Block("facts", "theirs", id=ours.id))
    await foreign.edit(theirs.id, Append("more"), PERSON)
    assert await value(catalog, ours.id) == "ours"
    assert await value(foreign, ours.id) == "theirs\nmore"
    await foreign.delete(Block, ours.id)
    assert await value(catalog, ours.id) == "ours"
    assert await catalog.tags(Block) == {"a": 1}


async def test_a_group_of_another_space_grants_nothing(catalog: Catalog) -> None:
    agent = await catalog.add(Profile("ann"))
    foreign = catalog.of("another")
    block = await foreign.add(Block("secret"))
    group = await foreign.add(Group("crew", (agent.id,)))
    await foreign.attach(group.id, block.id, Grant("write"))
    assert await catalog.attached(agent.id) == []


# --- who may use what


async def test_attaching_again_changes_the_grant(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts"), "read")
    await catalog.attach(agent, block, Grant("append", tainted=True))
    [attached] = await catalog.attached(agent)
    assert (attached.thing.id, attached.grant, attached.via) == (block, Grant("append", tainted=True), "")
    assert await catalog.owners(block) == {agent: Grant("append", tainted=True)}
    assert await catalog.detach(agent, block)
    assert not await catalog.detach(agent, block)
    assert await catalog.attached(agent) == []
    assert await catalog.owners(block) == {}


async def test_members_of_a_group_use_what_it_has(catalog: Catalog) -> None:
    agent = await catalog.add(Profile("ann"))
    other = await catalog.add(Profile("bob"))
    block = await catalog.add(Block("facts"))
    archive = await catalog.add(Archive("papers"))
    group = await catalog.add(Group("crew", (agent.id,)))
    await catalog.attach(group.id, archive.id, Grant("write"))
    await catalog.attach(group.id, block.id, Grant("read"))
    found = await catalog.attached(agent.id)
    assert [(one.thing, one.grant, one.via) for one in found] == [
        (block, Grant("read"), group.id),
        (archive, Grant("write"), group.id),
    ]
    assert await catalog.attached(other.id) == []
    await catalog.change(replace(group, members=(other.id,)))
    assert await catalog.attached(agent.id) == []
    assert len(await catalog.attached(other.id)) == 2


async def test_an_agents_own_grant_beats_that_of_its_groups(catalog: Catalog) -> None:
    agent = await catalog.add(Profile("ann"))
    first, second, third = [await catalog.add(Block(label)) for label in ("first", "second", "third")]
    group = await catalog.add(Group("crew", (agent.id,)))
    for block in (first, second, third):
        await catalog.attach(group.id, block.id, Grant("write"))
    await catalog.attach(agent.id, second.id, Grant("read"))
    await catalog.attach(agent.id, third.id, Grant("none"))
    found = await catalog.attached(agent.id)
    assert [(one.thing.id, one.grant.access, one.via) for one in found] == [
        (second.id, "read", ""),
        (first.id, "write", group.id),
    ]
    for block in (second, third):
        with pytest.raises(Refused):
            await catalog.edit(block.id, Append("x"), worker(), agent=agent.id)
    await catalog.edit(first.id, Append("x"), worker(), agent=agent.id)


async def test_of_several_groups_the_widest_grant_counts(catalog: Catalog) -> None:
    agent = await catalog.add(Profile("ann"))
    block = await catalog.add(Block("facts", trusted=True))
    grants = [Grant("read", tainted=True), Grant("append"), Grant("append", tainted=True), Grant("none")]
    groups = [await catalog.add(Group(str(number), (agent.id,))) for number in range(4)]
    for group, grant in zip(groups, grants, strict=True):
        await catalog.attach(group.id, block.id, grant)
    [found] = await catalog.attached(agent.id)
    assert (found.grant, found.via) == (grants[2], groups[2].id)
    await catalog.edit(block.id, Append("x"), worker(tainted=True), agent=agent.id)
    with pytest.raises(Refused):
        await catalog.edit(block.id, Rethink("y"), worker(), agent=agent.id, expect=2)


async def test_what_several_agents_hold_is_what_each_of_them_holds(catalog: Catalog) -> None:
    ann, bob, cid = [await catalog.add(Profile(name)) for name in ("ann", "bob", "cid")]
    own, shared, barred = [await catalog.add(Block(label)) for label in ("own", "shared", "barred")]
    archive = await catalog.add(Archive("papers"))
    crew = await catalog.add(Group("crew", (ann.id, bob.id)))
    other = await catalog.add(Group("other", (bob.id,)))
    await catalog.attach(ann.id, own.id, Grant("write"))
    await catalog.attach(ann.id, barred.id, Grant("none"))
    await catalog.attach(crew.id, barred.id, Grant("write"))
    await catalog.attach(crew.id, shared.id, Grant("read"))
    await catalog.attach(other.id, shared.id, Grant("append"))
    await catalog.attach(ann.id, archive.id, Grant("read"))
    held = await catalog.attached_to([bob.id, ann.id, cid.id, "agent-nobody", ann.id])
    assert list(held) == [bob.id, ann.id, cid.id]
    assert held == {one.id: await catalog.attached(one.id) for one in (ann, bob, cid)}
    assert [(one.thing.id, one.via) for one in held[ann.id]] == [(own.id, ""), (archive.id, ""), (shared.id, crew.id)]
    assert [(one.grant.access, one.via) for one in held[bob.id]] == [("append", other.id), ("write", crew.id)]
    assert held[cid.id] == []
    assert await catalog.of("elsewhere").attached_to([ann.id]) == {}


async def test_only_what_is_there_can_be_attached(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts"))
    for owner, thing in ((block, block), (agent, agent), (agent[:-2] + "xx", block), (agent, block[:-2] + "xx")):
        with pytest.raises(Unknown):
            await catalog.attach(owner, thing, Grant("read"))
    with pytest.raises(Unknown):
        await catalog.attached(block)


async def test_deleting_takes_along_what_hangs_on_it(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts", "one"))
    group = await catalog.add(Group("crew", (agent, "agent-x")))
    second = await catalog.add(Block("second"))
    await catalog.attach(group.id, second.id, Grant("write"))
    await catalog.delete(Block, block)
    assert [one.thing.id for one in await catalog.attached(agent)] == [second.id]
    with pytest.raises(Unknown):
        await catalog.history(block)
    await catalog.delete(Profile, agent)
    assert await catalog.owners(second.id) == {group.id: Grant("write")}
    assert (await catalog.find(Group))[0].members == ("agent-x",)
    again = await catalog.add(Profile("ann", id=agent))
    assert await catalog.attached(again.id) == []
    await catalog.change(replace(group, members=(agent,)))
    await catalog.delete(Group, group.id)
    assert await catalog.attached(agent) == []
    assert await catalog.owners(second.id) == {}


async def test_an_archive_says_how_wide_its_vectors_are(catalog: Catalog) -> None:
    archive = await catalog.add(Archive("papers", width=99))
    assert archive.width == 0
    vector = struct.pack("<8f", *[1.0] + [0.0] * 7)
    [kept] = await catalog.insert(archive.id, [Passage("one")], [vector], handle="model:x")
    assert await catalog.get(Archive, archive.id) == replace(archive, width=8)
    assert (await catalog.change(replace(archive, description="new"))).width == 8
    with pytest.raises(Invalid):
        await catalog.insert(archive.id, [Passage("two"), Passage("three")], [vector], handle="model:x")
    assert await catalog.count(archive.id) == (1, 1)
    await catalog.forget(archive.id, [kept.id])
    assert await catalog.get(Archive, archive.id) == replace(archive, description="new", updated=1002.0)


async def test_an_unknown_archive_is_refused_and_a_deleted_one_leaves_nothing(catalog: Catalog) -> None:
    archive = await catalog.add(Archive("papers"))
    [kept] = await catalog.insert(archive.id, [Passage("Oslo is a town")])
    assert [hit.passage.id for hit in await catalog.search([archive.id], "oslo")] == [kept.id]
    foreign = catalog.of("another")
    assert await foreign.passage(kept.id) is None
    await catalog.delete(Archive, archive.id)
    assert await catalog.passage(kept.id) is None
    for gone in (catalog, foreign):
        for refused in (
            gone.insert(archive.id, [Passage("x")]),
            gone.search([archive.id], "oslo"),
            gone.passages(archive.id),
            gone.forget(archive.id, [kept.id]),
            gone.count(archive.id),
            gone.unembedded(archive.id),
            gone.add_vectors(archive.id, {}, handle="model:x"),
        ):
            with pytest.raises(Unknown):
                await refused
    await catalog.add(replace(archive))
    assert await catalog.passages(archive.id) == []


@pytest.mark.parametrize("through", ["agent", "group"])
async def test_an_agent_adds_and_searches_only_with_a_grant(catalog: Catalog, through: str) -> None:
    agent = await catalog.add(Profile("ann"))
    archive = await catalog.add(Archive("papers"))
    group = await catalog.add(Group("crew", (agent.id,)))
    owner = agent.id if through == "agent" else group.id
    for access in (None, "none", "read", "append", "write"):
        if access is not None:
            await catalog.attach(owner, archive.id, Grant(access))
        words = f"Oslo {access}"
        had = await catalog.count(archive.id)
        if access in ("append", "write"):
            await catalog.insert(archive.id, [Passage(words)], agent=agent.id)
            assert len(await catalog.search([archive.id], words, agent=agent.id)) > 0
            continue
        with pytest.raises(Refused, match="not add to it" if access == "read" else "may not use"):
            await catalog.insert(archive.id, [Passage(words)], agent=agent.id)
        assert await catalog.count(archive.id) == had
        if access == "read":
            assert await catalog.search([archive.id], words, agent=agent.id) == []
            continue
        with pytest.raises(Refused, match="may not use the archive 'papers'"):
            await catalog.search([archive.id], words, agent=agent.id)
    with pytest.raises(Unknown):
        await catalog.insert(archive.id, [Passage("x")], agent="agent-nobody")
    await catalog.insert(archive.id, [Passage("a person's")])


async def test_a_question_is_not_compared_with_vectors_of_another_model(catalog: Catalog) -> None:
    """They may have the same width and mean nothing to each other."""
    mine = await catalog.add(Archive("papers"))
    empty = await catalog.add(Archive("empty"))
    vector = struct.pack("<8f", *[1.0] + [0.0] * 7)
    await catalog.insert(mine.id, [Passage("Oslo")], [vector], handle="model:x")
    both = [mine.id, empty.id]
    with pytest.raises(Invalid, match="vectors of model:x, and the question's is of model:y"):
        await catalog.search(both, "oslo", vector, handle="model:y")
    [hit] = await catalog.search(both, "oslo", vector, handle="model:x")
    assert hit.meaning is not None
    [hit] = await catalog.search(both, "oslo", handle="model:y")
    assert hit.meaning is None


# --- blocks


async def test_history_says_who_did_what_and_can_be_walked(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts", "one"))
    origin = worker("t1", 2, "r/t1/2/0", tainted=True)
    edited = await catalog.edit(block, Append("two"), origin, agent=agent)
    assert (edited.value, edited.version, edited.tainted) == ("one\ntwo", 2, True)
    await catalog.edit(block, Replace("one", "ONE"), TEAM)
    found = await catalog.history(block)
    assert [(change.version, change.kind, change.origin) for change in found] == [
        (3, "replace", TEAM),
        (2, "append", origin),
        (1, "created", PERSON),
    ]
    assert found[1] == Change(
        version=2,
        kind="append",
        origin=origin,
        when=edited.updated,
        start=3,
        removed="",
        added="\ntwo",
        parent=1,
        at=2,
        tainted=True,
    )
    assert [change.version for change in await catalog.history(block, limit=1, before=3)] == [2]
    assert await catalog.history(block, before=1) == []
    assert [await catalog.text_at(block, version) for version in (1, 2, 3)] == ["one", "one\ntwo", "ONE\ntwo"]
    with pytest.raises(Refused):
        await catalog.text_at(block, 4)


async def test_a_change_is_undone_redone_and_restored(catalog: Catalog) -> None:
    block = (await catalog.add(Block("facts", "one"))).id
    for text in ("two", "three"):
        await catalog.edit(block, Append(text), PERSON)
    assert (await catalog.edit(block, Undo(), PERSON)).value == "one\ntwo"
    assert (await catalog.edit(block, Undo(), PERSON)).value == "one"
    with pytest.raises(Refused):
        await catalog.edit(block, Undo(), PERSON)
    assert (await catalog.edit(block, Redo(), PERSON)).value == "one\ntwo"
    assert (await catalog.edit(block, Restore(3), PERSON)).value == "one\ntwo\nthree"
    assert await value(catalog, block) == "one\ntwo\nthree"
    assert [await catalog.text_at(block, version) for version in (5, 6, 7)] == ["one", "one\ntwo", "one\ntwo\nthree"]


async def test_an_edit_under_a_key_is_applied_once(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts"))
    first = await catalog.edit(block, Append("one"), worker(key="k"), agent=agent)
    assert await catalog.edit(block, Append("one"), worker(key="k"), agent=agent) == first
    later = await catalog.edit(block, Append("two"), worker(key="k2"), agent=agent)
    assert await catalog.edit(block, Append("one"), worker(key="k"), agent=agent) == later
    assert later.value == "one\ntwo"
    other = await catalog.add(Block("other"))
    assert (await catalog.edit(other.id, Append("one"), Origin(key="k"))).value == "one"


async def test_an_edit_without_a_key_is_applied_each_time(catalog: Catalog) -> None:
    block = (await catalog.add(Block("facts"))).id
    for _ in range(3):
        await catalog.edit(block, Append("one"), PERSON)
    assert await value(catalog, block) == "one\none\none"


async def test_a_later_attempt_does_not_repeat_what_an_earlier_one_added(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts"))

    async def add(edit: Append | Insert, task: str, attempt: int, number: int) -> str:
        origin = worker(task, attempt, f"r/{task}/{attempt}/{number}")
        return (await catalog.edit(block, edit, origin, agent=agent)).value

    assert await add(Append("one"), "t", 2, 0) == "one"
    assert await add(Append("one"), "t", 3, 0) == "one"
    assert await add(Append("one"), "t", 3, 1) == "one"
    assert await add(Insert("one"), "t", 3, 2) == "one\none"
    assert await add(Insert("one", 0), "t", 4, 0) == "one\none"
    assert await add(Append("two"), "t", 3, 3) == "one\none\ntwo"
    assert await add(Append("two"), "other", 4, 0) == "one\none\ntwo\ntwo"
    assert await add(Append("two"), "t", 3, 4) == "one\none\ntwo\ntwo\ntwo"  # the same attempt means it


async def test_a_whole_value_needs_the_version_it_was_made_from(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts", "one"))
    await catalog.edit(block, Rethink("two"), worker(), agent=agent, expect=1)
    with pytest.raises(Conflict) as conflict:
        await catalog.edit(block, Rethink("three"), worker(), agent=agent, expect=1)
    assert conflict.value.version == 2
    with pytest.raises(Refused):
        await catalog.edit(block, Rethink("three"), worker(), agent=agent)
    assert await value(catalog, block) == "two"
    assert len(await catalog.history(block)) == 2


async def test_the_store_refuses_what_the_block_and_the_grant_do_not_allow(catalog: Catalog) -> None:
    agent, closed = await made(catalog, Block("closed", "x", read_only=True))
    persona = (await catalog.add(Block("persona", "x", trusted=True))).id
    small = (await catalog.add(Block("small", "x", limit=4))).id
    strange = (await catalog.add(Block("strange", "x"))).id
    await catalog.attach(agent, persona, Grant("write"))
    await catalog.attach(agent, small, Grant("write"))
    for block, origin, who in (
        (closed, worker(), agent),
        (persona, worker(tainted=True), agent),
        (small, worker(), agent),
        (strange, worker(), agent),
        (strange, worker(), ""),
    ):
        with pytest.raises(Refused):
            await catalog.edit(block, Append("much more"), origin, agent=who)
        assert await value(catalog, block) == "x"
        assert len(await catalog.history(block)) == 1
    await catalog.attach(agent, persona, Grant("write", tainted=True))
    assert (await catalog.edit(persona, Append("y"), worker(tainted=True), agent=agent)).tainted
    tainted = await catalog.get(Block, persona)
    assert tainted is not None
    assert (tainted.value, tainted.untainted) == ("x\ny", "x")
    assert (await catalog.change(replace(tainted, untainted="z", description="d"))).untainted == "x"
    assert (await catalog.edit(strange, Append("y"), Origin("supervisor"))).value == "x\ny"


async def test_who_is_unknown_edits_nothing(catalog: Catalog) -> None:
    agent, block = await made(catalog, Block("facts"))
    with pytest.raises(Unknown):
        await catalog.edit(block, Append("x"), worker(), agent=agent[:-4] + "0000")
    with pytest.raises(Unknown):
        await catalog.edit(agent, Append("x"), PERSON)


async def test_an_edit_that_changes_nothing_makes_no_version(catalog: Catalog) -> None:
    block = await catalog.add(Block("facts", "one"))
    assert await catalog.edit(block.id, Rethink("one"), PERSON) == block
    assert len(await catalog.history(block.id)) == 1


async def test_a_bad_block_is_not_made(catalog: Catalog) -> None:
    for block in (Block(""), Block("a", "too long", limit=3), Block("a", "\0")):
        with pytest.raises(Invalid):
            await catalog.add(block)
    given = Block("a", "x", version=7, at=5, redo=(3,), untainted="y")
    kept = await catalog.add(given, Origin("worker", tainted=True))
    assert (kept.version, kept.at, kept.redo, kept.tainted, kept.untainted) == (1, 1, (), True, "")


@kinds
async def test_a_nul_in_a_name_or_a_tag_is_refused(catalog: Catalog, thing: Thing) -> None:
    with pytest.raises(Invalid, match="NUL"):
        await catalog.add(replace(thing, tags=("a\0b",)))
    if not isinstance(thing, Block):
        with pytest.raises(Invalid, match="NUL"):
            await catalog.add(replace(thing, name="a\0b"))
    kept = await catalog.add(thing)
    with pytest.raises(Invalid, match="NUL"):
        await catalog.change(replace(kept, tags=("a\0b",)))
    assert await catalog.get(type(thing), kept.id) == kept


async def test_many_at_once_lose_nothing(catalog: Catalog) -> None:
    block = (await catalog.add(Block("facts"))).id
    async with asyncio.TaskGroup() as jobs:
        for number in range(50):
            jobs.create_task(catalog.edit(block, Append(str(number)), PERSON))
            if number % 10 == 0:
                jobs.create_task(refused(catalog, block))
    assert sorted((await value(catalog, block)).split("\n"), key=int) == [str(number) for number in range(50)]


async def refused(catalog: Catalog, block: str) -> None:
    with pytest.raises(Refused):
        await catalog.edit(block, Replace("not there", ""), PERSON)


async def test_a_closed_catalog_says_so(catalog: Catalog) -> None:
    agent = await catalog.add(Profile("ann"))
    space = catalog.of("another")
    await space.close()
    assert await catalog.get(Profile, agent.id) == agent
    await catalog.close()
    await catalog.close()
    for refused in (catalog.get(Profile, agent.id), catalog.add(agent), space.find(Profile)):
        with pytest.raises((StoreError, Refused)):
            await refused
