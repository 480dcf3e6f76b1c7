"""Ranking of documents by the words of a query (BM25)."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

_SATURATION = 1.5  # k1: how soon another occurrence of a term stops to count
_LENGTH_WEIGHT = 0.75  # b: how much a long document is held to be less about each of its terms


class BM25:
    """An index of documents, each given as its terms and known by its number. Made once, then asked."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for number, terms in enumerate(documents):
            self._lengths.append(max(1, len(terms)))
            for term, count in Counter(terms).items():
                self._postings.setdefault(term, []).append((number, count))
        self._average_length = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0

    @property
    def terms(self) -> list[str]:
        """Every term of the documents, the most common first."""
        return sorted(self._postings, key=lambda term: (-len(self._postings[term]), term))

    def holders(self, term: str) -> list[int]:
        """The documents that hold a term."""
        return [number for number, _ in self._postings.get(term, ())]

    def rarity(self, term: str) -> float:
        """How much a term tells: the fewer documents hold it, the more (inverse document frequency)."""
        holders = len(self._postings.get(term, ()))
        return math.log(1 + (len(self._lengths) - holders + 0.5) / (holders + 0.5))

    def scores(self, query: Iterable[str]) -> dict[int, float]:
        """The score of every document that holds a term of the query."""
        scores: dict[int, float] = {}
        for term in dict.fromkeys(query):
            rarity = self.rarity(term)
            for number, count in self._postings.get(term, ()):
                relative_length = self._lengths[number] / self._average_length
                penalty = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative_length)
                scores[number] = scores.get(number, 0.0) + rarity * count * (_SATURATION + 1) / (count + penalty)
        return scores
