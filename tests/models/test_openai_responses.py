"""OpenAI's Responses API over real sockets: what is sent, and what is made of what comes back."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw, structs
from openai import AsyncOpenAI, AsyncStream
from openai.types.responses import Response, ResponseCompletedEvent, ResponseStreamEvent
from pydantic import TypeAdapter

from chargehand.engine.facts import Citation
from chargehand.models.call_errors import CallFailed
from chargehand.models.http import Timeouts
from chargehand.models.messages import (
    Document,
    Effort,
    Image,
    Message,
    Reply,
    Request,
    Settings,
    ToolCall,
    ToolSpec,
    Usage,
    drop_changed_parts,
    thought_text,
)
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.providers import reasons
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.thought_rules import THOUGHT
from tests.models.loopback import Asked, Loopback, Move, event, loopback, streamed, whole
from tests.support.closing import closing
from tests.support.hearing import Heard

Json = dict[str, object]
KEY = "sk-this-is-the-key-1234567890"
PATIENT = Timeouts(connect=20.0, first=20.0, whole=20.0, idle=20.0, total=30.0)
HELLO = Request([Message("user", "hello")])
ADD = ToolSpec("add", "adds", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}}}'))
STRICT = Raw(b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}')
OPENAI = "https://api.openai.com/v1"

# As recorded at OpenAI (github.com/charmbracelet/fantasy, providertests), shortened.
THINKING: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAAAABpsxmE8pxiNFPj",
    "summary": [
        {"type": "summary_text", "text": "**Adding**\n\nOne and one."},
        {"type": "summary_text", "text": "**Done**"},
    ],
}
CALL: Json = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{"a":1}',
    "call_id": "call_1",
    "name": "add",
}
USAGE = {
    "input_tokens": 70,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 25},
    "total_tokens": 110,
}


def says(text: str, phase: str | None = None, id: str = "msg_1", **part: object) -> Json:  # noqa: A002 - theirs
    content: Json = {"type": "output_text", "annotations": [], "logprobs": [], "text": text, **part}
    item: Json = {"id": id, "type": "message", "status": "completed", "content": [content], "role": "assistant"}
    return item if phase is None else {**item, "phase": phase}


def response(*items: Json, **more: object) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-2025-08-07",
        "output": list(items),
        "service_tier": "default",
        "usage": USAGE,
        **more,
    }


def told(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)


def item_events(index: int, item: Json) -> list[bytes]:
    """An item of a stream, its words in two pieces."""
    where = {"output_index": index, "item_id": item["id"]}
    begun: Json = {**item, "status": "in_progress"}
    pieces: list[bytes] = []
    if item["type"] == "reasoning":
        begun = {**item, "summary": [], "encrypted_content": "gAAA-not-whole"}
        for at, part in enumerate(cast("list[dict[str, str]]", item["summary"])):
            pieces.append(told("response.reasoning_summary_part.added", **where, summary_index=at, part={}))
            kind = "response.reasoning_summary_text.delta"
            pieces += [told(kind, **where, delta=piece) for piece in (part["text"][:4], part["text"][4:])]
    elif item["type"] == "message":
        begun |= {"content": []}
        [part] = cast("list[dict[str, str]]", item["content"])
        field, kind = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
        pieces = [told(f"response.{kind}.delta", **where, delta=half) for half in (part[field][:3], part[field][3:])]
    elif item["type"] == "function_call":
        begun |= {"arguments": ""}
        words = str(item["arguments"])
        kind = "response.function_call_arguments.delta"
        pieces = [told(kind, **where, delta=half) for half in (words[:3], words[3:])]
    added = told("response.output_item.added", output_index=index, item=begun)
    return [added, *pieces, told("response.output_item.done", output_index=index, item=item)]


BEGUN = told("response.created", response={"status": "in_progress", "output": []})


def stream(*items: Json, **more: object) -> list[bytes]:
    made = response(*items, **more)
    end = told(f"response.{made['status']}", response=made)
    return [BEGUN, *(frame for at, item in enumerate(items) for frame in item_events(at, item)), end]


@asynccontextmanager
async def talking(play: Callable[[Asked], Sequence[Move]]) -> AsyncGenerator[tuple[OpenAIResponses, Loopback]]:
    async with loopback(play) as server:
        model = OpenAIResponses("openai:m", server.url, "m", KEY, timeouts=PATIENT)
        async with closing(model):
            yield model, server


async def reply(moves: list[Move], hear: Heard | None = None) -> Reply:
    async with talking(lambda _: moves) as (model, _):
        return await model.reply(HELLO, hear)


async def both(*items: Json, **more: object) -> Reply:
    """The reply, which is the same whole and streamed, and heard as it is."""
    heard = Heard()
    answers = [whole(response(*items, **more)), streamed(*stream(*items, **more))]
    async with talking(lambda _: answers.pop(0)) as (model, _):
        came = await model.reply(HELLO)
        assert msgspec.json.encode(await model.reply(HELLO, heard)) == msgspec.json.encode(came)
    assert "".join(heard.answer) == ("" if came.finish == "refused" else came.text)
    assert "".join(heard.thoughts) == thought_text(came.kept)
    return came


async def failure(moves: list[Move], hear: Heard | None = None) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await reply(moves, hear)
    assert KEY not in str(caught.value)
    return caught.value


# --- requests


def body_of(request: Request, *, url: str = OPENAI, name: str = "gpt-5", streamed: bool = False) -> dict[str, Any]:
    model = OpenAIResponses("openai:m", url, name, KEY)
    body = model._write(request, 4_000, Heard() if streamed else None)
    return msgspec.json.decode(msgspec.json.encode(body))


async def test_a_conversation_goes_out_as_items() -> None:
    image = Image("f1", "image/png", b"png")
    request = Request(
        [
            Message("system", "be brief"),
            Message("user", "what is this?", images=(image,)),
            Message("assistant", "I look.", (ToolCall("c1", "add", '{"a":1}'),)),
            Message("tool", "2", call="c1"),
        ],
        (ADD, structs.replace(ADD, name="sub", parameters=STRICT)),
        settings=Settings(parallel_tool_calls=False, max_tokens=50),
        tool_choice="add",
    )
    async with talking(lambda _: whole(response(says("hi")))) as (model, server):
        await model.reply(request)
    asked = server.asked[0]
    assert asked.path == "/v1/responses"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    picture = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}
    loose = json.loads(bytes(ADD.parameters))
    assert asked.json == {
        "model": "m",
        "input": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "what is this?"}, picture]},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "function", "name": "add", "description": "adds", "parameters": loose, "strict": False},
            {
                "type": "function",
                "name": "sub",
                "description": "adds",
                "parameters": json.loads(bytes(STRICT)),
                "strict": True,
            },
        ],
        "tool_choice": {"type": "function", "name": "add"},
        "parallel_tool_calls": False,
        "max_output_tokens": 50,
    }


def test_all_settings_go_out_in_the_words_of_the_api() -> None:
    settings = Settings(
        temperature=0.5, effort="high", top_p=0.9, seed=7, stop=["END"], service_tier="flex", extra={"verbosity": "low"}
    )
    model = OpenAIResponses("openai:m", OPENAI, "gpt-5", KEY)
    body = model._write(Request(HELLO.messages, settings=settings), 50, Heard())
    assert {name: body[name] for name in body.keys() - {"model", "input", "include"}} == {
        "store": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "temperature": 0.5,
        "top_p": 0.9,
        "service_tier": "flex",
        "max_output_tokens": 50,
        "stream": True,
        "verbosity": "low",
    }
    notice = model.card.notice
    assert "seed is not sent" in notice
    assert "stop is not sent" in notice


@pytest.mark.parametrize(("effort", "summary"), [(None, True), ("none", False), ("max", True)])
def test_a_summary_is_asked_for_where_the_model_thinks_and_somebody_hears_it(
    effort: Effort | None, summary: bool
) -> None:
    request = Request(HELLO.messages, settings=Settings(effort=effort))
    wanted = {"effort": effort} if effort else {}
    assert body_of(request).get("reasoning", {}) == wanted
    assert body_of(request, streamed=True).get("reasoning", {}) == wanted | ({"summary": "auto"} if summary else {})


def test_a_summary_of_the_settings_is_the_one_that_is_sent() -> None:
    request = Request(HELLO.messages, settings=Settings(extra={"reasoning": {"summary": "detailed"}}))
    assert body_of(request, streamed=True)["reasoning"] == {"summary": "detailed"}


def test_models_of_openai_that_do_not_reason_are_asked_for_no_thoughts() -> None:
    assert not {"include", "reasoning"} & body_of(HELLO, name="gpt-4o", streamed=True).keys()
    elsewhere = body_of(HELLO, url="http://127.0.0.1:1/v1", name="gpt-oss:20b", streamed=True)
    assert elsewhere.keys() >= {"include", "reasoning"}


def test_pdfs_and_pictures_go_out_as_parts_also_in_results_of_tools() -> None:
    paper = Document("file-2", "paper.pdf", 1, data=b"%PDF-1.4")
    picture = Image("file-1", "image/png", b"x")
    asked = Message("user", "What is in them?", images=(picture,), documents=(paper,))
    found = Message("tool", "a cat", call="c1", images=(picture,), documents=(paper,))
    items = body_of(Request([asked, Message("assistant", calls=(ToolCall("c1", "look"),)), found]))["input"]
    text, *files = items[0]["content"]
    assert text == {"type": "input_text", "text": "What is in them?"}
    assert [file["type"] for file in files] == ["input_file", "input_image"]
    assert (files[0]["filename"], files[0]["file_data"]) == ("paper.pdf", "data:application/pdf;base64,JVBERi0xLjQ=")
    assert items[2]["output"] == [{"type": "input_text", "text": "a cat"}, *files]


def test_a_schema_is_the_format_of_the_text() -> None:
    shape = {"type": "json_schema", "name": "reply", "schema": json.loads(bytes(STRICT)), "strict": True}
    assert body_of(Request(HELLO.messages, schema=STRICT))["text"] == {"format": shape}
    loose = body_of(Request(HELLO.messages, schema=ADD.parameters))["text"]["format"]
    assert (loose["strict"], loose["schema"]) == (False, json.loads(bytes(ADD.parameters)))


def test_openai_is_told_whose_calls_begin_alike() -> None:
    body = body_of(Request(HELLO.messages, settings=Settings(cache="1h"), asker="ann"))
    assert (body["prompt_cache_key"], body["prompt_cache_retention"]) == ("chargehand-ann", "24h")
    assert not [name for name in body_of(Request(HELLO.messages, asker="ann"), url="http://h/v1") if "cache" in name]


@pytest.mark.parametrize("name", ["gpt-5", "gpt-5-mini", "GPT-5.6-luna", "gpt-6-astra", "gpt-10", "o3", "o4-mini"])
@pytest.mark.parametrize("prefix", ["", "ft:"])
def test_models_that_reason_are_known_by_their_names(prefix: str, name: str) -> None:
    assert reasons(prefix + name)


@pytest.mark.parametrize(
    "name", ["gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "gpt-5-chat-latest", "gpt-5-search-api", "chatgpt-4o-latest", "m"]
)
def test_models_that_do_not_reason_are_known_by_their_names(name: str) -> None:
    assert not reasons(name)


# --- replies


async def test_a_reply_comes_back_in_our_words() -> None:
    came = await both(says("Grüße 世界"))
    usage = Usage(70, 40, cached=20, cache_written=30, reasoning=25)
    assert came == Reply("Grüße 世界", (), "stop", usage, model="gpt-5-2025-08-07", tier="default")


async def test_calls_come_back_with_what_the_model_wrote_and_thought() -> None:
    came = await both(THINKING, CALL, {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": ""})
    assert (came.calls, came.finish) == ((ToolCall("call_1", "add", '{"a":1}'), ToolCall("call_2", "add")), "tools")
    assert thought_text(came.kept) == "**Adding**\n\nOne and one.\n\n**Done**"


async def test_a_reply_that_was_cut_off_says_so() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert (await both(says("half a"), **cut)).finish == "length"
    filtered = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    came = await reply(whole(response(says("half a"), **filtered)))
    assert (came.text, came.finish) == ("half a", "refused")


async def test_items_that_are_open_where_a_reply_is_cut_off_are_taken_as_far_as_they_came() -> None:
    cut = told(
        "response.incomplete",
        response=response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    thought = item_events(0, THINKING)
    assert (await reply(streamed(BEGUN, *thought, *item_events(1, says("half a"))[:-1], cut), Heard())).text == "half a"
    second = item_events(1, {**THINKING, "id": "rs_2"})
    came = await reply(streamed(BEGUN, *item_events(0, says("half a", "final_answer")), *second[:-1], cut), Heard())
    assert came.kept is not None
    assert [part.kind for part in came.kept.parts] == ["message"], "what is not whole is not sent back"
    error = await failure(streamed(BEGUN, *thought, *item_events(1, CALL)[:-1], cut), Heard())
    assert "cut off inside its tool calls" in str(error)
    assert "raise max_tokens" in str(await failure(streamed(BEGUN, *thought[:-1], cut), Heard()))


async def test_a_refusal_is_a_reply() -> None:
    refusal = says("", type="refusal", refusal="I will not")
    came = await both(refusal)
    assert (came.text, came.finish) == ("I will not", "refused")


async def test_what_a_reply_cites_comes_with_it() -> None:
    page = {"type": "url_citation", "url": "https://a.test/", "title": "A", "start_index": 0, "end_index": 9}
    file = {"type": "file_citation", "file_id": "file-1", "filename": "paper.pdf", "index": 3}
    came = await both(says("It is 42.", annotations=[page, file, {"type": "of a new kind"}]))
    assert came.citations == (Citation("A", claim="It is 42.", url="https://a.test/"), Citation("paper.pdf"))


async def test_a_commentary_is_no_part_of_the_answer() -> None:
    came = await both(says("I look it up.", "commentary"), says("Two.", "final_answer", "msg_2"))
    assert came.text == "Two."
    assert thought_text(came.kept) == "I look it up."


async def test_a_commentary_that_nothing_follows_is_the_answer() -> None:
    heard = Heard()
    item = says("Two.", "commentary")
    assert (await reply(whole(response(item)))).text == "Two."
    assert (await reply(streamed(*stream(item)), heard)).text == "Two."
    assert heard.answer == ["Two."]


async def test_a_server_that_does_not_stream_is_heard_all_the_same() -> None:
    heard = Heard()
    assert (await reply(whole(response(THINKING, says("hi"))), heard)).text == "hi"
    assert (heard.answer, "".join(heard.thoughts)) == (["hi"], "**Adding**\n\nOne and one.\n\n**Done**")


async def test_items_that_come_at_once_are_heard_too() -> None:
    heard = Heard()
    first, *_, done = item_events(0, THINKING)
    begun, *_, said = item_events(1, says("hi"))
    came = await reply(streamed(BEGUN, first, done, begun, said, stream(THINKING, says("hi"))[-1]), heard)
    assert (came.text, heard.answer) == ("hi", ["hi"])
    assert "".join(heard.thoughts) == thought_text(came.kept)


async def test_events_and_items_of_new_kinds_are_passed_over() -> None:
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}, "content": "odd"}
    frames = [
        BEGUN,
        told("keepalive"),
        told("response.tomorrow", delta={"of": "any"}, output_index=9),
        *item_events(0, search),
        *item_events(1, says("hi")),
        told("response.completed", response=response(search, says("hi"))),
        event("[DONE]"),
    ]
    came = await reply(streamed(*frames), Heard())
    assert came.text == "hi"
    assert came.kept is not None
    assert msgspec.json.decode(came.kept.parts[0].data) == search


async def test_a_model_that_thinks_for_long_is_waited_for_as_long_as_the_server_says_so() -> None:
    alive = [0.15, told("keepalive")] * 5
    first, *rest = item_events(0, THINKING)
    end = [*rest, *item_events(1, says("hi")), stream(THINKING, says("hi"))[-1]]
    brief = structs.replace(PATIENT, first=0.5, idle=0.5)
    silent = [BEGUN, first, 0.75, *end]
    for frames, answer in (([BEGUN, first, *alive, *end], "hi"), ([BEGUN, *alive, first, *end], ""), (silent, "")):
        moves = streamed(*frames)
        async with loopback(lambda _, moves=moves: moves) as server:
            model = OpenAIResponses("openai:m", server.url, "m", KEY, timeouts=brief)
            async with closing(model):
                if answer:
                    assert (await model.reply(HELLO, Heard())).text == answer
                    continue
                with pytest.raises(CallFailed, match=r"nothing of the reply came within 0\.5 s"):
                    await model.reply(HELLO, Heard())


async def test_pictures_of_tools_are_shown_with_their_results() -> None:
    result = Message("tool", "seen", call="c1", images=(Image("f1", "image/png", b"png"),))
    body = body_of(Request([*HELLO.messages, Message("assistant", "", (ToolCall("c1", "add"),)), result]))
    assert [part["type"] for part in body["input"][-1]["output"]] == ["input_text", "input_image"]


TEXT = item_events(0, says("hi there"))
MORE = item_events(1, says("you", id="msg_2"))
TOOL = item_events(0, CALL)
DONE_BOTH = told("response.completed", response=response(says("hi there"), says("you", id="msg_2")))
DONE = told("response.completed", response=response(says("hi there")))
BROKEN_STREAMS: dict[str, list[bytes]] = {
    "no body": [],
    "no end mark": [BEGUN, *TEXT],
    "cut inside an event": [BEGUN, *TEXT, DONE[:40]],
    "no beginning": [*TEXT, DONE],
    "two beginnings": [BEGUN, BEGUN, *TEXT, DONE],
    "an end mark of another protocol": [BEGUN, *TEXT, event("[DONE]")],
    "an item that is not ended": [BEGUN, *TEXT[:-1], DONE],
    "an item that is left out": [BEGUN, *TEXT, told("response.completed", response=response(says("a"), says("b")))],
    "items out of turn": [
        BEGUN,
        MORE[0],
        TEXT[0],
        TEXT[-1].replace(b'"output_index": 0', b'"output_index": 1'),
        MORE[-1].replace(b'"output_index": 1', b'"output_index": 0'),
        DONE_BOTH,
    ],
    "a piece of no item": [BEGUN, TEXT[1], *TEXT, DONE],
    "a piece of an item that is over": [BEGUN, *TEXT, TEXT[1], DONE],
    "words in a tool call": [BEGUN, TOOL[0], told("response.output_text.delta", output_index=0, delta="x"), DONE],
    "arguments in a message": [BEGUN, TEXT[0], TOOL[1].replace(b"fc_1", b"msg_1"), *TEXT[1:], DONE],
    "two items under one index": [BEGUN, TEXT[0], TEXT[1].replace(b"msg_1", b"msg_2"), *TEXT[2:], DONE],
    "an item that ends as another": [BEGUN, *TEXT[:-1], TOOL[-1], DONE],
    "two messages at once": [BEGUN, TEXT[0], MORE[0], *TEXT[1:], *MORE[1:], DONE_BOTH],
    "words that are taken back": [BEGUN, *TEXT[:-1], TEXT[-1].replace(b"hi there", b"no"), DONE],
    "arguments that are taken back": [BEGUN, *TOOL[:-1], TOOL[-1].replace(b":1", b":2"), DONE],
    "events after the end": [BEGUN, *TEXT, DONE, told("response.in_progress")],
    "two documents in one event": [BEGUN, DONE.replace(b"\n\n", b"{}\n\n")],
    "an event without a type": [BEGUN, event({"hello": "world"}), *TEXT, DONE],
    "another protocol": [event({"choices": []}), event("[DONE]")],
    "a piece that is no text": [BEGUN, TEXT[0], told("response.output_text.delta", output_index=0, delta=5), DONE],
    "bytes that are no text": [BEGUN, *TEXT[:1], TEXT[1].replace(b"hi ", b"\xff"), *TEXT[2:], DONE],
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_never_a_reply(name: str) -> None:
    error = await failure(streamed(*BROKEN_STREAMS[name]), Heard())
    assert (error.failure.kind, error.failure.permanent) == ("network", False)
    assert "cannot be used" in str(error)


BROKEN_BODIES: dict[str, object] = {
    "nothing": b"",
    "html": b"<html><body>welcome</body></html>",
    "half": json.dumps(response(says("hi"))).encode()[:-9],
    "no output": {"id": "resp_1", "status": "completed"},
    "another protocol": {"id": "x", "choices": [{"message": {"content": "hi"}}]},
    "not finished": response(says("hi"), status="in_progress"),
    "cancelled": response(says("hi"), status="cancelled"),
    "no status": response(says("hi"), status=None),
    "cut off for no reason": response(says("hi"), status="incomplete"),
    "cut off for an unknown reason": response(
        says("hi"), status="incomplete", incomplete_details={"reason": "because"}
    ),
    "an item without a type": response({"id": "x"}),
    "text that is a number": response(says(cast("str", 5))),
    "a nameless call": response({**CALL, "name": ""}),
    "a call without an id": response({**CALL, "call_id": None}),
    "arguments that are no text": response({**CALL, "arguments": {"a": 1}}),
    "two calls of one id": response(CALL, CALL),
    "tokens below zero": response(says("hi"), usage={"input_tokens": -1, "output_tokens": 1}),
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.parametrize("hear", [False, True])
async def test_a_broken_body_is_never_a_reply(name: str, hear: bool) -> None:
    error = await failure(whole(BROKEN_BODIES[name]), Heard() if hear else None)
    assert error.failure.kind == "network"
    assert "the reply cannot be used: " in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "permanent"),
    [
        ("server_error", "network", False),
        ("rate_limit_exceeded", "resource", False),
        ("invalid_prompt", "logic", True),
        ("context_length_exceeded", "logic", True),
        ("something_new", "network", False),
    ],
)
async def test_an_error_in_a_stream_is_what_its_code_says(code: str, kind: str, permanent: bool) -> None:
    error = {"code": code, "message": "it went wrong"}
    failed = told("response.failed", response=response(status="failed", error=error))
    plain = told("error", **error, param=None)
    nested = told("error", error={**error, "type": code})
    for end in (failed, plain, nested):
        came = await failure(streamed(BEGUN, *TEXT, end), Heard())
        assert (came.failure.kind, came.failure.permanent) == (kind, permanent)
        assert "it went wrong" in str(came)
    came = await failure(whole(response(status="failed", error=error)))
    assert (came.failure.kind, came.failure.permanent) == (kind, permanent)


async def test_an_empty_reply_is_a_failure_that_was_paid_for() -> None:
    for items in ([], [THINKING], [says(" ")]):
        error = await failure(whole(response(*items)))
        assert (error.failure.kind, error.usage) == ("logic", Usage(70, 40, 20, 30, reasoning=25))


# --- what is sent back


async def conversation(answers: Sequence[list[Move]], *, edit: Callable[[Reply], Message] = Reply.message) -> Loopback:
    """Each reply is followed by the results of its calls, as a resumed run sends them."""
    left = list(answers)
    async with talking(lambda _: left.pop(0)) as (model, server):
        said = list(HELLO.messages)
        while left:
            came = msgspec.json.decode(msgspec.json.encode(await model.reply(Request(said))), type=Reply)
            said = [*said, edit(came), *(Message("tool", "2", call=call.id) for call in came.calls)]
    return server


def sent(server: Loopback, at: int = -1) -> list[Json]:
    """What a request holds of the replies before it."""
    items = cast("list[Json]", server.asked[at].json["input"])
    return [item for item in items if item.get("role") != "user" and item.get("type") != "function_call_output"]


LAST = whole(response(says("Two.")))


async def test_items_are_sent_back_as_they_came_and_in_their_order() -> None:
    comment = says("I look.", "commentary", "msg_0")
    second: Json = {**THINKING, "id": "rs_2", "summary": []}
    again: Json = {**CALL, "id": "fc_2", "call_id": "call_2"}
    final = says("So:", "final_answer", "msg_2")
    items = [THINKING, comment, CALL, second, final, again]
    server = await conversation([whole(response(*items)), LAST])
    cleaned = [{name: value for name, value in item.items() if name != "status"} for item in sent(server)]
    final_part: Json = {"type": "output_text", "text": "So:", "annotations": []}
    expected: list[Json] = [*items[:4], {**final, "content": [final_part]}, again]
    assert cleaned == [{name: value for name, value in item.items() if name != "status"} for item in expected]


async def test_null_fields_of_a_thought_are_not_sent_back() -> None:
    server = await conversation([whole(response({**THINKING, "content": None, "status": None}, CALL)), LAST])
    assert sent(server)[0] == THINKING


async def test_two_messages_of_one_reply_stay_two() -> None:
    first, second = says("One. ", id="msg_1"), says("Two.", "final_answer", "msg_2")
    server = await conversation([whole(response(THINKING, first, second, CALL)), LAST])
    texts = [cast("list[dict[str, str]]", item["content"])[0]["text"] for item in sent(server)[1:3]]
    assert texts == ["One. ", "Two."]
    changed = await conversation(
        [whole(response(THINKING, first, second, CALL)), LAST],
        edit=lambda came: structs.replace(came.message(), text="[secret]"),
    )
    assert [item.get("id") for item in sent(changed)] == ["rs_1", "msg_2", "fc_1"]


async def test_a_reply_without_thoughts_keeps_nothing() -> None:
    came = await both(says("I add."), CALL)
    assert came.kept is None
    server = await conversation([whole(response(says("I add."), CALL)), LAST])
    plain = {name: value for name, value in CALL.items() if name not in ("id", "status")}
    assert sent(server) == [{"role": "assistant", "content": "I add."}, plain]


async def test_a_thought_whose_call_is_gone_is_not_sent() -> None:
    server = await conversation(
        [whole(response(THINKING, CALL)), LAST], edit=lambda came: structs.replace(came.message(), text="x", calls=())
    )
    assert sent(server) == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "The encrypted content gAAA...Dw== could not be verified."),
        (400, "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."),
        (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
    ],
)
async def test_thoughts_that_are_refused_are_left_out_with_the_ids_that_name_them(status: int, words: str) -> None:
    refusal = whole({"error": {"message": words, "type": "invalid_request_error"}}, status)
    server = await conversation([whole(response(THINKING, CALL)), refusal, LAST])
    assert [item.get("id") for item in sent(server, 1)] == ["rs_1", "fc_1"]
    assert [item.get("id") for item in sent(server, 2)] == [None]


async def test_the_fault_server_refuses_what_openai_refuses() -> None:
    """Each change of what is sent back is refused, and none is what makes the difference."""
    async with FaultServer() as server:
        model = OpenAIResponses("openai:m", server.url("reasoning"), "gpt-5", KEY, timeouts=PATIENT)
        async with closing(model):
            first = await model.reply(Request([Message("user", "[[tool:look {}]]")], (ADD,)), Heard())
            assert thought_text(first.kept).startswith(THOUGHT)
            said = [Message("user", "[[tool:look {}]]"), first.message(), Message("tool", "seen", call="call_1")]
            good = cast("list[Json]", msgspec.json.decode(msgspec.json.encode(model._write_input(said))))
        user, thought, call, result = good
        client = AsyncOpenAI(base_url=server.url("reasoning"), api_key="k", max_retries=0)
        changes: dict[str, list[Json]] = {
            "": good,
            "without its required 'reasoning' item": [user, call, result],
            "without its required following item": [user, thought, result],
            "could not be verified": [user, {**thought, "encrypted_content": "gAAAsigned"}, call, result],
        }
        for words, items in changes.items():
            asked = client.responses.create(model="m", input=cast("Any", items))
            if words:
                with pytest.raises(Exception, match=words):
                    await asked
            else:
                assert (await asked).output_text == "seen"
        await client.close()


async def test_a_commentary_with_a_secret_is_not_kept() -> None:
    came = await both(THINKING, says("The key is abc.", "commentary"), CALL)
    assert came.kept is not None
    parts = tuple(structs.replace(part, data=Raw(bytes(part.data).replace(b"abc", b"[x]"))) for part in came.kept.parts)
    after = drop_changed_parts(came, structs.replace(came, kept=structs.replace(came.kept, parts=parts)))
    assert after.kept is not None
    assert [part.kind for part in after.kept.parts] == ["reasoning", "function_call"]


# --- their own client


STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("mode", ["ok", "reasoning"])
async def test_the_client_of_openai_reads_what_the_fault_server_says(mode: str) -> None:
    async with FaultServer() as server:
        client = AsyncOpenAI(base_url=server.url(mode), api_key="k", max_retries=0)
        ask = partial(
            client.responses.create, model="m", include=["reasoning.encrypted_content"], reasoning={"summary": "auto"}
        )
        for words in ("Grüße, 世界", "[[tool:look {}]]"):
            made: Response = await ask(input=words)
            Response.model_validate(made.model_dump(by_alias=True))
            events: AsyncStream[ResponseStreamEvent] = await ask(input=words, stream=True)
            seen = [each async for each in events]
            final = seen[-1]
            assert isinstance(final, ResponseCompletedEvent)
            assert final.response.output_text == made.output_text == ("" if "tool" in words else words)
            assert [item.type for item in final.response.output] == [item.type for item in made.output]
            assert made.output[-1].type == ("function_call" if "tool" in words else "message")
            summary = "response.reasoning_summary_text.delta"
            assert (summary in [each.type for each in seen]) is (mode == "reasoning")
            for number, each in enumerate(seen):
                if cast("str", each.type) != "keepalive":
                    assert STREAM_EVENT.validate_python(each.model_dump(by_alias=True)).sequence_number == number
        await client.close()
