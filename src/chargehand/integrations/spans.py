"""The spans of a run, read off its entries: a run, its duties and attempts, their calls. Same entries, same spans.

A span is complete when the journal has its end. How spans are sent is not known here. The attribute names are those of
the OpenTelemetry conventions for generative AI (which are in development, so they stand here and not in a package),
of OpenInference (Phoenix), and those in which Langfuse and Logfire look for the cost.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.facts import ModelFellBack
from chargehand.engine.failure import FailureKind, StepKind
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.policy import Instant
from chargehand.engine.roster import Agent
from chargehand.engine.state import Work

Attribute: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = dict[str, Attribute]
OpenInferenceKind: TypeAlias = Literal["CHAIN", "AGENT", "LLM", "TOOL", "RETRIEVER", "EVALUATOR"]
WorkKey: TypeAlias = tuple[str, TaskId]
"""A piece of work: `attempt` or the duty, and the task it is for."""

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Names of providers that the conventions write differently from our handles."""
_LABELS = {"user": "user.id", "session": "session.id"}
"""Labels of a run that have an attribute of their own."""
_PLANNING: WorkKey = ("plan", NO_TASK)
_ANSWERING: WorkKey = ("answer", NO_TASK)


class Span(Struct, frozen=True, gc=False):
    """Something that has ended."""

    key: str
    """Names it within its run; its id is made of this."""
    parent: str
    """The key of the span around it; empty for the run's own."""
    name: str
    start: Instant
    end: Instant
    attributes: Attributes
    is_client: bool = False
    """It is a call to another system: a model."""
    error: str = ""
    """The kind of failure; empty: it did not fail."""
    message: str = ""
    """The failure in words."""


class _OpenSpan(Struct):
    """Something under way."""

    key: str
    parent: str
    name: str
    start: Instant
    attributes: Attributes
    is_client: bool = False
    number: int = 0
    """The number of an attempt, a duty or a question."""
    calls: int = 0
    """Calls of models in it that are no steps."""
    earlier_calls: int = 0
    """Those of processes that are gone: a process that resumes the run counts its own from 1."""
    used: Amount = Amount()
    steps: "dict[int, _OpenSpan]" = field(default_factory=dict[int, "_OpenSpan"])
    """Of an attempt: the steps that have not come back."""
    lost_at: Instant | None = None
    """When the process that made the call was last heard of, if that has ended."""
    requested: dict[str, str] = field(default_factory=dict[str, str])
    """Of an attempt: the arguments of the tool calls that its model asked for, by their ids."""


class _Usage(Struct):
    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    cache_written_hour: int = 0
    reasoning: int = 0


class _RequestedCall(Struct):
    id: str = ""
    name: str = ""
    arguments: str = ""


class _SentMessage(Struct):
    """A message of a prompt, as the journal has it."""

    role: str = ""
    text: str = ""
    calls: list[_RequestedCall] = []
    call: str = ""


class _StepResult(Struct):
    """What the result of a step says where it is the reply of a model."""

    usage: _Usage | None = None
    finish: str = "stop"
    model: str = ""
    text: str = ""
    calls: list[_RequestedCall] = []


_NOTHING_SAID = _StepResult()
_STEP_RESULT = msgspec.json.Decoder(_StepResult)
_FINISH_REASONS = {"stop": "stop", "tools": "tool_calls", "length": "length", "refused": "content_filter"}


class Content:
    """Which texts are told with spans: none."""

    def add(self, attributes: Attributes, name: str, value: str | Raw) -> None:
        """Add what goes into something, or comes out of it, under the name of an attribute."""

    def add_prompt(self, attributes: Attributes, messages: Raw) -> None:
        """Add what a model was first told for a piece of work."""

    def add_reply(self, attributes: Attributes, reply: _StepResult) -> None:
        """Add what a model replied."""


class ShownContent(Content):
    """All texts are told, without what `redact` takes out of them."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def add(self, attributes: Attributes, name: str, value: str | Raw) -> None:
        text = value if isinstance(value, str) else bytes(value).decode()
        attributes[name] = self._redact(text)

    def add_prompt(self, attributes: Attributes, messages: Raw) -> None:
        try:
            sent = _MESSAGES.decode(messages)
        except msgspec.MsgspecError:  # an executor may keep prompts of any shape
            return
        self._add_messages(attributes, _PROMPT, [_message(message) for message in sent])

    def add_reply(self, attributes: Attributes, reply: _StepResult) -> None:
        message = _message(_SentMessage("assistant", reply.text, reply.calls))
        message["finish_reason"] = _FINISH_REASONS.get(reply.finish, reply.finish)
        self._add_messages(attributes, "gen_ai.output.messages", [message])

    def _add_messages(self, attributes: Attributes, name: str, messages: Sequence[dict[str, object]]) -> None:
        attributes[name] = self._redact(msgspec.json.encode(messages).decode())


def _message(message: _SentMessage) -> dict[str, object]:
    """A message as the conventions write it."""
    parts: list[dict[str, object]] = []
    if message.call:
        parts.append({"type": "tool_call_response", "id": message.call, "response": message.text})
    elif message.text:
        parts.append({"type": "text", "content": message.text})
    calls: list[dict[str, object]] = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls
    ]
    return {"role": message.role, "parts": [*parts, *calls]}


_PROMPT = "gen_ai.input.messages"
_MESSAGES = msgspec.json.Decoder(list[_SentMessage])
NO_CONTENT = Content()


def split_handle(handle: str) -> tuple[str, str]:
    """The provider and the model that a handle names, such as `openai:gpt-5-mini` or `openai+http://box/v1#name`."""
    if "://" in handle:
        protocol, _, address = handle.partition("+")
        return _PROVIDERS.get(protocol, protocol), address.rpartition("#")[2]
    provider, _, model = handle.partition(":")
    return _PROVIDERS.get(provider, provider), model or provider


class RunSpans:
    """The spans of one run, brought up to date by each entry."""

    def __init__(self, run: str, first: ev.Entry, content: Content = NO_CONTENT) -> None:
        assert isinstance(first.event, ev.RunRequested), "a run begins with its request"
        self.run = run
        self.requested = first.event
        self.seq = first.seq
        self._at = first.at
        self._content = content
        self._agents: Mapping[str, Agent] = {agent.name: agent for agent in first.event.roster.agents}
        self._work: dict[WorkKey, _OpenSpan] = {}
        """The attempts and duties that are under way."""
        self._questions: dict[int, _OpenSpan] = {}
        self._closed: dict[WorkKey, tuple[int, int]] = {}
        """The attempt or duty of each kind that ended last: its number, and how often it did."""
        self._ended: list[Span] = []
        self._root = self._open_run(first)

    def record(self, entry: ev.Entry) -> list[Span]:
        """Take in an entry; the spans that it ends, which is most often none or one."""
        recorder = self.RECORDERS.get(type(entry.event))
        self.seq = entry.seq
        if recorder is not None:
            recorder(self, entry.event, entry.at)
        self._at = entry.at
        if not self._ended:
            return []
        ended = self._ended
        self._ended = []
        return ended

    def step_key(self, task: TaskId, attempt: int, step: int) -> str:
        """The key of a step, for a run that it starts or a call that it makes."""
        span = self._find_work("attempt", task, attempt)
        parent = f"attempt/{task}/{attempt}" if span is None else span.key
        return f"{parent}/{step}"

    def call_key(self, work: Work, call: int) -> str:
        """The key of a call of a model that is no step, by its number in its piece of work."""
        span = self._find_work(work.kind, work.task, work.number)
        if span is None:
            return f"{work.kind}/{work.task}/{work.number}/call/{call}"
        return f"{span.key}/call/{span.earlier_calls + call}"

    def _find_work(self, kind: str, task: TaskId, number: int) -> _OpenSpan | None:
        """The attempt or the duty of this number, if it is under way."""
        span = self._work.get((kind, task))
        return span if span is not None and span.number == number else None

    def _open_run(self, first: ev.Entry) -> _OpenSpan:
        requested = self.requested
        name = requested.team or "agent"
        attributes: Attributes = {
            "openinference.span.kind": "CHAIN",
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": name,
            "chargehand.run": self.run,
        }
        for label, value in requested.labels.items():
            attributes[_LABELS.get(label, f"chargehand.label.{label}")] = value
        self._content.add(attributes, "input.value", requested.goal)
        return _OpenSpan("", "", f"invoke_workflow {name}", first.at, attributes)

    # --- attempts and duties

    def _start_work(
        self, key: WorkKey, number: int, at: Instant, *, operation: str, agent: str, attributes: Attributes
    ) -> None:
        """Begin an attempt or a duty. One that ended before under the same number is another span."""
        if key in self._work:
            if self._work[key].number == number:
                return  # it goes on after a crash, a stop or a question, or holds money for more calls
            self._end_work(key, at)
        kind, task = key
        last, times = self._closed.get(key, (0, 0))
        again = f"~{times}" if last == number else ""
        span = _OpenSpan(f"{kind}/{task}/{number}{again}", "", f"{operation} {agent}", at, {}, number=number)
        span.attributes = {
            "openinference.span.kind": "AGENT",
            "chargehand.run": self.run,
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": agent,
            **attributes,
        }
        if task:
            span.attributes["chargehand.task"] = task
        self._work[key] = span

    def _finish_work(
        self,
        key: WorkKey,
        at: Instant,
        *,
        used: Amount | None,
        result: Raw | str | None = None,
        failure: ev.Failure | None = None,
    ) -> None:
        """Take in what came of an attempt or a duty, and what it cost, and end it."""
        span = self._work.get(key)
        self._pay(span, used)
        if span is not None and result is not None:
            self._content.add(span.attributes, "output.value", result)
        self._end_work(key, at, failure)

    def _end_work(self, key: WorkKey, at: Instant, failure: ev.Failure | None = None) -> None:
        """End an attempt or a duty, if it is under way, and the calls that it had not come back from."""
        span = self._work.pop(key, None)
        if span is None:
            return
        error = "" if failure is None else failure.kind
        for step in span.steps.values():
            self._end(step, step.lost_at or at, error=error or "interrupted")
        last, times = self._closed.get(key, (0, 0))
        self._closed[key] = (span.number, times + 1 if last == span.number else 1)
        self._end(span, at, error=error, message="" if failure is None else failure.message)

    def _end(self, span: _OpenSpan, at: Instant, *, error: str = "", message: str = "") -> None:
        attributes = span.attributes
        if error:
            attributes["error.type"] = error
        if span.used.tokens or span.used.micros:
            attributes["chargehand.tokens"] = span.used.tokens
            attributes["chargehand.cost_usd"] = span.used.micros / 1_000_000
        self._ended.append(
            Span(
                key=span.key,
                parent=span.parent,
                name=span.name,
                start=span.start,
                end=max(at, span.start),
                attributes=attributes,
                is_client=span.is_client,
                error=error,
                message=message,
            )
        )

    def _pay(self, span: _OpenSpan | None, used: Amount | None) -> None:
        if used is None:
            return
        self._root.used += used
        if span is not None:
            span.used += used

    def _attempt_started(self, event: ev.AttemptStarted, at: Instant) -> None:
        self._start_work(
            ("attempt", event.task),
            event.attempt,
            at,
            operation="invoke_agent",
            agent=event.worker,
            attributes={"chargehand.attempt": event.attempt},
        )

    def _attempt_succeeded(self, event: ev.AttemptSucceeded, at: Instant) -> None:
        self._finish_work(("attempt", event.task), at, used=event.used, result=event.result)

    def _attempt_failed(self, event: ev.AttemptFailed, at: Instant) -> None:
        key = ("attempt", event.task)
        if event.failure.kind == "approval":  # it goes on when a person has answered
            self._pay(self._work.get(key), event.used)
        else:
            self._finish_work(key, at, used=event.used, failure=event.failure)

    def _attempt_abandoned(self, event: ev.AttemptAbandoned, at: Instant) -> None:
        self._end_work(("attempt", event.task), at, event.failure)

    def _task_settled(self, event: ev.TaskFailed | ev.TaskSkipped, at: Instant) -> None:
        """An attempt that waited for a person does not go on."""
        self._end_work(("attempt", event.task), at, ev.failure_in(event))

    def _duty_started(self, event: ev.SupervisionStarted, at: Instant) -> None:
        self._start_work(
            (event.duty, event.task),
            event.number,
            at,
            operation="plan" if event.duty == "plan" else "invoke_agent",
            agent="supervisor",
            attributes={"chargehand.duty": event.duty},
        )

    def _duty_failed(self, event: ev.SupervisionFailed, at: Instant) -> None:
        is_question = event.failure.kind == "approval"  # the planner asks a person
        failure = None if is_question else event.failure
        self._finish_work((event.duty, event.task), at, used=event.used, failure=failure)

    def _tasks_added(self, event: ev.TasksAdded, at: Instant) -> None:
        if event.done:
            tasks = Raw(msgspec.json.encode(event.tasks))
            self._finish_work(_PLANNING, at, used=event.used, result=tasks)
        else:
            self._pay(self._work.get(_PLANNING), event.used)

    def _task_refined(self, event: ev.TaskRefined, at: Instant) -> None:
        self._finish_work(("refine", event.task), at, used=event.used, result=event.instruction)

    def _answer_written(self, event: ev.AnswerWritten, at: Instant) -> None:
        self._content.add(self._root.attributes, "output.value", event.answer)
        self._finish_work(_ANSWERING, at, used=event.used, result=event.answer)

    def _prompt_sent(self, event: ev.PromptSent, _at: Instant) -> None:
        work = self._work.get((event.duty, event.task))
        if work is not None:
            self._content.add_prompt(work.attributes, event.messages)

    def _move_prompt(self, work: _OpenSpan, call: _OpenSpan) -> None:
        """What a model is first told for a piece of work belongs to the first call of it."""
        messages = work.attributes.pop(_PROMPT, None)
        if messages is not None:
            call.attributes[_PROMPT] = messages
            call.attributes["input.value"] = messages

    def _model_called(self, event: ev.ModelCalled, at: Instant) -> None:
        """A call that is no step: of the supervisor, or of a judge."""
        work = self._find_work(event.duty, event.task, event.number)
        around = work or self._root
        number = around.calls + 1
        if work is not None and event.call:
            number = work.earlier_calls + event.call
        around.calls = max(around.calls, number)
        call = self._chat(around, f"call/{number}", at - event.seconds, event.model)
        self._move_prompt(around, call)
        if event.input or event.output:
            usage = _Usage(
                input=event.input,
                output=event.output,
                cached=event.cached,
                cache_written=event.cache_written,
                cache_written_hour=event.cache_written_hour,
                reasoning=event.reasoning,
            )
            _add_usage(call.attributes, usage)
        if event.used is not None and event.used.micros:
            _add_cost(call.attributes, event.used.micros)
        self._end(call, at)

    # --- steps

    def _step_started(self, event: ev.StepStarted, at: Instant) -> None:
        attempt = self._work.get(("attempt", event.task))
        if attempt is None:
            return
        if event.kind in ("model", "summary"):
            agent = self._agents.get(str(attempt.attributes["gen_ai.agent.name"]))
            step = self._chat(attempt, str(event.step), at, "" if agent is None else agent.model)
            self._move_prompt(attempt, step)
        else:
            step = self._other_step(attempt, event, at)
        attempt.steps[event.step] = step

    def _chat(self, around: _OpenSpan, key: str, at: Instant, handle: str) -> _OpenSpan:
        provider, model = split_handle(handle or "unknown")
        attributes: Attributes = {
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "llm.model_name": model,
            "chargehand.run": self.run,
        }
        if "chargehand.task" in around.attributes:
            attributes["chargehand.task"] = around.attributes["chargehand.task"]
        return _OpenSpan(f"{around.key}/{key}", around.key, f"chat {model}", at, attributes, is_client=True)

    def _other_step(self, attempt: _OpenSpan, event: ev.StepStarted, at: Instant) -> _OpenSpan:
        operation, kind = _OPERATIONS[event.kind]
        attributes: Attributes = {
            "openinference.span.kind": kind,
            "chargehand.run": self.run,
            "chargehand.task": event.task,
            "chargehand.step.kind": event.kind,
            "chargehand.effect": event.effect,
        }
        if event.kind != "check":  # the conventions have no operation for that
            attributes["gen_ai.operation.name"] = operation
        if event.kind == "tool":
            attributes["gen_ai.tool.name"] = event.name
            attributes["tool.name"] = event.name
            if event.call:
                attributes["gen_ai.tool.call.id"] = event.call
                self._content.add(attributes, "gen_ai.tool.call.arguments", attempt.requested.get(event.call, ""))
        return _OpenSpan(f"{attempt.key}/{event.step}", attempt.key, f"{operation} {event.name}", at, attributes)

    def _step_finished(self, event: ev.StepFinished, at: Instant) -> None:
        attempt = self._work.get(("attempt", event.task))
        self._pay(attempt, event.used)
        step = None if attempt is None else attempt.steps.pop(event.step, None)
        if attempt is None or step is None:
            return
        if step.is_client:
            micros = 0 if event.used is None else event.used.micros
            reply = self._add_reply(step.attributes, event.result, micros)
            attempt.requested.update({call.id: call.arguments for call in reply.calls})
        elif step.attributes["openinference.span.kind"] == "TOOL":
            self._content.add(step.attributes, "gen_ai.tool.call.result", event.result)
        self._content.add(step.attributes, "output.value", event.result)
        self._end(step, at, error="" if event.good else "failed")

    def _step_failed(self, event: ev.StepFailed, _at: Instant) -> None:
        """It ends with its attempt, which knows why."""
        self._pay(self._work.get(("attempt", event.task)), event.used)

    def _add_reply(self, attributes: Attributes, result: Raw, micros: int) -> _StepResult:
        try:
            reply = _STEP_RESULT.decode(result)
        except msgspec.MsgspecError:  # an executor may keep results of any shape
            reply = _NOTHING_SAID
        if reply.usage is not None:
            _add_usage(attributes, reply.usage)
        if micros:
            _add_cost(attributes, micros)
        attributes["gen_ai.response.finish_reasons"] = [_FINISH_REASONS.get(reply.finish, reply.finish)]
        if reply.model:
            attributes["gen_ai.response.model"] = reply.model
        self._content.add_reply(attributes, reply)
        return reply

    def _noted(self, event: ev.Noted, _at: Instant) -> None:
        """Another model takes over from one that did not answer."""
        attempt = self._work.get(("attempt", event.task))
        if attempt is None or not isinstance(event.fact, ModelFellBack):
            return
        provider, model = split_handle(event.fact.model)
        for step in attempt.steps.values():
            if step.is_client:
                step.name = f"chat {model}"
                names = {"gen_ai.provider.name": provider, "gen_ai.request.model": model, "llm.model_name": model}
                step.attributes.update(names)

    # --- the person and the run

    def _input_requested(self, event: ev.InputRequested, at: Instant) -> None:
        attributes: Attributes = {
            "openinference.span.kind": "CHAIN",
            "chargehand.run": self.run,
            "chargehand.input": event.what,
        }
        if event.task:
            attributes["chargehand.task"] = event.task
        self._content.add(attributes, "input.value", event.text)
        self._questions[event.number] = _OpenSpan(
            f"input/{event.number}", "", f"wait_for_input {event.what}", at, attributes
        )

    def _input_answered(self, event: ev.InputAnswered, at: Instant) -> None:
        span = self._questions.pop(event.number, None)
        if span is not None:
            span.attributes["chargehand.verdict"] = event.verdict
            self._end(span, at)

    def _resumed(self, _event: ev.RunResumed, _at: Instant) -> None:
        """Calls that were under way ended with the last process. They are made again under the same numbers."""
        for span in self._work.values():
            for step in span.steps.values():
                step.lost_at = self._at
            span.earlier_calls = span.calls

    def _stop_all(self, reason: FailureKind, at: Instant) -> None:
        stopped = ev.Failure(reason, "the run ended before this did")
        for key in tuple(self._work):
            self._end_work(key, at, stopped)
        for span in self._questions.values():
            self._end(span, at, error="stopped")
        self._questions.clear()

    def _time_ran_out(self, _event: ev.TimeRanOut, at: Instant) -> None:
        self._stop_all("deadline", at)

    def _run_ended(self, event: ev.RunEnded, at: Instant) -> None:
        self._stop_all("stopped", at)
        self._root.attributes["chargehand.ending"] = event.ending
        self._end(self._root, at, error=event.reason if event.ending == "failed" else "")

    RECORDERS: ClassVar[dict[type, Callable[["RunSpans", Any, Instant], None]]] = {
        ev.AttemptStarted: _attempt_started,
        ev.AttemptSucceeded: _attempt_succeeded,
        ev.AttemptFailed: _attempt_failed,
        ev.AttemptAbandoned: _attempt_abandoned,
        ev.TaskFailed: _task_settled,
        ev.TaskSkipped: _task_settled,
        ev.StepStarted: _step_started,
        ev.StepFinished: _step_finished,
        ev.StepFailed: _step_failed,
        ev.Noted: _noted,
        ev.PromptSent: _prompt_sent,
        ev.ModelCalled: _model_called,
        ev.SupervisionStarted: _duty_started,
        ev.SupervisionFailed: _duty_failed,
        ev.TaskRefined: _task_refined,
        ev.TasksAdded: _tasks_added,
        ev.AnswerWritten: _answer_written,
        ev.InputRequested: _input_requested,
        ev.InputAnswered: _input_answered,
        ev.RunResumed: _resumed,
        ev.TimeRanOut: _time_ran_out,
        ev.RunEnded: _run_ended,
    }


_OPERATIONS: dict[StepKind, tuple[str, OpenInferenceKind]] = {
    "tool": ("execute_tool", "TOOL"),
    "memory": ("search_memory", "RETRIEVER"),
    "remember": ("update_memory", "CHAIN"),
    "check": ("check", "EVALUATOR"),
    "subteam": ("invoke_agent", "AGENT"),
    "make_worker": ("create_agent", "AGENT"),
    "worker": ("invoke_agent", "AGENT"),
}


def _add_usage(attributes: Attributes, usage: _Usage) -> None:
    attributes["gen_ai.usage.input_tokens"] = usage.input
    attributes["gen_ai.usage.output_tokens"] = usage.output
    attributes["llm.token_count.prompt"] = usage.input
    attributes["llm.token_count.completion"] = usage.output
    attributes["llm.token_count.total"] = usage.input + usage.output
    parts = {
        ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"): usage.cached,
        ("gen_ai.usage.cache_creation.input_tokens", "llm.token_count.prompt_details.cache_write"): (
            usage.cache_written + usage.cache_written_hour
        ),
        ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"): usage.reasoning,
    }
    for names, count in parts.items():
        if count:
            attributes.update(dict.fromkeys(names, count))


def _add_cost(attributes: Attributes, micros: int) -> None:
    """In dollars, where Langfuse, Phoenix and Logfire look for it."""
    usd = micros / 1_000_000
    attributes["gen_ai.usage.cost"] = usd
    attributes["llm.cost.total"] = usd
    attributes["operation.cost"] = usd


# --- ids


def trace_id(run: str, seed: int) -> int:
    """The trace of a run that belongs to no other: the same in every process that drives it."""
    return int.from_bytes(blake2b(f"{run}\0{seed}".encode(), digest_size=16).digest()) or 1


def span_id(run: str, seed: int, key: str) -> int:
    """The id of a span: the same in every process that drives its run."""
    return int.from_bytes(blake2b(f"{run}\0{seed}\0{key}".encode(), digest_size=8).digest()) or 1
