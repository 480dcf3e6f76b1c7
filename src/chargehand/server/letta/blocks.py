"""Blocks. A new value is an edit of the version that is current then; a client that names a version gets a conflict
if it is not current any more.
"""  # noqa: D205 - one sentence

import msgspec
from msgspec import structs
from starlette.responses import Response

from chargehand.errors import Conflict
from chargehand.memory.blocks import LIMIT, PERSON, Block
from chargehand.memory.catalog import Group, Profile
from chargehand.memory.edits import Rethink
from chargehand.server.letta.attachments import lock_of
from chargehand.server.letta.routing import EVERYTHING, LettaCall, Routes, find_page, replace_given
from chargehand.server.letta.wire import BlockCreate, BlockResponse, BlockUpdate
from chargehand.server.problem import Problem, invalid
from chargehand.server.wire import reply

routes = Routes()
_HIDDEN = "letta.hidden"
_MAX_COUNT = 100_000
_COUNTS = tuple(f"connected_to_agents_count_{sign}" for sign in ("gt", "lt", "eq"))
_WITHOUT = ("identity_id", "identifier_keys", "project_id", "templates_only")  # no block here belongs to one


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
    metadata = dict(block.metadata if sent.metadata is None else sent.metadata)
    if sent.hidden is not None:
        metadata[_HIDDEN] = sent.hidden
    return replace_given(
        block,
        label=sent.label,
        description=sent.description,
        limit=sent.limit,
        read_only=sent.read_only,
        tags=sent.tags,
        metadata=metadata,
    )


def _is_hidden(block: Block) -> bool:
    return bool(block.metadata.get(_HIDDEN))


def describe_block(block: Block) -> BlockResponse:
    response = msgspec.convert(block, BlockResponse, from_attributes=True)
    if _HIDDEN in response.metadata:
        response.hidden = response.metadata.pop(_HIDDEN)
    return response


def send_block(block: Block) -> Response:
    """A block, and its version where a cache would look for it."""
    return reply(describe_block(block), headers={"ETag": f'"{block.version}"'})


@routes.post("/v1/blocks")
async def create(call: LettaCall) -> Response:
    return send_block(await call.catalog.add(new_block(await call.body(BlockCreate))))


# --- lists


@routes.get("/v1/blocks")
async def list_blocks(call: LettaCall) -> list[BlockResponse]:
    page = call.page(50, "asc")
    name = call.query.get("label") or call.query.get("name")
    shows_hidden = call.flag("show_hidden_blocks")

    def is_listed(block: Block) -> bool:
        return (shows_hidden or not _is_hidden(block)) and _is_wanted(call, block)

    by_count = any(count in call.query for count in _COUNTS)
    wanted = EVERYTHING if by_count else page
    blocks = await find_page(call, Block, wanted, name=name, tags=call.tags(), is_listed=is_listed)
    if by_count:
        blocks = page.cut([block for block in blocks if await _is_connected(call, block)])
    return [describe_block(block) for block in blocks]


def _is_wanted(call: LettaCall, block: Block) -> bool:
    """Whether a block is one that the query asks for by what the catalog has no index for."""
    if any(call.query.get(name, "false") != "false" for name in _WITHOUT):
        return False
    texts = {"label_search": block.label, "value_search": block.value, "description_search": block.description}
    return all(call.query.get(name, "").casefold() in text.casefold() for name, text in texts.items())


async def _is_connected(call: LettaCall, block: Block) -> bool:
    """Whether a block has as many agents as the query asks for."""
    more, fewer, equal = _COUNTS
    connected = sum(owner.startswith("agent-") for owner in await call.catalog.owners(block.id))
    if connected <= call.number(more, -1, least=-1, most=_MAX_COUNT):
        return False
    if connected >= call.number(fewer, _MAX_COUNT, least=-1, most=_MAX_COUNT):
        return False
    return str(connected) in (call.query.getlist(equal) or [str(connected)])


async def holders_of(call: LettaCall) -> list[Profile]:
    """The agents that have a block, by themselves or through a group, in the order of making."""
    block = await call.find(Block)
    ids: dict[str, None] = {}
    for owner in await call.catalog.owners(block.id):
        group = await call.catalog.get(Group, owner)
        ids |= dict.fromkeys((owner,) if group is None else group.members)
    profiles = [await call.catalog.get(Profile, agent) for agent in ids]
    return sorted((profile for profile in profiles if profile is not None), key=lambda profile: profile.created)


# --- one block


@routes.get("/v1/blocks/{block}")
async def retrieve(call: LettaCall) -> Response:
    return send_block(await call.find(Block))


@routes.patch("/v1/blocks/{block}")
async def update(call: LettaCall) -> Response:
    return await update_block(call, call.path("block"))


async def update_block(call: LettaCall, block_id: str) -> Response:
    """Change a block: all of it, or nothing and a problem."""
    sent = await call.body(BlockUpdate)
    async with lock_of(call.tenant, block_id):
        block = await call.find(Block, block_id)
        wanted = _change_fields(block, sent)
        version = _if_match(call) if sent.version is None else sent.version
        value = block.value if sent.value is None else sent.value
        _check(block, wanted, value, version)
        if wanted.limit > block.limit:  # room first, then what needs it
            block = await call.catalog.change(structs.replace(block, limit=wanted.limit))
        if value != block.value or version is not None:
            block = await call.catalog.edit(block.id, Rethink(value), PERSON, expect=version)
        # agents may have edited it since it was read: only the fields of the change are ours
        wanted = _change_fields(block, sent)
        return send_block(block if wanted == block else await call.catalog.change(wanted))


def _check(block: Block, wanted: Block, value: str, version: int | None) -> None:
    if version is not None and version != block.version:
        reason = f"block {block.label!r} is at version {block.version} by now, not {version}"
        raise Conflict(f"{reason}; read it and decide again", block.version)
    if wanted.limit < 1 or len(value) > wanted.limit:
        reason = f"block {wanted.label!r} would have {len(value)} characters, and its limit is {wanted.limit}"
        raise Problem(422, "too_long", f"{reason}; shorten the text or raise the limit. Nothing was changed.")
    if not wanted.label.strip() or not wanted.label.isprintable():
        raise invalid(f"{wanted.label[:60]!r} cannot be a label; give it a word or a few on one line")


def _if_match(call: LettaCall) -> int | None:
    version = call.request.headers.get("if-match", "*").strip()
    if version == "*":
        return None
    try:
        return int(version.removeprefix("W/").strip('"'))
    except ValueError as error:
        advice = "it must be a version, as blocks tell it"
        raise invalid(f"If-Match is {version[:40]!r}; {advice}") from error


@routes.delete("/v1/blocks/{block}")
async def delete(call: LettaCall) -> None:
    await call.delete(Block)
