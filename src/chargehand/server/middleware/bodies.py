"""Bodies within bounds: no more bytes than allowed, whatever the headers said, not for ever, and without secrets."""

import asyncio
import re
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.engine.policy import Seconds
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.problem import Problem
from chargehand.server.routing import HEADERS
from chargehand.server.settings import Limits

UPLOADS = frozenset(("/v1/agents/import",))
PATIENCE: Seconds = 30.0
"""How long a body may take to arrive."""
_LENGTH_DIGITS = 12  # of a length that can be meant
_JSON = re.compile(rb"application/(?:[a-z0-9.-]{1,64}\+)?json\s*(?:;|\Z)", re.IGNORECASE)
# every quote begins a match, also that of a text without an end: else a hostile body would be looked through from each
_STRINGS = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)')
_OTHERS = bytes(set(range(256)) - set(b"[]{}:"))
_OPENS = frozenset(b"[{")
_CLOSES = frozenset(b"]}")
_COLON = ord(":")


class Bodies:
    """Takes in whole bodies, checked and cleaned; what is handed on gives each once more."""

    def __init__(self, app: ASGIApp, limits: Limits, redactor: Redactor) -> None:
        self._app = app
        self._limits = limits
        self._redactor = redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Mapping[bytes, bytes] = scope[HEADERS]
        is_upload = scope["path"] in UPLOADS
        most = self._limits.upload if is_upload else self._limits.body
        length = headers.get(b"content-length")
        if b"upgrade" in headers and (length not in (None, b"0") or b"transfer-encoding" in headers):
            detail = "a body cannot come with `Upgrade`: only HTTP/1.1 is spoken here; send it without that header"
            raise Problem(400, "upgrade", detail)
        if length is not None and (len(length) > _LENGTH_DIGITS or not length.isdigit() or int(length) > most):
            raise too_large(most)
        is_read = scope["method"] not in ("GET", "HEAD")
        if is_upload:
            receive = _bounded(receive, most)
        elif is_read or length is not None or b"transfer-encoding" in headers:
            body = await _whole(receive, most)
            if body is None:
                return  # the client disconnected
            if body and is_read and not _JSON.match(headers.get(b"content-type", b"")):
                detail = "a body is JSON here: send it with `Content-Type: application/json`"
                raise Problem(415, "not_json_type", detail)
            check_json(body, self._limits.depth, self._limits.keys)
            receive = _replay(self._redactor.clean(body), receive)
        await self._app(scope, receive, send)


async def _whole(receive: Receive, most: int) -> bytes | None:
    """All of a body; None where it was cut off."""
    parts = list[bytes]()
    size = 0
    more = True
    try:
        async with asyncio.timeout(PATIENCE):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large(most)
                more = message.get("more_body", False)
    except TimeoutError as error:
        detail = f"the body did not arrive within {PATIENCE:.0f} s"
        # the rest of the body may never come
        raise Problem(408, "too_slow", detail, headers={"Connection": "close"}) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives a body that was taken in once more, and then what else comes."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return unread.pop() if unread else await receive()

    return receive_again


def _bounded(receive: Receive, most: int) -> Receive:
    """For bodies that are read in pieces: the piece that exceeds the limit raises a problem."""
    remaining = most

    async def receive_counted() -> Message:
        nonlocal remaining
        message = await receive()
        remaining -= len(message.get("body", b""))
        if remaining < 0:
            raise too_large(most)
        return message

    return receive_counted


def too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body may have {most} bytes; send less at once")


def check_json(body: bytes, depth: int, keys: int) -> None:
    """Raise a problem for JSON that is too deep or too large for anybody to have to read."""
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


def _too(what: str, why: str) -> Problem:
    return Problem(422, f"too_{what}", f"the body is too {what}: {why}; send less at once")
