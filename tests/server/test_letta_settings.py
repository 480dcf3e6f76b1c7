"""Settings of agents and of messages, with the real client: they take effect, or are refused by name."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from letta_client import Letta, UnprocessableEntityError

from tests.server.model_server import Answer, Call, FakeModel

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


def asked(client: Letta, model: FakeModel, text: str = "Go", **settings: Any) -> dict[str, Any]:
    """What the model is sent for an agent with these settings."""
    agent = client.agents.create(model=model.handle, **settings)
    client.agents.messages.create(agent.id, input=text)
    return model.questions[-1].body


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"model_settings": {"provider_type": "openai", "temperature": 0.25}}, {"temperature": 0.25}),
        ({"model_settings": {"provider_type": "anthropic", "max_output_tokens": 321}}, {"max_tokens": 321}),
        ({"model_settings": {"parallel_tool_calls": False}}, {"parallel_tool_calls": False}),
        ({"max_tokens": 77}, {"max_tokens": 77}),
        ({"max_tokens": 77, "model_settings": {"max_output_tokens": 78}}, {"max_tokens": 78}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    ],
)
def test_a_setting_of_an_agent_is_sent_to_its_model(
    client: Letta, model: FakeModel, settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    body = asked(client, model, **settings)
    assert {name: body.get(name) for name in sent} == sent


def test_a_setting_that_is_changed_takes_effect_and_the_others_stay(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(
        model=model.handle, model_settings={"provider_type": "openai", "temperature": 0.1, "max_output_tokens": 50}
    )
    told = client.agents.update(agent.id, max_tokens=60, parallel_tool_calls=False)
    assert told.llm_config.max_tokens == 60
    client.agents.messages.create(agent.id, input="Go")
    body = model.questions[-1].body
    assert (body["temperature"], body["max_tokens"], body["parallel_tool_calls"]) == (0.1, 60, False)
    told = client.agents.update(agent.id, max_tokens=None, context_window_limit=30_000)
    assert (told.llm_config.max_tokens, told.llm_config.temperature) == (None, 0.1)
    assert told.llm_config.context_window == 30_000
    kept = client.agents.retrieve(agent.id).api_model_settings
    assert (getattr(kept, "temperature", None), getattr(kept, "parallel_tool_calls", None)) == (0.1, False)


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        ("antropic/claude-sonnet-4-5", "did you mean anthropic?"),
        ("claude-sonnet-4-5", "did you mean anthropic:claude-sonnet-4-5?"),
        ("nonsense", "is no model"),
        ("openai/", "write openai:NAME"),
        ("/x", "is no model"),
        ("ollama/llama3", "OLLAMA_BASE_URL"),
        ("recorded:/etc/passwd", "clients may not name"),
    ],
)
def test_a_model_that_cannot_be_is_refused_wherever_it_is_named(
    client: Letta, model: FakeModel, handle: str, words: str
) -> None:
    agent = client.agents.create(model=model.handle).id
    calls: list[tuple[str, Callable[[], object]]] = [
        ("model: ", lambda: client.agents.create(model=handle)),
        ("model: ", lambda: client.agents.update(agent, model=handle)),
        ("override_model: ", lambda: client.agents.messages.create(agent, input="Go", override_model=handle)),
    ]
    for field, call in calls:
        with pytest.raises(UnprocessableEntityError) as refused:
            call()
        assert field in str(refused.value.body)
        assert words in str(refused.value.body)
    assert client.agents.retrieve(agent).model == model.handle


@pytest.mark.parametrize("handle", ["anthropic/claude-sonnet-4-5", "groq/llama", "letta/letta-free", "demo", ""])
def test_a_model_whose_key_is_not_set_and_those_of_letta_are_stood_in_for(client: Letta, handle: str) -> None:
    agent = client.agents.create(model=handle)
    assert (agent.model, agent.llm_config.handle) == (handle or "demo", "demo")


def test_a_reply_that_reaches_max_output_tokens_is_the_answer_and_says_so(client: Letta, model: FakeModel) -> None:
    model.think = lambda _: Answer("It was a dark and", finish="length")
    agent = client.agents.create(model=model.handle, max_tokens=5)
    before = len(model.questions)
    answer = client.agents.messages.create(agent.id, input="Tell me a story")
    assert (answer.messages[-1].content, len(model.questions) - before) == ("It was a dark and", 1)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - the last message is the answer
    assert answer.stop_reason.stop_reason == "max_tokens_exceeded"
    assert client.runs.retrieve((answer.usage.run_ids or [""])[0]).status == "completed"


def test_one_call_a_reply_is_made_where_parallel_calls_are_off(client: Letta, model: FakeModel) -> None:
    twice = Answer("", (Call("conversation_search", {"query": "a"}), Call("conversation_search", {"query": "b"})))
    model.think = lambda question: "done" if question.results else twice
    agent = client.agents.create(model=model.handle, model_settings={"parallel_tool_calls": False})
    answer = client.agents.messages.create(agent.id, input="Look twice")
    assert [one.message_type for one in answer.messages] == [
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]


def test_a_response_format_holds_replies_to_a_schema(client: Letta, model: FakeModel) -> None:
    replies = iter(["No JSON at all", '{"text": "found"}'])
    model.think = lambda _: next(replies)
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA}}
    agent = client.agents.create(model=model.handle, response_format=wanted)
    answer = client.agents.messages.create(agent.id, input="Find it")
    assert json.loads(str(answer.messages[-1].content)) == {"text": "found"}  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - the last message is the answer
    form = model.questions[-1].body["response_format"]
    assert (form["type"], form["json_schema"]["schema"]["required"]) == ("json_schema", ["text"])
    replies = iter(["prose"])
    client.agents.update(agent.id, response_format={"type": "text"})
    client.agents.messages.create(agent.id, input="In words")
    assert "response_format" not in model.questions[-1].body


def test_a_time_zone_is_told_to_the_model(client: Letta, model: FakeModel) -> None:
    body = asked(client, model, timezone="Europe/Berlin")
    assert "Europe/Berlin" in json.dumps(body["messages"])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"reasoning": True}, "reasoning"),
        ({"enable_sleeptime": True}, "enable_sleeptime"),
        ({"secrets": {"KEY": "x"}}, "secrets"),
        ({"tool_exec_environment_variables": {"KEY": "x"}}, "tool_exec_environment_variables"),
        ({"compaction_settings": {"clip_chars": 5}}, "compaction_settings"),
        ({"folder_ids": ["source-1"]}, "folder_ids"),
        ({"from_template": "x:latest"}, "from_template"),
        ({"max_reasoning_tokens": 2000}, "max_reasoning_tokens"),
        ({"model_settings": {"provider_type": "openai", "reasoning": {"reasoning_effort": "high"}}}, "reasoning"),
        ({"model_settings": {"thinking": {"type": "enabled"}}}, "model_settings.thinking"),
        ({"model_settings": {"temprature": 1}}, "did you mean 'temperature'"),
        ({"model_settings": {"temperature": 3}}, "temperature"),
        ({"model_settings": {"temperature": "hot"}}, "model_settings.temperature"),
        ({"model_settings": {"max_output_tokens": 0}}, "max_output_tokens"),
        ({"llm_config": {"model": "x", "model_endpoint_type": "openai", "context_window": 9}}, "llm_config"),
        ({"context_window_limit": 10}, "context_window_limit"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}}, "'thing'"),
        (_format({"properties": []}), "$.properties is []"),
        (_format({"properties": {"a": 5}}), "$.properties.a is 5"),
        (_format({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "#/$defs/a"),
        (_format({"type": "object", "required": 5}), "$.required"),
        ({"initial_message_sequence": [{"role": "system", "content": "x"}]}, "initial_message_sequence"),
        ({"extra_body": {"top_p": 0.5}}, "top_p"),
    ],
)
def test_a_setting_of_an_agent_that_cannot_be_honoured_is_refused_by_name(
    client: Letta, model: FakeModel, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnprocessableEntityError) as refused:
        client.agents.create(model=model.handle, **settings)
    assert named in str(refused.value.body)


def test_a_label_without_an_effect_is_taken(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle, project_id="p", identity_ids=["identity-1"], hidden=True)
    assert agent.id in [one.id for one in client.agents.list()]
    assert client.agents.messages.create(agent.id, input="Go", use_assistant_message=True).messages


def test_a_setting_that_cannot_be_honoured_is_refused_when_it_is_changed(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle, reasoning=None, enable_sleeptime=False, secrets={})
    changes: list[tuple[dict[str, Any], str]] = [
        ({"message_ids": ["message-1"]}, "message_ids"),
        ({"secrets": {"A": "b"}}, "secrets"),
        ({"model_settings": {"strict": True}}, "model_settings.strict"),
    ]
    for change, named in changes:
        with pytest.raises(UnprocessableEntityError) as refused:
            client.agents.update(agent.id, **change)
        assert named in str(refused.value.body)


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({"return_logprobs": True}, "return_logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"include_compaction_messages": True}, "include_compaction_messages"),
        ({"client_skills": [{"name": "a", "description": "b", "location": "c"}]}, "client_skills"),
        ({"enable_thinking": "true"}, "enable_thinking"),
        ({"max_steps": 501}, "max_steps"),
        ({"extra_body": {"temperature": 0.5}}, "temperature"),
        ({"messages": [{"role": "user", "content": "x", "group_id": "group-1"}]}, "messages[0].group_id"),
    ],
)
def test_a_setting_of_a_message_that_cannot_be_honoured_is_refused_by_name(
    client: Letta, model: FakeModel, sent: dict[str, Any], named: str
) -> None:
    agent = client.agents.create(model=model.handle)
    before = len(model.questions)
    with pytest.raises(UnprocessableEntityError) as refused:
        client.agents.messages.create(agent.id, **({} if "messages" in sent else {"input": "Go"}), **sent)
    assert named in str(refused.value.body)
    assert len(model.questions) == before


def test_settings_of_resetting_are_refused_by_name(client: Letta, model: FakeModel) -> None:
    agent = client.agents.create(model=model.handle)
    with pytest.raises(UnprocessableEntityError, match="add_default_initial_messages"):
        client.agents.messages.reset(agent.id, add_default_initial_messages=True)
