"""Workers as places among vectors: how near a request is to each, learnt from what they say and were asked.

Only who routes by meaning imports this (numpy).
"""

import math
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import numpy
from msgspec import Struct, field
from numpy.typing import NDArray

from chargehand.agents.routing.fitting import (
    FEWEST,
    Calibration,
    Floats,
    Regression,
    Whole,
    calibrate,
    fit,
    kinds,
    product,
    thresholds,
)
from chargehand.agents.routing.words import Said

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
    starts: Whole  # the place of each worker's first point
    middles: Floats
    crowded: Floats  # what each point loses for how near those of others are
    centre: float

    def measure(self, vectors: Floats) -> Measured:
        near = product(vectors, self.points.T)
        best = numpy.maximum.reduceat(near - self.crowded, self.starts, axis=1)
        total = best + self.centre * product(vectors, self.middles.T)
        return Measured(total / numpy.float32(_TEMPERATURE), near.max(axis=1))


def place_points(points: Floats, owners: Whole, centre: float = CENTRE) -> Near:
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
    starts: Whole  # the place of each worker's first kind
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


def learn_points(points: Floats, owners: Whole, count: int, spread: Spread | None = None) -> Learnt:
    found, whose = kinds(points, owners, count)
    starts = numpy.flatnonzero(numpy.diff(whose, prepend=-1))
    return Learnt(middles(points, found), fit(points, found, len(whose)), starts, spread or Spread())


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
        found = self.measure.measure(matrix([vector])).plus([more])
        logits = found.logits[0]
        weights = numpy.exp(logits - logits.max())
        weights /= weights.sum()
        order: list[int] = numpy.argsort(-logits, kind="stable")[:most].tolist()
        best = self.names[order[0]]
        return Reading(
            shares=tuple((self.names[at], round(float(weights[at]), 4)) for at in order),
            confidence=round(self.calibration.confidence(float(found.odds()[0])), 4),
            scope=float(found.scope[0]),
            threshold=self.own.get(best, self.threshold),
        )


def matrix(vectors: Sequence[bytes]) -> Floats:
    """A row for each vector; ValueError where there are some that are none."""
    found = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    if not numpy.isfinite(found).all():  # every comparison with such a one is false, and so nobody out of reach
        raise ValueError("the embedding makes vectors that hold no numbers")
    return found


def middles(points: Floats, owners: Whole) -> Floats:
    """The middle of each owner's points, at length one. Owners are numbered from 0, and each has a point."""
    sums = numpy.zeros((int(owners.max()) + 1, points.shape[1]), numpy.float32)
    numpy.add.at(sums, owners, points)
    return unit(sums)


def unit(rows: Floats) -> Floats:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)


def density(points: Floats, owners: Whole) -> float:
    """How near a text of one worker is to the nearest of the others, at the median."""
    return float(numpy.median(_nearest_of_others(points, owners, 1)))


def _crowd(points: Floats, owners: Whole) -> Floats:
    """How near the nearest points of others are, on average."""
    return _nearest_of_others(points, owners, _NEIGHBOURS)


def _nearest_of_others(points: Floats, owners: Whole, neighbours: int) -> Floats:
    """For each point, how near so many points of other owners are, on average; 0 where nobody else has any."""
    found = numpy.zeros(len(points), numpy.float32)
    for at in range(0, len(points), _BLOCK):
        near = product(points[at : at + _BLOCK], points.T)
        near[owners[at : at + _BLOCK, None] == owners[None, :]] = -2.0
        most = min(neighbours, near.shape[1])
        top = numpy.partition(near, near.shape[1] - most, axis=1)[:, -most:]
        others = top > -2.0
        found[at : at + _BLOCK] = numpy.where(others, top, 0.0).sum(axis=1) / others.sum(axis=1).clip(1)
    return found


# --- a team's space, and what held-out requests teach about confidence

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


def texts_of(said: Sequence[Said]) -> list[str]:
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


def _points(said: Sequence[Said], rows: Floats) -> tuple[Floats, Whole, NDArray[numpy.bool_]]:
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


def _learnt(names: tuple[str, ...], points: Floats, owners: Whole, examples: NDArray[numpy.bool_]) -> Space:
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
    curve = calibrate(found.odds().tolist(), right.tolist(), space.calibration)
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
