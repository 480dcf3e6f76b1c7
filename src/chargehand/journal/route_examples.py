"""Confirmed examples of routes: requests that were confirmed to be for a worker, and routers fitted to them.

A journal keeps them beside its runs. Any process may write them: they belong to no run that is under way.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from chargehand.engine.policy import Instant

if TYPE_CHECKING:
    import sqlite3  # loaded by whatever opened the database

    from chargehand.sqlite.database import Database

Source: TypeAlias = Literal["judge", "eval", "feedback"]
SOURCES: tuple[Source, ...] = ("judge", "eval", "feedback")
MAX_EXAMPLES = 50
"""How many are kept of each worker and source: the latest."""
MAX_FITTED = 4
"""How many fitted routers of a team are kept."""
MAX_REQUEST_CHARS = 2000


class RouteExample(Struct, frozen=True):
    """A request that was confirmed to be for a worker, and by whom."""

    request: str
    worker: str
    source: Source
    run: str
    at: Instant = 0.0


class RouteExamples(Protocol):
    """The confirmed examples of one team."""

    @property
    def team(self) -> str: ...

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        """Replace what a source says of a run.

        A refuted example removes every confirmation of the same request for that worker.
        """
        ...

    async def list(self) -> tuple[RouteExample, ...]:
        """Every example, the oldest first."""
        ...

    async def clear(self) -> int:
        """Remove all of the team's; how many there were."""
        ...

    async def fitted(self, key: str) -> bytes | None:
        """A router that was fitted to the texts that the key is a digest of."""
        ...

    async def keep_fitted(self, key: str, body: bytes) -> None: ...


class SqliteRouteExamples:
    """The examples of a team in the database of its journal."""

    def __init__(self, database: "Database", team: str) -> None:
        self._database = database
        self.team = team

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        wrong = list(refuted)
        right = list(confirmed)

        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM route_examples WHERE team = ? AND run = ? AND source = ?", (self.team, run, source))
            for example in wrong:
                key = (self.team, example.worker, _shorten(example.request))
                db.execute("DELETE FROM route_examples WHERE team = ? AND worker = ? AND request = ?", key)
            for example in right:
                row = (self.team, run, source, example.worker, _shorten(example.request), example.at)
                db.execute(
                    "INSERT INTO route_examples (team, run, source, worker, request, at) VALUES (?, ?, ?, ?, ?, ?)", row
                )
                db.execute(_TRIM, {"team": self.team, "worker": example.worker, "source": source, "max": MAX_EXAMPLES})

        await self._database.write(work)

    async def list(self) -> tuple[RouteExample, ...]:
        query = "SELECT request, worker, source, run, at FROM route_examples WHERE team = ? ORDER BY number"
        rows = await self._database.read(lambda db: db.execute(query, (self.team,)).fetchall())
        return tuple(
            RouteExample(request=request, worker=worker, source=source, run=run, at=at)
            for request, worker, source, run, at in rows
        )

    async def clear(self) -> int:
        query = "DELETE FROM route_examples WHERE team = ?"
        return await self._database.write(lambda db: db.execute(query, (self.team,)).rowcount)

    async def fitted(self, key: str) -> bytes | None:
        query = "SELECT body FROM fitted_routers WHERE team = ? AND key = ?"
        row = await self._database.read(lambda db: db.execute(query, (self.team, key)).fetchone())
        return None if row is None else bytes(row[0])

    async def keep_fitted(self, key: str, body: bytes) -> None:
        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM fitted_routers WHERE team = ? AND key = ?", (self.team, key))
            db.execute("INSERT INTO fitted_routers (team, key, body) VALUES (?, ?, ?)", (self.team, key, body))
            db.execute(_TRIM_FITTED, {"team": self.team, "max": MAX_FITTED})

        await self._database.write(work)


_TRIM = """
    DELETE FROM route_examples WHERE team = :team AND worker = :worker AND source = :source AND number <= (
        SELECT number FROM route_examples WHERE team = :team AND worker = :worker AND source = :source
        ORDER BY number DESC LIMIT 1 OFFSET :max)
"""
_TRIM_FITTED = """
    DELETE FROM fitted_routers WHERE team = :team AND number <=
    (SELECT number FROM fitted_routers WHERE team = :team ORDER BY number DESC LIMIT 1 OFFSET :max)
"""


def _shorten(request: str) -> str:
    return " ".join(request.split())[:MAX_REQUEST_CHARS]
