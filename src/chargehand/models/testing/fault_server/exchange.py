"""One request that came in, and the ways to put bytes on its connection. Which way is the modes' business."""

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct

from chargehand.models.testing.fault_server.shapes import Json, Said, Shape, dump

JSON = "application/json"
EVENTS = "text/event-stream"
_MOST_HEAD = 64 * 1024
_MOST_BODY = 16 * 1024 * 1024


class Ask(Struct, frozen=True):
    """What was asked. `shape` is the protocol it was asked in, `said` what a well-meaning server would answer."""

    shape: Shape
    said: Said
    stream: bool
    number: int
    origin: str


class Head(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]


class TooMuch(Exception):
    """The request is not HTTP that this server reads."""


class Line:
    """A connection. `kept` turns true when an answer was ended so that the next request may follow."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.kept = False

    async def read_head(self) -> Head | None:
        """The next request's head; None when the client is done."""
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise TooMuch(f"a request head may have {_MOST_HEAD} bytes") from error
        first, *rest = raw.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            raise TooMuch("this is not an HTTP request")
        pairs = (line.partition(":") for line in rest if line)
        return Head(words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs})

    async def read_body(self, head: Head) -> bytes:
        length = head.headers.get("content-length", "0")
        if "transfer-encoding" in head.headers or not length.isdecimal() or int(length) > _MOST_BODY:
            raise TooMuch(f"a request needs a Content-Length of at most {_MOST_BODY}")
        return await self._reader.readexactly(int(length))

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Overloaded"
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def whole(
        self, body: bytes, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """An answer of known length."""
        length = {"Content-Type": content_type, "Content-Length": str(len(body))}
        await self.head(status, {**length, **(headers or {})})
        await self.raw(body)
        self.kept = True

    async def begin(self, content_type: str = EVENTS, headers: Mapping[str, str] | None = None) -> None:
        """An answer of unknown length: `chunk` adds to it, `end` ends it."""
        chunked = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        await self.head(200, {**chunked, **(headers or {})})

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")
        self.kept = True

    async def pause(self, seconds: float) -> bool:
        """Whether the client is still there after so long."""
        try:
            async with asyncio.timeout(seconds):
                # whatever comes now is not wanted; nothing at all means that the client hung up
                while await self._reader.read(4096):
                    pass
        except TimeoutError:
            return True
        return False

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        held: socket.socket | None = self._writer.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class Exchange(Struct, frozen=True):
    """A request and the line to answer it on."""

    ask: Ask
    line: Line

    async def answer(self, said: Said, headers: Mapping[str, str] | None = None) -> None:
        """A proper answer, as a stream if one was asked for."""
        shape = self.ask.shape
        await self.send(shape.whole(said), shape.events(said), headers)

    async def send(
        self, whole: Json | bytes, events: Sequence[bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        """`whole` for who waits for one piece, `events` for who asked for a stream."""
        if not self.ask.stream:
            body = whole if isinstance(whole, bytes) else dump(whole)
            return await self.line.whole(body, headers=headers)
        await self.line.begin(headers=headers)
        for frame in events:
            await self.line.chunk(frame)
        return await self.line.end()

    async def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """The head of an answer of unknown length, of the type that was asked for."""
        await self.line.begin(EVENTS if self.ask.stream else JSON, headers)
