"""What came of cases: scores, measures with confidence intervals, and the whole report. No case is run here."""

from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.evals.cases import Kind

Better: TypeAlias = Literal["more", "less"]


class Score(Struct, frozen=True, omit_defaults=True):
    """What came of one case. `why` is what was wrong; `error`: it could not even be tried.

    `values` are figures of this case by name, `got` is what was said or chosen, `wanted` what should have been.
    """

    case: str
    kind: Kind
    passed: bool
    why: tuple[str, ...] = ()
    error: bool = False
    values: dict[str, float] = {}
    seconds: float = 0.0
    micros: int | None = 0
    request: str = ""
    got: str = ""
    wanted: str = ""
    notes: tuple[str, ...] = ()


class Measure(Struct, frozen=True, omit_defaults=True):
    """A figure over cases, with the interval it lies in at 95 % confidence. `better`: more of it, or less."""

    name: str
    value: float
    low: float
    high: float
    count: int
    better: Better = "more"

    @property
    def known(self) -> bool:
        """Whether the interval says anything: values that are all the same have nothing to draw anew."""
        return self.low != self.high


class Table(Struct, frozen=True, omit_defaults=True):
    """Rows for people to look at. Cells with a `heat` from 0 to 1 may be coloured."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heat: tuple[tuple[float, ...], ...] = ()


class Part(Struct, frozen=True, omit_defaults=True):
    """All that is to be said of the cases of one kind in one dataset. `advice` is what to change, in words."""

    dataset: str
    kind: Kind
    scores: tuple[Score, ...]
    measures: tuple[Measure, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def measure(self, name: str) -> Measure | None:
        return next((one for one in self.measures if one.name == name), None)


class Gate(Struct, frozen=True, omit_defaults=True):
    """A measure that had to reach something, and whether it did. `why` says why there is no value to go by."""

    dataset: str
    kind: Kind
    measure: str
    wanted: float
    value: float
    held: bool
    better: Better = "more"
    why: str = ""


class Change(Struct, frozen=True, omit_defaults=True):
    """How a measure differs from that of an earlier report: over the same cases, with the interval at 95 %."""

    dataset: str
    kind: Kind
    measure: str
    before: float
    now: float
    low: float
    high: float
    count: int
    verdict: Literal["better", "worse", "no difference shown"]
    lost: tuple[str, ...] = ()
    won: tuple[str, ...] = ()


class Report(Struct, frozen=True, omit_defaults=True):
    """One evaluation of a team. `notice` is what people must know about the models behind it.

    `stopped` says why not every case was tried. `warnings` are about the evaluation, not about the team.
    """

    team: str
    parts: tuple[Part, ...]
    gates: tuple[Gate, ...] = ()
    changes: tuple[Change, ...] = ()
    notice: str = ""
    seed: int = 0
    warnings: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def tried(self) -> bool:
        """Whether there is a case that could be tried at all."""
        return any(not one.error for part in self.parts for one in part.scores)

    @property
    def held(self) -> bool:
        """Whether every gate was reached."""
        return all(one.held for one in self.gates)
