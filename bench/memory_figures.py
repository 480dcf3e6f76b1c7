"""What is measured of a store of vectors, and how near it comes to comparing all of them."""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from bench.memory_data import Data

NEAREST = 10
BATCH = 1_000
WARM = 5  # questions before the clock runs


class Took(Struct, frozen=True):
    """Seconds a question, and which share of the ten nearest was found."""

    seconds: tuple[float, ...]
    recall: float | None = None

    @property
    def p50(self) -> float:
        return 1000 * median(self.seconds)

    @property
    def p95(self) -> float:
        return 1000 * quantiles(self.seconds, n=20)[-1]

    def cell(self) -> str:
        share = "" if self.recall is None else f" {self.recall:.3f}"
        return f"{self.p50:.2f}/{self.p95:.2f}{share}"


class Build(Struct, frozen=True):
    seconds: float
    size: int


class Figures(Struct, frozen=True):
    """`memory` is what the process grew by, in bytes, libraries aside."""

    opened: float
    first: float
    dense: Took
    few: Took
    some: Took
    memory: float
    hybrid: Took | None = None
    words: Took | None = None


def measured(data: Data, ask: Callable[[int], Sequence[int]], allowed: NDArray[numpy.bool_] | None = None) -> Took:
    """Each question in turn; a row counts as found if it is as near as the tenth nearest of all."""
    for at in range(min(WARM, len(data.asked))):
        ask(at)
    seconds: list[float] = []
    found: list[Sequence[int]] = []
    for at in range(len(data.asked)):
        began = time.perf_counter()
        found.append(ask(at))
        seconds.append(time.perf_counter() - began)
    return Took(tuple(seconds), recall(data, found, allowed))


def recall(data: Data, found: Sequence[Sequence[int]], allowed: NDArray[numpy.bool_] | None = None) -> float:
    hits = 0
    for at, rows in enumerate(found):
        alike = data.vectors @ data.asked[at]
        if allowed is not None:
            alike[~allowed] = -2.0
        enough = numpy.partition(alike, -NEAREST)[-NEAREST] - 1e-6
        hits += sum(alike[row] >= enough for row in set(rows))
    return hits / (NEAREST * len(found))
