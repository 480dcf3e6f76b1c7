"""Figures of one tenant's runs and calls, counted as entries are written. How they are told is `metrics`' business.

Values of labels are bounded: whoever makes up names fills one line, not the memory.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field

from chargehand.terms import events as ev
from chargehand.terms.budget import Amount
from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.policy import Instant, Seconds

Labels: TypeAlias = tuple[str, ...]
OTHER = "other"
_MOST_NAMES = 64  # of one label
_MOST_RUNS = 5000  # that are followed at once
_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_INSIDE = frozenset(("model", "memory", "remember"))  # steps that are no tools


class Names:
    """The values one label may have: the first so many, and one for all others."""

    def __init__(self, most: int = _MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name or "none"


class Histogram:
    """How often something took how long, by labels."""

    def __init__(self, bounds: Sequence[Seconds]) -> None:
        self.bounds = tuple(bounds)
        self.found: dict[Labels, list[float]] = {}

    def add(self, labels: Labels, seconds: Seconds) -> None:
        """The last two of a row are the sum and the count."""
        row = self.found.get(labels)
        if row is None:
            row = self.found[labels] = [0.0] * (len(self.bounds) + 3)
        row[bisect_left(self.bounds, seconds)] += 1
        row[-2] += max(0.0, seconds)
        row[-1] += 1


class _Run(Struct):
    """What must be known of a run while it goes on."""

    team: str
    began: Instant | None = None
    models: dict[tuple[str, TaskId], str] = field(default_factory=dict[tuple[str, TaskId], str])
    steps: dict[tuple[TaskId, int], tuple[str, Instant]] = field(
        default_factory=dict[tuple[TaskId, int], tuple[str, Instant]]
    )


class _Used(Struct):
    input: int = 0
    output: int = 0
    cached: int = 0


class _Said(Struct):
    """What a model's step tells of its cost."""

    usage: _Used | None = None
    micros: int | None = None
    model: str = ""


_SAID = msgspec.json.Decoder(_Said)


class Meter:
    """Hears every entry a house writes and every call it answers."""

    def __init__(self) -> None:
        count = lambda: defaultdict[Labels, float](float)  # noqa: E731 - one word for one thing
        self.runs, self.tasks, self.attempts = count(), count(), count()
        self.tokens, self.micros, self.calls = count(), count(), count()
        self.run_seconds, self.tool_seconds, self.call_seconds = Histogram(_LONG), Histogram(_QUICK), Histogram(_QUICK)
        self._runs: dict[str, _Run] = {}
        self._teams, self._models, self._tools = Names(), Names(), Names()

    def called(self, door: str, status: int, seconds: Seconds) -> None:
        """A call was answered; `seconds` until the reply began."""
        self.calls[door, str(status)] += 1
        self.call_seconds.add((door,), seconds)

    def heard(self, run: str, entries: Sequence[ev.Entry]) -> None:
        for entry in entries:
            told = _HEARS.get(type(entry.event))
            if told is not None:
                told(self, self._of(run, entry), entry.event, entry.at)
            if isinstance(entry.event, ev.RunEnded):
                self._runs.pop(run, None)

    def take_up(self, run: str, first: ev.Entry) -> None:
        """A run goes on that this process did not begin: what its first entry says was not heard."""
        if run not in self._runs and isinstance(first.event, ev.RunRequested):
            self._runs[run] = _Run(self._teams(first.event.team), first.at)

    def _of(self, run: str, entry: ev.Entry) -> _Run:
        found = self._runs.get(run)
        if found is None:
            requested = entry.event if isinstance(entry.event, ev.RunRequested) else None
            found = _Run(self._teams(requested.team), entry.at) if requested else _Run(OTHER)
            self._runs[run] = found
            if len(self._runs) > _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
        return found

    # --- what is heard

    def ended(self, run: _Run, event: ev.RunEnded, at: Instant) -> None:
        self.runs[run.team, event.ending] += 1
        if run.began is not None:
            self.run_seconds.add((run.team,), at - run.began)

    def prompted(self, run: _Run, event: ev.PromptSent, _at: Instant) -> None:
        run.models[event.duty, event.task] = self._models(event.model)

    def supervised(self, run: _Run, event: ev.Event, _at: Instant) -> None:
        """Planning, refining, answering: nobody tells what went in and what came out."""
        duty, task = _duty(event)
        used: Amount | None = getattr(event, "used", None)
        if used is not None and (used.tokens or used.micros):
            model = run.models.get((duty, task), OTHER)
            self.tokens[model, "unsplit"] += used.tokens
            self.micros[model,] += used.micros

    def step_started(self, run: _Run, event: ev.StepStarted, at: Instant) -> None:
        run.steps[event.task, event.step] = (event.name, at)

    def step_finished(self, run: _Run, event: ev.StepFinished, at: Instant) -> None:
        name, since = run.steps.pop((event.task, event.step), ("", at))
        if name == "model":
            self._asked(event)
        elif name and name not in _INSIDE:
            self.tool_seconds.add((self._tools(name),), at - since)

    def _asked(self, event: ev.StepFinished) -> None:
        try:
            said = _SAID.decode(bytes(event.result))
        except msgspec.MsgspecError:
            return
        model = self._models(said.model)
        if said.usage is not None:
            self.tokens[model, "input"] += max(0, said.usage.input)
            self.tokens[model, "output"] += max(0, said.usage.output)
            self.tokens[model, "cached"] += max(0, said.usage.cached)
        self.micros[model,] += max(0, said.micros or 0)

    def attempt_ended(self, run: _Run, event: ev.AttemptSucceeded | ev.AttemptFailed, _at: Instant) -> None:
        good = isinstance(event, ev.AttemptSucceeded)
        self.attempts[run.team, "succeeded" if good else event.failure.kind] += 1
        if good:
            self.tasks[run.team, "done"] += 1

    def task_ended(self, run: _Run, event: ev.TaskFailed | ev.TaskSkipped | ev.ResultReused, _at: Instant) -> None:
        self.tasks[run.team, _ENDINGS[type(event)]] += 1

    def noticed(self, run: _Run, event: ev.Event, at: Instant) -> None:
        """That there is such a run."""


_ENDINGS: dict[type, str] = {ev.TaskFailed: "failed", ev.TaskSkipped: "skipped", ev.ResultReused: "reused"}


def _duty(event: ev.Event) -> tuple[str, TaskId]:
    match event:
        case ev.TasksAdded():
            return "plan", NO_TASK
        case ev.AnswerWritten():
            return "answer", NO_TASK
        case ev.TaskRefined():
            return "refine", event.task
        case ev.SupervisionFailed():
            return event.duty, event.task
        case _:
            return "", NO_TASK


_HEARS: dict[type, Callable[[Meter, _Run, Any, Instant], None]] = {
    ev.RunRequested: Meter.noticed,
    ev.RunEnded: Meter.ended,
    ev.PromptSent: Meter.prompted,
    ev.StepStarted: Meter.step_started,
    ev.StepFinished: Meter.step_finished,
    ev.AttemptSucceeded: Meter.attempt_ended,
    ev.AttemptFailed: Meter.attempt_ended,
    **dict.fromkeys((ev.TasksAdded, ev.AnswerWritten, ev.TaskRefined, ev.SupervisionFailed), Meter.supervised),
    **dict.fromkeys((ev.TaskFailed, ev.TaskSkipped, ev.ResultReused), Meter.task_ended),
}
