"""Limits on bodies and connections. `bounded_http(limits)` is uvicorn's protocol class.

A body has no more bytes than allowed, whatever its headers say, does not take for ever, and holds no secrets. A
connection is anonymous until a call on it brings a valid token. Anonymous connections of one address can push out
only other anonymous ones.
"""

import asyncio
import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Protocol, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chargehand.engine.policy import Seconds
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.routing import HEADERS
from chargehand.server.settings import ServerLimits
from chargehand.server.wire import Problem

UPLOADS = frozenset(("/api/files", "/v1/files", "/v1/agents/import"))
BODY_PATIENCE: Seconds = 30.0
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

    def __init__(self, app: ASGIApp, limits: ServerLimits, redactor: Redactor) -> None:
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
        async with asyncio.timeout(BODY_PATIENCE):
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
        detail = f"the body did not arrive within {BODY_PATIENCE:.0f} s"
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


# --- connections


CONNECTION = "chargehand.connection"
"""Where in a scope stands the connection a call came on."""
_AGAIN: Seconds = 2.0
_NETWORK = 64
"""Bits of an IPv6 address that one customer has: the rest is theirs to choose."""


class ClientConnection(Protocol):
    """What is closed where there are too many."""

    def hang_up(self) -> None: ...


class Connections:
    """All that are open. `most` at once, and `strangers` from one address that have brought no good token yet."""

    def __init__(self, most: int, strangers: int) -> None:
        self._most = most
        self._most_strangers = strangers
        self._trusted: set[ClientConnection] = set()
        self._strangers: dict[str, dict[ClientConnection, None]] = {}
        self._networks: dict[ClientConnection, str] = {}

    def open(self, connection: ClientConnection, address: str) -> None:
        """Count a connection. The oldest stranger's is closed where there are too many, of this address first."""
        network = _network(address)
        mates = self._strangers.setdefault(network, {})
        mates[connection] = None
        self._networks[connection] = network
        if len(mates) > self._most_strangers:
            self._drop(next(iter(mates)))
        elif len(self._networks) > self._most:
            largest = max(self._strangers.values(), key=len)
            oldest = next(iter(largest))
            if oldest is not connection:
                self._drop(oldest)

    def trust(self, connection: ClientConnection) -> None:
        """A call on it brought a good token."""
        network = self._networks.get(connection)
        if network is not None and connection not in self._trusted:
            self._trusted.add(connection)
            self._forget_stranger(connection, network)

    def close(self, connection: ClientConnection) -> None:
        network = self._networks.pop(connection, None)
        if network is not None:
            self._trusted.discard(connection)
            self._forget_stranger(connection, network)

    @property
    def is_crowded(self) -> bool:
        """Whether more connections are open than allowed, and none of them is anonymous."""
        return len(self._networks) > self._most

    def _drop(self, connection: ClientConnection) -> None:
        self.close(connection)
        connection.hang_up()

    def _forget_stranger(self, connection: ClientConnection, network: str) -> None:
        mates = self._strangers.get(network)
        if mates is not None:
            mates.pop(connection, None)
            if not mates:
                del self._strangers[network]


def trust(scope: Scope) -> None:
    """The call has brought a good token."""
    connection: BoundedHttp | None = scope.get(CONNECTION)
    if connection is not None:
        connection.among.trust(connection)


def check_crowd(scope: Scope) -> None:
    """Raise a problem where more connections are open than may be."""
    connection: BoundedHttp | None = scope.get(CONNECTION)
    if connection is not None and connection.among.is_crowded:
        detail = "too many connections are open; nothing was begun: try again soon"
        raise Problem(503, "too_many_connections", detail, after=_AGAIN)


def _network(address: str) -> str:
    """What one customer has: an IPv4 address, or the network of an IPv6 one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(int(parsed) >> (128 - _NETWORK))
    return address


# --- what is listened to

_IDLE_PATIENCE: Seconds = 15.0
"""How long headers may take to arrive."""
UPLOAD: Seconds = 120.0
"""How long any body may take to arrive, also one that is not read: it keeps a connection open."""
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)


class BoundedHttp(HttpToolsProtocol):
    """A connection that is closed when headers are too long or too slow, or a body never ends. `most` is bytes."""

    most = 16 * 1024
    among = Connections(most=1_000_000, strangers=1_000_000)
    patience: Seconds = _IDLE_PATIENCE
    upload: Seconds = UPLOAD
    _size = 0
    _waits: asyncio.TimerHandle | None = None
    _whole = True
    """Whether all of the body is there."""
    _fed = False
    """Whether there was any of a body in what came last; else it is only sizes of chunks, and what follows them."""
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.among.open(self, self.client[0] if self.client else "")
        self._expect()

    def hang_up(self) -> None:
        """Close it at once, whatever is under way."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.among.close(self)
        self._arrived()
        self._ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._waits
        self._fed = False
        super().data_received(data)
        if not self._whole and self._ends is None:
            self._ends = self.loop.call_later(self.upload, self._give_up)
        elif self._whole:
            self._ended()
        if before is not self._waits or self._fed or (self._waits is None and self._whole):
            return  # a new message began somewhere in it, or it is of a body: what follows is counted
        self._size += len(data)
        if self._size > self.most and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[CONNECTION] = self
        self._expect()

    def on_header(self, name: bytes, value: bytes) -> None:
        # one that comes behind a body is let go: it would stand among those that were looked at already
        if self._waits is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._arrived()
        self._size = 0
        self._whole = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._size = 0
        self._fed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing is heard behind a call that wants to speak otherwise, so its answer is the last."""
        self.cycle.keep_alive = False

    def _expect(self) -> None:
        self._arrived()
        self._size = 0
        self._waits = self.loop.call_later(self.patience, self._give_up)

    def _arrived(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _ended(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _give_up(self) -> None:
        self._waits = self._ends = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded_http(limits: ServerLimits) -> type[BoundedHttp]:
    """The protocol for a server with these limits."""
    among = Connections(limits.open_connections, limits.stranger_connections)
    return type("BoundedHttp", (BoundedHttp,), {"most": limits.header, "among": among})
