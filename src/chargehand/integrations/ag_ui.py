"""Runs of teams as AG-UI 1.0 events: `chargehand serve --plugin chargehand.integrations.ag_ui:api`.

`POST /ag-ui/TEAM` takes a `RunAgentInput` and streams events. Each attempt at a task is a sub-agent; the plan and the
states of tasks are the shared state; a question to a person is an interrupt, which the next call resolves.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chargehand.engine import events as ev
from chargehand.engine.admit import VERDICTS
from chargehand.models.messages import Reply
from chargehand.server.extension import (
    PROBLEM_HANDLERS,
    AnswerBody,
    Entry,
    HttpApi,
    Problem,
    RunInfo,
    StreamedWords,
    TenantClient,
    problem_of,
    tenant_of,
)

VERSION = "1.0"
THREAD = "ag-ui-thread"
"""The label of a run that holds its thread."""

Json: TypeAlias = dict[str, Any]
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


def _interrupt_id(run: str, number: int) -> str:
    return f"{run}#{number}"


async def _begin_or_resume(tenant: TenantClient, team: str, sent: RunInput) -> tuple[str, int]:
    """The run of a call, and the number of the entry after which it is told."""
    if sent.resume:
        run, _, number = sent.resume[0].interrupt_id.rpartition("#")
        info = await tenant.read(run)
        if info.summary.team != team or not number.isdigit():
            raise Problem(404, "unknown_interrupt", f"there is no interrupt {sent.resume[0].interrupt_id!r}")
        await tenant.answer(run, _answer(sent.resume[0], int(number), info))
        return run, info.summary.entries
    requests = [message.text.strip() for message in sent.messages if message.role == "user" and message.text.strip()]
    if not requests:
        raise Problem(422, "no_request", "messages has no user message with text; say what is to be done")
    begun = await tenant.begin(
        team, requests[-1], key=f"{sent.thread_id}/{sent.run_id}", labels={THREAD: sent.thread_id}
    )
    return begun.run, 0


def _answer(sent: ResumeSent, number: int, info: RunInfo) -> AnswerBody:
    """The answer that resolves an interrupt: a payload of its schema, or plain text for a question in words."""
    if sent.status == "cancelled":
        return AnswerBody(number=number, verdict="reject", feedback="cancelled")
    payload = sent.payload
    if isinstance(payload, str):
        is_words = info.question is not None and info.question.what == "question"
        payload = {"verdict": "answer", "result": payload} if is_words else {"verdict": payload}
    try:
        return msgspec.convert({**payload, "number": number}, AnswerBody)
    except (msgspec.ValidationError, TypeError) as error:
        raise Problem(422, "invalid_payload", f"the payload does not fit responseSchema: {error}") from error


# --- a run as events


class RunEvents:
    """Turns the entries of a run into events."""

    def __init__(self) -> None:
        self._arguments: dict[tuple[str, int, str], str] = {}
        self._tool_calls: dict[tuple[str, int, int], str] = {}
        self._open: list[str] = []
        self._convert: dict[type[ev.Event], Callable[[Any], list[Json]]] = {
            ev.RunRequested: self._requested,
            ev.TasksAdded: self._tasks_added,
            ev.AttemptStarted: self._attempt_started,
            ev.AttemptSucceeded: self._attempt_succeeded,
            ev.AttemptFailed: self._attempt_failed,
            ev.StepStarted: self._step_started,
            ev.StepFinished: self._step_finished,
            ev.TaskFailed: lambda event: [_task_state(event.task, "failed")],
            ev.TaskSkipped: lambda event: [_task_state(event.task, "skipped")],
        }

    def of_entry(self, entry: Entry) -> list[Json]:
        convert = self._convert.get(type(entry.event))
        return [] if convert is None else convert(entry.event)

    def of_words(self, words: StreamedWords) -> list[Json]:
        """Text of a sub-agent's model or of the answer, as it comes."""
        if words.work != "attempt":
            return []  # the answer is told when it is whole: a second try would contradict the first
        subagent = _subagent(words.task, words.attempt)
        return [
            {
                "type": "TEXT_MESSAGE_CHUNK",
                "messageId": f"{words.run}-{subagent}",
                "role": "assistant",
                "delta": words.text,
                "subagentRunId": subagent,
            }
        ]

    def suspend(self, interrupts: list[str]) -> list[Json]:
        """The end of what is open when a person is asked, or the run has ended."""
        outcome: Json = {"type": "suspended", "interruptIds": interrupts} if interrupts else {"type": "success"}
        events = [{"type": "SUBAGENT_FINISHED", "subagentRunId": name, "outcome": outcome} for name in self._open]
        self._open.clear()
        return events

    def _requested(self, event: ev.RunRequested) -> list[Json]:
        tasks = () if event.plan is None else event.plan.tasks
        plan = [{"id": task.id, "worker": task.worker, "instruction": task.instruction} for task in tasks]
        states = {task.id: "waiting" for task in tasks}
        return [{"type": "STATE_SNAPSHOT", "snapshot": {"goal": event.goal, "plan": plan, "tasks": states}}]

    def _tasks_added(self, event: ev.TasksAdded) -> list[Json]:
        changes: list[Json] = []
        for task in event.tasks:
            step = {"id": task.id, "worker": task.worker, "instruction": task.instruction}
            changes.append({"op": "add", "path": "/plan/-", "value": step})
            changes.append({"op": "add", "path": _path(task.id), "value": "waiting"})
        return [{"type": "STATE_DELTA", "delta": changes}] if changes else []

    def _attempt_started(self, event: ev.AttemptStarted) -> list[Json]:
        name = _subagent(event.task, event.attempt)
        if name not in self._open:
            self._open.append(name)
        started = {"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": event.worker, "description": event.task}
        return [_task_state(event.task, "running"), started]

    def _attempt_succeeded(self, event: ev.AttemptSucceeded) -> list[Json]:
        finished = {"type": "SUBAGENT_FINISHED", "result": msgspec.json.decode(event.result)}
        return [{**finished, **self._end(event.task, event.attempt)}, _task_state(event.task, "done")]

    def _attempt_failed(self, event: ev.AttemptFailed) -> list[Json]:
        failed = {"type": "SUBAGENT_ERROR", "message": event.failure.message, "code": event.failure.kind}
        return [{**failed, **self._end(event.task, event.attempt)}, _task_state(event.task, "retrying")]

    def _end(self, task: str, attempt: int) -> Json:
        name = _subagent(task, attempt)
        if name in self._open:
            self._open.remove(name)
        return {"subagentRunId": name}

    def _step_started(self, event: ev.StepStarted) -> list[Json]:
        if event.kind != "tool":
            return []
        call = f"{event.task}.{event.attempt}.{event.step}"
        self._tool_calls[event.task, event.attempt, event.step] = call
        place = {"toolCallId": call, "subagentRunId": _subagent(event.task, event.attempt)}
        arguments = self._arguments.get((event.task, event.attempt, event.call), "{}")
        return [
            {"type": "TOOL_CALL_START", "toolCallName": event.name, **place},
            {"type": "TOOL_CALL_ARGS", "delta": arguments, **place},
            {"type": "TOOL_CALL_END", **place},
        ]

    def _step_finished(self, event: ev.StepFinished) -> list[Json]:
        call = self._tool_calls.pop((event.task, event.attempt, event.step), None)
        if call is None:
            self._keep_arguments(event)
            return []
        content = bytes(event.result).decode()
        return [
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": f"result-{call}",
                "toolCallId": call,
                "content": content,
                "subagentRunId": _subagent(event.task, event.attempt),
            }
        ]

    def _keep_arguments(self, event: ev.StepFinished) -> None:
        """A model's reply has the arguments of the calls that follow it."""
        try:
            reply = msgspec.json.decode(event.result, type=Reply)
        except msgspec.MsgspecError:
            return
        for call in reply.calls:
            self._arguments[event.task, event.attempt, call.id] = call.arguments


def _subagent(task: str, attempt: int) -> str:
    return f"{task}.{attempt}"


def _path(task: str) -> str:
    return f"/tasks/{task.replace('~', '~0').replace('/', '~1')}"


def _task_state(task: str, state: str) -> Json:
    return {"type": "STATE_DELTA", "delta": [{"op": "add", "path": _path(task), "value": state}]}


async def _events(tenant: TenantClient, sent: RunInput, run: str, after: int) -> AsyncGenerator[Json]:
    """All events of one call."""
    place = {"threadId": sent.thread_id, "runId": sent.run_id}
    yield {"type": "RUN_STARTED", "protocolVersion": VERSION, "metadata": {"run": run}, **place}
    converted = RunEvents()
    async with tenant.follow(run, after=after, words=True, until_asked=True) as items:
        async for item in items:
            for event in converted.of_entry(item) if isinstance(item, Entry) else converted.of_words(item):
                yield event
    info = await tenant.read(run)
    interrupts = _interrupts(info)
    for event in converted.suspend([interrupt["id"] for interrupt in interrupts]):
        yield event
    if interrupts:
        yield {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": interrupts}, **place}
        return
    for event in _ending(info, place):
        yield event


def _interrupts(info: RunInfo) -> list[Json]:
    question = info.question
    if question is None or info.summary.state != "needs_input":
        return []
    schema: Json = {
        "type": "object",
        "properties": {"verdict": {"enum": VERDICTS[question.what]}, "feedback": {"type": "string"}, "result": {}},
        "required": ["verdict"],
    }
    text = question.text or "Approve the plan?"
    name = _interrupt_id(info.summary.run, question.number)
    return [{"id": name, "reason": question.what, "message": text, "responseSchema": schema}]


def _ending(info: RunInfo, place: Json) -> list[Json]:
    summary = info.summary
    if summary.state == "cancelled":
        return [{"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}, **place}]
    if summary.state not in ("complete", "partial"):
        reasons = "; ".join(gap.message for gap in info.gaps)
        return [{"type": "RUN_ERROR", "message": reasons or summary.reason or summary.state, "code": summary.state}]
    message = f"{summary.run}-answer"
    text = info.answer if isinstance(info.answer, str) else msgspec.json.encode(info.answer).decode()
    gaps = [{"task": gap.task, "message": gap.message} for gap in info.gaps]
    result = {"ending": summary.state, "gaps": gaps, "usd": summary.spent.usd, "tokens": summary.spent.tokens}
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": message},
        {"type": "RUN_FINISHED", "result": result, "outcome": {"type": "success"}, **place},
    ]


# --- the API


async def _run(request: Request) -> Response:
    tenant = tenant_of(request.scope)
    team = request.path_params["team"]
    await tenant.team(team)  # 404 where there is none
    try:
        sent = msgspec.json.decode(await request.body(), type=RunInput)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"this is no RunAgentInput: {error}") from error
    run, after = await _begin_or_resume(tenant, team, sent)

    async def lines() -> AsyncGenerator[bytes]:
        try:
            async for event in _events(tenant, sent, run, after):
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"
        except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the stream
            problem = problem_of(error)
            failed = {"type": "RUN_ERROR", "message": problem.detail, "code": problem.code}
            yield b"data: " + msgspec.json.encode(failed) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Run-Id": run})


def ag_ui_api() -> HttpApi:
    """The API of all teams."""
    app = Starlette(routes=[Route("/ag-ui/{team}", _run, methods=["POST"])], exception_handlers=PROBLEM_HANDLERS)
    return HttpApi(name="ag-ui", app=app, prefixes=("/ag-ui",))


api = ag_ui_api()
