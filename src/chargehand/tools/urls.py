"""Reads a URL that a model named, strictly: either it means one plain web address, or it is refused.

Nothing is looked up here. What a name resolves to is judged by `egress`, at the moment of connecting.
"""

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

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


class Target(Struct, frozen=True):
    """Where to go: `url` is rebuilt from the other parts, so nobody reads it in another way. No user, no fragment."""

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
) -> Target:
    """The target of a URL, or Forbidden. `ports` are allowed besides 80 and 443, `allow` are the only hosts if any."""
    parts, port = split(url)
    host, literal = canonical(parts.hostname or "", url)
    excepted = (host, port) in allow_private
    if port not in {80, 443} and port not in ports and port not in {each for _, each in allow_private}:
        raise Forbidden(f"{shown(url)} is refused: port {port} is not one of the web")
    if allow and not any(covers(pattern, host) for pattern in allow):
        raise Forbidden(f"{shown(url)} is refused: the only hosts allowed are {', '.join(allow)}")
    if literal and not excepted and (why := objection(host)):
        raise Forbidden(f"{shown(url)} is refused: {host} {why}. Only public web addresses can be fetched.")
    place = f"[{host}]" if ":" in host else host
    place += "" if PORTS[parts.scheme] == port else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return Target(f"{parts.scheme}://{place}{parts.path or '/'}{query}", host, port, literal)


def split(url: str) -> tuple[SplitResult, int]:
    """The parts of a URL and its port."""
    if len(url) > LONGEST:
        raise Forbidden(f"the URL is longer than {LONGEST} characters")
    if UNSAFE.search(url):
        raise Forbidden(f"{shown(url)} is refused: it contains spaces, backslashes or control characters; encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden(f"{shown(url)} is not a URL: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise Forbidden(f"{shown(url)} is refused: a URL starts with http:// or https:// and names a host")
    if "@" in parts.netloc:
        raise Forbidden(f"{shown(url)} is refused: it carries a user name or a password")
    return parts, PORTS[parts.scheme] if port is None else port


def canonical(host: str, url: str) -> tuple[str, bool]:
    """The one way to write this host, and whether it is an address. Odd spellings of addresses are refused."""
    strange = Forbidden(f"{shown(url)} is refused: its host is not a full domain name or a plain address")
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


def shown(url: str) -> str:
    """A URL as a message may show it: short, and without what could break a line."""
    return ascii(url if len(url) <= 200 else url[:200] + "...")
