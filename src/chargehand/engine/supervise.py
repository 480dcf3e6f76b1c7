"""What the run as a whole does next: plan, ask a person, plan again, write the answer, end."""

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.jitter import backoff
from chargehand.engine.missing import missing_gaps
from chargehand.engine.plan import NO_TASK, Task, TaskId
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, best_fit
from chargehand.engine.state import Desk, RunState, Status
from chargehand.engine.view import answer_until, cut_gaps, gaps, untraced_gaps, unwritten_gap, work_until

_FALLBACK_SECONDS: Seconds = 10.0
"""The time that the planner leaves for the task of a fallback plan."""
_FALLBACK_SHARE = 0.2
"""The largest share of the run's time that is left for it."""
_UNREACHABLE = frozenset(("network", "timeout", "resource"))
"""The kinds of failure after which the same model is not asked to do the work either."""


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
    retry_at = _retry_at(state, "plan", now)
    late = retry_at >= _plan_until(state)  # asked again, it could not answer in time
    if _is_given_up(desk, state.requested.policy.limits.plans) or broke or late:
        if state.tasks:  # what there is must do; who may have left something out says so
            lost = () if state.replans else ("the plan was never finished, so parts of this may have been left out",)
            return ev.TasksAdded(desk.number, (), closed=True, unserved=lost)
        return ev.RunEnded("failed", "budget") if broke else _fallback_plan(state, late=late)
    return _try(state, "plan", now, retry_at, why)


def _is_given_up(desk: Desk, tries: int) -> bool:
    """Whether a duty failed too often, or for good."""
    return desk.failures >= tries or (desk.failure is not None and desk.failure.permanent)


def _retry_at(state: RunState, duty: ev.Duty, now: Instant) -> Instant:
    """When a duty is tried next: after a failure that is not the proposal's own, not before a wait is over."""
    desk = state.planning if duty == "plan" else state.answering
    if not desk.retry or desk.failure is None:
        return max(now, desk.timer)
    policy = state.requested.policy
    wait = backoff(state.requested.seed, policy.retry, desk.failures, duty, desk.number)
    return now + max(wait, desk.failure.retry_after)


def _try(state: RunState, duty: ev.Duty, now: Instant, retry_at: Instant, why: ev.Why = "first") -> ev.Event | None:
    """Begin a duty now, or decide when it is tried again; None while the wait is not over."""
    desk = state.planning if duty == "plan" else state.answering
    if desk.retry and retry_at > now:
        return ev.SupervisionRetryScheduled(duty, desk.number, retry_at)
    return _started(state, duty, now, why) if retry_at <= now else None


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
            return ev.RunEnded("failed", "budget")
        gap = ev.Gap(NO_TASK, "unplanned", failure.kind, f"no plan could be made: {failure.message}")
        return ev.RunEnded("failed", "deadline" if late and failure.kind == "timeout" else "no_plan", (gap,))
    problem = f"no plan could be made ({failure.message})"
    doubt = f"{problem}: {worker} was given the whole request, and parts may have been left out"
    is_only = len(requested.roster.agents) == 1
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
        and bool(gaps(state))
    )


def _started(state: RunState, duty: ev.Duty, now: Instant, why: ev.Why = "first") -> ev.Event:
    requested = state.requested
    desk = state.planning if duty == "plan" else state.answering
    last = _plan_until(state) if duty == "plan" else answer_until(state)
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
    is_open = state.combine != "none" and state.answer is None and done
    wanted = is_open and not _is_given_up(desk, policy.limits.answers)
    affordable = state.ledger.covers(state.requested.roster.supervision)
    last = answer_until(state)
    retry_at = _retry_at(state, "answer", now)
    if wanted and affordable and retry_at < last:
        return _try(state, "answer", now, retry_at)
    return _ending(state, done=done, broke=wanted and not affordable)


def _ending(state: RunState, *, done: bool, broke: bool) -> ev.RunEnded:
    missing = (*gaps(state), *untraced_gaps(state), *cut_gaps(state))
    inside = missing_gaps(state)
    if done and state.combine != "none" and state.answer is None:
        missing = (*missing, unwritten_gap(state, broke=broke))
    cause: ev.EndReason | None = "deadline" if state.time_up else "budget" if broke or state.starved else None
    if state.time_up and not state.approved and not done:
        return ev.RunEnded("needs_input", "no_input", missing)
    if not done:
        return ev.RunEnded("failed", cause or ("no_results" if state.tasks else "no_plan"), missing)
    missing = (*missing, *(gap for gap in inside if gap not in missing))
    if missing:
        return ev.RunEnded("partial", cause or _cause_inside(inside), missing)
    return ev.RunEnded("complete", "done" if state.ledger.overspent == NOTHING else "overspent")


def _cause_inside(inside: tuple[ev.Gap, ...]) -> ev.EndReason:
    """What ended a nested run early ends those around it for the same reason."""
    reasons = {gap.reason for gap in inside}
    if "deadline" in reasons:
        return "deadline"
    return "budget" if "budget" in reasons else "gaps"
