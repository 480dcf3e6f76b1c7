"""Events as text: one line each."""

from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Struct

from chargehand.agents.checks.run import Verdict
from chargehand.cli.console import Tone, clean, format_json, short
from chargehand.cli.format import ROOM, counted, describe_failure, describe_result
from chargehand.engine import events as ev
from chargehand.engine.facts import BreakerChanged, ToolsWithheld
from chargehand.engine.failure import CodeError
from chargehand.engine.value import decode_value, encode_value
from chargehand.runtime.trace import Tracer

SUPERVISOR = "supervisor"
MEMORY_STEPS = {
    "memory": "reads its memory",
    "remember": "keeps the task in its memory",
    "summary": "puts earlier tasks behind a summary",
}
"""Steps that no model asked for, and what each does: told only where everything is told."""
_SUPERVISED = (ev.SupervisionStarted, ev.SupervisionFailed, ev.TasksAdded, ev.TaskRefined, ev.AnswerWritten)
_ENDING_TONES: dict[str, Tone] = {"complete": "good", "failed": "bad"}
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
    for describe in (_describe_run, _describe_supervision, _describe_exchange, _describe_task, _describe_attempt):
        described = describe(tracer, event)
        if described is not None:
            break
    else:
        raise AssertionError(f"{type(event).__name__} has no words")
    text, tone = described
    if whole and isinstance(event, ev.Noted):
        text = f"note: {short(event.text, 20 * ROOM)}"
    task = ev.task_of(event)
    progress = tracer.state.tasks.get(task)
    who = progress.worker if progress is not None else ""
    is_told = isinstance(event, ev.PromptSent | ev.ModelCalled) and event.duty != "attempt"
    if is_told or isinstance(event, _SUPERVISED):
        who = SUPERVISOR
    return EventText(text=clean(text), task=clean(task), who=clean(who), tone=tone)


def _because(reason: str) -> str:
    return f": {short(reason, ROOM)}" if reason else ""


def _describe_run(_tracer: Tracer, event: ev.Event) -> _Description | None:
    match event:
        case ev.RunRequested():
            return "requested", "dim"
        case ev.ResultsOffered(run=run, offers=offers, unserved=unserved):
            missing = f"; not covered: {short('; '.join(unserved), ROOM)}" if unserved else ""
            return f"{counted(len(offers), 'result')} of run {run} may be used again{missing}", "dim"
        case ev.RunResumed():
            return "resumed by another process", "warn"
        case ev.RunReleased():
            return "its process was stopped; the run can go on", "warn"
        case ev.CancelRequested(reason=reason):
            return f"asked to cancel{_because(reason)}", "warn"
        case ev.PauseSet(paused=paused, reason=reason):
            return f"{'paused' if paused else 'unpaused'}{_because(reason)}", "warn"
        case ev.WorkStopped():
            return "the work under way is stopped", "warn"
        case ev.TimeRanOut():
            return "the time ran out: no more tasks, the rest of it is for the answer", "warn"
        case ev.RunEnded(ending=ending):
            return f"ended: {ending}", _ENDING_TONES.get(ending, "warn")
        case _:
            return None


# --- the supervisor and the person

_DUTIES = {"plan": "plans", "refine": "rewrites the task", "answer": "writes the answer"}
_PLANS_BECAUSE = {
    "more": "plans what comes next",
    "rejected": "plans again: the plan was rejected",
    "replan": "plans anew",
}
_FAILED_DUTIES = {"plan": "found no plan", "refine": "could not rewrite it", "answer": "wrote no answer"}
_ASKS = {
    "effect": "waiting for confirmation of its effect:",
    "tool": "waiting for approval of a call:",
    "question": "waiting for an answer:",
}
_ASKS_ALL = {
    "effect": "waiting for confirmation of {} effects:",
    "tool": "waiting for approval of {} calls:",
}


def _describe_supervision(tracer: Tracer, event: ev.Event) -> _Description | None:
    match event:
        case ev.SupervisionStarted():
            return _describe_duty(tracer, event)
        case ev.SupervisionFailed(failure=failure) if failure.kind == "approval":  # what it asks is told next
            return "has a question", "warn"
        case ev.SupervisionFailed(duty=duty, failure=failure, findings=findings):
            reason = describe_failure(failure)
            if findings:
                reason = f"({findings[0].code}: {short(findings[0].message, ROOM)})"
            return f"{_FAILED_DUTIES[duty]} {reason}", "bad"
        case ev.SupervisionRetryScheduled():
            return "waits before it is asked again", "dim"
        case ev.TasksAdded():
            return _describe_added(event)
        case ev.AnswerWritten():
            return "answered", "good"
        case _:
            return None


def _describe_exchange(_tracer: Tracer, event: ev.Event) -> _Description | None:
    """What was said to and by a model of the supervisor, or a person."""
    match event:
        case ev.PromptSent(model=model, tools=tools):
            return f"prompt for {short(model, 40)}, with {counted(len(tools), 'tool')}", "dim"
        case ev.ModelCalled(model=model, input=read, output=written):
            return f"{short(model, 40)} replied: {read} tokens in, {written} out", "dim"
        case ev.InputRequested(what=what, task=task, calls=calls):
            if len(calls) > 1:
                return _ASKS_ALL[what].format(len(calls)), "warn"
            return _ASKS.get(what, f"waiting for plan approval{' of a team:' if task else ''}"), "warn"
        case ev.InputAnswered(verdict="answer", result=result):
            return f"answered: {describe_result(encode_value(result))}", "warn"
        case ev.InputAnswered(verdict=verdict, feedback=feedback, also=also):
            others = "".join(f"; call {call.call}: {call.verdict}{_because(call.feedback)}" for call in also)
            return f"answered: {verdict}{_because(feedback)}{others}", "warn"
        case _:
            return None


def _describe_duty(tracer: Tracer, event: ev.SupervisionStarted) -> _Description:
    latest = next(duty for duty in reversed(tracer.trace.supervision) if duty.duty == event.duty)
    if latest.task == event.task and tracer.began + latest.began < tracer.state.at:
        return "holds money for more calls", "dim"
    reason = _PLANS_BECAUSE.get(event.why) if event.duty == "plan" else None
    return reason or _DUTIES[event.duty], "plain"


def _describe_added(event: ev.TasksAdded) -> _Description:
    added = f"added {counted(len(event.tasks), 'task')}" if event.tasks else "added nothing"
    if event.fallback is not None:
        worker = event.tasks[0].worker
        return f"no plan could be made ({event.fallback.message}): {worker} gets the whole request", "warn"
    if event.unserved:
        return f"{added}; no worker can: {short('; '.join(event.unserved), ROOM)}", "warn"
    return added if event.closed else f"{added}; more may follow", "plain"


# --- tasks, attempts and steps


def _describe_task(tracer: Tracer, event: ev.Event) -> _Description | None:
    match event:
        case ev.TaskRefined(instruction=instruction):
            return f"refined: {short(instruction, ROOM)}", "warn"
        case ev.BackoffEnded():
            return "the wait is over", "dim"
        case ev.TaskExpanded(count=count):
            return f"becomes {count} tasks, one an item", "dim"
        case ev.TaskJoined(task=task):
            progress = tracer.state.tasks[task]
            return f"joined: {progress.items_done} of {progress.items} items", "good"
        case ev.TaskFailed(task=task, failure=failure):
            attempts = tracer.tasks[task].attempts
            is_told = attempts and attempts[-1].failure == failure  # in the line of its last attempt
            return "given up" if is_told else f"given up {describe_failure(failure)}", "bad"
        case ev.TaskSkipped():
            return _describe_skip(event), "bad"
        case ev.TaskReassigned(worker=worker):
            return f"given to {worker} by a person", "warn"
        case ev.ResultReused(source=source, run=run):
            return f"taken over from {source} of run {run}", "good"
        case ev.Noted(text=text, fact=fact):
            return _describe_note(text, fact)
        case _:
            return None


def _describe_skip(event: ev.TaskSkipped) -> str:
    reasons = {
        "input": f"because {event.because} did not deliver",
        "budget": "because the budget is too small for it",
        "deadline": "because the time ran out",
        "person": "by a person",
        "refused": f"because its model refuses every call, as in {event.because}",
    }
    return f"skipped {reasons[event.reason]}"


def _describe_note(text: str, fact: object) -> _Description:
    if isinstance(fact, ToolsWithheld):
        return short(text, 4 * ROOM), "warn"
    if not isinstance(fact, BreakerChanged):
        return f"note: {short(text, ROOM)}", "dim"
    return short(text, 4 * ROOM), "good" if fact.state == "closed" else "warn"


def _describe_attempt(tracer: Tracer, event: ev.Event) -> _Description | None:
    match event:
        case ev.AttemptStarted():
            return _describe_start(tracer, event), "plain"
        case ev.AttemptSucceeded(result=result):
            return f"done: {describe_result(result)}", "good"
        case ev.AttemptFailed(failure=failure) if failure.kind == "approval":  # what it asks for is told next
            return "stops until it is approved", "warn"
        case ev.AttemptFailed(failure=failure) | ev.AttemptAbandoned(failure=failure):
            return f"failed {describe_failure(failure)}", "bad"
        case ev.RetryScheduled(worker=worker, after=after, keep=keep):
            wait = max(0.0, after - tracer.state.at)
            going_on = ", from the finished steps" if keep else ""
            return f"falls back to {worker}" if worker else f"retry in {wait:.2g} s{going_on}", "warn"
        case ev.AttemptStopped():
            return "the run inside it has ended", "dim"
        case _:
            return _describe_step_event(tracer, event)


def _describe_step_event(tracer: Tracer, event: ev.Event) -> _Description | None:
    match event:
        case ev.StepStarted():
            return _describe_step(tracer, event), "dim"
        case ev.StepFinished():
            return _describe_returned(tracer, event)
        case ev.StepFailed(step=step):
            return f"step {step} failed", "dim"
        case ev.StepLookedUp(step=step, outcome=outcome):
            found = "it did not happen" if outcome == "absent" else "the tool cannot tell"
            return f"step {step} looked up: {found}", "warn"
        case _:
            return None


def _describe_start(tracer: Tracer, event: ev.AttemptStarted) -> str:
    text = "started" if event.attempt == 1 else f"started, attempt {event.attempt}"
    numbers = [attempt.attempt for attempt in tracer.tasks[event.task].attempts]
    if numbers.count(event.attempt) > 1:  # there was a crash, or a person was asked
        text += " again where it was"
    return f"{text}, to see whether it works again" if event.probes else text


def _describe_step(tracer: Tracer, event: ev.StepStarted) -> str:
    if event.kind == "model":
        return "asks the model"
    if event.kind in MEMORY_STEPS:
        return MEMORY_STEPS[event.kind]
    if event.kind == "check":
        return f"is checked: {event.name}"
    if event.kind == "approval":
        return f"decides whether a call needs approval: {event.name.removeprefix('approve ')}"
    attempt = tracer.open_attempt(event.task)
    arguments = attempt.steps[-1].arguments if attempt is not None else None
    return f"calls {event.name} ({event.effect}){_format_arguments(arguments)}"


def _format_arguments(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return ""
    values = cast("dict[str, object]", arguments).items()
    texts = [f"{name}={value if isinstance(value, str) else format_json(value, indent=-1)}" for name, value in values]
    return short(f": {', '.join(texts)}", 2 * ROOM) if texts else ""


class _Raised(Struct):
    """The result of a tool whose code has a mistake."""

    code_error: CodeError


def _describe_returned(tracer: Tracer, event: ev.StepFinished) -> _Description:
    step = (tracer.state.tasks[event.task].steps or {}).get(event.step)
    if step is not None and step.kind == "check":
        return _describe_verdict(step.name, msgspec.convert(decode_value(event.result), Verdict))
    if not event.good and step is not None and step.kind == "tool":
        with suppress(msgspec.ValidationError):  # it failed for another reason, which is told
            raised = msgspec.convert(decode_value(event.result), _Raised)
            return f"{step.name} raised {raised.code_error.exception}", "dim"
    who = step.name if step is not None and step.kind != "model" else f"step {event.step}"
    return f"{who} returned {describe_result(event.result)}", "dim"


def _describe_verdict(check: str, verdict: Verdict) -> _Description:
    if verdict.unsaid:
        return f"{check} does not say: {short(verdict.unsaid, ROOM)}", "warn"
    if verdict.accepted:
        return f"{check} accepts it", "dim"
    return f"{check} does not accept it: {short('; '.join(verdict.problems), ROOM)}", "warn"
