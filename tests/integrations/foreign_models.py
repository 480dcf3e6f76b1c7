"""Models of other frameworks that reply from a script."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Model as OpenAIModel
from agents import ModelResponse
from agents.items import TResponseStreamEvent
from agents.usage import Usage as OpenAIUsage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


def said(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m1", content=[part], role="assistant", status="completed", type="message")


def called(name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id="c1", name=name, arguments=arguments, type="function_call")


class ScriptedOpenAIModel(OpenAIModel):
    """Replies one after the other, 100 tokens read and 10 written each; what is an exception is raised."""

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)
        self.asked: list[Any] = []

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        self.asked.append(args[1] if len(args) > 1 else options["input"])
        reply: Any = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        usage = OpenAIUsage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse(output=[reply], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError
