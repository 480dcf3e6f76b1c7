"""What agents hold: their archives, and the tools that come with them. Changes are made one at a time."""

import asyncio

from msgspec import structs

from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Grant
from chargehand.memory.catalog import Profile
from chargehand.server.letta.settings import settings_of
from chargehand.server.tenants import Tenant
from chargehand.tools.remember import ARCHIVE_TOOLS

FULL_ACCESS = Grant("write", tainted=True)
"""What an agent may do with what is attached to it: as its client would expect, everything."""


def lock_of(tenant: Tenant, which: str) -> asyncio.Lock:
    """Hold it from before something is read until it is changed. Texts of blocks need none: the store edits them."""
    return tenant.memory.gate(f"change {which}")


async def blocks_of(tenant: Tenant, agent: str) -> list[Block]:
    return [
        attached.thing for attached in await tenant.memory.catalog.attached(agent) if isinstance(attached.thing, Block)
    ]


async def archives_of(tenant: Tenant, agent: str) -> list[Archive]:
    return [
        attached.thing
        for attached in await tenant.memory.catalog.attached(agent)
        if isinstance(attached.thing, Archive)
    ]


async def archive_of(tenant: Tenant, profile: Profile) -> Archive:
    """The archive an agent adds to. One that has none gets one, however many ask for it at once."""
    async with lock_of(tenant, f"archive of {profile.id}"):
        archives = await archives_of(tenant, profile.id)
        if archives:
            return archives[0]
        new = Archive(f"{profile.name}'s archive", f"what {profile.name} keeps")
        archive = await tenant.memory.catalog.add(new)
        await attach_archive(tenant, profile.id, archive.id)
        return archive


async def attach_archive(tenant: Tenant, agent: str, archive: str) -> None:
    """Attach an archive to an agent. With its first one it gets the tools for archives, unless it has no base tools."""
    catalog = tenant.memory.catalog
    async with lock_of(tenant, agent):
        is_first = not await archives_of(tenant, agent)
        await catalog.attach(agent, archive, FULL_ACCESS)
        profile = await catalog.get(Profile, agent)
        if profile is not None and is_first and settings_of(profile).base_tools:
            tools = tuple(dict.fromkeys((*profile.tools, *ARCHIVE_TOOLS)))
            await catalog.change(structs.replace(profile, tools=tools))
