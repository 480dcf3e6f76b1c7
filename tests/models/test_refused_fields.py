"""Fields that a model refuses by name: left out once and for all, over real sockets, in the words of real providers."""

import asyncio
import logging

import pytest
from msgspec import Raw

from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.call_errors import CallFailed
from chargehand.models.guard import Guarded
from chargehand.models.http import Timeouts
from chargehand.models.messages import Effort, Message, Reply, Request, Settings, ToolSpec
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.refused_fields import FieldMemory
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.field_rules import FIELD_MODES
from chargehand.models.wire import HttpModel
from tests.models.loopback import Asked, Move, loopback, whole
from tests.support.closing import closing
from tests.support.hearing import hear_answer

PATIENT = Timeouts(connect=20.0, first=20.0, whole=20.0, idle=20.0, total=30.0)
TOOL = ToolSpec("add", "adds", Raw(b'{"type":"object","properties":{}}'))
MODELS: dict[str, type[HttpModel]] = {
    "openai": OpenAIChat,
    "responses": OpenAIResponses,
    "anthropic": AnthropicMessages,
}


def asking(settings: Settings, *tools: ToolSpec) -> Request:
    return Request([Message("user", "hello")], tools, settings=settings)


def model_at(protocol: str, url: str, name: str = "m") -> HttpModel:
    made = MODELS[protocol]
    assert issubclass(made, OpenAIChat | OpenAIResponses | AnthropicMessages)
    return made(f"{protocol}:{name}", url, name, "key-1", timeouts=PATIENT)


ALL = Settings(temperature=0.2, top_p=0.5, stop=("END",), effort="max")
# how many calls the first reply takes: one for each field that is refused, and the one that is answered
CALLS = {
    ("always-thinks", "openai"): 5,
    ("always-thinks", "anthropic"): 2,  # with thinking on no temperature is sent in the first place
    ("never-thinks", "openai"): 2,
    ("never-thinks", "anthropic"): 3,
    ("always-thinks", "responses"): 4,
    ("never-thinks", "responses"): 3,
    ("thinks-without-tools", "openai"): 2,
    ("thinks-without-tools", "responses"): 1,
    ("thinks-without-tools", "anthropic"): 1,
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("mode", "protocol"), CALLS)
async def test_each_refused_field_costs_one_call_and_none_the_next_time(
    mode: str, protocol: str, streamed: bool
) -> None:
    heard: list[str] = []
    hear = hear_answer(heard) if streamed else None
    async with FaultServer() as server:
        model = model_at(protocol, server.url(mode))
        async with closing(model):
            request = asking(ALL, TOOL)
            first = await model.reply(request, hear)
            assert first.text == "hello"
            # a summary of the thoughts is asked for where somebody hears the reply
            calls = CALLS[mode, protocol] + (streamed and protocol == "responses" and mode != "thinks-without-tools")
            assert server.requests[mode] == calls
            assert bool(first.notice) is (calls > 1)
            second = await model.reply(request, hear)
            assert (second.text, second.notice) == ("hello", "")
            assert server.requests[mode] == calls + 1
    assert "".join(heard) == ("hellohello" if streamed else "")


@pytest.mark.parametrize("mode", FIELD_MODES)
@pytest.mark.parametrize("protocol", MODELS)
async def test_a_model_made_later_knows_what_was_refused(mode: str, protocol: str) -> None:
    async with FaultServer() as server:
        async with closing(model_at(protocol, server.url(mode))) as first:
            await first.reply(asking(ALL, TOOL))
        before = server.requests[mode]
        async with closing(model_at(protocol, server.url(mode))) as second:
            await second.reply(asking(ALL, TOOL))
            assert second.card.notice == first.card.notice
        assert server.requests[mode] == before + 1


async def test_what_is_left_out_is_on_the_card_and_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with FaultServer() as server:
        model = model_at("openai", server.url("always-thinks"))
        guarded = Guarded(model)
        async with closing(guarded):
            assert guarded.card.notice == ""
            for _ in range(2):
                await guarded.reply(asking(Settings(temperature=0.2)))
            told = "openai:m: temperature is not taken, and is left out."
            assert guarded.card.notice == told
    assert [record.message for record in caplog.records] == [told]


async def test_calls_under_way_together_are_all_answered() -> None:
    """The second is refused after the first was: it is no other refusal."""
    async with FaultServer() as server:
        model = model_at("openai", server.url("always-thinks"))
        async with closing(model), asyncio.TaskGroup() as jobs:
            calls = [jobs.create_task(model.reply(asking(ALL))) for _ in range(5)]
    assert [call.result().text for call in calls] == ["hello"] * 5


@pytest.mark.parametrize(
    ("effort", "sent"), [("max", "high"), ("none", "minimal"), ("low", "low"), ("medium", "medium")]
)
async def test_a_level_that_is_refused_becomes_the_nearest_that_the_model_has(effort: Effort, sent: str) -> None:
    bodies: list[dict[str, object]] = []

    def play(asked: Asked) -> list[Move]:
        bodies.append(asked.json)
        level = str(bodies[-1]["reasoning_effort"])
        if level in ("none", "xhigh", "max"):
            words = (
                f"Unsupported value: 'reasoning_effort' does not support '{level}' with this model. "
                "Supported values are: 'minimal', 'low', 'medium', and 'high'."
            )
            return whole({"error": {"message": words, "param": "reasoning_effort"}}, 400)
        message = {"role": "assistant", "content": "hi"}
        return whole({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    async with loopback(play) as server, closing(model_at("openai", server.url)) as model:
        await model.reply(asking(Settings(effort=effort)))
        other: Reply = await model.reply(asking(Settings(effort="low")))
    assert other.text == "hi"
    assert bodies[-2]["reasoning_effort"] == sent
    assert bodies[-1]["reasoning_effort"] == "low", "only the refused level is replaced"


async def test_a_level_that_the_responses_api_refuses_becomes_the_nearest() -> None:
    async with FaultServer() as server:
        model = model_at("responses", server.url("always-thinks"))
        async with closing(model):
            request = asking(Settings(effort="max"))
            await model.reply(request, hear_answer([]))
            assert model._write(request, 9, None)["reasoning"] == {"effort": "high"}
            assert model._write(asking(Settings(effort="low")), 9, None)["reasoning"] == {"effort": "low"}
            assert "reasoning" not in model._write(asking(Settings()), 9, hear_answer([]))


async def test_without_tools_a_model_thinks_that_cannot_with_them() -> None:
    async with FaultServer() as server:
        model = model_at("openai", server.url("thinks-without-tools"))
        async with closing(model):
            with_tools = asking(Settings(effort="high"), TOOL)
            await model.reply(with_tools)
            assert model._write(with_tools, 9, None)["reasoning_effort"] == "none"
            assert model._write(asking(Settings(effort="high")), 9, None)["reasoning_effort"] == "high"


async def test_a_model_that_cannot_stop_thinking_thinks_as_little_as_it_can() -> None:
    async with FaultServer() as server:
        model = model_at("anthropic", server.url("always-thinks"))
        async with closing(model):
            request = asking(Settings(effort="none"))
            await model.reply(request)
            body = model._write(request, 9, None)
    assert "thinking" not in body
    assert body["output_config"] == {"effort": "low"}


@pytest.mark.parametrize("protocol", MODELS)
async def test_an_error_about_no_field_that_was_sent_is_not_tried_again(protocol: str) -> None:
    async with FaultServer() as server:
        for mode in ("422", "400"):  # the first is about the temperature, which is not sent
            async with closing(model_at(protocol, server.url(mode))) as model:
                with pytest.raises(CallFailed):
                    await model.reply(asking(Settings(seed=1, top_p=0.5)))
            assert server.requests[mode] == 1


def learn(words: str, body: dict[str, object], param: str = "", status: int = 400) -> dict[str, object]:
    """The body as it is sent after a refusal; the same where there is nothing to be done about it."""
    memory = FieldMemory()
    memory.learn("m", status, words, param, body)
    return memory.adapt(dict(body))


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", "temperature"),
        ('Unknown name "seed": Cannot find field.', "seed"),
        ("Flex is not available for this service tier", "service_tier"),
        ("prompt_cache_retention is not supported on this model", "prompt_cache_retention"),
        ("[{'loc': ('body', 'verbosity'), 'msg': 'Extra inputs are not permitted'}]", "verbosity"),
        ("stream_options: Extra inputs are not permitted", "stream_options"),
    ],
)
def test_words_of_providers_name_the_field_that_goes(words: str, gone: str) -> None:
    body: dict[str, object] = {
        **dict.fromkeys(("model", "messages", "temperature", "top_p", "seed", "service_tier"), "x"),
        **dict.fromkeys(("prompt_cache_retention", "verbosity", "stream_options", "stop"), "x"),
    }
    assert body.keys() - learn(words, body).keys() == {gone}


@pytest.mark.parametrize(
    ("words", "param", "status"),
    [
        ("Unsupported parameter: 'model'", "", 400),
        ("messages: unexpected role", "messages", 400),
        ("temperature is not supported", "temperature", 500),
        ("temperature: must not stop the seed of thinking", "", 400),
        ("the stop was not supported by the seed", "", 400),
        ("temperature is too hot for us", "", 400),
        ("temperature: Input should be less than or equal to 1", "", 400),
    ],
)
def test_other_words_take_nothing_away(words: str, param: str, status: int) -> None:
    body: dict[str, object] = {"model": "m", "messages": [], "temperature": 1, "stop": ["x"], "seed": 1}
    assert learn(words, body, param, status) == body


def test_the_field_that_an_error_blames_goes_though_its_words_do_not_name_it() -> None:
    body: dict[str, object] = {"model": "m", "stop": ["x"], "seed": 1}
    assert learn("That is not supported with this model.", body, "stop") == {"model": "m", "seed": 1}


def test_levels_that_a_server_lists_are_enough_to_replace_one() -> None:
    words = "reasoning_effort: Input should be 'low', 'medium' or 'high'"
    assert learn(words, {"reasoning_effort": "xhigh"}) == {"reasoning_effort": "high"}
    assert learn(words, {"reasoning_effort": "none"}) == {"reasoning_effort": "low"}


def test_a_replacement_that_is_refused_too_is_left_out() -> None:
    memory = FieldMemory()
    words = "reasoning_effort {} is not supported; supported values are: {}"
    body: dict[str, object] = {"reasoning_effort": "xhigh"}
    assert memory.learn("m", 400, words.format("xhigh", "high"), "", body)
    body = memory.adapt(body)
    assert body == {"reasoning_effort": "high"}
    assert memory.learn("m", 400, words.format("high", "xhigh"), "", body)
    assert memory.adapt({"reasoning_effort": "high"}) == {}
    assert memory.adapt({"reasoning_effort": "xhigh"}) == {}


def test_every_rule_of_the_fault_server_says_where_its_words_are_from() -> None:
    rules = [rule for _, rules in FIELD_MODES.values() for rule in rules]
    assert all(rule.source.startswith("https://") for rule in rules)
