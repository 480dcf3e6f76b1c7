"""The same call made again is the same run: by its Idempotency-Key, or because the client says that it repeats itself.

The name of a run that came with a key is made of the tenant and the key, and its seed of the key and the body. So the
journal itself says, also after a crash, whether a call was made before and with what. A call without a key has a mark,
made of the caller, the path and the body, which is recorded in the request of the run.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import cast
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from starlette.requests import Request

from chargehand.engine.events import Entry, InputAnswered, MessageKey, RunRequested
from chargehand.engine.plan import digest
from chargehand.engine.policy import Seconds
from chargehand.errors import Corrupt, Refused, RunBusy, RunUnknown, Unknown
from chargehand.server.routing import CALLER, ApiCaller
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, raw_body

KEY_NAME = "Idempotency-Key"
_HEADER = KEY_NAME.lower()
REPEATED_FOR: Seconds = 15 * 60.0
"""How long a call that is made again without a key is known to be the same."""
_KEY = re.compile(r"[!-~]{1,255}")
_SEED_DIGITS = 12  # hexadecimal: whole numbers that every reader of JSON keeps
_RETRY_COUNT = "x-stainless-retry-count"
_MAX_MARKS = 1000
_MAX_LOOKED_AT = 500
_NEWEST = 2**62
_WRITING: Seconds = 5.0
_SOON: Seconds = 0.02


class BegunRun(Struct, frozen=True):
    """A run that a call began, now or (`replayed`) when it was made before."""

    run: str
    replayed: bool = False


class RunKey(Struct, frozen=True):
    """What an Idempotency-Key and a body amount to: the name of a run, and its seed."""

    run: str
    seed: int
    name: str = KEY_NAME
    """What the client calls the key, for the error about another body."""

    async def begin(self, tenant: Tenant, begin: Callable[[], Awaitable[str]]) -> BegunRun:
        """Begin the run of this key, unless it was begun before.

        Calls with the same key go one at a time here. Of several servers with one store, the store lets one begin it.
        """
        locks = tenant.part(_Locks).by_run
        lock = locks.setdefault(self.run, asyncio.Lock())
        try:
            async with lock:
                if await self._is_begun(tenant):
                    return BegunRun(self.run, replayed=True)
                try:
                    return BegunRun(await begin())
                except Refused as error:
                    if not await self._is_begun_elsewhere(tenant, error):
                        raise
                    return BegunRun(self.run, replayed=True)
        finally:
            if not lock.locked():
                locks.pop(self.run, None)

    async def _is_begun_elsewhere(self, tenant: Tenant, error: Refused) -> bool:
        """Whether it was refused because another server has begun it just now.

        While the run is busy and has no entries, that server has claimed it and is about to write the request.
        """
        until = time.monotonic() + (_WRITING if isinstance(error, RunBusy) else 0.0)
        while not await self._is_begun(tenant):
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_SOON)
        return True

    async def _is_begun(self, tenant: Tenant) -> bool:
        try:
            first = (await tenant.journal.read(self.run))[0].event
        except Unknown:
            return False
        if not isinstance(first, RunRequested) or first.seed != self.seed:
            detail = f"this {self.name} came before with another request; use a new {self.name}"
            raise Problem(422, "other_body", detail)
        return True


class _Locks:
    def __init__(self, _tenant: Tenant) -> None:
        self.by_run: dict[str, asyncio.Lock] = {}
        self.by_message = WeakValueDictionary[str, asyncio.Lock]()


@asynccontextmanager
async def in_turn(tenant: Tenant, message: MessageKey | None) -> AsyncGenerator[None]:
    """Let calls with the same message go one at a time here. A message without an id waits for none."""
    if message is None:
        yield
        return
    async with tenant.part(_Locks).by_message.setdefault(message.key, asyncio.Lock()):
        yield


def key_of(request: Request, tenant: Tenant, sent: Struct) -> RunKey | None:
    """None where the call has no key. The path belongs to it: a key is for one thing."""
    key = _sent_key(request)
    return run_key(tenant, key, msgspec.json.encode(sent), request.scope["path"]) if key else None


def message_key(request: Request, sent: Struct) -> MessageKey | None:
    """Return what the same answer to a run is known by; None where the call has no key."""
    key = _sent_key(request)
    return MessageKey(digest(KEY_NAME, key), digest(request.scope["path"], msgspec.json.encode(sent))) if key else None


def _sent_key(request: Request) -> str:
    """Return the Idempotency-Key of a call; empty: it has none."""
    key = request.headers.get(_HEADER)
    if key is None:
        return ""
    if not _KEY.fullmatch(key):
        raise Problem(422, "invalid", "Idempotency-Key must have 1 to 255 characters, all ASCII and no spaces")
    return key


def run_key(tenant: Tenant, key: str, sent: bytes, path: str = "", name: str = KEY_NAME) -> RunKey:
    """What a key amounts to with what was sent."""
    seed = digest(key, path, sent)
    return RunKey(f"run-{digest(tenant.name, key)[:24]}", int(seed[:_SEED_DIGITS], 16), name)


def is_answered(entries: Iterable[Entry], message: MessageKey, name: str) -> bool:
    """Return whether this message of a client has answered a question of the run before.

    Args:
        entries: The entries of the run.
        message: The message that came now.
        name: What the client calls the id of a message, for the error.

    Raises:
        Problem: The id came before with another answer.
    """
    for entry in entries:
        earlier = entry.event.message if isinstance(entry.event, InputAnswered) else None
        if earlier is not None and earlier.key == message.key:
            if earlier.digest != message.digest:
                detail = f"this {name} came before with another answer, and that answer counts; read the run"
                raise Problem(422, "other_body", detail)
            return True
    return False


def is_repeated(request: Request) -> bool:
    """Whether the client says that it makes this call once more."""
    count = request.headers.get(_RETRY_COUNT, "0")
    return count.isascii() and count.isdigit() and int(count[:6]) > 0


async def mark_of(request: Request) -> str:
    """The same for the same call by the same caller."""
    caller = cast("ApiCaller", request.scope[CALLER])
    parts = blake2b(digest_size=12)
    for part in (caller.key.encode(), request.scope["path"].encode(), await raw_body(request)):
        parts.update(len(part).to_bytes(8, "big") + part)
    return parts.hexdigest()


class Repeats:
    """The latest calls of a tenant that came without a key, by their marks. `tenant.part(Repeats)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._begun: dict[str, asyncio.Future[str]] = {}

    async def begin(self, mark: str, begin: Callable[[], Awaitable[str]]) -> str:
        """Begin a run for a call; a repetition of the call meanwhile waits for the name of that run."""
        begun = asyncio.get_running_loop().create_future()
        begun.add_done_callback(lambda future: future.cancelled() or future.exception())  # it may never be awaited
        self._begun.pop(mark, None)
        self._begun[mark] = begun
        while len(self._begun) > _MAX_MARKS:
            del self._begun[next(iter(self._begun))]
        try:
            run = await begin()
        except BaseException as error:
            begun.set_exception(error if isinstance(error, Exception) else RunBusy("the call was cut off"))
            raise
        begun.set_result(run)
        return run

    async def begun_by(self, mark: str) -> str:
        """The run that the same call began; nothing if it began none, or too long ago."""
        begun = self._begun.get(mark)
        if begun is None:
            return await self._recorded(mark)
        try:
            run = await asyncio.shield(begun)
        except Exception:  # noqa: BLE001 - it came to nothing, so it is made anew
            return ""
        return run if await self._is_recorded(run) else ""

    async def _recorded(self, mark: str) -> str:
        """The run of a call from before a restart."""
        since = time.time() - REPEATED_FOR
        for row in await self._tenant.journal.latest(before=_NEWEST, limit=_MAX_LOOKED_AT):
            if row.request is None:
                continue
            if row.started < since:
                break
            client = row.request.client
            if client is not None and client.digest == mark:
                return row.run
        return ""

    async def _is_recorded(self, run: str) -> bool:
        try:
            return bool(await self._tenant.journal.read(run))
        except (RunUnknown, Corrupt):
            return False
