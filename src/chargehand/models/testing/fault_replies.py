"""What the fault server sends: replies as OpenAI's chat protocol and Anthropic's messages protocol write them.

`FaultConnection` reads requests, and sends replies whole, in pieces or broken.
"""

import asyncio
import re
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct

Json: TypeAlias = dict[str, object]
Finish: TypeAlias = Literal["stop", "tools", "length", "refused"]

MODEL = "fault-server"
_PIECE = 12
_CHAT_FINISHES: dict[Finish, str] = {
    "stop": "stop",
    "tools": "tool_calls",
    "length": "length",
    "refused": "content_filter",
}
_MESSAGES_FINISHES: dict[Finish, str] = {
    "stop": "end_turn",
    "tools": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
}
_MARKER = re.compile(r"\[\[tool:([A-Za-z0-9_-]{1,64})\s*(.*?)\]\]", re.DOTALL)


class SentCall(Struct, frozen=True):
    """A tool call as it goes over the wire; `arguments` need not be JSON."""

    id: str
    name: str
    arguments: str


class SentReply(Struct, frozen=True):
    """One answer. No text is null where the protocol can say so; `usage` is input and output tokens."""

    text: str | None
    calls: tuple[SentCall, ...] = ()
    finish: Finish = "stop"
    usage: tuple[int, int] | None = None


class WireProtocol(Protocol):
    """How one protocol writes an answer: in one piece, as the events of a stream, or as an error."""

    def whole(self, reply: SentReply) -> Json: ...

    def events(self, reply: SentReply) -> list[bytes]: ...

    def call_events(self, first: int, rest: int, call: SentCall) -> list[bytes]:
        """A call that begins at index `first` and whose arguments go to index `rest`: the same one, if all is well."""
        ...

    def error(self, status: int, message: str) -> Json: ...

    def stream_error(self, message: str) -> bytes:
        """An error as one event, in the middle of a stream that began well."""
        ...

    def empty(self) -> tuple[Json, list[bytes]]:
        """A reply that has everything but an answer in it, in one piece and as events."""
        ...


def dump(value: object) -> bytes:
    return msgspec.json.encode(value)


def _pieces(text: str) -> list[str]:
    """`text` in small pieces, as a model would write it."""
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def echo(body: Json) -> SentReply:
    """What a well-meaning server says: the last message again, or the tool call that it asks for.

    `[[tool:NAME {"some": "arguments"}]]` in a user's message is such a marker; there may be several.
    """
    messages = body.get("messages")
    entries = cast("Sequence[object]", messages) if isinstance(messages, list) else ()
    last = _text(entries[-1]) if entries else ""
    calls = tuple(
        SentCall(id=f"call_{number}", name=name, arguments=arguments.strip() or "{}")
        for number, (name, arguments) in enumerate(_MARKER.findall(last), 1)
    )
    read = sum(len(_text(entry)) for entry in entries) // 4 + 1
    if calls:
        return SentReply(None, calls, "tools", (read, 4 * len(calls)))
    return SentReply(last or "(nothing was asked)", (), "stop", (read, len(last) // 4 + 1))


def _text(message: object) -> str:
    """The words of a message: its content is a string, or a list of blocks that hold some."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return " ".join(words for block in cast("list[object]", message) if (words := _text(block)))
    if isinstance(message, dict):
        fields = cast("Json", message)
        return _text(fields.get("text") or fields.get("content") or "")
    return ""


class ChatProtocol:
    """OpenAI's chat protocol."""

    def whole(self, reply: SentReply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text}
        if reply.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in reply.calls
            ]
        choice: Json = {"index": 0, "message": message, "finish_reason": _CHAT_FINISHES[reply.finish]}
        body = self._body("chat.completion", [choice])
        if reply.usage is not None:
            body["usage"] = self._usage(*reply.usage)
        return body

    def events(self, reply: SentReply) -> list[bytes]:
        frames = [self._delta({"role": "assistant", "content": None})]
        frames += [self._delta({"content": piece}) for piece in _pieces(reply.text or "")]
        for index, call in enumerate(reply.calls):
            frames += self.call_events(index, index, call)
        frames.append(self._frame([{"index": 0, "delta": {}, "finish_reason": _CHAT_FINISHES[reply.finish]}]))
        if reply.usage is not None:
            frames.append(self._frame([], self._usage(*reply.usage)))
        return [*frames, b"data: [DONE]\n\n"]

    def call_events(self, first: int, rest: int, call: SentCall) -> list[bytes]:
        function: Json = {"name": call.name, "arguments": ""}
        opened: Json = {"index": first, "id": call.id, "type": "function", "function": function}
        written: list[Json] = [{"index": rest, "function": {"arguments": piece}} for piece in _pieces(call.arguments)]
        return [self._delta({"tool_calls": [part]}) for part in (opened, *written)]

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "server_error", "param": None, "code": status}}

    def stream_error(self, message: str) -> bytes:
        return b"data: " + dump(self.error(500, message)) + b"\n\n"

    def empty(self) -> tuple[Json, list[bytes]]:
        body: Json = {**self.whole(SentReply("", usage=(1, 0))), "choices": []}
        return body, [b"data: " + dump(body) + b"\n\n", b"data: [DONE]\n\n"]

    def _body(self, kind: str, choices: Sequence[Json]) -> Json:
        return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": MODEL, "choices": choices}

    def _usage(self, read: int, written: int) -> Json:
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _delta(self, delta: Json) -> bytes:
        return self._frame([{"index": 0, "delta": delta, "finish_reason": None}])

    def _frame(self, choices: Sequence[Json], usage: Json | None = None) -> bytes:
        return b"data: " + dump({**self._body("chat.completion.chunk", choices), "usage": usage}) + b"\n\n"


class MessagesProtocol:
    """Anthropic's messages protocol."""

    def whole(self, reply: SentReply) -> Json:
        content: list[Json] = []
        if reply.text is not None:
            content.append({"type": "text", "text": reply.text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": self._input(call)} for call in reply.calls
        ]
        return {**self._message(content, reply), "stop_reason": _MESSAGES_FINISHES[reply.finish]}

    def events(self, reply: SentReply) -> list[bytes]:
        frames = [self._event("message_start", message=self._message([], reply)), self._event("ping")]
        if reply.text is not None:
            frames.append(self._event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
            for piece in _pieces(reply.text):
                delta = {"type": "text_delta", "text": piece}
                frames.append(self._event("content_block_delta", index=0, delta=delta))
            frames.append(self._event("content_block_stop", index=0))
        for index, call in enumerate(reply.calls, 0 if reply.text is None else 1):
            frames += self.call_events(index, index, call)
        delta: Json = {"stop_reason": _MESSAGES_FINISHES[reply.finish], "stop_sequence": None}
        usage: Json = {"usage": {"output_tokens": reply.usage[1]}} if reply.usage is not None else {}
        return [*frames, self._event("message_delta", delta=delta, **usage), self._event("message_stop")]

    def call_events(self, first: int, rest: int, call: SentCall) -> list[bytes]:
        block: Json = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        frames = [self._event("content_block_start", index=first, content_block=block)]
        for piece in _pieces(call.arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            frames.append(self._event("content_block_delta", index=rest, delta=delta))
        return [*frames, self._event("content_block_stop", index=first)]

    def error(self, status: int, message: str) -> Json:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}

    def stream_error(self, message: str) -> bytes:
        return self._event("error", error={"type": "overloaded_error", "message": message})

    def empty(self) -> tuple[Json, list[bytes]]:
        reply = SentReply(None, usage=(1, 0))
        return self.whole(reply), self.events(reply)

    def _event(self, kind: str, **fields: object) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + dump({"type": kind, **fields}) + b"\n\n"

    def _message(self, content: list[Json], reply: SentReply) -> Json:
        body: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content}
        body |= {"stop_reason": None, "stop_sequence": None}
        if reply.usage is not None:
            body["usage"] = {"input_tokens": reply.usage[0], "output_tokens": reply.usage[1]}
        return body

    def _input(self, call: SentCall) -> object:
        """Arguments are an object here; what is no JSON can only be sent as the wrong thing, a string."""
        try:
            return msgspec.json.decode(call.arguments)
        except msgspec.DecodeError:
            return call.arguments


# --- connections


JSON = "application/json"
EVENTS = "text/event-stream"
HEAD_LIMIT = 64 * 1024
_BODY_LIMIT = 16 * 1024 * 1024


class Head(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]


class BadRequest(Exception):
    """The request is not HTTP that this server reads."""


class FaultConnection:
    """`is_reusable` turns true when an answer was ended so that the next request may follow."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_reusable = False

    async def read_head(self) -> Head | None:
        """The next request's head; None when the client is done."""
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise BadRequest(f"a request head may have {HEAD_LIMIT} bytes") from error
        first, *rest = raw.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            raise BadRequest("this is not an HTTP request")
        pairs = (line.partition(":") for line in rest if line)
        return Head(words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs})

    async def read_body(self, head: Head) -> bytes:
        length = head.headers.get("content-length", "0")
        if "transfer-encoding" in head.headers or not length.isdecimal() or int(length) > _BODY_LIMIT:
            raise BadRequest(f"a request needs a Content-Length of at most {_BODY_LIMIT}")
        return await self._reader.readexactly(int(length))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Overloaded"
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def send_whole(
        self, body: bytes, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """An answer of known length."""
        length = {"Content-Type": content_type, "Content-Length": str(len(body))}
        await self.send_head(status, {**length, **(headers or {})})
        await self.send(body)
        self.is_reusable = True

    async def chunk(self, data: bytes) -> None:
        """A piece of an answer of unknown length."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of an answer of unknown length."""
        await self.send(b"0\r\n\r\n")
        self.is_reusable = True

    async def pause(self, seconds: float) -> bool:
        """Whether the client is still there after so long."""
        try:
            async with asyncio.timeout(seconds):
                # what comes now is not wanted; nothing at all means that the client hung up
                while await self._reader.read(4096):
                    pass
        except TimeoutError:
            return True
        return False

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        raw_socket: socket.socket | None = self._writer.get_extra_info("socket")
        if raw_socket is not None:
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class Exchange(Struct, frozen=True):
    """One call of a model, and the connection to answer it on."""

    connection: FaultConnection
    protocol: WireProtocol
    reply: SentReply
    """What a well-meaning server would answer."""
    stream: bool
    number: int
    """How many calls with this fault there were, this one included."""
    origin: str

    @property
    def whole(self) -> bytes:
        return dump(self.protocol.whole(self.reply))

    @property
    def events(self) -> list[bytes]:
        return self.protocol.events(self.reply)

    @property
    def body(self) -> bytes:
        """The right answer, as it was asked for."""
        return b"".join(self.events) if self.stream else self.whole

    @property
    def unfinished_events(self) -> list[bytes]:
        """The events of the answer up to its last words: nothing says that it is over."""
        ends = (b'"finish_reason":"', b"message_delta")
        events = self.events
        return events[: next(at for at, frame in enumerate(events) if any(end in frame for end in ends))]

    async def answer(self, reply: SentReply, headers: Mapping[str, str] | None = None) -> None:
        """A proper answer, as a stream if one was asked for."""
        await self.send(self.protocol.whole(reply), self.protocol.events(reply), headers)

    async def send(
        self, whole: Json | bytes, events: Sequence[bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        """`whole` for a client that waits for one piece, `events` for one that asked for a stream."""
        if not self.stream:
            body = whole if isinstance(whole, bytes) else dump(whole)
            return await self.connection.send_whole(body, headers=headers)
        await self.begin(headers)
        for frame in events:
            await self.connection.chunk(frame)
        return await self.connection.end()

    async def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """The head of an answer of unknown length, of the type that was asked for."""
        content_type = EVENTS if self.stream else JSON
        chunked = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        await self.connection.send_head(200, {**chunked, **(headers or {})})
