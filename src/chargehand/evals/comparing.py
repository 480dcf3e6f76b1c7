"""What changed since an earlier report: measure by measure, over the cases that both have, and how sure that is."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec

from chargehand.errors import Invalid
from chargehand.evals.cases import Dataset, kind_of
from chargehand.evals.chance import bootstrap, mean, odds, turned
from chargehand.evals.scores import Change, Measure, Part, Report, Score

_LARGEST = 256 * 1024 * 1024
_FEWEST = 6  # cases below which drawing them anew says nothing
_UNLIKELY = 0.05
_RESULT = ": "  # what stands between the name of a case and that of one of its results
_FIGURES: tuple[tuple[str, Callable[[Score], float | None]], ...] = (  # less is better
    ("usd", lambda one: None if one.error or one.micros is None else one.micros / 1_000_000),
    ("seconds", lambda one: None if one.error else one.seconds),
)


def read_report(file: Path) -> Report:
    """A report that `chargehand eval -o FILE` wrote."""
    try:
        with file.open("rb") as opened:
            body = opened.read(_LARGEST + 1)  # a device has no size that could be asked for
        if len(body) > _LARGEST:
            raise Invalid(f"{file} is larger than {_LARGEST:,} bytes; compare fewer cases at once")
        return msgspec.json.decode(body, type=Report)
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; name a report that can be") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"{file} is no report: {error}; write one with  chargehand eval -o before.json") from error


def check(before: Report, datasets: Sequence[Dataset]) -> None:
    """Raise Invalid where there is nothing to compare: before anything is tried."""
    known = {(part.dataset, part.kind, one.case.partition(_RESULT)[0]) for part in before.parts for one in part.scores}
    asked = {(one.name, kind_of(case), case.name.partition(_RESULT)[0]) for one in datasets for case in one.cases}
    if known.isdisjoint(asked):
        raise Invalid("the earlier report and this one have no case in common; compare reports of the same datasets")


def compared(before: Report, parts: Sequence[Part], random: Random) -> tuple[Change, ...]:
    """The changes of all parts that both have, over the cases that are the same in both."""
    earlier = {(one.dataset, one.kind): one for one in before.parts}
    return tuple(
        change
        for part in parts
        if (old := earlier.get((part.dataset, part.kind))) is not None
        for change in _changes(old, part, random)
    )


def differences(before: Report, parts: Sequence[Part], team: str) -> tuple[str, ...]:
    """What besides the figures is not as it was, and so is not compared."""
    found = [f"the baseline is of team {before.team}, not {team}"] if before.team != team else []
    earlier = {(one.dataset, one.kind): one for one in before.parts}
    for part in parts:
        where, old = f"{part.dataset} {part.kind}", earlier.pop((part.dataset, part.kind), None)
        if old is None:
            found.append(f"{where} is not in the baseline")
            continue
        same, had, has = len(_pairs(old, part)), len(old.scores), len(part.scores)
        if same < max(had, has):
            kept = f"{same} of {has} cases are compared"
            found.append(f"{where}: {kept}; the others are new or changed, and {had - same} of the baseline are gone")
    return (*found, *(f"{dataset} {kind} of the baseline was not tried" for dataset, kind in earlier))


def _pairs(old: Part, new: Part) -> list[tuple[Score, Score]]:
    """Cases with the same name that ask for the same."""
    known = {one.case: one for one in old.scores}
    found = [(known[one.case], one) for one in new.scores if one.case in known]
    return [(one, other) for one, other in found if one.error or other.error or one.request == other.request]


def _changes(old: Part, new: Part, random: Random) -> list[Change]:
    pairs, found = _pairs(old, new), list[Change]()
    if pairs:
        lost = tuple(now.case for was, now in pairs if was.passed and not now.passed)
        won = tuple(now.case for was, now in pairs if now.passed and not was.passed)
        low, high = turned(len(won), len(lost), len(pairs))
        sure = odds(len(won), len(lost)) <= _UNLIKELY
        verdict = "no difference shown" if not sure else "better" if len(won) > len(lost) else "worse"
        before, now = (mean([float(pair[at].passed) for pair in pairs]) for at in (0, 1))
        found.append(Change(new.dataset, new.kind, "accuracy", before, now, low, high, len(pairs), verdict, lost, won))
    for name, figure in _FIGURES:
        both = [(figure(was), figure(now)) for was, now in pairs]
        had = [(was, now) for was, now in both if was is not None and now is not None]
        if had:
            # case by case: what is hard in both does not blur the difference
            low, high = bootstrap([now - was for was, now in had], random)
            sure = not low <= 0 <= high and len(had) >= _FEWEST
            verdict = "no difference shown" if not sure else "worse" if low > 0 else "better"
            before, now = mean([was for was, _ in had]), mean([now for _, now in had])
            found.append(Change(new.dataset, new.kind, name, before, now, low, high, len(had), verdict))
    return found


def regressions(changes: Sequence[Change], part: Part) -> Measure | None:
    """How many cases passed before and do not pass now, as something a gate can be set on."""
    for one in changes:
        if (one.dataset, one.kind, one.measure) == (part.dataset, part.kind, "accuracy"):
            lost = float(len(one.lost))
            return Measure("regressions", lost, lost, lost, one.count, "less")
    return None
