"""Learning from confirmed routes: 150 intents known by name alone, a stream of requests, and whether each was right.

The real store and its cap are used. All that is told is right or wrong of the worker that was chosen. The team is
fitted anew every `REFIT` requests, not after each as a real one, to keep the bench short.
"""

from collections.abc import Sequence
from random import Random

from msgspec import structs

from bench.routing_board import Bench
from bench.table import Row
from chargehand.agents.routing.decision import MOST_SCORES
from chargehand.agents.routing.space import Space
from chargehand.agents.routing.words import WorkerTexts
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import RouteExample

STOPS = (500, 2000, 5000)
REFIT = 250


class Learner:
    """A team whose confirmed routes become examples."""

    def __init__(self, bench: Bench, workers: Sequence[WorkerTexts]) -> None:
        self._bench = bench
        self._workers = workers
        self._store = MemoryJournal().route_examples("clinc")
        self._space: Space | None = None

    async def fit(self) -> None:
        confirmed: dict[str, list[str]] = {}
        for example in await self._store.list():
            confirmed.setdefault(example.worker, []).append(example.request)
        workers = [
            structs.replace(worker, examples=(*worker.examples, *confirmed.get(worker.worker, ())))
            for worker in self._workers
        ]
        self._space = await self._bench.learnt(workers)

    async def choose(self, text: str) -> str:
        """The nearest worker, strangers included: accuracy is of requests that are somebody's."""
        assert self._space is not None, "it is fitted first"
        (vector,) = await self._bench.vectors([text])
        return self._space.read(vector, MOST_SCORES).shares[0][0]

    async def tell(self, number: int, text: str, worker: str, *, right: bool) -> None:
        example = RouteExample(text, worker, "feedback", f"run-{number}", float(number))
        confirmed, refuted = ([example], []) if right else ([], [example])
        await self._store.record(example.run, "feedback", confirmed, refuted)

    async def accuracy(self) -> float:
        hits = [await self.choose(text) == name for text, name in self._bench.data.test]
        return 100 * sum(hits) / len(hits)


async def learning_rows(bench: Bench) -> list[Row]:
    requests = list(bench.data.train)
    Random(0).shuffle(requests)
    await bench.vectors([text for text, _ in (*requests[: STOPS[-1]], *bench.data.test)])
    learner = Learner(bench, bench.drawn(0, 0, named=True))
    await learner.fit()
    before = await learner.accuracy()
    rows = [Row("learning: 150 intents by name, no examples", "%", (before,))]
    for number, (text, name) in enumerate(requests[: STOPS[-1]], 1):
        worker = await learner.choose(text)
        await learner.tell(number, text, worker, right=worker == name)
        if number % REFIT == 0:
            await learner.fit()
        if number in STOPS:
            now = await learner.accuracy()
            rows.append(Row(f"learning: {number} times told right or wrong", "%", (now,), also=f"{now - before:+.1f}"))
    return rows
