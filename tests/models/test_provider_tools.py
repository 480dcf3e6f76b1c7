"""Tools that a provider runs: how they are asked for, what comes of them, and that they go back as they came."""

import json
from typing import Any

import pytest
from anthropic.types import Message as TheirMessage
from msgspec import Raw

from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Kept, KeptPart, Message, Reply, Request, Usage, drop_changed_parts
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.prices import find_price, flat
from chargehand.models.provider_tools import ANTHROPIC_TOOLS, MAX_USES, PROVIDER_TOOLS, tool_results
from chargehand.models.resolve import offered_tools
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.server_tool_rules import FOUND
from tests.models.loopback import Asked, Move, event, loopback, streamed, whole
from tests.support.closing import closing
from tests.support.hearing import hear_answer

ASKED = Message("user", "How heavy is an ostrich?")
SEARCHING = Request((ASKED,), provider_tools=("web_search",))


def asking(*replies: Reply) -> Request:
    return Request((ASKED, *(reply.message() for reply in replies)), provider_tools=("web_search",))


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_paused_turn_is_continued_with_all_its_blocks(is_streamed: bool) -> None:
    heard: list[str] = []
    hear = hear_answer(heard) if is_streamed else None
    async with (
        FaultServer() as server,
        closing(AnthropicMessages("anthropic:m", server.url("server-tools").removesuffix("/v1"), "m")) as model,
    ):
        paused = await model.reply(SEARCHING, hear)
        assert (paused.finish, paused.text, paused.provider_calls) == ("paused", "I will search. ", 1)
        assert paused.usage is not None
        assert (paused.usage.input, paused.usage.searches) == (1_000, 1)
        assert paused.kept is not None
        assert [part.kind for part in paused.kept.parts] == ["text", "server_tool_use", "web_search_tool_result"]
        done = await model.reply(asking(paused), hear)
        assert (done.finish, done.text) == ("stop", f"I have searched. {FOUND}.")
        again = await model.reply(asking(paused, done), hear)  # the later turn goes back whole, too
        assert again.finish == "stop"
    assert done.kept is not None
    kinds = ["server_tool_use", "web_search_tool_result", "text", "text"]
    assert [part.kind for part in done.kept.parts] == kinds
    cited = json.loads(bytes(done.kept.parts[-1].data))
    assert (cited["text"], cited["citations"][0]["cited_text"]) == (f"{FOUND}.", FOUND)
    assert FOUND in json.dumps(tool_results(done.kept))
    assert "encrypted" not in json.dumps(tool_results(done.kept))
    if is_streamed:
        assert "".join(heard).startswith(f"I will search. I have searched. {FOUND}.")


async def test_the_server_refuses_blocks_that_were_changed() -> None:
    async with (
        FaultServer() as server,
        closing(AnthropicMessages("anthropic:m", server.url("server-tools").removesuffix("/v1"), "m")) as model,
    ):
        paused = await model.reply(SEARCHING)
        assert paused.kept is not None
        half = Kept(paused.kept.parts[:2], paused.kept.provider, paused.kept.model)
        message = Message("assistant", "", kept=half)
        with pytest.raises(ModelFailed, match="without a corresponding `web_search_tool_result`"):
            await model.reply(Request((ASKED, message), provider_tools=("web_search",)))


SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
CITATION: dict[str, Any] = {
    "type": "web_search_result_location",
    "url": "u",
    "title": "t",
    "encrypted_index": "e",
    "cited_text": "c",
}
RESULT: dict[str, Any] = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [],
    "caller": {"type": "direct"},
}
CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "text", "text": "One. "},
    SEARCH,
    RESULT,
    {"type": "text", "text": ""},  # may not be sent back
    {"type": "text", "text": "Two.", "citations": [CITATION]},
    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
]
HEAD = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
USAGE = {"input_tokens": 9, "output_tokens": 9, "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0}}


def stream_of(content: list[dict[str, Any]]) -> list[Move]:
    frames = [event({"type": "message_start", "message": {**HEAD, "stop_reason": None, "content": [], "usage": USAGE}})]
    for index, block in enumerate(content):
        frames.append(event({"type": "content_block_start", "index": index, "content_block": block}))
        frames.append(event({"type": "content_block_stop", "index": index}))
    frames.append(event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}))
    return streamed(*frames, event({"type": "message_stop"}))


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_blocks_of_all_kinds_go_back_in_their_order_as_they_came(is_streamed: bool) -> None:
    TheirMessage.model_validate({**HEAD, "content": CONTENT, "usage": USAGE})  # the shape is theirs

    def play(asked: Asked) -> list[Move]:
        return stream_of(CONTENT) if asked.json.get("stream") else whole({**HEAD, "content": CONTENT, "usage": USAGE})

    async with loopback(play) as server:
        model = AnthropicMessages("anthropic:m", server.url.removesuffix("/v1"), "m")
        reply = await model.reply(SEARCHING, hear_answer([]) if is_streamed else None)
        result = Message("tool", "2", call="c1")
        await model.reply(Request((ASKED, reply.message(), result), provider_tools=("web_search",)))
        await model.close()
    assert reply.text == "One. Two."
    assert reply.usage == Usage(9, 9, searches=3)
    body: Any = server.asked[1].json
    assert body["messages"][1]["content"] == [block for block in CONTENT if block.get("text") != ""]
    cache = {"cache_control": {"type": "ephemeral"}}
    assert body["tools"] == [{"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_USES, **cache}]


def test_a_reply_of_which_a_part_was_changed_goes_back_without_any() -> None:
    parts = (KeptPart("server_tool_use", Raw(b"{}")), KeptPart("web_search_tool_result", Raw(b'{"a":1}')))
    before = Reply("a", kept=Kept(parts), provider_calls=1)
    changed = (parts[0], KeptPart("web_search_tool_result", Raw(b'{"a":2}')))
    assert drop_changed_parts(before, Reply("a", kept=Kept(changed), provider_calls=1)).kept is None


# --- what they cost


def test_searches_cost_what_the_table_says_or_the_usual_price() -> None:
    usage = Usage(1_000_000, 0, searches=3)
    assert flat(1.0, 1.0).cost(usage) == 1_000_000 + 3 * 10_000
    gemini = find_price("google", "gemini-2.5-flash")
    assert gemini is not None
    assert gemini.cost(usage) - gemini.cost(Usage(1_000_000, 0)) == 3 * 35_000
    card = ModelCard("m").with_price(flat(1.0, 1.0))
    assert card.price(usage) == 1_030_000
    assert card.highest_price(1_000_000, 0, searches=5) == 1_050_000


async def test_searches_below_nothing_are_no_reply() -> None:
    usage = {**USAGE, "server_tool_use": {"web_search_requests": -1}}
    async with loopback(lambda _: whole({**HEAD, "content": CONTENT, "usage": usage})) as server:
        model = AnthropicMessages("anthropic:m", server.url.removesuffix("/v1"), "m")
        with pytest.raises(ModelFailed, match="counts searches that cannot be"):
            await model.reply(SEARCHING)
        await model.close()


# --- who has them


def test_what_a_handle_offers() -> None:
    assert offered_tools("anthropic:claude-haiku-4-5") == tuple(ANTHROPIC_TOOLS)
    assert offered_tools("anthropic+https://host#m") == tuple(ANTHROPIC_TOOLS)
    assert set(offered_tools("google:gemini-3-flash")) == set(PROVIDER_TOOLS)
    assert offered_tools("groq:x") == ("web_search",)
    for handle in ("openai:gpt-5-mini", "openai-responses:gpt-4o", "openai-responses+http://host/v1#m"):
        assert offered_tools(handle) == ("web_search", "code_execution")
    for handle in (
        "openai-chat:gpt-5-mini",
        "openai:gpt-4o",
        "ollama:x",
        "demo",
        "local:x",
        "mistral:x",
        "openai+http://host/v1#m",
    ):
        assert offered_tools(handle) == ()


async def test_the_card_of_a_model_says_what_its_provider_runs() -> None:
    models = {
        "anthropic:m": AnthropicMessages("anthropic:m", "http://h", "m"),
        "ollama:m": OpenAIChat("ollama:m", "http://h", "m"),
    }
    for handle, model in models.items():
        assert model.card.provider_tools == offered_tools(handle)
        await model.close()


# --- OpenAI's Responses API

WEB = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "ostrich"}}
CODE = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(104)", "container_id": "c"}
OUTPUT: list[dict[str, Any]] = [
    WEB,
    {**CODE, "outputs": [{"type": "logs", "logs": "104"}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "104 kg", "annotations": []}],
    },
]


async def test_the_responses_api_runs_tools_and_gets_their_items_back() -> None:
    used = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}
    response = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": OUTPUT, "usage": used}
    both = ("web_search", "code_execution")
    async with loopback(lambda _: whole(response)) as server:
        model = OpenAIResponses("openai:m", server.url, "gpt-5-mini")
        assert model.card.provider_tools == both
        reply = await model.reply(Request((ASKED,), provider_tools=both))
        await model.reply(Request((ASKED, reply.message(), Message("user", "Sure?")), provider_tools=both))
        await model.close()
    assert (reply.text, reply.provider_calls) == ("104 kg", 2)
    assert reply.usage is not None
    assert reply.usage.searches == 1
    assert tool_results(reply.kept) == [WEB["action"], [{"type": "logs", "logs": "104"}]]
    first, second = (asked.json for asked in server.asked)
    assert first["tools"] == [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    assert first["max_tool_calls"] == MAX_USES
    assert "code_interpreter_call.outputs" in str(first["include"])
    sent: Any = second["input"]
    assert sent[1:3] == OUTPUT[:2]
