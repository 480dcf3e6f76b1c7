"""Server-sent events, taken apart as bytes come in. What the events mean is the adapters' business.

Lines are cut at bytes, never inside a character: text is decoded only once an event is complete.
"""

from typing import NamedTuple, Protocol

from chargehand.models.call_errors import Unreadable

_MARK = b"\xef\xbb\xbf"
_PASSED_OVER = (b"", b"id", b"retry")  # b"" is a comment


class Event(NamedTuple):
    name: bytes
    data: bytes


class Taker(Protocol):
    """Takes a streamed body.

    `take` says whether the chunk held data (comments and pings are none) and raises Unreadable when it cannot be
    right; `ended` becomes true once the protocol's own end mark was seen.
    """

    @property
    def ended(self) -> bool: ...

    def take(self, chunk: bytes) -> bool: ...


class Events:
    """An event is given out when its blank line has come; what is left at the end of the body is no event."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._after_return = False
        self._head: bytes | None = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises Unreadable for a line that no such stream holds: dropping it could drop a word of the reply."""
        if self._head is not None:
            chunk = self._without_mark(self._head + chunk)
        if self._after_return or b"\r" in chunk:
            chunk = self._plain_ends(chunk)
        lines = chunk.split(b"\n")
        if self._pieces:
            if len(lines) == 1:  # a line that grows: joined once, when it ends
                self._pieces.append(chunk)
                return []
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
        rest = lines.pop()
        self._pieces = [rest] if rest else []
        return self._events(lines)

    def growing(self) -> bool:
        """Whether what came last is a piece of data whose line is not over yet."""
        return bool(self._pieces) and self._pieces[0][:4] == b"data"

    def rest(self) -> bool:
        """Whether something was begun and not ended."""
        return bool(self._data or self._pieces)

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(Event(self._name, b"\n".join(self._data)))
                    self._data = []
                self._name = b""
                continue
            field, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if field == b"data":
                self._data.append(value)
            elif field == b"event":
                self._name = value
            elif field not in _PASSED_OVER:
                raise Unreadable("its event stream holds a line that is none of an event")
        return events

    def _without_mark(self, head: bytes) -> bytes:
        """Drop a byte order mark, which may come in pieces like anything else."""
        if len(head) < len(_MARK) and _MARK.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_MARK)

    def _plain_ends(self, chunk: bytes) -> bytes:
        """Lines may end in CR LF, LF or CR; a CR at the end of a chunk may have its LF in the next one."""
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_return = False
        if chunk:
            self._after_return = chunk[-1:] == b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
