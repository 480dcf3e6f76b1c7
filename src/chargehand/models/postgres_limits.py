"""Shares of a provider's limits in a database, for all processes that use it. The rules are in the schema.

A process has one connection for this. An advisory lock on it tells others that the process lives: when the connection
is gone, the shares of the process are free.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from chargehand.errors import StoreError, StoreUnavailable
from chargehand.models.limits import Pace
from chargehand.models.shared_limits import LimitDemand, LimitGrant
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import Connection, driver_errors, explain
from chargehand.store_url import PostgresUrl

_CHANNEL = "chargehand_limits"
_ALIVE = 1667787629
"""Of the advisory locks of living processes, as in the schema."""
_EXCHANGE = """
    SELECT slots, fair, round, slowed, pause, requests, tokens, wait
    FROM exchange_limits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""


class PostgresLimits:
    """What all limiters of this process share: a connection, and the callbacks for changes."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._members = count(1)
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._connection: Connection | None = None
        self._gate = asyncio.Lock()
        self.session = 0

    def join(self, credential: str, pace: Pace, changed: Callable[[], None]) -> "PostgresLimitMember":
        """Add a limiter."""
        self._listeners.setdefault(credential, []).append(changed)
        return PostgresLimitMember(self, credential, pace, changed, next(self._members))

    def forget(self, credential: str, changed: Callable[[], None]) -> None:
        """Remove the callback of a limiter."""
        self._listeners[credential].remove(changed)

    async def exchange(self, values: Callable[[int], tuple[object, ...]]) -> LimitGrant:
        """Ask once. `values` makes the parameters for the session of this process."""
        async with self._gate:
            try:
                connection = await self._connected()
                row = await connection.fetchrow(_EXCHANGE, *values(self.session))
            except driver_errors() as error:
                self._drop()
                raise explain(error, self._url) from error
        assert row is not None, "the function always answers"
        slots, fair, in_round, slowed, pause, requests, tokens, wait = row
        return LimitGrant(
            slots=slots,
            fair=fair,
            round=in_round,
            slowed=slowed,
            pause=pause,
            requests=requests,
            tokens=tokens,
            wait=wait,
        )

    async def _connected(self) -> Connection:
        """The connection of this process, with a session of its own if it is new."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        database = await open_database(self._url)
        connection = await database.connect()
        self._connection = connection
        self.session = await connection.fetchval("SELECT nextval('limit_sessions')::int")
        await connection.execute("SELECT pg_advisory_lock($1, $2)", _ALIVE, self.session)
        await connection.add_listener(_CHANNEL, self._notified)
        return connection

    def close(self) -> None:
        """Give up the connection, and with it all shares."""
        client_thread().loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def _notified(self, _connection: Connection, _sender: int, _channel: str, credential: str) -> None:
        for changed in tuple(self._listeners.get(credential, ())):
            changed()


class PostgresLimitMember:
    """One limiter of this process, for one credential."""

    def __init__(
        self, limits: PostgresLimits, credential: str, pace: Pace, changed: Callable[[], None], number: int
    ) -> None:
        self._limits = limits
        self._credential = credential
        self._pace = pace
        self._changed = changed
        self._number = number
        self._session = 0

    def exchange(self, demand: LimitDemand, then: Callable[[LimitGrant | StoreError], None]) -> None:
        """Send a demand. The answer comes in the thread of all connections."""
        client_thread().spawn(self._exchange(demand, then))

    def leave(self) -> None:
        """Give back the whole share."""
        self._limits.forget(self._credential, self._changed)
        self.exchange(LimitDemand(slots=0), lambda _answer: None)

    async def _exchange(self, demand: LimitDemand, then: Callable[[LimitGrant | StoreError], None]) -> None:
        try:
            then(await self._limits.exchange(lambda session: self._values(session, demand)))
        except StoreError as error:
            then(error)

    def _values(self, session: int, demand: LimitDemand) -> tuple[object, ...]:
        if self._session not in (0, session) and demand.slots > demand.active:
            self._session = session
            raise StoreUnavailable("the connection was lost, and others may have the share by now")
        self._session = session
        pace = self._pace
        return (
            self._credential,
            session,
            self._number,
            max(1, pace.concurrency),
            pace.requests_per_minute,
            pace.tokens_per_minute,
            pace.recover,
            demand.slots,
            demand.active,
            demand.waiting,
            demand.requests,
            demand.tokens,
            demand.first_tokens,
            demand.excess_tokens,
            demand.refused_round,
            demand.succeeded,
            demand.hold,
        )


_LIMITS: dict[str, PostgresLimits] = {}


def postgres_limits(url: PostgresUrl) -> PostgresLimits:
    """The limits in a database. Tenants share the limits of their providers."""
    return _LIMITS.setdefault(url.dsn, PostgresLimits(url))
