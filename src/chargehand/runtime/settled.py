"""Bring a catalog in line with what a team declares: its workers, its blocks and archives, and who may use them.

Ids follow from names, so any number of processes may do this at once and come to the same. What a crew wrote stays.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID, uuid5

import msgspec
from msgspec import structs

from chargehand.agents.granted import called, own_archives, own_blocks
from chargehand.agents.recall import supervisor_of
from chargehand.agents.worker import Worker
from chargehand.errors import Conflict, Refused, Unknown
from chargehand.memory.archives import Archive, Filter
from chargehand.memory.blocks import Block, Grant, Rethink
from chargehand.memory.catalog import PREFIXES, Catalog, Group, Kept, Profile, Thing
from chargehand.memory.chunking import cut
from chargehand.memory.declared import Memory
from chargehand.memory.opened import OpenMemory
from chargehand.memory.origin import TEAM
from chargehand.memory.sources import read_sources
from chargehand.models.own import as_model

_NAMES: Final = UUID("5c1f0f3a-8a55-5d0e-9c35-6b1f5f0f7a11")
_BLOCK_FIELDS = ("label", "description", "limit", "read_only", "trusted", "share", "tags", "metadata")
_ARCHIVE_FIELDS = ("name", "description", "embedding", "share", "tags")
# in settings and metadata: what a declaration did, so that it can be undone
_GRANTED = "granted"
_SOURCES = "sources"
_PAGE = 500
_Owner = TypeVar("_Owner", Profile, Group)


def id_of(kind: type[Thing], space: str, name: str) -> str:
    """The id of what a team declares under this name."""
    return f"{PREFIXES[kind]}-{uuid5(_NAMES, f'{space}/{PREFIXES[kind]}/{name}')}"


async def settle(memory: OpenMemory, declared: Memory, team: str, workers: Sequence[Worker]) -> None:
    """Make what is missing, follow what was declared anew, and attach everybody to their share."""
    catalog = memory.catalog
    space = declared.space or team
    profiles = {one.name: await _profile(catalog, space, one) for one in workers}
    group = await _group(catalog, space, team, [one.id for one in profiles.values()])
    blocks = {one.label: await _block(catalog, space, one) for one in declared.blocks}
    archives = {one.name: await _archive(catalog, space, one) for one in declared.archives}
    there = {one.id: await catalog.owners(one.id) for one in (*blocks.values(), *archives.values())}
    shared = {blocks[one.label].id: Grant(one.share) for one in declared.blocks}
    shared |= {archives[one.name].id: Grant(one.share) for one in declared.archives}
    await _grant(catalog, group, shared, there)
    for worker in workers:
        own = {blocks[label].id: grant for label, grant in own_blocks(worker).items()}
        own |= {archives[name].id: grant for name, grant in own_archives(worker, declared.archives).items()}
        await _grant(catalog, profiles[worker.name], own, there)
    memory.team = group.id
    memory.agents = {name: one.id for name, one in profiles.items()}
    for name, place in declared.sources.items():
        await _fill(memory, archives[name], place)


async def _ensure(catalog: Catalog, thing: Kept) -> tuple[Kept, bool]:
    """The thing as it is kept, and whether it was made now. Another process may make it at the same time."""
    found = await catalog.get(type(thing), thing.id)
    if found is not None:
        return found, False
    try:
        return await catalog.add(thing, TEAM), True
    except Refused:
        found = await catalog.get(type(thing), thing.id)
        if found is None:
            raise
        return found, False


async def _followed(catalog: Catalog, found: Kept, wanted: Kept, fields: Sequence[str]) -> Kept:
    """The thing with these fields as they are declared."""
    new = {name: getattr(wanted, name) for name in fields if getattr(found, name) != getattr(wanted, name)}
    return await catalog.change(structs.replace(found, **new)) if new else found


async def _profile(catalog: Catalog, space: str, worker: Worker) -> Profile:
    given = as_model(worker.model)
    model = given if isinstance(given, str) else given.card.handle
    tools = tuple(called(one) for one in worker.tools)
    wanted = Profile(
        name=worker.name,
        description=worker.description,
        prompt=worker.prompt,
        model=model,
        tags=tuple(worker.tags),
        tools=tools,
        id=id_of(Profile, space, worker.name),
    )
    found, _ = await _ensure(catalog, wanted)
    return await _followed(catalog, found, wanted, ("description", "prompt", "model", "tags", "tools"))


async def _group(catalog: Catalog, space: str, team: str, members: Sequence[str]) -> Group:
    which = id_of(Group, space, team)
    lead, _ = await _ensure(catalog, Profile("supervisor", f"leads {team}", id=supervisor_of(which)))
    wanted = Group(team, (*members, lead.id), id=which)
    found, _ = await _ensure(catalog, wanted)
    return await _followed(catalog, found, wanted, ("members",))


async def _block(catalog: Catalog, space: str, declared: Block) -> Block:
    wanted = structs.replace(declared, id=id_of(Block, space, declared.label))
    found, new = await _ensure(catalog, wanted)
    if new:
        return found
    if wanted.limit >= found.limit:  # room is made before the text grows, and taken after it has shrunk
        found = await _followed(catalog, found, wanted, _BLOCK_FIELDS)
    if found.value != wanted.value and await _untouched(catalog, found):
        with suppress(Conflict):  # somebody has written to it meanwhile, or another process was faster
            found = await catalog.edit(found.id, Rethink(wanted.value), TEAM, expect=found.version)
    return await _followed(catalog, found, wanted, _BLOCK_FIELDS)


async def _untouched(catalog: Catalog, block: Block) -> bool:
    """Whether nobody but the team's declaration ever wrote to it."""
    before: int | None = None
    while changes := await catalog.history(block.id, limit=_PAGE, before=before):
        if any(one.origin.by != "team" for one in changes):
            return False
        before = changes[-1].version
    return True


async def _archive(catalog: Catalog, space: str, declared: Archive) -> Archive:
    wanted = structs.replace(declared, id=id_of(Archive, space, declared.name))
    found, _ = await _ensure(catalog, wanted)
    filled = {name: value for name, value in found.metadata.items() if name == _SOURCES}
    wanted = structs.replace(wanted, metadata={**declared.metadata, **filled})
    return await _followed(catalog, found, wanted, (*_ARCHIVE_FIELDS, "metadata"))


async def _grant(
    catalog: Catalog, owner: _Owner, wanted: Mapping[str, Grant], there: Mapping[str, Mapping[str, Grant]]
) -> None:
    """Attach what is declared, and detach what was declared before and no longer is. What people attached stays."""
    before = msgspec.convert(owner.settings.get(_GRANTED, []), list[str])
    if set(before) != set(wanted):  # first: whatever is attached must be known to be ours, should this stop here
        every = sorted({*before, *wanted})
        owner = await catalog.change(structs.replace(owner, settings={**owner.settings, _GRANTED: every}))
    for which, grant in wanted.items():
        if there[which].get(owner.id) != grant:
            await catalog.attach(owner.id, which, grant)
    if gone := [which for which in before if which not in wanted]:
        for which in gone:
            with suppress(Unknown):
                await catalog.detach(owner.id, which)
        await catalog.change(structs.replace(owner, settings={**owner.settings, _GRANTED: sorted(wanted)}))


async def _fill(memory: OpenMemory, archive: Archive, place: Path) -> None:
    """Put texts into an archive; those that changed since take the place of what they were, the others cost nothing."""
    texts = {one.origin.source: one for one in await asyncio.to_thread(read_sources, place)}
    marks = {name: blake2b(one.text.encode(), digest_size=16).hexdigest() for name, one in texts.items()}
    before = msgspec.convert(archive.metadata.get(_SOURCES, {}), dict[str, str])
    if marks == before:
        return
    lost: set[str] = set()
    for name in before:
        if marks.get(name) != before[name]:
            lost |= await _forget(memory.catalog, archive, name)
    new = [one for name, one in texts.items() if before.get(name) != marks[name] or _holds(one.text, lost)]
    if new:
        await memory.add(archive, new)
    await memory.catalog.change(structs.replace(archive, metadata={**archive.metadata, _SOURCES: marks}))


async def _forget(catalog: Catalog, archive: Archive, source: str) -> set[str]:
    """Let go of what came from a file; the texts that were."""
    lost: set[str] = set()
    while found := await catalog.passages(archive.id, within=Filter(source=source), limit=_PAGE):
        ours = {one.id: _plain(one.text) for one in found if one.origin.by == "team"}
        if not await catalog.forget(archive.id, list(ours)):
            break
        lost.update(ours.values())
    return lost


def _holds(text: str, lost: set[str]) -> bool:
    """Whether a part of a file went with another file: an archive keeps a text that two of them have only once."""
    return bool(lost) and any(_plain(str(part)) in lost for part in cut(text))


def _plain(text: str) -> str:
    return " ".join(text.split())
