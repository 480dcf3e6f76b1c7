"""What both protocols share: bytes made once, bytes read strictly, and what must be true of any reply."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from chargehand.models.failed import Party, Unreadable, garbled, useless
from chargehand.models.messages import Finish, Reply, ToolCall, Usage

_T = TypeVar("_T")
_MOST_BYTES = 2 * 1024 * 1024  # for each model, of which a server may have many; one run is no use to the next


class Once(Generic[_T]):
    """Encodes a thing once. A history is sent again with every call, and it only grows.

    It remembers by identity, which is cheap, and safe because the thing itself is kept too.
    """

    def __init__(self, encode: Callable[[_T], bytes], most_bytes: int = _MOST_BYTES) -> None:
        self._encode = encode
        self._most = most_bytes
        self._size = 0
        self._known: dict[int, tuple[_T, bytes]] = {}

    def each(self, things: Sequence[_T]) -> list[bytes]:
        """The same for many, most of which are known: a lookup each."""
        known = self._known
        try:
            return [known[id(thing)][1] for thing in things]
        except KeyError:
            return [self.of(thing) for thing in things]

    def of(self, thing: _T) -> bytes:
        known = self._known.get(id(thing))
        if known is not None:
            return known[1]
        made = self._encode(thing)
        self._size += len(made)
        if self._size > self._most:
            self._forget()
        self._known[id(thing)] = thing, made
        return made

    def _forget(self) -> None:
        """The older half goes: what is still in use comes in again."""
        for key in list(self._known)[: len(self._known) // 2 + 1]:
            self._size -= len(self._known.pop(key)[1])


def decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    """Raises Unreadable for anything but one whole document of the right shape."""
    if not data.strip():
        raise Unreadable("it is empty")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Unreadable(f"it has another shape than the protocol says ({error})") from None
    except (ValueError, RecursionError):  # cut off, two documents in one, not UTF-8, nested beyond reason
        what = "it is an HTML page" if data.lstrip()[:1] == b"<" else "it is no whole JSON document"
        raise Unreadable(what) from None


def checked_usage(read: int | None, written: int | None, cached: int | None) -> Usage | None:
    """None when the provider does not say. Raises Unreadable for counts that cannot be."""
    if read is None or written is None:
        return None
    cached = cached or 0
    if read < 0 or written < 0 or cached < 0:
        raise Unreadable("it counts tokens below zero")
    return Usage(input=read, output=written, cached=min(cached, read))


def checked_reply(
    party: Party,
    text: str,
    calls: Sequence[ToolCall],
    finish: Finish,
    usage: Usage | None,
    model: str,
    micros: int | None = None,
) -> Reply:
    """A reply somebody can work with; else CallFailed."""
    if calls:
        if finish == "length":
            raise useless(
                party, "the reply was cut off inside its tool calls; raise max_tokens, or ask for less", usage
            )
        if len({call.id for call in calls}) < len(calls):
            raise garbled(party, "two of its tool calls have the same id", usage)
        if finish == "stop":  # several servers say so
            finish = "tools"
    elif finish == "tools":
        raise garbled(party, "it ends with tool calls and holds none", usage)
    if not text.strip() and not calls and finish != "refused":
        why = " (all its tokens went elsewhere: raise max_tokens)" if finish == "length" else ""
        raise useless(party, f"the model answered with nothing{why}; put the request differently", usage)
    return Reply(text=text, calls=tuple(calls), finish=finish, usage=usage, micros=micros, model=model)
