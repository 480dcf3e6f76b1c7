"""What delivered results leave out: the gaps of nested runs, and parts of tasks that no other task did."""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine.failure import Gap
from chargehand.engine.plan import NO_TASK, TaskId, needs
from chargehand.engine.state import Progress, RunState, Status
from chargehand.text.words import FUNCTION_WORDS, singular, split_words

_MAX_COMPARED = 20
"""How many parts are compared with what other tasks were asked; the others count as missing."""


def missing_gaps(state: RunState) -> tuple[Gap, ...]:
    """What delivered results leave out, as gaps of this run; those of nested runs say in which run they are."""
    partial = _partial_results(state)
    if not partial:
        return ()
    nested: list[Gap] = []
    for result in partial:
        nested += [structs.replace(gap, task=result.progress.task.id) for gap in result.gaps]
    return (*nested, *_undone_parts(state, partial))


def unanswered_gaps(state: RunState) -> tuple[Gap, ...]:
    """The same for whoever writes the answer: of a nested run, what it says is missing, in its words."""
    partial = _partial_results(state)
    if not partial:
        return ()
    nested: dict[str, None] = {}
    for result in partial:
        if result.gaps:
            nested |= dict.fromkeys(result.parts)
    return (*(Gap(NO_TASK, "unserved", "team", part) for part in nested), *_undone_parts(state, partial))


class _PartialResult(Struct, frozen=True):
    progress: Progress
    parts: tuple[str, ...]
    gaps: tuple[Gap, ...]


def _partial_results(state: RunState) -> list[_PartialResult]:
    """The results that leave something out, unless another task was done in the place of theirs."""
    if not state.partial:
        return []
    done = [progress for progress in state.tasks.values() if progress.status is Status.DONE]
    replaced = {progress.task.replaces for progress in done if progress.task.replaces}
    return [
        _PartialResult(progress, progress.missing.parts, progress.missing.gaps)
        for progress in done
        if progress.missing is not None and progress.task.id not in replaced
    ]


def _undone_parts(state: RunState, partial: Sequence[_PartialResult]) -> tuple[Gap, ...]:
    """The parts that workers left and no other task did. Of a result that is the answer as it is, all count."""
    left = [result for result in partial if not result.gaps]
    chosen = NO_TASK if state.answer_written is None else state.answer_written.chosen
    undone: dict[str, None] = {}
    for result in left:
        if result.progress.task.id == chosen:
            undone |= dict.fromkeys(result.parts)
    lacking: dict[TaskId, list[set[str]]] = {}
    for result in left:
        lacking[result.progress.task.id] = [_words_of(part) for part in result.parts[:_MAX_COMPARED]]
    compared = 0
    for result in left:
        for part in result.parts:
            compared += 1
            if compared > _MAX_COMPARED or not _is_done_elsewhere(state, part, result.progress, lacking):
                undone[part] = None
    return tuple(Gap(NO_TASK, "unserved", "unserved", part) for part in undone)


def _is_done_elsewhere(state: RunState, part: str, progress: Progress, lacking: dict[TaskId, list[set[str]]]) -> bool:
    """Whether another task that was done was asked for this part, did not leave it, and does not rest on this one.

    The items of a list are asked for the same words about different things: none of them speaks for another.
    """
    if progress.parent is not None:
        return False
    words = _words_of(part)
    for other in state.tasks.values():
        if other is progress or other.status is not Status.DONE or other.parent is not None:
            continue
        if not words <= _words_of(other.task.instruction):
            continue
        if any(words <= less or less <= words for less in lacking.get(other.task.id, ())):
            continue
        if not _rests_on(state, other, progress.task.id):
            return True
    return False


def _words_of(text: str) -> set[str]:
    """What a text speaks of: who repeats a part need not use its small words."""
    words = set(split_words(text))
    return {singular(word) for word in words - FUNCTION_WORDS} or words or {text}


def _rests_on(state: RunState, progress: Progress, task: TaskId) -> bool:
    """Whether a task was done from the result of another, however many tasks are in between."""
    pending = [progress.task]
    seen: set[TaskId] = set()
    while pending:
        current = pending.pop()
        if current.id == task:
            return True
        if current.id in seen:
            continue
        seen.add(current.id)
        pending += [state.tasks[need_id].task for need_id, need in needs(current) if need != "optional"]
    return False
