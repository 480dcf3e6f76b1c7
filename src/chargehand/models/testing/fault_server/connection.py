"""A connection of the fault server: requests are read from it, and answers of any kind put on it."""

import asyncio
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct

from chargehand.models.testing.fault_server.protocols import Json, SentReply, WireProtocol, dump

JSON = "application/json"
EVENTS = "text/event-stream"
HEAD_LIMIT = 64 * 1024
_BODY_LIMIT = 16 * 1024 * 1024


class Head(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]


class BadRequest(Exception):
    """The request is not HTTP that this server reads."""


class Connection:
    """`is_reusable` turns true when an answer was ended so that the next request may follow."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_reusable = False

    async def read_head(self) -> Head | None:
        """The next request's head; None when the client is done."""
        try:
            raw = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise BadRequest(f"a request head may have {HEAD_LIMIT} bytes") from error
        first, *rest = raw.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            raise BadRequest("this is not an HTTP request")
        pairs = (line.partition(":") for line in rest if line)
        return Head(words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs})

    async def read_body(self, head: Head) -> bytes:
        length = head.headers.get("content-length", "0")
        if "transfer-encoding" in head.headers or not length.isdecimal() or int(length) > _BODY_LIMIT:
            raise BadRequest(f"a request needs a Content-Length of at most {_BODY_LIMIT}")
        return await self._reader.readexactly(int(length))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = "Overloaded"
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def send_whole(
        self, body: bytes, status: int = 200, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """An answer of known length."""
        length = {"Content-Type": content_type, "Content-Length": str(len(body))}
        await self.send_head(status, {**length, **(headers or {})})
        await self.send(body)
        self.is_reusable = True

    async def chunk(self, data: bytes) -> None:
        """A piece of an answer of unknown length."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of an answer of unknown length."""
        await self.send(b"0\r\n\r\n")
        self.is_reusable = True

    async def pause(self, seconds: float) -> bool:
        """Whether the client is still there after so long."""
        try:
            async with asyncio.timeout(seconds):
                # what comes now is not wanted; nothing at all means that the client hung up
                while await self._reader.read(4096):
                    pass
        except TimeoutError:
            return True
        return False

    def reset(self) -> None:
        """Cut the connection with a reset instead of an orderly end."""
        raw_socket: socket.socket | None = self._writer.get_extra_info("socket")
        if raw_socket is not None:
            raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


class Exchange(Struct, frozen=True):
    """One call of a model, and the connection to answer it on."""

    connection: Connection
    protocol: WireProtocol
    reply: SentReply
    """What a well-meaning server would answer."""
    stream: bool
    number: int
    """How many calls with this fault there were, this one included."""
    origin: str

    @property
    def whole(self) -> bytes:
        return dump(self.protocol.whole(self.reply))

    @property
    def events(self) -> list[bytes]:
        return self.protocol.events(self.reply)

    @property
    def body(self) -> bytes:
        """The right answer, as it was asked for."""
        return b"".join(self.events) if self.stream else self.whole

    @property
    def unfinished_events(self) -> list[bytes]:
        """The events of the answer up to its last words: nothing says that it is over."""
        ends = (b'"finish_reason":"', b"message_delta")
        events = self.events
        return events[: next(at for at, frame in enumerate(events) if any(end in frame for end in ends))]

    async def answer(self, reply: SentReply, headers: Mapping[str, str] | None = None) -> None:
        """A proper answer, as a stream if one was asked for."""
        await self.send(self.protocol.whole(reply), self.protocol.events(reply), headers)

    async def send(
        self, whole: Json | bytes, events: Sequence[bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        """`whole` for a client that waits for one piece, `events` for one that asked for a stream."""
        if not self.stream:
            body = whole if isinstance(whole, bytes) else dump(whole)
            return await self.connection.send_whole(body, headers=headers)
        await self.begin(headers)
        for frame in events:
            await self.connection.chunk(frame)
        return await self.connection.end()

    async def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """The head of an answer of unknown length, of the type that was asked for."""
        content_type = EVENTS if self.stream else JSON
        chunked = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        await self.connection.send_head(200, {**chunked, **(headers or {})})
