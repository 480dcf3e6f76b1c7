"""Events to bytes and back: JSON by tag, old shapes brought up to date, nothing guessed.

Where the bytes are kept is not its business.
"""

from collections.abc import Callable, Iterable
from typing import get_args

import msgspec

from chargehand.engine.events import VERSIONS, Entry, Event
from chargehand.errors import Corrupt, NotJson

Upcast = Callable[[dict[str, object]], dict[str, object]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""How a body of this type and version becomes one of the next version. It may change the type as well."""

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
_UNWRITABLE = (*_UNREADABLE, TypeError, ValueError)
_CHANGED = "it would be read back as something else"  # for example a list where a tuple belongs


def _tag(shape: type[Event]) -> str:
    tag = shape.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


TAGS: dict[type[Event], str] = {shape: _tag(shape) for shape in get_args(Event)}
_KNOWN = frozenset(TAGS.values())


def version_of(event: Event) -> int:
    return VERSIONS.get(TAGS[type(event)], 1)


_CHECKED: dict[int, tuple[Event, bytes]] = {}  # bodies that wait to be written; an event never changes
_MOST_CHECKED = 1024


def check(event: Event) -> None:
    """Raise NotJson for an event that cannot be written; the body of one that can is kept for `encode`."""
    body = _body(event)
    if len(_CHECKED) >= _MOST_CHECKED:
        _CHECKED.clear()
    _CHECKED[id(event)] = (event, body)


def encode(event: Event) -> bytes:
    """The event's body, read back once: what could not be read again must not be written."""
    checked = _CHECKED.pop(id(event), None)
    return checked[1] if checked is not None and checked[0] is event else _body(event)


def prove(entries: Iterable[Entry]) -> None:
    """Raise NotJson for an entry that could not be written and read back."""
    for entry in entries:
        checked = _CHECKED.pop(id(entry.event), None)
        if checked is None or checked[0] is not entry.event:
            _body(entry.event)


def _body(event: Event) -> bytes:
    try:
        body = _ENCODER.encode(event)
        if _DECODER.decode(body) == event:
            return body
    except _UNWRITABLE as error:
        raise _refusal(event, str(error)) from error
    raise _refusal(event, _CHANGED)


def decode(kind: str, version: int, body: bytes, *, run: str, seq: int) -> Event:
    """An event from its stored type, version and body, whatever version of chargehand wrote it."""
    if kind not in _KNOWN or VERSIONS.get(kind, 1) != version:
        return upcast(kind, version, body, run=run, seq=seq)
    try:
        return _DECODER.decode(body)
    except _UNREADABLE as error:
        raise _unreadable(kind, version, run, seq, str(error)) from error


def upcast(kind: str, version: int, body: bytes, *, run: str, seq: int) -> Event:
    """An event of an older shape, one version at a time; Corrupt where no way leads to the present."""
    now = kind
    number = version
    try:
        fields = msgspec.json.decode(body, type=dict[str, object])
        while now not in _KNOWN or VERSIONS.get(now, 1) != number:
            step = UPCASTS.get((now, number))
            if step is None:
                raise _unreadable(kind, version, run, seq, "this version does not know it")
            fields = step(fields)
            now = str(fields["type"])
            number += 1
        return _DECODER.decode(_ENCODER.encode(fields))
    except _UNREADABLE as error:
        raise _unreadable(kind, version, run, seq, str(error)) from error


def _unreadable(kind: str, version: int, run: str, seq: int, problem: str) -> Corrupt:
    return Corrupt(
        f"entry {seq} of run {run!r} is a {kind!r} of version {version}, which cannot be read: {problem}. "
        "Nothing is guessed: if a newer chargehand wrote it, upgrade chargehand and try again",
        run=run,
        seq=seq,
    )


def _refusal(event: Event, problem: str) -> NotJson:
    return NotJson(TAGS[type(event)], f"cannot be written: {problem}. Use finite numbers and the declared types")
