"""Agents: created, read, changed, deleted, listed; and what is attached to them."""

import re
import uuid
from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct, structs

from chargehand.engine.roster import Match
from chargehand.engine.value import encode_value
from chargehand.memory import blocks as block_edits
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, Block
from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.models.model import ModelCard
from chargehand.server.letta.executor import (
    FULL_ACCESS,
    MATCHING,
    attach_archive,
    blocks_of,
    change_kept,
    is_supervisor,
    lock_of,
)
from chargehand.server.letta.memory import describe_block, holders_of, new_block, update_block
from chargehand.server.letta.models import check_model, find_model, protocol_of, provider_of
from chargehand.server.letta.routing import LettaCall, find_page, replace_given, route
from chargehand.server.letta.settings import check_rules, merge, settings_of, to_catalog
from chargehand.server.letta.tools import describe_tools, tool_names
from chargehand.server.letta.wire import (
    AgentCreate,
    AgentUpdate,
    BlockResponse,
    Strings,
    Table,
    ToolResponse,
    format_time,
)
from chargehand.server.wire import invalid, unknown

_AGENT = "/v1/agents/{agent}"
_MAX_COUNT = 100_000
_DEFAULT_TOOLS = ("conversation_search", "memory_insert", "memory_replace")
_MAX_NAME = 500
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


# --- as clients read them


async def describe_agent(call: LettaCall, profile: Profile) -> Table:
    return (await describe_agents(call, [profile]))[0]


async def describe_agents(call: LettaCall, profiles: Sequence[Profile]) -> list[Table]:
    """Agents with everything. One that was deleted meanwhile is described as it was, without its blocks."""
    ids = [profile.id for profile in profiles]
    attached = await call.catalog.attached_to(ids)
    pending = await call.sessions.pending_approvals(ids)
    tools = await describe_tools(call.tenant, profiles)
    cards = {handle: find_model(call.tenant, handle).card for handle in {profile.model for profile in profiles}}
    agents: list[Table] = []
    for profile in profiles:
        blocks = [each.thing for each in attached.get(profile.id, ()) if isinstance(each.thing, Block)]
        own_tools = [tools[name] for name in profile.tools if name in tools]
        agent = _describe(profile, blocks, own_tools, cards[profile.model])
        agents.append({**agent, "pending_approval": pending.get(profile.id)})
    return agents


def _describe(profile: Profile, blocks: Sequence[Block], tools: Sequence[ToolResponse], card: ModelCard) -> Table:
    """An agent. `model` is the handle that was asked for, `llm_config.handle` the model that answers for it."""
    settings = settings_of(profile)
    options = settings.model_settings
    handle = profile.model or card.handle
    memory = [describe_block(block) for block in blocks]
    return {
        "id": profile.id,
        "name": profile.name,
        "description": profile.description or None,
        "agent_type": settings.agent_type,
        "system": profile.prompt,
        "model": handle,
        "model_settings": options,
        "context_window_limit": settings.context_window_limit,
        "embedding": settings.embedding,
        "llm_config": {
            "model": handle.partition("/")[2] or handle,
            "model_endpoint_type": protocol_of(provider_of(handle)),
            "context_window": min(settings.context_window_limit or card.window, card.window),
            "handle": card.handle,
            "max_tokens": options.max_output_tokens,
            "temperature": options.temperature,
        },
        "blocks": memory,
        "memory": {"blocks": memory, "agent_type": settings.agent_type},
        "tools": tools,
        "tags": profile.tags,
        "tool_rules": settings.tool_rules,
        "response_format": options.response_format,
        "timezone": settings.timezone,
        "metadata": profile.metadata,
        "message_buffer_autoclear": settings.message_buffer_autoclear,
        "created_at": format_time(profile.created),
        "updated_at": format_time(profile.updated),
        "sources": (),
    }


# --- lists


@route("GET", "/v1/agents")
async def list_agents(call: LettaCall) -> list[Table]:
    page = call.page(50, "desc", "name", "query_text", "tags", "match_all_tags")
    name = call.query.get("name")
    text = call.query.get("query_text", "")
    return await describe_agents(call, await find_page(call, Profile, page, name=name, text=text, tags=call.tags()))


@route("GET", "/v1/blocks/{block}/agents")
async def list_holders(call: LettaCall) -> list[Table]:
    return await describe_agents(call, call.page(50, "desc").cut(await holders_of(call)))


@route("GET", "/v1/tags")
async def list_tags(call: LettaCall) -> list[str]:
    words = (call.query.get("query_text") or call.query.get("name") or "").lower()
    tags = sorted(tag for tag in await call.catalog.tags(Profile) if words in tag.lower())
    return call.page(50, "asc", "name", "query_text", "order_by").cut(tags, key=str)


# --- creating


@route("POST", "/v1/agents")
async def create(call: LettaCall) -> Table:
    return await create_agent(call, await call.checked_body(AgentCreate))


async def create_agent(call: LettaCall, sent: AgentCreate) -> Table:
    """A new agent. All that could be wrong with it is found before anything is kept."""
    new = sent.memory_blocks or ()
    shared = [await call.find(Block, block) for block in dict.fromkeys(sent.block_ids or ())]
    labels = [block.label for block in (*new, *shared)]
    if double := next((label for label in labels if labels.count(label) > 1), None):
        raise invalid(f"two memory blocks are called {double!r}; give one of them another label")
    agent_id = f"agent-{uuid.uuid4()}"
    tools = await tool_names(call.catalog, sent.tools or (), sent.tool_ids or ())
    sent.name = sent.name or f"agent-{agent_id[-6:]}"
    profile = _change_fields(call, Profile(sent.name, id=agent_id), sent)
    if sent.include_base_tools is False:
        profile = structs.replace(profile, settings={**profile.settings, "base_tools": False})
    else:
        tools += _DEFAULT_TOOLS
    if is_supervisor(profile, "\n".join([*(block.instruction for block in shared), *(block.value for block in new)])):
        tools += (MATCHING,)
    profile = structs.replace(profile, tools=tuple(dict.fromkeys(tools)))
    check_rules(settings_of(profile).tool_rules, profile.tools)
    own = [structs.replace(new_block(block), id=f"block-{uuid.uuid4()}") for block in new]
    for block in own:
        block_edits.created(block, PERSON)
    attached = [block.id for block in (*shared, *own)]
    profile = await call.catalog.add_agent(profile, own, attached, FULL_ACCESS)
    return await describe_agent(call, profile)


# --- one agent


def _change_fields(call: LettaCall, profile: Profile, sent: AgentUpdate) -> Profile:
    """An agent with what was sent of it, but its tools and blocks; a problem for what cannot be kept."""
    if sent.model is not None and sent.model != profile.model:
        check_model("model", sent.model, call.tenant)
    settings = merge(settings_of(profile), sent)
    changed = replace_given(
        profile,
        name=sent.name,
        description=sent.description,
        prompt=sent.system,
        model=sent.model,
        tags=None if sent.tags is None else tuple(dict.fromkeys(sent.tags)),
        metadata=sent.metadata,
        settings=to_catalog(settings),
    )
    name = changed.name  # it stands in prompts, lists and logs
    if not name.strip() or len(name) > _MAX_NAME or _CONTROL.search(name):
        raise invalid(f"{name[:60]!r} cannot be the name of an agent; use up to {_MAX_NAME} characters on one line")
    encode_value(changed)
    return changed


@route("GET", _AGENT)
async def retrieve(call: LettaCall) -> Table:
    return await describe_agent(call, await call.agent())


@route("PATCH", _AGENT)
async def update(call: LettaCall) -> Table:
    sent = await call.checked_body(AgentUpdate)
    tools = None if sent.tool_ids is None else await tool_names(call.catalog, (), sent.tool_ids)

    def change(profile: Profile) -> Profile:
        changed = _change_fields(call, profile, sent)
        if tools is not None:
            changed = structs.replace(changed, tools=tools)
        elif is_supervisor(changed) and not is_supervisor(profile):
            changed = structs.replace(changed, tools=tuple(dict.fromkeys((*changed.tools, MATCHING))))
        if sent.tool_rules is not UNSET:
            check_rules(settings_of(changed).tool_rules, changed.tools)
        return changed

    return await change_agent(call, change)


async def change_agent(call: LettaCall, change: Callable[[Profile], Profile]) -> Table:
    """Change the agent that the path names, as it is then."""
    agent = await call.agent()
    return await describe_agent(call, await change_kept(call.tenant, Profile, agent.id, change))


@route("DELETE", _AGENT)
async def delete(call: LettaCall) -> dict[str, str]:
    """With its conversations and what was attached; blocks and archives stay, others may have them too."""
    agent = call.path("agent")
    sessions = call.sessions
    async with lock_of(call.tenant, agent):
        await call.delete(Profile)
    runs = await sessions.open_runs(agent, agent)
    for conversation in await call.catalog.find(KeptConversation, tags=Match((agent,), ()), limit=_MAX_COUNT):
        runs += await sessions.open_runs(conversation.id)
        await call.catalog.delete(KeptConversation, conversation.id)
    await sessions.cancel(dict.fromkeys(runs), "the agent was deleted")
    await sessions.index.forget_agent(agent)
    return {"message": f"agent {agent} was deleted"}


# --- what is attached


@route("PATCH", f"{_AGENT}/archives/attach/{{archive}}")
async def attach_archive_to_agent(call: LettaCall) -> None:
    profile = await call.agent()
    await attach_archive(call.tenant, profile.id, (await call.find(Archive)).id)


@route("PATCH", f"{_AGENT}/archives/detach/{{archive}}")
async def detach_archive(call: LettaCall) -> None:
    await call.catalog.detach((await call.agent()).id, call.path("archive"))


@route("PATCH", f"{_AGENT}/core-memory/blocks/attach/{{block}}")
async def attach_block(call: LettaCall) -> Table:
    profile = await call.agent()
    await call.catalog.attach(profile.id, (await call.find(Block)).id, FULL_ACCESS)
    return await describe_agent(call, profile)


@route("PATCH", f"{_AGENT}/core-memory/blocks/detach/{{block}}")
async def detach_block(call: LettaCall) -> Table:
    profile = await call.agent()
    await call.catalog.detach(profile.id, call.path("block"))
    return await describe_agent(call, profile)


@route("GET", f"{_AGENT}/core-memory/blocks")
async def list_blocks(call: LettaCall) -> list[BlockResponse]:
    blocks = await blocks_of(call.tenant, (await call.agent()).id)
    return [describe_block(block) for block in call.page(100, "desc").cut(blocks)]


async def _block_with_label(call: LettaCall) -> Block:
    label = call.path("label")
    for block in await blocks_of(call.tenant, (await call.agent()).id):
        if block.label == label:
            return block
    raise unknown("block with the label", label)


@route("GET", f"{_AGENT}/core-memory/blocks/{{label}}")
async def retrieve_block(call: LettaCall) -> BlockResponse:
    return describe_block(await _block_with_label(call))


@route("PATCH", f"{_AGENT}/core-memory/blocks/{{label}}")
async def change_block(call: LettaCall) -> BlockResponse:
    return await update_block(call, (await _block_with_label(call)).id)


@route("GET", f"{_AGENT}/tools")
async def list_tools(call: LettaCall) -> list[ToolResponse]:
    profile = await call.agent()
    tools = await describe_tools(call.tenant, [profile])
    return call.page(10, "desc").cut([tools[name] for name in profile.tools if name in tools])


@route("PATCH", f"{_AGENT}/tools/attach/{{tool}}")
async def attach_tool(call: LettaCall) -> Table:
    return await _change_tools(call, lambda tools, names: (*tools, *names))


@route("PATCH", f"{_AGENT}/tools/detach/{{tool}}")
async def detach_tool(call: LettaCall) -> Table:
    return await _change_tools(call, lambda tools, names: tuple(tool for tool in tools if tool not in names))


async def _change_tools(call: LettaCall, change: Callable[[Strings, Strings], Strings]) -> Table:
    names = await tool_names(call.catalog, (), [call.path("tool")])

    def change_tools(profile: Profile) -> Profile:
        return structs.replace(profile, tools=tuple(dict.fromkeys(change(profile.tools, names))))

    return await change_agent(call, change_tools)


class ApprovalUpdate(Struct):
    requires_approval: bool


@route("PATCH", f"{_AGENT}/tools/approval/{{name}}")
async def require_approval(call: LettaCall) -> Table:
    """Whether a person must approve this agent's calls of this tool: a rule more, or a rule less."""
    name = call.path("name")
    sent = await call.body(ApprovalUpdate)
    rule: Table = {"type": "requires_approval", "tool_name": name}

    def change(profile: Profile) -> Profile:
        if name not in profile.tools:
            raise unknown("tool of this agent", name)
        settings = settings_of(profile)
        rules = [each for each in settings.tool_rules if not rule.items() <= each.items()]
        if sent.requires_approval:
            rules.append(rule)
        return structs.replace(profile, settings=to_catalog(structs.replace(settings, tool_rules=rules)))

    return await change_agent(call, change)
