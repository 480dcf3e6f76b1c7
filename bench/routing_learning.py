"""Learning from outcomes: 150 intents known by name alone, a stream of requests, and whether each choice was right.

The real notebook, store and bounds of a team are used. All that is ever told is right or wrong of the worker that was
chosen; which would have been right is not.
"""

import time
from collections.abc import Sequence
from random import Random
from statistics import median

from bench.routing_board import Bench
from bench.table import Row, Target
from chargehand.agents.routers.decision import MOST_SCORES, Decision
from chargehand.agents.routers.likeness import Once
from chargehand.agents.routers.notebook import Notebook, notebook
from chargehand.agents.routers.space import Space
from chargehand.stores.lessons import Lesson, Source
from chargehand.stores.memory import MemoryJournal

STOPS = (500, 2000, 5000)
_TIMED = 500


class Known:
    """The vectors the bench has made, as an embedding: what is measured is the decision."""

    handle = "bench"
    width = 384

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return await self._bench.vectors(texts)

    async def close(self) -> None:
        """Nothing to let go of."""


def forced(space: Space, vector: bytes) -> Decision:
    """Whoever is nearest, strangers included: accuracy is of requests that are somebody's."""
    found = space.read(vector, MOST_SCORES)
    (first, _), (second, _), *_ = found.shares
    return Decision(
        worker=first, second=second, confidence=found.confidence, scores=found.shares, why="", router="meaning"
    )


class Pupil:
    """A team that learns, as one source tells it."""

    def __init__(self, bench: Bench, space: Space, source: Source) -> None:
        self._bench = bench
        self._space = space
        self._source: Source = source
        self._kept = MemoryJournal().lessons("clinc")
        self._embedding = Once(Known(bench))
        self.times: list[float] = []

    async def choice(self, text: str) -> str:
        book: Notebook = notebook(self._kept)
        (vector,) = await self._embedding.embed([text])
        found = forced(self._space, vector)
        began = time.perf_counter()
        found = await book.consult(found, text, self._space.names, self._embedding)
        self.times.append(time.perf_counter() - began)
        return found.worker or ""

    async def told(self, number: int, text: str, worker: str, *, right: bool) -> None:
        lesson = Lesson(
            request=text, worker=worker, score=float(right), source=self._source, run=f"run-{number}", at=float(number)
        )
        await self._kept.keep(lesson.run, self._source, [lesson])

    async def accuracy(self) -> float:
        self.times.clear()
        hits = [await self.choice(text) == name for text, name in self._bench.data.test]
        return 100 * sum(hits) / len(hits)


async def stream(bench: Bench, space: Space, source: Source, stops: Sequence[int]) -> tuple[list[float], Pupil]:
    requests = list(bench.data.train)
    Random(0).shuffle(requests)
    await bench.vectors([text for text, _ in (*requests[: stops[-1]], *bench.data.test)])
    pupil = Pupil(bench, space, source)
    found = list[float]()
    for number, (text, name) in enumerate(requests[: stops[-1]], 1):
        worker = await pupil.choice(text)
        await pupil.told(number, text, worker, right=worker == name)
        if number in stops:
            found.append(await pupil.accuracy())
    return found, pupil


async def learning_rows(bench: Bench) -> list[Row]:
    space = await bench.learnt(bench.drawn(0, 0, named=True))
    before = await Pupil(bench, space, "feedback").accuracy()
    rows = [Row("learning: 150 intents by name, no lessons", "%", (before,))]
    found, pupil = await stream(bench, space, "feedback", STOPS)
    for count, one in zip(STOPS, found, strict=True):
        rows.append(Row(f"learning: {count} times told right or wrong", "%", (one,), also=f"{one - before:+.1f}"))
    spent = median(pupil.times[:_TIMED]) * 1e6
    rows.append(Row("what lessons add to a decision, 5,000 kept, p50", "us", (spent,), target=Target("<=", 2000)))
    mild, _ = await stream(bench, space, "outcome", (STOPS[-1],))
    rows.append(Row("learning: only how 5,000 runs ended", "%", (mild[0],), also=f"{mild[0] - before:+.1f}"))
    return rows
