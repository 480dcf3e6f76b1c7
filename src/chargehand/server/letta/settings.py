"""What clients set of an agent: how it is kept, what is checked, and what is refused by name.

Letta has several names for some settings (`max_tokens`, `model_settings.max_output_tokens`). They are kept under one:
that of `model_settings`. A setting that would have no effect is refused; a few labels are ignored, with a warning.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, structs

from chargehand.engine.declared import describe_misfit
from chargehand.engine.json_schema import schema_problem
from chargehand.memory.catalog import Profile
from chargehand.models.messages import Settings
from chargehand.server.letta.wire import AgentUpdate, Strings, Table, Window
from chargehand.server.wire import Problem, check_choice, invalid
from chargehand.text.words import did_you_mean
from chargehand.tools import rules
from chargehand.tools.rules import ToolRule

logger = logging.getLogger(__name__)


class ModelOptions(Struct, frozen=True, omit_defaults=True):
    """The `model_settings` that are honoured; `provider_type` only describes."""

    provider_type: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    """A reply that reaches it is an answer: the client wants it so short."""
    parallel_tool_calls: bool | None = None
    response_format: Table | None = None

    @property
    def sampling(self) -> Settings:
        return Settings(self.temperature, self.max_output_tokens, self.parallel_tool_calls)

    @property
    def schema(self) -> Table | None:
        """The JSON Schema that replies must have; None where they are prose."""
        wanted = self.response_format or {}
        if wanted.get("type") == "json_object":
            return {"type": "object"}
        if wanted.get("type") != "json_schema":
            return None
        nested = cast("Table", wanted["json_schema"])
        return cast("Table", nested.get("schema", nested))


class AgentSettings(Struct, frozen=True, omit_defaults=True):
    """The settings of an agent as the catalog keeps them."""

    model_settings: ModelOptions = ModelOptions()
    context_window_limit: Window | None = None
    tool_rules: list[Table] = []
    agent_type: str = "letta_v1_agent"
    message_buffer_autoclear: bool = False
    timezone: str | None = None
    embedding: str | None = None
    base_tools: bool = True
    """False for an agent whose client wants it to have only the tools it names."""
    messages_since: float = 0.0
    """When its messages were reset."""


_OPTIONS = {
    "max_tokens": "max_output_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
    "response_format": "response_format",
}
"""Fields of an agent that are model settings, and what they are called there."""


def settings_of(profile: Profile) -> AgentSettings:
    return msgspec.convert(profile.settings, AgentSettings)


def to_catalog(settings: AgentSettings) -> dict[str, object]:
    return msgspec.to_builtins(settings)


def merge(settings: AgentSettings, sent: AgentUpdate) -> AgentSettings:
    """Settings with what was sent of them: null takes one away, what was not sent stays. Checked as a whole."""
    fields = {name: value for name, value in structs.asdict(sent).items() if value is not UNSET}
    options: Table = msgspec.to_builtins(settings.model_settings)
    for name, option in _OPTIONS.items():
        if name in fields:
            options[option] = fields[name]
    options |= fields.get("model_settings") or {}
    own_fields = {name: value for name, value in fields.items() if name in settings.__struct_fields__}
    merged = _without_null({**to_catalog(settings), **own_fields, "model_settings": _without_null(options)})
    try:
        new = msgspec.convert(merged, AgentSettings)
    except msgspec.ValidationError as error:
        misfit = describe_misfit(error, AgentSettings, merged)
        raise invalid(f"{misfit.place.removeprefix('$.')}: {misfit.message}") from error
    _check_response_format(new.model_settings)
    return new


def _without_null(table: Table) -> Table:
    return {name: value for name, value in table.items() if value is not None}


def _check_response_format(options: ModelOptions) -> None:
    wanted = options.response_format
    if wanted is None:
        return
    check_choice("response_format.type", wanted.get("type"), ("text", "json_object", "json_schema"))
    if wanted["type"] != "json_schema":
        return
    if not isinstance(wanted.get("json_schema"), dict) or not isinstance(options.schema, dict):
        raise invalid("response_format.json_schema must hold a JSON Schema, as its `schema`")
    if problem := schema_problem(options.schema):
        raise invalid(f"response_format.json_schema: {problem}")


# --- what is refused

_ADVICE: Mapping[str, Strings] = {
    "how a model reasons is left to the model": ("max_reasoning_tokens", "reasoning", "thinking"),
    "there are no files here; put texts into an archive": ("folder_ids", "source_ids"),
    "there are no templates here": ("from_template", "memory_variables", "template"),
    "tools run without environment variables": ("env_vars_json", "secrets", "tool_exec_environment_variables"),
    "log probabilities and token ids are not returned": ("return_logprobs", "return_token_ids", "top_logprobs"),
    "when a conversation is summarised goes by the window: context_window_limit": ("compaction_settings",),
    "name the embedding model by its handle: embedding": ("embedding_config",),
    "attach and detach blocks one by one: agents.blocks": ("block_ids",),
    "name the model by its handle, model, and set it with model_settings": ("llm_config",),
    "a team has background workers instead: `every` in its team file": ("enable_sleeptime",),
    "what a model is shown goes by its window; messages.reset forgets all of it": ("message_ids",),
    "write what the agent shall know of them into a block, or into override_system": ("client_skills",),
    "this server makes no callbacks; ask for the run, or read its stream": ("callback_url",),
    "there are no groups here; send it to the agent": ("group_id",),
    "conversations are not archived here; delete it": ("archived",),
    "what an agent is to know beforehand goes into system, or into a block": ("initial_message_sequence",),
}
"""Why fields that `letta-client` knows are not supported here, and what to do instead."""
_ADVICE_BY_NAME = {name: advice for advice, names in _ADVICE.items() for name in names}
_IGNORED = frozenset(
    (
        "assistant_message_tool_kwarg",
        "assistant_message_tool_name",
        "base_template_id",
        "batch_size",
        "hidden",
        "identity_ids",
        "include_base_tool_rules",
        "include_pings",
        "poll_interval",
        "project_id",
        "template_id",
        "use_assistant_message",
    )
)
"""Labels, settings of agents that answer through a tool, and pings, which streams have anyway."""


def refuse_unsupported(sent: Table, supported: Sequence[str], place: str = "") -> None:
    """Raise a problem that names the first field that would have no effect. What is empty or false asks for none."""
    for name, value in sent.items():
        if name in supported or value is None or value is False or value in ("", "false", [], {}):
            continue
        if name in _IGNORED:
            _warn_ignored(name)
            continue
        advice = _ADVICE_BY_NAME.get(name) or did_you_mean(name, supported, "leave it out")
        raise Problem(422, "unsupported", f"{place}{name[:60]} is not supported here: {advice}")


@cache
def _warn_ignored(name: str) -> None:
    """Once is enough: clients send such a field with every call."""
    logger.warning("a client sends %s, which has no effect here", name)


def check_fields(raw: bytes, shape: type[Struct]) -> None:
    """Raise a problem for the first field of a body that would have no effect."""
    sent = cast("Table", msgspec.json.decode(raw.strip() or b"{}"))
    refuse_unsupported(sent, shape.__struct_fields__)
    refuse_unsupported(sent.get("model_settings") or {}, ModelOptions.__struct_fields__, "model_settings.")


# --- tool rules: what cannot be kept is refused when it is written, never ignored

_SIMPLE: dict[str, Callable[[str], ToolRule]] = {
    "run_first": rules.RunFirst,
    "exit_loop": rules.ExitLoop,
    "required_before_exit": rules.RequiredBeforeExit,
    "requires_approval": rules.RequiresApproval,
}
_NEEDED = {
    "conditional": "child_output_mapping",
    "constrain_child_tools": "children",
    "max_count_per_step": "max_count_limit",
    "parent_last_tool": "children",
}
"""The field without which a rule of a type would say nothing."""
_IN_JSON = {"True": "true", "False": "false", "None": "null"}


class RuleWire(Struct):
    """A rule as it is sent. Fields that its type does not have are ignored.

    `continue_loop` asks for what is always so here: after a call there is another step.
    """

    type: Literal[
        "run_first",
        "exit_loop",
        "continue_loop",
        "conditional",
        "constrain_child_tools",
        "max_count_per_step",
        "parent_last_tool",
        "required_before_exit",
        "requires_approval",
    ]
    tool_name: str
    args: Table | None = None
    children: Strings = ()
    child_arg_nodes: list[Table] | None = None
    child_output_mapping: dict[str, str] | None = None
    default_child: str | None = None
    require_output_mapping: bool = False
    max_count_limit: Annotated[int, Meta(ge=1)] | None = None


def check_rules(sent: Sequence[object], tools: Sequence[str]) -> None:
    """Raise a problem for rules that an agent with these tools could not keep."""
    for number, each in enumerate(sent):
        try:
            rule = msgspec.convert(each, RuleWire, strict=False)
        except msgspec.ValidationError as error:
            misfit = describe_misfit(error, RuleWire, each)
            raise invalid(f"tool_rules[{number}]{misfit.place.removeprefix('$')}: {misfit.message}") from error
        if problem := _rule_problem(rule):
            raise invalid(f"tool_rules[{number}], {rule.type} of {rule.tool_name[:100]!r}: {problem}")
    rules.check(read_rules(sent, tools), tools)


def _rule_problem(rule: RuleWire) -> str:
    """Why a rule cannot be kept; empty if it can."""
    if rule.args or any(node.get("args") for node in rule.child_arg_nodes or ()):
        return "arguments cannot be filled in beforehand; say in the agent's instructions what they shall be"
    needed = _NEEDED.get(rule.type, "tool_name")
    if not getattr(rule, needed):
        return f"{needed} must not be empty"
    if rule.require_output_mapping and not rule.default_child:
        return "name a default_child: with require_output_mapping there would be nothing left for other results"
    return ""


def read_rules(sent: Sequence[object], tools: Sequence[str]) -> tuple[ToolRule, ...]:
    """The rules an agent was given, as far as they are about tools it has; the others take effect once it has them."""
    converted: list[ToolRule] = []
    for rule in msgspec.convert(sent, list[RuleWire], strict=False):
        if rule.tool_name in tools:
            converted += _convert(rule, tools)
    return tuple(converted)


def _convert(rule: RuleWire, tools: Sequence[str]) -> list[ToolRule]:
    tool = rule.tool_name
    children = tuple(child for child in rule.children if child in tools)
    if rule.type == "constrain_child_tools":  # without its children nothing is left to call after it
        return [rules.ConstrainChildTools(tool, children) if children else rules.ExitLoop(tool)]
    if rule.type == "max_count_per_step":  # a step of Letta is all that is done for one message
        return [rules.MaxCount(tool, rule.max_count_limit or 1)]
    if rule.type == "parent_last_tool":
        return [rules.ParentLastTool(child, tool) for child in children if child != tool]
    if rule.type == "conditional":
        return _convert_conditional(rule, tools)
    return [_SIMPLE[rule.type](tool)] if rule.type in _SIMPLE else []


def _convert_conditional(rule: RuleWire, tools: Sequence[str]) -> list[ToolRule]:
    cases: dict[str, str] = {}
    for result, child in (rule.child_output_mapping or {}).items():
        if child in tools:  # results are texts here, in which Python and JSON differ
            cases[result] = child
            cases[_IN_JSON.get(result, result)] = child
    default = rule.default_child or ""
    otherwise = default if default in tools else ""
    return [rules.Conditional(rule.tool_name, cases, otherwise)] if cases or otherwise else []
