"""`decide`: what follows from what is so. Called until it returns nothing; looks only at what changed.

It changes nothing itself. What one call returns may be folded in order without asking again in between.
"""

from chargehand.engine import events as ev
from chargehand.engine.attempts import DOUBT
from chargehand.engine.failure import OpenStep
from chargehand.engine.policy import Instant
from chargehand.engine.starts import starts
from chargehand.engine.state import Desk, Progress, RunState, Status
from chargehand.engine.supervise import supervise
from chargehand.engine.verdict import verdict
from chargehand.engine.view import work_until


def decide(state: RunState, now: Instant) -> list[ev.Event]:
    """The facts that follow by themselves, given the time."""
    if state.ended is not None:
        return []
    if state.cancel is not None or state.time_up:
        return _timed_out(state, now) or supervise(state, now)
    last = work_until(state)
    if now >= last:
        return [ev.TimeRanOut()]
    if found := _timed_out(state, now):
        return found
    if (state.doomed or state.judged or state.expandable or state.joinable) and (found := _consequences(state, now)):
        return found
    if state.lanes and state.approved and not state.paused and (found := starts(state, now, last)):
        return found
    return supervise(state, now)


def _timed_out(state: RunState, now: Instant) -> list[ev.Event]:
    found: list[ev.Event] = []
    if not (state.planning.open or state.answering.open or state.timers):
        return found
    desks: tuple[tuple[ev.Duty, Desk], ...] = (("plan", state.planning), ("answer", state.answering))
    for duty, desk in desks:
        if desk.open and now >= desk.timer:
            found.append(ev.SupervisionFailed(duty, desk.number, _late(duty)))
    if state.timers and now >= state.timers[0][0]:
        progress = state.ordered[state.timers[0][1]]
        task = progress.task.id
        if progress.status is Status.BACKING_OFF:
            found.append(ev.BackoffEnded(task))
        elif progress.status is Status.REFINING:
            found.append(ev.SupervisionFailed("refine", progress.failures, _late("refine"), task))
        else:
            failure = DOUBT if progress.in_doubt() else _late("work", progress.running_steps())
            found.append(ev.AttemptFailed(task, progress.attempt, failure))
    return found


def _late(what: str, running: tuple[OpenStep, ...] = ()) -> ev.Failure:
    still_running = f"; still running: {', '.join(step.name for step in running)}" if running else ""
    return ev.Failure("timeout", f"the time allowed to {what} was over{still_running}", running=running)


def _consequences(state: RunState, now: Instant) -> list[ev.Event]:
    found: list[ev.Event] = [ev.TaskSkipped(task, "input", because) for task, because in state.doomed.items()]
    found.extend(_expansion(state, state.tasks[task]) for task in state.expandable)
    found.extend(_join(state.tasks[task]) for task in state.joinable)
    for task in state.judged if not state.paused else ():  # a verdict may cost a call
        ruling = verdict(state, state.tasks[task], now)
        if ruling is None:
            continue
        found.append(ruling)
        if isinstance(ruling, ev.SupervisionStarted | ev.InputRequested):
            break  # it changes what the next verdict may count on
    return found


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
