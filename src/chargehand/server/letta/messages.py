"""Messages of clients, and the runs that answer them: waited for, streamed or left to themselves, listed, cancelled."""

import time
from collections.abc import Sequence

from msgspec import structs
from starlette.responses import Response

from chargehand.memory.catalog import Profile
from chargehand.server.idempotency import Repeats, is_repeated, mark_of
from chargehand.server.letta.agents import change_agent, describe_agent
from chargehand.server.letta.custom_tools import client_side_tools
from chargehand.server.letta.executor import lock_of
from chargehand.server.letta.index import IndexedRun, IndexedRunFilter, MessageFilter
from chargehand.server.letta.models import check_model
from chargehand.server.letta.request import approvals_in, check_messages, read_answer, read_request
from chargehand.server.letta.routing import LettaCall, join_json, route
from chargehand.server.letta.session import Session
from chargehand.server.letta.settings import refuse_unsupported, settings_of, to_catalog
from chargehand.server.letta.wire import (
    CancelRequest,
    MessageCreate,
    MessageRequest,
    RunResponse,
    StreamRequest,
    Table,
)
from chargehand.server.routing import CALLER, ApiCaller
from chargehand.server.wire import Problem, reply, unknown

_OF_AGENT = "/v1/agents/{agent}/messages"
_RUN = "/v1/runs/{run}"
_MAX_LISTED = 10_000


# --- sending


@route("POST", _OF_AGENT)
async def create(call: LettaCall) -> Response:
    sent = await read_message_request(call)
    return await respond(call, sent, await call.agent(), is_streaming=bool(sent.streaming))


@route("POST", f"{_OF_AGENT}/stream")
async def stream(call: LettaCall) -> Response:
    return await respond(call, await read_message_request(call), await call.agent(), is_streaming=True)


@route("POST", f"{_OF_AGENT}/async")
async def create_async(call: LettaCall) -> RunResponse:
    """Start a run and do not wait: what came of it is read off the run."""
    sent = structs.replace(await read_message_request(call), background=True)
    return (await _start(call, sent, await call.agent())).log.describe_run()


async def read_message_request(call: LettaCall) -> MessageRequest:
    sent = await call.checked_body(MessageRequest)
    check_messages(await call.raw_body())
    return sent


async def respond(
    call: LettaCall, sent: MessageRequest, profile: Profile, conversation: str = "", *, is_streaming: bool
) -> Response:
    """Start a session and answer with all that comes of it, whole or as it comes."""
    if not is_streaming:
        session = await _start(call, sent, profile, conversation)
        return await session.respond(sent.include_return_message_types, call.tenant.settings.pulse)
    slot = call.tenant.runs.take_stream_slot()
    try:
        session = await _start(call, sent, profile, conversation, streams_tokens=bool(sent.stream_tokens))
    except BaseException:
        slot.leave()
        raise
    return session.stream(slot, types=sent.include_return_message_types, after=session.log.answered_from)


async def _start(
    call: LettaCall, sent: MessageRequest, profile: Profile, conversation: str = "", *, streams_tokens: bool = False
) -> Session:
    """The session that answers a call: a new one, or the one that this very call started before."""
    repeated = is_repeated(call.request)
    if not repeated:  # a repeated call may have a run under way, which needs no place
        call.tenant.runs.check()
    if approvals := approvals_in(sent):
        return await _answer_approval(call, approvals, conversation or profile.id, repeated=repeated)
    check_model("override_model", sent.override_model or "", call.tenant)
    client_side_tools(sent.client_tools or (), {})  # a problem now, not when the agent is at work
    request = read_request(profile.id, call.tenant.redact(sent), await mark_of(call.request), conversation)
    return await call.sessions.start(profile, request, repeated=repeated, streams_tokens=streams_tokens)


async def _answer_approval(call: LettaCall, sent: Sequence[MessageCreate], lane: str, *, repeated: bool) -> Session:
    """The session that goes on after verdicts. Verdicts that are sent again join what the first ones started."""
    sessions = call.sessions
    repeats = call.tenant.part(Repeats)
    mark = await mark_of(call.request)
    async with lock_of(call.tenant, f"verdicts {lane}"):
        answered = await repeats.begun_by(mark) if repeated else ""
        log = None if answered else await sessions.waiting_log(lane)
        if repeated and not answered and log is None:
            answered = await sessions.answered_by(lane, sent)
        if not answered:
            if log is None or log.approval is None:
                reason = "nothing waits for approval: it was answered already, or withdrawn by another message"
                raise Problem(422, "not_waiting", reason)
            answer = read_answer(log.approval, sent)

            async def resume() -> str:
                return (await sessions.resume(log.run, answer)).run

            answered = await repeats.begin(mark, resume)
    session = await sessions.join(answered)
    if session is None:
        raise unknown("run", answered)
    return session


# --- stopping and forgetting


@route("POST", f"{_OF_AGENT}/cancel")
async def cancel(call: LettaCall) -> dict[str, str]:
    """Stop what an agent does, with all it had others do: the runs that are named, or all of them."""
    profile = await call.agent()
    sent = await call.body(CancelRequest)
    runs = sent.run_ids or await call.sessions.open_runs(profile.id, profile.id)
    for run in runs:
        log = await call.sessions.log_of(run)
        if log is None or log.agent != profile.id:
            raise unknown("run", run)
    return await cancel_runs(call, runs)


async def cancel_runs(call: LettaCall, runs: Sequence[str]) -> dict[str, str]:
    """Cancel runs, and say how they stand."""
    caller: ApiCaller = call.request.scope[CALLER]
    await call.sessions.cancel(runs, "its client stopped it", by=caller.name or caller.key)
    logs = [await call.sessions.log_of(run) for run in runs]
    return {log.run: log.status for log in logs if log is not None}


@route("PATCH", "/v1/agents/{agent}/reset-messages")
async def reset(call: LettaCall) -> Table:
    """Forget a conversation: the agent does not remember it any more, and lists do not show it. Runs stay."""
    refuse_unsupported(await call.body(Table), ())

    def forget_messages(profile: Profile) -> Profile:
        settings = structs.replace(settings_of(profile), messages_since=time.time())
        return structs.replace(profile, settings=to_catalog(settings))

    await change_agent(call, forget_messages)
    profile = await call.agent()
    sessions = call.sessions
    await sessions.cancel(await sessions.open_runs(profile.id), "its messages were reset")
    await call.catalog.reset(profile.id)
    await sessions.index.forget_messages(profile.id)
    return await describe_agent(call, profile)


# --- lists


@route("GET", _OF_AGENT)
async def list_of_agent(call: LettaCall) -> Response:
    return await list_messages(call, (await call.agent()).id, call.query.get("conversation_id"))


@route("GET", "/v1/messages")
async def list_all(call: LettaCall) -> Response:
    return await list_messages(call, "", call.query.get("conversation_id"))


async def list_messages(call: LettaCall, agent: str, conversation: str | None) -> Response:
    """The messages of an agent, or of all, that the query asks for."""
    # a client that follows the pages goes on from the last message to newer ones: what is older must be on the page
    limit = _MAX_LISTED if agent else 100
    page = call.page(limit, "desc", "agent_id", "conversation_id", "include_return_message_types", "include_err")
    types = call.query.getlist("include_return_message_types")
    wanted = MessageFilter(agent=agent, conversation=conversation or "", types=types)
    return join_json(await (await call.sessions.flush(agent)).messages(wanted, page))


# --- runs


@route("GET", "/v1/runs")
async def list_runs(call: LettaCall) -> Response:
    query = call.query
    page = call.page(100, "desc", "agent_id", "statuses", "stop_reason", "conversation_id", "active")
    wanted = IndexedRunFilter(
        agents=query.getlist("agent_id"),
        statuses=query.getlist("statuses"),
        stop=query.get("stop_reason", ""),
        conversation=query.get("conversation_id", ""),
        is_active=call.flag("active"),
    )
    return join_json(await (await call.sessions.flush()).runs(wanted, page))


async def _find_run(call: LettaCall) -> IndexedRun:
    run = await (await call.sessions.flush()).run(call.path("run"))
    if run is None:
        raise unknown("run", call.path("run"))
    return run


@route("GET", _RUN)
async def retrieve_run(call: LettaCall) -> Response:
    session = call.sessions.find(call.path("run"))
    if session is not None and session.log.began and not session.done.done():
        return reply(session.log.describe_run())
    return Response((await _find_run(call)).body, media_type="application/json")


@route("GET", f"{_RUN}/messages")
async def list_messages_of_run(call: LettaCall) -> Response:
    page = call.page(100, "asc")
    await _find_run(call)
    return join_json(await call.sessions.index.messages(MessageFilter(run=call.path("run")), page))


@route("GET", f"{_RUN}/usage")
async def retrieve_usage(call: LettaCall) -> Table:
    await _find_run(call)
    log = await call.sessions.log_of(call.path("run"))
    if log is None:
        raise unknown("run", call.path("run"))
    used = log.usage
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": used.cached_input_tokens,
            "cache_read_tokens": used.cached_input_tokens,
            "cache_creation_tokens": used.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


@route("POST", f"{_RUN}/stream", "read")
async def stream_run(call: LettaCall) -> Response:
    return await follow_run(call, call.path("run"), await call.body(StreamRequest))


async def follow_run(call: LettaCall, run: str, sent: StreamRequest) -> Response:
    """Follow a run from a message on, or read again what came of it. One that is not carried is resumed."""
    session = await call.sessions.join(run)
    if session is None:
        raise unknown("run", run)
    return session.stream(call.tenant.runs.take_stream_slot(), after=max(0, sent.starting_after or 0))
