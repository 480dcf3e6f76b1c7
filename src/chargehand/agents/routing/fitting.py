"""What routing by meaning learns from, with numpy and nothing else: regression, kinds of requests, calibration.

Matrix products run on one core. numpy hands a product to BLAS, which starts a thread on each core for all but tiny
ones. For the sizes of a team the threads mostly wait for each other, and burn 25 times the CPU of the product while
they wait. So a product is cut into blocks that are too small for BLAS to start threads: OpenBLAS does so above 2**18
multiplications, and for a matrix and a vector, or two vectors, far sooner. Nothing is set for the rest of the process.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy
from msgspec import Struct
from numpy.typing import NDArray

_Number = TypeVar("_Number", numpy.float32, numpy.float64)
Floats: TypeAlias = NDArray[numpy.float32]
Wide: TypeAlias = NDArray[numpy.float64]
Whole: TypeAlias = NDArray[numpy.int64]
Slope: TypeAlias = Callable[[Wide], tuple[float, Wide]]
_MOST_MULTIPLICATIONS = 2**18
_DEPTH = 512  # of a block: how many numbers are added up for each number of the result
_WIDTH = 128  # of a block of the result
_FEWEST_ROWS = 2  # a block of one row would be a vector


def product(left: NDArray[_Number], right: NDArray[_Number]) -> NDArray[_Number]:
    """`left @ right` of two matrices."""
    height, depth = left.shape
    if height == 1:
        return likeness(right.T, left[0])[None, :]
    result: NDArray[_Number] = numpy.zeros((height, right.shape[1]), left.dtype)
    for column in range(0, right.shape[1], _WIDTH):
        part = result[:, column : column + _WIDTH]
        for start in range(0, depth, _DEPTH):
            deep = slice(start, start + _DEPTH)
            part += _block_product(left[:, deep], right[deep, column : column + _WIDTH])
    return result


def _block_product(left: NDArray[_Number], right: NDArray[_Number]) -> NDArray[_Number]:
    """Of matrices that are narrow enough for blocks of a few rows each."""
    height, depth = left.shape
    width = right.shape[1]
    if width == 1:
        return likeness(left, right[:, 0])[:, None]
    rows = min(height, max(_FEWEST_ROWS, _MOST_MULTIPLICATIONS // (depth * width)))
    whole = height - height % rows
    result: NDArray[_Number] = numpy.empty((height, width), left.dtype)
    result[:whole] = numpy.matmul(left[:whole].reshape(-1, rows, depth), right).reshape(whole, width)
    if whole < height:  # what is left over, with as many rows before it as make up a block
        result[height - rows :] = numpy.matmul(left[height - rows :], right)
    return result


def inner(left: NDArray[_Number], right: NDArray[_Number]) -> float:
    """The inner product of two vectors."""
    return float(numpy.einsum("d,d->", left, right))


def likeness(points: NDArray[_Number], vector: NDArray[_Number]) -> NDArray[_Number]:
    """The inner product of each row with a vector."""
    return numpy.einsum("pd,d->p", points, vector)


# --- logistic regression over vectors

STRENGTH = 30.0  # the inverse of how hard weights are held down; chosen on CLINC150's validation set
ROUNDS = 30
_KEPT_STEPS = 10  # earlier steps that the next one is bent by
_HALVINGS = 20


class Regression(Struct, frozen=True):
    """A row of weights for each class, and what is added."""

    weights: Floats
    offset: Floats

    def logits(self, vectors: Floats) -> Floats:
        return product(vectors, self.weights.T) + self.offset


def fit(vectors: Floats, classes: Whole, count: int, strength: float = STRENGTH, rounds: int = ROUNDS) -> Regression:
    """Every class counts the same, however many examples it has. The same input gives the same weights."""
    middle = vectors.mean(axis=0)
    centred = vectors - middle  # what all have in common tells nothing, and makes the descent slow
    shares = (len(classes) / (count * numpy.bincount(classes, minlength=count).clip(1)))[classes].astype(numpy.float32)
    width = int(vectors.shape[1])
    start: Wide = numpy.zeros((width + 1) * count, numpy.float64)
    found = _descend(_loss(centred, classes, shares, count, strength), start, rounds)
    weights = found[:-count].reshape(width, count).T
    offset = found[-count:] - likeness(weights, middle.astype(numpy.float64))
    return Regression(weights.astype(numpy.float32), offset.astype(numpy.float32))


def _loss(vectors: Floats, classes: Whole, shares: Floats, count: int, strength: float) -> Slope:
    size = len(vectors)
    width = int(vectors.shape[1])
    rows: Whole = numpy.arange(size)
    held = 1.0 / (strength * size)

    def at(point: Wide) -> tuple[float, Wide]:
        weights = point[:-count].reshape(width, count).astype(numpy.float32)
        odds = product(vectors, weights) + point[-count:].astype(numpy.float32)
        odds -= odds.max(axis=1, keepdims=True)
        right = odds[rows, classes].copy()
        numpy.exp(odds, out=odds)
        totals = odds.sum(axis=1)
        loss = float(((numpy.log(totals) - right) * shares).sum()) / size + held / 2 * float((weights * weights).sum())
        odds /= totals[:, None]
        odds[rows, classes] -= 1.0
        odds *= (shares / size)[:, None]
        slope = numpy.concatenate([(product(vectors.T, odds) + held * weights).ravel(), odds.sum(axis=0)])
        return loss, slope.astype(numpy.float64)

    return at


def _descend(loss: Slope, point: Wide, rounds: int) -> Wide:
    """Limited-memory quasi-Newton descent: steps are bent by what the last ones showed of the curvature."""
    steps: deque[tuple[Wide, Wide]] = deque(maxlen=_KEPT_STEPS)
    value, slope = loss(point)
    for _ in range(rounds):
        way = _bent(slope, steps)
        length = 1.0 if steps else min(1.0, 1.0 / (inner(slope, slope) ** 0.5 or 1.0))
        fall = inner(slope, way)
        moved, new = loss(point + length * way)
        for _halving in range(_HALVINGS):
            if moved <= value + 1e-4 * length * fall:
                break
            length /= 2
            moved, new = loss(point + length * way)
        else:
            return point  # no way down that floats can see
        step = length * way
        change = new - slope
        if inner(step, change) > 1e-12:
            steps.append((step, change))
        point = point + step
        value = moved
        slope = new
        if float(numpy.abs(slope).max()) < 1e-6:
            break
    return point


def _bent(slope: Wide, steps: deque[tuple[Wide, Wide]]) -> Wide:
    way = slope.copy()
    taken: list[float] = []
    for step, change in reversed(steps):
        taken.append(inner(step, way) / inner(step, change))
        way -= taken[-1] * change
    if steps:
        step, change = steps[-1]
        way *= inner(step, change) / inner(change, change)
    for (step, change), own in zip(steps, reversed(taken), strict=True):
        way += step * (own - inner(change, way) / inner(step, change))
    return -way


# --- kinds of requests

# Workers whose requests are of several kinds: one straight border does not part somebody who knows about flights and
# about recipes from all others; a border for each kind does. Numbers chosen on CLINC150's validation set, its domains
# and its intents as workers.
_LOOSE = 0.55  # how near a worker's points are to their middle, on average: below it they are of several kinds
_TIGHT = 0.65  # and how near they shall be to the middle of their kind
_FEWEST = 5  # points of a kind, on average
# kinds of one worker, and of all: what is learnt grows with them
_MAX_KINDS = 16
_MAX_ALL_KINDS = 400
_WORTH = 4  # kinds that a worker may have at least, or it is left at one: two halves of somebody help nobody
_KIND_ROUNDS = 15


def kinds(points: Floats, owners: Whole, count: int) -> tuple[Whole, Whole]:
    """The kind of each point, and the owner of each kind. Most owners have one; the same input gives the same."""
    found: Whole = numpy.zeros(len(points), numpy.int64)
    whose: list[int] = []
    for owner in range(count):
        mine = numpy.flatnonzero(owners == owner)
        places = _parted(points[mine], min(_MAX_KINDS, _MAX_ALL_KINDS // count))
        found[mine] = places + len(whose)
        whose += [owner] * (int(places.max()) + 1)
    return found, numpy.array(whose, numpy.int64)


def _parted(points: Floats, most: int) -> Whole:
    """Two kinds, then four, and so on, until they are tight or too small."""
    places: Whole = numpy.zeros(len(points), numpy.int64)
    if most < _WORTH or _tightness(points, places) >= _LOOSE:
        return places
    size = 2
    while size <= min(most, len(points) // _FEWEST):
        places = _nearest(points, size)
        if _tightness(points, places) >= _TIGHT:
            break
        size *= 2
    return places


def _nearest(points: Floats, size: int) -> Whole:
    """k-means by angle: begun with the point in the middle, then each time the one farthest from those so far."""
    first = int(numpy.argmax(likeness(points, points.sum(axis=0))))
    begun = [first]
    near = likeness(points, points[first])
    while len(begun) < size:
        begun.append(int(numpy.argmin(near)))
        near = numpy.maximum(near, likeness(points, points[begun[-1]]))
    centres = points[begun]
    places: Whole = numpy.zeros(len(points), numpy.int64)
    for _ in range(_KIND_ROUNDS):
        moved: Whole = product(points, centres.T).argmax(axis=1)
        if (moved == places).all():
            break
        places = moved
        sums = _sums(points, places, size)
        long = numpy.linalg.norm(sums, axis=1, keepdims=True)
        centres = numpy.where(long > 0, sums / long.clip(1e-9), centres)
    return numpy.unique(places, return_inverse=True)[1].astype(numpy.int64)  # kinds that lost all are gone


def _tightness(points: Floats, places: Whole) -> float:
    """How near points are to the middle of their kind, on average. Points have length one."""
    sums = _sums(points, places, int(places.max()) + 1)
    return float(numpy.linalg.norm(sums, axis=1).sum()) / len(points)


def _sums(points: Floats, places: Whole, size: int) -> Floats:
    return product((places == numpy.arange(size)[:, None]).astype(numpy.float32), points)


# --- calibration: from a router's own measure to how likely it is right, learnt from requests that it has not stored

FEWEST = 20  # held-out requests, below which nothing is learnt from them
_CALIBRATION_ROUNDS = 50
_TRUST = 20.0  # requests of one worker at which its own threshold counts as much as that of all


class Calibration(Struct, frozen=True):
    """A logistic curve over log odds."""

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, odds: float) -> float:
        return float(_logistic(numpy.array(self.slope * odds + self.offset)))


def calibrate(odds: Sequence[float], right: Sequence[bool], start: Calibration | None = None) -> Calibration:
    """The curve through what was right (Platt's, with his smoothed targets); `start` itself, of too few."""
    start = start or Calibration()
    if len(odds) < FEWEST:
        return start
    hits = sum(right)
    wanted = numpy.where(right, (hits + 1.0) / (hits + 2.0), 1.0 / (len(right) - hits + 2.0))
    places = numpy.array(odds, numpy.float64)

    def loss(point: Wide) -> tuple[float, Wide]:
        values = point[0] * places + point[1]
        errors = _logistic(values) - wanted
        total = float((numpy.logaddexp(0.0, values) - values * wanted).sum())
        return total, numpy.array([inner(errors, places), errors.sum()])

    slope, offset = _descend(loss, numpy.array([start.slope, start.offset]), _CALIBRATION_ROUNDS).tolist()
    return Calibration(max(0.05, slope), offset)


def _logistic(odds: Wide) -> Wide:
    return 1.0 / (1.0 + numpy.exp(-odds.clip(-60.0, 60.0)))


def thresholds(held: Mapping[str, Sequence[float]], kept: float) -> tuple[float, dict[str, float]]:
    """Below what so few requests lie that `kept` of them stay: for all, and for each as far as its own number tells."""
    whole = float(numpy.quantile([value for values in held.values() for value in values], 1.0 - kept))
    own: dict[str, float] = {}
    for name, values in held.items():
        trust = len(values) / (len(values) + _TRUST)
        own[name] = trust * float(numpy.quantile(values, 1.0 - kept)) + (1 - trust) * whole if values else whole
    return whole, own
