"""OpenAI's chat protocol over real sockets: what is sent, and what is made of what comes back."""

import asyncio
import gzip
import json
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from msgspec import Raw, structs

from chargehand.agents import judge, planner
from chargehand.agents.strategies import loop, recursive, route
from chargehand.errors import Invalid
from chargehand.models.call_errors import CallFailed
from chargehand.models.http import Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, ToolSpec, Usage
from chargehand.models.model import ModelFailed
from chargehand.models.openai import OpenAIChat
from tests.models.loopback import Asked, Loopback, Move, Play, event, loopback, self_signed, streamed, whole
from tests.support.closing import closing
from tests.support.hearing import Heard, hear_answer

KEY = "sk-this-is-the-key-1234567890"
HELLO = Request([Message("user", "hello")])
TOOL = ToolSpec("add", "adds two numbers", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}'))
# Only what a test is about is short: a busy machine may stand still for longer than that.
PATIENT = Timeouts(connect=20.0, first=20.0, whole=20.0, idle=20.0, total=30.0)
UNHEARD = structs.replace(PATIENT, first=0.2, whole=0.2)
SILENT = structs.replace(PATIENT, idle=0.2)
ENDLESS = structs.replace(PATIENT, total=0.5)


def said(content: object = "hi", finish: str | None = "stop", **more: object) -> dict[str, object]:
    message = {"role": "assistant", "content": content, **more}
    return {
        "id": "chat-1",
        "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    }


def delta(finish: str | None = None, index: int = 0, **change: object) -> bytes:
    return event({"id": "c", "model": "m-1", "choices": [{"index": index, "delta": change, "finish_reason": finish}]})


def holding(part: str) -> str:
    """A strict schema that has this in it."""
    head = '{"type":"object","required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"string"}}'
    return head + ',"properties":{"a":' + part + "}}"


USED = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
DONE = event("[DONE]")


def call(
    index: int | None, ident: str | None = None, name: str | None = None, arguments: str = ""
) -> dict[str, object]:
    made: dict[str, object] = {"function": {"name": name, "arguments": arguments}}
    return made | ({"index": index} if index is not None else {}) | ({"id": ident} if ident else {})


class Given(TypedDict, total=False):
    timeouts: Timeouts
    max_bytes: int
    reports_cost: bool


@asynccontextmanager
async def talking(play: Play | list[Move], **options: Unpack[Given]) -> AsyncGenerator[tuple[OpenAIChat, Loopback]]:
    async with loopback(play if callable(play) else lambda _: play) as server:
        given = Given(timeouts=PATIENT) | options
        model = OpenAIChat("openai:m", server.url, "m", KEY, variable="OPENAI_API_KEY", **given)
        try:
            yield model, server
        finally:
            await model.close()


async def reply(play: list[Move], request: Request = HELLO, stream: bool = False, **options: Unpack[Given]) -> Reply:
    heard: list[str] = []
    async with talking(play, **options) as (model, _):
        came = await model.reply(request, hear_answer(heard) if stream else None)
    assert "".join(heard) == (came.text if stream and came.finish != "refused" else "")
    return came


async def failure(play: list[Move], stream: bool = False, **options: Unpack[Given]) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await reply(play, stream=stream, **options)
    assert KEY not in str(caught.value)
    return caught.value


async def test_a_conversation_goes_out_as_the_protocol_says() -> None:
    request = Request(
        [
            Message("system", "be brief"),
            Message("user", "what is 1 + 1?"),
            Message("assistant", "", (ToolCall("c1", "add", '{"a":1}'),)),
            Message("tool", "2", call="c1"),
        ],
        (TOOL,),
        settings=Settings(temperature=0.0, max_tokens=50, parallel_tool_calls=False),
    )
    async with talking(whole(said())) as (model, server):
        await model.reply(request)
    asked = server.asked[0]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    function = {"name": "add", "description": "adds two numbers", "parameters": json.loads(bytes(TOOL.parameters))}
    calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}]
    assert asked.json == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "what is 1 + 1?"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
        "tools": [{"type": "function", "function": function}],
        "temperature": 0.0,
        "max_tokens": 50,
        "parallel_tool_calls": False,
    }


async def test_a_stream_is_asked_for_with_its_usage() -> None:
    async with talking(streamed(delta(content="hi"), delta("stop"), USED, DONE)) as (model, server):
        await model.reply(HELLO, Heard())
    assert server.asked[0].json["stream"] is True
    assert server.asked[0].json["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ('{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}', True),
        ('{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}', False),
        ('{"type":"object","properties":{"a":{"type":"string","maxLength":9}},"required":["a"]}', False),
    ],
)
async def test_a_schema_is_strict_only_where_the_strict_mode_takes_it(schema: str, strict: bool) -> None:
    async with talking(whole(said("{}"))) as (model, server):
        await model.reply(Request([Message("user", "x")], schema=Raw(schema.encode())))
    shape = {"name": "reply", "schema": json.loads(schema), "strict": strict}
    assert server.asked[0].json["response_format"] == {"type": "json_schema", "json_schema": shape}


async def test_openai_itself_has_another_word_for_the_most_tokens() -> None:
    model = OpenAIChat("openai:m", "https://api.openai.com/v1", "m", KEY)
    body = model._body(Request([Message("user", "x")], settings=Settings(max_tokens=5)), 5, streamed=False)
    assert body["max_completion_tokens"] == 5


@pytest.mark.parametrize(
    ("status", "billed"),
    [
        (400, False),
        (401, False),
        (403, False),
        (404, False),
        (422, False),
        (429, False),
        (500, False),
        (503, False),
        (529, False),
        (408, True),
        (502, True),
        (504, True),
    ],
)
async def test_a_refused_call_is_not_billed_and_one_that_a_gateway_gave_up_on_may_be(status: int, billed: bool) -> None:
    assert (await failure(whole({"error": {"message": "no"}}, status))).billed is billed


async def test_a_call_that_was_never_sent_is_not_billed_and_a_stream_that_broke_may_be() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    for gone in (url, "http://no-such-host.invalid/v1", url.replace("http:", "https:")):
        model = OpenAIChat("openai:m", gone, "m", KEY, timeouts=PATIENT)
        async with closing(model):
            with pytest.raises(CallFailed) as caught:
                await model.reply(HELLO)
        assert caught.value.billed is False
    assert (await failure(streamed(delta(content="hal")), stream=True)).billed
    assert (await failure([30.0], timeouts=UNHEARD)).billed


async def test_a_limit_is_always_sent_and_a_server_that_refuses_it_is_asked_for_less() -> None:
    seen: list[dict[str, object]] = []

    def play(asked: Asked) -> list[Move]:
        seen.append(asked.json)
        if int(str(seen[-1]["max_tokens"])) > 3_000:
            return whole(
                {"error": {"message": "max_tokens is too large: this model writes at most 3000"}},
                400,
                Connection="close",
            )
        return whole(said(), Connection="close")

    async with talking(play) as (model, _):
        assert (await model.reply(HELLO)).text == "hi"
        assert [one["max_tokens"] for one in seen] == [8_192, 4_096, 2_048]
        await model.reply(HELLO)
        assert seen[-1]["max_tokens"] == 2_048, "it is remembered"


async def test_a_server_that_wants_the_other_word_for_the_limit_gets_it() -> None:
    seen: list[dict[str, object]] = []

    def play(asked: Asked) -> list[Move]:
        seen.append(asked.json)
        if "max_tokens" in seen[-1]:
            words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return whole({"error": {"message": words}}, 400, Connection="close")
        return whole(said(), Connection="close")

    async with talking(play) as (model, _):
        await model.reply(HELLO)
        await model.reply(HELLO)
    assert [one.get("max_completion_tokens") for one in seen] == [None, 8_192, 8_192]


async def test_a_whole_reply_comes_back_in_our_words() -> None:
    assert await reply(whole(said())) == Reply(
        text="hi", calls=(), finish="stop", usage=Usage(7, 3, 2), micros=None, model="m-1"
    )


def using(**usage: object) -> list[Move]:
    return whole(said() | {"usage": {"prompt_tokens": 100, "completion_tokens": 30} | usage})


async def test_what_was_written_to_the_cache_and_what_was_thought_is_counted_apart() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 50}}
    thought = {"completion_tokens_details": {"reasoning_tokens": 20}}
    came = await reply(using(total_tokens=130, **details, **thought))
    assert came.usage == Usage(100, 30, cached=40, cache_written=50, reasoning=20)


async def test_a_reply_says_which_service_tier_served_it() -> None:
    assert (await reply(whole(said() | {"service_tier": "flex"}))).tier == "flex"
    assert (await reply(whole(said() | {"service_tier": None}))).tier == ""


async def test_thoughts_that_only_the_total_counts_are_paid_for() -> None:
    thought = {"completion_tokens_details": {"reasoning_tokens": 200}}
    assert (await reply(using(total_tokens=330, **thought))).usage == Usage(100, 230, reasoning=200), "xAI"
    assert (await reply(using(total_tokens=330))).usage == Usage(100, 230, reasoning=200), "Gemini"
    assert (await reply(using(total_tokens=0))).usage == Usage(100, 30)


async def test_parts_of_the_usage_are_never_more_than_the_whole() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 50}}
    thought = {"completion_tokens_details": {"reasoning_tokens": 200}}
    came = await reply(using(**details, **thought))
    assert came.usage == Usage(100, 30, cached=90, cache_written=10, reasoning=30)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens_details": {"cache_write_tokens": -1}},
        {"completion_tokens_details": {"reasoning_tokens": -1}, "total_tokens": 200},
        {"prompt_tokens": -1, "total_tokens": 200},
    ],
)
async def test_counts_below_zero_are_no_usage(usage: dict[str, object]) -> None:
    with pytest.raises(CallFailed, match="below zero"):
        await reply(using(**usage))


async def test_tool_calls_come_back_with_what_the_model_wrote() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": oops'}}]
    came = await reply(whole(said(None, "tool_calls", tool_calls=calls)))
    assert (came.calls, came.finish, came.text) == ((ToolCall("a", "add", '{"a": oops'),), "tools", "")


async def test_calls_that_end_with_stop_are_calls_all_the_same() -> None:
    calls = [{"id": "", "function": {"name": "add", "arguments": ""}}]
    came = await reply(whole(said("", "stop", tool_calls=calls)))
    assert (came.calls, came.finish) == ((ToolCall("chat-1-0", "add", "{}"),), "tools")


async def test_a_reply_that_was_cut_off_says_so() -> None:
    assert (await reply(whole(said("half a", "length")))).finish == "length"


async def test_a_refusal_is_a_reply() -> None:
    came = await reply(whole(said(None, "stop", refusal="I will not")))
    assert (came.text, came.finish) == ("I will not", "refused")
    assert (await reply(whole(said("", "content_filter")))).finish == "refused"


async def test_words_are_heard_as_they_come_wherever_the_bytes_are_cut() -> None:
    events = (
        delta(role="assistant", content="")
        + delta(content="Grüße ")
        + delta(content="世界 🦩")
        + delta("stop")
        + USED
        + DONE
    )
    pieces = [events[at : at + 3] for at in range(0, len(events), 3)]
    assert await reply(streamed(*pieces), stream=True) == Reply(
        text="Grüße 世界 🦩", calls=(), finish="stop", usage=Usage(7, 3), micros=None, model="m-1"
    )


async def test_streamed_tool_calls_are_put_together() -> None:
    came = await reply(
        streamed(
            delta(tool_calls=[call(0, "a", "add", '{"a"')]),
            delta(tool_calls=[call(0, arguments=":1}"), call(1, "b", "sub")]),
            delta(tool_calls=[call(1, arguments='{"a":2}')]),
            delta("tool_calls"),
            DONE,
        ),
        stream=True,
    )
    assert came.calls == (ToolCall("a", "add", '{"a":1}'), ToolCall("b", "sub", '{"a":2}'))
    assert came.usage is None


async def test_servers_that_leave_out_the_index_are_understood() -> None:
    came = await reply(
        streamed(
            delta(tool_calls=[call(None, "a", "add", "{}")]),
            delta(tool_calls=[call(None, "b", "sub", "{")]),
            delta(tool_calls=[call(None, arguments="}")]),
            delta("tool_calls"),
            DONE,
        ),
        stream=True,
    )
    assert came.calls == (ToolCall("a", "add", "{}"), ToolCall("b", "sub", "{}"))


async def test_a_server_that_does_not_stream_is_heard_all_the_same() -> None:
    assert (await reply(whole(said()), stream=True)).text == "hi"


BROKEN_STREAMS = {
    "no end mark": streamed(delta(content="hi"), delta("stop"), USED),
    "no finish": streamed(delta(content="hi"), DONE),
    "cut inside an event": streamed(delta(content="hi"), b'data: {"choices":[{"del'),
    "a second choice": streamed(delta(content="hi", index=1), delta("stop"), DONE),
    "words after the finish": streamed(delta(content="hi"), delta("stop"), delta(content=" more"), DONE),
    "events after the end": streamed(delta(content="hi"), delta("stop"), DONE + delta(content="more")),
    "two documents in one event": streamed(
        event('{"choices":[]}{"choices":[]}'), delta(content="x"), delta("stop"), DONE
    ),
    "an event of another kind": streamed(event({"hello": "world"}), delta(content="x"), delta("stop"), DONE),
    "a call never begun": streamed(delta(tool_calls=[call(1, None, None, "{}")]), delta("tool_calls"), DONE),
    "a call at the wrong index": streamed(delta(tool_calls=[call(3, "a", "add", "{}")]), delta("tool_calls"), DONE),
    "two calls at one index": streamed(
        delta(tool_calls=[call(0, "a", "add"), call(0, "b", "sub")]), delta("tool_calls"), DONE
    ),
    "a call without a name": streamed(delta(tool_calls=[call(0, "a")]), delta("tool_calls"), DONE),
    "two calls of one id": streamed(
        delta(tool_calls=[call(0, "a", "add"), call(1, "a", "sub")]), delta("tool_calls"), DONE
    ),
    "tokens below zero": streamed(
        delta(content="hi"),
        delta("stop"),
        event({"choices": [], "usage": {"prompt_tokens": -1, "completion_tokens": 1}}),
        DONE,
    ),
    "an unknown finish": streamed(delta(content="hi"), delta("because"), DONE),
    "bytes that are no text": streamed(
        b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n', delta("stop"), DONE
    ),
    "no body": streamed(),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_never_a_reply(name: str) -> None:
    error = await failure(BROKEN_STREAMS[name], stream=True)
    assert (error.failure.kind, error.failure.permanent) == ("network", False)
    assert "cannot be used" in str(error)


BROKEN_BODIES: dict[str, object] = {
    "nothing": b"",
    "blanks": b"  \n ",
    "html": b"<html><body>welcome</body></html>",
    "half": json.dumps(said()).encode()[:-9],
    "twice": json.dumps(said()).encode() * 2,
    "a list": [said()],
    "no choices": {"id": "x"},
    "empty choices": {"choices": []},
    "two choices": {"choices": [*said()["choices"], *said()["choices"]]},  # pyright: ignore[reportGeneralTypeIssues]
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "no finish": said(finish=None),
    "text that is a number": said(content=5),
    "calls announced and missing": said(finish="tool_calls"),
    "a nameless call": said(None, "tool_calls", tool_calls=[{"id": "a", "function": {"arguments": "{}"}}]),
    "nested without end": b'{"choices":' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_body_is_never_a_reply(name: str, stream: bool) -> None:
    error = await failure(whole(BROKEN_BODIES[name]), stream=stream)
    assert error.failure.kind == "network"
    assert str(error).startswith("openai:m: the reply cannot be used: ")


async def test_a_page_in_place_of_a_reply_is_named_as_such() -> None:
    assert "HTML page" in str(await failure(whole(BROKEN_BODIES["html"], kind="text/html")))


@pytest.mark.parametrize(("content", "finish"), [("", "stop"), (" \n", "stop"), (None, "length")])
async def test_an_empty_reply_is_a_failure_that_was_paid_for(content: str | None, finish: str) -> None:
    error = await failure(whole(said(content, finish)))
    assert (error.failure.kind, error.usage) == ("logic", Usage(7, 3, 2))


async def test_calls_that_were_cut_off_are_never_made() -> None:
    calls = [{"id": "a", "function": {"name": "add", "arguments": '{"a":'}}]
    error = await failure(whole(said(None, "length", tool_calls=calls)))
    assert error.failure.kind == "logic"
    assert "max_tokens" in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "permanent", "step"),
    [
        (400, "logic", True, "change the request"),
        (401, "resource", True, "check the key in OPENAI_API_KEY"),
        (402, "resource", True, "credit"),
        (403, "resource", True, "ask for access"),
        (404, "logic", True, "model's name"),
        (408, "network", False, "try again"),
        (409, "network", False, "try again"),
        (413, "resource", True, "send less"),
        (422, "logic", True, "change the request"),
        (429, "resource", False, "wait"),
        (500, "network", False, "try again"),
        (529, "network", False, "try again"),
        (307, "logic", True, "set the base URL"),
        (202, "network", False, "try again"),
    ],
)
async def test_an_error_says_who_what_and_the_next_step(status: int, kind: str, permanent: bool, step: str) -> None:
    said_by_them = {"error": {"message": f"no, because of {KEY}\x1b[31m", "type": "some_error"}}
    error = await failure(whole(said_by_them, status, location="http://127.0.0.1:1/"))
    assert (error.failure.kind, error.failure.permanent, error.status) == (kind, permanent, status)
    for part in ("openai:m", "127.0.0.1", str(status), "no, because of [key]", step):
        assert part in str(error)
    assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "86400"}, 86_400.0),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:57 GMT", "date": "Sun, 06 Nov 1994 08:49:37 GMT"}, 20.0),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:37 GMT", "date": "Sun, 06 Nov 1994 08:49:57 GMT"}, 0.0),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0.0),
        ({"retry_after": "soon"}, 0.0),
        ({"retry_after": "-5"}, 0.0),
        ({"retry_after": "nan"}, 0.0),
        ({"retry_after": "999999999999"}, 7 * 86_400.0),
    ],
)
async def test_what_the_server_asks_us_to_wait_is_read(headers: dict[str, str], wait: float) -> None:
    error = await failure(whole({"error": "slow down"}, 429, **headers))
    assert error.failure.retry_after == wait


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "plain words"}, "plain words"),
        ({"message": "on its own"}, "on its own"),
        ({"detail": "as some do"}, "as some do"),
        ({"detail": [{"loc": ["body"]}]}, "loc"),
        ({"error": {"code": 5, "message": 7}}, "7"),
        (b"no json at all", "no json at all"),
        (b"<html>Bad Gateway</html>", "an HTML page"),
        (b"x" * 100_000, "xxx..."),
        (b"", "answered 503;"),
        ({}, "answered 503;"),
    ],
)
async def test_what_an_error_page_says_is_read_as_far_as_it_can_be(body: object, words: str) -> None:
    error = await failure(whole(body, 503))
    assert words in str(error)
    assert len(str(error)) < 500


TEAM = ("ann", "bob")
FORMS = {
    "plan": planner.schema(TEAM, ("sql",), 50),
    "route": route.route_schema(TEAM),
    "judge": judge.ruling_schema(("t1", "t2"), "contradiction"),
    "vote": judge.ruling_schema(("t1", "t2"), "vote"),
    "split": recursive.split_schema(TEAM, 4),
    "ledger": loop.ledger_schema(TEAM, ("t1",)),
}


@pytest.mark.parametrize("name", FORMS)
async def test_every_form_the_supervisor_asks_for_is_sent_as_strict(name: str) -> None:
    async with talking(whole(said("{}"))) as (model, server):
        await model.reply(Request([Message("user", "x")], schema=FORMS[name]))
    form = json.loads(server.asked[0].body)["response_format"]["json_schema"]
    assert form["strict"] is True
    assert len(json.dumps(form)) < 2_000


async def test_a_key_is_not_shown_even_where_the_words_are_cut() -> None:
    for before in range(270, 301):
        assert KEY[:8] not in str(await failure(whole(b"x" * before + KEY.encode(), 503)))


async def test_a_quota_that_is_used_up_does_not_come_back_by_waiting() -> None:
    error = await failure(whole({"error": {"message": "over", "code": "insufficient_quota"}}, 429))
    assert (error.failure.kind, error.failure.permanent) == ("resource", True)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_inside_a_success_is_an_error(stream: bool) -> None:
    content: dict[str, object] = {"error": {"message": "upstream fell over", "code": 502}, "choices": ()}
    error = await failure(streamed(event(content), DONE) if stream else whole(content), stream=stream)
    assert (error.failure.kind, error.status) == ("network", 502)
    assert "upstream fell over" in str(error)


async def test_an_error_that_is_null_is_none() -> None:
    assert (await reply(whole(said() | {"error": None}))).text == "hi"


async def test_costs_are_taken_only_from_servers_that_report_them() -> None:
    content = said() | {"usage": {"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.00042}}
    assert (await reply(whole(content))).micros is None
    assert (await reply(whole(content), reports_cost=True)).micros == 420
    content["usage"] = {"prompt_tokens": 7, "completion_tokens": 3, "cost": -1}
    assert "cost" in str(await failure(whole(content), reports_cost=True))


@pytest.mark.parametrize("stream", [False, True])
async def test_silence_before_the_reply_ends_in_time(stream: bool) -> None:
    error = await failure([30.0], stream=stream, timeouts=UNHEARD)
    assert error.failure.kind == "timeout"
    assert "nothing of the reply came within 0.2 s" in str(error)


@pytest.mark.parametrize("opening", [b": wait\n\n", delta(role="assistant", content="")])
async def test_headers_and_an_opening_are_no_first_token(opening: bytes) -> None:
    error = await failure(streamed(opening, 30.0), stream=True, timeouts=UNHEARD)
    assert "nothing of the reply came within 0.2 s" in str(error)


async def test_comments_do_not_keep_a_silent_stream_alive() -> None:
    comments: list[bytes | float] = [b": ping\n\n", 0.05] * 400
    error = await failure(streamed(delta(content="hi"), *comments), stream=True, timeouts=SILENT)
    assert "silent for 0.2 s" in str(error)


async def test_a_stream_that_never_ends_ends_in_time() -> None:
    drops: list[bytes | float] = [delta(content="la"), 0.05] * 400
    error = await failure(streamed(*drops), stream=True, timeouts=ENDLESS)
    assert "not finished within 0.5 s" in str(error)


async def test_a_server_that_keeps_the_stream_open_after_its_end_is_not_waited_for() -> None:
    play = streamed(delta(content="hi"), delta("stop"), USED, DONE, 5.0)
    assert (await reply(play, stream=True, timeouts=Timeouts())).text == "hi"


async def test_nobody_there_is_a_network_failure() -> None:
    async with loopback(lambda _: []) as server:
        port = server.port
    model = OpenAIChat("openai:m", f"http://127.0.0.1:{port}/v1", "m", KEY)
    async with closing(model):
        with pytest.raises(ModelFailed, match="did not get through") as caught:
            await model.reply(HELLO)
    assert caught.value.failure.kind == "network"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_above_the_cap_is_given_up(stream: bool) -> None:
    big = "x" * 50_000
    play = streamed(delta(content=big), delta(content=big), delta("stop"), DONE) if stream else whole(said(big * 2))
    error = await failure(play, stream=stream, max_bytes=90_000)
    assert error.failure.kind == "resource"
    assert "90,000 bytes" in str(error)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_compressed_reply_is_read_although_it_was_not_asked_for(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    text = "x" * 1_000_000
    packed = pack(json.dumps(said(text)).encode())
    assert (await reply(whole(packed, content_encoding=encoding))).text == text


async def test_a_compressed_reply_is_bounded_by_what_it_unpacks_to() -> None:
    packed = gzip.compress(json.dumps(said("x" * 20_000_000)).encode())
    assert len(packed) < 100_000
    assert "larger than" in str(await failure(whole(packed, content_encoding="gzip")))


async def test_a_compressed_reply_that_cannot_be_read_names_the_header() -> None:
    packed = gzip.compress(json.dumps(said()).encode())
    for body, encoding, why in (
        (packed, "br", "only gzip and deflate can be read"),
        (packed[:-10], "gzip", "was cut off"),
        (b"never packed", "gzip", "not what its header says"),
    ):
        problem = str(await failure(whole(body, content_encoding=encoding)))
        assert why in problem
        assert f"Content-Encoding: {encoding}" in problem


async def test_an_error_in_gzip_is_told_in_its_words_and_by_its_status_where_it_cannot_be_read() -> None:
    sent = gzip.compress(json.dumps({"error": {"message": "no such key"}}).encode())
    assert "no such key" in str(await failure(whole(sent, 401, content_encoding="gzip")))
    assert "401" in str(await failure(whole(sent, 401, content_encoding="br")))


async def test_a_connection_is_used_again_after_whole_and_streamed_replies() -> None:
    def play(asked: Asked) -> list[Move]:
        return streamed(delta(content="hi"), delta("stop"), DONE) if b"stream" in asked.body else whole(said())

    async with talking(play) as (model, server):
        for _ in range(3):
            await model.reply(HELLO)
            await model.reply(HELLO, Heard())
    assert (server.connections, len(server.asked)) == (1, 6)


async def test_a_server_nobody_vouches_for_is_not_talked_to(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    async with loopback(lambda _: whole(said()), tls=serving) as server:
        url = server.url.replace("http:", "https:")
        model = OpenAIChat("openai:m", url, "m", KEY)
        async with closing(model):
            with pytest.raises(CallFailed, match="Certificate") as caught:
                await model.reply(HELLO)
        assert server.asked == []
        assert caught.value.failure.kind == "network"
        transport = Transport(tls=ssl.create_default_context(cafile=str(certificate)))
        async with closing(transport):
            assert (await OpenAIChat("openai:m", url, "m", KEY, transport=transport).reply(HELLO)).text == "hi"


async def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (await reply(whole(said()))).text == "hi"


def test_one_model_serves_one_loop_after_another() -> None:
    transport = Transport()

    async def once() -> str:
        async with loopback(lambda _: whole(said())) as server:
            model = OpenAIChat("openai:m", server.url, "m", transport=transport)
            return (await model.reply(HELLO)).text

    async def last() -> str:
        text = await once()
        await transport.close()
        return text

    assert [asyncio.run(once()), asyncio.run(once()), asyncio.run(last())] == ["hi", "hi", "hi"]
    assert transport._sessions == {}


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "tab\t"])
def test_a_key_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(Invalid, match="set it again") as caught:
        OpenAIChat("openai:m", "http://127.0.0.1:1/v1", "m", key)
    assert key not in str(caught.value)


async def test_text_that_cannot_be_written_fails_before_anything_is_sent() -> None:
    async with talking(whole(said())) as (model, server):
        with pytest.raises(CallFailed, match="cannot be written as JSON") as caught:
            await model.reply(Request([Message("user", "half \ud800 a character")]))
    assert caught.value.failure.permanent
    assert server.asked == []


async def test_a_call_that_is_cancelled_lets_go_of_its_connection() -> None:
    async with talking([5.0], timeouts=Timeouts()) as (model, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.reply(HELLO)
