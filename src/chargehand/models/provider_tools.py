"""Tools that a provider runs itself while its model answers: what they are called here, and how each protocol asks.

A worker names one as `provider:web_search`. What it returns comes with the reply.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from chargehand.models.messages import Kept, KeptPart

PREFIX = "provider:"
"""How a worker's names of such tools begin."""
MAX_USES = 5
"""How often a tool may be used in one call, where the provider takes a limit."""
RESULT_TOKENS = 8_000
"""What one use adds to what is read, about: for the reservation of a call."""
_Entry: TypeAlias = Mapping[str, object]
NO_TOOLS: Mapping[str, _Entry] = MappingProxyType({})


class ProviderTool(Struct, frozen=True):
    """One tool."""

    description: str
    """What it does, for planners."""
    makers: tuple[str, ...]
    """Providers whose models have it, for messages: some of their models only."""


PROVIDER_TOOLS: Mapping[str, ProviderTool] = MappingProxyType(
    {
        "web_search": ProviderTool("Searches the web.", ("anthropic", "google", "groq", "openai", "xai")),
        "web_fetch": ProviderTool("Reads pages and PDFs of the web.", ("anthropic", "google")),
        "code_execution": ProviderTool(
            "Runs code in a sandbox of the provider.", ("anthropic", "bedrock", "google", "openai", "xai")
        ),
    }
)

# https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-reference: all versions are generally available.
# These are the ones that run no code on the side, so that they are the same for every model.
ANTHROPIC_TOOLS: Mapping[str, _Entry] = MappingProxyType(
    {
        "web_search": {"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_USES},
        "web_fetch": {
            "type": "web_fetch_20250910",
            "name": "web_fetch",
            "max_uses": MAX_USES,
            "max_content_tokens": RESULT_TOKENS,
        },
        "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
    }
)
"""What stands in `tools` of Anthropic's protocol."""

# https://developers.openai.com/api/docs/guides/tools-web-search, .../tools-code-interpreter
RESPONSES_TOOLS: Mapping[str, _Entry] = MappingProxyType(
    {
        "web_search": {"type": "web_search"},
        "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
    }
)
"""What stands in `tools` of OpenAI's Responses protocol, with `max_tool_calls: MAX_USES` beside it."""


RESPONSES_CALLS = frozenset(("web_search_call", "code_interpreter_call"))
"""Items of that protocol that say that such a tool was used, and what came of it."""


def is_server_block(kind: str) -> bool:
    """Whether a block of Anthropic's protocol is the call of a provider's tool, or what it returned."""
    return kind == "server_tool_use" or kind.endswith("_tool_result")


def tool_results(kept: Kept | None) -> list[object]:
    """Return what the tools of a provider returned in a reply, without what is encrypted."""
    if kept is None:
        return []
    results: list[object] = []
    for part in kept.parts:
        results += _read_results(part)
    return results


def _read_results(part: KeptPart) -> list[object]:
    if part.kind == "tool_search_tool_result":  # it names our own tools
        return []
    if part.kind.endswith("_tool_result"):
        block = msgspec.json.decode(part.data, type=dict[str, object])
        return [_readable(block.get("content"))]
    if part.kind in RESPONSES_CALLS:
        item = msgspec.json.decode(part.data, type=dict[str, object])
        return [_readable(item[name]) for name in ("action", "outputs") if item.get(name)]
    if part.kind != "response":  # as pydantic_ai writes a reply
        return []
    messages = cast("list[dict[str, list[dict[str, object]]]]", msgspec.json.decode(part.data))
    parts = [each for message in messages for each in message["parts"]]
    return [_readable(each.get("content")) for each in parts if str(each.get("part_kind")).endswith("-tool-return")]


def _readable(value: object) -> object:
    if isinstance(value, list):
        return [_readable(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _readable(item) for name, item in fields.items() if not name.startswith("encrypted_")}
    return value
