"""What Anthropic and OpenAI do with tools that are left to be searched for: the model calls none that it did not find.

Sources: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool (all tools deferred, a reference
without its tool), https://github.com/router-for-me/CLIProxyAPI/issues/4561 (a mark for the cache),
https://github.com/Wei-Shaw/sub2api/issues/5942 (no search), https://github.com/vercel/ai/pull/15193 (a namespace).
Nothing is kept between requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw, structs

from chargehand.models.messages import Kept, KeptPart, Reply, ToolCall, Usage
from chargehand.models.testing.fault_replies import Json

TOOL_SEARCH = "tool-search"
ABOUT = (
    "searches for deferred tools as Anthropic and OpenAI do, and calls none that was not found (messages, responses)"
)
NO_TOOL_SEARCH = "no-tool-search"
ABOUT_NONE = "refuses deferred tools, as models do that cannot search for them (messages, responses)"
_BYTES_PER_TOKEN = 4
_ANTHROPIC = "tool_search_tool_bm25"


def refusal(request: Json) -> str:
    """Return what a model without it says to deferred tools; empty: there are none."""
    if not _deferred(request):
        return ""
    if "input" in request:  # https://developers.openai.com/api/docs/models/gpt-5.4-nano
        return "Tool 'tool_search' is not supported with gpt-5.4-nano."
    # https://github.com/anthropics/claude-code/issues/89211
    return "Deferred custom tools are only supported on Anthropic models and on Anthropic-compatible provider endpoints"


def answer(request: Json, reply: Reply) -> Reply | str:
    """Return the reply to a request with deferred tools, or why it is refused."""
    is_responses = "input" in request
    problem = _responses_problem(request) if is_responses else _messages_problem(request)
    if problem:
        return problem
    tools = {str(tool.get("name")): tool for tool in _tools(request)}
    for call in reply.calls:
        if call.name not in tools:
            return Reply(f"There is no tool {call.name}.", usage=_usage(request, searches=0))
    found = set(_found(request))
    missing = [call for call in reply.calls if call.name in _deferred(request) and call.name not in found]
    write = _responses_search if is_responses else _messages_search
    parts = [part for number, call in enumerate(missing) for part in write(call, tools[call.name], number)]
    if is_responses:
        namespaces = [call for call in reply.calls if call.name in _deferred(request)]
        parts += [_namespace(call) for call in namespaces]
    usage = _usage(request, searches=len(missing))
    return structs.replace(reply, kept=Kept(tuple(parts)) if parts else None, usage=usage)


def _tools(request: Json) -> list[Json]:
    return cast("list[Json]", request.get("tools") or [])


def _deferred(request: Json) -> frozenset[str]:
    return frozenset(str(tool["name"]) for tool in _tools(request) if tool.get("defer_loading"))


def _usage(request: Json, *, searches: int) -> Usage:
    """What is read: all but the tools that were not found, and once more after each search."""
    hidden = _deferred(request) - set(_found(request))
    shown = {**request, "tools": [tool for tool in _tools(request) if tool.get("name") not in hidden]}
    return Usage(len(msgspec.json.encode(shown)) // _BYTES_PER_TOKEN * (1 + searches), 50)


def _found(request: Json) -> Iterator[str]:
    """Yield the names of the tools that earlier searches found."""
    for block in _blocks(request):
        content = cast("Json", block.get("content") or {})
        if block.get("type") == "tool_search_tool_result":
            yield from (str(each["tool_name"]) for each in cast("list[Json]", content["tool_references"]))
        elif block.get("type") == "tool_search_output":
            yield from (str(tool["name"]) for tool in cast("list[Json]", block["tools"]))


def _blocks(request: Json) -> Iterator[Json]:
    """Yield the items of a Responses request, or the blocks of an assistant in the messages protocol."""
    for message in cast("list[Json]", request.get("input") or request.get("messages") or []):
        content = message.get("content")
        if "input" in request:
            yield message
        elif message.get("role") == "assistant" and isinstance(content, list):
            yield from cast("list[Json]", content)


# --- Anthropic


def _messages_problem(request: Json) -> str:
    tools = _tools(request)
    if tools and all(tool.get("defer_loading") for tool in tools):
        return "All tools have defer_loading set. At least one tool must be non-deferred."
    for tool in tools:
        if tool.get("defer_loading") and "cache_control" in tool:
            return (
                f"Tool '{tool['name']}' cannot have both defer_loading=true and cache_control set. "
                "Tools with defer_loading cannot use prompt caching."
            )
    names = {tool.get("name") for tool in tools}
    for name in _found(request):
        if name not in names:
            return f"Tool reference '{name}' has no corresponding tool definition"
    return _unanswered(list(_blocks(request)))


def _unanswered(blocks: Sequence[Json]) -> str:
    results = {block.get("tool_use_id") for block in blocks if block.get("type") == "tool_search_tool_result"}
    for block in blocks:
        if block.get("type") == "server_tool_use" and block.get("id") not in results:
            return (
                f"`{block['name']}` tool use with id `{block['id']}` was found without a corresponding "
                "`tool_search_tool_result` block"
            )
    return ""


def _messages_search(call: ToolCall, tool: Mapping[str, object], number: int) -> tuple[KeptPart, ...]:
    id = f"srvtoolu_{call.name}_{number}"  # noqa: A001 - what the protocol calls it
    found: Json = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": tool["name"]}],
    }
    return (
        _part({"type": "server_tool_use", "id": id, "name": _ANTHROPIC, "input": {"query": call.name}}),
        _part({"type": "tool_search_tool_result", "tool_use_id": id, "content": found}),
    )


# --- OpenAI


def _responses_problem(request: Json) -> str:
    deferred = _deferred(request)
    if deferred and not any(tool.get("type") == "tool_search" for tool in _tools(request)):
        return "Invalid Value: 'tools.defer_loading'. Deferred tools require tools.tool_search."
    found: set[str] = set()
    for item in _blocks(request):
        if item.get("type") == "tool_search_output":
            found |= {str(tool["name"]) for tool in cast("list[Json]", item["tools"])}
        elif item.get("type") == "function_call" and item["name"] in found & deferred and not item.get("namespace"):
            return (
                f"Missing namespace for function_call '{item['name']}'. It does not exist in the default namespace. "
                "Round-trip the model's function_call item with its namespace field included."
            )
    return ""


def _responses_search(call: ToolCall, tool: Mapping[str, object], number: int) -> tuple[KeptPart, ...]:
    hosted: Json = {"execution": "server", "call_id": None, "status": "completed"}
    id = f"{call.name}_{number}"  # noqa: A001 - what the protocol calls it
    return (
        _part({"type": "tool_search_call", "id": f"tsc_{id}", **hosted, "arguments": {"paths": [call.name]}}),
        _part({"type": "tool_search_output", "id": f"tso_{id}", **hosted, "tools": [dict(tool)]}),
    )


def _namespace(call: ToolCall) -> KeptPart:
    """A tool alone is in a namespace that is called like itself."""
    return KeptPart("function_call", Raw(msgspec.json.encode({"namespace": call.name})), call=call.id)


def _part(block: Json) -> KeptPart:
    return KeptPart(str(block["type"]), Raw(msgspec.json.encode(block)))
