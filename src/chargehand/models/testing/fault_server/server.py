"""Listens on this machine, finds out which fault is asked for, and plays it. `faults` has the table of them."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

import msgspec

from chargehand.errors import Invalid
from chargehand.models.testing.fault_server.connection import HEAD_LIMIT, BadRequest, Connection, Exchange, Head
from chargehand.models.testing.fault_server.faults import ELSEWHERE, MODES, PLAYS
from chargehand.models.testing.fault_server.protocols import (
    MODEL,
    ChatProtocol,
    Json,
    MessagesProtocol,
    WireProtocol,
    dump,
    echo,
)

_PROTOCOLS: dict[str, WireProtocol] = {"/chat/completions": ChatProtocol(), "/messages": MessagesProtocol()}


class FaultServer:
    """The fault is named by the path (`/fault/<mode>/v1/...`), else by the header `x-fault`, else it is `mode`.

    `requests` counts what came in, by mode.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", mode: str = "ok") -> None:
        if mode not in MODES:
            raise Invalid(f"there is no fault mode {mode!r}; there are: {', '.join(MODES)}")
        self.requests: Counter[str] = Counter()
        self.host = host
        self.port = port
        self._mode = mode
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=HEAD_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url(self, mode: str = "ok") -> str:
        """The base address of a provider that has this fault."""
        if mode not in MODES:
            raise Invalid(f"there is no fault mode {mode!r}; there are: {', '.join(MODES)}")
        return f"{self.origin}/fault/{mode}/v1"

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        connection = Connection(reader, writer)
        try:
            while await self._turn(connection):
                connection.is_reusable = False
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, which is what many faults make it do
        except asyncio.CancelledError:
            pass  # the server is being closed, and no task waits for this connection
        finally:
            self._calls.discard(call)
            connection.close()

    async def _turn(self, connection: Connection) -> bool:
        """One request; whether another may follow on this connection."""
        try:
            head = await connection.read_head()
            if head is None:
                return False
            body = await connection.read_body(head)
        except BadRequest as error:
            await connection.send_whole(dump({"error": {"message": str(error)}}), 400)
            return False
        if head.method == "GET":
            await connection.send_whole(dump(self._about(head.path)))
        else:
            await self._post(connection, head, body)
        return connection.is_reusable

    def _about(self, path: str) -> Json:
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        return {"modes": MODES, "requests": dict(self.requests)}

    async def _post(self, connection: Connection, head: Head, body: bytes) -> None:
        path = head.path.partition("?")[0]
        protocol = next((protocol for end, protocol in _PROTOCOLS.items() if path.endswith(end)), None)
        mode = self._chosen(path, head)
        if protocol is None or mode not in PLAYS:
            hint = f"nothing at {path!r}: POST to /fault/<mode>/v1/chat/completions or /fault/<mode>/v1/messages"
            return await connection.send_whole(dump({"error": {"message": hint, "modes": list(MODES)}}), 404)
        self.requests[mode] += 1
        try:
            decoded = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            return await connection.send_whole(dump(protocol.error(400, f"the request is not JSON: {error}")), 400)
        if not isinstance(decoded, dict):
            return await connection.send_whole(dump(protocol.error(400, "the request is not an object")), 400)
        fields = cast("Json", decoded)
        exchange = Exchange(
            connection=connection,
            protocol=protocol,
            reply=echo(fields),
            stream=fields.get("stream") is True,
            number=self.requests[mode],
            origin=self.origin,
        )
        return await PLAYS[mode](exchange)

    def _chosen(self, path: str, head: Head) -> str:
        parts = path.split("/")
        if parts[1] == ELSEWHERE:
            return ELSEWHERE
        if parts[1] == "fault" and len(parts) > 2:
            return parts[2]
        return head.headers.get("x-fault") or self._mode


async def serve(
    host: str = "127.0.0.1", port: int = 8787, mode: str = "ok", ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancelled. `ready` is told the address once the server listens."""
    async with FaultServer(port, host, mode) as server:
        if ready is not None:
            ready(server.origin)
        await asyncio.Event().wait()
