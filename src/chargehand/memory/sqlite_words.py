"""Passages by their words: which terms of a question to look for, and what the word index finds.

How words weigh against meaning is decided in `memory.ranking`. No text of a user's is ever read as query syntax.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Struct

from chargehand.memory.archives import Filter
from chargehand.memory.passage_rows import Holding, Value, conditions, listed
from chargehand.memory.ranking import MOST_HOLDERS, MOST_TERMS, RARE
from chargehand.text.words import QUOTED, STOP_WORDS, quoted_phrases, tokenize

BUDGET = 4_000  # rows to rank: a microsecond each
_READ = 4_000  # characters of a question
_WEIGHED = 48  # terms of it whose rarity is looked up
_LONGEST = 32  # words of a phrase, and parts of a word such as a-b.c: the index takes seconds to find thousands

_BREAK = re.compile(r"[\s,;!?()\[\]{}<>|\"“”„«»]+")
_ENDS = re.compile(r"^[^\w]+|(?:['\u2019]s)?[^\w]+$|['\u2019]s$")
_PARTS = re.compile(rf"\W*\w+(?:\W+\w+){{0,{_LONGEST - 1}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_COUNT = """
    SELECT count(*) FROM (
        SELECT 1 FROM passage_words WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?
    )
"""
_EARLIEST = """
    SELECT rowid FROM passage_words WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ? {where}
    ORDER BY rowid DESC LIMIT 1 OFFSET ?
"""
_RANKED = """
    SELECT rowid, -rank FROM passage_words WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ? {where}
    ORDER BY rank LIMIT ?
"""
# the plus keeps the planner from asking the word index once for each number
_HOLDING = """
    SELECT rowid FROM passage_words WHERE passage_words MATCH ? AND rowid BETWEEN ? AND ?
    AND +rowid IN (SELECT value FROM json_each(?))
"""
_WITHIN = "AND EXISTS (SELECT 1 FROM passages WHERE passages.number = passage_words.rowid {tests})"
_BARE = "AND NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.number = passage_words.rowid)"


class Match(Struct, frozen=True):
    """How well a passage matches by words (BM25: more is better), and the terms it has."""

    score: float
    terms: tuple[str, ...]


def terms(query: str) -> tuple[str, ...]:
    """What is in quotes, and every word that means something. Of a question without such, the whole as a phrase."""
    query = _CONTROL.sub(" ", unicodedata.normalize("NFC", query[:_READ].encode(errors="ignore").decode()))
    phrases = [" ".join(phrase.split()[:_LONGEST]) for phrase in quoted_phrases(query)]
    words = _spoken(_ENDS.sub("", word) for word in _BREAK.split(QUOTED.sub(" ", query)))
    found = _spoken(phrases) + [word for word in words if not _is_stop_word(word)]
    if not found and words:
        found = [" ".join(words[:_LONGEST])]
    return tuple({term.casefold(): term for term in reversed(found)}.values())[::-1]


def _spoken(texts: Iterable[str]) -> list[str]:
    parts = [match[0] for text in texts if (match := _PARTS.match(text)) is not None]
    return [part for part in parts if any(sign.isalnum() for sign in part)]


def _is_stop_word(word: str) -> bool:
    return STOP_WORDS.issuperset(tokenize(word))


class Words:
    """The words of one archive, within a filter; `bare`: only of passages without vectors."""

    def __init__(self, db: sqlite3.Connection, kept: Holding, within: Filter, *, bare: bool = False) -> None:
        self._db = db
        self._kept = kept
        tests, self._values = conditions(within)
        self._where = (_WITHIN.format(tests=tests) if tests else "") + (_BARE if bare else "")

    def rare(self, asked: Sequence[str], limit: int) -> dict[int, Match]:
        """Passages with any of these terms, but for terms that many passages have."""
        most = max(MOST_HOLDERS, int(RARE * self._kept.passages))
        counted = self._counted(asked, most + 1)
        chosen = [term for count, term in counted if count <= most][:MOST_TERMS]
        return self._found(chosen, _either(chosen), limit) if chosen else {}

    def any(self, asked: Sequence[str], limit: int) -> dict[int, Match]:
        """Passages with any of these terms, the rarest first; common ones only if the others find too little."""
        counted = self._counted(asked, BUDGET + 1)[:MOST_TERMS]
        chosen = [term for _, term in counted]
        totals = accumulate(count for count, _ in counted)
        cheap = [term for total, term in zip(totals, chosen, strict=True) if total <= BUDGET]
        if not chosen:
            return {}
        found = self._found(cheap, _either(cheap), limit) if cheap else self._found(chosen, _all(chosen), limit)
        if len(found) < limit and len(cheap) < len(chosen):
            found |= self._found(chosen, _either(chosen), limit)
        return found

    def _counted(self, asked: Sequence[str], most: int) -> list[tuple[int, str]]:
        """Terms that occur, each with the number of passages that have it, the rarest first."""
        counted = [(self._count(term, most), term) for term in asked[:_WEIGHED]]
        return sorted((pair for pair in counted if pair[0]), key=lambda pair: pair[0])

    def _count(self, term: str, most: int) -> int:
        return self._db.execute(_COUNT, (_quoted(term), self._kept.first, self._kept.final, most)).fetchone()[0]

    def _found(self, chosen: Sequence[str], expression: str, limit: int) -> dict[int, Match]:
        first = self._kept.first
        final = self._kept.final
        bounds: list[Value] = [expression, first, final, *self._values]
        earliest = self._db.execute(_EARLIEST.format(where=self._where), [*bounds, BUDGET]).fetchone()
        if earliest is not None:  # more than can be ranked: the newest must do
            bounds[1] = earliest[0]
        ranked = self._db.execute(_RANKED.format(where=self._where), [*bounds, limit]).fetchall()
        held: dict[int, list[str]] = {number: [] for number, _ in ranked}
        for term in chosen if held else ():
            for (number,) in self._db.execute(_HOLDING, (_quoted(term), min(held), max(held), listed(held))):
                held[number].append(term)
        return {number: Match(score, tuple(held[number])) for number, score in ranked}


def _quoted(term: str) -> str:
    """As a string of the query language, in which nothing but a quotation mark means anything."""
    plain = _CONTROL.sub(" ", term.encode(errors="ignore").decode())
    return '"' + plain.replace('"', '""') + '"'


def _either(chosen: Sequence[str]) -> str:
    return " OR ".join(map(_quoted, chosen))


def _all(chosen: Sequence[str]) -> str:
    return " AND ".join(map(_quoted, chosen))
