"""The jobs of runs in PostgreSQL: one `Jobs` for all processes of a deployment."""

from collections.abc import Sequence

from msgspec import Struct

from chargehand.engine.policy import Instant, Seconds
from chargehand.journal.postgres_writer import CHANNEL, LIVING, notice_of
from chargehand.journal.protocol import UndrivenRun
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.store_url import PostgresUrl

# what another process is assigning at this moment is in neither part of the answer: that process starts its job
_ASSIGN = """
    WITH assigned AS (
        UPDATE runs SET job = $2, queue = $3, parked = false
        WHERE tenant = current_tenant() AND run = ANY ($1::text[]) AND job IS NOT DISTINCT FROM $4 AND NOT ended
        RETURNING run, job
    )
    SELECT run, job FROM assigned
    UNION ALL
    SELECT run, job FROM runs
    WHERE tenant = current_tenant() AND run = ANY ($1::text[]) AND NOT ended
        AND job IS NOT NULL AND job IS DISTINCT FROM $4
"""
_OPEN_RUNS = "SELECT run FROM runs WHERE tenant = current_tenant() AND job = $1 AND NOT ended ORDER BY number"
_PARK = """
    WITH parked AS (
        UPDATE runs SET job = NULL, parked = true WHERE tenant = current_tenant() AND run = $1 AND job = $2
    )
    SELECT pg_notify($3, $4)
"""
_SETTLED = """
    SELECT run FROM runs WHERE tenant = current_tenant() AND run = ANY ($1::text[]) AND (ended OR parked)
"""
_UNDRIVEN = f"""
    SELECT run, queue, job FROM runs
    WHERE tenant = current_tenant() AND NOT ended AND NOT parked AND queue <> '' AND seq > 0
        AND coalesce(owner NOT IN ({LIVING}), true)
    ORDER BY number LIMIT $1
"""  # noqa: S608 - of our own words
_COUNT_OPEN = """
    SELECT count(*) FROM (
        SELECT FROM runs WHERE tenant = current_tenant() AND NOT ended AND NOT parked AND queue <> '' LIMIT $1
    ) AS open
"""
_DEPLOYMENT = """
    SELECT name, current_database(), extract(epoch FROM clock_timestamp())::float8 FROM deployment
"""
_TAKE_TURN = """
    UPDATE deployment SET reconciled = clock_timestamp()
    WHERE reconciled < clock_timestamp() - make_interval(secs => $1) RETURNING name
"""


class PostgresJobs:
    """A `Jobs` of one tenant."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def assign(
        self, runs: Sequence[str], job: str, *, queue: str, instead_of: str | None = None
    ) -> dict[str, str]:
        rows = await self._database.fetch(_ASSIGN, sorted(runs), job, queue, instead_of)
        return {row[0]: row[1] for row in rows}

    async def open_runs(self, job: str) -> list[str]:
        return [row[0] for row in await self._database.fetch(_OPEN_RUNS, job)]

    async def park(self, run: str, job: str) -> None:
        # entries tell of what is written, and this must be told, too
        await self._database.fetch(_PARK, run, job, CHANNEL, notice_of(self._database.tenant, [run]))

    async def settled(self, runs: Sequence[str]) -> set[str]:
        return {row[0] for row in await self._database.fetch(_SETTLED, list(runs))}

    async def undriven(self, *, limit: int) -> list[UndrivenRun]:
        rows = await self._database.fetch(_UNDRIVEN, limit)
        return [UndrivenRun(run=run, queue=queue, job=job) for run, queue, job in rows]

    async def count_open(self, *, most: int) -> int:
        return (await self._database.fetch(_COUNT_OPEN, most))[0][0]


# --- all tenants together


class Deployment(Struct, frozen=True):
    """What the database says of itself."""

    name: str
    """Another one for each database."""
    now: Instant
    """The clock of its server."""


async def read_deployment(url: PostgresUrl) -> Deployment:
    name, database, now = (await (await open_database(url)).fetch(_DEPLOYMENT))[0]
    return Deployment(f"{name}-{database}", now)


async def take_turn(url: PostgresUrl, interval: Seconds) -> bool:
    """Whether this process is the one to look at the open runs of all tenants: one is, in each interval."""
    return bool(await (await open_database(url)).fetch(_TAKE_TURN, interval))
