"""The database of a URL, as one tenant sees it: statements and transactions on a pool of connections.

It is opened once in a process and may be used from every event loop. Connections that are idle are closed, so there is
nothing to close here.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from chargehand.engine.policy import Seconds
from chargehand.errors import Refused
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.driver import (
    CONNECT_TIMEOUT,
    CommitUnknown,
    Connection,
    Pool,
    Row,
    connect,
    create_pool,
    driver_errors,
    explain,
    in_transaction,
    is_lost,
    is_repeatable,
)
from chargehand.postgres.migrations import migrate
from chargehand.store_url import PostgresUrl

Outcome = TypeVar("Outcome")

_MAX_CONNECTIONS = 8
"""Connections of a tenant in one process, besides those that write and listen."""
_IDLE_SECONDS: Seconds = 30.0
_RETRY_SECONDS: Seconds = 5.0
"""How long to try again when the connection is lost, or the server takes none."""
_FIRST_PAUSE: Seconds = 0.05
_LONGEST_PAUSE: Seconds = 0.5
# how far an index of vectors looks: `make bench-cluster` says how many of the ten nearest are found so
_SETUP = """
    SELECT set_config('search_path', 'chargehand, public', false), set_config('chargehand.tenant', $1, false),
        set_config('hnsw.ef_search', '100', false), set_config('hnsw.iterative_scan', 'strict_order', false)
"""
_TENANT = "SELECT number FROM chargehand.tenants WHERE name = $1"
_TENANTS = "SELECT name FROM chargehand.tenants ORDER BY name"
_HAS_TENANTS = "SELECT to_regclass('chargehand.tenants') IS NOT NULL"
_NEW_TENANT = "INSERT INTO chargehand.tenants (name) VALUES ($1) ON CONFLICT DO NOTHING"


class PostgresDatabase:
    """`open_database` gives one. Work is given a connection, and runs in the thread of all connections."""

    def __init__(self, url: PostgresUrl, pool: Pool, tenant: int) -> None:
        self.url = url
        self.tenant = tenant
        self._pool = pool

    async def fetch(self, query: str, *values: object) -> list[Row]:
        """The rows that a statement by itself answers with. It may be repeated if the connection is lost."""

        async def work(connection: Connection) -> list[Row]:
            return await connection.fetch(query, *values)

        return await self.use(work)

    async def use(self, work: Callable[[Connection], Awaitable[Outcome]]) -> Outcome:
        """The work's outcome, each statement by itself. All of it may be repeated if the connection is lost."""
        return await client_thread().run(self._retry(partial(self._use, work)))

    async def read(self, work: Callable[[Connection], Awaitable[Outcome]]) -> Outcome:
        """The work's outcome; all its statements read one snapshot."""
        attempt = partial(self._transact, work, isolation="repeatable_read", readonly=True)
        return await client_thread().run(self._retry(attempt))

    async def write(self, work: Callable[[Connection], Awaitable[Outcome]], *, idempotent: bool = False) -> Outcome:
        """The work's outcome, once it is durable. It is done again if it was undone by the server or a lost connection.

        An error that the work raises undoes it. Idempotent work, which comes to the same if it was done before, is also
        done again when it is unknown whether it was committed.
        """
        return await client_thread().run(self._retry(partial(self._transact, work), idempotent=idempotent))

    async def connect(self) -> Connection:
        """A connection outside the pool, for long use. Only for work that runs in the thread of all connections."""
        connection = await connect(self.url)
        try:
            await setup(connection, self.tenant)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _use(self, work: Callable[[Connection], Awaitable[Outcome]]) -> Outcome:
        async with self._connection() as connection:
            return await work(connection)

    async def _transact(
        self,
        work: Callable[[Connection], Awaitable[Outcome]],
        isolation: str | None = None,
        *,
        readonly: bool = False,
    ) -> Outcome:
        async with (
            self._connection() as connection,
            in_transaction(connection, isolation=isolation, readonly=readonly),
        ):
            return await work(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        async with self._pool.acquire(timeout=CONNECT_TIMEOUT) as connection:
            try:
                yield connection
            except driver_errors() as error:
                if is_lost(error):
                    connection.terminate()  # it must not be used again
                raise

    async def _retry(self, attempt: Callable[[], Awaitable[Outcome]], *, idempotent: bool = False) -> Outcome:
        loop = asyncio.get_running_loop()
        until = loop.time() + _RETRY_SECONDS
        pause = _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except (CommitUnknown, *driver_errors()) as error:
                may_repeat = is_repeatable(error) or (idempotent and isinstance(error, CommitUnknown))
                if not may_repeat or loop.time() > until:
                    raise explain(error, self.url) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def setup(connection: Connection, tenant: int) -> None:
    """Bind a connection to a tenant: row level security shows it nothing else."""
    await connection.fetchval(_SETUP, str(tenant))


# --- opening


_DATABASES: dict[PostgresUrl, PostgresDatabase] = {}
"""By URL. Only the thread of all connections uses it."""
os.register_at_fork(after_in_child=_DATABASES.clear)  # connections of the parent are worth nothing in a child


async def open_database(url: PostgresUrl, *, create: bool = True) -> PostgresDatabase:
    """The database of a URL with its schema and tenant; Refused where they are missing and not to be created."""
    return await client_thread().run(_open(url, create=create))


async def _open(url: PostgresUrl, *, create: bool) -> PostgresDatabase:
    if url not in _DATABASES:
        try:
            connection = await connect(url)
        except Exception as error:
            if isinstance(error, driver_errors()):
                raise explain(error, url) from error
            raise
        try:
            await migrate(connection, url, create=create)
            tenant = await _tenant(connection, url, create=create)
        except driver_errors() as error:
            raise explain(error, url) from error
        finally:
            connection.terminate()
        pool = await create_pool(url, partial(_setup, tenant), most=_MAX_CONNECTIONS, idle=_IDLE_SECONDS)
        _DATABASES.setdefault(url, PostgresDatabase(url, pool, tenant))
    return _DATABASES[url]


async def list_tenants(url: PostgresUrl) -> list[str]:
    """The names of all tenants of a database, whatever the tenant of the URL; none where there is no schema yet."""
    return await client_thread().run(_list_tenants(url))


async def _list_tenants(url: PostgresUrl) -> list[str]:
    try:
        connection = await connect(url)
        try:
            if not await connection.fetchval(_HAS_TENANTS):
                return []
            return [row[0] for row in await connection.fetch(_TENANTS)]
        finally:
            connection.terminate()
    except driver_errors() as error:
        raise explain(error, url) from error


async def _setup(tenant: int, connection: Connection) -> None:
    await setup(connection, tenant)


async def _tenant(connection: Connection, url: PostgresUrl, *, create: bool) -> int:
    number = await connection.fetchval(_TENANT, url.tenant)
    if number is None:
        if not create:
            raise Refused(f"there is no tenant {url.tenant!r} in {url.place} yet; run something first, or name another")
        await connection.execute(_NEW_TENANT, url.tenant)
        number = await connection.fetchval(_TENANT, url.tenant)
    return int(number)
