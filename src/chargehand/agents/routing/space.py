"""Workers as regions of a vector space: how near a request is to each, learned from their texts and examples.

Imported only to route by meaning, because it needs numpy: regression, clustering, calibration and the space itself.

Matrix products run on one core. numpy hands a product to BLAS, which starts a thread on each core for all but tiny
ones. For the sizes of a team the threads mostly wait for each other, and burn 25 times the CPU of the product while
they wait. So a product is cut into blocks that are too small for BLAS to start threads: OpenBLAS does so above 2**18
multiplications, and for a matrix and a vector, or two vectors, far sooner. Nothing is set for the rest of the process.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias, TypeVar

import msgspec
import numpy
from msgspec import Struct, field
from numpy.typing import NDArray

from chargehand.agents.routing.words import WorkerTexts

_Number = TypeVar("_Number", numpy.float32, numpy.float64)
Floats: TypeAlias = NDArray[numpy.float32]
Wide: TypeAlias = NDArray[numpy.float64]
Ints: TypeAlias = NDArray[numpy.int64]
Slope: TypeAlias = Callable[[Wide], tuple[float, Wide]]
_MOST_MULTIPLICATIONS = 2**18
_DEPTH = 512  # of a block: how many numbers are added up for each number of the result
_WIDTH = 128  # of a block of the result
_FEWEST_ROWS = 2  # a block of one row would be a vector


def product(first: NDArray[_Number], second: NDArray[_Number]) -> NDArray[_Number]:
    """`first @ second` of two matrices."""
    height, depth = first.shape
    if height == 1:
        return likeness(second.T, first[0])[None, :]
    result: NDArray[_Number] = numpy.zeros((height, second.shape[1]), first.dtype)
    for column in range(0, second.shape[1], _WIDTH):
        part = result[:, column : column + _WIDTH]
        for start in range(0, depth, _DEPTH):
            deep = slice(start, start + _DEPTH)
            part += _block_product(first[:, deep], second[deep, column : column + _WIDTH])
    return result


def _block_product(first: NDArray[_Number], second: NDArray[_Number]) -> NDArray[_Number]:
    """Of matrices that are narrow enough for blocks of a few rows each."""
    height, depth = first.shape
    width = second.shape[1]
    if width == 1:
        return likeness(first, second[:, 0])[:, None]
    rows = min(height, max(_FEWEST_ROWS, _MOST_MULTIPLICATIONS // (depth * width)))
    whole = height - height % rows
    result: NDArray[_Number] = numpy.empty((height, width), first.dtype)
    result[:whole] = numpy.matmul(first[:whole].reshape(-1, rows, depth), second).reshape(whole, width)
    if whole < height:  # what is left over, with as many rows before it as make up a block
        result[height - rows :] = numpy.matmul(first[height - rows :], second)
    return result


def inner(first: NDArray[_Number], second: NDArray[_Number]) -> float:
    """The inner product of two vectors."""
    return float(numpy.einsum("d,d->", first, second))


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


def fit(vectors: Floats, classes: Ints, count: int, strength: float = STRENGTH, rounds: int = ROUNDS) -> Regression:
    """Every class counts the same, however many examples it has. The same input gives the same weights."""
    middle = vectors.mean(axis=0)
    centred = vectors - middle  # what all have in common tells nothing, and makes the descent slow
    shares = (len(classes) / (count * numpy.bincount(classes, minlength=count).clip(1)))[classes].astype(numpy.float32)
    width = int(vectors.shape[1])
    start: Wide = numpy.zeros((width + 1) * count, numpy.float64)
    solution = _descend(_loss(centred, classes, shares, count, strength), start, rounds)
    weights = solution[:-count].reshape(width, count).T
    offset = solution[-count:] - likeness(weights, middle.astype(numpy.float64))
    return Regression(weights.astype(numpy.float32), offset.astype(numpy.float32))


def _loss(vectors: Floats, classes: Ints, shares: Floats, count: int, strength: float) -> Slope:
    size = len(vectors)
    width = int(vectors.shape[1])
    rows: Ints = numpy.arange(size)
    penalty = 1.0 / (strength * size)

    def at(point: Wide) -> tuple[float, Wide]:
        weights = point[:-count].reshape(width, count).astype(numpy.float32)
        odds = product(vectors, weights) + point[-count:].astype(numpy.float32)
        odds -= odds.max(axis=1, keepdims=True)
        right = odds[rows, classes].copy()
        numpy.exp(odds, out=odds)
        totals = odds.sum(axis=1)
        loss = float(((numpy.log(totals) - right) * shares).sum()) / size
        loss += penalty / 2 * float((weights * weights).sum())
        odds /= totals[:, None]
        odds[rows, classes] -= 1.0
        odds *= (shares / size)[:, None]
        slope = numpy.concatenate([(product(vectors.T, odds) + penalty * weights).ravel(), odds.sum(axis=0)])
        return loss, slope.astype(numpy.float64)

    return at


def _descend(loss: Slope, point: Wide, rounds: int) -> Wide:
    """Limited-memory quasi-Newton descent: steps are bent by what the last ones showed of the curvature."""
    steps: deque[tuple[Wide, Wide]] = deque(maxlen=_KEPT_STEPS)
    value, slope = loss(point)
    for _ in range(rounds):
        way = _search_direction(slope, steps)
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


def _search_direction(slope: Wide, steps: deque[tuple[Wide, Wide]]) -> Wide:
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

# Workers whose requests are of several kinds: one linear border does not separate a worker for flights and recipes
# from all others; a border for each kind does. Numbers chosen on CLINC150's validation set, its domains and its intents
# as workers.
_LOOSE = 0.55  # how near a worker's points are to their middle, on average: below it they are of several kinds
_TIGHT = 0.65  # and how near they shall be to the middle of their kind
_MIN_KIND_POINTS = 5  # points of a kind, on average
# kinds of one worker, and of all: what is learnt grows with them
_MAX_KINDS = 16
_MAX_ALL_KINDS = 400
_WORTH = 4  # kinds that a worker may have at least, or it is left at one: two halves do not help
_KIND_ROUNDS = 15


def kinds(points: Floats, owners: Ints, count: int) -> tuple[Ints, Ints]:
    """The kind of each point, and the owner of each kind. Most owners have one; the same input gives the same."""
    kind_of_point: Ints = numpy.zeros(len(points), numpy.int64)
    owner_of_kind: list[int] = []
    for owner in range(count):
        mine = numpy.flatnonzero(owners == owner)
        places = _split_kinds(points[mine], min(_MAX_KINDS, _MAX_ALL_KINDS // count))
        kind_of_point[mine] = places + len(owner_of_kind)
        owner_of_kind += [owner] * (int(places.max()) + 1)
    return kind_of_point, numpy.array(owner_of_kind, numpy.int64)


def _split_kinds(points: Floats, most: int) -> Ints:
    """Two kinds, then four, and so on, until they are tight or too small."""
    places: Ints = numpy.zeros(len(points), numpy.int64)
    if most < _WORTH or _tightness(points, places) >= _LOOSE:
        return places
    size = 2
    while size <= min(most, len(points) // _MIN_KIND_POINTS):
        places = _cluster(points, size)
        if _tightness(points, places) >= _TIGHT:
            break
        size *= 2
    return places


def _cluster(points: Floats, size: int) -> Ints:
    """k-means by angle: begun with the point in the middle, then each time the one farthest from those so far."""
    first = int(numpy.argmax(likeness(points, points.sum(axis=0))))
    begun = [first]
    near = likeness(points, points[first])
    while len(begun) < size:
        begun.append(int(numpy.argmin(near)))
        near = numpy.maximum(near, likeness(points, points[begun[-1]]))
    centres = points[begun]
    places: Ints = numpy.zeros(len(points), numpy.int64)
    for _ in range(_KIND_ROUNDS):
        moved: Ints = product(points, centres.T).argmax(axis=1)
        if (moved == places).all():
            break
        places = moved
        sums = _sums(points, places, size)
        long = numpy.linalg.norm(sums, axis=1, keepdims=True)
        centres = numpy.where(long > 0, sums / long.clip(1e-9), centres)
    return numpy.unique(places, return_inverse=True)[1].astype(numpy.int64)  # kinds that lost all are gone


def _tightness(points: Floats, places: Ints) -> float:
    """How near points are to the middle of their kind, on average. Points have length one."""
    sums = _sums(points, places, int(places.max()) + 1)
    return float(numpy.linalg.norm(sums, axis=1).sum()) / len(points)


def _sums(points: Floats, places: Ints, size: int) -> Floats:
    return product((places == numpy.arange(size)[:, None]).astype(numpy.float32), points)


# --- calibration: from a router's own measure to how likely it is right, learnt from requests that it has not stored

MIN_HELD_OUT = 20  # held-out requests, below which nothing is learnt from them
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
    if len(odds) < MIN_HELD_OUT:
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


def thresholds(scopes: Mapping[str, Sequence[float]], share_kept: float) -> tuple[float, dict[str, float]]:
    """The scope that `share_kept` of the requests reach: of all workers, and of each as far as its requests suffice."""
    whole = float(numpy.quantile([value for values in scopes.values() for value in values], 1.0 - share_kept))
    own: dict[str, float] = {}
    for name, values in scopes.items():
        trust = len(values) / (len(values) + _TRUST)
        own[name] = trust * float(numpy.quantile(values, 1.0 - share_kept)) + (1 - trust) * whole if values else whole
    return whole, own


# --- measures of a request


_TEMPERATURE = 0.05  # of the softmax over nearness; this and what follows is chosen on CLINC150's validation set
CENTRE = 0.5  # what the worker's middle counts beside its nearest point
DESCRIBED_CENTRE = 1.0  # the same where points are clauses of a description, which belong together
_CROWDED = 0.3  # what a point loses for how near those of others are: some are near to everything
_NEIGHBOURS = 5
_ALONE = 3.0  # log odds of the only worker there is
_BLOCK = 512  # rows of the table of all points at a time


class Measured(Struct, frozen=True):
    """A row for each request: `logits`, whose softmax is the share of each worker, and how much at home it is here."""

    logits: Floats
    scope: Floats

    def plus(self, more: Sequence[Sequence[float]]) -> "Measured":
        """The same with something added to the logits of each request; an empty row adds nothing."""
        if not any(more):
            return self
        added = numpy.array([row or [0.0] * self.logits.shape[1] for row in more], numpy.float32)
        return Measured(self.logits + added, self.scope)

    def odds(self) -> Floats:
        """Log odds of the best against the second: how many others there are must not matter much."""
        if self.logits.shape[1] == 1:
            return numpy.full(len(self.logits), _ALONE, numpy.float32)
        top = numpy.partition(self.logits, self.logits.shape[1] - 2, axis=1)[:, -2:]
        return top[:, 1] - top[:, 0]


class Near(Struct, frozen=True, tag=True):
    """By the nearest phrase or example, and the middle of all of a worker's. `points` lie worker by worker."""

    points: Floats
    starts: Ints  # the place of each worker's first point
    middles: Floats
    crowded: Floats  # what each point loses for how near those of others are
    centre: float

    def measure(self, vectors: Floats) -> Measured:
        near = product(vectors, self.points.T)
        best = numpy.maximum.reduceat(near - self.crowded, self.starts, axis=1)
        total = best + self.centre * product(vectors, self.middles.T)
        return Measured(total / numpy.float32(_TEMPERATURE), near.max(axis=1))


def place_points(points: Floats, owners: Ints, centre: float = CENTRE) -> Near:
    starts = numpy.flatnonzero(numpy.diff(owners, prepend=-1))
    return Near(
        points=points,
        starts=starts,
        middles=middles(points, owners),
        crowded=_CROWDED * _crowd(points, owners),
        centre=centre,
    )


class Spread(Struct, frozen=True):
    """How two measures of being at home usually come out, so that they can be added."""

    cosine: float = 0.6
    cosine_width: float = 0.12
    logit: float = 7.0
    logit_width: float = 2.0


class Learnt(Struct, frozen=True, tag=True):
    """By a regression over many examples; a worker whose requests are of several kinds has a share for each."""

    middles: Floats
    regression: Regression
    starts: Ints  # the place of each worker's first kind
    spread: Spread

    def raw(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Logits, and the cosine to the nearest middle."""
        logits = self.regression.logits(vectors)
        if len(self.starts) < logits.shape[1]:  # what the kinds of a worker are believed in, together
            logits = numpy.logaddexp.reduceat(logits, self.starts, axis=1)
        return logits, product(vectors, self.middles.T).max(axis=1)

    def measure(self, vectors: Floats) -> Measured:
        logits, cosine = self.raw(vectors)
        return Measured(logits, at_home(logits, cosine, self.spread))


def learn_points(points: Floats, owners: Ints, count: int, spread: Spread | None = None) -> Learnt:
    kind_of_point, owner_of_kind = kinds(points, owners, count)
    starts = numpy.flatnonzero(numpy.diff(owner_of_kind, prepend=-1))
    regression = fit(points, kind_of_point, len(owner_of_kind))
    return Learnt(middles(points, kind_of_point), regression, starts, spread or Spread())


def at_home(logits: Floats, cosine: Floats, spread: Spread) -> Floats:
    """Nearness and the best logit tell different strangers: together they catch more."""
    near = (cosine - spread.cosine) / spread.cosine_width
    return (near + (logits.max(axis=1) - spread.logit) / spread.logit_width).astype(numpy.float32)


class Reading(Struct, frozen=True):
    """One request: shares of workers, the best first; how sure; how much at home, and how much it takes to be."""

    shares: tuple[tuple[str, float], ...]
    confidence: float
    scope: float
    threshold: float


class Space(Struct, frozen=True):
    """All that is known of a team. `own` are thresholds of single workers, where they are known."""

    names: tuple[str, ...]
    measure: Near | Learnt
    calibration: Calibration
    threshold: float
    own: dict[str, float] = field(default_factory=dict[str, float])

    def read(self, vector: bytes, most: int, more: Sequence[float] = ()) -> Reading:
        """What becomes of one request. `more` is added to the logits of the workers."""
        measured = self.measure.measure(matrix([vector])).plus([more])
        logits = measured.logits[0]
        weights = numpy.exp(logits - logits.max())
        weights /= weights.sum()
        order: list[int] = numpy.argsort(-logits, kind="stable")[:most].tolist()
        best = self.names[order[0]]
        return Reading(
            shares=tuple((self.names[at], round(float(weights[at]), 4)) for at in order),
            confidence=round(self.calibration.confidence(float(measured.odds()[0])), 4),
            scope=float(measured.scope[0]),
            threshold=self.own.get(best, self.threshold),
        )


def matrix(vectors: Sequence[bytes]) -> Floats:
    """A row for each vector; ValueError where there are some that are none."""
    rows = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    if not numpy.isfinite(rows).all():  # every comparison with NaN is false: no request would be out of scope
        raise ValueError("the embedding makes vectors that hold no numbers")
    return rows


def middles(points: Floats, owners: Ints) -> Floats:
    """The middle of each owner's points, at length one. Owners are numbered from 0, and each has a point."""
    sums = numpy.zeros((int(owners.max()) + 1, points.shape[1]), numpy.float32)
    numpy.add.at(sums, owners, points)
    return unit(sums)


def unit(rows: Floats) -> Floats:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)


def density(points: Floats, owners: Ints) -> float:
    """How near a text of one worker is to the nearest of the others, at the median."""
    return float(numpy.median(_nearest_of_others(points, owners, 1)))


def _crowd(points: Floats, owners: Ints) -> Floats:
    """How near the nearest points of others are, on average."""
    return _nearest_of_others(points, owners, _NEIGHBOURS)


def _nearest_of_others(points: Floats, owners: Ints, neighbours: int) -> Floats:
    """For each point, how near so many points of other owners are, on average; 0 where no other owner has any."""
    nearness = numpy.zeros(len(points), numpy.float32)
    for at in range(0, len(points), _BLOCK):
        near = product(points[at : at + _BLOCK], points.T)
        near[owners[at : at + _BLOCK, None] == owners[None, :]] = -2.0
        most = min(neighbours, near.shape[1])
        top = numpy.partition(near, near.shape[1] - most, axis=1)[:, -most:]
        others = top > -2.0
        nearness[at : at + _BLOCK] = numpy.where(others, top, 0.0).sum(axis=1) / others.sum(axis=1).clip(1)
    return nearness


# --- a team's space, and what held-out requests teach about confidence

ENOUGH = 5  # examples of every worker: from here on a regression does better than the nearest
SHARE_KEPT = 0.95  # of the requests of workers, that must not be taken as out of scope
FRAMES = ("{}", "{}?", "i need {}")  # a skill as people would ask for it
_SHORT = 48  # characters: a longer phrase says by itself what it means
_FOLDS = 5
_MANY = 3000  # examples, from which one fold tells enough
# What follows holds where nothing was learned from examples. It is fitted to teams drawn by chance from CLINC150's
# validation set: its intents as phrases of some workers, its domains and thirty of its intents by one sentence each.
_SLOPE = 0.65
_DESCRIBED_SLOPE = 0.45
# the more workers there are, the more may be right instead
_OFFSET = 0.34
_OFFSET_PER_LOG_WORKER = -0.30
_MOST_OFFSET = -0.2  # two that fit equally well are never a sure choice, however few workers there are
# The likeness a request needs: fitted so that 95 of 100 are kept. Where texts of workers are alike, so is much else.
_SPARSE_THRESHOLD = 0.096
_THRESHOLD_PER_DENSITY = 0.506
_LEAST_THRESHOLD = 0.25
_MOST_THRESHOLD = 0.36
_USUAL_DENSITY = 0.37  # where there is one worker, and so none to compare with


def texts_of(workers: Sequence[WorkerTexts]) -> list[str]:
    """What has to be embedded, in the order in which `build` takes it."""
    texts: list[str] = []
    for worker in workers:
        for phrase in (*worker.phrases, *worker.clauses):
            texts.extend(_phrase_frames(phrase))
        texts.extend(worker.examples)
    return texts


def build(workers: Sequence[WorkerTexts], vectors: Sequence[bytes]) -> Space:
    """Takes a second or two of 15,000 examples: not on the event loop."""
    points, owners, examples = _points(workers, matrix(vectors))
    names = tuple(worker.worker for worker in workers)
    if len(names) < 2 or min(len(worker.examples) for worker in workers) < ENOUGH:
        return _nearest_space(names, points, owners, described=all(worker.described for worker in workers))
    return _learned_space(names, points, owners, examples)


def _nearest_space(names: tuple[str, ...], points: Floats, owners: Ints, *, described: bool) -> Space:
    alike = density(points, owners) if len(names) > 1 else _USUAL_DENSITY
    threshold = _SPARSE_THRESHOLD + _THRESHOLD_PER_DENSITY * alike
    threshold = min(_MOST_THRESHOLD, max(_LEAST_THRESHOLD, threshold))
    offset = min(_MOST_OFFSET, _OFFSET + _OFFSET_PER_LOG_WORKER * math.log(len(names)))
    if described:
        return Space(
            names, place_points(points, owners, DESCRIBED_CENTRE), Calibration(_DESCRIBED_SLOPE, offset), threshold
        )
    return Space(names, place_points(points, owners), Calibration(_SLOPE, offset), threshold)


def _phrase_frames(phrase: str) -> list[str]:
    return [frame.format(phrase) for frame in FRAMES] if len(phrase) <= _SHORT else [phrase]


def _points(workers: Sequence[WorkerTexts], rows: Floats) -> tuple[Floats, Ints, NDArray[numpy.bool_]]:
    points: list[Floats] = []
    owners: list[int] = []
    examples: list[bool] = []
    at = 0
    for number, worker in enumerate(workers):
        for phrase in (*worker.phrases, *worker.clauses):
            size = len(_phrase_frames(phrase))
            points.append(rows[at : at + size].mean(axis=0, keepdims=True))
            at += size
        points.append(rows[at : at + len(worker.examples)])
        at += len(worker.examples)
        phrase_count = len(worker.phrases) + len(worker.clauses)
        owners += [number] * (phrase_count + len(worker.examples))
        examples += [False] * phrase_count + [True] * len(worker.examples)
    return unit(numpy.concatenate(points)), numpy.array(owners, numpy.int64), numpy.array(examples)


def _learned_space(names: tuple[str, ...], points: Floats, owners: Ints, examples: NDArray[numpy.bool_]) -> Space:
    """Each fold is judged by what was learnt without it; then everything is learnt from."""
    place = numpy.zeros(len(owners), numpy.int64)
    for number in range(len(names)):  # every worker has some in each fold
        mine = numpy.flatnonzero((owners == number) & examples)
        place[mine] = numpy.arange(len(mine)) % _FOLDS
    logits: list[Floats] = []
    cosine: list[Floats] = []
    truth: list[Ints] = []
    for fold in range(_FOLDS if int(examples.sum()) < _MANY else 1):
        held_out = examples & (place == fold)
        fold_result = learn_points(points[~held_out], owners[~held_out], len(names)).raw(points[held_out])
        logits.append(fold_result[0])
        cosine.append(fold_result[1])
        truth.append(owners[held_out])
    spread = _spread(raw := numpy.concatenate(logits), near := numpy.concatenate(cosine))
    measured = Measured(raw, at_home(raw, near, spread))
    space = Space(names, learn_points(points, owners, len(names), spread), Calibration(), 0.0)
    return calibrate_space(space, measured, truth)


def calibrate_space(space: Space, measured: Measured, truth: Sequence[Ints]) -> Space:
    """A space whose confidence and thresholds are those of these held-out requests."""
    wanted = numpy.concatenate(truth)
    right = measured.logits.argmax(axis=1) == wanted
    if len(wanted) < MIN_HELD_OUT:
        return space
    home: dict[str, list[float]] = {name: [] for name in space.names}
    for at, scope in zip(wanted.tolist(), measured.scope.tolist(), strict=True):
        home[space.names[at]].append(scope)
    whole, own = thresholds(home, SHARE_KEPT)
    curve = calibrate(measured.odds().tolist(), right.tolist(), space.calibration)
    return Space(names=space.names, measure=space.measure, calibration=curve, threshold=whole, own=own)


def _spread(logits: Floats, cosine: Floats) -> Spread:
    best = logits.max(axis=1)
    return Spread(
        cosine=float(cosine.mean()),
        cosine_width=max(1e-3, float(cosine.std())),
        logit=float(best.mean()),
        logit_width=max(1e-3, float(best.std())),
    )


# --- a space as bytes, so that another process need not learn it again

MOST_BYTES = 16 * 1024 * 1024  # a larger space is learnt anew: it would slow the file down that it is kept in
FORMAT = "2"  # part of the key that a space is kept by: another one where the arithmetic or the format changes
_DIGEST_BYTES = 16


class _Array(Struct, frozen=True):
    kind: str
    shape: tuple[int, ...]
    body: bytes


def pack_space(space: Space) -> bytes:
    body = msgspec.msgpack.encode(space, enc_hook=_encode_array)
    return _digest(body) + body


def _encode_array(array: NDArray[numpy.generic]) -> _Array:
    return _Array(array.dtype.str, array.shape, array.tobytes())


def unpack_space(packed: bytes, names: tuple[str, ...], width: int) -> Space:
    """Raises ValueError where it is damaged, or is not the space of these workers at this width."""
    body = packed[_DIGEST_BYTES:]
    if _digest(body) != packed[:_DIGEST_BYTES]:
        raise ValueError("a kept route is damaged")
    space = msgspec.msgpack.decode(body, type=Space, dec_hook=_decode_array)
    if space.names != names or space.measure.middles.shape[1] != width:
        raise ValueError("a kept route is that of another team")
    return space


def _decode_array(_kind: type, value: object) -> NDArray[numpy.generic]:
    array = msgspec.convert(value, _Array)
    return numpy.frombuffer(array.body, array.kind).reshape(array.shape)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
