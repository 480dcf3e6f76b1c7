"""Cases as people write them: a request and what ought to come of it. How they are scored is not known here."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

Kind: TypeAlias = Literal["routing", "plan", "worker", "run", "verifier"]
KINDS: tuple[Kind, ...] = ("routing", "plan", "worker", "run", "verifier")
NOBODY = ("", "none", "nobody", "out_of_scope", "out of scope")
"""Other words for a request that is for nobody of the team: the usual one is no worker at all (null)."""


class Number(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number the answer must hold, `within` so much of it, or so many `percent`."""

    value: float
    within: float = 0.0
    percent: float = 0.0


class Expect(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an answer must be: all that is set here.

    `any_of`: at least one of these stands in it. `rubric` is judged by a model. `python` is a function beside the cases
    (`graders.py:name`): it gets the answer and returns True, or what is wrong.
    """

    exact: str | None = None
    contains: str | tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    excludes: str | tuple[str, ...] = ()
    matches: str = ""
    numbers: float | Number | tuple[float | Number, ...] = ()
    schema: dict[str, object] | None = None
    rubric: str | tuple[str, ...] = ()
    python: str = ""


class Shape(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a plan must be.

    `edges` are pairs of workers of whom the second works from the first's result, `independent` pairs where neither
    waits for the other, in no way. `width` is how many tasks can at least be done side by side. `vague`,
    `needless` and `unserved` are how many vague tasks, inputs nobody reads and parts of the request that nobody is
    given are let pass.
    """

    workers: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    independent: tuple[tuple[str, str], ...] = ()
    width: int = 0
    most_tasks: int = 0
    vague: int = 0
    needless: int = 0
    unserved: int = 0


class Case(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request, or one task of which results are seeded.

    `worker` alone is whom the request is for (null: nobody); with `expect`, who is asked. The next are about whole
    runs: who must have worked, how it must end, what the gaps must speak of (`gaps`), how many there may be, which
    share of the plan the answer must cover, what it may cost and take. `source`, `right`, `wrong` and `checks` are for
    verifiers. `answer` is kept for people to compare with.
    """

    request: str
    name: str = ""
    kind: Kind | None = None
    worker: str | tuple[str, ...] | UnsetType | None = UNSET
    expect: Expect | None = None
    plan: Shape | None = None
    workers: tuple[str, ...] = ()
    ending: Literal["complete", "partial", "failed", "needs_input"] | None = None
    gaps: str | tuple[str, ...] = ()
    most_gaps: int | None = None
    coverage: float = 0.0
    most_usd: float | None = None
    most_seconds: float | None = None
    source: str = ""
    right: str | tuple[str, ...] = ()
    wrong: dict[str, str] = {}
    checks: tuple[str, ...] = ()
    answer: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Whom it is for; empty for nobody of the team."""
        found = () if isinstance(self.worker, UnsetType) or self.worker is None else several(self.worker)
        return tuple(one for one in found if one.strip().casefold() not in NOBODY)


class Dataset(Struct, frozen=True):
    """Cases that are scored together. `gate` is what they must reach, `judge` the model that judges rubrics."""

    name: str
    cases: tuple[Case, ...]
    gate: dict[str, float] = {}
    judge: str = ""
    folder: str = ""


def several(one: str | tuple[str, ...]) -> tuple[str, ...]:
    """What may be written as one text or as a list."""
    return (one,) if isinstance(one, str) else one


def kind_of(case: Case) -> Kind:
    """What a case is about, by what it holds."""
    if case.kind is not None:
        return case.kind
    if case.plan is not None:
        return "plan"
    if case.right or case.wrong:
        return "verifier"
    if isinstance(case.worker, UnsetType):
        return "run"
    return "routing" if case.expect is None else "worker"


def as_data(case: Case) -> dict[str, object]:
    """A case as plain data, without what is not set."""
    return msgspec.to_builtins(case)
