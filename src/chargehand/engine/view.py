"""What the state of a run means to those who work on it: inputs, results, gaps, and results that may be used again."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.engine.budget import CapReached
from chargehand.engine.events import Offer
from chargehand.engine.facts import Tracing
from chargehand.engine.failure import Gap, describe_call
from chargehand.engine.plan import NO_TASK, TaskId, digest, needs
from chargehand.engine.policy import Instant
from chargehand.engine.state import Input, Progress, RunState, Status, Step, candidates
from chargehand.text.words import FUNCTION_WORDS, singular, split_words

_LIST = msgspec.json.Decoder(list[Raw])


def material(state: RunState) -> tuple[Input, ...]:
    """What the run was given besides its goal."""
    materials: list[Input] = []
    for item in state.requested.inputs:
        value = None if bytes(item.value) == b"null" else item.value
        materials.append(Input(item.name, value, item.gaps, item.tracing, item.file))
    return tuple(materials)


def callers_tools(state: RunState) -> bool:
    """Whether the caller has tools that the answer may call: it may do so before any task is done."""
    wanted = state.requested.answer_format
    return wanted is not None and bool(wanted.tools)


def work_until(state: RunState) -> Instant:
    """When no more tasks are begun: what is left of the time belongs to the answer, a fifth of all at most."""
    requested = state.requested
    longest = (requested.deadline - state.waited - state.began) / 5
    reserved = min(requested.policy.answer, max(0.0, longest))
    return requested.deadline - reserved


def answer_until(state: RunState) -> Instant:
    """When the run is over whatever is still under way: nothing is begun, and nothing waited for, after that."""
    return state.requested.deadline + state.requested.policy.grace


def time_cap(state: RunState) -> CapReached:
    """The time of the run as a cap that was reached: when no more tasks were begun. Waiting does not count.

    It is named as it was set. A run inside another has what its step has left, if that is less.
    """
    requested = state.requested
    limit = requested.budget.seconds
    if limit is None or requested.parent is not None:
        limit = max(0.0, requested.deadline - state.waited - state.began)
    reserved = requested.deadline - work_until(state)
    return CapReached("time", limit, limit - reserved, kept=reserved)


def inputs(state: RunState, progress: Progress) -> tuple[Input, ...]:
    """Exactly what a task is given: the results it needs, and typed gaps for what is missing."""
    task = progress.task
    if not task.after and not task.for_each:
        return ()
    needed_inputs: list[Input] = []
    for need_id, need in needs(task):
        needed = state.tasks[need_id]
        if need == "quorum" and progress.taken is not None and need_id not in progress.taken:
            continue
        if need == "quorum" and progress.taken is None and needed.status is not Status.DONE:
            continue
        if need_id == task.for_each and progress.index >= 0:
            item = state.tasks.get(TaskId(f"{need_id}[{progress.index}]"), needed)
            needed_inputs.append(Input(need_id, _elements(state, needed)[progress.index], _call_gaps(item)))
        else:
            needed_inputs.append(delivered(state, needed))
    return tuple(needed_inputs)


def delivered(state: RunState, progress: Progress) -> Input:
    """What a settled task hands on: its result, what is missing, and its calls that were refused or are in doubt."""
    task = progress.task.id
    if progress.status is not Status.DONE:
        return Input(task, None, (gap(state, progress),))
    if progress.result is not None:
        return Input(task, progress.result, _call_gaps(progress), progress.tracing, worker=progress.worker)
    items = [state.tasks[TaskId(f"{task}[{index}]")] for index in range(progress.items)]
    values = (bytes(item.result) if item.result is not None else b"null" for item in items)
    item_gaps: list[Gap] = []
    for item in items:
        item_gaps += _call_gaps(item) if item.status is Status.DONE else (gap(state, item),)
    tracing = _joined([item.tracing for item in items])
    return Input(task, Raw(b"[" + b",".join(values) + b"]"), tuple(item_gaps), tracing)


def _joined(parts: Sequence[Tracing | None]) -> Tracing | None:
    """What was traced in the items of a list, together."""
    tracings = [part for part in parts if part is not None]
    if not tracings:
        return None
    untraced = dict.fromkeys(statement for tracing in tracings for statement in tracing.untraced)
    return Tracing(
        tools=sum(tracing.tools for tracing in tracings),
        given=tuple(text for tracing in tracings for text in tracing.given),
        untraced=tuple(untraced),
        sent_back=any(tracing.sent_back for tracing in tracings),
        unread=any(tracing.unread for tracing in tracings),
        citations=tuple(citation for tracing in tracings for citation in tracing.citations),
    )


def _elements(state: RunState, source: Progress) -> list[Raw]:
    if source.elements is None:  # scratch: opened once, however many items there are
        value = delivered(state, source).value
        source.elements = _LIST.decode(bytes(value)) if value is not None else []
    return source.elements


def gap(state: RunState, progress: Progress) -> Gap:
    """Why there is nothing from this task. Of all runs that end, only one that is cancelled leaves tasks open."""
    task = progress.task.id
    if progress.in_doubt():
        return _doubt_gap(progress, progress.open_effects()[0][1])
    if progress.status is Status.FAILED and progress.failure is not None:
        failure = progress.failure
        cap = time_cap(state) if failure.kind == "deadline" and state.time_up else failure.cap
        return Gap(task=task, status="failed", reason=failure.kind, message=_with_cap(failure.message, cap), cap=cap)
    if progress.status is Status.SKIPPED:
        reason = progress.skipped or "input"
        messages = {
            "input": f"it needs {progress.because!r}, which did not deliver",
            "budget": "the budget was too small for it",
            "deadline": "the time ran out before it could start",
            "person": "a person skipped it",
            "refused": f"its model refuses every call, as in {progress.because!r}",
        }
        return Gap(
            task=task,
            status="skipped",
            reason=reason,
            message=_with_cap(messages[reason], progress.cap),
            because=progress.because,
            cap=time_cap(state) if reason == "deadline" else progress.cap,
        )
    words = "it is not finished yet" if state.cancel is None else "the run ended before it was finished"
    return Gap(task, "unfinished", "unfinished", words)


def _doubt_gap(progress: Progress, step: Step) -> Gap:
    """Return the gap for an effect of which nobody knows whether it happened."""
    arguments = step.decoded_arguments
    message = f"it is not known whether {describe_call(step.name, arguments)} happened"
    if progress.failure is not None and progress.failure.cause:
        message = f"{message}; the attempt ended with {progress.failure.cause}"
    is_over = progress.status in (Status.FAILED, Status.JUDGED, Status.ASKING)
    status = "failed" if is_over else "unfinished"
    return Gap(progress.task.id, status, "uncertain", message, tool=step.name, arguments=arguments)


def _gaps_of(state: RunState, progress: Progress) -> tuple[Gap, ...]:
    """Return why there is nothing from a task; each effect in doubt is a gap of its own."""
    own = tuple(_doubt_gap(progress, step) for _, step in progress.open_effects()) or (gap(state, progress),)
    failed = () if progress.failure is None else progress.failure.gaps
    inside = (*progress.gaps_inside, *failed, *progress.gaps_waiting)
    return _unique((*own, *(structs.replace(each, task=progress.task.id) for each in inside)))


def _unique(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Return gaps without those that are listed already."""
    return gaps if len(gaps) < 2 else tuple({msgspec.json.encode(gap): gap for gap in gaps}.values())


def call_gaps(state: RunState) -> tuple[Gap, ...]:
    """Return the refused calls and the effects in doubt of a run and of those inside it, as far as it has come."""
    known = state.ended.gaps if state.ended is not None else (*gaps(state), *refused_gaps(state), *missing_gaps(state))
    return _unique(tuple(gap for gap in known if gap.tool))


def refused_gaps(state: RunState) -> tuple[Gap, ...]:
    """Return a gap for each call that a person did not allow and no later call made good.

    The result of the task is no evidence: a model may claim what was refused.
    """
    refusing = [progress for progress in state.tasks.values() if progress.refusals or progress.gaps_inside]
    if not refusing:
        return ()
    replaced = _replaced(_done(state))
    refused: list[Gap] = []
    for progress in refusing:
        is_replaced = progress.task.id in replaced
        if progress.status is Status.DONE:  # of another task they stand among its gaps
            inside = [structs.replace(gap, task=progress.task.id) for gap in progress.gaps_inside]
            refused += [gap for gap in inside if gap.reason == "uncertain"] if is_replaced else inside
        refused += () if is_replaced else _own_refusals(progress)
    return tuple(refused)


def _own_refusals(progress: Progress) -> list[Gap]:
    """Return a gap for each call of a task itself that a person did not allow."""
    task = progress.task.id
    refused: list[Gap] = []
    for call in progress.refusals:
        message = f"a person did not allow {describe_call(call.tool, call.arguments)}: {call.reason}"
        refused.append(Gap(task, "refused", "person", message, tool=call.tool, arguments=call.arguments))
    return refused


def _call_gaps(progress: Progress) -> tuple[Gap, ...]:
    """Return the refused calls and the effects in doubt behind the result of a task, which may claim them."""
    if not (progress.refusals or progress.gaps_inside or progress.missing):
        return ()
    inside = progress.gaps_inside + (() if progress.missing is None else progress.missing.gaps)
    about_calls = [structs.replace(gap, task=progress.task.id) for gap in inside if gap.is_about_call]
    return (*about_calls, *_own_refusals(progress))


def _with_cap(message: str, cap: CapReached | None) -> str:
    """A message with the cap of the budget that is the reason, and what of it was kept for the answer."""
    return message if cap is None or cap.cap == "time" else f"{message} ({cap.describe()})"


def _done(state: RunState) -> list[Progress]:
    return [progress for progress in state.tasks.values() if progress.status is Status.DONE]


def _replaced(done: Iterable[Progress]) -> set[TaskId]:
    """The tasks in whose place others were done."""
    return {progress.task.replaces for progress in done if progress.task.replaces}


def gaps(state: RunState) -> tuple[Gap, ...]:
    """Return every task the answer has to do without, and every effect of which nobody knows whether it happened.

    Of a task in whose place another one was done only its effects in doubt are left: the other task may have done them
    again, which does not tell what became of the first.
    """
    missing = [progress for progress in state.tasks.values() if progress.status is not Status.DONE]
    unserved = tuple(Gap(NO_TASK, "unserved", "unserved", text) for text in state.unserved)
    if not missing:
        return unserved
    replaced = _replaced(_done(state))
    of_tasks: list[Gap] = []
    for progress in missing:
        found = _gaps_of(state, progress)
        is_replaced = progress.task.id in replaced
        of_tasks += [gap for gap in found if gap.reason == "uncertain"] if is_replaced else found
    return unserved + tuple(of_tasks)


def untraced_gaps(state: RunState) -> tuple[Gap, ...]:
    """What the answer says that no tool returned, though there are tools.

    An answer that was worded anew speaks for itself; else every result does, unless another task replaces it.
    """
    if state.answer_tracing is not None:
        return _untraced(NO_TASK, state.answer_tracing)
    done = _done(state)
    replaced = _replaced(done)
    untraced: list[Gap] = []
    for progress in done:
        if progress.tracing is not None and progress.task.id not in replaced:
            untraced += _untraced(progress.task.id, progress.tracing)
    return tuple(untraced)


def _untraced(task: TaskId, tracing: Tracing) -> tuple[Gap, ...]:
    """A gap for each statement that rests on nothing."""
    return tuple(
        Gap(task, "untraced", statement.kind, f"{statement.text}: {_CONFLICTS[statement.conflict]}")
        for statement in tracing.untraced
        if not statement.origin
    )


def cut_gaps(state: RunState) -> tuple[Gap, ...]:
    """An answer that is not whole leaves a gap."""
    if not state.answer_cut:
        return ()
    return (Gap(NO_TASK, "unwritten", "logic", f"the answer is not whole: {state.answer_cut}"),)


def unwritten_gap(state: RunState, cap: CapReached | None) -> Gap:
    """Why there are results and no answer from them; `cap`: the budget is too small for it."""
    failure = state.answering.failure
    if failure is not None:
        message = _with_cap(f"the answer could not be written: {failure.message}", failure.cap)
        return Gap(NO_TASK, "unwritten", failure.kind, message, cap=failure.cap)
    if cap is not None:
        message = _with_cap("the answer was not written: the budget was too small for it", cap)
        return Gap(NO_TASK, "unwritten", "budget", message, cap=cap)
    return Gap(NO_TASK, "unwritten", "deadline", "the answer was not written: the time ran out", cap=time_cap(state))


_CONFLICTS = {
    "": "no tool returned it",
    "row": "the tools have it in another row",
    "unit": "the tools have it in another currency",
}


def results(state: RunState) -> tuple[Input, ...]:
    """Every result there is to answer from; the items of a list that was put together come with the list."""
    whole = [
        progress for progress in _done(state) if progress.parent is None or progress.parent.status is not Status.DONE
    ]
    return tuple(delivered(state, progress) for progress in whole)


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
    """The same for the writer of the answer: of a nested run, what it says is missing, in its words."""
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
    done = _done(state)
    replaced = _replaced(done)
    return [
        _PartialResult(progress, progress.missing.parts, progress.missing.gaps)
        for progress in done
        if progress.missing is not None and progress.task.id not in replaced
    ]


def _undone_parts(state: RunState, partial: Sequence[_PartialResult]) -> tuple[Gap, ...]:
    """The parts that workers left and no other task did. Of a result that is the answer as it is, all count."""
    unfinished = [result for result in partial if not result.gaps]
    chosen = NO_TASK if state.answer_written is None else state.answer_written.chosen
    undone: dict[str, None] = {}
    for result in unfinished:
        if result.progress.task.id == chosen:
            undone |= dict.fromkeys(result.parts)
    lacking: dict[TaskId, list[set[str]]] = {}
    for result in unfinished:
        lacking[result.progress.task.id] = [_words_of(part) for part in result.parts[:_MAX_COMPARED]]
    compared = 0
    for result in unfinished:
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
    visited: set[TaskId] = set()
    while pending:
        current = pending.pop()
        if current.id == task:
            return True
        if current.id in visited:
            continue
        visited.add(current.id)
        pending += [state.tasks[need_id].task for need_id, need in needs(current) if need != "optional"]
    return False


def key_of(state: RunState, progress: Progress) -> str:
    """The key of a task whose inputs are settled."""
    task = progress.task
    agents = (state.agents[name] for name in candidates(state, task.worker or task.match) if name in state.agents)
    specs = sorted(f"{agent.name}={agent.spec}" for agent in agents)  # in whatever order they stand
    parts = [digest(*specs), task.instruction, *task.accept]
    needed_inputs = inputs(state, progress)
    for needed in needed_inputs:
        parts.append(digest(bytes(needed.value)) if needed.value is not None else "gap")
        parts.append(str(len(needed.gaps)))
    if not needed_inputs:  # then it is given the files of the run
        parts += [item.file.id for item in state.requested.inputs if item.file is not None]
    return digest(*parts)


def is_traced(progress: Progress) -> bool:
    """Whether a result says nothing that its worker's tools did not return; the next attempt may get it right."""
    tracing = progress.tracing
    return tracing is None or all(statement.origin for statement in tracing.untraced)


def offers(state: RunState) -> tuple[Offer, ...]:
    """What a fork of this run may use again: every finished result whose figures were all traced, under its key."""
    done = [progress for progress in _done(state) if progress.result is not None and not _was_refused(progress)]
    usable = [progress for progress in done if is_traced(progress)]
    return tuple(offer_of(state, progress, progress.task.id) for progress in usable)


def _was_refused(progress: Progress) -> bool:
    """Return whether a person did not allow a call of a task: its result may claim that the call was made."""
    inside = progress.gaps_inside + (() if progress.missing is None else progress.missing.gaps)
    return bool(progress.refusals) or any(gap.status == "refused" for gap in inside)


def offer_of(state: RunState, progress: Progress, task: TaskId) -> Offer:
    """A finished result as an offer; `task` is its name where it is used again."""
    return Offer(
        key=key_of(state, progress),
        task=task,
        result=progress.result or Raw(b"null"),
        items=progress.items,
        tracing=progress.tracing,
        missing=progress.missing,
    )
