"""Replies in Anthropic's messages protocol, whole or streamed, read strictly: what is not as it should be fails."""

import msgspec
from msgspec import Raw, Struct

from chargehand.models.failed import NOTHING, Party, Unreadable, garbled, holds, reported
from chargehand.models.messages import Finish, Reply, ToolCall, Usage
from chargehand.models.model import Hear
from chargehand.models.stream import Events
from chargehand.models.wire import checked_reply, checked_usage, decoded

_FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


class _Usage(Struct):
    """`input_tokens` leaves out what was read from or written to the cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Block(Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")


class _Whole(Struct):
    type: str = ""
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    model: str = ""
    error: Raw = NOTHING


class _Delta(Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(Struct):
    type: str
    index: int = -1
    message: _Whole | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Raw = NOTHING


_WHOLE = msgspec.json.Decoder(_Whole)
_EVENT = msgspec.json.Decoder(_Event)


def read_whole(party: Party, body: bytes) -> Reply:
    try:
        found = decoded(_WHOLE, body)
        if holds(found.error):
            raise reported(party, found.error)
        blocks = _content(found)
        calls = [
            _call(block.id, block.name, bytes(block.input).decode()) for block in blocks if block.type == "tool_use"
        ]
        text = "".join([block.text for block in blocks if block.type == "text"])
        usage = _spent(found.usage)
        finish = _ending(found.stop_reason)
    except Unreadable as error:
        raise garbled(party, str(error)) from None
    return checked_reply(party=party, text=text, calls=calls, finish=finish, usage=usage, model=found.model)


def _content(found: _Whole) -> list[_Block]:
    if found.type != "message" or found.content is None:
        raise Unreadable("it holds no message")
    return found.content


class _Growing:
    """A block while it comes in."""

    __slots__ = ("block", "open", "pieces")

    def __init__(self, block: _Block) -> None:
        self.block = block
        self.pieces: list[str] = []
        self.open = True


class MessageStream:
    """Takes a streamed reply and tells its words as they come."""

    def __init__(self, party: Party, hear: Hear) -> None:
        self.ended = False
        self._party = party
        self._hear = hear
        self._events = Events()
        self._begun = False
        self._blocks: list[_Growing] = []
        self._stop: str | None = None
        self._usage: _Usage | None = None
        self._model = ""

    def take(self, chunk: bytes) -> bool:
        data = False
        for given in self._events.feed(chunk):
            if given.name == b"ping":
                continue
            event = decoded(_EVENT, given.data)
            if event.type == "ping":
                continue
            if self.ended:
                raise Unreadable("its stream goes on after its end mark")
            self._event(event)
            data = data or event.type != "message_start"  # which comes at once, and is no token yet
        return data or self._events.growing()

    def _event(self, event: _Event) -> None:
        match event.type:
            case "content_block_delta":
                self._grow(event)
            case "content_block_start":
                self._start(event)
            case "content_block_stop":
                self._open_block(event.index).open = False
            case "message_start":
                self._begin(event)
            case "message_delta":
                self._close(event)
            case "message_stop":
                self._end()
            case "error":
                raise reported(self._party, event.error)
            case _:
                pass  # the protocol says that new kinds of events may come, and are to be passed over

    def _begin(self, event: _Event) -> None:
        if self._begun or event.message is None:
            raise Unreadable("its stream begins twice, or with no message")
        self._begun = True
        self._model = event.message.model
        self._usage = event.message.usage

    def _start(self, event: _Event) -> None:
        if not self._begun or self._stop is not None:
            raise Unreadable("its stream holds a block outside a message")
        if event.content_block is None or event.index != len(self._blocks):
            raise Unreadable("its stream begins a block out of turn")
        self._blocks.append(_Growing(event.content_block))
        if event.content_block.type == "text" and event.content_block.text:
            self._hear(event.content_block.text)

    def _grow(self, event: _Event) -> None:
        growing = self._open_block(event.index)
        delta = event.delta
        kind = growing.block.type
        if delta is None or (delta.text and kind != "text") or (delta.partial_json and kind == "text"):
            raise Unreadable("its stream mixes two kinds of block")
        if delta.type == "text_delta":
            growing.pieces.append(delta.text)
            if delta.text:
                self._hear(delta.text)
        elif delta.type == "input_json_delta":
            growing.pieces.append(delta.partial_json)

    def _open_block(self, index: int) -> _Growing:
        if not 0 <= index < len(self._blocks) or not self._blocks[index].open:
            raise Unreadable("its stream gives a piece of a block that is not open")
        return self._blocks[index]

    def _close(self, event: _Event) -> None:
        if event.delta is not None and event.delta.stop_reason is not None:
            self._stop = event.delta.stop_reason
        self._usage = _later(self._usage, event.usage)

    def _end(self) -> None:
        if self._stop is None or any(growing.open for growing in self._blocks):
            raise Unreadable("its stream ends in the middle of a message")
        self.ended = True

    def reply(self) -> Reply:
        """What it came to, once the body is over."""
        try:
            calls = [
                _call(one.block.id, one.block.name, "".join(one.pieces) or bytes(one.block.input).decode())
                for one in self._blocks
                if one.block.type == "tool_use"
            ]
            texts = [one.block.text + "".join(one.pieces) for one in self._blocks if one.block.type == "text"]
            usage = _spent(self._usage)
            finish = _ending(self._stop)
        except Unreadable as error:
            raise garbled(self._party, str(error)) from None
        return checked_reply(
            party=self._party, text="".join(texts), calls=calls, finish=finish, usage=usage, model=self._model
        )


def _call(id: str, name: str, arguments: str) -> ToolCall:  # noqa: A002 - what the protocol calls it
    if not id or not name:
        raise Unreadable("one of its tool calls has no name or no id")
    return ToolCall(id=id, name=name, arguments=arguments)


def _ending(reason: str | None) -> Finish:
    if reason is None:
        raise Unreadable("it does not say why it ended")
    if reason not in _FINISHES:
        raise Unreadable(f"it ended for a reason that is not known: {reason[:40]!r}")
    return _FINISHES[reason]


def _later(first: _Usage | None, last: _Usage | None) -> _Usage | None:
    """Counts in a stream are totals so far: what is said last holds, what is not said again stays."""
    if first is None or last is None:
        return last or first
    kept = [
        new if new is not None else old
        for old, new in zip(msgspec.structs.astuple(first), msgspec.structs.astuple(last), strict=True)
    ]
    return _Usage(*kept)


def _spent(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    written = usage.cache_creation_input_tokens or 0
    cached = usage.cache_read_input_tokens or 0
    if written < 0:
        raise Unreadable("it counts tokens below zero")
    read = None if usage.input_tokens is None else checked_usage(usage.input_tokens, 0, 0)
    return checked_usage(None if read is None else read.input + written + cached, usage.output_tokens, cached)
