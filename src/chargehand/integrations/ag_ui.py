"""Runs of teams as AG-UI 1.0 events: `chargehand serve --plugin chargehand.integrations.ag_ui:api`.

`POST /ag-ui/TEAM` takes a `RunAgentInput` and streams events. Each attempt at a task is a sub-agent; the plan and the
states of tasks are the shared state; a question to a person is an interrupt, which the next call resolves.
"""

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chargehand.integrations.ag_ui_events import Json, RunEvents, ending_of, interrupts_of
from chargehand.server.extension import (
    PROBLEM_HANDLERS,
    Entry,
    HttpApi,
    Problem,
    TenantClient,
    declined_answer,
    parse_answer,
    problem_of,
    read_body,
    tenant_of,
)

VERSION = "1.0"
THREAD = "ag-ui-thread"
"""The label of a run that holds its thread."""

_NUMBER = re.compile(r"[0-9]{1,9}")
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


# --- what a client sends


class AgUiMessage(Struct, frozen=True):
    role: str = ""
    content: str | list[Json] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part.get("text", "")) for part in self.content or [] if part.get("type") == "text")


class ResumeSent(Struct, frozen=True, rename="camel"):
    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(Struct, frozen=True, rename="camel"):
    """A `RunAgentInput`; what is not named here has no meaning for a team."""

    thread_id: Name
    run_id: Name
    messages: list[AgUiMessage] = []
    resume: list[ResumeSent] | None = None


class Subject(Struct, frozen=True):
    """What a call is about: a run, and the number of the question that it answers; 0: it begins the run."""

    run: str
    question: int = 0


async def _begin_or_resume(tenant: TenantClient, team: str, sent: RunInput) -> Subject:
    if sent.resume:
        return await _resume(tenant, team, sent.resume[0])
    requests = [message.text.strip() for message in sent.messages if message.role == "user" and message.text.strip()]
    if not requests:
        raise Problem(422, "no_request", "messages has no user message with text; say what is to be done")
    key = f"{sent.thread_id}/{sent.run_id}"
    begun = await tenant.begin(team, requests[-1], key=key, labels={THREAD: sent.thread_id}, thread=sent.thread_id)
    return Subject(begun.run)


async def _resume(tenant: TenantClient, team: str, sent: ResumeSent) -> Subject:
    """Answer the question of an interrupt. One that was answered already is left: the call may be made again."""
    run, _, number = sent.interrupt_id.rpartition("#")
    info = await tenant.read(run)
    if info.summary.team != team or not _NUMBER.fullmatch(number):
        raise Problem(404, "unknown_interrupt", f"there is no interrupt {sent.interrupt_id!r}")
    question = info.question
    if question is not None and question.number < int(number):
        raise Problem(404, "unknown_interrupt", f"{run} has not asked question {number}")
    if question is not None and question.number == int(number):
        is_declined = sent.status == "cancelled"
        await tenant.answer(run, declined_answer(question) if is_declined else parse_answer(question, sent.payload))
    return Subject(run, int(number))


async def _events(tenant: TenantClient, sent: RunInput, subject: Subject) -> AsyncGenerator[Json]:
    """All events of one call."""
    place = {"threadId": sent.thread_id, "runId": sent.run_id}
    yield {"type": "RUN_STARTED", "protocolVersion": VERSION, "metadata": {"run": subject.run}, **place}
    converted = RunEvents(subject.question)
    async with tenant.follow(subject.run, words=True, until_asked=True) as items:
        async for item in items:
            for event in converted.of_entry(item) if isinstance(item, Entry) else converted.of_words(item):
                yield event
    info = await tenant.read(subject.run)
    interrupts = interrupts_of(info)
    for event in converted.close([interrupt["id"] for interrupt in interrupts]):
        yield event
    if interrupts:
        yield {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": interrupts}, **place}
        return
    for event in ending_of(info, place):
        yield event


# --- the API


async def _run(request: Request) -> Response:
    tenant = tenant_of(request.scope)
    team = request.path_params["team"]
    await tenant.team(team)  # 404 where there is none
    sent = await read_body(request, RunInput)
    subject = await _begin_or_resume(tenant, team, sent)

    async def lines() -> AsyncGenerator[bytes]:
        try:
            async for event in _events(tenant, sent, subject):
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"
        except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the stream
            problem = problem_of(error)
            failed = {"type": "RUN_ERROR", "message": problem.detail, "code": problem.code}
            yield b"data: " + msgspec.json.encode(failed) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Run-Id": subject.run})


def ag_ui_api() -> HttpApi:
    """The API of all teams."""
    app = Starlette(routes=[Route("/ag-ui/{team}", _run, methods=["POST"])], exception_handlers=PROBLEM_HANDLERS)
    return HttpApi(name="ag-ui", app=app, prefixes=("/ag-ui",))


api = ag_ui_api()
