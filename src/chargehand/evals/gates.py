"""What measures had to reach, and whether they did. Where the wishes come from is not known here."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from chargehand.errors import Invalid
from chargehand.evals.cases import Kind
from chargehand.evals.scores import Gate, Part

MEASURES: dict[Kind, tuple[str, ...]] = {
    "routing": ("accuracy", "out_of_scope", "refused", "macro_f1", "confidence", "usd", "regressions"),
    "plan": ("accuracy", "workers", "edges", "width", "needless", "vague", "usd", "regressions"),
    "worker": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "mast", "regressions"),
    "run": ("accuracy", "usd", "seconds", "seconds_p95", "coverage", "gaps", "mast", "regressions"),
    "verifier": ("accuracy", "caught", "false_alarms", "usd", "regressions"),
}
"""What can be measured of each kind of cases, as far as the cases allow."""
_ROOM = 1e-9  # what reckoning with fractions may lose


def gates(
    parts: Sequence[Part], asked: Mapping[str, float], own: Mapping[str, Mapping[str, float]]
) -> tuple[Gate, ...]:
    """One gate for each measure that somebody named: for all parts (`asked`), or for those of a dataset (`own`).

    What is asked for all counts instead of what a dataset says. `run.accuracy` is that of one kind only, and counts
    instead of `accuracy`. A name that no measure has is Invalid.
    """
    found = [
        gate
        for part in parts
        for name, wanted in {**_for(part, own.get(part.dataset, {})), **_for(part, asked)}.items()
        for gate in _gate(part, name, wanted)
    ]
    _check(parts, asked, "")
    for dataset, wishes in own.items():
        _check([part for part in parts if part.dataset == dataset], wishes, f"dataset {dataset}: ")
    return tuple(found)


def _for(part: Part, wishes: Mapping[str, float]) -> dict[str, float]:
    """What is wished of the measures of one part."""
    start = f"{part.kind}."
    special = {name.removeprefix(start): value for name, value in wishes.items() if name.startswith(start)}
    return {**{name: value for name, value in wishes.items() if "." not in name}, **special}


def _gate(part: Part, name: str, wanted: float) -> list[Gate]:
    one = part.measure(name)
    if one is None:
        return []
    held = one.value >= wanted - _ROOM if one.better == "more" else one.value <= wanted + _ROOM
    return [Gate(part.dataset, part.kind, name, wanted, one.value, held, one.better)]


def check(kinds: Iterable[Kind], wishes: Iterable[str], where: str = "") -> None:
    """Raise Invalid for a measure that these kinds of cases do not have: before anything is tried."""
    _known(((kind, name) for kind in kinds for name in MEASURES[kind]), wishes, where)


def _check(parts: Sequence[Part], wishes: Iterable[str], where: str) -> None:
    _known(((part.kind, one.name) for part in parts for one in part.measures), wishes, where)


def _known(there: Iterable[tuple[Kind, str]], wishes: Iterable[str], where: str) -> None:
    plain: dict[str, None] = {}
    special: dict[str, None] = {}
    for kind, name in there:
        plain[name] = special[f"{kind}.{name}"] = None
    for name in wishes:
        known = special if "." in name else plain
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise Invalid(f"{where}nothing here measures {name!r}, so the gate would always be open; {hint}")
