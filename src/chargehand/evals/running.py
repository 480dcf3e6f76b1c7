"""Scores of answers: those of a whole team, and those of one worker alone."""

from collections.abc import Iterator, Sequence
from random import Random

from msgspec import structs

from chargehand.agents.instances import meant
from chargehand.errors import ChargehandError, Refused
from chargehand.evals.cases import Case, Expect, kind_of, several
from chargehand.evals.chance import bootstrap, mean, quantile
from chargehand.evals.graders import Answer, answer_of, wrong_with
from chargehand.evals.measures import accuracy, averaged, usd
from chargehand.evals.rubric import BY_WORDS, Judged, judged
from chargehand.evals.scores import Measure, Part, Score, Table
from chargehand.evals.trials import ALONE, Bench, Tried, carried_out, untried
from chargehand.runtime.audit import audit
from chargehand.runtime.result import Result

_CALL = 300
_WAITS = "waits for a person (tool: "  # as a team inside another says it
_GOT = 2000  # characters of an answer that a report keeps
_NOTHING = Expect()


async def score_answer(bench: Bench, case: Case) -> Score:
    """One case of the kinds `run` and `worker`."""
    alone = kind_of(case) == "worker"
    worker = case.labels[0] if alone else ""
    try:
        tried = await carried_out(bench.team(), case, worker)
    except ChargehandError as error:
        return untried(case, error)
    result = tried.result
    answer = answer_of(result.results.get(ALONE) if alone else result.answer)
    try:
        _refuse_to_act(bench, case, result)
        wrong, verdict = await _graded(bench, case, answer)
    except ChargehandError as error:  # what the run took was taken all the same
        return structs.replace(untried(case, error), seconds=tried.seconds, micros=result.spent.micros)
    wrong += list(_unlike(case, tried, alone=alone))
    found = [] if alone else [one for one in audit(result.run, result.entries) if not one.prevented]
    notes = (*verdict.notes, *(f"MAST {one.mode}: {one.message} {one.evidence}".rstrip() for one in found))
    micros = None if verdict.micros is None else result.spent.micros + verdict.micros
    return Score(
        case.name, kind_of(case), not wrong, tuple(wrong), values=_values(result, len(found)), seconds=tried.seconds,
        micros=micros, request=case.request, got=answer.text[:_GOT], wanted=_wanted(case), notes=notes,
    )  # fmt: skip


async def _graded(bench: Bench, case: Case, answer: Answer) -> tuple[list[str], Judged]:
    expect = case.expect or _NOTHING
    wrong = await wrong_with(expect, answer, bench.folder)
    if not expect.rubric:
        return wrong, Judged(())
    verdict = await judged(bench.judge, case.request, several(expect.rubric), answer.text)
    return [*wrong, *verdict.problems], verdict


def _unlike(case: Case, tried: Tried, *, alone: bool) -> Iterator[str]:
    """What of a run is not as it should be, besides its answer."""
    result = tried.result
    if result.question is not None and case.ending != "needs_input":
        yield f"it waits for a person, and nobody is there: {result.question.what} {result.question.text}".rstrip()
    elif alone and ALONE not in result.results and case.ending is None:
        yield f"{case.labels[0]} has no result: {'; '.join(gap.message for gap in result.gaps) or result.reason}"
    if case.ending is not None and result.ending != case.ending:
        yield f"it ended {result.ending} ({result.reason}), not {case.ending}"
    elif case.ending is None and result.ending in ("failed", "needs_input", "cancelled") and not alone:
        why = "".join(f": {gap.message[:_CALL]}" for gap in result.gaps[:1])
        yield f"it ended {result.ending} ({result.reason}){why}"
    worked = {one.worker for one in result.trace().tasks} | {meant(task) for task in result.plan.tasks}
    if missing := [name for name in case.workers if name not in worked]:
        yield f"{', '.join(missing)} did not work on it; {', '.join(sorted(worked)) or 'nobody'} did"
    yield from _gaps(case, result)
    if result.coverage.share < case.coverage:
        yield f"it covers {result.coverage.share:.0%} of the plan; {case.coverage:.0%} are wanted"
    if case.most_usd is not None and result.cost > case.most_usd:
        yield f"it cost ${result.cost:.4f}; ${case.most_usd:g} are allowed"
    if case.most_seconds is not None and tried.seconds > case.most_seconds:
        yield f"it took {tried.seconds:.1f} s; {case.most_seconds:g} s are allowed"


def _refuse_to_act(bench: Bench, case: Case, result: Result) -> None:
    """Raise Refused for a run that waits to act, or a team inside it, unless the case is to show just that."""
    if bench.act or case.ending == "needs_input":
        return
    asked = result.question
    below = next((gap.message for gap in result.gaps if _WAITS in gap.message), "")
    if below or (asked is not None and asked.what == "tool"):
        call = below if asked is None else f"it would call {asked.text}"
        raise Refused(f"{call[:_CALL]}; tools that change something are called only with --act")


def _gaps(case: Case, result: Result) -> Iterator[str]:
    asked = {task.id: task.instruction for task in result.plan.tasks}
    said = " ".join(f"{asked.get(gap.task, '')} {gap.message}" for gap in result.gaps)
    plain = " ".join(said.casefold().split())
    for one in several(case.gaps):
        if " ".join(one.casefold().split()) not in plain:
            yield f"no gap speaks of {one!r}"
    if case.most_gaps is not None and len(result.gaps) > case.most_gaps:
        yield f"it has {len(result.gaps)} gaps; {case.most_gaps} are allowed"


def _values(result: Result, findings: int) -> dict[str, float]:
    return {
        "coverage": result.coverage.share,
        "gaps": float(len(result.gaps)),
        "calls": float(result.spent.calls),
        "tokens": float(result.spent.tokens),
        "mast": float(findings),
    }


def _wanted(case: Case) -> str:
    said = [case.answer] if case.answer else []
    expect = case.expect or _NOTHING
    said += [f"holds {one}" for one in several(expect.contains)]
    said += [expect.exact] if expect.exact else []
    return "; ".join(said)[:_GOT]


def report_answers(dataset: str, scores: Sequence[Score], random: Random) -> Part:
    """All that is to be said of such cases."""
    tried = [one for one in scores if not one.error]
    seconds = [one.seconds for one in tried]
    measures = [accuracy(scores), *usd(tried, random)]
    if tried:
        low, high = bootstrap(seconds, random)
        measures.append(Measure("seconds", mean(seconds), low, high, len(tried), "less"))
        low, high = bootstrap(seconds, random, lambda drawn: quantile(drawn, 0.95))
        measures.append(Measure("seconds_p95", quantile(seconds, 0.95), low, high, len(tried), "less"))
        measures.append(averaged("coverage", tried, random))
        less = ("gaps", "mast") if scores[0].kind == "run" else ("gaps",)  # a worker alone is no crew to be audited
        measures += [averaged(name, tried, random, "less") for name in less]
    rows = tuple(map(_row, scores))
    table = Table("Answers", ("case", "", "coverage", "gaps", "seconds", "dollars"), rows)
    by_words = sum(BY_WORDS in one.notes for one in scores)
    warnings = (f"{by_words} cases: {BY_WORDS}; name a judge: --judge MODEL",) if by_words else ()
    return Part(dataset, scores[0].kind, tuple(scores), tuple(measures), (table,), warnings)


def _row(one: Score) -> tuple[str, ...]:
    cost = "?" if one.micros is None else f"{one.micros / 1_000_000:.4f}"
    share, gaps = f"{one.values.get('coverage', 0):.0%}", f"{one.values.get('gaps', 0):g}"
    return one.case, "passed" if one.passed else "failed", share, gaps, f"{one.seconds:.2f}", cost
