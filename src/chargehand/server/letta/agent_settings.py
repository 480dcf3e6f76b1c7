"""Settings that clients send with an agent: what they mean for its model, and which are refused by name.

Letta knows several names for the same setting (`max_tokens`, `model_settings.max_output_tokens`,
`llm_config.max_tokens`). They are kept under one: that of `model_settings`. Nothing is accepted and then ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Struct

from chargehand.agents.shape import Shape
from chargehand.models.exhibits import Product
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Hear, Model, ModelCard
from chargehand.server.letta.schemas import schema_problem
from chargehand.server.problem import Problem
from chargehand.terms.value import encode_value
from chargehand.text.names import did_you_mean

LEAST_WINDOW = 256
"""Tokens of a context window below which no agent could be told anything."""
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
_HOTTEST = 2.0
_REASONING = "how a model reasons is left to the model"
_FILES = "there are no files here; put texts into an archive"
_TEMPLATES = "there are no templates here"
_ENVIRONMENT = "tools run without environment variables"
_EMPTY: tuple[object, ...] = (None, "", [], {})


class Unsupported(Struct, frozen=True):
    """A setting that cannot be honoured. With one of the `harmless` values, or an empty one, it asks for nothing."""

    advice: str
    harmless: tuple[object, ...] = ()


AGENT: Mapping[str, Unsupported] = {
    "compaction_settings": Unsupported("when a conversation is summarised goes by the window: context_window_limit"),
    "embedding_chunk_size": Unsupported("long passages are cut by the server"),
    "embedding_config": Unsupported("name the embedding model by its handle: embedding"),
    "enable_reasoner": Unsupported(_REASONING),
    "enable_sleeptime": Unsupported("a team has background workers instead: `every` in its team file", (False,)),
    "folder_ids": Unsupported(_FILES),
    "from_template": Unsupported(_TEMPLATES),
    "include_default_source": Unsupported(_FILES, (False,)),
    "max_files_open": Unsupported(_FILES),
    "max_reasoning_tokens": Unsupported(_REASONING, (0,)),
    "memory_variables": Unsupported(_TEMPLATES),
    "message_ids": Unsupported("what a model is shown goes by its window; messages.reset forgets all of it"),
    "per_file_view_window_char_limit": Unsupported(_FILES),
    "project": Unsupported("there are no projects here; project_id is kept, and agents can be listed by it"),
    "reasoning": Unsupported(_REASONING),
    "secrets": Unsupported(_ENVIRONMENT),
    "source_ids": Unsupported(_FILES),
    "template": Unsupported(_TEMPLATES, (False,)),
    "tool_exec_environment_variables": Unsupported(_ENVIRONMENT),
}
"""Fields of an agent that this server cannot honour."""
_SAME_HERE = ("include_base_tool_rules",)  # agents of type letta_v1_agent have no base rules, so it is all one

_MODEL_CONFIG_ADVICE = "it has no effect here"
_MODEL_CONFIG: Mapping[str, Unsupported] = {
    "effort": Unsupported(_REASONING),
    "enable_reasoner": Unsupported(_REASONING, (False,)),
    "frequency_penalty": Unsupported(_MODEL_CONFIG_ADVICE, (0, 0.0)),
    "max_reasoning_tokens": Unsupported(_REASONING, (0,)),
    "model_endpoint": Unsupported("name the model by its handle (provider/name): the operator says where it is"),
    "model_wrapper": Unsupported(_MODEL_CONFIG_ADVICE),
    "put_inner_thoughts_in_kwargs": Unsupported(_MODEL_CONFIG_ADVICE, (False,)),
    "reasoning_effort": Unsupported(_REASONING),
    "return_logprobs": Unsupported(_MODEL_CONFIG_ADVICE, (False,)),
    "return_token_ids": Unsupported(_MODEL_CONFIG_ADVICE, (False,)),
    "strict": Unsupported(_MODEL_CONFIG_ADVICE, (False,)),
    "tool_call_parser": Unsupported(_MODEL_CONFIG_ADVICE),
    "top_logprobs": Unsupported(_MODEL_CONFIG_ADVICE),
    "verbosity": Unsupported(_MODEL_CONFIG_ADVICE),
}
_MODEL_SETTINGS: Mapping[str, Unsupported] = {
    "effort": Unsupported(_REASONING),
    "reasoning": Unsupported(_REASONING),
    "strict": Unsupported(_MODEL_CONFIG_ADVICE, (False,)),
    "thinking": Unsupported(_REASONING),
    "thinking_config": Unsupported(_REASONING),
    "tool_call_parser": Unsupported(_MODEL_CONFIG_ADVICE),
    "verbosity": Unsupported(_MODEL_CONFIG_ADVICE),
}
_LABELS = ("display_name", "provider_category", "provider_name", "tier", "compatibility_type")  # they only describe


class ModelOptions(Struct, frozen=True, omit_defaults=True):
    """What `model_settings` of an agent say, as far as it is honoured; `provider_type` only describes."""

    provider_type: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None

    @property
    def takes_cut_replies(self) -> bool:
        """Whether a reply that reaches its limit is an answer: its client said how long it may be."""
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


class ModelConfig(Struct):
    """`llm_config`, which older clients send in place of a handle and settings."""

    model: str = ""
    handle: str | None = None
    model_endpoint_type: str = ""
    context_window: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None


# --- what is refused


def refuse_unsupported(
    sent: Mapping[str, object], known: Sequence[str], unsupported: Mapping[str, Unsupported], place: str = ""
) -> None:
    """Raise a problem that names the first setting which would be ignored: one not honoured here, or not known."""
    for name, value in sent.items():
        if name in known:
            continue
        refusal = unsupported.get(name)
        if refusal is None:
            hint = did_you_mean(name, known, "leave it out")
            raise Problem(422, "unknown_field", f"{place}{name[:60]} is not known here; {hint}")
        if value not in _EMPTY and not any(value is each or value == each for each in refusal.harmless):
            raise Problem(422, "unsupported", f"{place}{name} is not supported: {refusal.advice}; leave it out")


def check_agent_fields(raw: bytes, shape: type[Struct]) -> None:
    """Raise a problem for the first field of an agent, as it was sent, that would have no effect."""
    sent = _table(msgspec.json.decode(raw.strip() or b"{}"))
    refuse_unsupported(sent, (*shape.__struct_fields__, *_SAME_HERE), AGENT)
    honoured = (*ModelConfig.__struct_fields__, *_LABELS)
    refuse_unsupported(_table(sent.get("llm_config")), honoured, _MODEL_CONFIG, "llm_config.")
    check_model_settings(sent.get("model_settings"))


def check_model_settings(sent: object) -> None:
    refuse_unsupported(_table(sent), ModelOptions.__struct_fields__, _MODEL_SETTINGS, "model_settings.")


def _table(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


# --- what is kept


def options_of(settings: Mapping[str, object]) -> ModelOptions:
    """The options among the settings of an agent or a conversation."""
    return msgspec.convert(settings.get("model_settings") or {}, ModelOptions)


def window_of(settings: Mapping[str, object]) -> int | None:
    """The context window that a client allows an agent."""
    wanted = settings.get("context_window_limit")
    return wanted if isinstance(wanted, int) else None


def merged_settings(before: Mapping[str, object], sent: Struct) -> dict[str, object]:
    """`model_settings` and `context_window_limit` as they are after a change; what was not sent stays as it is.

    Where a setting is sent under several names, that of `model_settings` counts.
    """
    options: dict[str, object] = dict(_table(before.get("model_settings")))
    window: object = before.get("context_window_limit")
    config = getattr(sent, "llm_config", None)
    if isinstance(config, ModelConfig):
        window = window if config.context_window is None else config.context_window
        older = {
            "max_output_tokens": config.max_tokens,
            "temperature": config.temperature,
            "parallel_tool_calls": config.parallel_tool_calls,
            "response_format": config.response_format,
        }
        options |= {name: value for name, value in older.items() if value is not None}
    for name, meaning in _OWN_FIELDS.items():
        value: object = getattr(sent, name, UNSET)
        if value is not UNSET:
            options[meaning] = value
    options |= _table(getattr(sent, "model_settings", None))
    limit: object = getattr(sent, "context_window_limit", UNSET)
    if limit is not UNSET:
        window = limit
    kept: dict[str, object] = {}
    if found := {name: options[name] for name in ModelOptions.__struct_fields__ if options.get(name) is not None}:
        kept["model_settings"] = found
    if window is not None:
        kept["context_window_limit"] = window
    check_options(kept)
    return kept


def merged_options(settings: Mapping[str, object], others: Mapping[str, object]) -> dict[str, object]:
    """`model_settings` and `context_window_limit` where those of `others` count before those of an agent."""
    options = {**_table(settings.get("model_settings")), **_table(others.get("model_settings"))}
    window = others.get("context_window_limit", settings.get("context_window_limit"))
    return {"model_settings": options, "context_window_limit": window}


_OWN_FIELDS = {
    "max_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "response_format": "response_format",
}
"""Fields of an agent that mean the same as one of `model_settings`."""


def check_options(settings: Mapping[str, object]) -> None:
    """Raise a problem for values that cannot take effect."""
    try:
        options = options_of(settings)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$.")
        raise Problem(422, "invalid", f"model_settings.{place.rstrip('`')}: {said}") from error
    if options.temperature is not None and not 0 <= options.temperature <= _HOTTEST:
        raise Problem(422, "invalid", f"temperature is {options.temperature}; it must be from 0 to {_HOTTEST:g}")
    if options.max_output_tokens is not None and options.max_output_tokens < 1:
        raise Problem(422, "invalid", f"max_output_tokens is {options.max_output_tokens}; it must be 1 or more")
    window = window_of(settings)
    if window is not None and window < LEAST_WINDOW:
        raise Problem(422, "invalid", f"context_window_limit is {window}; it must be {LEAST_WINDOW} tokens or more")
    _check_format(options)


def _check_format(options: ModelOptions) -> None:
    wanted = options.response_format
    if wanted is None:
        return
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        said = f"response_format.type is {str(kind)[:40]!r}; it must be text, json_object or json_schema"
        raise Problem(422, "invalid", said)
    if kind != "json_schema":
        return
    if not isinstance(wanted.get("json_schema"), dict) or not isinstance(options.schema, dict):
        raise Problem(422, "invalid", "response_format.json_schema must hold a JSON Schema, as its `schema`")
    if problem := schema_problem(options.schema):
        raise Problem(422, "invalid", f"response_format.json_schema: {problem}")


def check_agent_type(kind: str | None) -> None:
    if kind and kind not in AGENT_TYPES:
        raise Problem(422, "invalid", f"agent_type is {kind[:40]!r}; it must be one of {', '.join(AGENT_TYPES)}")


def check_timezone(name: str | None) -> None:
    """Raise a problem for what is no time zone: an agent is told its own."""
    if not name:
        return
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        said = f"timezone is {name[:60]!r}; it must be a name as in Europe/Berlin, or UTC"
        raise Problem(422, "invalid", said) from error


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
