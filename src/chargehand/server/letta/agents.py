"""Agents: made, read, changed, deleted. Lists of them, and what is attached to them, are elsewhere."""

import uuid
from collections.abc import Sequence

from msgspec import UNSET, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory import blocks
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Attached, KeptConversation, Profile
from chargehand.memory.origin import PERSON
from chargehand.server.letta import tools
from chargehand.server.letta.agent_mapping import agent_changed, agent_made, agent_told, check_name
from chargehand.server.letta.agent_settings import check_agent_fields
from chargehand.server.letta.agent_shapes import AgentChange, AgentSent, AgentTold
from chargehand.server.letta.approvals import pending
from chargehand.server.letta.asked import turns_to_begin_with
from chargehand.server.letta.blocks import found as found_block
from chargehand.server.letta.crew import leads
from chargehand.server.letta.holdings import ANYTHING, BASE_TOOLS
from chargehand.server.letta.last_runs import with_last_runs
from chargehand.server.letta.mail import MATCHING
from chargehand.server.letta.mapping import block_made
from chargehand.server.letta.office import Office
from chargehand.server.letta.rules import checked
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, raw_body, reply
from chargehand.terms.roster import Match
from chargehand.terms.value import encode_value
from chargehand.tools.tasks import BareTaskGroup

_MOST_CONVERSATIONS = 100_000
BASE = ("conversation_search", "memory_insert", "memory_replace")


def add(api: Api) -> None:
    api.add("POST", "/v1/agents", create)
    api.add("GET", "/v1/agents/{agent}", retrieve, "read")
    api.add("PATCH", "/v1/agents/{agent}", update)
    api.add("DELETE", "/v1/agents/{agent}", delete)
    api.add("POST", "/v1/agents/{agent}/recompile", recompile, "read")


async def found(tenant: Tenant, which: str) -> Profile:
    profile = await tenant.memory.catalog.get(Profile, which)
    if profile is None:
        raise unknown("agent", which)
    return profile


async def told(tenant: Tenant, profile: Profile) -> AgentTold:
    return (await all_told(tenant, [profile]))[0]


async def all_told(tenant: Tenant, profiles: Sequence[Profile], include: Sequence[str] = ()) -> list[AgentTold]:
    """Agents as their client reads them, with everything, or with what it says shall be included.

    An agent that was deleted meanwhile is told of as it was, without its blocks.
    """
    catalog = tenant.memory.catalog
    office = tenant.part(Office)
    profiles = await with_last_runs(tenant, profiles)
    held: dict[str, list[Attached]] = {}
    if not include or "agent.blocks" in include:
        held = await catalog.attached_to([one.id for one in profiles])
    known = await tools.of_agents(tenant, profiles) if not include or "agent.tools" in include else {}
    cards = {handle: office.crew.model(one).card for handle, one in {one.model: one for one in profiles}.items()}
    told = [
        agent_told(
            one,
            [each.thing for each in held.get(one.id, ()) if isinstance(each.thing, Block)],
            [known[name] for name in one.tools if name in known],
            cards[one.model],
        )
        for one in profiles
    ]
    await office.ready()
    for one in told:
        if one.id in office.waiting:
            one.pending_approval = await pending(tenant, one.id)
    return told


# --- making


async def create(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, AgentSent)
    check_agent_fields(await raw_body(request), AgentSent)
    return reply(await made(tenant, sent))


async def made(tenant: Tenant, sent: AgentSent) -> AgentTold:
    """A new agent. All that could be wrong with it is found before anything is kept."""
    catalog = tenant.memory.catalog
    labels = [one.label for one in sent.memory_blocks or ()]
    if double := next((one for one in labels if labels.count(one) > 1), None):
        raise Problem(422, "invalid", f"two memory blocks are called {double!r}; give one of them another label")
    shared = [await found_block(tenant, one) for one in dict.fromkeys(sent.block_ids or ())]
    if twice := next((one.label for one in shared if one.label in labels), None):
        raise Problem(422, "invalid", f"a block of block_ids is called {twice!r} as a memory block is; rename one")
    names = await tools.named(catalog, sent.tools or (), sent.tool_ids or ())
    profile = agent_made(sent, f"agent-{uuid.uuid4()}", names)
    personas = [one.instruction for one in shared] + [one.value for one in sent.memory_blocks or ()]
    profile = structs.replace(profile, tools=_equipped(sent, profile, personas))
    if sent.include_base_tools is False:
        profile = structs.replace(profile, settings={**profile.settings, BASE_TOOLS: False})
    check_name(profile.name)
    encode_value(profile)
    checked(profile.settings.get("tool_rules"), profile.tools)
    own = [structs.replace(block_made(one), id=f"block-{uuid.uuid4()}") for one in sent.memory_blocks or ()]
    for block in own:
        blocks.created(block, PERSON)
    first_turns = turns_to_begin_with(sent.initial_message_sequence or ())
    told = await _kept(tenant, profile, own, sorted(shared, key=lambda one: one.created))
    if first_turns:
        await catalog.say(profile.id, first_turns)
    return told


def _equipped(sent: AgentSent, profile: Profile, personas: Sequence[str]) -> tuple[str, ...]:
    """The tools of a new agent: those it was given, the usual ones, and one to write to others if it leads them."""
    wanted = [*profile.tools, *(() if sent.include_base_tools is False else BASE)]
    if leads(profile, "\n".join(personas)) or sent.include_multi_agent_tools:
        wanted.append(MATCHING)
    return tuple(dict.fromkeys(wanted))


async def _kept(tenant: Tenant, profile: Profile, own: Sequence[Block], shared: Sequence[Block]) -> AgentTold:
    """Keep an agent and its blocks. All of it is handed to the store at once, in this order, to be written together."""
    catalog = tenant.memory.catalog
    try:
        async with BareTaskGroup() as jobs:
            made = jobs.create_task(catalog.add(profile))
            fresh = [jobs.create_task(catalog.add(block)) for block in own]
            for block in (*shared, *own):
                jobs.create_task(catalog.attach(profile.id, block.id, ANYTHING))
    except Exception:  # a block may have been deleted since it was looked for
        for kind, which in ((Profile, profile.id), *((Block, one.id) for one in own)):
            await catalog.delete(kind, which)
        raise
    known = await tools.of_agents(tenant, [profile])
    held = [*shared, *(one.result() for one in fresh)]
    there = [known[name] for name in profile.tools if name in known]
    return agent_told(made.result(), held, there, tenant.part(Office).crew.model(profile).card)


# --- one agent


async def retrieve(request: Request, tenant: Tenant) -> Response:
    return reply(await told(tenant, await found(tenant, part(request, "agent"))))


async def update(request: Request, tenant: Tenant) -> Response:
    which = part(request, "agent")
    sent = await body(request, AgentChange)
    check_agent_fields(await raw_body(request), AgentChange)
    async with changing(tenant, which):
        profile = await found(tenant, which)
        catalog = tenant.memory.catalog
        ids = None if sent.tool_ids is UNSET or sent.tool_ids is None else sent.tool_ids
        names = None if ids is None else await tools.named(catalog, (), ids)
        wanted = agent_changed(profile, sent, names)
        if names is None and leads(wanted) and not leads(profile) and MATCHING not in wanted.tools:
            wanted = structs.replace(wanted, tools=(*wanted.tools, MATCHING))
        check_name(wanted.name)
        encode_value(wanted)
        if sent.tool_rules is not UNSET:
            checked(wanted.settings.get("tool_rules"), wanted.tools)
        if sent.block_ids is not UNSET and sent.block_ids is not None:
            await _holds(tenant, which, tuple(dict.fromkeys(sent.block_ids)))
        profile = await catalog.change(wanted)
    return reply(await told(tenant, profile))


async def _holds(tenant: Tenant, which: str, ids: Sequence[str]) -> None:
    """Give an agent these blocks of its own, and no others; nothing is changed if one of them is unknown."""
    catalog = tenant.memory.catalog
    for one in ids:
        await found_block(tenant, one)
    held = [one.thing.id for one in await catalog.attached(which) if isinstance(one.thing, Block) and not one.via]
    for one in held:
        if one not in ids:
            await catalog.detach(which, one)
    for one in ids:
        if one not in held:
            await catalog.attach(which, one, ANYTHING)


async def delete(request: Request, tenant: Tenant) -> Response:
    """With its conversation and what was attached; blocks and archives stay, others may have them too."""
    which = part(request, "agent")
    catalog = tenant.memory.catalog
    office = tenant.part(Office)
    async with changing(tenant, which):
        if not await catalog.delete(Profile, which):
            raise unknown("agent", which)
    for conversation in await catalog.find(KeptConversation, tags=Match((which,), ()), limit=_MOST_CONVERSATIONS):
        await office.cancel(await office.under_way(conversation.id), "the agent was deleted")
        await catalog.delete(KeptConversation, conversation.id)
    await office.forget(which)
    return reply({"message": f"agent {which} was deleted"})


async def recompile(request: Request, tenant: Tenant) -> Response:
    """What the agent would be told at this moment. Nothing needs to be compiled: blocks are read before each step."""
    profile = await found(tenant, part(request, "agent"))
    return reply(await tenant.part(Office).crew.system(profile))
