"""Events in words: one line each, for people."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.agents.levels import inner_gaps
from chargehand.agents.verifying import STEP as CHECK
from chargehand.agents.verifying import Verdict
from chargehand.cli.console import Tone, clean, short
from chargehand.cli.format import ROOM, counted, describe_failure, describe_result
from chargehand.core.state import Progress, RunState
from chargehand.runtime.run_log import MARK
from chargehand.runtime.trace import calls_in
from chargehand.terms import events as ev
from chargehand.terms.plan import TaskId
from chargehand.terms.policy import Instant
from chargehand.terms.value import decode_value

SUPERVISOR = "supervisor"


class EventText(Struct, frozen=True):
    """What one event says: of which task, by whom, in words."""

    text: str
    task: str = ""
    who: str = ""
    tone: Tone = "plain"


def describe_event(state: RunState, entry: ev.Entry, *, whole: bool = False) -> EventText:
    """An entry in words, given what was so before it. `whole`: notes are not shortened, so that they say why."""
    words = EVENT_TEXTS[type(entry.event)](state, entry.event, entry.at)
    if whole and isinstance(entry.event, ev.Noted) and not entry.event.text.startswith(MARK):
        return structs.replace(words, text=f"note: {short(entry.event.text, 20 * ROOM)}")
    return words


def _by(state: RunState, task: TaskId, text: str, tone: Tone = "plain") -> EventText:
    progress = state.tasks.get(task)
    return EventText(text=text, task=clean(task), who=clean(progress.worker) if progress else "", tone=tone)


# --- the run as a whole


def _requested(_state: RunState, _event: ev.RunRequested, _at: Instant) -> EventText:
    return EventText("requested", tone="dim")


def _offered(_state: RunState, event: ev.ResultsOffered, _at: Instant) -> EventText:
    said = f"{counted(len(event.offers), 'result')} of run {clean(event.run)} may be used again"
    if event.unserved:
        return EventText(f"{said}; nobody here could: {short('; '.join(event.unserved), ROOM)}", tone="warn")
    return EventText(said, tone="dim")


def _resumed(_state: RunState, event: ev.RunResumed, _at: Instant) -> EventText:
    return EventText(f"taken up again by a new process (epoch {event.epoch})", tone="warn")


def _released(_state: RunState, _event: ev.RunReleased, _at: Instant) -> EventText:
    return EventText("left by its process, which was stopped; it can go on", tone="warn")


def _pause_set(_state: RunState, event: ev.PauseSet, _at: Instant) -> EventText:
    return EventText(f"{'paused' if event.paused else 'unpaused'}{_because(event.reason)}", tone="warn")


def _cancel_requested(_state: RunState, event: ev.CancelRequested, _at: Instant) -> EventText:
    return EventText(f"asked to cancel{_because(event.reason)}", tone="warn")


def _because(reason: str) -> str:
    return f": {short(reason, ROOM)}" if reason else ""


def _time_ran_out(_state: RunState, _event: ev.TimeRanOut, _at: Instant) -> EventText:
    return EventText("the time ran out: no more tasks, what is left of it belongs to the answer", tone="warn")


def _ended(state: RunState, event: ev.RunEnded, _at: Instant) -> EventText:
    tones: dict[str, Tone] = {"complete": "good", "failed": "bad"}
    ending = "partial" if event.ending == "complete" and inner_gaps(state) else event.ending
    return EventText(f"ended: {ending}", tone=tones.get(ending, "warn"))


def _prompt_sent(state: RunState, event: ev.PromptSent, _at: Instant) -> EventText:
    offered = f", with {counted(len(event.tools), 'tool')}" if event.tools else ""
    who = SUPERVISOR if event.duty != "attempt" or event.task not in state.tasks else state.tasks[event.task].worker
    return EventText(
        text=f"prompt for {short(event.model, 40)}{offered}", task=clean(event.task), who=clean(who), tone="dim"
    )


def _noted(state: RunState, event: ev.Noted, _at: Instant) -> EventText:
    if event.text.startswith(MARK):  # who is out of order is worth more than a glance
        tone: Tone = "good" if event.text.startswith(f"{MARK}closed") else "warn"
        return _by(state, event.task, short(event.text, 4 * ROOM), tone)
    return _by(state, event.task, f"note: {short(event.text, ROOM)}", "dim")


# --- the supervisor and the person


def _supervision_started(state: RunState, event: ev.SupervisionStarted, _at: Instant) -> EventText:
    if {"plan": state.planning.open, "answer": state.answering.open}.get(event.duty):
        return EventText("holds money for more calls", who=SUPERVISOR, tone="dim")
    doing = {"plan": "plans", "refine": "rewrites the task", "answer": "writes the answer"}[event.duty]
    why = {"more": "plans what comes next", "rejected": "plans again: the plan was rejected", "replan": "plans anew"}
    return EventText(
        text=why.get(event.why, doing) if event.duty == "plan" else doing, task=clean(event.task), who=SUPERVISOR
    )


def _supervision_failed(_state: RunState, event: ev.SupervisionFailed, _at: Instant) -> EventText:
    doing = {"plan": "found no plan", "refine": "could not rewrite it", "answer": "wrote no answer"}[event.duty]
    why = f" ({event.findings[0].code}: {short(event.findings[0].message, ROOM)})" if event.findings else ""
    return EventText(
        text=f"{doing} {why.strip() or describe_failure(event.failure)}",
        task=clean(event.task),
        who=SUPERVISOR,
        tone="bad",
    )


def _tasks_added(_state: RunState, event: ev.TasksAdded, _at: Instant) -> EventText:
    added = f"added {counted(len(event.tasks), 'task')}" if event.tasks else "added nothing"
    if event.unserved:
        return EventText(
            f"{added}; nobody here can: {short('; '.join(event.unserved), ROOM)}", who=SUPERVISOR, tone="warn"
        )
    return EventText(added if event.closed else f"{added}; more may follow", who=SUPERVISOR)


def _refined(_state: RunState, event: ev.TaskRefined, _at: Instant) -> EventText:
    return EventText(
        text=f"refined: {short(event.instruction, ROOM)}", task=clean(event.task), who=SUPERVISOR, tone="warn"
    )


def _answer_written(_state: RunState, _event: ev.AnswerWritten, _at: Instant) -> EventText:
    return EventText("answered", who=SUPERVISOR, tone="good")


def _input_requested(state: RunState, event: ev.InputRequested, _at: Instant) -> EventText:
    if event.what == "plan" and not event.task:
        return EventText("a person is asked to approve the plan", tone="warn")
    if event.what == "tool":
        return _by(state, event.task, "a person is asked to approve a call:", "warn")
    if event.what == "plan":
        return _by(state, event.task, "a person is asked to approve the plan of a team:", "warn")
    return _by(state, event.task, "a person is asked whether its effect happened", "warn")


def _input_answered(_state: RunState, event: ev.InputAnswered, _at: Instant) -> EventText:
    others = "".join(f"; call {one.call}: {one.verdict}{_because(one.feedback)}" for one in event.also)
    return EventText(f"a person answered: {event.verdict}{_because(event.feedback)}{others}", tone="warn")


# --- tasks and attempts


def _started(state: RunState, event: ev.AttemptStarted, _at: Instant) -> EventText:
    progress = state.tasks[event.task]
    which = "" if event.attempt == 1 else f", attempt {event.attempt}"
    if progress.redo:  # a person may have been asked in between
        which += " once more after the crash" if progress.crashes and not progress.answers else " again where it was"
    if event.probes:
        which += ", to see whether it works again"
    return EventText(text=f"started{which}", task=clean(event.task), who=clean(event.worker))


def _step_started(state: RunState, event: ev.StepStarted, _at: Instant) -> EventText:
    said = "asks the model" if event.name == "model" else f"calls {clean(event.name)} ({event.effect})"
    if event.name.startswith(CHECK):
        said = f"is checked: {clean(event.name.removeprefix(CHECK))}"
    of_memory = step_begun(event.name, event.step, state.tasks.get(event.task))
    return _by(state, event.task, of_memory or said, "dim")


def _step_finished(state: RunState, event: ev.StepFinished, _at: Instant) -> EventText:
    steps = state.tasks[event.task].steps or {}
    name = steps[event.step].name if event.step in steps else ""
    if name.startswith(CHECK) and (verdict := _verdict(event)) is not None:
        return _checked(state, event.task, clean(name.removeprefix(CHECK)), verdict)
    of_memory = step_came_to(name, decode_value(event.result)) if name in QUIET else ""
    return _by(state, event.task, of_memory or f"step {event.step} returned {describe_result(event.result)}", "dim")


def _step_failed(state: RunState, event: ev.StepFailed, _at: Instant) -> EventText:
    return _by(state, event.task, f"step {event.step} failed", "dim")


def _verdict(event: ev.StepFinished) -> Verdict | None:
    try:
        return msgspec.convert(decode_value(event.result), Verdict)
    except msgspec.ValidationError:  # a step of somebody else, by chance of such a name
        return None


def _checked(state: RunState, task: TaskId, name: str, found: Verdict) -> EventText:
    if found.unsaid:
        return _by(state, task, f"{name} does not say: {short(found.unsaid, ROOM)}", "warn")
    if found.accepted:
        return _by(state, task, f"{name} accepts it", "dim")
    return _by(state, task, f"{name} does not accept it: {short('; '.join(found.problems), ROOM)}", "warn")


def _succeeded(state: RunState, event: ev.AttemptSucceeded, _at: Instant) -> EventText:
    return _by(state, event.task, f"done: {describe_result(event.result)}", "good")


def _failed(state: RunState, event: ev.AttemptFailed, _at: Instant) -> EventText:
    if event.failure.kind == "approval":  # what it asks for is told next
        return _by(state, event.task, "stops until a person has decided", "warn")
    return _by(state, event.task, f"failed {describe_failure(event.failure)}", "bad")


def _retry_scheduled(state: RunState, event: ev.RetryScheduled, at: Instant) -> EventText:
    if event.worker:
        return _by(state, event.task, f"falls back to {clean(event.worker)}", "warn")
    wait = event.after - at
    return _by(state, event.task, f"retry in {wait:.2g} s" if wait > 0 else "retry at once", "warn")


def _backoff_ended(state: RunState, event: ev.BackoffEnded, _at: Instant) -> EventText:
    return _by(state, event.task, "the wait is over", "dim")


def _expanded(_state: RunState, event: ev.TaskExpanded, _at: Instant) -> EventText:
    return EventText(f"becomes {counted(event.count, 'task')}, one an item", clean(event.task), tone="dim")


def _joined(state: RunState, event: ev.TaskJoined, _at: Instant) -> EventText:
    progress = state.tasks[event.task]
    return EventText(f"joined: {progress.items_done} of {progress.items} items", clean(event.task), tone="good")


def _reused(_state: RunState, event: ev.ResultReused, _at: Instant) -> EventText:
    return EventText(f"taken over from {clean(event.source)} of run {clean(event.run)}", clean(event.task), tone="good")


def _task_failed(state: RunState, event: ev.TaskFailed, _at: Instant) -> EventText:
    return _by(state, event.task, f"given up {describe_failure(event.failure)}", "bad")


def _skipped(_state: RunState, event: ev.TaskSkipped, _at: Instant) -> EventText:
    why = {
        "input": f"because {clean(event.because)} did not deliver",
        "budget": "because the budget is too small for it",
        "deadline": "because the time ran out",
        "person": "by a person",
    }[event.reason]
    return EventText(f"skipped {why}", clean(event.task), tone="bad")


EVENT_TEXTS: dict[type, Callable[[RunState, Any, Instant], EventText]] = {
    ev.RunRequested: _requested,
    ev.ResultsOffered: _offered,
    ev.RunResumed: _resumed,
    ev.RunReleased: _released,
    ev.PauseSet: _pause_set,
    ev.CancelRequested: _cancel_requested,
    ev.TimeRanOut: _time_ran_out,
    ev.RunEnded: _ended,
    ev.Noted: _noted,
    ev.PromptSent: _prompt_sent,
    ev.SupervisionStarted: _supervision_started,
    ev.SupervisionFailed: _supervision_failed,
    ev.TasksAdded: _tasks_added,
    ev.TaskRefined: _refined,
    ev.AnswerWritten: _answer_written,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
    ev.AttemptStarted: _started,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    ev.StepFailed: _step_failed,
    ev.AttemptSucceeded: _succeeded,
    ev.AttemptFailed: _failed,
    ev.RetryScheduled: _retry_scheduled,
    ev.BackoffEnded: _backoff_ended,
    ev.TaskExpanded: _expanded,
    ev.TaskJoined: _joined,
    ev.ResultReused: _reused,
    ev.TaskFailed: _task_failed,
    ev.TaskSkipped: _skipped,
}
"""The words for each event; a test holds it against the union."""
QUIET = ("memory", "remember", "summary")
"""Steps that nobody chose to make: told only where everything is told."""
_OURS = {
    "memory": "reads its memory",
    "remember": "keeps the task in its memory",
    "summary": "puts earlier tasks behind a summary",
}
_TOOLS = {
    "core_memory_append": "appends to {label}: {content}",
    "core_memory_replace": "replaces in {label}: {old_content} → {new_content}",
    "memory_insert": "inserts into {label}: {new_string}",
    "memory_replace": "replaces in {label}: {old_string} → {new_string}",
    "memory_apply_patch": "patches {label}",
    "memory_rethink": "rewrites {label}: {new_memory}",
    "archival_memory_insert": "adds to the archive {archive}: {content}",
    "archival_memory_search": "searches the archive {archive} for: {query}",
    "conversation_search": "searches its earlier tasks for: {query}",
    "send_message_to_agent_and_wait_for_reply": "writes to {worker}: {message}",
    "send_message_to_agents_matching_tags": "writes to all with {tags}: {message}",
}


def step_begun(name: str, number: int, progress: Progress | None) -> str:
    """What a step does, if it has to do with memory or messages; empty: it has not."""
    if name in _OURS:
        return _OURS[name]
    if name not in _TOOLS:
        return ""
    asked = _given(name, number, progress)
    given = {"tags": [*_list(asked.get("match_all")), *_list(asked.get("match_some"))], **asked}
    shape = _TOOLS[name] if asked.get("archive") else _TOOLS[name].replace(" {archive}", "")  # the only one there is
    said = shape.format_map(_Blanks({key: short(_plain(value), ROOM) for key, value in given.items()}))
    return short(" ".join(said.split()), 2 * ROOM)


def _plain(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


class _Blanks(dict[str, str]):
    """What a call leaves out has no words."""

    def __missing__(self, key: str) -> str:
        return ""


def _given(name: str, number: int, progress: Progress | None) -> dict[str, object]:
    """The arguments of a call: the model asked for it in its last reply before this step."""
    steps = (progress.steps if progress is not None else None) or {}
    before = [at for at, one in steps.items() if at < number and one.name == "model" and one.result is not None]
    if not before:
        return {}
    reply = steps[max(before)].result
    asked = [arguments for called, arguments in calls_in(decode_value(cast("Raw", reply))) if called == name]
    earlier = sum(one.name == name for at, one in steps.items() if max(before) < at < number)
    found = asked[earlier] if earlier < len(asked) else None
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def step_came_to(name: str, result: object) -> str:
    """What a step of our own came to; empty: say it as for any other."""
    if name == "memory":
        return looked_at(result)
    if name == "remember":
        return "it is kept" if result is True else "it was kept already"
    return "the summary is kept" if name == "summary" else ""


def looked_at(result: object) -> str:
    """What a look at memory brought that was not before the worker's eyes already."""
    found = cast("dict[str, object]", result) if isinstance(result, dict) else {}
    blocks = [cast("dict[str, object]", one) for one in _list(found.get("blocks")) if isinstance(one, dict)]
    names = [f"{one.get('label')} (version {one.get('version', 1)})" for one in blocks]
    said = [f"is shown {', '.join(names)}"] if names else []
    said += [f"{', '.join(map(str, gone))} is gone"] if (gone := _list(found.get("gone"))) else []
    said += [f"has {counted(len(turns), 'earlier turn')} before it"] if (turns := _list(found.get("turns"))) else []
    return short("; ".join(said) or "its memory holds nothing new", 2 * ROOM)


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
