"""One HTTP exchange with addresses that were checked, and with no others. Not which addresses those are.

Imported when something is fetched: aiohttp takes a while to load.
"""

import socket
import zlib
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from chargehand.tools.calling import ToolFailed
from chargehand.tools.urls import Target, shown

PIECE = 16 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "User-Agent": "chargehand",
    "Accept": "text/html, text/plain, application/json, text/*;q=0.8, */*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Waits(Struct, frozen=True):
    """Seconds: to connect, and between two pieces. For all of it is the caller's business."""

    connect: float
    idle: float


class Answer(Struct, frozen=True):
    """`location` is where it says to go instead. `cut` means there was more than we take."""

    status: int
    location: str
    content_type: str
    body: bytes
    cut: bool


class Pinned(AbstractResolver):
    """Answers for one host, with what is already known."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - the interface is aiohttp's
    ) -> list[ResolveResult]:
        if host != self._host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family_of(address), proto=0, flags=0)
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def gate(addresses: Sequence[str], port: int) -> Callable[[Any], socket.socket]:
    """Makes sockets for these addresses only: the last word, whatever path led here."""
    known = {(ip_address(address), port) for address in addresses}

    def make(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, place = info
        if (ip_address(place[0]), place[1]) not in known:
            raise OSError(f"{place[0]} was not checked")
        return socket.socket(family, kind, protocol)

    return make


async def exchange(target: Target, addresses: Sequence[str], waits: Waits, most: int) -> Answer:
    """Ask for it once, follow nothing, and read at most so many bytes of it, unpacked."""
    connector = aiohttp.TCPConnector(
        resolver=Pinned(target.host, addresses),
        socket_factory=gate(addresses, target.port),
        use_dns_cache=False,
        force_close=True,
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=waits.connect, sock_read=waits.idle)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # it would unpack a whole piece before we can count
        trust_env=False,
        timeout=timeout,
        headers=HEADERS,
    )
    try:
        async with session, session.get(target.url, allow_redirects=False) as response:
            location = response.headers.get("Location", "") if response.status in REDIRECTS else ""
            wanted = not location and response.status < 300
            body, cut = await read(response, most) if wanted else (b"", False)
            content_type = response.headers.get("Content-Type", "")
            response.close()  # the rest is not wanted
            return Answer(status=response.status, location=location, content_type=content_type, body=body, cut=cut)
    except (aiohttp.ClientError, OSError, zlib.error) as error:
        words = str(error) or type(error).__name__
        raise ToolFailed(f"{shown(target.url)} could not be fetched: {words[:200]}") from error


async def read(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """The body, unpacked as far as is taken of it, and whether there was more."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
        raise aiohttp.ClientPayloadError(f"it is packed as {coding[:40]!r}, which was not asked for")
    unpack = None if coding in {"", "identity"} else zlib.decompressobj(zlib.MAX_WBITS | 32)
    taken = bytearray()
    async for piece in response.content.iter_chunked(PIECE):
        room = most + 1 - len(taken)
        taken += piece[:room] if unpack is None else unpack.decompress(piece, room)
        if len(taken) > most or (unpack is not None and unpack.eof):  # what follows the end is not looked at
            break
    return bytes(taken[:most]), len(taken) > most or (unpack is not None and not unpack.eof)
