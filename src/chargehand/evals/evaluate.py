"""An evaluation from its datasets to its report: every case is tried, scored, compared and held against the gates."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.chance import seeded_by
from chargehand.evals.comparing import check as check_baseline
from chargehand.evals.comparing import compared, differences, regressions
from chargehand.evals.dataset import named
from chargehand.evals.fitness import unfit
from chargehand.evals.gates import check as check_gates
from chargehand.evals.gates import gates
from chargehand.evals.planning import report_plans, score_plan
from chargehand.evals.rounds import Progress, Rounds
from chargehand.evals.routing import report_routes, score_routes
from chargehand.evals.running import report_answers, score_answer
from chargehand.evals.scores import Measure, Part, Report, Score
from chargehand.evals.trials import Bench, Fresh, check_prices
from chargehand.evals.verifying import report_results, score_results
from chargehand.models.find import Finder, Lookup
from chargehand.models.model import Model

AT_ONCE = 4
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
    act: bool = False,
    budget_usd: float | None = None,
    progress: Progress = _SILENT,
) -> Report:
    """Try every case on a team that `fresh` makes anew for it, `at_once` of them at the same time.

    `judge` judges rubrics, where a dataset names no other; left out, the offline model does. `lookup` finds keys.
    `seed` is for all that is left to chance here: mistakes that are seeded, and draws for intervals. Tools that change
    something are called only with `act`. Once `budget_usd` are spent no further case is begun.
    """
    if not 1 <= at_once <= 64:
        raise Invalid(f"{at_once} cases at once cannot be; ask for 1 to 64")
    datasets = _checked(datasets)
    check_gates(datasets, gate or {}, compared=baseline is not None)
    if baseline is not None:
        check_baseline(baseline, datasets)
    if budget_usd is not None or _counts_dollars(datasets, gate or {}):
        await check_prices(fresh())
    rounds, finder, parts = Rounds(at_once, budget_usd, progress), Finder(lookup), list[Part]()
    try:
        judges = [_judge(finder, one.judge or judge or "offline") for one in datasets]
        progress.begun(datasets)
        for dataset, model in zip(datasets, judges, strict=True):
            bench = Bench(fresh, model, lookup, dataset.folder, act)
            parts += [await _part(bench, dataset, kind, rounds, seed) for kind in _kinds(dataset)]
    finally:
        await finder.close()
    team, warnings = fresh(), tuple[str, ...]()
    changes = () if baseline is None else compared(baseline, parts, seeded_by(seed))
    if baseline is not None:
        parts = [_with_regressions(part, regressions(changes, part)) for part in parts]
        warnings = differences(baseline, parts, team.name)
    held = gates(parts, gate or {}, datasets, compared=baseline is not None)
    return Report(team.name, tuple(parts), held, changes, team.notice, seed, warnings, rounds.stopped)


def _checked(datasets: Sequence[Dataset]) -> list[Dataset]:
    if len({one.name for one in datasets}) < len(datasets):
        raise Invalid("two datasets have the same name; give one of them another: name: …")
    for one in datasets:
        for case in one.cases:
            if problem := unfit(case):
                raise Invalid(f"dataset {one.name}, case {case.name or case.request!r}: {problem}")
    return [structs.replace(one, cases=named(one.cases)) for one in datasets]


def _counts_dollars(datasets: Sequence[Dataset], gate: Mapping[str, float]) -> bool:
    names = [*gate, *(name for one in datasets for name in one.gate)]
    return any(name.rpartition(".")[2] == "usd" for name in names)


def _judge(finder: Finder, wanted: Model | str) -> Model:
    return finder.find(wanted) if isinstance(wanted, str) else wanted


def _with_regressions(part: Part, found: Measure | None) -> Part:
    return part if found is None else structs.replace(part, measures=(*part.measures, found))


def _kinds(dataset: Dataset) -> list[Kind]:
    there = {kind_of(case) for case in dataset.cases}
    return [kind for kind in KINDS if kind in there]


async def _part(bench: Bench, dataset: Dataset, kind: Kind, rounds: Rounds, seed: int) -> Part:
    cases = [case for case in dataset.cases if kind_of(case) == kind]
    each = rounds.of(dataset.name)
    if kind == "routing":
        routed = await score_routes(bench, cases, each, rounds.in_silence)
        return report_routes(dataset.name, routed, seeded_by(seed, dataset.name, kind))

    async def one(case: Case) -> list[Score]:
        if kind == "verifier":
            return await score_results(bench, case, seeded_by(seed, case.name))
        return [await (score_plan if kind == "plan" else score_answer)(bench, case)]

    return _report(dataset.name, kind, await each(cases, one), seed)


def _report(dataset: str, kind: Kind, scores: Sequence[Score], seed: int) -> Part:
    report = {"plan": report_plans, "verifier": report_results}.get(kind, report_answers)
    return report(dataset, scores, seeded_by(seed, dataset, kind))


def unfinished(team: str, scores: Mapping[str, Sequence[Score]], stopped: str, seed: int = 0) -> Report:
    """What can be said of the cases that were tried, by dataset, when an evaluation was stopped: gates are not."""
    parts: list[Part] = []
    for dataset, found in scores.items():
        for kind in KINDS:
            own = [one for one in found if one.kind == kind]
            if own:
                parts.append(
                    Part(dataset, kind, tuple(own)) if kind == "routing" else _report(dataset, kind, own, seed)
                )
    return Report(team, tuple(parts), seed=seed, stopped=stopped)
