"""Searching archives by meaning and by words. How the two are weighed is decided in `ranking`.

No text of a user is ever read as query syntax of the word index.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from chargehand.memory.archives import Filter, Hit
from chargehand.memory.passages import check_question_width
from chargehand.memory.ranking import (
    BUDGET,
    BY_WORDS,
    MAX_HITS,
    WEIGHED,
    TermCount,
    WordMatch,
    hits_of,
    most_holders,
    rank,
    rare_terms,
    searched_terms,
    telling,
    terms,
)
from chargehand.memory.sqlite_passages import (
    Holding,
    Value,
    by_number,
    conditions,
    listed,
    numbers_within,
)

if TYPE_CHECKING:
    from chargehand.memory.vector_index import VectorIndex
    from chargehand.memory.vectors import VectorQuery

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


class WordIndex:
    """The words of one archive, within a filter; `unembedded`: only of passages without vectors."""

    def __init__(self, db: sqlite3.Connection, store: Holding, within: Filter, *, unembedded: bool = False) -> None:
        self._db = db
        self._kept = store
        tests, self._values = conditions(within)
        self._where = (_WITHIN.format(tests=tests) if tests else "") + (_BARE if unembedded else "")

    def rare(self, words: Sequence[str], limit: int) -> dict[int, WordMatch]:
        """Passages with any of these terms, but for terms that many passages have."""
        counted = self._counted(words, most_holders(self._kept.passages) + 1)
        chosen = rare_terms(counted, self._kept.passages)
        return self._find(chosen, _either(chosen), limit) if chosen else {}

    def any(self, words: Sequence[str], limit: int) -> dict[int, WordMatch]:
        """Passages with any of these terms, the rarest first; common ones only if the others find too little."""
        chosen, cheap = searched_terms(self._counted(words, BUDGET + 1))
        if not chosen:
            return {}
        matches = self._find(cheap, _either(cheap), limit) if cheap else self._find(chosen, _all(chosen), limit)
        if len(matches) < limit and len(cheap) < len(chosen):
            matches |= self._find(chosen, _either(chosen), limit)
        return matches

    def _counted(self, words: Sequence[str], most: int) -> list[TermCount]:
        """Terms, each with the number of passages that have it."""
        return [TermCount(term, self._count(term, most)) for term in words[:WEIGHED]]

    def _count(self, term: str, most: int) -> int:
        return self._db.execute(_COUNT, (_quoted(term), self._kept.first, self._kept.final, most)).fetchone()[0]

    def _find(self, chosen: Sequence[str], expression: str, limit: int) -> dict[int, WordMatch]:
        first = self._kept.first
        final = self._kept.final
        bounds: list[Value] = [expression, first, final, *self._values]
        earliest = self._db.execute(_EARLIEST.format(where=self._where), [*bounds, BUDGET]).fetchone()
        if earliest is not None:  # more than can be ranked: the newest must do
            bounds[1] = earliest[0]
        ranked = self._db.execute(_RANKED.format(where=self._where), [*bounds, limit]).fetchall()
        matched: dict[int, list[str]] = {number: [] for number, _ in ranked}
        for term in chosen if matched else ():
            for (number,) in self._db.execute(_HOLDING, (_quoted(term), min(matched), max(matched), listed(matched))):
                matched[number].append(term)
        return {number: WordMatch(score, tuple(matched[number])) for number, score in ranked}


def _quoted(term: str) -> str:
    """As a string of the query language, in which nothing but a quotation mark means anything."""
    plain = _CONTROL.sub(" ", term.encode(errors="ignore").decode())
    return '"' + plain.replace('"', '""') + '"'


def _either(chosen: Sequence[str]) -> str:
    return " OR ".join(map(_quoted, chosen))


def _all(chosen: Sequence[str]) -> str:
    return " AND ".join(map(_quoted, chosen))


EXACT = 2_000  # passages that are all compared exactly when a filter leaves no more: some 5 ms
MANY = 1_000  # candidates where it leaves more
CANDIDATES = 200  # compared exactly: `make bench-memory` says how many of the ten nearest are among them


def search(
    db: sqlite3.Connection,
    open_index: "Callable[[], VectorIndex]",
    archives: Sequence[Holding],
    query: str,
    vector: bytes | None,
    within: Filter,
    limit: int,
) -> list[Hit]:
    """`open_index` is called only if there are vectors to compare."""
    limit = min(limit, MAX_HITS)
    stores = [archive for archive in archives if archive.passages]
    if limit <= 0 or not stores:
        return []
    if vector is not None and any(store.embedded for store in stores):
        for store in stores:
            check_question_width(store.archive, vector, store.model)
        index = open_index()
        meaning, words = _by_both(
            db=db, index=index, stores=stores, query=query, question=index.query(vector), within=within, limit=limit
        )
    else:
        meaning = {}
        words = _by_words(db, stores, query, within, limit)
    ranked = rank(meaning, words, limit)
    return hits_of(ranked, meaning, by_number(db, [place.number for place in ranked]))


def _by_words(
    db: sqlite3.Connection, stores: Sequence[Holding], query: str, within: Filter, limit: int
) -> dict[int, WordMatch]:
    wanted = terms(query)
    words = dict[int, WordMatch]()
    for store in stores:
        words |= WordIndex(db, store, within).any(wanted, limit)
    return words


def _by_both(
    db: sqlite3.Connection,
    index: "VectorIndex",
    stores: Sequence[Holding],
    query: str,
    question: "VectorQuery",
    within: Filter,
    limit: int,
) -> tuple[dict[int, float], dict[int, WordMatch]]:
    named_terms = telling(query)
    enough = max(limit, BY_WORDS)
    meaning: dict[int, float] = {}
    words: dict[int, WordMatch] = {}
    for store in stores:
        if store.embedded < store.passages:  # what cannot be compared in meaning must be found by any word it has
            unembedded = WordIndex(db, store, within, unembedded=True).any(terms(query), enough)
            words |= {number: match.only(named_terms) for number, match in unembedded.items()}
        words |= WordIndex(db, store, within).rare(named_terms, enough)
        meaning |= _nearest(db=db, index=index, store=store, question=question, within=within, enough=enough)
    return meaning | index.exact(db, question, [number for number in words if number not in meaning]), words


def _nearest(
    db: sqlite3.Connection, index: "VectorIndex", store: Holding, question: "VectorQuery", within: Filter, enough: int
) -> dict[int, float]:
    count = max(CANDIDATES, 4 * enough)
    if not store.embedded:
        return {}
    if not within:
        similar = index.nearest(db, store, question, count)
    else:
        matching = numbers_within(db, within, store)
        if len(matching) <= EXACT:
            similar = index.exact(db, question, matching)
        else:
            similar = index.nearest(db, store, question, max(count, MANY), matching)
    return dict(nlargest(enough, similar.items(), key=itemgetter(1)))
