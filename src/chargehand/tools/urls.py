"""Reads a URL that a model named, strictly: either it means one plain web address, or it is refused.

Nothing is looked up here. What a name resolves to is judged by `egress`, at the moment of connecting.
"""

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from chargehand.tools.addresses import objection
from chargehand.tools.calling import ToolFailed

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
