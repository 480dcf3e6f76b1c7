"""An evaluation from its datasets to its report: every case is tried, scored, compared and held against the gates."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import structs

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.chance import seeded_by
from chargehand.evals.comparing import compared, regressions
from chargehand.evals.dataset import named
from chargehand.evals.gates import check, gates
from chargehand.evals.planning import report_plans, score_plan
from chargehand.evals.routing import report_routes, score_routes
from chargehand.evals.running import report_answers, score_answer
from chargehand.evals.scores import Measure, Part, Report, Score
from chargehand.evals.trials import Bench, Fresh
from chargehand.evals.verifying import report_results, score_results
from chargehand.models.find import Finder, Lookup
from chargehand.models.model import Model

AT_ONCE = 4


class Progress:
    """Who is told of each case as it is scored. This one tells nobody."""

    def scored(self, score: Score) -> None:
        """One more case is done."""


_SILENT = Progress()


def _no_keys(_name: str) -> str | None:
    return None


async def evaluate(
    datasets: Sequence[Dataset],
    fresh: Fresh,
    *,
    judge: Model | str = "",
    gate: Mapping[str, float] | None = None,
    baseline: Report | None = None,
    lookup: Lookup = _no_keys,
    at_once: int = AT_ONCE,
    seed: int = 0,
    progress: Progress = _SILENT,
) -> Report:
    """Try every case on a team that `fresh` makes anew for it, `at_once` of them at the same time.

    `judge` judges rubrics, where a dataset names no other; left out, the offline model does. `lookup` finds keys.
    `seed` is for all that is left to chance here: mistakes that are seeded, and draws for intervals.
    """
    if not 1 <= at_once <= 64:
        raise Invalid(f"{at_once} cases at once cannot be; ask for 1 to 64")
    if len({one.name for one in datasets}) < len(datasets):
        raise Invalid("two datasets have the same name; give one of them another: name: …")
    datasets = [structs.replace(one, cases=named(one.cases)) for one in datasets]
    check({kind for one in datasets for kind in _kinds(one)}, gate or {})
    for one in datasets:
        check(_kinds(one), one.gate, f"dataset {one.name}: ")
    finder = Finder(lookup)
    try:
        parts: list[Part] = []
        for dataset in datasets:
            wanted = dataset.judge or judge or "offline"
            model = finder.find(wanted) if isinstance(wanted, str) else wanted
            bench = Bench(fresh, model, lookup, dataset.folder)
            parts += [await _part(bench, dataset, kind, at_once, seed, progress) for kind in _kinds(dataset)]
    finally:
        await finder.close()
    team = fresh()
    changes = () if baseline is None else compared(baseline, parts, seeded_by(seed))
    if changes:
        parts = [_with_regressions(part, regressions(changes, part)) for part in parts]
    held = gates(parts, gate or {}, {one.name: one.gate for one in datasets if one.gate})
    return Report(team.name, tuple(parts), held, changes, team.notice, seed)


def _with_regressions(part: Part, found: Measure | None) -> Part:
    return part if found is None else structs.replace(part, measures=(*part.measures, found))


def _kinds(dataset: Dataset) -> list[Kind]:
    there = {kind_of(case) for case in dataset.cases}
    return [kind for kind in KINDS if kind in there]


async def _part(bench: Bench, dataset: Dataset, kind: Kind, at_once: int, seed: int, progress: Progress) -> Part:
    cases = [case for case in dataset.cases if kind_of(case) == kind]
    random = seeded_by(seed, dataset.name, kind)
    if kind == "routing":
        routed = await score_routes(bench, cases)
        for score in routed.scores:
            progress.scored(score)
        return report_routes(dataset.name, routed, random)
    if kind == "verifier":
        each = await _side_by_side(cases, lambda case: score_results(bench, case, seeded_by(seed, case.name)), at_once)
        found = [score for scores in each for score in scores]
        for score in found:
            progress.scored(score)
        return report_results(dataset.name, found, random)

    async def one(case: Case) -> list[Score]:
        score = await (score_plan if kind == "plan" else score_answer)(bench, case)
        progress.scored(score)
        return [score]

    scores = [score for found in await _side_by_side(cases, one, at_once) for score in found]
    return (report_plans if kind == "plan" else report_answers)(dataset.name, scores, random)


async def _side_by_side(
    cases: Sequence[Case], score: Callable[[Case], Awaitable[list[Score]]], at_once: int
) -> list[list[Score]]:
    """The scores of all cases in their order."""
    found: dict[int, list[Score]] = {}
    gate = asyncio.Semaphore(at_once)

    async def one(at: int, case: Case) -> None:
        async with gate:
            found[at] = await score(case)

    async with asyncio.TaskGroup() as group:
        for at, case in enumerate(cases):
            group.create_task(one(at, case))
    return [found[at] for at in range(len(cases))]
