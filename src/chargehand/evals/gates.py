"""What measures must reach (gates), and how they differ from an earlier report (the baseline)."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from random import Random

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.report import PERCENTAGES, Change, Gate, Measure, Report, Score, Section
from chargehand.evals.statistics import bootstrap, mean, paired_difference, sign_test

MEASURES: dict[Kind, tuple[str, ...]] = {
    "routing": ("accuracy", "out_of_scope", "refused", "macro_f1", "confidence", "usd", "regressions"),
    "plan": ("accuracy", "workers", "edges", "width", "needless", "vague", "unserved", "usd", "regressions"),
    "worker": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "regressions"),
    "run": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "failure_modes", "regressions"),
    "verifier": ("accuracy", "caught", "false_alarms", "usd", "regressions"),
}
"""What can be measured of each kind of cases, as far as the cases allow."""
SHARES = PERCENTAGES | {"macro_f1"}
"""Measures from 0 to 1."""
LESS_IS_BETTER = {
    *("usd", "seconds", "seconds_p95", "gaps", "failure_modes", "needless", "vague", "unserved", "refused"),
    *("false_alarms", "regressions"),
}
_ROUNDING = 1e-9
_MIN_PAIRS = 6
"""Cases below which a bootstrap of differences says nothing."""
_SIGNIFICANCE = 0.05
_RESULT_MARK = ": "
"""What stands between the name of a verifier case and that of one of its results."""


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
        measurable = _measurable(dataset.cases, section.kind, has_baseline=has_baseline)
        wanted = {**_wanted_of(section.kind, dataset.gate), **_wanted_of(section.kind, asked)}
        gates += [_hold(section, name, value) for name, value in wanted.items() if name in measurable]
    return tuple(gates)


def _wanted_of(kind: Kind, gate: Mapping[str, float]) -> dict[str, float]:
    prefix = f"{kind}."
    general = {name: value for name, value in gate.items() if "." not in name}
    special = {name.removeprefix(prefix): value for name, value in gate.items() if name.startswith(prefix)}
    return {**general, **special}


def _hold(section: Section, name: str, wanted: float) -> Gate:
    better = "less" if name in LESS_IS_BETTER else "more"
    measure = section.measure(name)
    value = 0.0
    held = False
    why = "it could not be measured"
    if measure is not None:
        value = measure.value
        held = value >= wanted - _ROUNDING if better == "more" else value <= wanted + _ROUNDING
        unknown = sum(score.usd is None for score in section.scores if not score.error) if name == "usd" else 0
        held = held and not unknown
        why = f"the cost of {unknown} of the cases is not known" if unknown else ""
    return Gate(
        dataset=section.dataset,
        kind=section.kind,
        measure=name,
        wanted=wanted,
        value=value,
        held=held,
        better=better,
        why=why,
    )


def check_gates(datasets: Sequence[Dataset], asked: Mapping[str, float], *, has_baseline: bool) -> None:
    """Raise Invalid for a gate that would always hold, or never: before anything is tried."""
    measured: set[str] = set()
    for dataset in datasets:
        names = _measured_names(dataset, has_baseline=has_baseline)
        _check_gate(names, dataset.gate, f"dataset {dataset.name}: ", has_baseline=has_baseline)
        measured |= names
    _check_gate(measured, asked, "", has_baseline=has_baseline)


def _check_gate(measured: set[str], gate: Mapping[str, float], where: str, *, has_baseline: bool) -> None:
    for name, value in gate.items():
        measure = name.rpartition(".")[2]
        if name not in measured:
            alike = sorted(known for known in measured if ("." in known) == ("." in name))
            near = get_close_matches(name, alike, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(alike)}"
            if measure == "regressions" and not has_baseline:
                hint = "name the report to compare with: --baseline FILE"
            raise Invalid(f"{where}nothing here measures {name!r}, so the gate would always be open; {hint}")
        if not math.isfinite(value) or value < 0 or (measure in SHARES and value > 1):
            bounds = "from 0 to 1, such as 0.9" if measure in SHARES else "of 0 or more"
            raise Invalid(f"{where}a gate {name}={value:g} is always open or never; ask for a number {bounds}")


def _measured_names(dataset: Dataset, *, has_baseline: bool) -> set[str]:
    names: set[str] = set()
    kinds: set[Kind] = {kind_of(case) for case in dataset.cases}
    for kind in kinds:
        for name in _measurable(dataset.cases, kind, has_baseline=has_baseline):
            names |= {name, f"{kind}.{name}"}
    return names


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
    return [name for name in MEASURES[kind] if allowed.get(name, True)]


def gate_of_kinds(gate: Mapping[str, float], kinds: Collection[Kind]) -> dict[str, float]:
    """A gate without the measures that only cases of other kinds have."""

    def names_of(some: Collection[Kind]) -> set[str]:
        return {name for kind in some for measure in MEASURES[kind] for name in (measure, f"{kind}.{measure}")}

    gone = names_of(KINDS) - names_of(kinds)
    return {name: value for name, value in gate.items() if name not in gone}


# --- the baseline


def check_baseline(before: Report, datasets: Sequence[Dataset]) -> None:
    """Raise Invalid where there is nothing to compare: before anything is tried."""
    known = {
        (section.dataset, section.kind, score.case.partition(_RESULT_MARK)[0])
        for section in before.sections
        for score in section.scores
    }
    asked = {
        (dataset.name, kind_of(case), case.name.partition(_RESULT_MARK)[0])
        for dataset in datasets
        for case in dataset.cases
    }
    if known.isdisjoint(asked):
        raise Invalid("the earlier report and this one have no case in common; compare reports of the same datasets")


def compare(before: Report, sections: Sequence[Section], random: Random) -> tuple[Change, ...]:
    """The changes of each section that both reports have, over the cases that are the same in both."""
    earlier = {(section.dataset, section.kind): section for section in before.sections}
    changes: list[Change] = []
    for section in sections:
        old = earlier.get((section.dataset, section.kind))
        pairs = _pairs(old, section) if old is not None else []
        if pairs:
            changes.append(_compare_accuracy(section, pairs))
            changes += _compare_figures(section, pairs, random)
    return tuple(changes)


def _pairs(old: Section, new: Section) -> list[tuple[Score, Score]]:
    """Scores of cases with the same name and request."""
    known = {score.case: score for score in old.scores}
    both = [(known[score.case], score) for score in new.scores if score.case in known]
    return [(was, now) for was, now in both if was.error or now.error or was.request == now.request]


def _compare_accuracy(section: Section, pairs: Sequence[tuple[Score, Score]]) -> Change:
    lost = tuple(now.case for was, now in pairs if was.passed and not now.passed)
    won = tuple(now.case for was, now in pairs if now.passed and not was.passed)
    low, high = paired_difference(len(won), len(lost), len(pairs))
    verdict = "no difference shown"
    if sign_test(len(won), len(lost)) <= _SIGNIFICANCE:
        verdict = "better" if len(won) > len(lost) else "worse"
    return Change(
        dataset=section.dataset,
        kind=section.kind,
        measure="accuracy",
        before=mean([float(was.passed) for was, _ in pairs]),
        now=mean([float(now.passed) for _, now in pairs]),
        low=low,
        high=high,
        count=len(pairs),
        verdict=verdict,
        lost=lost,
        won=won,
    )


_FIGURES: tuple[tuple[str, Callable[[Score], float | None]], ...] = (
    ("usd", lambda score: None if score.error else score.usd),
    ("seconds", lambda score: None if score.error else score.seconds),
)
"""What is compared besides accuracy; less is better."""


def _compare_figures(section: Section, pairs: Sequence[tuple[Score, Score]], random: Random) -> list[Change]:
    changes: list[Change] = []
    for name, figure in _FIGURES:
        both = [(figure(was), figure(now)) for was, now in pairs]
        known = [(was, now) for was, now in both if was is not None and now is not None]
        if not known:
            continue
        # case by case: what is expensive in both reports does not blur the difference
        low, high = bootstrap([now - was for was, now in known], random)
        verdict = "no difference shown"
        if not low <= 0 <= high and len(known) >= _MIN_PAIRS:
            verdict = "worse" if low > 0 else "better"
        changes.append(
            Change(
                dataset=section.dataset,
                kind=section.kind,
                measure=name,
                before=mean([was for was, _ in known]),
                now=mean([now for _, now in known]),
                low=low,
                high=high,
                count=len(known),
                verdict=verdict,
            )
        )
    return changes


def describe_differences(before: Report, sections: Sequence[Section], team: str) -> tuple[str, ...]:
    """What is not as it was in the baseline, and so is not compared."""
    texts: list[str] = []
    if before.team != team:
        texts.append(f"the baseline is of team {before.team}, not {team}")
    earlier = {(section.dataset, section.kind): section for section in before.sections}
    for section in sections:
        where = f"{section.dataset} {section.kind}"
        old = earlier.pop((section.dataset, section.kind), None)
        if old is None:
            texts.append(f"{where} is not in the baseline")
            continue
        same = len(_pairs(old, section))
        if same < max(len(old.scores), len(section.scores)):
            kept = f"{same} of {len(section.scores)} cases are compared"
            gone = len(old.scores) - same
            texts.append(f"{where}: {kept}; the others are new or changed, and {gone} of the baseline are gone")
    texts += [f"{dataset} {kind} of the baseline was not tried" for dataset, kind in earlier]
    return tuple(texts)


def count_regressions(changes: Sequence[Change], section: Section) -> Measure | None:
    """How many cases passed before and do not pass now, as a measure that a gate can name."""
    for change in changes:
        if (change.dataset, change.kind, change.measure) == (section.dataset, section.kind, "accuracy"):
            lost = float(len(change.lost))
            return Measure(name="regressions", value=lost, low=lost, high=lost, count=change.count, better="less")
    return None
