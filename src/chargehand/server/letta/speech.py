"""What an agent said and did in a run, read off its entries, as messages and steps.

Pure: the same entries, the same messages, with the same ids. Where entries come from is not known here.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from chargehand.models.messages import Reply, ToolCall
from chargehand.server.letta.asked import Asked, Said, noted
from chargehand.server.letta.client_tools import ClientReturn
from chargehand.server.letta.message_shapes import (
    CallTold,
    MessageTold,
    StepTold,
    StopTold,
    TalkTold,
    UsageTold,
    VerdictTold,
)
from chargehand.server.letta.shapes import moment
from chargehand.terms import events as ev
from chargehand.terms.failure import Failure, Question
from chargehand.terms.plan import TaskId, digest
from chargehand.terms.policy import Instant
from chargehand.terms.value import decode_value, encode_value

# --- calls of tools, as they are told

_OURS = frozenset(("give_up", "read_more"))  # between an agent and us: a client never gave it these


class Return(Struct, frozen=True):
    """What a call came to, as its client reads it."""

    text: str
    good: bool


class Called(Struct):
    """One call. `number` is its place in the reply, from 1. `told`: its client has heard of it; `step` made it; `done`:
    so has its result.
    """  # noqa: D205 - one sentence

    call: CallTold
    number: int
    told: bool = False
    step: int = 0
    done: bool = False


class Calls(Struct):
    """The calls of one reply of a model."""

    calls: list[Called] = field(default_factory=list[Called])

    def take(self, calls: Sequence[ToolCall], call_id: Callable[[int], str]) -> None:
        """Take in the calls of a new reply. Clients know them by ids of ours: those of models need not be unique."""
        self.calls = [
            Called(CallTold(name=call.name, arguments=call.arguments, tool_call_id=call_id(number)), number)
            for number, call in enumerate(calls, 1)
            if call.name not in _OURS
        ]

    def untold(self) -> list[Called]:
        """Those that are to be told now."""
        found = [one for one in self.calls if not one.told]
        for one in found:
            one.told = True
        return found

    def pending(self, question: Question | None) -> list[Called]:
        """The calls that a person is asked about; they are told as a question."""
        if question is None:
            return []
        admission = {question.call, *(one.call for one in question.also)}
        pending = [call for call in self.calls if call.number in admission and not call.done]
        for call in pending:
            call.told = True
        return pending

    def begun(self, name: str, request: str, step: int) -> None:
        """A step was begun: find the call that it makes. Of several alike it is the first that has no result yet."""
        alike = [one for one in self.calls if one.call.name == name and not one.done]
        meant = [one for one in alike if digest(name, one.call.arguments) == request] or alike
        free = [one for one in meant if not one.step] or meant
        if free:
            free[0].step = step

    def ended(self, step: int) -> Called | None:
        for one in self.calls:
            if one.step == step and not one.done:
                one.done = True
                return one
        return None

    def left(self) -> list[Called]:
        """Those that came to nothing; nothing more will come of them."""
        found = [one for one in self.calls if not one.done]
        for one in found:
            one.done = True
        return found


def returned(result: msgspec.Raw) -> Return:
    """What a tool's step was written down as, in plain text."""
    value = decode_value(result)
    if not isinstance(value, dict):
        return Return(plain(value), good=True)
    error = value.get("error")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    inner = value.get("value")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    if isinstance(error, str) and error:
        return Return(error, good=False)
    return Return(plain(inner), good=True)  # pyright: ignore[reportUnknownArgumentType] - any JSON


def plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return "None" if value is None else bytes(encode_value(value)).decode()


def words(result: msgspec.Raw) -> str:
    """The result of an attempt as its reader gets it."""
    value = decode_value(result)
    if isinstance(value, dict):
        text = value.get("text")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
        if isinstance(text, str):
            return text
    return plain(value)  # pyright: ignore[reportUnknownArgumentType] - any JSON


TASK = TaskId("reply")
"""The only task of a run that answers a person."""
_SPACE = uuid.UUID("0b9f0d0e-5a7c-4f39-8a26-0c1f6f6d1d55")
# steps that nobody said anything in
_MODEL = "model"
_UNSEEN = frozenset(("memory", "remember", "summary"))
_STOPS = {"complete": "end_turn", "partial": "end_turn", "cancelled": "cancelled"}
_STATUSES = {
    "end_turn": "completed",
    "tool_rule": "completed",
    "max_tokens_exceeded": "completed",
    "cancelled": "cancelled",
}
_NOT_MADE = "this call was not made: it does not fit the agent's tools or rules"
_MODEL_WORDS = "non_reasoner_model"
_CUT = "this call was not finished: the run was stopped"


class Speech:
    """Listens to the entries of one run. `messages` and `steps` grow; `stop` is set while nothing goes on.

    `run` is what clients call it. `name` is that of the journal, where the run may be one inside another, with a task
    for each of several agents.
    """

    def __init__(self, name: str, agent: str = "", task: TaskId = TASK, *, inside: bool = False) -> None:
        self.name = name
        self.run = f"run-{uuid.uuid5(_SPACE, f'{name} {task}')}" if inside else name
        self.agent = agent
        self.task = task
        self._inside = inside
        self._is_cut = False  # the last reply reached its limit
        self._has_begun = False
        self.asked: Asked | None = None
        self.messages: list[MessageTold] = []
        self.steps: list[StepTold] = []
        self.began: Instant = 0.0
        self.ended: Instant = 0.0
        self.stop = ""
        self.question: ev.InputRequested | None = None
        self.over = False
        self.usage = UsageTold(run_ids=(self.run,))
        self._goal: ev.RunRequested | None = None
        self._model = ""
        self._names: dict[int, str] = {}
        self._calls = Calls()
        self._pending: list[Called] = []
        self.client_returns: dict[tuple[str, str], ClientReturn] = {}
        """What the client sent last for a call, by the name of its tool and the arguments."""
        self._exit_tool = ""
        self._failure: Failure | None = None
        self._thought = False  # the words of the last reply were told as its reasoning
        self._theirs: set[str] = set()

    @property
    def conversation(self) -> str:
        """The conversation it belongs to; empty: the agent's own."""
        return self.asked.conversation if self.asked is not None else ""

    @property
    def lane(self) -> str:
        return self.conversation or self.agent

    # --- listening

    def hear(self, entry: ev.Entry) -> None:
        event = entry.event
        if self._goal is not None:  # what was asked stands beside the request
            self._opening(entry, self._goal)
        if isinstance(event, ev.RunRequested):
            self.began = entry.at
            self._goal = event
            self._model = next((one.model for one in event.roster.agents if self.agent in ("", one.name)), "")
        elif isinstance(event, ev.RunEnded):
            self._end(entry, event)
        elif getattr(event, "task", self.task) == self.task:
            self._work(entry)

    def _opening(self, entry: ev.Entry, requested: ev.RunRequested) -> None:
        self._goal = None
        self.asked = noted(entry.event)
        if self.asked is not None:
            self.agent = self.agent or self.asked.agent
            said: tuple[Said, ...] = self.asked.said
        else:
            chain = requested.parent.chain if requested.parent is not None else ()
            said = (Said(requested.goal, "system" if chain else "user", sender=chain[-1] if chain else ""),)
        for number, one in enumerate(said):
            told = self._add(
                f"{one.role}_message",
                f"said {number}",
                self.began,
                content=one.text,
                otid=one.otid or None,
                name=one.name or None,
                sender_id=one.sender or None,
            )
            self._theirs.add(told.id)

    def _work(self, entry: ev.Entry) -> None:
        event = entry.event
        if isinstance(event, ev.AttemptStarted):
            self._has_begun = True
        elif isinstance(event, ev.StepStarted):
            self._started(entry, event)
        elif isinstance(event, ev.StepFinished):
            self._finished(entry, event)
        elif isinstance(event, ev.AttemptSucceeded):
            self._tell_calls(entry.at)
            self._exit_tool = event.exit_tool
            if not event.exit_tool:  # else the result was told as what the tool returned
                tail = f"{self._words} result" if self._thought else self._words
                self._add("assistant_message", tail, entry.at, content=words(event.result))
        elif isinstance(event, ev.AttemptFailed):
            self._failed(entry, event.failure)
        elif isinstance(event, ev.InputRequested):
            self._ask(entry, event)
        elif isinstance(event, ev.InputAnswered):
            self._answered(entry, event)
        elif isinstance(event, ev.TaskFailed):
            said = f"I could not do this: {event.failure.message}"
            self._add("assistant_message", "failed", entry.at, content=said, is_err=True)

    # --- steps

    def _started(self, entry: ev.Entry, event: ev.StepStarted) -> None:
        self._tell_calls(entry.at)
        self._names[event.step] = event.name
        if event.name != _MODEL:
            self._calls.begun(event.name, event.request, event.step)
            return
        self._close_calls(entry.at, _NOT_MADE)
        step = self._step_id(event.attempt, event.step)
        if self.steps and self.steps[-1].id == step:
            return  # taken up again after a crash
        self.steps.append(
            StepTold(
                id=step,
                agent_id=self.agent,
                run_id=self.run,
                model=self._model,
                model_handle=self._model,
                provider_name=self._model.partition(":")[0],
                trace_id=self.run,
                started=entry.at,
                attempt=event.attempt,
                number=event.step,
            )
        )

    def _finished(self, entry: ev.Entry, event: ev.StepFinished) -> None:
        name = self._names.get(event.step, "")
        if name == _MODEL:
            self._replied(entry, event)
        elif name not in _UNSEEN and (one := self._calls.ended(event.step)) is not None:
            came = returned(event.result)
            self._return(one, entry.at, came.text, good=came.good and event.good)

    def _replied(self, entry: ev.Entry, event: ev.StepFinished) -> None:
        reply = msgspec.json.decode(event.result, type=Reply)
        self._count(reply, entry.at)
        self._is_cut = reply.finish == "length"
        self._thought = bool(reply.calls and reply.text.strip())
        if not reply.calls:
            return  # the words of the result come with it
        if self._thought:
            self._add("reasoning_message", self._words, entry.at, reasoning=reply.text.strip(), source=_MODEL_WORDS)
        self._calls.take(reply.calls, lambda number: f"call-{self._uuid(f'{self._words} call id {number}')}")

    def _count(self, reply: Reply, at: Instant) -> None:
        used = self.usage
        step = self.steps[-1]
        used.step_count += 1
        step.status = "success"
        step.replied = at
        step.finished = at
        step.model = reply.model or step.model
        if reply.usage is None:
            return
        step.prompt_tokens = reply.usage.input
        step.completion_tokens = reply.usage.output
        step.cached_input_tokens = reply.usage.cached
        step.total_tokens = reply.usage.input + reply.usage.output
        used.prompt_tokens += reply.usage.input
        used.completion_tokens += reply.usage.output
        used.cached_input_tokens += reply.usage.cached
        used.total_tokens = used.prompt_tokens + used.completion_tokens
        used.context_tokens = step.total_tokens

    def _failed(self, entry: ev.Entry, failure: Failure) -> None:
        if failure.kind == "approval":  # asked in the next entry
            self._calls.pending(failure.question)
            self._tell_calls(entry.at)
            return
        self._tell_calls(entry.at)
        self._close_calls(entry.at, _NOT_MADE)
        self._failure = failure
        if self.steps and self.steps[-1].status == "pending":
            step = self.steps[-1]
            step.status = "failed"
            step.error_type = failure.kind
            step.finished = entry.at
            step.error_data = {"message": failure.message}

    # --- a person is asked

    def _ask(self, entry: ev.Entry, event: ev.InputRequested) -> None:
        self.question = event
        self.stop = "requires_approval"
        self._pending = self._calls.pending(event.question)
        if self._pending:
            calls = tuple(one.call for one in self._pending)
            self._add("approval_request_message", f"ask {event.number}", entry.at, tool_call=calls[0], tool_calls=calls)

    def _answered(self, entry: ev.Entry, event: ev.InputAnswered) -> None:
        asked = self.question
        self.question = None
        self.stop = ""
        if asked is None or asked.question is None or not self._pending:
            return
        answers: dict[int, ev.InputAnswered | ev.CallVerdict] = {asked.question.call: event}
        answers |= {one.call: one for one in event.also}
        answered = [(call, answers[call.number]) for call in self._pending if call.number in answers]
        verdicts = tuple(self._verdict(call, answer) for call, answer in answered)
        told = self._add(
            "approval_response_message",
            f"answer {event.number}",
            entry.at,
            approve=all(one.approve for one in verdicts),
            reason=event.feedback or None,
            approval_request_id=self.request_id(event.number),
            approvals=verdicts,
        )
        self._theirs.add(told.id)
        for call, answer in answered:
            if answer.verdict != "approve":
                call.done = True
                why = answer.feedback or "no reason given"
                self._return(call, entry.at, f"A person did not allow this call: {why}", good=False)

    def _verdict(self, call: Called, answer: ev.InputAnswered | ev.CallVerdict) -> VerdictTold:
        """What was said of a call. What it came to at the client is kept for the step that makes it here."""
        told = VerdictTold(answer.verdict == "approve", call.call.tool_call_id, answer.feedback or None)
        result = decode_value(answer.result) if isinstance(answer, ev.InputAnswered) else answer.result
        if answer.verdict != "approve" or result is None:
            return told
        returned = msgspec.convert(result, ClientReturn)
        self.client_returns[call.call.name, call.call.arguments] = returned
        told.type = "tool"
        told.tool_return = returned.text
        told.status = "success" if returned.good else "error"
        return told

    def request_id(self, number: int) -> str:
        """The id of the message in which a person was asked this question."""
        return f"message-{self._uuid(f'ask {number}')}"

    @property
    def pending(self) -> Mapping[str, int]:
        """The calls that wait for a person's leave: their place in the model's reply, by the id clients know."""
        if self.question is None:
            return {}
        return {one.call.tool_call_id: one.number for one in self._pending}

    @property
    def pending_at_client(self) -> frozenset[str]:
        """Those of them that the client is to make itself, by the id it knows."""
        names = {tool.name for tool in self.asked.tools} if self.asked is not None else set[str]()
        return frozenset(one.call.tool_call_id for one in self._pending if one.call.name in names)

    # --- the end

    def _end(self, entry: ev.Entry, event: ev.RunEnded) -> None:
        self._tell_calls(entry.at)
        self._close_calls(entry.at, _CUT)
        self.over = True
        self.ended = entry.at
        self.question = None
        self.stop = _STOPS.get(event.ending) or self._why()
        if self.stop == "end_turn" and self._exit_tool:
            self.stop = "tool_rule"
        elif self.stop == "end_turn" and self._is_cut:
            self.stop = "max_tokens_exceeded"
        for step in self.steps[-1:]:
            step.stop_reason = self.stop
            step.finished = entry.at
            if step.status == "pending":
                step.status = "cancelled" if self.stop == "cancelled" else "failed"

    def _why(self) -> str:
        failure = self._failure
        if failure is None:
            return "error"
        last = self.steps[-1].attempt if self.steps else 0
        made = sum(one.attempt == last and one.status == "success" for one in self.steps)
        if failure.kind == "logic" and self.asked is not None and made >= self.asked.steps:
            return "max_steps"
        return "llm_api_error" if failure.kind in ("network", "timeout") else "error"

    @property
    def is_working(self) -> bool:
        """Whether the agent is at it: inside another run from the first attempt on, else it may still stand in line."""
        return bool(self.steps) or (self._inside and self._has_begun)

    @property
    def status(self) -> str:
        """How the run stands, in Letta's words. One that waits for a person counts as completed there."""
        if not self.over:
            return "completed" if self.question is not None else "running" if self.is_working else "created"
        return _STATUSES.get(self.stop, "failed")

    def told(self, since: int = 0, types: Sequence[str] | None = None) -> TalkTold:
        """All an agent said; what it was told is known to whoever told it."""
        said = [
            one
            for one in self.messages[since:]
            if one.id not in self._theirs and (types is None or one.message_type in types)
        ]
        return TalkTold(said, StopTold(self.stop or "error"), self.usage)

    def said_by_caller(self, message: MessageTold) -> bool:
        return message.id in self._theirs

    # --- messages

    def _tell_calls(self, at: Instant) -> None:
        """Calls are told once it is known that nobody has to be asked about them."""
        for one in self._calls.untold():
            tail = f"{self._words} call {one.number}"
            self._add("tool_call_message", tail, at, tool_call=one.call, tool_calls=(one.call,))

    def _close_calls(self, at: Instant, why: str) -> None:
        for one in self._calls.left():
            self._return(one, at, why, good=False)

    def _return(self, one: Called, at: Instant, text: str, *, good: bool) -> None:
        self.steps[-1].finished = at
        at_client = self.client_returns.get((one.call.name, one.call.arguments))
        self._add(
            "tool_return_message",
            f"{self._words} return {one.number}",
            at,
            name=one.call.name,
            tool_return=text,
            tool_call_id=one.call.tool_call_id,
            status="success" if good else "error",
            stdout=None if at_client is None else at_client.stdout or None,
            stderr=None if at_client is None else at_client.stderr or None,
        )

    @property
    def _words(self) -> str:
        """What ids of the messages that belong to the last step begin with."""
        return f"{self.steps[-1].attempt} {self.steps[-1].number}" if self.steps else "0 0"

    def words_of(self, attempt: int, step: int) -> str:
        """The id of the message that the words of a reply become."""
        return f"message-{self._uuid(f'{attempt} {step}')}"

    def _uuid(self, tail: str) -> uuid.UUID:
        return uuid.uuid5(_SPACE, f"{self.run} {tail}")

    def _step_id(self, attempt: int, step: int) -> str:
        return f"step-{self._uuid(f'step {attempt} {step}')}"

    def _add(self, kind: str, tail: str, at: Instant, **rest: object) -> MessageTold:
        which = self._uuid(tail)
        step = self.steps[-1].id if self.steps else None
        made: dict[str, object] = {"otid": str(which), **{k: v for k, v in rest.items() if v is not None}}
        number = len(self.messages) + 1
        told = MessageTold(
            message_type=kind,
            id=f"message-{which}",
            date=moment(at),
            run_id=self.run,
            step_id=step,
            seq_id=number,
            **made,  # pyright: ignore[reportArgumentType] - fields of a message
        )
        self.messages.append(told)
        return told
