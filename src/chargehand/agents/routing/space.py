"""Workers in a vector space: how near a request is to what each worker says and was asked.

A worker scores the likeness of its nearest phrases or examples, plus that of their middle. Imported only to route by
meaning, because it needs numpy.

Products of matrices are sums of numpy's own (`einsum`), not BLAS: its threads wait for each other on a busy machine,
and for the sizes of a team they burn many times the CPU of the product.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy
from msgspec import Struct
from numpy.typing import NDArray

from chargehand.agents.routing.words import WorkerTexts

Floats: TypeAlias = NDArray[numpy.float32]
Ints: TypeAlias = NDArray[numpy.int64]

# What follows was chosen on CLINC150's validation set, its domains and its intents as workers.
ENOUGH = 5  # examples of every worker: from here on bounds are learnt from them
SHARE_KEPT = 0.95  # of the requests of workers, that must not be taken as out of scope
FRAMES = ("{}", "{}?", "i need {}")  # a skill as people would ask for it
_SHORT = 48  # characters: a longer phrase says by itself what it means
_NEAREST = 3  # examples of a worker that are averaged, where there are enough
_MIDDLE = 0.5  # what the worker's middle counts beside its nearest point
_DESCRIBED_MIDDLE = 1.0  # the same where points are clauses of a description, which belong together
_TEMPERATURE = 0.05  # of the softmax over scores
_ALONE = 3.0  # log odds of the only worker there is
_CROWDED = 0.3  # what a point loses for how near those of others are: some are near to everything
_NEIGHBOURS = 5
_BLOCK = 512  # rows of the table of all points at a time
_MAX_HELD_OUT = 1000  # examples that are compared with all others
_SLOPES = [round(0.05 * step, 2) for step in range(1, 61)]
# Without enough examples: fitted to teams drawn by chance from that validation set, its intents as phrases of some
# workers, its domains and thirty of its intents by one sentence each.
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


class Reading(Struct, frozen=True):
    """One request: shares of workers, the best first; how sure; how like anything it is, and how like it must be."""

    shares: tuple[tuple[str, float], ...]
    confidence: float
    scope: float
    threshold: float


class Space(Struct, frozen=True):
    """All that is known of a team."""

    names: tuple[str, ...]
    points: Floats
    """A row for each phrase and example, worker by worker."""
    starts: Ints
    """The place of each worker's first point."""
    middles: Floats
    crowded: Floats
    """What each point loses for how near those of others are."""
    nearest: int
    """How many of a worker's points are averaged."""
    middle: float
    """What a worker's middle counts."""
    slope: float
    offset: float
    threshold: float
    """The likeness to any point that a request needs."""

    def read(self, vector: bytes, most: int, more: Sequence[float] = ()) -> Reading:
        """What becomes of one request. `more` is added to the logits of the workers."""
        request = matrix([vector])
        near = likeness(request, self.points)
        logits = self._logits(near, likeness(request, self.middles))[0]
        if more:
            logits = logits + numpy.array(more, numpy.float32)
        weights = numpy.exp(logits - logits.max())
        weights /= weights.sum()
        order: list[int] = numpy.argsort(-logits, kind="stable")[:most].tolist()
        return Reading(
            shares=tuple((self.names[at], round(float(weights[at]), 4)) for at in order),
            confidence=round(self.confidence(float(log_odds(logits[None, :])[0])), 4),
            scope=float(near.max()),
            threshold=self.threshold,
        )

    def confidence(self, odds: float) -> float:
        """How likely the best worker is right, by its log odds against the second."""
        return 1.0 / (1.0 + math.exp(-self.slope * odds - self.offset))

    def _logits(self, near: Floats, near_middle: Floats) -> Floats:
        """For each request and worker, from the likeness to all points and middles; their softmax are shares."""
        parts = numpy.split(near - self.crowded, self.starts[1:], axis=1)
        best = numpy.stack([_mean_of_best(part, self.nearest) for part in parts], axis=1)
        logits = (best + self.middle * near_middle) / _TEMPERATURE
        return logits.astype(numpy.float32)

    def learn_bounds(self, owners: Ints) -> "Space":
        """The same with bounds that fit its own points, each compared with all others."""
        places = numpy.arange(0, len(owners), -(-len(owners) // _MAX_HELD_OUT))
        held_out = self.points[places]
        own = owners[places]
        near = likeness(held_out, self.points)
        near[numpy.arange(len(places)), places] = -1.0
        near_middle = likeness(held_out, self.middles)
        sums = _sums(self.points, owners)
        middle_of_others = unit(sums[own] - held_out)
        near_middle[numpy.arange(len(places)), own] = (middle_of_others * held_out).sum(axis=1)
        logits = self._logits(near, near_middle)
        accuracy = float((logits.argmax(axis=1) == own).mean())
        odds = log_odds(logits).tolist()
        threshold = float(numpy.quantile(near.max(axis=1), 1.0 - SHARE_KEPT))
        spaces = [msgspec.structs.replace(self, slope=slope, threshold=threshold) for slope in _SLOPES]
        errors = [abs(sum(map(space.confidence, odds)) / len(odds) - accuracy) for space in spaces]
        return spaces[errors.index(min(errors))]


def _mean_of_best(near: Floats, count: int) -> Floats:
    """The mean of the highest numbers of each row."""
    count = min(count, near.shape[1])
    return numpy.partition(near, near.shape[1] - count, axis=1)[:, -count:].mean(axis=1)


def log_odds(logits: Floats) -> Floats:
    """Of the best against the second: how many others there are must not matter much."""
    if logits.shape[1] == 1:
        return numpy.full(len(logits), _ALONE, numpy.float32)
    top = numpy.partition(logits, logits.shape[1] - 2, axis=1)[:, -2:]
    return top[:, 1] - top[:, 0]


def likeness(first: Floats, second: Floats) -> Floats:
    """The inner product of each row of the first with each row of the second."""
    return numpy.einsum("pd,qd->pq", first, second)


def matrix(vectors: Sequence[bytes]) -> Floats:
    """A row for each vector; ValueError where there are some that are none."""
    rows = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    if not numpy.isfinite(rows).all():  # every comparison with NaN is false: no request would be out of scope
        raise ValueError("the embedding makes vectors that hold no numbers")
    return rows


def unit(rows: Floats) -> Floats:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)


def _sums(points: Floats, owners: Ints) -> Floats:
    """The sum of each owner's points. Owners are numbered from 0, and each has a point."""
    sums = numpy.zeros((int(owners.max()) + 1, points.shape[1]), numpy.float32)
    numpy.add.at(sums, owners, points)
    return sums


# --- a team's space


def texts_of(workers: Sequence[WorkerTexts]) -> list[str]:
    """What has to be embedded, in the order in which `build` takes it."""
    texts: list[str] = []
    for worker in workers:
        for phrase in (*worker.phrases, *worker.clauses):
            texts.extend(_phrase_frames(phrase))
        texts.extend(worker.examples)
    return texts


def build(workers: Sequence[WorkerTexts], vectors: Sequence[bytes]) -> Space:
    """Takes some seconds of 15,000 examples: not on the event loop."""
    points, owners = _points(workers, matrix(vectors))
    has_examples = len(workers) > 1 and min(len(worker.examples) for worker in workers) >= ENOUGH
    is_described = all(worker.described for worker in workers)
    offset = min(_MOST_OFFSET, _OFFSET + _OFFSET_PER_LOG_WORKER * math.log(len(workers)))
    crowded = numpy.zeros(len(points), numpy.float32)
    density = _USUAL_DENSITY
    if len(workers) > 1 and not has_examples:
        others = _nearest_of_others(points, owners)
        crowded = _CROWDED * others.mean(axis=1)
        density = float(numpy.median(others[:, -1]))
    threshold = _SPARSE_THRESHOLD + _THRESHOLD_PER_DENSITY * density
    space = Space(
        names=tuple(worker.worker for worker in workers),
        points=points,
        starts=numpy.flatnonzero(numpy.diff(owners, prepend=-1)),
        middles=unit(_sums(points, owners)),
        crowded=crowded,
        nearest=_NEAREST if has_examples else 1,
        middle=_DESCRIBED_MIDDLE if is_described else _MIDDLE,
        slope=_DESCRIBED_SLOPE if is_described else _SLOPE,
        offset=offset,
        threshold=min(_MOST_THRESHOLD, max(_LEAST_THRESHOLD, threshold)),
    )
    return space.learn_bounds(owners) if has_examples else space


def _phrase_frames(phrase: str) -> list[str]:
    return [frame.format(phrase) for frame in FRAMES] if len(phrase) <= _SHORT else [phrase]


def _points(workers: Sequence[WorkerTexts], rows: Floats) -> tuple[Floats, Ints]:
    """A point for each phrase, the mean of its frames, and for each example; and whose each is."""
    points: list[Floats] = []
    owners: list[int] = []
    at = 0
    for number, worker in enumerate(workers):
        sizes = [len(_phrase_frames(phrase)) for phrase in (*worker.phrases, *worker.clauses)]
        sizes += [1] * len(worker.examples)
        for size in sizes:
            points.append(rows[at : at + size].mean(axis=0))
            at += size
        owners += [number] * len(sizes)
    return unit(numpy.stack(points)), numpy.array(owners, numpy.int64)


def _nearest_of_others(points: Floats, owners: Ints) -> Floats:
    """For each point, how near the nearest points of other owners are, rising; 0 for those there are not."""
    neighbours = min(_NEIGHBOURS, len(points))
    blocks: list[Floats] = []
    for at in range(0, len(points), _BLOCK):
        near = likeness(points[at : at + _BLOCK], points)
        near[owners[at : at + _BLOCK, None] == owners[None, :]] = 0.0
        blocks.append(numpy.sort(numpy.partition(near, -neighbours, axis=1)[:, -neighbours:], axis=1))
    return numpy.concatenate(blocks)
