"""A run as it went, read off its entries: rounds of planning, tasks, attempts, steps, prompts, costs, the answer.

Pure: the same entries give the same trace, also of a run that is still under way. How it is shown is not known here.
Times are seconds since the run began, unless said otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.nested import run_name
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import CallVerdict, Failure, Finding, Gap, Question
from chargehand.engine.fold import begin, fold
from chargehand.engine.plan import NO_TASK, Task, TaskId, needs
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import Progress, RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps
from chargehand.errors import Corrupt
from chargehand.stores.journal import Journal, Readable


class Prompt(Struct, omit_defaults=True):
    """What a model was first told for a piece of work."""

    model: str
    messages: object
    tools: tuple[str, ...] = ()


class StepTrace(Struct, omit_defaults=True):
    """One recorded call; without `seconds` it never came back."""

    step: int
    name: str
    effect: str
    began: Seconds
    kind: ev.StepKind = "tool"
    seconds: Seconds | None = None
    arguments: object = None
    result: object = None
    good: bool = True
    used: Amount = NOTHING


class AttemptTrace(Struct, omit_defaults=True):
    """`ending` is one of: under way, succeeded, failed, stopped, asked.

    `asked` means that a person was asked for approval; the attempt goes on in another entry with the same number.
    `nested` are the runs of teams that do its work.
    `runs` are all that were started in it, messages as well, where somebody put them there (`nested_trace`).
    """

    attempt: int
    worker: str
    instruction: str
    began: Seconds
    seconds: Seconds | None = None
    ending: str = "under way"
    failure: Failure | None = None
    prompts: list[Prompt] = []
    steps: list[StepTrace] = []
    used: Amount = NOTHING
    nested: list[str] = []
    runs: "list[Trace]" = []


class DutyTrace(Struct, omit_defaults=True):
    """Planning, refining a task or writing the answer: one call of the supervisor."""

    duty: str
    number: int
    began: Seconds
    seconds: Seconds | None = None
    ending: str = "under way"
    why: str = ""
    task: TaskId = NO_TASK
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    instruction: str = ""
    prompts: list[Prompt] = []
    used: Amount = NOTHING


class Retry(Struct, omit_defaults=True):
    """`worker` is set where another one takes over."""

    at: Seconds
    wait: Seconds
    worker: str = ""


class TaskTrace(Struct, omit_defaults=True):
    """`reused` names the run and the task a result was taken over from."""

    id: TaskId
    instruction: str
    worker: str
    after: tuple[TaskId, ...] = ()
    status: str = "waiting"
    began: Seconds | None = None
    ended: Seconds | None = None
    attempts: list[AttemptTrace] = []
    refinements: list[str] = []
    retries: list[Retry] = []
    reused: str = ""
    failure: Failure | None = None
    result: object = None
    used: Amount = NOTHING


class QuestionTrace(Struct, omit_defaults=True):
    number: int
    what: str
    asked: Seconds
    task: TaskId = NO_TASK
    text: str = ""
    question: Question | None = None
    verdict: str = ""
    feedback: str = ""
    answered: Seconds | None = None
    also: tuple[CallVerdict, ...] = ()
    """Verdicts on the other calls that `question` names."""


class Trace(Struct, omit_defaults=True):
    """`began` is an instant. `serial` is what it would have taken one piece of work at a time, without the waits.

    `dropped` tasks were planned and thrown away when a person rejected the plan. An empty `ending` means: not yet.
    `damage` says which entry of the journal cannot be read: this is told by those before it.
    """

    run: str
    goal: str
    began: Instant
    seconds: Seconds = 0.0
    serial: Seconds = 0.0
    ending: str = ""
    reason: str = ""
    combine: str = "merge"
    answer: object = None
    used: Amount = NOTHING
    critical_path: tuple[TaskId, ...] = ()
    gaps: tuple[Gap, ...] = ()
    tasks: list[TaskTrace] = []
    supervision: list[DutyTrace] = []
    questions: list[QuestionTrace] = []
    notes: list[str] = []
    dropped: list[TaskTrace] = []
    damage: str = ""


class _Call(Struct):
    name: str
    arguments: str = "{}"


class _Said(Struct):
    calls: list[_Call] = []


def calls_in(result: object) -> list[tuple[str, object]]:
    """The tool calls a model asked for, with their arguments, if this is what a model said."""
    try:
        return [(one.name, _parsed(one.arguments)) for one in msgspec.convert(result, _Said).calls]
    except msgspec.ValidationError:
        return []


def _parsed(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


# --- one run


def trace(run: str, entries: Sequence[ev.Entry]) -> Trace:
    """What the entries tell."""
    if not entries:
        raise Corrupt("this run has no entries; restore the journal from a backup")
    tracer = Tracer(run, entries[0])
    for entry in entries[1:]:
        tracer.hear(entry)
    return tracer.whole()


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
    """The trace of a run under way: hears every entry in turn. `state` is what the entries amount to."""

    def __init__(self, run: str, first: ev.Entry) -> None:
        if not isinstance(first.event, ev.RunRequested):
            raise Corrupt("this run does not begin with its request; restore the journal from a backup")
        self.state: RunState = begin(first)
        self.began = first.at
        self._last = 0.0
        self.tasks: dict[TaskId, TaskTrace] = {}
        self._open: dict[tuple[str, TaskId], AttemptTrace | DutyTrace] = {}
        self._calls: dict[TaskId, list[tuple[str, object]]] = {}
        self._ends: dict[TaskId, Instant] = {}
        self.trace = Trace(run, self.state.requested.goal, first.at)
        self._take_up(self.state)

    def open_attempt(self, task: TaskId) -> AttemptTrace | None:
        """The attempt at a task that is under way."""
        attempt = self._open.get(("attempt", task))
        return attempt if isinstance(attempt, AttemptTrace) else None

    # --- one entry

    def hear(self, entry: ev.Entry) -> None:
        before = self.state.ledger.spent
        self._last = self.state.at - self.began
        fold(self.state, entry)
        after = self.state.ledger.spent
        told = _HEARS.get(type(entry.event))
        if told is not None:
            told(self, entry.event, entry.at - self.began, after - before)
        task = getattr(entry.event, "task", "")
        self._settled(self.state.tasks.get(TaskId(task)), entry.at)

    def _take_up(self, state: RunState) -> None:
        for name, progress in state.tasks.items():
            if name not in self.tasks:
                one = progress.task
                after = tuple(need for need, _ in needs(one))
                self.tasks[name] = TaskTrace(name, one.instruction, progress.worker or one.worker, after)

    def _settled(self, progress: Progress | None, at: Instant) -> None:
        if progress is None or not progress.settled or progress.task.id in self._ends:
            return
        self._ends[progress.task.id] = at
        self.tasks[progress.task.id].ended = at - self.began

    def _close(self, kind: str, task: TaskId, at: Seconds, used: Amount, ending: str) -> AttemptTrace | DutyTrace:
        found = self._open.pop((kind, task), None) or DutyTrace(kind, 0, at)
        found.seconds = at - found.began
        found.ending = ending
        found.used += used
        if task in self.tasks:
            self.tasks[task].used += used
        return found

    # --- planning, refining, answering

    def duty_started(self, event: ev.SupervisionStarted, at: Seconds, _used: Amount) -> None:
        before = self._open.get((event.duty, event.task))
        if isinstance(before, DutyTrace) and before.number == event.number:
            return  # it is under way and holds money for more calls
        found = DutyTrace(event.duty, event.number, at, why=event.why, task=event.task)
        self._open[event.duty, event.task] = found
        self.trace.supervision.append(found)

    def duty_failed(self, event: ev.SupervisionFailed, at: Seconds, used: Amount) -> None:
        found = self._close(event.duty, event.task, at, used, "failed")
        assert isinstance(found, DutyTrace), "attempts have a kind of their own"
        found.failure = event.failure
        found.findings = event.findings

    def tasks_added(self, event: ev.TasksAdded, at: Seconds, used: Amount) -> None:
        self._take_up(self.state)
        if event.done and ("plan", TaskId("")) in self._open:
            found = self._close("plan", TaskId(""), at, used, "succeeded")
            assert isinstance(found, DutyTrace), "attempts have a kind of their own"
            found.tasks = tuple(task.id for task in event.tasks)
            found.findings = event.warnings

    def refined(self, event: ev.TaskRefined, at: Seconds, used: Amount) -> None:
        found = self._close("refine", event.task, at, used, "succeeded")
        assert isinstance(found, DutyTrace), "attempts have a kind of their own"
        found.instruction = event.instruction
        self.tasks[event.task].refinements.append(event.instruction)

    def answered(self, event: ev.AnswerWritten, at: Seconds, used: Amount) -> None:
        self._close("answer", TaskId(""), at, used, "succeeded")
        self.trace.answer = _value(event.whole())

    def prompted(self, event: ev.PromptSent, _at: Seconds, _used: Amount) -> None:
        found = self._open.get((event.duty, event.task))
        if found is not None:
            found.prompts.append(Prompt(event.model, _value(event.messages), event.tools))

    # --- attempts and their steps

    def attempt_started(self, event: ev.AttemptStarted, at: Seconds, _used: Amount) -> None:
        progress = self.state.tasks[event.task]
        task = self.tasks[event.task]
        asked = progress.instruction or progress.task.instruction
        found = AttemptTrace(event.attempt, event.worker, asked, at)
        self._open["attempt", event.task] = found
        self._wish_again(event, task)
        task.worker = event.worker
        task.began = at if task.began is None else task.began
        task.attempts.append(found)

    def _wish_again(self, event: ev.AttemptStarted, task: TaskTrace) -> None:
        """An attempt that goes on makes the calls once more that never came back; a new one asks its model."""
        if not any(attempt.attempt == event.attempt for attempt in task.attempts):
            self._calls[event.task] = []
            return
        cut_off = [step for step in task.attempts[-1].steps if step.seconds is None and step.arguments is not None]
        self._calls.setdefault(event.task, []).extend((step.name, step.arguments) for step in cut_off)

    def attempt_succeeded(self, event: ev.AttemptSucceeded, at: Seconds, used: Amount) -> None:
        self._close("attempt", event.task, at, used, "succeeded")
        self.tasks[event.task].result = _value(event.result)

    def attempt_failed(self, event: ev.AttemptFailed, at: Seconds, used: Amount) -> None:
        if event.failure.kind == "approval":  # what is asked stands among the questions
            self._close("attempt", event.task, at, used, "asked")
        else:
            self._close("attempt", event.task, at, used, "failed").failure = event.failure

    def step_started(self, event: ev.StepStarted, at: Seconds, _used: Amount) -> None:
        found = self.open_attempt(event.task)
        if found is not None:
            arguments = self._asked_for(event)
            found.steps.append(
                StepTrace(event.step, event.name, event.effect, at, kind=event.kind, arguments=arguments)
            )
            if event.kind == "subteam":
                key = f"{self.trace.run}/{event.task}/{event.attempt}/{event.step}"
                found.nested.append(run_name(key, event.request))

    def _asked_for(self, event: ev.StepStarted) -> object:
        """With what a tool is called: a model said so in the step before."""
        calls = self._calls.get(event.task, [])
        for at, (name, arguments) in enumerate(calls):
            if event.name == name:
                del calls[at]
                return arguments
        return None

    def step_ended(self, event: ev.StepFinished | ev.StepFailed, at: Seconds, used: Amount) -> None:
        attempt = self._open.get(("attempt", event.task))
        if not isinstance(attempt, AttemptTrace):
            return
        attempt.used += used
        self.tasks[event.task].used += used
        for step in attempt.steps:
            if step.step == event.step:
                step.seconds = at - step.began
                step.used = used
                step.good = isinstance(event, ev.StepFinished) and event.good
                if isinstance(event, ev.StepFinished):
                    step.result = _value(event.result)
                    self._calls.setdefault(event.task, []).extend(calls_in(step.result))

    # --- what becomes of a task

    def retried(self, event: ev.RetryScheduled, at: Seconds, _used: Amount) -> None:
        wait = max(0.0, event.after - self.began - at)
        self.tasks[event.task].retries.append(Retry(at, wait, event.worker))

    def reused(self, event: ev.ResultReused, _at: Seconds, _used: Amount) -> None:
        task = self.tasks[event.task]
        task.reused = f"{event.run}/{event.source}"
        task.result = _value(event.result)

    def expanded(self, _event: ev.TaskExpanded, _at: Seconds, _used: Amount) -> None:
        self._take_up(self.state)

    # --- the person and the run

    def asked(self, event: ev.InputRequested, at: Seconds, _used: Amount) -> None:
        self.trace.questions.append(
            QuestionTrace(
                number=event.number,
                what=event.what,
                asked=at,
                task=event.task,
                text=event.text,
                question=event.question,
            )
        )

    def told(self, event: ev.InputAnswered, at: Seconds, _used: Amount) -> None:
        self._take_up(self.state)
        for one in self.trace.questions:
            if one.number == event.number:
                one.verdict = event.verdict
                one.feedback = event.feedback
                one.answered = at
                one.also = event.also

    def noted(self, event: ev.Noted, at: Seconds, _used: Amount) -> None:
        where = f"{event.task}: " if event.task else ""
        self.trace.notes.append(f"{at:.2f} s  {where}{event.text}")

    def stopped(self, event: ev.Event, at: Seconds, _used: Amount) -> None:
        # between a crash and the process that goes on nobody worked
        at = self._last if isinstance(event, ev.RunResumed) else at
        for one in self._open.values():
            one.seconds = at - one.began
            one.ending = "stopped"
        self._open.clear()

    # --- all of it

    def whole(self) -> Trace:
        found = self.trace
        state = self.state
        for name, progress in state.tasks.items():
            task = self.tasks[name]
            task.status = progress.status.value
            task.failure = progress.failure
            if state.ended is not None and not progress.settled and progress.status is not Status.EXPANDED:
                task.status = "unfinished"
        dropped = [name for name in self.tasks if name not in state.tasks]
        found.tasks = [task for name, task in self.tasks.items() if name not in dropped]
        found.dropped = [self.tasks[name] for name in dropped]
        found.combine = state.combine
        found.used = state.ledger.spent
        found.seconds = state.at - self.began
        end = state.ended
        found.gaps = gaps(state) if end is None else end.gaps
        if end is not None:
            found.ending = end.ending
            found.reason = end.reason
        worked = [*found.supervision, *(one for task in self.tasks.values() for one in task.attempts)]
        found.serial = sum(one.seconds or 0.0 for one in worked)
        planned = [one.task for one in state.tasks.values() if one.mother is None]
        found.critical_path = critical_path(planned, self._ends)
        return found


_HEARS: dict[type, Callable[[Tracer, Any, Seconds, Amount], None]] = {
    ev.SupervisionStarted: Tracer.duty_started,
    ev.SupervisionFailed: Tracer.duty_failed,
    ev.TasksAdded: Tracer.tasks_added,
    ev.TaskRefined: Tracer.refined,
    ev.AnswerWritten: Tracer.answered,
    ev.PromptSent: Tracer.prompted,
    ev.AttemptStarted: Tracer.attempt_started,
    ev.AttemptSucceeded: Tracer.attempt_succeeded,
    ev.AttemptFailed: Tracer.attempt_failed,
    ev.StepStarted: Tracer.step_started,
    ev.StepFinished: Tracer.step_ended,
    ev.StepFailed: Tracer.step_ended,
    ev.RetryScheduled: Tracer.retried,
    ev.ResultReused: Tracer.reused,
    ev.TaskExpanded: Tracer.expanded,
    ev.InputRequested: Tracer.asked,
    ev.InputAnswered: Tracer.told,
    ev.Noted: Tracer.noted,
    ev.RunResumed: Tracer.stopped,
    ev.TimeRanOut: Tracer.stopped,
    ev.RunEnded: Tracer.stopped,
}


# --- a run and those inside it


def nested_trace(run: str, runs: Iterable[str], read: Callable[[str], Readable]) -> Trace:
    """What the entries of a run tell, and of all runs inside it. `runs` are the names that there are to look among.

    Of a damaged run it is what can be read; Corrupt where that is nothing.
    """
    readable = read(run)
    if readable.damage is not None and not readable.entries:
        raise readable.damage
    inside = {name: read(name) for name in runs if name.startswith(f"{run}/")}
    return _whole(run, readable, {name: each for name, each in inside.items() if each.entries})


async def whole_trace(journal: Journal, run: str, runs: Iterable[str] | None = None) -> Trace:
    """The same for a journal that is open. Without `runs`, all of it is looked through for them."""
    names = [row.run for row in await journal.runs()] if runs is None else runs
    inside = [name for name in names if name.startswith(f"{run}/")]
    return _whole(run, Readable(await journal.read(run)), {name: Readable(await journal.read(name)) for name in inside})


def _readable_trace(run: str, readable: Readable) -> Trace:
    found = trace(run, readable.entries)
    found.damage = "" if readable.damage is None else str(readable.damage)
    return found


def _whole(run: str, outer: Readable, inside: dict[str, Readable]) -> Trace:
    found = {run: _readable_trace(run, outer), **{name: _readable_trace(name, each) for name, each in inside.items()}}
    for name in sorted(inside, key=lambda one: (found[one].began, one)):
        first = inside[name].entries[0].event
        parent = first.parent if isinstance(first, ev.RunRequested) else None
        above = None if parent is None else found.get(parent.run)
        if parent is not None and above is not None:  # else only its name begins like ours
            _put(above, parent, found[name])
    return found[run]


def _put(above: Trace, parent: ev.Parent, inner: Trace) -> None:
    tasks = [one for one in (*above.tasks, *above.dropped) if one.id == parent.task]
    attempts = [one for task in tasks for one in task.attempts if one.attempt == parent.attempt]
    named = [one for one in attempts if inner.run in one.nested]
    for one in (named or attempts)[:1]:
        one.runs.append(inner)


def attempts_of(found: Trace) -> Iterator[tuple[str, AttemptTrace]]:
    """Every attempt of a run that started others, with the task it belongs to."""
    for task in found.tasks:
        yield from ((task.id, one) for one in task.attempts if one.runs)
