"""What the fault server sends: replies as OpenAI's two APIs and Anthropic's messages protocol write them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.messages import Finish, Kept, KeptPart, Reply, ToolCall, Usage

Json: TypeAlias = dict[str, object]
Ending: TypeAlias = Literal["keep", "close", "cut", "reset", "hang"]

MODEL = "fault-server"
JSON = "application/json"
EVENTS = "text/event-stream"
NO_HEADERS: Mapping[str, str] = {}
_PIECE = 12
_CHAT_FINISHES: dict[Finish, str] = {
    "stop": "stop",
    "tools": "tool_calls",
    "length": "length",
    "refused": "content_filter",
    "paused": "stop",
}
_MESSAGES_FINISHES: dict[Finish, str] = {
    "stop": "end_turn",
    "tools": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
    "paused": "pause_turn",
}
_STATES: dict[Finish, tuple[str, str | None]] = {
    "stop": ("completed", None),
    "tools": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "refused": ("incomplete", "content_filter"),
}
_UNNUMBERED = b'"sequence_number":0'
_MARKER = re.compile(r"\[\[tool:([A-Za-z0-9_-]{1,64})\s*(.*?)\]\]", re.DOTALL)


class WireProtocol(Protocol):
    """How one protocol writes an answer: in one piece, as the events of a stream, or as an error.

    A reply without text is written as null where the protocol can say so.
    """

    def whole(self, reply: Reply) -> Json: ...

    def events(self, reply: Reply) -> list[bytes]: ...

    def call_events(self, first: int, rest: int, call: ToolCall, kept: Sequence[KeptPart] = ()) -> list[bytes]:
        """A call that begins at index `first` and whose arguments go to index `rest`: the same one, if all is well."""
        ...

    def error(self, status: int, message: str) -> Json: ...

    def stream_error(self, message: str) -> bytes:
        """An error as one event, in the middle of a stream that began well."""
        ...

    def empty(self) -> tuple[bytes, list[bytes]]:
        """A reply that has everything but an answer in it, in one piece and as events."""
        ...


class Sending(Struct, frozen=True):
    """What goes over the wire in answer to one call, and how it ends."""

    pieces: Iterable[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = NO_HEADERS
    framing: Literal["length", "chunked", "none"] = "chunked"
    """`length`: one body of the length in the headers. `none`: the pieces are sent as they are, without a head."""
    delay: float = 0.0
    """Seconds before the first byte."""
    pause: float = 0.0
    """Seconds after each piece."""
    ending: Ending = "keep"
    """`close` ends the reply, then the connection, against its promise; `cut` and `reset` end only the connection."""


class Exchange(Struct, frozen=True):
    """One call of a model."""

    protocol: WireProtocol
    reply: Reply
    """What a well-meaning server would answer."""
    stream: bool
    number: int
    """How many calls with this fault there were, this one included."""
    origin: str
    path: str = ""
    request: Json = {}
    """The body of the call."""

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
        ends = (b'"finish_reason":"', b"message_delta", b"event: response.completed", b"event: response.incomplete")
        events = self.events
        return events[: next(at for at, frame in enumerate(events) if any(end in frame for end in ends))]

    def begin(self, length: int) -> list[bytes]:
        """The beginning of the answer: all its words if it is a stream, else so many bytes."""
        return self.unfinished_events if self.stream else [self.whole[:length]]

    def answer(self, reply: Reply, headers: Mapping[str, str] = NO_HEADERS) -> Sending:
        """A proper answer, as a stream if one was asked for."""
        return self.send(dump(self.protocol.whole(reply)), self.protocol.events(reply), headers)

    def send(self, whole: bytes, events: Sequence[bytes], headers: Mapping[str, str] = NO_HEADERS) -> Sending:
        """`whole` for a client that waits for one piece, `events` for one that asked for a stream."""
        return self.send_pieces(events, headers) if self.stream else send_whole(whole, headers=headers)

    def send_body(self) -> Sending:
        """The right answer in one piece, as the type that was asked for."""
        return send_whole(self.body, content_type=EVENTS if self.stream else JSON)

    def send_pieces(
        self,
        pieces: Iterable[bytes],
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        pause: float = 0.0,
        ending: Ending = "keep",
    ) -> Sending:
        """An answer of unknown length, of the type that was asked for."""
        kind = {"Content-Type": EVENTS if self.stream else JSON}
        return Sending(pieces, headers={**kind, **headers}, pause=pause, ending=ending)

    def error(self, status: int, message: str, headers: Mapping[str, str] = NO_HEADERS) -> Sending:
        """The provider says no, in the words of its protocol."""
        return send_whole(dump(self.protocol.error(status, message)), status, headers=headers)


def send_whole(
    body: bytes, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] = NO_HEADERS
) -> Sending:
    """A body of known length."""
    own = {"Content-Type": content_type, "Content-Length": str(len(body))}
    return Sending((body,), status, {**own, **headers}, framing="length")


def dump(value: object) -> bytes:
    return msgspec.json.encode(value)


def _pieces(text: str) -> list[str]:
    """`text` in small pieces, as a model would write it."""
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _parts(kept: Kept | None, call: str = "") -> list[KeptPart]:
    """What is kept of a reply, or of one of its calls."""
    return [] if kept is None else [part for part in kept.parts if part.call == call]


def echo(body: Json) -> Reply:
    """What a well-meaning server says: the last message again, or the tool call that it asks for.

    `[[tool:NAME {"some": "arguments"}]]` in a user's message is such a marker; there may be several.
    """
    messages = body.get("messages", body.get("input"))
    entries = cast("Sequence[object]", messages) if isinstance(messages, list) else [messages]
    last = _text(entries[-1]) if entries else ""
    calls = tuple(
        ToolCall(id=f"call_{number}", name=name, arguments=arguments.strip() or "{}")
        for number, (name, arguments) in enumerate(_MARKER.findall(last), 1)
    )
    read = sum(len(_text(entry)) for entry in entries) // 4 + 1
    if calls:
        return Reply("", calls, "tools", Usage(read, 4 * len(calls)))
    return Reply(last or "(nothing was asked)", (), "stop", Usage(read, len(last) // 4 + 1))


def _text(message: object) -> str:
    """The words of a message: its content is a string, or a list of blocks that hold some."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return " ".join(words for block in cast("list[object]", message) if (words := _text(block)))
    if isinstance(message, dict):
        fields = cast("Json", message)
        return _text(fields.get("text") or fields.get("content") or fields.get("output") or "")
    return ""


class ChatProtocol:
    """OpenAI's chat protocol."""

    def whole(self, reply: Reply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text or None}
        message |= {part.kind: part.data for part in _parts(reply.kept)}
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    **{part.kind: part.data for part in _parts(reply.kept, call.id)},
                }
                for call in reply.calls
            ]
        choice: Json = {"index": 0, "message": message, "finish_reason": _CHAT_FINISHES[reply.finish]}
        body = self._body("chat.completion", [choice])
        if reply.usage is not None:
            body["usage"] = self._usage(reply.usage)
        return body

    def events(self, reply: Reply) -> list[bytes]:
        frames = [self._delta({"role": "assistant", "content": None})]
        for part in _parts(reply.kept):
            value: object = msgspec.json.decode(part.data)
            pieces = _pieces(value) if isinstance(value, str) else [value]
            frames += [self._delta({part.kind: piece}) for piece in pieces]
        frames += [self._delta({"content": piece}) for piece in _pieces(reply.text)]
        for index, call in enumerate(reply.calls):
            frames += self.call_events(index, index, call, _parts(reply.kept, call.id))
        frames.append(self._frame([{"index": 0, "delta": {}, "finish_reason": _CHAT_FINISHES[reply.finish]}]))
        if reply.usage is not None:
            frames.append(self._frame([], self._usage(reply.usage)))
        return [*frames, b"data: [DONE]\n\n"]

    def call_events(self, first: int, rest: int, call: ToolCall, kept: Sequence[KeptPart] = ()) -> list[bytes]:
        function: Json = {"name": call.name, "arguments": ""}
        opened: Json = {"index": first, "id": call.id, "type": "function", "function": function}
        opened |= {part.kind: part.data for part in kept}
        written: list[Json] = [{"index": rest, "function": {"arguments": piece}} for piece in _pieces(call.arguments)]
        return [self._delta({"tool_calls": [part]}) for part in (opened, *written)]

    def error(self, status: int, message: str) -> Json:
        return {"error": {"message": message, "type": "server_error", "param": None, "code": status}}

    def stream_error(self, message: str) -> bytes:
        return b"data: " + dump(self.error(500, message)) + b"\n\n"

    def empty(self) -> tuple[bytes, list[bytes]]:
        body = dump({**self.whole(Reply("", usage=Usage(1, 0))), "choices": []})
        return body, [b"data: " + body + b"\n\n", b"data: [DONE]\n\n"]

    def _body(self, kind: str, choices: Sequence[Json]) -> Json:
        return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": MODEL, "choices": choices}

    def _usage(self, usage: Usage) -> Json:
        total = usage.input + usage.output
        written = usage.cache_written + usage.cache_written_hour
        return {
            "prompt_tokens": usage.input,
            "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": written},
            "completion_tokens": usage.output,
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": total,
        }

    def _delta(self, delta: Json) -> bytes:
        return self._frame([{"index": 0, "delta": delta, "finish_reason": None}])

    def _frame(self, choices: Sequence[Json], usage: Json | None = None) -> bytes:
        return b"data: " + dump({**self._body("chat.completion.chunk", choices), "usage": usage}) + b"\n\n"


def _deltas(kind: str, field: str, text: str) -> list[Json]:
    """A text in pieces, as changes of a block of Anthropic's protocol."""
    return [{"type": kind, field: piece} for piece in _pieces(text)]


class MessagesProtocol:
    """Anthropic's messages protocol."""

    def whole(self, reply: Reply) -> Json:
        content = [msgspec.json.decode(part.data, type=Json) for part in _parts(reply.kept)]
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": self._input(call)} for call in reply.calls
        ]
        return {**self._message(content, reply), "stop_reason": _MESSAGES_FINISHES[reply.finish]}

    def events(self, reply: Reply) -> list[bytes]:
        frames = [self._event("message_start", message=self._message([], reply)), self._event("ping")]
        thoughts = _parts(reply.kept)
        for index, part in enumerate(thoughts):
            frames += self._kept_events(index, msgspec.json.decode(part.data, type=Json))
        at = len(thoughts)
        if reply.text:
            frames.append(self._event("content_block_start", index=at, content_block={"type": "text", "text": ""}))
            for piece in _pieces(reply.text):
                delta = {"type": "text_delta", "text": piece}
                frames.append(self._event("content_block_delta", index=at, delta=delta))
            frames.append(self._event("content_block_stop", index=at))
        for index, call in enumerate(reply.calls, at + bool(reply.text)):
            frames += self.call_events(index, index, call)
        delta: Json = {"stop_reason": _MESSAGES_FINISHES[reply.finish], "stop_sequence": None}
        usage: Json = {"usage": {"output_tokens": reply.usage.output}} if reply.usage is not None else {}
        return [*frames, self._event("message_delta", delta=delta, **usage), self._event("message_stop")]

    def _kept_events(self, index: int, block: Json) -> list[bytes]:
        """A block in pieces: a thought, then its signature; a text, then its citations; the input of a server's tool.

        What a tool returned, or is encrypted, is there at once.
        """
        opened = block
        deltas: list[Json] = []
        match block.get("type"):
            case "thinking":
                opened = {**block, "thinking": "", "signature": ""}
                deltas += _deltas("thinking_delta", "thinking", str(block["thinking"]))
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                citations = cast("list[Json]", block.get("citations") or [])
                opened = {"type": "text", "text": ""}
                deltas += _deltas("text_delta", "text", str(block["text"]))
                for citation in citations:
                    deltas.append({"type": "citations_delta", "citation": citation})
            case "server_tool_use":
                opened = {**block, "input": Raw(b"{}")}
                deltas += _deltas("input_json_delta", "partial_json", dump(cast("Json", block["input"])).decode())
            case _:
                pass
        frames = [self._event("content_block_start", index=index, content_block=opened)]
        frames += [self._event("content_block_delta", index=index, delta=delta) for delta in deltas]
        return [*frames, self._event("content_block_stop", index=index)]

    def call_events(self, first: int, rest: int, call: ToolCall, kept: Sequence[KeptPart] = ()) -> list[bytes]:  # noqa: ARG002 - the protocol keeps nothing of a call
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

    def empty(self) -> tuple[bytes, list[bytes]]:
        reply = Reply("", usage=Usage(1, 0))
        return dump(self.whole(reply)), self.events(reply)

    def _event(self, kind: str, **fields: object) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + dump({"type": kind, **fields}) + b"\n\n"

    def _message(self, content: list[Json], reply: Reply) -> Json:
        body: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content}
        body |= {"stop_reason": None, "stop_sequence": None}
        if reply.usage is not None:
            body["usage"] = self._usage(reply.usage)
        return body

    def _usage(self, usage: Usage) -> Json:
        written = usage.cache_written + usage.cache_written_hour
        return {
            "input_tokens": usage.input - usage.cached - written,
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_written,
                "ephemeral_1h_input_tokens": usage.cache_written_hour,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
            **({"server_tool_use": {"web_search_requests": usage.searches}} if usage.searches else {}),
        }

    def _input(self, call: ToolCall) -> object:
        """Arguments are an object here; what is no JSON can only be sent as the wrong thing, a string."""
        try:
            return msgspec.json.decode(call.arguments)
        except msgspec.DecodeError:
            return call.arguments


class ResponsesProtocol:
    """OpenAI's Responses API."""

    def whole(self, reply: Reply) -> Json:
        return self._response(reply, self._items(reply))

    def events(self, reply: Reply) -> list[bytes]:
        begun = {**self._response(reply, []), "status": "in_progress", "usage": None, "incomplete_details": None}
        frames = [self._event(kind, response=begun) for kind in ("response.created", "response.in_progress")]
        frames.append(self._event("keepalive"))
        items = self._items(reply)
        for index, item in enumerate(items):
            frames += self._item_events(index, item)
        frames.append(self._event(f"response.{_STATES[reply.finish][0]}", response=self._response(reply, items)))
        return [frame.replace(_UNNUMBERED, b'"sequence_number":%d' % at) for at, frame in enumerate(frames)]

    def call_events(self, first: int, rest: int, call: ToolCall, kept: Sequence[KeptPart] = ()) -> list[bytes]:
        item = self._call(call, f"fc_{call.id}", kept)
        added = {"output_index": first, "item": {**item, "status": "in_progress", "arguments": ""}}
        told = {"output_index": rest, "item_id": item["id"]}
        kind = "response.function_call_arguments"
        return [
            self._event("response.output_item.added", **added),
            *(self._event(f"{kind}.delta", **told, delta=piece) for piece in _pieces(call.arguments)),
            self._event(f"{kind}.done", **told, name=call.name, arguments=call.arguments),
            self._event("response.output_item.done", output_index=first, item=item),
        ]

    def error(self, status: int, message: str) -> Json:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = "invalid_encrypted_content" if "could not be verified" in message else None
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def stream_error(self, message: str) -> bytes:
        return self._event("error", code="server_error", message=message, param=None)

    def empty(self) -> tuple[bytes, list[bytes]]:
        reply = Reply("", usage=Usage(1, 0))
        frames = self.events(reply)
        return dump(self._response(reply, [])), [
            frames[0],
            self._event("response.completed", response=self._response(reply, [])),
        ]

    def _items(self, reply: Reply) -> list[Json]:
        """Thoughts, words and calls. The id of each that follows a thought names the thought."""
        items = [msgspec.json.decode(part.data, type=Json) for part in _parts(reply.kept)]
        thought = str(items[-1]["id"]).removeprefix("rs_") if items else "1"
        if reply.text or not reply.calls:
            part: Json = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            message: Json = {"id": f"msg_{thought}", "type": "message", "role": "assistant", "content": [part]}
            items.append({**message, "status": "completed"})
        before = f"fc_{thought}_" if reply.kept else "fc_"
        return items + [self._call(call, before + call.id, _parts(reply.kept, call.id)) for call in reply.calls]

    def _call(self, call: ToolCall, id: str, kept: Sequence[KeptPart] = ()) -> Json:  # noqa: A002 - what the protocol calls it
        names: Json = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        for part in kept:  # the namespace of its tool
            names |= msgspec.json.decode(part.data, type=Json)
        return {"id": id, "type": "function_call", "status": "completed", **names}

    def _item_events(self, index: int, item: Json) -> list[bytes]:
        """An item that begins empty, its pieces, and the whole of it."""
        where: Json = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "function_call":
            call = ToolCall(str(item["call_id"]), str(item["name"]), str(item["arguments"]))
            old = dump(f"fc_{call.id}")
            space = Raw(dump({"namespace": item["namespace"]})) if "namespace" in item else None
            kept = () if space is None else (KeptPart("function_call", space, call=call.id),)
            return [frame.replace(old, dump(item["id"])) for frame in self.call_events(index, index, call, kept)]
        if item["type"] == "reasoning":
            begun: Json = {**item, "summary": []}
            pieces = self._summary_events(where, cast("Sequence[Json]", item["summary"]))
        elif item["type"] != "message":
            begun = {**item, "status": "in_progress"}
            pieces = []
        else:
            begun = {**item, "content": [], "status": "in_progress"}
            pieces = self._content_events(where, cast("Sequence[Json]", item["content"])[0])
        added = self._event("response.output_item.added", output_index=index, item=begun)
        return [added, *pieces, self._event("response.output_item.done", output_index=index, item=item)]

    def _content_events(self, where: Json, part: Json) -> list[bytes]:
        where = {**where, "content_index": 0}
        kind = "response.output_text"
        text = str(part["text"])
        return [
            self._event("response.content_part.added", **where, part={**part, "text": ""}),
            *(self._event(f"{kind}.delta", **where, delta=piece, logprobs=[]) for piece in _pieces(text)),
            self._event(f"{kind}.done", **where, text=text, logprobs=[]),
            self._event("response.content_part.done", **where, part=part),
        ]

    def _summary_events(self, where: Json, summary: Sequence[Json]) -> list[bytes]:
        frames: list[bytes] = []
        kind = "response.reasoning_summary"
        for index, part in enumerate(summary):
            here = {**where, "summary_index": index}
            frames.append(self._event(f"{kind}_part.added", **here, part={**part, "text": ""}))
            frames += [self._event(f"{kind}_text.delta", **here, delta=piece) for piece in _pieces(str(part["text"]))]
            frames.append(self._event(f"{kind}_text.done", **here, text=part["text"]))
            frames.append(self._event(f"{kind}_part.done", **here, part=part))
        return frames

    def _response(self, reply: Reply, items: Sequence[Json]) -> Json:
        status, reason = _STATES[reply.finish]
        body: Json = {"id": "resp_1", "object": "response", "created_at": 0, "status": status, "model": MODEL}
        body |= {"error": None, "incomplete_details": reason and {"reason": reason}, "output": items}
        body |= {"instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0}
        body |= {"tool_choice": "auto", "tools": [], "store": False, "service_tier": "default"}
        if reply.usage is not None:
            body["usage"] = self._usage(reply.usage)
        return body

    def _usage(self, usage: Usage) -> Json:
        written = usage.cache_written + usage.cache_written_hour
        return {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": written},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }

    def _event(self, kind: str, **fields: object) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + dump({"type": kind, **fields, "sequence_number": 0}) + b"\n\n"
