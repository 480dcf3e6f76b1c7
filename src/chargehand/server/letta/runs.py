"""Runs of agents: listed, read and streamed."""

from operator import itemgetter

from starlette.responses import Response

from chargehand.runtime.trace import trace
from chargehand.server.letta.index import IndexedRun, Where
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.routing import LettaCall, Routes, join_json
from chargehand.server.letta.sessions import View
from chargehand.server.letta.wire import StepResponse, StreamRequest, Table
from chargehand.server.wire import reply, unknown

routes = Routes()
_RUN = "/v1/runs/{run}"


@routes.get("/v1/runs")
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


async def _find_log(call: LettaCall) -> MessageLog:
    await _find_run(call)
    log = await call.sessions.log_of(call.path("run"))
    if log is None:
        raise unknown("run", call.path("run"))
    return log


@routes.get(_RUN)
async def retrieve(call: LettaCall) -> Response:
    session = call.sessions.find(call.path("run"))
    if session is not None and session.log.began and not session.done.done():
        return reply(session.log.describe_run())
    return Response((await _find_run(call)).body, media_type="application/json")


@routes.get(f"{_RUN}/messages")
async def list_messages(call: LettaCall) -> Response:
    page = call.page(100, "asc")
    await _find_run(call)
    where = Where()
    where.equal("run", call.path("run"))
    return join_json(await call.sessions.index.messages(where, page))


@routes.get(f"{_RUN}/steps")
async def list_steps(call: LettaCall) -> list[StepResponse]:
    page = call.page(100, "desc")
    return page.cut((await _find_log(call)).steps)


@routes.get(f"{_RUN}/usage")
async def usage(call: LettaCall) -> Table:
    used = (await _find_log(call)).usage
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
    }


@routes.get(f"{_RUN}/trace")
async def trace_run(call: LettaCall) -> list[Table]:
    """Every step of a run with the time it took, in the order in which they began."""
    name = (await _find_run(call)).name
    traced = trace(name, await call.tenant.journal.read(name))
    attempts = [(task.id, attempt) for task in traced.tasks for attempt in task.attempts]
    spans: list[Table] = [
        {
            "trace_id": name,
            "span_id": f"{task}/{attempt.attempt}/{step.step}",
            "span_name": step.name,
            "timestamp": traced.began + step.began,
            "duration_ns": int(step.seconds * 1e9),
            "status": "ok" if step.good else "error",
            "attributes": {"attempt": attempt.attempt, "effect": step.effect},
        }
        for task, attempt in attempts
        for step in attempt.steps
        if step.seconds is not None
    ]
    return sorted(spans, key=itemgetter("timestamp"))


# --- streams


@routes.post(f"{_RUN}/stream", "read")
async def stream(call: LettaCall) -> Response:
    return await follow_run(call, call.path("run"), await call.body(StreamRequest))


async def follow_run(call: LettaCall, run: str, sent: StreamRequest) -> Response:
    """Follow a run from a message on, or read again what came of it. One that is not carried is resumed."""
    session = await call.sessions.join(run)
    if session is None:
        raise unknown("run", run)
    view = View(None, session.streams_tokens, bool(sent.include_pings), max(0, sent.starting_after or 0))
    return session.stream(view, call.tenant.runs.take_stream_slot())
