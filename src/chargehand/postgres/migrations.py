"""The schema of a database: numbered scripts, each applied once, forward only."""

from importlib import resources

from chargehand.errors import Corrupt, Refused, StoreError
from chargehand.postgres.driver import OLDEST_SERVER, Connection, in_transaction
from chargehand.store_url import PostgresUrl

_LOCK = 0x4368676D
"""Of the advisory lock under which the schema is changed: processes that start together wait for each other."""
# of the catalog as it is now: `to_regclass` may answer from what this session knew before it waited for the lock
_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'chargehand' AND tablename = 'schema')"
_BEGIN = """
    CREATE SCHEMA IF NOT EXISTS chargehand;
    CREATE TABLE IF NOT EXISTS chargehand.schema (version int NOT NULL);
    INSERT INTO chargehand.schema SELECT 0 WHERE NOT EXISTS (SELECT FROM chargehand.schema);
    SET LOCAL search_path = chargehand, public
"""


def scripts() -> list[str]:
    """The scripts that lead to each version, in order."""
    folder = resources.files("chargehand.postgres").joinpath("schema")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [folder.joinpath(name).read_text(encoding="utf-8") for name in names]


async def migrate(connection: Connection, url: PostgresUrl, *, create: bool) -> None:
    """Bring the schema up to date; StoreError for a server that is too old, Corrupt for a schema of the future.

    Refused where there is none yet, and none is to be created.
    """
    server = connection.get_server_version()[0]
    if server < OLDEST_SERVER:
        raise StoreError(
            f"{url} is PostgreSQL {server}, and chargehand needs {OLDEST_SERVER} or newer; upgrade the server"
        )
    migrations = scripts()
    latest = len(migrations)
    version = await _version(connection, url, latest=latest)
    if version == latest:
        return
    if not version and not create:
        raise Refused(f"there is nothing of chargehand in {url} yet; run something first, or name another database")
    async with in_transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        version = await _version(connection, url, latest=latest)  # another process may have been faster
        await connection.execute(_BEGIN)
        for script in migrations[version:]:
            await connection.execute(script)
        await connection.execute("UPDATE chargehand.schema SET version = $1", latest)


async def _version(connection: Connection, url: PostgresUrl, *, latest: int) -> int:
    if not await connection.fetchval(_HAS_SCHEMA):
        return 0
    version = await connection.fetchval("SELECT version FROM chargehand.schema")
    if not isinstance(version, int):
        raise Corrupt(f"{url} does not say which schema it has; restore it from a backup")
    if version > latest:
        raise Corrupt(
            f"{url} has schema {version} and this chargehand knows {latest}: a newer version wrote it; "
            "upgrade chargehand",
            newer=True,
        )
    return version
