"""What travels between `letta-client` and this server. Fields of a response that are never set are left out.

Times are ISO 8601 in UTC. `UNSET` is what was not sent, where that differs from null; else null counts as not sent.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field

from chargehand.engine.policy import Instant
from chargehand.server.wire import invalid
from chargehand.text.dates import parse_instant

Value = TypeVar("Value")
Nullable: TypeAlias = Value | UnsetType | None
"""A field for which null has a meaning of its own: it takes a setting away."""
Table: TypeAlias = dict[str, Any]
Strings: TypeAlias = tuple[str, ...]
Window: TypeAlias = Annotated[int, Meta(ge=256)]
"""Tokens of a context window; with fewer an agent could not be told anything."""
_FIRST = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST = 253_402_300_799.0


def format_time(at: Instant) -> str:
    """A time as it is sent; one beyond what ISO 8601 can write is the nearest that it can."""
    return datetime.fromtimestamp(min(max(at, _FIRST), _LAST), UTC).isoformat()


def parse_time(text: str | None, name: str) -> Instant | None:
    """A time that a client wrote, if it wrote one; without a zone it is UTC."""
    if not text:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise invalid(f"{name} is {text[:60]!r}, which is no ISO 8601 time") from error


# --- blocks


class BlockUpdate(Struct, frozen=True):
    """A change of a block. `version` is that of the block as its client knows it."""

    label: str | None = None
    value: str | None = None
    description: str | None = None
    limit: int | None = None
    read_only: bool | None = None
    metadata: Table | None = None
    tags: Strings | None = None
    version: int | None = None


class BlockCreate(BlockUpdate, frozen=True, kw_only=True):
    """A new block; also one inside a new agent."""

    label: str  # pyright: ignore[reportGeneralTypeIssues] - a new block needs it
    value: str  # pyright: ignore[reportGeneralTypeIssues] - as above


class BlockResponse(Struct, omit_defaults=True):
    """`version`, `tainted` and `untainted` are additions of this server.

    A client that sends `version` with a change (or as If-Match) changes only what it has seen. A tainted block was
    changed by an agent that had seen text from outside; `untainted` is its text before that.
    """

    id: str
    value: str
    label: str
    limit: int
    read_only: bool
    tags: Strings
    metadata: Table
    version: int
    description: str = ""
    tainted: bool = False
    untainted: str = ""


# --- archives and passages


class ArchiveUpdate(Struct):
    name: str | None = None
    description: str | None = None


class ArchiveCreate(Struct):
    name: str
    description: str | None = None
    metadata: Table | None = None


class PassageCreate(Struct):
    text: str
    tags: Strings | None = None
    metadata: Table | None = None
    created_at: str | None = None


class PassageBatch(Struct):
    passages: list[PassageCreate]


class PassageQuery(Struct):
    query: str | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: Strings | None = None
    tag_match_mode: Literal["any", "all"] | None = None
    limit: int | None = None
    start_date: str | None = None
    end_date: str | None = None


# --- agents


class AgentUpdate(Struct):
    """A change of an agent. Tools are named by id. `letta.settings` says what the settings mean."""

    name: str | None = None
    description: str | None = None
    system: str | None = None
    model: str | None = None
    tags: Strings | None = None
    tool_ids: Strings | None = None
    metadata: Table | None = None
    model_settings: Nullable[Table] = UNSET
    context_window_limit: Nullable[Window] = UNSET
    max_tokens: Nullable[int] = UNSET
    response_format: Nullable[Table] = UNSET
    parallel_tool_calls: Nullable[bool] = UNSET
    embedding: Nullable[str] = UNSET
    tool_rules: Nullable[list[Table]] = UNSET
    message_buffer_autoclear: Nullable[bool] = UNSET
    timezone: Nullable[str] = UNSET


class ApprovalEntry(Struct):
    """A verdict on one call, or what the call returned at the client."""

    tool_call_id: str = ""
    approve: bool | None = None
    reason: str | None = None
    tool_return: str | list[Table] | None = None
    status: str | None = None


class MessageCreate(Struct, omit_defaults=True):
    """`content` is a text, or parts of which the texts count.

    A message of the type `approval` allows calls or rejects them. One of the type `tool_return` says what calls
    returned that the client made itself.
    """

    role: str = "user"
    content: str | list[Table] | None = ""
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    type: str | None = None
    approve: bool | None = None
    approvals: list[ApprovalEntry] | None = None
    approval_request_id: str | None = None
    reason: str | None = None
    tool_returns: list[ApprovalEntry] | None = None


class AgentCreate(AgentUpdate):
    """A new agent. `tools` are names, `tool_ids` ids; base tools are added unless refused."""

    memory_blocks: tuple[BlockCreate, ...] | None = None
    block_ids: Strings | None = None
    tools: Strings | None = None
    include_base_tools: bool | None = None
    agent_type: Nullable[str] = UNSET


class ToolResponse(Struct, omit_defaults=True):
    id: str
    name: str
    description: str
    json_schema: Table
    tool_type: str
    tags: Strings = ()
    source_type: str = ""
    source_code: str = ""
    return_char_limit: int = 0
    default_requires_approval: bool = False


# --- messages


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the client runs itself; `parameters` is a JSON Schema of one object."""

    name: str
    description: str | None = None
    parameters: Table | None = None


class MessageRequest(Struct):
    """What an agent is sent, and how the answer is wanted. `agent_id` is for a conversation called `default`."""

    messages: tuple[MessageCreate, ...] | None = ()
    input: str | list[Table] | None = None
    max_steps: Annotated[int, Meta(ge=1, le=500)] | None = None
    streaming: bool | None = None
    stream_tokens: bool | None = None
    background: bool | None = None
    include_return_message_types: Strings | None = None
    override_model: str | None = None
    override_system: str | None = None
    client_tools: Annotated[tuple[ClientTool, ...], Meta(max_length=128)] | None = None
    agent_id: str | None = None


class CancelRequest(Struct):
    run_ids: Strings | None = None


class StreamRequest(Struct):
    """What of a run is streamed. `agent_id` is for a conversation called `default`."""

    starting_after: int | None = None
    agent_id: str | None = None


class ToolCallWire(Struct):
    name: str
    arguments: str
    tool_call_id: str


class VerdictWire(Struct):
    """The answer about a call: whether it may be made, or (`type` is `tool`) what it returned at the client."""

    approve: bool
    tool_call_id: str
    reason: str | None = None
    type: str = "approval"
    tool_return: str | None = None
    status: str | None = None


class LettaMessage(Struct, omit_defaults=True):
    """One message of any type; what a type does not have is left out. `seq_id` counts within a run."""

    message_type: str
    id: str
    date: str
    run_id: str
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    seq_id: int = 0
    is_err: bool | None = None
    content: str | None = None
    reasoning: str | None = None
    source: str | None = None
    tool_call: ToolCallWire | None = None
    tool_calls: tuple[ToolCallWire, ...] | None = None
    tool_return: str | None = None
    tool_call_id: str | None = None
    status: str | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    approvals: tuple[VerdictWire, ...] | None = None
    reason: str | None = None


class StopReason(Struct):
    stop_reason: str
    message_type: str = "stop_reason"


class UsageStatistics(Struct):
    completion_tokens: int = 0
    prompt_tokens: int = 0
    total_tokens: int = 0
    step_count: int = 0
    run_ids: Strings | None = None
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    context_tokens: int | None = None
    message_type: str = "usage_statistics"


class LettaResponse(Struct):
    messages: list[LettaMessage]
    stop_reason: StopReason
    usage: UsageStatistics


class ErrorMessage(Struct):
    """Why a run failed, in a stream."""

    run_id: str
    message: str
    error_type: str = "error"
    message_type: str = "error_message"


# --- runs


class RunResponse(Struct):
    id: str
    agent_id: str
    status: str
    created_at: str
    completed_at: str | None = None
    stop_reason: str | None = None
    background: bool = False
    metadata: Table = field(default_factory=dict[str, Any])
    total_duration_ns: int | None = None
    conversation_id: str | None = None
