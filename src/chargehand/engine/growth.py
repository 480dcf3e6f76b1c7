"""The graph of a run: how it grows, and what a settled task means to those that read it."""

from collections.abc import Sequence

from chargehand.engine.plan import Task, TaskId, in_order, needs
from chargehand.engine.roster import USUAL_SECONDS
from chargehand.engine.state import Progress, RunState, Status, candidates, enqueue, lane_key, prune

_REACH = 64  # how many older tasks one new task may make more urgent: keeps growing plans linear


def add(state: RunState, tasks: Sequence[Task]) -> None:
    first = len(state.ordered)
    for task in tasks:
        progress = Progress(task, len(state.ordered), state.round)
        state.ordered.append(progress)
        state.tasks[task.id] = progress
    state.unsettled += len(tasks)
    added = state.ordered[first:]
    sorted_already = True
    reading = [progress for progress in added if progress.task.after or progress.task.for_each]
    for progress in reading:
        for need_id, need in needs(progress.task):
            needed = state.tasks[need_id]
            sorted_already = sorted_already and needed.order < progress.order
            needed.readers.append((progress, need))
            progress.unmet += need != "quorum"
            progress.spare += need == "quorum"
        if progress.spare:
            progress.wanted = progress.task.quorum
            progress.unmet += 1
            progress.spare -= progress.wanted
    _rank(state, added if sorted_already else [state.tasks[task.id] for task in in_order(tasks)[0]], reading, first)
    for progress in reading if first else ():
        for need_id, need in needs(progress.task):
            needed = state.tasks[need_id]
            if needed.settled and progress.status is Status.WAITING:
                _input_settled(state, progress, need, needed)
    for progress in added:
        if progress.unmet == 0 and progress.status is Status.WAITING:
            inputs_met(state, progress)


def _rank(state: RunState, line: Sequence[Progress], reading: Sequence[Progress], first: int) -> None:
    for progress in reversed(line):
        progress.rank = _seconds(state, progress.task)
        if progress.readers:
            progress.rank += max([one.rank for one, _ in progress.readers])
    if not first:
        return  # there is nothing older
    budget = _REACH * len(line)
    stack = [
        (progress, need) for progress in reading for need, _ in needs(progress.task) if state.tasks[need].order < first
    ]
    while stack and budget:
        budget -= 1
        reader, need = stack.pop()
        needed = state.tasks[need]
        rank = _seconds(state, needed.task) + reader.rank
        if rank <= needed.rank or needed.settled:
            continue
        needed.rank = rank
        if needed.status is Status.READY:
            enqueue(state, needed)
        stack.extend((needed, further) for further, _ in needs(needed.task))


def _seconds(state: RunState, task: Task) -> float:
    if task.seconds is not None:
        return task.seconds
    named = candidates(state, task.worker or task.match)
    seconds = state.agents[named[0]].seconds
    return USUAL_SECONDS if seconds is None else seconds


def drop_round(state: RunState) -> None:
    for progress in [one for one in state.tasks.values() if one.round == state.round]:
        state.unsettled -= not progress.settled
        progress.status = Status.DROPPED
        del state.tasks[progress.task.id]
        for pending in (state.doomed, state.expandable):
            pending.pop(progress.task.id, None)
    for key in list(state.lanes):
        prune(state, key)


def settle(state: RunState, progress: Progress, status: Status) -> None:
    waited = progress.status is Status.READY
    progress.status = status
    progress.timer = 0.0
    if waited:  # it settles without ever having been started
        prune(state, lane_key(progress))
    state.unsettled -= 1
    state.fresh += 1
    mother = progress.mother
    if mother is not None:
        mother.items_open -= 1
        mother.items_done += status is Status.DONE
        if not mother.items_open:
            state.joinable[mother.task.id] = None
    for reader, need in progress.readers:
        if reader.status is Status.WAITING:
            _input_settled(state, reader, need, progress)
            if not reader.unmet:
                inputs_met(state, reader)


def _input_settled(state: RunState, reader: Progress, need: str, needed: Progress) -> None:
    good = needed.status is Status.DONE
    if need == "quorum":
        if not reader.wanted:
            return  # it already had enough
        if good:
            reader.wanted -= 1
            reader.unmet -= not reader.wanted
        else:
            reader.spare -= 1
    elif good or need == "optional":
        reader.unmet -= 1
    if (need == "required" and not good) or reader.spare < 0:
        state.doomed.setdefault(reader.task.id, needed.task.id)


def inputs_met(state: RunState, progress: Progress) -> None:
    if progress.task.for_each:
        progress.status = Status.EXPANDED
        state.expandable[progress.task.id] = None
    else:
        enqueue(state, progress)


def undelivered_item(state: RunState, source: Progress, index: int) -> TaskId | None:
    """The item task of a repeated source that has no result to go on from; None where there is an element.

    A source that returned a list itself has all of its elements.
    """
    if source.result is not None:
        return None
    item = state.tasks[TaskId(f"{source.task.id}[{index}]")]
    return None if item.status is Status.DONE else item.task.id
