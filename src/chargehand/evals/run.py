"""An evaluation from its datasets to its report: every case is tried, scored, compared and checked against gates."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import msgspec
from msgspec import structs

from chargehand.engine.budget import usd_of
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, check_case, kind_of, name_cases
from chargehand.evals.graders import find_grader
from chargehand.evals.measures import check_baseline, check_gates, compare_with_baseline, evaluate_gates, report_section
from chargehand.evals.report import EvalReport, Score, Section
from chargehand.evals.scoring import Bench, TeamFactory, open_draft_scorer, score_answer, score_results, untried_score
from chargehand.models.model import Model
from chargehand.models.resolve import Finder, Lookup
from chargehand.team import Team

MAX_PARALLEL = 4
_LIMIT_MICROS = 10**15
"""More than any evaluation costs."""

ScoreCase: TypeAlias = Callable[[Case], Awaitable[list[Score]]]
"""Tries one case. A verifier case has a score for each result."""
OpenScorer: TypeAlias = Callable[[Bench], AbstractAsyncContextManager[ScoreCase]]


def _score_each(score: Callable[[Bench, Case], Awaitable[list[Score]]]) -> OpenScorer:
    """A scorer that keeps nothing open between cases."""

    @asynccontextmanager
    async def open_scorer(bench: Bench) -> AsyncGenerator[ScoreCase]:
        yield lambda case: score(bench, case)

    return open_scorer


_SCORERS: dict[Kind, OpenScorer] = {
    "routing": open_draft_scorer,
    "plan": open_draft_scorer,
    "worker": _score_each(score_answer),
    "run": _score_each(score_answer),
    "verifier": _score_each(score_results),
}


class EvalProgress:
    """Gets every score as soon as it is known. This one does nothing with it."""

    def begin(self, datasets: Sequence[Dataset]) -> None:
        """These are going to be tried."""

    def add(self, dataset: str, score: Score) -> None:
        """One more case is done, or one result of a verifier case."""


_NO_PROGRESS = EvalProgress()


def _no_keys(_name: str) -> str | None:
    return None


async def evaluate(
    datasets: Sequence[Dataset],
    team_factory: TeamFactory,
    *,
    judge: Model | str = "",
    gate: Mapping[str, float] | None = None,
    baseline: EvalReport | None = None,
    lookup: Lookup = _no_keys,
    max_parallel: int = MAX_PARALLEL,
    act: bool = False,
    budget_usd: float | None = None,
    progress: EvalProgress = _NO_PROGRESS,
) -> EvalReport:
    """Try every case on a new team, `max_parallel` of them at the same time.

    `judge` judges rubrics where a dataset names no other model. `lookup` finds keys. Tools that change something are
    called only with `act`. Once `budget_usd` is spent no further case is begun.
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
            bench = Bench(team_factory, lookup, judge=model, folder=dataset.folder, act=act)
            for kind in KINDS:
                if cases := [case for case in dataset.cases if kind_of(case) == kind]:
                    async with _SCORERS[kind](bench) as score_case:
                        scores = await loop.run(dataset.name, cases, score_case)
                    sections.append(report_section(dataset.name, kind, scores))
    finally:
        await finder.close()
    team = team_factory()
    report = EvalReport(team.name, tuple(sections), notice=team.notice, stopped=loop.stopped, at=time.time())
    if baseline is not None:
        report = compare_with_baseline(report, baseline)
    gates = evaluate_gates(report.sections, gate, datasets, has_baseline=baseline is not None)
    return structs.replace(report, gates=gates)


def report_unfinished(team: str, scores: Mapping[str, Sequence[Score]], stopped: str) -> EvalReport:
    """The report of an evaluation that was stopped: the cases that were tried, by dataset, without gates."""
    sections: list[Section] = []
    for dataset, tried in scores.items():
        for kind in KINDS:
            own = [score for score in tried if score.kind == kind]
            sections += [report_section(dataset, kind, own)] if own else []
    return EvalReport(team, tuple(sections), stopped=stopped, at=time.time())


# --- before anything is tried


def _check_datasets(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Datasets whose cases have names; Invalid for what would be noticed only after answers are paid for."""
    if len({dataset.name for dataset in datasets}) < len(datasets):
        raise Invalid("two datasets have the same name; give one of them another: name: …")
    for dataset in datasets:
        for case in dataset.cases:
            try:
                check_case(msgspec.to_builtins(case))
                if case.expect is not None and case.expect.python:
                    find_grader(dataset.folder, case.expect.python)
            except Invalid as error:
                name = case.name or case.request
                raise Invalid(f"dataset {dataset.name}, case {name!r}: {error}") from error
    return [structs.replace(dataset, cases=name_cases(dataset.cases)) for dataset in datasets]


def _gates_usd(datasets: Sequence[Dataset], gate: Mapping[str, float]) -> bool:
    names = [*gate, *(name for dataset in datasets for name in dataset.gate)]
    return any(name.rpartition(".")[2] == "usd" for name in names)


async def _check_prices(team: Team) -> None:
    """Raise Invalid where the price of a model is not known: what it spends would be taken for nothing."""
    budget = team.budget
    if budget.usd is None:
        budget = structs.replace(budget, usd=usd_of(_LIMIT_MICROS))
    async with team.bounded(budget=budget).executor():
        return


def _find_judge(finder: Finder, judge: Model | str) -> Model | None:
    if isinstance(judge, str):
        return finder.find(judge) if judge else None
    return judge


# --- the loop


class _Loop:
    """Tries cases, some in parallel, within a budget. An error in one of them loses no other."""

    def __init__(self, max_parallel: int, budget_usd: float | None, progress: EvalProgress) -> None:
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
            return [untried_score(case, Refused(refusal))]
        try:
            scores = await score_case(case)
        except Exception as error:  # noqa: BLE001 - whatever foreign tools and graders do, the other cases count
            return [untried_score(case, error)]
        self._spent_usd += sum(score.usd or 0.0 for score in scores)
        self._cost_unknown = self._cost_unknown or any(score.usd is None for score in scores)
        return scores

    def _refuse(self) -> str:
        """Why no further case is begun. Cases that cost nothing are within a budget of nothing."""
        if self._budget_usd is None:
            return ""
        if self._cost_unknown:
            return "the cost of the cases is not known here, so no budget can be kept: leave --budget-usd out"
        if self._spent_usd and self._spent_usd >= self._budget_usd - 1e-9:
            return f"the ${self._budget_usd:g} of the whole evaluation are spent; allow more with --budget-usd"
        return ""
