"""The run document: how a run stands, and what it asks, as every API and the command line tell it.

`read_document` reads it off the state of a run. An API maps the document and reads nothing else of the state; what its
protocol has no field for goes into the extension field of the protocol.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.agents.result import fallback_answer
from chargehand.engine import events as ev
from chargehand.engine.admit import VERDICTS
from chargehand.engine.budget import CapReached
from chargehand.engine.failure import Asked, EarlierCall, Gap, PendingCall, Question, describe_call
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.state import Progress, RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps

State: TypeAlias = Literal[
    "running",
    "waiting",
    "paused",
    "needs_input",
    "interrupted",
    "complete",
    "partial",
    "failed",
    "cancelled",
    "damaged",
]
"""`damaged`: its entries cannot all be read; `reason` says why. `interrupted`: no process drives it; resume it.
`needs_input`: a person must answer its question. `waiting`: for a worker of its queue.
"""
_MOST_TASKS = 30  # of a plan, in words


class RunQuestion(Struct, frozen=True, kw_only=True):
    """The open question of a run: what a person must decide before it goes on."""

    number: int
    """Which question of the run: 1, 2, 3 … An answer names it."""
    what: Asked
    """A plan to approve, a call of a tool to approve, an effect whose outcome is not known, or a question in words."""
    task: TaskId
    """The task of this run that asks; empty for the plan of this run."""
    text: str
    """The first call in one line, or the question in words; empty for the plan of this run."""
    question: Question | None
    """The same in fields: workers from the outermost inwards, the run inside this one that asks, options, schema;
    `null`: a plan of this run, or a question that an old version recorded.
    """
    calls: tuple[PendingCall, ...]
    """All calls that wait for a verdict, the first first; empty: it asks about no call."""
    plan: tuple[str, ...]
    """The tasks of the plan that waits for approval, each in a line; empty: it asks about no plan."""
    verdicts: tuple[str, ...]
    """The words that answer it."""
    message: str
    """All of the question in words for a person."""


class CallInDoubt(Struct, frozen=True, kw_only=True):
    """A call that changes something, was begun, and of which nobody knows whether it happened."""

    task: TaskId
    """The task of this run that made it."""
    tool: str
    """The tool that was called."""
    arguments: dict[str, object]
    """Its arguments, whole."""
    key: str
    """Its idempotency key, under which it can be looked up outside."""
    is_asked_next: bool
    """A person is asked about it once the open question is answered; `false`: its tool looks it up, its task fails, or
    nothing is asked.
    """


class RunDocument(Struct, frozen=True, kw_only=True):
    """A run as it stands."""

    run: str
    """The run."""
    team: str
    """The team that does it; empty: a talk with an agent."""
    state: State
    """Where it stands, or how it ended."""
    reason: str
    """Why it ended so, as a code (`EndReason`), or what is damaged; empty: it has not ended."""
    why: str
    """The same in words: the cap, the first gap, or who cancelled it and why; empty: it has not ended, or is done."""
    cap: CapReached | None
    """The cap that is the reason (`budget`, `deadline` or `overspent`); `null`: another reason."""
    answer: object
    """The answer; of a run that ended before one was written, its results and why; `null`: there is none."""
    gaps: tuple[Gap, ...]
    """What the answer has to do without; before the end, what is missing so far."""
    usd: float
    """What it has cost, in dollars."""
    tokens: int
    """Tokens that it used."""
    calls: int
    """Calls of models that it made."""
    lost_usd: float
    """The part of `usd` that is an estimate, for calls whose outcome is not known."""
    question: RunQuestion | None
    """What it asks a person; `null`: nothing."""
    in_doubt: tuple[CallInDoubt, ...]
    """Calls that may have happened and that `question` does not ask about. Those of a task that failed, and those of a
    run that has ended, stand among the `gaps`.
    """


def read_document(run: str, state: RunState, *, is_driven: bool = False) -> RunDocument:
    """Return the document of a run.

    Args:
        run: its name.
        state: all its entries, folded.
        is_driven: whether a process drives it.
    """
    end = state.ended
    spent = state.ledger.spent
    return RunDocument(
        run=run,
        team=state.requested.team,
        state=read_state(state, is_driven=is_driven),
        reason="" if end is None else end.reason,
        why=explain_end(state),
        cap=None if end is None else end.cap,
        answer=decode_value(state.answer) if state.answer is not None else fallback_answer(state) or None,
        gaps=gaps(state) if end is None else end.gaps,
        usd=spent.usd,
        tokens=spent.tokens,
        calls=spent.calls,
        lost_usd=state.ledger.lost.usd,
        question=read_question(state),
        in_doubt=read_calls_in_doubt(state, is_driven=is_driven),
    )


def read_state(state: RunState, *, is_driven: bool) -> State:
    """Return where a run stands. `is_driven`: a process drives it."""
    if state.ended is not None:
        return state.ended.ending
    if state.input is not None:
        return "needs_input"
    if state.paused:
        return "paused"
    if is_driven:
        return "running"
    return "waiting" if state.requested.queue else "interrupted"


def explain_end(state: RunState) -> str:
    """Return why a run ended without all that was asked, in words; empty: it has not ended, or it is done."""
    return "" if state.ended is None else explain_ending(state.ended, state.cancel)


def explain_ending(end: ev.RunEnded, cancel: ev.CancelRequested | None) -> str:
    """Return the same from the events that say so. `cancel` is the last request to stop; None: there was none."""
    if end.reason == "done":
        return ""
    if end.ending == "cancelled":
        return _explain_cancel(cancel)
    if end.cap is not None:
        return end.cap.describe()
    return end.gaps[0].message if end.gaps else end.reason.replace("_", " ")


def _explain_cancel(cancel: ev.CancelRequested | None) -> str:
    if cancel is None:
        return "cancelled"
    reason = f": {cancel.reason}" if cancel.reason else ""
    return f"cancelled{reason}{f' (by {cancel.by})' if cancel.by else ''}"


# --- calls in doubt


def read_calls_in_doubt(state: RunState, *, is_driven: bool) -> tuple[CallInDoubt, ...]:
    """Return the calls of an open run that may have happened, without those that its question asks about.

    Args:
        state: all entries of the run, folded.
        is_driven: whether a process drives it: then the calls of an attempt are under way, and not in doubt.
    """
    if state.ended is not None:
        return ()
    calls: list[CallInDoubt] = []
    for progress in state.tasks.values():
        is_asked = progress.status is Status.ASKING and state.input is not None and state.input.what == "effect"
        is_under_way = progress.status is Status.RUNNING and is_driven
        if not (progress.settled or is_asked or is_under_way):
            calls += _calls_in_doubt_of(state, progress)
    return tuple(calls)


def _calls_in_doubt_of(state: RunState, progress: Progress) -> list[CallInDoubt]:
    is_asked_next = state.input is not None
    task = progress.task.id
    failure = progress.failure
    if progress.status is Status.JUDGED and failure is not None and failure.kind == "approval":
        question = failure.question  # of a run inside the attempt
        if question is None or question.what != "effect":
            return []
        inside = [(question.tool, question.arguments, question.key)]
        inside += [(call.tool, call.arguments, call.key) for call in question.also]
        return [
            CallInDoubt(task=task, tool=tool, arguments=arguments, key=key, is_asked_next=is_asked_next)
            for tool, arguments, key in inside
        ]
    is_asked_next = is_asked_next and state.requested.policy.uncertain == "ask" and not progress.can_look_up()
    return [
        CallInDoubt(
            task=task, tool=step.name, arguments=step.decoded_arguments, key=step.key, is_asked_next=is_asked_next
        )
        for _, step in progress.open_effects()
    ]


def describe_calls_in_doubt(calls: Sequence[CallInDoubt]) -> list[str]:
    """Return calls in doubt in words, each in a line."""
    lines: list[str] = []
    for call in calls:
        lead = "also in doubt, asked about next" if call.is_asked_next else "also in doubt"
        key = f", its idempotency key: {call.key}" if call.key else ""
        lines.append(f"{lead}: {describe_call(call.tool, call.arguments)} of task {call.task}{key}")
    return lines


# --- the question


def read_question(state: RunState) -> RunQuestion | None:
    """Return what a run asks a person; None: nothing."""
    asked = state.input
    if asked is None or state.ended is not None:
        return None
    plan: tuple[str, ...] = ()
    if asked.what == "plan":
        inner = () if asked.question is None else asked.question.plan
        plan = inner or describe_tasks([task.task for task in state.tasks.values() if task.parent is None])
    doubts = describe_calls_in_doubt(read_calls_in_doubt(state, is_driven=True))
    return RunQuestion(
        number=asked.number,
        what=asked.what,
        task=asked.task,
        text=asked.text,
        question=asked.question,
        calls=asked.calls,
        plan=plan,
        verdicts=VERDICTS[asked.what],
        message="\n".join((describe_question(asked, plan), *doubts)),
    )


def describe_tasks(tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return tasks in lines, each with worker and instruction."""
    return tuple(f"{task.id}{f' ({task.worker})' if task.worker else ''}: {task.instruction}" for task in tasks)


def describe_question(asked: ev.InputRequested, plan: Sequence[str] = ()) -> str:
    """Return all of a question in words; `plan` are the tasks that wait for approval, each in a line."""
    origin = _describe_origin(asked)
    match asked.what:
        case "plan":
            listed = [f"- {task}" for task in plan[:_MOST_TASKS]]
            if len(plan) > _MOST_TASKS:
                listed.append(f"- and {len(plan) - _MOST_TASKS} more")
            return "\n".join((f"Before anything is done, a person must agree to this plan{origin}:", *listed))
        case "question":
            return f"A worker asks{origin}:\n{asked.text}{_describe_options(asked.question)}"
        case "tool" | "effect":
            return "\n".join((f"{_ask_about_calls(asked)}{origin}:", *_describe_calls(asked)))


def _ask_about_calls(asked: ev.InputRequested) -> str:
    count = len(asked.calls)
    if asked.what == "tool":
        return (
            "Before this call is made, a person must agree to it"
            if count == 1
            else f"Before these {count} calls are made, a person must agree to each"
        )
    return (
        "The outcome of this call is unknown; a person must say what happened"
        if count == 1
        else f"The outcome of these {count} calls is unknown; a person must say what happened to each"
    )


def _describe_origin(asked: ev.InputRequested) -> str:
    """Return who asks: the workers from the outermost inwards, and the run inside this one."""
    question = asked.question
    if question is None:
        return ""
    workers = f"wanted by {' > '.join(question.workers)}" if question.workers else ""
    inner = f"in run {question.run}" if question.run else ""
    described = " ".join(part for part in (workers, inner) if part)
    return f" ({described})" if described else ""


def _describe_options(question: Question | None) -> str:
    if question is None or not question.options:
        return ""
    return f" ({', '.join(question.options)}{', or other words' if question.free_text else ''})"


def _describe_calls(asked: ev.InputRequested) -> list[str]:
    """Return the calls in lines; of several, each with its number and how many there are."""
    calls = asked.calls
    lines: list[str] = []
    for place, call in enumerate(calls, 1):
        lines.append(call.text if len(calls) == 1 else f"{place} of {len(calls)} (call {call.call}): {call.text}")
        lines += [f"  {line}" for line in _describe_circumstances(asked.what, call)]
    return lines


def _describe_circumstances(what: Asked, call: PendingCall) -> list[str]:
    """Return why a call is asked about, and what it would repeat or by what it can be looked up."""
    lines: list[str] = []
    if what == "effect" and call.key:
        lines.append(f"its idempotency key: {call.key}")
    if what == "tool" and call.because == "tainted":
        lines.append("asked because the worker has seen text from outside")
    if call.earlier is not None:
        lines.append(f"asked because it repeats {describe_earlier(call.earlier)}")
    elif what == "tool" and call.because == "repeated":
        lines.append("asked because the same call was made before")
    return lines


def describe_earlier(earlier: EarlierCall) -> str:
    """Return an earlier call in a line: tool, arguments, place, time and what it came to."""
    arguments = msgspec.json.encode(earlier.arguments).decode()
    task = f" of task {earlier.task}" if earlier.task else ""
    run = f" in run {earlier.run}" if earlier.run else ""
    at = f" at {datetime.fromtimestamp(earlier.at, UTC):%Y-%m-%d %H:%M:%S} UTC" if earlier.at else ""
    result = msgspec.json.encode(earlier.result).decode()
    came_to = f"which returned {result}" if earlier.happened else "and nobody knows whether it happened"
    return f"{earlier.tool} with {arguments}{task}{run}{at}, {came_to}"
