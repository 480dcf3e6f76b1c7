"""Messages, runs and steps as they travel between `letta-client` and us."""

from typing import Any

from msgspec import Struct, field

from chargehand.server.letta.client_tools import ClientTool


class MessageSent(Struct):
    """`content` is a text, or parts of which the texts count. One of the type `approval` allows a call, or does not.

    One of the type `tool_return` says what calls came to that the client made itself.
    """

    role: str = "user"
    content: str | list[dict[str, Any]] | None = ""
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    type: str | None = None
    approve: bool | None = None
    approvals: list[dict[str, Any]] | None = None
    approval_request_id: str | None = None
    reason: str | None = None
    tool_returns: list[dict[str, Any]] | None = None


class TalkSent(Struct):
    """What an agent is to be told, and how the answer is wanted."""

    messages: tuple[MessageSent, ...] | None = ()
    input: str | list[dict[str, Any]] | None = None
    max_steps: int | None = None
    streaming: bool | None = None
    stream_tokens: bool | None = None
    include_pings: bool | None = None
    background: bool | None = None
    include_return_message_types: tuple[str, ...] | None = None
    override_model: str | None = None
    override_system: str | None = None
    callback_url: str | None = None
    client_tools: tuple[ClientTool, ...] | None = None


class ConversationTalkSent(TalkSent):
    """The same in a conversation. `agent_id` says whose, where the conversation is called `default`."""

    agent_id: str | None = None


class CancelSent(Struct):
    run_ids: tuple[str, ...] | None = None


class ResetSent(Struct):
    add_default_initial_messages: bool | None = None


class CompactSent(Struct):
    compaction_settings: dict[str, Any] | None = None
    agent_id: str | None = None


class StreamSent(Struct):
    starting_after: int | None = None
    include_pings: bool | None = None
    agent_id: str | None = None
    run_id: str | None = None
    otid: str | None = None


class SearchSent(Struct):
    query: str = ""
    agent_id: str | None = None
    limit: int | None = None
    start_date: str | None = None
    end_date: str | None = None


class FeedbackSent(Struct):
    feedback: str | None = None
    tags: tuple[str, ...] | None = None


# --- what is told


class CallTold(Struct):
    name: str
    arguments: str
    tool_call_id: str


class VerdictTold(Struct):
    """What was said of a call: that it may be made, or (`type` is `tool`) what it came to at the client."""

    approve: bool
    tool_call_id: str
    reason: str | None = None
    type: str = "approval"
    tool_return: str | None = None
    status: str | None = None


class MessageTold(Struct, omit_defaults=True):
    """One message of any type; what a type does not have is left out. `seq_id` counts within a run."""

    message_type: str
    id: str
    date: str
    run_id: str
    step_id: str | None = None
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    seq_id: int | None = None
    is_err: bool | None = None
    content: str | None = None
    reasoning: str | None = None
    source: str | None = None
    tool_call: CallTold | None = None
    tool_calls: tuple[CallTold, ...] | None = None
    tool_return: str | None = None
    tool_call_id: str | None = None
    status: str | None = None
    stdout: tuple[str, ...] | None = None
    stderr: tuple[str, ...] | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    approvals: tuple[VerdictTold, ...] | None = None
    reason: str | None = None


class StopTold(Struct):
    stop_reason: str
    message_type: str = "stop_reason"


class UsageTold(Struct):
    completion_tokens: int = 0
    prompt_tokens: int = 0
    total_tokens: int = 0
    step_count: int = 0
    run_ids: tuple[str, ...] | None = None
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    context_tokens: int | None = None
    message_type: str = "usage_statistics"


class TalkTold(Struct):
    messages: list[MessageTold]
    stop_reason: StopTold
    usage: UsageTold
    logprobs: None = None
    turns: None = None


class FailureTold(Struct):
    """What went wrong with a run, in a stream."""

    run_id: str
    message: str
    error_type: str = "error"
    message_type: str = "error_message"


class RunTold(Struct):
    id: str
    agent_id: str
    status: str
    created_at: str
    completed_at: str | None = None
    stop_reason: str | None = None
    background: bool | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    callback_url: str | None = None
    total_duration_ns: int | None = None
    ttft_ns: int | None = None
    conversation_id: str | None = None
    base_template_id: str | None = None


class StepTold(Struct):
    """One call of a model, with the calls of tools that followed from it. The last five are ours to count with."""

    id: str
    agent_id: str
    run_id: str
    model: str = ""
    model_handle: str = ""
    provider_name: str = ""
    status: str = "pending"
    stop_reason: str | None = None
    error_type: str | None = None
    error_data: dict[str, Any] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_input_tokens: int = 0
    context_window_limit: int | None = None
    feedback: str | None = None
    tags: tuple[str, ...] = ()
    messages: tuple[()] = ()
    trace_id: str | None = None
    started: float = 0.0
    replied: float = 0.0
    finished: float = 0.0
    attempt: int = 0
    number: int = 0
