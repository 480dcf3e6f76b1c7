"""Fields of a request that real models refuse by name, in their providers' words: what the fault server plays.

Each rule names where such words were seen. Modes of the server are sets of rules, as one model has them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

ProtocolName: TypeAlias = Literal["openai", "responses", "anthropic"]

ABSENT = "absent"


class RefusedField(Struct, frozen=True):
    """A field that a model refuses, wholly or for some of its values."""

    protocol: ProtocolName
    path: str
    """Where it stands in the body; a dot leads into a table."""
    words: str
    """What the provider says; `{value}` is the value it was sent."""
    source: str
    """Where such words were seen."""
    takes: tuple[object, ...] = ()
    """Values that it takes all the same; `absent` stands for the field being left out."""
    with_tools: bool = False
    """It is refused only in requests with tools."""
    code: str = "unsupported_parameter"
    """What OpenAI's error calls it; empty: null."""
    blames: bool = True
    """Whether the error has the field apart from its words; only OpenAI's has."""

    def refuses(self, body: dict[str, object]) -> bool:
        if self.with_tools and not body.get("tools"):
            return False
        return value_at(body, self.path) not in (self.takes or (ABSENT,))

    def error(self, body: dict[str, object]) -> dict[str, object]:
        """The page that the provider answers with, at status 400."""
        message = self.words.format(value=value_at(body, self.path))
        if self.protocol == "anthropic":
            return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        blamed = {"param": self.path, "code": self.code or None} if self.blames else {"param": None, "code": None}
        return {"error": {"message": message, "type": "invalid_request_error", **blamed}}


_GITHUB = "https://github.com/"
REASONING: Sequence[RefusedField] = (
    RefusedField(
        "openai",
        "temperature",
        "Unsupported value: 'temperature' does not support {value} with this model. "
        "Only the default (1) value is supported.",
        f"{_GITHUB}gabrii/Cursor-Azure-GPT-5/issues/33",
        takes=(ABSENT, 1, 1.0),
        code="unsupported_value",
    ),
    RefusedField(
        "openai",
        "top_p",
        "Unsupported parameter: 'top_p' is not supported with this model.",
        f"{_GITHUB}npiv/chatblade/issues/100",
    ),
    RefusedField(
        "openai",
        "stop",
        "Unsupported parameter: 'stop' is not supported with this model.",
        f"{_GITHUB}huggingface/smolagents/issues/1671",
    ),
    RefusedField(
        "openai",
        "reasoning_effort",
        "Unsupported value: 'reasoning_effort' does not support '{value}' with this model. "
        "Supported values are: 'minimal', 'low', 'medium', and 'high'.",
        f"{_GITHUB}Kilo-Org/cloud/pull/3807",
        takes=(ABSENT, "minimal", "low", "medium", "high"),
        code="unsupported_value",
    ),
    RefusedField(
        "responses",
        "temperature",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        f"{_GITHUB}OpenHands/software-agent-sdk/issues/1837",
        code="",
    ),
    RefusedField(
        "responses",
        "top_p",
        "Unsupported parameter: 'top_p' is not supported with this model.",
        f"{_GITHUB}npiv/chatblade/issues/100",
    ),
    RefusedField(
        "responses",
        "reasoning.effort",
        "Unsupported value: '{value}' is not supported with the 'gpt-5.1' model. "
        "Supported values are: 'none', 'low', 'medium', and 'high'.",
        f"{_GITHUB}anomalyco/opencode/issues/4451",
        takes=(ABSENT, "none", "low", "medium", "high"),
        code="unsupported_value",
    ),
    RefusedField(
        "responses",
        "reasoning.summary",
        "Your organization must be verified to generate reasoning summaries. Please go to: "
        "https://platform.openai.com/settings/organization/general and click on Verify Organization. If you just "
        "verified, it can take up to 15 minutes for access to propagate.",
        f"{_GITHUB}OpenHands/software-agent-sdk/issues/987",
        code="unsupported_value",
    ),
    RefusedField(
        "anthropic",
        "temperature",
        "`temperature` is deprecated for this model.",
        f"{_GITHUB}UKGovernmentBEIS/inspect_ai/issues/3721",
    ),
    RefusedField(
        "anthropic",
        "top_p",
        "`top_p` is deprecated for this model.",
        f"{_GITHUB}pollinations/pollinations/pull/11319",
    ),
    RefusedField(
        "anthropic",
        "thinking.type",
        '"thinking.type.{value}" is not supported for this model.',
        f"{_GITHUB}cline/cline/issues/13203",
        takes=(ABSENT, "adaptive"),
    ),
)
"""Models that always think: gpt-5, Claude Fable 5."""
PLAIN: Sequence[RefusedField] = (
    RefusedField(
        "openai",
        "reasoning_effort",
        "Unrecognized request argument supplied: reasoning_effort",
        f"{_GITHUB}davidmigloz/langchain_dart/issues/712",
        blames=False,
    ),
    RefusedField(
        "responses",
        "include",
        "Encrypted content is not supported with this model.",
        f"{_GITHUB}pydantic/pydantic-ai/issues/3326",
        code="",
    ),
    RefusedField(
        "responses",
        "reasoning.effort",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        f"{_GITHUB}BoundaryML/baml/pull/2708",
    ),
    RefusedField(
        "responses",
        "reasoning.summary",
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
        f"{_GITHUB}BerriAI/litellm/pull/38842",
    ),
    RefusedField(
        "anthropic",
        "thinking.type",
        "adaptive thinking is not supported on this model",
        f"{_GITHUB}docker/docker-agent/issues/3362",
        takes=(ABSENT, "enabled", "disabled"),
    ),
    RefusedField(
        "anthropic",
        "output_config.effort",
        "This model does not support the effort parameter.",
        f"{_GITHUB}anthropics/claude-code/issues/30760",
    ),
)
"""Models that cannot be told how much to think: gpt-4o, Claude Haiku 4.5."""
TOOLS: Sequence[RefusedField] = (
    RefusedField(
        "openai",
        "reasoning_effort",
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
        f"{_GITHUB}BerriAI/litellm/pull/34569",
        takes=("none",),
        with_tools=True,
    ),
)
"""Models that think without tools only, in OpenAI's chat protocol: gpt-5.6, which does so even unasked."""
FIELD_MODES: dict[str, tuple[str, Sequence[RefusedField]]] = {
    "always-thinks": ("answers, but refuses settings that models which always think do not take", REASONING),
    "never-thinks": ("answers, but refuses to be told how much to think", PLAIN),
    "thinks-without-tools": ("answers, but refuses tools unless it is told not to think (OpenAI's protocol)", TOOLS),
}
"""By name, what a mode of the fault server does, and its rules."""


def refusals(rules: Sequence[RefusedField], protocol: ProtocolName, body: dict[str, object]) -> Iterator[RefusedField]:
    """Yield the rules that a request breaks, in their order."""
    return (rule for rule in rules if rule.protocol == protocol and rule.refuses(body))


def value_at(body: dict[str, object], path: str) -> object:
    """What stands at a path, or `absent`."""
    value: object = body
    for name in path.split("."):
        value = cast("dict[str, Any]", value).get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return value
