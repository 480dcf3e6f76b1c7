"""Runs as AG-UI events: attempts are sub-agents, the plan is the shared state, a question is an interrupt."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from chargehand.engine import events as ev
from chargehand.engine.admit import VERDICTS
from chargehand.engine.plan import Task
from chargehand.models.messages import Reply
from chargehand.server.extension import Entry, RunInfo, StreamedWords, question_text

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
        if words.work != "attempt":
            return []  # the answer is told when it is whole: a second try would contradict the first
        subagent = _subagent(words.task, words.attempt)
        message = f"{words.run}-{subagent}-{self._calls_made[subagent]}"
        chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": message, "role": "assistant", "delta": words.text}
        return [{**chunk, "subagentRunId": subagent}]

    def close(self, interrupts: list[str]) -> list[Json]:
        """The end of attempts that are open when a person is asked, or when the run has ended without them."""
        if interrupts:
            end = {"type": "SUBAGENT_FINISHED", "outcome": {"type": "suspended", "interruptIds": interrupts}}
        else:
            end = {"type": "SUBAGENT_ERROR", "message": "the run ended before it", "code": "cancelled"}
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
    question = info.question
    if question is None or info.summary.state != "needs_input":
        return []
    schema: Json = {
        "type": "object",
        "properties": {"verdict": {"enum": VERDICTS[question.what]}, "feedback": {"type": "string"}, "result": {}},
        "required": ["verdict"],
    }
    text = question_text(question, info.plan.tasks)
    name = f"{info.summary.run}#{question.number}"
    return [{"id": name, "reason": question.what, "message": text, "responseSchema": schema}]


def ending_of(info: RunInfo, place: Json) -> list[Json]:
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
