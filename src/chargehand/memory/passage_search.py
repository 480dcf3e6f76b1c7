"""Searching archives by meaning and by words. How the two are weighed is decided in `memory.ranking`."""

import sqlite3
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter

from chargehand.memory.archives import Archive, Filter, Hit
from chargehand.memory.passage_rows import Holding, by_number, holding, numbers_within
from chargehand.memory.ranking import fused, telling
from chargehand.memory.sqlite_words import Match, Words, terms
from chargehand.memory.vectors import CANDIDATES, Asked, VectorIndex, check_width

MOST = 1_000  # hits of one search
EXACT = 2_000  # passages that are all compared exactly when a filter leaves no more: some 5 ms
MANY = 1_000  # candidates where it leaves more
BY_WORDS = 50  # matches that are weighed against meaning, or as many as are asked for


def search(
    db: sqlite3.Connection,
    index: VectorIndex,
    space: str,
    archives: Sequence[Archive],
    query: str,
    vector: bytes | None,
    within: Filter,
    limit: int,
) -> list[Hit]:
    limit = min(limit, MOST)
    found = [kept for one in archives if (kept := holding(db, space, one.id)) is not None and kept.passages]
    if limit <= 0 or not found:
        return []
    if vector is not None and any(kept.dressed for kept in found):
        for kept in found:
            check_width(kept, vector)
        meaning, words = _by_both(
            db=db, index=index, found=found, query=query, asked=index.asked(vector), within=within, limit=limit
        )
    else:
        meaning = {}
        words = _by_words(db, found, query, within, limit)
    return _hits(db, meaning, words, limit)


def _by_words(
    db: sqlite3.Connection, found: Sequence[Holding], query: str, within: Filter, limit: int
) -> dict[int, Match]:
    asked = terms(query)
    words = dict[int, Match]()
    for kept in found:
        words |= Words(db, kept, within).any(asked, limit)
    return words


def _by_both(
    db: sqlite3.Connection,
    index: VectorIndex,
    found: Sequence[Holding],
    query: str,
    asked: Asked,
    within: Filter,
    limit: int,
) -> tuple[dict[int, float], dict[int, Match]]:
    named = telling(query)
    enough = max(limit, BY_WORDS)
    meaning: dict[int, float] = {}
    words: dict[int, Match] = {}
    for kept in found:
        if kept.dressed < kept.passages:  # what cannot be compared in meaning must be found by any word it has
            bare = Words(db, kept, within, bare=True).any(terms(query), enough)
            words |= {n: Match(one.score, tuple(t for t in one.terms if t in named)) for n, one in bare.items()}
        words |= Words(db, kept, within).rare(named, enough)
        meaning |= _nearest(db=db, index=index, kept=kept, asked=asked, within=within, enough=enough)
    return meaning | index.exact(db, asked, [number for number in words if number not in meaning]), words


def _nearest(
    db: sqlite3.Connection, index: VectorIndex, kept: Holding, asked: Asked, within: Filter, enough: int
) -> dict[int, float]:
    count = max(CANDIDATES, 4 * enough)
    if not kept.dressed:
        return {}
    if not within:
        found = index.nearest(db, kept, asked, count)
    else:
        matching = numbers_within(db, within, kept)
        if len(matching) <= EXACT:
            found = index.exact(db, asked, matching)
        else:
            found = index.nearest(db, kept, asked, max(count, MANY), matching)
    return dict(nlargest(enough, found.items(), key=itemgetter(1)))


def _hits(db: sqlite3.Connection, meaning: dict[int, float], words: dict[int, Match], limit: int) -> list[Hit]:
    best = max((one.score for one in words.values()), default=0.0) or 1.0
    shares = {number: (max(0.0, one.score / best), one.terms) for number, one in words.items()}
    ranked = fused(meaning, shares)[:limit]
    passages = by_number(db, [number for number, _, _ in ranked])
    hits: list[Hit] = []
    for number, score, why in ranked:
        if number in passages:
            alike = meaning.get(number)
            by_words = score - (alike or 0.0)
            hits.append(Hit(passage=passages[number], score=score, meaning=alike, words=by_words, why=why))
    return hits
