"""What the server has to say, and how each of the two wire protocols would say it. Sending it is not done here."""

import re
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct

Json: TypeAlias = dict[str, object]
Why: TypeAlias = Literal["stop", "tools", "length", "refused"]

MODEL = "fault-server"
_MARKER = re.compile(r"\[\[tool:([A-Za-z0-9_-]{1,64})\s*(.*?)\]\]", re.DOTALL)


class Called(Struct, frozen=True):
    """A tool call as it goes over the wire; `arguments` need not be JSON."""

    id: str
    name: str
    arguments: str


class Said(Struct, frozen=True):
    """One answer. No text is null where the protocol can say so; `usage` is input and output tokens."""

    text: str | None
    calls: tuple[Called, ...] = ()
    why: Why = "stop"
    usage: tuple[int, int] | None = None


class Shape(Protocol):
    """How one protocol writes an answer: in one piece, as the events of a stream, or as an error."""

    def whole(self, said: Said) -> Json: ...

    def events(self, said: Said) -> list[bytes]: ...

    def error(self, status: int, message: str) -> Json: ...

    def stream_error(self, message: str) -> bytes:
        """An error as one event, in the middle of a stream that began well."""
        ...

    def hollow(self) -> Json:
        """A reply that has everything but an answer in it."""
        ...


def dump(value: object) -> bytes:
    return msgspec.json.encode(value)


def pieces(text: str, size: int = 12) -> list[str]:
    """`text` in small pieces, as a model would write it."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def answer(body: Json) -> Said:
    """What a well-meaning server says: the last message again, or the tool call that it asks for.

    `[[tool:NAME {"some": "arguments"}]]` in a user's message is such a marker; there may be several.
    """
    messages = body.get("messages")
    entries = cast("Sequence[object]", messages) if isinstance(messages, list) else ()
    last = _text(entries[-1]) if entries else ""
    calls = tuple(
        Called(id=f"call_{number}", name=name, arguments=arguments.strip() or "{}")
        for number, (name, arguments) in enumerate(_MARKER.findall(last), 1)
    )
    read = sum(len(_text(entry)) for entry in entries) // 4 + 1
    if calls:
        return Said(None, calls, "tools", (read, 4 * len(calls)))
    return Said(last or "(nothing was asked)", (), "stop", (read, len(last) // 4 + 1))


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
