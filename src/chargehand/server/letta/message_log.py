"""What an agent said and did in a run, read off its entries, as messages.

Pure: the same entries give the same messages, with the same ids.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.run_document import explain_ending
from chargehand.engine import events as ev
from chargehand.engine.failure import OUTAGES, Failure, Question
from chargehand.engine.plan import TaskId, digest
from chargehand.engine.policy import Instant
from chargehand.engine.value import decode_value, encode_value
from chargehand.models.messages import Reply
from chargehand.server.letta.request import AgentRequest, Approval, ClientReturn, call_key, recorded_request, text_of
from chargehand.server.letta.wire import (
    LettaMessage,
    LettaResponse,
    MessageCreate,
    RunResponse,
    StopReason,
    Table,
    ToolCallWire,
    UsageStatistics,
    VerdictWire,
    format_time,
)

TASK = TaskId("reply")
"""The only task of a run that answers a client."""
_NAMESPACE = uuid.UUID("0b9f0d0e-5a7c-4f39-8a26-0c1f6f6d1d55")
_INTERNAL = frozenset(("give_up", "read_more"))  # tools of the runtime, which no client gave the agent
_RESPONSE = "approval_response_message"
_STOPS = {"complete": "end_turn", "partial": "end_turn", "cancelled": "cancelled"}
_STATUSES = {
    "end_turn": "completed",
    "tool_rule": "completed",
    "max_tokens_exceeded": "completed",
    "cancelled": "cancelled",
}
_REFUSED = "this call was not made: it does not fit the agent's tools or rules"
_STOPPED = "this call was not finished: the run was stopped"


class _PendingCall(Struct):
    """A tool call of the last reply."""

    wire: ToolCallWire
    number: int
    """Its place in the reply, from 1."""
    step: int = 0
    """The step that makes it."""
    is_sent: bool = False
    is_done: bool = False


class MessageLog:
    """Reads the entries of one run. `messages` grow; `stop` is set while the run does not go on.

    `run` is what clients call it. `name` is that of the journal, where the run may be inside another, with a task for
    each of several agents.
    """

    def __init__(
        self, name: str, request: AgentRequest | None = None, *, agent: str = "", task: TaskId | None = None
    ) -> None:
        self.name = name
        self.run = name if task is None else f"run-{uuid.uuid5(_NAMESPACE, f'{name} {task}')}"
        self.request = request
        self.agent = agent if request is None else request.agent
        self.messages: list[LettaMessage] = []
        self.began: Instant = 0.0
        self.seq = 0
        """The number of the last entry that was read."""
        self.stop = ""
        self.over = False
        self.approval: Approval | None = None
        """The calls that wait for the client."""
        self.approval_request: LettaMessage | None = None
        """The last message that asked the client about calls."""
        self.answered_from = 0
        """How many messages there were when the client last answered about calls."""
        self.client_returns: dict[bytes, ClientReturn] = {}
        """What the client sent last for a call, by `call_key`."""
        self.usage = UsageStatistics(run_ids=(self.run,))
        self._task = task or TASK
        self._at: Instant = 0.0
        """When the entry was written that is read now, or was read last."""
        self._input_messages = 0
        self._step_id = ""
        """The id of the last call of the model, with the tool calls that follow from it."""
        self._reply_key = "0 0"
        """The attempt and the step of the last call of the model: the ids of its messages are made of it."""
        self._last_reply = Reply("")
        self._calls: list[_PendingCall] = []
        self._exit_tool = ""
        self._failure: Failure | None = None
        self._cancel: ev.CancelRequested | None = None
        self._end: ev.RunEnded | None = None

    @property
    def conversation(self) -> str:
        """The conversation it belongs to; empty: the agent's own."""
        return self.request.conversation if self.request is not None else ""

    @property
    def lane(self) -> str:
        """Where requests are answered one after the other: a conversation, or the agent."""
        return self.conversation or self.agent

    @property
    def is_background(self) -> bool:
        return self.request is not None and self.request.background

    @property
    def is_waiting(self) -> bool:
        """Whether nothing happens before the client answers."""
        return self.stop == "requires_approval"

    @property
    def is_working(self) -> bool:
        """Whether the agent works on it; if not, the run may still be in the agent's queue."""
        return bool(self._step_id)

    @property
    def status(self) -> str:
        """How the run stands, in Letta's words. One that waits for its client counts as completed there."""
        if self.over:
            return _STATUSES.get(self.stop, "failed")
        if self.is_waiting:
            return "completed"
        return "running" if self.is_working else "created"

    def describe_run(self) -> RunResponse:
        run = RunResponse(
            id=self.run,
            agent_id=self.agent,
            status=self.status,
            created_at=format_time(self.began),
            stop_reason=self.stop or None,
            background=self.is_background,
            conversation_id=self.conversation or None,
        )
        if self.over:
            run.completed_at = format_time(self._at)
            run.total_duration_ns = max(0, int((self._at - self.began) * 1e9))
        if self._end is not None:
            run.metadata = {"chargehand": self._describe_end(self._end)}
        return run

    def _describe_end(self, end: ev.RunEnded) -> Table:
        """Return what the run document says of the end of a run, for which a run of Letta has no fields."""
        return {
            "ending": end.ending,
            "reason": end.reason,
            "why": explain_ending(end, self._cancel),
            "cap": msgspec.to_builtins(end.cap),
            "gaps": msgspec.to_builtins(end.gaps),
        }

    def describe_answer(self, types: Sequence[str] | None) -> LettaResponse:
        """All that the agent said since its client last did."""
        messages = [message for message in self.messages[self.answered_from :] if self.is_wanted(message, types)]
        return LettaResponse(messages, StopReason(self.stop or "error"), self.usage)

    def is_wanted(self, message: LettaMessage, types: Sequence[str] | None) -> bool:
        """Whether a message is of these types, and not one that the client sent itself."""
        if message.seq_id <= self._input_messages or message.message_type == _RESPONSE:
            return False
        return types is None or message.message_type in types

    def reply_id(self, attempt: int, step: int) -> str:
        """The id of the message that the text of a model's reply becomes."""
        return f"message-{self._uuid(f'{attempt} {step}')}"

    # --- reading entries

    def read(self, entry: ev.Entry) -> None:
        event = entry.event
        self.seq = entry.seq
        reader = self._READERS.get(type(event))
        if reader is not None and getattr(event, "task", self._task) == self._task:
            self._at = entry.at
            reader(self, event)

    def _read_request(self, requested: ev.RunRequested) -> None:
        self.began = self._at
        self.request = recorded_request(requested)
        if self.request is not None:
            self.agent = self.request.agent
            inputs = self.request.messages
        else:  # another agent wrote to it
            sender = None if requested.parent is None else requested.parent.worker
            inputs = (MessageCreate("system", requested.goal, sender_id=sender),)
        self._input_messages = len(inputs)
        for number, message in enumerate(inputs):
            self._add(
                f"{message.role}_message",
                f"said {number}",
                content=text_of(message.content),
                otid=message.otid,
                name=message.name,
                sender_id=message.sender_id,
            )

    # --- steps

    def _read_step_start(self, event: ev.StepStarted) -> None:
        self._send_calls()
        if event.kind != "model":
            self._match_call(event)
            return
        self._close_calls(_REFUSED)
        self._reply_key = f"{event.attempt} {event.step}"
        self._step_id = f"step-{self._uuid(f'step {self._reply_key}')}"

    def _match_call(self, event: ev.StepStarted) -> None:
        """Find the call that a step makes. Of several alike it is the first that has no step yet."""
        alike = [call for call in self._calls if call.wire.name == event.name and not call.is_done]
        same = [call for call in alike if digest(event.name, call.wire.arguments) == event.request] or alike
        free = [call for call in same if not call.step] or same
        if free:
            free[0].step = event.step

    def _read_step_end(self, event: ev.StepFinished) -> None:
        if self._reply_key == f"{event.attempt} {event.step}":
            self._read_reply(msgspec.json.decode(event.result, type=Reply))
            return
        for call in self._calls:
            if call.step == event.step and not call.is_done:
                text, is_good = _read_return(event.result)
                self._return(call, text, is_good=is_good and event.good)
                return

    def _read_reply(self, reply: Reply) -> None:
        self._last_reply = reply
        self._count(reply)
        if self._has_thoughts:
            text = reply.text.strip()
            self._add("reasoning_message", self._reply_key, reasoning=text, source="non_reasoner_model")
        self._calls = []
        for number, call in enumerate(reply.calls, 1):
            if call.name not in _INTERNAL:
                call_id = f"call-{self._uuid(f'{self._reply_key} call id {number}')}"  # those of models may repeat
                self._calls.append(_PendingCall(ToolCallWire(call.name, call.arguments, call_id), number))

    def _count(self, reply: Reply) -> None:
        total = self.usage
        total.step_count += 1
        if reply.usage is None:
            return
        total.prompt_tokens += reply.usage.input
        total.completion_tokens += reply.usage.output
        total.cached_input_tokens += reply.usage.cached
        total.cache_write_tokens += reply.usage.cache_written + reply.usage.cache_written_hour
        total.reasoning_tokens += reply.usage.reasoning
        total.context_tokens = reply.usage.input + reply.usage.output
        total.total_tokens += total.context_tokens

    # --- attempts

    def _read_success(self, event: ev.AttemptSucceeded) -> None:
        self._send_calls()
        self._exit_tool = event.exit_tool
        if not event.exit_tool:  # else the result was sent as what the tool returned
            tail = f"{self._reply_key} result" if self._has_thoughts else self._reply_key
            self._add("assistant_message", tail, content=_result_text(event.result))

    def _read_failure(self, event: ev.AttemptFailed) -> None:
        failure = event.failure
        if failure.kind == "approval":  # the question is in the next entry
            self._take_pending(failure.question)
            self._send_calls()
            return
        self._send_calls()
        self._close_calls(_REFUSED)
        self._failure = failure

    def _read_task_failure(self, event: ev.TaskFailed) -> None:
        text = f"I could not do this: {event.failure.message}"
        self._add("assistant_message", "failed", content=text, is_err=True)

    # --- approvals

    def _take_pending(self, question: Question | None) -> list[_PendingCall]:
        """The calls that a client is asked about: they are sent as a question, not as calls."""
        if question is None:
            return []
        places = {question.call, *(other.call for other in question.also)}
        pending = [call for call in self._calls if call.number in places and not call.is_done]
        for call in pending:
            call.is_sent = True
        return pending

    def _read_question(self, event: ev.InputRequested) -> None:
        self.stop = "requires_approval"
        pending = self._take_pending(event.question)
        tail = f"ask {event.number}"
        if pending:
            calls = tuple(call.wire for call in pending)
            self._add("approval_request_message", tail, tool_call=calls[0], tool_calls=calls)
            self.approval_request = self.messages[-1]
        tools = () if self.request is None else self.request.tools
        names = {tool.name for tool in tools}
        self.approval = Approval(
            question=event,
            request_id=f"message-{self._uuid(tail)}",
            calls={call.wire.tool_call_id: call.number for call in pending},
            at_client=frozenset(call.wire.tool_call_id for call in pending if call.wire.name in names),
        )

    def _read_answer(self, event: ev.InputAnswered) -> None:
        approval = self.approval
        self.approval = None
        self.stop = ""
        self.answered_from = len(self.messages)
        if approval is None or not approval.question.calls or not approval.calls:
            return
        word = "approve" if event.verdict == "approve" else "reject"
        first = ev.CallVerdict(approval.question.calls[0].call, word, event.feedback, event.result)
        answers = {answer.call: answer for answer in (first, *event.also)}
        calls = [call for call in self._calls if call.wire.tool_call_id in approval.calls and call.number in answers]
        verdicts = tuple(self._read_verdict(call, answers[call.number]) for call in calls)
        self._add(
            _RESPONSE,
            f"answer {event.number}",
            approve=all(verdict.approve for verdict in verdicts),
            reason=event.feedback or None,
            approval_request_id=approval.request_id,
            approvals=verdicts,
        )
        for call, verdict in zip(calls, verdicts, strict=True):
            if not verdict.approve:
                why = verdict.reason or "no reason given"
                self._return(call, f"A person did not allow this call: {why}", is_good=False)

    def _read_verdict(self, call: _PendingCall, answer: ev.CallVerdict) -> VerdictWire:
        """The verdict on a call. What it returned at the client is kept for the step that makes it here."""
        verdict = VerdictWire(answer.verdict == "approve", call.wire.tool_call_id, answer.feedback or None)
        if verdict.approve and answer.result is not None:
            returned = msgspec.convert(answer.result, ClientReturn)
            arguments = msgspec.json.decode(call.wire.arguments or "{}", type=dict[str, object])
            self.client_returns[call_key(call.wire.name, arguments)] = returned
            verdict.type = "tool"
            verdict.tool_return = returned.text
            verdict.status = "success" if returned.good else "error"
        return verdict

    # --- the end

    def _read_cancel(self, event: ev.CancelRequested) -> None:
        self._cancel = event

    def _read_end(self, event: ev.RunEnded) -> None:
        self._end = event
        self._send_calls()
        self._close_calls(_STOPPED)
        self.over = True
        self.approval = None
        self.stop = self._stop_reason(event)

    def _stop_reason(self, event: ev.RunEnded) -> str:
        stop = _STOPS.get(event.ending, "error")
        if stop == "end_turn" and self._exit_tool:
            return "tool_rule"
        if stop == "end_turn" and self._last_reply.finish == "length":
            return "max_tokens_exceeded"
        if stop == "error" and self._failure is not None:
            if self._failure.code == "too_many_steps":
                return "max_steps"
            return "llm_api_error" if self._failure.kind in OUTAGES else stop
        return stop

    # --- messages

    def _send_calls(self) -> None:
        """Send calls once it is known that they need no approval."""
        for call in self._calls:
            if not call.is_sent:
                call.is_sent = True
                tail = f"{self._reply_key} call {call.number}"
                self._add("tool_call_message", tail, tool_call=call.wire, tool_calls=(call.wire,))

    def _close_calls(self, why: str) -> None:
        for call in self._calls:
            if not call.is_done:
                self._return(call, why, is_good=False)

    def _return(self, call: _PendingCall, text: str, *, is_good: bool) -> None:
        call.is_done = True
        self._add(
            "tool_return_message",
            f"{self._reply_key} return {call.number}",
            name=call.wire.name,
            tool_return=text,
            tool_call_id=call.wire.tool_call_id,
            status="success" if is_good else "error",
        )

    @property
    def _has_thoughts(self) -> bool:
        """Whether the text of the last reply was sent as its reasoning; without calls it comes with the result."""
        return bool(self._last_reply.calls and self._last_reply.text.strip())

    def _uuid(self, tail: str) -> uuid.UUID:
        return uuid.uuid5(_NAMESPACE, f"{self.run} {tail}")

    def _add(self, message_type: str, tail: str, *, otid: str | None = None, **fields: Any) -> None:
        message_id = self._uuid(tail)
        message = LettaMessage(
            message_type,
            f"message-{message_id}",
            format_time(self._at),
            self.run,
            step_id=self._step_id or None,
            seq_id=len(self.messages) + 1,
            otid=otid or str(message_id),
            **fields,
        )
        self.messages.append(message)

    _READERS: ClassVar[dict[type, Callable[["MessageLog", Any], None]]] = {
        ev.RunRequested: _read_request,
        ev.StepStarted: _read_step_start,
        ev.StepFinished: _read_step_end,
        ev.AttemptSucceeded: _read_success,
        ev.AttemptFailed: _read_failure,
        ev.TaskFailed: _read_task_failure,
        ev.InputRequested: _read_question,
        ev.InputAnswered: _read_answer,
        ev.CancelRequested: _read_cancel,
        ev.RunEnded: _read_end,
    }


def _read_return(result: Raw) -> tuple[str, bool]:
    """What the step of a tool returned, as text, and whether it did well."""
    value = decode_value(result)
    if not isinstance(value, dict):
        return _plain(value), True
    table = cast("dict[str, object]", value)
    error = table.get("error")
    if isinstance(error, str) and error:
        return error, False
    return _plain(table.get("value")), True


def _result_text(result: Raw) -> str:
    """The result of an attempt as its reader gets it."""
    value = decode_value(result)
    text = cast("dict[str, object]", value).get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else _plain(cast("object", value))


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return "None" if value is None else bytes(encode_value(value)).decode()


# --- whole journals


def read_logs(name: str, entries: Sequence[ev.Entry]) -> list[MessageLog]:
    """What was said in a run: by the agent that a client wrote to, or by each agent that another one wrote to."""
    first = entries[0].event
    logs = [MessageLog(name)]
    if isinstance(first, ev.RunRequested) and first.parent is not None and first.plan is not None:
        logs = [MessageLog(name, agent=task.worker, task=task.id) for task in first.plan.tasks]
    for entry in entries:
        for log in logs:
            log.read(entry)
    return logs
