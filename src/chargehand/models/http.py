"""One POST and its reply, kept within time and size whatever the server does.

Nothing is sent twice here: retries are the guard's business. Redirects are never followed.
"""

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.call_errors import (
    CallFailed,
    Party,
    Unreadable,
    connection_lost,
    timed_out,
    too_large,
)
from chargehand.trace_context import trace_headers

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, ClientTimeout, StreamReader
    from yarl import URL

MOST_BYTES = 8 * 1024 * 1024
_MOST_ERROR = 64 * 1024
_LINGER = 0.2
_PASSED_OVER = (b"", b"id", b"retry")  # b"" is a comment
_MAX_UNPACKED = 65_536  # bytes of a compressed body that are given out at once


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds, from the moment the call is made except for `idle`.

    `first` is to the first token of a streamed reply; `whole` to the first byte of one that is not streamed, which
    comes when the model has written all of it; `idle` is between bytes of data: comments and pings are none.
    """

    connect: Seconds = 5.0
    first: Seconds = 60.0
    whole: Seconds = 240.0
    idle: Seconds = 30.0
    total: Seconds = 300.0


PATIENCE = Timeouts()


class HttpResponse(Struct, frozen=True):
    """`body` is empty when it was streamed."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    streamed: bool = False


class Event(NamedTuple):
    name: bytes
    data: bytes


class Taker(Protocol):
    """Takes a streamed body.

    `take` says whether the chunk held data (comments and pings are none) and raises Unreadable when it cannot be
    right; `ended` becomes true once the protocol's own end mark was seen.
    """

    @property
    def ended(self) -> bool: ...

    def take(self, chunk: bytes) -> bool: ...


class Events:
    """Server-sent events, taken apart as bytes come in; what they mean is the adapters' business.

    Lines are cut at bytes, never inside a character. An event is given out when its blank line has come; what is left
    at the end of the body is no event.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._after_return = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises Unreadable for a line that no such stream holds: dropping it could drop a word of the reply."""
        if self._after_return or b"\r" in chunk:
            chunk = self._plain_ends(chunk)
        lines = chunk.split(b"\n")
        if self._pieces:
            if len(lines) == 1:  # a line that grows: joined once, when it ends
                self._pieces.append(chunk)
                return []
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
        rest = lines.pop()
        self._pieces = [rest] if rest else []
        return self._events(lines)

    def growing(self) -> bool:
        """Whether what came last is a piece of data whose line is not over yet."""
        return bool(self._pieces) and self._pieces[0][:4] == b"data"

    def rest(self) -> bool:
        """Whether something was begun and not ended."""
        return bool(self._data or self._pieces)

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(Event(self._name, b"\n".join(self._data)))
                    self._data = []
                self._name = b""
                continue
            field, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if field == b"data":
                self._data.append(value)
            elif field == b"event":
                self._name = value
            elif field not in _PASSED_OVER:
                raise Unreadable("its event stream holds a line that is none of an event")
        return events

    def _plain_ends(self, chunk: bytes) -> bytes:
        """Lines may end in CR LF, LF or CR; a CR at the end of a chunk may have its LF in the next one."""
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_return = False
        if chunk:
            self._after_return = chunk[-1:] == b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class Endpoint:
    """Where one model is called, with what headers, and how patiently."""

    def __init__(
        self, party: Party, url: str, headers: Mapping[str, str], timeouts: Timeouts, max_bytes: int = MOST_BYTES
    ) -> None:
        self.party = party
        self.timeouts = timeouts
        self.max_bytes = max_bytes
        self._url = url
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # replies are short, and streams are read as they come
            "User-Agent": "chargehand",
            **headers,
        }
        if any(not value.isascii() or not value.isprintable() for value in headers.values()):
            raise Invalid(f"{party.handle}: its key holds characters that no header can carry; set it again")
        self._ready: tuple[URL, Mapping[str, str], ClientTimeout] | None = None

    def ready(self) -> "tuple[URL, Mapping[str, str], ClientTimeout]":
        """The same in aiohttp's own types, made once."""
        if self._ready is None:
            from aiohttp import ClientTimeout  # noqa: PLC0415 - only who calls over HTTP pays for it
            from multidict import CIMultiDict  # noqa: PLC0415
            from yarl import URL  # noqa: PLC0415

            connect = self.timeouts.connect
            patience = ClientTimeout(total=None, connect=connect, sock_connect=connect, sock_read=None)
            self._ready = URL(self._url), CIMultiDict(self._headers), patience
        return self._ready


class Transport:
    """A pool of connections, opened when it is first needed. Proxies in the environment are not looked at.

    Certificates are always verified; `tls` is for who trusts an authority of their own. With `keep_alive=False` every
    call has a connection of its own.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, keep_alive: bool = True) -> None:
        self._tls = tls
        self._keep_alive = keep_alive
        self._sessions: dict[asyncio.AbstractEventLoop, ClientSession] = {}

    async def post(self, endpoint: Endpoint, body: bytes, taker: Taker | None = None) -> HttpResponse:
        """Any status is an answer; CallFailed when there is none within the limits, Unreadable for a broken one."""
        from aiohttp import ClientError  # noqa: PLC0415 - loaded already

        party = endpoint.party
        times = endpoint.timeouts
        session = self._sessions.get(asyncio.get_running_loop()) or self._opened()
        url, headers, patience = endpoint.ready()
        if trace := trace_headers():
            headers = {**headers, **trace}
        arrival = _Arrival(endpoint, taker)
        try:
            async with arrival.watch:
                response = await session.post(url, data=body, headers=headers, allow_redirects=False, timeout=patience)
                try:
                    return await arrival.read(response)
                finally:
                    response.release()  # what was not read to its end is closed
        except TimeoutError as error:
            if arrival.watch.expired() and arrival.over:
                return arrival.streamed()
            if arrival.watch.expired():
                raise arrival.too_late() from None
            raise connection_lost(
                party, f"no connection to {party.place} within {times.connect:g} s", billed=False
            ) from error
        except (ClientError, OSError) as error:
            if arrival.over:
                return arrival.streamed()
            raise arrival.broken(error) from None

    def _opened(self) -> "ClientSession":
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector  # noqa: PLC0415 - only who calls pays for it

        session = ClientSession(
            connector=TCPConnector(limit=0, ssl=self._tls or True, force_close=not self._keep_alive),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=65_536,
        )
        self._sessions[asyncio.get_running_loop()] = session
        return session

    async def close(self) -> None:
        """Close what was opened on this loop, and on loops that are gone. Other loops close their own."""
        here = asyncio.get_running_loop()
        for loop in [loop for loop in self._sessions if loop is here or loop.is_closed()]:
            session = self._sessions.pop(loop)
            with contextlib.suppress(*(() if loop is here else (RuntimeError,))):  # sockets die with their loop
                await session.close()


class _Arrival:
    """One reply while it comes in: the clock, the size, and what to say when it goes wrong."""

    def __init__(self, endpoint: Endpoint, taker: Taker | None) -> None:
        self._endpoint = endpoint
        self._taker = taker
        self._loop = asyncio.get_running_loop()
        times = endpoint.timeouts
        now = self._loop.time()
        self._end = now + times.total
        self._waiting_for = times.whole if taker is None else times.first
        self._begun = False
        self._size = 0
        self.watch = asyncio.timeout_at(min(self._end, now + self._waiting_for))
        self._answer = HttpResponse(0, {}, b"")

    @property
    def over(self) -> bool:
        return self._taker is not None and self._taker.ended

    def streamed(self) -> HttpResponse:
        return HttpResponse(self._answer.status, self._answer.headers, b"", streamed=True)

    async def read(self, response: "ClientResponse") -> HttpResponse:
        status = response.status
        headers = response.headers
        self._answer = HttpResponse(status, headers, b"")
        if status != 200:
            with contextlib.suppress(Unreadable):  # of an error, the status says the most
                return HttpResponse(status, headers, await self._read_whole(_plain_body(response), _MOST_ERROR))
            return self._answer
        content = _plain_body(response)
        if self._taker is not None and _is_stream(headers):
            await self._read_stream(content, self._taker)
            return self.streamed()
        most = self._endpoint.max_bytes
        if response.content_length is not None and response.content_length > most:
            raise too_large(self._endpoint.party, most)
        return HttpResponse(status, headers, await self._read_whole(content, most))

    async def _read_whole(self, content: "StreamReader | _UnpackedBody", most: int) -> bytes:
        pieces: list[bytes] = []
        while piece := await content.readany():
            self._size += len(piece)
            if self._size > most:
                if self._answer.status != 200:  # of an error page, the beginning will do
                    return b"".join(pieces) + piece[:_MOST_ERROR]
                raise too_large(self._endpoint.party, most)
            pieces.append(piece)
            if not content.is_eof():
                self._moved()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _read_stream(self, content: "StreamReader | _UnpackedBody", taker: Taker) -> None:
        while piece := await content.readany():
            self._size += len(piece)
            if self._size > self._endpoint.max_bytes:
                raise too_large(self._endpoint.party, self._endpoint.max_bytes)
            if taker.take(piece):
                self._moved()
            if taker.ended and not content.is_eof():
                # Nothing more is due but the end of the body: seen, the connection can be used again.
                self.watch.reschedule(min(self._end, self._loop.time() + _LINGER))
        if not taker.ended:
            raise Unreadable("the stream stopped before its end mark")

    def _moved(self) -> None:
        self._begun = True
        self.watch.reschedule(min(self._end, self._loop.time() + self._endpoint.timeouts.idle))

    def too_late(self) -> CallFailed:
        times = self._endpoint.timeouts
        if self._loop.time() >= self._end:
            return timed_out(self._endpoint.party, f"not finished within {times.total:g} s")
        if self._begun:
            return timed_out(self._endpoint.party, f"silent for {times.idle:g} s in the middle of the reply")
        return timed_out(self._endpoint.party, f"nothing of the reply came within {self._waiting_for:g} s")

    def broken(self, error: Exception) -> CallFailed:
        party = self._endpoint.party
        name = type(error).__name__
        if self._answer.status:
            return connection_lost(party, f"the connection broke in the middle of the reply ({name})")
        return connection_lost(party, f"the call did not get through ({name})", billed=_was_sent(error))


class _UnpackedBody:
    """A compressed body as it was before, in pieces of a bounded size: a small body never becomes a huge piece."""

    def __init__(self, content: "StreamReader", encoding: str) -> None:
        self._content = content
        self._encoding = encoding
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or deflate, by its first bytes
        self._packed = b""
        self._has_more = False  # what was given out last was cut at the bound

    def is_eof(self) -> bool:
        return self._unpacker.eof

    async def readany(self) -> bytes:
        while not self._unpacker.eof:
            if not self._packed and not self._has_more:
                self._packed = await self._content.readany()
                if not self._packed:
                    raise Unreadable(f"it is compressed (Content-Encoding: {self._encoding}) and was cut off")
            try:
                piece = self._unpacker.decompress(self._packed, _MAX_UNPACKED)
            except zlib.error:
                raise Unreadable(f"it is not what its header says (Content-Encoding: {self._encoding})") from None
            self._packed = self._unpacker.unconsumed_tail
            self._has_more = len(piece) == _MAX_UNPACKED
            if piece:
                return piece
        return b""


def _plain_body(response: "ClientResponse") -> "StreamReader | _UnpackedBody":
    """The body of a reply; proxies compress it even where that was not asked for."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return response.content
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _UnpackedBody(response.content, encoding)
    raise Unreadable(
        f"it is compressed (Content-Encoding: {encoding[:40]}), of which only gzip and deflate can be read; "
        "let the server or its proxy send it uncompressed"
    )


def _was_sent(error: Exception) -> bool:
    """Whether any of a request may have reached the other side: not while the connection was still being made."""
    from aiohttp import ClientConnectorError, InvalidURL  # noqa: PLC0415 - loaded already

    return not isinstance(error, ClientConnectorError | InvalidURL)


def _is_stream(headers: Mapping[str, str]) -> bool:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/event-stream"
