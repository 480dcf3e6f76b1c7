"""Runs of teams as AG-UI 1.0 events: `chargehand serve --plugin chargehand.integrations.ag_ui:api`.

`POST /ag-ui/TEAM` takes a `RunAgentInput` and streams events. Each attempt at a task is a sub-agent; the plan and the
states of tasks are the shared state; a question to a person is an interrupt, which the next call resolves.
"""

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, TypeAlias, cast

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
        return await _resume(tenant, team, sent.resume)
    requests = [message.text.strip() for message in sent.messages if message.role == "user" and message.text.strip()]
    if not requests:
        raise Problem(422, "no_request", "messages has no user message with text; say what is to be done")
    begun = await tenant.begin(
        team,
        requests[-1],
        key=msgspec.json.encode((sent.thread_id, sent.run_id)).decode(),
        key_name="runId",
        labels={THREAD: sent.thread_id},
        thread=sent.thread_id,
    )
    return Subject(begun.run)


async def _resume(tenant: TenantClient, team: str, entries: list[ResumeSent]) -> Subject:
    """Answer the open question of a run. An entry that answered an earlier question may come again: it is passed over.

    Raises:
        Problem: an entry is of no question of this run, or none is open and the last entry is not a repeated one.
    """
    subjects = {_read_interrupt(entry.interrupt_id): entry for entry in entries}
    runs = {subject.run for subject in subjects}
    if len(runs) > 1:
        raise Problem(422, "invalid", "resume has interrupts of several runs; resume each in a call of its own")
    info = await tenant.read(runs.pop())
    last = max(subjects, key=lambda subject: subject.question)
    if info.summary.team != team or (info.asks is not None and info.asks.number < last.question):
        raise _unknown_interrupt(subjects[last].interrupt_id)
    entry = subjects[last]
    await tenant.answer(last.run, _read_entry(last, entry), key=entry.interrupt_id, key_name="interruptId")
    return last


def _read_interrupt(name: str) -> Subject:
    run, _, number = name.rpartition("#")
    if not run or not _NUMBER.fullmatch(number):
        raise _unknown_interrupt(name)
    return Subject(run, int(number))


def _unknown_interrupt(name: str) -> Problem:
    return Problem(404, "unknown_interrupt", f"there is no interrupt {name!r}")


def _read_entry(subject: Subject, entry: ResumeSent) -> dict[str, object]:
    """Return the answer of an entry, with the number of the question that its interrupt told."""
    if entry.status == "cancelled":
        return {"number": subject.question, "declined": True}
    if isinstance(entry.payload, dict):
        return {**cast("Json", entry.payload), "number": subject.question}
    return {"number": subject.question, "answer": entry.payload}


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
    for event in converted.close([interrupt["id"] for interrupt in interrupts], info.summary.reason):
        yield event
    for event in ending_of(info, interrupts, place):
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
