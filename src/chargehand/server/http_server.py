"""The HTTP server: uvicorn, stopped by an event. As it comes, it looks ten times a second whether it has to stop."""

import asyncio
import logging
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

_POLL = 0.01
"""Seconds between two looks whether the last reply is sent, once it stops."""

logger = logging.getLogger(__name__)


class HttpServer(uvicorn.Server):
    """Calls `ready` once it listens, and serves until `stop`.

    It leaves signals alone: on its own it would end before runs have.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._is_stopped = asyncio.Event()

    def stop(self) -> None:
        """Take no more connections, and end once replies that are under way are sent."""
        self.should_exit = True
        self._is_stopped.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # sets the headers of every reply
        await self._is_stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._wait_for_replies()
        except TimeoutError:
            tasks = list(self.server_state.tasks)
            logger.warning("%d replies were cut off: they took too long", len(tasks))
            for task in tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()

    async def _wait_for_replies(self) -> None:
        state = self.server_state
        while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(_POLL)
        if not self.force_exit:
            for server in self.servers:
                await server.wait_closed()
