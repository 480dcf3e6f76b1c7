"""Live output of runs, and server-sent events: a ping while nothing comes, and an end when the client is gone."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Generic, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chargehand.concurrency import BareTaskGroup
from chargehand.engine.policy import Seconds
from chargehand.server.tenant_runs import StreamSlot

MEDIA_TYPE = "text/event-stream"
PING = b": ping\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_ENCODER = msgspec.json.Encoder()
_Item = TypeVar("_Item")


class Output(Generic[_Item]):
    """What a run brings, in order, for any number of readers, each from where it wants to begin."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self.items = list(items)
        self.is_closed = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    def add(self, *items: _Item) -> None:
        self.items += items
        self._wake()

    def close(self, error: Exception | None = None) -> None:
        """Nothing more comes. The first error is what readers get in the end."""
        self.is_closed = True
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, start: int = 0) -> AsyncGenerator[_Item]:
        position = start
        while True:
            while position < len(self.items):
                position += 1
                yield self.items[position - 1]
            if self._error is not None:
                raise self._error
            if self.is_closed:
                return
            await self._changed.wait()


def plain_ping() -> bytes:
    return PING


def event(value: object, *, name: str = "", number: int | None = None) -> bytes:
    """One event. `number` is what a reader who comes back says it has seen."""
    head = (b"" if number is None else b"id: %d\n" % number) + (f"event: {name}\n".encode() if name else b"")
    return head + b"data: " + _ENCODER.encode(value) + b"\n\n"


class GzipStream:
    """Packs the parts of a stream so that each can be read as soon as it is sent.

    Its window is small: there may be a thousand of them, and entries repeat what stands shortly before.
    """

    HEADERS = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        self._packer = zlib.compressobj(level=4, wbits=16 + 13, memLevel=6)

    def pack(self, part: bytes) -> bytes:
        return self._packer.compress(part) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._packer.flush()


def streamed(
    *parts: AsyncGenerator[bytes],
    ping: Callable[[], bytes] = plain_ping,
    every: Seconds = 15.0,
    headers: Mapping[str, str] | None = None,
    slot: StreamSlot | None = None,
    gzip: GzipStream | None = None,
) -> Response:
    """A reply of parts as they come, from one source or from several at once; packed where that is wanted.

    When the caller goes away the generators are closed, and the slot is left.
    """
    all_headers = {**HEADERS, **(headers or {}), **({} if gzip is None else GzipStream.HEADERS)}
    return _EventStream(parts=parts, ping=ping, every=every, slot=slot, gzip=gzip, headers=all_headers)


class _EventStream(Response):
    """Every source has a job of its own, so that none of them is stopped in the middle for a ping."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        parts: Sequence[AsyncGenerator[bytes]],
        ping: Callable[[], bytes],
        every: Seconds,
        slot: StreamSlot | None,
        gzip: GzipStream | None,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(None, headers=headers)
        del self.headers["content-length"]
        self._parts = parts
        self._ping = ping
        self._every = every
        self._slot = slot
        self._gzip = gzip
        self._turn = asyncio.Lock()
        self._said = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI names it
        try:
            async with AsyncExitStack() as stack:
                for source in self._parts:
                    stack.push_async_callback(source.aclose)
                await self._stream(receive, send)
        finally:
            if self._slot is not None:
                self._slot.leave()

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with BareTaskGroup() as jobs:
            sources = [jobs.create_task(self._pass_on(source, send)) for source in self._parts]
            beside = [jobs.create_task(_gone(receive)), jobs.create_task(self._keep_alive(send))]
            for job in sources:
                job.add_done_callback(lambda _: all(source.done() for source in sources) and beside[0].cancel())
            until = beside[:1] if self._slot is None else [beside[0], jobs.create_task(self._slot.over())]
            await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
            for job in (*sources, *beside, *until):
                job.cancel()
        rest = b"" if self._gzip is None else self._gzip.finish()
        await send({"type": "http.response.body", "body": rest, "more_body": False})

    async def _pass_on(self, parts: AsyncGenerator[bytes], send: Send) -> None:
        async for part in parts:
            if part:
                await self._say(part, send)

    async def _say(self, part: bytes, send: Send) -> None:
        async with self._turn:  # in the order in which they were made: ids may count on it
            self._said = asyncio.get_running_loop().time()
            body = part if self._gzip is None else self._gzip.pack(part)
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _keep_alive(self, send: Send) -> None:
        self._said = asyncio.get_running_loop().time()
        while True:
            quiet = asyncio.get_running_loop().time() - self._said
            if quiet < self._every:
                await asyncio.sleep(self._every - quiet)
            else:
                await self._say(self._ping(), send)


async def _gone(receive: Receive) -> None:
    """Back when the caller is."""
    while (await receive())["type"] != "http.disconnect":
        pass
