"""The one door for everything that is fetched because a model named it.

A URL is checked, its host looked up once, every address judged, and the connection goes to those very addresses.
Redirects are followed here, and each is treated like a first request. What the text means is not its business.
"""

import asyncio
import codecs
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import urljoin

from msgspec import Struct

from chargehand.tools.calling import ToolFailed
from chargehand.tools.urls import Forbidden, Target, check_url, objection, shown

__all__ = ["Egress", "Forbidden", "Page", "check_url"]

LARGEST = 1 << 20
HOPS = 5
ADDRESSES = 8
TEXT = re.compile(r"text/[\w.+-]+|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|x-yaml|x-ndjson|javascript|toml)")
CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
CODECS = ("utf-8", "utf-16", "ascii", "iso8859", "cp125", "koi8", "shift_jis", "euc_", "gb", "big5")

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


class Page(Struct, frozen=True):
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

    async def get(self, url: str) -> Page:
        """Fetch a text; ToolFailed, in words for a model, when it may not or cannot be had."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url)
        except TimeoutError as error:
            raise ToolFailed(f"{shown(url)} did not arrive within {self._seconds:g} s") from error

    async def _follow(self, url: str) -> Page:
        from chargehand.tools.pinned import Waits, exchange  # noqa: PLC0415 - brings aiohttp

        waits = Waits(min(5.0, self._seconds), min(5.0, self._seconds))
        for _ in range(HOPS + 1):
            target = check_url(url, allow=self._allow, ports=self._ports, allow_private=self._private)
            answer = await exchange(target, await self._addresses(target), waits, LARGEST)
            if not answer.location:
                return page(target.url, answer.status, answer.content_type, answer.body, cut=answer.cut)
            url = joined(target.url, answer.location)
        raise ToolFailed(f"{shown(url)}: more than {HOPS} redirects")

    async def _addresses(self, target: Target) -> Sequence[str]:
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
                # The address is not named: which private ones a name has is nobody's business.
                raise Forbidden(f"{shown(target.url)} is refused: {target.host} is not on the public internet")
        return addresses


def joined(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError as error:
        raise Forbidden(f"{shown(base)} redirects to something that is not a URL") from error


def page(url: str, status: int, content_type: str, body: bytes, *, cut: bool) -> Page:
    """A text, if it is one."""
    if not 200 <= status < 300:
        raise ToolFailed(f"{shown(url)} answered with status {status}")
    kind = content_type.partition(";")[0].strip().lower()
    if not TEXT.fullmatch(kind):
        raise ToolFailed(f"{shown(url)} is {kind[:60]!r}, which is not text")
    named = CHARSET.search(content_type)
    return Page(
        url=url,
        content_type=kind,
        text=body.decode(encoding(named[1] if named else "utf-8"), errors="replace"),
        cut=cut,
    )


def encoding(name: str) -> str:
    """A charset that pages are written in; some of Python's other codecs are slow or do odd things."""
    try:
        known = codecs.lookup(name).name
    except LookupError:
        return "utf-8"
    return known if known.startswith(CODECS) else "utf-8"
