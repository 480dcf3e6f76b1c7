"""Events as text: one line each."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.checks.run import Verdict
from chargehand.cli.console import Tone, clean, short
from chargehand.cli.format import ROOM, counted, describe_failure, describe_result
from chargehand.engine import events as ev
from chargehand.engine.facts import BreakerChanged
from chargehand.engine.value import decode_value
from chargehand.runtime.trace import Tracer

SUPERVISOR = "supervisor"
MEMORY_STEPS = {
    "memory": "reads its memory",
    "remember": "keeps the task in its memory",
    "summary": "puts earlier tasks behind a summary",
}
"""Steps that no model asked for, and what each does: told only where everything is told."""
_SUPERVISED = (ev.SupervisionStarted, ev.SupervisionFailed, ev.TasksAdded, ev.TaskRefined, ev.AnswerWritten)
_Description = tuple[str, Tone]


class EventText(Struct, frozen=True):
    """What one event says: its task, the worker, and the words."""

    text: str
    task: str
    who: str
    tone: Tone


def describe_event(tracer: Tracer, entry: ev.Entry, *, whole: bool = False) -> EventText:
    """An entry in words; the tracer has heard it. `whole`: notes are not shortened, so that they say why."""
    event = entry.event
    if type(event) in TEMPLATES:
        template, tone = TEMPLATES[type(event)]
        fields = {name: _format_field(getattr(event, name)) for name in event.__struct_fields__}
        text = template.format_map(fields).removesuffix(": ")
    else:
        text, tone = DESCRIBERS[type(event)](tracer, event)
    if whole and isinstance(event, ev.Noted):
        text = f"note: {short(event.text, 20 * ROOM)}"
    task = getattr(event, "task", "")
    progress = tracer.state.tasks.get(task)
    who = progress.worker if progress is not None else ""
    if isinstance(event, _SUPERVISED) or (
        isinstance(event, ev.PromptSent | ev.ModelCalled) and event.duty != "attempt"
    ):
        who = SUPERVISOR
    return EventText(text=clean(text), task=clean(task), who=clean(who), tone=tone)


def _format_field(value: object) -> str:
    if isinstance(value, Raw):
        return describe_result(value)
    return describe_failure(value) if isinstance(value, ev.Failure) else short(str(value), ROOM)


TEMPLATES: dict[type, _Description] = {
    ev.RunRequested: ("requested", "dim"),
    ev.RunResumed: ("resumed by another process", "warn"),
    ev.RunReleased: ("its process was stopped; the run can go on", "warn"),
    ev.CancelRequested: ("asked to cancel: {reason}", "warn"),
    ev.TimeRanOut: ("the time ran out: no more tasks, the rest of it is for the answer", "warn"),
    ev.TaskRefined: ("refined: {instruction}", "warn"),
    ev.ModelCalled: ("{model} replied: {input} tokens in, {output} out", "dim"),
    ev.AnswerWritten: ("answered", "good"),
    ev.AttemptSucceeded: ("done: {result}", "good"),
    ev.StepFailed: ("step {step} failed", "dim"),
    ev.BackoffEnded: ("the wait is over", "dim"),
    ev.SupervisionRetryScheduled: ("waits before it is asked again", "dim"),
    ev.TaskExpanded: ("becomes {count} tasks, one an item", "dim"),
    ev.TaskFailed: ("given up {failure}", "bad"),
    ev.ResultReused: ("taken over from {source} of run {run}", "good"),
}
"""Events whose fields are all there is to say."""


def _because(reason: str) -> str:
    return f": {short(reason, ROOM)}" if reason else ""


def _offered(_tracer: Tracer, event: ev.ResultsOffered) -> _Description:
    text = f"{counted(len(event.offers), 'result')} of run {event.run} may be used again"
    if event.unserved:
        return f"{text}; not covered: {short('; '.join(event.unserved), ROOM)}", "warn"
    return text, "dim"


def _pause_set(_tracer: Tracer, event: ev.PauseSet) -> _Description:
    return f"{'paused' if event.paused else 'unpaused'}{_because(event.reason)}", "warn"


def _ended(tracer: Tracer, _event: ev.RunEnded) -> _Description:
    end = tracer.state.ended
    ending = "" if end is None else end.ending
    tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
    return f"ended: {ending}", tones.get(ending, "warn")


def _prompt_sent(_tracer: Tracer, event: ev.PromptSent) -> _Description:
    tools = f", with {counted(len(event.tools), 'tool')}" if event.tools else ""
    return f"prompt for {short(event.model, 40)}{tools}", "dim"


def _noted(_tracer: Tracer, event: ev.Noted) -> _Description:
    if not isinstance(event.fact, BreakerChanged):
        return f"note: {short(event.text, ROOM)}", "dim"
    return short(event.text, 4 * ROOM), "good" if event.fact.state == "closed" else "warn"


# --- the supervisor and the person

_DUTIES = {"plan": "plans", "refine": "rewrites the task", "answer": "writes the answer"}
_PLANS_BECAUSE = {
    "more": "plans what comes next",
    "rejected": "plans again: the plan was rejected",
    "replan": "plans anew",
}
_FAILED_DUTIES = {"plan": "found no plan", "refine": "could not rewrite it", "answer": "wrote no answer"}


def _supervision_started(tracer: Tracer, event: ev.SupervisionStarted) -> _Description:
    latest = next(duty for duty in reversed(tracer.trace.supervision) if duty.duty == event.duty)
    if latest.task == event.task and tracer.began + latest.began < tracer.state.at:
        return "holds money for more calls", "dim"
    reason = _PLANS_BECAUSE.get(event.why) if event.duty == "plan" else None
    return reason or _DUTIES[event.duty], "plain"


def _supervision_failed(_tracer: Tracer, event: ev.SupervisionFailed) -> _Description:
    if event.failure.kind == "approval":  # what it asks is told next
        return "has a question", "warn"
    reason = describe_failure(event.failure)
    if event.findings:
        finding = event.findings[0]
        reason = f"({finding.code}: {short(finding.message, ROOM)})"
    return f"{_FAILED_DUTIES[event.duty]} {reason}", "bad"


def _tasks_added(_tracer: Tracer, event: ev.TasksAdded) -> _Description:
    added = f"added {counted(len(event.tasks), 'task')}" if event.tasks else "added nothing"
    if event.fallback is not None:
        worker = event.tasks[0].worker
        return f"no plan could be made ({event.fallback.message}): {worker} gets the whole request", "warn"
    if event.unserved:
        return f"{added}; no worker can: {short('; '.join(event.unserved), ROOM)}", "warn"
    return added if event.closed else f"{added}; more may follow", "plain"


def _input_requested(_tracer: Tracer, event: ev.InputRequested) -> _Description:
    if event.what == "effect":
        return "waiting for confirmation of its effect:", "warn"
    if event.what == "tool":
        return "waiting for approval of a call:", "warn"
    if event.what == "question":
        return "waiting for an answer:", "warn"
    return f"waiting for plan approval{' of a team:' if event.task else ''}", "warn"


def _input_answered(_tracer: Tracer, event: ev.InputAnswered) -> _Description:
    others = "".join(f"; call {call.call}: {call.verdict}{_because(call.feedback)}" for call in event.also)
    return f"answered: {event.verdict}{_because(event.feedback)}{others}", "warn"


# --- tasks, attempts and steps


def _attempt_started(tracer: Tracer, event: ev.AttemptStarted) -> _Description:
    text = "started" if event.attempt == 1 else f"started, attempt {event.attempt}"
    progress = tracer.state.tasks[event.task]
    numbers = [attempt.attempt for attempt in tracer.tasks[event.task].attempts]
    if numbers.count(event.attempt) > 1:  # a person may have been asked in between
        after_crash = progress.crashes and not progress.answers
        text += " once more after the crash" if after_crash else " again where it was"
    return f"{text}, to see whether it works again" if event.probes else text, "plain"


def _attempt_failed(_tracer: Tracer, event: ev.AttemptFailed | ev.AttemptAbandoned) -> _Description:
    if event.failure.kind == "approval":  # what it asks for is told next
        return "stops until it is approved", "warn"
    return f"failed {describe_failure(event.failure)}", "bad"


def _retry_scheduled(tracer: Tracer, event: ev.RetryScheduled) -> _Description:
    if event.worker:
        return f"falls back to {event.worker}", "warn"
    wait = event.after - tracer.state.at
    return f"retry in {wait:.2g} s" if wait > 0 else "retry at once", "warn"


def _task_joined(tracer: Tracer, event: ev.TaskJoined) -> _Description:
    progress = tracer.state.tasks[event.task]
    return f"joined: {progress.items_done} of {progress.items} items", "good"


def _task_skipped(_tracer: Tracer, event: ev.TaskSkipped) -> _Description:
    reasons = {
        "input": f"because {event.because} did not deliver",
        "budget": "because the budget is too small for it",
        "deadline": "because the time ran out",
        "person": "by a person",
        "refused": f"because its model refuses every call, as in {event.because}",
    }
    return f"skipped {reasons[event.reason]}", "bad"


def _task_reassigned(_tracer: Tracer, event: ev.TaskReassigned) -> _Description:
    return f"given to {event.worker} by a person", "warn"


def _step_started(tracer: Tracer, event: ev.StepStarted) -> _Description:
    if event.kind == "model":
        return "asks the model", "dim"
    if event.kind in MEMORY_STEPS:
        return MEMORY_STEPS[event.kind], "dim"
    if event.kind == "check":
        return f"is checked: {event.name}", "dim"
    attempt = tracer.open_attempt(event.task)
    arguments = attempt.steps[-1].arguments if attempt is not None else None
    return f"calls {event.name} ({event.effect}){_format_arguments(arguments)}", "dim"


def _format_arguments(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return ""
    values = cast("dict[str, object]", arguments).items()
    texts = [f"{name}={value if isinstance(value, str) else encode(value)}" for name, value in values]
    return short(f": {', '.join(texts)}", 2 * ROOM) if texts else ""


def encode(value: object) -> str:
    """A value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def _step_finished(tracer: Tracer, event: ev.StepFinished) -> _Description:
    steps = tracer.state.tasks[event.task].steps or {}
    step = steps.get(event.step)
    if step is not None and step.kind == "memory":
        return describe_memory(decode_value(event.result)), "dim"
    if step is not None and step.kind == "check":
        return _describe_verdict(step.name, msgspec.convert(decode_value(event.result), Verdict))
    who = step.name if step is not None and step.kind != "model" else f"step {event.step}"
    return f"{who} returned {describe_result(event.result)}", "dim"


def _describe_verdict(check: str, verdict: Verdict) -> _Description:
    if verdict.unsaid:
        return f"{check} does not say: {short(verdict.unsaid, ROOM)}", "warn"
    if verdict.accepted:
        return f"{check} accepts it", "dim"
    return f"{check} does not accept it: {short('; '.join(verdict.problems), ROOM)}", "warn"


class _MemoryBlock(Struct):
    label: str = ""
    version: int = 1


class _MemoryView(Struct):
    """What a worker is shown of its memory: blocks that changed, those that are gone, earlier turns."""

    blocks: list[_MemoryBlock] = []
    gone: list[str] = []
    turns: list[object] = []


def describe_memory(result: object) -> str:
    """What a look at memory brought that the worker had not been shown before."""
    view = msgspec.convert(result, _MemoryView, strict=False)
    parts: list[str] = []
    if view.blocks:
        parts.append(f"is shown {', '.join(f'{block.label} (version {block.version})' for block in view.blocks)}")
    if view.gone:
        parts.append(f"{', '.join(view.gone)} is gone")
    if view.turns:
        parts.append(f"has {counted(len(view.turns), 'earlier turn')} before it")
    return short("; ".join(parts) or "its memory holds nothing new", 2 * ROOM)


DESCRIBERS: dict[type, Callable[[Tracer, Any], _Description]] = {
    ev.ResultsOffered: _offered,
    ev.PauseSet: _pause_set,
    ev.RunEnded: _ended,
    ev.PromptSent: _prompt_sent,
    ev.Noted: _noted,
    ev.SupervisionStarted: _supervision_started,
    ev.SupervisionFailed: _supervision_failed,
    ev.TasksAdded: _tasks_added,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
    ev.AttemptStarted: _attempt_started,
    ev.AttemptFailed: _attempt_failed,
    ev.AttemptAbandoned: _attempt_failed,
    ev.RetryScheduled: _retry_scheduled,
    ev.TaskJoined: _task_joined,
    ev.TaskSkipped: _task_skipped,
    ev.TaskReassigned: _task_reassigned,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
}
"""The words for every other event; a test holds both tables against the union."""
