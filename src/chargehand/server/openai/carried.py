"""A conversation carried as a run: begun once however often the call is made, and followed to where it stops."""

import asyncio
import secrets
import time

from msgspec import Struct, structs
from starlette.requests import Request

from chargehand.agents.letters import PERSON, addressed
from chargehand.errors import RunBusy, Unknown
from chargehand.runtime.driver import checked
from chargehand.runtime.messaging import as_message
from chargehand.server.api.begin import Counter, Key, key_of
from chargehand.server.api.reading import Seen, seen
from chargehand.server.openai.conversation import Conversation, goal
from chargehand.server.openai.ear import Ear
from chargehand.server.openai.models import Called
from chargehand.server.openai.order import Order, Orders, is_repeated, mark_of
from chargehand.server.problem import Problem
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.terms import events as ev
from chargehand.terms.roster import Match

_TRIES = 600
_SOON = 0.1


class Wanted(Struct, frozen=True):
    """A call: of whom, about what, and what is noted of it."""

    called: Called
    conversation: Conversation
    order: Order


async def carried(request: Request, tenant: Tenant, sent: Struct, wanted: Wanted, ear: Ear | None = None) -> str:
    """The run of a call: a new one, on disk, whose words `ear` hears, or the one that the same call began before."""
    key = key_of(request, tenant, sent)
    if key is not None:
        async with tenant.part(Counter).turn(key.run):
            return key.run if await _came_before(tenant, key) else await _begun(tenant, wanted, ear, key)
    mark = await mark_of(request)
    orders = tenant.part(Orders)
    if is_repeated(request) and (run := await orders.begun_by(mark)):
        return run
    wanted = structs.replace(wanted, order=structs.replace(wanted.order, mark=mark))
    begun = orders.expect(mark)
    try:
        run = await _begun(tenant, wanted, ear, None)
    except BaseException as error:
        begun.set_exception(error if isinstance(error, Exception) else RunBusy("the call was cut off"))
        raise
    begun.set_result(run)
    return run


async def _came_before(tenant: Tenant, key: Key) -> bool:
    try:
        first = (await tenant.journal.read(key.run))[0].event
    except Unknown:
        return False
    if not isinstance(first, ev.RunRequested) or first.seed != key.seed:
        raise Problem(400, "other_body", "this Idempotency-Key came before with another body or path; use a new one")
    return True


async def _begun(tenant: Tenant, wanted: Wanted, ear: Ear | None, key: Key | None) -> str:
    tenant.runs.check()
    called = wanted.called
    now = time.time()
    served = await tenant.part(Teams).of(called.team.name)
    asked = goal(wanted.conversation, heeds=not called.reads_facts)
    team = await served.keep_budget()
    request = team.request(asked, now, seed=None if key is None else key.seed)
    if called.worker:
        # earlier turns reach the worker as material of the goal: its letter must not hold them once more
        latest = goal(structs.replace(wanted.conversation, earlier=()), heeds=not called.reads_facts)
        letter = addressed(
            agents=called.team.members, text=latest, match=Match(), names=(called.worker,), sender=PERSON, timeout=None
        )
        # with the name of its team it goes on after a restart, and can be spoken to, like any other run
        request = structs.replace(as_message(request, letter), team=called.team.name)
    request = checked(request, now)
    run = f"{called.team.name}-{secrets.token_hex(6)}" if key is None else key.run
    also = (wanted.order.note(), *await team.offered(tenant.journal, request))
    if ear is not None:
        ear.listen(run)
    try:
        done = await tenant.runs.begin(run, lambda: served.driver.start(run, request, also=also))
    except BaseException:
        if ear is not None:
            ear.leave()
        raise
    if ear is not None:
        done.add_done_callback(lambda _: ear.leave())  # also where the client never fetched its stream
    return run


async def settled(tenant: Tenant, run: str) -> Seen:
    """The run where it stops: it has ended, or waits for a person. One that nobody carries is gone on with."""
    for _ in range(_TRIES):
        if await tenant.runs.outcome(run) is not None:
            return await seen(tenant, run)
        one = await seen(tenant, run)
        if one.state.ended is not None or one.state.input is not None or one.state.paused:
            return one
        await _resumed(tenant, one)
    raise Problem(503, "busy", f"run {run!r} is carried by somebody else; ask for it again soon", after=5.0)


async def _resumed(tenant: Tenant, one: Seen) -> None:
    team = one.requested.team
    if team not in tenant.part(Teams).teams:
        raise Problem(409, "refused", f"the team of run {one.run!r} is not here any more, so nobody goes on with it")
    try:
        await (await tenant.part(Teams).of(team, one.requested.budget)).resume(one.run)
    except RunBusy:  # somebody was faster: it is carried soon, or over
        await asyncio.sleep(_SOON)
