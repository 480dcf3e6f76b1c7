"""Models that speak Anthropic's messages protocol: Anthropic itself, and servers that offer the same.

How a reply is read is in `anthropic_reply`; retries, limits and prices are the guard's business.
"""

from collections.abc import Sequence
from sys import maxsize
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from chargehand.models.anthropic_reply import MessageStream, read_whole
from chargehand.models.failed import CallFailed, Party, asked_wait, error_words, refused
from chargehand.models.http import MOST_BYTES, PATIENCE, Endpoint, Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, ToolSpec
from chargehand.models.model import Hear, ModelCard
from chargehand.models.reply_limit import depends_on_request, known_limit, reply_limit, smaller_limit
from chargehand.models.shapes import strict_schema
from chargehand.models.wire import Once
from chargehand.terms.failure import Failure

VERSION = "2023-06-01"
_EMPTY = "(empty)"  # an empty text block is an error there
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_CACHED = b',"cache_control":{"type":"ephemeral"}}'
_ONE_TURN = 3  # pieces of a conversation in which nobody has answered yet: its head, one turn, its end
_json = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, Raw])


class AnthropicMessages:
    """One model behind one base URL (`https://host`). Without `key` no key is sent.

    With `hear` a reply is streamed, without it is not. A schema the strict mode takes is sent as the output format, any
    other as an instruction. The tools and the system message, which are the same in every call of a worker, are marked
    for the provider's cache, and so is what was said so far where the model is called again.
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
        window: int = 200_000,
        most_bytes: int = MOST_BYTES,
        native_tools: bool = True,
        schema: bool = True,
        variable: str = "",
        free: bool = False,
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
        self._party = Party(
            handle=handle,
            place=urlsplit(base_url).netloc.rpartition("@")[2],
            secrets=(key,) if key else (),
            variable=variable,
        )
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        url = base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"
        self._endpoint = Endpoint(party=self._party, url=url, headers=headers, timeouts=timeouts, most_bytes=most_bytes)
        self._opening = b'{"model":' + _json(name) + b',"max_tokens":'
        self._most_tokens = maxsize
        self._blocks = Once(_blocks)
        self._tools = Once(_tools)
        self._schemas = Once(_schema)

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        limit = min(reply_limit(self._card, request.settings), self._most_tokens)
        while True:
            stream = None if hear is None else MessageStream(self._party, hear)
            body = self._body(request, limit, streamed=stream is not None)
            answer = await self._transport.post(self._endpoint, body, stream)
            if stream is not None and answer.streamed:
                return stream.reply()
            if answer.status == 200:
                break
            words = error_words(answer.body)
            smaller = smaller_limit(answer.status, words, limit)
            if smaller is None:
                raise refused(self._party, answer.status, words, asked_wait(answer.headers))
            limit = smaller
            if not depends_on_request(words):
                self._most_tokens = limit
        reply = read_whole(self._party, answer.body)
        if hear is not None and reply.text:  # asked to stream, it did not: a reply all the same
            hear(reply.text)
        return reply

    async def close(self) -> None:
        if self._owned:
            await self._transport.close()

    def _body(self, request: Request, limit: int, *, streamed: bool) -> bytes:
        settings = request.settings
        parts = [self._opening, b"%d" % limit]
        try:
            system, turns = self._turns(request.messages)
            form = self._schemas.of(request.schema) if request.schema is not None else b""
            if form and form[:1] != b"{":  # an instruction, because the strict mode would refuse it
                system.append(form[1:])
                form = b""
            if system:
                system[-1] = _marked(system[-1])
                parts += b',"system":[', b",".join(system), b"]"
            if len(turns) > _ONE_TURN:  # called again: what was said before it is read from the cache the next time
                turns[-2] = _marked(turns[-2])
            parts += [b',"messages":[', *turns, b"]"]  # joined once, with all the rest: it can be large
            if form:
                parts += b',"output_config":', form
            if request.tools:
                tools = self._tools.of(request.tools)
                parts += b',"tools":', (tools if system else _marked(tools[:-1]) + b"]")
        except ValueError as error:  # half a character, for example
            message = f"{self._party.handle}: the request cannot be written as JSON ({error}); change its text"
            raise CallFailed(Failure("logic", message, permanent=True), billed=False) from error
        if settings.temperature is not None:
            parts += b',"temperature":', _json(settings.temperature)
        if settings.parallel_tool_calls is False and request.tools:
            parts.append(b',"tool_choice":{"type":"auto","disable_parallel_tool_use":true}')
        parts.append(b',"stream":true}' if streamed else b"}")
        return b"".join(parts)

    def _turns(self, messages: Sequence[Message]) -> tuple[list[bytes], list[bytes]]:
        """System blocks, and turns in pieces.

        Who speaks twice in a row speaks in one turn; so do all results of one round of calls.
        """
        system: list[bytes] = []
        pieces: list[bytes] = []
        speaker = b""
        for message, blocks in zip(messages, self._blocks.each(messages), strict=True):
            if message.role == "system":
                system.append(blocks)
            elif blocks:  # else it said nothing and called nothing
                by = _ASSISTANT if message.role == "assistant" else _USER
                pieces += (b"," if by is speaker else b"]}," + by if speaker else by), blocks
                speaker = by
        if not pieces and system:  # the protocol wants somebody to have spoken
            pieces += _USER, system.pop()
        if pieces:
            pieces.append(b"]}")
        return system, pieces


def _marked(blocks: bytes) -> bytes:
    """The same blocks, the last of them marked as the end of what the provider is to keep."""
    return blocks[:-1] + _CACHED


def _blocks(message: Message) -> bytes:
    """The content blocks of one message, with commas between them."""
    if message.role == "tool":
        return _json({"type": "tool_result", "tool_use_id": message.call, "content": message.text})
    blocks: list[bytes] = []
    if message.text.strip() or message.role != "assistant":
        blocks.append(_json({"type": "text", "text": message.text if message.text.strip() else _EMPTY}))
    blocks += [
        _json({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)})
        for call in message.calls
    ]
    return b",".join(blocks)


def _input(arguments: str) -> object:
    """Arguments have to be an object there: what the model wrote is shown to it even where it is none."""
    try:
        return _object.decode(arguments)
    except (ValueError, RecursionError):
        return {"unreadable": arguments}


def _tools(tools: tuple[ToolSpec, ...]) -> bytes:
    return _json(
        [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]
    )


def _schema(schema: Raw) -> bytes:
    """The output format; or, after an exclamation mark, a system block that asks for the same in words."""
    strict = strict_schema(schema, optional=True)
    if strict is not None:
        return _json({"format": {"type": "json_schema", "schema": strict}})
    words = "Reply with one JSON document and nothing else. It must fit this JSON Schema: " + bytes(schema).decode()
    return b"!" + _json({"type": "text", "text": words})
