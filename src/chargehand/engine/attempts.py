"""What becomes of a task while workers try it: the folds of attempts, steps, retries and refinements."""

from heapq import heappush

from msgspec import structs

from chargehand.engine import breaker as breakers
from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import OUTAGES, StepKind
from chargehand.engine.growth import settle
from chargehand.engine.plan import needs
from chargehand.engine.policy import Instant
from chargehand.engine.roster import Agent
from chargehand.engine.state import Progress, RunState, Status, Step, Work, enqueue, lane_key, prune

_ASKS_MODEL: frozenset[StepKind] = frozenset(("model", "summary", "make_worker"))
"""The steps that call the model of a worker."""


def attempt_started(state: RunState, event: ev.AttemptStarted) -> None:
    progress = state.tasks[event.task]
    key = lane_key(progress)
    if progress.worker and progress.worker != event.worker:
        progress.tried = (*progress.tried, progress.worker)
        progress.failures = 0
    progress.attempt = event.attempt
    progress.worker = event.worker
    progress.redo = False
    progress.status = Status.RUNNING
    prune(state, key)
    set_timer(state, progress, event.until)
    if event.reserve is not None:
        progress.held = event.reserve
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


def set_timer(state: RunState, progress: Progress, at: Instant) -> None:
    progress.timer = at
    heappush(state.timers, (at, progress.order))


def close_attempt(state: RunState, progress: Progress, used: Amount | None) -> None:
    state.running -= 1
    state.load[progress.worker] -= 1
    progress.timer = 0.0
    for step in (progress.steps or {}).values():
        if step.result is None:
            state.ledger.settle(step.held, None)
    if used is not None or progress.held is not NOTHING:
        state.ledger.settle(progress.held, used)
        progress.held = NOTHING
    state.disown(Work("attempt", progress.task.id, progress.attempt))


def step_started(state: RunState, event: ev.StepStarted) -> None:
    progress = state.tasks[event.task]
    if progress.held is not NOTHING:  # from its first step on an attempt reserves call by call
        state.ledger.settle(progress.held, NOTHING)
        progress.held = NOTHING
    if progress.steps is None:
        progress.steps = {}
    held = event.reserve or NOTHING
    state.ledger.reserve(held)
    progress.steps[event.step] = Step(event.name, event.effect, event.request, held, event.kind)


def step_finished(state: RunState, event: ev.StepFinished) -> None:
    steps = state.tasks[event.task].steps
    assert steps is not None, "admit lets no step finish that did not start"
    step = steps[event.step]
    step.result = event.result
    step.good = event.good
    state.ledger.settle(step.held, event.used)


def step_failed(state: RunState, event: ev.StepFailed) -> None:
    steps = state.tasks[event.task].steps
    assert steps is not None, "admit lets no step fail that did not start"
    step = steps[event.step]
    state.ledger.settle(step.held, event.used)
    step.held = NOTHING  # it stays open: its attempt fails with it


def attempt_succeeded(state: RunState, event: ev.AttemptSucceeded) -> None:
    progress = state.tasks[event.task]
    close_attempt(state, progress, event.used)
    progress.result = event.result
    progress.items = event.items
    progress.steps = None
    progress.tracing = event.tracing
    if event.missing is not None:
        progress.missing = event.missing
        state.partial[event.task] = None
    if state.breakers:
        name = breaker_name(state.agents[progress.worker])
        if name in state.breakers:
            breakers.note(state.breakers[name], state.at, state.requested.policy.breaking, good=True)
    settle(state, progress, Status.DONE)


def attempt_failed(state: RunState, event: ev.AttemptFailed) -> None:
    progress = state.tasks[event.task]
    close_attempt(state, progress, event.used)
    count_failure(state, progress, event.failure)
    if event.failure.kind == "approval":  # nothing failed: it waits for a person, and keeps its steps
        progress.failure = event.failure
        progress.status = Status.JUDGED
        progress.steps = finished_steps(progress)
        state.judged[event.task] = None
        return
    note_refusal(state, progress, event.failure)
    if event.refused:
        progress.refused = (*progress.refused, event.refused)
    judge(state, progress, event.failure)


def count_failure(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    """Only an outage counts for a breaker: whatever else failed, no waiting would mend it."""
    agent = state.agents[progress.worker]
    name = breaker_name(agent)
    if failure.kind in OUTAGES and not _is_hung_tool(agent, failure):
        breaker = state.breakers.setdefault(name, Breaker())
        breakers.note(breaker, state.at, state.requested.policy.breaking, good=False)
        return
    breaker = state.breakers.get(name)
    limited = failure.kind == "resource" and not failure.permanent  # asked too much: not the moment to ask again
    if breaker is not None and progress.probing and breaker.leased == progress.probing and not limited:
        breakers.forget_probe(breaker)  # it says nothing of the line: the next attempt is the probe


def _is_hung_tool(agent: Agent, failure: ev.Failure) -> bool:
    """Whether the time of an attempt was over while its model had answered: what hung says nothing of the model."""
    return bool(agent.model and failure.running) and not any(step.kind in _ASKS_MODEL for step in failure.running)


def note_refusal(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    """Remember a model whose provider refuses every call. What it says of one request, it says of no other."""
    refusal = failure.refusal
    if refusal is None or refusal.cause == "request":
        return
    if refusal.model == state.agents[progress.worker].model:
        state.refused.setdefault(refusal.model, progress.task.id)


def breaker_name(agent: Agent) -> str:
    """The line an agent depends on: that to its model, which others may share, or one of its own."""
    return f"model:{agent.model}" if agent.model else f"worker:{agent.name}"


def judge(state: RunState, progress: Progress, failure: ev.Failure) -> None:
    for step in (progress.steps or {}).values():
        if step.effect == "effect" and step.result is not None and step.good:  # the next attempt must not do it again
            progress.effects = {**(progress.effects or {}), step.request: step.result}
    progress.failure = failure
    progress.steps = None
    progress.failures += 1
    progress.status = Status.JUDGED
    state.judged[progress.task.id] = None


def retry_scheduled(state: RunState, event: ev.RetryScheduled) -> None:
    progress = state.tasks[event.task]
    state.judged.pop(event.task, None)
    if event.worker:
        progress.tried = (*progress.tried, progress.worker)
        progress.failures = 0
        progress.worker = event.worker
    if event.after > state.at:
        progress.status = Status.BACKING_OFF
        set_timer(state, progress, event.after)
    else:
        enqueue(state, progress)


def backoff_ended(state: RunState, event: ev.BackoffEnded) -> None:
    progress = state.tasks[event.task]
    progress.timer = 0.0
    enqueue(state, progress)


def task_refined(state: RunState, event: ev.TaskRefined) -> None:
    progress = state.tasks[event.task]
    progress.instruction = event.instruction
    close_refinement(state, progress, event.used)


def close_refinement(state: RunState, progress: Progress, used: Amount | None) -> None:
    state.disown(Work("refine", progress.task.id, progress.failures))
    state.ledger.settle(progress.held, used)
    progress.held = NOTHING
    progress.timer = 0.0
    progress.refined = progress.failures
    progress.status = Status.JUDGED
    state.judged[progress.task.id] = None


DOUBT = ev.Failure("uncertain", "an effect was begun and nobody knows whether it happened")


def interrupt(state: RunState, progress: Progress, *, crashed: bool) -> None:
    """The process ended under an attempt: take it up again with the steps it had, unless an effect is in doubt.

    Only crashes are counted: an attempt that kills its process each time must come to an end. One that is interrupted
    by orderly stops is bounded by the deadline of the run alone.
    """
    doubt = progress.in_doubt()
    close_attempt(state, progress, None)
    progress.resumes += 1
    progress.crashes += crashed
    if doubt:
        judge(state, progress, DOUBT)
    elif progress.crashes > state.requested.policy.limits.resumes:
        message = f"the process died {progress.crashes} times during this attempt"
        judge(state, progress, ev.Failure("resource", message, permanent=True))
    else:
        progress.steps = finished_steps(progress)
        progress.redo = True
        enqueue(state, progress)


def finished_steps(progress: Progress) -> dict[int, Step]:
    """What an attempt that is taken up again need not do again."""
    return {number: step for number, step in (progress.steps or {}).items() if step.result is not None}


def call_judged(state: RunState, progress: Progress, event: ev.InputAnswered) -> None:
    """A person allowed calls or did not: the attempt goes on where it was, knowing which."""
    assert progress.failure is not None, "it said what it wants to call"
    question = progress.failure.question or ev.Question()
    keys = {pending.call: pending.key for pending in question.also}
    answers = {**(progress.answers or {}), question.key: _refusal(event)}
    for verdict in event.also:
        answers[keys[verdict.call]] = _refusal(verdict)
    progress.answers = answers
    progress.failure = None
    progress.redo = True
    enqueue(state, progress)


def _refusal(answer: ev.InputAnswered | ev.CallVerdict) -> str:
    """Why a call may not be made; empty when it may."""
    return "" if answer.verdict == "approve" else answer.feedback or "no reason was given"


def answered_inside(state: RunState, progress: Progress, event: ev.InputAnswered, question: ev.Question) -> None:
    """A person answered what a run inside asks: the attempt goes on where it was, and hands the answer on."""
    progress.handed_on = structs.replace(event, number=question.number)
    progress.failure = None
    progress.redo = True
    progress.resumes += 1
    enqueue(state, progress)


def doubt_resolved(state: RunState, progress: Progress, event: ev.InputAnswered) -> None:
    """A person said what became of an effect."""
    if event.verdict == "done":
        progress.result = event.result
        settle(state, progress, Status.DONE)
    elif event.verdict == "again":
        enqueue(state, progress)
    else:
        settle(state, progress, Status.FAILED)
