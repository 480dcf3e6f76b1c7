"""What a worker's model is shown: it grows by what happens, and shrinks before it outgrows the model's window.

The brief is never cut: the system message and the task, with earlier turns of a chat between them, of which the oldest
go first. What is cut is kept by handle for as long as the attempt lasts.
"""

from collections.abc import Sequence
from hashlib import blake2b

from chargehand.errors import Invalid
from chargehand.models.messages import Message

_CHARACTERS = 4  # a token has about so many
_FULL = 0.8
_LEAST_TURNS = 2
_RECENT = 6
_EXCERPT = 300


def tokens(text: str) -> int:
    return len(text) // _CHARACTERS + 1


def read_on(handle: str, text: str, shown: str) -> str:
    """How to get at the rest of a text that `capped` cut: from where what is shown of it ends."""
    start = shown.rfind("[cut here: ")
    if start > 0 and text[start - 1] != "\n":
        start -= 1  # the line break before the note is the note's
    return f"\n… cut; read on with read_more(handle={handle!r}, start={start})"


class History:
    """The messages of one attempt. `chain` identifies all that was said so far at the cost of what is new."""

    __slots__ = ("_chain", "_end", "_pinned", "_size", "_window", "kept", "messages", "nonce")

    def __init__(self, brief: tuple[Message, Message], window: int, nonce: str = "") -> None:
        """`nonce` is the number of the envelopes: it differs each time and changes nothing that is said."""
        self.messages: list[Message] = list(brief)
        self._pinned = 2  # messages of the brief
        self.kept: dict[str, str] = {}
        self._window = window
        self.nonce = nonce
        self._end = f"\n</data {nonce}>" if nonce else ""
        self._size = _size(brief[0]) + _size(brief[1])
        plain = brief[1].text.replace(nonce, "") if nonce else brief[1].text
        self._chain = blake2b((brief[0].text + plain).encode(), digest_size=16)

    @property
    def tokens(self) -> int:
        return self._size

    @property
    def chain(self) -> str:
        return self._chain.hexdigest()

    def add(self, message: Message, means: str = "") -> None:
        """Add a message; `means` is what it says without its envelope, whose number differs each time."""
        self.messages.append(message)
        self._size += _size(message)
        self._chain.update((means or message.text).encode())
        for call in message.calls:
            self._chain.update(f"{call.id}\0{call.name}\0{call.arguments}".encode())

    @property
    def chat_turns(self) -> int:
        """How many messages between the system message and the task are earlier turns."""
        return self._pinned - 2

    @property
    def brief(self) -> tuple[Message, Message]:
        """What the model is told about itself, and its task."""
        return self.messages[0], self.messages[self._pinned - 1]

    def reopen(self, brief: Sequence[Message]) -> None:
        """Put another brief in the place of the first: what it shows has changed. Earlier turns stand in its middle."""
        for message in self.messages[: self._pinned]:
            self._size -= _size(message)
        self.messages[: self._pinned] = brief
        self._pinned = len(brief)
        for message in brief:
            self._size += _size(message)
            self._chain.update(message.text.replace(self.nonce, "").encode() if self.nonce else message.text.encode())

    def keep(self, handle: str, text: str) -> None:
        """Remember a text that was shown in part."""
        self.kept[handle] = text

    def fit(self) -> bool:
        """Make room before the next call, where there is too little; whether anything was cut."""
        room = int(self._window * _FULL)
        if self._size <= room:
            return False
        self._shorten(room, _RECENT)
        if self._size > room:
            self._drop_turns(room)
        if self._size > room:
            self._drop(room)
        if self._size > room:
            self._shorten(room, 0)
        if self._size > self._window:
            raise Invalid(
                f"the task, its inputs and its memory take {self._size} tokens, the model reads {self._window}; "
                "hand over less, or choose a model with a larger window"
            )
        return True

    def _shorten(self, room: int, recent: int) -> None:
        """Results become their beginning, old ones first; the rest can be read again by handle."""
        for at in range(self._pinned, len(self.messages) - recent):
            message = self.messages[at]
            if message.role == "tool" and len(message.text) > 2 * _EXCERPT:
                handle = f"earlier-{len(self.kept) + 1}"  # not its place, which another message may take
                self.keep(handle, message.text)
                text = (
                    f"{message.text[:_EXCERPT]}\n… shortened; the rest: read_more(handle={handle!r}, start={_EXCERPT})"
                    f"{self._end}"
                )
                self._replace(at, Message("tool", text, call=message.call, is_error=message.is_error))
            if self._size <= room:
                return

    def _drop_turns(self, room: int) -> None:
        """Earlier turns go, the oldest first: what this attempt found counts for more."""
        while self._size > room and self._pinned - 2 > _LEAST_TURNS:
            self._size -= _size(self.messages[1])
            del self.messages[1]
            self._pinned -= 1

    def _drop(self, room: int) -> None:
        """Whole exchanges go, oldest first: a call and its results stay or leave together."""
        while self._size > room:
            end = next(
                (at for at in range(self._pinned + 1, len(self.messages)) if self.messages[at].role != "tool"), 0
            )
            if not end or end >= len(self.messages) - 1:
                return
            self._size -= sum(_size(message) for message in self.messages[self._pinned : end])
            del self.messages[self._pinned : end]

    def _replace(self, at: int, message: Message) -> None:
        self._size += _size(message) - _size(self.messages[at])
        self.messages[at] = message


def _size(message: Message) -> int:
    size = len(message.text) // _CHARACTERS + 1
    for call in message.calls:
        size += (len(call.arguments) + len(call.name)) // _CHARACTERS + 2
    return size
