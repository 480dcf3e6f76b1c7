"""Runs as AG-UI events: attempts are sub-agents, the plan is the shared state, a question is an interrupt."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from chargehand.engine import events as ev
from chargehand.engine.plan import Task
from chargehand.models.messages import Reply
from chargehand.server.extension import Entry, RunInfo, RunQuestion, StreamedWords, document_data, question_data

Json: TypeAlias = dict[str, Any]


class RunEvents:
    """Turns the entries of a run into events: all of them, or those that follow a question of that number."""

    def __init__(self, question: int = 0) -> None:
        self._question = question
        self._is_told = question == 0
        self._arguments: dict[tuple[str, int, str], str] = {}
        self._tool_calls: dict[tuple[str, int, int], str] = {}
        self._open: list[str] = []
        self._calls_made: Counter[str] = Counter()
        self._convert: dict[type[ev.Event], Callable[[Any], list[Json]]] = {
            ev.RunRequested: self._requested,
            ev.TasksAdded: self._tasks_added,
            ev.AttemptStarted: self._attempt_started,
            ev.AttemptSucceeded: self._attempt_succeeded,
            ev.AttemptFailed: self._attempt_failed,
            ev.AttemptAbandoned: self._attempt_failed,
            ev.StepStarted: self._step_started,
            ev.StepFinished: self._step_finished,
            ev.TaskFailed: lambda event: [_task_state(event.task, "failed")],
            ev.TaskSkipped: lambda event: [_task_state(event.task, "skipped")],
        }

    def of_entry(self, entry: Entry) -> list[Json]:
        event = entry.event
        convert = self._convert.get(type(event))
        events = [] if convert is None else convert(event)
        if self._is_told:
            return events
        if isinstance(event, ev.InputRequested) and event.number == self._question:
            self._is_told = True
            self._open.clear()
            self._tool_calls.clear()
        return []

    def of_words(self, words: StreamedWords) -> list[Json]:
        """Text of a sub-agent's model, as it comes; after each of its tool calls it is another message."""
        if words.work != "attempt" or words.kind != "answer":
            return []  # the answer is told when it is whole: a second try would contradict the first
        subagent = _subagent(words.task, words.attempt)
        message = f"{words.run}-{subagent}-{self._calls_made[subagent]}"
        chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": message, "role": "assistant", "delta": words.text}
        return [{**chunk, "subagentRunId": subagent}]

    def close(self, interrupts: list[str], reason: str) -> list[Json]:
        """The end of attempts that are open when a person is asked, or when the run has ended without them."""
        if interrupts:
            end = {"type": "SUBAGENT_FINISHED", "outcome": {"type": "suspended", "interruptIds": interrupts}}
        else:
            end = {"type": "SUBAGENT_ERROR", "message": "the run ended before it", "code": reason}
        return [{**end, "subagentRunId": name} for name in self._open]

    def _requested(self, event: ev.RunRequested) -> list[Json]:
        tasks = () if event.plan is None else event.plan.tasks
        state = {"goal": event.goal, "plan": [_step(task) for task in tasks], "tasks": {t.id: "waiting" for t in tasks}}
        return [{"type": "STATE_SNAPSHOT", "snapshot": state}]

    def _tasks_added(self, event: ev.TasksAdded) -> list[Json]:
        changes: list[Json] = []
        for task in event.tasks:
            changes.append({"op": "add", "path": "/plan/-", "value": _step(task)})
            changes.append(_state_change(task.id, "waiting"))
        return [{"type": "STATE_DELTA", "delta": changes}] if changes else []

    def _attempt_started(self, event: ev.AttemptStarted) -> list[Json]:
        """An attempt that goes on after a question, or after a crash, has been started already."""
        name = _subagent(event.task, event.attempt)
        if name in self._open:
            return [_task_state(event.task, "running")]
        self._open.append(name)
        started = {"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": event.worker, "description": event.task}
        return [_task_state(event.task, "running"), started]

    def _attempt_succeeded(self, event: ev.AttemptSucceeded) -> list[Json]:
        finished = {"type": "SUBAGENT_FINISHED", "result": msgspec.json.decode(event.result)}
        return [*self._end(event.task, event.attempt, finished), _task_state(event.task, "done")]

    def _attempt_failed(self, event: ev.AttemptFailed | ev.AttemptAbandoned) -> list[Json]:
        if event.failure.kind == "approval":  # it waits for a person, and goes on
            return [_task_state(event.task, "asking")]
        failed = {"type": "SUBAGENT_ERROR", "message": event.failure.message, "code": event.failure.kind}
        return [*self._end(event.task, event.attempt, failed), _task_state(event.task, "retrying")]

    def _end(self, task: str, attempt: int, ending: Json) -> list[Json]:
        name = _subagent(task, attempt)
        if name not in self._open:
            return []
        self._open.remove(name)
        return [{**ending, "subagentRunId": name}]

    def _step_started(self, event: ev.StepStarted) -> list[Json]:
        key = (event.task, event.attempt, event.step)
        if event.kind != "tool" or key in self._tool_calls:
            return []
        subagent = _subagent(event.task, event.attempt)
        self._calls_made[subagent] += 1
        self._tool_calls[key] = call = f"{subagent}.{event.step}"
        place = {"toolCallId": call, "subagentRunId": subagent}
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
        result = {"type": "TOOL_CALL_RESULT", "messageId": f"result-{call}", "toolCallId": call}
        return [
            {**result, "content": bytes(event.result).decode(), "subagentRunId": _subagent(event.task, event.attempt)}
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


def _step(task: Task) -> Json:
    return {"id": task.id, "worker": task.worker, "instruction": task.instruction}


def _state_change(task: str, state: str) -> Json:
    path = task.replace("~", "~0").replace("/", "~1")
    return {"op": "add", "path": f"/tasks/{path}", "value": state}


def _task_state(task: str, state: str) -> Json:
    return {"type": "STATE_DELTA", "delta": [_state_change(task, state)]}


def interrupts_of(info: RunInfo) -> list[Json]:
    """Return the open question as an interrupt: in words, as data in `metadata`, and the schema of its answer."""
    question = info.document.question
    if question is None:
        return []
    return [
        {
            "id": f"{info.summary.run}#{question.number}",
            "reason": question.what,
            "message": question.message,
            "responseSchema": _answer_schema(question),
            "metadata": question_data(question),
        }
    ]


def _answer_schema(question: RunQuestion) -> Json:
    """Return the JSON Schema of an answer: the verdicts, the options, and a verdict for each other call."""
    verdict: Json = {"verdict": {"enum": question.verdicts}, "feedback": {"type": "string"}, "result": {}}
    fields = question.question
    if question.what == "question" and fields is not None:
        if fields.options and not fields.free_text:
            verdict["result"] = {"enum": fields.options}
        elif fields.options:
            verdict["result"] = {"anyOf": [{"enum": fields.options}, {"type": "string"}]}
        else:
            verdict["result"] = fields.schema or {"type": "string"}
    schema: Json = {"type": "object", "properties": verdict, "required": ["verdict"]}
    others = [call.call for call in question.calls[1:]]
    if others:
        call: Json = {
            "type": "object",
            "properties": {"call": {"enum": others}, **verdict},
            "required": ["call", "verdict"],
        }
        schema["properties"] = {**verdict, "also": {"type": "array", "items": call}}
    return schema


def ending_of(info: RunInfo, interrupts: list[Json], place: Json) -> list[Json]:
    """Return the last events of a call: of a run that has ended, or that asks."""
    document = info.document
    told = document_data(document)
    if interrupts:
        return [_finished(told, {"type": "interrupt", "interrupts": interrupts}, place)]
    if document.state == "cancelled":
        return [_finished({**told, "answer": document.answer}, {"type": "cancelled"}, place)]
    if document.state not in ("complete", "partial"):
        code = document.reason if document.state == "failed" else document.state
        told["answer"] = document.answer
        return [{"type": "RUN_ERROR", "message": document.why or code, "code": code, "metadata": told}]
    message = f"{document.run}-answer"
    text = document.answer if isinstance(document.answer, str) else msgspec.json.encode(document.answer).decode()
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": message},
        _finished(told, {"type": "success"}, place),
    ]


def _finished(result: Json, outcome: Json, place: Json) -> Json:
    return {"type": "RUN_FINISHED", "result": result, "outcome": outcome, **place}
