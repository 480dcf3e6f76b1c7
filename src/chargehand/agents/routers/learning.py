"""A team's space from what its workers say and were asked; and what held-out requests teach about confidence."""

import math
from collections.abc import Sequence

import numpy

from chargehand.agents.routers.calibration import FEWEST, Calibration, calibrated, thresholds
from chargehand.agents.routers.regression import Floats, Whole
from chargehand.agents.routers.space import (
    DESCRIBED_CENTRE,
    Measured,
    Space,
    Spread,
    at_home,
    density,
    learn_points,
    matrix,
    place_points,
    unit,
)
from chargehand.agents.routers.texts import Said

ENOUGH = 5  # examples a worker, of everybody: from here on a regression does better than the nearest
KEPT = 0.95  # of the requests that are somebody's, that must not be taken for strangers
FRAMES = ("{}", "{}?", "i need {}")  # a skill as people would ask for it
_SHORT = 48  # characters: a longer phrase says by itself what it means
_FOLDS = 5
_MANY = 3000  # examples, from which one fold tells enough
# What follows holds where nobody has learnt from examples. It is fitted to teams drawn by chance from CLINC150's
# validation set: its intents as phrases of some workers, its domains and thirty of its intents by one sentence each.
_SLOPE = 0.65
_DESCRIBED_SLOPE = 0.45
# the more workers there are, the more may be right instead
_OFFSET = 0.34
_OFFSET_PER_LOG_WORKER = -0.30
_MOST_OFFSET = -0.2  # between two that fit equally well nobody is sure, however few there are
# The likeness a request needs: fitted so that 95 of 100 are kept. Where texts of workers are alike, so is much else.
_SPARSE_THRESHOLD = 0.096
_THRESHOLD_PER_DENSITY = 0.506
_LEAST_THRESHOLD = 0.25
_MOST_THRESHOLD = 0.36
_USUAL_DENSITY = 0.37  # where there is one worker, and so nobody to compare with


def texts(said: Sequence[Said]) -> list[str]:
    """What has to be embedded, in the order in which `build` takes it."""
    found: list[str] = []
    for one in said:
        for phrase in (*one.phrases, *one.clauses):
            found.extend(_framed(phrase))
        found.extend(one.examples)
    return found


def build(said: Sequence[Said], vectors: Sequence[bytes]) -> Space:
    """Takes a second or two of 15,000 examples: not on the event loop."""
    points, owners, examples = _points(said, matrix(vectors))
    names = tuple(one.worker for one in said)
    if len(names) < 2 or min(len(one.examples) for one in said) < ENOUGH:
        return _nearest(names, points, owners, described=all(one.described for one in said))
    return _learnt(names, points, owners, examples)


def _nearest(names: tuple[str, ...], points: Floats, owners: Whole, *, described: bool) -> Space:
    alike = density(points, owners) if len(names) > 1 else _USUAL_DENSITY
    threshold = _SPARSE_THRESHOLD + _THRESHOLD_PER_DENSITY * alike
    threshold = min(_MOST_THRESHOLD, max(_LEAST_THRESHOLD, threshold))
    offset = min(_MOST_OFFSET, _OFFSET + _OFFSET_PER_LOG_WORKER * math.log(len(names)))
    if described:
        return Space(
            names, place_points(points, owners, DESCRIBED_CENTRE), Calibration(_DESCRIBED_SLOPE, offset), threshold
        )
    return Space(names, place_points(points, owners), Calibration(_SLOPE, offset), threshold)


def _framed(phrase: str) -> list[str]:
    return [frame.format(phrase) for frame in FRAMES] if len(phrase) <= _SHORT else [phrase]


def _points(said: Sequence[Said], rows: Floats) -> tuple[Floats, Whole, "numpy.typing.NDArray[numpy.bool_]"]:
    points: list[Floats] = []
    owners: list[int] = []
    examples: list[bool] = []
    at = 0
    for number, one in enumerate(said):
        for phrase in (*one.phrases, *one.clauses):
            size = len(_framed(phrase))
            points.append(rows[at : at + size].mean(axis=0, keepdims=True))
            at += size
        points.append(rows[at : at + len(one.examples)])
        at += len(one.examples)
        told = len(one.phrases) + len(one.clauses)
        owners += [number] * (told + len(one.examples))
        examples += [False] * told + [True] * len(one.examples)
    return unit(numpy.concatenate(points)), numpy.array(owners, numpy.int64), numpy.array(examples)


def _learnt(
    names: tuple[str, ...], points: Floats, owners: Whole, examples: "numpy.typing.NDArray[numpy.bool_]"
) -> Space:
    """Each fold is judged by what was learnt without it; then everything is learnt from."""
    place = numpy.zeros(len(owners), numpy.int64)
    for number in range(len(names)):  # every worker has some in each fold
        mine = numpy.flatnonzero((owners == number) & examples)
        place[mine] = numpy.arange(len(mine)) % _FOLDS
    logits: list[Floats] = []
    cosine: list[Floats] = []
    truth: list[Whole] = []
    for fold in range(_FOLDS if int(examples.sum()) < _MANY else 1):
        held = examples & (place == fold)
        one = learn_points(points[~held], owners[~held], len(names)).raw(points[held])
        logits.append(one[0])
        cosine.append(one[1])
        truth.append(owners[held])
    spread = _spread(raw := numpy.concatenate(logits), near := numpy.concatenate(cosine))
    found = Measured(raw, at_home(raw, near, spread))
    return taught(Space(names, learn_points(points, owners, len(names), spread), Calibration(), 0.0), found, truth)


def taught(space: Space, found: Measured, truth: Sequence[Whole]) -> Space:
    """A space whose confidence and thresholds are those of these held-out requests."""
    wanted = numpy.concatenate(truth)
    right = found.logits.argmax(axis=1) == wanted
    if len(wanted) < FEWEST:
        return space
    home: dict[str, list[float]] = {name: [] for name in space.names}
    for at, scope in zip(wanted.tolist(), found.scope.tolist(), strict=True):
        home[space.names[at]].append(scope)
    whole, own = thresholds(home, KEPT)
    curve = calibrated(found.odds().tolist(), right.tolist(), space.calibration)
    return Space(names=space.names, measure=space.measure, calibration=curve, threshold=whole, own=own)


def _spread(logits: Floats, cosine: Floats) -> Spread:
    best = logits.max(axis=1)
    return Spread(
        cosine=float(cosine.mean()),
        cosine_width=max(1e-3, float(cosine.std())),
        logit=float(best.mean()),
        logit_width=max(1e-3, float(best.std())),
    )
