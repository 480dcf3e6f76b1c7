"""Logistic regression over vectors, with numpy and nothing else. What the classes mean is not known here."""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from chargehand.agents.routers.products import inner, likeness, product

Floats: TypeAlias = NDArray[numpy.float32]
Wide: TypeAlias = NDArray[numpy.float64]
Whole: TypeAlias = NDArray[numpy.int64]
Slope: TypeAlias = Callable[[Wide], tuple[float, Wide]]

STRENGTH = 30.0  # the inverse of how hard weights are held down; chosen on CLINC150's validation set
ROUNDS = 30
_KEPT = 10  # earlier steps that the next one is bent by
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
    steps: deque[tuple[Wide, Wide]] = deque(maxlen=_KEPT)
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
