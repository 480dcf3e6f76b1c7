"""Agents as they travel between `letta-client` and us."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from chargehand.server.letta.agent_settings import ModelConfig
from chargehand.server.letta.message_shapes import MessageSent, MessageTold
from chargehand.server.letta.shapes import BlockSent, BlockTold


class AgentSent(Struct):
    """An agent that is to be made. `tools` are names, `tool_ids` ids; base tools come along unless refused."""

    name: str | None = None
    description: str | None = None
    system: str | None = None
    model: str | None = None
    llm_config: ModelConfig | None = None
    embedding: str | None = None
    memory_blocks: tuple[BlockSent, ...] | None = None
    block_ids: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    tool_ids: tuple[str, ...] | None = None
    tool_rules: list[dict[str, Any]] | None = None
    include_base_tools: bool | None = None
    include_multi_agent_tools: bool | None = None
    agent_type: str | None = None
    metadata: dict[str, Any] | None = None
    context_window_limit: int | UnsetType | None = UNSET
    max_tokens: int | UnsetType | None = UNSET
    response_format: dict[str, Any] | UnsetType | None = UNSET
    model_settings: dict[str, Any] | UnsetType | None = UNSET
    initial_message_sequence: list[MessageSent] | None = None
    message_buffer_autoclear: bool | None = None
    timezone: str | None = None
    hidden: bool | None = None
    parallel_tool_calls: bool | UnsetType | None = UNSET
    identity_ids: list[str] | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None


class AgentChange(Struct):
    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    system: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    llm_config: ModelConfig | UnsetType | None = UNSET
    embedding: str | UnsetType | None = UNSET
    block_ids: tuple[str, ...] | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType | None = UNSET
    tool_ids: tuple[str, ...] | UnsetType | None = UNSET
    tool_rules: list[dict[str, Any]] | UnsetType | None = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET
    context_window_limit: int | UnsetType | None = UNSET
    max_tokens: int | UnsetType | None = UNSET
    response_format: dict[str, Any] | UnsetType | None = UNSET
    model_settings: dict[str, Any] | UnsetType | None = UNSET
    message_buffer_autoclear: bool | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    hidden: bool | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    identity_ids: list[str] | UnsetType | None = UNSET
    project_id: str | UnsetType | None = UNSET
    template_id: str | UnsetType | None = UNSET
    base_template_id: str | UnsetType | None = UNSET
    last_stop_reason: str | UnsetType | None = UNSET
    last_run_completion: str | UnsetType | None = UNSET
    last_run_duration_ms: int | UnsetType | None = UNSET


KEPT = (
    "embedding",
    "tool_rules",
    "agent_type",
    "message_buffer_autoclear",
    "timezone",
    "hidden",
    "identity_ids",
    "project_id",
    "template_id",
    "base_template_id",
    "last_stop_reason",
    "last_run_completion",
    "last_run_duration_ms",
)
"""What is kept of an agent as it was sent, in its settings."""
WITH_MODEL = ("model_settings", "context_window_limit")
"""What is kept besides, under one name each: `agent_settings` says what of it means what."""


class ToolTold(Struct, omit_defaults=True):
    id: str
    name: str
    description: str
    json_schema: dict[str, Any]
    tool_type: str
    tags: tuple[str, ...] = ()
    source_type: str = "python"
    source_code: str | None = None
    args_json_schema: dict[str, Any] | None = None
    return_char_limit: int = 50_000
    default_requires_approval: bool | None = None
    enable_parallel_execution: bool = True
    metadata_: dict[str, Any] | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class MemoryTold(Struct):
    blocks: list[BlockTold]
    file_blocks: tuple[()] = ()
    agent_type: str = "letta_v1_agent"


class ModelTold(Struct, omit_defaults=True):
    model: str
    model_endpoint_type: str
    context_window: int
    handle: str
    model_endpoint: str | None = None
    provider_name: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None


class AgentTold(Struct, omit_defaults=True):
    """`model` is the handle that was asked for, `llm_config.handle` the model that answers for it.

    What is not known is left out, lists are not: to read an agent costs its client more than it costs us to tell of it.
    """

    id: str
    name: str
    agent_type: str
    system: str
    description: str | None
    model: str
    llm_config: ModelTold
    blocks: list[BlockTold]
    memory: MemoryTold
    tools: list[ToolTold]
    tags: tuple[str, ...]
    tool_rules: list[dict[str, Any]]
    metadata: dict[str, Any]
    created_at: str
    updated_at: str
    message_buffer_autoclear: bool
    identity_ids: list[str]
    message_ids: tuple[()]
    sources: tuple[()]
    secrets: tuple[()]
    tool_exec_environment_variables: tuple[()]
    identities: tuple[()]
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    model_settings: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    context_window_limit: int | None = None
    timezone: str | None = None
    hidden: bool | None = None
    parallel_tool_calls: bool | None = None
    multi_agent_group: None = None
    managed_group: None = None
    pending_approval: MessageTold | None = None
    last_stop_reason: str | None = None
    last_run_completion: str | None = None
    last_run_duration_ms: int | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    created_by_id: str | None = None
    last_updated_by_id: str | None = None
