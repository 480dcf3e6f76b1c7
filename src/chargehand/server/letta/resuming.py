"""After a restart: talks that nobody carries any more are gone on with, and the book learns what it does not know.

Runs inside runs are gone on with by those who wait for them.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from chargehand.errors import ChargehandError
from chargehand.memory.catalog import Profile
from chargehand.server.letta.office import RESET, Office
from chargehand.server.letta.spoken import speech, speeches_inside
from chargehand.server.problem import Problem
from chargehand.server.tenants import Tenant

_OURS = re.compile(r"run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(/.+)?\Z")
_TRIES = 1000

logger = logging.getLogger(__name__)


async def resume_open(tenant: Tenant) -> int:
    """Take up every open talk of this door, the oldest first; how many there were.

    What waits for a person is left to them. Back when all of them are carried.
    """
    office = tenant.part(Office)
    try:
        found = await _caught_up(tenant, office)
    finally:
        office.caught_up.set()
    for run in found:
        if tenant.runs.closing:
            break  # they are taken up at the next start
        try:
            if not await patiently(partial(office.go_on, run)):
                logger.warning("there was no room for run %s; it goes on when it is asked for", run)
        except (ChargehandError, Problem) as error:  # the others must not be left over it
            logger.warning("run %s was not taken up: %s", run, error)
    return len(found)


async def _caught_up(tenant: Tenant, office: Office) -> list[str]:
    """Write into the book what it does not know; the runs that have to be gone on with."""
    await office.ready()
    known = await office.book.known()
    rows = [one for one in await tenant.journal.runs() if _OURS.match(one.run) and not known.get(one.run, False)]
    if rows:
        await _resets(tenant, office)
    inside: dict[str, list[str]] = {}
    for one in rows:
        top, slash, _ = one.run.partition("/")
        if slash:
            inside.setdefault(top, []).append(one.run)
    tops = sorted((one for one in rows if "/" not in one.run), key=lambda one: (one.started, one.run))
    found: list[str] = []
    for row in tops:
        try:
            if await _open(tenant, office, row.run, inside.get(row.run, ())):
                found.append(row.run)
        except ChargehandError as error:
            logger.warning("run %s was not written up: %s", row.run, error)
    return found


async def _open(tenant: Tenant, office: Office, run: str, inside: Sequence[str]) -> bool:
    """Write up a talk; whether it has to be gone on with."""
    if run in office.talks:
        return False
    found = speech(run, await tenant.journal.read(run))
    if found.asked is None:
        return False  # of another door
    for one in inside:
        await office.book.keep(speeches_inside(one, await tenant.journal.read(one)), office.resets)
    await office.kept(found)
    return not found.over and found.question is None


async def patiently(begin: Callable[[], Awaitable[object]]) -> bool:
    """Begin something as soon as there is room for it; False if there was none for very long."""
    for _ in range(_TRIES):
        try:
            await begin()
        except Problem as error:
            if error.status != 429:
                raise
            await asyncio.sleep(error.after or 1.0)
        else:
            return True
    return False


async def _resets(tenant: Tenant, office: Office) -> None:
    """Messages that were forgotten must not come back with a book that is written anew."""
    last = ""
    while page := await tenant.memory.catalog.find(Profile, after=last, limit=500):
        for one in page:
            since = one.settings.get(RESET)
            if isinstance(since, float):
                office.resets.setdefault(one.id, since)
        last = page[-1].id
