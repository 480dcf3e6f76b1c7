"""What models think: read from both protocols, whole and streamed, kept apart from answers, and sent back as it was."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import cast

import msgspec
import pytest
from msgspec import Raw
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaThinkingCalls, DeltaThinkingPart, FunctionModel

from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import (
    Kept,
    KeptPart,
    Message,
    Reply,
    Request,
    ToolCall,
    drop_changed_parts,
    thought_text,
)
from chargehand.models.openai import OpenAIChat
from chargehand.models.pydantic_ai_models import ProviderModel
from tests.models.loopback import Asked, Loopback, Move, loopback
from tests.support.closing import closing
from tests.support.hearing import Heard

Json = dict[str, object]
HELLO = Request([Message("user", "hello")])
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
GEMINI: Json = {"google": {"thought_signature": "CrIC"}}
SKIPPED: Json = {"google": {"thought_signature": "skip_thought_signature_validator"}}
DETAILS: list[Json] = [
    {"type": "reasoning.text", "text": "Add one.", "signature": "s1", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "opaque", "index": 1},
]
THINKING: Json = {"type": "thinking", "thinking": "Add one, I think.", "signature": "EqQB"}
REDACTED: Json = {"type": "redacted_thinking", "data": "opaque"}
KEPT_PARTS = (KeptPart("reasoning_content", Raw(b'"Add one."')),)
TOOL_USE: Json = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}


def http(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def refusal(words: str) -> list[Move]:
    return [http(msgspec.json.encode({"error": {"message": words}}), status="400 Bad Request")]


def chat(message: Json, finish: str = "tool_calls") -> list[Move]:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return [http(msgspec.json.encode({"id": "r", "model": "m", "choices": [choice]}))]


def chunks(*deltas: Json, finish: str = "tool_calls") -> list[Move]:
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    frames = [b"data: " + msgspec.json.encode({"id": "r", "model": "m", "choices": [each]}) for each in choices]
    return [http(b"\n\n".join([*frames, b"data: [DONE]"]) + b"\n\n", "text/event-stream")]


def message(*content: Json, stop: str = "tool_use") -> list[Move]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole = {"type": "message", "model": "m", "content": content, "stop_reason": stop, "usage": usage}
    return [http(msgspec.json.encode(whole))]


def block_delta(index: int, delta: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def events(*blocks: tuple[Json, Sequence[Json]], stop: str = "tool_use") -> list[Move]:
    frames: list[Json] = [{"type": "message_start", "message": {"type": "message", "model": "m", "content": []}}]
    for index, (block, deltas) in enumerate(blocks):
        frames.append({"type": "content_block_start", "index": index, "content_block": block})
        frames += map(partial(block_delta, index), deltas)
        frames.append({"type": "content_block_stop", "index": index})
    frames.append({"type": "message_delta", "delta": {"stop_reason": stop}})
    frames.append({"type": "message_stop"})
    return [http(b"".join(b"data: " + msgspec.json.encode(frame) + b"\n\n" for frame in frames), "text/event-stream")]


async def replies(
    protocol: str, answers: Sequence[list[Move]], *, streamed: bool
) -> tuple[list[Reply], Loopback, Heard]:
    """The replies of a conversation in which each reply is followed by the results of its calls."""
    left = list(answers)

    def play(_: Asked) -> list[Move]:
        return left.pop(0)

    heard = Heard()
    async with loopback(play) as server:
        make = OpenAIChat if protocol == "chat" else AnthropicMessages
        model = make("test:m", server.url, "m", "key")
        made: list[Reply] = []
        said = list(HELLO.messages)
        async with closing(model):
            while left:
                reply = await model.reply(Request(said), heard if streamed else None)
                made.append(reply)
                said = [*said, reply.message(), *(Message("tool", "2", call=call.id) for call in reply.calls)]
    return made, server, heard


def sent_back(server: Loopback, at: int = -1) -> Json:
    """The model's first message, as a later request has it."""
    messages = cast("list[Json]", server.asked[at].json["messages"])
    return next(each for each in messages if each["role"] == "assistant")


CHAT_REPLIES: dict[str, tuple[list[Move], list[Move], str, Json]] = {
    "reasoning_content": (
        chat({"reasoning_content": "Add one.", "tool_calls": [CALL]}),
        chunks(
            {"role": "assistant", "content": None, "reasoning_content": ""},
            {"reasoning_content": "Add "},
            {"reasoning_content": "one."},
            {"reasoning_content": None, "tool_calls": [{"index": 0, **CALL}]},
        ),
        "Add one.",
        {"reasoning_content": "Add one.", "tool_calls": [CALL]},
    ),
    "an empty reasoning_content, which DeepSeek wants back too": (
        chat({"reasoning_content": "", "tool_calls": [CALL]}),
        chunks({"reasoning_content": ""}, {"tool_calls": [{"index": 0, **CALL}]}),
        "",
        {"reasoning_content": "", "tool_calls": [CALL]},
    ),
    "reasoning": (
        chat({"reasoning": "Add one.", "tool_calls": [CALL]}),
        chunks({"reasoning": "Add "}, {"reasoning": "one."}, {"tool_calls": [{"index": 0, **CALL}]}),
        "Add one.",
        {"reasoning": "Add one.", "tool_calls": [CALL]},
    ),
    "reasoning_details, in the place of the same text beside them": (
        chat({"reasoning": "Add one.", "reasoning_details": DETAILS, "tool_calls": [CALL]}),
        chunks(
            {"reasoning": "Add ", "reasoning_details": [{**DETAILS[0], "text": "Add ", "signature": None}]},
            {"reasoning": "one.", "reasoning_details": [{**DETAILS[0], "text": "one.", "signature": None}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "s1", "index": 0}]},
            {"reasoning_details": [DETAILS[1]]},
            {"tool_calls": [{"index": 0, **CALL}]},
        ),
        "Add one.",
        {"reasoning_details": DETAILS, "tool_calls": [CALL]},
    ),
    "extra_content of a call": (
        chat({"tool_calls": [{**CALL, "extra_content": GEMINI}]}),
        chunks({"tool_calls": [{"index": 0, **CALL, "extra_content": GEMINI}]}),
        "",
        {"tool_calls": [{**CALL, "extra_content": GEMINI}]},
    ),
    "extra_content of the message": (
        chat({"content": "I add.", "extra_content": GEMINI, "tool_calls": [CALL]}),
        chunks({"content": "I add."}, {"content": "", "extra_content": GEMINI}, {"tool_calls": [{"index": 0, **CALL}]}),
        "",
        {"content": "I add.", "extra_content": GEMINI, "tool_calls": [CALL]},
    ),
    "thoughts of a shape nobody knows": (
        chat({"reasoning": {"a": 1}, "reasoning_details": "text", "extra_content": [1], "tool_calls": [CALL]}),
        chunks(
            {"reasoning": 7, "reasoning_details": [3], "extra_content": "x"}, {"tool_calls": [{"index": 0, **CALL}]}
        ),
        "",
        {"tool_calls": [CALL]},
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", CHAT_REPLIES)
async def test_thoughts_of_chat_completions_are_sent_back_as_they_came(case: str, *, streamed: bool) -> None:
    whole, stream, thought, expected = CHAT_REPLIES[case]
    done = chunks({"content": "Two."}, finish="stop") if streamed else chat({"content": "Two."}, "stop")
    made, server, heard = await replies("chat", [stream if streamed else whole, done], streamed=streamed)
    assert sent_back(server) == {"role": "assistant", "content": None, **expected}
    assert thought_text(made[0].kept) == "".join(heard.thoughts or [thought]) == thought
    assert [reply.text for reply in made] == [expected.get("content", ""), "Two."]
    assert "".join(heard.answer) == ("".join(reply.text for reply in made) if streamed else "")


@pytest.mark.parametrize("streamed", [False, True])
async def test_thinking_blocks_are_sent_back_before_what_they_led_to(*, streamed: bool) -> None:
    text: Json = {"type": "text", "text": "I add."}
    thinking: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in ("Add one, ", "I think.")]
    stream = events(
        ({**THINKING, "thinking": "", "signature": ""}, [*thinking, {"type": "signature_delta", "signature": "EqQB"}]),
        ({**text, "text": ""}, [{"type": "text_delta", "text": "I add."}]),
        (REDACTED, []),
        ({**TOOL_USE, "input": {}}, [{"type": "input_json_delta", "partial_json": '{"a": 1}'}]),
    )
    whole = message(THINKING, text, REDACTED, TOOL_USE)
    done = events(({"type": "text", "text": "Two."}, []), stop="end_turn")
    answers = [stream, done] if streamed else [whole, message({"type": "text", "text": "Two."}, stop="end_turn")]
    made, server, heard = await replies("messages", answers, streamed=streamed)
    assert sent_back(server)["content"] == [THINKING, text, REDACTED, TOOL_USE]
    assert [reply.text for reply in made] == ["I add.", "Two."]
    assert thought_text(made[0].kept) == "Add one, I think."
    assert "".join(heard.thoughts) == ("Add one, I think." if streamed else "")
    assert "".join(heard.answer) == ("I add.Two." if streamed else "")


async def test_a_reply_that_was_to_be_streamed_and_is_not_tells_its_thoughts() -> None:
    _, _, heard = await replies(
        "messages", [message(THINKING, {"type": "text", "text": "Two."}, stop="end_turn")], streamed=True
    )
    assert (heard.thoughts, heard.answer) == (["Add one, I think."], ["Two."])


def kept(provider: str, model: str, *parts: KeptPart) -> Message:
    return Message("assistant", "", (ToolCall("c1", "add", '{"a":1}'),), kept=Kept(parts, provider, model))


@pytest.mark.parametrize(("provider", "model"), [("chat elsewhere", "m"), ("messages HERE", "m"), ("chat HERE", "n")])
async def test_thoughts_of_another_model_are_not_sent(provider: str, model: str) -> None:
    part = KeptPart("reasoning_content", Raw(b'"Add one."'))
    async with loopback(lambda _: chat({"content": "Two."}, "stop")) as server:
        written = kept(provider.replace("HERE", f"127.0.0.1:{server.port}"), model, part)
        one = OpenAIChat("test:m", server.url, "m", "key")
        async with closing(one):
            await one.reply(Request([*HELLO.messages, written, Message("tool", "2", call="c1")]))
            own = msgspec.structs.replace(written, kept=Kept((part,), f"chat 127.0.0.1:{server.port}", "m"))
            await one.reply(Request([*HELLO.messages, own, Message("tool", "2", call="c1")]))
    assert "reasoning_content" not in sent_back(server, 0)
    assert sent_back(server, 1)["reasoning_content"] == "Add one."


async def test_a_field_that_a_server_does_not_take_back_is_left_out_from_then_on() -> None:
    first = chat({"reasoning": "Add one.", "tool_calls": [CALL]})
    words = "'messages.1' : property 'reasoning' is unsupported"
    answers = [first, refusal(words), first, chat({"content": "Two."}, "stop")]
    made, server, _ = await replies("chat", answers, streamed=False)
    assert made[-1].text == "Two."
    assert ["reasoning" in sent_back(server, at) for at in (1, 2, 3)] == [True, False, False]


async def test_a_refusal_that_names_no_field_that_was_sent_is_a_failure() -> None:
    first = chat({"reasoning": "Add one.", "tool_calls": [CALL]})
    with pytest.raises(Exception, match="reasoning_effort is not supported"):
        await replies("chat", [first, refusal("reasoning_effort is not supported")], streamed=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", {"reasoning_content": ""}),
        (
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
            {"reasoning_content": ""},
        ),
        (
            "Function call is missing a thought_signature in functionCall parts.",
            {
                "tool_calls": [
                    {**CALL, "extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
                ]
            },
        ),
    ],
)
async def test_what_is_missing_is_made_up_for_where_the_server_asks_for_it(words: str, expected: Json) -> None:
    answers = [chat({"tool_calls": [CALL]}), refusal(words), chat({"content": "Two."}, "stop")]
    made, server, _ = await replies("chat", answers, streamed=False)
    assert made[-1].text == "Two."
    assert sent_back(server) == {"role": "assistant", "content": None, "tool_calls": [CALL], **expected}


async def test_a_server_that_refuses_what_was_made_up_is_not_asked_for_ever() -> None:
    words = "The `reasoning_content` in the thinking mode must be passed back to the API."
    with pytest.raises(Exception, match="must be passed back"):
        await replies("chat", [chat({"tool_calls": [CALL]}), refusal(words), refusal(words)], streamed=False)


async def test_a_conversation_that_lacks_a_thought_is_continued_without_thinking() -> None:
    words = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    answers = [message(TOOL_USE), refusal(words), message({"type": "text", "text": "Two."}, stop="end_turn")]
    made, server, _ = await replies("messages", answers, streamed=False)
    assert made[-1].text == "Two."
    assert [asked.json.get("thinking") for asked in server.asked] == [None, None, {"type": "disabled"}]


def test_a_part_that_was_changed_is_not_kept() -> None:
    before = Reply(kept=Kept((KeptPart("thinking", Raw(b'"key abc"')), KeptPart("thinking", Raw(b'"plain"')))))
    after = Reply(kept=Kept((KeptPart("thinking", Raw(b'"key [secret]"')), KeptPart("thinking", Raw(b'"plain"')))))
    assert drop_changed_parts(before, after) == Reply(kept=Kept((KeptPart("thinking", Raw(b'"plain"')),)))


# --- the extra


async def test_parts_of_other_providers_come_back_to_them() -> None:
    asked: list[list[theirs.ModelMessage]] = []
    signed = {"thought_signature": "t"}
    parts = [
        theirs.ThinkingPart("Add one.", signature="s1", provider_name="function"),
        theirs.TextPart("I add."),
        theirs.ToolCallPart("add", '{"a":1}', "c1", provider_name="function", provider_details=signed),
    ]

    def answer(messages: list[theirs.ModelMessage], _info: AgentInfo) -> theirs.ModelResponse:
        asked.append(messages)
        return theirs.ModelResponse(parts if len(asked) == 1 else [theirs.TextPart("Two.")])

    model = ProviderModel("some:model", FunctionModel(answer))
    async with closing(model):
        first = await model.reply(HELLO)
        stored = msgspec.json.decode(msgspec.json.encode(first), type=Reply)
        said = [*HELLO.messages, stored.message(), Message("tool", "2", call="c1")]
        second = await model.reply(Request(said))
        foreign = msgspec.structs.replace(stored, kept=Kept(KEPT_PARTS, "chat api.deepseek.com", "m"))
        await model.reply(Request([*HELLO.messages, foreign.message(), Message("tool", "2", call="c1")]))
    assert (first.text, thought_text(first.kept), second.text, second.kept) == ("I add.", "Add one.", "Two.", None)
    response = asked[1][1]
    assert isinstance(response, theirs.ModelResponse)
    assert list(response.parts) == parts
    response = asked[2][1]
    assert isinstance(response, theirs.ModelResponse)
    assert [type(part) for part in response.parts] == [theirs.TextPart, theirs.ToolCallPart]


async def test_thoughts_of_other_providers_are_heard_as_such() -> None:
    async def stream(_messages: list[theirs.ModelMessage], _info: AgentInfo) -> AsyncIterator[str | DeltaThinkingCalls]:
        yield {0: DeltaThinkingPart(content="Add ")}
        yield {0: DeltaThinkingPart(content="one.", signature="s1")}
        yield "Two."

    heard = Heard()
    model = ProviderModel("some:model", FunctionModel(stream_function=stream))
    async with closing(model):
        reply = await model.reply(HELLO, heard)
    assert ("".join(heard.thoughts), "".join(heard.answer)) == ("Add one.", "Two.")
    assert (reply.text, thought_text(reply.kept)) == ("Two.", "Add one.")
