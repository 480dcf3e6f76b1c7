"""Searching archives by meaning and by words. How the two are weighed is decided in `ranking`."""

from collections.abc import Sequence

from chargehand.memory.archives import Filter, Hit
from chargehand.memory.passages import check_question_width, unit_vectors
from chargehand.memory.ranking import (
    BY_WORDS,
    MAX_HITS,
    WEIGHED,
    WordMatch,
    hits_of,
    most_holders,
    rank,
    rare_terms,
    searched_terms,
    telling,
    terms,
)
from chargehand.memory.tables import Stored, Tables, WordIndex


async def search(
    tables: Tables[Stored],
    archives: Sequence[Stored],
    query: str,
    vector: bytes | None,
    *,
    within: Filter,
    limit: int,
) -> list[Hit]:
    limit = min(limit, MAX_HITS)
    archives = [archive for archive in archives if archive.passages]
    if limit <= 0 or not archives:
        return []
    meaning: dict[int, float] = {}
    words: dict[int, WordMatch] = {}
    if vector is not None and any(archive.embedded for archive in archives):
        for archive in archives:
            check_question_width(archive.archive, vector, archive.model)
        (question,) = unit_vectors([vector])
        enough = max(limit, BY_WORDS)
        for archive in archives:
            words |= await _by_named_words(tables, archive, query, within, enough)
            if archive.embedded:
                meaning |= await tables.nearest(archive, question, within, enough)
        meaning |= await tables.similarities(question, [number for number in words if number not in meaning])
    else:
        for archive in archives:
            words |= await _any(tables.words(archive, within), terms(query), limit)
    ranked = rank(meaning, words, limit)
    return hits_of(ranked, meaning, await tables.passages.rows(archives, [place.number for place in ranked]))


async def _by_named_words(
    tables: Tables[Stored], archive: Stored, query: str, within: Filter, enough: int
) -> dict[int, WordMatch]:
    """Passages that hold what a question names; and those without a vector that hold any word of it."""
    named_terms = telling(query)
    words: dict[int, WordMatch] = {}
    if archive.embedded < archive.passages:
        unembedded = await _any(tables.words(archive, within, unembedded=True), terms(query), enough)
        words = {number: match.only(named_terms) for number, match in unembedded.items()}
    return words | await _rare(tables.words(archive, within), archive.passages, named_terms, enough)


async def _rare(index: WordIndex, passages: int, words: Sequence[str], limit: int) -> dict[int, WordMatch]:
    """Passages with any of these terms, but for terms that many passages have."""
    counted = await index.count(words[:WEIGHED], most_holders(passages) + 1)
    chosen = rare_terms(counted, passages)
    return await index.find(chosen, limit) if chosen else {}


async def _any(index: WordIndex, words: Sequence[str], limit: int) -> dict[int, WordMatch]:
    """Passages with any of these terms, the rarest first; common ones only if the others find too little."""
    chosen, cheap = searched_terms(await index.count(words[:WEIGHED], index.budget + 1), index.budget)
    if not chosen:
        return {}
    matches = await (index.find(cheap, limit) if cheap else index.find(chosen, limit, together=True))
    if len(matches) < limit and len(cheap) < len(chosen):
        matches |= await index.find(chosen, limit)
    return matches
