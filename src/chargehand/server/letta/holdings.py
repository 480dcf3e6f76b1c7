"""What agents hold: which archives an agent has, and the one it gets when it needs one."""

from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Grant
from chargehand.memory.catalog import Profile
from chargehand.server.house import House
from chargehand.server.letta.writers import changing

ANYTHING = Grant("write", tainted=True)
"""What an agent may do with what is attached to it: as its client would expect, everything."""


async def archives_of(house: House, which: str) -> list[Archive]:
    return [one.thing for one in await house.memory.catalog.attached(which) if isinstance(one.thing, Archive)]


async def archive_of(house: House, profile: Profile) -> Archive:
    """The archive an agent adds to. One that has none gets one, however many ask for it at once."""
    async with changing(house, f"archive of {profile.id}"):
        held = await archives_of(house, profile.id)
        if held:
            return held[0]
        catalog = house.memory.catalog
        made = await catalog.add(Archive(f"{profile.name}'s archive", f"what {profile.name} keeps"))
        await catalog.attach(profile.id, made.id, ANYTHING)
        return made
