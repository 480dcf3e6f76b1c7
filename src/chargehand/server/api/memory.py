"""What a team remembers: its blocks with their history, and its archives to search. A person edits blocks here."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Invalid
from chargehand.memory.archives import Archive, Filter, Hit
from chargehand.memory.blocks import Block, Change
from chargehand.memory.editing import Rethink
from chargehand.memory.opened import OpenMemory
from chargehand.memory.origin import PERSON
from chargehand.server.api.shapes import Asked, Count
from chargehand.server.api.table import Operation, asked, sent
from chargehand.server.problem import Problem, unknown
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply
from chargehand.terms.policy import Instant

# --- what is sent and told


class BlockShown(Struct, frozen=True):
    """`version` counts changes: an edit that names another than the present one is refused.

    `instruction` is what of it gives instructions: of a trusted block all, or what it held before it was tainted.
    """

    id: str
    label: str
    value: str
    description: str
    limit: int
    version: int
    read_only: bool
    trusted: bool
    tainted: bool
    instruction: str
    share: str
    tags: tuple[str, ...]
    updated: Instant


class BlockList(Struct, frozen=True):
    blocks: tuple[BlockShown, ...]


class ChangeShown(Struct, frozen=True):
    """`added` took the place of `removed`, from character `start` on."""

    version: int
    kind: str
    by: str
    name: str
    run: str
    task: str
    when: Instant
    start: int
    removed: str
    added: str
    tainted: bool


class History(Struct, frozen=True):
    """The latest first; `next` is what `before` must be for more, null after the last."""

    changes: tuple[ChangeShown, ...]
    next: int | None


class BlockEdit(Asked, frozen=True):
    """The whole new text, and the version it was made from."""

    value: Annotated[str, Meta(max_length=150_000)]
    version: Annotated[int, Meta(ge=1, le=2**53)]


class ArchiveShown(Struct, frozen=True):
    id: str
    name: str
    description: str
    embedding: str
    passages: int


class ArchiveList(Struct, frozen=True):
    archives: tuple[ArchiveShown, ...]


class Search(Asked, frozen=True):
    """`archives` are names or ids; left out, all of the team's."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=r"\S")]
    archives: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    tags: Annotated[tuple[str, ...], Meta(max_length=50)] = ()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Found(Struct, frozen=True):
    id: str
    archive: str
    text: str
    score: float
    why: str
    tags: tuple[str, ...]
    source: str
    tainted: bool
    created: Instant


class FoundList(Struct, frozen=True):
    found: tuple[Found, ...]


class Past(Struct, frozen=True, forbid_unknown_fields=True):
    before: Count = 2**53
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


_MOST = 1000


@asynccontextmanager
async def _memory(request: Request, tenant: Tenant) -> AsyncGenerator[OpenMemory]:
    name = part(request, "team")
    team = (await tenant.part(Teams).of(name)).team
    opened = team.remembering()
    try:
        memory = await opened.__aenter__()
    except Invalid as error:
        raise Problem(404, "unknown", f"team {name!r} remembers nothing; give it a memory in its file") from error
    try:
        yield memory
    finally:
        await opened.__aexit__(None, None, None)


async def _block(memory: OpenMemory, which: str) -> Block:
    """By its id or its label."""
    found = await memory.catalog.get(Block, which) if which.startswith("block-") else None
    named = [found] if found else await memory.catalog.find(Block, name=which, limit=1)
    if not named:
        raise unknown("block", which)
    return named[0]


async def blocks(request: Request, tenant: Tenant) -> Response:
    async with _memory(request, tenant) as memory:
        found = await memory.catalog.find(Block, limit=_MOST)
    return reply(BlockList(tuple(map(_shown, found))))


async def block(request: Request, tenant: Tenant) -> Response:
    async with _memory(request, tenant) as memory:
        return reply(_shown(await _block(memory, part(request, "block"))))


async def history(request: Request, tenant: Tenant) -> Response:
    wanted = asked(request, Past)
    async with _memory(request, tenant) as memory:
        one = await _block(memory, part(request, "block"))
        found = await memory.catalog.history(one.id, limit=wanted.limit, before=wanted.before)
    more = found[-1].version if len(found) == wanted.limit and found[-1].version > 1 else None
    return reply(History(tuple(map(_change, found)), more))


async def edit(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, BlockEdit)
    async with _memory(request, tenant) as memory:
        one = await _block(memory, part(request, "block"))
        changed = await memory.catalog.edit(one.id, Rethink(wanted.value), PERSON, expect=wanted.version)
    return reply(_shown(changed))


async def archives(request: Request, tenant: Tenant) -> Response:
    async with _memory(request, tenant) as memory:
        found = await memory.catalog.find(Archive, limit=_MOST)
        counts = [(await memory.catalog.count(one.id))[0] for one in found]
    told = [
        ArchiveShown(id=one.id, name=one.name, description=one.description, embedding=one.embedding, passages=count)
        for one, count in zip(found, counts, strict=True)
    ]
    return reply(ArchiveList(tuple(told)))


async def search(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Search)
    async with _memory(request, tenant) as memory:
        known = await memory.catalog.find(Archive, limit=_MOST)
        names = {key: one for one in known for key in (one.name, one.id)}
        if strange := [one for one in wanted.archives if one not in names]:
            raise unknown("archive", strange[0])
        within = Filter(tags=wanted.tags)
        among = [names[one] for one in wanted.archives] if wanted.archives else known
        hits = await memory.search(among, wanted.query, within=within, limit=wanted.limit) if among else []
    called = {one.id: one.name for one in known}
    return reply(FoundList(tuple(_found(hit, called) for hit in hits)))


def _shown(one: Block) -> BlockShown:
    return BlockShown(
        id=one.id,
        label=one.label,
        value=one.value,
        description=one.description,
        limit=one.limit,
        version=one.version,
        read_only=one.read_only,
        trusted=one.trusted,
        tainted=one.tainted,
        instruction=one.instruction,
        share=one.share,
        tags=one.tags,
        updated=one.updated,
    )


def _change(one: Change) -> ChangeShown:
    origin = one.origin
    return ChangeShown(
        version=one.version,
        kind=one.kind,
        by=origin.by,
        name=origin.name,
        run=origin.run,
        task=origin.task,
        when=one.when,
        start=one.start,
        removed=one.removed,
        added=one.added,
        tainted=one.tainted,
    )


def _found(hit: Hit, called: dict[str, str]) -> Found:
    one = hit.passage
    return Found(
        id=one.id,
        archive=called.get(one.archive, one.archive),
        text=one.text,
        score=hit.score,
        why=hit.why,
        tags=one.tags,
        source=one.origin.source,
        tainted=one.origin.tainted,
        created=one.created,
    )


_TEAM = "/api/teams/{team}"
_BLOCK = f"{_TEAM}/blocks/{{block}}"
OPERATIONS = (
    Operation(
        method="GET",
        path=f"{_TEAM}/blocks",
        call=blocks,
        name="list_blocks",
        group="memory",
        told=BlockList,
        problems=(404,),
        summary="The blocks of a team.",
    ),
    Operation(
        method="GET",
        path=_BLOCK,
        call=block,
        name="show_block",
        group="memory",
        told=BlockShown,
        problems=(404,),
        summary="A block, by its label or its id.",
    ),
    Operation(
        method="GET",
        path=f"{_BLOCK}/history",
        call=history,
        name="show_history",
        group="memory",
        query=Past,
        told=History,
        problems=(404, 422),
        summary="What became of a block, the latest change first.",
    ),
    Operation(
        method="PUT",
        path=_BLOCK,
        call=edit,
        name="edit_block",
        group="memory",
        scope="run",
        asked=BlockEdit,
        told=BlockShown,
        problems=(404, 409, 422),
        summary="Write a block anew; 409 if it has changed since.",
    ),
    Operation(
        method="GET",
        path=f"{_TEAM}/archives",
        call=archives,
        name="list_archives",
        group="memory",
        told=ArchiveList,
        problems=(404,),
        summary="The archives of a team.",
    ),
    Operation(
        method="POST",
        path=f"{_TEAM}/search",
        call=search,
        name="search_archives",
        group="memory",
        asked=Search,
        told=FoundList,
        problems=(404, 422),
        summary="The passages that fit a question best.",
    ),
)
