"""A catalog in SQLite: in a file that several processes may use at once, or in memory."""

import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.engine.policy import Instant, Seconds
from chargehand.memory.archives import Filter
from chargehand.memory.sqlite_passages import Holding, SqlitePassages
from chargehand.memory.sqlite_search import SqliteWordIndex, nearest
from chargehand.memory.sqlite_things import SqliteChanges, SqliteThings, SqliteTurns
from chargehand.memory.store_catalog import StoreCatalog
from chargehand.memory.tables import Outcome, Work
from chargehand.sqlite.connection import CATALOG, Connect, Durability, connect
from chargehand.sqlite.database import Database, FileDatabase, MemoryDatabase, open_in_thread

if TYPE_CHECKING:
    from chargehand.memory.vector_index import VectorIndex


class SqliteCatalog(StoreCatalog[Holding]):
    """`await SqliteCatalog.open(path)` gives one."""

    @classmethod
    async def open(
        cls,
        path: Path | str | None,
        *,
        space: str = "default",
        durability: Durability = "machine",
        patience: Seconds = 5.0,
        clock: Callable[[], Instant] = time.time,
        connect: Connect = connect,
    ) -> "SqliteCatalog":
        """The catalog in a file (made with its folder where it is missing), or without a path one in memory.

        `patience` is how long to wait while another process writes.
        """
        if path is None:
            return cls(SqliteStore(MemoryDatabase(CATALOG)), space, clock)
        file = Path(path)
        database = await open_in_thread(
            lambda: FileDatabase(
                file.resolve(), kind=CATALOG, durability=durability, patience=patience, connect=connect
            ),
            FileDatabase.close_now,
        )
        return cls(SqliteStore(database), space, clock)


class SqliteStore:
    """A database, and what is in memory of its vectors."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def _tables(self, db: sqlite3.Connection, space: str) -> "SqliteTables":
        return SqliteTables(db, space, lambda: self._index)

    @cached_property
    def _index(self) -> "VectorIndex":
        from chargehand.memory.vector_index import VectorIndex  # noqa: PLC0415 - numpy is needed for vectors only

        return VectorIndex()

    async def read(self, space: str, work: Work[Holding, Outcome]) -> Outcome:
        return await self.database.read(lambda db: finish(work(self._tables(db, space))))

    async def ask(self, space: str, work: Work[Holding, Outcome]) -> Outcome:
        return await self.read(space, work)

    async def write(self, space: str, work: Work[Holding, Outcome], *, idempotent: bool = False) -> Outcome:  # noqa: ARG002 - nothing is lost on the way
        def whole(db: sqlite3.Connection) -> Outcome:
            """All of it or none, though it may refuse in the middle; its mates in the transaction notice nothing."""
            db.execute("SAVEPOINT whole")
            try:
                return finish(work(self._tables(db, space)))
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK TO whole")
                raise
            finally:
                if db.in_transaction:
                    db.execute("RELEASE whole")

        return await self.database.write(whole)

    async def spaces(self) -> list[str]:
        question = "SELECT DISTINCT space FROM things ORDER BY space"
        return await self.database.read(lambda db: [space for (space,) in db.execute(question).fetchall()])

    async def close(self) -> None:
        await self.database.close()


class SqliteTables:
    """The tables of a space, on a connection in which a transaction is open. None of their methods ever waits."""

    def __init__(self, db: sqlite3.Connection, space: str, open_index: "Callable[[], VectorIndex]") -> None:
        """`open_index` is called only if there are vectors to compare."""
        self.things = SqliteThings(db, space)
        self.changes = SqliteChanges(db)
        self.turns = SqliteTurns(db)
        self.passages = SqlitePassages(db, space)
        self._db = db
        self._open_index = open_index

    def words(self, stored: Holding, within: Filter, *, unembedded: bool = False) -> SqliteWordIndex:
        return SqliteWordIndex(self._db, stored, within, unembedded=unembedded)

    async def nearest(self, stored: Holding, vector: bytes, within: Filter, count: int) -> dict[int, float]:
        return nearest(self._db, self._open_index(), stored, vector, within=within, count=count)

    async def similarities(self, vector: bytes, numbers: Sequence[int]) -> dict[int, float]:
        return self._open_index().exact(self._db, vector, numbers)


def finish(work: Coroutine[object, object, Outcome]) -> Outcome:
    """The outcome of work that never waits: it is done in the thread of the connection, in one go."""
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value
    work.close()
    raise AssertionError("work on a connection of SQLite must not wait")
