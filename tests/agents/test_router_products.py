"""Products of matrices on one core: the same numbers, and no CPU burnt by threads that wait for each other."""

import os
import time

import numpy
import pytest
from numpy.typing import NDArray

from chargehand.agents.routing.space import build, inner, likeness, product
from chargehand.agents.routing.words import WorkerTexts

WIDTH = 384


def points(count: int, width: int = WIDTH, seed: int = 0) -> NDArray[numpy.float32]:
    rows = numpy.random.default_rng(seed).standard_normal((count, width), numpy.float32)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("height", "depth", "width"),
    [(1, 384, 150), (2, 384, 1), (33, 12, 5), (257, 384, 129), (600, 1100, 3), (5, 3, 400), (1025, 384, 257)],
)
def test_a_product_in_blocks_is_the_product(height: int, depth: int, width: int) -> None:
    left = points(height, depth, 1)
    right = points(width, depth, 2)
    expected = left.astype(numpy.float64) @ right.T.astype(numpy.float64)
    assert product(left, right.T) == pytest.approx(expected, abs=1e-5)
    assert product(numpy.asfortranarray(left), numpy.ascontiguousarray(right.T)) == pytest.approx(expected, abs=1e-5)
    assert likeness(left, right[0]) == pytest.approx(expected[:, 0], abs=1e-5)
    assert inner(left[0], right[0]) == pytest.approx(expected[0, 0], abs=1e-5)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no threads to wait for")
def test_a_team_is_learnt_on_one_core() -> None:
    said = [WorkerTexts(f"w{at}", (), tuple(f"request {at} {number}" for number in range(40))) for at in range(12)]
    vectors = [row.tobytes() for row in points(12 * 40)]
    whole = time.process_time()
    mine = time.thread_time()
    build(said, vectors)
    others = time.process_time() - whole - (time.thread_time() - mine)
    assert others < 0.2 * (time.thread_time() - mine) + 0.05
