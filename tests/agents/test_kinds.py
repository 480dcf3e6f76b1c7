"""Workers whose requests are of several kinds, in places where one straight border is not enough."""

import numpy
import pytest

from chargehand.agents.routing import space as parting
from chargehand.agents.routing.space import Floats, Ints, fit, kinds, learn_points, unit

WIDE = 16


def crossed(size: int, seed: int) -> tuple[Floats, Ints]:
    """Two workers with two kinds each, crosswise: a kind of one lies opposite its other kind."""
    chance = numpy.random.default_rng(seed)
    points: list[Floats] = []
    owners: list[int] = []
    for owner, axis in ((0, 0), (1, 1)):
        for side in (1.0, -1.0):
            middle = numpy.zeros(WIDE)
            middle[axis] = side
            points.append((middle + chance.normal(0, 0.12, (size, WIDE))).astype(numpy.float32))
            owners += [owner] * size
    return unit(numpy.concatenate(points)), numpy.array(owners, numpy.int64)


def test_who_does_two_things_is_told_from_who_does_two_others() -> None:
    points, owners = crossed(20, 1)
    asked, wanted = crossed(50, 2)
    straight = (fit(points, owners, 2).logits(asked).argmax(axis=1) == wanted).mean()
    logits, near = learn_points(points, owners, 2).raw(asked)
    assert straight < 0.8, "one border each must not be enough, or this shows nothing"
    assert (logits.argmax(axis=1) == wanted).mean() == 1.0
    assert near.min() > 0.6
    alone = learn_points(points, owners, 2).raw(asked[:1])[0]
    numpy.testing.assert_allclose(alone, logits[:1], rtol=1e-4)


def test_points_that_lie_together_are_one_kind_and_owners_keep_their_order() -> None:
    points, _ = crossed(20, 1)
    few = numpy.concatenate([points[:20], points[40:]])  # the first has only one kind left
    found, whose = kinds(few, numpy.array([0] * 20 + [1] * 40, numpy.int64), 2)
    assert whose.tolist() == [0, 1, 1]
    assert [len(set(found[at : at + 20].tolist())) for at in (0, 20, 40)] == [1, 1, 1]
    again, _ = kinds(few, numpy.array([0] * 20 + [1] * 40, numpy.int64), 2)
    assert (again == found).all()


@pytest.mark.parametrize("size", [1, 4, 9])
def test_a_few_points_are_not_parted(size: int) -> None:
    chance = numpy.random.default_rng(3)
    points = unit(chance.normal(0, 1, (size, WIDE)).astype(numpy.float32))
    assert kinds(points, numpy.zeros(size, numpy.int64), 1)[1].tolist() == [0]


def test_points_that_are_all_the_same_or_opposite_end_well() -> None:
    same = numpy.tile(unit(numpy.ones((1, WIDE), numpy.float32)), (40, 1))
    assert kinds(same, numpy.zeros(40, numpy.int64), 1)[1].tolist() == [0]
    both = numpy.concatenate([same, -same])
    assert kinds(both, numpy.zeros(80, numpy.int64), 1)[1].tolist() == [0, 0]


def test_the_number_of_kinds_is_bounded_whatever_the_points() -> None:
    chance = numpy.random.default_rng(4)
    points = unit(chance.normal(0, 1, (3000, WIDE)).astype(numpy.float32))
    owners = numpy.repeat(numpy.arange(60), 50)
    assert len(kinds(points, owners, 60)[1]) <= parting._MAX_ALL_KINDS
    assert len(kinds(points, numpy.zeros(3000, numpy.int64), 1)[1]) <= parting._MAX_KINDS


def test_among_very_many_workers_nobody_is_parted() -> None:
    chance = numpy.random.default_rng(5)
    points = unit(chance.normal(0, 1, (1500, WIDE)).astype(numpy.float32))
    assert len(kinds(points, numpy.repeat(numpy.arange(150), 10), 150)[1]) == 150
