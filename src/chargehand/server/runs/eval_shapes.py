"""What the API is told of evaluations and what it tells of them. How cases are tried and scored is not known here."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from chargehand.server.runs.shapes import Asked
from chargehand.terms.policy import Instant

Kind: TypeAlias = Literal["routing", "plan", "worker", "run", "verifier"]
Better: TypeAlias = Literal["more", "less"]
Wish: TypeAlias = Annotated[str, Meta(max_length=80, pattern=r"^[a-z0-9_.]{1,40}(=|>=|<=)-?[0-9]{1,9}(\.[0-9]{1,9})?$")]
"""As `--gate` of the command line takes it: accuracy=0.9."""


class EvalAsked(Asked, frozen=True):
    """`kinds` of cases, all where none is named; `gate` says what measures must reach, such as accuracy=0.9."""

    kinds: Annotated[tuple[Kind, ...], Meta(max_length=5)] = ()
    gate: Annotated[tuple[Wish, ...], Meta(max_length=20)] = ()


class EvalLine(Struct, frozen=True):
    """An evaluation in a list. `held`: whether every gate was reached; null before it is done, or without any gate.

    `tried` of `cases` have a result by now; a case of a verifier has several. `why` is why it failed, or was cancelled
    where somebody said so: of the team only what was tried by then is known.
    """

    id: str
    team: str
    state: Literal["running", "done", "failed", "cancelled"]
    kinds: tuple[Kind, ...]
    gate: tuple[str, ...]
    began: Instant
    ended: Instant | None = None
    why: str = ""
    held: bool | None = None
    cases: int = 0
    passed: int = 0
    tried: int = 0


class EvalList(Struct, frozen=True):
    """The latest first."""

    evals: tuple[EvalLine, ...]


class Figure(Struct, frozen=True):
    """A measure over `count` cases, with the interval it lies in at 95 % confidence. `better`: more of it, or less."""

    name: str
    value: float
    low: float
    high: float
    count: int
    better: Better = "more"


class Figures(Struct, frozen=True):
    """The measures of the cases of one kind in one dataset."""

    dataset: str
    kind: Kind
    cases: int
    passed: int
    measures: tuple[Figure, ...]


class FailedCase(Struct, frozen=True):
    """A case that did not pass. `error`: it could not even be tried."""

    dataset: str
    kind: Kind
    case: str
    why: tuple[str, ...]
    error: bool


class GateShown(Struct, frozen=True):
    """A measure that had to reach something, and whether it did. `why` says why there is no value to go by."""

    dataset: str
    kind: Kind
    measure: str
    wanted: float
    value: float
    held: bool
    better: Better = "more"
    why: str = ""


class EvalShown(Struct, frozen=True):
    """An evaluation. `report` is the whole document that `chargehand eval --json` gives; null where there is none.

    One that was cancelled or failed has figures of what was tried until then, with measures only where it could still
    write a report; gates are left out.
    """

    line: EvalLine
    figures: tuple[Figures, ...] = ()
    failed: tuple[FailedCase, ...] = ()
    gates: tuple[GateShown, ...] = ()
    report: object = None
