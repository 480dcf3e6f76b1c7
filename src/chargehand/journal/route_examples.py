"""Confirmed examples of routes: requests that were confirmed to be for a worker, and routers fitted to them.

They lie beside the runs, in the journal's file or in memory. Any process may write them: they belong to no run that is
under way.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from chargehand.engine.policy import Instant

if TYPE_CHECKING:
    import sqlite3  # loaded by whatever opened the database

    from chargehand.sqlite.readers import Readers
    from chargehand.sqlite.writer import Writer

Source: TypeAlias = Literal["judge", "eval", "feedback"]
SOURCES: tuple[Source, ...] = ("judge", "eval", "feedback")
MAX_EXAMPLES = 50
"""How many are kept of each worker and source: the latest."""
MAX_FITTED = 4
"""How many fitted routers of a team are kept."""
MAX_REQUEST_CHARS = 2000
_T = TypeVar("_T")


class RouteExample(Struct, frozen=True):
    """A request that was confirmed to be for a worker, and by whom."""

    request: str
    worker: str
    source: Source
    run: str
    at: Instant = 0.0


class Database(Protocol):
    """Runs work on a database: durable when `write` returns, of one moment for `read`."""

    async def write(self, work: "Callable[[sqlite3.Connection], _T]") -> _T: ...

    async def read(self, work: "Callable[[sqlite3.Connection], _T]") -> _T: ...


class JournalDatabase:
    """The file of a journal through its own writer and readers."""

    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def write(self, work: "Callable[[sqlite3.Connection], _T]") -> _T:
        return await self._writer.submit(work)

    async def read(self, work: "Callable[[sqlite3.Connection], _T]") -> _T:
        return await self._readers.look(work)


class RouteExamples:
    """Those of one team."""

    def __init__(self, database: Database, team: str) -> None:
        self._database = database
        self.team = team

    async def record(
        self, run: str, source: Source, confirmed: Iterable[RouteExample], refuted: Iterable[RouteExample] = ()
    ) -> None:
        """What a source says of a run, in the place of what it said before.

        A refuted example removes every confirmation of the same request for that worker.
        """
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
        """Every example, the oldest first."""
        query = "SELECT request, worker, source, run, at FROM route_examples WHERE team = ? ORDER BY number"
        rows = await self._database.read(lambda db: db.execute(query, (self.team,)).fetchall())
        return tuple(
            RouteExample(request=request, worker=worker, source=source, run=run, at=at)
            for request, worker, source, run, at in rows
        )

    async def clear(self) -> int:
        """Remove all of the team's; how many there were."""
        query = "DELETE FROM route_examples WHERE team = ?"
        return await self._database.write(lambda db: db.execute(query, (self.team,)).rowcount)

    async def fitted(self, key: str) -> bytes | None:
        """A router that was fitted to the texts that the key is a digest of."""
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
