"""`admit`: the door. What the world reports becomes an event here, or is refused with a reason."""

from typing import TypeVar

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.failure import EFFECT_IN_DOUBT
from chargehand.engine.lint import lint
from chargehand.engine.plan import NO_TASK, Plan, TaskId, fingerprint
from chargehand.engine.state import Progress, RunState, Status, Work
from chargehand.errors import PlanInvalid, Refused


def admit(state: RunState, report: ev.Event) -> ev.Event:
    """The event a report amounts to; Refused when it does not fit what is so now."""
    if state.ended is not None:
        raise Refused("the run has ended")
    match report:
        case ev.AttemptSucceeded() | ev.AttemptFailed():
            return _outcome(state, report)
        case ev.StepStarted():
            return _step(state, report)
        case ev.StepFinished() | ev.StepFailed():
            return _step_end(state, report)
        case ev.TasksAdded():
            return _proposal(state, report)
        case ev.SupervisionStarted() | ev.SupervisionFailed() | ev.TaskRefined() | ev.AnswerWritten():
            return _supervision(state, report)
        case ev.InputAnswered():
            return _reply(state, report)
        case ev.CancelRequested() | ev.PauseSet() | ev.RunResumed() | ev.ResultsOffered() | ev.Noted():
            return report
        case _:
            raise Refused(f"{type(report).__name__} is decided, never reported")


_Paid = TypeVar("_Paid", bound=ev.Paid)


def _sane(report: _Paid) -> _Paid:
    used = report.used
    if used is None or (used.tokens >= 0 and used.micros >= 0 and used.calls >= 0):
        return report
    return structs.replace(report, used=None)  # a provider that pays us is mistaken: charge what was reserved


def _running(state: RunState, task: TaskId, attempt: int) -> Progress:
    progress = state.tasks.get(task)
    if progress is None or progress.status is not Status.RUNNING or progress.attempt != attempt:
        raise Refused(f"attempt {attempt} of {task!r} is no longer under way")
    return progress


def _outcome(state: RunState, report: ev.AttemptSucceeded | ev.AttemptFailed) -> ev.Event:
    progress = _running(state, report.task, report.attempt)
    if progress.steps and progress.in_doubt():
        mistake = report.failure.code_error if isinstance(report, ev.AttemptFailed) else None
        doubt = EFFECT_IN_DOUBT
        if mistake is not None:
            message = f"{EFFECT_IN_DOUBT.message}: {mistake.describe()}"
            doubt = structs.replace(EFFECT_IN_DOUBT, message=message, code_error=mistake)
        return ev.AttemptFailed(report.task, report.attempt, doubt, _sane(report).used)
    return _sane(report)


def _step(state: RunState, report: ev.StepStarted) -> ev.Event:
    progress = _running(state, report.task, report.attempt)
    if report.step in (progress.steps or {}):
        raise Refused(f"step {report.step} of {report.task!r} has been started before")
    # what the attempt itself holds is given back at its first step
    more = (report.reserve or NOTHING) - progress.held
    if not state.ledger.covers(more, keep=state.requested.budget.floor):
        raise Refused(f"the budget does not cover step {report.step} of {report.task!r}")
    return report


def _expect(state: RunState, duty: ev.Duty, number: int, task: TaskId = NO_TASK) -> None:
    if Work(duty, task, number) not in state.owing:
        raise Refused(f"nobody is waiting for {duty} number {number} any more")


def _step_end(state: RunState, report: ev.StepFinished | ev.StepFailed) -> ev.Event:
    step = (_running(state, report.task, report.attempt).steps or {}).get(report.step)
    if step is None or step.result is not None:
        raise Refused(f"step {report.step} of {report.task!r} is not open")
    return _sane(report)


def _supervision(
    state: RunState, report: ev.SupervisionStarted | ev.SupervisionFailed | ev.TaskRefined | ev.AnswerWritten
) -> ev.Event:
    if isinstance(report, ev.AnswerWritten):
        _expect(state, "answer", report.number)
        return _sane(report)
    if isinstance(report, ev.TaskRefined):
        _expect(state, "refine", report.number, report.task)
        return _sane(report)
    if isinstance(report, ev.SupervisionStarted) and not state.ledger.covers(report.reserve or NOTHING):
        raise Refused(f"the budget does not cover more calls of the supervisor ({report.duty})")
    _expect(state, report.duty, report.number, report.task)
    if isinstance(report, ev.SupervisionStarted):
        return report  # it is under way and needs more calls than one: they are held before they are made
    return _sane(report)


def _proposal(state: RunState, report: ev.TasksAdded) -> ev.Event:
    _expect(state, "plan", report.number)
    if not report.tasks and report.done and (state.tasks or report.unserved or not report.closed):
        return _sane(report)  # the planner has nothing to add
    requested = state.requested
    planned = len(state.tasks) - state.items
    linted = lint(report.tasks, requested.roster, requested.policy.limits, known=state.tasks, planned=planned)
    errors = linted.errors
    if not errors and state.replans:
        before = {fingerprint(one.task) for one in state.tasks.values()}
        if before.issuperset(map(fingerprint, linted.tasks)):
            said = "This changes nothing: every task was in the plan before. Ask for something else, or for nothing."
            errors = (ev.Finding(code="unchanged", place="plan", message=said),)
    if errors:
        failure = ev.Failure("logic", f"the plan cannot run: {_explain(errors[0])}")
        return ev.SupervisionFailed("plan", report.number, failure, findings=errors, used=_sane(report).used)
    return structs.replace(_sane(report), tasks=linted.tasks, warnings=linted.warnings)


_MORE_TASKS = "to allow more, set Policy(limits=Limits(max_tasks=...)), or policy.limits.max_tasks in the team file"


def _explain(finding: ev.Finding) -> str:
    """A finding for the person who reads the failure; the message itself is for the planner."""
    message = finding.message.rstrip(".")
    return f"{message}; {_MORE_TASKS}" if finding.code == "too_many_tasks" else message


def _check_calls(asked: ev.InputRequested, verdicts: tuple[ev.CallVerdict, ...]) -> None:
    """Refused for a verdict on a call that nobody asks about, and for two on the same one."""
    waiting = [] if asked.question is None else [one.call for one in asked.question.also]
    for verdict in verdicts:
        if verdict.call not in waiting:
            known = ", ".join(map(str, waiting)) or "none"
            raise Refused(f"call {verdict.call} does not wait for a verdict; besides the first, those that do: {known}")
        waiting.remove(verdict.call)


def _reply(state: RunState, report: ev.InputAnswered) -> ev.Event:
    asked = state.input
    if asked is None or asked.number != report.number:
        raise Refused(f"question {report.number} is not being asked")
    plan = ("approve", "edit", "reject")
    own_plan = asked.what == "plan" and not asked.task  # that of a team inside cannot be edited from here
    fitting = plan if own_plan else plan[::2] if asked.what != "effect" else ("done", "again", "fail")
    if report.verdict not in fitting:
        raise Refused(f"{report.verdict!r} does not answer this question; say one of {', '.join(fitting)}")
    _check_calls(asked, report.also)
    if report.verdict != "edit":
        return report
    if report.plan is None:
        raise Refused("an edit comes with the edited plan")
    kept = {task for task, one in state.tasks.items() if one.round != state.round}
    linted = lint(report.plan.tasks, state.requested.roster, state.requested.policy.limits, known=kept)
    if linted.errors:
        raise PlanInvalid(linted.errors)
    return structs.replace(report, plan=Plan(linted.tasks, report.plan.combine, report.plan.goal))
