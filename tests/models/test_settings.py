"""Settings of models: what may be declared, and how each protocol and the extra for other providers write them."""

from typing import Any, get_args

import pytest
from msgspec import Raw, structs
from pydantic_ai import exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile

from chargehand import Worker
from chargehand.agents.setup import roster_agent
from chargehand.cli.arguments import shared
from chargehand.errors import Invalid
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Effort, Message, Request, Settings, ToolSpec
from chargehand.models.openai import OpenAIChat
from chargehand.models.pydantic_ai_models import ProviderModel
from chargehand.models.testing.scripted import digest
from chargehand.models.wire import HttpModel

TOOL = ToolSpec("add", "adds", Raw(b'{"type":"object","properties":{}}'))
SCHEMA = Raw(b'{"type":"object","properties":{},"required":[],"additionalProperties":false}')
HELLO = Message("user", "hello")
OPENAI = "https://api.openai.com/v1"


# --- what may be declared


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"effort": "hihg"}, "effort is 'hihg'; write 'none', 'low', 'medium', 'high', 'max'; did you mean 'high'?"),
        ({"top_p": 1.5}, "top_p is 1.5; write a number from 0 to 1"),
        ({"seed": 0.5}, "seed is 0.5; write a whole number"),
        ({"stop": "END"}, "stop is 'END'; write a list of text"),
        ({"stop": ["END", " "]}, "stop holds an empty text; each text must hold more than blanks"),
        ({"service_tier": "fast"}, "service_tier is 'fast'; write 'auto', 'default', 'flex', 'priority'"),
        ({"cache": "2h"}, "cache is '2h'; write 'off', '5m', '1h'"),
        ({"extra": {"model": "x"}}, "extra holds 'model', which every call sets itself; leave it out"),
        ({"extra": {"messages": []}}, "extra holds 'messages', which every call sets itself; leave it out"),
        ({"extra": {"stream": True}}, "extra holds 'stream', which every call sets itself; leave it out"),
        ({"extra": {"temperature": 1}}, "extra holds 'temperature', which has a setting of its own; write temperature"),
        ({"extra": {"stop_sequences": ["x"]}}, "extra holds 'stop_sequences', which has a setting of its own; write s"),
        ({"extra": {"x": object()}}, "extra cannot be written as JSON"),
        (
            {"extra": {"max_tokens": 64_000}},
            "extra holds 'max_tokens', which has a setting of its own; write max_tokens",
        ),
        (
            {"extra": {"max_output_tokens": 9}},
            "extra holds 'max_output_tokens', which has a setting of its own; write m",
        ),
        (
            {"extra": {"maxTokens": 9}},
            "extra holds 'maxTokens', which has a setting of its own; write max_tokens beside",
        ),
        ({"extra": {"n": 5}}, "extra holds 'n', which every call sets itself; leave it out"),
        ({"extra": {"best_of": 5}}, "extra holds 'best_of', which every call sets itself; leave it out"),
        ({"extra": {"max_tool_calls": 99}}, "extra holds 'max_tool_calls', which every call sets itself; leave it out"),
        ({"extra": {"previous_response_id": "r"}}, "extra holds 'previous_response_id', which every call sets itself"),
        (
            {"extra": {"options": {"num_predict": 9}}},
            "extra holds 'options.num_predict', which has a setting of its own",
        ),
        (
            {"extra": {"generationConfig": {"candidateCount": 2}}},
            "extra holds 'generationConfig.candidateCount', which",
        ),
        ({"extra": {"a": float("nan")}}, "extra cannot be written as JSON"),
        ({"extra": {"a": [{"b": float("inf")}]}}, "extra cannot be written as JSON"),
        ({"max_tokens": 0}, "max_tokens is 0; a reply has at least one token: write 1 or more, or leave it out"),
        ({"max_tokens": -5}, "max_tokens is -5; "),
        ({"effort": "low", "extra": {"thinking": {}}}, "extra holds 'thinking' and effort is set; both say how much"),
    ],
)
def test_a_value_that_cannot_be_sent_is_refused_where_it_is_declared(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        Settings(**values)
    assert str(caught.value).startswith(f"Settings: {problem}")


def test_a_budget_for_thoughts_and_a_name_inside_a_table_of_ones_own_are_no_limit_of_a_reply() -> None:
    extra = {"reasoning": {"max_tokens": 2_000}, "thinking": {"budget_tokens": 2_000}, "metadata": {"n": 1}}
    assert Settings(extra=extra).extra == extra


def test_settings_are_compared_by_what_they_hold() -> None:
    first = Settings(stop=["a"], extra={"x": {"y": [1]}, "z": 1})
    second = Settings(stop=("a",), extra={"z": 1, "x": {"y": [1]}})
    assert first == second
    assert hash(first) == hash(second)
    assert structs.replace(first, max_tokens=9).extra == first.extra
    with pytest.raises(Invalid, match="holds 'model'"):
        structs.replace(first, extra={"model": "x"})


def test_the_command_line_knows_every_effort() -> None:
    assert shared("--effort")["--effort"]["choices"] == get_args(Effort)


def test_settings_count_in_recordings_and_for_results_that_are_used_again_only_where_they_are_set() -> None:
    plain = Request([HELLO])
    same = Request([HELLO], settings=Settings(max_tokens=5, cache="1h", service_tier="flex"))
    assert digest(plain) == digest(same) == "0ebd41388db8f725b7d13319093aa89b", "recordings of before are found"
    others = [Settings(effort="low"), Settings(seed=1), Settings(top_p=0.5), Settings(extra={"a": 1})]
    assert len({digest(Request([HELLO], settings=other)) for other in others} | {digest(plain)}) == 5
    specs = [roster_agent(Worker("ann", settings=settings), "m").spec for settings in (Settings(), *others)]
    assert len(set(specs)) == 5
    assert specs[0] == roster_agent(Worker("ann", settings=Settings(temperature=1.0, cache="off")), "m").spec


# --- OpenAI's protocol


def written(model: HttpModel, settings: Settings, **request: Any) -> dict[str, object]:
    """The body of a request without what is always in it."""
    body = model._write(Request([HELLO], settings=settings, **request), 4_000, None)
    always = ("model", "messages", "max_tokens", "max_completion_tokens", "tools", "system", "prompt_cache_key")
    return {name: value for name, value in body.items() if name not in always}


def openai(url: str = "http://127.0.0.1:1/v1", name: str = "m") -> OpenAIChat:
    return OpenAIChat("openai:m", url, name)


ALL = Settings(
    temperature=0.5, effort="high", top_p=0.9, seed=7, stop=["END"], service_tier="flex", extra={"verbosity": "low"}
)


def test_all_settings_go_out_in_openais_words() -> None:
    assert written(openai(), ALL) == {
        "temperature": 0.5,
        "reasoning_effort": "high",
        "top_p": 0.9,
        "seed": 7,
        "stop": ("END",),
        "service_tier": "flex",
        "verbosity": "low",
    }
    assert written(openai(), Settings()) == {}


@pytest.mark.parametrize(
    ("effort", "sent"), [("none", "none"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "xhigh")]
)
def test_openai_calls_the_most_effort_otherwise(effort: Effort, sent: str) -> None:
    assert written(openai(), Settings(effort=effort)) == {"reasoning_effort": sent}


@pytest.mark.parametrize(
    ("choice", "sent"), [("none", "none"), ("add", {"type": "function", "function": {"name": "add"}})]
)
def test_a_choice_of_tools_goes_out_in_openais_words(choice: str, sent: object) -> None:
    assert written(openai(), Settings(), tools=(TOOL,), tool_choice=choice) == {"tool_choice": sent}
    assert written(openai(), Settings(), tool_choice=choice) == {}, "without tools it would be refused"


def test_openai_is_told_whose_calls_begin_alike_and_no_other_server_is() -> None:
    def cached(settings: Settings, url: str = OPENAI, asker: str = "ann") -> dict[str, object]:
        body = openai(url)._write(Request([HELLO], settings=settings, asker=asker), 9, None)
        return {name: value for name, value in body.items() if "cache" in name}

    key = {"prompt_cache_key": "chargehand-ann"}
    assert cached(Settings()) == cached(Settings(cache="5m")) == key
    assert cached(Settings(cache="1h")) == {**key, "prompt_cache_retention": "24h"}
    assert cached(Settings(cache="off")) == cached(Settings(cache="1h"), "http://127.0.0.1:1/v1") == {}
    assert len(str(cached(Settings(), asker="a" * 64)["prompt_cache_key"])) == 64


# --- Anthropic's protocol


def anthropic(name: str = "claude-opus-4-8") -> AnthropicMessages:
    return AnthropicMessages("anthropic:m", "http://127.0.0.1:1", name)


OFF = {"thinking": {"type": "disabled"}}
HIGHEST = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}


@pytest.mark.parametrize(
    ("name", "none", "most"),
    [
        ("claude-opus-4-8", OFF, HIGHEST),
        ("claude-sonnet-4-6", OFF, HIGHEST),
        ("claude-opus-5", OFF, HIGHEST),
        ("claude-a-name-of-tomorrow", OFF, HIGHEST),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}, HIGHEST),
        ("claude-fable-5", {"output_config": {"effort": "low"}}, HIGHEST),
        ("claude-opus-5-5-20260901", {"output_config": {"effort": "low"}}, HIGHEST),
        (
            "claude-opus-4-5-20251101",
            {},
            {"thinking": {"type": "enabled", "budget_tokens": 3_000}, "output_config": {"effort": "high"}},
        ),
        ("claude-haiku-4-5", {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("claude-sonnet-4-5-20250929", {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("claude-sonnet-4-20250514", {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("claude-opus-4-1-20250805", {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
        ("claude-3-7-sonnet-latest", {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
    ],
)
def test_effort_is_put_as_models_of_that_name_take_it(
    name: str, none: dict[str, object], most: dict[str, object]
) -> None:
    assert written(anthropic(name), Settings(effort="none")) == none
    assert written(anthropic(name), Settings(effort="max")) == most


def test_a_reply_too_short_to_think_in_is_asked_for_without_thinking() -> None:
    model = anthropic("claude-haiku-4-5")
    body = model._write(Request([HELLO], settings=Settings(effort="high")), 1_000, None)
    assert "thinking" not in body
    assert "leave no room to think" in model.card.notice
    told = model.card.notice
    model._write(Request([HELLO], settings=Settings(effort="high")), 1_001, None)
    assert model.card.notice == told, "once, however many replies are short"


def test_effort_stands_beside_the_schema() -> None:
    config = written(anthropic(), Settings(effort="low"), schema=SCHEMA)["output_config"]
    assert isinstance(config, dict)
    assert set(config) == {"effort", "format"}  # pyright: ignore[reportUnknownArgumentType]


def test_all_settings_go_out_in_anthropics_words() -> None:
    settings = structs.replace(ALL, effort=None, service_tier="default", extra={"metadata": {"user_id": "u"}})
    model = anthropic()
    assert written(model, settings) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ("END",),
        "service_tier": "standard_only",
        "metadata": {"user_id": "u"},
    }
    assert model.card.notice == "anthropic:m: seed is not sent: the protocol has none."


@pytest.mark.parametrize(("tier", "sent"), [("auto", "auto"), ("flex", None), ("priority", None)])
def test_a_tier_that_the_protocol_does_not_have_is_not_sent_and_people_are_told(tier: Any, sent: str | None) -> None:
    model = anthropic()
    assert written(model, Settings(service_tier=tier)).get("service_tier") == sent
    assert bool(model.card.notice) is (sent is None)


def test_no_temperature_is_sent_with_thinking_on() -> None:
    model = anthropic("claude-haiku-4-5")
    assert "temperature" not in written(model, Settings(temperature=0.2, effort="low"))
    assert "temperature" in written(model, Settings(temperature=0.2, effort="none"))
    assert "temperature" in model.card.notice


@pytest.mark.parametrize(
    ("settings", "choice", "sent"),
    [
        (Settings(), "none", {"type": "none"}),
        (Settings(), "add", {"type": "tool", "name": "add"}),
        (
            Settings(parallel_tool_calls=False),
            "add",
            {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        ),
        (Settings(parallel_tool_calls=False), "", {"type": "auto", "disable_parallel_tool_use": True}),
        (Settings(effort="low"), "add", None),
    ],
)
def test_a_choice_of_tools_goes_out_in_anthropics_words(settings: Settings, choice: str, sent: object) -> None:
    assert written(anthropic(), settings, tools=(TOOL,), tool_choice=choice).get("tool_choice") == sent


@pytest.mark.parametrize(
    ("settings", "mark"),
    [
        (Settings(), {"type": "ephemeral"}),
        (Settings(cache="5m"), {"type": "ephemeral"}),
        (Settings(cache="1h"), {"type": "ephemeral", "ttl": "1h"}),
        (Settings(cache="off"), None),
    ],
)
def test_the_cache_lasts_as_long_as_the_settings_say(settings: Settings, mark: object) -> None:
    messages = [Message("system", "be brief"), HELLO, Message("assistant", "hi"), Message("user", "and now?")]
    body: Any = anthropic()._write(Request(messages, settings=settings), 9, None)
    assert body["system"][-1].get("cache_control") == mark
    assert body["messages"][-1].content[-1].get("cache_control") == mark


def test_extra_adds_to_a_table_and_takes_nothing_out_of_it() -> None:
    settings = Settings(extra={"output_config": {"task_budget": 5, "format": "mine"}})
    config: Any = written(anthropic(), settings, schema=SCHEMA)["output_config"]
    assert config["task_budget"] == 5
    assert config["format"]["type"] == "json_schema"


# --- every other provider


THINKS = ModelProfile(supports_thinking=True)


def settings_of(info: AgentInfo) -> dict[str, object]:
    """What their model is told; how much it is to think stands apart from the rest."""
    thinking = info.model_request_parameters.thinking
    return {**(info.model_settings or {}), **({} if thinking is None else {"thinking": thinking})}


async def test_all_settings_reach_other_providers_in_the_words_of_the_extra() -> None:
    seen: list[dict[str, object]] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        seen.append(settings_of(info))
        return theirs.ModelResponse([theirs.TextPart("done")])

    model = ProviderModel("some:model", FunctionModel(answer, profile=THINKS), headers={"x-team": "blue"})
    settings = structs.replace(ALL, cache="1h", max_tokens=9)
    await model.reply(Request([HELLO], (TOOL,), settings=settings, tool_choice="none"))
    assert seen[0] == {
        "max_retries": 0,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop_sequences": ["END"],
        "service_tier": "flex",
        "thinking": "high",
        "tool_choice": "none",
        "extra_body": {"verbosity": "low"},
        "extra_headers": {"x-team": "blue"},
    }
    await model.reply(Request([HELLO], settings=Settings(effort="none", max_tokens=9)))
    assert seen[1]["thinking"] is False


@pytest.mark.parametrize(("cache", "theirs"), [(None, None), ("off", False), ("5m", "5m"), ("1h", "1h")])
def test_the_cache_of_other_providers_goes_by_the_settings(cache: Any, theirs: object) -> None:
    model = ProviderModel("test:test", TestModel())
    assert model._settings(Request([HELLO], settings=Settings(cache=cache))).get("cache") == theirs


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"),
        ("Unrecognized request argument supplied: reasoning_effort", "thinking"),
        ("Unsupported parameter: 'stop' is not supported with this model.", "stop_sequences"),
    ],
)
async def test_a_field_that_another_provider_refuses_is_left_out_from_then_on(words: str, gone: str) -> None:
    seen: list[set[str]] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        seen.append(set(settings_of(info)))
        if gone in seen[-1]:
            raise exceptions.ModelHTTPError(400, "m", {"error": {"message": words}})
        return theirs.ModelResponse([theirs.TextPart("done")])

    model = ProviderModel("some:model", FunctionModel(answer, profile=THINKS))
    first = await model.reply(Request([HELLO], settings=ALL))
    await model.reply(Request([HELLO], settings=ALL))
    assert [gone in names for names in seen] == [True, False, False]
    assert first.notice == model.card.notice == f"some:model: {gone} is not taken, and is left out."
