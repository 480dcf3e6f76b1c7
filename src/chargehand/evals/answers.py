"""Scores of answers: those of a whole team (`run`), and those of one worker alone (`worker`)."""

import time
from collections.abc import Iterator

import msgspec
from msgspec import structs

from chargehand.agents.audit.failure_modes import audit_run
from chargehand.agents.result import Result, read_result
from chargehand.engine.events import AttemptFailed
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import ChargehandError, Refused
from chargehand.evals.bench import RUN_SEED, Bench, check_workers, failed_to_try
from chargehand.evals.cases import Case, Expect, as_tuple, kind_of
from chargehand.evals.graders import NO_JUDGE, answer_of, grade_answer
from chargehand.evals.report import Score
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Runner, checked
from chargehand.team import Team

_TASK = TaskId("t1")
"""The one task of a worker that is asked alone."""
_MAX_CALL_CHARS = 300
_MAX_ANSWER_CHARS = 2000


async def score_answer(bench: Bench, case: Case) -> list[Score]:
    """One case of the kinds `run` and `worker`."""
    expect = case.expect or Expect()
    worker = case.labels[0] if kind_of(case) == "worker" else ""
    if expect.rubric and bench.judge is None:
        raise Refused(NO_JUDGE)
    began = time.perf_counter()
    result = await _carry_out(bench.new_team(), case, worker)
    seconds = time.perf_counter() - began
    answer = answer_of(result.results.get(_TASK) if worker else result.answer)
    try:
        _refuse_to_act(bench, case, result)
        grade = await grade_answer(expect, answer, request=case.request, folder=bench.folder, judge=bench.judge)
    except ChargehandError as error:  # what the run took was taken all the same
        return [structs.replace(failed_to_try(case, error), seconds=seconds, usd=result.cost)]
    problems = (*grade.problems, *_run_problems(case, result, worker, seconds))
    findings = [] if worker else [finding for finding in audit_run(result.entries) if not finding.prevented]
    values = {
        "coverage": result.coverage.share,
        "gaps": float(len(result.gaps)),
        "calls": float(result.spent.calls),
        "tokens": float(result.spent.tokens),
        "failure_modes": float(len(findings)),
    }
    score = Score(
        case=case.name,
        kind=kind_of(case),
        passed=not problems,
        why=problems,
        values=values,
        seconds=seconds,
        usd=None if grade.usd is None else result.cost + grade.usd,
        request=case.request,
        got=answer.text[:_MAX_ANSWER_CHARS],
        wanted=(case.answer or msgspec.json.encode(expect).decode())[:_MAX_ANSWER_CHARS],
        notes=tuple(f"{finding.mode}: {finding.message} {finding.evidence}".rstrip() for finding in findings),
    )
    return [score]


async def _carry_out(team: Team, case: Case, worker: str) -> Result:
    """Run the request of a case in a journal of its own; with one task where a worker is named."""
    check_workers(team, (*case.workers, *case.labels))
    plan = None
    if worker:
        plan = Plan((Task(_TASK, case.request, worker),), "forward")
    team = team.bounded(policy=structs.replace(team.policy, approve=False))  # plans are not waited for
    team = await team.keep_budget()
    journal = MemoryJournal()
    now = time.time()
    request = checked(team.request(case.request, now, plan=plan, seed=RUN_SEED), now)
    async with team.executor() as executor:
        outcome = await Runner(journal, executor).start("eval", request)
        return read_result(outcome, await journal.read("eval"))


def _refuse_to_act(bench: Bench, case: Case, result: Result) -> None:
    """Raise Refused for a run that waits to act, or a team inside it, unless the case is to show just that."""
    if bench.act or case.ending == "needs_input":
        return
    question = result.question
    failures = [entry.event.failure for entry in result.entries if isinstance(entry.event, AttemptFailed)]
    waiting = [failure for failure in failures if failure.question is not None and failure.question.what == "tool"]
    nested = next((failure.message for failure in waiting if failure.kind != "approval"), "")
    if nested or (question is not None and question.what == "tool"):
        call = nested if question is None else f"it would call {question.text}"
        raise Refused(f"{call[:_MAX_CALL_CHARS]}; tools that change something are called only with --act")


def _run_problems(case: Case, result: Result, worker: str, seconds: float) -> Iterator[str]:
    """What of a run is not as it should be, besides its answer."""
    yield from _ending_problems(case, result, worker)
    worked = {task.worker for task in result.trace().tasks} | {task.worker for task in result.plan.tasks}
    if missing := [name for name in case.workers if name not in worked]:
        yield f"{', '.join(missing)} did not work on it; {', '.join(sorted(worked)) or 'no worker'} did"
    yield from _gap_problems(case, result)
    if result.coverage.share < case.coverage:
        yield f"it covers {result.coverage.share:.0%} of the plan; {case.coverage:.0%} are wanted"
    if case.max_usd is not None and result.cost > case.max_usd:
        yield f"it cost ${result.cost:.4f}; ${case.max_usd:g} are allowed"
    if case.max_seconds is not None and seconds > case.max_seconds:
        yield f"it took {seconds:.1f} s; {case.max_seconds:g} s are allowed"


def _ending_problems(case: Case, result: Result, worker: str) -> Iterator[str]:
    if result.question is not None and case.ending != "needs_input":
        yield f"it waits for input: {result.question.what} {result.question.text}".rstrip()
    elif worker and _TASK not in result.results and case.ending is None:
        yield f"{worker} has no result: {'; '.join(gap.message for gap in result.gaps) or result.reason}"
    if case.ending is not None and result.ending != case.ending:
        yield f"it ended {result.ending} ({result.reason}), not {case.ending}"
    elif case.ending is None and result.ending in ("failed", "needs_input", "cancelled") and not worker:
        why = "".join(f": {gap.message[:_MAX_CALL_CHARS]}" for gap in result.gaps[:1])
        yield f"it ended {result.ending} ({result.reason}){why}"


def _gap_problems(case: Case, result: Result) -> Iterator[str]:
    instructions = {task.id: task.instruction for task in result.plan.tasks}
    texts = " ".join(f"{instructions.get(gap.task, '')} {gap.message}" for gap in result.gaps)
    plain = " ".join(texts.casefold().split())
    for wanted in as_tuple(case.gaps):
        if " ".join(wanted.casefold().split()) not in plain:
            yield f"no gap speaks of {wanted!r}"
    if case.max_gaps is not None and len(result.gaps) > case.max_gaps:
        yield f"it has {len(result.gaps)} gaps; {case.max_gaps} are allowed"
