"""What agents hold: which archives an agent has, and the one it gets when it needs one."""

from msgspec import structs

from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Grant
from chargehand.memory.catalog import Profile
from chargehand.server.letta.writers import changing
from chargehand.server.tenants import Tenant
from chargehand.tools.remember import ARCHIVE_TOOLS

ANYTHING = Grant("write", tainted=True)
"""What an agent may do with what is attached to it: as its client would expect, everything."""
BASE_TOOLS = "base_tools"
"""What an agent's settings say if its client wants it to have no tools but those that are named."""


async def archives_of(tenant: Tenant, which: str) -> list[Archive]:
    return [one.thing for one in await tenant.memory.catalog.attached(which) if isinstance(one.thing, Archive)]


async def archive_of(tenant: Tenant, profile: Profile) -> Archive:
    """The archive an agent adds to. One that has none gets one, however many ask for it at once."""
    async with changing(tenant, f"archive of {profile.id}"):
        held = await archives_of(tenant, profile.id)
        if held:
            return held[0]
        catalog = tenant.memory.catalog
        made = await catalog.add(Archive(f"{profile.name}'s archive", f"what {profile.name} keeps"))
        await give_archive(tenant, profile.id, made.id)
        return made


async def give_archive(tenant: Tenant, which: str, archive: str) -> None:
    """Attach an archive to an agent. With its first one it gets the tools for archives, unless it has no base tools."""
    catalog = tenant.memory.catalog
    async with changing(tenant, which):
        is_first = not await archives_of(tenant, which)
        await catalog.attach(which, archive, ANYTHING)
        profile = await catalog.get(Profile, which)
        if profile is None or not is_first or profile.settings.get(BASE_TOOLS) is False:
            return
        tools = tuple(dict.fromkeys((*profile.tools, *ARCHIVE_TOOLS)))
        if tools != profile.tools:
            await catalog.change(structs.replace(profile, tools=tools))
