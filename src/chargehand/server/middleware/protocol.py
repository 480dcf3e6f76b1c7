"""What is listened to around a request: so many bytes of headers, for so long, and no headers behind a body.

The parser has no bounds. How much a body may be is the gate's business; here it is only seen that one comes to an end.

Whoever starts uvicorn hands `bounded_http(limits)` to it.
"""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chargehand.server.middleware.connections import CONNECTION, Connections, Counted
from chargehand.server.settings import Limits
from chargehand.terms.policy import Seconds

PATIENCE: Seconds = 15.0
"""How long headers may take to arrive."""
UPLOAD: Seconds = 120.0
"""How long any body may take to arrive, also one that nobody wants: it keeps a connection open."""
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)


class BoundedHttp(HttpToolsProtocol):
    """A connection that is closed when headers are too long or too slow, or a body never ends. `most` is bytes."""

    most = 16 * 1024
    among = Connections(most=1_000_000, strangers=1_000_000)
    _counted: Counted
    patience: Seconds = PATIENCE
    upload: Seconds = UPLOAD
    _size = 0
    _waits: asyncio.TimerHandle | None = None
    _whole = True
    """Whether all of the body is there."""
    _fed = False
    """Whether there was any of a body in what came last; else it is only sizes of chunks, and what follows them."""
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._counted = Counted(self, self.among)
        self.among.open(self, self.client[0] if self.client else "")
        self._expect()

    def hang_up(self) -> None:
        """Close it at once, whatever is under way."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.among.close(self)
        self._arrived()
        self._ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._waits
        self._fed = False
        super().data_received(data)
        if not self._whole and self._ends is None:
            self._ends = self.loop.call_later(self.upload, self._give_up)
        elif self._whole:
            self._ended()
        if before is not self._waits or self._fed or (self._waits is None and self._whole):
            return  # a new message began somewhere in it, or it is of a body: what follows is counted
        self._size += len(data)
        if self._size > self.most and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[CONNECTION] = self._counted
        self._expect()

    def on_header(self, name: bytes, value: bytes) -> None:
        # one that comes behind a body is let go: it would stand among those that were looked at already
        if self._waits is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._arrived()
        self._size = 0
        self._whole = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._size = 0
        self._fed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing is heard behind a call that wants to speak otherwise, so its answer is the last."""
        self.cycle.keep_alive = False

    def _expect(self) -> None:
        self._arrived()
        self._size = 0
        self._waits = self.loop.call_later(self.patience, self._give_up)

    def _arrived(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _ended(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _give_up(self) -> None:
        self._waits = self._ends = None
        if not self.transport.is_closing():
            self.transport.close()


def bounded_http(limits: Limits) -> type[BoundedHttp]:
    """The protocol for a server with these limits."""
    among = Connections(limits.open_connections, limits.stranger_connections)
    return type("BoundedHttp", (BoundedHttp,), {"most": limits.header, "among": among})
