"""Models that speak OpenAI's chat protocol: OpenAI, Ollama, vLLM, OpenRouter, llama.cpp and any other URL.

How a reply is read is in `openai_reply`; retries, limits and prices are the guard's business.
"""

import re
from sys import maxsize
from urllib.parse import urlsplit

import msgspec

from chargehand.models.failed import CallFailed, Party, asked_wait, error_words, refused
from chargehand.models.http import MOST_BYTES, PATIENCE, Endpoint, Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, ToolSpec
from chargehand.models.model import Hear, ModelCard
from chargehand.models.openai_reply import ChatStream, read_whole
from chargehand.models.reply_limit import depends_on_request, known_limit, reply_limit, smaller_limit
from chargehand.models.shapes import strict_schema
from chargehand.models.wire import Once
from chargehand.terms.failure import Failure

_json = msgspec.json.encode
_FIELDS = ("max_tokens", "max_completion_tokens")  # what servers call the most tokens a reply may have
_COUNTS_THINKING = re.compile(r"(^|/)(gpt-[5-9]|o[1-9](?![a-z0-9]))")  # models that take only the second
_UNKNOWN_FIELD = re.compile(
    r"unsupported|not supported|unknown|unrecognized|unexpected|extra|not permitted", re.IGNORECASE
)


class OpenAIChat:
    """One model behind one base URL (`https://host/v1`). Without `key` no key is sent.

    With `hear` a reply is streamed, without it is not. `reports_cost`: the server puts dollars into its usage.
    `tokens_field` is what the server calls the most tokens it may write; left out, it goes by the host, the name
    and what the server says of it. A server that refuses so many tokens is asked for fewer.
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
        free: bool = False,
        reports_cost: bool = False,
        tokens_field: str = "",
        notice: str = "",
    ) -> None:
        self._card = ModelCard(
            handle=handle,
            window=window,
            native_tools=native_tools,
            schema=schema,
            notice=notice,
            max_tokens=known_limit(name),
            keeps_limit=True,
            free=free,
        )
        self._transport = transport or Transport()
        self._owned = transport is None
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._party = Party(handle=handle, place=host, secrets=(key,) if key else (), variable=variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(
            party=self._party,
            url=base_url.rstrip("/") + "/chat/completions",
            headers=headers,
            timeouts=timeouts,
            most_bytes=most_bytes,
        )
        self._reports_cost = reports_cost
        second = host == "api.openai.com" or _COUNTS_THINKING.search(name.lower()) is not None
        self._tokens_field = tokens_field or _FIELDS[second]
        self._fields_tried = {self._tokens_field}
        self._most_tokens = maxsize
        self._opening = b'{"model":' + _json(name) + b',"messages":['
        self._messages = Once(_following)
        self._tools = Once(_tools)
        self._schemas = Once(_schema)

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        limit = min(reply_limit(self._card, request.settings), self._most_tokens)
        while True:
            stream = None if hear is None else ChatStream(self._party, hear, reports_cost=self._reports_cost)
            body = self._body(request, limit, streamed=stream is not None)
            answer = await self._transport.post(self._endpoint, body, stream)
            if stream is not None and answer.streamed:
                return stream.reply()
            if answer.status == 200:
                break
            words = error_words(answer.body)
            if not self._takes_other_field(answer.status, words):
                smaller = smaller_limit(answer.status, words, limit)
                if smaller is None:
                    raise refused(self._party, answer.status, words, asked_wait(answer.headers))
                limit = smaller
                if not depends_on_request(words):
                    self._most_tokens = limit
        reply = read_whole(self._party, answer.body, reports_cost=self._reports_cost)
        if hear is not None and reply.text:  # asked to stream, it did not: a reply all the same
            hear(reply.text)
        return reply

    def _takes_other_field(self, status: int, words: str) -> bool:
        """Whether the server does not know the field that was sent, and the other was not tried yet: it is from now."""
        if status not in (400, 422) or self._tokens_field not in words or not _UNKNOWN_FIELD.search(words):
            return False
        other = next((field for field in _FIELDS if field not in self._fields_tried), "")
        if not other:
            return False
        self._fields_tried.add(other)
        self._tokens_field = other
        return True

    async def close(self) -> None:
        if self._owned:
            await self._transport.close()

    def _body(self, request: Request, limit: int, *, streamed: bool) -> bytes:
        try:
            parts = [self._opening, *self._messages.each(request.messages), b"]"]  # joined once: it can be large
            parts[1] = parts[1].removeprefix(b",")
            if request.tools:
                parts += b',"tools":', self._tools.of(request.tools)
            if request.schema is not None:
                parts += b',"response_format":', self._schemas.of(request.schema)
        except ValueError as error:  # half a character, for example
            message = f"{self._party.handle}: the request cannot be written as JSON ({error}); change its text"
            raise CallFailed(Failure("logic", message, permanent=True), billed=False) from error
        settings = request.settings
        if settings.temperature is not None:
            parts += b',"temperature":', _json(settings.temperature)
        if settings.parallel_tool_calls is False and request.tools:  # without tools it would be refused
            parts.append(b',"parallel_tool_calls":false')
        parts.append(f',"{self._tokens_field}":{limit}'.encode())
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
