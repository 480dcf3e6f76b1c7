"""`fold`: what an entry makes of the state. It never refuses and never decides; a longer plan makes it no dearer."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from msgspec import structs

from chargehand.engine import breaker as breakers
from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker, forget_probe
from chargehand.engine.budget import NOTHING, Amount, Budget, CapReached, Ledger
from chargehand.engine.facts import CallsLost
from chargehand.engine.failure import EFFECT_IN_DOUBT, OUTAGES, STARTS_RUN, EarlierCall, PendingCall, StepKind
from chargehand.engine.plan import NO_TASK, Plan, Task, TaskId, in_order, needs
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import USUAL_SECONDS, Agent, breaker_name
from chargehand.engine.state import (
    FinishedCalls,
    Progress,
    RefusedCall,
    RunState,
    Status,
    Step,
    SupervisorDuty,
    Work,
    call_digest,
    candidates,
    dequeue,
    enqueue,
    prune,
    queue_key,
)
from chargehand.engine.value import encode_value

_EARLIER_RUN = -1
"""The round of calls that earlier runs made."""


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
        origin=requested.origin,
        origin_mark=requested.origin_mark or f"{requested.seed:x}",
    )
    if requested.plan is None:
        state.planning.next = "first"
    else:
        _take_plan(state, requested.plan)
    if requested.earlier is not None:
        for progress in state.tasks.values():
            _take_earlier(progress, requested.earlier, entry.at)
    _note_earlier_calls(state, requested.acted)
    state.replies = dict(requested.replies)
    return state


def _take_earlier(progress: Progress, earlier: ev.EarlierAttempts, now: Instant) -> None:
    """Go on where attempts in the run around this one left a task."""
    progress.earlier = earlier.calls
    progress.failed_calls = earlier.failed_calls or None
    if earlier.steps:
        progress.keep = True
        progress.steps = {
            step.number: Step(
                name=step.name,
                effect=step.effect,
                request=step.request,
                reserved=NOTHING,
                kind=step.kind,
                result=step.result,
                good=step.good,
                arguments=None if bytes(step.arguments) == b"null" else step.arguments,
                at=step.at or now,
                calls=step.calls,
            )
            for step in earlier.steps
        }
    progress.attempt = earlier.count
    progress.failure = earlier.failure
    progress.effects = dict(earlier.effects)
    progress.answers = dict(earlier.answers)
    progress.replies = dict(earlier.replies)
    progress.refused = earlier.refused


def fold(state: RunState, entry: ev.Entry) -> None:
    """Apply one entry, in place."""
    state.seq = entry.seq
    state.before = state.at
    state.at = entry.at
    event = entry.event
    FOLDS[type(event)](state, event)
    if type(event) in _COMMANDED and isinstance(event, ev.Commanded) and event.command:
        state.commands.add(event.command)
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
    _add(state, plan.tasks)


# --- the supervisor's duties


def _supervision_started(state: RunState, event: ev.SupervisionStarted) -> None:
    reserve = event.reserve or NOTHING
    state.ledger.reserve(reserve)
    state.owe(Work(event.duty, event.task, event.number))
    if event.duty == "refine":
        progress = state.tasks[event.task]
        if progress.status is Status.REFINING:  # it is under way and holds more
            progress.reserved += reserve
            progress.expected = event.expected
            return
        del state.failed_pending[event.task]
        progress.status = Status.REFINING
        progress.reserved = reserve
        progress.expected = event.expected
        _set_timer(state, progress, event.until)
        return
    duty = _duty_of(state, event.duty)
    again = duty.redo or duty.is_open
    duty.is_open = True
    duty.redo = False
    duty.next = event.why
    duty.number = event.number
    duty.timer = event.until
    duty.reserved += reserve
    duty.expected = event.expected
    if event.duty == "plan" and event.why != "failed" and not again:
        if event.why == "replan":
            _note_all_calls(state)
        state.round += 1
        state.settled_since_plan = 0
        if event.why == "replan":
            state.replans += 1
            state.closed = False
            duty.failures = 0
            duty.feedback = ()


def _duty_of(state: RunState, kind: ev.Duty) -> SupervisorDuty:
    return state.planning if kind == "plan" else state.answering


def _settle_calls(
    state: RunState, work: Work, reserved: Amount, expected: Amount | None, used: Amount | None, *, cut_off: bool
) -> None:
    """Book what a piece of the supervisor's work used.

    Of work that is cut off, the calls that came back cost what they cost. The others cost what they were expected to.
    """
    finished = state.finished_calls.pop(work, None)
    if not cut_off:
        state.ledger.settle(reserved, used)
    elif finished is None:
        state.ledger.lose(reserved, expected)
    else:
        # without an expectation there was one call, and it came back
        lost = NOTHING if expected is None else expected.beyond(finished.expected)
        state.ledger.settle(reserved, finished.used + lost)
        state.ledger.lost += lost


def _model_called(state: RunState, event: ev.ModelCalled) -> None:
    work = Work(event.duty, event.task, event.number)
    if event.duty == "attempt" or work not in state.owing:
        return
    if event.request and event.duty != "refine":
        duty = _duty_of(state, event.duty)
        duty.recorded = {**duty.recorded, event.request: (*duty.recorded.get(event.request, ()), event.reply)}
    if event.used is None:
        return
    before = state.finished_calls.get(work, FinishedCalls())
    state.finished_calls[work] = FinishedCalls(before.used + event.used, before.expected + (event.expected or NOTHING))


def _close_duty(state: RunState, kind: ev.Duty, used: Amount | None, *, cut_off: bool = False) -> None:
    duty = _duty_of(state, kind)
    state.disown(Work(kind, NO_TASK, duty.number))
    _settle_calls(state, Work(kind, NO_TASK, duty.number), duty.reserved, duty.expected, used, cut_off=cut_off)
    duty.is_open = False
    duty.reserved = NOTHING
    duty.expected = None
    duty.timer = 0.0
    duty.retry = False
    duty.next = None
    duty.failure = None


def _supervision_failed(state: RunState, event: ev.SupervisionFailed) -> None:
    cut_off = event.used is None and not event.findings  # a plan with findings is a reply that came back
    if event.duty == "refine":
        _close_refinement(state, state.tasks[event.task], event.used, cut_off=cut_off)
        return
    _close_duty(state, event.duty, event.used, cut_off=cut_off)
    duty = _duty_of(state, event.duty)
    if event.duty == "plan" and event.failure.kind == "approval":  # nothing failed: the planner asks a person
        duty.failure = event.failure
        duty.next = "rejected"
        return
    duty.failures += 1
    _record_cap(state, event.failure.cap, is_budget=event.failure.kind == "budget")
    duty.failure = event.failure
    duty.feedback = event.findings
    duty.next = "rejected" if event.findings else "failed"
    duty.retry = not event.findings


def _supervision_retry_scheduled(state: RunState, event: ev.SupervisionRetryScheduled) -> None:
    duty = _duty_of(state, event.duty)
    duty.timer = event.after
    duty.retry = False


def _tasks_added(state: RunState, event: ev.TasksAdded) -> None:
    if event.done and state.planning.is_open:
        _close_duty(state, "plan", event.used)
        state.planning.failures = 0
        state.planning.feedback = ()
        state.planning.recorded = {}
    if event.done:
        state.closed = event.closed
        state.wake = event.wake
        state.planning.next = None if event.closed else "more"
    state.combine = event.combine or state.combine
    state.loop = event.loop or state.loop
    state.fallback = event.fallback or state.fallback
    if event.tasks and not state.tasks and state.replans:  # the first round refused the request, and this one serves it
        state.unserved = {text: number for text, number in state.unserved.items() if number == state.round}
    state.unserved = dict.fromkeys((*state.unserved, *event.unserved), state.round) | state.unserved
    if event.tasks:
        state.approved = not state.requested.policy.approve
    elif event.done and all(progress.round != state.round for progress in state.tasks.values()):
        state.approved = True  # what is left was approved before
    _add(state, event.tasks)


def _answer_written(state: RunState, event: ev.AnswerWritten) -> None:
    _close_duty(state, "answer", event.used)
    state.answering.recorded = {}
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
        item = Progress(task, len(state.ordered), progress.round, rank=progress.rank, parent=progress, index=index)
        state.ordered.append(item)
        state.tasks[task.id] = item
        missing = _undelivered_item(state, source, index)
        if missing is None:
            enqueue(state, item)
        else:
            state.unreachable[task.id] = missing
    state.unsettled += event.count
    state.items += event.count
    if not event.count:
        state.joinable[event.task] = None


def _task_joined(state: RunState, event: ev.TaskJoined) -> None:
    del state.joinable[event.task]
    _settle(state, state.tasks[event.task], Status.DONE)


def _result_reused(state: RunState, event: ev.ResultReused) -> None:
    progress = state.tasks[event.task]
    offered = state.offers.get(event.key, ())
    left = tuple((run, offer) for run, offer in offered if (run, offer.task) != (event.run, event.source))
    if left:
        state.offers[event.key] = left
    else:
        state.offers.pop(event.key, None)
    progress.result = event.result
    progress.items = event.items
    progress.tracing = event.tracing
    if event.missing is not None:
        progress.missing = event.missing
        state.partial[event.task] = None
    _settle(state, progress, Status.DONE)


def _task_failed(state: RunState, event: ev.TaskFailed) -> None:
    progress = state.tasks[event.task]
    for pending in (state.failed_pending, state.joinable, state.expandable):
        pending.pop(event.task, None)
    progress.failure = event.failure
    _record_cap(state, event.failure.cap, is_budget=event.failure.kind == "budget")
    _fail(state, progress)


def _fail(state: RunState, progress: Progress) -> None:
    """Settle a task as failed. Its effects are not repeated unasked by tasks of later rounds."""
    for call in progress.list_calls():
        state.acted[call_digest(call.tool, call.arguments)] = (progress.round, call)
    calls = (*state.acted_in_task.get(progress.task.id, ()), *progress.list_calls())
    if calls:
        state.acted_in_vain.setdefault(progress.round, []).extend(calls)
    _settle(state, progress, Status.FAILED)


def _note_all_calls(state: RunState) -> None:
    """Have the tasks of the next round repeat no effect of a task so far unasked."""
    for progress in state.tasks.values():
        for call in progress.list_calls():
            state.acted[call_digest(call.tool, call.arguments)] = (progress.round, call)


def _note_earlier_calls(state: RunState, calls: Sequence[EarlierCall], run: str = "") -> None:
    """Have no task of this run repeat these calls unasked.

    Args:
        state: the state of this run.
        calls: calls of earlier runs.
        run: the run whose tasks correspond to the tasks of this run; empty: each run that made one of the calls.
    """
    for call in calls:
        state.acted[call_digest(call.tool, call.arguments)] = (_EARLIER_RUN, call)
        if not run or call.run == run:
            state.acted_in_task[call.task] = (*state.acted_in_task.get(call.task, ()), call)


def _task_skipped(state: RunState, event: ev.TaskSkipped) -> None:
    progress = state.tasks[event.task]
    state.unreachable.pop(event.task, None)
    _record_cap(state, event.cap, is_budget=event.reason == "budget")
    progress.skipped = event.reason
    progress.cap = event.cap
    progress.because = event.because
    _settle(state, progress, Status.SKIPPED)


def _record_cap(state: RunState, cap: CapReached | None, *, is_budget: bool) -> None:
    """Remember that the budget was too small for something, and which cap it was."""
    if is_budget:
        state.budget_hit = True
        state.cap_reached = cap or state.cap_reached


def _task_reassigned(state: RunState, event: ev.TaskReassigned) -> None:
    progress = state.tasks[event.task]
    is_ready = progress.status is Status.READY
    if is_ready:
        dequeue(state, progress)
    progress.task = structs.replace(progress.task, worker=event.worker, match=None)
    if is_ready:
        enqueue(state, progress)


# --- the run as a whole


def _give_time(state: RunState, seconds: Seconds) -> None:
    state.waited += seconds
    state.requested = structs.replace(state.requested, deadline=state.requested.deadline + seconds)


def _run_released(state: RunState, _event: ev.RunReleased) -> None:
    state.released_at = state.at


def _run_resumed(state: RunState, _event: ev.RunResumed) -> None:
    crashed = state.released_at is None
    stood_still = 0.0 if state.released_at is None else state.at - state.released_at
    if crashed and state.requested.parent is not None:
        stood_still = state.at - state.before  # the run around it, which a person may have kept waiting, bounds it
    if stood_still:
        _give_time(state, stood_still)
        state.asked_at += stood_still  # or an open question would give the same time back once more
    state.released_at = None
    for work in list(state.owing):
        if work.kind == "attempt":
            _interrupt(state, state.tasks[work.task], crashed=crashed)
        elif work.kind == "refine":
            progress = state.tasks[work.task]
            _close_refinement(state, progress, None, cut_off=True)
            progress.refined = 0
        else:
            duty = _duty_of(state, work.kind)
            why = duty.next
            _close_duty(state, work.kind, None, cut_off=True)
            duty.redo = True
            duty.next = why or "first"
    for breaker in state.breakers.values():
        forget_probe(breaker)
    state.refused.clear()  # a person may have put that right
    for attempt, held in state.stopping.items():  # the process that waited for them is gone
        state.left_runs[attempt] = held != NOTHING
    _lose_stopped(state)


def _time_ran_out(state: RunState, _event: ev.TimeRanOut) -> None:
    state.time_up = True
    # an answer that waits for no task goes on: it would only be written anew
    goes_on = state.answering.is_open and not state.unsettled
    _stop_all(state, but="answer" if goes_on else "")
    for progress in state.tasks.values():
        if progress.settled:
            continue
        tried = progress.attempt > 0
        was_judged = progress.status in (Status.JUDGED, Status.ASKING)
        was_in_doubt = was_judged and progress.failure is not None and progress.failure.kind == "uncertain"
        progress.status = Status.FAILED if tried else Status.SKIPPED
        progress.timer = 0.0
        progress.skipped = None if tried else "deadline"
        if tried and not was_in_doubt and not progress.in_doubt():
            progress.failure = ev.Failure("deadline", "the time ran out before it was finished")
    state.unsettled = 0
    state.closed = True
    state.planning.next = None
    state.input = None
    state.failed_pending.clear()
    state.unreachable.clear()
    state.expandable.clear()
    state.joinable.clear()
    state.ready_queues.clear()
    state.timers.clear()


_STOP_PATIENCE: Seconds = 5.0
"""How long the runs inside attempts that were stopped are waited for."""


def _await_nested_end(state: RunState, progress: Progress) -> None:
    """Have the end of the run wait for the runs inside an attempt that is stopped: they may have effects in doubt.

    What is reserved for them stays so until it is known what they used.
    """
    steps = [step for step in (progress.steps or {}).values() if step.result is None and step.kind in STARTS_RUN]
    if steps:
        held = NOTHING
        for step in steps:
            if step.resumable:
                held += step.reserved
                step.reserved = step.expected = NOTHING
        _await_end_inside(state, progress.task.id, progress.attempt, held)


def _await_end_inside(state: RunState, task: TaskId, attempt: int, held: Amount | None) -> None:
    state.stopping[task, attempt] = held
    state.stopping_until = state.at + min(_STOP_PATIENCE, state.requested.policy.answer / 2)
    state.touched.append(Work("attempt", task, attempt))


def _lose_stopped(state: RunState) -> None:
    """Charge what is reserved for runs inside attempts that were stopped: nobody waits for them any more."""
    for held in state.stopping.values():
        state.ledger.lose(held or NOTHING, None)
    state.stopping.clear()


def _work_stopped(state: RunState, _event: ev.WorkStopped) -> None:
    _stop_all(state)


def _attempt_stopped(state: RunState, event: ev.AttemptStopped) -> None:
    held = state.stopping.pop((event.task, event.attempt))
    if held is None:
        pass  # what it used was charged when the process died
    elif event.used is None:
        state.ledger.lose(held, None)
    else:
        state.ledger.settle(held, event.used)
        state.ledger.lost += event.lost or NOTHING
    progress = state.tasks[event.task]
    progress.gaps_inside += event.gaps


def _stop_all(state: RunState, *, but: str = "") -> None:
    """Stop all work under way but that of one kind."""
    for work in list(state.owing):
        if work.kind == but:
            continue
        if work.kind == "attempt":
            progress = state.tasks[work.task]
            _await_nested_end(state, progress)
            doubt = progress.in_doubt()
            _close_attempt(state, progress, None, cut_off=True)
            if doubt:
                progress.failure = EFFECT_IN_DOUBT
        elif work.kind == "refine":
            _close_refinement(state, state.tasks[work.task], None, cut_off=True)
        else:
            _close_duty(state, work.kind, None, cut_off=True)
    for (task, attempt), is_charged in state.left_runs.items():
        held = _take_carried(state, state.tasks[task])
        _await_end_inside(state, task, attempt, None if is_charged else held)
    state.left_runs.clear()
    for task in list(state.carrying):
        _lose_carried(state, state.tasks[task])


def _run_ended(state: RunState, event: ev.RunEnded) -> None:
    _stop_all(state)
    _lose_stopped(state)
    state.ended = event


def _input_requested(state: RunState, event: ev.InputRequested) -> None:
    state.input = event
    state.asked = event.number
    state.asked_at = state.at
    is_own_doubt = event.what == "effect" and event.question is not None and not event.question.run
    tasks = [call.task for call in event.calls] if is_own_doubt else [event.task]
    for task in tasks if event.task else ():
        state.failed_pending.pop(task, None)
        state.tasks[task].status = Status.ASKING


def _input_answered(state: RunState, event: ev.InputAnswered) -> None:
    question = state.input
    assert question is not None, "admit lets only an open question be answered"
    state.input = None
    if event.budget is not None:
        _limit_budget(state, event.budget)
    waited = state.at - state.asked_at
    _give_time(state, waited)  # the time a person takes is not the run's
    if question.task:
        progress = state.tasks[question.task]
        if question.question is not None and question.question.run:
            _answered_inside(state, progress, event, question.question)
        elif question.what in ("tool", "question"):
            _call_judged(state, progress, event, question)
        elif question.question is None or not question.question.step:
            _doubt_of_task_resolved(state, progress, event)
        else:
            _doubt_resolved(state, event, question)
    elif question.what == "question":
        said = encode_value(event.result if event.verdict == "answer" else _refusal(event))
        state.planning.replies = {**state.planning.replies, question.text: said}
        state.planning.failure = None
    elif event.verdict == "approve":
        state.approved = True
    else:
        _drop_round(state)
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
            state.unserved = {text: number for text, number in state.unserved.items() if number != state.round}


def _limit_budget(state: RunState, budget: Budget) -> None:
    """Lower the caps of a nested run to what the run around it holds for it now."""
    lower = state.requested.budget.limited(budget.caps)
    state.requested = structs.replace(state.requested, budget=lower)
    state.ledger.budget = lower


def _results_offered(state: RunState, event: ev.ResultsOffered) -> None:
    offers = dict(state.offers)
    for offer in event.offers:
        offers[offer.key] = (*offers.get(offer.key, ()), (event.run, offer))
    state.offers = offers
    state.offered_by = (*state.offered_by, event.run)
    state.is_rerun = state.requested.plan is not None
    state.unserved |= dict.fromkeys(event.unserved, state.round)
    state.origin = event.origin or state.origin
    state.origin_mark = event.origin_mark or state.origin_mark
    _note_earlier_calls(state, event.calls, event.run)
    state.offered_replies |= event.replies
    state.planning.replies = {**event.replies.get(NO_TASK, {}), **state.planning.replies}


def _pause_set(state: RunState, event: ev.PauseSet) -> None:
    state.paused = event.paused


def _noted(state: RunState, event: ev.Noted) -> None:
    if isinstance(event.fact, CallsLost):
        state.ledger.lost += event.fact.used


def _cancel_requested(state: RunState, event: ev.CancelRequested) -> None:
    state.cancel = event


# --- attempts, steps, retries and refinements


_ASKS_MODEL: frozenset[StepKind] = frozenset(("model", "summary", "make_worker"))
"""The steps that call the model of a worker."""


def _attempt_started(state: RunState, event: ev.AttemptStarted) -> None:
    progress = state.tasks[event.task]
    key = queue_key(progress)
    if progress.worker and progress.worker != event.worker:
        progress.tried = (*progress.tried, progress.worker)
        progress.failures = 0
        _forget_steps(progress)
    if not progress.steps and not progress.keep and (progress.calls or state.acted_in_task or state.acted_in_vain):
        _note_calls_before(state, progress)
    if not progress.redo:
        progress.failure_before = progress.failure
        progress.handed_on = None  # the nested run of this attempt numbers its own questions
    else:
        state.left_runs.pop((event.task, event.attempt), None)
    if progress.steps:
        progress.looks += progress.can_look_up()
    if progress.gaps_waiting:
        _take_up_waiting(progress, event.attempt)
    progress.attempt = event.attempt
    progress.worker = event.worker
    progress.redo = False
    progress.status = Status.RUNNING
    prune(state, key)
    _set_timer(state, progress, event.until)
    if event.reserve is not None:
        progress.reserved = event.reserve
        progress.expected = event.expected
        state.ledger.reserve(event.reserve)
    state.running += 1
    state.load[event.worker] = state.load.get(event.worker, 0) + 1
    progress.probing = 0.0
    for name in event.probes:
        breakers.lease(state.breakers[name], state.at, state.requested.policy.breaking)
        progress.probing = state.breakers[name].leased
    if progress.taken is None and progress.task.quorum:
        quorum = (need_id for need_id, need in needs(progress.task) if need == "quorum")
        progress.taken = tuple(need_id for need_id in quorum if state.tasks[need_id].status is Status.DONE)
    state.owe(Work("attempt", event.task, event.attempt))


def _take_up_waiting(progress: Progress, attempt: int) -> None:
    """Go on with the nested run that waited for a person; where another attempt begins, its gaps stay."""
    if attempt != progress.attempt:
        progress.gaps_inside += progress.gaps_waiting
    progress.gaps_waiting = ()


def _note_calls_before(state: RunState, progress: Progress) -> None:
    """Tell an attempt that begins anew which calls were made before it. An attempt elsewhere was told with its run."""
    if state.requested.earlier is None:
        in_vain: list[EarlierCall] = []
        for round_, calls in state.acted_in_vain.items():
            in_vain += calls if round_ < progress.round else ()
        progress.earlier = progress.calls + state.acted_in_task.get(progress.task.id, ()) + tuple(in_vain)


def _set_timer(state: RunState, progress: Progress, at: Instant) -> None:
    progress.timer = at
    heappush(state.timers, (at, progress.order))


def _close_attempt(
    state: RunState, progress: Progress, used: Amount | None, *, cut_off: bool = False, carries: bool = False
) -> None:
    """Charge what an attempt used.

    Args:
        state: The run.
        progress: The task of the attempt.
        used: What the attempt itself used, besides its steps; None: what is reserved for it.
        cut_off: It was stopped before it could say what it used.
        carries: It is resumed: nested runs keep what is reserved for them.
    """
    state.running -= 1
    state.load[progress.worker] -= 1
    progress.timer = 0.0
    for number, step in (progress.steps or {}).items():
        if step.result is None:
            if carries and step.resumable and step.reserved != NOTHING:
                progress.carried = {**(progress.carried or {}), number: step.reserved}
                state.carrying[progress.task.id] = None
            else:
                state.ledger.lose(step.reserved, step.expected)
            step.reserved = NOTHING  # an effect in doubt stays open
            step.expected = NOTHING
    if not carries and progress.carried:
        _lose_carried(state, progress)
    if cut_off and progress.reserved is not NOTHING:
        state.ledger.lose(progress.reserved, progress.expected)
        progress.reserved = NOTHING
    elif used is not None or progress.reserved is not NOTHING:
        state.ledger.settle(progress.reserved, used)
        progress.reserved = NOTHING
    state.disown(Work("attempt", progress.task.id, progress.attempt))


def _lose_carried(state: RunState, progress: Progress) -> None:
    """Charge what is reserved for nested runs that are not resumed: what they used is not known."""
    state.ledger.lose(_take_carried(state, progress), None)


def _take_carried(state: RunState, progress: Progress) -> Amount:
    """Return what is reserved for nested runs of an attempt that was cut off, which no longer carries it."""
    held = NOTHING
    for reserved in (progress.carried or {}).values():
        held += reserved
    progress.carried = None
    state.carrying.pop(progress.task.id, None)
    return held


def _step_started(state: RunState, event: ev.StepStarted) -> None:
    progress = state.tasks[event.task]
    if progress.reserved is not NOTHING:  # from its first step on an attempt reserves call by call
        state.ledger.settle(progress.reserved, NOTHING)
        progress.reserved = NOTHING
    if progress.steps is None:
        progress.steps = {}
    if progress.carried:
        _release_carried(state, progress, event.step)
    reserve = event.reserve or NOTHING
    state.ledger.reserve(reserve)
    if event.effect != "read":
        progress.acts = True
    progress.steps[event.step] = Step(
        event.name,
        event.effect,
        event.request,
        reserve,
        event.kind,
        key=event.key,
        arguments=event.arguments if event.effect != "read" and bytes(event.arguments) != b"null" else None,
        at=state.at,
        look=event.look,
        expected=event.expected,
        resumable=event.resumable,
    )


def _release_carried(state: RunState, progress: Progress, number: int) -> None:
    """Give back what was carried for a step that is begun again: the step says itself what it reserves."""
    carried = progress.carried or {}
    state.ledger.settle(carried.get(number, NOTHING), NOTHING)
    progress.carried = {step: reserved for step, reserved in carried.items() if step != number} or None
    if progress.carried is None:
        state.carrying.pop(progress.task.id, None)


def _step_finished(state: RunState, event: ev.StepFinished) -> None:
    progress = state.tasks[event.task]
    assert progress.steps is not None, "admit lets no step finish that did not start"
    step = progress.steps[event.step]
    step.result = event.result
    step.good = event.good
    step.calls = event.calls
    state.ledger.settle(step.reserved, event.used)
    if progress.refusals and event.good and step.effect != "read":
        made = call_digest(step.name, step.decoded_arguments)
        progress.refusals = tuple(
            refused for refused in progress.refusals if call_digest(refused.tool, refused.arguments) != made
        )


def _step_looked_up(state: RunState, event: ev.StepLookedUp) -> None:
    steps = state.tasks[event.task].steps
    assert steps is not None, "admit lets no step be looked up that did not start"
    if event.outcome == "absent":
        del steps[event.step]
    else:
        steps[event.step].look = False


def _step_failed(state: RunState, event: ev.StepFailed) -> None:
    steps = state.tasks[event.task].steps
    assert steps is not None, "admit lets no step fail that did not start"
    step = steps[event.step]
    state.ledger.settle(step.reserved, event.used)
    step.reserved = NOTHING  # it stays open: its attempt fails with it
    step.expected = NOTHING


def _attempt_succeeded(state: RunState, event: ev.AttemptSucceeded) -> None:
    progress = state.tasks[event.task]
    _close_attempt(state, progress, event.used)
    progress.result = event.result
    progress.items = event.items
    if progress.acts:
        progress.calls = progress.list_calls()
    progress.steps = None
    progress.tracing = event.tracing
    if event.missing is not None:
        progress.missing = event.missing
        state.partial[event.task] = None
    if state.breakers:
        name = breaker_name(state.agents[progress.worker])
        if name in state.breakers:
            breakers.note(state.breakers[name], state.at, state.requested.policy.breaking, good=True)
    _settle(state, progress, Status.DONE)


def _attempt_failed(state: RunState, event: ev.AttemptFailed) -> None:
    progress = state.tasks[event.task]
    if any(step.kind in STARTS_RUN for step in event.failure.running):
        _await_nested_end(state, progress)
    _close_attempt(state, progress, event.used, cut_off=event.used is None)
    _count_failure(state, progress, event.failure)
    if event.failure.kind == "approval":  # nothing failed: it waits for a person, and keeps its steps
        progress.gaps_waiting = event.failure.gaps
        progress.failure = event.failure
        progress.status = Status.JUDGED
        progress.steps = _kept_steps(progress)
        state.failed_pending[event.task] = None
        return
    _note_refusal(state, progress, event.failure)
    refused = [gap for gap in event.failure.gaps if gap.status == "refused" and gap not in progress.gaps_inside]
    progress.gaps_inside += tuple(refused)  # the next attempt may succeed without the call
    if event.refused:
        progress.refused = (*progress.refused, event.refused)
    _judge(state, progress, event.failure)


def _count_failure(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    """Only an outage counts for a breaker: whatever else failed, no waiting would mend it."""
    agent = state.agents[progress.worker]
    name = breaker_name(agent)
    if failure.kind in OUTAGES and not _is_hung_tool(agent, failure):
        breaker = state.breakers.setdefault(name, Breaker(model=agent.model, worker="" if agent.model else agent.name))
        breakers.note(breaker, state.at, state.requested.policy.breaking, good=False)
        return
    breaker = state.breakers.get(name)
    limited = failure.kind == "resource" and not failure.permanent  # asked too much: not the moment to ask again
    if breaker is not None and progress.probing and breaker.leased == progress.probing and not limited:
        breakers.forget_probe(breaker)  # it says nothing of the line: the next attempt is the probe


def _is_hung_tool(agent: Agent, failure: ev.Failure) -> bool:
    """Whether the time of an attempt was over while its model had answered: what hung says nothing of the model."""
    return bool(agent.model and failure.running) and not any(step.kind in _ASKS_MODEL for step in failure.running)


def _note_refusal(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    """Remember a model whose provider refuses every call. What it says of one request, it says of no other."""
    refusal = failure.refusal
    if refusal is None or refusal.cause == "request":
        return
    if refusal.model == state.agents[progress.worker].model:
        state.refused.setdefault(refusal.model, progress.task.id)


def _judge(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    """Mark an attempt as failed. Its steps stay until it is decided how the task goes on."""
    progress.failure = failure
    progress.steps = _kept_steps(progress)
    progress.resumes = 0
    progress.crashes = 0
    progress.failures += failure.kind != "uncertain"
    progress.status = Status.JUDGED
    state.failed_pending[progress.task.id] = None


def _forget_steps(progress: Progress) -> None:
    """Keep of the last attempt only what it changed in the world: the next one begins anew, and is told."""
    progress.failed_calls = progress.count_failed_calls() or None
    progress.effects = progress.list_effects() or None
    progress.calls = progress.list_calls()
    progress.steps = None
    progress.keep = False


def _retry_scheduled(state: RunState, event: ev.RetryScheduled) -> None:
    progress = state.tasks[event.task]
    state.failed_pending.pop(event.task, None)
    progress.keep = event.keep
    if event.keep:
        for step in (progress.steps or {}).values():
            if step.kind in STARTS_RUN:
                progress.calls += tuple(call for call in step.calls if call not in progress.calls)
        progress.steps = _steps_to_go_on_from(progress)
    else:
        _forget_steps(progress)
    if event.worker:
        progress.tried = (*progress.tried, progress.worker)
        progress.failures = 0
        progress.worker = event.worker
    if event.after > state.at:
        progress.status = Status.BACKING_OFF
        _set_timer(state, progress, event.after)
    else:
        enqueue(state, progress)


def _backoff_ended(state: RunState, event: ev.BackoffEnded) -> None:
    progress = state.tasks[event.task]
    progress.timer = 0.0
    enqueue(state, progress)


def _task_refined(state: RunState, event: ev.TaskRefined) -> None:
    progress = state.tasks[event.task]
    progress.instruction = event.instruction
    _close_refinement(state, progress, event.used)


def _close_refinement(state: RunState, progress: Progress, used: Amount | None, *, cut_off: bool = False) -> None:
    work = Work("refine", progress.task.id, progress.failures)
    state.disown(work)
    _settle_calls(state, work, progress.reserved, progress.expected, used, cut_off=cut_off)
    progress.reserved = NOTHING
    progress.expected = None
    progress.timer = 0.0
    progress.refined = progress.failures
    progress.status = Status.JUDGED
    state.failed_pending[progress.task.id] = None


def _interrupt(state: RunState, progress: Progress, *, crashed: bool) -> None:
    """The process ended under an attempt: take it up again with the steps it had, unless an effect is in doubt.

    Only crashes are counted, and not while it waits for a run of its own, which counts them itself. An attempt that is
    interrupted by orderly stops is bounded by the deadline of the run.
    """
    counts = crashed and not progress.waits_for_run()
    goes_on = progress.can_look_up() or not progress.in_doubt()
    nested = [step for step in (progress.steps or {}).values() if step.result is None and step.kind in STARTS_RUN]
    if nested:
        is_carried = goes_on and all(step.resumable for step in nested)
        is_charged = not is_carried and any(step.reserved != NOTHING for step in nested)
        state.left_runs[progress.task.id, progress.attempt] = is_charged
    _close_attempt(state, progress, None, cut_off=True, carries=goes_on)
    progress.resumes += 1
    progress.crashes += counts
    if not goes_on:
        _judge(state, progress, EFFECT_IN_DOUBT)
    else:
        progress.steps = _kept_steps(progress)
        progress.redo = True
        enqueue(state, progress)


def _attempt_abandoned(state: RunState, event: ev.AttemptAbandoned) -> None:
    progress = state.tasks[event.task]
    progress.redo = False
    _lose_carried(state, progress)
    _judge(state, progress, event.failure)
    prune(state, queue_key(progress))


def _kept_steps(progress: Progress) -> dict[int, Step]:
    """Return the finished steps of an attempt, which are not repeated, and the effects in doubt."""
    steps = (progress.steps or {}).items()
    return {number: step for number, step in steps if step.result is not None or step.effect == "effect"}


def _steps_to_go_on_from(progress: Progress) -> dict[int, Step]:
    """Return the steps that a retry goes on from: all but the runs that did the whole attempt, which failed."""
    steps = (progress.steps or {}).items()
    return {number: step for number, step in steps if step.kind not in STARTS_RUN}


def _note_verdict(
    progress: Progress, call: PendingCall, verdict: ev.InputAnswered | ev.CallVerdict, answers: dict[str, str]
) -> None:
    answers[call.key] = _refusal(verdict)
    if answers[call.key]:
        progress.refusals = (*progress.refusals, RefusedCall(call.tool, call.arguments, answers[call.key]))


def _call_judged(state: RunState, progress: Progress, event: ev.InputAnswered, asked: ev.InputRequested) -> None:
    """Go on with an attempt whose calls a person approved or refused."""
    assert progress.failure is not None, "it said what it wants to call"
    question = progress.failure.question or ev.Question()
    verdicts: dict[int, ev.InputAnswered | ev.CallVerdict] = {verdict.call: verdict for verdict in event.also}
    answers = {**(progress.answers or {}), question.key: _refusal(event)}
    if asked.what == "tool":
        verdicts[asked.calls[0].call] = event
        for call in asked.calls:
            if call.call in verdicts:
                _note_verdict(progress, call, verdicts[call.call], answers)
    progress.answers = answers
    if event.verdict == "answer":
        progress.replies = {**(progress.replies or {}), question.key: encode_value(event.result)}
    progress.failure = progress.failure_before
    progress.redo = True
    enqueue(state, progress)


def _refusal(answer: ev.InputAnswered | ev.CallVerdict) -> str:
    """Why a call may not be made; empty when it may."""
    return "" if answer.verdict in ("approve", "answer") else answer.feedback or "no reason was given"


def _answered_inside(state: RunState, progress: Progress, event: ev.InputAnswered, question: ev.Question) -> None:
    """A person answered what a run inside asks: the attempt goes on where it was, and hands the answer on."""
    progress.handed_on = structs.replace(event, number=question.number)
    progress.failure = progress.failure_before
    progress.redo = True
    progress.resumes += 1
    enqueue(state, progress)


def _doubt_resolved(state: RunState, event: ev.InputAnswered, asked: ev.InputRequested) -> None:
    """Apply what a person knows of effects in doubt, and go on with each attempt that has none left."""
    verdicts: dict[int, ev.InputAnswered | ev.CallVerdict] = {verdict.call: verdict for verdict in event.also}
    verdicts[asked.calls[0].call] = event
    failed: set[TaskId] = set()
    for call in asked.calls:
        verdict = verdicts.get(call.call)
        steps = state.tasks[call.task].steps
        assert steps is not None, "an effect in doubt is a step"
        if verdict is None:
            continue
        if verdict.verdict == "done":
            steps[call.step].answer(verdict.result)
        elif verdict.verdict == "again":
            del steps[call.step]
        else:
            failed.add(call.task)
    for task in dict.fromkeys(call.task for call in asked.calls):
        progress = state.tasks[task]
        if task in failed:
            _fail(state, progress)
        elif progress.in_doubt():
            progress.status = Status.JUDGED
            state.failed_pending[task] = None
        else:
            progress.failure = progress.failure_before
            progress.redo = True
            progress.resumes += 1
            enqueue(state, progress)


def _doubt_of_task_resolved(state: RunState, progress: Progress, event: ev.InputAnswered) -> None:
    """Fold an answer to a question that names no call, as journals of earlier versions have it."""
    if event.verdict == "done":
        progress.result = encode_value(event.result)
        _settle(state, progress, Status.DONE)
    elif event.verdict == "again":
        _forget_steps(progress)
        enqueue(state, progress)
    else:
        _settle(state, progress, Status.FAILED)


# --- the graph of tasks: how it grows, and what a settled task means to those that read it


def _add(state: RunState, tasks: Sequence[Task]) -> None:
    first = len(state.ordered)
    for task in tasks:
        progress = Progress(task, len(state.ordered), state.round)
        state.ordered.append(progress)
        state.tasks[task.id] = progress
    state.unsettled += len(tasks)
    added = state.ordered[first:]
    reading = [progress for progress in added if progress.task.after or progress.task.for_each]
    is_sorted = True
    for progress in reading:
        is_sorted = _link_inputs(state, progress) and is_sorted
    _rank(state, added if is_sorted else [state.tasks[task.id] for task in in_order(tasks)[0]])
    for progress in reading if first else ():
        for need_id, need in needs(progress.task):
            needed = state.tasks[need_id]
            if needed.settled and progress.status is Status.WAITING:
                _input_settled(state, progress, need, needed)
    for progress in added:
        if progress.unmet == 0 and progress.status is Status.WAITING:
            _inputs_met(state, progress)


def _link_inputs(state: RunState, progress: Progress) -> bool:
    """Make a task wait for its inputs; whether all of them stand before it."""
    is_sorted = True
    for need_id, need in needs(progress.task):
        needed = state.tasks[need_id]
        is_sorted = is_sorted and needed.order < progress.order
        needed.add_reader(progress, need)
        progress.unmet += need != "quorum"
        progress.spare += need == "quorum"
    if progress.spare:
        progress.wanted = progress.task.quorum
        progress.unmet += 1
        progress.spare -= progress.wanted
    return is_sorted


def _rank(state: RunState, line: Sequence[Progress]) -> None:
    """Rank new tasks, inputs before their readers, by the time from their start to the end of the longest chain."""
    for progress in reversed(line):
        progress.rank = _seconds(state, progress.task)
        if progress.readers:
            progress.rank += max([reader.rank for reader, _ in progress.readers])


def _seconds(state: RunState, task: Task) -> float:
    if task.seconds is not None:
        return task.seconds
    workers = candidates(state, task.worker or task.match)
    seconds = state.agents[workers[0]].seconds
    return USUAL_SECONDS if seconds is None else seconds


def _drop_round(state: RunState) -> None:
    for progress in [each for each in state.tasks.values() if each.round == state.round]:
        state.unsettled -= not progress.settled
        progress.status = Status.DROPPED
        del state.tasks[progress.task.id]
        for pending in (state.unreachable, state.expandable):
            pending.pop(progress.task.id, None)
    for key in list(state.ready_queues):
        prune(state, key)


def _settle(state: RunState, progress: Progress, status: Status) -> None:
    waited = progress.status is Status.READY
    if progress.carried:
        _lose_carried(state, progress)
    progress.status = status
    progress.timer = 0.0
    if waited:  # it settles without ever having been started
        prune(state, queue_key(progress))
    state.unsettled -= 1
    state.settled_since_plan += 1
    parent = progress.parent
    if parent is not None:
        parent.items_open -= 1
        parent.items_done += status is Status.DONE
        if not parent.items_open:
            state.joinable[parent.task.id] = None
    for reader, need in progress.readers or ():
        if reader.status is Status.WAITING:
            _input_settled(state, reader, need, progress)
            if not reader.unmet:
                _inputs_met(state, reader)


def _input_settled(state: RunState, reader: Progress, need: str, needed: Progress) -> None:
    good = needed.status is Status.DONE
    if needed.skipped == "person" and need == "required" and reader.task.for_each != needed.task.id:
        need = "optional"  # who skips a task wants the others to go on without it
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
        state.unreachable.setdefault(reader.task.id, needed.task.id)


def _inputs_met(state: RunState, progress: Progress) -> None:
    if progress.task.for_each:
        progress.status = Status.EXPANDED
        state.expandable[progress.task.id] = None
    else:
        enqueue(state, progress)


def _undelivered_item(state: RunState, source: Progress, index: int) -> TaskId | None:
    """The item task of a repeated source that has no result to go on from; None where there is an element.

    A source that returned a list itself has all of its elements.
    """
    if source.result is not None:
        return None
    item = state.tasks[TaskId(f"{source.task.id}[{index}]")]
    return None if item.status is Status.DONE else item.task.id


FOLDS: dict[type, Callable[[RunState, Any], None]] = {
    ev.AttemptStarted: _attempt_started,
    ev.AttemptSucceeded: _attempt_succeeded,
    ev.AttemptFailed: _attempt_failed,
    ev.AttemptAbandoned: _attempt_abandoned,
    ev.AttemptStopped: _attempt_stopped,
    ev.WorkStopped: _work_stopped,
    ev.StepStarted: _step_started,
    ev.StepFinished: _step_finished,
    ev.StepFailed: _step_failed,
    ev.StepLookedUp: _step_looked_up,
    ev.RetryScheduled: _retry_scheduled,
    ev.BackoffEnded: _backoff_ended,
    ev.TaskRefined: _task_refined,
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
    ev.TaskReassigned: _task_reassigned,
    ev.InputRequested: _input_requested,
    ev.InputAnswered: _input_answered,
    ev.ResultsOffered: _results_offered,
    ev.RunResumed: _run_resumed,
    ev.RunReleased: _run_released,
    ev.PauseSet: _pause_set,
    ev.CancelRequested: _cancel_requested,
    ev.TimeRanOut: _time_ran_out,
    ev.RunEnded: _run_ended,
    ev.Noted: _noted,
    ev.ModelCalled: _model_called,
    ev.PromptSent: lambda _state, _event: None,
}
"""One fold for each event; a test holds it against the union."""
_COMMANDED = frozenset(kind for kind in FOLDS if issubclass(kind, ev.Commanded))
"""The events that carry out a command: few, so that most are not asked for it."""
