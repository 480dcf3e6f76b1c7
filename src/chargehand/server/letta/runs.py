"""Runs of agents: listed, looked at, follow_run."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.letta.book import Book
from chargehand.server.letta.book_rows import Conditions, run_told
from chargehand.server.letta.message_lists import joined, narrow_to_conversation
from chargehand.server.letta.message_shapes import StreamSent, UsageTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.pages import page_of
from chargehand.server.letta.sending import View, events
from chargehand.server.letta.spoken import speeches_inside
from chargehand.server.letta.talk import Talk
from chargehand.server.problem import unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, flag, part, reply
from chargehand.terms import events as ev
from chargehand.terms.policy import Seconds

_USAGE = msgspec.json.Decoder(UsageTold)
_LOOK_AGAIN: Seconds = 0.2
"""How long it takes at most until what a run inside another wrote is streamed."""


def add(api: Api) -> None:
    api.add("GET", "/v1/runs", listing, "read")
    api.add("GET", "/v1/runs/{run}", retrieve, "read")
    api.add("GET", "/v1/runs/{run}/messages", messages, "read")
    api.add("GET", "/v1/runs/{run}/steps", steps, "read")
    api.add("GET", "/v1/runs/{run}/usage", usage, "read")
    api.add("GET", "/v1/runs/{run}/trace", trace, "read")
    api.add("POST", "/v1/runs/{run}/stream", stream, "read")


async def listing(request: Request, tenant: Tenant) -> Response:
    asked = request.query_params
    wanted = Conditions()
    wanted.among("agent", [*asked.getlist("agent_id"), *asked.getlist("agent_ids")])
    wanted.among("status", asked.getlist("statuses"))
    narrow_to_conversation(wanted, asked.get("conversation_id"))
    wanted.equal("stop", asked.get("stop_reason"))
    if asked.get("background") is not None:
        wanted.add("background = ?", int(flag(request, "background")))
    if flag(request, "active"):
        wanted.among("status", ("created", "running"))
    page = page_of(request, 100, "desc")
    await tenant.part(Office).settle()
    return joined(await tenant.part(Book).runs(wanted, page))


async def _kept(request: Request, tenant: Tenant) -> tuple[str, str, bytes, bytes]:
    which = part(request, "run")
    await tenant.part(Office).settle()
    row = await tenant.part(Book).run(which)
    if row is None:
        raise unknown("run", which)
    return row


async def retrieve(request: Request, tenant: Tenant) -> Response:
    talk = tenant.part(Office).talks.get(part(request, "run"))
    if talk is not None and talk.speech.began:
        return reply(run_told(talk.speech))
    return Response((await _kept(request, tenant))[2], media_type="application/json")


async def messages(request: Request, tenant: Tenant) -> Response:
    await _kept(request, tenant)
    wanted = Conditions()
    wanted.equal("run", part(request, "run"))
    return joined(await tenant.part(Book).messages(wanted, page_of(request, 100, "asc")))


async def steps(request: Request, tenant: Tenant) -> Response:
    await _kept(request, tenant)
    wanted = Conditions()
    wanted.equal("run", part(request, "run"))
    return reply(await tenant.part(Book).steps(wanted, page_of(request, 100, "desc")))


async def usage(request: Request, tenant: Tenant) -> Response:
    used = _USAGE.decode((await _kept(request, tenant))[3])
    return reply(
        {
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "total_tokens": used.total_tokens,
            "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
        }
    )


async def trace(request: Request, tenant: Tenant) -> Response:
    """Every step of a run with the time it took, in the order of its journal."""
    name = (await _kept(request, tenant))[0]
    begun: dict[tuple[str, int, int], ev.Entry] = {}
    spans: list[dict[str, object]] = []
    for entry in await tenant.journal.read(name):
        event = entry.event
        if isinstance(event, ev.StepStarted):
            begun[event.task, event.attempt, event.step] = entry
        elif isinstance(event, ev.StepFinished) and (first := begun.pop((event.task, event.attempt, event.step), None)):
            spans.append(_span(name, first, entry, event))
    return reply(spans)


def _span(run: str, first: ev.Entry, last: ev.Entry, event: ev.StepFinished) -> dict[str, object]:
    started = first.event
    assert isinstance(started, ev.StepStarted)
    return {
        "trace_id": run,
        "span_id": f"{event.task}/{event.attempt}/{event.step}",
        "span_name": started.name,
        "timestamp": first.at,
        "duration_ns": int((last.at - first.at) * 1e9),
        "status": "ok" if event.good else "error",
        "attributes": {"attempt": event.attempt, "effect": started.effect},
    }


async def stream(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, StreamSent)
    run = part(request, "run")
    if run not in tenant.part(Office).talks:
        name = (await _kept(request, tenant))[0]
        if name != run:
            return await _stream_inside(tenant, run, name, sent)
    return await follow_run(tenant, run, sent)


async def _stream_inside(tenant: Tenant, run: str, name: str, sent: StreamSent) -> Response:
    """The messages of a run inside another, as they are written."""
    entries = await tenant.journal.read(name)
    inside = next((one for one in speeches_inside(name, entries) if one.run == run), None)
    if inside is None:
        raise unknown("run", run)
    talk = Talk(inside)
    view = View(pings=bool(sent.include_pings), seen=max(0, sent.starting_after or 0))
    return events(talk, view, tenant.runs.take_stream_slot(), _read_on(tenant, name, talk, entries[-1].seq))


async def _read_on(tenant: Tenant, name: str, talk: Talk, seen: int) -> AsyncGenerator[bytes]:
    """Let a talk hear what is written in a run inside another, which tells nobody of it, up to its end.

    It ends too when nobody carries the other run any more.
    """
    is_carried = True
    while not talk.speech.over and is_carried:
        yield b""  # here it is left if the client is gone
        is_carried = name.partition("/")[0] in tenant.part(Office).talks
        if is_carried:
            await asyncio.sleep(_LOOK_AGAIN)
        for entry in await tenant.journal.read(name, after=seen):
            talk.hear((entry,))
            seen = entry.seq
    talk.finish()


async def follow_run(tenant: Tenant, run: str, sent: StreamSent) -> Response:
    """Follow a run from a message on, or read again what came of it. One that nobody carries is taken up."""
    office = tenant.part(Office)
    talk = office.talks.get(run)
    if talk is None:
        standing = await office.standing(run)
        if standing is None:
            raise unknown("run", run)
        talk = Talk(standing)
        if standing.over or standing.question is not None:
            talk.finish()
        else:
            talk = await office.go_on(run)
    seen = max(0, sent.starting_after or 0)
    return events(talk, View(None, talk.aloud, bool(sent.include_pings), seen), tenant.runs.take_stream_slot())
