"""What changed since an earlier report: measure by measure, over the cases that both have, and how sure that is."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec

from chargehand.errors import Invalid
from chargehand.evals.chance import bootstrap, mean
from chargehand.evals.scores import Change, Measure, Part, Report, Score

_LARGEST = 256 * 1024 * 1024
_FEWEST = 6  # cases below which drawing them anew says nothing
_FIGURES: tuple[tuple[str, Callable[[Score], float | None], bool], ...] = (
    ("accuracy", lambda one: float(one.passed), True),
    ("usd", lambda one: None if one.error or one.micros is None else one.micros / 1_000_000, False),
    ("seconds", lambda one: None if one.error else one.seconds, False),
)


def read_report(file: Path) -> Report:
    """A report that `chargehand eval -o FILE` wrote."""
    try:
        if file.stat().st_size > _LARGEST:
            raise Invalid(f"{file} is larger than {_LARGEST:,} bytes; compare fewer cases at once")
        return msgspec.json.decode(file.read_bytes(), type=Report)
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; name a report that can be") from error
    except msgspec.DecodeError as error:
        raise Invalid(f"{file} is no report: {error}; write one with  chargehand eval -o {file.name}") from error


def compared(before: Report, parts: Sequence[Part], random: Random) -> tuple[Change, ...]:
    """The changes of all parts that both have. Invalid where there is nothing to compare."""
    earlier = {(one.dataset, one.kind): one for one in before.parts}
    found = [
        change
        for part in parts
        if (old := earlier.get((part.dataset, part.kind))) is not None
        for change in _changes(old, part, random)
    ]
    if not found:
        raise Invalid("the earlier report and this one have no case in common; compare reports of the same datasets")
    return tuple(found)


def _changes(old: Part, new: Part, random: Random) -> list[Change]:
    known = {one.case: one for one in old.scores}
    pairs = [(known[one.case], one) for one in new.scores if one.case in known]
    found: list[Change] = []
    for name, figure, more in _FIGURES:
        both = [(figure(one), figure(other)) for one, other in pairs]
        had = [(one, other) for one, other in both if one is not None and other is not None]
        if not had:
            continue
        # case by case: what is hard in both does not blur the difference
        low, high = bootstrap([other - one for one, other in had], random)
        sure = not low <= 0 <= high and len(had) >= _FEWEST
        verdict = "no difference shown" if not sure else "better" if (low > 0) == more else "worse"
        first = name == "accuracy"
        lost = tuple(new.case for one, new in pairs if first and one.passed and not new.passed)
        won = tuple(new.case for one, new in pairs if first and new.passed and not one.passed)
        before, now = mean([one for one, _ in had]), mean([other for _, other in had])
        found.append(Change(new.dataset, new.kind, name, before, now, low, high, len(had), verdict, lost, won))
    return found


def regressions(changes: Sequence[Change], part: Part) -> Measure | None:
    """How many cases passed before and do not pass now, as something a gate can be set on."""
    for one in changes:
        if (one.dataset, one.kind, one.measure) == (part.dataset, part.kind, "accuracy"):
            lost = float(len(one.lost))
            return Measure("regressions", lost, lost, lost, one.count, "less")
    return None
