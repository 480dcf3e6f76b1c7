"""The memory of agents: blocks, archives and passages.

A new value of a block is an edit of its current version; a client that names a version gets a conflict if it is not
current any more. Any number of archives may be attached to an agent; it adds to the first. Long texts are cut into
several passages: the first part is what comes back.
"""

from collections.abc import Sequence

import msgspec
from msgspec import structs
from starlette.responses import Response

from chargehand.errors import Conflict
from chargehand.memory.archives import Archive, Filter, Hit, Passage
from chargehand.memory.blocks import LIMIT, PERSON, Block
from chargehand.memory.catalog import Profile
from chargehand.memory.edits import Rethink
from chargehand.server.letta.executor import archive_of, archives_of, change_kept, lock_of
from chargehand.server.letta.routing import LettaCall, find_page, replace_given, route
from chargehand.server.letta.wire import (
    ArchiveCreate,
    ArchiveUpdate,
    BlockCreate,
    BlockResponse,
    BlockUpdate,
    PassageBatch,
    PassageCreate,
    PassageQuery,
    Table,
    format_time,
    parse_time,
)
from chargehand.server.wire import Problem, invalid, nothing, unknown


def new_block(sent: BlockCreate) -> Block:
    block = Block(
        sent.label,
        sent.value,
        limit=LIMIT,
        share="write",
        trusted=True,  # what a client writes into a persona or guidelines is meant to be followed
    )
    return _change_fields(block, sent)


def _change_fields(block: Block, sent: BlockUpdate) -> Block:
    """The block with new fields; a new value is an edit, and not made here."""
    return replace_given(
        block,
        label=sent.label,
        description=sent.description,
        limit=sent.limit,
        read_only=sent.read_only,
        tags=sent.tags,
        metadata=sent.metadata,
    )


def describe_block(block: Block) -> BlockResponse:
    return msgspec.convert(block, BlockResponse, from_attributes=True)


@route("POST", "/v1/blocks")
async def create_block(call: LettaCall) -> BlockResponse:
    return describe_block(await call.catalog.add(new_block(await call.body(BlockCreate))))


# --- lists


@route("GET", "/v1/blocks")
async def list_blocks(call: LettaCall) -> list[BlockResponse]:
    page = call.page(50, "asc", "label", "name", "tags", "match_all_tags")
    name = call.query.get("label") or call.query.get("name")
    blocks = await find_page(call, Block, page, name=name, tags=call.tags())
    return [describe_block(block) for block in blocks]


async def holders_of(call: LettaCall) -> list[Profile]:
    """The agents that have a block, in the order of making."""
    block = await call.find(Block)
    profiles = [await call.catalog.get(Profile, agent) for agent in await call.catalog.owners(block.id)]
    return sorted((profile for profile in profiles if profile is not None), key=lambda profile: profile.created)


# --- one block


@route("GET", "/v1/blocks/{block}")
async def retrieve_block(call: LettaCall) -> BlockResponse:
    return describe_block(await call.find(Block))


@route("PATCH", "/v1/blocks/{block}")
async def update(call: LettaCall) -> BlockResponse:
    return await update_block(call, call.path("block"))


async def update_block(call: LettaCall, block_id: str) -> BlockResponse:
    """Change a block: all of it, or nothing and a problem."""
    sent = await call.body(BlockUpdate)
    async with lock_of(call.tenant, block_id):
        block = await call.find(Block, block_id)
        wanted = _change_fields(block, sent)
        value = block.value if sent.value is None else sent.value
        _check(block, wanted, value, sent.version)
        if wanted.limit > block.limit:  # room first, then what needs it
            block = await call.catalog.change(structs.replace(block, limit=wanted.limit))
        if value != block.value or sent.version is not None:
            block = await call.catalog.edit(block.id, Rethink(value), PERSON, expect=sent.version)
        # agents may have edited it since it was read: only the fields of the change are ours
        if _change_fields(block, sent) == block:
            return describe_block(block)
    return describe_block(await change_kept(call.tenant, Block, block_id, lambda block: _change_fields(block, sent)))


def _check(block: Block, wanted: Block, value: str, version: int | None) -> None:
    if version is not None and version != block.version:
        reason = f"block {block.label!r} is at version {block.version} by now, not {version}"
        raise Conflict(f"{reason}; read it and decide again", block.version)
    if wanted.limit < 1 or len(value) > wanted.limit:
        reason = f"block {wanted.label!r} would have {len(value)} characters, and its limit is {wanted.limit}"
        raise Problem(422, "too_long", f"{reason}; shorten the text or raise the limit. Nothing was changed.")
    if not wanted.label.strip() or not wanted.label.isprintable():
        raise invalid(f"{wanted.label[:60]!r} cannot be a label; give it a word or a few on one line")


@route("DELETE", "/v1/blocks/{block}")
async def delete_block(call: LettaCall) -> None:
    await call.delete(Block)


# --- archives


_MAX_HITS = 100
_MAX_ARCHIVES = 1000
_MAX_PASSAGES = 1_000_000
_OF_AGENT = "/v1/agents/{agent}/archival-memory"


def _describe(archive: Archive) -> Table:
    return {
        "id": archive.id,
        "name": archive.name,
        "description": archive.description or None,
        "created_at": format_time(archive.created),
        "updated_at": format_time(archive.updated),
        "metadata": archive.metadata,
        "embedding": archive.embedding,
        "vector_db_provider": "native",
    }


@route("POST", "/v1/archives")
async def create_archive(call: LettaCall) -> Table:
    """A new archive. It gets the embedding that the server has, whichever its client names."""
    sent = await call.body(ArchiveCreate)
    archive = Archive(sent.name, sent.description or "", metadata=sent.metadata or {})
    return _describe(await call.catalog.add(archive))


@route("GET", "/v1/archives")
async def list_archives(call: LettaCall) -> list[Table]:
    page = call.page(50, "desc", "name", "agent_id")
    name = call.query.get("name")
    if agent := call.query.get("agent_id"):
        archives = [archive for archive in await archives_of(call.tenant, agent) if name in (None, archive.name)]
        return [_describe(archive) for archive in page.cut(archives)]
    return [_describe(archive) for archive in await find_page(call, Archive, page, name=name)]


@route("GET", "/v1/archives/{archive}")
async def retrieve_archive(call: LettaCall) -> Table:
    return _describe(await call.find(Archive))


@route("PATCH", "/v1/archives/{archive}")
async def update_archive(call: LettaCall) -> Table:
    archive = await call.find(Archive)
    sent = await call.body(ArchiveUpdate)
    changed = await change_kept(
        call.tenant,
        Archive,
        archive.id,
        lambda archive: replace_given(archive, name=sent.name, description=sent.description),
    )
    return _describe(changed)


@route("DELETE", "/v1/archives/{archive}")
async def delete_archive(call: LettaCall) -> Response:
    await call.delete(Archive)
    return nothing()


# --- passages of an archive


def _describe_passage(passage: Passage) -> Table:
    return {
        "id": passage.id,
        "text": passage.text,
        "archive_id": passage.archive,
        "tags": passage.tags,
        "metadata": passage.metadata,
        "created_at": format_time(passage.created),
    }


async def _add(call: LettaCall, archive: Archive, sent: Sequence[PassageCreate]) -> list[Table]:
    """Keep passages; each comes back as it is kept."""
    passages = [
        Passage(
            passage.text,
            passage.tags or (),
            passage.metadata or {},
            created=parse_time(passage.created_at, "created_at") or 0.0,
        )
        for passage in sent
    ]
    inserted = await call.tenant.memory.add(archive, passages)
    saved = [await call.catalog.passage(each.id) for each in inserted]
    return [_describe_passage(passage) for passage in saved if passage is not None]


@route("POST", "/v1/archives/{archive}/passages")
async def add_passage(call: LettaCall) -> Table:
    return (await _add(call, await call.find(Archive), [await call.body(PassageCreate)]))[0]


@route("POST", "/v1/archives/{archive}/passages/batch")
async def add_passages(call: LettaCall) -> list[Table]:
    return await _add(call, await call.find(Archive), (await call.body(PassageBatch)).passages)


@route("DELETE", "/v1/archives/{archive}/passages/{passage}")
async def delete_passage(call: LettaCall) -> Response:
    archive = await call.find(Archive)
    if not await call.catalog.forget(archive.id, [call.path("passage")]):
        raise unknown("passage", call.path("passage"))
    return nothing()


@route("POST", "/v1/passages/search", "read")
async def search(call: LettaCall) -> list[Table]:
    """In one archive, in those of an agent, or in all."""
    sent = await call.body(PassageQuery)
    if sent.archive_id:
        archives = [await call.find(Archive, sent.archive_id)]
    elif sent.agent_id:
        archives = await archives_of(call.tenant, sent.agent_id)
    else:
        archives = await call.catalog.find(Archive, limit=_MAX_ARCHIVES)
    hits = await _search(call, archives, sent)
    return [
        {"passage": _describe_passage(hit.passage), "score": hit.score, "metadata": _relevance(hit)} for hit in hits
    ]


async def _search(call: LettaCall, archives: Sequence[Archive], sent: PassageQuery) -> list[Hit]:
    query = (sent.query or "").strip()
    if not query:
        raise invalid("query is missing; say what to look for")
    within = Filter(
        sent.tags or (),
        sent.tag_match_mode or "any",
        parse_time(sent.start_date, "start"),
        parse_time(sent.end_date, "end"),
    )
    limit = min(_MAX_HITS, max(1, sent.limit or 10))
    return await call.tenant.memory.search(archives, query, within=within, limit=limit)


def _relevance(hit: Hit) -> Table:
    return {"score": round(hit.score, 6), "meaning": hit.meaning, "why": hit.why}


# --- the archival memory of an agent: all its archives taken together


@route("POST", _OF_AGENT)
async def add_to_agent(call: LettaCall) -> list[Table]:
    profile = await call.agent()
    sent = await call.body(PassageCreate)
    if not sent.text.strip():
        raise invalid("text is empty; there is nothing to keep")
    return await _add(call, await archive_of(call.tenant, profile), [sent])


@route("GET", _OF_AGENT)
async def list_of_agent(call: LettaCall) -> list[Table]:
    """In the order of keeping. With `search` those in which these words stand."""
    profile = await call.agent()
    page = call.page(100, "asc", "search")
    archives = await archives_of(call.tenant, profile.id)
    words = call.query.get("search", "").casefold()
    if len(archives) == 1 and not words and not page.before:
        only = await call.catalog.passages(archives[0].id, after=page.after, limit=page.limit, order=page.order)
        return [_describe_passage(passage) for passage in only]
    passages: list[Passage] = []
    for archive in archives:
        passages += await call.catalog.passages(archive.id, limit=_MAX_PASSAGES)
    wanted = [passage for passage in passages if words in passage.text.casefold()]
    wanted.sort(key=lambda passage: passage.created)
    return [_describe_passage(passage) for passage in page.cut(wanted)]


@route("GET", f"{_OF_AGENT}/search")
async def search_of_agent(call: LettaCall) -> Table:
    profile = await call.agent()
    mode = call.choice("tag_match_mode", "any", ("any", "all"))
    sent = PassageQuery(
        query=call.query.get("query"),
        tags=tuple(call.query.getlist("tags")),
        tag_match_mode="all" if mode == "all" else "any",
        limit=call.number("top_k", 5, least=1, most=_MAX_HITS),
        start_date=call.query.get("start_datetime"),
        end_date=call.query.get("end_datetime"),
    )
    hits = await _search(call, await archives_of(call.tenant, profile.id), sent)
    results = [
        {
            "id": hit.passage.id,
            "content": hit.passage.text,
            "timestamp": format_time(hit.passage.created),
            "tags": hit.passage.tags,
            "relevance": _relevance(hit),
        }
        for hit in hits
    ]
    return {"count": len(hits), "results": results}


@route("DELETE", f"{_OF_AGENT}/{{passage}}")
async def delete_of_agent(call: LettaCall) -> None:
    profile = await call.agent()
    passage = await call.catalog.passage(call.path("passage"))
    if passage is None or passage.archive not in {each.id for each in await archives_of(call.tenant, profile.id)}:
        raise unknown("passage", call.path("passage"))
    await call.catalog.forget(passage.archive, [passage.id])
