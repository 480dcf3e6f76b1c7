"""A team's space from what its workers say and were asked; and what held-out requests teach about confidence."""

from collections.abc import Sequence

import numpy

from chargehand.agents.routers.calibration import FEWEST, Calibration, calibrated, thresholds
from chargehand.agents.routers.regression import Floats, Whole
from chargehand.agents.routers.space import Learnt, Measured, Near, Space, Spread, at_home, matrix, unit
from chargehand.agents.routers.texts import Said

ENOUGH = 5  # examples a worker, of everybody: from here on a regression does better than the nearest
KEPT = 0.95  # of the requests that are somebody's, that must not be taken for strangers
FRAMES = ("{}", "{}?", "i need {}")  # a skill as people would ask for it
_SHORT = 48  # characters: a longer phrase says by itself what it means
_FOLDS = 5
_MANY = 3000  # examples, from which one fold tells enough
# Of phrases alone, by CLINC150's validation set: ten workers with fifteen phrases each.
_NEAR_CALIBRATION = Calibration(0.59, -0.32)
_NEAR_THRESHOLD = 0.3
_WORDY_THRESHOLD = 0.22  # a sentence about everything somebody does is less like any one request


def texts(said: Sequence[Said]) -> list[str]:
    """What has to be embedded, in the order in which `build` takes it."""
    found: list[str] = []
    for one in said:
        for phrase in one.phrases:
            found.extend(_framed(phrase))
        found.extend(one.examples)
    return found


def build(said: Sequence[Said], vectors: Sequence[bytes]) -> Space:
    """Takes a second or two of 15,000 examples: not on the event loop."""
    points, owners, examples = _points(said, matrix(vectors))
    names = tuple(one.worker for one in said)
    if len(names) < 2 or min(len(one.examples) for one in said) < ENOUGH:
        terse = all(one.examples or any(len(phrase) <= _SHORT for phrase in one.phrases) for one in said)
        threshold = _NEAR_THRESHOLD if terse else _WORDY_THRESHOLD
        return Space(names, Near(points, owners), _NEAR_CALIBRATION, threshold)
    return _learnt(names, points, owners, examples)


def _framed(phrase: str) -> list[str]:
    return [frame.format(phrase) for frame in FRAMES] if len(phrase) <= _SHORT else [phrase]


def _points(said: Sequence[Said], rows: Floats) -> tuple[Floats, Whole, "numpy.typing.NDArray[numpy.bool_]"]:
    points: list[Floats] = []
    owners: list[int] = []
    examples: list[bool] = []
    at = 0
    for number, one in enumerate(said):
        for phrase in one.phrases:
            size = len(_framed(phrase))
            points.append(rows[at : at + size].mean(axis=0, keepdims=True))
            at += size
        points.append(rows[at : at + len(one.examples)])
        at += len(one.examples)
        owners += [number] * (len(one.phrases) + len(one.examples))
        examples += [False] * len(one.phrases) + [True] * len(one.examples)
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
        one = Learnt(points[~held], owners[~held], len(names)).raw(points[held])
        logits.append(one[0])
        cosine.append(one[1])
        truth.append(owners[held])
    spread = _spread(raw := numpy.concatenate(logits), near := numpy.concatenate(cosine))
    found = Measured(raw, at_home(raw, near, spread))
    return taught(Space(names, Learnt(points, owners, len(names), spread), Calibration(), 0.0), found, truth)


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
    return Space(space.names, space.measure, curve, whole, own)


def _spread(logits: Floats, cosine: Floats) -> Spread:
    best = logits.max(axis=1)
    return Spread(
        float(cosine.mean()), max(1e-3, float(cosine.std())), float(best.mean()), max(1e-3, float(best.std()))
    )
