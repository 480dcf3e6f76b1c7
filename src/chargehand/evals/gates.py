"""What measures must reach (gates), and how they differ from an earlier report (the baseline)."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from random import Random
from typing import TypeAlias

from msgspec import structs

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.measures import (
    METRICS,
    METRICS_BY_NAME,
    bootstrap,
    mean,
    metrics_of,
    paired_difference,
    seeded_random,
    sign_test,
)
from chargehand.evals.report import Change, Gate, Measure, Report, Score, Section, Verdict
from chargehand.evals.verifying import checked_results
from chargehand.text.names import did_you_mean

LESS_IS_BETTER = {metric.name for metric in METRICS if metric.better == "less"}
_ROUNDING = 1e-9
_MIN_PAIRS = 6
"""Cases below which a bootstrap of differences says nothing."""
_SIGNIFICANCE = 0.05
_Pairs: TypeAlias = Sequence[tuple[Score, Score]]


# --- gates


def hold_gates(
    sections: Sequence[Section], asked: Mapping[str, float], datasets: Sequence[Dataset], *, has_baseline: bool
) -> tuple[Gate, ...]:
    """A gate for each measure that is named for all sections (`asked`) or by a dataset for its own.

    What is asked for all counts instead of what a dataset says. `run.accuracy` is that of one kind only, and counts
    instead of `accuracy`. A measure that the cases allow and that could not be taken does not hold.
    """
    by_name = {dataset.name: dataset for dataset in datasets}
    gates: list[Gate] = []
    for section in sections:
        dataset = by_name[section.dataset]
        wanted: dict[str, float] = {}
        for gate in (dataset.gate, asked):
            wanted |= {name: value for name, value in gate.items() if "." not in name}
            wanted |= {name.partition(".")[2]: value for name, value in gate.items() if name.startswith(section.kind)}
        measurable = _measurable(dataset.cases, section.kind, has_baseline=has_baseline)
        gates += [_hold(section, name, wanted[name]) for name in measurable if name in wanted]
    return tuple(gates)


def _hold(section: Section, name: str, wanted: float) -> Gate:
    metric = METRICS_BY_NAME[name]
    measure = section.measure(name)
    value = 0.0 if measure is None else measure.value
    held = value >= wanted - _ROUNDING if metric.better == "more" else value <= wanted + _ROUNDING
    why = "it could not be measured" if measure is None else ""
    if name == "usd" and any(score.usd is None for score in section.scores if not score.error):
        why = "the cost of some cases is not known, so it could not be measured"
    return Gate(
        dataset=section.dataset,
        kind=section.kind,
        measure=name,
        wanted=wanted,
        value=value,
        held=held and not why,
        better=metric.better,
        percent=metric.scale != "number",
        why=why,
    )


def check_gates(datasets: Sequence[Dataset], asked: Mapping[str, float], *, has_baseline: bool) -> None:
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
    _check_gate(measured, asked, "", has_baseline=has_baseline)


def _check_gate(measured: set[str], gate: Mapping[str, float], where: str, *, has_baseline: bool) -> None:
    for name, value in gate.items():
        measure = name.rpartition(".")[2]
        if name not in measured:
            alike = sorted(known for known in measured if ("." in known) == ("." in name))
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
    kept: dict[str, float] = {}
    for name, value in gate.items():
        kind, _, measure = name.rpartition(".")
        metric = METRICS_BY_NAME.get(measure)
        if (not kind or kind in kinds) and (metric is None or not kinds.isdisjoint(metric.kinds)):
            kept[name] = value
    return kept


# --- the baseline


def check_baseline(before: Report, datasets: Sequence[Dataset], seed: int) -> None:
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
        return [(checked.name, checked.request) for checked in checked_results(case, seed)]
    return [(case.name, case.request)]


def compare_with_baseline(report: Report, before: Report) -> Report:
    """The same report with its changes since an earlier one, and how many cases no longer pass as a measure."""
    earlier = {(section.dataset, section.kind): section for section in before.sections}
    random = seeded_random(report.seed)
    warnings = [] if before.team == report.team else [f"the baseline is of team {before.team}, not {report.team}"]
    changes: list[Change] = []
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
            kept = f"{len(pairs)} of {len(section.scores)} cases are compared"
            gone = len(old.scores) - len(pairs)
            warnings.append(f"{where}: {kept}; the others are new or changed, and {gone} of the baseline are gone")
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
    known = {score.case: score for score in old.scores}
    both = [(known[score.case], score) for score in new.scores if score.case in known]
    return [(was, now) for was, now in both if was.error or now.error or was.request == now.request]


def _with_regressions(section: Section, accuracy: Change) -> Section:
    lost = float(len(accuracy.lost))
    measure = Measure(name="regressions", value=lost, low=lost, high=lost, count=accuracy.count, better="less")
    return structs.replace(section, measures=(*section.measures, measure))


def _compare_accuracy(section: Section, pairs: _Pairs) -> Change:
    lost = tuple(now.case for was, now in pairs if was.passed and not now.passed)
    won = tuple(now.case for was, now in pairs if now.passed and not was.passed)
    verdict = "no difference shown"
    if sign_test(len(won), len(lost)) <= _SIGNIFICANCE:
        verdict = "better" if len(won) > len(lost) else "worse"
    both = [(float(was.passed), float(now.passed)) for was, now in pairs]
    change = _change(section, "accuracy", both, paired_difference(len(won), len(lost), len(pairs)), verdict)
    return structs.replace(change, percent=True, lost=lost, won=won)


def _compare_figures(section: Section, pairs: _Pairs, random: Random) -> Iterator[Change]:
    """Cost and time, of which less is better, case by case: what is expensive in both reports blurs nothing."""
    for name in ("usd", "seconds"):
        both = [(was.value(name), now.value(name)) for was, now in pairs]
        known = [(was, now) for was, now in both if was is not None and now is not None]
        if known:
            low, high = bootstrap([now - was for was, now in known], random)
            verdict = "no difference shown"
            if not low <= 0 <= high and len(known) >= _MIN_PAIRS:
                verdict = "worse" if low > 0 else "better"
            yield _change(section, name, known, (low, high), verdict)


def _change(
    section: Section, name: str, both: Sequence[tuple[float, float]], interval: tuple[float, float], verdict: Verdict
) -> Change:
    return Change(
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
