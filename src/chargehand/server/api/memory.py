"""What a team remembers: its blocks with their history, and its archives to search. A person edits blocks here."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from chargehand.memory.archives import Archive, Filter
from chargehand.memory.blocks import PERSON, Block
from chargehand.memory.edits import Rethink
from chargehand.memory.session import OpenMemory
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import (
    ArchiveInfo,
    ArchiveList,
    BlockChange,
    BlockEdit,
    BlockInfo,
    BlockList,
    History,
    HistoryQuery,
    SearchBody,
    SearchHit,
    SearchHits,
    show,
)
from chargehand.server.problem import Problem, unknown
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant

_MAX_LISTED = 1000
_BLOCK = "/api/teams/{team}/blocks/{block}"


@asynccontextmanager
async def _memory(tenant: Tenant, name: str) -> AsyncGenerator[OpenMemory]:
    team = (await tenant.part(Teams).of(name)).team
    if not team.remembers:
        raise Problem(404, "unknown", f"team {name!r} remembers nothing; give it a memory in its file")
    async with team.remembering() as memory:
        yield memory


async def _block(memory: OpenMemory, which: str) -> Block:
    """By its id or its label."""
    by_id = await memory.catalog.get(Block, which) if which.startswith("block-") else None
    blocks = [by_id] if by_id else await memory.catalog.find(Block, name=which, limit=1)
    if not blocks:
        all_blocks = await memory.catalog.find(Block, limit=_MAX_LISTED)
        raise unknown("block", which, [block.label for block in all_blocks])
    return blocks[0]


@operation("GET", "/api/teams/{team}/blocks")
async def list_blocks(tenant: Tenant, team: str) -> BlockList:
    """The blocks of a team."""
    async with _memory(tenant, team) as memory:
        blocks = await memory.catalog.find(Block, limit=_MAX_LISTED)
    return BlockList(tuple(show(block, BlockInfo) for block in blocks))


@operation("GET", _BLOCK)
async def show_block(tenant: Tenant, team: str, block: str) -> BlockInfo:
    """A block, by its label or its id."""
    async with _memory(tenant, team) as memory:
        return show(await _block(memory, block), BlockInfo)


@operation("GET", f"{_BLOCK}/history")
async def show_history(tenant: Tenant, team: str, block: str, query: HistoryQuery) -> History:
    """What became of a block, the latest change first."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        changes = await memory.catalog.history(current.id, limit=query.limit, before=query.before)
    has_more = len(changes) == query.limit and changes[-1].version > 1
    page = tuple(show(change, BlockChange) for change in changes)
    return History(page, changes[-1].version if has_more else None)


@operation("PUT", _BLOCK, scope="run")
async def edit_block(tenant: Tenant, team: str, block: str, body: BlockEdit) -> BlockInfo:
    """Write a block anew; 409 if it has changed since."""
    async with _memory(tenant, team) as memory:
        current = await _block(memory, block)
        changed = await memory.catalog.edit(current.id, Rethink(body.value), PERSON, expect=body.version)
    return show(changed, BlockInfo)


@operation("GET", "/api/teams/{team}/archives")
async def list_archives(tenant: Tenant, team: str) -> ArchiveList:
    """The archives of a team."""
    archives: list[ArchiveInfo] = []
    async with _memory(tenant, team) as memory:
        for archive in await memory.catalog.find(Archive, limit=_MAX_LISTED):
            passages, _ = await memory.catalog.count(archive.id)
            archives.append(
                ArchiveInfo(
                    id=archive.id,
                    name=archive.name,
                    description=archive.description,
                    embedding=archive.embedding,
                    passages=passages,
                )
            )
    return ArchiveList(tuple(archives))


@operation("POST", "/api/teams/{team}/search")
async def search_archives(tenant: Tenant, team: str, body: SearchBody) -> SearchHits:
    """The passages that fit a question best."""
    async with _memory(tenant, team) as memory:
        archives = await memory.catalog.find(Archive, limit=_MAX_LISTED)
        by_name = {key: archive for archive in archives for key in (archive.name, archive.id)}
        for name in body.archives:
            if name not in by_name:
                raise unknown("archive", name, [archive.name for archive in archives])
        wanted = [by_name[name] for name in body.archives] or archives
        within = Filter(tags=body.tags)
        hits = await memory.search(wanted, body.query, within=within, limit=body.limit) if wanted else []
    results: list[SearchHit] = []
    for hit in hits:
        passage = hit.passage
        results.append(
            SearchHit(
                id=passage.id,
                archive=by_name[passage.archive].name if passage.archive in by_name else passage.archive,
                text=passage.text,
                score=hit.score,
                why=hit.why,
                tags=passage.tags,
                source=passage.origin.source,
                tainted=passage.origin.tainted,
                created=passage.created,
            )
        )
    return SearchHits(tuple(results))
