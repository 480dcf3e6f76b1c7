"""The one door for everything that is fetched because a model named it.

A URL is read strictly: either it means one plain web address, or it is refused. Its host is looked up once, every
address is judged, and the connection goes to those very addresses. Redirects are followed here, and each is treated
like a first request. What the text means is not known here.
"""

import asyncio
import codecs
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from chargehand.tools.calling import ToolFailed

Address: TypeAlias = IPv4Address | IPv6Address

# Azure's wire server is a metadata service on an address that looks public.
PRIVATE_4 = {
    IPv4Network("0.0.0.0/8"): "means this host",
    IPv4Network("10.0.0.0/8"): "is private",
    IPv4Network("100.64.0.0/10"): "is shared by a carrier",
    IPv4Network("127.0.0.0/8"): "is this machine",
    IPv4Network("168.63.129.16/32"): "is a metadata service",
    IPv4Network("169.254.0.0/16"): "is link-local, where metadata services live",
    IPv4Network("172.16.0.0/12"): "is private",
    IPv4Network("192.0.0.0/24"): "is reserved",
    IPv4Network("192.0.2.0/24"): "is for documentation",
    IPv4Network("192.31.196.0/24"): "is reserved",
    IPv4Network("192.52.193.0/24"): "is reserved",
    IPv4Network("192.88.99.0/24"): "is a relay for 6to4",
    IPv4Network("192.168.0.0/16"): "is private",
    IPv4Network("192.175.48.0/24"): "is reserved",
    IPv4Network("198.18.0.0/15"): "is for benchmarks",
    IPv4Network("198.51.100.0/24"): "is for documentation",
    IPv4Network("203.0.113.0/24"): "is for documentation",
    IPv4Network("224.0.0.0/4"): "is multicast",
    IPv4Network("240.0.0.0/4"): "is reserved",
}

# Of IPv6 only this is given out to hosts. All else is refused without being named: loopback, link-local, site-local,
# unique local (with Amazon's metadata service), multicast, IPv4-compatible, local NAT64, discard, segment routing.
PUBLIC_6 = IPv6Network("2000::/3")
PRIVATE_6 = {
    IPv6Network("2001::/23"): "is reserved (Teredo, benchmarks, ORCHID)",
    IPv6Network("2001:db8::/32"): "is for documentation",
    IPv6Network("2002::/16"): "is 6to4, which hides another address",
    IPv6Network("2620:4f:8000::/48"): "is reserved",
    IPv6Network("3fff::/20"): "is for documentation",
}
MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
ISATAP = (0x00005EFE, 0x02005EFE)


def objection(text: str) -> str:
    """Why this address may not be contacted; nothing when it may."""
    try:
        address = ip_address(text)
    except (AddressValueError, ValueError):
        return "is not an address"
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "is bound to a network interface"
    inner = embedded(address)
    if isinstance(inner, IPv6Address):
        return next((why for net, why in PRIVATE_6.items() if inner in net), "") or (
            "" if inner in PUBLIC_6 else "is not public"
        )
    return next((why for net, why in PRIVATE_4.items() if inner in net), "")


def embedded(address: Address) -> Address:
    """The IPv4 address that is really reached, where an IPv6 one only carries it."""
    if isinstance(address, IPv4Address):
        return address
    number = int(address)
    carries = address in MAPPED or address in NAT64 or (number >> 32) & 0xFFFFFFFF in ISATAP
    return IPv4Address(number & 0xFFFFFFFF) if carries else address


PORTS = {"http": 80, "https": 443}
LONGEST = 4096
NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
NUMERIC = re.compile(r"0x[0-9a-f]*|[0-9]+")  # how browsers tell an address from a name: by the last part
UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff\u2028\u2029]")
LOCAL = (".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home.arpa", ".onion")


class Forbidden(ToolFailed):
    """It may not be fetched, whatever is there."""


class FetchTarget(Struct, frozen=True):
    """Where to go: `url` is rebuilt from the other parts, so all read it the same way. No user, no fragment."""

    url: str
    host: str
    port: int
    literal: bool = False


def check_url(
    url: str,
    *,
    allow: Sequence[str] = (),
    ports: frozenset[int] = frozenset(),
    allow_private: frozenset[tuple[str, int]] = frozenset(),
) -> FetchTarget:
    """The target of a URL, or Forbidden. `ports` are allowed besides 80 and 443, `allow` are the only hosts if any."""
    parts, port = split(url)
    host, literal = canonical(parts.hostname or "", url)
    excepted = (host, port) in allow_private
    if port not in {80, 443} and port not in ports and port not in {each for _, each in allow_private}:
        raise Forbidden(f"{format_url(url)} is refused: port {port} is not one of the web")
    if allow and not any(covers(pattern, host) for pattern in allow):
        raise Forbidden(f"{format_url(url)} is refused: the only hosts allowed are {', '.join(allow)}")
    if literal and not excepted and (why := objection(host)):
        raise Forbidden(f"{format_url(url)} is refused: {host} {why}. Only public web addresses can be fetched.")
    place = f"[{host}]" if ":" in host else host
    place += "" if PORTS[parts.scheme] == port else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return FetchTarget(f"{parts.scheme}://{place}{parts.path or '/'}{query}", host, port, literal)


def split(url: str) -> tuple[SplitResult, int]:
    """The parts of a URL and its port."""
    if len(url) > LONGEST:
        raise Forbidden(f"the URL is longer than {LONGEST} characters")
    if UNSAFE.search(url):
        raise Forbidden(
            f"{format_url(url)} is refused: it contains spaces, backslashes or control characters; encode them"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"{format_url(url)} is not a URL: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise Forbidden(f"{format_url(url)} is refused: a URL starts with http:// or https:// and names a host")
    if "@" in parts.netloc:
        raise Forbidden(f"{format_url(url)} is refused: it carries a user name or a password")
    return parts, PORTS[parts.scheme] if port is None else port


def canonical(host: str, url: str) -> tuple[str, bool]:
    """The one way to write this host, and whether it is an address. Odd spellings of addresses are refused."""
    strange = Forbidden(f"{format_url(url)} is refused: its host is not a full domain name or a plain address")
    try:
        if ":" in host or "%" in host:
            return IPv6Address(host).compressed, True  # with a zone it is kept, and refused as an address
        ascii_host = host if host.isascii() else host.encode("idna").decode()
        name = ascii_host.lower().removesuffix(".")
        if NUMERIC.fullmatch(name.rpartition(".")[2]):
            return str(IPv4Address(name)), True
    except (AddressValueError, UnicodeError) as error:
        raise strange from error
    if len(name) > 253 or not NAME.fullmatch(name) or f".{name}".endswith(LOCAL):
        raise strange
    return name, False


def covers(pattern: str, host: str) -> bool:
    """`example.com` is that host alone, `*.example.com` any below it."""
    pattern = pattern.strip().lower()
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def format_url(url: str) -> str:
    """A URL as a message may show it: short, and without what could break a line."""
    return ascii(url if len(url) <= 200 else url[:200] + "...")


# --- URLs


__all__ = ["Egress", "FetchedPage", "Forbidden", "check_url"]

LARGEST = 1 << 20
HOPS = 5
PATIENCE = 5.0
ADDRESSES = 8
TEXT = re.compile(r"text/[\w.+-]+|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|x-yaml|x-ndjson|javascript|toml)")
CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
CODECS = ("utf-8", "utf-16", "ascii", "iso8859", "cp125", "koi8", "shift_jis", "euc_", "gb", "big5")

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


class FetchedPage(Struct, frozen=True):
    """What was found, as text. `url` is where it was in the end; `cut` means that it is only the beginning."""

    url: str
    content_type: str
    text: str
    cut: bool = False


async def look_up(host: str, port: int) -> Sequence[str]:
    """Every address of a host, as the system knows it."""
    places = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in places]


class Egress:
    """`allow_private` are the (address, port) pairs that may be reached although they are not public.

    It exists for tests against a server of their own, and only Python can set it: no file and no variable does.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        ports: frozenset[int] = frozenset(),
        allow_private: frozenset[tuple[str, int]] = frozenset(),
        resolve: Resolve = look_up,
        seconds: float = 20.0,
    ) -> None:
        self._allow = tuple(allow)
        self._ports = ports
        self._private = allow_private
        self._resolve = resolve
        self._seconds = seconds

    async def get(self, url: str) -> FetchedPage:
        """Fetch a text; ToolFailed, in words for a model, when it may not or cannot be had."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url)
        except TimeoutError as error:
            raise ToolFailed(f"{format_url(url)} did not arrive within {self._seconds:g} s") from error

    async def _follow(self, url: str) -> FetchedPage:
        for _ in range(HOPS + 1):
            target, addresses = await self.locate(url)
            answer = await exchange(target, addresses, min(PATIENCE, self._seconds))
            if not answer.location:
                return page(target.url, answer.status, answer.content_type, answer.body, cut=answer.cut)
            url = joined(target.url, answer.location)
        raise ToolFailed(f"{format_url(url)}: more than {HOPS} redirects")

    async def locate(self, url: str) -> tuple[FetchTarget, Sequence[str]]:
        """Where a URL leads, and the addresses to connect to, which were checked; ToolFailed when it may not be."""
        target = check_url(url, allow=self._allow, ports=self._ports, allow_private=self._private)
        return target, await self._addresses(target)

    async def _addresses(self, target: FetchTarget) -> Sequence[str]:
        """Where to connect to. One bad address spoils the name: honest names have none."""
        if target.literal:
            return [target.host]
        try:
            addresses = list(dict.fromkeys(await self._resolve(target.host, target.port)))[:ADDRESSES]
        except OSError as error:
            raise ToolFailed(f"there is no host {target.host!r}: {error}") from error
        if not addresses:
            raise ToolFailed(f"there is no host {target.host!r}")
        for address in addresses:
            if objection(address) and (address, target.port) not in self._private:
                # The address is not named: a model need not learn which private ones a name has.
                raise Forbidden(f"{format_url(target.url)} is refused: {target.host} is not on the public internet")
        return addresses


def joined(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError as error:
        raise Forbidden(f"{format_url(base)} redirects to something that is not a URL") from error


def page(url: str, status: int, content_type: str, body: bytes, *, cut: bool) -> FetchedPage:
    """A text, if it is one."""
    if not 200 <= status < 300:
        raise ToolFailed(f"{format_url(url)} answered with status {status}")
    kind = content_type.partition(";")[0].strip().lower()
    if not TEXT.fullmatch(kind):
        raise ToolFailed(f"{format_url(url)} is {kind[:60]!r}, which is not text")
    charset = CHARSET.search(content_type)
    return FetchedPage(
        url=url,
        content_type=kind,
        text=body.decode(encoding(charset[1] if charset else "utf-8"), errors="replace"),
        cut=cut,
    )


def encoding(name: str) -> str:
    """A charset that pages are written in; some of Python's other codecs are slow or do odd things."""
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return "utf-8"
    return codec if codec.startswith(CODECS) else "utf-8"


# --- one exchange, with addresses that were checked and no others


PIECE = 16 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS = {
    "User-Agent": "chargehand",
    "Accept": "text/html, text/plain, application/json, text/*;q=0.8, */*;q=0.1",
    "Accept-Encoding": "gzip",
}


class HttpAnswer(Struct, frozen=True):
    """`location` is where it says to go instead. `cut` means there was more than we take."""

    status: int
    location: str
    content_type: str
    body: bytes
    cut: bool


class PinnedResolver(AbstractResolver):
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
    allowed = {(ip_address(address), port) for address in addresses}

    def make(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, place = info
        if (ip_address(place[0]), place[1]) not in allowed:
            raise OSError(f"{place[0]} was not checked")
        return socket.socket(family, kind, protocol)

    return make


async def exchange(target: FetchTarget, addresses: Sequence[str], patience: float) -> HttpAnswer:
    """Ask for it once, follow nothing, and read a bounded part of it; `patience` is for connecting, and for silence."""
    connector = aiohttp.TCPConnector(
        resolver=PinnedResolver(target.host, addresses),
        socket_factory=gate(addresses, target.port),
        use_dns_cache=False,
        force_close=True,
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=patience, sock_read=patience)
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
            body, cut = await read_body(response, LARGEST) if wanted else (b"", False)
            content_type = response.headers.get("Content-Type", "")
            response.close()  # the rest is not wanted
            return HttpAnswer(status=response.status, location=location, content_type=content_type, body=body, cut=cut)
    except (aiohttp.ClientError, OSError, zlib.error) as error:
        words = str(error) or type(error).__name__
        raise ToolFailed(f"{format_url(target.url)} could not be fetched: {words[:200]}") from error


async def read_body(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
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
