"""Scores of answers: those of a whole team (`run`), and those of one worker alone (`worker`)."""

import time
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct, structs

from chargehand.agents.failure_modes import audit_run
from chargehand.errors import ChargehandError, Refused
from chargehand.evals.bench import Bench, check_workers, failed_to_try
from chargehand.evals.cases import Case, Expect, as_tuple, kind_of
from chargehand.evals.graders import NO_JUDGE, answer_of, grade_answer
from chargehand.evals.report import Measure, Score, Section, Table
from chargehand.evals.statistics import (
    bootstrap,
    measure_accuracy,
    measure_mean,
    measure_usd,
    measure_value,
    quantile,
)
from chargehand.runtime.driver import Driver, checked
from chargehand.runtime.result import Result, result_of, spoken
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms.plan import Plan, Task, TaskId

_TASK = TaskId("t1")
"""The one task of a worker that is asked alone."""
_RUN_SEED = 7
_MAX_CALL_CHARS = 300
_MAX_ANSWER_CHARS = 2000
_WAITS_INSIDE = "waits for a person (tool: "
"""How the gap of a nested team begins that waits for approval of a call."""


class TimedResult(Struct, frozen=True):
    result: Result
    seconds: float


async def score_answer(bench: Bench, case: Case) -> list[Score]:
    """One case of the kinds `run` and `worker`."""
    expect = case.expect or Expect()
    worker = case.labels[0] if kind_of(case) == "worker" else ""
    if expect.rubric and bench.judge is None:
        return [failed_to_try(case, Refused(NO_JUDGE))]
    try:
        timed = await _carry_out(bench.new_team(), case, worker)
    except ChargehandError as error:
        return [failed_to_try(case, error)]
    result = timed.result
    usd = result.spent.micros / 1_000_000
    answer = answer_of(result.results.get(_TASK) if worker else result.answer)
    try:
        _refuse_to_act(bench, case, result)
        grade = await grade_answer(expect, answer, request=case.request, folder=bench.folder, judge=bench.judge)
    except ChargehandError as error:  # what the run took was taken all the same
        return [structs.replace(failed_to_try(case, error), seconds=timed.seconds, usd=usd)]
    problems = (*grade.problems, *_run_problems(case, timed, worker))
    findings = [] if worker else [finding for finding in audit_run(result.entries) if not finding.prevented]
    score = Score(
        case=case.name,
        kind=kind_of(case),
        passed=not problems,
        why=problems,
        values=_values(result, len(findings)),
        seconds=timed.seconds,
        usd=None if grade.usd is None else usd + grade.usd,
        request=case.request,
        got=answer.text[:_MAX_ANSWER_CHARS],
        wanted=_describe_wanted(case, expect),
        notes=tuple(f"{finding.mode}: {finding.message} {finding.evidence}".rstrip() for finding in findings),
    )
    return [score]


async def _carry_out(team: Supervisor, case: Case, worker: str) -> TimedResult:
    """Run the request of a case in a journal of its own; with one task where a worker is named."""
    check_workers(team, (*case.workers, *([worker] if worker else ())))
    plan = None
    if worker:
        plan = Plan((Task(_TASK, case.request, worker),), "forward")
    team = team.bounded(policy=structs.replace(team.policy, approve=False))  # plans are not waited for
    team = await team.keep_budget()
    journal = MemoryJournal()
    now = time.time()
    request = checked(team.request(case.request, now, plan=plan, seed=_RUN_SEED), now)
    began = time.perf_counter()
    async with team.crew() as crew:
        outcome = await Driver(journal, crew).start("eval", request)
        result = spoken(result_of(outcome, await journal.read("eval"), ""))
    return TimedResult(result, time.perf_counter() - began)


def _refuse_to_act(bench: Bench, case: Case, result: Result) -> None:
    """Raise Refused for a run that waits to act, or a team inside it, unless the case is to show just that."""
    if bench.act or case.ending == "needs_input":
        return
    question = result.question
    nested = next((gap.message for gap in result.gaps if _WAITS_INSIDE in gap.message), "")
    if nested or (question is not None and question.what == "tool"):
        call = nested if question is None else f"it would call {question.text}"
        raise Refused(f"{call[:_MAX_CALL_CHARS]}; tools that change something are called only with --act")


def _run_problems(case: Case, timed: TimedResult, worker: str) -> Iterator[str]:
    """What of a run is not as it should be, besides its answer."""
    result = timed.result
    yield from _ending_problems(case, result, worker)
    worked = {task.worker for task in result.trace().tasks} | {task.worker for task in result.plan.tasks}
    if missing := [name for name in case.workers if name not in worked]:
        yield f"{', '.join(missing)} did not work on it; {', '.join(sorted(worked)) or 'no worker'} did"
    yield from _gap_problems(case, result)
    if result.coverage.share < case.coverage:
        yield f"it covers {result.coverage.share:.0%} of the plan; {case.coverage:.0%} are wanted"
    if case.max_usd is not None and result.cost > case.max_usd:
        yield f"it cost ${result.cost:.4f}; ${case.max_usd:g} are allowed"
    if case.max_seconds is not None and timed.seconds > case.max_seconds:
        yield f"it took {timed.seconds:.1f} s; {case.max_seconds:g} s are allowed"


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


def _values(result: Result, failure_modes: int) -> dict[str, float]:
    return {
        "coverage": result.coverage.share,
        "gaps": float(len(result.gaps)),
        "calls": float(result.spent.calls),
        "tokens": float(result.spent.tokens),
        "failure_modes": float(failure_modes),
    }


def _describe_wanted(case: Case, expect: Expect) -> str:
    texts = [case.answer, *(f"holds {text}" for text in as_tuple(expect.contains)), expect.exact or ""]
    return "; ".join(filter(None, texts))[:_MAX_ANSWER_CHARS]


def report_answers(dataset: str, scores: Sequence[Score], random: Random) -> Section:
    tried = [score for score in scores if not score.error]
    measures = [measure_accuracy(scores), *measure_usd(tried, random)]
    if tried:
        seconds = [score.seconds for score in tried]
        low, high = bootstrap(seconds, random, _p95)
        p95 = Measure(name="seconds_p95", value=_p95(seconds), low=low, high=high, count=len(tried), better="less")
        measures += [measure_mean("seconds", seconds, random, "less"), p95]
        measures += [measure_value("coverage", tried, random), measure_value("gaps", tried, random, "less")]
        if scores[0].kind == "run":  # one worker alone is no team to be audited
            measures.append(measure_value("failure_modes", tried, random, "less"))
    heads = ("case", "", "coverage", "gaps", "seconds", "usd")
    table = Table("Answers", heads, tuple(map(_row, scores)))
    return Section(
        dataset=dataset, kind=scores[0].kind, scores=tuple(scores), measures=tuple(measures), tables=(table,)
    )


def _p95(seconds: Sequence[float]) -> float:
    return quantile(seconds, 0.95)


def _row(score: Score) -> tuple[str, ...]:
    return (
        score.case,
        "passed" if score.passed else "failed",
        f"{score.values.get('coverage', 0):.0%}",
        f"{score.values.get('gaps', 0):g}",
        f"{score.seconds:.2f}",
        "?" if score.usd is None else f"{score.usd:.4f}",
    )
