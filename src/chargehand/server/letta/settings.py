"""Settings that clients send with an agent: what they mean for its model, and which are refused by name.

Letta knows several names for the same setting (`max_tokens`, `model_settings.max_output_tokens`,
`llm_config.max_tokens`). They are kept under one: that of `model_settings`. Nothing is accepted and then ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Meta, Struct

from chargehand.agents.shape import Shape
from chargehand.engine.validation import describe_misfit
from chargehand.engine.value import encode_value
from chargehand.models.artifacts import Product
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Hear, Model, ModelCard
from chargehand.server.letta.wire import AgentUpdate, ModelConfig, ModelFields
from chargehand.server.problem import Problem, check_choice, invalid
from chargehand.text.names import did_you_mean
from chargehand.tools.json_schema import schema_problem

AGENT_TYPES = (
    "memgpt_agent",
    "memgpt_v2_agent",
    "letta_v1_agent",
    "react_agent",
    "workflow_agent",
    "split_thread_agent",
    "sleeptime_agent",
    "voice_convo_agent",
    "voice_sleeptime_agent",
)
_REASONING = "how a model reasons is left to the model"
_FILES = "there are no files here; put texts into an archive"
_TEMPLATES = "there are no templates here"
_ENVIRONMENT = "tools run without environment variables"
_NO_EFFECT = "it has no effect here"
_AGENT: Mapping[str, str] = {
    "compaction_settings": "when a conversation is summarised goes by the window: context_window_limit",
    "embedding_chunk_size": "long passages are cut by the server",
    "embedding_config": "name the embedding model by its handle: embedding",
    "enable_reasoner": _REASONING,
    "enable_sleeptime": "a team has background workers instead: `every` in its team file",
    "folder_ids": _FILES,
    "from_template": _TEMPLATES,
    "include_default_source": _FILES,
    "max_files_open": _FILES,
    "max_reasoning_tokens": _REASONING,
    "memory_variables": _TEMPLATES,
    "message_ids": "what a model is shown goes by its window; messages.reset forgets all of it",
    "per_file_view_window_char_limit": _FILES,
    "project": "there are no projects here; project_id is kept, and agents can be listed by it",
    "reasoning": _REASONING,
    "secrets": _ENVIRONMENT,
    "source_ids": _FILES,
    "template": _TEMPLATES,
    "tool_exec_environment_variables": _ENVIRONMENT,
}
"""Fields of an agent that this server does not honour, and what to do instead."""
_MODEL: Mapping[str, str] = {
    "effort": _REASONING,
    "enable_reasoner": _REASONING,
    "frequency_penalty": _NO_EFFECT,
    "max_reasoning_tokens": _REASONING,
    "model_endpoint": "name the model by its handle (provider/name): the operator says where it is",
    "model_wrapper": _NO_EFFECT,
    "put_inner_thoughts_in_kwargs": _NO_EFFECT,
    "reasoning": _REASONING,
    "reasoning_effort": _REASONING,
    "return_logprobs": _NO_EFFECT,
    "return_token_ids": _NO_EFFECT,
    "strict": _NO_EFFECT,
    "thinking": _REASONING,
    "thinking_config": _REASONING,
    "tool_call_parser": _NO_EFFECT,
    "top_logprobs": _NO_EFFECT,
    "verbosity": _NO_EFFECT,
}
"""The same of `model_settings` and `llm_config`."""
_LABELS = ("display_name", "provider_category", "provider_name", "tier", "compatibility_type")  # they only describe


class ModelOptions(Struct, frozen=True, omit_defaults=True):
    """The `model_settings` that are honoured; `provider_type` only describes."""

    provider_type: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None

    @property
    def accepts_cut_replies(self) -> bool:
        """Whether a reply that reaches its limit is an answer: the client set that limit."""
        return self.max_output_tokens is not None

    @property
    def sampling(self) -> Settings:
        return Settings(self.temperature, self.max_output_tokens, self.parallel_tool_calls)

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema that replies must have; None where they are prose."""
        wanted = self.response_format or {}
        if wanted.get("type") == "json_object":
            return {"type": "object"}
        if wanted.get("type") != "json_schema":
            return None
        given = cast("dict[str, Any]", wanted["json_schema"])
        return cast("dict[str, Any]", given.get("schema", given))


# --- what is refused


def refuse_unsupported(
    sent: Mapping[str, object], known: Sequence[str], unsupported: Mapping[str, str], place: str = ""
) -> None:
    """Raise a problem that names the first setting that would be ignored: one not honoured here, or not known.

    An unsupported setting that is empty or false asks for nothing; but not to reason is asking for something.
    """
    for name, value in sent.items():
        if name in known:
            continue
        if name not in unsupported:
            hint = did_you_mean(name, known, "leave it out")
            raise Problem(422, "unknown_field", f"{place}{name[:60]} is not known here; {hint}")
        asks_for_nothing = not value or str(value).lower() == "false"
        if not asks_for_nothing or (name == "reasoning" and value is False):
            raise Problem(422, "unsupported", f"{place}{name} is not supported: {unsupported[name]}; leave it out")


def check_fields(raw: bytes, shape: type[Struct], unsupported: Mapping[str, str] = _AGENT) -> dict[str, object]:
    """Raise a problem for the first field of a body that would have no effect; else the body as it was sent."""
    sent = as_table(msgspec.json.decode(raw.strip() or b"{}"))
    refuse_unsupported(sent, shape.__struct_fields__, unsupported)
    config = (*ModelConfig.__struct_fields__, *_LABELS)
    refuse_unsupported(as_table(sent.get("llm_config")), config, _MODEL, "llm_config.")
    options = ModelOptions.__struct_fields__
    refuse_unsupported(as_table(sent.get("model_settings")), options, _MODEL, "model_settings.")
    return sent


def as_table(value: object) -> dict[str, object]:
    """A JSON object; empty if the value is none."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """A JSON array; empty if the value is none."""
    return cast("list[object]", value) if isinstance(value, list) else []


# --- what is kept


def options_of(settings: Mapping[str, object]) -> ModelOptions:
    """The options among the settings of an agent or a conversation."""
    return msgspec.convert(settings.get("model_settings") or {}, ModelOptions)


def window_of(settings: Mapping[str, object]) -> int | None:
    """The context window that a client allows an agent."""
    wanted = settings.get("context_window_limit")
    return wanted if isinstance(wanted, int) else None


def merge_model_fields(settings: Mapping[str, object], sent: ModelFields) -> dict[str, object]:
    """Settings with what was sent of `model_settings` and `context_window_limit`; what was not sent stays as it is.

    Where a setting is sent under several names, that of `model_settings` counts.
    """
    options = as_table(settings.get("model_settings"))
    window = settings.get("context_window_limit")
    if isinstance(sent, AgentUpdate):
        if sent.llm_config is not None:
            window = sent.llm_config.context_window or window
        options = {**options, **_options_by_other_names(sent)}
    options = {**options, **as_table(sent.model_settings)}
    if sent.context_window_limit is not UNSET:
        window = sent.context_window_limit
    kept = {name: options[name] for name in ModelOptions.__struct_fields__ if options.get(name) is not None}
    merged: dict[str, object] = {**settings, "model_settings": kept or None, "context_window_limit": window}
    _check_options(merged)
    return {name: value for name, value in merged.items() if value is not None}


def _options_by_other_names(sent: AgentUpdate) -> dict[str, object]:
    config = sent.llm_config or ModelConfig()
    older = {
        "max_output_tokens": config.max_tokens,
        "temperature": config.temperature,
        "parallel_tool_calls": config.parallel_tool_calls,
        "response_format": config.response_format,
    }
    own = {
        "max_output_tokens": sent.max_tokens,
        "parallel_tool_calls": sent.parallel_tool_calls,
        "response_format": sent.response_format,
    }
    options: dict[str, object] = {name: value for name, value in older.items() if value is not None}
    return options | {name: value for name, value in own.items() if value is not UNSET}


def override_settings(settings: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """The settings of an agent where those of a conversation count first."""
    options = {**as_table(settings.get("model_settings")), **as_table(overrides.get("model_settings"))}
    window = overrides.get("context_window_limit", settings.get("context_window_limit"))
    return {**settings, "model_settings": options, "context_window_limit": window}


def _check_options(settings: Mapping[str, object]) -> None:
    """Raise a problem for values that cannot take effect."""
    try:
        options = options_of(settings)
    except msgspec.ValidationError as error:
        found = describe_misfit(error, ModelOptions, settings.get("model_settings"))
        raise invalid(f"model_settings{found.place.removeprefix('$')}: {found.message}") from error
    if options.response_format is not None:
        _check_response_format(options, options.response_format)


def _check_response_format(options: ModelOptions, wanted: dict[str, Any]) -> None:
    check_choice("response_format.type", wanted.get("type"), ("text", "json_object", "json_schema"))
    if wanted["type"] != "json_schema":
        return
    if not isinstance(wanted.get("json_schema"), dict) or not isinstance(options.schema, dict):
        raise invalid("response_format.json_schema must hold a JSON Schema, as its `schema`")
    if problem := schema_problem(options.schema):
        raise invalid(f"response_format.json_schema: {problem}")


def check_timezone(name: object) -> None:
    """Raise a problem for what is no time zone: an agent is told its own."""
    if not name:
        return
    try:
        ZoneInfo(str(name))
    except (KeyError, ValueError, OSError) as error:
        example = "it must be a name as in Europe/Berlin, or UTC"
        raise invalid(f"timezone is {str(name)[:60]!r}; {example}") from error


# --- how they take effect


class JsonReply(Shape):
    """What a client's `response_format` asks for: a reply that fits is passed on as the text it is."""

    def read(self, text: str) -> object:
        value = super().read(text)
        stripped = text.strip()
        try:
            msgspec.json.decode(stripped)
        except (msgspec.DecodeError, UnicodeError, RecursionError):  # there was something around it
            stripped = bytes(encode_value(value)).decode()
        return Product(stripped)


class BoundedModel(Struct, frozen=True):
    """A model within the settings of an agent: a smaller window, and at most one call of a tool in a reply."""

    model: Model
    window: int | None = None
    one_call: bool = False

    @property
    def card(self) -> ModelCard:
        card = self.model.card
        if self.window is None or self.window >= card.window:
            return card
        return msgspec.structs.replace(card, window=self.window)

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        reply = await self.model.reply(request, hear)
        if self.one_call and len(reply.calls) > 1:  # not every provider keeps to the setting
            return msgspec.structs.replace(reply, calls=reply.calls[:1])
        return reply


def bound_model(model: Model, settings: Mapping[str, object]) -> Model:
    """The model as an agent with these settings has it."""
    window = window_of(settings)
    one_call = options_of(settings).parallel_tool_calls is False
    return BoundedModel(model, window, one_call) if window is not None or one_call else model
