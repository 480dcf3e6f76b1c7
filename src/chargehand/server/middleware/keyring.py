"""Who is calling: a token against the keys there are, the same work for a good one and a bad one.

Keys are read again whenever somebody has changed the file, so one that is revoked opens nothing from then on, and what
it had opened is closed.
"""

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from chargehand.errors import StoreError
from chargehand.server.middleware.keys import Key, KeyFile, digest_of, key_file
from chargehand.server.routing import Caller
from chargehand.server.settings import FIRST, Settings
from chargehand.terms.policy import Instant, Seconds

logger = logging.getLogger(__name__)

OPERATOR = "operator"
"""What the key of the operator's own token is called."""
_LONGEST = 512
_LOOKS: Seconds = 0.25
"""How often a revoked key is looked for while streams are open."""
_PREFIX = slice(3, 11)


class Keyring:
    """Enter it to read the keys. Without that only the operator's own token is known."""

    def __init__(self, settings: Settings, now: Callable[[], Instant] = time.time) -> None:
        self._settings = settings
        self._now = now
        own = settings.token.encode() or secrets.token_bytes(32)
        self._own = digest_of(own)
        self._operator = Caller(FIRST, OPERATOR, ("admin",))
        self._nobody = Key(id="", digest=digest_of(secrets.token_bytes(32)), tenant="", name="", scopes=(), created=0.0)
        self._keys: dict[bytes, Key] = {}
        self._callers: dict[str, Caller] = {}
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
        self._watch = self._jobs.create_task(self._watched())
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
        found = digest_of(token)
        self._refresh()
        key = self._keys.get(token[_PREFIX], self._nobody)
        own = hmac.compare_digest(found, self._own)
        known = hmac.compare_digest(found, key.digest)
        if own:
            return self._operator
        return self._callers[key.id] if known and key.good(self._now()) else None

    def opened(self, key: str, until: asyncio.Timeout) -> None:
        """Something is open under this key: `until` runs out when the key is revoked or expires."""
        self._open.setdefault(key, set()).add(until)
        expires = self._keys[key.encode()].expires if key.encode() in self._keys else None
        if expires is not None:
            until.reschedule(asyncio.get_running_loop().time() + max(0.0, expires - self._now()))

    def closed(self, key: str, until: asyncio.Timeout) -> None:
        mates = self._open[key]
        mates.discard(until)
        if not mates:
            del self._open[key]

    async def _watched(self) -> None:
        while True:
            await asyncio.sleep(_LOOKS)
            if self._open:
                self._refresh()

    def _refresh(self) -> None:
        """Read the keys again if somebody has changed them. What cannot be read lets nobody in."""
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
        self._keys = {one.id.encode(): one for one in keys}
        self._callers = {one.id: Caller(one.tenant, one.id, one.scopes) for one in keys}
        self._shut_out()

    def _shut_out(self) -> None:
        good = {one.id for one in self._keys.values() if one.good(self._now())} | {OPERATOR}
        now = asyncio.get_running_loop().time()
        for key, mates in self._open.items():
            for until in () if key in good else tuple(mates):
                if not until.expired():
                    until.reschedule(now)


def token_of(authorization: bytes) -> bytes:
    """The token of a header: a bearer's, or the password of Basic; nothing where there is none."""
    kind, _, rest = authorization.partition(b" ")
    kind = kind.lower()
    rest = rest.strip()
    if len(rest) > _LONGEST:
        return b""
    if kind == b"bearer":
        return rest
    if kind != b"basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
