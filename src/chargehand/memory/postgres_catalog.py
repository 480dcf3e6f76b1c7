"""A catalog in PostgreSQL, for one tenant."""

import time
from collections.abc import Callable, Sequence

from chargehand.engine.policy import Instant
from chargehand.errors import Refused
from chargehand.memory.archives import Filter
from chargehand.memory.postgres_passages import PostgresArchive, PostgresPassages
from chargehand.memory.postgres_search import PostgresWordIndex, build_index_later, nearest, similarities
from chargehand.memory.postgres_things import PostgresChanges, PostgresThings, PostgresTurns
from chargehand.memory.store_catalog import StoreCatalog
from chargehand.memory.tables import Outcome, Work
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection
from chargehand.store_url import PostgresUrl

_SPACES = "SELECT DISTINCT space FROM things WHERE tenant = current_tenant() ORDER BY space"


class PostgresCatalog(StoreCatalog[PostgresArchive]):
    """`await PostgresCatalog.open(url)` gives one."""

    @classmethod
    async def open(
        cls, url: PostgresUrl, *, space: str = "default", clock: Callable[[], Instant] = time.time
    ) -> "PostgresCatalog":
        return cls(PostgresStore(await open_database(url)), space, clock)


class PostgresStore:
    """A database. Its connections belong to the process and stay open when it is closed."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._open_database = database
        self._is_closed = False

    @property
    def _database(self) -> PostgresDatabase:
        if self._is_closed:
            raise Refused("this catalog is closed; open it again")
        return self._open_database

    async def read(self, space: str, work: Work[PostgresArchive, Outcome]) -> Outcome:
        return await self._database.read(lambda db: work(PostgresTables(db, space)))

    async def ask(self, space: str, work: Work[PostgresArchive, Outcome]) -> Outcome:
        return await self._database.use(lambda db: work(PostgresTables(db, space)))

    async def write(self, space: str, work: Work[PostgresArchive, Outcome], *, idempotent: bool = False) -> Outcome:
        async def inside(db: Connection) -> tuple[Outcome, list[PostgresArchive]]:
            tables = PostgresTables(db, space)
            return await work(tables), tables.passages.embedded

        outcome, embedded = await self._database.write(inside, idempotent=idempotent)
        for archive in embedded:
            build_index_later(self._database, archive)
        return outcome

    async def spaces(self) -> list[str]:
        return [row[0] for row in await self._database.fetch(_SPACES)]

    async def close(self) -> None:
        self._is_closed = True


class PostgresTables:
    """The tables of a space, on a connection."""

    def __init__(self, db: Connection, space: str) -> None:
        self.things = PostgresThings(db, space)
        self.changes = PostgresChanges(db)
        self.turns = PostgresTurns(db)
        self.passages = PostgresPassages(db, space)
        self._db = db

    def words(self, stored: PostgresArchive, within: Filter, *, unembedded: bool = False) -> PostgresWordIndex:
        return PostgresWordIndex(self._db, stored, within, unembedded=unembedded)

    async def nearest(self, stored: PostgresArchive, vector: bytes, within: Filter, count: int) -> dict[int, float]:
        return await nearest(self._db, stored, vector, within, count)

    async def similarities(self, vector: bytes, numbers: Sequence[int]) -> dict[int, float]:
        return await similarities(self._db, vector, numbers)
