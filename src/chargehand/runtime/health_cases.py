"""What one run tells of those who were called in it: each call, how long it took, whether it came back.

How all runs together are read is `health`'s business.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from chargehand.core.attempts import breaker_name
from chargehand.core.state import RunState
from chargehand.terms import events as ev
from chargehand.terms.breaker import Breaker, lease, note, stand
from chargehand.terms.plan import TaskId
from chargehand.terms.policy import Instant, Seconds

What: TypeAlias = Literal["worker", "tool", "model"]

_RECENT = 200  # of the latest calls, whose times count
_FELL_BACK = "falls back to model "


class Case(Struct):
    """What is known of one so far."""

    calls: int = 0
    failures: dict[str, int] = {}
    times: deque[float] = deque()
    row: int = 0  # failures in a row
    last: Instant = 0.0
    flying: int = 0
    breaker: Breaker | None = None
    model: str = ""  # behind a worker, as it was last called

    @property
    def shut(self) -> bool:
        return self.breaker is not None and self.breaker.opened > 0

    def came_back(self, at: Instant, took: Seconds, kind: str = "") -> None:
        self.last = max(self.last, at)
        self.times.append(max(0.0, took))
        if len(self.times) > _RECENT:
            self.times.popleft()
        self.row = self.row + 1 if kind else 0
        if kind:
            self.failures[kind] = self.failures.get(kind, 0) + 1


class _Call(Struct):
    """A call that has not come back."""

    case: Case
    since: Instant
    tool: bool = False


class _Said(Struct, frozen=True):
    """What the result of a tool's call says of the tool."""

    broken: bool = False
    barred: bool = False


_NOTHING_SAID = _Said()


def _said(result: Raw) -> _Said:
    try:
        return msgspec.json.decode(result, type=_Said)
    except msgspec.ValidationError:  # whoever did the work keeps results of another shape
        return _NOTHING_SAID


_Attempt: TypeAlias = tuple[TaskId, int]


class Visit:
    """One run: who is called in it, and what is still open."""

    def __init__(self, case: Callable[[What, str], Case], state: RunState) -> None:
        self._case = case
        self._state = state
        self._counted: set[_Attempt] = set()
        self._attempts: dict[TaskId, _Call] = {}
        self._steps: dict[tuple[TaskId, int], _Call] = {}
        self._duties: dict[tuple[str, TaskId], _Call] = {}
        self._since: dict[tuple[str, TaskId], Instant] = {}

    # --- attempts

    def attempt_started(self, event: ev.AttemptStarted, at: Instant) -> None:
        case = self._case("worker", event.worker)
        if (event.task, event.attempt) not in self._counted:  # else it is taken up again
            self._counted.add((event.task, event.attempt))
            case.calls += 1
        case.model = self._state.agents[event.worker].model
        self._attempts[event.task] = _Call(case, at)
        case.last = max(case.last, at)

    def attempt_succeeded(self, event: ev.AttemptSucceeded, at: Instant) -> None:
        self._attempt_over(event.task, at, "")
        worker = self._state.tasks[event.task].worker
        name = breaker_name(self._state.agents[worker])
        if name not in self._state.breakers:
            self._breaker(name, None)

    def attempt_failed(self, event: ev.AttemptFailed, at: Instant) -> None:
        if event.failure.kind == "approval":  # nothing failed: a person is asked
            self._attempts.pop(event.task, None)
            return
        for key in [key for key in self._steps if key[0] == event.task]:
            call = self._steps.pop(key)
            call.case.came_back(at, at - call.since, event.failure.kind)
            if call.tool and event.failure.kind == "uncertain":
                self._tool(call, at, good=False)
        self._attempt_over(event.task, at, event.failure.kind)

    def _attempt_over(self, task: TaskId, at: Instant, kind: str) -> None:
        call = self._attempts.pop(task, None)
        if call is not None:
            call.case.came_back(at, at - call.since, kind)

    # --- their steps

    def step_started(self, event: ev.StepStarted, at: Instant) -> None:
        agent = self._state.agents.get(self._state.tasks[event.task].worker)
        if agent is None:
            return
        if event.name == "model" and agent.model:
            self._steps[event.task, event.step] = self._called("model", agent.model, at)
        elif event.name in agent.tools:
            self._steps[event.task, event.step] = self._called("tool", event.name, at)
            self._steps[event.task, event.step].tool = True

    def step_finished(self, event: ev.StepFinished, at: Instant) -> None:
        call = self._steps.pop((event.task, event.step), None)
        if call is None:
            return
        came = _NOTHING_SAID if event.good or not call.tool else _said(event.result)
        if came.barred:  # it was out of order, and so it was not called
            call.case.calls -= 1
            return
        call.case.came_back(at, at - call.since, "" if event.good else "failed")
        if call.tool and (event.good or came.broken):
            self._tool(call, at, good=event.good)

    def _tool(self, call: _Call, at: Instant, *, good: bool) -> None:
        """A tool's breaker, as whoever called it had it."""
        case, numbers = call.case, self._state.requested.policy.breaking
        if good and case.breaker is None:
            return
        case.breaker = case.breaker or Breaker()
        if stand(case.breaker, call.since) == "half-open":
            lease(case.breaker, call.since, numbers)
        note(case.breaker, at, numbers, good=good)

    def noted(self, event: ev.Noted, at: Instant) -> None:
        """Another model stands in: the one before did not answer, and only a note says so."""
        if not event.text.startswith(_FELL_BACK):
            return
        handle = event.text[len(_FELL_BACK) :].partition(": ")[0]
        for key, call in self._steps.items():
            if key[0] == event.task:
                call.case.came_back(at, at - call.since, "passed on")
                self._steps[key] = self._called("model", handle, at)
                return

    # --- the supervisor

    def duty_started(self, event: ev.SupervisionStarted, at: Instant) -> None:
        self._since[event.duty, event.task] = at

    def prompted(self, event: ev.PromptSent, at: Instant) -> None:
        key = (event.duty, event.task)
        if event.duty != "attempt" and key not in self._duties:
            self._duties[key] = self._called("model", event.model, self._since.get(key, at))

    def duty_over(self, event: ev.Event, at: Instant) -> None:
        kind = event.failure.kind if isinstance(event, ev.SupervisionFailed) else ""
        match event:
            case ev.SupervisionFailed():
                key = (event.duty, event.task)
            case ev.TaskRefined():
                key = ("refine", event.task)
            case ev.AnswerWritten():
                key = ("answer", TaskId(""))
            case _:
                key = ("plan", TaskId(""))
        if isinstance(event, ev.TasksAdded) and not event.done:
            return
        call = self._duties.pop(key, None)
        if call is not None:
            call.case.came_back(at, at - call.since, kind)

    # --- the end

    def forgotten(self, _event: ev.Event, _at: Instant) -> None:
        """What was under way is so no longer, and nobody knows how it would have ended."""
        for calls in (self._attempts, self._steps, self._duties):
            calls.clear()

    def close(self, *, living: bool) -> None:
        for name, breaker in self._state.breakers.items():
            self._breaker(name, breaker)
        if living:
            for call in (*self._attempts.values(), *self._steps.values(), *self._duties.values()):
                call.case.flying += 1

    def _called(self, what: What, name: str, at: Instant) -> _Call:
        case = self._case(what, name)
        case.calls += 1
        case.last = max(case.last, at)
        return _Call(case, at)

    def _breaker(self, name: str, breaker: Breaker | None) -> None:
        kind, _, whom = name.partition(":")
        self._case("model" if kind == "model" else "worker", whom).breaker = breaker


HEARS: dict[type, Callable[[Visit, Any, Instant], None]] = {
    ev.AttemptStarted: Visit.attempt_started,
    ev.AttemptSucceeded: Visit.attempt_succeeded,
    ev.AttemptFailed: Visit.attempt_failed,
    ev.StepStarted: Visit.step_started,
    ev.StepFinished: Visit.step_finished,
    ev.Noted: Visit.noted,
    ev.SupervisionStarted: Visit.duty_started,
    ev.PromptSent: Visit.prompted,
    **dict.fromkeys((ev.SupervisionFailed, ev.TasksAdded, ev.TaskRefined, ev.AnswerWritten), Visit.duty_over),
    **dict.fromkeys((ev.RunResumed, ev.TimeRanOut, ev.RunEnded), Visit.forgotten),
}
"""What is heard of an entry, before it is folded."""
