"""Confirmed examples of routes in a database of PostgreSQL."""

from collections.abc import Iterable

from chargehand.journal.protocol import MAX_EXAMPLES, RouteExample, Source, shorten_request
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, current_tenant()))"
_FORGET_RUN = "DELETE FROM route_examples WHERE tenant = current_tenant() AND team = $1 AND run = $2 AND source = $3"
_REFUTE = "DELETE FROM route_examples WHERE tenant = current_tenant() AND team = $1 AND worker = $2 AND request = $3"
_CONFIRM = "INSERT INTO route_examples (team, run, source, worker, request, at) VALUES ($1, $2, $3, $4, $5, $6)"
_TRIM = """
    DELETE FROM route_examples WHERE tenant = current_tenant() AND team = $1 AND worker = $2 AND source = $3
    AND number <= (
        SELECT number FROM route_examples
        WHERE tenant = current_tenant() AND team = $1 AND worker = $2 AND source = $3
        ORDER BY number DESC LIMIT 1 OFFSET $4
    )
"""
_LIST = """
    SELECT request, worker, source, run, at FROM route_examples WHERE tenant = current_tenant() AND team = $1
    ORDER BY number
"""
EXAMPLE_TEAMS = "SELECT DISTINCT team FROM route_examples WHERE tenant = current_tenant() ORDER BY team"
_CLEAR = "DELETE FROM route_examples WHERE tenant = current_tenant() AND team = $1 AND $2 IN ('', run) RETURNING true"


class PostgresRouteExamples:
    """The examples of a team in the database of its journal. A lock serialises the writers of one team."""

    def __init__(self, database: PostgresDatabase, team: str) -> None:
        self._database = database
        self.team = team

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        wrong = list(refuted)
        right = list(confirmed)

        async def work(db: Connection) -> None:
            await db.execute(_LOCK, self.team)
            await db.execute(_FORGET_RUN, self.team, run, source)
            for example in wrong:
                await db.execute(_REFUTE, self.team, example.worker, shorten_request(example.request))
            for example in right:
                request = shorten_request(example.request)
                row = (self.team, run, source, example.worker, request, example.at)
                await db.execute(_CONFIRM, *row)
                await db.execute(_TRIM, self.team, example.worker, source, MAX_EXAMPLES)

        await self._database.write(work)

    async def list(self) -> tuple[RouteExample, ...]:
        return tuple(RouteExample(*row) for row in await self._database.fetch(_LIST, self.team))

    async def clear(self, run: str = "") -> int:
        return len(await self._database.fetch(_CLEAR, self.team, run))
