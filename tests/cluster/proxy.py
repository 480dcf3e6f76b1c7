"""A TCP proxy that stands for the network between two processes: it can lose, stall and cut what it carries."""

import asyncio
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["there", "back", "both"]
_CHUNK = 65536


class TcpProxy:
    """Listens on `port` of this machine, or on a socket that there is, and passes on to an address or a Unix socket."""

    def __init__(self, upstream: tuple[str, int] | Path, listening: socket.socket | None = None) -> None:
        self._upstream = upstream
        self._listening = listening or socket.create_server(("127.0.0.1", 0), backlog=256)
        host, self.port = self._listening.getsockname()
        self.address = f"{host}:{self.port}"
        self._seconds = 0.0
        self._connections: set[StreamWriter] = set()
        self._open = {"there": asyncio.Event(), "back": asyncio.Event()}
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    # --- called from tests

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)

    def lose(self, direction: Direction = "both") -> None:
        """Carry nothing: connections stay open and are silent, as when a cable is pulled. `heal` ends it."""
        for name, carried in self._open.items():
            if direction in (name, "both"):
                self._call(carried.clear)

    def stall(self, seconds: float) -> None:
        """Carry everything so much later."""
        self._seconds = seconds

    def reset(self) -> None:
        """Cut every connection; new ones are accepted."""
        self._call(self._reset)

    def heal(self) -> None:
        """Carry everything at once again."""
        self._seconds = 0.0
        self._call(self._carry_all)

    def stop(self) -> None:
        self._call(self._stopped.set)
        self._thread.join(10)

    def _call(self, function: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    # --- in its own thread

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._carry_all()
        server = await asyncio.start_server(self._carry, sock=self._listening)
        self._started.set()
        async with server:
            await self._stopped.wait()
        self._carry_all()
        while self._connections:
            self._reset()
            await asyncio.sleep(0.01)

    def _carry_all(self) -> None:
        for carried in self._open.values():
            carried.set()

    def _reset(self) -> None:
        for writer in self._connections:
            with suppress(OSError):
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            writer.transport.abort()

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._open["there"].wait()  # a connection that is not answered, as on a dead line
            upstream_reader, upstream_writer = await self._connect()
        except OSError:
            self._connections.discard(writer)
            writer.transport.abort()
            return
        ends = {writer, upstream_writer}
        self._connections |= ends
        try:
            await _first_of(
                self._pump(reader, upstream_writer, self._open["there"]),
                self._pump(upstream_reader, writer, self._open["back"]),
            )
        finally:
            self._connections -= ends
            for end in ends:
                end.close()

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        if isinstance(self._upstream, Path):
            return await asyncio.open_unix_connection(self._upstream)
        return await asyncio.open_connection(*self._upstream)

    async def _pump(self, reader: StreamReader, writer: StreamWriter, carried: asyncio.Event) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if self._seconds:
                    await asyncio.sleep(self._seconds)
                await carried.wait()
                writer.write(chunk)
                await writer.drain()


async def _first_of(*work: Coroutine[None, None, None]) -> None:
    """Wait until one of them is over, and stop the others."""
    async with asyncio.TaskGroup() as jobs:
        tasks = [jobs.create_task(one) for one in work]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


@contextmanager
def tcp_proxy(upstream: tuple[str, int] | Path, listening: socket.socket | None = None) -> Generator[TcpProxy]:
    proxy = TcpProxy(upstream, listening)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
