"""A run as it went, read off its entries: rounds of planning, tasks, attempts, steps, prompts, costs, the answer.

Pure: the same entries give the same trace, also of a run that is still under way. How it is shown is not known here.
Times are seconds since the run began, unless said otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, CapReached
from chargehand.engine.events import CallVerdict, Failure, Finding, Gap, Question
from chargehand.engine.facts import NotedFact
from chargehand.engine.failure import STARTS_RUN
from chargehand.engine.fold import begin, fold
from chargehand.engine.owed import owed
from chargehand.engine.plan import NO_TASK, Task, TaskId, needs, title_of
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import Progress, RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps
from chargehand.errors import Corrupt
from chargehand.journal.protocol import Journal, Readable

WorkEnding: TypeAlias = Literal["under way", "succeeded", "failed", "stopped", "asked"]
"""How an attempt or a duty ended. `asked`: a person was asked, and the attempt goes on under the same number."""


class Prompt(Struct, omit_defaults=True):
    """What a model was first told for a piece of work."""

    model: str
    messages: object
    tools: tuple[str, ...] = ()
    first_in: int = 0
    """The entry that has the first message, which is left out here; 0: it is here."""


class StepTrace(Struct, omit_defaults=True):
    """One recorded call."""

    step: int
    name: str
    effect: ev.Effect
    began: Seconds
    kind: ev.StepKind = "tool"
    call: str = ""
    """The id of the tool call that it carries out, as the model's reply has it."""
    seconds: Seconds | None = None
    """None: it never came back."""
    arguments: object = None
    """With what a tool was called."""
    result: object = None
    good: bool = True
    used: Amount = NOTHING


class CallTrace(Struct, frozen=True, omit_defaults=True):
    """One call of a model that is no step."""

    model: str
    began: Seconds
    seconds: Seconds
    input: int = 0
    """Tokens it read; 0: not known. `output` are those it wrote."""
    output: int = 0
    used: Amount = NOTHING


class AttemptTrace(Struct, omit_defaults=True):
    """One try at a task by one worker."""

    attempt: int
    worker: str
    instruction: str
    began: Seconds
    seconds: Seconds | None = None
    ending: WorkEnding = "under way"
    failure: Failure | None = None
    prompts: list[Prompt] = []
    steps: list[StepTrace] = []
    calls: list[CallTrace] = []
    """The models that a worker which is a function says it called."""
    used: Amount = NOTHING
    nested: list[str] = []
    """The names of the runs of teams that do its work."""
    runs: "list[Trace]" = []
    """All runs that were started in it, messages as well; only `nested_trace` fills this in."""


class DutyTrace(Struct, omit_defaults=True):
    """Planning, refining a task or writing the answer: one call of the supervisor."""

    duty: ev.Duty
    number: int
    began: Seconds
    seconds: Seconds | None = None
    ending: WorkEnding = "under way"
    why: ev.Why = "first"
    task: TaskId = NO_TASK
    """The task that is refined."""
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    """What is wrong with a plan, or only doubtful."""
    tasks: tuple[TaskId, ...] = ()
    """The tasks that a plan added."""
    instruction: str = ""
    """What a task was refined to."""
    prompts: list[Prompt] = []
    calls: list[CallTrace] = []
    used: Amount = NOTHING


class RetryTrace(Struct, omit_defaults=True):
    """A wait before a task is tried again."""

    at: Seconds
    wait: Seconds
    worker: str = ""
    """Set where another worker takes over."""


class ReusedResult(Struct, frozen=True):
    """Where a result was taken over from."""

    run: str
    task: TaskId


class TaskTrace(Struct, omit_defaults=True):
    """One task and what became of it."""

    id: TaskId
    instruction: str
    worker: str
    title: str = ""
    after: tuple[TaskId, ...] = ()
    """The tasks it needs."""
    status: str = "waiting"
    """Where it stands; `unfinished`: the run ended before it did."""
    began: Seconds | None = None
    ended: Seconds | None = None
    attempts: list[AttemptTrace] = []
    refinements: list[str] = []
    retries: list[RetryTrace] = []
    reused: ReusedResult | None = None
    failure: Failure | None = None
    result: object = None
    used: Amount = NOTHING

    @property
    def attempt_count(self) -> int:
        """An attempt that goes on after an interruption or a question is the same one."""
        return len({attempt.attempt for attempt in self.attempts})

    @property
    def seconds_worked(self) -> Seconds | None:
        """Without the time in which it waited; None while it is not settled."""
        if self.began is None or self.ended is None:
            return None
        return sum(attempt.seconds or 0.0 for attempt in self.attempts)


class QuestionTrace(Struct, omit_defaults=True):
    """What a person was asked, and what was answered."""

    number: int
    what: str
    asked: Seconds
    task: TaskId = NO_TASK
    text: str = ""
    question: Question | None = None
    verdict: str = ""
    """Empty: it is not answered."""
    feedback: str = ""
    answered: Seconds | None = None
    also: tuple[CallVerdict, ...] = ()
    """Verdicts on the other calls that `question` names."""
    by: str = ""
    """Who answered; empty: it is not known."""


class NoteTrace(Struct, frozen=True, omit_defaults=True):
    """Something worth showing that decided nothing."""

    at: Seconds
    text: str
    task: TaskId = NO_TASK
    """Empty: it is about the run."""
    attempt: int = 0
    """0: it is about no attempt."""
    fact: NotedFact | None = None
    """The same as a fact, for readers that are programs."""


InterruptionCause: TypeAlias = Literal["asked", "released", "lost"]
"""Why no process drove a run. `asked`: it only waited for a person, which needs none. `released`: its process was
stopped in an orderly way, with the last entry. `lost`: its process ended without a word, at the last entry or at any
time after.
"""


class Interruption(Struct, frozen=True, omit_defaults=True):
    """A time in which no process drove the run, as far as its entries tell."""

    last: Seconds
    """When the last entry before it was written."""
    resumed: Seconds
    """When another process took over."""
    cause: InterruptionCause = "lost"


class Trace(Struct, omit_defaults=True):
    """One run."""

    run: str
    goal: str
    began: Instant
    seconds: Seconds = 0.0
    serial: Seconds = 0.0
    """What it would have taken one piece of work at a time, without the waits."""
    ending: ev.Ending | Literal[""] = ""
    """Empty: it has not ended."""
    reason: ev.EndReason | Literal[""] = ""
    cap: CapReached | None = None
    """The cap that is the reason."""
    combine: str = "merge"
    answer: object = None
    used: Amount = NOTHING
    lost: Amount = NOTHING
    """The part of `used` that is an estimate, for calls whose outcome is not known."""
    critical_path: tuple[TaskId, ...] = ()
    gaps: tuple[Gap, ...] = ()
    tasks: list[TaskTrace] = []
    supervision: list[DutyTrace] = []
    questions: list[QuestionTrace] = []
    interruptions: list[Interruption] = []
    notes: list[NoteTrace] = []
    dropped: list[TaskTrace] = []
    """Tasks that were planned and thrown away when a person rejected the plan."""
    damage: str = ""
    """Which entry of the journal cannot be read: this is told by those before it."""


class RequestedCall(Struct, frozen=True):
    """A tool call that a model asked for."""

    id: str
    name: str
    arguments: object


class _ToolCall(Struct):
    name: str
    id: str = ""
    arguments: str = "{}"


class _ModelReply(Struct):
    calls: list[_ToolCall] = []


def calls_in(result: object) -> list[RequestedCall]:
    """The tool calls a model asked for, if this is the reply of a model."""
    try:
        calls = msgspec.convert(result, _ModelReply).calls
    except msgspec.ValidationError:
        return []
    return [RequestedCall(call.id, call.name, _decode_arguments(call.arguments)) for call in calls]


def _decode_arguments(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


# --- one run


def trace(run: str, entries: Sequence[ev.Entry]) -> Trace:
    """What the entries tell."""
    return Tracer.replay(run, entries).snapshot()


def critical_path(tasks: Sequence[Task], ends: Mapping[TaskId, Instant]) -> tuple[TaskId, ...]:
    """The chain that decided how long it took: from the task that ended last back along the inputs that came last."""
    by_id = {task.id: task for task in tasks if task.id in ends}
    place = {name: (ends[name], at) for at, name in enumerate(by_id)}
    here = max(by_id, key=place.__getitem__, default=None)
    path: list[TaskId] = []
    while here is not None and here not in path:
        path.append(here)
        inside = [name for name, _ in needs(by_id[here]) if name in by_id]
        here = max(inside, key=place.__getitem__, default=None)
    return tuple(reversed(path))


def _value(raw: Raw | None) -> object:
    return None if raw is None else decode_value(raw)


class Tracer:
    """The trace of a run under way, brought up to date by each entry. `state` is what the entries amount to."""

    def __init__(self, run: str, first: ev.Entry) -> None:
        if not isinstance(first.event, ev.RunRequested):
            raise Corrupt("this run does not begin with its request; restore the journal from a backup")
        self.state: RunState = begin(first)
        self.began = first.at
        self.tasks: dict[TaskId, TaskTrace] = {}
        self._dropped: list[TaskTrace] = []
        self._progress: dict[TaskId, Progress] = {}
        self.trace = Trace(run, self.state.requested.goal, first.at)
        self._open_attempts: dict[TaskId, AttemptTrace] = {}
        self._open_duties: dict[tuple[ev.Duty, TaskId], DutyTrace] = {}
        self._requested_calls: dict[TaskId, list[RequestedCall]] = {}
        self._settled_at: dict[TaskId, Instant] = {}
        self._add_tasks()

    @classmethod
    def replay(cls, run: str, entries: Sequence[ev.Entry]) -> "Tracer":
        """The trace of what was written so far."""
        if not entries:
            raise Corrupt("this run has no entries; restore the journal from a backup")
        tracer = cls(run, entries[0])
        for entry in entries[1:]:
            tracer.record(entry)
        return tracer

    def open_attempt(self, task: TaskId) -> AttemptTrace | None:
        """The attempt at a task that is under way."""
        return self._open_attempts.get(task)

    # --- one entry

    def record(self, entry: ev.Entry) -> None:
        event = entry.event
        spent_before = self.state.ledger.spent
        if isinstance(event, ev.RunResumed):  # no work was done between a crash and the process that goes on
            self._stop_open_work(self.state.at - self.began)
            self._note_interruption(entry.at)
        fold(self.state, entry)
        recorder = self.RECORDERS.get(type(event))
        if recorder is not None:
            recorder(self, event, entry.at - self.began, self.state.ledger.spent - spent_before)
        self._note_end(ev.task_of(event), entry.at)

    def _note_interruption(self, resumed: Instant) -> None:
        cause: InterruptionCause = "lost"
        if self.state.input is not None and not owed(self.state):
            cause = "asked"
        elif self.state.released_at is not None:
            cause = "released"
        self.trace.interruptions.append(Interruption(self.state.at - self.began, resumed - self.began, cause))

    def _note_end(self, task: TaskId, at: Instant) -> None:
        """Keep when a task was settled."""
        progress = self.state.tasks.get(task)
        if progress is not None and progress.settled and task not in self._settled_at:
            self._settled_at[task] = at
            self.tasks[task].ended = at - self.began

    def _add_tasks(self) -> None:
        """Take in the tasks that the state has and the trace has not."""
        for name, progress in self.state.tasks.items():
            if name not in self.tasks:
                task = progress.task
                self._progress[name] = progress
                after = tuple(need for need, _ in needs(task))
                title = task.title or title_of(task.instruction)
                self.tasks[name] = TaskTrace(name, task.instruction, progress.worker or task.worker, title, after)

    # --- planning, refining, answering

    def _duty_started(self, event: ev.SupervisionStarted, at: Seconds, _used: Amount) -> None:
        key = (event.duty, event.task)
        under_way = self._open_duties.get(key)
        if under_way is not None and under_way.number == event.number:
            return  # it only holds money for more calls
        duty = DutyTrace(event.duty, event.number, at, why=event.why, task=event.task)
        self._open_duties[key] = duty
        self.trace.supervision.append(duty)

    def _close_duty(self, name: ev.Duty, at: Seconds, used: Amount, task: TaskId = NO_TASK) -> DutyTrace:
        duty = self._open_duties.pop((name, task), None) or DutyTrace(name, 0, at)
        duty.seconds = at - duty.began
        duty.ending = "succeeded"
        duty.used += used
        if task in self.tasks:
            self.tasks[task].used += used
        return duty

    def _duty_failed(self, event: ev.SupervisionFailed, at: Seconds, used: Amount) -> None:
        duty = self._close_duty(event.duty, at, used, event.task)
        if event.failure.kind == "approval":  # what is asked stands among the questions
            duty.ending = "asked"
            return
        duty.ending = "failed"
        duty.failure = event.failure
        duty.findings = event.findings

    def _tasks_added(self, event: ev.TasksAdded, at: Seconds, used: Amount) -> None:
        self._add_tasks()
        if event.done and ("plan", NO_TASK) in self._open_duties:
            duty = self._close_duty("plan", at, used)
            duty.tasks = tuple(task.id for task in event.tasks)
            duty.findings = event.warnings

    def _task_refined(self, event: ev.TaskRefined, at: Seconds, used: Amount) -> None:
        duty = self._close_duty("refine", at, used, event.task)
        duty.instruction = event.instruction
        self.tasks[event.task].refinements.append(event.instruction)

    def _answer_written(self, event: ev.AnswerWritten, at: Seconds, used: Amount) -> None:
        self._close_duty("answer", at, used)
        self.trace.answer = _value(event.whole())

    def _prompt_sent(self, event: ev.PromptSent, _at: Seconds, _used: Amount) -> None:
        if event.duty == "attempt":
            work = self._open_attempts.get(event.task)
        else:
            work = self._open_duties.get((event.duty, event.task))
        if work is not None:
            work.prompts.append(Prompt(event.model, _value(event.messages), event.tools, event.first_in))

    def _model_called(self, event: ev.ModelCalled, at: Seconds, _used: Amount) -> None:
        if event.duty == "attempt":
            work = self._open_attempts.get(event.task)
        else:
            work = self._open_duties.get((event.duty, event.task))
        if work is not None:
            call = CallTrace(
                model=event.model,
                began=max(0.0, at - event.seconds),
                seconds=event.seconds,
                input=event.input,
                output=event.output,
                used=event.used or NOTHING,
            )
            work.calls.append(call)

    # --- attempts and their steps

    def _attempt_started(self, event: ev.AttemptStarted, at: Seconds, _used: Amount) -> None:
        progress = self.state.tasks[event.task]
        task = self.tasks[event.task]
        instruction = progress.instruction or progress.task.instruction
        attempt = AttemptTrace(event.attempt, event.worker, instruction, at)
        if any(earlier.attempt == event.attempt for earlier in task.attempts):
            # it goes on, and makes the calls again that never came back
            lost = [step for step in task.attempts[-1].steps if step.seconds is None and step.arguments is not None]
            calls = self._requested_calls.setdefault(event.task, [])
            calls.extend(RequestedCall(step.call, step.name, step.arguments) for step in lost)
        else:
            self._requested_calls[event.task] = []
        self._open_attempts[event.task] = attempt
        task.worker = event.worker
        task.began = at if task.began is None else task.began
        task.attempts.append(attempt)

    def _close_attempt(self, name: TaskId, at: Seconds, used: Amount, ending: WorkEnding) -> AttemptTrace | None:
        self.tasks[name].used += used
        attempt = self._open_attempts.pop(name, None)
        if attempt is not None:
            attempt.seconds = at - attempt.began
            attempt.ending = ending
            attempt.used += used
        return attempt

    def _attempt_succeeded(self, event: ev.AttemptSucceeded, at: Seconds, used: Amount) -> None:
        self._close_attempt(event.task, at, used, "succeeded")
        self.tasks[event.task].result = _value(event.result)

    def _attempt_failed(self, event: ev.AttemptFailed, at: Seconds, used: Amount) -> None:
        is_question = event.failure.kind == "approval"  # what is asked stands among the questions
        attempt = self._close_attempt(event.task, at, used, "asked" if is_question else "failed")
        if attempt is not None and not is_question:
            attempt.failure = event.failure

    def _attempt_stopped(self, event: ev.AttemptStopped, _at: Seconds, used: Amount) -> None:
        self.tasks[event.task].used += used

    def _step_started(self, event: ev.StepStarted, at: Seconds, _used: Amount) -> None:
        attempt = self._open_attempts.get(event.task)
        if attempt is None:
            return
        arguments = self._take_arguments(event)
        step = StepTrace(
            step=event.step,
            name=event.name,
            effect=event.effect,
            began=at,
            kind=event.kind,
            call=event.call,
            arguments=arguments,
        )
        attempt.steps.append(step)
        if event.kind in STARTS_RUN:
            attempt.nested.append(event.nested_run(self.trace.run))

    def _take_arguments(self, event: ev.StepStarted) -> object:
        """Return the arguments of a tool call, which a model gave in an earlier step.

        Journals without ids of calls go by the name of the tool.
        """
        calls = self._requested_calls.get(event.task, [])
        latest_first = [call for call in reversed(calls) if call.id == event.call]
        same_name = [call for call in calls if call.name == event.name]
        matches = latest_first if event.call else same_name
        if not matches:
            return None
        calls.remove(matches[0])
        return matches[0].arguments

    def _step_ended(self, event: ev.StepFinished | ev.StepFailed, at: Seconds, used: Amount) -> None:
        attempt = self._open_attempts.get(event.task)
        if attempt is None:
            return
        attempt.used += used
        self.tasks[event.task].used += used
        for step in attempt.steps:
            if step.step != event.step:
                continue
            step.seconds = at - step.began
            step.used = used
            step.good = isinstance(event, ev.StepFinished) and event.good
            if isinstance(event, ev.StepFinished):
                step.result = _value(event.result)
                self._requested_calls.setdefault(event.task, []).extend(calls_in(step.result))

    # --- what becomes of a task

    def _retry_scheduled(self, event: ev.RetryScheduled, at: Seconds, _used: Amount) -> None:
        wait = max(0.0, event.after - self.began - at)
        task = self.tasks[event.task]
        task.retries.append(RetryTrace(at, wait, event.worker))
        task.worker = event.worker or task.worker

    def _result_reused(self, event: ev.ResultReused, _at: Seconds, _used: Amount) -> None:
        task = self.tasks[event.task]
        task.reused = ReusedResult(event.run, event.source)
        task.result = _value(event.result)

    def _task_reassigned(self, event: ev.TaskReassigned, _at: Seconds, _used: Amount) -> None:
        self.tasks[event.task].worker = event.worker

    def _task_expanded(self, _event: ev.TaskExpanded, _at: Seconds, _used: Amount) -> None:
        self._add_tasks()

    # --- the person and the run

    def _input_requested(self, event: ev.InputRequested, at: Seconds, _used: Amount) -> None:
        question = QuestionTrace(
            number=event.number,
            what=event.what,
            asked=at,
            task=event.task,
            text=event.text,
            question=event.question,
        )
        self.trace.questions.append(question)

    def _input_answered(self, event: ev.InputAnswered, at: Seconds, _used: Amount) -> None:
        dropped = [name for name, progress in self._progress.items() if progress.status is Status.DROPPED]
        for name in dropped:  # a task of the new plan may have the same id
            task = self.tasks.pop(name)
            task.status = self._progress.pop(name).status.value
            self._dropped.append(task)
        self._add_tasks()
        for question in self.trace.questions:
            if question.number == event.number:
                question.verdict = event.verdict
                question.feedback = event.feedback
                question.answered = at
                question.also = event.also
                question.by = event.by
                self._note_end(question.task, self.state.at)  # a person may say that an effect was had
                self._take_results(question, event, at)

    def _take_results(self, question: QuestionTrace, event: ev.InputAnswered, at: Seconds) -> None:
        """Show what a person says that calls in doubt returned. A question without steps is of an earlier version."""
        fields = question.question
        if question.what != "effect" or (fields is not None and fields.run):
            return
        if fields is None or not fields.step:
            if event.verdict == "done":
                self.tasks[question.task].result = event.result
            return
        asked = ev.InputRequested(question.number, "effect", question.task, question.text, fields)
        verdicts: dict[int, ev.InputAnswered | ev.CallVerdict] = {verdict.call: verdict for verdict in event.also}
        verdicts[asked.calls[0].call] = event
        for call in asked.calls:
            self._note_end(call.task, self.state.at)
            verdict = verdicts.get(call.call)
            for attempt in self.tasks[call.task].attempts if verdict is not None and verdict.verdict == "done" else ():
                for step in attempt.steps:
                    if step.step == call.step and step.seconds is None and verdict is not None:
                        step.result = verdict.result
                        step.seconds = at - step.began

    def _noted(self, event: ev.Noted, at: Seconds, _used: Amount) -> None:
        self.trace.notes.append(NoteTrace(at, event.text, event.task, event.attempt, event.fact))

    def _stopped(self, _event: ev.TimeRanOut | ev.RunEnded, at: Seconds, _used: Amount) -> None:
        self._stop_open_work(at)

    def _stop_open_work(self, at: Seconds) -> None:
        for work in (*self._open_attempts.values(), *self._open_duties.values()):
            work.seconds = at - work.began
            work.ending = "stopped"
        self._open_attempts.clear()
        self._open_duties.clear()

    # --- all of it

    def snapshot(self) -> Trace:
        """The trace as it is now. The same object each time, brought up to date."""
        state = self.state
        trace = self.trace
        trace.tasks = list(self.tasks.values())
        trace.dropped = list(self._dropped)
        for name, task in self.tasks.items():
            progress = state.tasks[name]
            task.status = progress.status.value
            task.failure = progress.failure
            if state.ended is not None and not progress.settled and progress.status is not Status.EXPANDED:
                task.status = "unfinished"
        trace.combine = state.combine
        trace.used = state.ledger.spent
        trace.lost = state.ledger.lost
        trace.seconds = state.at - self.began
        trace.gaps = gaps(state) if state.ended is None else state.ended.gaps
        if state.ended is not None:
            trace.ending = state.ended.ending
            trace.reason = state.ended.reason
            trace.cap = state.ended.cap
        attempts = [attempt for task in (*trace.tasks, *trace.dropped) for attempt in task.attempts]
        trace.serial = sum(work.seconds or 0.0 for work in (*trace.supervision, *attempts))
        planned = [progress.task for progress in state.tasks.values() if progress.parent is None]
        trace.critical_path = critical_path(planned, self._ends())
        return trace

    def _ends(self) -> dict[TaskId, Instant]:
        """When each task ended; one that is under way ends after all of them, and so does one whose items are.

        A skipped one held nothing up.
        """
        ends: dict[TaskId, Instant] = {}
        for name, progress in self.state.tasks.items():
            if progress.status is Status.SKIPPED:
                continue
            if name in self._settled_at:
                ends[name] = self._settled_at[name]
            elif self.tasks[name].began is not None or progress.status is Status.EXPANDED:
                ends[name] = inf
        return ends

    RECORDERS: ClassVar[dict[type, Callable[["Tracer", Any, Seconds, Amount], None]]] = {
        ev.SupervisionStarted: _duty_started,
        ev.SupervisionFailed: _duty_failed,
        ev.TasksAdded: _tasks_added,
        ev.TaskRefined: _task_refined,
        ev.AnswerWritten: _answer_written,
        ev.PromptSent: _prompt_sent,
        ev.ModelCalled: _model_called,
        ev.AttemptStarted: _attempt_started,
        ev.AttemptSucceeded: _attempt_succeeded,
        ev.AttemptFailed: _attempt_failed,
        ev.AttemptStopped: _attempt_stopped,
        ev.StepStarted: _step_started,
        ev.StepFinished: _step_ended,
        ev.StepFailed: _step_ended,
        ev.RetryScheduled: _retry_scheduled,
        ev.ResultReused: _result_reused,
        ev.TaskExpanded: _task_expanded,
        ev.TaskReassigned: _task_reassigned,
        ev.InputRequested: _input_requested,
        ev.InputAnswered: _input_answered,
        ev.Noted: _noted,
        ev.TimeRanOut: _stopped,
        ev.WorkStopped: _stopped,
        ev.RunEnded: _stopped,
    }


# --- a run and those inside it


def nested_trace(outer: Tracer, inside: Mapping[str, Readable]) -> Trace:
    """The trace of a run with those of the runs inside it, whose entries are given by their names."""
    traces = {outer.trace.run: outer.snapshot()}
    parents: list[tuple[ev.Parent, Trace]] = []
    for name, readable in inside.items():
        if not readable.entries:
            continue
        inner = Tracer.replay(name, readable.entries)
        traces[name] = inner.snapshot()
        traces[name].damage = describe_damage(readable)
        parent = inner.state.requested.parent
        if parent is not None:  # else only its name begins like ours
            parents.append((parent, traces[name]))
            if parent.kind == "worker":  # its prompts will stand among those of another run
                complete_prompts(traces[name], {name: readable.entries})
    parents.sort(key=lambda pair: (pair[1].began, pair[1].run))
    others = [pair for pair in parents if pair[0].kind != "worker"]
    remote = [pair for pair in parents if pair[0].kind == "worker"]
    for parent, inner in (*others, *reversed(remote)):  # what a worker did elsewhere is whole before it is taken over
        above = traces.get(parent.run)
        if above is not None:
            _add_nested(above, parent, inner)
    return traces[outer.trace.run]


def trace_readable(run: str, readable: Readable) -> Tracer:
    """The trace of what can be read of a run; the damage is raised where that is nothing."""
    if readable.damage is not None and not readable.entries:
        raise readable.damage
    tracer = Tracer.replay(run, readable.entries)
    tracer.trace.damage = describe_damage(readable)
    return tracer


async def whole_trace(journal: Journal, run: str) -> Trace:
    """The trace of a run of an open journal, with those of the runs inside it."""
    inside = {name: Readable(await journal.read(name)) for name in await journal.inside(run)}
    return nested_trace(Tracer.replay(run, await journal.read(run)), inside)


def describe_damage(readable: Readable) -> str:
    return "" if readable.damage is None else str(readable.damage)


def _add_nested(above: Trace, parent: ev.Parent, inner: Trace) -> None:
    tasks = [task for task in (*above.tasks, *above.dropped) if task.id == parent.task]
    attempts = [attempt for task in tasks for attempt in task.attempts if attempt.attempt == parent.attempt]
    exact = [attempt for attempt in attempts if inner.run in attempt.nested]
    if parent.kind == "worker" and exact:
        _add_remote(above, exact, inner)
        return
    for attempt in (exact or attempts)[:1]:
        attempt.runs.append(inner)


def _add_remote(above: Trace, attempts: Sequence[AttemptTrace], inner: Trace) -> None:
    """Show what a worker did in another process as what it did in the attempts that waited for that."""
    shift = inner.began - above.began
    for attempt in attempts:
        attempt.steps = [step for step in attempt.steps if step.kind != "worker"]
        attempt.used = NOTHING  # the step paid for all attempts elsewhere
    for remote in (attempt for task in inner.tasks for attempt in task.attempts):
        begun = [attempt for attempt in attempts if attempt.began <= remote.began + shift]
        attempt = begun[-1] if begun else attempts[0]
        attempt.steps += [structs.replace(step, began=step.began + shift) for step in remote.steps]
        attempt.used += remote.used
        attempt.prompts += remote.prompts
        attempt.runs += remote.runs
    above.notes += [structs.replace(note, at=note.at + shift) for note in inner.notes]
    above.notes.sort(key=lambda note: note.at)


def attempts_with_runs(trace: Trace) -> Iterator[tuple[TaskId, AttemptTrace]]:
    """Every attempt of a run that started others, with the task it belongs to."""
    for task in trace.tasks:
        yield from ((task.id, attempt) for attempt in task.attempts if attempt.runs)


# --- written out in full


def complete_prompts(trace: Trace, entries: Mapping[str, Sequence[ev.Entry]]) -> None:
    """Give every prompt its first message, where that stands in an earlier entry. `entries` are those of each run."""
    first: dict[int, object] = {}
    for entry in entries.get(trace.run, ()):
        if isinstance(entry.event, ev.PromptSent) and not entry.event.first_in:
            first[entry.seq] = _messages(_value(entry.event.messages))[:1]
    attempts = [attempt for task in (*trace.tasks, *trace.dropped) for attempt in task.attempts]
    for work in (*trace.supervision, *attempts):
        for prompt in work.prompts:
            if prompt.first_in in first:
                prompt.messages = [*_messages(first[prompt.first_in]), *_messages(prompt.messages)]
                prompt.first_in = 0
    for attempt in attempts:
        for inner in attempt.runs:
            complete_prompts(inner, entries)


def _messages(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def with_defaults(value: object) -> object:
    """Structs as plain data in which every field is there, also one that has its default."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag: dict[str, object] = {config.tag_field: config.tag} if config.tag_field else {}
        return tag | {name: with_defaults(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: with_defaults(part) for name, part in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [with_defaults(part) for part in cast("list[object]", value)]
    return value
