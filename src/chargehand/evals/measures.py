"""What is measured over scores, the gates that measures must reach, and the comparison with an earlier report.

Each figure has an interval at 95 %: Wilson's for shares, Student's for means.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.report import (
    Better,
    EvalReport,
    Gate,
    Measure,
    ReportTable,
    RouteCount,
    Score,
    ScoreChange,
    Section,
    Verdict,
)
from chargehand.text.words import did_you_mean

_Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
_MISTAKES_SHOWN = 20


# --- statistics


def wilson(hits: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share; everything where nothing was seen."""
    if count <= 0:
        return 0.0, 1.0
    share = hits / count
    square = _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return (middle - half if hits else 0.0), (middle + half if hits < count else 1.0)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of a mean; of a single value, the value itself."""
    middle = fmean(values)
    free = len(values) - 1
    if not free:
        return middle, middle
    deviations = _Z + (_Z**3 + _Z) / (4 * free) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * free**2)
    half = deviations * stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half


def sign_test(won: int, lost: int) -> float:
    """The exact two-sided probability of so uneven a split where winning and losing are equally likely."""
    both = won + lost
    return min(1.0, 2 * sum(math.comb(both, count) for count in range(min(won, lost) + 1)) / 2**both)


# --- metrics


class Metric(Struct, frozen=True):
    """The mean of a value over the cases of some kinds."""

    name: str
    kinds: tuple[Kind, ...]
    scale: Literal["share", "fraction", "number"]
    """A share counts cases, a fraction lies between 0 and 1 for each case; both are shown in percent."""
    better: Better = "more"


_ANSWERS: tuple[Kind, ...] = ("worker", "run")
METRICS = (
    Metric("accuracy", KINDS, "share"),
    Metric("out_of_scope", ("routing",), "share"),
    Metric("refused", ("routing",), "share", "less"),
    Metric("caught", ("verifier",), "share"),
    Metric("false_alarms", ("verifier",), "share", "less"),
    Metric("usd", KINDS, "number", "less"),
    Metric("seconds", _ANSWERS, "number", "less"),
    Metric("coverage", _ANSWERS, "fraction"),
    Metric("gaps", _ANSWERS, "number", "less"),
    Metric("failure_modes", ("run",), "number", "less"),
    Metric("regressions", KINDS, "number", "less"),
)
"""What can be measured. Regressions are counted against a baseline."""
METRICS_BY_NAME = {metric.name: metric for metric in METRICS}


def metrics_of(kind: Kind) -> list[str]:
    return [metric.name for metric in METRICS if kind in metric.kinds]


def report_section(dataset: str, kind: Kind, scores: Sequence[Score]) -> Section:
    """The scores of the cases of one kind, with what is measured over them."""
    measures: list[Measure] = []
    for name in metrics_of(kind):
        values = [value for score in scores if (value := score.value(name)) is not None]
        if values:
            measures.append(_take_measure(METRICS_BY_NAME[name], values))
    routes = _count_routes(scores) if kind == "routing" else ()
    return Section(
        dataset=dataset,
        kind=kind,
        scores=tuple(scores),
        measures=tuple(measures),
        tables=_wrong_routes(routes),
        routes=routes,
    )


def _wrong_routes(routes: Sequence[RouteCount]) -> tuple[ReportTable, ...]:
    """Where requests went that are for others, the commonest mistakes first."""
    mistakes = [route for route in routes if route.wanted != route.got]
    rows = tuple((route.wanted, route.got, str(route.count)) for route in mistakes[:_MISTAKES_SHOWN])
    return (ReportTable("Wrong routes", ("wanted", "got", "cases"), rows),) if rows else ()


def _take_measure(metric: Metric, values: Sequence[float]) -> Measure:
    is_share = metric.scale == "share"
    low, high = wilson(sum(values), len(values)) if is_share else mean_interval(values)
    low = max(0.0, low)  # Student's interval knows no bounds
    if metric.scale == "fraction":
        high = min(1.0, high)
    return Measure(
        name=metric.name,
        value=fmean(values),
        low=low,
        high=high,
        count=len(values),
        better=metric.better,
        percent=metric.scale != "number",
    )


def _count_routes(scores: Sequence[Score]) -> tuple[RouteCount, ...]:
    """How often each route was wanted and taken, the commonest first."""
    counts = Counter((score.wanted, score.got) for score in scores if not score.error)
    return tuple(RouteCount(wanted, got, count) for (wanted, got), count in counts.most_common())


# --- gates

LESS_IS_BETTER = {metric.name for metric in METRICS if metric.better == "less"}
_ROUNDING = 1e-9
_MIN_PAIRS = 6
"""Cases below which differences say nothing."""
_SIGNIFICANCE = 0.05
_Pairs: TypeAlias = Sequence[tuple[Score, Score]]


def evaluate_gates(
    sections: Sequence[Section],
    thresholds: Mapping[str, float],
    datasets: Sequence[Dataset],
    *,
    has_baseline: bool,
) -> tuple[Gate, ...]:
    """A gate for each measure that is named for all sections (`thresholds`) or by a dataset for its own.

    What is wanted for all counts instead of what a dataset says. `run.accuracy` is that of one kind only, and counts
    instead of `accuracy`. A measure that the cases allow and that could not be taken does not hold.
    """
    by_name = {dataset.name: dataset for dataset in datasets}
    gates: list[Gate] = []
    for section in sections:
        dataset = by_name[section.dataset]
        wanted: dict[str, float] = {}
        for gate in (dataset.gate, thresholds):
            wanted |= {name: value for name, value in gate.items() if "." not in name}
            wanted |= {name.partition(".")[2]: value for name, value in gate.items() if name.startswith(section.kind)}
        measurable = _measurable(dataset.cases, section.kind, has_baseline=has_baseline)
        gates += [_evaluate_gate(section, name, wanted[name]) for name in measurable if name in wanted]
    return tuple(gates)


def _evaluate_gate(section: Section, name: str, wanted: float) -> Gate:
    metric = METRICS_BY_NAME[name]
    measure = section.measure(name)
    value = 0.0 if measure is None else measure.value
    is_reached = value >= wanted - _ROUNDING if metric.better == "more" else value <= wanted + _ROUNDING
    why = "it could not be measured" if measure is None else ""
    if name == "usd" and any(score.usd is None for score in section.scores if not score.error):
        why = "the cost of some cases is not known, so it could not be measured"
    return Gate(
        dataset=section.dataset,
        kind=section.kind,
        measure=name,
        wanted=wanted,
        value=value,
        passed=is_reached and not why,
        better=metric.better,
        percent=metric.scale != "number",
        why=why,
    )


def check_gates(datasets: Sequence[Dataset], thresholds: Mapping[str, float], *, has_baseline: bool) -> None:
    """Raise Invalid for a gate that would always hold, or never: before anything is tried."""
    measured: set[str] = set()
    for dataset in datasets:
        names: set[str] = set()
        kinds: set[Kind] = {kind_of(case) for case in dataset.cases}
        for kind in kinds:
            for name in _measurable(dataset.cases, kind, has_baseline=has_baseline):
                names |= {name, f"{kind}.{name}"}
        _check_gate(names, dataset.gate, f"dataset {dataset.name}: ", has_baseline=has_baseline)
        measured |= names
    _check_gate(measured, thresholds, "", has_baseline=has_baseline)


def _check_gate(measured: set[str], gate: Mapping[str, float], where: str, *, has_baseline: bool) -> None:
    for name, value in gate.items():
        measure = name.rpartition(".")[2]
        if name not in measured:
            alike = sorted(other for other in measured if ("." in other) == ("." in name))
            hint = did_you_mean(name, alike)
            if measure == "regressions" and not has_baseline:
                hint = "name the report to compare with: --baseline FILE"
            raise Invalid(f"{where}nothing here measures {name!r}, so the gate would always be open; {hint}")
        is_number = METRICS_BY_NAME[measure].scale == "number"
        if not math.isfinite(value) or value < 0 or (value > 1 and not is_number):
            bounds = "of 0 or more" if is_number else "from 0 to 1, such as 0.9"
            raise Invalid(f"{where}a gate {name}={value:g} is always open or never; ask for a number {bounds}")


def _measurable(cases: Sequence[Case], kind: Kind, *, has_baseline: bool) -> list[str]:
    """What these cases allow to measure, if they can be tried."""
    own = [case for case in cases if kind_of(case) == kind]
    allowed = {
        "out_of_scope": any(not case.labels for case in own),
        "refused": any(case.labels for case in own),
        "regressions": has_baseline,
    }
    return [name for name in metrics_of(kind) if allowed.get(name, True)]


# --- the baseline


def check_baseline(before: EvalReport, datasets: Sequence[Dataset]) -> None:
    """Raise Invalid where there is nothing to compare: before anything is tried."""
    if {section.dataset for section in before.sections}.isdisjoint(dataset.name for dataset in datasets):
        raise Invalid("the earlier report and this one have no dataset in common; compare reports of the same datasets")


def compare_with_baseline(report: EvalReport, before: EvalReport) -> EvalReport:
    """The same report with its changes since an earlier one, and how many cases no longer pass as a measure."""
    earlier = {(section.dataset, section.kind): section for section in before.sections}
    warnings = [] if before.team == report.team else [f"the baseline is of team {before.team}, not {report.team}"]
    changes: list[ScoreChange] = []
    sections: list[Section] = []
    for section in report.sections:
        old = earlier.pop((section.dataset, section.kind), None)
        where = f"{section.dataset} {section.kind}"
        if old is None:
            warnings.append(f"{where} is not in the baseline")
            sections.append(section)
            continue
        pairs = _pair_scores(old, section)
        if len(pairs) < max(len(old.scores), len(section.scores)):
            compared = f"{len(pairs)} of {len(section.scores)} cases are compared"
            gone = len(old.scores) - len(pairs)
            warnings.append(f"{where}: {compared}; the others are new or changed, and {gone} of the baseline are gone")
        compared_section = section
        if pairs:
            accuracy = _compare_accuracy(section, pairs)
            changes += [accuracy, *_compare_figures(section, pairs)]
            compared_section = _with_regressions(section, accuracy)
        sections.append(compared_section)
    warnings += [f"{dataset} {kind} of the baseline was not tried" for dataset, kind in earlier]
    return structs.replace(report, sections=tuple(sections), changes=tuple(changes), warnings=tuple(warnings))


def _pair_scores(old: Section, new: Section) -> _Pairs:
    """Scores of cases with the same name and request."""
    earlier = {score.case: score for score in old.scores}
    both = [(earlier[score.case], score) for score in new.scores if score.case in earlier]
    return [(was, now) for was, now in both if was.error or now.error or was.request == now.request]


def _with_regressions(section: Section, accuracy: ScoreChange) -> Section:
    lost = float(len(accuracy.lost))
    measure = Measure(name="regressions", value=lost, low=lost, high=lost, count=accuracy.count, better="less")
    return structs.replace(section, measures=(*section.measures, measure))


def _compare_accuracy(section: Section, pairs: _Pairs) -> ScoreChange:
    lost = tuple(now.case for was, now in pairs if was.passed and not now.passed)
    won = tuple(now.case for was, now in pairs if now.passed and not was.passed)
    verdict = "no difference shown"
    if sign_test(len(won), len(lost)) <= _SIGNIFICANCE:
        verdict = "better" if len(won) > len(lost) else "worse"
    change = _change(section, "accuracy", [(float(was.passed), float(now.passed)) for was, now in pairs])
    return structs.replace(change, verdict=verdict, percent=True, lost=lost, won=won)


def _compare_figures(section: Section, pairs: _Pairs) -> Iterator[ScoreChange]:
    """Cost and time, of which less is better, case by case: what is expensive in both reports blurs nothing."""
    for name in ("usd", "seconds"):
        both = [(was.value(name), now.value(name)) for was, now in pairs]
        complete = [(was, now) for was, now in both if was is not None and now is not None]
        if complete:
            change = _change(section, name, complete)
            verdict: Verdict = "no difference shown"
            if not change.low <= 0 <= change.high and len(complete) >= _MIN_PAIRS:
                verdict = "worse" if change.low > 0 else "better"
            yield structs.replace(change, verdict=verdict)


def _change(section: Section, name: str, both: Sequence[tuple[float, float]]) -> ScoreChange:
    """How a figure changed over some pairs of cases."""
    low, high = mean_interval([now - was for was, now in both])
    return ScoreChange(
        dataset=section.dataset,
        kind=section.kind,
        measure=name,
        before=fmean([was for was, _ in both]),
        now=fmean([now for _, now in both]),
        low=low,
        high=high,
        count=len(both),
        verdict="no difference shown",
    )
