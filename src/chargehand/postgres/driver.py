"""asyncpg as far as it is used here: typed connections and pools, and explained errors."""

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from chargehand.engine.policy import Seconds
from chargehand.errors import StoreError, StoreUnavailable
from chargehand.extras import OfExtra
from chargehand.store_url import PostgresUrl

if TYPE_CHECKING:
    from types import ModuleType

Row: TypeAlias = Sequence[Any]
"""A row of an answer, by position."""
NoticeListener: TypeAlias = "Callable[[Connection, int, str, str], None]"
"""Called for a notification with the connection, the process that sent it, the channel, the payload."""
Setup: TypeAlias = "Callable[[Connection], Awaitable[None]]"

CONNECT_TIMEOUT: Seconds = 10.0
"""How long a server may take to accept a connection."""
STATEMENT_TIMEOUT: Seconds = 60.0
"""How long it may take to answer a statement."""
OLDEST_SERVER = 15
"""The oldest major version of the server that is supported."""
_SETTINGS = {
    "application_name": "chargehand",
    "jit": "off",
    # a client whose host is gone must not keep its locks for hours
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Transaction(Protocol):
    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class Connection(Protocol):
    """The methods of asyncpg's connections that are used here."""

    async def execute(self, query: str, *values: object, timeout: float | None = None) -> str: ...  # noqa: ASYNC109 - as below
    async def executemany(self, query: str, values: Sequence[Sequence[object]]) -> None: ...
    async def fetch(self, query: str, *values: object) -> list[Row]: ...
    async def fetchrow(self, query: str, *values: object) -> Row | None: ...
    async def fetchval(self, query: str, *values: object) -> Any: ...
    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> Transaction: ...
    async def add_listener(self, channel: str, callback: NoticeListener) -> None: ...
    def is_closed(self) -> bool: ...
    def get_server_pid(self) -> int: ...
    def get_server_version(self) -> tuple[Any, ...]: ...
    async def close(self, *, timeout: float | None = None) -> None: ...  # noqa: ASYNC109 - its own signature
    def terminate(self) -> None: ...


class Pool(Protocol):
    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Connection]: ...


def _asyncpg() -> "ModuleType":
    with OfExtra("PostgreSQL", "cluster"):
        import asyncpg  # noqa: PLC0415 - an extra  # pyright: ignore[reportMissingTypeStubs] - it has none
    return asyncpg


async def connect(url: PostgresUrl) -> Connection:
    """One connection, outside of any pool. Raises what `explain` explains."""
    connection = await _asyncpg().connect(
        url.dsn, timeout=CONNECT_TIMEOUT, command_timeout=STATEMENT_TIMEOUT, server_settings=_SETTINGS
    )
    return cast("Connection", connection)


async def create_pool(url: PostgresUrl, setup: Setup, *, most: int, idle: Seconds) -> Pool:
    """A pool that opens connections as they are needed, each prepared by `setup`, and closes those that are idle."""

    async def keep(_connection: Connection) -> None:
        """Nothing is set in a session but by `setup`, so there is nothing to reset."""

    pool = await _asyncpg().create_pool(
        url.dsn,
        min_size=0,
        max_size=most,
        max_inactive_connection_lifetime=idle,
        init=setup,
        reset=keep,
        timeout=CONNECT_TIMEOUT,
        command_timeout=STATEMENT_TIMEOUT,
        server_settings=_SETTINGS,
    )
    return cast("Pool", pool)


@asynccontextmanager
async def in_transaction(
    connection: Connection, *, isolation: str | None = None, readonly: bool = False
) -> AsyncGenerator[None]:
    """Commit at the end, roll back after an error. CommitUnknown if the connection is lost meanwhile."""
    transaction = connection.transaction(isolation=isolation, readonly=readonly)
    await transaction.start()
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await transaction.rollback()
        raise
    try:
        await transaction.commit()
    except Exception as error:
        if not readonly and is_lost(error):
            raise CommitUnknown(str(error)) from error
        raise


# --- errors


class CommitUnknown(Exception):
    """The connection was lost while a transaction was committed."""


_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "53300"})
_REPEATABLE = frozenset({"40001", "40P01"})
_EXPLANATIONS = {
    "28": "it refuses the user ({error}); check user and password in the URL, or PGUSER and PGPASSWORD",
    "3D": "{error}; create it: createdb {database}",
    "53100": "the disk of the server is full; free some space",
    "53": "{error}; raise max_connections of the server, or close other clients",
    "25006": "it is read-only; name the primary server, not a standby",
    "42501": "{error}; make the user the owner of the database, or grant it",
    "57": "{error}; wait until the server is up again",
    "08": "{error}; check that the server runs and can be reached",
}


def driver_errors() -> tuple[type[Exception], ...]:
    """What using a connection raises; asyncpg is there, else there would be no connection."""
    asyncpg = _asyncpg()
    # InternalClientError: a connection that was cut may be left in the middle of a statement
    errors = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
    return cast("tuple[type[Exception], ...]", errors)


def _state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, or the server takes none just now: another try may succeed."""
    asyncpg = _asyncpg()
    if isinstance(error, asyncpg.DataError | asyncpg.ClientConfigurationError):
        return False
    gone = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError)
    if isinstance(error, gone):
        return not isinstance(error, TimeoutError)
    return _state(error) in _LOST


def is_repeatable(error: BaseException) -> bool:
    """Whether the transaction was undone for a temporary reason."""
    return is_lost(error) or _state(error) in _REPEATABLE


def explain(error: BaseException, url: PostgresUrl) -> StoreError:
    """The error of the driver as one that says what failed and what to do."""
    explained = _explained(error, url)
    explained.__cause__ = error
    return explained


def _explained(error: BaseException, url: PostgresUrl) -> StoreError:
    if isinstance(error, CommitUnknown):
        return StoreUnavailable(
            f"the connection to {url} was lost during a commit ({error}): look whether it was written, then try again"
        )
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{url} did not answer in time; check the server and the network, and try again")
    state = _state(error)
    for prefix in (state, state[:2]):
        if prefix in _EXPLANATIONS:
            database = shlex.quote(unquote(urlsplit(url.place).path.strip("/")) or "NAME")
            explanation = _EXPLANATIONS[prefix].format(error=error, database=database)
            return StoreUnavailable(f"{url} cannot be used: {explanation}. Nothing was lost")
    if is_lost(error):
        return StoreUnavailable(
            f"{url} cannot be reached: {error}; check that the server runs there, and try again. Nothing was lost"
        )
    return StoreError(f"{url} could not take what it was given: {error}")
