"""From an agent as it is kept to what `letta-client` reads, and back. Pure."""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

from msgspec import UNSET, structs

from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Profile
from chargehand.models.model import ModelCard
from chargehand.server.letta.agent_settings import (
    ModelConfig,
    check_agent_type,
    check_timezone,
    merged_settings,
    options_of,
    window_of,
)
from chargehand.server.letta.agent_shapes import (
    KEPT,
    WITH_MODEL,
    AgentChange,
    AgentSent,
    AgentTold,
    MemoryTold,
    ModelTold,
    ToolTold,
)
from chargehand.server.letta.mapping import block_told, given, items
from chargehand.server.letta.shapes import moment
from chargehand.server.problem import Problem

# --- names of models

_MANNERS = (
    "Amber",
    "Bold",
    "Brisk",
    "Calm",
    "Clear",
    "Deft",
    "Eager",
    "Early",
    "Fair",
    "Fleet",
    "Gentle",
    "Glad",
    "Golden",
    "Keen",
    "Kind",
    "Lively",
    "Merry",
    "Mild",
    "Nimble",
    "Patient",
    "Plain",
    "Quick",
    "Quiet",
    "Ready",
    "Silver",
    "Steady",
    "Sunny",
    "Swift",
    "Tidy",
    "True",
    "Warm",
    "Wise",
)
_CREATURES = (
    "Badger",
    "Beaver",
    "Crane",
    "Curlew",
    "Deer",
    "Dipper",
    "Dove",
    "Falcon",
    "Finch",
    "Fox",
    "Hare",
    "Hawk",
    "Heron",
    "Ibis",
    "Jay",
    "Kestrel",
    "Lark",
    "Linnet",
    "Marten",
    "Merlin",
    "Otter",
    "Owl",
    "Petrel",
    "Plover",
    "Puffin",
    "Raven",
    "Robin",
    "Stoat",
    "Swallow",
    "Tern",
    "Thrush",
    "Wren",
)


def pleasant_name(which: str) -> str:
    """A name somebody can say, with a few signs of the id behind it so that no two agents share one."""
    digest = blake2b(which.encode(), digest_size=2).digest()
    manner = _MANNERS[digest[0] % len(_MANNERS)]
    creature = _CREATURES[digest[1] % len(_CREATURES)]
    return f"{manner}{creature}-{which.rpartition('-')[2][:6]}"


_TYPE = "letta_v1_agent"
_LONGEST = 500
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENDPOINTS = frozenset(
    (
        "anthropic",
        "azure",
        "bedrock",
        "deepseek",
        "fireworks",
        "groq",
        "llamacpp",
        "mistral",
        "ollama",
        "openai",
        "openrouter",
        "together",
        "vllm",
        "xai",
    )
)
"""The kinds of model server that the client knows; to all others one speaks as to OpenAI."""


def check_name(name: str) -> None:
    """Raise a problem for what cannot be a name: it stands in prompts, lists and logs."""
    if not name.strip() or len(name) > _LONGEST or _CONTROL.search(name):
        raise Problem(
            422, "invalid", f"{name[:60]!r} cannot be the name of an agent; use up to {_LONGEST} characters on one line"
        )


def agent_made(sent: AgentSent, which: str, tools: tuple[str, ...]) -> Profile:
    """A new agent, with a name of ours if it was given none."""
    model = sent.model or _handle(sent.llm_config)
    settings = {name: value for name in KEPT if (value := getattr(sent, name, None)) is not None}
    settings |= merged_settings({}, sent)
    check_agent_type(sent.agent_type)
    check_timezone(sent.timezone)
    return Profile(
        name=sent.name or pleasant_name(which),
        description=sent.description or "",
        prompt=sent.system or "",
        model=model or "",
        tags=tuple(dict.fromkeys(sent.tags or ())),
        tools=tools,
        metadata=dict(sent.metadata or {}),
        settings=settings,
        id=which,
    )


def _handle(config: ModelConfig | None) -> str:
    return (config.handle or config.model) if config is not None else ""


def _changed_model(profile: Profile, config: ModelConfig | None) -> str:
    """The model that `llm_config` names. Where it is sent back as it was read, the agent keeps the one it asked for."""
    if config is not None and config.model == _model_name(profile.model):
        return profile.model
    return _handle(config) or profile.model


def _model_name(handle: str) -> str:
    return handle.partition("/")[2] or handle


def agent_changed(profile: Profile, sent: AgentChange, tools: tuple[str, ...] | None) -> Profile:
    settings = {name: value for name, value in profile.settings.items() if name not in WITH_MODEL}
    settings |= merged_settings(profile.settings, sent)
    check_timezone(given(sent.timezone, ""))
    for name in KEPT:
        value = getattr(sent, name, UNSET)
        if value is None:
            settings.pop(name, None)
        elif value is not UNSET:
            settings[name] = value
    return structs.replace(
        profile,
        name=given(sent.name, profile.name),
        description=given(sent.description, profile.description),
        prompt=given(sent.system, profile.prompt),
        model=given(sent.model, _changed_model(profile, given(sent.llm_config, None))),
        tags=tuple(dict.fromkeys(given(sent.tags, profile.tags))),
        tools=profile.tools if tools is None else tools,
        metadata=dict(given(sent.metadata, profile.metadata)),
        settings=settings,
    )


def agent_told(profile: Profile, blocks: Sequence[Block], tools: list[ToolTold], card: ModelCard) -> AgentTold:
    kept = profile.settings
    shown = [block_told(one) for one in blocks]
    kind = str(kept.get("agent_type") or _TYPE)
    options = options_of(kept)
    extra = cast("dict[str, Any]", {name: kept[name] for name in KEPT if name in kept and name in _AS_THEY_ARE})
    extra |= {name: kept[name] for name in WITH_MODEL if name in kept}
    extra |= {"response_format": options.response_format, "parallel_tool_calls": options.parallel_tool_calls}
    return AgentTold(
        id=profile.id,
        name=profile.name,
        agent_type=kind,
        system=profile.prompt,
        description=profile.description or None,
        model=profile.model or card.handle,
        llm_config=_model(profile, card),
        blocks=shown,
        memory=MemoryTold(shown, agent_type=kind),
        tools=tools,
        tags=profile.tags,
        tool_rules=cast("list[dict[str, Any]]", kept.get("tool_rules") or []),
        metadata=profile.metadata,
        created_at=moment(profile.created),
        updated_at=moment(profile.updated),
        message_buffer_autoclear=bool(kept.get("message_buffer_autoclear")),
        identity_ids=[str(one) for one in items(kept.get("identity_ids"))],
        message_ids=(),
        sources=(),
        secrets=(),
        tool_exec_environment_variables=(),
        identities=(),
        **extra,
    )


_AS_THEY_ARE = frozenset(KEPT) & frozenset(AgentTold.__struct_fields__) - {
    "agent_type",
    "tool_rules",
    "message_buffer_autoclear",
    "identity_ids",
}


def _model(profile: Profile, card: ModelCard) -> ModelTold:
    provider = profile.model.partition("/")[0] if "/" in profile.model else card.handle.partition(":")[0]
    options = options_of(profile.settings)
    window = window_of(profile.settings)
    return ModelTold(
        model=_model_name(profile.model) or card.handle,
        model_endpoint_type=provider if provider in _ENDPOINTS else "openai",
        context_window=card.window if window is None else min(window, card.window),
        handle=card.handle,
        provider_name=provider or None,
        max_tokens=options.max_output_tokens,
        temperature=options.temperature,
        parallel_tool_calls=options.parallel_tool_calls,
        response_format=options.response_format,
    )
