"""Failure modes of multi-agent runs (MAST), read off the journal by failure codes and typed events.

No model is asked and no text is interpreted. Modes that no event shows are not claimed: `KNOWN` lists those that can be
reported, docs/when-things-fail.md says why the others cannot.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from chargehand.agents.answer import with_gaps
from chargehand.agents.setup import OURS
from chargehand.engine import events as ev
from chargehand.engine.facts import Assumed, ResultAccepted, StepDiverged
from chargehand.engine.failure import FailureCode
from chargehand.engine.fold import replay
from chargehand.engine.plan import NO_TASK, TaskId, needs
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value
from chargehand.errors import Corrupt
from chargehand.models.messages import Reply

MODES = {
    "1.1": "disobeys the task",
    "1.2": "disobeys its role",
    "1.3": "repeats steps",
    "1.4": "loses what came before",
    "1.5": "does not know when to stop",
    "2.1": "starts over",
    "2.2": "does not ask",
    "2.3": "leaves its task",
    "2.4": "holds something back",
    "2.5": "ignores its input",
    "2.6": "says what it did not do",
    "3.1": "ends too early",
    "3.2": "is not checked",
    "3.3": "is checked wrongly",
}
"""The fourteen modes by their numbers in MAST."""
KNOWN = frozenset(("1.1", "1.2", "1.3", "1.5", "2.1", "2.2", "2.4", "2.6", "3.1", "3.2"))
"""The modes that the journal shows."""

FAILURE_CODES: dict[FailureCode, tuple[str, str]] = {
    "wrong_output": ("1.1", "never sent a result of the wanted shape"),
    "empty_reply": ("2.4", "sent nothing, again and again"),
    "required_call_missing": ("3.1", "would end before a call that is required"),
    "repeated_call": ("1.3", "made the same call with the same result again and again"),
    "too_many_steps": ("1.5", "came to no end within its steps"),
    "unknown_worker": ("1.2", "was given to a worker that does not exist"),
}
"""The mode of each failure code of an attempt."""
FINDING_CODES = {
    "not_a_plan": ("1.1", "The planner sent what is no plan"),
    "wrong_shape": ("1.1", "The planner sent what is no plan"),
    "unknown_worker": ("1.2", "The planner gave a task to a worker that is not on the team"),
    "unchanged": ("1.3", "The planner proposed what had been planned before"),
    "repeated": ("1.3", "The supervisor wanted the same done again"),
    "stalled": ("1.3", "The supervisor went on in a way that had brought nothing"),
    "overlapping_tasks": ("1.3", "The plan asks for the same twice"),
    "too_many_tasks": ("1.5", "The planner wanted more tasks than are allowed"),
    "vague_instruction": ("2.2", "A task does not say what is wanted"),
    "nothing_done": ("3.1", "The supervisor called it done before anything was delivered"),
}
"""The mode of each finding about a plan."""
_MAX_EVIDENCE_CHARS = 200
_BROKEN_JOURNAL = (Corrupt, LookupError, AssertionError, AttributeError, TypeError, ValueError)


class FailureMode(Struct, frozen=True, omit_defaults=True):
    """One failure mode in a run."""

    mode: str
    task: TaskId
    """Empty where it concerns the plan or the answer."""
    message: str
    evidence: str = ""
    """What the journal says, shortened."""
    prevented: bool = False
    """The engine did not let it happen."""


def audit_run(entries: Sequence[ev.Entry], state: RunState | None = None) -> tuple[FailureMode, ...]:
    """The failure modes that these entries show, by mode; of a run under way, those it shows by now.

    `state` is what they amount to, for those who have folded them already.
    A journal with a hole, or one that cannot be folded, is itself the finding: then nothing else is reported.
    """
    if gap := _missing_entries(entries):
        return (_finding("2.1", NO_TASK, "Entries are missing: the run cannot be resumed.", gap),)
    try:
        state = state or replay(entries)
    except _BROKEN_JOURNAL as error:
        message = "The entries do not follow from one another: the run cannot be resumed."
        return (_finding("2.1", NO_TASK, message, f"{type(error).__name__}: {error}"),)
    events = [entry.event for entry in entries]
    findings = [
        *(finding for event in events for finding in _of_event(event)),
        *_of_foreign_calls(events),
        *_of_unchecked_effects(events, state),
        *_of_ending(state),
    ]
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.mode))


def _finding(mode: str, task: TaskId, message: str, evidence: str = "", *, prevented: bool = False) -> FailureMode:
    text = evidence.strip()
    if len(text) > _MAX_EVIDENCE_CHARS:
        text = f"{text[:_MAX_EVIDENCE_CHARS]} …"
    return FailureMode(mode=mode, task=task, message=message, evidence=text, prevented=prevented)


def _missing_entries(entries: Sequence[ev.Entry]) -> str:
    if not entries or not isinstance(entries[0].event, ev.RunRequested):
        return "the run does not begin with its request"
    for number, entry in enumerate(entries, 1):
        if entry.seq != number:
            return f"entry {entry.seq} stands where {number} belongs"
    return ""


def _of_event(event: ev.Event) -> Iterator[FailureMode]:
    """What one event shows by itself."""
    match event:
        case ev.AttemptFailed():
            yield from _of_failed_attempt(event)
        case ev.AttemptSucceeded():
            yield from _of_result(event)
        case ev.SupervisionFailed(findings=findings):
            yield from _of_plan_findings(findings, prevented=True)
        case ev.RunRequested(warnings=warnings) | ev.TasksAdded(warnings=warnings):
            yield from _of_plan_findings(warnings, prevented=False)
        case ev.Noted(fact=StepDiverged()):
            yield _finding("2.1", event.task, f"{event.task!r} was resumed and did not go on as recorded.", event.text)
        case ev.Noted(fact=Assumed()):
            yield _finding("2.2", event.task, "The planner assumed something instead of asking.", event.text)
        case _:
            pass


def _of_failed_attempt(event: ev.AttemptFailed) -> Iterator[FailureMode]:
    failure = event.failure
    if failure.code in FAILURE_CODES:
        mode, words = FAILURE_CODES[failure.code]
        message = f"Attempt {event.attempt} of {event.task!r} {words}, and was failed."
        yield _finding(mode, event.task, message, failure.message, prevented=True)
    elif event.refused:
        message = f"The result of attempt {event.attempt} of {event.task!r} was refused by a check."
        yield _finding("1.1", event.task, message, failure.message, prevented=True)


def _of_result(event: ev.AttemptSucceeded) -> Iterator[FailureMode]:
    if decode_value(event.result) in (None, ""):
        yield _finding("2.4", event.task, f"The result of {event.task!r} is empty.", bytes(event.result).decode())
    tracing = event.tracing
    untraced = [item for item in tracing.untraced if not item.origin] if tracing is not None else []
    if untraced:
        message = f"The result of {event.task!r} states what none of its tools returned."
        yield _finding("2.6", event.task, message, "; ".join(item.text for item in untraced))


def _of_plan_findings(findings: Sequence[ev.Finding], *, prevented: bool) -> Iterator[FailureMode]:
    for finding in findings:
        if finding.code in FINDING_CODES:
            mode, words = FINDING_CODES[finding.code]
            ending = ", and it was sent back." if prevented else "."
            yield _finding(mode, NO_TASK, f"{words}{ending}", finding.message, prevented=prevented)


def _of_foreign_calls(events: Sequence[ev.Event]) -> Iterator[FailureMode]:
    """1.2: calls of tools that a worker does not have. None of them is made."""
    tools: dict[tuple[TaskId, int], set[str]] = {}
    model_steps: set[tuple[TaskId, int, int]] = set()
    for event in events:
        if isinstance(event, ev.PromptSent) and event.duty == "attempt":
            tools.setdefault((event.task, event.number), set(OURS)).update(event.tools)
        elif isinstance(event, ev.StepStarted) and event.kind == "model":
            model_steps.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and (event.task, event.attempt, event.step) in model_steps:
            own = tools.get((event.task, event.attempt))
            if own is None:
                continue
            for name in _called_names(event):
                if name not in own:
                    message = f"{event.task!r} called for {name!r}, a tool that its worker does not have."
                    evidence = f"its tools: {', '.join(sorted(own - OURS)) or 'none'}"
                    yield _finding("1.2", event.task, message, evidence, prevented=True)


def _called_names(event: ev.StepFinished) -> list[str]:
    """The tools that a model's reply calls for."""
    try:
        return [call.name for call in msgspec.json.decode(event.result, type=Reply).calls]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def _of_unchecked_effects(events: Sequence[ev.Event], state: RunState) -> Iterator[FailureMode]:
    """3.2: an effect that nothing checked: no later call that reads, no check, no approval."""
    if state.ended is None:
        return
    unchecked: dict[TaskId, str] = {}
    steps: dict[tuple[TaskId, int, int], ev.StepStarted] = {}
    for event in events:
        match event:
            case ev.StepStarted(kind="tool" | "check" | "subteam"):
                steps[event.task, event.attempt, event.step] = event
            case ev.StepFinished(good=True) if step := steps.get((event.task, event.attempt, event.step)):
                for task in _task_and_inputs(event.task, state):
                    unchecked.pop(task, None)
                if step.effect == "effect":
                    unchecked[event.task] = step.name
            case ev.Noted(fact=ResultAccepted()):
                unchecked.pop(event.task, None)
            case _:
                pass
    approved = {event.task for event in events if isinstance(event, ev.InputRequested) and event.what == "tool"}
    for task, name in unchecked.items():
        if task not in approved:
            message = f"{task!r} changed something outside, and nothing checked whether it worked."
            yield _finding("3.2", task, message, name)


def _task_and_inputs(task: TaskId, state: RunState) -> list[TaskId]:
    """A task, and those whose results it works from: a call of it may check the effects of all of them."""
    progress = state.tasks.get(task)
    return [task, *(name for name, _ in needs(progress.task))] if progress is not None else [task]


def _of_ending(state: RunState) -> Iterator[FailureMode]:
    """2.4: gaps that the answer does not name."""
    if state.ended is None or state.answer is None:
        return
    answer = decode_value(state.answer)
    gaps = [gap for gap in state.ended.gaps if gap.status != "untraced"]  # the answer lists those in its own words
    if isinstance(answer, str) and with_gaps(answer, gaps) != answer:
        message = "The answer does not name everything that is missing."
        yield _finding("2.4", NO_TASK, message, with_gaps("", gaps))
