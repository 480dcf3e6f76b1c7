"""What the run as a whole does next: plan, ask a person, plan again, write the answer, end."""

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.plan import NO_TASK
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState, Status
from chargehand.engine.view import answer_until, cut_gaps, gaps, untraced_gaps, unwritten_gap


def supervise(state: RunState, now: Instant) -> list[ev.Event]:
    """At most one event: each changes what follows."""
    event = _next(state, now)
    return [] if event is None else [event]


def _next(state: RunState, now: Instant) -> ev.Event | None:
    if state.cancel is not None:
        return ev.RunEnded("cancelled", "cancelled", gaps(state))
    if state.time_up:
        return _finish(state, now)
    if state.paused or state.input is not None or state.planning.open:
        return None
    if not state.approved and state.planning.next in (None, "more"):
        return ev.InputRequested(state.asked + 1, "plan")
    if state.planning.next is not None:
        return _plan(state, now, state.planning.next)
    if state.unsettled:
        return None
    if _may_replan(state):
        return _started(state, "plan", now, "replan")
    return _finish(state, now)


def _plan(state: RunState, now: Instant, why: ev.Why) -> ev.Event | None:
    desk = state.planning
    if why == "more" and state.unsettled and not (state.wake == "any" and state.fresh):
        return None
    broke = not state.ledger.covers(state.requested.roster.supervision, keep=state.requested.budget.floor)
    hopeless = desk.timer >= state.work_until  # it would be asked again only after the time for work is over
    if desk.failures >= state.requested.policy.limits.plans or broke or hopeless:
        if state.tasks:  # what there is must do; who may have left something out says so
            lost = () if state.replans else ("the plan was never finished, so parts of this may have been left out",)
            return ev.TasksAdded(desk.number, (), closed=True, unserved=lost)
        return ev.RunEnded("failed", "budget" if broke or state.starved else "no_plan")
    return _started(state, "plan", now, why) if now >= desk.timer else None


def _may_replan(state: RunState) -> bool:
    return (
        state.replans < state.requested.policy.limits.replans
        and state.ledger.covers(state.requested.roster.supervision, keep=state.requested.budget.floor)
        and bool(gaps(state))
    )


def _started(state: RunState, duty: ev.Duty, now: Instant, why: ev.Why = "first") -> ev.Event:
    requested = state.requested
    desk = state.planning if duty == "plan" else state.answering
    last = state.work_until if duty == "plan" else answer_until(state)
    until = min(now + requested.policy.supervision, last)
    reserve = None if requested.roster.supervision == NOTHING else requested.roster.supervision
    return ev.SupervisionStarted(
        duty=duty, number=desk.number + (not desk.redo), until=until, task=NO_TASK, why=why, reserve=reserve
    )


def _finish(state: RunState, now: Instant) -> ev.Event | None:
    """The answer, if one is wanted, there is something to answer from and it can still be had; then the end."""
    desk = state.answering
    policy = state.requested.policy
    if desk.open:
        return None
    done = any(one.status is Status.DONE for one in state.tasks.values())
    wanted = state.combine != "none" and state.answer is None and done and desk.failures < policy.limits.answers
    affordable = state.ledger.covers(state.requested.roster.supervision)
    last = answer_until(state)
    if wanted and affordable and now < last and desk.timer < last:
        return _started(state, "answer", now) if now >= desk.timer else None
    return _ending(state, done=done, broke=wanted and not affordable)


def _ending(state: RunState, *, done: bool, broke: bool) -> ev.RunEnded:
    missing = (*gaps(state), *untraced_gaps(state), *cut_gaps(state))
    if done and state.combine != "none" and state.answer is None:
        missing = (*missing, unwritten_gap(state, broke=broke))
    cause: ev.EndReason | None = "deadline" if state.time_up else "budget" if broke or state.starved else None
    if state.time_up and not state.approved and not done:
        return ev.RunEnded("needs_input", "no_input", missing)
    if not done:
        return ev.RunEnded("failed", cause or ("no_results" if state.tasks else "no_plan"), missing)
    if missing:
        return ev.RunEnded("partial", cause or "gaps", missing)
    return ev.RunEnded("complete", "done" if state.ledger.overspent == NOTHING else "overspent")
