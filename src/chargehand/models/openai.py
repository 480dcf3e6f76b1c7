"""Models that speak OpenAI's chat protocol: OpenAI, Ollama, vLLM, OpenRouter, llama.cpp and any other URL.

How a reply is read is in `openai_reply`; retries, limits and prices are the guard's business.
"""

from urllib.parse import urlsplit

import msgspec

from chargehand.models.failed import CallFailed, Party, asked_wait, error_words, refused
from chargehand.models.http import MOST_BYTES, PATIENCE, Endpoint, Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, ToolSpec
from chargehand.models.model import Hear, ModelCard
from chargehand.models.openai_reply import ChatStream, read_whole
from chargehand.models.shapes import strict_schema
from chargehand.models.wire import Once
from chargehand.terms.failure import Failure

_json = msgspec.json.encode


class OpenAIChat:
    """One model behind one base URL (`https://host/v1`). Without `key` no key is sent.

    With `hear` a reply is streamed, without it is not. `reports_cost`: the server puts dollars into its usage.
    `tokens_field` is what the server calls the most tokens it may write; left out, it goes by the host.
    """

    def __init__(
        self,
        handle: str,
        base_url: str,
        name: str,
        key: str = "",
        *,
        transport: Transport | None = None,
        timeouts: Timeouts = PATIENCE,
        window: int = 128_000,
        most_bytes: int = MOST_BYTES,
        native_tools: bool = True,
        schema: bool = True,
        variable: str = "",
        reports_cost: bool = False,
        tokens_field: str = "",
        notice: str = "",
    ) -> None:
        self._card = ModelCard(handle, window, native_tools, schema, notice)
        self._transport = transport or Transport()
        self._owned = transport is None
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._party = Party(handle, host, (key,) if key else (), variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(
            self._party, base_url.rstrip("/") + "/chat/completions", headers, timeouts, most_bytes
        )
        self._reports_cost = reports_cost
        self._tokens = tokens_field or ("max_completion_tokens" if host == "api.openai.com" else "max_tokens")
        self._opening = b'{"model":' + _json(name) + b',"messages":['
        self._messages = Once(_following)
        self._tools = Once(_tools)
        self._schemas = Once(_schema)

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        body = self._body(request, streamed=hear is not None)
        if hear is None:
            answer = await self._transport.post(self._endpoint, body)
        else:
            stream = ChatStream(self._party, hear, reports_cost=self._reports_cost)
            answer = await self._transport.post(self._endpoint, body, stream)
            if answer.streamed:
                return stream.reply()
        if answer.status != 200:
            raise refused(self._party, answer.status, error_words(answer.body), asked_wait(answer.headers))
        reply = read_whole(self._party, answer.body, reports_cost=self._reports_cost)
        if hear is not None and reply.text:  # asked to stream, it did not: a reply all the same
            hear(reply.text)
        return reply

    async def close(self) -> None:
        if self._owned:
            await self._transport.close()

    def _body(self, request: Request, *, streamed: bool) -> bytes:
        try:
            parts = [self._opening, *self._messages.each(request.messages), b"]"]  # joined once: it can be large
            parts[1] = parts[1].removeprefix(b",")
            if request.tools:
                parts += b',"tools":', self._tools.of(request.tools)
            if request.schema is not None:
                parts += b',"response_format":', self._schemas.of(request.schema)
        except ValueError as error:  # half a character, for example
            message = f"{self._party.handle}: the request cannot be written as JSON ({error}); change its text"
            raise CallFailed(Failure("logic", message, permanent=True)) from error
        settings = request.settings
        if settings.temperature is not None:
            parts += b',"temperature":', _json(settings.temperature)
        if settings.max_tokens is not None:
            parts.append(f',"{self._tokens}":{settings.max_tokens}'.encode())
        parts.append(b',"stream":true,"stream_options":{"include_usage":true}}' if streamed else b"}")
        return b"".join(parts)


def _following(message: Message) -> bytes:
    """As it stands in the list after another message."""
    return b"," + _message(message)


def _message(message: Message) -> bytes:
    if message.role == "tool":
        return _json({"role": "tool", "tool_call_id": message.call, "content": message.text})
    if not message.calls:
        return _json({"role": message.role, "content": message.text})
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    return _json({"role": "assistant", "content": message.text or None, "tool_calls": calls})


def _tools(tools: tuple[ToolSpec, ...]) -> bytes:
    return _json(
        [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in tools
        ]
    )


def _schema(schema: msgspec.Raw) -> bytes:
    strict = strict_schema(schema, optional=False)
    shape = {"name": "reply", "schema": strict or schema, "strict": strict is not None}
    return _json({"type": "json_schema", "json_schema": shape})
