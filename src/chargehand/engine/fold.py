"""`fold`: what an entry makes of the state. It never refuses and never decides; a longer plan makes it no dearer."""

from collections.abc import Callable, Sequence
from heapq import heappop
from typing import Any

from msgspec import structs

from chargehand.engine import attempts
from chargehand.engine import events as ev
from chargehand.engine.breaker import forget_probe
from chargehand.engine.budget import NOTHING, Amount, Ledger
from chargehand.engine.growth import add, drop_round, settle, undelivered_item
from chargehand.engine.plan import NO_TASK, Plan, TaskId
from chargehand.engine.policy import Seconds
from chargehand.engine.state import Desk, Progress, RunState, Status, Work, enqueue


def begin(entry: ev.Entry) -> RunState:
    """The state after a run's first entry."""
    requested = entry.event
    assert isinstance(requested, ev.RunRequested), "a journal begins with run.requested"
    agents = {agent.name: agent for agent in requested.roster.agents}
    state = RunState(
        requested=requested,
        ledger=Ledger(requested.budget),
        agents=agents,
        seq=entry.seq,
        at=entry.at,
        began=entry.at,
    )
    if requested.plan is None:
        state.planning.next = "first"
    else:
        _take_plan(state, requested.plan)
    return state


def fold(state: RunState, entry: ev.Entry) -> None:
    """Apply one entry, in place."""
    state.seq = entry.seq
    state.at = entry.at
    FOLDS[type(entry.event)](state, entry.event)
    timers = state.timers
    while timers and state.ordered[timers[0][1]].timer != timers[0][0]:
        heappop(timers)


def replay(entries: Sequence[ev.Entry]) -> RunState:
    """The state a journal amounts to."""
    state = begin(entries[0])
    for entry in entries[1:]:
        fold(state, entry)
    state.touched.clear()
    return state


def _take_plan(state: RunState, plan: Plan) -> None:
    state.combine = plan.combine
    state.closed = True
    state.approved = not state.requested.policy.approve
    add(state, plan.tasks)


# --- the supervisor's duties


def _supervision_started(state: RunState, event: ev.SupervisionStarted) -> None:
    held = event.reserve or NOTHING
    state.ledger.reserve(held)
    state.owe(Work(event.duty, event.task, event.number))
    if event.duty == "refine":
        progress = state.tasks[event.task]
        if progress.status is Status.REFINING:  # it is under way and holds more
            progress.held += held
            return
        del state.judged[event.task]
        progress.status = Status.REFINING
        progress.held = held
        attempts.set_timer(state, progress, event.until)
        return
    desk = _desk(state, event.duty)
    again = desk.redo or desk.open
    desk.open = True
    desk.redo = False
    desk.next = event.why
    desk.number = event.number
    desk.timer = event.until
    desk.held += held
    if event.duty == "plan" and event.why != "failed" and not again:
        state.round += 1
        state.fresh = 0
        if event.why == "replan":
            state.replans += 1
            state.closed = False
            desk.failures = 0
            desk.feedback = ()


def _desk(state: RunState, duty: ev.Duty) -> Desk:
    return state.planning if duty == "plan" else state.answering


def _close_desk(state: RunState, duty: ev.Duty, used: Amount | None) -> None:
    desk = _desk(state, duty)
    state.disown(Work(duty, NO_TASK, desk.number))
    state.ledger.settle(desk.held, used)
    desk.open = False
    desk.held = NOTHING
    desk.timer = 0.0
    desk.retry = False
    desk.next = None
    desk.failure = None


def _supervision_failed(state: RunState, event: ev.SupervisionFailed) -> None:
    if event.duty == "refine":
        attempts.close_refinement(state, state.tasks[event.task], event.used)
        return
    _close_desk(state, event.duty, event.used)
    desk = _desk(state, event.duty)
    desk.failures += 1
    state.starved = state.starved or event.failure.kind == "budget"
    desk.failure = event.failure
    desk.feedback = event.findings
    desk.next = "rejected" if event.findings else "failed"
    desk.retry = not event.findings


def _supervision_retry_scheduled(state: RunState, event: ev.SupervisionRetryScheduled) -> None:
    desk = _desk(state, event.duty)
    desk.timer = event.after
    desk.retry = False


def _tasks_added(state: RunState, event: ev.TasksAdded) -> None:
    if event.done and state.planning.open:
        _close_desk(state, "plan", event.used)
        state.planning.failures = 0
        state.planning.feedback = ()
    if event.done:
        state.closed = event.closed
        state.wake = event.wake
        state.planning.next = None if event.closed else "more"
    state.combine = event.combine or state.combine
    state.loop = event.loop or state.loop
    state.unserved = dict.fromkeys((*state.unserved, *event.unserved), state.round) | state.unserved
    if event.tasks:
        state.approved = not state.requested.policy.approve
    add(state, event.tasks)


def _answer_written(state: RunState, event: ev.AnswerWritten) -> None:
    _close_desk(state, "answer", event.used)
    state.answer = event.whole()
    state.answer_written = event
    state.answer_tracing = event.tracing
    state.answer_cut = event.cut
    state.answer_audit = event.audit


# --- tasks, outside their attempts


def _task_expanded(state: RunState, event: ev.TaskExpanded) -> None:
    progress = state.tasks[event.task]
    source = state.tasks[progress.task.for_each]
    del state.expandable[event.task]
    progress.status = Status.EXPANDED
    progress.items = event.count
    progress.items_open = event.count
    for index in range(event.count):
        task = structs.replace(progress.task, id=TaskId(f"{event.task}[{index}]"), replaces=NO_TASK)
        item = Progress(task, len(state.ordered), progress.round, rank=progress.rank, mother=progress, index=index)
        state.ordered.append(item)
        state.tasks[task.id] = item
        missing = undelivered_item(state, source, index)
        if missing is None:
            enqueue(state, item)
        else:
            state.doomed[task.id] = missing
    state.unsettled += event.count
    state.items += event.count
    if not event.count:
        state.joinable[event.task] = None


def _task_joined(state: RunState, event: ev.TaskJoined) -> None:
    del state.joinable[event.task]
    settle(state, state.tasks[event.task], Status.DONE)


def _result_reused(state: RunState, event: ev.ResultReused) -> None:
    progress = state.tasks[event.task]
    progress.result = event.result
    progress.items = event.items
    progress.tracing = event.tracing
    if event.missing is not None:
        progress.missing = event.missing
        state.partial[event.task] = None
    settle(state, progress, Status.DONE)


def _task_failed(state: RunState, event: ev.TaskFailed) -> None:
    progress = state.tasks[event.task]
    for pending in (state.judged, state.joinable, state.expandable):
        pending.pop(event.task, None)
    progress.failure = event.failure
    state.starved = state.starved or event.failure.kind == "budget"
    settle(state, progress, Status.FAILED)


def _task_skipped(state: RunState, event: ev.TaskSkipped) -> None:
    progress = state.tasks[event.task]
    state.doomed.pop(event.task, None)
    state.starved = state.starved or event.reason == "budget"
    progress.skipped = event.reason
    progress.because = event.because
    settle(state, progress, Status.SKIPPED)


# --- the run as a whole


def _give_time(state: RunState, seconds: Seconds) -> None:
    state.waited += seconds
    state.requested = structs.replace(state.requested, deadline=state.requested.deadline + seconds)


def _run_released(state: RunState, _event: ev.RunReleased) -> None:
    state.released_at = state.at


def _run_resumed(state: RunState, _event: ev.RunResumed) -> None:
    crashed = state.released_at is None
    if state.released_at is not None:
        stood_still = state.at - state.released_at
        _give_time(state, stood_still)
        state.asked_at += stood_still  # or an open question would give the same time back once more
        state.released_at = None
    for work in list(state.owing):
        if work.kind == "attempt":
            attempts.interrupt(state, state.tasks[work.task], crashed=crashed)
        elif work.kind == "refine":
            progress = state.tasks[work.task]
            attempts.close_refinement(state, progress, None)
            progress.refined = 0
        else:
            desk = _desk(state, work.kind)
            why = desk.next
            _close_desk(state, work.kind, None)
            desk.redo = True
            desk.next = why or "first"
    for breaker in state.breakers.values():
        forget_probe(breaker)
    state.refused.clear()  # somebody may have put that right


def _time_ran_out(state: RunState, _event: ev.TimeRanOut) -> None:
    state.time_up = True
    _stop_all(state)
    for progress in state.tasks.values():
        if progress.settled:
            continue
        tried = progress.attempt > 0
        progress.status = Status.FAILED if tried else Status.SKIPPED
        progress.timer = 0.0
        progress.skipped = None if tried else "deadline"
        if tried and (progress.failure is None or progress.failure.kind != "uncertain"):
            progress.failure = ev.Failure("deadline", "the time ran out before it was finished")
    state.unsettled = 0
    state.closed = True
    state.planning.next = None
    state.input = None
    for pending in (state.judged, state.doomed, state.expandable, state.joinable, state.lanes, state.timers):
        pending.clear()


def _stop_all(state: RunState) -> None:
    for work in list(state.owing):
        if work.kind == "attempt":
            progress = state.tasks[work.task]
            doubt = progress.in_doubt()
            attempts.close_attempt(state, progress, None)
            if doubt:
                progress.failure = attempts.DOUBT
        elif work.kind == "refine":
            attempts.close_refinement(state, state.tasks[work.task], None)
        else:
            _close_desk(state, work.kind, None)


def _run_ended(state: RunState, event: ev.RunEnded) -> None:
    _stop_all(state)
    state.ended = event


def _input_requested(state: RunState, event: ev.InputRequested) -> None:
    state.input = event
    state.asked = event.number
    state.asked_at = state.at
    if event.task:
        state.judged.pop(event.task, None)
        state.tasks[event.task].status = Status.ASKING


def _input_answered(state: RunState, event: ev.InputAnswered) -> None:
    asked = state.input
    assert asked is not None, "admit lets nobody answer what was not asked"
    state.input = None
    waited = state.at - state.asked_at
    _give_time(state, waited)  # the time a person takes is not the run's
    if asked.task:
        progress = state.tasks[asked.task]
        if asked.question is not None and asked.question.run:
            attempts.answered_inside(state, progress, event, asked.question)
        elif asked.what == "tool":
            attempts.call_judged(state, progress, event)
        else:
            attempts.doubt_resolved(state, progress, event)
    elif event.verdict == "approve":
        state.approved = True
    else:
        drop_round(state)
        if event.plan is not None:
            _take_plan(state, event.plan)
            state.approved = True
        else:
            finding = ev.Finding(
                code="rejected_by_person", place="plan", message=event.feedback or "A person rejected this plan."
            )
            state.closed = False
            state.planning.next = "rejected"
            state.planning.failures = 0
            state.planning.feedback = (finding,)
            state.unserved = {text: said for text, said in state.unserved.items() if said != state.round}


def _results_offered(state: RunState, event: ev.ResultsOffered) -> None:
    state.offers = {**{offer.key: (event.run, offer) for offer in event.offers}, **state.offers}
    state.again = state.requested.plan is not None
    state.unserved |= dict.fromkeys(event.unserved, state.round)


def _pause_set(state: RunState, event: ev.PauseSet) -> None:
    state.paused = event.paused


def _cancel_requested(state: RunState, event: ev.CancelRequested) -> None:
    state.cancel = event


FOLDS: dict[type, Callable[[RunState, Any], None]] = {
    ev.AttemptStarted: attempts.attempt_started,
    ev.AttemptSucceeded: attempts.attempt_succeeded,
    ev.AttemptFailed: attempts.attempt_failed,
    ev.StepStarted: attempts.step_started,
    ev.StepFinished: attempts.step_finished,
    ev.StepFailed: attempts.step_failed,
    ev.RetryScheduled: attempts.retry_scheduled,
    ev.BackoffEnded: attempts.backoff_ended,
    ev.TaskRefined: attempts.task_refined,
    ev.SupervisionStarted: _supervision_started,
    ev.SupervisionFailed: _supervision_failed,
    ev.SupervisionRetryScheduled: _supervision_retry_scheduled,
    ev.TasksAdded: _tasks_added,
    ev.AnswerWritten: _answer_written,
    ev.TaskExpanded: _task_expanded,
    ev.TaskJoined: _task_joined,
    ev.ResultReused: _result_reused,
    ev.TaskFailed: _task_failed,
    ev.TaskSkipped: _task_skipped,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
    ev.ResultsOffered: _results_offered,
    ev.RunResumed: _run_resumed,
    ev.RunReleased: _run_released,
    ev.PauseSet: _pause_set,
    ev.CancelRequested: _cancel_requested,
    ev.TimeRanOut: _time_ran_out,
    ev.RunEnded: _run_ended,
    **dict.fromkeys((ev.Noted, ev.PromptSent), lambda _state, _event: None),
}
"""One fold for each event; a test holds it against the union."""
