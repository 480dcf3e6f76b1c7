"""What is measured over scores, the gates that measures must reach, and the comparison with an earlier report.

Each figure has an interval: Wilson's for shares, the bootstrap for the rest.

Randomness is passed in.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from random import Random
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, NO_WORKER, Case, Dataset, Kind, kind_of
from chargehand.evals.report import (
    Better,
    EvalReport,
    Gate,
    Measure,
    ReportTable,
    Score,
    ScoreChange,
    Section,
    Verdict,
    format_figure,
)
from chargehand.evals.scoring import result_variants, seeded_random
from chargehand.text.names import did_you_mean

_Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""
_DRAWS = 2000
_MATRIX_LABELS = 12
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


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least so large a share of them does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def bootstrap(
    values: Sequence[Any], random: Random, figure: Callable[[Sequence[Any]], float] = mean
) -> tuple[float, float]:
    """The percentile interval of a figure, from samples drawn with replacement."""
    if len(set(values)) <= 1:
        return figure(values), figure(values)
    drawn = sorted(figure(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    tail = _tail(len(values))
    return quantile(drawn, tail), quantile(drawn, 1 - tail)


def _tail(count: int) -> float:
    """The share of draws to leave out at each end.

    Draws of few values spread too little: by as much as the t distribution is wider than the normal one, and the
    variance of a sample is smaller than that of its population.
    """
    free = count - 1
    wide = _Z + (_Z**3 + _Z) / (4 * free) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * free**2)
    return math.erfc(wide * math.sqrt(count / free) / math.sqrt(2)) / 2


def paired_difference(won: int, lost: int, count: int) -> tuple[float, float]:
    """The interval of the difference of two shares over the same cases (Bonett and Price)."""
    gain = (won + 1) / (count + 2)
    loss = (lost + 1) / (count + 2)
    half = _Z * math.sqrt((gain + loss - (gain - loss) ** 2) / (count + 2))
    difference = (won - lost) / count
    return max(-1.0, min(gain - loss - half, difference)), min(1.0, max(gain - loss + half, difference))


def sign_test(won: int, lost: int) -> float:
    """The exact two-sided probability of so uneven a split where winning and losing are equally likely."""
    both = won + lost
    return min(1.0, 2 * sum(math.comb(both, count) for count in range(min(won, lost) + 1)) / 2**both)


# --- metrics


def _p95(values: Sequence[float]) -> float:
    return quantile(values, 0.95)


def macro_f1(labels: Sequence[tuple[str, str]]) -> float:
    """The mean F1 of the labels that were wanted: a rare one counts as much as a common one."""
    counts = Counter(labels)
    wanted = Counter(label for label, _ in labels)
    got = Counter(label for _, label in labels)
    return mean([2 * counts[name, name] / (wanted[name] + got[name]) for name in wanted])


def _labels(score: Score) -> tuple[str, str] | None:
    return None if score.error else (score.wanted, score.got)


class Metric(Struct, frozen=True):
    """A figure that is taken over the cases of some kinds."""

    name: str
    kinds: tuple[Kind, ...]
    scale: Literal["share", "fraction", "number"]
    """A share counts cases, a fraction lies between 0 and 1 for each case; both are shown in percent."""
    better: Better = "more"
    read: Callable[[Score], Any] | None = None
    """What is read from a score; the value of the metric's name where nothing else is said."""
    figure: Callable[[Sequence[Any]], float] = mean

    def values(self, scores: Sequence[Score]) -> list[Any]:
        values = [score.value(self.name) if self.read is None else self.read(score) for score in scores]
        return [value for value in values if value is not None]


_ANSWERS: tuple[Kind, ...] = ("worker", "run")
METRICS = (
    Metric("accuracy", KINDS, "share"),
    Metric("out_of_scope", ("routing",), "share"),
    Metric("refused", ("routing",), "share", "less"),
    Metric("macro_f1", ("routing",), "fraction", read=_labels, figure=macro_f1),
    Metric("confidence", ("routing",), "fraction"),
    Metric("workers", ("plan",), "fraction"),
    Metric("edges", ("plan",), "fraction"),
    Metric("width", ("plan",), "number"),
    Metric("needless", ("plan",), "number", "less"),
    Metric("vague", ("plan",), "number", "less"),
    Metric("unserved", ("plan",), "number", "less"),
    Metric("caught", ("verifier",), "share"),
    Metric("false_alarms", ("verifier",), "share", "less"),
    Metric("usd", KINDS, "number", "less"),
    Metric("seconds", _ANSWERS, "number", "less"),
    Metric("seconds_p95", _ANSWERS, "number", "less", read=lambda score: score.value("seconds"), figure=_p95),
    Metric("coverage", _ANSWERS, "fraction"),
    Metric("gaps", _ANSWERS, "number", "less"),
    Metric("failure_modes", ("run",), "number", "less"),
    Metric("regressions", KINDS, "number", "less", read=lambda _: None),
)
"""What can be measured. Regressions are counted against a baseline."""
METRICS_BY_NAME = {metric.name: metric for metric in METRICS}


def metrics_of(kind: Kind) -> list[str]:
    return [metric.name for metric in METRICS if kind in metric.kinds]


def report_section(dataset: str, kind: Kind, scores: Sequence[Score], seed: int) -> Section:
    """The scores of the cases of one kind, with what is measured over them."""
    random = seeded_random(seed, dataset, kind)
    measures: list[Measure] = []
    for metric in METRICS:
        values = metric.values(scores) if kind in metric.kinds else []
        if values:
            measures.append(_take_measure(metric, values, random))
    tried = [score for score in scores if not score.error]
    tables = _TABLES[kind](tried) if tried else ()
    return Section(dataset=dataset, kind=kind, scores=tuple(scores), measures=tuple(measures), tables=tables)


def _take_measure(metric: Metric, values: Sequence[Any], random: Random) -> Measure:
    if metric.scale == "share":
        low, high = wilson(sum(values), len(values))
    else:
        low, high = bootstrap(values, random, metric.figure)
    return Measure(
        name=metric.name,
        value=metric.figure(values),
        low=low,
        high=high,
        count=len(values),
        better=metric.better,
        percent=metric.scale != "number",
    )


# --- tables


def _case_tables(title: str, *columns: str) -> Callable[[Sequence[Score]], tuple[ReportTable, ...]]:
    """A row for each case, with these values."""

    def make_table(scores: Sequence[Score]) -> tuple[ReportTable, ...]:
        rows: list[tuple[str, ...]] = []
        for score in scores:
            values = [(name, score.value(name)) for name in columns]
            cells = ["?" if value is None else _format(name, value) for name, value in values]
            rows.append((score.case, "passed" if score.passed else "failed", *cells))
        return (ReportTable(title, ("case", "", *columns), tuple(rows)),)

    return make_table


def _format(name: str, value: float) -> str:
    metric = METRICS_BY_NAME.get(name)
    return format_figure(value, percent=metric is not None and metric.scale != "number")


def _mistake_tables(scores: Sequence[Score]) -> tuple[ReportTable, ...]:
    """What checks made of right results and of each kind of wrong ones."""
    results = Counter(score.mistake for score in scores)
    passed = Counter(score.mistake for score in scores if score.passed)
    rows = tuple((mistake, str(count), str(passed[mistake])) for mistake, count in results.items())
    return (ReportTable("Results by mistake", ("mistake", "results", "judged rightly"), rows),)


def _route_tables(scores: Sequence[Score]) -> tuple[ReportTable, ...]:
    """The confusion matrix, or the commonest mistakes where there are many labels; then each route."""
    counts = Counter((score.wanted, score.got) for score in scores)
    names = sorted({name for pair in counts for name in pair}, key=lambda name: (name == NO_WORKER, name))
    wanted = Counter(score.wanted for score in scores)
    if len(names) <= _MATRIX_LABELS:
        matrix = tuple((row, *(str(counts[row, name] or "·") for name in names)) for row in names if wanted[row])
        first = ReportTable("Wanted (rows) and got (columns)", ("", *names), matrix)
    else:
        mistakes = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]]
        rows = tuple((*pair, str(count)) for pair, count in mistakes[:_MISTAKES_SHOWN])
        first = ReportTable("The commonest mistakes", ("wanted", "got", "cases"), rows)
    heads = ("route", "cases", "precision", "recall", "F1", "usd each", "ms each")
    return first, ReportTable("Routes", heads, tuple(_route_row(name, scores) for name in names))


def _route_row(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    got = [score for score in scores if score.got == name]
    wanted = [score for score in scores if score.wanted == name]
    right = sum(score.passed for score in got)
    costs = [score.usd for score in got if score.usd is not None]
    return (
        name,
        str(len(wanted)),
        f"{right / len(got):.0%}" if got else "",
        f"{right / len(wanted):.0%}" if wanted else "",
        f"{2 * right / (len(got) + len(wanted)):.2f}",
        f"{mean(costs):.5f}" if costs else "",
        f"{1000 * mean([score.seconds for score in got]):.0f}" if got else "",
    )


_TABLES: dict[Kind, Callable[[Sequence[Score]], tuple[ReportTable, ...]]] = {
    "routing": _route_tables,
    "plan": _case_tables("Plans", "tasks", "width", "needless", "vague", "unserved"),
    "worker": _case_tables("Answers", "coverage", "gaps", "seconds", "usd"),
    "run": _case_tables("Answers", "coverage", "gaps", "seconds", "usd"),
    "verifier": _mistake_tables,
}


# --- gates

LESS_IS_BETTER = {metric.name for metric in METRICS if metric.better == "less"}
_ROUNDING = 1e-9
_MIN_PAIRS = 6
"""Cases below which a bootstrap of differences says nothing."""
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
    shapes = [case.plan for case in own if case.plan is not None]
    allowed = {
        "out_of_scope": any(not case.labels for case in own),
        "refused": any(case.labels for case in own),
        "workers": any(shape.workers for shape in shapes),
        "edges": any(shape.edges for shape in shapes),
        "regressions": has_baseline,
    }
    return [name for name in metrics_of(kind) if allowed.get(name, True)]


def select_kinds(datasets: Sequence[Dataset], kinds: Sequence[str]) -> list[Dataset]:
    """The cases of these kinds, all where none is named; Invalid where there are no such cases."""
    if unknown := next((kind for kind in kinds if kind not in KINDS), None):
        raise Invalid(f"{unknown!r} is no kind of cases; there are {', '.join(KINDS)}")
    if not kinds:
        return list(datasets)
    selected: list[Dataset] = []
    for dataset in datasets:
        cases = tuple(case for case in dataset.cases if kind_of(case) in kinds)
        if cases:
            gate = _gate_of_kinds(dataset.gate, {kind_of(case) for case in cases})
            selected.append(structs.replace(dataset, cases=cases, gate=gate))
    if not selected:
        existing = {kind_of(case) for dataset in datasets for case in dataset.cases}
        listed = ", ".join(kind for kind in KINDS if kind in existing)
        raise Invalid(f"there are no cases of {' or '.join(kinds)} in these datasets; there are some of {listed}")
    return selected


def _gate_of_kinds(gate: Mapping[str, float], kinds: Set[Kind]) -> dict[str, float]:
    """A gate without the measures that only cases of other kinds have."""
    selected: dict[str, float] = {}
    for name, value in gate.items():
        kind, _, measure = name.rpartition(".")
        metric = METRICS_BY_NAME.get(measure)
        if (not kind or kind in kinds) and (metric is None or not kinds.isdisjoint(metric.kinds)):
            selected[name] = value
    return selected


# --- the baseline


def check_baseline(before: EvalReport, datasets: Sequence[Dataset], seed: int) -> None:
    """Raise Invalid where there is nothing to compare: before anything is tried."""
    if {section.dataset for section in before.sections}.isdisjoint(dataset.name for dataset in datasets):
        raise Invalid("the earlier report and this one have no dataset in common; compare reports of the same datasets")
    requests = {
        (dataset.name, kind_of(case), name): request
        for dataset in datasets
        for case in dataset.cases
        for name, request in _expected_scores(case, seed)
    }
    for section in before.sections:
        for score in section.scores:
            request = requests.get((section.dataset, section.kind, score.case))
            if request is not None and (score.error or score.request == request):
                return
    raise Invalid(
        "the earlier report and these datasets have no case in common (the same name and the same request); "
        "make a new baseline: chargehand eval -o FILE"
    )


def _expected_scores(case: Case, seed: int) -> list[tuple[str, str]]:
    """The name and the request of every score that a case will have."""
    if kind_of(case) == "verifier":
        return [(variant.name, variant.request) for variant in result_variants(case, seed)]
    return [(case.name, case.request)]


def compare_with_baseline(report: EvalReport, before: EvalReport) -> EvalReport:
    """The same report with its changes since an earlier one, and how many cases no longer pass as a measure."""
    earlier = {(section.dataset, section.kind): section for section in before.sections}
    random = seeded_random(report.seed)
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
        if pairs:
            accuracy = _compare_accuracy(section, pairs)
            changes += [accuracy, *_compare_figures(section, pairs, random)]
            sections.append(_with_regressions(section, accuracy))
        else:
            sections.append(section)
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
    both = [(float(was.passed), float(now.passed)) for was, now in pairs]
    change = _change(section, "accuracy", both, paired_difference(len(won), len(lost), len(pairs)), verdict)
    return structs.replace(change, percent=True, lost=lost, won=won)


def _compare_figures(section: Section, pairs: _Pairs, random: Random) -> Iterator[ScoreChange]:
    """Cost and time, of which less is better, case by case: what is expensive in both reports blurs nothing."""
    for name in ("usd", "seconds"):
        both = [(was.value(name), now.value(name)) for was, now in pairs]
        complete = [(was, now) for was, now in both if was is not None and now is not None]
        if complete:
            low, high = bootstrap([now - was for was, now in complete], random)
            verdict = "no difference shown"
            if not low <= 0 <= high and len(complete) >= _MIN_PAIRS:
                verdict = "worse" if low > 0 else "better"
            yield _change(section, name, complete, (low, high), verdict)


def _change(
    section: Section, name: str, both: Sequence[tuple[float, float]], interval: tuple[float, float], verdict: Verdict
) -> ScoreChange:
    return ScoreChange(
        dataset=section.dataset,
        kind=section.kind,
        measure=name,
        before=mean([was for was, _ in both]),
        now=mean([now for _, now in both]),
        low=interval[0],
        high=interval[1],
        count=len(both),
        verdict=verdict,
    )
