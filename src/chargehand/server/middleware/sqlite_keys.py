"""Keys in a SQLite file that only its owner may read."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import StoreError
from chargehand.server.middleware.keys import ApiKey
from chargehand.sqlite.connection import FileKind, explain

_FILE = FileKind(0x4368674B, (), "key file")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, "
    "name TEXT NOT NULL, scope TEXT NOT NULL, created REAL NOT NULL, expires REAL, revoked REAL) STRICT, WITHOUT ROWID"
)
_ALL = "SELECT id, digest, tenant, name, scope, created, expires, revoked FROM keys ORDER BY created, id"
_PATIENCE: Seconds = 5.0


class SqliteKeys:
    """The file, open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, _PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        db = self._connection
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA application_id = {_FILE.application}")
        elif db.execute("PRAGMA application_id").fetchone()[0] != _FILE.application:
            raise StoreError(f"{self._path} is not a key file of chargehand; name another folder for the data")

    def close(self) -> None:
        self._connection.close()

    def version(self) -> int:
        with self._explained():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def all(self) -> list[ApiKey]:
        with self._explained():
            return [ApiKey(*row) for row in self._connection.execute(_ALL)]

    def add(self, key: ApiKey) -> None:
        with self._explained():
            self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", structs.astuple(key))

    def revoke(self, which: str, now: Instant) -> None:
        with self._explained():
            self._connection.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, which))

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self._path, _FILE) from error
