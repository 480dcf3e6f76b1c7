"""Files that runs are given by reference, in PostgreSQL: any server of the database has them."""

from chargehand.journal.files import StoredFile, file_unknown, no_room
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection, Row

_LOCK_CLASS = 0x43686766
"""The first key of the advisory lock under which a tenant's files are added."""
_LOCK = "SELECT pg_advisory_xact_lock($1, current_tenant())"
"""Its own statement: what follows sees what was committed before."""
_COLUMNS = "id, name, media_type, size, at"
_ADD = f"""
    INSERT INTO files ({_COLUMNS}, body) SELECT $1, $2, $3, $4::bigint, $5, $6
    WHERE (SELECT coalesce(sum(size), 0) FROM files WHERE tenant = current_tenant()) + $4::bigint <= $7::bigint
    ON CONFLICT DO NOTHING
"""  # noqa: S608 - of our own words
_GET = f"SELECT {_COLUMNS} FROM files WHERE tenant = current_tenant() AND id = $1"  # noqa: S608 - as above
_READ = "SELECT body FROM files WHERE tenant = current_tenant() AND id = $1"
_LIST = f"""
    SELECT {_COLUMNS} FROM files WHERE tenant = current_tenant() AND ($1 = '' OR (at, id) < (
        SELECT at, id FROM files WHERE tenant = current_tenant() AND id = $1
    ))
    ORDER BY at DESC, id DESC LIMIT $2
"""  # noqa: S608 - as above
_DELETE = "DELETE FROM files WHERE tenant = current_tenant() AND id = $1 RETURNING id"


class PostgresFiles:
    """The files of one tenant."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, file: StoredFile, body: bytes, *, room: int) -> StoredFile:
        async def work(connection: Connection) -> list[Row]:
            await connection.execute(_LOCK, _LOCK_CLASS)
            row = (file.id, file.name, file.media_type, file.size, file.at)
            await connection.execute(_ADD, *row, body, room)
            return await connection.fetch(_GET, file.id)

        stored = await self._database.write(work, idempotent=True)
        if not stored:
            raise no_room(file, room)
        return StoredFile(*stored[0])

    async def get(self, file: str) -> StoredFile:
        rows = await self._database.fetch(_GET, file)
        if not rows:
            raise file_unknown(file)
        return StoredFile(*rows[0])

    async def read(self, file: str) -> bytes:
        rows = await self._database.fetch(_READ, file)
        if not rows:
            raise file_unknown(file)
        return bytes(rows[0][0])

    async def list(self, *, before: str = "", limit: int) -> list[StoredFile]:
        return [StoredFile(*row) for row in await self._database.fetch(_LIST, before, limit)]

    async def delete(self, file: str) -> None:
        if not await self._database.fetch(_DELETE, file):
            raise file_unknown(file)
