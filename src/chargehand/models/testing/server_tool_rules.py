"""What Anthropic does with tools that it runs itself: it searches, pauses, and wants its blocks back as they were.

Sources: https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools (pause_turn),
.../web-search-tool (blocks, citations, usage), https://github.com/anthropics/claude-code/issues/9590 (a call without
its result is refused). As in `thought_rules` nothing is kept between requests.
"""

import hashlib
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec import Raw

from chargehand.models.messages import Kept, KeptPart, Reply, Usage
from chargehand.models.testing.fault_replies import Json

SERVER_TOOLS = "server-tools"
ABOUT = "runs web_search as Anthropic does: pauses once, and refuses its blocks when they were changed (messages)"
FOUND = "An ostrich weighs 104 kg"
"""What its search finds."""


def answer(request: Json) -> Reply | str:
    """Return the reply to a request with a tool of the server, or why it is refused."""
    used = list(_server_blocks(request))
    if problem := _problem(used):
        return problem
    if not any(block.get("type") == "server_tool_use" for block in used):
        return _reply("paused", _text("I will search. "), *_search("srvtoolu_1", "ostrich weight"))
    cited: Json = {
        **_text(f"{FOUND}."),
        "citations": [
            {
                "type": "web_search_result_location",
                "url": "https://ostrich.invalid/",
                "title": "Ostriches",
                "encrypted_index": "Eo8B",
                "cited_text": FOUND,
            }
        ],
    }
    return _reply("stop", *_search("srvtoolu_2", "ostrich height"), _text("I have searched. "), cited)


def offers(request: Json) -> bool:
    """Whether a request has a tool that the server runs."""
    tools = cast("list[Json]", request.get("tools") or [])
    return any(str(tool.get("type", "")).startswith("web_search_") for tool in tools)


def _server_blocks(request: Json) -> Iterator[Json]:
    for message in cast("list[Json]", request.get("messages") or []):
        content = message.get("content")
        if message.get("role") == "assistant" and isinstance(content, list):
            blocks = cast("list[Json]", content)
            yield from (block for block in blocks if str(block.get("type")) != "text")


def _problem(blocks: list[Json]) -> str:
    results = {block.get("tool_use_id"): block for block in blocks if block.get("type") == "web_search_tool_result"}
    for block in blocks:
        if block.get("type") == "server_tool_use":
            result = results.pop(block.get("id"), None)
            if result is None:
                return (
                    f"`web_search` tool use with id `{block.get('id')}` was found without a corresponding "
                    "`web_search_tool_result` block"
                )
            if result != _search(str(block.get("id")), str(cast("Json", block["input"])["query"]))[1]:
                return "Invalid `encrypted_content` in `search_result` block"
    return f"unexpected `tool_use_id` found in `tool_result` blocks: {next(iter(results))}" if results else ""


def _search(call: str, query: str) -> tuple[Json, Json]:
    """The call of a search, and its result, which is signed by what was searched for."""
    found: Json = {
        "type": "web_search_result",
        "url": "https://ostrich.invalid/",
        "title": FOUND,
        "encrypted_content": hashlib.sha256(query.encode()).hexdigest(),
        "page_age": None,
    }
    return (
        {"type": "server_tool_use", "id": call, "name": "web_search", "input": {"query": query}},
        {"type": "web_search_tool_result", "tool_use_id": call, "content": [found]},
    )


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _reply(finish: str, *blocks: Json) -> Reply:
    parts = [KeptPart(str(block["type"]), Raw(msgspec.json.encode(block)), place) for place, block in enumerate(blocks)]
    kind = "paused" if finish == "paused" else "stop"
    return Reply("", (), kind, Usage(1_000, 50, searches=1), kept=Kept(tuple(parts)))
