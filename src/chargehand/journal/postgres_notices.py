"""Notifies followers of a run about entries that other processes write: one notice a commit, and a regular query.

A notice may be lost with the connection. So the last entries of the runs that are followed are also asked for, when the
connection is made and then every five seconds.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.journal.postgres_writer import CHANNEL, run_digest
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection, driver_errors, explain

logger = logging.getLogger(__name__)
_QUERY_INTERVAL: Seconds = 5.0
_LONGEST_PAUSE: Seconds = 5.0
_SEQS = "SELECT run, seq FROM runs WHERE tenant = current_tenant() AND run = ANY ($1::text[])"


class _Follower(Struct, frozen=True, eq=False):
    """A callback for entries of a run, and the event loop it is called in."""

    run: str
    on_entries: Callable[[], None]
    loop: asyncio.AbstractEventLoop


class PostgresNotices:
    """One for each opened journal. It listens from the first subscription to the end of the journal.

    `is_own` says of a process of the server whether it writes for this journal, whose entries are known here.
    """

    def __init__(self, database: PostgresDatabase, is_own: Callable[[int], bool]) -> None:
        self._database = database
        self._is_own = is_own
        self._lock = threading.Lock()
        self._followers: dict[str, set[_Follower]] = {}
        self._seqs: dict[str, int] = {}
        self._is_listening = False
        self._closed = asyncio.Event()

    def subscribe(self, run: str, on_entries: Callable[[], None]) -> Callable[[], None]:
        """Have `on_entries` called in this event loop when a run may have been written; the result ends it."""
        follower = _Follower(run, on_entries, asyncio.get_running_loop())
        with self._lock:
            self._followers.setdefault(run_digest(run), set()).add(follower)
            begins = not self._is_listening
            self._is_listening = True
        if begins:
            client_thread().spawn(self._listen())
        return partial(self._forget, follower)

    def _forget(self, follower: _Follower) -> None:
        digest = run_digest(follower.run)
        with self._lock:
            followers = self._followers.get(digest, set())
            followers.discard(follower)
            if not followers:
                self._followers.pop(digest, None)
                self._seqs.pop(follower.run, None)

    @property
    def runs(self) -> set[str]:
        """The runs that are followed."""
        with self._lock:
            return {follower.run for followers in self._followers.values() for follower in followers}

    async def close(self) -> None:
        """In the thread of all connections."""
        self._closed.set()

    async def _listen(self) -> None:
        pause = 0.1
        while not self._closed.is_set():
            connection: Connection | None = None
            try:
                connection = await self._database.connect()
                await connection.add_listener(CHANNEL, self._on_notice)
                pause = 0.1
                while not self._closed.is_set():
                    await self._query_seqs(connection)
                    await self._pause(_QUERY_INTERVAL)
            except driver_errors() as error:
                logger.info("notices of other processes are interrupted: %s", explain(error, self._database.url))
            finally:
                if connection is not None:
                    connection.terminate()
            await self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _pause(self, seconds: Seconds) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return

    async def _query_seqs(self, connection: Connection) -> None:
        """Notify the followers of runs that were written since the last query."""
        runs = list(self.runs)
        for run, seq in await connection.fetch(_SEQS, runs) if runs else ():
            if self._seqs.get(run) != seq:
                self._seqs[run] = seq
                self._notify([run_digest(run)])

    def _on_notice(self, _connection: Connection, process: int, _channel: str, payload: str) -> None:
        tenant, *digests = payload.split(" ")
        if tenant == str(self._database.tenant) and not self._is_own(process):
            self._notify(digests if digests != ["*"] else list(self._followers))

    def _notify(self, digests: Iterable[str]) -> None:
        with self._lock:
            followers = [follower for digest in digests for follower in self._followers.get(digest, ())]
        for follower in followers:
            try:
                follower.loop.call_soon_threadsafe(follower.on_entries)
            except RuntimeError:
                logger.debug("the event loop of a follower of %s is closed", follower.run)
