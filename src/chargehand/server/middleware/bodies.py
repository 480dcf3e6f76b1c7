"""Bodies within bounds: no more bytes than allowed, whatever the headers said, and not for ever."""

import asyncio
import re

from starlette.types import Message, Receive

from chargehand.server.middleware.redaction import Redactor
from chargehand.server.problem import Problem
from chargehand.server.settings import Limits
from chargehand.terms.policy import Seconds

# --- how deep and how long JSON may be

# every quote begins a match, also that of a text without an end: else a hostile body would be looked through from each
_STRINGS = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)')
_OTHERS = bytes(set(range(256)) - set(b"[]{}:"))
_OPENS = frozenset(b"[{")
_CLOSES = frozenset(b"]}")
_COLON = ord(":")


def check_json(body: bytes, depth: int, keys: int) -> None:
    """Raise a problem for a body that nobody should have to read."""
    if body.count(b":") <= keys and body.count(b"{") + body.count(b"[") <= depth:
        return  # nearly always
    if body.lstrip()[:1] not in (b"{", b"["):
        return
    counts: list[int] = []
    for sign in _STRINGS.sub(b"", body).translate(None, _OTHERS):
        if sign == _COLON:
            if counts:
                counts[-1] += 1
                if counts[-1] > keys:
                    raise _too("large", f"an object has more than {keys} keys")
        elif sign in _OPENS:
            counts.append(0)
            if len(counts) > depth:
                raise _too("deep", f"it is nested more than {depth} deep")
        elif sign in _CLOSES and counts:
            counts.pop()


def _too(what: str, said: str) -> Problem:
    return Problem(422, f"too_{what}", f"the body is too {what}: {said}; send less at once")


_JSON = re.compile(rb"application/(?:[a-z0-9.-]{1,64}\+)?json\s*(?:;|\Z)", re.IGNORECASE)
PATIENCE: Seconds = 30.0
"""How long a body may take to arrive."""


class Cut(Exception):
    """Whoever called is gone."""


async def taken(
    receive: Receive, most: int, limits: Limits, *, media_type: bytes | None, redactor: Redactor
) -> Receive:
    """Take a whole body in, checked and without secrets; what is handed on gives it once more.

    `media_type` is what it is said to be; None where nobody reads it.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            body = await _whole(receive, most)
    except TimeoutError as error:
        raise Problem(408, "too_slow", f"the body did not arrive within {PATIENCE:.0f} s") from error
    if len(body) > most:
        raise too_large(most)
    if body and media_type is not None and not _JSON.match(media_type):
        said = "a body is JSON here: send it with `Content-Type: application/json`"
        raise Problem(415, "not_json_type", said)
    check_json(body, limits.depth, limits.keys)
    body = redactor.clean(body)
    kept: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return kept.pop() if kept else await receive()

    return again


async def _whole(receive: Receive, most: int) -> bytes:
    """All of a body, or as much of it as shows that it is too long."""
    parts = list[bytes]()
    size = 0
    more = True
    while more and size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Cut
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def bounded(receive: Receive, most: int) -> Receive:
    """For bodies that are read piece by piece: the piece that is too much raises a problem in whoever reads."""
    left = most

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise too_large(most)
        return message

    return counted


def too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body may have {most} bytes; send less at once")
