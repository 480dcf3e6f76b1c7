"""Blocks. A new value is an edit of the version that is current then; whoever names a version gets it or a conflict."""

from collections.abc import Callable

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Conflict
from chargehand.memory.blocks import Block
from chargehand.memory.editing import Rethink
from chargehand.memory.origin import PERSON
from chargehand.server.letta import finding
from chargehand.server.letta.finding import Wanted
from chargehand.server.letta.mapping import block_changed, block_made, block_told, given, is_hidden
from chargehand.server.letta.pages import Page, cut, page_of
from chargehand.server.letta.shapes import BlockChange, BlockSent
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, flag, number, part, reply
from chargehand.terms.roster import Match

_MOST = 100_000
_COUNTS = {"connected_to_agents_count_gt": int.__gt__, "connected_to_agents_count_lt": int.__lt__}
_EQUAL = "connected_to_agents_count_eq"
_SEARCHED = ("label", "value", "description")
_NOBODYS = ("identity_id", "identifier_keys", "project_id")  # nothing here belongs to one


def add(api: Api) -> None:
    api.add("POST", "/v1/blocks", create)
    api.add("GET", "/v1/blocks", listing, "read")
    api.add("GET", "/v1/blocks/count", count, "read")
    api.add("GET", "/v1/blocks/{block}", retrieve, "read")
    api.add("PATCH", "/v1/blocks/{block}", update)
    api.add("DELETE", "/v1/blocks/{block}", delete)


async def found(tenant: Tenant, which: str) -> Block:
    block = await tenant.memory.catalog.get(Block, which)
    if block is None:
        raise unknown("block", which)
    return block


def told(block: Block) -> Response:
    """A block, and its version where a cache would look for it."""
    return reply(block_told(block), headers={"ETag": f'"{block.version}"'})


async def create(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, BlockSent)
    return told(await tenant.memory.catalog.add(block_made(sent)))


# --- lists


async def listing(request: Request, tenant: Tenant) -> Response:
    page = page_of(request, 50, "asc")
    wanted = _wanted(request)
    if not wanted and not _counted(request):
        return reply([block_told(one) for one in await _found(request, tenant, page)])
    blocks = [one for one in await _found(request, tenant, Page("", "", _MOST, "asc")) if all(f(one) for f in wanted)]
    if _counted(request):
        blocks = [one for one in blocks if await _connected(request, tenant, one)]
    return reply([block_told(one) for one in cut([(one.id, one) for one in blocks], page)])


async def count(_request: Request, tenant: Tenant) -> Response:
    return reply(len(await tenant.memory.catalog.find(Block, limit=_MOST)))


async def _found(request: Request, tenant: Tenant, page: Page) -> list[Block]:
    asked = request.query_params
    tags = tuple(dict.fromkeys(asked.getlist("tags")))
    match = Match(tags, ()) if flag(request, "match_all_tags") else Match((), tags)
    wanted = Wanted(asked.get("label") or asked.get("name"), tags=match)
    hidden = None if flag(request, "show_hidden_blocks") else is_hidden
    return await finding.found(tenant, Block, page, wanted, hidden)


def _wanted(request: Request) -> list[Callable[[Block], bool]]:
    """What blocks are asked for by that the catalog has no index for."""
    asked = request.query_params
    tests = [_says(name, words) for name in _SEARCHED if (words := asked.get(f"{name}_search", ""))]
    if any(asked.get(name) for name in _NOBODYS) or flag(request, "templates_only"):
        tests.append(lambda _one: False)
    return tests


def _says(name: str, words: str) -> Callable[[Block], bool]:
    return lambda one: words.casefold() in str(getattr(one, name)).casefold()


def _counted(request: Request) -> bool:
    return any(name in request.query_params for name in (*_COUNTS, _EQUAL))


async def _connected(request: Request, tenant: Tenant, block: Block) -> bool:
    owners = await tenant.memory.catalog.owners(block.id)
    connected = sum(which.startswith("agent-") for which in owners)
    for name, holds in _COUNTS.items():
        if name in request.query_params and not holds(connected, number(request, name, 0, -1, _MOST)):
            return False
    equal = request.query_params.getlist(_EQUAL)
    return not equal or str(connected) in equal


# --- one block


async def retrieve(request: Request, tenant: Tenant) -> Response:
    return told(await found(tenant, part(request, "block")))


async def update(request: Request, tenant: Tenant) -> Response:
    return told(await changed(request, tenant, part(request, "block")))


async def changed(request: Request, tenant: Tenant, which: str) -> Block:
    """The block as it is after a change that somebody sent: all of it, or nothing and a problem."""
    sent = await body(request, BlockChange)
    async with changing(tenant, which):
        block = await found(tenant, which)
        catalog = tenant.memory.catalog
        wanted = block_changed(block, sent)
        expect = sent.version if sent.version is not None else _if_match(request)
        value = given(sent.value, block.value)
        _check(block, wanted, value, expect)
        if wanted.limit > block.limit:  # room first, then what needs it
            block = await catalog.change(structs.replace(block, limit=wanted.limit))
        if value != block.value or expect is not None:
            block = await catalog.edit(block.id, Rethink(value), PERSON, expect=expect)
        # agents may have edited it since it was read: only the fields of the change are ours
        wanted = block_changed(block, sent)
        return block if wanted == block else await catalog.change(wanted)


def _check(block: Block, wanted: Block, value: str, expect: int | None) -> None:
    if expect is not None and expect != block.version:
        said = f"block {block.label!r} is at version {block.version} by now, not {expect}; read it and decide again"
        raise Conflict(said, block.version)
    if wanted.limit < 1 or len(value) > wanted.limit:
        said = f"block {wanted.label!r} would have {len(value)} characters, and its limit is {wanted.limit}"
        raise Problem(422, "too_long", f"{said}; shorten the text or raise the limit. Nothing was changed.")
    if not wanted.label.strip() or not wanted.label.isprintable():
        raise Problem(422, "invalid", f"{wanted.label[:60]!r} cannot be a label; give it a word or a few on one line")


def _if_match(request: Request) -> int | None:
    said = request.headers.get("if-match")
    if said is None or said.strip() == "*":
        return None
    try:
        return int(said.strip().removeprefix("W/").strip('"'))
    except ValueError as error:
        raise Problem(422, "invalid", f"If-Match is {said[:40]!r}; it must be a version, as blocks tell it") from error


async def delete(request: Request, tenant: Tenant) -> Response:
    if not await tenant.memory.catalog.delete(Block, part(request, "block")):
        raise unknown("block", part(request, "block"))
    return reply(None)
