"""Heartbeats of jobs that go on while something blocks the event loop, from a thread of their own.

A worker's code, or a large library that is imported, may block the loop for longer than the engine is patient. The
process lives all the same: taking its runs away would repeat their calls.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from chargehand.engine.policy import Seconds

logger = logging.getLogger(__name__)
HUNG: Seconds = 300.0
"""A loop that is blocked for so long will not come back: others take the runs of its process."""
Beat: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Tells the engine that the job of this token is alive."""


class Heartbeats:
    """Steps in when the event loop is late. `open_beat` is called in the thread: its result belongs to that loop."""

    def __init__(self, open_beat: Callable[[], Awaitable[Beat]], *, pulse: Seconds) -> None:
        self._open_beat = open_beat
        self._pulse = pulse
        self._tokens: set[bytes] = set()
        self._seen = time.monotonic()
        self._over = threading.Event()

    def add(self, token: bytes) -> None:
        self._tokens.add(token)

    def discard(self, token: bytes) -> None:
        self._tokens.discard(token)

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """While it is open, a blocked event loop does not count as a dead process."""
        thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        ticking = asyncio.get_running_loop().create_task(self._tick())
        thread.start()
        try:
            yield
        finally:
            ticking.cancel()
            self._over.set()

    async def _tick(self) -> None:
        while True:
            self._seen = time.monotonic()
            await asyncio.sleep(self._pulse / 2)

    def _run(self) -> None:
        """In the thread."""
        asyncio.run(self._step_in())

    async def _step_in(self) -> None:
        beat: Beat | None = None
        while not self._over.is_set():
            await asyncio.sleep(self._pulse)
            blocked = time.monotonic() - self._seen
            try:
                beat = beat or await self._open_beat()
                if self._pulse < blocked < HUNG:
                    for token in tuple(self._tokens):
                        await beat(token)
            except Exception as error:  # noqa: BLE001 - the next pulse tries again
                logger.info("no heartbeat can be sent for a blocked event loop: %s", error)
