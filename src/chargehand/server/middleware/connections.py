"""Limits on open connections, and on the size and time of headers. `bounded_http(limits)` is uvicorn's protocol class.

A connection is anonymous until a call on it brings a valid token. Anonymous connections of one address can push out
only other anonymous ones. The size of bodies is checked later; here a body only has to end.
"""

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chargehand.engine.policy import Seconds
from chargehand.server.problem import Problem
from chargehand.server.settings import Limits

CONNECTION = "chargehand.connection"
"""Where in a scope stands the connection a call came on."""
_AGAIN: Seconds = 2.0
_NETWORK = 64
"""Bits of an IPv6 address that one customer has: the rest is theirs to choose."""


class Connection(Protocol):
    """What is closed where there are too many."""

    def hang_up(self) -> None: ...


class Connections:
    """All that are open. `most` at once, and `strangers` from one address that have brought no good token yet."""

    def __init__(self, most: int, strangers: int) -> None:
        self._most = most
        self._most_strangers = strangers
        self._trusted: set[Connection] = set()
        self._strangers: dict[str, dict[Connection, None]] = {}
        self._networks: dict[Connection, str] = {}

    def open(self, connection: Connection, address: str) -> None:
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

    def trust(self, connection: Connection) -> None:
        """A call on it brought a good token."""
        network = self._networks.get(connection)
        if network is not None and connection not in self._trusted:
            self._trusted.add(connection)
            self._forget_stranger(connection, network)

    def close(self, connection: Connection) -> None:
        network = self._networks.pop(connection, None)
        if network is not None:
            self._trusted.discard(connection)
            self._forget_stranger(connection, network)

    @property
    def is_crowded(self) -> bool:
        """Whether more connections are open than allowed, and none of them is anonymous."""
        return len(self._networks) > self._most

    def _drop(self, connection: Connection) -> None:
        self.close(connection)
        connection.hang_up()

    def _forget_stranger(self, connection: Connection, network: str) -> None:
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

PATIENCE: Seconds = 15.0
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
    patience: Seconds = PATIENCE
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


def bounded_http(limits: Limits) -> type[BoundedHttp]:
    """The protocol for a server with these limits."""
    among = Connections(limits.open_connections, limits.stranger_connections)
    return type("BoundedHttp", (BoundedHttp,), {"most": limits.header, "among": among})
