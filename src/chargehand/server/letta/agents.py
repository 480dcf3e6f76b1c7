"""Agents: created, read, changed, deleted, listed; and what is attached to them."""

import re
import uuid
from collections.abc import Awaitable, Callable, Sequence

from msgspec import UNSET, structs
from starlette.responses import Response

from chargehand.concurrency import BareTaskGroup
from chargehand.engine.roster import Match
from chargehand.engine.value import encode_value
from chargehand.memory import blocks as block_edits
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, Block
from chargehand.memory.catalog import Attached, KeptConversation, Profile
from chargehand.memory.conversations import Turn
from chargehand.models.model import ModelCard
from chargehand.models.providers import BUILT_IN, OTHERS, OWN
from chargehand.server.letta.agent_messages import MATCHING
from chargehand.server.letta.approvals import pending_approval
from chargehand.server.letta.attachments import BASE_TOOLS, FULL_ACCESS, attach_archive, blocks_of, lock_of
from chargehand.server.letta.blocks import describe_block, holders_of, new_block, send_block, update_block
from chargehand.server.letta.executor import check_model, is_supervisor, provider_of
from chargehand.server.letta.index import Page
from chargehand.server.letta.request import text_of
from chargehand.server.letta.routing import EVERYTHING, Call, Routes, find_page, replace_given
from chargehand.server.letta.settings import (
    AGENT_TYPES,
    as_list,
    check_fields,
    check_timezone,
    merge_model_fields,
    options_of,
    window_of,
)
from chargehand.server.letta.tool_rules import check_rules
from chargehand.server.letta.tools import describe_tools, tool_names
from chargehand.server.letta.wire import (
    SETTINGS,
    AgentCreate,
    AgentUpdate,
    BlockResponse,
    MessageCreate,
    ModelConfig,
    RunResponse,
    Strings,
    Table,
    ToolResponse,
    format_time,
)
from chargehand.server.problem import check_choice, invalid, unknown

routes = Routes()
_AGENT = "/v1/agents/{agent}"
_MAX_COUNT = 100_000
_DEFAULT_TOOLS = ("conversation_search", "memory_insert", "memory_replace")
_DEFAULT_TYPE = "letta_v1_agent"
_MAX_NAME = 500
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FILTERS = ("last_stop_reason", "project_id", "template_id", "base_template_id", "created_by_id")
_ORDERS: dict[str, Callable[[Profile], float | str]] = {
    "created_at": lambda profile: profile.created,
    "updated_at": lambda profile: profile.updated,
    "last_run_completion": lambda profile: str(profile.settings.get("last_run_completion") or ""),
    "name": lambda profile: profile.name,
}


# --- as clients read them


async def describe_agent(call: Call, profile: Profile) -> Table:
    return (await describe_agents(call, [profile]))[0]


async def describe_agents(call: Call, profiles: Sequence[Profile], include: Sequence[str] = ()) -> list[Table]:
    """Agents with everything, or with what `include` names.

    An agent that was deleted meanwhile is described as it was, without its blocks.
    """
    sessions = call.sessions
    await sessions.load()
    held: dict[str, list[Attached]] = {}
    if not include or "agent.blocks" in include:
        held = await call.catalog.attached_to([profile.id for profile in profiles])
    tools = await describe_tools(call.tenant, profiles) if not include or "agent.tools" in include else {}
    models = {profile.model: profile for profile in profiles}
    cards = {handle: sessions.executor.model(profile).card for handle, profile in models.items()}
    agents: list[Table] = []
    for profile in profiles:
        blocks = [each.thing for each in held.get(profile.id, ()) if isinstance(each.thing, Block)]
        own_tools = [tools[name] for name in profile.tools if name in tools]
        agent = _describe(_with_last_run(call, profile), blocks, own_tools, cards[profile.model])
        if profile.id in sessions.waiting:
            agent["pending_approval"] = await pending_approval(sessions, profile.id)
        agents.append(agent)
    return agents


def _describe(profile: Profile, blocks: Sequence[Block], tools: Sequence[ToolResponse], card: ModelCard) -> Table:
    """An agent. `model` is the handle that was asked for, `llm_config.handle` the model that answers for it.

    What is not known is left out, lists are not: reading an agent costs its client more than it costs us to send it.
    """
    settings = profile.settings
    options = options_of(settings)
    memory = [describe_block(block) for block in blocks]
    agent_type = str(settings.get("agent_type") or _DEFAULT_TYPE)
    known = {name: settings.get(name) for name in (*SETTINGS, "model_settings", "context_window_limit")}
    known |= {
        "description": profile.description or None,
        "response_format": options.response_format,
        "parallel_tool_calls": options.parallel_tool_calls,
    }
    return {
        **{name: value for name, value in known.items() if value is not None},
        "id": profile.id,
        "name": profile.name,
        "agent_type": agent_type,
        "system": profile.prompt,
        "model": profile.model or card.handle,
        "llm_config": _describe_model(profile, card),
        "blocks": memory,
        "memory": {"blocks": memory, "agent_type": agent_type},
        "tools": tools,
        "tags": profile.tags,
        "tool_rules": as_list(settings.get("tool_rules")),
        "metadata": profile.metadata,
        "created_at": format_time(profile.created),
        "updated_at": format_time(profile.updated),
        "message_buffer_autoclear": bool(settings.get("message_buffer_autoclear")),
        "identity_ids": as_list(settings.get("identity_ids")),
        **dict.fromkeys(("message_ids", "sources", "secrets", "tool_exec_environment_variables", "identities"), ()),
    }


def _describe_model(profile: Profile, card: ModelCard) -> Table:
    provider = provider_of(profile.model or card.handle)
    options = options_of(profile.settings)
    known = {
        "max_tokens": options.max_output_tokens,
        "temperature": options.temperature,
        "parallel_tool_calls": options.parallel_tool_calls,
        "response_format": options.response_format,
    }
    return {
        **{name: value for name, value in known.items() if value is not None},
        "model": _model_name(profile.model) or card.handle,
        "model_endpoint_type": OWN[provider].protocol if provider in OWN else "openai",
        "context_window": min(window_of(profile.settings) or card.window, card.window),
        "handle": card.handle,
        "provider_name": provider,
    }


def _model_name(handle: str) -> str:
    return handle.partition("/")[2] or handle


def _with_last_run(call: Call, profile: Profile) -> Profile:
    """An agent with how its latest run ended. What a client wrote since then stays."""
    run: RunResponse | None = call.sessions.last_runs.get(profile.id)
    if run is None or run.completed_at is None:
        return profile
    if "last_run_completion" in profile.settings and format_time(profile.updated) > run.completed_at:
        return profile
    facts = {
        "last_stop_reason": run.stop_reason,
        "last_run_completion": run.completed_at,
        "last_run_duration_ms": (run.total_duration_ns or 0) // 1_000_000,
    }
    return structs.replace(profile, settings={**profile.settings, **facts})


# --- lists


@routes.get("/v1/agents")
async def list_agents(call: Call) -> list[Table]:
    page = call.page(50, "desc")
    order = call.choice("order_by", call.query.get("sort_by") or "created_at", tuple(_ORDERS))
    include = call.query.getlist("include")
    filters = {name: value for name in _FILTERS if (value := call.query.get(name))}
    identities = {*call.query.getlist("identity_id")} or {*call.query.getlist("identifier_keys")}
    if order == "created_at" and not filters and not identities:
        return await describe_agents(call, await _find(call, page), include)
    await call.sessions.load()
    profiles = [_with_last_run(call, profile) for profile in await _find(call, EVERYTHING)]
    wanted = [profile for profile in profiles if all(profile.settings.get(name) == filters[name] for name in filters)]
    if identities:
        wanted = [each for each in wanted if not identities.isdisjoint(as_list(each.settings.get("identity_ids")))]
    return await describe_agents(call, page.cut(sorted(wanted, key=_ORDERS[order])), include)


async def _find(call: Call, page: Page) -> list[Profile]:
    is_hidden = None if call.flag("show_hidden_agents") else _is_hidden
    name = call.query.get("name")
    text = call.query.get("query_text", "")
    return await find_page(call, Profile, page, name=name, text=text, tags=call.tags(), is_hidden=is_hidden)


def _is_hidden(profile: Profile) -> bool:
    return profile.settings.get("hidden") is True


@routes.get("/v1/agents/count")
async def count(call: Call) -> int:
    return len(await call.catalog.find(Profile, limit=_MAX_COUNT))


@routes.get("/v1/blocks/{block}/agents")
async def list_holders(call: Call) -> list[Table]:
    return await describe_agents(call, call.page(50, "desc").cut(await holders_of(call)))


@routes.get("/v1/tags")
async def list_tags(call: Call) -> list[str]:
    words = (call.query.get("query_text") or call.query.get("name") or "").lower()
    tags = sorted(tag for tag in await call.catalog.tags(Profile) if words in tag.lower())
    return call.page(50, "asc").cut(tags, key=str)


# --- creating


@routes.post("/v1/agents")
async def create(call: Call) -> Table:
    sent = await call.body(AgentCreate)
    check_fields(await call.raw_body(), AgentCreate)
    return await create_agent(call, sent)


async def create_agent(call: Call, sent: AgentCreate) -> Table:
    """A new agent. All that could be wrong with it is found before anything is kept."""
    new = sent.memory_blocks or ()
    shared = [await call.find(Block, block) for block in dict.fromkeys(sent.block_ids or ())]
    labels = [block.label for block in (*new, *shared)]
    if double := next((label for label in labels if labels.count(label) > 1), None):
        raise invalid(f"two memory blocks are called {double!r}; give one of them another label")
    agent_id = f"agent-{uuid.uuid4()}"
    sent.name = sent.name or f"agent-{agent_id[-6:]}"
    tools = await tool_names(call.catalog, sent.tools or (), sent.tool_ids or ())
    profile = _change_fields(call, Profile(sent.name, id=agent_id), sent, tools)
    personas = [*(block.instruction for block in shared), *(block.value for block in new)]
    profile = structs.replace(profile, tools=_equip(sent, profile, personas))
    if sent.include_base_tools is False:
        profile = structs.replace(profile, settings={**profile.settings, BASE_TOOLS: False})
    _check(profile)
    check_rules(profile.settings.get("tool_rules"), profile.tools)
    own = [structs.replace(new_block(block), id=f"block-{uuid.uuid4()}") for block in new]
    for block in own:
        block_edits.created(block, PERSON)
    turns = _first_turns(sent.initial_message_sequence or ())
    profile = await _save(call, profile, own, sorted(shared, key=lambda block: block.created))
    if turns:
        await call.catalog.say(profile.id, turns)
    return await describe_agent(call, profile)


def _equip(sent: AgentCreate, profile: Profile, personas: Sequence[str]) -> Strings:
    """The tools of a new agent: those it was given, the default ones, and one to write to others if it leads them."""
    tools = [*profile.tools]
    if sent.include_base_tools is not False:
        tools += _DEFAULT_TOOLS
    if is_supervisor(profile, "\n".join(personas)) or sent.include_multi_agent_tools:
        tools.append(MATCHING)
    return tuple(dict.fromkeys(tools))


def _first_turns(messages: Sequence[MessageCreate]) -> list[Turn]:
    """The messages that an agent begins with, as it remembers them."""
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        if message.role not in ("user", "assistant"):
            reason = f"initial_message_sequence[{number}].role is {message.role[:40]!r}; it must be user or assistant"
            raise invalid(f"{reason}: what an agent is to be told beforehand goes into system")
        if text := text_of(message.content).strip():
            turns.append(Turn("user" if message.role == "user" else "assistant", text))
    return turns


async def _save(call: Call, profile: Profile, own: Sequence[Block], shared: Sequence[Block]) -> Profile:
    """Keep an agent and its blocks. All of it is handed to the store at once, in this order, to be written together."""
    catalog = call.catalog
    try:
        async with BareTaskGroup() as jobs:
            saved = jobs.create_task(catalog.add(profile))
            for block in own:
                jobs.create_task(catalog.add(block))
            for block in (*shared, *own):
                jobs.create_task(catalog.attach(profile.id, block.id, FULL_ACCESS))
    except Exception:  # a block may have been deleted since it was looked for
        for kind, which in ((Profile, profile.id), *((Block, block.id) for block in own)):
            await catalog.delete(kind, which)
        raise
    return saved.result()


# --- one agent


def _change_fields(call: Call, profile: Profile, sent: AgentUpdate, tools: Strings | None) -> Profile:
    """An agent with what was sent of it."""
    settings = merge_model_fields(profile.settings, sent)
    for name in SETTINGS:
        value = getattr(sent, name, UNSET)
        if value is None:
            settings.pop(name, None)
        elif value is not UNSET:
            settings[name] = value
    model = sent.model
    if model is None and sent.llm_config is not None:
        model = _configured_model(profile, sent.llm_config)
    if model is not None and model != profile.model:
        check_model("llm_config" if sent.model is None else "model", model, call.tenant)
    return replace_given(
        profile,
        name=sent.name,
        description=sent.description,
        prompt=sent.system,
        model=model,
        tags=None if sent.tags is None else tuple(dict.fromkeys(sent.tags)),
        tools=tools,
        metadata=sent.metadata,
        settings=settings,
    )


def _configured_model(profile: Profile, config: ModelConfig) -> str:
    """The model that `llm_config` names. If it is sent back as it was read, the agent keeps the one it asked for."""
    if config.model == _model_name(profile.model):
        return profile.model
    return named_model(config) or profile.model


def named_model(config: ModelConfig) -> str:
    """The handle of the model that `llm_config` names; empty if it names none."""
    if config.handle:
        return config.handle
    has_provider = "://" in config.model or provider_of(config.model) in (BUILT_IN, *OWN, *OTHERS)
    if has_provider or not config.model or not config.model_endpoint_type:
        return config.model
    return f"{config.model_endpoint_type}/{config.model}"


def _check(profile: Profile) -> None:
    """Raise a problem for fields that cannot be kept. The name stands in prompts, lists and logs."""
    name = profile.name
    if not name.strip() or len(name) > _MAX_NAME or _CONTROL.search(name):
        advice = f"use up to {_MAX_NAME} characters on one line"
        raise invalid(f"{name[:60]!r} cannot be the name of an agent; {advice}")
    check_choice("agent_type", profile.settings.get("agent_type", _DEFAULT_TYPE), AGENT_TYPES)
    check_timezone(profile.settings.get("timezone"))
    encode_value(profile)


@routes.get(_AGENT)
async def retrieve(call: Call) -> Table:
    return await describe_agent(call, await call.agent())


@routes.patch(_AGENT)
async def update(call: Call) -> Table:
    sent = await call.body(AgentUpdate)
    check_fields(await call.raw_body(), AgentUpdate)
    tools = None if sent.tool_ids is None else await tool_names(call.catalog, (), sent.tool_ids)

    async def change(profile: Profile) -> Profile:
        changed = _change_fields(call, profile, sent, tools)
        if tools is None and is_supervisor(changed) and not is_supervisor(profile):
            changed = structs.replace(changed, tools=tuple(dict.fromkeys((*changed.tools, MATCHING))))
        _check(changed)
        if sent.tool_rules is not UNSET:
            check_rules(changed.settings.get("tool_rules"), changed.tools)
        if sent.block_ids is not None:
            await _set_blocks(call, profile.id, sent.block_ids)
        return changed

    return await change_agent(call, change)


async def change_agent(call: Call, change: Callable[[Profile], Awaitable[Profile]]) -> Table:
    """Change the agent that the path names, as it is then."""
    async with lock_of(call.tenant, call.path("agent")):
        profile = await call.catalog.change(await change(await call.agent()))
    return await describe_agent(call, profile)


async def _set_blocks(call: Call, agent: str, wanted: Sequence[str]) -> None:
    """Give an agent these blocks of its own, and no others; nothing is changed if one of them is unknown."""
    for block in wanted:
        await call.find(Block, block)
    attached = await call.catalog.attached(agent)
    held = [each.thing.id for each in attached if isinstance(each.thing, Block) and not each.via]
    for block in held:
        if block not in wanted:
            await call.catalog.detach(agent, block)
    for block in dict.fromkeys(wanted):
        if block not in held:
            await call.catalog.attach(agent, block, FULL_ACCESS)


@routes.delete(_AGENT)
async def delete(call: Call) -> dict[str, str]:
    """With its conversations and what was attached; blocks and archives stay, others may have them too."""
    agent = call.path("agent")
    sessions = call.sessions
    async with lock_of(call.tenant, agent):
        await call.delete(Profile)
    for conversation in await call.catalog.find(KeptConversation, tags=Match((agent,), ()), limit=_MAX_COUNT):
        await sessions.cancel(await sessions.open_runs(conversation.id), "the agent was deleted")
        await call.catalog.delete(KeptConversation, conversation.id)
    await sessions.forget(agent)
    return {"message": f"agent {agent} was deleted"}


@routes.post(f"{_AGENT}/recompile", "read")
async def recompile(call: Call) -> str:
    """What the agent would be told now. Nothing needs to be compiled: blocks are read before each step."""
    return await call.sessions.executor.system_prompt(await call.agent())


# --- what is attached


@routes.patch(f"{_AGENT}/archives/attach/{{archive}}")
async def attach_archive_to_agent(call: Call) -> None:
    profile = await call.agent()
    await attach_archive(call.tenant, profile.id, (await call.find(Archive)).id)


@routes.patch(f"{_AGENT}/archives/detach/{{archive}}")
async def detach_archive(call: Call) -> None:
    await call.catalog.detach((await call.agent()).id, call.path("archive"))


@routes.patch(f"{_AGENT}/core-memory/blocks/attach/{{block}}")
async def attach_block(call: Call) -> Table:
    profile = await call.agent()
    await call.catalog.attach(profile.id, (await call.find(Block)).id, FULL_ACCESS)
    return await describe_agent(call, profile)


@routes.patch(f"{_AGENT}/core-memory/blocks/detach/{{block}}")
async def detach_block(call: Call) -> Table:
    profile = await call.agent()
    await call.catalog.detach(profile.id, call.path("block"))
    return await describe_agent(call, profile)


@routes.get(f"{_AGENT}/core-memory/blocks")
async def list_blocks(call: Call) -> list[BlockResponse]:
    blocks = await blocks_of(call.tenant, (await call.agent()).id)
    return [describe_block(block) for block in call.page(100, "desc").cut(blocks)]


async def _block_with_label(call: Call) -> Block:
    label = call.path("label")
    for block in await blocks_of(call.tenant, (await call.agent()).id):
        if block.label == label:
            return block
    raise unknown("block with the label", label)


@routes.get(f"{_AGENT}/core-memory/blocks/{{label}}")
async def retrieve_block(call: Call) -> Response:
    return send_block(await _block_with_label(call))


@routes.patch(f"{_AGENT}/core-memory/blocks/{{label}}")
async def change_block(call: Call) -> Response:
    return await update_block(call, (await _block_with_label(call)).id)


@routes.get(f"{_AGENT}/tools")
async def list_tools(call: Call) -> list[ToolResponse]:
    profile = await call.agent()
    tools = await describe_tools(call.tenant, [profile])
    return call.page(10, "desc").cut([tools[name] for name in profile.tools if name in tools])


@routes.patch(f"{_AGENT}/tools/attach/{{tool}}")
async def attach_tool(call: Call) -> Table:
    return await _change_tools(call, lambda tools, names: (*tools, *names))


@routes.patch(f"{_AGENT}/tools/detach/{{tool}}")
async def detach_tool(call: Call) -> Table:
    return await _change_tools(call, lambda tools, names: tuple(tool for tool in tools if tool not in names))


async def _change_tools(call: Call, change: Callable[[Strings, Strings], Strings]) -> Table:
    names = await tool_names(call.catalog, (), [call.path("tool")])

    async def change_tools(profile: Profile) -> Profile:
        return structs.replace(profile, tools=tuple(dict.fromkeys(change(profile.tools, names))))

    return await change_agent(call, change_tools)
