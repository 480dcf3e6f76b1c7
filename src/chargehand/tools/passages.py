"""Documents cut into passages, and the passages ranked by the words of a question (BM25). No model is asked."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

from chargehand.memory.chunking import paragraphs, sections
from chargehand.memory.fusion import MOST_HOLDERS, RARE

LONGEST = 800
_K1 = 1.5
_B = 0.75
_WORD = re.compile(r"\w+(?:'\w+)?")
_QUOTED = re.compile(r'"([^"]{1,400})"|“([^”]{1,400})”')
_COMMON_WORDS = (
    "a about an and are as at be been but by can could did do does for from had has have how i if in into is it its "
    "me my no not of on or our please so than that the their them then there these they this to was we were what when "
    "where which who why will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_ENDINGS = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("fulness", "ful"),
    ("ments", "ment"),
    ("ingly", ""),
    ("edly", ""),
    ("ities", "ity"),
    ("ies", "y"),
    ("sses", "ss"),
    ("ing", ""),
    ("ed", ""),
    ("ly", ""),
    ("es", "e"),
    ("s", ""),
)


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


def words(text: str) -> list[str]:
    """The words of a text, lower case and without endings; words that say nothing are left out."""
    return [stem(word) for word in _WORD.findall(text.casefold()) if word not in _COMMON]


def stem(word: str) -> str:
    """Light: plurals and the commonest endings, never below three letters, so that `sales` finds `sale`."""
    word = word.removesuffix("'s")
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word[-2] in "su"):
            word = word[: len(word) - len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]  # planned, plan
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


class Ranking:
    """An index of pieces, made once."""

    def __init__(self, given: Sequence[Piece]) -> None:
        self._pieces = tuple(given)
        self._folded = [" ".join(f"{piece.heading}\n{piece.text}".casefold().split()) for piece in given]
        counts = [Counter(words(f"{piece.heading} {piece.text}")) for piece in given]
        self._lengths = [max(1, count.total()) for count in counts]
        self._average = sum(self._lengths) / len(counts) if counts else 1.0
        self._where: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                self._where.setdefault(word, []).append((number, times))

    def best(self, query: str, most: int) -> list[tuple[float, Piece]]:
        """The pieces that fit best, each with its score; pieces without a quoted phrase are out."""
        scores = self.scores(query)
        fits = sorted(scores, key=lambda number: (-scores[number], number))
        return [(round(scores[number], 3), self._pieces[number]) for number in fits[:most]]

    def scores(self, query: str) -> dict[int, float]:
        """The score of each piece that has a word of the query, by its number; quoted phrases must all be in it."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words(query)):
            found = self._where.get(word, [])
            weight = math.log(1 + (len(self._pieces) - len(found) + 0.5) / (len(found) + 0.5))
            for number, times in found:
                length = 1 - _B + _B * self._lengths[number] / self._average
                scores[number] = scores.get(number, 0.0) + weight * times * (_K1 + 1) / (times + _K1 * length)
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
            parts = [{number for number, _ in self._where.get(word, ())} for word in dict.fromkeys(words(term))]
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
        known = sorted(self._where)
        near = [match for word in words(query) for match in get_close_matches(word, known, 2, 0.7)]
        common = sorted(self._where, key=lambda word: (-len(self._where[word]), word))
        return list(dict.fromkeys(near))[:8] or common[:8]


def _phrases(query: str) -> list[str]:
    return [" ".join((one or two).casefold().split()) for one, two in _QUOTED.findall(query)]


def _anchor(heading: str) -> str:
    return "-".join(re.sub(r"[^\w\s-]", "", heading.casefold()).split())
