"""What is looked for in a question, and which passages come first: how alike in meaning, with which of its words.

Counting, finding and comparing them is the stores' business. The numbers were chosen on one half of the questions in
tests/memory/labelled and checked on the other: `python -m bench.hybrid`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import log2

from msgspec import Struct

from chargehand.memory.archives import Hit, Passage
from chargehand.text.words import QUOTED, STOP_WORDS, quoted_phrases, tokenize

BUDGET = 4_000
"""Passages whose match by words is scored, where that takes a microsecond each."""
MAX_HITS = 1_000
"""Hits of one search."""
BY_WORDS = 50
"""Matches by words that are weighed against meaning, or as many as are asked for."""
WEIGHED = 48
"""Terms of a question whose rarity is looked up."""
MOST_TERMS = 8
"""Of the telling words of a question, the first so many are looked for."""
MOST_HOLDERS = 50
"""A word that more passages hold, and more than RARE of them all, tells nothing."""
RARE = 0.02

IDENTIFIER = 0.5
"""What it adds to the likeness (a cosine) that a passage holds a quoted phrase or an identifier that was asked for."""
NAME = 0.12
WORD = 0.1
SPREAD = 8
"""A word that two to the power of this many passages hold adds half as much."""
COMMON = 0.02
"""What the best of all word matches adds: it decides between passages that are alike otherwise."""
BARE = 0.5
"""What the best match by words counts as when a passage has no vector and others have."""

_READ = 4_000  # characters of a question
_LONGEST = 32  # words of a phrase, and parts of a word such as a-b.c: the index takes seconds to find thousands
_FEW = 3  # words that are a search rather than a sentence
_BREAK = re.compile(r"[\s,;!?()\[\]{}<>|\"“”„«»]+")
_ENDS = re.compile(r"^[^\w]+|(?:['\u2019]s)?[^\w]+$|['\u2019]s$")
_PARTS = re.compile(rf"\W*\w+(?:\W+\w+){{0,{_LONGEST - 1}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_OR_WORD = re.compile(r"\w+(?:[-._/:@+']\w+)*")
_INNER = re.compile(r"_|\w[./:@+]\w|[a-z][A-Z]")
_JOINED = re.compile(r"[-._/]")
_TURN = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")


def terms(query: str) -> tuple[str, ...]:
    """What is in quotes, and every word that means something. Of a question without such, the whole as a phrase."""
    query = _CONTROL.sub(" ", unicodedata.normalize("NFC", query[:_READ].encode(errors="ignore").decode()))
    phrases = [" ".join(phrase.split()[:_LONGEST]) for phrase in quoted_phrases(query)]
    words = _spoken(_ENDS.sub("", word) for word in _BREAK.split(QUOTED.sub(" ", query)))
    chosen = _spoken(phrases) + [word for word in words if not _is_stop_word(word)]
    if not chosen and words:
        chosen = [" ".join(words[:_LONGEST])]
    return tuple({term.casefold(): term for term in reversed(chosen)}.values())[::-1]


def _spoken(texts: Iterable[str]) -> list[str]:
    parts = [match[0] for text in texts if (match := _PARTS.match(text)) is not None]
    return [part for part in parts if any(sign.isalnum() for sign in part)]


def _is_stop_word(word: str) -> bool:
    return STOP_WORDS.issuperset(tokenize(word))


def telling(query: str) -> tuple[str, ...]:
    """The words of a question that name something, as they are written there; a phrase is to be found as a whole.

    These are what is in quotes, identifiers (also the other way of writing them: ERR4021, ERR 4021), and names. All
    other words are left to the comparison of meanings, which they would only disturb; except in a search of three
    words or fewer, where each was chosen. Without vectors to compare, every word counts and this is not asked.
    """
    query = query[:_READ]
    terms: list[str] = quoted_phrases(query)
    rest = QUOTED.sub(" . ", query)
    words = list(_NAME_OR_WORD.finditer(rest))
    search = len(words) <= _FEW and not rest.rstrip().endswith("?")
    shouted = rest.isupper()
    for match in words:
        word = match[0]
        before = rest[: match.start()].rstrip()
        if _is_identifier(word):
            terms += word, *_otherwise(word)
        elif search or "-" in word or (not shouted and _is_name(word, opens=not before or before[-1] in ".!?:;")):
            terms.append(word)
    return tuple(dict.fromkeys(term for term in terms if term))[:MOST_TERMS]


# --- which terms are worth looking for


class TermCount(Struct, frozen=True):
    """A term, and how many passages of an archive hold it; the store need not count further than it was asked to."""

    term: str
    count: int


def most_holders(passages: int) -> int:
    """How many passages of an archive may hold a term that tells them apart."""
    return max(MOST_HOLDERS, int(RARE * passages))


def rare_terms(counted: Iterable[TermCount], passages: int) -> list[str]:
    """The terms that tell passages apart, the rarest first."""
    most = most_holders(passages)
    return [counted.term for counted in _rarest_first(counted) if counted.count <= most][:MOST_TERMS]


def searched_terms(counted: Iterable[TermCount], budget: int = BUDGET) -> tuple[list[str], list[str]]:
    """The terms to look for, the rarest first; and those of them that are held by few enough to score them all.

    The budget is how many passages the store may score.
    """
    chosen = _rarest_first(counted)[:MOST_TERMS]
    totals = accumulate(counted.count for counted in chosen)
    cheap = [counted.term for total, counted in zip(totals, chosen, strict=True) if total <= budget]
    return [counted.term for counted in chosen], cheap


def _rarest_first(counted: Iterable[TermCount]) -> list[TermCount]:
    """Those that occur at all."""
    return sorted((counted for counted in counted if counted.count), key=lambda counted: counted.count)


# --- which passages come first


class WordMatch(Struct, frozen=True):
    """How well a passage matches by words (more is better), and the terms it has."""

    score: float
    terms: tuple[str, ...]

    def only(self, terms: Sequence[str]) -> "WordMatch":
        """The same match, with these terms only."""
        return WordMatch(self.score, tuple(term for term in self.terms if term in terms))


class Ranked(Struct, frozen=True):
    """A passage by its number, and its place among the hits."""

    number: int
    score: float
    why: str


def rank(meaning: Mapping[int, float], words: Mapping[int, WordMatch], limit: int) -> list[Ranked]:
    """The best passages, best first, by their likeness and their matches by words."""
    best = max((match.score for match in words.values()), default=0.0) or 1.0
    shares = {number: (max(0.0, match.score / best), match.terms) for number, match in words.items()}
    return [Ranked(number, score, why) for number, score, why in fused(meaning, shares)[:limit]]


def hits_of(ranked: Iterable[Ranked], meaning: Mapping[int, float], passages: Mapping[int, Passage]) -> list[Hit]:
    """The hits of those passages that are still there."""
    hits: list[Hit] = []
    for place in ranked:
        if place.number in passages:
            alike = meaning.get(place.number)
            by_words = place.score - (alike or 0.0)
            hits.append(Hit(passages[place.number], place.score, meaning=alike, words=by_words, why=place.why))
    return hits


def fused(
    meaning: Mapping[int, float], words: Mapping[int, tuple[float, tuple[str, ...]]]
) -> list[tuple[int, float, str]]:
    """Passages by number, best first, each with its score and why.

    `meaning` has the likeness of every passage that was compared, `words` the share of the best match by words (0 to
    1) and the terms matched, as `telling` gave them. Without `meaning` words alone decide.
    """
    weights = _weights(matched for _, matched in words.values())
    ranked: list[tuple[int, float, str]] = []
    for number in {**meaning, **words}:
        alike = meaning.get(number)
        share, matched = words.get(number, (0.0, ()))
        if not meaning:
            score = share
        else:
            lift = sum(weights[term] for term in matched) + COMMON * share
            score = lift + (BARE * share if alike is None else alike)
        ranked.append((number, score, _why(alike, matched)))
    return sorted(ranked, key=lambda hit: (-hit[1], hit[0]))


def _weights(matched: Iterable[tuple[str, ...]]) -> dict[str, float]:
    """What each term adds: the less, the more passages hold it."""
    holders = Counter(term for terms in matched for term in set(terms))
    return {term: _weight(term) / (1 + log2(count) / SPREAD) for term, count in holders.items()}


def _weight(term: str) -> float:
    if " " in term or _is_identifier(term):
        return IDENTIFIER
    return NAME if term[:1].isupper() else WORD


def _is_identifier(word: str) -> bool:
    """It has digits among letters or signs, or at least five; or it is written as only programs write."""
    digits = sum(sign.isdigit() for sign in word)
    if digits:
        return digits < len(word) or digits >= 5
    return _INNER.search(word) is not None


def _is_name(word: str, *, opens: bool) -> bool:
    """The first word of a sentence has a capital in any case, so it has to be hyphenated, or all capitals."""
    return len(word) > 1 and word[0].isupper() and (not opens or word.isupper())


def _otherwise(word: str) -> list[str]:
    """Letters and digits that are written together elsewhere, or apart."""
    together = _JOINED.sub("", word)
    if not together.isalnum() or together.isalpha() or together.isdigit():
        return []
    return [_TURN.sub(" ", word)] if together == word else [together]


def _why(alike: float | None, matched: tuple[str, ...]) -> str:
    terms = ", ".join(matched)
    if alike is None:
        return f"words only: {terms}" if terms else "words only"
    return f"alike {alike:.2f}; has {terms}" if terms else f"alike {alike:.2f}"
