"""Begin a run, once: the same Idempotency-Key with the same body is the same run, however often it is sent.

The name of such a run comes of the tenant and the key, and its seed of the key and the body. So the journal itself
says, also after a crash, whether a call was made before and with what.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import Unknown
from chargehand.server.api.reading import source_of
from chargehand.server.api.shapes import Begun, Bounded, RunAsked
from chargehand.server.api.table import Operation, sent
from chargehand.server.problem import Problem
from chargehand.server.teams import Bounds, ServedTeam, Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import reply
from chargehand.terms import events as ev
from chargehand.terms.budget import Budget
from chargehand.terms.plan import Plan, digest

KEY = "idempotency-key"
_KEY = re.compile(r"[!-~]{1,255}")
_SEED = 12  # hexadecimal digits: whole numbers that every reader of JSON keeps


class Wish(Struct, frozen=True):
    """A run that somebody wants. `also` is told to it along with the request."""

    goal: str
    bounds: Bounds
    plan: Plan | None = None
    also: tuple[ev.Event, ...] = ()


class Counter:
    """Where runs are asked for, one at a time for each key. `house.part(Counter)` is it."""

    def __init__(self, _tenant: Tenant) -> None:
        self._busy: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncGenerator[None]:
        lock = self._busy.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._busy.pop(name, None)


def bounds_of(wanted: Bounded) -> Bounds:
    caps = wanted.budget
    if caps is None:
        return Bounds(Budget(), wanted.seconds, wanted.approve)
    return Bounds(Budget(tokens=caps.tokens, usd=caps.usd, calls=caps.calls), wanted.seconds, wanted.approve)


class Key(Struct, frozen=True):
    """What an Idempotency-Key and a body amount to: the name of a run, and its seed."""

    run: str
    seed: int


def key_of(request: Request, tenant: Tenant, wanted: Struct) -> Key | None:
    """None where the call has no key. The path belongs to it: a key is for one thing."""
    said = request.headers.get(KEY)
    if said is None:
        return None
    if not _KEY.fullmatch(said):
        raise Problem(422, "invalid", "Idempotency-Key must have 1 to 255 characters, all ASCII and no spaces")
    name = digest(tenant.name, said)
    seed = digest(said, request.scope["path"], msgspec.json.encode(wanted))
    return Key(f"run-{name[:24]}", int(seed[:_SEED], 16))


async def earlier(tenant: Tenant, key: Key) -> Response | None:
    """What was answered when this key came first; None if it never came."""
    try:
        entries = await tenant.journal.read(key.run)
    except Unknown:
        return None
    first = entries[0]
    if not isinstance(first.event, ev.RunRequested) or first.event.seed != key.seed:
        raise Problem(422, "other_body", "this Idempotency-Key came before with another body or path; use a new one")
    return _created(key.run, first, source_of(entries), again=True)


async def begun(tenant: Tenant, served: ServedTeam, wish: Wish, key: Key | None) -> Response:
    """Begin a run; 201 when it is on disk."""
    if key is None:
        return await _begin(tenant, served, wish, "", None)
    async with tenant.part(Counter).turn(key.run):
        found = await earlier(tenant, key)
        return found or await _begin(tenant, served, wish, key.run, key.seed)


async def _begin(tenant: Tenant, served: ServedTeam, wish: Wish, run: str, seed: int | None) -> Response:
    name, _ = await served.begin(wish.goal, run, bounds=wish.bounds, plan=wish.plan, seed=seed, also=wish.also)
    entries = await tenant.journal.read(name)
    return _created(name, entries[0], source_of(entries))


def _created(run: str, first: ev.Entry, source: str, *, again: bool = False) -> Response:
    requested = first.event
    assert isinstance(requested, ev.RunRequested), "a run begins with its request"
    headers = {"Location": f"/api/runs/{run}"} | ({"Idempotency-Replayed": "true"} if again else {})
    return reply(
        Begun(run=run, team=requested.team, goal=requested.goal, started=first.at, source=source), 201, headers
    )


async def create(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, RunAsked)
    key = key_of(request, tenant, wanted)
    if key is not None and (found := await earlier(tenant, key)) is not None:
        return found  # also when the team is gone, or nothing more can be begun
    bounds = bounds_of(wanted)
    served = await tenant.part(Teams).of(wanted.team, bounds.budget)
    return await begun(tenant, served, Wish(wanted.goal, bounds, wanted.plan), key)


OPERATIONS = (
    Operation(
        method="POST",
        path="/api/runs",
        call=create,
        name="create_run",
        group="runs",
        scope="run",
        asked=RunAsked,
        told=Begun,
        status=201,
        creates=True,
        problems=(404, 422, 429, 503),
        summary="Begin a run; answered when it is on disk.",
    ),
)
