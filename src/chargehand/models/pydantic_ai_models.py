"""Every other provider, through `pydantic_ai.direct`: what it is asked and what it answers, in our own words.

Loading this loads pydantic_ai, which takes a second: only `resolve` does, and only for a handle of such a provider.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import msgspec
from msgspec import Raw, structs
from pydantic_ai import exceptions, models
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from chargehand.engine.failure import Failure
from chargehand.engine.state import TextKind
from chargehand.errors import Invalid
from chargehand.extras import install_command
from chargehand.models.call_errors import (
    CallFailed,
    Party,
    Unreadable,
    call_refused,
    connection_lost,
    file_advice,
    timed_out,
    unreadable_reply,
)
from chargehand.models.cloud_errors import cloud_failure, cloud_problem
from chargehand.models.http import PATIENCE, Timeouts
from chargehand.models.messages import PDF, Finish, Kept, KeptPart, Message, Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard
from chargehand.models.provider_tools import PROVIDER_TOOLS
from chargehand.models.providers import extra_of
from chargehand.models.refused_fields import memory_of
from chargehand.models.reply_limit import known_limit, reply_limit
from chargehand.models.wire import checked_reply, checked_usage, noted

NO_HEADERS: Mapping[str, str] = {}
_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refused",
    "tool_call": "tools",
}
_NATIVE_TOOLS = {kind.kind: kind for kind in SUPPORTED_NATIVE_TOOLS if kind.kind in PROVIDER_TOOLS}
"""Tools that a provider runs, which have the same names there."""
_SEEING = re.compile(r"claude|gemini|gpt-(?:4o|4\.1|[5-9])|grok-[4-9]|llama-?4|nova-(?:lite|pro|premier)|pixtral")
_READING = re.compile(r"claude|gemini|gpt-(?:4o|4\.1|[5-9])|nova-(?:lite|pro|premier)")
"""Names of models that take pictures, and of those that take PDFs."""
_KEPT = "response"
"""The kind of what is kept: the whole reply as they write it, without its text and arguments, which the journal has."""


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
        headers: Mapping[str, str] = NO_HEADERS,
        images: bool | None = None,
        documents: bool | None = None,
    ) -> None:
        """`images` and `documents` say whether it takes them; left out, its name and its profile do."""
        self._model = model
        self._headers = dict(headers)
        self._timeouts = timeouts
        secrets = (*((key,) if key else ()), *headers.values())
        self._party = Party(handle=handle, place=model.system, secrets=secrets, variable=variable)
        profile = model.profile
        self._native_schema = bool(profile.get("supports_json_schema_output", False))
        self._card = ModelCard(
            handle,
            window,
            bool(profile.get("supports_tools", True)),
            self._native_schema,
            images=_sees(model, profile) if images is None else images,
            documents=_reads_pdfs(model, profile) if documents is None else documents,
            max_tokens=known_limit(model.model_name),
            keeps_limit=True,
            provider_tools=tuple(
                name for name in PROVIDER_TOOLS if _NATIVE_TOOLS.get(name) in _offered(profile, model)
            ),
        )
        self._fields = memory_of(model.system, model.model_name)
        self._noted = 0
        self._entered = False
        self._provider = f"pydantic_ai {model.system}"
        self._name = model.model_name

    @property
    def card(self) -> ModelCard:
        if len(self._fields.notes) != self._noted:
            self._noted = len(self._fields.notes)
            self._card = structs.replace(self._card, notice=" ".join(self._fields.notes))
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if not self._entered:
            self._entered = True
            await self._model.__aenter__()
        settings = self._settings(request)
        notes: list[str] = []
        while True:
            try:
                reply = self._read(await self._timed(request, settings, hear))
                # which tier served it is not said in the same way by all: it is the one that was asked for
                return noted(structs.replace(reply, tier=str(settings.get("service_tier", ""))), notes)
            except exceptions.ModelHTTPError as error:
                words = str(error)
                note = self._fields.learn(self._party.handle, error.status_code, words, "", settings)
                if not note:
                    raise self._failed(error, file_advice(request.messages)) from error
                notes.append(note)
                self._fields.adapt(settings)

    async def _timed(self, request: Request, settings: dict[str, object], hear: Hear | None) -> theirs.ModelResponse:
        """One call within its time; ModelHTTPError as it came, and any other failure as CallFailed."""
        times = self._timeouts
        first = times.whole if hear is None else times.first
        watch = _Watch(times.total, first)
        try:
            async with watch.timeout:
                return await self._ask(request, settings, hear, watch)
        except TimeoutError as error:
            raise timed_out(self._party, f"nothing more came within {watch.patience:g} s") from error
        except exceptions.ModelHTTPError:
            raise
        except (exceptions.AgentRunError, exceptions.UserError, OSError) as error:
            raise self._failed(error) from error
        except Exception as error:
            failed = cloud_failure(self._party, error)
            if failed is None:  # a mistake in code, which is shown with its place
                raise
            raise failed from error

    async def close(self) -> None:
        if self._entered:
            self._entered = False
            await self._model.__aexit__(None, None, None)

    async def _ask(
        self, request: Request, chosen: dict[str, object], hear: Hear | None, watch: "_Watch"
    ) -> theirs.ModelResponse:
        messages = self._messages(request.messages)
        parameters = self._parameters(request)
        settings = cast("ModelSettings", chosen)
        if hear is None:
            return await model_request(
                self._model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
            )
        async with model_request_stream(
            self._model, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
        ) as stream:
            async for event in stream:
                watch.moved(self._timeouts.idle)
                words, kind = _words(event)
                if words:
                    hear(words, kind)
            return stream.get()

    def _settings(self, request: Request) -> dict[str, object]:
        """The settings of a request in their words, without what the model is known not to take."""
        wanted = request.settings
        settings: dict[str, object] = {"max_retries": 0, "max_tokens": reply_limit(self._card, wanted)}
        if wanted.parallel_tool_calls is not None and request.tools:
            settings["parallel_tool_calls"] = wanted.parallel_tool_calls
        if request.tool_choice and request.tools:
            choice = request.tool_choice
            settings["tool_choice"] = choice if choice == "none" else [choice]
        values: dict[str, object] = {
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "seed": wanted.seed,
            "stop_sequences": list(wanted.stop) if wanted.stop else None,
            "service_tier": wanted.service_tier,
            "thinking": None if wanted.effort is None else wanted.effort != "none" and wanted.effort,
            "cache": None if wanted.cache is None else wanted.cache != "off" and wanted.cache,
            "extra_body": None if wanted.extra is None else dict(wanted.extra),
            "extra_headers": self._headers or None,
        }
        settings |= {name: value for name, value in values.items() if value is not None}
        for name in self._model.unsupported_settings & settings.keys():
            del settings[name]
            if name != "max_retries":
                self._fields.note(self._party.handle, f"{name} is not sent: its provider has none")
        return self._fields.adapt(settings)

    def _parameters(self, request: Request) -> models.ModelRequestParameters:
        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=msgspec.json.decode(tool.parameters, type=dict[str, object]),
            )
            for tool in request.tools
        ]
        native: list[AbstractNativeTool] = [_NATIVE_TOOLS[name]() for name in request.provider_tools]
        if request.schema is None:
            return models.ModelRequestParameters(function_tools=tools, native_tools=native)
        shape = OutputObjectDefinition(msgspec.json.decode(request.schema, type=dict[str, object]), name="reply")
        mode = "native" if self._native_schema else "prompted"
        return models.ModelRequestParameters(
            function_tools=tools, native_tools=native, output_mode=mode, output_object=shape
        )

    def _read(self, response: theirs.ModelResponse) -> Reply:
        if response.state not in ("complete", "suspended"):
            raise unreadable_reply(self._party, f"it is {response.state}")
        text = "".join(part.content for part in response.parts if isinstance(part, theirs.TextPart))
        calls = [
            ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part))
            for part in response.parts
            if isinstance(part, theirs.ToolCallPart)
        ]
        native = [part for part in response.parts if isinstance(part, theirs.NativeToolCallPart)]
        reason = response.finish_reason or "stop"
        if reason not in _FINISHES:
            raise unreadable_reply(self._party, f"it ended with {reason!r}")
        reply = checked_reply(
            party=self._party,
            text=text,
            calls=calls,
            finish=_FINISHES[reason] if response.state == "complete" else "paused",
            usage=self._usage(response.usage, searches=sum(call.tool_name == "web_search" for call in native)),
            model=response.model_name or "",
            provider_calls=len(native),
        )
        part = _kept_part(response)
        return reply if part is None else structs.replace(reply, kept=Kept((part,), self._provider, self._name))

    def _messages(self, messages: Sequence[Message]) -> list[theirs.ModelMessage]:
        """Theirs alternate: what is said to the model between two of its replies is one message."""
        converted: list[theirs.ModelMessage] = []
        names: dict[str, str] = {}
        for message in messages:
            if message.role == "assistant":
                names |= {call.id: call.name for call in message.calls}
                converted.append(self._response(message))
                continue
            part = _part(message, names)
            last = converted[-1] if converted else None
            if isinstance(last, theirs.ModelRequest):
                converted[-1] = theirs.ModelRequest([*last.parts, part])
            else:
                converted.append(theirs.ModelRequest([part]))
        return converted

    def _response(self, message: Message) -> theirs.ModelResponse:
        """An assistant's message, with what was kept of it if this model wrote it."""
        kept = message.kept
        if kept is not None and (kept.provider, kept.model) == (self._provider, self._name):
            (response,) = theirs.ModelMessagesTypeAdapter.validate_json(bytes(kept.parts[0].data))
            if isinstance(response, theirs.ModelResponse):
                return replace(response, parts=_filled_parts(message, response))
        parts: list[theirs.ModelResponsePart] = [theirs.TextPart(message.text)] if message.text else []
        parts += [theirs.ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
        return theirs.ModelResponse(parts)

    def _usage(self, used: RequestUsage, *, searches: int) -> Usage | None:
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
                searches=searches,
            )
        except Unreadable as error:
            raise unreadable_reply(self._party, str(error)) from None

    def _failed(self, error: Exception, advice: str = "") -> CallFailed:
        party = self._party
        words = str(error)
        wait = error.retry_after or 0.0 if isinstance(error, exceptions.ModelAPIError) else 0.0
        match error:
            case exceptions.ModelHTTPError():
                return call_refused(party, error.status_code, words, wait, advice=advice)
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


_WHOLE_PARTS = (theirs.ThinkingPart, theirs.NativeToolCallPart, theirs.NativeToolReturnPart)
"""Parts of a reply that are kept as they are; of others the journal has the text and the arguments."""


def _offered(profile: ModelProfile, model: models.Model) -> frozenset[type[AbstractNativeTool]]:
    """The tools that the provider runs for a model."""
    return profile.get("supported_native_tools", model.supported_native_tools())


def _kept_part(response: theirs.ModelResponse) -> KeptPart | None:
    """What is sent back with a reply; None where plain text and calls are all of it."""
    parts: list[theirs.ModelResponsePart] = []
    is_needed = False
    for part in response.parts:
        if isinstance(part, _WHOLE_PARTS):
            parts.append(part)
        elif isinstance(part, theirs.TextPart):
            parts.append(replace(part, content=""))
        elif isinstance(part, theirs.ToolCallPart):
            parts.append(replace(part, args=None))
        else:
            continue
        is_needed = is_needed or isinstance(part, _WHOLE_PARTS) or bool(part.provider_details or part.id)
    if not is_needed:
        return None
    kept = theirs.ModelResponse(
        parts,
        model_name=response.model_name,
        provider_name=response.provider_name,
        provider_details=response.provider_details,
        provider_response_id=response.provider_response_id,
    )
    return KeptPart(_KEPT, Raw(theirs.ModelMessagesTypeAdapter.dump_json([kept])))


def _filled_parts(message: Message, response: theirs.ModelResponse) -> list[theirs.ModelResponsePart]:
    """The parts of a kept reply with their text and arguments; calls that were not taken up are left out."""
    calls = {call.id: call for call in message.calls}
    text = message.text
    parts: list[theirs.ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, theirs.TextPart):
            if text or part.provider_details:  # all of it is in the first: theirs may be several
                parts.append(replace(part, content=text))
            text = ""
        elif isinstance(part, theirs.ToolCallPart):
            call = calls.pop(part.tool_call_id, None)
            if call is not None:
                parts.append(replace(part, args=call.arguments))
        else:
            parts.append(part)
    return parts


def _part(message: Message, names: dict[str, str]) -> theirs.ModelRequestPart:
    if message.role == "system":
        return theirs.SystemPromptPart(message.text)
    if message.role == "tool":
        content = [message.text, *_files(message)] if message.has_files else message.text
        outcome = "failed" if message.is_error else "success"
        return theirs.ToolReturnPart(names.get(message.call, "unknown"), content, message.call, outcome=outcome)
    return theirs.UserPromptPart([message.text, *_files(message)] if message.has_files else message.text)


def _files(message: Message) -> list[theirs.BinaryContent]:
    """The documents and pictures of a message."""
    return [
        theirs.BinaryContent(part.data, media_type=part.media_type, identifier=part.file)
        for part in (*message.documents, *message.images)
    ]


def _sees(model: models.Model, profile: ModelProfile) -> bool:
    """Whether a model takes pictures: its name is known for it, and nothing says otherwise."""
    return bool(profile.get("supports_image_input", True)) and _SEEING.search(model.model_name.lower()) is not None


def _reads_pdfs(model: models.Model, profile: ModelProfile) -> bool:
    """Whether a model takes PDFs: its name is known for it, and nothing says otherwise."""
    types = profile.get("supported_document_media_types")
    is_taken = bool(profile.get("supports_document_input", True)) and (types is None or PDF in types)
    return is_taken and _READING.search(model.model_name.lower()) is not None


def _words(event: theirs.ModelResponseStreamEvent) -> tuple[str, TextKind]:
    """What an event adds to a text, and to which."""
    if isinstance(event, theirs.PartStartEvent):
        if isinstance(event.part, theirs.TextPart):
            return event.part.content, "answer"
        if isinstance(event.part, theirs.ThinkingPart):
            return event.part.content, "thought"
    elif isinstance(event, theirs.PartDeltaEvent):
        if isinstance(event.delta, theirs.TextPartDelta):
            return event.delta.content_delta, "answer"
        if isinstance(event.delta, theirs.ThinkingPartDelta):
            return event.delta.content_delta or "", "thought"
    return "", "answer"


def _arguments(part: theirs.ToolCallPart) -> str:
    return part.args if isinstance(part.args, str) and part.args else part.args_as_json_str()


def provider_model(
    handle: str,
    provider: str,
    name: str,
    key: str,
    *,
    where: Mapping[str, str] | None = None,
    timeouts: Timeouts = PATIENCE,
    window: int = 128_000,
    variable: str,
    headers: Mapping[str, str] = NO_HEADERS,
    images: bool | None = None,
    documents: bool | None = None,
) -> ProviderModel:
    """Return a model of a provider. `where` are arguments of its client that say where it is: an endpoint, a region.

    Raises:
        Invalid: the provider's own library or its credentials are missing.
    """
    arguments = {**(where or {}), **({"api_key": key} if key else {})}

    def make_provider(kind: str) -> "Provider[object]":
        if not arguments:
            return infer_provider(kind)  # it looks for its credentials where its own library documents
        build = cast("Callable[..., Provider[object]]", infer_provider_class(kind))
        return build(**arguments)

    try:
        model = models.infer_model(f"{provider}:{name}", make_provider)
    except ImportError as error:
        extra = extra_of(provider)
        raise Invalid(f"{handle}: {provider} needs the extra `{extra}`: {install_command(extra)}") from error
    except (exceptions.UserError, ValueError, TypeError) as error:
        raise Invalid(f"{handle}: {error}") from error
    except Exception as error:
        if problem := cloud_problem(Party(handle, provider, secrets=(key,) if key else ()), error):
            raise Invalid(problem) from error
        raise
    return ProviderModel(
        handle,
        model,
        timeouts=timeouts,
        window=window,
        key=key,
        variable=variable,
        headers=headers,
        images=images,
        documents=documents,
    )
