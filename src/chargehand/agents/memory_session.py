"""Open a team's memory: the catalog, the embedding models, and what the team declares.

What is declared is made or brought up to date by `settle`; here is who opens it, and how long it stays open.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID, uuid5

import msgspec
from msgspec import structs

from chargehand.agents.recall import supervisor_of
from chargehand.agents.roles import Worker
from chargehand.agents.setup import own_archives, own_blocks, tool_name
from chargehand.errors import Conflict, Refused, Unknown
from chargehand.memory.archives import Archive, Embedding, Filter
from chargehand.memory.blocks import TEAM, Block, Grant, Rethink
from chargehand.memory.catalog import PREFIXES, Catalog, Group, Kept, Memory, Profile, Thing
from chargehand.memory.chunking import cut, read_sources
from chargehand.memory.session import OpenMemory, open_catalog
from chargehand.models.resolve import Lookup, models_folder
from chargehand.models.wrappers import as_model
from chargehand.runtime.shared import Shared
from chargehand.store_url import MEMORY, PostgresUrl


class Embeddings:
    """The embedding models of one memory, each found when it is first asked for."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._found: dict[str, Embedding | None] = {}

    def __call__(self, handle: str) -> Embedding | None:
        from chargehand.models.embeddings import find_embedding  # noqa: PLC0415 - only who searches needs it

        if handle not in self._found:
            self._found[handle] = find_embedding(handle, self._lookup, models_folder(self._lookup))
        return self._found[handle]

    async def close(self) -> None:
        async with AsyncExitStack() as stack:  # all of them, whichever fails
            for embedding in self._found.values():
                if embedding is not None:
                    stack.push_async_callback(embedding.close)
            self._found.clear()


@asynccontextmanager
async def open_memory(
    declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup
) -> AsyncGenerator[OpenMemory]:
    """The memory, with all that is declared made or brought up to date, and every worker attached to its share of it.

    A catalog that was handed in stays open; a file, or a memory of this process alone, is closed at the end.
    """
    catalog = await open_store(declared, team)
    try:
        async with opened(catalog, declared, team, workers, lookup) as memory:
            yield memory
    finally:
        if catalog is not declared.store:
            await catalog.close()


async def open_store(declared: Memory, team: str) -> Catalog:
    """The catalog a memory names, in the team's space."""
    store = declared.store
    if store is None or isinstance(store, str | Path | PostgresUrl):
        return await open_catalog(MEMORY if store is None else store, space=declared.space or team)
    return store


@asynccontextmanager
async def opened(
    catalog: Catalog, declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup
) -> AsyncGenerator[OpenMemory]:
    """The same on a catalog that is open, and stays so."""
    embeddings = Embeddings(lookup)
    try:
        memory = OpenMemory(catalog, embeddings)
        await settle(memory, declared, team, workers)
        yield memory
    finally:
        await embeddings.close()


class SharedMemory(Shared[OpenMemory]):
    """A team's memory, for as many runs at once as there are: opened by the first, closed by the last.

    A memory of this process alone lasts as long as the team.
    """

    def __init__(self, declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup) -> None:
        super().__init__()
        self.declared = declared
        self._team = team
        self._workers = tuple(workers)
        self._lookup = lookup
        self._kept: Catalog | None = None
        self._lock = threading.Lock()

    @asynccontextmanager
    async def _whole(self) -> AsyncGenerator[OpenMemory]:
        declared = self.declared
        team = self._team
        workers = self._workers
        lookup = self._lookup
        if declared.store is not None:
            async with open_memory(declared, team, workers, lookup) as memory:
                yield memory
            return
        async with opened(await self._keep(), declared, team, workers, lookup) as memory:
            yield memory

    async def _keep(self) -> Catalog:
        """The one memory of this process. Event loops in other threads may ask for it at the same time."""
        if self._kept is None:
            catalog = await open_store(self.declared, self._team)
            with self._lock:
                self._kept = self._kept or catalog
            if self._kept is not catalog:
                await catalog.close()
        return self._kept


# --- bring a catalog in line with what a team declares


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
    profiles = {item.name: await _profile(catalog, space, item) for item in workers}
    group = await _group(catalog, space, team, [item.id for item in profiles.values()])
    blocks = {item.label: await _block(catalog, space, item) for item in declared.blocks}
    archives = {item.name: await _archive(catalog, space, item) for item in declared.archives}
    there = {item.id: await catalog.owners(item.id) for item in (*blocks.values(), *archives.values())}
    shared = {blocks[item.label].id: Grant(item.share) for item in declared.blocks}
    shared |= {archives[item.name].id: Grant(item.share) for item in declared.archives}
    await _grant(catalog, group, shared, there)
    for worker in workers:
        own = {blocks[label].id: grant for label, grant in own_blocks(worker).items()}
        own |= {archives[name].id: grant for name, grant in own_archives(worker, declared.archives).items()}
        await _grant(catalog, profiles[worker.name], own, there)
    memory.team = group.id
    memory.agents = {name: item.id for name, item in profiles.items()}
    for name, place in declared.sources.items():
        await _fill(memory, archives[name], place)


async def _ensure(catalog: Catalog, thing: Kept) -> tuple[Kept, bool]:
    """The thing as it is kept, and whether it was made now. Another process may make it at the same time."""
    existing = await catalog.get(type(thing), thing.id)
    if existing is not None:
        return existing, False
    try:
        return await catalog.add(thing, TEAM), True
    except Refused:
        existing = await catalog.get(type(thing), thing.id)
        if existing is None:
            raise
        return existing, False


async def _followed(catalog: Catalog, current: Kept, wanted: Kept, fields: Sequence[str]) -> Kept:
    """The thing with these fields as they are declared."""
    new = {name: getattr(wanted, name) for name in fields if getattr(current, name) != getattr(wanted, name)}
    return await catalog.change(structs.replace(current, **new)) if new else current


async def _profile(catalog: Catalog, space: str, worker: Worker) -> Profile:
    declared = as_model(worker.model)
    model = declared if isinstance(declared, str) else declared.card.handle
    tools = tuple(tool_name(brought) for brought in worker.tools)
    wanted = Profile(
        name=worker.name,
        description=worker.description,
        prompt=worker.prompt,
        model=model,
        tags=tuple(worker.tags),
        tools=tools,
        id=id_of(Profile, space, worker.name),
    )
    current, _ = await _ensure(catalog, wanted)
    return await _followed(catalog, current, wanted, ("description", "prompt", "model", "tags", "tools"))


async def _group(catalog: Catalog, space: str, team: str, members: Sequence[str]) -> Group:
    which = id_of(Group, space, team)
    lead, _ = await _ensure(catalog, Profile("supervisor", f"leads {team}", id=supervisor_of(which)))
    wanted = Group(team, (*members, lead.id), id=which)
    current, _ = await _ensure(catalog, wanted)
    return await _followed(catalog, current, wanted, ("members",))


async def _block(catalog: Catalog, space: str, declared: Block) -> Block:
    wanted = structs.replace(declared, id=id_of(Block, space, declared.label))
    current, new = await _ensure(catalog, wanted)
    if new:
        return current
    if wanted.limit >= current.limit:  # room is made before the text grows, and taken after it has shrunk
        current = await _followed(catalog, current, wanted, _BLOCK_FIELDS)
    if current.value != wanted.value and await _untouched(catalog, current):
        with suppress(Conflict):  # it was written to meanwhile, or another process was faster
            current = await catalog.edit(current.id, Rethink(wanted.value), TEAM, expect=current.version)
    return await _followed(catalog, current, wanted, _BLOCK_FIELDS)


async def _untouched(catalog: Catalog, block: Block) -> bool:
    """Whether only the team's declaration ever wrote to it."""
    before: int | None = None
    while changes := await catalog.history(block.id, limit=_PAGE, before=before):
        if any(change.origin.by != "team" for change in changes):
            return False
        before = changes[-1].version
    return True


async def _archive(catalog: Catalog, space: str, declared: Archive) -> Archive:
    wanted = structs.replace(declared, id=id_of(Archive, space, declared.name))
    current, _ = await _ensure(catalog, wanted)
    filled = {name: value for name, value in current.metadata.items() if name == _SOURCES}
    wanted = structs.replace(wanted, metadata={**declared.metadata, **filled})
    return await _followed(catalog, current, wanted, (*_ARCHIVE_FIELDS, "metadata"))


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
    texts = {source.origin.source: source for source in await asyncio.to_thread(read_sources, place)}
    marks = {name: blake2b(source.text.encode(), digest_size=16).hexdigest() for name, source in texts.items()}
    before = msgspec.convert(archive.metadata.get(_SOURCES, {}), dict[str, str])
    if marks == before:
        return
    lost: set[str] = set()
    for name in before:
        if marks.get(name) != before[name]:
            lost |= await _forget(memory.catalog, archive, name)
    new = [source for name, source in texts.items() if before.get(name) != marks[name] or _holds(source.text, lost)]
    if new:
        await memory.add(archive, new)
    await memory.catalog.change(structs.replace(archive, metadata={**archive.metadata, _SOURCES: marks}))


async def _forget(catalog: Catalog, archive: Archive, source: str) -> set[str]:
    """Let go of what came from a file; the texts that were."""
    lost: set[str] = set()
    while passages := await catalog.passages(archive.id, within=Filter(source=source), limit=_PAGE):
        ours = {passage.id: _plain(passage.text) for passage in passages if passage.origin.by == "team"}
        if not await catalog.forget(archive.id, list(ours)):
            break
        lost.update(ours.values())
    return lost


def _holds(text: str, lost: set[str]) -> bool:
    """Whether a part of a file went with another file: an archive keeps a text that two of them have only once."""
    return bool(lost) and any(_plain(str(part)) in lost for part in cut(text))


def _plain(text: str) -> str:
    return " ".join(text.split())
