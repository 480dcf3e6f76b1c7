"""What the process of an evaluation wrote, as the API tells it: its report, or the results before it was stopped.

How that process is started and ended is not known here.
"""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from chargehand.server.runs.eval_shapes import EvalLine, EvalShown, FailedCase, Figure, Figures, GateShown, Kind
from chargehand.terms.policy import Instant

MOST = 16 * 1024 * 1024
"""Bytes of a report."""
_WINDOW = 256 * 1024  # bytes at the end of the results in which the last of them is looked for


class _Score(Struct, frozen=True):
    case: str
    kind: Kind
    passed: bool
    why: tuple[str, ...] = ()
    error: bool = False


class _Part(Struct, frozen=True):
    dataset: str
    kind: Kind
    scores: tuple[_Score, ...]
    measures: tuple[Figure, ...] = ()


class _Report(Struct, frozen=True):
    """As much of a report as is told apart from it."""

    parts: tuple[_Part, ...]
    gates: tuple[GateShown, ...] = ()


class Far(Struct, frozen=True):
    """How far it is: `tried` of `cases`."""

    tried: int = 0
    passed: int = 0
    cases: int = 0


class _Result(Struct, frozen=True):
    dataset: str = ""
    score: _Score | None = None


class Ended(Struct, frozen=True):
    """How an evaluation ended, and `why` where that is not by itself."""

    state: Literal["done", "failed", "cancelled"]
    at: Instant
    why: str = ""


def far(results: Path) -> Far | None:
    """What the last whole line says; None where there is none yet, or none any more."""
    try:
        with results.open("rb") as file:
            file.seek(max(0, results.stat().st_size - _WINDOW))
            lines = file.read(_WINDOW).split(b"\n")
        return msgspec.json.decode(lines[-2], type=Far) if len(lines) > 1 else None
    except (OSError, msgspec.DecodeError):
        return None


def told(line: EvalLine, report: Path, results: Path, ended: Ended) -> EvalShown:
    """An evaluation that has ended: by its report, and without one by the results that came before the end."""
    line = structs.replace(line, state=ended.state, ended=ended.at, why=ended.why)
    try:
        if not report.is_file():
            return _shown(line, _Report(_parts(results)), far(results), None)
        if report.stat().st_size > MOST:
            why = f"the report has more than {MOST} bytes; ask for fewer kinds of cases at once"
            return EvalShown(structs.replace(line, state="failed", why=why))
        body = report.read_bytes()
        return _shown(line, msgspec.json.decode(body, type=_Report), far(results), msgspec.json.decode(body))
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        return EvalShown(structs.replace(line, state="failed", why=f"the report cannot be read: {error}"))


def _shown(line: EvalLine, read: _Report, last: Far | None, report: object) -> EvalShown:
    figures = tuple(
        Figures(one.dataset, one.kind, len(one.scores), sum(score.passed for score in one.scores), one.measures)
        for one in read.parts
    )
    unmet = tuple(
        FailedCase(one.dataset, one.kind, score.case, score.why, score.error)
        for one in read.parts
        for score in one.scores
        if not score.passed
    )
    tried = sum(one.cases for one in figures)
    line = structs.replace(
        line, held=all(one.held for one in read.gates) if read.gates else None, tried=tried,
        cases=max(tried, 0 if last is None else last.cases), passed=sum(one.passed for one in figures),
    )  # fmt: skip
    return EvalShown(line, figures, unmet, read.gates, report)


def _parts(results: Path) -> tuple[_Part, ...]:
    """The results by dataset and kind. Nothing is measured: that is left to who makes a report."""
    found: dict[tuple[str, Kind], list[_Score]] = {}
    with results.open("rb") as file:
        body = file.read(MOST)
    for one in body.split(b"\n")[:-1]:  # a line that was cut off has no end
        read = msgspec.json.decode(one, type=_Result)
        if read.score is not None:
            found.setdefault((read.dataset, read.score.kind), []).append(read.score)
    return tuple(_Part(dataset, kind, tuple(scores)) for (dataset, kind), scores in found.items())
