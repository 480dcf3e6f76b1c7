"""What archives in SQLite are searched by: their words, and the signs of their vectors.

No text of a user is ever read as query syntax of the word index.
"""

import re
import sqlite3
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from chargehand.memory.archives import Filter
from chargehand.memory.ranking import BUDGET, TermCount, WordMatch
from chargehand.memory.sqlite_passages import (
    Holding,
    Value,
    conditions,
    listed,
    numbers_within,
)

if TYPE_CHECKING:
    from chargehand.memory.vector_index import VectorIndex

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


class SqliteWordIndex:
    """The words of one archive, within a filter; `unembedded`: only of passages without vectors."""

    budget = BUDGET

    def __init__(self, db: sqlite3.Connection, stored: Holding, within: Filter, *, unembedded: bool = False) -> None:
        self._db = db
        self._stored = stored
        tests, self._values = conditions(within)
        self._where = (_WITHIN.format(tests=tests) if tests else "") + (_BARE if unembedded else "")

    async def count(self, terms: Sequence[str], most: int) -> list[TermCount]:
        return [TermCount(term, self._count(term, most)) for term in terms]

    def _count(self, term: str, most: int) -> int:
        return self._db.execute(_COUNT, (_quoted(term), self._stored.first, self._stored.final, most)).fetchone()[0]

    async def find(self, terms: Sequence[str], limit: int, *, together: bool = False) -> dict[int, WordMatch]:
        expression = (" AND " if together else " OR ").join(map(_quoted, terms))
        bounds: list[Value] = [expression, self._stored.first, self._stored.final, *self._values]
        earliest = self._db.execute(_EARLIEST.format(where=self._where), [*bounds, BUDGET]).fetchone()
        if earliest is not None:  # more than can be ranked: the newest must do
            bounds[1] = earliest[0]
        ranked = self._db.execute(_RANKED.format(where=self._where), [*bounds, limit]).fetchall()
        matched: dict[int, list[str]] = {number: [] for number, _ in ranked}
        for term in terms if matched else ():
            for (number,) in self._db.execute(_HOLDING, (_quoted(term), min(matched), max(matched), listed(matched))):
                matched[number].append(term)
        return {number: WordMatch(score, tuple(matched[number])) for number, score in ranked}


def _quoted(term: str) -> str:
    """As a string of the query language, in which nothing but a quotation mark means anything."""
    plain = _CONTROL.sub(" ", term.encode(errors="ignore").decode())
    return '"' + plain.replace('"', '""') + '"'


EXACT = 2_000  # passages that are all compared exactly when a filter leaves no more: some 5 ms
MANY = 1_000  # candidates where it leaves more
CANDIDATES = 200  # compared exactly: `make bench-memory` says how many of the ten nearest are among them


def nearest(
    db: sqlite3.Connection, index: "VectorIndex", stored: Holding, vector: bytes, *, within: Filter, count: int
) -> dict[int, float]:
    """The nearest passages of an archive and how alike they are."""
    question = index.query(vector)
    candidates = max(CANDIDATES, 4 * count)
    if not within:
        similar = index.nearest(db, stored, question, candidates)
    else:
        matching = numbers_within(db, within, stored)
        if len(matching) <= EXACT:
            similar = index.exact(db, vector, matching)
        else:
            similar = index.nearest(db, stored, question, max(candidates, MANY), matching)
    return dict(nlargest(count, similar.items(), key=itemgetter(1)))
