"""What is wrong with a case as it is written: what its kind lacks, what it would not read, what always or never holds.

Such a case would pass or fail whatever the team does; it is refused before anything is tried.
"""

import math
from collections.abc import Iterator

from msgspec import UnsetType

from chargehand.agents.predicates import CheckFailed
from chargehand.evals.cases import Case, Expect, Kind, Number, kind_of, several
from chargehand.evals.graders import vet_pattern, vet_schema

_ALL = frozenset(("request", "name", "kind", "answer"))
_OF_RUNS = frozenset(
    ("expect", "workers", "ending", "gaps", "most_gaps", "coverage", "most_usd", "most_seconds")
)  # fmt: skip
_READ: dict[Kind, frozenset[str]] = {
    "routing": _ALL | {"worker"},
    "plan": _ALL | {"plan"},
    "run": _ALL | _OF_RUNS,
    "worker": _ALL | _OF_RUNS | {"worker"},
    "verifier": _ALL | {"worker", "source", "right", "wrong", "checks"},
}


def unfit(case: Case) -> str:
    """What is wrong with a case; empty where it will do."""
    return next(_problems(case), "")


def _problems(case: Case) -> Iterator[str]:
    kind = kind_of(case)
    yield from _lacks(case, kind)
    for name in _unread(case, kind):
        yield f"`{name}` is not read in a case of the kind {kind}; leave it out, or say which kind it is: kind: …"
    yield from _out_of_bounds(case)
    if case.expect is not None:
        yield from _empty(case.expect)
        yield from _ungraded(case.expect)
    if "right" in case.wrong:
        yield "a result that is wrong cannot be called 'right'; call it by what is wrong with it"
    for name, text in case.wrong.items():
        if text in several(case.right):
            yield f"the wrong result {name!r} is one of the right ones; write another"


def _lacks(case: Case, kind: Kind) -> Iterator[str]:
    if kind == "routing" and isinstance(case.worker, UnsetType):
        yield "a case of routing says whom it is for: worker: NAME, or null for nobody"
    if kind == "worker" and len(case.labels) != 1:
        yield "a case of one worker names it: worker: NAME"
    if kind == "worker" and case.expect in (None, Expect()):
        yield "nothing is expected of the worker; write  expect:"
    if kind == "plan" and case.plan is None:
        yield "nothing is expected of the plan; write  plan: {workers: […]}"
    if kind == "verifier" and not all(several(case.right) or ("",)):
        yield "a case of a verifier has a result that is right: right: …"


def _unread(case: Case, kind: Kind) -> list[str]:
    """What is set and would not be looked at."""
    usual = Case("")
    there = (name for name in Case.__struct_fields__ if getattr(case, name) != getattr(usual, name))
    return [name for name in there if name not in _READ[kind]]


def _out_of_bounds(case: Case) -> Iterator[str]:
    if not 0 <= case.coverage <= 1:
        yield f"`coverage` is a share from 0 to 1, not {case.coverage:g}"
    for name in ("most_gaps", "most_usd", "most_seconds"):
        most: float | None = getattr(case, name)
        if most is not None and not 0 <= most < math.inf:
            yield f"`{name}` cannot be {most:g}; nothing is less than nothing"
    numbers = () if case.expect is None else case.expect.numbers
    for one in numbers if isinstance(numbers, tuple) else (numbers,):
        goal = one if isinstance(one, Number) else Number(one)
        room = min(goal.within, goal.percent)
        if not math.isfinite(goal.value) or not 0 <= room <= max(goal.within, goal.percent) < math.inf:
            yield f"no number can be {goal.value:g} within {goal.within:g} or {goal.percent:g} %"


def _empty(expect: Expect) -> Iterator[str]:
    """Texts that every answer holds."""
    for name in ("contains", "any_of", "excludes", "rubric"):
        if any(not one.strip() for one in several(getattr(expect, name))):
            yield f"`{name}` has an empty text, which says nothing; leave it out"


def _ungraded(expect: Expect) -> Iterator[str]:
    """Graders that cannot work."""
    try:
        if expect.matches:
            vet_pattern(expect.matches)
        if expect.schema is not None:
            vet_schema(expect.schema)
    except CheckFailed as error:
        yield str(error)
