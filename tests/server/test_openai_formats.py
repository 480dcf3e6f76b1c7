"""A team as the model of other frameworks: answers in a schema, and calls of the client's own tools."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
import pytest
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.server.api import garden
from tests.server.model_server import Answer, Call, FakeModel, Question, Think, fake_model
from tests.server.running import Running, running, settings_in

TEAM = """
version: 1
name: desk
defaults: {{model: "{handle}"}}
workers:
  counter:
    description: Counts apples.
"""
PLAN = {"tasks": [{"id": "t1", "instruction": "Count the apples.", "worker": "counter"}], "combine": "merge"}
NO_TASKS: dict[str, object] = {"tasks": [], "combine": "merge", "assumptions": [], "unserved": []}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


CIRCLE: Any = {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}


class Count(BaseModel):
    fruit: str
    number: int


@contextmanager
def desk(folder: Path, answer: Think, plan: object = PLAN) -> Generator[tuple[Running, FakeModel]]:
    """A server whose team plans this, counts twelve apples, and answers as this says."""

    def think(question: Question) -> Answer | str:
        if "Break the request into tasks" in question.system:
            return json.dumps(plan)
        return answer(question) if "Your team has finished" in question.system else "There are 12 apples."

    with fake_model(think) as model:
        team = folder / "team.yaml"
        team.write_text(TEAM.format(handle=model.handle))
        with running(settings_in(folder / "data", teams=(team,), grace=0.5)) as server:
            yield server, model


def twelve(question: Question) -> str:
    return json.dumps({"fruit": "apple", "number": 12})


def weather_then_words(question: Question) -> Answer | str:
    """Asks for the weather, and once that is known says it."""
    if "returned: sunny" in question.user:
        return "It is sunny in Rome."
    return Answer(calls=(Call("get_weather", {"city": "Rome"}),))


@contextmanager
def connected(server: Running) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0) as client:
        yield client


def ask_for_a_count(model: str, client: openai.OpenAI) -> Count | None:
    messages: list[Any] = [{"role": "user", "content": "How many apples?"}]
    found = client.chat.completions.parse(model=model, messages=messages, response_format=Count)
    return found.choices[0].message.parsed


# --- the client of OpenAI


def test_a_chat_answers_in_the_schema_of_a_pydantic_model(tmp_path: Path) -> None:
    with desk(tmp_path, twelve) as (server, model), connected(server) as client:
        assert ask_for_a_count("team/desk", client) == Count(fruit="apple", number=12)
        assert model.questions[-1].body["response_format"]["type"] == "json_schema"


def test_a_response_answers_in_the_schema_of_a_pydantic_model(tmp_path: Path) -> None:
    with desk(tmp_path, twelve) as (server, _), connected(server) as client:
        found = client.responses.parse(model="team/desk", input="How many apples?", text_format=Count)
        assert found.output_parsed == Count(fruit="apple", number=12)
        assert client.responses.retrieve(found.id).output_text == found.output_text


def test_a_streamed_answer_in_a_schema_is_the_same(tmp_path: Path) -> None:
    with desk(tmp_path, twelve) as (server, _), connected(server) as client:
        with client.chat.completions.stream(
            model="desk", messages=[{"role": "user", "content": "How many apples?"}], response_format=Count
        ) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == Count(fruit="apple", number=12)
        with client.responses.stream(model="desk", input="How many apples?", text_format=Count) as events:
            assert events.get_final_response().output_parsed == Count(fruit="apple", number=12)


def test_an_answer_that_never_fits_its_schema_is_an_error_and_no_prose(tmp_path: Path) -> None:
    with (
        desk(tmp_path, lambda _: "Twelve apples.") as (server, _),
        connected(server) as client,
        pytest.raises(openai.InternalServerError, match="JSON"),
    ):
        ask_for_a_count("desk", client)


@pytest.mark.parametrize("stream", [False, True])
def test_the_clients_tool_is_called_by_it_and_its_result_answered_from(tmp_path: Path, *, stream: bool) -> None:
    with desk(tmp_path, weather_then_words, NO_TASKS) as (server, _), connected(server) as client:
        messages: list[Any] = [{"role": "user", "content": "How is the weather in Rome?"}]
        with client.chat.completions.stream(model="desk", messages=messages, tools=[WEATHER]) as events:
            streamed = events.get_final_completion()
        whole = client.chat.completions.create(model="desk", messages=messages, tools=[WEATHER])
        choice = (streamed if stream else whole).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None or not choice.message.content
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome"})
        asked = {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        messages.append({"role": "assistant", "tool_calls": [asked]})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
        last = client.chat.completions.create(model="desk", messages=messages, tools=[WEATHER])
        assert "sunny in Rome" in (last.choices[0].message.content or "")


def test_responses_go_on_after_a_call_of_the_clients_tool(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "strict": None, **WEATHER["function"]}
    with desk(tmp_path, weather_then_words, NO_TASKS) as (server, _), connected(server) as client:
        with client.responses.stream(model="desk", input="How is the weather in Rome?", tools=[tool]) as events:
            first = events.get_final_response()
        call = first.output[-1]
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Rome"}
        assert [item.type for item in client.responses.retrieve(first.id).output] == ["function_call"]
        last = client.responses.create(
            model="desk",
            previous_response_id=first.id,
            tools=[tool],
            input=[
                {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
                {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
            ],
        )
        assert "sunny in Rome" in last.output_text


def rome_and_oslo(question: Question) -> Answer | str:
    """Asks for the weather of two cities at once, and says who has which once it is known."""
    found = re.findall(r'get_weather with {"city": ?"(\w+)"} returned: (\w+)', question.user)
    if found:
        return ", ".join(f"{weather} in {city}" for city, weather in sorted(found))
    return Answer(calls=(Call("get_weather", {"city": "Rome"}), Call("get_weather", {"city": "Oslo"})))


@pytest.mark.parametrize("stream", [False, True])
def test_results_of_parallel_calls_belong_to_their_call_in_whatever_order(tmp_path: Path, *, stream: bool) -> None:
    with desk(tmp_path, rome_and_oslo, NO_TASKS) as (server, _), connected(server) as client:
        messages: list[Any] = [{"role": "user", "content": "How is the weather in Rome and in Oslo?"}]
        if stream:
            with client.chat.completions.stream(model="desk", messages=messages, tools=[WEATHER]) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = (
                client.chat.completions.create(model="desk", messages=messages, tools=[WEATHER]).choices[0].message
            )
        assert message.tool_calls is not None
        rome, oslo = message.tool_calls
        messages.append(message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": oslo.id, "content": "snowy"})
        messages.append({"role": "tool", "tool_call_id": rome.id, "content": "sunny"})
        last = client.chat.completions.create(model="desk", messages=messages, tools=[WEATHER])
        assert last.choices[0].message.content == "snowy in Oslo, sunny in Rome"


def test_a_client_that_takes_one_call_at_a_time_gets_one(tmp_path: Path) -> None:
    def answer(question: Question) -> Answer | str:
        calls = (Call("get_weather", {"city": "Rome"}), Call("get_weather", {"city": "Oslo"}))
        return Answer(calls=calls[:1] if "call one at a time" in question.system else calls)

    tool: Any = {"type": "function", "strict": None, **WEATHER["function"]}
    with desk(tmp_path, answer, NO_TASKS) as (server, model), connected(server) as client:
        messages: list[Any] = [{"role": "user", "content": "How is the weather in Rome and in Oslo?"}]
        whole = client.chat.completions.create(
            model="desk", messages=messages, tools=[WEATHER], parallel_tool_calls=False
        )
        assert len(whole.choices[0].message.tool_calls or ()) == 1
        assert model.questions[-1].body["parallel_tool_calls"] is False
        response = client.responses.create(model="desk", input="Rome?", tools=[tool], parallel_tool_calls=False)
        assert (len(response.output), response.parallel_tool_calls) == (1, False)
        assert client.responses.create(model="desk", input="Rome?", tools=[tool]).parallel_tool_calls


def test_results_alone_go_on_from_the_calls_of_the_response_before(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "strict": None, **WEATHER["function"]}
    with desk(tmp_path, rome_and_oslo, NO_TASKS) as (server, _), connected(server) as client:
        first = client.responses.create(model="desk", input="How is the weather in Rome and in Oslo?", tools=[tool])
        results: list[Any] = []
        for call, weather in zip(first.output, ("sunny", "snowy"), strict=True):
            assert call.type == "function_call"
            results.append({"type": "function_call_output", "call_id": call.call_id, "output": weather})
        last = client.responses.create(model="desk", previous_response_id=first.id, tools=[tool], input=results[::-1])
        assert last.output_text == "snowy in Oslo, sunny in Rome"


def test_an_answer_ends_where_the_client_says_and_has_its_length(tmp_path: Path) -> None:
    with desk(tmp_path, lambda _: "One apple. STOP Two apples.") as (server, model), connected(server) as client:
        found = client.chat.completions.create(
            model="desk", messages=[{"role": "user", "content": "How many?"}], stop=["STOP"], max_completion_tokens=77
        )
        assert (found.choices[0].message.content or "").strip() == "One apple."
        body = model.questions[-1].body
        assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0]"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "perhaps"}, "tool_choice"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}},
        "response_format.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
        "response_format.schema",
    ),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": ["a", ""]}, "stop"),
    ({"model": "desk:counter", "tools": [WEATHER]}, "tools"),
]


@pytest.mark.parametrize(("more", "param"), WRONG)
def test_what_is_wrong_with_a_format_is_said_by_name(tmp_path: Path, more: dict[str, Any], param: str) -> None:
    body = {"model": "desk", "messages": [{"role": "user", "content": "How many?"}], **more}
    with desk(tmp_path, twelve) as (server, model):
        headers = {"Authorization": f"Bearer {server.token}"}
        found = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
        assert found.status_code == 400
        assert found.json()["error"]["param"] == param
        assert model.questions == [], "nothing was begun"


def test_the_demo_model_has_no_formats_and_says_so(tmp_path: Path) -> None:
    with (
        garden(tmp_path) as home,
        connected(home.server) as client,
        pytest.raises(openai.BadRequestError, match="demo"),
    ):
        ask_for_a_count("team/garden", client)


# --- other frameworks


def test_langchain_has_structured_output_and_binds_tools(tmp_path: Path) -> None:
    @langchain_tool
    def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        return f"sunny in {city}"

    def answer(question: Question) -> Answer | str:
        return weather_then_words(question) if question.tools else twelve(question)

    with desk(tmp_path, answer) as (server, _), httpx.Client() as line:
        wanted: Any = {"base_url": f"{server.url}/v1", "api_key": server.token, "http_client": line}
        model: Any = ChatOpenAI(model="team/desk", **wanted)
        assert model.with_structured_output(Count).invoke("How many apples?") == Count(fruit="apple", number=12)
        found = model.bind_tools([get_weather]).invoke("How is the weather in Rome?")
        assert [(call["name"], call["args"]) for call in found.tool_calls] == [("get_weather", {"city": "Rome"})]


async def test_pydantic_ai_has_an_output_type_and_its_own_tools(tmp_path: Path) -> None:
    def answer(question: Question) -> Answer | str:
        if "returned: sunny" in question.user:
            return Answer(calls=(Call("final_result", {"fruit": "apple", "number": 12}),))
        return Answer(calls=(Call("get_weather", {"city": "Rome"}),))

    with desk(tmp_path, answer) as (server, _):
        line = httpx2.AsyncClient()
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key=server.token, http_client=line)
        agent = Agent(OpenAIChatModel("team/desk", provider=provider), output_type=Count)

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """Tells the weather of a city."""
            return f"sunny in {city}"

        async with line:
            found = await agent.run("How many apples are there if the weather in Rome is fine?")
        assert found.output == Count(fruit="apple", number=12)
        assert callable(get_weather)
