"""Anthropic's messages protocol over real sockets: what is sent, and what is made of what comes back."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Raw, structs

from chargehand.agents.planner import schema
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.call_errors import CallFailed
from chargehand.models.http import Timeouts
from chargehand.models.messages import Image, Message, Reply, Request, Settings, ToolCall, ToolSpec, Usage
from tests.models.loopback import Loopback, Move, event, loopback, streamed, whole
from tests.support.hearing import hear_answer

KEY = "sk-ant-this-is-the-key-1234567890"
HELLO = Request([Message("user", "hello")])
TOOL = ToolSpec("add", "adds two numbers", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}'))
# Only what a test is about is short: a busy machine may stand still for longer than that.
PATIENT = Timeouts(connect=20.0, first=20.0, whole=20.0, idle=20.0, total=30.0)
UNHEARD = structs.replace(PATIENT, first=0.2, whole=0.2)
SILENT = structs.replace(PATIENT, idle=0.2)


def said(*blocks: object, stop: str | None = "end_turn", **usage: Any) -> dict[str, object]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks) or [{"type": "text", "text": "hi"}],
        "stop_reason": stop,
        "usage": {"input_tokens": 7, "output_tokens": 3, **usage},
    }


def happens(kind: str, **more: object) -> bytes:
    return event({"type": kind, **more}, kind)


BEGIN = happens(
    "message_start",
    message={"type": "message", "model": "claude-x", "content": [], "usage": {"input_tokens": 7, "output_tokens": 1}},
)
END = happens("message_stop")
PING = happens("ping")


def start(index: int, **block: object) -> bytes:
    return happens("content_block_start", index=index, content_block=block)


def words(text: str, index: int = 0) -> bytes:
    return happens("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def piece(text: str, index: int = 0) -> bytes:
    return happens("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": text})


def stop(index: int = 0) -> bytes:
    return happens("content_block_stop", index=index)


def close(reason: str | None = "end_turn", **usage: Any) -> bytes:
    return happens("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9, **usage})


TEXT = start(0, type="text", text="")


@asynccontextmanager
async def talking(play: list[Move], timeouts: Timeouts = PATIENT) -> AsyncGenerator[tuple[AnthropicMessages, Loopback]]:
    async with loopback(lambda _: play) as server:
        model = AnthropicMessages("anthropic:c", server.url, "c", KEY, timeouts=timeouts, variable="ANTHROPIC_API_KEY")
        try:
            yield model, server
        finally:
            await model.close()


async def reply(play: list[Move], stream: bool = False, timeouts: Timeouts = PATIENT) -> Reply:
    heard: list[str] = []
    async with talking(play, timeouts) as (model, _):
        came = await model.reply(HELLO, hear_answer(heard) if stream else None)
    assert "".join(heard) == (came.text if stream else "")
    return came


async def failure(play: list[Move], stream: bool = False, timeouts: Timeouts = PATIENT) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await reply(play, stream, timeouts)
    assert KEY not in str(caught.value)
    return caught.value


async def sent(request: Request) -> dict[str, object]:
    async with talking(whole(said())) as (model, server):
        await model.reply(request)
    return server.asked[0].json


CACHED = {"cache_control": {"type": "ephemeral"}}


async def test_what_comes_first_is_the_same_bytes_in_every_turn_and_marked_for_the_cache() -> None:
    history = [Message("system", "be brief"), Message("user", "what is 1 + 1?")]
    tools = (TOOL,)
    bodies: list[bytes] = []
    for turn in range(3):
        async with talking(whole(said())) as (model, server):
            await model.reply(Request(tuple(history), tools))
        bodies.append(server.asked[0].body)
        history += [
            Message("assistant", "", (ToolCall(f"c{turn}", "add", "{}"),)),
            Message("tool", "2", call=f"c{turn}"),
        ]
    mark = b'"cache_control":{"type":"ephemeral"}'
    for before, after in pairwise(bodies):
        head = before.partition(b'"messages":')[0]
        assert mark in head, "the system message and, before it, the tools"
        assert after.startswith(head)
        said_before = before.partition(b'"messages":')[2].partition(b"]}],")[0].replace(b"," + mark, b"")
        assert said_before.rstrip(b"]}") in after.replace(b"," + mark, b"")
        assert before.partition(b'"tools":')[2] == after.partition(b'"tools":')[2]
    assert bodies[0].count(mark) == 1, "who is asked once writes no conversation to the cache"
    assert bodies[2].count(mark) == 2


async def test_tools_are_marked_where_there_is_no_system_message() -> None:
    body = await sent(Request([Message("user", "x")], (TOOL,)))
    assert '"cache_control": {"type": "ephemeral"}' in json.dumps(body["tools"])


async def test_a_plan_is_asked_for_as_an_output_format_and_not_in_words() -> None:
    body = await sent(
        Request([Message("system", "plan"), Message("user", "x")], schema=schema(("ann", "bob"), ("sql",), 50))
    )
    assert '"format": {"type": "json_schema"' in json.dumps(body["output_config"])
    assert body["system"] == [{"type": "text", "text": "plan", **CACHED}]


async def test_a_conversation_goes_out_as_the_protocol_says() -> None:
    request = Request(
        [
            Message("system", "be brief"),
            Message("user", "what is 1 + 1, and 2 + 2?"),
            Message("assistant", "I add.", (ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add", "[oops"))),
            Message("tool", "2", call="c1"),
            Message("tool", "", call="c2"),
            Message("user", "go on"),
        ],
        (TOOL,),
        settings=Settings(temperature=0.5, max_tokens=50, parallel_tool_calls=False),
    )
    async with talking(whole(said())) as (model, server):
        await model.reply(request)
    asked = server.asked[0]
    assert asked.path == "/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert asked.json == {
        "model": "c",
        "max_tokens": 50,
        "system": [{"type": "text", "text": "be brief", **CACHED}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "what is 1 + 1, and 2 + 2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I add."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c2", "name": "add", "input": {"unreadable": "[oops"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": ""},
                    {"type": "text", "text": "go on", **CACHED},
                ],
            },
        ],
        "tools": [
            {"name": "add", "description": "adds two numbers", "input_schema": json.loads(bytes(TOOL.parameters))}
        ],
        "temperature": 0.5,
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    }


async def test_the_number_of_tokens_the_protocol_demands_is_always_sent() -> None:
    assert (await sent(HELLO))["max_tokens"] == 8192


async def test_empty_texts_are_not_sent_because_they_are_errors_there() -> None:
    body = await sent(Request([Message("user", " "), Message("assistant", ""), Message("user", "hello")]))
    content = [{"type": "text", "text": "(empty)"}, {"type": "text", "text": "hello"}]
    assert body["messages"] == [{"role": "user", "content": content}]


async def test_somebody_always_speaks_even_if_only_the_system_did() -> None:
    body = await sent(Request([Message("system", "one"), Message("system", "two")]))
    assert body["system"] == [{"type": "text", "text": "one", **CACHED}]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "two"}]}]


async def test_a_schema_the_strict_mode_takes_is_sent_as_the_output_format() -> None:
    schema = b'{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}'
    body = await sent(Request([Message("user", "x")], schema=Raw(schema)))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": json.loads(schema)}}
    assert "system" not in body


async def test_any_other_schema_is_asked_for_in_words() -> None:
    schema = b'{"type":"object","properties":{"a":{"type":"string","maxLength":5}}}'  # it may hold anything else
    body = await sent(Request([Message("system", "be brief"), Message("user", "x")], schema=Raw(schema)))
    assert "output_config" not in body
    words = json.dumps(body["system"])
    assert "be brief" in words
    assert "maxLength" in words


async def test_a_whole_reply_comes_back_in_our_words() -> None:
    came = await reply(whole(said(cache_read_input_tokens=100, cache_creation_input_tokens=10)))
    used = Usage(117, 3, cached=100, cache_written=10)
    assert came == Reply(text="hi", calls=(), finish="stop", usage=used, micros=None, model="claude-x")


CACHE = {"ephemeral_5m_input_tokens": 4_000, "ephemeral_1h_input_tokens": 16_000}
THOUGHT = {"thinking_tokens": 15}


async def test_what_was_written_to_the_cache_and_what_was_thought_is_counted_apart() -> None:
    counts: dict[str, Any] = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20_000}
    counts |= {"cache_creation": CACHE, "output_tokens_details": THOUGHT, "output_tokens": 20}
    used = Usage(20_107, 20, cached=100, cache_written=4_000, cache_written_hour=16_000, reasoning=15)
    assert (await reply(whole(said(**counts)))).usage == used
    usage = {"usage": said(**counts)["usage"]}
    message: dict[str, object] = {"type": "message", "model": "claude-x", "content": [], **usage}
    begun = happens("message_start", message=message)
    closed = close(output_tokens=20, output_tokens_details=THOUGHT)
    assert (await reply(streamed(begun, TEXT, words("hi"), stop(), closed, END), stream=True)).usage == used


async def test_what_is_kept_for_an_hour_is_never_more_than_what_was_written() -> None:
    came = await reply(whole(said(cache_creation_input_tokens=10, cache_creation=CACHE)))
    assert came.usage == Usage(17, 3, cache_written_hour=10)


async def test_calls_and_words_come_back_and_thoughts_do_not() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    came = await reply(whole(said(thought, {"type": "text", "text": "I add."}, call, stop="tool_use")))
    assert (came.text, came.finish) == ("I add.", "tools")
    assert [(one.id, one.name, json.loads(one.arguments)) for one in came.calls] == [("t1", "add", {"a": 1})]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
    ],
)
async def test_why_a_reply_ended_is_kept(reason: str, finish: str) -> None:
    assert (await reply(whole(said(stop=reason)))).finish == finish


async def test_a_stream_is_heard_wherever_the_bytes_are_cut() -> None:
    events = BEGIN + PING + TEXT + words("Grüße ") + words("世界 🦩") + stop() + close() + END
    came = await reply(streamed(*(events[at : at + 5] for at in range(0, len(events), 5))), stream=True)
    assert came == Reply(
        text="Grüße 世界 🦩", calls=(), finish="stop", usage=Usage(7, 9), micros=None, model="claude-x"
    )


async def test_streamed_calls_are_put_together() -> None:
    thinking = start(0, type="thinking", thinking="") + happens(
        "content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"}
    )
    came = await reply(
        streamed(
            BEGIN,
            thinking + stop(0),
            start(1, type="tool_use", id="t1", name="add", input={}),
            piece('{"a"', 1) + piece(": 1}", 1) + stop(1),
            start(2, type="tool_use", id="t2", name="now", input={}) + stop(2),
            happens("something_new", index=99),
            close("tool_use", input_tokens=20, cache_read_input_tokens=5),
            END,
        ),
        stream=True,
    )
    assert came.calls == (ToolCall("t1", "add", '{"a": 1}'), ToolCall("t2", "now", "{}"))
    assert (came.finish, came.usage) == ("tools", Usage(25, 9, 5))


BROKEN_STREAMS = {
    "no end mark": streamed(BEGIN, TEXT, words("hi"), stop(), close()),
    "no stop reason": streamed(BEGIN, TEXT, words("hi"), stop(), END),
    "a block left open": streamed(BEGIN, TEXT, words("hi"), close(), END),
    "no beginning": streamed(TEXT, words("hi"), stop(), close(), END),
    "two beginnings": streamed(BEGIN, BEGIN, TEXT, words("hi"), stop(), close(), END),
    "a block out of turn": streamed(BEGIN, start(1, type="text", text=""), words("hi", 1), stop(1), close(), END),
    "a piece of no block": streamed(BEGIN, TEXT, words("hi", 1), stop(), close(), END),
    "a piece of a closed block": streamed(BEGIN, TEXT, words("hi"), stop(), words("ho"), close(), END),
    "words in a call": streamed(BEGIN, start(0, type="tool_use", id="a", name="b"), words("hi"), stop(), close(), END),
    "a piece of json in words": streamed(BEGIN, TEXT, piece("{"), stop(), close(), END),
    "a block after the stop": streamed(BEGIN, TEXT, words("hi"), stop(), close(), start(1, type="text"), stop(1), END),
    "a call without a name": streamed(BEGIN, start(0, type="tool_use", id="a"), stop(), close("tool_use"), END),
    "events after the end": streamed(BEGIN, TEXT, words("hi"), stop(), close(), END + BEGIN),
    "cut inside an event": streamed(BEGIN, TEXT, words("hi")[:-9]),
    "an event without a type": streamed(BEGIN, event({"index": 0}), TEXT, words("hi"), stop(), close(), END),
    "tokens below zero": streamed(BEGIN, TEXT, words("hi"), stop(), close(input_tokens=-5), END),
    "cached tokens below zero": streamed(BEGIN, TEXT, words("hi"), stop(), close(cache_read_input_tokens=-5), END),
    "tokens written to the cache below zero": streamed(
        BEGIN, TEXT, words("hi"), stop(), close(cache_creation_input_tokens=-5), END
    ),
    "tokens kept for an hour below zero": streamed(
        BEGIN, TEXT, words("hi"), stop(), close(cache_creation={"ephemeral_1h_input_tokens": -5}), END
    ),
    "thoughts below zero": streamed(
        BEGIN, TEXT, words("hi"), stop(), close(output_tokens_details={"thinking_tokens": -5}), END
    ),
    "an unknown reason": streamed(BEGIN, TEXT, words("hi"), stop(), close("a_new_reason"), END),
    "no body": streamed(),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_never_a_reply(name: str) -> None:
    error = await failure(BROKEN_STREAMS[name], stream=True)
    assert error.failure.kind == "network"
    assert "cannot be used" in str(error)


SAME: dict[str, object] = {"type": "tool_use", "id": "a", "name": "add", "input": {}}
BROKEN_BODIES: dict[str, object] = {
    "nothing": b"",
    "html": b"<html></html>",
    "half": json.dumps(said()).encode()[:-3],
    "no message": {"type": "completion", "completion": "hi"},
    "no content": {"type": "message", "stop_reason": "end_turn"},
    "no reason": said(stop=None),
    "tokens below zero": said(cache_creation_input_tokens=-1),
    "a call without an id": said({"type": "tool_use", "name": "add", "input": {}}, stop="tool_use"),
    "two calls of one id": said(SAME, SAME, stop="tool_use"),
    "calls announced and missing": said(stop="tool_use"),
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_a_broken_body_is_never_a_reply(name: str) -> None:
    error = await failure(whole(BROKEN_BODIES[name]))
    assert error.failure.kind == "network"
    assert "cannot be used" in str(error)


async def test_an_error_in_the_stream_is_what_it_says() -> None:
    overloaded = happens("error", error={"type": "overloaded_error", "message": "Overloaded"})
    error = await failure(streamed(BEGIN, overloaded), stream=True)
    assert (error.failure.kind, error.status) == ("network", 529)
    limited = happens("error", error={"type": "rate_limit_error", "message": "too much"})
    assert (await failure(streamed(BEGIN, limited), stream=True)).status == 429


async def test_an_error_by_status_names_the_variable() -> None:
    content = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    error = await failure(whole(content, 401))
    assert error.failure.permanent
    assert "ANTHROPIC_API_KEY" in str(error)
    assert "invalid x-api-key" in str(error)


async def test_calls_that_were_cut_off_are_never_made() -> None:
    cut = streamed(BEGIN, start(0, type="tool_use", id="a", name="b"), piece('{"a"'), stop(), close("max_tokens"), END)
    error = await failure(cut, stream=True)
    assert (error.failure.kind, error.usage) == ("logic", Usage(7, 9))


async def test_pings_do_not_keep_a_silent_stream_alive() -> None:
    pings: list[bytes | float] = [PING, 0.05] * 400
    error = await failure(streamed(BEGIN, TEXT, words("hi"), *pings), stream=True, timeouts=SILENT)
    assert error.failure.kind == "timeout"
    assert "silent for 0.2 s" in str(error)


async def test_the_beginning_of_a_message_is_no_first_token() -> None:
    error = await failure(streamed(BEGIN, 30.0), stream=True, timeouts=UNHEARD)
    assert "nothing of the reply came within 0.2 s" in str(error)


async def test_a_server_that_does_not_stream_is_heard_all_the_same() -> None:
    assert (await reply(whole(said()), stream=True)).text == "hi"


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1", "http://127.0.0.1:1/", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/"]
)
def test_a_base_url_is_the_same_with_and_without_its_version(base: str) -> None:
    assert AnthropicMessages("a:c", base, "c")._endpoint._url == "http://127.0.0.1:1/v1/messages"


async def test_text_that_cannot_be_written_fails_before_anything_is_sent() -> None:
    async with talking(whole(said())) as (model, server):
        with pytest.raises(CallFailed, match="cannot be written as JSON"):
            await model.reply(Request([Message("user", "half \ud800 a character")]))
    assert server.asked == []


async def test_a_picture_stands_before_its_text() -> None:
    image = Image("file-1", "image/png", b"\x89PNG")
    body = await sent(Request([Message("user", "what is it?", images=(image,))]))
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "what is it?"}]
    assert body["messages"] == [{"role": "user", "content": content}]
