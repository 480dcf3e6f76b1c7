"""Runs of agents and their steps: listed, read, streamed, and rated by people."""

from operator import itemgetter

import msgspec
from starlette.responses import Response

from chargehand.runtime.trace import trace
from chargehand.server.letta.index import IndexedRun, IndexRunFilter, ListPage, MessageFilter, StepFilter
from chargehand.server.letta.message_log import read_nested_logs
from chargehand.server.letta.messages import conversation_filter
from chargehand.server.letta.routing import LettaCall, Routes, join_json
from chargehand.server.letta.sessions import Session, View
from chargehand.server.letta.wire import (
    FeedbackRequest,
    StepResponse,
    StreamRequest,
    Table,
    UsageStatistics,
    nanoseconds,
    parse_time,
)
from chargehand.server.wire import reply, unknown

routes = Routes()
_RUN = "/v1/runs/{run}"
_STEP = "/v1/steps/{step}"


@routes.get("/v1/runs")
async def list_runs(call: LettaCall) -> Response:
    query = call.query
    wanted = IndexRunFilter(
        agents=[*query.getlist("agent_id"), *query.getlist("agent_ids")],
        statuses=query.getlist("statuses"),
        stop_reason=query.get("stop_reason", ""),
        conversation=conversation_filter(query.get("conversation_id")),
        background=None if query.get("background") is None else call.flag("background"),
        active=call.flag("active"),
    )
    page = call.page(100, "desc")
    return join_json(await (await call.sessions.flush()).runs(wanted, page))


async def _find_run(call: LettaCall) -> IndexedRun:
    run = await (await call.sessions.flush()).run(call.path("run"))
    if run is None:
        raise unknown("run", call.path("run"))
    return run


@routes.get(_RUN)
async def retrieve(call: LettaCall) -> Response:
    session = call.sessions.find(call.path("run"))
    if session is not None and session.log.began:
        return reply(session.log.describe_run())
    return Response((await _find_run(call)).body, media_type="application/json")


@routes.get(f"{_RUN}/messages")
async def list_messages(call: LettaCall) -> Response:
    await _find_run(call)
    wanted = MessageFilter(run=call.path("run"))
    return join_json(await call.sessions.index.messages(wanted, call.page(100, "asc")))


@routes.get(f"{_RUN}/steps")
async def list_run_steps(call: LettaCall) -> list[StepResponse]:
    await _find_run(call)
    return await call.sessions.index.steps(StepFilter(runs=[call.path("run")]), call.page(100, "desc"))


@routes.get(f"{_RUN}/usage")
async def usage(call: LettaCall) -> Table:
    used = msgspec.json.decode((await _find_run(call)).usage, type=UsageStatistics)
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
            "duration_ns": nanoseconds(step.seconds),
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
    sessions = call.sessions
    session = sessions.find(run) or await sessions.join(run) or await _nested_session(call, run)
    view = View(None, session.streams_tokens, bool(sent.include_pings), max(0, sent.starting_after or 0))
    return session.stream(view, call.tenant.runs.take_stream_slot())


async def _nested_session(call: LettaCall, run: str) -> Session:
    """A run inside another that has ended."""
    indexed = await (await call.sessions.flush()).run(run)
    logs = [] if indexed is None else read_nested_logs(indexed.name, await call.tenant.journal.read(indexed.name))
    log = next((log for log in logs if log.run == run), None)
    if log is None:
        raise unknown("run", run)
    session = Session(log)
    session.finish()
    return session


# --- steps


@routes.get("/v1/steps")
async def list_steps(call: LettaCall) -> list[StepResponse]:
    query = call.query
    wanted = StepFilter(
        agent=query.get("agent_id", ""),
        runs=query.getlist("trace_ids"),
        model=query.get("model", ""),
        feedback=query.get("feedback", ""),
        has_feedback=None if query.get("has_feedback") is None else call.flag("has_feedback"),
        since=parse_time(query.get("start_date"), "start_date"),
        until=parse_time(query.get("end_date"), "end_date"),
    )
    page = call.page(100, "desc")
    return await (await call.sessions.flush()).steps(wanted, page)


@routes.get(_STEP)
async def retrieve_step(call: LettaCall) -> StepResponse:
    wanted = StepFilter(id=call.path("step"))
    steps = await (await call.sessions.flush()).steps(wanted, ListPage(limit=1))
    if not steps:
        raise unknown("step", call.path("step"))
    return steps[0]


@routes.get(f"{_STEP}/metrics")
async def step_metrics(call: LettaCall) -> Table:
    step = await retrieve_step(call)
    return {
        "id": step.id,
        "agent_id": step.agent_id,
        "run_id": step.run_id,
        "step_start_ns": nanoseconds(step.started),
        "llm_request_start_ns": nanoseconds(step.started),
        "llm_request_ns": nanoseconds(step.replied - step.started),
        "tool_execution_ns": nanoseconds(step.finished - step.replied),
        "step_ns": nanoseconds(step.finished - step.started),
    }


@routes.get(f"{_STEP}/trace")
async def step_trace(call: LettaCall) -> Table:
    """What the model was first told in this attempt, and what it replied in this step."""
    step = await retrieve_step(call)
    run = await call.sessions.index.run(step.run_id)
    prompt: object = None
    answer: object = None
    traced = None if run is None else trace(run.name, await call.tenant.journal.read(run.name))
    for task in () if traced is None else traced.tasks:
        for attempt in task.attempts:
            if (attempt.worker, attempt.attempt) == (step.agent_id, step.attempt):
                prompt = attempt.prompts[0].messages if attempt.prompts else None
                answer = next((each.result for each in attempt.steps if each.step == step.number), None)
    return {
        "id": f"provider_trace-{step.id.partition('-')[2]}",
        "step_id": step.id,
        "run_id": step.run_id,
        "agent_id": step.agent_id,
        "request_json": {"messages": prompt},
        "response_json": {"reply": answer},
        "latency_ms": nanoseconds(step.replied - step.started) // 1_000_000,
    }


@routes.get(f"{_STEP}/messages")
async def list_step_messages(call: LettaCall) -> Response:
    step = await retrieve_step(call)
    wanted = MessageFilter(step=step.id)
    return join_json(await call.sessions.index.messages(wanted, call.page(100, "asc")))


@routes.patch(f"{_STEP}/feedback")
async def rate_step(call: LettaCall) -> StepResponse:
    sent = await call.body(FeedbackRequest)
    step = await retrieve_step(call)
    step.feedback = sent.feedback
    step.tags = step.tags if sent.tags is None else sent.tags
    await call.sessions.index.rate_step(step.id, sent.feedback or "", step.tags)
    return step
