"""Every other provider, through `pydantic_ai.direct`: what it is asked and what it answers, in our own words.

Loading this loads pydantic_ai, which takes a second: only `resolve` does, and only for a handle of such a provider.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from pydantic_ai import exceptions, models
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.call_errors import (
    CallFailed,
    Party,
    Unreadable,
    call_refused,
    connection_lost,
    timed_out,
    unreadable_reply,
)
from chargehand.models.http import PATIENCE, Timeouts
from chargehand.models.messages import Finish, Message, Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.reply_limit import known_limit, reply_limit
from chargehand.models.wire import checked_reply, checked_usage

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refused",
    "tool_call": "tools",
}


class ProviderModel:
    """One model of one provider that pydantic_ai knows. Retries of its SDK are switched off: the guard makes them."""

    def __init__(
        self,
        handle: str,
        model: models.Model,
        *,
        timeouts: Timeouts = PATIENCE,
        window: int = 128_000,
        key: str = "",
        variable: str = "",
    ) -> None:
        self._model = model
        self._timeouts = timeouts
        self._party = Party(handle=handle, place=model.system, secrets=(key,) if key else (), variable=variable)
        profile = model.profile
        self._native_schema = bool(profile.get("supports_json_schema_output", False))
        self._card = ModelCard(
            handle,
            window,
            bool(profile.get("supports_tools", True)),
            self._native_schema,
            max_tokens=known_limit(model.model_name),
            keeps_limit=True,
        )
        self._entered = False

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if not self._entered:
            self._entered = True
            await self._model.__aenter__()
        times = self._timeouts
        first = times.whole if hear is None else times.first
        watch = _Watch(times.total, first)
        try:
            async with watch.timeout:
                response = await self._ask(request, hear, watch)
        except TimeoutError as error:
            raise timed_out(self._party, f"nothing more came within {watch.patience:g} s") from error
        except (exceptions.AgentRunError, exceptions.UserError, OSError) as error:
            raise self._failed(error) from error
        return self._read(response)

    async def close(self) -> None:
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    async def _ask(self, request: Request, hear: Hear | None, watch: "_Watch") -> theirs.ModelResponse:
        messages = _messages(request.messages)
        parameters = self._parameters(request)
        settings = self._settings(request)
        if hear is None:
            return await model_request(
                self._model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
            )
        async with model_request_stream(
            self._model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
        ) as stream:
            async for event in stream:
                watch.moved(self._timeouts.idle)
                words = _words(event)
                if words:
                    hear(words)
            return stream.get()

    def _settings(self, request: Request) -> ModelSettings:
        settings = ModelSettings()
        if "max_retries" not in self._model.unsupported_settings:
            settings["max_retries"] = 0
        if request.settings.temperature is not None:
            settings["temperature"] = request.settings.temperature
        if request.settings.parallel_tool_calls is not None and request.tools:
            settings["parallel_tool_calls"] = request.settings.parallel_tool_calls
        settings["max_tokens"] = reply_limit(self._card, request.settings)
        return settings

    def _parameters(self, request: Request) -> models.ModelRequestParameters:
        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=msgspec.json.decode(tool.parameters, type=dict[str, object]),
            )
            for tool in request.tools
        ]
        if request.schema is None:
            return models.ModelRequestParameters(function_tools=tools)
        shape = OutputObjectDefinition(msgspec.json.decode(request.schema, type=dict[str, object]), name="reply")
        mode = "native" if self._native_schema else "prompted"
        return models.ModelRequestParameters(function_tools=tools, output_mode=mode, output_object=shape)

    def _read(self, response: theirs.ModelResponse) -> Reply:
        if response.state != "complete":
            raise unreadable_reply(self._party, f"it is {response.state}")
        text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
        calls = [
            ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part))
            for part in response.parts
            if isinstance(part, theirs.ToolCallPart)
        ]
        reason = response.finish_reason or "stop"
        if reason not in _FINISHES:
            raise unreadable_reply(self._party, f"it ended with {reason!r}")
        return checked_reply(
            party=self._party,
            text=text,
            calls=calls,
            finish=_FINISHES[reason],
            usage=self._usage(response.usage),
            model=response.model_name or "",
        )

    def _usage(self, used: RequestUsage) -> Usage | None:
        """What a call used; what was cached for an hour is a part of `cache_write_tokens` there."""
        if used.unmeasured_requests:
            return None
        hour = used.cache_write_1h_tokens
        try:
            return checked_usage(
                used.input_tokens,
                used.output_tokens,
                used.cache_read_tokens,
                cache_written=max(0, used.cache_write_tokens - hour),
                cache_written_hour=hour,
                reasoning=used.output_reasoning_tokens,
            )
        except Unreadable as error:
            raise unreadable_reply(self._party, str(error)) from None

    def _failed(self, error: Exception) -> CallFailed:
        party = self._party
        words = str(error)
        wait = error.retry_after or 0.0 if isinstance(error, exceptions.ModelAPIError) else 0.0
        match error:
            case exceptions.ModelHTTPError():
                return call_refused(party, error.status_code, words, wait)
            case exceptions.ModelRateLimitError():
                return call_refused(party, 429, words, wait)
            case exceptions.ModelTimeoutError() | exceptions.ModelRequestTimeout():
                return timed_out(party, "the provider's client gave up waiting")
            case exceptions.ModelAPIError() | OSError():
                return connection_lost(party, f"the call did not get through ({type(error).__name__})")
            case exceptions.UnexpectedModelBehavior():
                return unreadable_reply(party, type(error).__name__)
            case _:
                failure = Failure("logic", call_refused(party, 400, words).failure.message, permanent=True)
                return CallFailed(failure, billed=False)


class _Watch:
    """The clock of one call."""

    def __init__(self, total: float, first: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + total
        self.patience = min(total, first)
        self.timeout = asyncio.timeout_at(self._loop.time() + self.patience)

    def moved(self, idle: float) -> None:
        self.patience = idle
        self.timeout.reschedule(min(self._end, self._loop.time() + idle))


def _messages(messages: Sequence[Message]) -> list[theirs.ModelMessage]:
    """Theirs alternate: what is said to the model between two of its replies is one message."""
    converted: list[theirs.ModelMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names |= {call.id: call.name for call in message.calls}
            parts: list[theirs.ModelResponsePart] = [theirs.TextPart(message.text)] if message.text else []
            parts += [theirs.ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
            converted.append(theirs.ModelResponse(parts))
            continue
        part = _part(message, names)
        last = converted[-1] if converted else None
        if isinstance(last, theirs.ModelRequest):
            converted[-1] = theirs.ModelRequest([*last.parts, part])
        else:
            converted.append(theirs.ModelRequest([part]))
    return converted


def _part(message: Message, names: dict[str, str]) -> theirs.ModelRequestPart:
    if message.role == "system":
        return theirs.SystemPromptPart(message.text)
    if message.role == "tool":
        return theirs.ToolReturnPart(names.get(message.call, "unknown"), message.text, message.call)
    return theirs.UserPromptPart(message.text)


def _words(event: theirs.ModelResponseStreamEvent) -> str:
    if isinstance(event, theirs.PartStartEvent) and isinstance(event.part, theirs.TextPart):
        return event.part.content
    if isinstance(event, theirs.PartDeltaEvent) and isinstance(event.delta, theirs.TextPartDelta):
        return event.delta.content_delta
    return ""


def _arguments(part: theirs.ToolCallPart) -> str:
    return part.args if isinstance(part.args, str) and part.args else part.args_as_json_str()


def provider_model(
    handle: str,
    provider: str,
    name: str,
    key: str,
    *,
    timeouts: Timeouts = PATIENCE,
    window: int = 128_000,
    variable: str,
) -> ProviderModel:
    """Raises Invalid when the provider's own library or its credentials are missing."""

    def make_provider(kind: str) -> "Provider[object]":
        if not key:
            return infer_provider(kind)  # it looks for its credentials where its own library documents
        build = cast("Callable[..., Provider[object]]", infer_provider_class(kind))
        return build(api_key=key)

    try:
        model = models.infer_model(f"{provider}:{name}", make_provider)
    except (exceptions.UserError, ImportError, ValueError, TypeError) as error:
        raise Invalid(f"{handle}: {error}") from error
    return ProviderModel(handle, model, timeouts=timeouts, window=window, key=key, variable=variable)
