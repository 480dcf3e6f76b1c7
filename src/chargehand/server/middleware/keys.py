"""Keys: made, listed and revoked in one small file, which the command line and a running server share.

Of a token only its hash is kept. Whether a caller may come in is the keyring's business.
"""

import hashlib
import secrets
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.errors import Invalid, StoreError, Unknown
from chargehand.server.settings import FIRST, Settings, check_tenant
from chargehand.stores.database import FileKind, explain
from chargehand.terms.policy import Instant

Allowed: TypeAlias = Literal["read", "run", "admin"]
KEYS = FileKind(0x4368674B, (), "key file")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, "
    "name TEXT NOT NULL, scopes TEXT NOT NULL, created REAL NOT NULL, expires REAL, revoked REAL) STRICT, WITHOUT ROWID"
)
_ALL = "SELECT id, digest, tenant, name, scopes, created, expires, revoked FROM keys ORDER BY created, id"
_PATIENCE = 5.0
_LONGEST_NAME = 100


class Key(Struct, frozen=True):
    """What is known of a token. `id` is the readable part of it."""

    id: str
    digest: bytes
    tenant: str
    name: str
    scopes: tuple[Allowed, ...]
    created: Instant
    expires: Instant | None = None
    revoked: Instant | None = None

    def good(self, now: Instant) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


class KeyFile:
    """The file, open. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
            db.execute(f"PRAGMA application_id = {KEYS.application}")
        elif db.execute("PRAGMA application_id").fetchone()[0] != KEYS.application:
            raise StoreError(f"{self.path} is not a key file of chargehand; name another folder for the data")

    def close(self) -> None:
        self._connection.close()

    def version(self) -> int:
        """Another number whenever somebody else has written."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def all(self) -> list[Key]:
        """Every key there ever was, the oldest first."""
        with self._explained():
            rows = self._connection.execute(_ALL).fetchall()
        return [_key(row) for row in rows]

    def add(self, key: Key) -> None:
        row = (*structs.astuple(key)[:4], " ".join(key.scopes), key.created, key.expires, key.revoked)
        with self._explained():
            self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def revoke(self, which: str, now: Instant) -> Key:
        """From now on nobody comes in with it, and who is in must leave. To revoke it again changes nothing."""
        with self._explained():
            self._connection.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, which))
        for key in self.all():
            if key.id == which:
                return key
        raise Unknown(f"there is no token {which[:60]!r}; `chargehand tokens list` shows those there are")

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path, KEYS) from error


def _key(row: tuple[str, bytes, str, str, str, float, float | None, float | None]) -> Key:
    scopes = msgspec.convert(row[4].split(), tuple[Allowed, ...])
    return Key(
        id=row[0],
        digest=row[1],
        tenant=row[2],
        name=row[3],
        scopes=scopes,
        created=row[5],
        expires=row[6],
        revoked=row[7],
    )


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()  # enough: what is hashed has 256 bits that nobody can guess


def made(tenant: str, name: str, scope: Allowed, now: Instant, expires: Instant | None = None) -> tuple[Key, str]:
    """A new key, and its token, which is to be shown once and not kept."""
    check_tenant(tenant)
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise Invalid(f"the name of a token is at most {_LONGEST_NAME} characters in one line")
    which = secrets.token_hex(4)
    token = f"ch_{which}_{secrets.token_urlsafe(32)}"
    return Key(
        id=which,
        digest=digest_of(token.encode()),
        tenant=tenant,
        name=name,
        scopes=(scope,),
        created=now,
        expires=expires,
    ), token


def key_file(data: Path) -> Path:
    return data / "keys.db"


def first_token(settings: Settings, now: Instant) -> str | None:
    """The token of a server that is started for the first time, to be shown once; None where there is a way in."""
    if settings.token or settings.unlocked:
        return None
    with closing(KeyFile(key_file(settings.data))) as file:
        if any(key.good(now) for key in file.all()):
            return None
        key, token = made(FIRST, "first", "admin", now)
        file.add(key)
        return token
