"""`python -m bench.hybrid`: how well archives find what was asked for, by meaning, by words, and by both.

The labelled set is described in tests/memory/labelled/README.md. The numbers of the fusion were chosen on the half
called tune; the half called test is what counts.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.memory.archives import Archive, Embedding, Hit, Passage
from chargehand.memory.catalog import Catalog
from chargehand.memory.session import open_catalog
from chargehand.models.embeddings import LocalEmbedding
from chargehand.models.local import pull

ROOT = Path(__file__).parents[1]
LABELLED = ROOT / "tests" / "memory" / "labelled"
DEPTH = 50
Kind: TypeAlias = Literal["paraphrase", "identifier", "distracted"]
Half: TypeAlias = Literal["tune", "test"]
Strategy: TypeAlias = Literal["meaning", "words", "both"]
STRATEGIES: tuple[Strategy, ...] = ("meaning", "words", "both")


class Labelled(Struct, frozen=True):
    id: str
    topic: str
    text: str


class Question(Struct, frozen=True):
    """`answer` is the id of the one passage that answers it."""

    id: str
    kind: Kind
    ask: str
    answer: str

    @property
    def half(self) -> Half:
        """Even numbers are for tuning, odd ones for testing."""
        return "test" if int(self.id[1:]) % 2 else "tune"


class Figures(Struct, frozen=True):
    """Of so many questions: the mean of one over the rank, the share found first, the share among the first ten."""

    kind: Kind
    half: Half
    strategy: Strategy
    count: int
    mrr: float
    first: float
    ten: float


def passages() -> list[Labelled]:
    return msgspec.json.decode((LABELLED / "passages.json").read_bytes(), type=list[Labelled])


def questions() -> list[Question]:
    return msgspec.json.decode((LABELLED / "questions.json").read_bytes(), type=list[Question])


async def measured(catalog: Catalog, embedding: Embedding, halves: Sequence[Half] = ("tune", "test")) -> list[Figures]:
    """Ask the questions of these halves in every way, in an archive of the catalog that is made for it."""
    archive = (await catalog.add(Archive("labelled"))).id
    texts = passages()
    vectors = await embedding.embed([one.text for one in texts])
    kept = [Passage(one.text, metadata={"label": one.id}) for one in texts]
    await catalog.insert(archive, kept, vectors, handle=embedding.handle)
    asked = [question for question in questions() if question.half in halves]
    wanted = await embedding.embed([question.ask for question in asked])
    ranks: dict[tuple[Kind, Half, Strategy], list[int]] = {}
    for question, vector in zip(asked, wanted, strict=True):
        for strategy in STRATEGIES:
            words = "" if strategy == "meaning" else question.ask
            hits = await catalog.search([archive], words, None if strategy == "words" else vector, limit=DEPTH)
            ranks.setdefault((question.kind, question.half, strategy), []).append(_rank(hits, question.answer))
    return [_figures(*key, found) for key, found in sorted(ranks.items())]


def _rank(hits: Sequence[Hit], answer: str) -> int:
    """From 1 on; 0 for what was not found."""
    return next((at for at, hit in enumerate(hits, 1) if hit.passage.metadata["label"] == answer), 0)


def _figures(kind: Kind, half: Half, strategy: Strategy, ranks: Sequence[int]) -> Figures:
    count = len(ranks)
    mrr = sum(1 / rank for rank in ranks if rank) / count
    ten = sum(0 < rank <= 10 for rank in ranks) / count
    return Figures(kind=kind, half=half, strategy=strategy, count=count, mrr=mrr, first=ranks.count(1) / count, ten=ten)


async def main() -> int:
    models = Path(os.environ.get("CHARGEHAND_MODELS") or ROOT / ".venv" / "models")
    embedding = LocalEmbedding(pull("minilm", models).parent)
    catalog = await open_catalog()
    try:
        found = await measured(catalog, embedding)
    finally:
        await catalog.close()
        await embedding.close()
    print(f"{'questions':<12} {'half':<5} {'by':<8} {'n':>4} {'MRR':>6} {'P@1':>6} {'R@10':>6}")
    for one in found:
        numbers = f"{one.mrr:>6.3f} {one.first:>6.3f} {one.ten:>6.3f}"
        print(f"{one.kind:<12} {one.half:<5} {one.strategy:<8} {one.count:>4} {numbers}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
