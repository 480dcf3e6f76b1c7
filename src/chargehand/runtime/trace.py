"""A run as it went, read off its entries: rounds of planning, tasks, attempts, steps, prompts, costs, the answer.

Pure: the same entries give the same trace, also of a run that is still under way. How it is shown is not known here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from chargehand.agents.levels import end_of
from chargehand.agents.subteam import STEP, run_name
from chargehand.core.fold import begin, fold
from chargehand.core.state import Progress, RunState, Status
from chargehand.core.view import gaps
from chargehand.errors import Corrupt
from chargehand.runtime.traced import (
    AttemptTrace,
    DutyTrace,
    Prompt,
    QuestionTrace,
    Retry,
    StepTrace,
    TaskTrace,
    Trace,
    calls_in,
)
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount
from chargehand.terms.plan import Task, TaskId, needs
from chargehand.terms.policy import Instant, Seconds
from chargehand.terms.value import decode_value


def trace(run: str, entries: Sequence[ev.Entry]) -> Trace:
    """What the entries tell."""
    if not entries or not isinstance(entries[0].event, ev.RunRequested):
        raise Corrupt("this run does not begin with its request; restore the journal from a backup")
    tracer = _Tracer(run, entries[0])
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


class _Tracer:
    def __init__(self, run: str, first: ev.Entry) -> None:
        self._state: RunState = begin(first)
        self._began = first.at
        self._last = 0.0
        self._tasks: dict[TaskId, TaskTrace] = {}
        self._open: dict[tuple[str, TaskId], AttemptTrace | DutyTrace] = {}
        self._calls: dict[TaskId, list[tuple[str, object]]] = {}
        self._ends: dict[TaskId, Instant] = {}
        self._trace = Trace(run, self._state.requested.goal, first.at)
        self._take_up(self._state)

    # --- one entry

    def hear(self, entry: ev.Entry) -> None:
        before = self._state.ledger.spent
        self._last = self._state.at - self._began
        fold(self._state, entry)
        after = self._state.ledger.spent
        told = _HEARS.get(type(entry.event))
        if told is not None:
            told(self, entry.event, entry.at - self._began, after - before)
        task = getattr(entry.event, "task", "")
        self._settled(self._state.tasks.get(TaskId(task)), entry.at)

    def _take_up(self, state: RunState) -> None:
        for name, progress in state.tasks.items():
            if name not in self._tasks:
                one = progress.task
                after = tuple(need for need, _ in needs(one))
                self._tasks[name] = TaskTrace(name, one.instruction, progress.worker or one.worker, after)

    def _settled(self, progress: Progress | None, at: Instant) -> None:
        if progress is None or not progress.settled or progress.task.id in self._ends:
            return
        self._ends[progress.task.id] = at
        self._tasks[progress.task.id].ended = at - self._began

    def _close(self, kind: str, task: TaskId, at: Seconds, used: Amount, ending: str) -> AttemptTrace | DutyTrace:
        found = self._open.pop((kind, task), None) or DutyTrace(kind, 0, at)
        found.seconds = at - found.began
        found.ending = ending
        found.used += used
        if task in self._tasks:
            self._tasks[task].used += used
        return found

    # --- planning, refining, answering

    def duty_started(self, event: ev.SupervisionStarted, at: Seconds, _used: Amount) -> None:
        before = self._open.get((event.duty, event.task))
        if isinstance(before, DutyTrace) and before.number == event.number:
            return  # it is under way and holds money for more calls
        found = DutyTrace(event.duty, event.number, at, why=event.why, task=event.task)
        self._open[event.duty, event.task] = found
        self._trace.supervision.append(found)

    def duty_failed(self, event: ev.SupervisionFailed, at: Seconds, used: Amount) -> None:
        found = self._close(event.duty, event.task, at, used, "failed")
        assert isinstance(found, DutyTrace), "attempts have a kind of their own"
        found.failure = event.failure
        found.findings = event.findings

    def tasks_added(self, event: ev.TasksAdded, at: Seconds, used: Amount) -> None:
        self._take_up(self._state)
        if event.done and ("plan", TaskId("")) in self._open:
            found = self._close("plan", TaskId(""), at, used, "succeeded")
            assert isinstance(found, DutyTrace), "attempts have a kind of their own"
            found.tasks = tuple(task.id for task in event.tasks)
            found.findings = event.warnings

    def refined(self, event: ev.TaskRefined, at: Seconds, used: Amount) -> None:
        found = self._close("refine", event.task, at, used, "succeeded")
        assert isinstance(found, DutyTrace), "attempts have a kind of their own"
        found.instruction = event.instruction
        self._tasks[event.task].refinements.append(event.instruction)

    def answered(self, event: ev.AnswerWritten, at: Seconds, used: Amount) -> None:
        self._close("answer", TaskId(""), at, used, "succeeded")
        self._trace.answer = _value(event.answer)

    def prompted(self, event: ev.PromptSent, _at: Seconds, _used: Amount) -> None:
        found = self._open.get((event.duty, event.task))
        if found is not None:
            found.prompts.append(Prompt(event.model, _value(event.messages), event.tools))

    # --- attempts and their steps

    def attempt_started(self, event: ev.AttemptStarted, at: Seconds, _used: Amount) -> None:
        progress = self._state.tasks[event.task]
        task = self._tasks[event.task]
        asked = progress.instruction or progress.task.instruction
        found = AttemptTrace(event.attempt, event.worker, asked, at)
        self._open["attempt", event.task] = found
        task.worker = event.worker
        task.began = at if task.began is None else task.began
        task.attempts.append(found)

    def attempt_succeeded(self, event: ev.AttemptSucceeded, at: Seconds, used: Amount) -> None:
        self._close("attempt", event.task, at, used, "succeeded")
        self._tasks[event.task].result = _value(event.result)

    def attempt_failed(self, event: ev.AttemptFailed, at: Seconds, used: Amount) -> None:
        self._close("attempt", event.task, at, used, "failed").failure = event.failure

    def step_started(self, event: ev.StepStarted, at: Seconds, _used: Amount) -> None:
        found = self._open.get(("attempt", event.task))
        if isinstance(found, AttemptTrace):
            arguments = self._asked_for(event)
            found.steps.append(StepTrace(event.step, event.name, event.effect, at, arguments=arguments))
            if event.name.startswith(STEP):
                key = f"{self._trace.run}/{event.task}/{event.attempt}/{event.step}"
                found.nested.append(run_name(key, event.request))

    def _asked_for(self, event: ev.StepStarted) -> object:
        """With what a tool is called: a model said so in the step before."""
        calls = self._calls.get(event.task, [])
        for at, (name, arguments) in enumerate(calls):
            if event.name == name or event.name.endswith((f":{name}", f" {name}")):
                del calls[at]
                return arguments
        return None

    def step_finished(self, event: ev.StepFinished, at: Seconds, used: Amount) -> None:
        found = self._open.get(("attempt", event.task))
        steps = found.steps if isinstance(found, AttemptTrace) else []
        for step in steps:
            if step.step == event.step:
                step.seconds = at - step.began
                step.good = event.good
                step.used = used
                step.result = _value(event.result)
                self._calls.setdefault(event.task, []).extend(calls_in(step.result))
        if found is not None:
            found.used += used
            self._tasks[event.task].used += used

    def step_failed(self, event: ev.StepFailed, at: Seconds, used: Amount) -> None:
        found = self._open.get(("attempt", event.task))
        for step in found.steps if isinstance(found, AttemptTrace) else ():
            if step.step == event.step:
                step.seconds = at - step.began
                step.good = False
                step.used = used
        if found is not None:
            found.used += used
            self._tasks[event.task].used += used

    # --- what becomes of a task

    def retried(self, event: ev.RetryScheduled, at: Seconds, _used: Amount) -> None:
        wait = max(0.0, event.after - self._began - at)
        self._tasks[event.task].retries.append(Retry(at, wait, event.worker))

    def reused(self, event: ev.ResultReused, _at: Seconds, _used: Amount) -> None:
        task = self._tasks[event.task]
        task.reused = f"{event.run}/{event.source}"
        task.result = _value(event.result)

    def expanded(self, _event: ev.TaskExpanded, _at: Seconds, _used: Amount) -> None:
        self._take_up(self._state)

    # --- the person and the run

    def asked(self, event: ev.InputRequested, at: Seconds, _used: Amount) -> None:
        self._trace.questions.append(
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
        self._take_up(self._state)
        for one in self._trace.questions:
            if one.number == event.number:
                one.verdict = event.verdict
                one.feedback = event.feedback
                one.answered = at
                one.also = event.also

    def noted(self, event: ev.Noted, at: Seconds, _used: Amount) -> None:
        where = f"{event.task}: " if event.task else ""
        self._trace.notes.append(f"{at:.2f} s  {where}{event.text}")

    def stopped(self, event: ev.Event, at: Seconds, _used: Amount) -> None:
        # between a crash and the process that goes on nobody worked
        at = self._last if isinstance(event, ev.RunResumed) else at
        for one in self._open.values():
            one.seconds = at - one.began
            one.ending = "stopped"
        self._open.clear()

    # --- all of it

    def whole(self) -> Trace:
        found = self._trace
        state = self._state
        for name, progress in state.tasks.items():
            task = self._tasks[name]
            task.status = progress.status.value
            task.failure = progress.failure
            if state.ended is not None and not progress.settled and progress.status is not Status.EXPANDED:
                task.status = "unfinished"
        dropped = [name for name in self._tasks if name not in state.tasks]
        found.tasks = [task for name, task in self._tasks.items() if name not in dropped]
        found.dropped = [self._tasks[name] for name in dropped]
        found.combine = state.combine
        found.used = state.ledger.spent
        found.seconds = state.at - self._began
        end = end_of(state)
        found.gaps = gaps(state) if end is None else end.gaps
        if end is not None:
            found.ending = end.ending
            found.reason = end.reason
        worked = [*found.supervision, *(one for task in self._tasks.values() for one in task.attempts)]
        found.serial = sum(one.seconds or 0.0 for one in worked)
        planned = [one.task for one in state.tasks.values() if one.mother is None]
        found.critical_path = critical_path(planned, self._ends)
        return found


_HEARS: dict[type, Callable[[_Tracer, Any, Seconds, Amount], None]] = {
    ev.SupervisionStarted: _Tracer.duty_started,
    ev.SupervisionFailed: _Tracer.duty_failed,
    ev.TasksAdded: _Tracer.tasks_added,
    ev.TaskRefined: _Tracer.refined,
    ev.AnswerWritten: _Tracer.answered,
    ev.PromptSent: _Tracer.prompted,
    ev.AttemptStarted: _Tracer.attempt_started,
    ev.AttemptSucceeded: _Tracer.attempt_succeeded,
    ev.AttemptFailed: _Tracer.attempt_failed,
    ev.StepStarted: _Tracer.step_started,
    ev.StepFinished: _Tracer.step_finished,
    ev.StepFailed: _Tracer.step_failed,
    ev.RetryScheduled: _Tracer.retried,
    ev.ResultReused: _Tracer.reused,
    ev.TaskExpanded: _Tracer.expanded,
    ev.InputRequested: _Tracer.asked,
    ev.InputAnswered: _Tracer.told,
    ev.Noted: _Tracer.noted,
    ev.RunResumed: _Tracer.stopped,
    ev.TimeRanOut: _Tracer.stopped,
    ev.RunEnded: _Tracer.stopped,
}
