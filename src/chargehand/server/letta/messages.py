"""Messages to an agent: a run is begun, and waited for, streamed or left to itself. Lists are `message_lists`'."""

import time
from collections.abc import Sequence

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.memory.catalog import Profile
from chargehand.memory.compaction import LEAST_KEPT, plain_summary, summary_turn
from chargehand.server.letta.agents import found, told
from chargehand.server.letta.approvals import approved
from chargehand.server.letta.asked import approvals_in, asked_of, check_talk_fields
from chargehand.server.letta.book_rows import run_told
from chargehand.server.letta.message_shapes import CancelSent, CompactSent, ResetSent, TalkSent
from chargehand.server.letta.office import RESET, Office
from chargehand.server.letta.sending import View, events, refuse_callback, whole
from chargehand.server.letta.talk import Talk
from chargehand.server.letta.writers import changing
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, raw_body, read, reply

_MOST_TURNS = 1000


def add(api: Api) -> None:
    api.add("POST", "/v1/agents/{agent}/messages", create)
    api.add("POST", "/v1/agents/{agent}/messages/stream", stream)
    api.add("POST", "/v1/agents/{agent}/messages/async", later)
    api.add("POST", "/v1/agents/{agent}/messages/cancel", cancel)
    api.add("PATCH", "/v1/agents/{agent}/reset-messages", reset)
    api.add("POST", "/v1/agents/{agent}/summarize", summarize)


async def create(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, TalkSent)
    check_talk_fields(await raw_body(request))
    profile = await found(tenant, part(request, "agent"))
    if sent.streaming:
        return await streamed_talk(request, tenant, sent, profile)
    return await whole_talk(request, tenant, sent, profile)


async def stream(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, TalkSent)
    check_talk_fields(await raw_body(request))
    return await streamed_talk(request, tenant, sent, await found(tenant, part(request, "agent")))


async def whole_talk(
    request: Request, tenant: Tenant, sent: TalkSent, profile: Profile, conversation: str = ""
) -> Response:
    """Begin a talk and answer with all that came of it."""
    talk = await begun(request, tenant, sent, profile, conversation)
    return await whole(talk, sent.include_return_message_types, tenant.settings.pulse)


async def streamed_talk(
    request: Request, tenant: Tenant, sent: TalkSent, profile: Profile, conversation: str = ""
) -> Response:
    """Begin a talk and stream what comes of it."""
    tokens = bool(sent.stream_tokens)
    slot = tenant.runs.take_stream_slot()
    try:
        talk = await begun(request, tenant, sent, profile, conversation, aloud=tokens)
    except BaseException:
        slot.leave()
        raise
    view = View(sent.include_return_message_types, tokens, bool(sent.include_pings), talk.since)
    return events(talk, view, slot)


async def later(request: Request, tenant: Tenant) -> Response:
    """Begin and do not wait: what came of it is read off the run."""
    sent = await body(request, TalkSent)
    check_talk_fields(await raw_body(request))
    profile = await found(tenant, part(request, "agent"))
    talk = await begun(request, tenant, structs.replace(sent, background=True), profile)
    return reply(run_told(talk.speech))


async def begun(
    request: Request, tenant: Tenant, sent: TalkSent, profile: Profile, conversation: str = "", *, aloud: bool = False
) -> Talk:
    """The talk that answers a call: a new one, or that which this very call began before."""
    repeated = again(request)
    if not repeated:  # who comes again may have a run under way, which needs no place
        tenant.runs.check()
    refuse_callback(sent.callback_url)
    approvals = approvals_in(sent)
    if approvals:
        return await approved(tenant, profile, approvals, conversation, repeated=repeated)
    asked = asked_of(profile.id, tenant.cleaned(sent), await raw_body(request), conversation)
    return await tenant.part(Office).say(profile, asked, repeated=repeated, aloud=aloud)


def again(request: Request) -> bool:
    """Whether a client says that it sends this once more."""
    said = request.headers.get("x-stainless-retry-count", "")
    return said.isascii() and said.isdigit() and int(said[:6]) > 0


async def cancel(request: Request, tenant: Tenant) -> Response:
    """Stop what an agent does, with all it had others do; of runs that are not named, all of it."""
    profile = await found(tenant, part(request, "agent"))
    sent = read(await raw_body(request), CancelSent)
    office = tenant.part(Office)
    runs = list(sent.run_ids or await office.all_under_way(profile.id))
    for run in runs:
        standing = await office.standing(run)
        if standing is None or standing.agent != profile.id:
            raise unknown("run", run)
    return reply(await stop_runs(office, runs))


async def stop_runs(office: Office, runs: Sequence[str]) -> dict[str, str]:
    """Cancel runs, and say how they stand."""
    await office.cancel(runs, "cancelled by its client")
    stood = [(run, await office.standing(run)) for run in runs]
    return {run: one.status for run, one in stood if one is not None}


async def reset(request: Request, tenant: Tenant) -> Response:
    """Forget a conversation: the agent no longer remembers it, and lists no longer show it. Runs stay."""
    which = part(request, "agent")
    catalog = tenant.memory.catalog
    office = tenant.part(Office)
    if (await body(request, ResetSent)).add_default_initial_messages:
        said = "add_default_initial_messages is not supported: an agent begins without messages here; leave it out"
        raise Problem(422, "unsupported", said)
    async with changing(tenant, which):
        profile = await found(tenant, which)
        now = office.resets[which] = time.time()
        await office.cancel(await office.under_way(which), "its messages were reset")
        await catalog.reset(which)
        changed = await catalog.change(structs.replace(profile, settings={**profile.settings, RESET: now}))
        await office.book.forget(which, runs=False)
    return reply(await told(tenant, changed))


async def summarize(request: Request, tenant: Tenant) -> Response:
    profile = await found(tenant, part(request, "agent"))
    return await compact_turns(request, tenant, profile.id)


async def compact_turns(request: Request, tenant: Tenant, lane: str) -> Response:
    """Put what was said before behind a summary: it is found by searching, but no longer shown to the agent."""
    catalog = tenant.memory.catalog
    if (await body(request, CompactSent)).compaction_settings:
        said = "compaction_settings is not supported: the oldest messages are summarised by a plain rule; leave it out"
        raise Problem(422, "unsupported", said)
    async with tenant.memory.gate(lane):
        turns = await catalog.turns(lane, limit=_MOST_TURNS)
        old = turns[: max(0, len(turns) - LEAST_KEPT)]
        text = plain_summary(old) if old else ""
        if any(one.role != "summary" for one in old):
            await catalog.summarise(lane, summary_turn(old, text, 0.0))
        left = await catalog.turns(lane, limit=_MOST_TURNS)
    return reply({"summary": text, "num_messages_before": len(turns), "num_messages_after": len(left)})
