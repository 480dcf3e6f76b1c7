"""Every other provider, through pydantic_ai's own test models: both ways, and how its errors come out."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import Raw
from pydantic_ai import exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from chargehand.models.call_errors import CallFailed
from chargehand.models.http import Timeouts
from chargehand.models.messages import Message, Reply, Request, Settings, ToolCall, ToolSpec, Usage
from chargehand.models.provider_tools import PROVIDER_TOOLS, tool_results
from chargehand.models.pydantic_ai_models import ProviderModel
from tests.support.closing import closing
from tests.support.hearing import hear_answer

HELLO = Request([Message("user", "hello")])
TOOL = ToolSpec("add", "adds", Raw(b'{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'))
Answer = Callable[[list[theirs.ModelMessage], AgentInfo], theirs.ModelResponse]


def made(answer: Answer, timeouts: Timeouts | None = None) -> ProviderModel:
    return ProviderModel("some:model", FunctionModel(answer), timeouts=timeouts or Timeouts())


async def test_their_test_model_answers_in_our_words() -> None:
    model = ProviderModel("test:test", TestModel(custom_output_text="hi there"))
    async with closing(model):
        reply = await model.reply(HELLO)
        assert (reply.text, reply.finish, reply.model) == ("hi there", "stop", "test")
        assert reply.usage is not None
        assert reply.usage.input > 0


async def test_a_conversation_reaches_them_whole() -> None:
    seen: list[tuple[list[theirs.ModelMessage], AgentInfo]] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        seen.append((messages, info))
        return theirs.ModelResponse([theirs.TextPart("done")])

    request = Request(
        [
            Message("system", "be brief"),
            Message("user", "add"),
            Message("assistant", "I add", (ToolCall("c1", "add", '{"a":1}'),)),
            Message("tool", "1", call="c1"),
            Message("user", "go on"),
        ],
        (TOOL,),
        settings=Settings(temperature=0.5, max_tokens=9),
    )
    await made(answer).reply(request)
    (first, second, third), info = seen[0]
    assert [(type(part), part.content) for part in first.parts] == [  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        (theirs.SystemPromptPart, "be brief"),
        (theirs.UserPromptPart, "add"),
    ]
    assert [type(part) for part in second.parts] == [theirs.TextPart, theirs.ToolCallPart]
    result = third.parts[0]
    assert isinstance(result, theirs.ToolReturnPart)
    assert (result.tool_name, result.content, result.tool_call_id) == ("add", "1", "c1")
    assert [tool.name for tool in info.function_tools] == ["add"]
    assert info.function_tools[0].parameters_json_schema["required"] == ["a"]
    assert info.model_settings is not None
    assert dict(info.model_settings) == {"max_retries": 0, "temperature": 0.5, "max_tokens": 9}


async def test_a_schema_reaches_them_as_the_shape_of_the_output() -> None:
    shapes: list[object] = []

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        assert info.model_request_parameters.output_object is not None
        shapes.append(
            (info.model_request_parameters.output_mode, info.model_request_parameters.output_object.json_schema)
        )
        return theirs.ModelResponse([theirs.TextPart("{}")])

    await made(answer).reply(Request([Message("user", "x")], schema=Raw(b'{"type":"object"}')))
    assert shapes == [("native", {"type": "object"})]


async def test_calls_and_usage_come_back() -> None:
    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        parts = [theirs.ToolCallPart("add", {"a": 1}, "c1"), theirs.ToolCallPart("add", '{"a": oops', "c2")]
        usage = RequestUsage(input_tokens=10, output_tokens=3, cache_read_tokens=4)
        return theirs.ModelResponse(parts, usage=usage, finish_reason="tool_call")

    came = await made(answer).reply(HELLO)
    assert came.calls == (ToolCall("c1", "add", '{"a":1}'), ToolCall("c2", "add", '{"a": oops'))
    assert came.finish == "tools"


async def stream_of(*pieces: str | DeltaToolCalls, wait: float = 0.0, idle: float = 20.0) -> Reply:
    async def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for piece in pieces:
            yield piece
            await asyncio.sleep(wait)

    heard: list[str] = []
    times = Timeouts(first=20.0, idle=idle, total=30.0)
    model = ProviderModel("some:model", FunctionModel(stream_function=answer), timeouts=times)
    came = await model.reply(HELLO, hear_answer(heard))
    assert "".join(heard) == came.text
    return came


async def test_a_stream_is_heard() -> None:
    assert (await stream_of("some ", "words")).text == "some words"
    call = {0: DeltaToolCall("add", '{"a"', tool_call_id="c1")}
    assert (await stream_of(call, {0: DeltaToolCall(json_args=":1}")})).calls == (ToolCall("c1", "add", '{"a":1}'),)


async def test_a_stream_that_stops_moving_ends_in_time() -> None:
    with pytest.raises(CallFailed, match="nothing more came within") as caught:
        await stream_of("some ", "words", wait=30.0, idle=0.05)
    assert caught.value.failure.kind == "timeout"


@pytest.mark.parametrize(
    ("error", "kind", "status", "permanent"),
    [
        (exceptions.ModelHTTPError(429, "m", {"a": "b"}), "resource", 429, False),
        (exceptions.ModelHTTPError(503, "m"), "network", 503, False),
        (exceptions.ModelHTTPError(401, "m"), "resource", 401, True),
        (exceptions.ModelRateLimitError("m", "slow", retry_after=3.0), "resource", 429, False),
        (exceptions.ModelConnectionError("m", "gone"), "network", 0, False),
        (exceptions.ModelTimeoutError("m", "late"), "timeout", 0, False),
        (exceptions.UnexpectedModelBehavior("odd"), "network", 0, False),
        (exceptions.UserError("not possible"), "logic", 0, True),
        (ConnectionResetError("reset"), "network", 0, False),
    ],
)
async def test_their_errors_come_out_as_ours(error: Exception, kind: str, status: int, permanent: bool) -> None:
    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        raise error

    with pytest.raises(CallFailed) as caught:
        await made(answer).reply(HELLO)
    failure = caught.value.failure
    assert (failure.kind, caught.value.status, failure.permanent) == (kind, status, permanent)
    assert failure.retry_after == (3.0 if isinstance(error, exceptions.ModelRateLimitError) else 0.0)
    assert failure.message.startswith("some:model: ")


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (theirs.ModelResponse([]), "logic"),
        (theirs.ModelResponse([theirs.TextPart("x")], finish_reason="error"), "network"),
        (theirs.ModelResponse([theirs.TextPart("x")], state="incomplete"), "network"),
        (theirs.ModelResponse([theirs.ToolCallPart("a", "{", "1")], finish_reason="length"), "logic"),
        (theirs.ModelResponse([theirs.ToolCallPart("a", "{}", "1"), theirs.ToolCallPart("b", "{}", "1")]), "network"),
    ],
)
async def test_a_reply_nobody_can_work_with_is_a_failure(response: theirs.ModelResponse, kind: str) -> None:
    with pytest.raises(CallFailed) as caught:
        await made(lambda _messages, _info: response).reply(HELLO)
    assert caught.value.failure.kind == kind


async def test_usage_that_was_left_out_is_not_zero() -> None:
    response = theirs.ModelResponse([theirs.TextPart("x")], usage=RequestUsage(unmeasured_requests=1))

    class Fixed(FunctionModel):
        async def request(self, *args: object, **more: object) -> theirs.ModelResponse:
            return response

    assert (await ProviderModel("a:b", Fixed(lambda _m, _i: response)).reply(HELLO)).usage is None
    response.usage = RequestUsage(
        input_tokens=50,
        output_tokens=20,
        cache_read_tokens=10,
        cache_write_tokens=30,
        cache_write_1h_tokens=12,
        output_reasoning_tokens=7,
    )
    used = Usage(50, 20, cached=10, cache_written=18, cache_written_hour=12, reasoning=7)
    assert (await ProviderModel("a:b", Fixed(lambda _m, _i: response)).reply(HELLO)).usage == used


async def test_a_tool_that_the_provider_runs_is_asked_for_and_goes_back_with_its_result() -> None:
    seen: list[tuple[list[theirs.ModelMessage], AgentInfo]] = []
    call = theirs.NativeToolCallPart("web_search", {"query": "ostrich"}, "n1", provider_name="function")
    found = theirs.NativeToolReturnPart("web_search", [{"title": "104 kg"}], "n1", provider_name="function")

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        seen.append((messages, info))
        return theirs.ModelResponse([call, found, theirs.TextPart("It weighs 104 kg.")])

    model = made(answer)
    assert model.card.provider_tools == tuple(PROVIDER_TOOLS)
    asked = Message("user", "How heavy is an ostrich?")
    reply = await model.reply(Request([asked], provider_tools=("web_search",)))
    (wanted,) = seen[0][1].model_request_parameters.native_tools
    assert wanted.kind == "web_search"
    assert (reply.text, reply.provider_calls) == ("It weighs 104 kg.", 1)
    assert reply.usage is not None
    assert reply.usage.searches == 1
    assert tool_results(reply.kept) == [[{"title": "104 kg"}]]
    await model.reply(Request([asked, reply.message(), Message("user", "Sure?")], provider_tools=("web_search",)))
    again = seen[1][0][1]
    assert isinstance(again, theirs.ModelResponse)
    kinds = [theirs.NativeToolCallPart, theirs.NativeToolReturnPart, theirs.TextPart]
    assert [type(part) for part in again.parts] == kinds


async def test_a_suspended_reply_is_paused() -> None:
    def answer(_messages: list[theirs.ModelMessage], _info: AgentInfo) -> theirs.ModelResponse:
        return theirs.ModelResponse([theirs.TextPart("I search.")], state="suspended")

    assert (await made(answer).reply(HELLO)).finish == "paused"


def test_the_providers_that_are_named_for_a_tool_are_those_whose_library_has_it() -> None:
    classes = {"google": GoogleModel, "openai": OpenAIResponsesModel}
    for provider, kind in classes.items():
        kinds = {tool.kind for tool in kind.supported_native_tools()} & set(PROVIDER_TOOLS)
        assert {name for name, tool in PROVIDER_TOOLS.items() if provider in tool.makers} == kinds
