"""One connection for all notifications of an opened journal.

A notification may be lost with the connection. So each channel also asks for what it may have missed, when the
connection is made and then every five seconds.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection, driver_errors, explain

logger = logging.getLogger(__name__)
QUERY_INTERVAL: Seconds = 5.0
_LONGEST_PAUSE: Seconds = 5.0


class Channel(Protocol):
    """What listens on one channel. Both methods run in the thread of all connections."""

    @property
    def name(self) -> str: ...

    def on_notice(self, keys: Sequence[str], process: int) -> None:
        """Told the keys of a notification for this tenant, and the process of the server that sent it."""
        ...

    async def query(self, connection: Connection) -> None:
        """Ask for what a lost notification would have told."""
        ...


class PostgresListener:
    """One for each opened journal. It listens from the first `start` to the end of the journal."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._channels: list[Channel] = []
        self._lock = threading.Lock()
        self._is_listening = False
        self._heard = 0.0
        self._closed = asyncio.Event()

    def add(self, channel: Channel) -> None:
        """Before the first `start`."""
        self._channels.append(channel)

    @property
    def lag(self) -> Seconds:
        """For how long the connection has not answered; 0 before the first `start`."""
        return time.monotonic() - self._heard if self._is_listening else 0.0

    def start(self) -> None:
        """From any thread; nothing if it listens already."""
        with self._lock:
            begins = not self._is_listening
            if begins:
                self._heard = time.monotonic()
            self._is_listening = True
        if begins:
            client_thread().spawn(self._listen())

    async def close(self) -> None:
        """In the thread of all connections."""
        self._closed.set()

    async def _listen(self) -> None:
        pause = 0.1
        while not self._closed.is_set():
            connection: Connection | None = None
            try:
                connection = await self._database.connect()
                for channel in self._channels:
                    await connection.add_listener(channel.name, partial(self._on_notice, channel))
                pause = 0.1
                while not self._closed.is_set():
                    for channel in self._channels:
                        await channel.query(connection)
                    self._heard = time.monotonic()
                    await self._pause(QUERY_INTERVAL)
            except driver_errors() as error:
                logger.info("notices of other processes are interrupted: %s", explain(error, self._database.url))
            finally:
                if connection is not None:
                    connection.terminate()
            await self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _on_notice(self, channel: Channel, _connection: Connection, process: int, _name: str, payload: str) -> None:
        tenant, *keys = payload.split(" ")
        if tenant == str(self._database.tenant):
            channel.on_notice(keys, process=process)

    async def _pause(self, seconds: Seconds) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return


class _Follower(Struct, frozen=True, eq=False):
    """A callback, what it is called about, and the event loop it is called in."""

    topic: str
    call: Callable[[], None]
    loop: asyncio.AbstractEventLoop


class Followers:
    """Callbacks by the keys that notifications have; `topic` is what a key stands for. From any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, set[_Follower]] = {}

    def add(self, key: str, topic: str, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` called in this event loop when its key is notified; the result ends it."""
        follower = _Follower(topic, call, asyncio.get_running_loop())
        with self._lock:
            self._by_key.setdefault(key, set()).add(follower)
        return partial(self._remove, key, follower)

    def _remove(self, key: str, follower: _Follower) -> None:
        with self._lock:
            followers = self._by_key.get(key, set())
            followers.discard(follower)
            if not followers:
                self._by_key.pop(key, None)

    @property
    def topics(self) -> set[str]:
        with self._lock:
            return {follower.topic for followers in self._by_key.values() for follower in followers}

    @property
    def keys(self) -> list[str]:
        with self._lock:
            return list(self._by_key)

    def notify(self, keys: Iterable[str]) -> None:
        with self._lock:
            followers = [follower for key in keys for follower in self._by_key.get(key, ())]
        for follower in followers:
            try:
                follower.loop.call_soon_threadsafe(follower.call)
            except RuntimeError:
                logger.debug("the event loop of a follower of %s is closed", follower.topic)
