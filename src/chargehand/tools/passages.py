"""Documents cut into passages, and the passages ranked by the words of a question (BM25). No model is asked."""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

from chargehand.memory.chunking import paragraphs, sections
from chargehand.memory.fusion import MOST_HOLDERS, RARE
from chargehand.text.bm25 import BM25
from chargehand.text.words import quoted_phrases, stems

LONGEST = 800


class Piece(Struct, frozen=True):
    """`heading` is what stands over the text; its words count as well."""

    source: str
    text: str
    heading: str = ""


def pieces(name: str, text: str) -> Iterator[Piece]:
    """A document in pieces that end with a paragraph (else a sentence, else a word), none over a heading."""
    for section in sections(text):
        heading = section.heading
        source = f"{name}#{_anchor(heading)}" if _anchor(heading) else name
        held = ""
        for part in paragraphs(section.body, LONGEST):
            if held and len(held) + 2 + len(part) > LONGEST:
                yield Piece(source=source, text=held, heading=heading)
                held = ""
            held = f"{held}\n\n{part}" if held else part
        if held:
            yield Piece(source=source, text=held, heading=heading)


class Ranking:
    """An index of pieces, made once."""

    def __init__(self, given: Sequence[Piece]) -> None:
        self._pieces = tuple(given)
        self._folded = [" ".join(f"{piece.heading}\n{piece.text}".casefold().split()) for piece in given]
        self._index = BM25([stems(f"{piece.heading} {piece.text}") for piece in given])

    def best(self, query: str, most: int) -> list[tuple[float, Piece]]:
        """The pieces that fit best, each with its score; pieces without a quoted phrase are out."""
        scores = self.scores(query)
        fits = sorted(scores, key=lambda number: (-scores[number], number))
        return [(round(scores[number], 3), self._pieces[number]) for number in fits[:most]]

    def scores(self, query: str) -> dict[int, float]:
        """The score of each piece that has a word of the query, by its number; quoted phrases must all be in it."""
        scores = self._index.scores(stems(query))
        if not scores and _phrases(query):  # phrases of nothing but common words
            scores = dict.fromkeys(range(len(self._pieces)), 1.0)
        return {number: scores[number] for number in self.with_phrases(scores, query)}

    def with_phrases(self, numbers: Iterable[int], query: str) -> list[int]:
        """Those of the pieces that hold every quoted phrase of the query."""
        phrases = _phrases(query)
        return [number for number in numbers if all(phrase in self._folded[number] for phrase in phrases)]

    def held(self, terms: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """By the number of a piece, the terms it holds; several words as they stand, and no term that many hold."""
        most = max(MOST_HOLDERS, int(RARE * len(self._pieces)))
        found: dict[int, tuple[str, ...]] = {}
        for term in terms:
            parts = [set(self._index.holders(word)) for word in dict.fromkeys(stems(term))]
            numbers = set[int].intersection(*parts) if parts else set[int]()
            if " " in term:
                numbers = {number for number in numbers if " ".join(term.casefold().split()) in self._folded[number]}
            for number in numbers if len(numbers) <= most else ():
                found[number] = (*found.get(number, ()), term)
        return found

    def piece(self, number: int) -> Piece:
        return self._pieces[number]

    def alike(self, query: str) -> list[str]:
        """Words that do occur and look like those asked for; else the ones that occur most."""
        common = self._index.terms
        known = sorted(common)
        near = [match for word in stems(query) for match in get_close_matches(word, known, 2, 0.7)]
        return list(dict.fromkeys(near))[:8] or common[:8]


def _phrases(query: str) -> list[str]:
    return [" ".join(phrase.casefold().split()) for phrase in quoted_phrases(query)]


def _anchor(heading: str) -> str:
    return "-".join(re.sub(r"[^\w\s-]", "", heading.casefold()).split())
