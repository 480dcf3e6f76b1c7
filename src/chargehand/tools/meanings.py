"""Passages of documents compared with a question by meaning, on this machine, and ranked by that and by words together.

How the two are weighed is decided in `memory.fusion`, as it is for archives. Where the model comes from is not known
here. The vectors stay in memory, and are made by the first search that can use them.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from chargehand.memory.fusion import fused, telling
from chargehand.models.embeddings import Embedder, open_embedder
from chargehand.terms.policy import Seconds
from chargehand.tools.passages import Piece, Ranking

FLOOR = 0.33
"""How alike (a cosine) a passage must be that shares no word with the question; the docs say what was measured."""
MOST_CHARACTERS = 200_000
"""Of all passages together: 20 s of work for one core. Beyond that words alone decide; archives keep their vectors."""
PATIENCE: Seconds = 10.0
"""How long one search works on the vectors. What is missing then is left to the next; until all are there, words."""
_BATCH = 16
_LEAST = 0.001  # a score of nothing would be left out of the result


class Meanings:
    """The vectors of some pieces. Any thread may ask; one at a time makes them."""

    def __init__(self, given: Sequence[Piece], models: Path, patience: Seconds = PATIENCE) -> None:
        self._texts = [f"{piece.heading}\n{piece.text}".strip() for piece in given]
        self._models = models
        self._patience = patience
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._vectors: list[tuple[int, bytes]] = []
        self._given_up = sum(map(len, self._texts)) > MOST_CHARACTERS

    def likeness(self, query: str) -> dict[int, float] | None:
        """How alike each piece is, by its number; None where meanings cannot be compared, or not yet."""
        until = monotonic() + self._patience
        if self._given_up or not query.strip() or not self._lock.acquire(timeout=self._patience):
            return None
        try:
            return self._compared(query, until)
        except Exception:  # noqa: BLE001 - a foreign library and its files; words need neither
            self._give_up()
            return None
        finally:
            self._lock.release()

    def _compared(self, query: str, until: Seconds) -> dict[int, float] | None:
        embedder = self._embedder = self._embedder or open_embedder(self._models)
        if embedder is None:
            self._give_up()
            return None
        while (made := len(self._vectors)) < len(self._texts):
            self._vectors += enumerate(embedder.packed(self._texts[made : made + _BATCH]), made)
            if len(self._vectors) < len(self._texts) and monotonic() >= until:
                return None
        from chargehand.stores.passage_numpy import likeness  # noqa: PLC0415 - numpy is there if the model is

        return likeness(embedder.packed([query])[0], self._vectors)

    def _give_up(self) -> None:
        self._given_up = True
        self._embedder = None
        self._vectors.clear()


def best_both_ways(ranking: Ranking, meanings: Meanings, query: str, most: int) -> list[tuple[float, Piece]]:
    """The pieces that fit best by words and by meaning; one that shares no word must be alike enough."""
    alike = meanings.likeness(query)
    if alike is None:
        return ranking.best(query, most)
    scores = ranking.scores(query)
    near = [number for number, one in alike.items() if one >= FLOOR and number not in scores]
    meaning = {number: alike[number] for number in (*scores, *ranking.with_phrases(near, query))}
    if not meaning:
        return []
    top = max(scores.values(), default=1.0)
    held = ranking.held(telling(query))
    words = {number: (score / top, held.get(number, ())) for number, score in scores.items()}
    ranked = fused(meaning, words)[:most]
    return [(max(_LEAST, round(score, 3)), ranking.piece(number)) for number, score, _ in ranked]
