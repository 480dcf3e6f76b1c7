"""Open connections: how many there may be, and which is closed when there are more.

A connection is a stranger's until a call on it brought a good token. Strangers of one address can keep out other
strangers only, and nobody who has a token.
"""

from ipaddress import IPv6Address, ip_address
from typing import Protocol

from msgspec import Struct
from starlette.types import Scope

from chargehand.server.problem import Problem

CONNECTION = "chargehand.connection"
"""Where in a scope stands the connection a call came on."""
_AGAIN = 2.0
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
        """Whether there are more than there may be: nobody is left who could be closed."""
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


class Counted(Struct, frozen=True):
    """A connection in a scope, with those it is counted among."""

    connection: Connection
    among: Connections


def trust(scope: Scope) -> None:
    """The call has brought a good token."""
    counted: Counted | None = scope.get(CONNECTION)
    if counted is not None:
        counted.among.trust(counted.connection)


def check_crowd(scope: Scope) -> None:
    """Raise a problem where more connections are open than may be."""
    counted: Counted | None = scope.get(CONNECTION)
    if counted is not None and counted.among.is_crowded:
        said = "too many connections are open; nothing was begun: try again soon"
        raise Problem(503, "too_many_connections", said, after=_AGAIN)


def _network(address: str) -> str:
    """What one customer has: an IPv4 address, or the network of an IPv6 one."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if isinstance(known, IPv6Address) and known.ipv4_mapped is None:
        return str(int(known) >> (128 - _NETWORK))
    return address
