"""Keys: created, listed and revoked in a store that the command line and a running server share.

Of a token only its hash is kept. A server reads the keys again whenever the store has changed, so one that is revoked
opens nothing from then on, and what it had opened is closed. Another kind of store is one module with a `KeyStore`,
and a line in `open_keys` of `gate`.
"""

import hashlib
import secrets
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Unknown
from chargehand.server.settings import check_tenant
from chargehand.text.words import did_you_mean

Allowed: TypeAlias = Literal["read", "run", "admin"]
_LONGEST_NAME = 100


class ApiKey(Struct, frozen=True):
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


class KeyStore(Protocol):
    """Where keys are kept. Not for two threads at once. A store that cannot be used raises a StoreError."""

    def version(self) -> int:
        """Changes whenever another process has written."""
        ...

    def all(self) -> list[ApiKey]:
        """Every key there ever was, the oldest first."""
        ...

    def add(self, key: ApiKey) -> None: ...

    def revoke(self, which: str, now: Instant) -> None:
        """Refuse the key from now on. Idempotent; an id that there is not is no error."""
        ...

    def close(self) -> None: ...


def revoke_key(store: KeyStore, which: str, now: Instant) -> ApiKey:
    """Refuse a key from now on, and end its open streams. Idempotent; Unknown if there is none of this id."""
    store.revoke(which, now)
    keys = {key.id: key for key in store.all()}
    if which not in keys:
        hint = did_you_mean(which, keys, "`chargehand tokens list` shows those there are")
        raise Unknown(f"there is no token {which[:60]!r}; {hint}")
    return keys[which]


def create_key(
    tenant: str, name: str, scope: Allowed, now: Instant, expires: Instant | None = None
) -> tuple[ApiKey, str]:
    """A new key, and its token, which is to be shown once and not kept."""
    check_tenant(tenant)
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise Invalid(f"the name of a token is at most {_LONGEST_NAME} characters in one line")
    which = secrets.token_hex(4)
    token = f"ch_{which}_{secrets.token_urlsafe(32)}"
    digest = digest_of(token.encode())
    key = ApiKey(id=which, digest=digest, tenant=tenant, name=name, scope=scope, created=now, expires=expires)
    return key, token


def digest_of(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()  # enough: a token has 256 random bits
