"""How the processes that share a database stand, over all tenants: runs that wait for a process, open commands, clocks.

For operators: `/metrics` of the first tenant and `chargehand doctor --cluster`.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.journal.postgres_writer import LIVING
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import setup
from chargehand.postgres.driver import Connection, connect, driver_errors, explain
from chargehand.postgres.migrations import scripts
from chargehand.store_url import PostgresUrl

_Answer = TypeVar("_Answer")
_MAX_UNDRIVEN = 20
_TENANTS = "SELECT number, name FROM chargehand.tenants ORDER BY number"
_QUEUES = f"""
    WITH living AS MATERIALIZED ({LIVING}), open_runs AS (
        SELECT queue, coalesce(owner IN (SELECT number FROM living), false) AS is_driven,
            (SELECT at FROM entries WHERE entries.run = runs.number AND entries.seq = runs.seq) AS changed
        FROM runs WHERE tenant = current_tenant() AND NOT ended AND NOT parked AND seq > 0
    )
    SELECT queue, count(*) FILTER (WHERE is_driven), count(*) FILTER (WHERE NOT is_driven),
        coalesce(max(extract(epoch FROM clock_timestamp()) - changed) FILTER (WHERE NOT is_driven), 0)::float8
    FROM open_runs GROUP BY queue
"""  # noqa: S608 - of our own words
_UNDRIVEN = f"""
    SELECT run, queue FROM runs
    WHERE tenant = current_tenant() AND NOT ended AND NOT parked AND seq > 0 AND coalesce(owner NOT IN ({LIVING}), true)
    ORDER BY number LIMIT $1
"""  # noqa: S608 - of our own words
_LIVING_PROCESSES = f"SELECT pid, host FROM owners WHERE number IN ({LIVING})"  # noqa: S608 - as above
_COMMANDS = """
    SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - at)), 0)::float8
    FROM commands JOIN runs ON runs.number = commands.run
    WHERE commands.tenant = current_tenant() AND settled IS NULL AND NOT ended
"""
_SCHEMA = "SELECT to_regclass('chargehand.schema') IS NOT NULL"
_ROLE = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
_VECTOR = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


class QueueBacklog(Struct):
    """The open runs of one queue that need no person. Runs without a queue belong to the process that began them."""

    driven: int = 0
    undriven: int = 0
    """Runs that no living process drives."""
    seconds: Seconds = 0.0
    """How long ago the oldest of those was written to."""


class WaitingRun(Struct, frozen=True):
    """An open run that no process drives."""

    tenant: str
    run: str
    queue: str


class LivingProcess(Struct, frozen=True):
    """A process that has the database open."""

    pid: int
    host: str


class Backlog(Struct):
    """What waits, over all tenants."""

    tenants: int = 0
    queues: dict[str, QueueBacklog] = {}
    commands: int = 0
    """Commands that no process has carried out or refused yet."""
    command_seconds: Seconds = 0.0
    """The age of the oldest of them."""
    undriven: list[WaitingRun] = []
    """Some of the runs that no process drives."""
    processes: set[LivingProcess] = set()
    """Those that live."""


class DatabaseStatus(Struct, frozen=True):
    """The database itself."""

    version: str
    """Of PostgreSQL."""
    schema: int
    """The version of our tables; 0 where there are none."""
    latest_schema: int
    """The version that this chargehand would make them."""
    sees_all_tenants: bool
    """The role ignores row level security."""
    vector: str
    """The version of pgvector; empty where it is not installed."""
    clock_skew: Seconds
    """How far the clock of the database is ahead of ours."""


async def read_backlog(url: PostgresUrl) -> Backlog:
    """What waits in a database, over all tenants whatever the tenant of the URL."""
    return await client_thread().run(_connected(url, _read_backlog))


async def read_database(url: PostgresUrl) -> DatabaseStatus:
    """Facts about a database; it may have none of our tables."""
    return await client_thread().run(_connected(url, _read_database))


async def _connected(url: PostgresUrl, question: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
    try:
        connection = await connect(url)
        try:
            return await question(connection)
        finally:
            connection.terminate()
    except driver_errors() as error:
        raise explain(error, url) from error


async def _read_backlog(connection: Connection) -> Backlog:
    backlog = Backlog()
    for number, name in await connection.fetch(_TENANTS):
        await setup(connection, number)
        backlog.tenants += 1
        for queue, driven, undriven, seconds in await connection.fetch(_QUEUES):
            line = backlog.queues.setdefault(queue, QueueBacklog())
            line.driven += driven
            line.undriven += undriven
            line.seconds = max(line.seconds, seconds)
        backlog.processes |= {LivingProcess(pid, host) for pid, host in await connection.fetch(_LIVING_PROCESSES)}
        rows = await connection.fetch(_COMMANDS)
        commands, seconds = rows[0]
        backlog.commands += commands
        backlog.command_seconds = max(backlog.command_seconds, seconds)
        room = _MAX_UNDRIVEN - len(backlog.undriven)
        if room:
            undriven_rows = await connection.fetch(_UNDRIVEN, room)
            backlog.undriven += [WaitingRun(name, run, queue) for run, queue in undriven_rows]
    return backlog


async def _read_database(connection: Connection) -> DatabaseStatus:
    has_schema = await connection.fetchval(_SCHEMA)
    server_version = str(await connection.fetchval("SHOW server_version"))  # a packager may add words
    before = time.time()
    clock = await connection.fetchval(_CLOCK)
    ours = (before + time.time()) / 2
    return DatabaseStatus(
        version=server_version.split(maxsplit=1)[0],
        schema=await connection.fetchval("SELECT version FROM chargehand.schema") if has_schema else 0,
        latest_schema=len(scripts()),
        sees_all_tenants=bool(await connection.fetchval(_ROLE)),
        vector=await connection.fetchval(_VECTOR) or "",
        clock_skew=clock - ours,
    )
