"""What a client ordered: kept in the journal as a note beside the request of its run, so that a run can be told again.

Which run is whose, and how a repeated call is known, is found out here. How runs are carried is not.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import cast

import msgspec
from msgspec import Struct
from starlette.requests import Request

from chargehand.errors import Corrupt, RunUnknown
from chargehand.server.openai.conversation import Turn
from chargehand.server.routing import CALLER, Caller
from chargehand.server.tenants import Tenant
from chargehand.server.wire import raw_body
from chargehand.terms import events as ev
from chargehand.terms.policy import Seconds

AGAIN: Seconds = 15 * 60.0
"""How long a call that is made again is known to be the same."""
_NOTE = "ordered "
_MOST = 1000
_LOOKED_AT = 50
_RETRIED = "x-stainless-retry-count"


class Order(Struct, frozen=True, omit_defaults=True):
    """`turns` are what a next request may go on from; none where it was not to be stored."""

    model: str
    worker: str = ""
    mark: str = ""
    stored: bool = False
    turns: tuple[Turn, ...] = ()
    previous: str = ""
    instructions: str = ""
    background: bool = False
    metadata: dict[str, str] | None = None

    def note(self) -> ev.Noted:
        return ev.Noted(_NOTE + msgspec.json.encode(self).decode())


def ordered(entries: Iterable[ev.Entry]) -> Order | None:
    """The order of a run; None for a run of another door."""
    for entry in entries:
        if isinstance(entry.event, ev.Noted) and entry.event.text.startswith(_NOTE):
            try:
                return msgspec.json.decode(entry.event.text[len(_NOTE) :], type=Order)
            except msgspec.DecodeError:
                return None
    return None


async def mark_of(request: Request) -> str:
    """The same for the same call by the same caller."""
    caller = cast("Caller", request.scope[CALLER])
    said = blake2b(digest_size=12)
    for one in (caller.key.encode(), request.scope["path"].encode(), await raw_body(request)):
        said.update(len(one).to_bytes(8, "big") + one)
    return said.hexdigest()


def is_repeated(request: Request) -> bool:
    """Whether the client says that it makes this call once more."""
    said = request.headers.get(_RETRIED, "0")
    return said.isascii() and said.isdigit() and int(said[:6]) > 0


class Orders:
    """The latest calls of a house, by their marks. `house.part(Orders)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._latest: dict[str, asyncio.Future[str]] = {}

    def expect(self, mark: str) -> "asyncio.Future[str]":
        """A call that is about to begin a run: whoever repeats it waits for the name of that run."""
        found = asyncio.get_running_loop().create_future()
        found.add_done_callback(lambda one: one.cancelled() or one.exception())  # nobody may ask for it
        self._latest.pop(mark, None)
        self._latest[mark] = found
        while len(self._latest) > _MOST:
            del self._latest[next(iter(self._latest))]
        return found

    async def begun_by(self, mark: str) -> str:
        """The run that the same call began; nothing if it began none, or too long ago."""
        found = self._latest.get(mark)
        if found is None:
            return await self._written(mark)
        try:
            run = await asyncio.shield(found)
        except Exception:  # noqa: BLE001 - it came to nothing, so it is made anew
            return ""
        return run if await self._first(run) else ""

    async def _written(self, mark: str) -> str:
        """After a restart: what the journal says."""
        since = time.time() - AGAIN
        rows = sorted(await self._tenant.journal.runs(), key=lambda one: one.started, reverse=True)
        for row in rows[:_LOOKED_AT]:
            if row.started < since:
                break
            order = ordered(await self._first(row.run))
            if order is not None and order.mark == mark:
                return row.run
        return ""

    async def _first(self, run: str) -> Sequence[ev.Entry]:
        try:
            return await self._tenant.journal.read(run)
        except (RunUnknown, Corrupt):
            return ()
