"""An evaluation from its datasets to its report: every case is tried, scored, compared and held against the gates."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

import msgspec
from msgspec import structs

from chargehand.errors import Invalid, Refused
from chargehand.evals.answers import report_answers, score_answer
from chargehand.evals.bench import Bench, OpenScorer, ScoreCase, TeamFactory, failed_to_try, score_each
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, find_problem, kind_of
from chargehand.evals.datasets import name_cases
from chargehand.evals.gates import (
    check_baseline,
    check_gates,
    compare,
    count_regressions,
    describe_differences,
    hold_gates,
)
from chargehand.evals.graders import find_grader
from chargehand.evals.plans import report_plans, score_plan
from chargehand.evals.report import Change, Report, Score, Section
from chargehand.evals.routing import open_route_scorer, report_routes
from chargehand.evals.statistics import seeded_random
from chargehand.evals.verifying import report_results, score_results
from chargehand.models.find import Finder, Lookup
from chargehand.models.model import Model
from chargehand.team import Supervisor
from chargehand.terms.budget import usd_of

MAX_PARALLEL = 4
_LIMIT_MICROS = 10**15
"""More than any evaluation costs."""

ReportScores: TypeAlias = Callable[[str, Sequence[Score], Random], Section]
_KINDS: dict[Kind, tuple[OpenScorer, ReportScores]] = {
    "routing": (open_route_scorer, report_routes),
    "plan": (score_each(score_plan), report_plans),
    "worker": (score_each(score_answer), report_answers),
    "run": (score_each(score_answer), report_answers),
    "verifier": (score_each(score_results), report_results),
}
"""How cases of each kind are scored and reported."""


class Progress:
    """Gets every score as soon as it is known. This one does nothing with it."""

    def begin(self, datasets: Sequence[Dataset]) -> None:
        """These are going to be tried."""

    def add(self, dataset: str, score: Score) -> None:
        """One more case is done, or one result of a verifier case."""


_NO_PROGRESS = Progress()


def _no_keys(_name: str) -> str | None:
    return None


async def evaluate(
    datasets: Sequence[Dataset],
    team_factory: TeamFactory,
    *,
    judge: Model | str = "",
    gate: Mapping[str, float] | None = None,
    baseline: Report | None = None,
    lookup: Lookup = _no_keys,
    max_parallel: int = MAX_PARALLEL,
    seed: int = 0,
    act: bool = False,
    budget_usd: float | None = None,
    progress: Progress = _NO_PROGRESS,
) -> Report:
    """Try every case on a new team, `max_parallel` of them at the same time.

    `judge` judges rubrics where a dataset names no other model. `lookup` finds keys. `seed` is for all that is random
    here: seeded mistakes, and draws for intervals. Tools that change something are called only with `act`. Once
    `budget_usd` is spent no further case is begun.
    """
    if not 1 <= max_parallel <= 64:
        raise Invalid(f"{max_parallel} cases at once cannot be; ask for 1 to 64")
    if budget_usd is not None and not budget_usd >= 0:
        raise Invalid(f"a budget of {budget_usd:g} dollars cannot be; name 0 or more")
    gate = gate or {}
    datasets = _check_datasets(datasets)
    check_gates(datasets, gate, has_baseline=baseline is not None)
    if baseline is not None:
        check_baseline(baseline, datasets)
    if budget_usd is not None or _gates_usd(datasets, gate):
        await _check_prices(team_factory())
    loop = _Loop(max_parallel, budget_usd, progress)
    finder = Finder(lookup)
    sections: list[Section] = []
    try:
        judges = [_find_judge(finder, dataset.judge or judge) for dataset in datasets]
        progress.begin(datasets)
        for dataset, model in zip(datasets, judges, strict=True):
            bench = Bench(team_factory, lookup, judge=model, folder=dataset.folder, act=act, seed=seed)
            sections += [await _evaluate_kind(loop, bench, dataset, kind) for kind in _kinds_of(dataset.cases)]
    finally:
        await finder.close()
    team = team_factory()
    report = Report(team.name, tuple(sections), notice=team.notice, seed=seed, stopped=loop.stopped)
    if baseline is not None:
        report = _with_baseline(report, baseline)
    gates = hold_gates(report.sections, gate, datasets, has_baseline=baseline is not None)
    return structs.replace(report, gates=gates)


def report_unfinished(team: str, scores: Mapping[str, Sequence[Score]], stopped: str, seed: int = 0) -> Report:
    """The report of an evaluation that was stopped: the cases that were tried, by dataset, without gates."""
    sections: list[Section] = []
    for dataset, known in scores.items():
        for kind in KINDS:
            own = [score for score in known if score.kind == kind]
            if own:
                sections.append(_report_kind(dataset, kind, own, seed))
    return Report(team, tuple(sections), seed=seed, stopped=stopped)


# --- before anything is tried


def _check_datasets(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Datasets whose cases have names; Invalid for what would be noticed only after answers are paid for."""
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise Invalid("two datasets have the same name; give one of them another: name: …")
    for dataset in datasets:
        for case in dataset.cases:
            where = f"dataset {dataset.name}, case {case.name or case.request!r}"
            if problem := find_problem(case):
                raise Invalid(f"{where}: {problem}")
            if case.expect is not None and case.expect.python:
                try:
                    find_grader(dataset.folder, case.expect.python)
                except Invalid as error:
                    raise Invalid(f"{where}: {error}") from error
    return [structs.replace(dataset, cases=name_cases(dataset.cases)) for dataset in datasets]


def _gates_usd(datasets: Sequence[Dataset], gate: Mapping[str, float]) -> bool:
    names = [*gate, *(name for dataset in datasets for name in dataset.gate)]
    return any(name.rpartition(".")[2] == "usd" for name in names)


async def _check_prices(team: Supervisor) -> None:
    """Raise Invalid where the price of a model is not known: what it spends would be taken for nothing."""
    budget = team.budget
    if budget.usd is None:
        budget = structs.replace(budget, usd=usd_of(_LIMIT_MICROS))
    async with team.bounded(budget=budget).crew():
        return


def _find_judge(finder: Finder, judge: Model | str) -> Model | None:
    if isinstance(judge, str):
        return finder.find(judge) if judge else None
    return judge


# --- the loop


def _kinds_of(cases: Sequence[Case]) -> list[Kind]:
    existing = {kind_of(case) for case in cases}
    return [kind for kind in KINDS if kind in existing]


async def _evaluate_kind(loop: "_Loop", bench: Bench, dataset: Dataset, kind: Kind) -> Section:
    cases = [case for case in dataset.cases if kind_of(case) == kind]
    open_scorer, _ = _KINDS[kind]
    async with open_scorer(bench) as score_case:
        scores = await loop.run(dataset.name, cases, score_case)
    return _report_kind(dataset.name, kind, scores, bench.seed)


def _report_kind(dataset: str, kind: Kind, scores: Sequence[Score], seed: int) -> Section:
    _, report_scores = _KINDS[kind]
    return report_scores(dataset, scores, seeded_random(seed, dataset, kind))


def _with_baseline(report: Report, baseline: Report) -> Report:
    changes = compare(baseline, report.sections, seeded_random(report.seed))
    sections = tuple(_with_regressions(section, changes) for section in report.sections)
    warnings = describe_differences(baseline, report.sections, report.team)
    return structs.replace(report, sections=sections, changes=changes, warnings=warnings)


def _with_regressions(section: Section, changes: Sequence[Change]) -> Section:
    regressions = count_regressions(changes, section)
    if regressions is None:
        return section
    return structs.replace(section, measures=(*section.measures, regressions))


class _Loop:
    """Tries cases, some in parallel, within a budget. An error in one of them loses no other."""

    def __init__(self, max_parallel: int, budget_usd: float | None, progress: Progress) -> None:
        self.stopped = ""
        self._max_parallel = max_parallel
        self._budget_usd = budget_usd
        self._progress = progress
        self._spent_usd = 0.0
        self._cost_unknown = False

    async def run(self, dataset: str, cases: Sequence[Case], score_case: ScoreCase) -> list[Score]:
        """The scores in the order of the cases."""
        scores: list[list[Score]] = [[] for _ in cases]
        slots = asyncio.Semaphore(self._max_parallel)

        async def run_one(index: int, case: Case) -> None:
            async with slots:
                scores[index] = await self._try_case(case, score_case)
            for score in scores[index]:
                self._progress.add(dataset, score)

        async with asyncio.TaskGroup() as group:
            for index, case in enumerate(cases):
                group.create_task(run_one(index, case))
        return [score for scores_of_case in scores for score in scores_of_case]

    async def _try_case(self, case: Case, score_case: ScoreCase) -> list[Score]:
        if refusal := self._refuse():
            self.stopped = refusal
            return [failed_to_try(case, Refused(refusal))]
        try:
            scores = await score_case(case)
        except Exception as error:  # noqa: BLE001 - whatever foreign tools and graders do, the other cases count
            return [_encodable(failed_to_try(case, error))]
        self._spent_usd += sum(score.usd or 0.0 for score in scores)
        self._cost_unknown = self._cost_unknown or any(score.usd is None for score in scores)
        return [_encodable(score) for score in scores]

    def _refuse(self) -> str:
        """Why no further case is begun. Cases that cost nothing are within a budget of nothing."""
        if self._budget_usd is None:
            return ""
        if self._cost_unknown:
            return "the cost of the cases is not known here, so no budget can be kept: leave --budget-usd out"
        if self._spent_usd and self._spent_usd >= self._budget_usd - 1e-9:
            return f"the ${self._budget_usd:g} of the whole evaluation are spent; allow more with --budget-usd"
        return ""


def _encodable(score: Score) -> Score:
    """The same in text that can be written: foreign functions may return lone surrogates."""
    try:
        msgspec.json.encode(score)
    except UnicodeEncodeError:
        return structs.replace(
            score,
            case=_replace_surrogates(score.case),
            request=_replace_surrogates(score.request),
            got=_replace_surrogates(score.got),
            wanted=_replace_surrogates(score.wanted),
            why=tuple(map(_replace_surrogates, score.why)),
            notes=tuple(map(_replace_surrogates, score.notes)),
        )
    return score


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
