"""What is attached to an agent: blocks, archives, tools."""

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.blocks import Block
from chargehand.server.doors import Door
from chargehand.server.house import House
from chargehand.server.letta import tools
from chargehand.server.letta.agents import found, told
from chargehand.server.letta.archives import found as found_archive
from chargehand.server.letta.blocks import changed
from chargehand.server.letta.blocks import found as found_block
from chargehand.server.letta.blocks import told as block_told_with_version
from chargehand.server.letta.holdings import ANYTHING, give_archive
from chargehand.server.letta.mapping import block_told
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.writers import changing
from chargehand.server.problem import unknown
from chargehand.server.wire import part, reply


def add(door: Door) -> None:
    agent = "/v1/agents/{agent}"
    door.add("PATCH", f"{agent}/archives/attach/{{archive}}", attach_archive)
    door.add("PATCH", f"{agent}/archives/detach/{{archive}}", detach_archive)
    door.add("PATCH", f"{agent}/core-memory/blocks/attach/{{block}}", attach_block)
    door.add("PATCH", f"{agent}/core-memory/blocks/detach/{{block}}", detach_block)
    door.add("GET", f"{agent}/core-memory/blocks", blocks, "read")
    door.add("GET", f"{agent}/core-memory/blocks/{{label}}", block, "read")
    door.add("PATCH", f"{agent}/core-memory/blocks/{{label}}", change_block)
    door.add("GET", f"{agent}/tools", tools_of, "read")
    door.add("PATCH", f"{agent}/tools/attach/{{tool}}", attach_tool)
    door.add("PATCH", f"{agent}/tools/detach/{{tool}}", detach_tool)


async def attach_archive(request: Request, house: House) -> Response:
    profile = await found(house, part(request, "agent"))
    archive = await found_archive(house, part(request, "archive"))
    await give_archive(house, profile.id, archive.id)
    return reply(None)


async def detach_archive(request: Request, house: House) -> Response:
    profile = await found(house, part(request, "agent"))
    await house.memory.catalog.detach(profile.id, part(request, "archive"))
    return reply(None)


async def attach_block(request: Request, house: House) -> Response:
    profile = await found(house, part(request, "agent"))
    one = await found_block(house, part(request, "block"))
    await house.memory.catalog.attach(profile.id, one.id, ANYTHING)
    return reply(await told(house, profile))


async def detach_block(request: Request, house: House) -> Response:
    profile = await found(house, part(request, "agent"))
    await house.memory.catalog.detach(profile.id, part(request, "block"))
    return reply(await told(house, profile))


async def _held(house: House, request: Request) -> list[Block]:
    profile = await found(house, part(request, "agent"))
    return [one.thing for one in await house.memory.catalog.attached(profile.id) if isinstance(one.thing, Block)]


async def _labelled(house: House, request: Request) -> Block:
    label = part(request, "label")
    block = next((one for one in await _held(house, request) if one.label == label), None)
    if block is None:
        raise unknown("block with the label", label)
    return block


async def blocks(request: Request, house: House) -> Response:
    held = await _held(house, request)
    return reply([block_told(one) for one in cut([(one.id, one) for one in held], page_of(request, 100, "desc"))])


async def block(request: Request, house: House) -> Response:
    return block_told_with_version(await _labelled(house, request))


async def change_block(request: Request, house: House) -> Response:
    return block_told_with_version(await changed(request, house, (await _labelled(house, request)).id))


async def tools_of(request: Request, house: House) -> Response:
    held = await tools.tools_told(house, await found(house, part(request, "agent")))
    return reply(cut([(one.id, one) for one in held], page_of(request, 10, "desc")))


async def attach_tool(request: Request, house: House) -> Response:
    which = part(request, "agent")
    catalog = house.memory.catalog
    more = await tools.named(catalog, (), [part(request, "tool")])
    async with changing(house, which):
        profile = await found(house, which)
        profile = structs.replace(profile, tools=tuple(dict.fromkeys((*profile.tools, *more))))
        profile = await catalog.change(profile)
    return reply(await told(house, profile))


async def detach_tool(request: Request, house: House) -> Response:
    which = part(request, "agent")
    catalog = house.memory.catalog
    less = await tools.named(catalog, (), [part(request, "tool")])
    async with changing(house, which):
        profile = await found(house, which)
        profile = structs.replace(profile, tools=tuple(one for one in profile.tools if one not in less))
        profile = await catalog.change(profile)
    return reply(await told(house, profile))
