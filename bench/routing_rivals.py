"""What others reach on CLINC150: published figures, and semantic-router on the same vectors where it is installed."""

import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any, Protocol

import numpy

from bench.routing_score import Judged, accuracy, ranked
from chargehand.agents.routers.texts import Said

AGGREGATIONS = ("mean", "sum")  # its default, and its best here


class Board(Protocol):
    """The part of the benchmark that a rival needs."""

    data: Any

    def drawn(self, shots: int, seed: int, *, named: bool) -> list[Said]: ...

    async def vectors(self, wanted: Sequence[str]) -> list[bytes]: ...


def published() -> str:
    return (
        "published, 150 intents, full training set (Larson et al. 2019, table 2): SVM 91.0, MLP 93.5, fine-tuned BERT "
        "96.9 %;\nout-of-scope recall there: BERT with threshold 52.3 % at 96.2 % accuracy, with a class of its own "
        "40.3 % at 96.9 %"
    )


async def rivals(board: Board) -> str:
    """A line for each way it adds up; a sentence where it is not here."""
    if find_spec("semantic_router") is None:
        return "semantic-router is not installed: pip install semantic-router (82 packages) to see it beside"
    library: Any = import_module("semantic_router")
    lines = [f"semantic-router {library.__version__} on the same vectors:"]
    for shots in (10, 100):
        for aggregation in AGGREGATIONS:
            seen, took = await _asked(library, board, shots, aggregation)
            lines.append(
                f"  {shots:>3} examples, {aggregation:<4}  accuracy {accuracy(seen):.1f} %  AUROC {ranked(seen):.1f} %"
                f"  p50 {took * 1e6:,.0f} us a decision"
            )
    return "\n".join(lines)


async def _asked(library: Any, board: Board, shots: int, aggregation: str) -> tuple[Judged, float]:
    said = board.drawn(shots, 0, named=False)
    asked = [*board.data.test, *board.data.oos_test]
    texts = [*(text for one in said for text in one.examples), *(text for text, _ in asked)]
    known = dict(zip(texts, await board.vectors(texts), strict=True))
    routes = [library.Route(name=one.worker, utterances=list(one.examples)) for one in said]
    router = library.IndexedRouter(encoder=_encoder(known), routes=routes, aggregation=aggregation)
    right: list[bool] = []
    sure: list[float] = []
    took: list[float] = []
    for text, name in asked:
        began = time.perf_counter()
        choice = await router.acall(text, 1, 0.0)
        took.append(time.perf_counter() - began)
        right.append(choice.name == name)
        sure.append(choice.confidence or 0.0)
    size = len(board.data.test)
    home, strange = numpy.array(sure[:size]), numpy.array(sure[size:])
    return Judged(numpy.array(right[:size]), home, home, strange, home), median(took)


def _encoder(known: dict[str, bytes]) -> Any:
    plain: Any = import_module("semantic_router.encoders.base").DenseEncoder

    def encoded(_self: object, docs: list[str]) -> list[list[float]]:
        return [numpy.frombuffer(known[one], "<f4").tolist() for one in docs]

    async def later(self: object, docs: list[str]) -> list[list[float]]:
        return encoded(self, docs)

    kind: Any = type("Stored", (plain,), {"__call__": encoded, "acall": later})
    return kind(name="stored")
