"""A team is learnt on one core: no CPU is burnt by threads that wait for each other."""

import os
import time

import numpy
import pytest
from numpy.typing import NDArray

from chargehand.agents.routing.space import build
from chargehand.agents.routing.words import WorkerTexts

WIDTH = 384


def points(count: int, width: int = WIDTH, seed: int = 0) -> NDArray[numpy.float32]:
    rows = numpy.random.default_rng(seed).standard_normal((count, width), numpy.float32)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no threads to wait for")
def test_a_team_is_learnt_on_one_core() -> None:
    said = [WorkerTexts(f"w{at}", (), tuple(f"request {at} {number}" for number in range(40))) for at in range(12)]
    vectors = [row.tobytes() for row in points(12 * 40)]
    whole = time.process_time()
    mine = time.thread_time()
    build(said, vectors)
    others = time.process_time() - whole - (time.thread_time() - mine)
    assert others < 0.2 * (time.thread_time() - mine) + 0.05
