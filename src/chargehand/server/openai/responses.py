"""POST /v1/responses, and what can be done with a response later: it is a run, so it is stored anyway.

`previous_response_id` goes on from what was said there. With `store: false` nobody can go on from it, or retrieve it.
"""

from starlette.requests import Request
from starlette.responses import Response

from chargehand.errors import RunUnknown
from chargehand.server.api.orders import tell
from chargehand.server.api.reading import Seen, seen
from chargehand.server.openai.carried import Wanted, carried, settled
from chargehand.server.openai.conversation import Conversation, Turn, bounded, conversation
from chargehand.server.openai.ear import Ear
from chargehand.server.openai.heard import seated
from chargehand.server.openai.models import Called, called
from chargehand.server.openai.order import Order, ordered
from chargehand.server.openai.outcome import told
from chargehand.server.openai.problem import RUN, AboutRun, enveloped
from chargehand.server.openai.response_stream import events
from chargehand.server.openai.response_told import PREFIX, Head, as_it_stands, completed, message
from chargehand.server.openai.sent import MessageSent, ResponseSent, check_response, turns
from chargehand.server.problem import Fault, Problem
from chargehand.server.streams import streamed
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, reply
from chargehand.terms import events as ev


async def create(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ResponseSent)
    check_response(sent)
    whom = called(tenant, sent.model)
    talk = await _conversation(tenant, sent)
    wanted = Wanted(whom, talk, _order(sent, whom, talk))
    if sent.stream:
        return await _streamed(request, tenant, sent, wanted)
    run = await carried(request, tenant, sent, wanted)
    if sent.background:
        one = await seen(tenant, run)
        return reply(as_it_stands(_head(one, wanted.order), one), headers={RUN: run})
    one = await settled(tenant, run)
    try:
        came = told(one)
        head = _head(one, wanted.order)
    except AboutRun as problem:  # told here: nothing is wrong with the server
        return enveloped(problem)
    return reply(completed(head, came, [message(head, came.text)]), headers={RUN: run})


async def _streamed(request: Request, tenant: Tenant, sent: ResponseSent, wanted: Wanted) -> Response:
    slot = tenant.runs.take_stream_slot()
    ear = Ear(tenant, wanted.called.aloud)
    run = await carried(request, tenant, sent, wanted, ear)
    head = _head(await seen(tenant, run), wanted.order)
    parts = events(tenant, head, ear, wanted.called.team.notice)
    return streamed(seated(parts, slot), every=tenant.settings.pulse, headers={RUN: run})


async def retrieve(request: Request, tenant: Tenant) -> Response:
    one, order = await _stored(tenant, part(request, "response"), "response_id")
    return reply(as_it_stands(_head(one, order), one), headers={RUN: one.run})


async def cancel(request: Request, tenant: Tenant) -> Response:
    """One that is over stays what it is."""
    one, order = await _stored(tenant, part(request, "response"), "response_id")
    if one.state.ended is None:
        await tell(tenant, one.run, lambda _: ev.CancelRequested("a client cancelled the response"))
        one = await settled(tenant, one.run)
    return reply(as_it_stands(_head(one, order), one), headers={RUN: one.run})


# --- what was said


async def _conversation(tenant: Tenant, sent: ResponseSent) -> Conversation:
    items = [MessageSent("user", sent.input)] if isinstance(sent.input, str) else sent.input
    said = turns(items, "input")
    wishes = [Turn("system", sent.instructions)] if sent.instructions else []
    before = await _before(tenant, sent.previous_response_id) if sent.previous_response_id else []
    return conversation([*wishes, *before, *said], "input")


async def _before(tenant: Tenant, response: str) -> list[Turn]:
    """What was said up to the end of an earlier response."""
    one, order = await _stored(tenant, response, "previous_response_id")
    if one.state.ended is None:
        raise Problem(409, "response_not_over", f"response {response[:100]!r} is not over yet; wait for it")
    try:
        answer = told(one).text
    except AboutRun:
        answer = ""
    return [*order.turns, *([Turn("assistant", answer)] if answer else [])]


async def _stored(tenant: Tenant, response: str, param: str) -> tuple[Seen, Order]:
    said = f"there is no response {response[:100]!r}"
    missing = Problem(404, "response_not_found", said, faults=[Fault(param, said)])
    if not response.startswith(PREFIX):
        raise missing
    try:
        one = await seen(tenant, response.removeprefix(PREFIX))
    except RunUnknown as error:
        raise missing from error
    order = ordered(one.entries)
    if order is None or not order.stored:
        raise missing
    return one, order


def _order(sent: ResponseSent, whom: Called, talk: Conversation) -> Order:
    stored = sent.store is not False
    return Order(
        whom.id,
        whom.worker,
        stored=stored,
        turns=bounded(talk.turns) if stored else (),
        previous=sent.previous_response_id or "",
        instructions=sent.instructions or "",
        background=bool(sent.background),
        metadata=sent.metadata,
    )


def _head(one: Seen, order: Order) -> Head:
    return Head(one.run, one.entries[0].at, order)
