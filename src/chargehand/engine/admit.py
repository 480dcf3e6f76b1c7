"""`admit`: the door. What the world reports becomes an event here, or is refused with a reason."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from msgspec import Raw, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.failure import EFFECT_IN_DOUBT, effect_in_doubt
from chargehand.engine.json_schema import problems, schema_problem
from chargehand.engine.lint import lint
from chargehand.engine.plan import NO_TASK, Plan, TaskId, fingerprint
from chargehand.engine.state import Progress, RunState, Status, Work
from chargehand.engine.value import decode_value
from chargehand.engine.view import callers_tools
from chargehand.errors import PlanInvalid, Refused


def admit(state: RunState, report: ev.Event) -> ev.Event:
    """The event a report amounts to; Refused when it does not fit what is so now."""
    if state.ended is not None:
        raise Refused("the run has ended")
    check = _ADMISSIONS.get(type(report))
    if check is None:
        raise Refused(f"{type(report).__name__} is decided, never reported")
    return check(state, report)


_Paid = TypeVar("_Paid", bound=ev.Paid)


def _sane(report: _Paid) -> _Paid:
    """The report; where its cost is negative, what was reserved is charged: a provider that pays us is mistaken."""
    used = report.used
    if used is None or (used.tokens >= 0 and used.micros >= 0 and used.calls >= 0):
        return report
    return structs.replace(report, used=None)


def _as_reported(_state: RunState, report: ev.Event) -> ev.Event:
    return report


# --- attempts and their steps


def _running(state: RunState, task: TaskId, attempt: int) -> Progress:
    progress = state.tasks.get(task)
    is_owed = Work("attempt", task, attempt) in state.owing  # not after a cancel, which stops the work
    if progress is None or progress.status is not Status.RUNNING or not is_owed:
        raise Refused(f"attempt {attempt} of {task!r} is no longer under way")
    return progress


def _outcome(state: RunState, report: ev.AttemptSucceeded | ev.AttemptFailed) -> ev.Event:
    """The outcome of an attempt; while an effect of it is open, it can only be that its outcome is not known."""
    progress = _running(state, report.task, report.attempt)
    report = _sane(report)
    if not progress.steps or not progress.in_doubt():
        return report
    doubt = effect_in_doubt(report.failure) if isinstance(report, ev.AttemptFailed) else EFFECT_IN_DOUBT
    return ev.AttemptFailed(report.task, report.attempt, doubt, report.used)


def _step_start(state: RunState, report: ev.StepStarted) -> ev.Event:
    progress = _running(state, report.task, report.attempt)
    if progress.steps is not None and report.step in progress.steps:
        raise Refused(f"step {report.step} of {report.task!r} has been started before")
    if state.ledger.capped:
        # what the attempt itself holds is given back at its first step
        carried = (progress.carried or {}).get(report.step, NOTHING)
        more = (report.reserve or NOTHING) - progress.reserved - carried
        if not state.ledger.covers(more, keep=state.requested.budget.floor):
            raise Refused(f"the budget does not cover step {report.step} of {report.task!r}")
    return report


def _step_end(state: RunState, report: ev.StepFinished | ev.StepFailed) -> ev.Event:
    steps = _running(state, report.task, report.attempt).steps
    step = None if steps is None else steps.get(report.step)
    if step is None or step.result is not None:
        raise Refused(f"step {report.step} of {report.task!r} is not open")
    return _sane(report)


def _look_up(state: RunState, report: ev.StepLookedUp) -> ev.Event:
    step = (_running(state, report.task, report.attempt).steps or {}).get(report.step)
    if step is None or not step.is_open_effect:
        raise Refused(f"step {report.step} of {report.task!r} is no effect in doubt")
    return report


def _stopped(state: RunState, report: ev.AttemptStopped) -> ev.Event:
    if (report.task, report.attempt) not in state.stopping:
        raise Refused(f"the run inside attempt {report.attempt} of {report.task!r} is not waited for")
    return _sane(report)


# --- the duties of the supervisor


def _expect(state: RunState, duty: ev.Duty, number: int, task: TaskId = NO_TASK) -> None:
    if Work(duty, task, number) not in state.owing:
        raise Refused(f"{duty} number {number} is not under way any more")


def _answer(state: RunState, report: ev.AnswerWritten) -> ev.Event:
    _expect(state, "answer", report.number)
    return _sane(report)


def _refinement(state: RunState, report: ev.TaskRefined) -> ev.Event:
    _expect(state, "refine", report.number, report.task)
    return _sane(report)


def _supervision_failure(state: RunState, report: ev.SupervisionFailed) -> ev.Event:
    _expect(state, report.duty, report.number, report.task)
    return _sane(report)


def _more_calls(state: RunState, report: ev.SupervisionStarted) -> ev.Event:
    """A duty that is under way needs more calls than one: they are held before they are made."""
    if not state.ledger.covers(report.reserve or NOTHING):
        raise Refused(f"the budget does not cover more calls of the supervisor ({report.duty})")
    _expect(state, report.duty, report.number, report.task)
    return report


def _proposal(state: RunState, report: ev.TasksAdded) -> ev.Event:
    """Tasks that can run; else the failure of the planner, with what is wrong with them."""
    _expect(state, "plan", report.number)
    report = _sane(report)
    needs_no_tasks = state.tasks or report.unserved or not report.closed or callers_tools(state)
    if not report.tasks and report.done and needs_no_tasks:
        return report  # the planner has nothing to add
    requested = state.requested
    planned = len(state.tasks) - state.items
    linted = lint(report.tasks, requested.roster, requested.policy.limits, known=state.tasks, planned=planned)
    errors = linted.errors
    if not errors and state.replans:
        before = {fingerprint(progress.task) for progress in state.tasks.values()}
        if before.issuperset(map(fingerprint, linted.tasks)):
            errors = (_UNCHANGED,)
    if errors:
        failure = ev.Failure("logic", f"the plan cannot run: {_explain(errors[0])}")
        return ev.SupervisionFailed("plan", report.number, failure, findings=errors, used=report.used)
    return structs.replace(report, tasks=linted.tasks, warnings=linted.warnings)


_UNCHANGED = ev.Finding(
    code="unchanged",
    place="plan",
    message="This changes nothing: every task was in the plan before. Ask for something else, or for nothing.",
)
_MORE_TASKS = "to allow more, set Policy(limits=Limits(max_tasks=...)), or policy.limits.max_tasks in the team file"


def _explain(finding: ev.Finding) -> str:
    """A finding for the person who reads the failure; the message itself is for the planner."""
    message = finding.message.rstrip(".")
    return f"{message}; {_MORE_TASKS}" if finding.code == "too_many_tasks" else message


# --- the person


def _skip(state: RunState, report: ev.TaskSkipped) -> ev.Event:
    """A task that does not run at the moment; which ones are skipped for another reason is decided."""
    if report.reason != "person":
        raise Refused(f"a skip for the reason {report.reason!r} is decided, never reported")
    _idle(state, report.task, (Status.WAITING, Status.READY, Status.BACKING_OFF))
    return report


def _reassignment(state: RunState, report: ev.TaskReassigned) -> ev.Event:
    progress = _idle(state, report.task, (Status.WAITING, Status.READY))
    if progress.attempt:
        raise Refused(f"task {report.task!r} has been tried by {progress.worker!r}; only one not begun is reassigned")
    if report.worker not in state.agents:
        raise Refused(f"there is no worker {report.worker!r}; there are {', '.join(state.agents)}")
    return report


def _idle(state: RunState, task: TaskId, allowed: tuple[Status, ...]) -> Progress:
    """A task in one of these states; Refused, with what to do instead, where it is in another."""
    progress = state.tasks.get(task)
    if progress is None:
        raise Refused(f"there is no task {task!r} in the plan")
    if progress.status not in allowed:
        advice = {Status.RUNNING: "; stop its attempt instead", Status.ASKING: "; answer its question instead"}
        raise Refused(f"task {task!r} is {progress.status.value}{advice.get(progress.status, '')}")
    return progress


VERDICTS: dict[str, tuple[str, ...]] = {
    "plan": ("approve", "reject"),
    "tool": ("approve", "reject"),
    "effect": ("done", "again", "fail"),
    "question": ("answer", "reject"),
}
"""What answers a question, by its kind. The plan of the run itself may also be edited."""


def _reply(state: RunState, report: ev.InputAnswered) -> ev.Event:
    report = _with_plain_results(report)
    question = state.input
    if question is None or question.number != report.number:
        raise Refused(f"question {report.number} is not being asked")
    verdicts: tuple[str, ...] = VERDICTS[question.what]
    if question.what == "plan" and not question.task:  # the plan of a nested run cannot be edited from here
        verdicts = (*verdicts, "edit")
    if report.verdict not in verdicts:
        raise Refused(f"{report.verdict!r} does not answer this question; say one of {', '.join(verdicts)}")
    if report.verdict == "answer" and question.question is not None:
        problem = answer_problem(question.question, report.result)
        if problem:
            raise Refused(f"{problem}. Question {question.number} stays open: {question.text}")
    if report.budget is not None and state.requested.parent is None:
        raise Refused("the budget of a run cannot be changed by an answer; leave `budget` out")
    _check_calls(question, report)
    return _edited_plan(state, report) if report.verdict == "edit" else report


def _with_plain_results(report: ev.InputAnswered) -> ev.InputAnswered:
    """Return an answer whose results are plain data, also where they were given as JSON."""
    results = (report.result, *(verdict.result for verdict in report.also))
    if not any(isinstance(result, Raw) for result in results):
        return report
    also = tuple(structs.replace(verdict, result=_plain(verdict.result)) for verdict in report.also)
    return structs.replace(report, result=_plain(report.result), also=also)


def _plain(result: object) -> object:
    return decode_value(result) if isinstance(result, Raw) else result


def answer_problem(question: ev.Question, value: object) -> str:
    """Return why a value does not answer a question in words; empty: it does.

    With a schema the value must fit it. With options the value must be one of them, unless other text is allowed too. A
    schema that is not a JSON Schema is not checked: a model wrote it.
    """
    options = question.options
    if options and not question.free_text and value not in options:
        return f"the answer must be one of {', '.join(map(repr, options))}"
    if not isinstance(question.schema, dict) or schema_problem(cast("object", question.schema)):
        return ""
    misfit = next(problems(value, cast("dict[str, Any]", question.schema)), "")
    return f"the answer does not fit the schema of the question: {misfit}" if misfit else ""


def _check_calls(question: ev.InputRequested, report: ev.InputAnswered) -> None:
    """Check the verdicts on the calls of a question.

    Raises:
        Refused: for a call that is not asked about, two verdicts on one call, and a verdict of another kind.
    """
    # the first call has its verdict in the answer itself
    judged = {pending.call for pending in question.calls[:1]}
    waiting = [pending.call for pending in question.calls[1:]]
    for verdict in report.also:
        if verdict.verdict not in VERDICTS[question.what]:
            words = ", ".join(VERDICTS[question.what])
            raise Refused(f"{verdict.verdict!r} does not answer call {verdict.call}; say one of {words}")
        if verdict.call in judged:
            raise Refused(f"call {verdict.call} was given two verdicts; give one for each call")
        if verdict.call not in waiting:
            numbers = ", ".join(map(str, waiting)) or "none"
            raise Refused(
                f"call {verdict.call} does not wait for a verdict; besides the first, those that do: {numbers}"
            )
        judged.add(verdict.call)


def _edited_plan(state: RunState, report: ev.InputAnswered) -> ev.Event:
    plan = report.plan
    if plan is None:
        raise Refused("an edit comes with the edited plan")
    earlier = {task for task, progress in state.tasks.items() if progress.round != state.round}
    linted = lint(plan.tasks, state.requested.roster, state.requested.policy.limits, known=earlier)
    if linted.errors:
        raise PlanInvalid(linted.errors)
    return structs.replace(report, plan=Plan(linted.tasks, plan.combine, plan.goal))


_ADMISSIONS: dict[type, Callable[[RunState, Any], ev.Event]] = {
    ev.StepStarted: _step_start,
    ev.StepFinished: _step_end,
    ev.StepFailed: _step_end,
    ev.StepLookedUp: _look_up,
    ev.AttemptSucceeded: _outcome,
    ev.AttemptFailed: _outcome,
    ev.AttemptStopped: _stopped,
    ev.TasksAdded: _proposal,
    ev.AnswerWritten: _answer,
    ev.TaskRefined: _refinement,
    ev.SupervisionStarted: _more_calls,
    ev.SupervisionFailed: _supervision_failure,
    ev.InputAnswered: _reply,
    ev.TaskSkipped: _skip,
    ev.TaskReassigned: _reassignment,
    ev.CancelRequested: _as_reported,
    ev.PauseSet: _as_reported,
    ev.RunResumed: _as_reported,
    ev.ResultsOffered: _as_reported,
    ev.Noted: _as_reported,
}
"""What may be reported, and how it is judged."""
