"""Steps of agents: each call of a model, with what it took, and what people think of it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.letta.book import Book
from chargehand.server.letta.book_rows import Conditions
from chargehand.server.letta.mapping import instant
from chargehand.server.letta.message_lists import joined
from chargehand.server.letta.message_shapes import FeedbackSent, StepTold
from chargehand.server.letta.office import Office
from chargehand.server.letta.pages import page_of
from chargehand.server.problem import Problem, unknown
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, flag, part, reply
from chargehand.terms import events as ev
from chargehand.terms.value import decode_value


def add(api: Api) -> None:
    api.add("GET", "/v1/steps", listing, "read")
    api.add("GET", "/v1/steps/{step}", retrieve, "read")
    api.add("GET", "/v1/steps/{step}/metrics", metrics, "read")
    api.add("GET", "/v1/steps/{step}/trace", trace, "read")
    api.add("GET", "/v1/steps/{step}/messages", messages, "read")
    api.add("PATCH", "/v1/steps/{step}/feedback", feedback)


async def listing(request: Request, tenant: Tenant) -> Response:
    asked = request.query_params
    wanted = Conditions()
    wanted.equal("agent", asked.get("agent_id"))
    wanted.equal("model", asked.get("model"))
    wanted.equal("feedback", asked.get("feedback"))
    wanted.among("run", asked.getlist("trace_ids"))
    if asked.get("has_feedback") is not None:
        wanted.add("feedback <> ''" if flag(request, "has_feedback") else "feedback = ''")
    for name, sign in (("start_date", ">="), ("end_date", "<=")):
        if said := asked.get(name):
            wanted.add(f"at {sign} ?", instant(said, name))
    page = page_of(request, 100, "desc")
    await tenant.part(Office).settle()
    return reply(await tenant.part(Book).steps(wanted, page))


async def _found(request: Request, tenant: Tenant) -> StepTold:
    which = part(request, "step")
    await tenant.part(Office).settle()
    step = await tenant.part(Book).step(which)
    if step is None:
        raise unknown("step", which)
    return step


async def retrieve(request: Request, tenant: Tenant) -> Response:
    return reply(await _found(request, tenant))


async def metrics(request: Request, tenant: Tenant) -> Response:
    step = await _found(request, tenant)
    return reply(
        {
            "id": step.id,
            "agent_id": step.agent_id,
            "run_id": step.run_id,
            "step_start_ns": _ns(step.started),
            "llm_request_start_ns": _ns(step.started),
            "llm_request_ns": _ns(step.replied - step.started),
            "tool_execution_ns": _ns(step.finished - step.replied),
            "step_ns": _ns(step.finished - step.started),
        }
    )


def _ns(seconds: float) -> int:
    return max(0, int(seconds * 1e9))


async def trace(request: Request, tenant: Tenant) -> Response:
    """What the model was first told in this attempt, and what it replied in this step."""
    step = await _found(request, tenant)
    row = await tenant.part(Book).run(step.run_id)
    told: object = None
    replied: object = None
    for entry in await tenant.journal.read(row[0]) if row is not None else ():
        event = entry.event
        if isinstance(event, ev.PromptSent) and event.number == step.attempt:
            told = decode_value(event.messages)
        elif isinstance(event, ev.StepFinished) and (event.attempt, event.step) == (step.attempt, step.number):
            replied = decode_value(event.result)
    return reply(
        {
            "id": f"provider_trace-{step.id.partition('-')[2]}",
            "step_id": step.id,
            "run_id": step.run_id,
            "agent_id": step.agent_id,
            "request_json": {"messages": told},
            "response_json": {"reply": replied},
            "latency_ms": _ns(step.replied - step.started) // 1_000_000,
        }
    )


async def messages(request: Request, tenant: Tenant) -> Response:
    step = await _found(request, tenant)
    wanted = Conditions()
    wanted.equal("step", step.id)
    return joined(await tenant.part(Book).messages(wanted, page_of(request, 100, "asc")))


async def feedback(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, FeedbackSent)
    step = await _found(request, tenant)
    if sent.feedback not in (None, "positive", "negative"):
        raise Problem(422, "invalid", f"feedback is {sent.feedback[:40]!r}; it must be positive or negative")
    tags = step.tags if sent.tags is None else sent.tags
    await tenant.part(Book).judge(step.id, sent.feedback or "", tags)
    return reply(msgspec.structs.replace(step, feedback=sent.feedback, tags=tags))
