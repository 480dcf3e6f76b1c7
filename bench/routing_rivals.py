"""What others reach on CLINC150: published figures, and semantic-router on the same vectors."""

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from statistics import median
from typing import Any, Protocol

import numpy

from bench.routing_board import Bench
from bench.routing_routers import SHOTS, Line, cards, owners
from bench.routing_score import Judged, accuracy, ranked
from chargehand.agents.routing.words import WorkerTexts

AGGREGATIONS = ("mean", "sum")  # its default, and its best here


class Board(Protocol):
    """The part of the benchmark that a rival needs."""

    data: Any

    def drawn(self, shots: int, seed: int, *, named: bool) -> list[WorkerTexts]: ...

    async def vectors(self, wanted: Sequence[str]) -> list[bytes]: ...


def published() -> str:
    return (
        "published, 150 intents, full training set (Larson et al. 2019, table 2): SVM 91.0, MLP 93.5, fine-tuned BERT "
        "96.9 %;\nout-of-scope recall there: BERT with threshold 52.3 % at 96.2 % accuracy, with a class of its own "
        "40.3 % at 96.9 %"
    )


async def rivals(board: Board) -> str:
    """150 intents, a line for each way it adds up."""
    own = {one.worker: one.worker for one in board.drawn(0, 0, named=False)}
    lines = [f"semantic-router {version('semantic-router')} on the same vectors, 150 intents:"]
    for shots in (10, 100):
        routes = {one.worker: one.examples for one in board.drawn(shots, 0, named=False)}
        for aggregation in AGGREGATIONS:
            seen, took = await _asked(board, routes, own, aggregation)
            lines.append(
                f"  {shots:>3} examples, {aggregation:<4}  accuracy {accuracy(seen):.1f} %  AUROC {ranked(seen):.1f} %"
                f"  p50 {took * 1e6:,.0f} us a decision"
            )
    return "\n".join(lines)


async def rival_lines(bench: Bench) -> list[Line]:
    """The ten workers, with the phrases and the examples ours are shown."""
    lines: list[Line] = []
    for shots, knows in ((0, "intents as phrases"), (SHOTS, f"and {SHOTS} examples of each")):
        routes = {card.name: (*card.phrases, *card.examples) for card in cards(bench, shots)}
        for aggregation in AGGREGATIONS:
            seen, took = await _asked(bench, routes, owners(bench), aggregation)
            count = len(seen.home) + len(seen.strange)
            name = f"semantic-router, {aggregation}"
            lines.append(
                Line(
                    router=name,
                    knows=knows,
                    accuracy=accuracy(seen),
                    auroc=ranked(seen),
                    seconds=took,
                    count=count,
                    also="without embedding",
                )
            )
    return lines


async def _asked(
    board: Board, routes: Mapping[str, Sequence[str]], owner: Mapping[str, str], aggregation: str
) -> tuple[Judged, float]:
    library: Any = import_module("semantic_router")
    asked = [*board.data.test, *board.data.oos_test]
    texts = [*(text for held in routes.values() for text in held), *(text for text, _ in asked)]
    known = dict(zip(texts, await board.vectors(texts), strict=True))
    named = [library.Route(name=name, utterances=list(held)) for name, held in routes.items()]
    router = library.IndexedRouter(encoder=_encoder(known), routes=named, aggregation=aggregation)
    right: list[bool] = []
    sure: list[float] = []
    took: list[float] = []
    for text, name in asked:
        began = time.perf_counter()
        choice = await router.acall(text, 1, 0.0)
        took.append(time.perf_counter() - began)
        right.append(choice.name == owner.get(name))
        sure.append(choice.confidence or 0.0)
    size = len(board.data.test)
    home = numpy.array(sure[:size])
    strange = numpy.array(sure[size:])
    return Judged(numpy.array(right[:size]), home, home, strange, home), median(took)


def _encoder(known: dict[str, bytes]) -> Any:
    plain: Any = import_module("semantic_router.encoders.base").DenseEncoder

    def encoded(_self: object, docs: list[str]) -> list[list[float]]:
        return [numpy.frombuffer(known[one], "<f4").tolist() for one in docs]

    async def later(self: object, docs: list[str]) -> list[list[float]]:
        return encoded(self, docs)

    kind: Any = type("Stored", (plain,), {"__call__": encoded, "acall": later})
    return kind(name="stored")
