"""What a task and a run look like to those who work on them: inputs, results and gaps, read off the state."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from chargehand.engine.events import Gap
from chargehand.engine.plan import NO_TASK, TaskId, needs
from chargehand.engine.policy import Instant
from chargehand.engine.state import Input, Progress, RunState, Status
from chargehand.engine.tracing import Statement, Tracing

_LIST = msgspec.json.Decoder(list[Raw])


def material(state: RunState) -> tuple[Input, ...]:
    """What the run was given besides its goal."""
    return tuple(
        Input(given.name, None if bytes(given.value) == b"null" else given.value, given.gaps)
        for given in state.requested.inputs
    )


def work_until(state: RunState) -> Instant:
    """When no more tasks are begun: what is left of the time belongs to the answer, a fifth of all at most."""
    requested = state.requested
    kept = requested.policy.answer
    longest = (requested.deadline - state.waited - state.began) / 5
    if kept > longest:
        kept = max(0.0, longest)
    return requested.deadline - kept


def answer_until(state: RunState) -> Instant:
    """When the run is over whatever is still under way: nothing is begun, and nothing waited for, after that."""
    return state.requested.deadline + state.requested.policy.grace


def inputs(state: RunState, progress: Progress) -> tuple[Input, ...]:
    """Exactly what a task is given: the results it needs, and typed gaps for what is missing."""
    task = progress.task
    if not task.after and not task.for_each:
        return ()
    found: list[Input] = []
    for need_id, need in needs(task):
        needed = state.tasks[need_id]
        if need == "quorum" and progress.taken is not None and need_id not in progress.taken:
            continue
        if need == "quorum" and progress.taken is None and needed.status is not Status.DONE:
            continue
        if need_id == task.for_each and progress.index >= 0:
            found.append(Input(need_id, _elements(state, needed)[progress.index]))
        else:
            found.append(delivered(state, needed))
    return tuple(found)


def delivered(state: RunState, progress: Progress) -> Input:
    """What a settled task hands on."""
    task = progress.task.id
    if progress.status is not Status.DONE:
        return Input(task, None, (gap(state, progress),))
    if progress.result is not None:
        return Input(task, progress.result, tracing=progress.tracing)
    items = [state.tasks[TaskId(f"{task}[{index}]")] for index in range(progress.items)]
    values = (bytes(item.result) if item.result is not None else b"null" for item in items)
    holes = tuple(gap(state, item) for item in items if item.status is not Status.DONE)
    return Input(task, Raw(b"[" + b",".join(values) + b"]"), holes, _joined([item.tracing for item in items]))


def _joined(parts: Sequence[Tracing | None]) -> Tracing | None:
    """What was traced in the items of a list, together."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    untraced = dict.fromkeys(one for part in known for one in part.untraced)
    given = [text for part in known for text in part.given]
    return Tracing(
        tools=sum(part.tools for part in known),
        given=tuple(given),
        untraced=tuple(untraced),
        sent_back=any(part.sent_back for part in known),
        unread=any(part.unread for part in known),
    )


def _elements(state: RunState, source: Progress) -> list[Raw]:
    if source.elements is None:  # scratch: opened once, however many items there are
        value = delivered(state, source).value
        source.elements = _LIST.decode(bytes(value)) if value is not None else []
    return source.elements


def gap(state: RunState, progress: Progress) -> Gap:
    """Why there is nothing from this task. Of all runs that end, only one that is cancelled leaves tasks open."""
    task = progress.task.id
    if progress.status is Status.FAILED and progress.failure is not None:
        return Gap(task, "failed", progress.failure.kind, progress.failure.message)
    if progress.status is Status.SKIPPED:
        reason = progress.skipped or "input"
        said = {
            "input": f"it needs {progress.because!r}, which did not deliver",
            "budget": "the budget was too small for it",
            "deadline": "the time ran out before it could start",
            "person": "a person skipped it",
            "refused": f"its model refuses every call, as in {progress.because!r}",
        }
        return Gap(task=task, status="skipped", reason=reason, message=said[reason], because=progress.because)
    words = "it is not finished yet" if state.cancel is None else "the run ended before it was finished"
    return Gap(task, "unfinished", "unfinished", words)


def gaps(state: RunState) -> tuple[Gap, ...]:
    """Every task the answer has to do without, unless another one that replaces it was done."""
    missing = [one for one in state.tasks.values() if one.status is not Status.DONE]
    unserved = tuple(Gap(NO_TASK, "unserved", "unserved", text) for text in state.unserved)
    if not missing:
        return unserved
    replaced = {one.task.replaces for one in state.tasks.values() if one.status is Status.DONE and one.task.replaces}
    return unserved + tuple(gap(state, one) for one in missing if one.task.id not in replaced)


def untraced_gaps(state: RunState) -> tuple[Gap, ...]:
    """What is said to whoever asked that no tool returned, though there are tools.

    An answer that was worded anew speaks for itself; else every result does, unless another task replaces it.
    """
    if state.answer_tracing is not None:
        return tuple(_untraced_gap(NO_TASK, one) for one in state.answer_tracing.untraced if not one.origin)
    tasks = [one for one in state.tasks.values() if one.tracing is not None and one.status is Status.DONE]
    if not tasks:
        return ()
    replaced = {one.task.replaces for one in state.tasks.values() if one.status is Status.DONE and one.task.replaces}
    return tuple(
        _untraced_gap(one.task.id, item)
        for one in tasks
        if one.tracing is not None and one.task.id not in replaced
        for item in one.tracing.untraced
        if not item.origin
    )


def cut_gaps(state: RunState) -> tuple[Gap, ...]:
    """An answer that is not whole leaves a gap."""
    if not state.answer_cut:
        return ()
    return (Gap(NO_TASK, "unwritten", "logic", f"the answer is not whole: {state.answer_cut}"),)


def unwritten_gap(state: RunState, *, broke: bool) -> Gap:
    """Why there are results and no answer from them."""
    failure = state.answering.failure
    if failure is not None:
        return Gap(NO_TASK, "unwritten", failure.kind, f"the answer could not be written: {failure.message}")
    if broke:
        return Gap(NO_TASK, "unwritten", "budget", "the answer was not written: the budget was too small for it")
    return Gap(NO_TASK, "unwritten", "deadline", "the answer was not written: the time ran out")


_CONFLICTS = {
    "": "no tool returned it",
    "row": "the tools have it in another row",
    "unit": "the tools have it in another unit",
    "label": "the tools say it of something else",
}


def _untraced_gap(task: TaskId, one: Statement) -> Gap:
    return Gap(task, "untraced", one.kind, f"{one.text}: {_CONFLICTS[one.conflict]}")


def results(state: RunState) -> tuple[Input, ...]:
    """Every result there is to answer from; the items of a list that was put together come with the list."""
    return tuple(
        delivered(state, one)
        for one in state.tasks.values()
        if one.status is Status.DONE and (one.parent is None or one.parent.status is not Status.DONE)
    )
