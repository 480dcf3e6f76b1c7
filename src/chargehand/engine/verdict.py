"""A failed attempt: again, better, by another, or not at all."""

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.jitter import backoff
from chargehand.engine.policy import Instant
from chargehand.engine.state import Progress, RunState, line_of
from chargehand.engine.view import work_until


def verdict(state: RunState, progress: Progress, now: Instant) -> ev.Event | None:
    """What becomes of a failed task; None while somebody else's question is being asked."""
    failure = progress.failure
    policy = state.requested.policy
    task = progress.task.id
    assert failure is not None, "only failed tasks are judged"
    if failure.kind == "approval" or (failure.kind == "uncertain" and policy.uncertain == "ask"):
        return _asked(state, progress, failure) if state.input is None else None
    if failure.kind in ("uncertain", "budget", "deadline"):
        return ev.TaskFailed(task, failure)
    allowed = policy.retry.fallback_attempts if progress.tried else policy.retry.attempts
    wait = 0.0
    if failure.kind != "logic":
        jitter = backoff(state.requested.seed, policy.retry, progress.failures, task, progress.attempt)
        wait = max(jitter, failure.retry_after)
    parked = failure.retry_after > policy.retry.obey_retry_after or now + wait >= work_until(state)
    if progress.failures >= allowed or failure.permanent or parked:
        gone = {state.agents[one].spec or one for one in (progress.worker, *progress.tried)}  # and all who are the same
        line = (one for one in line_of(state, progress.task) if one in state.agents)
        other = next((one for one in line if (state.agents[one].spec or one) not in gone), None)
        return ev.RetryScheduled(task, now, other) if other else ev.TaskFailed(task, failure)
    if failure.kind != "logic":
        return ev.RetryScheduled(task, now + wait)
    return _refinement(state, progress, now) or ev.RetryScheduled(task, now)


def _asked(state: RunState, progress: Progress, failure: ev.Failure) -> ev.InputRequested:
    number = state.asked + 1
    task = progress.task.id
    question = failure.question
    if failure.kind != "approval":
        return ev.InputRequested(number, "effect", task)
    what = "tool" if question is None else question.what
    return ev.InputRequested(number=number, what=what, task=task, text=failure.message, question=question)


def _refinement(state: RunState, progress: Progress, now: Instant) -> ev.Event | None:
    policy = state.requested.policy
    reserve = state.requested.roster.supervision
    if not policy.refine or progress.refined >= progress.failures:
        return None
    if not state.ledger.covers(reserve, keep=state.requested.budget.floor):
        return None  # a plain retry is better than none
    until = min(now + policy.supervision, work_until(state))
    held = None if reserve == NOTHING else reserve
    return ev.SupervisionStarted("refine", progress.failures, until, progress.task.id, reserve=held)
