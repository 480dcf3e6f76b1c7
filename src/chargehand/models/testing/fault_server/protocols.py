"""What the server answers, and how OpenAI's chat protocol and Anthropic's messages protocol write it."""

import re
from collections.abc import Sequence
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
