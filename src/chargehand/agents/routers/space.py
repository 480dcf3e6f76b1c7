"""Workers as places among vectors: how near a request is to each. Only who routes by meaning imports this (numpy)."""

from collections.abc import Sequence

import numpy
from msgspec import Struct, field

from chargehand.agents.routers.calibration import Calibration
from chargehand.agents.routers.kinds import kinds
from chargehand.agents.routers.products import product
from chargehand.agents.routers.regression import Floats, Regression, Whole, fit

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


class Near(Struct, frozen=True):
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


class Learnt(Struct, frozen=True):
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
