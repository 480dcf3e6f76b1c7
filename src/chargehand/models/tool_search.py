"""Tools whose schemas are not sent at once: where a provider offers it, its model searches for those it needs.

Of many tools most are not needed in a task, yet each call would read all their schemas.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.models.messages import KeptPart, Request, ToolSpec

MOST_AT_ONCE = 20
"""Up to so many tools all schemas are sent at once."""
MOST_SEARCHES = 2
"""How often a model searches in one call, about: for the reservation of a call, which is read anew after each."""
DEFER = "defer_loading"
"""The field of a tool that leaves it to be searched for, in all protocols."""


class ToolSearch(Struct, frozen=True):
    """How one protocol offers it."""

    names: re.Pattern[str]
    """What models that have it are called."""
    tool: Mapping[str, object]
    """What stands in `tools`: the search. Empty: the protocol has none."""


NO_TOOL_SEARCH = ToolSearch(re.compile(r"(?!)"), MappingProxyType({}))


# https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool: from Claude 4.5 on. At least one tool
# is not deferred, no deferred one is marked for the cache, and what was found stays defined.
ANTHROPIC_SEARCH = ToolSearch(
    re.compile(r"claude-(?:fable|mythos|(?:haiku|sonnet|opus)-(?:4[-.][5-9](?!\d)|[5-9]|\d\d))"),
    MappingProxyType({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
)

# https://developers.openai.com/api/docs/guides/tools-tool-search: from GPT-5.4 on, and
# https://developers.openai.com/api/docs/models/gpt-5.4-nano, which has it not.
RESPONSES_SEARCH = ToolSearch(
    re.compile(r"^gpt-(?!5\.4-nano)(?:5\.(?:[4-9]|\d\d)|[6-9]|\d\d)"),
    MappingProxyType({"type": "tool_search"}),
)

_RESULTS = {"tool_search_tool_result": "tool_name", "tool_search_output": "name"}
"""Kinds of kept parts that say what was found, and the field with the name of a tool in each."""
_ANTHROPIC_CALLS = "tool_search_tool_"


class _Named(Struct):
    name: str = ""


class Searching(Struct, frozen=True):
    """What one request leaves to be searched for."""

    deferred: frozenset[str] = frozenset()
    """Tools whose schemas the model does not read at first; empty: it reads all of them, and cannot search."""
    keeps_searches: bool = False
    """Whether earlier searches go back with the conversation: what they found has to be defined still."""


NO_SEARCH = Searching()


def deferrable(request: Request) -> tuple[ToolSpec, ...]:
    """Return the tools of a request that a model may be left to search for."""
    if len(request.tools) <= MOST_AT_ONCE:
        return ()
    return tuple([tool for tool in request.tools if not tool.at_once and tool.name != request.tool_choice])


def plan_search(request: Request, kept: Iterable[KeptPart]) -> Searching:
    """Return what is left to be searched for, by what earlier searches found.

    A tool that was called without being found in a search that goes back is sent at once: its call would refer to
    nothing.

    Args:
        request: The request.
        kept: What the model wants back of its earlier replies.
    """
    tools = deferrable(request)
    if not tools:
        return NO_SEARCH
    found = set(_found(kept))
    keeps = not found or found <= {tool.name for tool in request.tools}
    called = {call.name for message in request.messages if message.calls for call in message.calls}
    deferred = frozenset([tool.name for tool in tools]) - (called - found if keeps else called)
    return Searching(deferred, keeps) if deferred else NO_SEARCH


def with_search(tools: list[dict[str, object]], search: Searching, rule: ToolSearch) -> list[dict[str, object]]:
    """Return the tools of a request, as its protocol writes them, marked where they are deferred, with the search."""
    if not search.deferred:
        return tools
    for tool in tools:
        if tool["name"] in search.deferred:
            tool[DEFER] = True
    return [*tools, dict(rule.tool)]


def _found(kept: Iterable[KeptPart]) -> Iterator[str]:
    """Yield the names of the tools that searches found."""
    for part in kept:
        if (field := _RESULTS.get(part.kind)) is not None:
            yield from _read_names(msgspec.json.decode(part.data), field)


def _read_names(value: object, field: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _read_names(item, field)
    elif isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        name = fields.get(field)
        if isinstance(name, str) and fields.get("type") in ("tool_reference", "function"):
            yield name
        yield from _read_names([fields.get(inner) for inner in ("content", "tool_references", "tools")], field)


def is_search(part: KeptPart) -> bool:
    """Whether a kept part is a search for tools, or what it found."""
    if part.kind == "server_tool_use":
        return is_search_call(msgspec.json.decode(part.data, type=_Named).name)
    return part.kind in _RESULTS or part.kind == "tool_search_call"


def is_search_call(name: str) -> bool:
    """Whether a tool of this name, which Anthropic runs, is the search for tools."""
    return name.startswith(_ANTHROPIC_CALLS)


def without_searches(parts: Sequence[KeptPart]) -> Sequence[KeptPart]:
    """Return kept parts without searches for tools, as if there had been none."""
    left: list[KeptPart] = []
    gone = 0
    for part in parts:
        if is_search(part):
            gone += 1
        else:
            left.append(structs.replace(part, place=part.place - gone) if gone else part)
    return left if gone else parts
