"""Which agents lead a group: known without looking through all groups for every agent that is told of."""

from collections.abc import Iterable

from chargehand.memory.catalog import Group
from chargehand.server.house import House

_MOST = 100_000


class Leading:
    """Groups by the agent that leads them. `house.part(Leading)` is it; who changes a group calls `forget`."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._groups: dict[str, str] | None = None
        self._changes = 0

    def forget(self) -> None:
        self._changes += 1
        self._groups = None

    async def of(self, agents: Iterable[str]) -> dict[str, Group]:
        """The groups that these agents lead; of one who leads several, the latest."""
        known = self._groups
        if known is None:
            changes, catalog = self._changes, self._house.memory.catalog
            known = {leader: one.id for one in await catalog.find(Group, limit=_MOST) if (leader := _leader(one))}
            if changes == self._changes:  # else somebody changed one meanwhile
                self._groups = known
        led = {one: known[one] for one in agents if one in known}
        found = {one: await self._house.memory.catalog.get(Group, which) for one, which in led.items()}
        return {one: group for one, group in found.items() if group is not None}


def _leader(group: Group) -> str:
    found = group.settings.get("manager_agent_id")
    return found if isinstance(found, str) else ""
