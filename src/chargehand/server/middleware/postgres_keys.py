"""Keys in a database of PostgreSQL, kept in memory by every server that uses it.

A server is told of changes by LISTEN, and reads the keys every two seconds besides: the connection that listens may be
lost without notice. Keys that could not be read for five seconds are good for nothing.
"""

import asyncio
import logging
import time
from contextlib import suppress

from msgspec import structs

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import StoreError, StoreUnavailable
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import Connection, Row, driver_errors
from chargehand.server.middleware.keys import ApiKey
from chargehand.store_url import PostgresUrl

OLDEST: Seconds = 5.0
"""How long keys are good for that cannot be read again."""
_TRY_EVERY: Seconds = 0.5
_CHANNEL = "chargehand_keys"
_ALL = "SELECT id, digest, tenant, name, scope, created, expires, revoked FROM keys ORDER BY created, id"
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', '')"
_ADD = "INSERT INTO keys VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
_REVOKE = "UPDATE keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL"

logger = logging.getLogger(__name__)


class PostgresKeys:
    """The keys of all tenants of a database. Who asks for the version is kept up to date from then on."""

    def __init__(self, url: PostgresUrl, *, look_every: Seconds = 2.0) -> None:
        """Read the keys. They are read again every `look_every` seconds, should a notification be lost."""
        self._url = url
        self._look_every = look_every
        self._keys: list[ApiKey] = []
        self._version = 0
        self._read_at: Seconds = 0.0
        self._is_watched = False
        self._is_failing = False
        self._is_closed = False
        self._changed: asyncio.Event
        self._database = client_thread().wait(open_database(url))
        client_thread().wait(self._read_all())

    def close(self) -> None:
        self._is_closed = True
        if self._is_watched:
            client_thread().loop.call_soon_threadsafe(self._changed.set)

    def version(self) -> int:
        if not self._is_watched:
            self._is_watched = True
            client_thread().wait(self._begin())
        if time.monotonic() - self._read_at > OLDEST:
            raise StoreUnavailable(f"the keys in {self._url} could not be read for {OLDEST:.0f} s; check the server")
        return self._version

    def all(self) -> list[ApiKey]:
        return self._keys

    def add(self, key: ApiKey) -> None:
        self._write(_ADD, *structs.astuple(key))

    def revoke(self, which: str, now: Instant) -> None:
        self._write(_REVOKE, which, now)

    def _write(self, statement: str, *values: object) -> None:
        async def work(db: Connection) -> None:
            await db.execute(statement, *values)
            await db.fetchval(_NOTIFY)

        async def write_and_read() -> None:
            await self._database.write(work)
            await self._read_all()

        client_thread().wait(write_and_read())

    async def _read_all(self) -> None:
        began = time.monotonic()
        self._set(await self._database.fetch(_ALL), began)

    def _set(self, rows: list[Row], began: Seconds) -> None:
        if began < self._read_at:  # what was read later is known already
            return
        keys = [ApiKey(*row) for row in rows]
        if keys != self._keys:
            self._keys = keys
            self._version += 1
        self._read_at = began

    # --- in the thread of all connections

    async def _begin(self) -> None:
        self._changed = asyncio.Event()
        client_thread().spawn(self._watch())

    async def _watch(self) -> None:
        """Read the keys whenever they have changed, until closed."""
        while not self._is_closed:
            try:
                await self._listen()
            except (StoreError, *driver_errors()) as error:
                if not self._is_failing:
                    logger.warning("the keys in %s cannot be read, trying again: %s", self._url, error)
                self._is_failing = True
                await asyncio.sleep(_TRY_EVERY)

    def _on_change(self, _connection: Connection, _process: int, _channel: str, _payload: str) -> None:
        self._changed.set()

    async def _listen(self) -> None:
        connection = await self._database.connect()
        try:
            await connection.add_listener(_CHANNEL, self._on_change)
            while not self._is_closed:
                self._changed.clear()
                began = time.monotonic()
                self._set(await connection.fetch(_ALL), began)
                self._is_failing = False
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_every):
                        await self._changed.wait()
        finally:
            connection.terminate()
