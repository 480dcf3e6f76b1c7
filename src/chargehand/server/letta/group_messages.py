"""Messages to groups over the wire, for clients up to 1.7.0."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from chargehand.errors import RunUnknown
from chargehand.server.doors import Door
from chargehand.server.house import House
from chargehand.server.letta.asked import asked_of, check_talk_fields
from chargehand.server.letta.group_talk import Begun, GroupOffice, runs_of
from chargehand.server.letta.groups import found
from chargehand.server.letta.message_shapes import FailureTold, MessageTold, StopTold, TalkSent, TalkTold, UsageTold
from chargehand.server.letta.messages import again
from chargehand.server.letta.pages import cut_messages, page_of
from chargehand.server.letta.sending import DONE
from chargehand.server.letta.shapes import moment
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, problem_of
from chargehand.server.sse import event, streamed
from chargehand.server.wire import body, part, raw_body, reply
from chargehand.terms.policy import Seconds

_LATEST = 100  # runs that are read for a list


def add(door: Door) -> None:
    path = "/v1/groups/{group}"
    door.add("POST", f"{path}/messages", create)
    door.add("POST", f"{path}/messages/stream", stream)
    door.add("GET", f"{path}/messages", listing, "read")
    door.add("PATCH", f"{path}/reset-messages", reset)


async def _begun(request: Request, house: House) -> tuple[Begun, TalkSent]:
    group, sent = await found(house, part(request, "group")), await body(request, TalkSent)
    raw = await raw_body(request)
    check_talk_fields(raw)
    for name in ("client_tools", "override_model", "override_system", "max_steps", "background"):
        if getattr(sent, name):
            raise Problem(422, "unsupported", f"{name} is not supported for groups: it is for one agent; leave it out")
    asked = asked_of(group.id, house.cleaned(sent), raw)
    return await house.part(GroupOffice).begin(group, asked, repeated=again(request)), sent


async def _told(begun: Begun, sent: TalkSent) -> TalkTold:
    begun.done.result()
    told, wanted = await begun.told(), sent.include_return_message_types
    said = [one for one in told.messages if wanted is None or one.message_type in wanted]
    return structs.replace(told, messages=said)


async def create(request: Request, house: House) -> Response:
    begun, sent = await _begun(request, house)
    if (await asyncio.wait((begun.done,), timeout=house.settings.pulse))[0]:
        return reply(await _told(begun, sent))
    return StreamingResponse(_slowly(begun, sent, house.settings.pulse), media_type="application/json")


async def _slowly(begun: Begun, sent: TalkSent, pulse: Seconds) -> AsyncIterator[bytes]:
    """White space until the answer is there: a client that reads nothing for a minute would send its call again."""
    yield b" \n"
    while not (await asyncio.wait((begun.done,), timeout=pulse))[0]:
        yield b" \n"
    try:
        yield msgspec.json.encode(await _told(begun, sent))
    except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the answer
        said = MessageTold("assistant_message", f"message-{uuid.uuid4()}", moment(time.time()), begun.run,
                           content=problem_of(error).detail, is_err=True)  # fmt: skip
        yield msgspec.json.encode(TalkTold([said], StopTold("error"), UsageTold(run_ids=(begun.run,))))


async def stream(request: Request, house: House) -> Response:
    """What was said, once all have spoken; until then signs of life."""
    begun, sent = await _begun(request, house)
    return streamed(_parts(begun, sent))


async def _parts(begun: Begun, sent: TalkSent) -> AsyncGenerator[bytes]:
    await asyncio.wait((begun.done,))
    try:
        told = await _told(begun, sent)
    except Exception as error:  # noqa: BLE001 - the status was sent, so it is told as an event
        yield event(FailureTold(begun.run, problem_of(error).detail))
    else:
        for one in told.messages:
            yield event(one)
        yield event(told.stop_reason)
        yield event(told.usage)
    yield DONE


async def listing(request: Request, house: House) -> Response:
    group, office = await found(house, part(request, "group")), house.part(GroupOffice)
    said: list[MessageTold] = []
    for run in runs_of(group)[-_LATEST:]:
        try:
            said += (await office.told(run)).messages
        except RunUnknown:
            continue
    return reply(cut_messages([(one.id, one) for one in said], page_of(request, 100, "desc")))


async def reset(request: Request, house: House) -> Response:
    """Forget what the group said, also as its members remember it. The runs stay in the journal."""
    which, catalog = part(request, "group"), house.memory.catalog
    async with changing(house, which):
        group = await found(house, which)
        await catalog.change(structs.replace(group, settings={**group.settings, "runs": [], "turns": 0}))
    for member in group.members:
        await catalog.reset(member)
    return reply(None)
