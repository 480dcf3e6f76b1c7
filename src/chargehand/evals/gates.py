"""What measures had to reach, and whether they did. Where the wishes come from is not known here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.scores import Gate, Part

MEASURES: dict[Kind, tuple[str, ...]] = {
    "routing": ("accuracy", "out_of_scope", "refused", "macro_f1", "confidence", "usd", "regressions"),
    "plan": ("accuracy", "workers", "edges", "width", "needless", "vague", "unserved", "usd", "regressions"),
    "worker": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "regressions"),
    "run": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "mast", "regressions"),
    "verifier": ("accuracy", "caught", "false_alarms", "usd", "regressions"),
}
"""What can be measured of each kind of cases, as far as the cases allow."""
SHARES = (
    "accuracy", "out_of_scope", "refused", "macro_f1", "confidence", "coverage", "caught", "false_alarms", "workers",
    "edges",
)  # fmt: skip
"""Those that lie between 0 and 1."""
LESS = (
    "usd", "seconds", "seconds_p95", "gaps", "mast", "needless", "vague", "unserved", "refused", "false_alarms",
    "regressions",
)  # fmt: skip
"""Those of which less is better."""
_ROOM = 1e-9  # what reckoning with fractions may lose


def figure(name: str, value: float) -> str:
    """A measure as people read it."""
    return f"{value:.1%}" if name in SHARES and name != "macro_f1" else f"{value:.4g}"


def gates(
    parts: Sequence[Part], asked: Mapping[str, float], datasets: Sequence[Dataset], *, compared: bool
) -> tuple[Gate, ...]:
    """One gate for each measure that somebody named: for all parts (`asked`), or for those of a dataset (`gate`).

    What is asked for all counts instead of what a dataset says. `run.accuracy` is that of one kind only, and counts
    instead of `accuracy`. A measure that the cases allow and nobody could take does not hold.
    """
    own = {one.name: one for one in datasets}
    return tuple(
        gate
        for part in parts
        for name, wanted in {**_for(part, own[part.dataset].gate), **_for(part, asked)}.items()
        for gate in _gate(part, name, wanted, _measurable(own[part.dataset].cases, part.kind, compared=compared))
    )


def _for(part: Part, wishes: Mapping[str, float]) -> dict[str, float]:
    """What is wished of the measures of one part."""
    start = f"{part.kind}."
    special = {name.removeprefix(start): value for name, value in wishes.items() if name.startswith(start)}
    return {**{name: value for name, value in wishes.items() if "." not in name}, **special}


def _gate(part: Part, name: str, wanted: float, measurable: Sequence[str]) -> list[Gate]:
    if name not in measurable:
        return []
    one, better = part.measure(name), "less" if name in LESS else "more"
    if one is None:
        return [Gate(part.dataset, part.kind, name, wanted, 0.0, held=False, better=better, why="nobody could tell")]
    held = one.value >= wanted - _ROOM if better == "more" else one.value <= wanted + _ROOM
    unknown = sum(score.micros is None for score in part.scores if not score.error) if name == "usd" else 0
    why = f"nobody knows what {unknown} of the cases cost" if unknown else ""
    return [Gate(part.dataset, part.kind, name, wanted, one.value, held and not unknown, better, why)]


def check(datasets: Sequence[Dataset], asked: Mapping[str, float], *, compared: bool) -> None:
    """Raise Invalid for a gate that would always be open, or never: before anything is tried."""
    _known([one for dataset in datasets for one in _there(dataset, compared=compared)], asked, "", compared=compared)
    for one in datasets:
        _known(_there(one, compared=compared), one.gate, f"dataset {one.name}: ", compared=compared)


def _there(dataset: Dataset, *, compared: bool) -> list[tuple[Kind, str]]:
    there = {kind_of(case) for case in dataset.cases}
    kinds: list[Kind] = [kind for kind in KINDS if kind in there]
    return [(kind, name) for kind in kinds for name in _measurable(dataset.cases, kind, compared=compared)]


def _measurable(cases: Sequence[Case], kind: Kind, *, compared: bool) -> list[str]:
    """What these cases allow to measure, if they can be tried."""
    own = [case for case in cases if kind_of(case) == kind]
    shapes = [case.plan for case in own if case.plan is not None]
    allowed = {
        "out_of_scope": any(not case.labels for case in own),
        "refused": any(case.labels for case in own),
        "workers": any(one.workers for one in shapes),
        "edges": any(one.edges for one in shapes),
        "regressions": compared,
    }
    return [name for name in MEASURES[kind] if allowed.get(name, True)]


def _known(there: Iterable[tuple[Kind, str]], wishes: Mapping[str, float], where: str, *, compared: bool) -> None:
    plain: dict[str, None] = {}
    special: dict[str, None] = {}
    for kind, name in there:
        plain[name] = special[f"{kind}.{name}"] = None
    for name, value in wishes.items():
        known, bare = special if "." in name else plain, name.rpartition(".")[2]
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            if bare == "regressions" and not compared:
                hint = "name the report to compare with: --baseline FILE"
            raise Invalid(f"{where}nothing here measures {name!r}, so the gate would always be open; {hint}")
        if not math.isfinite(value) or value < 0 or (bare in SHARES and value > 1):
            range_ = "from 0 to 1, such as 0.9" if bare in SHARES else "of 0 or more"
            raise Invalid(f"{where}a gate {name}={value:g} is always open or never; ask for a number {range_}")
