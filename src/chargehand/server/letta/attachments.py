"""What is attached to an agent: blocks, archives, tools."""

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.blocks import Block
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
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part, reply


def add(api: Api) -> None:
    agent = "/v1/agents/{agent}"
    api.add("PATCH", f"{agent}/archives/attach/{{archive}}", attach_archive)
    api.add("PATCH", f"{agent}/archives/detach/{{archive}}", detach_archive)
    api.add("PATCH", f"{agent}/core-memory/blocks/attach/{{block}}", attach_block)
    api.add("PATCH", f"{agent}/core-memory/blocks/detach/{{block}}", detach_block)
    api.add("GET", f"{agent}/core-memory/blocks", blocks, "read")
    api.add("GET", f"{agent}/core-memory/blocks/{{label}}", block, "read")
    api.add("PATCH", f"{agent}/core-memory/blocks/{{label}}", change_block)
    api.add("GET", f"{agent}/tools", tools_of, "read")
    api.add("PATCH", f"{agent}/tools/attach/{{tool}}", attach_tool)
    api.add("PATCH", f"{agent}/tools/detach/{{tool}}", detach_tool)


async def attach_archive(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    archive = await found_archive(tenant, part(request, "archive"))
    await give_archive(tenant, profile.id, archive.id)
    return reply(None)


async def detach_archive(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    await tenant.memory.catalog.detach(profile.id, part(request, "archive"))
    return reply(None)


async def attach_block(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    one = await found_block(tenant, part(request, "block"))
    await tenant.memory.catalog.attach(profile.id, one.id, ANYTHING)
    return reply(await told(tenant, profile))


async def detach_block(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    await tenant.memory.catalog.detach(profile.id, part(request, "block"))
    return reply(await told(tenant, profile))


async def _held(tenant: Tenant, request: Request) -> list[Block]:
    profile = await found(tenant, part(request, "agent"))
    return [one.thing for one in await tenant.memory.catalog.attached(profile.id) if isinstance(one.thing, Block)]


async def _labelled(tenant: Tenant, request: Request) -> Block:
    label = part(request, "label")
    block = next((one for one in await _held(tenant, request) if one.label == label), None)
    if block is None:
        raise unknown("block with the label", label)
    return block


async def blocks(request: Request, tenant: Tenant) -> Response:
    held = await _held(tenant, request)
    return reply([block_told(one) for one in cut([(one.id, one) for one in held], page_of(request, 100, "desc"))])


async def block(request: Request, tenant: Tenant) -> Response:
    return block_told_with_version(await _labelled(tenant, request))


async def change_block(request: Request, tenant: Tenant) -> Response:
    return block_told_with_version(await changed(request, tenant, (await _labelled(tenant, request)).id))


async def tools_of(request: Request, tenant: Tenant) -> Response:
    held = await tools.tools_told(tenant, await found(tenant, part(request, "agent")))
    return reply(cut([(one.id, one) for one in held], page_of(request, 10, "desc")))


async def attach_tool(request: Request, tenant: Tenant) -> Response:
    which = part(request, "agent")
    catalog = tenant.memory.catalog
    more = await tools.named(catalog, (), [part(request, "tool")])
    async with changing(tenant, which):
        profile = await found(tenant, which)
        profile = structs.replace(profile, tools=tuple(dict.fromkeys((*profile.tools, *more))))
        profile = await catalog.change(profile)
    return reply(await told(tenant, profile))


async def detach_tool(request: Request, tenant: Tenant) -> Response:
    which = part(request, "agent")
    catalog = tenant.memory.catalog
    less = await tools.named(catalog, (), [part(request, "tool")])
    async with changing(tenant, which):
        profile = await found(tenant, which)
        profile = structs.replace(profile, tools=tuple(one for one in profile.tools if one not in less))
        profile = await catalog.change(profile)
    return reply(await told(tenant, profile))
