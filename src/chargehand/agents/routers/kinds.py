"""Workers whose requests are of several kinds: which of their points belong together. What the points say is not known.

One straight border does not part somebody who knows about flights and about recipes from all others; a border for each
kind does. Numbers chosen on CLINC150's validation set, its domains and its intents as workers.
"""

import numpy

from chargehand.agents.routers.products import likeness, product
from chargehand.agents.routers.regression import Floats, Whole

_LOOSE = 0.55  # how near a worker's points are to their middle, on average: below it they are of several kinds
_TIGHT = 0.65  # and how near they shall be to the middle of their kind
_FEWEST = 5  # points of a kind, on average
# kinds of one worker, and of all: what is learnt grows with them
_MOST = 16
_ALL = 400
_WORTH = 4  # kinds that a worker may have at least, or it is left at one: two halves of somebody help nobody
_ROUNDS = 15


def kinds(points: Floats, owners: Whole, count: int) -> tuple[Whole, Whole]:
    """The kind of each point, and the owner of each kind. Most owners have one; the same input gives the same."""
    found: Whole = numpy.zeros(len(points), numpy.int64)
    whose: list[int] = []
    for owner in range(count):
        mine = numpy.flatnonzero(owners == owner)
        places = _parted(points[mine], min(_MOST, _ALL // count))
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
    for _ in range(_ROUNDS):
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
