"""A real language model, if a tiny one: in process, and over real sockets through the adapters."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from chargehand.errors import Invalid
from chargehand.models.actions import ANSWER, action_schema, bound, read_action, turns
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.http import Transport
from chargehand.models.local import EngineMissing, LocalModel, open_engine, pull, verify, weights_file
from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, ToolSpec
from chargehand.models.model import Hear, Model, ModelFailed
from chargehand.models.openai import OpenAIChat
from tests.support.hearing import hear_answer

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
NAME = "smollm2-135m"
SHORT = Settings(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def weights() -> Path:
    pull(NAME, MODELS)
    return weights_file(NAME, MODELS)


def asked(text: str, **fields: object) -> Request:
    return msgspec.structs.replace(Request((Message("user", text),), settings=SHORT), **fields)


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


CITY = raw({"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]})
TOOL = ToolSpec(
    "look_up",
    "Look up a word in the dictionary.",
    raw({"type": "object", "properties": {"word": {"type": "string", "maxLength": 20}}, "required": ["word"]}),
)


@pytest.mark.slow("a real language model writes, and reads 9,000 words")
async def test_it_writes_real_words_and_holds_to_a_schema_in_process(weights: Path) -> None:
    model = LocalModel(NAME, folder=MODELS)
    heard: list[str] = []
    try:
        reply = await model.reply(asked("Tell me about the sea."), hear_answer(heard))
        await asyncio.sleep(0)
        assert "".join(heard) == reply.text
        assert len(heard) > 3
        assert reply.finish == "length"
        assert reply.usage is not None
        assert reply.usage.output == 12
        city = await model.reply(asked("Which city is the capital of France?", schema=CITY))
        assert set(msgspec.json.decode(city.text, type=dict[str, str])) == {"city"}
        assert city.finish == "stop"
        acted = await model.reply(asked("Look up the word ostrich.", tools=(TOOL,)))
        assert bool(acted.calls) != bool(acted.text)
        assert all(set(msgspec.json.decode(call.arguments, type=dict[str, str])) == {"word"} for call in acted.calls)
        with pytest.raises(ModelFailed, match="exceeds the available context") as failed:
            await model.reply(asked("word " * 9000))
        assert failed.value.failure.permanent
        assert not model.card.native_tools
        assert "small" in model.card.notice
    finally:
        await model.close()


async def test_a_call_that_is_cancelled_lets_the_next_one_in(weights: Path) -> None:
    model = LocalModel(weights)
    heard = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group, asyncio.timeout(50):
            endless = msgspec.structs.replace(asked("Count to a million."), settings=Settings(max_tokens=3900))
            slow = group.create_task(model.reply(endless, lambda _words, _kind="answer": heard.set()))
            await heard.wait()
            slow.cancel()
            assert (await model.reply(asked("Hello"))).text
    finally:
        await model.close()


async def over_the_wire(protocol: str, url: str, request: Request, key: str, hear: Hear | None = None) -> Reply:
    """One call on a connection of its own: this server hangs up after every stream, whatever it promised."""
    transport = Transport()
    try:
        if protocol == "openai":
            model: Model = OpenAIChat("local:test", f"{url}/v1", "local", key, transport=transport)
        else:
            model = AnthropicMessages("local:test", url, "local", key, transport=transport)
        return await model.reply(request, hear)
    finally:
        await transport.close()


@pytest.mark.slow("a real language model is started and asked ten times")
async def test_both_adapters_speak_with_a_real_model_over_real_sockets(weights: Path) -> None:
    engine = await asyncio.to_thread(open_engine, weights)
    url = engine.url
    try:
        for protocol in ("openai", "anthropic"):
            heard: list[str] = []
            whole = await over_the_wire(protocol, url, asked("Say hello."), engine.key)
            streamed = await over_the_wire(protocol, url, asked("Say hello."), engine.key, hear_answer(heard))
            assert whole.text.strip()
            assert streamed.text == whole.text == "".join(heard)
            assert len(heard) > 1
            assert whole.usage is not None
            assert streamed.usage is not None
            assert whole.usage.output == streamed.usage.output > 0
            assert whole.finish == streamed.finish
        longer = asked("Name a city.", schema=CITY, settings=Settings(0.0, 60))
        told: list[str] = []
        for hear in (None, hear_answer(told)):
            held = await over_the_wire("openai", url, longer, engine.key, hear)
            assert set(msgspec.json.decode(held.text, type=dict[str, str])) == {"city"}
        for protocol in ("openai", "anthropic"):
            with pytest.raises(ModelFailed, match="401"):
                await over_the_wire(protocol, url, asked("Say hello."), key="wrong")
    finally:
        engine.close()


def test_the_weights_are_the_pinned_ones(weights: Path) -> None:
    assert verify(NAME, MODELS)
    assert weights.parent.parent == MODELS


def test_a_model_that_is_not_there_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=f"chargehand models pull {NAME}"):
        LocalModel(NAME, folder=tmp_path)
    with pytest.raises(Invalid, match="in which folder"):
        LocalModel(NAME)
    with pytest.raises(Invalid, match="neither a GGUF file"):
        LocalModel(tmp_path / "nothing.gguf")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EngineMissing, match=r"junk\.gguf cannot be loaded"):
        open_engine(junk)


async def test_a_file_that_is_no_model_is_a_failure_of_the_call(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(100))
    model = LocalModel(junk)
    with pytest.raises(ModelFailed, match="cannot be loaded"):
        await model.reply(asked("Hello"))
    await model.close()


def test_every_text_and_list_of_a_bounded_schema_has_an_end() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kids": {"type": "array", "items": {"$ref": "#/$defs/kid"}},
            "lost": {"$ref": "#/$defs/nowhere"},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {
            "kid": {"type": "object", "properties": {"age": {"type": "integer"}, "kid": {"$ref": "#/$defs/kid"}}}
        },
    }
    held = bound(schema)
    text = msgspec.json.encode(held).decode()
    assert "$ref" not in text
    assert text.count('"maxLength":400') == 2
    assert '"maxItems":8' in text
    assert '"maximum":1000000000000000' in text


def test_actions_become_calls_and_answers() -> None:
    assert read_action('{"tool": "look_up", "args": {"word": "x"}}', 7) == (
        "",
        (ToolCall("local_7", "look_up", '{"word":"x"}'),),
    )
    assert read_action(f'{{"tool": "{ANSWER}", "args": {{"answer": "It is so."}}}}', 1) == ("It is so.", ())
    assert read_action(f'{{"tool": "{ANSWER}", "args": {{"answer": {{"n": 1}}}}}}', 1) == ('{"n": 1}', ())
    for nonsense in ("", "[]", '{"tool": 3}', '{"tool": "x"}'):
        with pytest.raises(ValueError, match=r"."):
            read_action(nonsense, 1)


def test_the_schema_of_actions_has_a_branch_for_every_tool_and_one_to_end_with() -> None:
    schema = action_schema((TOOL,), CITY)
    first, last = msgspec.convert(schema["anyOf"], list[dict[str, object]])
    assert msgspec.json.encode(first).count(b'{"tool":{"const":"look_up"},"args":{"type":"object"') == 1
    assert msgspec.json.encode(last).count(f'{{"tool":{{"const":"{ANSWER}"}}'.encode()) == 1
    assert b'"answer":{"type":"object","properties":{"city"' in msgspec.json.encode(last)


def test_a_conversation_with_tools_is_told_in_turns_every_template_knows() -> None:
    call = ToolCall("c1", "look_up", '{"word":"x"}')
    told = turns(
        [
            Message("system", "Be brief."),
            Message("user", "What is x?"),
            Message("assistant", "", (call,)),
            Message("tool", "a letter", call="c1"),
            Message("assistant", "A letter."),
        ],
        (TOOL,),
    )
    assert [message.role for message in told] == ["system", "user", "assistant", "user", "assistant"]
    assert told[0].text.startswith("Be brief.")
    assert "look_up" in told[0].text
    assert told[3].text == "Result of look_up: a letter"
    assert read_action(told[2].text, 1)[1][0].name == "look_up"
    assert read_action(told[4].text, 1) == ("A letter.", ())


def test_a_failed_call_is_to_be_corrected_and_the_task_is_said_again() -> None:
    asked = Message("user", "(Today is Monday.)\n\nTask: Count the apples.")
    called = Message("assistant", calls=(ToolCall(id="1", name="look_up", arguments="{}"),))
    failed = Message("tool", "no such column", call="1", is_error=True)
    shown = turns([asked, called, failed], [TOOL])[-1].text
    assert "That call failed" in shown
    assert shown.endswith(": Task: Count the apples.")


def test_braces_that_were_meant_to_close_the_json_are_cut_from_texts() -> None:
    _, (call,) = read_action('{"tool": "query", "args": {"sql": "SELECT 1}}", "other": "{}"}}', 1)
    assert call.arguments == '{"sql":"SELECT 1","other":"{}"}'
