"""Groups of agents, for clients up to 1.7.0: made, listed, changed, deleted. How they talk is not known here."""

from collections.abc import Sequence

from msgspec import UNSET, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import Group
from chargehand.server.doors import Door
from chargehand.server.house import House
from chargehand.server.letta.agents import found as found_agent
from chargehand.server.letta.blocks import found as found_block
from chargehand.server.letta.group_shapes import GroupChange, GroupSent, ManagerSent, group_told, manager_kept
from chargehand.server.letta.holdings import ANYTHING
from chargehand.server.letta.leading import Leading
from chargehand.server.letta.mapping import given, items
from chargehand.server.letta.pages import cut, page_of
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.wire import body, flag, part, reply

_MOST = 100_000
_ALWAYS = ("runs", "turns", "hidden", "blocks")  # what a group keeps however it is led


def add(door: Door) -> None:
    door.add("POST", "/v1/groups", create)
    door.add("GET", "/v1/groups", listing, "read")
    door.add("GET", "/v1/groups/count", count, "read")
    door.add("GET", "/v1/groups/{group}", retrieve, "read")
    door.add("PATCH", "/v1/groups/{group}", update)
    door.add("DELETE", "/v1/groups/{group}", delete)
    door.add("GET", "/v1/agents/{agent}/groups", of_agent, "read")


async def found(house: House, which: str) -> Group:
    group = await house.memory.catalog.get(Group, which)
    if group is None:
        raise unknown("group", which)
    return group


async def create(request: Request, house: House) -> Response:
    sent, catalog = await body(request, GroupSent), house.memory.catalog
    manager = sent.manager_config or ManagerSent()
    await _check(house, sent.agent_ids, manager, sent.shared_block_ids or ())
    settings = {**manager_kept(manager), "blocks": list(sent.shared_block_ids or ()), "hidden": bool(sent.hidden)}
    members = tuple(dict.fromkeys(sent.agent_ids))
    group = await catalog.add(Group(sent.description[:60], members, manager.manager_type, sent.description,
                                    settings=settings))  # fmt: skip
    house.part(Leading).forget()
    for one in dict.fromkeys(sent.shared_block_ids or ()):
        await catalog.attach(group.id, one, ANYTHING)
    return reply(group_told(group))


async def _check(house: House, agents: Sequence[str], manager: ManagerSent | None, blocks: Sequence[str]) -> None:
    if not agents:
        raise Problem(422, "invalid", "agent_ids is empty; a group has at least one agent")
    for one in (*agents, *([manager.manager_agent_id] if manager and manager.manager_agent_id else ())):
        await found_agent(house, one)
    for one in blocks:
        await found_block(house, one)


async def listing(request: Request, house: House) -> Response:
    asked, page = request.query_params, page_of(request, 50, "asc")
    groups, every = await house.memory.catalog.find(Group, limit=_MOST), flag(request, "show_hidden_groups")
    wanted = [
        one for one in groups
        if asked.get("manager_type") in (None, one.kind) and not asked.get("project_id")
        and (every or not one.settings.get("hidden"))
    ]  # fmt: skip
    return reply([group_told(one) for one in cut([(one.id, one) for one in wanted], page)])


async def count(_request: Request, house: House) -> Response:
    return reply(len(await house.memory.catalog.find(Group, limit=_MOST)))


async def of_agent(request: Request, house: House) -> Response:
    """The groups an agent is in, or leads."""
    agent, kind = await found_agent(house, part(request, "agent")), request.query_params.get("manager_type")
    groups = await house.memory.catalog.find(Group, limit=_MOST)
    wanted = [
        one for one in groups
        if (agent.id in one.members or one.settings.get("manager_agent_id") == agent.id) and kind in (None, one.kind)
    ]  # fmt: skip
    return reply([group_told(one) for one in cut([(one.id, one) for one in wanted], page_of(request, 50, "asc"))])


async def retrieve(request: Request, house: House) -> Response:
    return reply(group_told(await found(house, part(request, "group"))))


async def update(request: Request, house: House) -> Response:
    which, sent, catalog = part(request, "group"), await body(request, GroupChange), house.memory.catalog
    async with changing(house, which):
        group = await found(house, which)
        members = tuple(dict.fromkeys(given(sent.agent_ids, group.members)))
        manager = None if sent.manager_config is UNSET else sent.manager_config
        blocks = None if sent.shared_block_ids is UNSET else sent.shared_block_ids
        await _check(house, members, manager, blocks or ())
        settings = dict(group.settings)
        if manager is not None:
            settings = {name: settings[name] for name in _ALWAYS if name in settings} | manager_kept(manager)
        if sent.hidden is not UNSET:
            settings["hidden"] = bool(sent.hidden)
        if blocks is not None:
            await _share(house, group, blocks)
            settings["blocks"] = list(blocks)
        kind = group.kind if manager is None else manager.manager_type
        does = given(sent.description, group.description)
        changed = structs.replace(group, members=members, kind=kind, description=does, settings=settings)
        changed = await catalog.change(changed)
        house.part(Leading).forget()
        return reply(group_told(changed))


async def _share(house: House, group: Group, blocks: Sequence[str]) -> None:
    catalog = house.memory.catalog
    for one in items(group.settings.get("blocks")):
        if one not in blocks:
            await catalog.detach(group.id, str(one))
    for one in blocks:
        await catalog.attach(group.id, one, ANYTHING)


async def delete(request: Request, house: House) -> Response:
    """The agents stay."""
    if not await house.memory.catalog.delete(Group, part(request, "group")):
        raise unknown("group", part(request, "group"))
    house.part(Leading).forget()
    return reply({"message": f"group {part(request, 'group')} was deleted"})
