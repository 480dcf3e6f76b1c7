"""`decide`: what follows from what is so. Called until it returns nothing; looks only at what changed.

It changes nothing itself. What one call returns may be folded in order without asking again in between.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from chargehand.engine import breaker as breakers
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, CapReached
from chargehand.engine.failure import (
    LINE_FAILURES,
    OpenStep,
    PendingCall,
    Question,
    describe_call,
    effect_in_doubt,
)
from chargehand.engine.plan import NO_TASK, Task, TaskId
from chargehand.engine.policy import Instant, Seconds, backoff
from chargehand.engine.roster import Agent, best_fit, breaker_name
from chargehand.engine.state import Progress, ReadyQueue, RunState, Status, SupervisorDuty, line_of, urgent_first
from chargehand.engine.view import (
    answer_until,
    callers_tools,
    cut_gaps,
    gaps,
    key_of,
    missing_gaps,
    refused_gaps,
    time_cap,
    untraced_gaps,
    unwritten_gap,
    work_until,
)

_FALLBACK_SECONDS: Seconds = 10.0
"""The time that the planner leaves for the task of a fallback plan."""
_FALLBACK_SHARE = 0.2
"""The largest share of the run's time that is left for it."""
_UNREACHABLE = frozenset(("network", "timeout", "resource"))
"""The kinds of failure after which the same model is not asked to do the work either."""


def decide(state: RunState, now: Instant) -> list[ev.Event]:
    """The facts that follow by themselves, given the time."""
    if state.ended is not None:
        return []
    if state.cancel is not None or state.time_up:
        return _timed_out(state, now) or _supervise(state, now)
    last = work_until(state)
    is_late = now >= last
    if is_late and state.input is None:  # the clock of a run stands still while a person is asked
        return [ev.TimeRanOut()]
    events = _timed_out(state, now)
    if events:
        return events
    if state.unreachable or state.failed_pending or state.expandable or state.joinable:
        events = _consequences(state, now, is_late=is_late)
        if events:
            return events
    if state.ready_queues and state.approved and not state.paused and not is_late:
        events = _starts(state, now, last)
        if events:
            return events
    return _supervise(state, now)


def _timed_out(state: RunState, now: Instant) -> list[ev.Event]:
    """What has run out of its time: duties of the supervisor, and the task whose timer is due first."""
    events: list[ev.Event] = []
    if state.planning.is_open and now >= state.planning.timer:
        events.append(ev.SupervisionFailed("plan", state.planning.number, _timeout_of("plan")))
    if state.answering.is_open and now >= state.answering.timer:
        events.append(ev.SupervisionFailed("answer", state.answering.number, _timeout_of("answer")))
    if state.timers and now >= state.timers[0][0]:
        events.append(_task_timer(state.ordered[state.timers[0][1]]))
    return events


def _task_timer(progress: Progress) -> ev.Event:
    task = progress.task.id
    if progress.status is Status.BACKING_OFF:
        return ev.BackoffEnded(task)
    if progress.status is Status.REFINING:
        return ev.SupervisionFailed("refine", progress.failures, _timeout_of("refine"), task)
    timeout = _timeout_of("work", progress.running_steps())
    return ev.AttemptFailed(task, progress.attempt, effect_in_doubt(timeout) if progress.in_doubt() else timeout)


def _timeout_of(what: str, running: tuple[OpenStep, ...] = ()) -> ev.Failure:
    message = f"the time allowed to {what} was over"
    if running:
        message += f"; still running: {', '.join(step.name for step in running)}"
    return ev.Failure("timeout", message, running=running)


def _consequences(state: RunState, now: Instant, *, is_late: bool) -> list[ev.Event]:
    """Return what follows from tasks that settled or failed.

    Args:
        state: the state of the run.
        now: the time.
        is_late: the deadline passed while a person is asked. The answer gives the time back, so failed tasks wait.
    """
    events: list[ev.Event] = []
    for task, because in state.unreachable.items():
        events.append(ev.TaskSkipped(task, "input", because))
    events.extend(_expansion(state, state.tasks[task]) for task in state.expandable)
    events.extend(_join(state.tasks[task]) for task in state.joinable)
    if state.paused or is_late:  # what becomes of a failed task may cost a call
        return events
    for task in state.failed_pending:
        event = _after_failure(state, state.tasks[task], now)
        if event is None:
            continue
        events.append(event)
        if isinstance(event, ev.SupervisionStarted | ev.InputRequested):
            break  # it changes what may be decided about the next one
    return events


def _expansion(state: RunState, progress: Progress) -> ev.Event:
    source = state.tasks[progress.task.for_each]
    most = state.requested.policy.limits.items
    if source.items < 0:
        problem = f"{source.task.id!r} returned no list to repeat over"
    elif source.items > most:
        problem = f"{source.task.id!r} returned {source.items} items; at most {most} are repeated over"
    else:
        return ev.TaskExpanded(progress.task.id, source.items)
    return ev.TaskFailed(progress.task.id, ev.Failure("logic", problem, permanent=True))


def _join(progress: Progress) -> ev.Event:
    least = min(progress.task.at_least, progress.items)
    if progress.items_done >= least:
        return ev.TaskJoined(progress.task.id)
    problem = f"only {progress.items_done} of {progress.items} items were done; at least {least} must be"
    return ev.TaskFailed(progress.task.id, ev.Failure("logic", problem, permanent=True))


# --- a failed attempt: again, better, by another worker, or not at all


def _after_failure(state: RunState, progress: Progress, now: Instant) -> ev.Event | None:
    """What becomes of a failed task; None while another question is open."""
    failure = progress.failure
    policy = state.requested.policy
    task = progress.task.id
    assert failure is not None, "only failed tasks are judged"
    if failure.kind == "approval":
        return _question_about(state, progress, failure) if state.input is None else None
    if failure.kind == "uncertain":
        return _after_doubt(state, progress, failure, now)
    if failure.kind in ("budget", "deadline", "stopped"):
        return ev.TaskFailed(task, failure)
    wait = _wait_after(state, progress, failure)
    allowed = policy.retry.fallback_attempts if progress.tried else policy.retry.attempts
    parked = failure.retry_after > policy.retry.obey_retry_after or now + wait >= work_until(state)
    if progress.failures >= allowed or failure.permanent or parked:
        other = _next_worker(state, progress)
        return ev.RetryScheduled(task, now, other) if other else ev.TaskFailed(task, failure)
    if failure.kind != "logic":
        return ev.RetryScheduled(task, now + wait, keep=failure.kind in LINE_FAILURES)
    return _refinement(state, progress, now) or ev.RetryScheduled(task, now)


def _after_doubt(state: RunState, progress: Progress, failure: ev.Failure, now: Instant) -> ev.Event | None:
    """Return how a task goes on whose effect is in doubt: its tool looks it up, a person is asked, or it fails."""
    if progress.can_look_up():
        return ev.RetryScheduled(progress.task.id, now + _wait_after(state, progress, failure), keep=True)
    if state.requested.policy.uncertain == "fail" or not progress.in_doubt():
        return ev.TaskFailed(progress.task.id, failure)
    return _question_about_doubts(state, failure) if state.input is None else None


def _question_about_doubts(state: RunState, failure: ev.Failure) -> ev.InputRequested:
    """Ask about every effect in doubt that no tool can look up, of all tasks that wait for it."""
    pending: list[PendingCall] = []
    for task in state.failed_pending:
        progress = state.tasks[task]
        if progress.failure is None or progress.failure.kind != "uncertain" or progress.can_look_up():
            continue
        for number, step in progress.open_effects():
            arguments = step.decoded_arguments
            pending.append(
                PendingCall(
                    call=len(pending) + 1,
                    text=describe_call(step.name, arguments),
                    tool=step.name,
                    arguments=arguments,
                    key=step.key,
                    task=task,
                    attempt=progress.attempt,
                    step=number,
                )
            )
    first = pending[0]
    question = Question(
        what="effect",
        tool=first.tool,
        arguments=first.arguments,
        workers=(state.tasks[first.task].worker,),
        call=first.call,
        also=tuple(pending[1:]),
        key=first.key,
        attempt=first.attempt,
        step=first.step,
    )
    return ev.InputRequested(state.asked + 1, "effect", first.task, text=failure.message, question=question)


def _wait_after(state: RunState, progress: Progress, failure: ev.Failure) -> Seconds:
    """How long a worker waits before it tries again. What it did wrong itself needs no wait."""
    if failure.kind == "logic":
        return 0.0
    retry = state.requested.policy.retry
    jitter = backoff(state.requested.seed, retry, progress.failures, progress.task.id, progress.attempt)
    return max(jitter, failure.retry_after)


def _next_worker(state: RunState, progress: Progress) -> str:
    """Who takes over from a worker that failed: the next in line that is not the same by its spec; empty: no worker."""
    failed: set[str] = set()
    for name in (progress.worker, *progress.tried):
        failed.add(state.agents[name].spec or name)
    for name in line_of(state, progress.task):
        agent = state.agents.get(name)
        if agent is not None and (agent.spec or name) not in failed:
            return name
    return ""


def _question_about(state: RunState, progress: Progress, failure: ev.Failure) -> ev.InputRequested:
    question = failure.question
    what = "tool" if question is None else question.what
    return ev.InputRequested(
        number=state.asked + 1, what=what, task=progress.task.id, text=failure.message, question=question
    )


def _refinement(state: RunState, progress: Progress, now: Instant) -> ev.Event | None:
    policy = state.requested.policy
    reserve = state.requested.roster.supervision
    if not policy.refine or progress.refined >= progress.failures:
        return None
    if not state.ledger.covers(reserve, keep=state.requested.budget.floor):
        return None  # a plain retry is better than none
    until = min(now + policy.supervision, work_until(state))
    return ev.SupervisionStarted("refine", progress.failures, until, progress.task.id, reserve=_reservation(reserve))


def _reservation(amount: Amount) -> Amount | None:
    """What an event says that is reserved: an amount, or nothing at all."""
    return None if amount == NOTHING else amount


# --- which ready tasks start, and on which worker: critical path first, healthy and idle workers first


def _starts(state: RunState, now: Instant, last: Instant) -> list[ev.Event]:
    """Fill the free slots with attempts that end by `last`.

    With a capped budget one at a time, since each changes what the next may count on.
    """
    free = state.requested.policy.limits.width - state.running
    if free <= 0:
        return []
    if state.ledger.capped or state.breakers:
        free = 1
    events: list[ev.Event] = []
    starting: dict[str, int] = {}
    unaffordable: ev.TaskSkipped | None = None
    queues = list(state.ready_queues.values())
    walks = [urgent_first(state, queue) for queue in queues]
    fronts = _fronts(walks)
    while fronts and len(events) < free:
        (_, order), number = fronts[0]
        progress = state.ordered[order]
        event = _instead_of_start(state, progress, events) if state.offers or state.refused or progress.redo else None
        event = event or _start(state, progress, queues[number], starting, now, last)
        if event is None:
            heappop(fronts)  # no worker of this queue is free
        elif isinstance(event, ev.TaskSkipped) and event.reason == "budget":
            unaffordable = unaffordable or event
            heappop(fronts)
        else:
            events.append(event)
            _advance(fronts, walks[number])
    if not events and unaffordable is not None and state.ledger.reserved == NOTHING:
        return [unaffordable]  # nothing under way could give any money back
    return events


_Entry: TypeAlias = tuple[float, int]
"""A ready task in its queue: its urgency, and its place in the run."""


def _fronts(walks: Sequence[Iterator[_Entry]]) -> list[tuple[_Entry, int]]:
    """A heap of the most urgent task of each queue, with the number of the queue."""
    fronts: list[tuple[_Entry, int]] = []
    for number, walk in enumerate(walks):
        entry = next(walk, None)
        if entry is not None:
            fronts.append((entry, number))
    heapify(fronts)
    return fronts


def _advance(fronts: list[tuple[_Entry, int]], walk: Iterator[_Entry]) -> None:
    """Go on to the next task of the queue that comes first."""
    entry = next(walk, None)
    if entry is None:
        heappop(fronts)
    else:
        heapreplace(fronts, (entry, fronts[0][1]))


def _instead_of_start(state: RunState, progress: Progress, before: Sequence[ev.Event]) -> ev.Event | None:
    """What becomes of a ready task for which no attempt is started; None: one may be. `before` is decided already."""
    event = _reuse(state, progress, before) if state.offers else None
    if event is None and state.refused:
        event = _refused(state, progress)
    if event is None and progress.redo:
        event = _abandoned(state, progress)
    return event


def _reuse(state: RunState, progress: Progress, before: Sequence[ev.Event]) -> ev.Event | None:
    """The use of a result that is offered, preferably to the task of that name: each serves one task."""
    key = key_of(state, progress)
    used = {(event.run, event.source) for event in before if isinstance(event, ev.ResultReused) and event.key == key}
    offered = [(run, offer) for run, offer in state.offers.get(key, ()) if (run, offer.task) not in used]
    if not offered:
        return None
    run, offer = next((each for each in offered if each[1].task == progress.task.id), offered[0])
    return ev.ResultReused(
        task=progress.task.id,
        key=key,
        run=run,
        source=offer.task,
        result=offer.result,
        items=offer.items,
        tracing=offer.tracing,
        missing=offer.missing,
    )


def _refused(state: RunState, progress: Progress) -> ev.Event | None:
    """A skip where the models of all workers that may take a task refuse every call: no attempt could succeed."""
    models = [state.agents[name].model for name in line_of(state, progress.task) if name in state.agents]
    if not models or any(model not in state.refused for model in models):
        return None
    return ev.TaskSkipped(progress.task.id, "refused", state.refused[models[0]])


def _abandoned(state: RunState, progress: Progress) -> ev.Event | None:
    """The end of an attempt that is to be resumed, where its process died too often: it may be what kills it."""
    if progress.crashes <= state.requested.policy.limits.resumes:
        return None
    message = f"the process died {progress.crashes} times during this attempt"
    failure = ev.Failure("resource", message, permanent=True)
    if progress.in_doubt():
        failure = effect_in_doubt(failure)
    return ev.AttemptAbandoned(progress.task.id, progress.attempt, failure)


def _start(
    state: RunState, progress: Progress, queue: ReadyQueue, starting: dict[str, int], now: Instant, last: Instant
) -> ev.Event | None:
    """An attempt; None when no worker can take it now; a skip when the budget is too small for it.

    `starting` counts the attempts that start along with it, by worker.
    """
    choice = _choose(state, progress, queue, starting, now)
    if choice is None:
        return None
    agent, probes = choice
    reserve = NOTHING if progress.carried else agent.estimate  # a nested run that is resumed has its money
    floor = state.requested.budget.floor
    if not state.ledger.covers(reserve, keep=floor):
        cap = state.ledger.cap_reached(reserve, keep=floor)
        return ev.TaskSkipped(progress.task.id, "budget", cap=cap)
    starting[agent.name] = starting.get(agent.name, 0) + 1
    return ev.AttemptStarted(
        task=progress.task.id,
        attempt=progress.attempt if progress.redo else progress.attempt + 1,
        worker=agent.name,
        until=min(now + agent.timeout, last),
        reserve=_reservation(reserve),
        expected=NOTHING if agent.model and reserve != NOTHING else None,  # a model is called in a step of its own
        probes=probes,
    )


_Choice = tuple[Agent, tuple[str, ...]]


def _choose(
    state: RunState, progress: Progress, queue: ReadyQueue, starting: dict[str, int], now: Instant
) -> _Choice | None:
    """The least loaded of those who may take it; where breakers bar them all, of the fallbacks."""
    names = queue.candidates
    # only this worker looks up its open effects
    must_stay = progress.redo or (progress.steps is not None and progress.in_doubt())
    if state.breakers and not must_stay and all(_probes(state, name, now) is None for name in names):
        gone = (*names, *progress.tried)
        names = tuple(name for name in line_of(state, progress.task) if name not in gone)
    best: _Choice | None = None
    least = 0
    for name in names:
        agent = state.agents.get(name)
        if agent is None:
            continue
        load = state.load.get(name, 0) + starting.get(name, 0)
        is_full = bool(agent.concurrency and load >= agent.concurrency)
        if is_full or (best is not None and load >= least):
            continue
        probes = _probes(state, name, now)
        if probes is not None:
            best = (agent, probes)
            least = load
    return best


def _probes(state: RunState, worker: str, now: Instant) -> tuple[str, ...] | None:
    """The breakers this call would probe; None where one of them bars it."""
    if not state.breakers:
        return ()
    name = breaker_name(state.agents[worker])
    breaker = state.breakers.get(name)
    if breaker is None:
        return ()
    where = breakers.stand(breaker, now)
    if where in ("open", "probing"):
        return None
    return (name,) if where == "half-open" else ()


# --- the run as a whole: plan, ask a person, plan again, write the answer, end


def _supervise(state: RunState, now: Instant) -> list[ev.Event]:
    """At most one event: each changes what follows."""
    event = _next(state, now)
    return [] if event is None else [event]


def _next(state: RunState, now: Instant) -> ev.Event | None:
    if state.cancel is not None:
        return _cancel(state, now)
    if state.time_up:
        return ev.WorkStopped() if state.left_runs else _finish(state, now)
    if state.paused or state.input is not None or state.planning.is_open:
        return None
    asks = state.planning.failure
    if asks is not None and asks.kind == "approval":
        return ev.InputRequested(state.asked + 1, "question", text=asks.message, question=asks.question)
    if not state.approved and state.planning.next in (None, "more"):
        return ev.InputRequested(state.asked + 1, "plan")
    if state.planning.next is not None:
        return _plan(state, now, state.planning.next)
    if state.unsettled:
        return None
    if _may_replan(state):
        return _started(state, "plan", now, "replan")
    return _finish(state, now)


def _cancel(state: RunState, now: Instant) -> ev.Event | None:
    """Return the end of a cancelled run; None while the runs inside it are being ended."""
    under_way = (state.tasks[work.task] for work in state.owing if work.kind == "attempt")
    if state.left_runs or any(progress.waits_for_run() for progress in under_way):
        return ev.WorkStopped()
    if _is_stopping(state, now):
        return None
    inside = [gap for gap in missing_gaps(state) if gap.tool]
    return ev.RunEnded("cancelled", "cancelled", (*gaps(state), *refused_gaps(state), *inside))


def _is_stopping(state: RunState, now: Instant) -> bool:
    """Return whether runs inside attempts that were stopped are waited for: they may have effects in doubt."""
    return bool(state.stopping) and now < state.stopping_until


def _plan(state: RunState, now: Instant, why: ev.Why) -> ev.Event | None:
    duty = state.planning
    if why == "more" and state.unsettled and not (state.wake == "any" and state.settled_since_plan):
        return None
    cap = state.ledger.cap_reached(state.requested.roster.supervision, keep=state.requested.budget.floor)
    retry_at = _retry_at(state, "plan", now)
    late = retry_at >= _plan_until(state)  # asked again, it could not answer in time
    if _is_given_up(duty, state.requested.policy.limits.plans) or cap is not None or late:
        if state.tasks:  # what there is must do, and the answer says that something may be missing
            lost = () if state.replans else ("the plan was never finished, so parts of this may have been left out",)
            return ev.TasksAdded(duty.number, (), closed=True, unserved=lost)
        return _fallback_plan(state, late=late) if cap is None else ev.RunEnded("failed", "budget", cap=cap)
    return _try(state, "plan", now, retry_at, why)


def _is_given_up(duty: SupervisorDuty, tries: int) -> bool:
    """Whether a kind failed too often, or for good."""
    return duty.failures >= tries or (duty.failure is not None and duty.failure.permanent)


def _retry_at(state: RunState, kind: ev.Duty, now: Instant) -> Instant:
    """When a kind is tried next: after a failure that is not the proposal's own, not before a wait is over."""
    duty = state.planning if kind == "plan" else state.answering
    if not duty.retry or duty.failure is None:
        return max(now, duty.timer)
    policy = state.requested.policy
    wait = backoff(state.requested.seed, policy.retry, duty.failures, kind, duty.number)
    return now + max(wait, duty.failure.retry_after)


def _try(state: RunState, kind: ev.Duty, now: Instant, retry_at: Instant, why: ev.Why = "first") -> ev.Event | None:
    """Begin a kind now, or decide when it is tried again; None while the wait is not over."""
    duty = state.planning if kind == "plan" else state.answering
    if duty.retry and retry_at > now:
        return ev.SupervisionRetryScheduled(kind, duty.number, retry_at)
    return _started(state, kind, now, why) if retry_at <= now else None


def _plan_until(state: RunState) -> Instant:
    """When the planner must be done. While there are no tasks it leaves some time for a fallback plan."""
    timeout = ev.Failure("timeout", "the planner took too long")
    if state.tasks or not _reachable_workers(state, timeout):
        return work_until(state)
    last = work_until(state)
    return last - min(_FALLBACK_SECONDS, _FALLBACK_SHARE * (last - state.began))


def _fallback_plan(state: RunState, *, late: bool) -> ev.Event:
    """No plan can be made: one worker gets the whole request, and the answer says so. Without a worker the run ends."""
    requested = state.requested
    failure = state.planning.failure or ev.Failure("timeout", "the time allowed to plan was over")
    worker = _fallback_worker(state, failure)
    if not worker:
        if failure.kind == "budget":
            return ev.RunEnded("failed", "budget", cap=failure.cap)
        gap = ev.Gap(NO_TASK, "unplanned", failure.kind, f"no plan could be made: {failure.message}")
        if late and failure.kind == "timeout":
            return ev.RunEnded("failed", "deadline", (gap,), time_cap(state))
        return ev.RunEnded("failed", "no_plan", (gap,))
    problem = f"no plan could be made ({failure.message})"
    doubt = f"{problem}: {worker} was given the whole request, and parts may have been left out"
    is_broken = failure.code_error is not None or failure.refusal is not None
    is_only = len(requested.roster.agents) == 1 and not is_broken
    is_meant_for_it = worker == requested.roster.generalist and failure.kind == "logic" and not failure.permanent
    return ev.TasksAdded(
        number=state.planning.number,
        tasks=(Task(TaskId("t1"), requested.goal, worker),),
        combine=requested.combine or "forward",
        unserved=() if is_only or is_meant_for_it else (doubt,),
        fallback=failure,
    )


def _fallback_worker(state: RunState, failure: ev.Failure) -> str:
    """The generalist, the only worker or the one that fits the request best; empty: no worker can do it."""
    if failure.permanent and state.planning.feedback:
        return ""  # the planner answered, and what it was told to do can never be done
    workers = _reachable_workers(state, failure)
    roster = state.requested.roster
    if any(worker.name == roster.generalist for worker in workers):
        return roster.generalist
    if len(roster.agents) == 1:
        return workers[0].name if workers else ""
    return best_fit(workers, state.requested.goal)


def _reachable_workers(state: RunState, failure: ev.Failure) -> list[Agent]:
    """The workers that do not need the very model that just failed to plan. A team has models of its own."""
    roster = state.requested.roster
    is_model_down = failure.kind in _UNREACHABLE or failure.refusal is not None
    if not is_model_down or not roster.planner:
        return list(roster.agents)
    return [agent for agent in roster.agents if agent.model != roster.planner or agent.fallback_models]


def _may_replan(state: RunState) -> bool:
    return (
        state.replans < state.requested.policy.limits.replans
        and state.planning.failure is None  # else it could not even plan
        and state.ledger.covers(state.requested.roster.supervision, keep=state.requested.budget.floor)
        and any(gap.reason != "person" for gap in gaps(state))  # what a person skipped is not wanted
    )


def _started(state: RunState, kind: ev.Duty, now: Instant, why: ev.Why = "first") -> ev.Event:
    requested = state.requested
    duty = state.planning if kind == "plan" else state.answering
    last = _plan_until(state) if kind == "plan" else answer_until(state)
    until = min(now + requested.policy.supervision, last)
    return ev.SupervisionStarted(
        duty=kind,
        number=duty.number if duty.redo else duty.number + 1,
        until=until,
        why=why,
        reserve=_reservation(requested.roster.supervision if kind == "plan" else state.answer_cost),
    )


def _finish(state: RunState, now: Instant) -> ev.Event | None:
    """The answer, if one is wanted, there is something to answer from and it can still be had; then the end."""
    duty = state.answering
    policy = state.requested.policy
    if duty.is_open or _is_stopping(state, now):
        return None
    done = any(progress.status is Status.DONE for progress in state.tasks.values())
    may_answer = done or (not state.tasks and callers_tools(state))  # by calling those, before any work
    is_missing = may_answer and state.combine != "none" and state.answer is None
    wanted = is_missing and not _is_given_up(duty, policy.limits.answers)
    cap = state.ledger.cap_reached(state.answer_cost)
    last = answer_until(state)
    retry_at = _retry_at(state, "answer", now)
    if wanted and cap is None and retry_at < last:
        return _try(state, "answer", now, retry_at)
    return _ending(state, done=done or state.answer is not None, unaffordable=cap if wanted else None)


def _ending(state: RunState, *, done: bool, unaffordable: CapReached | None) -> ev.RunEnded:
    """The end; `unaffordable` is the cap that an answer which is wanted does not fit under."""
    missing = (*gaps(state), *refused_gaps(state), *untraced_gaps(state), *cut_gaps(state))
    inside = missing_gaps(state)
    if done and state.combine != "none" and state.answer is None:
        missing = (*missing, unwritten_gap(state, unaffordable))
    cause: ev.EndReason | None = None
    cap: CapReached | None = None
    if state.time_up:
        cause = "deadline"
        cap = time_cap(state)
    elif unaffordable is not None or state.budget_hit:
        cause = "budget"
        cap = unaffordable or state.cap_reached
    if state.time_up and not state.approved and not done:
        return ev.RunEnded("needs_input", "no_input", missing)
    if not done and cause is None:
        cause, cap = _cause_of_failure(state)
    if not done:
        return ev.RunEnded("failed", cause or ("no_results" if state.tasks else "no_plan"), missing, cap)
    missing = (*missing, *(gap for gap in inside if gap not in missing))
    if missing and cause is None:
        cause, cap = _cause_inside(inside)
    if missing:
        return ev.RunEnded("partial", cause or "gaps", missing, cap)
    overspent = state.ledger.cap_overspent()
    return ev.RunEnded("complete", "done" if overspent is None else "overspent", cap=overspent)


def _cause_of_failure(state: RunState) -> tuple[ev.EndReason | None, CapReached | None]:
    """Return the reason that ended the nested runs of failed tasks early, and the cap; None: another reason."""
    failures = [progress.failure for progress in state.tasks.values() if progress.failure is not None]
    reasons: tuple[ev.EndReason, ...] = ("deadline", "budget")
    for reason in reasons:
        for failure in failures:
            if failure.ended == reason:
                return reason, failure.cap
    return None, None


def _cause_inside(inside: tuple[ev.Gap, ...]) -> tuple[ev.EndReason, CapReached | None]:
    """What ended a nested run early ends those around it for the same reason, and by the same cap."""
    reasons: tuple[ev.EndReason, ...] = ("deadline", "budget")
    for reason in reasons:
        caps = [gap.cap for gap in inside if gap.reason == reason]
        if caps:
            return reason, caps[0]
    return "gaps", None
