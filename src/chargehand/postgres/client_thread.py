"""The event loop on which all connections of a process live, in a thread of its own.

A connection belongs to an event loop, but stores are used from many: a team's, a server's, and by commands that have
none. Here heartbeats also go on while other code blocks its loop.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from chargehand.concurrency import log_errors
from chargehand.engine.policy import Seconds

Outcome = TypeVar("Outcome")
_EXIT_TIMEOUT: Seconds = 2.0


class ClientThread:
    """Started by its first use; it ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._jobs: asyncio.TaskGroup
        self._over: asyncio.Event
        self._background: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome of work that uses connections. Cancelling the wait cancels the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def wait(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The same for code without an event loop. Blocks."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work in the background, until it returns or the process ends."""
        self.loop.call_soon_threadsafe(self._spawn, work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = self._jobs.create_task(_guard(work))
        self._background.add(job)
        job.add_done_callback(self._background.discard)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None:
                started = threading.Event()
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._serve(started)), name="chargehand-postgres", daemon=True
                )
                self._thread.start()
                started.wait()
                atexit.register(self._leave)
            return self._loop

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        async with asyncio.TaskGroup() as self._jobs:
            started.set()
            await self._over.wait()
            for job in tuple(self._background):
                job.cancel()

    def _leave(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_EXIT_TIMEOUT)


async def _guard(work: Coroutine[Any, Any, None]) -> None:
    with log_errors("background work of a store ended with an error"):
        await work


_THREADS: list[ClientThread] = [ClientThread()]


def client_thread() -> ClientThread:
    """The one of this process."""
    return _THREADS[0]


def _forget() -> None:
    """After a fork: threads and connections of the parent are worth nothing here."""
    _THREADS[0] = ClientThread()


os.register_at_fork(after_in_child=_forget)
