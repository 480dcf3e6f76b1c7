"""Runs of agents: listed, read and streamed."""

from starlette.responses import Response

from chargehand.server.letta.index import IndexedRun, Where
from chargehand.server.letta.routing import LettaCall, join_json, route
from chargehand.server.letta.wire import StreamRequest, Table
from chargehand.server.wire import reply, unknown

_RUN = "/v1/runs/{run}"


@route("GET", "/v1/runs")
async def list_runs(call: LettaCall) -> Response:
    query = call.query
    page = call.page(100, "desc", "agent_id", "statuses", "stop_reason", "conversation_id", "active")
    where = Where()
    where.among("agent", query.getlist("agent_id"))
    where.among("status", query.getlist("statuses"))
    where.equal("stop", query.get("stop_reason"))
    where.in_conversation(query.get("conversation_id"))
    if call.flag("active"):
        where.among("status", ("created", "running"))
    return join_json(await (await call.sessions.flush()).runs(where, page))


async def _find_run(call: LettaCall) -> IndexedRun:
    run = await (await call.sessions.flush()).run(call.path("run"))
    if run is None:
        raise unknown("run", call.path("run"))
    return run


@route("GET", _RUN)
async def retrieve(call: LettaCall) -> Response:
    session = call.sessions.find(call.path("run"))
    if session is not None and session.log.began and not session.done.done():
        return reply(session.log.describe_run())
    return Response((await _find_run(call)).body, media_type="application/json")


@route("GET", f"{_RUN}/messages")
async def list_messages(call: LettaCall) -> Response:
    page = call.page(100, "asc")
    await _find_run(call)
    where = Where()
    where.equal("run", call.path("run"))
    return join_json(await call.sessions.index.messages(where, page))


@route("GET", f"{_RUN}/usage")
async def usage(call: LettaCall) -> Table:
    await _find_run(call)
    log = await call.sessions.log_of(call.path("run"))
    if log is None:
        raise unknown("run", call.path("run"))
    used = log.usage
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
    }


# --- streams


@route("POST", f"{_RUN}/stream", "read")
async def stream(call: LettaCall) -> Response:
    return await follow_run(call, call.path("run"), await call.body(StreamRequest))


async def follow_run(call: LettaCall, run: str, sent: StreamRequest) -> Response:
    """Follow a run from a message on, or read again what came of it. One that is not carried is resumed."""
    session = await call.sessions.join(run)
    if session is None:
        raise unknown("run", run)
    return session.stream(call.tenant.runs.take_stream_slot(), after=max(0, sent.starting_after or 0))
