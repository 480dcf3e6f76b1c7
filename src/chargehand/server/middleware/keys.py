"""Keys: made, listed and revoked in one small file, which the command line and a running server share; who is calling.

Of a token only its hash is kept. A server reads the keys again whenever the file has changed, so one that is revoked
opens nothing from then on, and what it had opened is closed.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from msgspec import Struct, structs

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import Invalid, StoreError, Unknown
from chargehand.server.routing import Caller
from chargehand.server.settings import FIRST, Settings, check_tenant
from chargehand.sqlite.connection import FileKind, explain
from chargehand.text.names import did_you_mean

Allowed: TypeAlias = Literal["read", "run", "admin"]
KEYS = FileKind(0x4368674B, (), "key file")
OPERATOR = "operator"
"""What the key of the operator's own token is called."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, tenant TEXT NOT NULL, "
    "name TEXT NOT NULL, scope TEXT NOT NULL, created REAL NOT NULL, expires REAL, revoked REAL) STRICT, WITHOUT ROWID"
)
_ALL = "SELECT id, digest, tenant, name, scope, created, expires, revoked FROM keys ORDER BY created, id"
_PATIENCE: Seconds = 5.0
_LONGEST_NAME = 100
_LONGEST_TOKEN = 512
_LOOK_EVERY: Seconds = 0.25
"""How often a revoked key is looked for while streams are open."""
_ID_IN_TOKEN = slice(3, 11)

logger = logging.getLogger(__name__)


# --- the file


class Key(Struct, frozen=True):
    """What is known of a token. `id` is the readable part of it."""

    id: str
    digest: bytes
    tenant: str
    name: str
    scope: Allowed
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
        """Changes whenever another connection has written."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def all(self) -> list[Key]:
        """Every key there ever was, the oldest first."""
        with self._explained():
            return [Key(*row) for row in self._connection.execute(_ALL)]

    def add(self, key: Key) -> None:
        with self._explained():
            self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", structs.astuple(key))

    def revoke(self, which: str, now: Instant) -> Key:
        """Refuse the key from now on, and end its open streams. Idempotent."""
        with self._explained():
            self._connection.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, which))
        keys = {key.id: key for key in self.all()}
        if which not in keys:
            hint = did_you_mean(which, keys, "`chargehand tokens list` shows those there are")
            raise Unknown(f"there is no token {which[:60]!r}; {hint}")
        return keys[which]

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise explain(error, self.path, KEYS) from error


def create_key(tenant: str, name: str, scope: Allowed, now: Instant, expires: Instant | None = None) -> tuple[Key, str]:
    """A new key, and its token, which is to be shown once and not kept."""
    check_tenant(tenant)
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise Invalid(f"the name of a token is at most {_LONGEST_NAME} characters in one line")
    which = secrets.token_hex(4)
    token = f"ch_{which}_{secrets.token_urlsafe(32)}"
    digest = _digest(token.encode())
    key = Key(id=which, digest=digest, tenant=tenant, name=name, scope=scope, created=now, expires=expires)
    return key, token


def key_file(data: Path) -> Path:
    return data / "keys.db"


def first_token(settings: Settings, now: Instant) -> str | None:
    """The token of a server that is started for the first time, to be shown once; None where there is a way in."""
    if settings.token or settings.unlocked:
        return None
    with closing(KeyFile(key_file(settings.data))) as file:
        if any(key.good(now) for key in file.all()):
            return None
        key, token = create_key(FIRST, "first", "admin", now)
        file.add(key)
        return token


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()  # enough: a token has 256 random bits


# --- who is calling


class Keyring:
    """A token against the keys there are: the same work for a good one and a bad one.

    Enter it to read the keys. Without that only the operator's own token is known.
    """

    def __init__(self, settings: Settings, now: Callable[[], Instant] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._own = _digest(settings.token.encode() or secrets.token_bytes(32))
        self._operator = Caller(FIRST, OPERATOR, "admin")
        self._no_key, _ = create_key(FIRST, "", "read", 0.0, expires=0.0)
        self._keys: dict[str, Key] = {}
        self._file: KeyFile | None = None
        self._version = -1
        self._open: dict[str, set[asyncio.Timeout]] = {}
        self._jobs = asyncio.TaskGroup()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if not self._settings.unlocked:
            self._file = await asyncio.to_thread(KeyFile, key_file(self._settings.data))
            self._refresh()
        await self._jobs.__aenter__()
        self._watch = self._jobs.create_task(self._watch_revoked())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watch is not None, "it was entered"
        self._watch.cancel()
        try:
            await self._jobs.__aexit__(kind, error, trace)
        finally:
            if self._file is not None:
                self._file.close()

    def caller(self, authorization: bytes) -> Caller | None:
        """Whose token this is; None for everything that is not a good one."""
        if self._settings.unlocked:
            return self._operator
        token = token_of(authorization)
        digest = _digest(token)
        self._refresh()
        key = self._keys.get(token[_ID_IN_TOKEN].decode("latin-1"), self._no_key)
        is_own = hmac.compare_digest(digest, self._own)
        is_known = hmac.compare_digest(digest, key.digest)
        if is_own:
            return self._operator
        return Caller(key.tenant, key.id, key.scope) if is_known and key.good(self._now()) else None

    def opened(self, key: str, until: asyncio.Timeout) -> None:
        """Something is open under this key: `until` runs out when the key is revoked or expires."""
        self._open.setdefault(key, set()).add(until)
        expires = self._keys[key].expires if key in self._keys else None
        if expires is not None:
            until.reschedule(asyncio.get_running_loop().time() + max(0.0, expires - self._now()))

    def closed(self, key: str, until: asyncio.Timeout) -> None:
        streams = self._open[key]
        streams.discard(until)
        if not streams:
            del self._open[key]

    async def _watch_revoked(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._open:
                self._refresh()

    def _refresh(self) -> None:
        """Read the keys again if the file has changed. While it cannot be read, no key is valid."""
        if self._file is None:
            return
        try:
            version = self._file.version()
            if version == self._version:
                return
            keys = self._file.all()
            self._version = version
        except (sqlite3.Error, StoreError):
            logger.exception("the keys cannot be read: only the operator's own token is good until they can")
            keys = []
            self._version = -1
        self._keys = {key.id: key for key in keys}
        now = self._now()
        for key, streams in self._open.items():
            is_good = key == OPERATOR or (key in self._keys and self._keys[key].good(now))
            for until in () if is_good else tuple(streams):
                if not until.expired():
                    until.reschedule(asyncio.get_running_loop().time())


def token_of(authorization: bytes) -> bytes:
    """The token of a header: a bearer's, or the password of Basic; nothing where there is none."""
    kind, _, rest = authorization.partition(b" ")
    kind = kind.lower()
    rest = rest.strip()
    if len(rest) > _LONGEST_TOKEN:
        return b""
    if kind == b"bearer":
        return rest
    if kind != b"basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
