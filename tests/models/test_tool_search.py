"""Many tools: their schemas are left to be searched for where a provider offers it, and what was found goes back."""

import json
from typing import Any

import pytest
from anthropic.types import Message as TheirMessage
from msgspec import Raw, structs
from openai.types.responses import ResponseFunctionToolCall, ResponseToolSearchCall, ResponseToolSearchOutputItem

from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Kept, KeptPart, Message, Reply, Request, ToolCall, ToolSpec, drop_changed_parts
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.provider_tools import tool_results
from chargehand.models.testing import tool_search_rules as rules
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.token_count import TokenRates, measure_request
from chargehand.models.tool_search import ANTHROPIC_SEARCH, MOST_AT_ONCE, RESPONSES_SEARCH, plan_search
from chargehand.models.wire import HttpModel
from tests.support.closing import closing
from tests.support.hearing import hear_answer

SCHEMA = Raw(
    b'{"type":"object","properties":{"word":{"type":"string","description":"What is looked up, in lower case"}}}'
)
TOOLS = tuple(ToolSpec(f"look_{number}", f"Look up things of kind {number}.", SCHEMA) for number in range(MOST_AT_ONCE))
GIVE_UP = ToolSpec("give_up", "Give up.", SCHEMA, at_once=True)
MANY = (*TOOLS, GIVE_UP)
ASKED = Message("user", '[[tool:look_7 {"word": "ostrich"}]]')
PROTOCOLS = ["anthropic", "responses"]


def make(protocol: str, url: str, **options: Any) -> HttpModel:
    """A model that may search for tools."""
    if protocol == "anthropic":
        return AnthropicMessages("anthropic:m", url, "m", tool_search=True, **options)
    return OpenAIResponses("openai:m", url, "m", tool_search=True, **options)


def written(model: HttpModel, request: Request) -> Any:
    return json.loads(model._encode(model._write(request, 1_000, None)))


def deferred(body: Any) -> list[str]:
    return [tool["name"] for tool in body["tools"] if tool.get("defer_loading")]


def called(reply: Reply, text: str = "seen") -> tuple[Message, Message]:
    return reply.message(), Message("tool", text, call=reply.calls[0].id)


# --- what is sent


@pytest.mark.parametrize(("protocol", "search"), [("anthropic", ANTHROPIC_SEARCH), ("responses", RESPONSES_SEARCH)])
async def test_more_than_twenty_tools_are_deferred_with_a_search(protocol: str, search: Any) -> None:
    async with closing(make(protocol, "http://127.0.0.1:1/v1")) as model:
        body = written(model, Request((ASKED,), MANY))
        assert deferred(body) == [tool.name for tool in TOOLS]
        assert body["tools"][-1].items() >= search.tool.items()
        assert "defer_loading" not in body["tools"][-1]
        assert deferred(written(model, Request((ASKED,), MANY, tool_choice="look_3"))) == [
            tool.name for tool in TOOLS if tool.name != "look_3"
        ]
        few = written(model, Request((ASKED,), MANY[1:]))
        assert len(few["tools"]) == MOST_AT_ONCE
        assert not deferred(few)


async def test_no_deferred_tool_is_marked_for_the_cache() -> None:
    async with closing(make("anthropic", "http://127.0.0.1:1")) as model:
        tools = written(model, Request((ASKED,), MANY))["tools"]
        assert [tool["name"] for tool in tools if "cache_control" in tool] == ["tool_search_tool_bm25"]
        with_system = written(model, Request((Message("system", "You are Ann."), ASKED), MANY))
        assert not [tool for tool in with_system["tools"] if "cache_control" in tool]


async def test_which_models_search() -> None:
    searching = (
        *("claude-opus-4-5", "claude-sonnet-4.5", "claude-haiku-4-5-20251001", "claude-opus-5", "claude-fable-5-1"),
        *("gpt-5.4", "gpt-5.6-luna", "gpt-5.10", "gpt-6-astra"),
    )
    others = (
        *("claude-opus-4-1", "claude-sonnet-4-20250514", "claude-3-5-haiku-latest", "claude-opus-4-0"),
        *("gpt-5", "gpt-5-mini", "gpt-5.1", "gpt-5.4-nano", "gpt-4o", "o4-mini"),
    )
    for name in (*searching, *others):
        made = AnthropicMessages if name.startswith("claude") else OpenAIResponses
        url = "https://api.anthropic.com" if name.startswith("claude") else "https://api.openai.com/v1"
        async with closing(made("p:m", url, name)) as model:
            assert model.card.searches_tools is (name in searching), name
            assert bool(deferred(written(model, Request((ASKED,), MANY)))) is (name in searching), name
        async with closing(made("p:m", "https://other.invalid/v1", name)) as model:
            assert not model.card.searches_tools, name
    async with closing(OpenAIChat("openai:m", "http://127.0.0.1:1/v1", "gpt-6", tool_search=True)) as model:
        assert not model.card.searches_tools
        assert not any("defer_loading" in str(tool) for tool in written(model, Request((ASKED,), MANY))["tools"])


# --- a round


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_was_found_goes_back_and_is_not_searched_for_again(protocol: str, is_streamed: bool) -> None:
    hear = hear_answer([]) if is_streamed else None
    async with FaultServer() as server, closing(make(protocol, server.url(rules.TOOL_SEARCH))) as model:
        first = await model.reply(Request((ASKED,), MANY), hear)
        assert (first.finish, [call.name for call in first.calls]) == ("tools", ["look_7"])
        assert (first.tool_searches, first.provider_calls) == (1, 0)  # nothing that outsiders wrote
        assert tool_results(first.kept) == []
        again = Request((ASKED, *called(first, '[[tool:look_7 {"word": "emu"}]]')), MANY)
        assert "look_7" in deferred(written(model, again))
        second = await model.reply(again, hear)
        assert ([call.name for call in second.calls], second.tool_searches) == (["look_7"], 0)
        third = Request((*again.messages, *called(second, '[[tool:look_9 {"word": "emu"}]]')), MANY)
        assert (await model.reply(third, hear)).tool_searches == 1  # another tool


async def test_the_blocks_of_anthropic_go_back_as_they_came() -> None:
    async with FaultServer() as server, closing(make("anthropic", server.url(rules.TOOL_SEARCH))) as model:
        first = await model.reply(Request((ASKED,), MANY))
        body = written(model, Request((ASKED, *called(first)), MANY))
    blocks = body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["server_tool_use", "tool_search_tool_result", "tool_use"]
    assert blocks[1]["content"]["tool_references"] == [{"type": "tool_reference", "tool_name": "look_7"}]
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    TheirMessage.model_validate({**head, "content": blocks, "usage": usage})  # the shape is theirs


async def test_the_items_of_openai_go_back_with_the_namespace_of_the_call() -> None:
    async with FaultServer() as server, closing(make("responses", server.url(rules.TOOL_SEARCH))) as model:
        first = await model.reply(Request((ASKED,), MANY))
        items = written(model, Request((ASKED, *called(first)), MANY))["input"]
    assert [item.get("type") for item in items[1:]] == [
        "tool_search_call",
        "tool_search_output",
        "function_call",
        "function_call_output",
    ]
    assert items[3]["namespace"] == "look_7"
    ResponseToolSearchCall.model_validate(items[1])
    ResponseToolSearchOutputItem.model_validate(items[2])
    ResponseFunctionToolCall.model_validate(items[3])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_call_of_another_model_is_understood(protocol: str) -> None:
    stranger = Message("assistant", calls=(ToolCall("c1", "look_7", "{}"),))
    async with FaultServer() as server, closing(make(protocol, server.url(rules.TOOL_SEARCH))) as model:
        alone = Request((ASKED, stranger, Message("tool", "seen", call="c1")), MANY)
        assert "look_7" not in deferred(written(model, alone))  # it was not found: its schema is sent
        assert (await model.reply(alone)).text == "seen"
        first = await model.reply(Request((ASKED,), MANY))
        assert first.calls[0].name == "look_7"
        after = Request((ASKED, *called(first), *alone.messages[1:]), MANY)
        assert "look_7" in deferred(written(model, after))
        assert (await model.reply(after)).text == "seen"  # OpenAI wants a namespace with its call


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_search_whose_tool_is_gone_is_left_out(protocol: str) -> None:
    """Rules of a worker may take away a tool; a reference to none is refused."""
    async with FaultServer() as server, closing(make(protocol, server.url(rules.TOOL_SEARCH))) as model:
        first = await model.reply(Request((ASKED,), MANY))
        others = (*(tool for tool in MANY if tool.name != "look_7"), ToolSpec("more", "More.", SCHEMA))
        later = Request((ASKED, *called(first)), others)
        assert len(deferred(written(model, later))) == MOST_AT_ONCE
        assert "look_7" not in json.dumps(written(model, later)["tools"])
        assert (await model.reply(later)).text == "seen"
        few = Request((ASKED, *called(first)), others[:5])
        assert "tool_search" not in json.dumps(written(model, few))
        assert (await model.reply(few)).text == "seen"


def test_thoughts_keep_their_places_without_searches() -> None:
    parts = (
        KeptPart("thinking", Raw(b'{"type":"thinking","thinking":"Hm.","signature":"a"}'), 0),
        KeptPart("server_tool_use", Raw(b'{"type":"server_tool_use","name":"tool_search_tool_bm25"}'), 1),
        KeptPart("tool_search_tool_result", Raw(b'{"type":"tool_search_tool_result"}'), 2),
        KeptPart("thinking", Raw(b'{"type":"thinking","thinking":"Ah.","signature":"b"}'), 3),
    )
    model = make("anthropic", "http://127.0.0.1:1")
    kept = Kept(parts, model._provider, "m")
    turn = Message("assistant", calls=(ToolCall("c1", "look_7"),), kept=kept)
    body = written(model, Request((ASKED, turn, Message("tool", "seen", call="c1")), MANY[:3]))
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "thinking", "tool_use"]
    web = KeptPart("server_tool_use", Raw(b'{"name":"web_search","input":{"query":"tool_search_tool_bm25"}}'))
    assert plan_search(Request((ASKED,), MANY), (web,)).keeps_searches
    changed = (*parts[:2], structs.replace(parts[2], data=Raw(b'{"a":1}')), parts[3])
    before, after = (Reply("", kept=Kept(each), tool_searches=1) for each in (parts, changed))
    assert drop_changed_parts(before, after).kept is None


# --- refusals


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_model_that_refuses_it_is_sent_all_schemas(protocol: str) -> None:
    async with FaultServer() as server, closing(make(protocol, server.url(rules.NO_TOOL_SEARCH))) as model:
        assert model.card.searches_tools
        first = await model.reply(Request((ASKED,), MANY))
        assert first.calls[0].name == "look_7"
        assert "defer_loading is not taken" in first.notice
        assert server.requests[rules.NO_TOOL_SEARCH] == 2
        await model.reply(Request((ASKED,), MANY))
        assert server.requests[rules.NO_TOOL_SEARCH] == 3
        assert not model.card.searches_tools
        assert not deferred(written(model, Request((ASKED,), MANY)))


LATER = {"name": "a", "defer_loading": True}
NOW = {"name": "b"}
USE = {"type": "server_tool_use", "id": "s", "name": "tool_search_tool_bm25"}
FOUND = {"type": "tool_search_tool_result", "tool_use_id": "s", "content": {"tool_references": [{"tool_name": "z"}]}}
LOADED = {"type": "tool_search_output", "tools": [{"name": "a"}]}


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        ({"messages": [], "tools": [LATER]}, "At least one tool must be non-deferred"),
        ({"messages": [], "tools": [{**LATER, "cache_control": "5m"}, NOW]}, "cannot use prompt caching"),
        ({"messages": [{"role": "assistant", "content": [FOUND]}], "tools": [NOW]}, "no corresponding tool definition"),
        ({"messages": [{"role": "assistant", "content": [USE]}], "tools": [NOW]}, "without a corresponding"),
        ({"input": [], "tools": [LATER, NOW]}, "require tools.tool_search"),
        (
            {"input": [LOADED, {"type": "function_call", "name": "a"}], "tools": [LATER, {"type": "tool_search"}]},
            "Missing namespace",
        ),
    ],
)
def test_the_server_refuses_what_the_providers_refuse(request_of: Any, said: str) -> None:
    answer = rules.answer(request_of, Reply("x"))
    assert isinstance(answer, str)
    assert said in answer


def test_the_server_calls_no_tool_that_is_not_there() -> None:
    answer = rules.answer({"messages": [], "tools": [NOW]}, Reply("", (ToolCall("c", "a"),), "tools"))
    assert isinstance(answer, Reply)
    assert not answer.calls


# --- tokens


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_estimates_leave_out_what_is_not_read_at_first(protocol: str) -> None:
    request = Request((Message("user", "How heavy is an ostrich?"),), MANY)
    rates = TokenRates()
    all_of_it = rates.estimate(measure_request(request))
    at_first = rates.estimate(measure_request(request, searches=True))
    assert at_first < all_of_it / 4
    few = Request(request.messages, MANY[:MOST_AT_ONCE])
    assert measure_request(few, searches=True) == measure_request(few)
    async with FaultServer() as server, closing(make(protocol, server.url(rules.TOOL_SEARCH))) as model:
        reply = await model.reply(request)
    assert reply.usage is not None
    assert at_first / 2 < reply.usage.input < all_of_it / 2
