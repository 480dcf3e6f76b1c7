"""What archives in PostgreSQL are searched by: their words, and their vectors with an index of them.

No text of a user is ever read as query syntax of the word index.
"""

from collections.abc import Sequence
from math import log

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.memory.archives import Filter
from chargehand.memory.postgres_passages import PostgresArchive, Scope, floats, scope_of, searchable
from chargehand.memory.ranking import TermCount, WordMatch
from chargehand.postgres.client_thread import client_thread
from chargehand.postgres.database import PostgresDatabase
from chargehand.postgres.driver import Connection
from chargehand.store_url import PostgresUrl

BUDGET = 1_000
"""Passages whose match by words is scored: some five microseconds each."""
EXACT = 10_000
"""Vectors that are all compared, in some 6 ms; of more, the index says which are the nearest."""
_LEAST_SHARE = 20
"""A filter that leaves less than one passage in so many is answered exactly: the index would visit too many."""
INDEXED_WIDTH = 2_000
"""Dimensions that the index has room for. Wider vectors are all compared."""
_COUNT = """
    SELECT query::text, CASE WHEN numnode(query) = 0 THEN 0 ELSE (
        SELECT count(*) FROM (SELECT FROM passage_words WHERE words @@ ($1::text::tsquery && query) LIMIT $3) AS held
    ) END
    FROM (
        SELECT phraseto_tsquery('chargehand.words', term) AS query, place
        FROM unnest($2::text[]) WITH ORDINALITY AS asked (term, place)
    ) AS parsed
    ORDER BY place
"""
_FIND = """
    WITH candidates AS MATERIALIZED (
        SELECT passage, words FROM passage_words WHERE {tests} {bare} ORDER BY passage DESC LIMIT $7
    )
    SELECT passage, sum(weight * term_rank(words, query)) AS score, array_agg(place)
    FROM candidates JOIN (
        SELECT query::tsquery, weight, place
        FROM unnest($4::text[], $5::float8[]) WITH ORDINALITY AS asked (query, weight, place)
    ) AS terms ON words @@ query
    GROUP BY passage ORDER BY score DESC, passage LIMIT $6
"""
_WITHOUT_VECTOR = "AND NOT EXISTS (SELECT FROM passage_vectors WHERE passage_vectors.passage = passage_words.passage)"
_SIMILARITY = "SELECT passage, 1 - (vec <=> $1::real[]::vector) FROM passage_vectors WHERE passage = ANY($2)"
_COUNT_WITHIN = "SELECT count(*) FROM (SELECT FROM passage_words WHERE {tests} LIMIT $4) AS passing"
_NEAREST = """
    SELECT passage_vectors.passage, 1 - (vec <=> $1::real[]::vector) FROM passage_vectors {filter}
    WHERE passage_vectors.archive = $2 ORDER BY vec <=> $1::real[]::vector LIMIT $3
"""
_NEAREST_INDEXED = """
    SELECT passage_vectors.passage, 1 - (vec::vector({width}) <=> $1::real[]::vector({width}))
    FROM passage_vectors WHERE passage_vectors.archive = $2 AND width = {width} {filter}
    ORDER BY vec::vector({width}) <=> $1::real[]::vector({width}) LIMIT $3
"""
_JOINED = "JOIN passage_words ON passage_words.passage = passage_vectors.passage AND {tests}"
# a value for each row, not a join: the planner would rather join, and sort what is left of the archive
_LOOKED_UP = "AND (SELECT {tests} FROM passage_words WHERE passage_words.passage = passage_vectors.passage)"
_HAS_INDEX = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"


# --- by words


class _Term(Struct, frozen=True):
    """A term as a query of the word index, weighted by its rarity."""

    query: str
    weight: float


class PostgresWordIndex:
    """The words of one archive, within a filter; `unembedded`: only of passages without vectors."""

    budget = BUDGET

    def __init__(self, db: Connection, store: PostgresArchive, within: Filter, *, unembedded: bool = False) -> None:
        self._db = db
        self._store = store
        self._scope = scope_of(store.number, within)
        self._without_vector = _WITHOUT_VECTOR if unembedded else ""
        self._terms: dict[str, _Term] = {}

    async def count(self, terms: Sequence[str], most: int) -> list[TermCount]:
        if not terms:
            return []
        whole = scope_of(self._store.number)
        rows = await self._db.fetch(_COUNT, whole.words, [searchable(term) for term in terms], most)
        counted: list[TermCount] = []
        for term, (query, count) in zip(terms, rows, strict=True):
            self._terms[term] = _Term(query, log(1 + (self._store.passages + 0.5) / (count + 0.5)))
            counted.append(TermCount(term, count))
        return counted

    async def find(self, terms: Sequence[str], limit: int, *, together: bool = False) -> dict[int, WordMatch]:
        chosen_terms = [self._terms[term] for term in terms]
        queries = [term.query for term in chosen_terms]
        joint = " & " if together else " | "
        words = f"{self._scope.words} & ({joint.join(f'({query})' for query in queries)})"
        scope = Scope(words, self._scope.start, self._scope.end)
        weights = [term.weight for term in chosen_terms]
        statement = _FIND.format(tests=scope.tests(1), bare=self._without_vector)
        rows = await self._db.fetch(statement, *scope.values, queries, weights, limit, BUDGET)
        matches: dict[int, WordMatch] = {}
        for number, score, places in rows:
            matched = tuple(term for place, term in enumerate(terms, 1) if place in places)
            matches[number] = WordMatch(score, matched)
        return matches


# --- by meaning


async def similarities(db: Connection, vector: bytes, numbers: Sequence[int]) -> dict[int, float]:
    """The similarity of each of these passages; those without a vector are left out."""
    if not numbers:
        return {}
    rows = await db.fetch(_SIMILARITY, floats(vector), numbers)
    return {number: alike for number, alike in rows}  # noqa: C416 - a row is no pair


async def nearest(
    db: Connection, store: PostgresArchive, vector: bytes, within: Filter, count: int
) -> dict[int, float]:
    """The nearest passages and how alike they are.

    How far the index looks is a setting of every connection (`hnsw.ef_search`, `hnsw.iterative_scan`).
    """
    scope = scope_of(store.number, within)
    tests = scope.tests(4)
    values = (floats(vector), store.number, count, *(scope.values if within else ()))
    rows = []
    if await _is_indexed(db, store, scope if within else None):
        looked_up = _LOOKED_UP.format(tests=tests) if within else ""
        rows = await db.fetch(_NEAREST_INDEXED.format(width=store.width, filter=looked_up), *values)
    if len(rows) < count:  # the index stops looking where few vectors are of this archive
        joined = _JOINED.format(tests=tests) if within else ""
        rows = await db.fetch(_NEAREST.format(filter=joined), *values)
    return {number: alike for number, alike in rows}  # noqa: C416 - as above


async def _is_indexed(db: Connection, store: PostgresArchive, scope: Scope | None) -> bool:
    """Whether the index is used: it exists, and there are too many vectors to compare them all."""
    if store.embedded <= EXACT or store.width > INDEXED_WIDTH or not await _has_index(db, store.width):
        return False
    if scope is None:
        return True
    few = min(EXACT, store.embedded // _LEAST_SHARE)
    return await db.fetchval(_COUNT_WITHIN.format(tests=scope.tests(1)), *scope.values, few + 1) > few


# --- the index of vectors


_INDEX_LOCK = 0x43686749
_BUILD_TIMEOUT: Seconds = 6 * 3600.0
"""How long an index may take to build: some 15 s for 30,000 vectors of 384 dimensions."""
_INDEX = """
    CREATE INDEX CONCURRENTLY {name} ON passage_vectors USING hnsw ((vec::vector({width})) vector_cosine_ops)
    WHERE width = {width}
"""
_INDEXES: set[tuple[PostgresUrl, int]] = set()
"""Databases and widths whose index is there, or is being built by this process."""


def build_index_later(database: PostgresDatabase, store: PostgresArchive) -> None:
    """Build the index in the background, once an archive is too large to compare all its vectors.

    Until it is there, all vectors are compared. One process builds it, and no write waits for it.
    """
    index_key = (database.url, store.width)
    if store.embedded > EXACT and store.width <= INDEXED_WIDTH and index_key not in _INDEXES:
        _INDEXES.add(index_key)
        client_thread().spawn(_build_index(database, store.width))


async def _build_index(database: PostgresDatabase, width: int) -> None:
    connection = await database.connect()
    try:
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1, $2)", _INDEX_LOCK, width):
            _INDEXES.discard((database.url, width))  # another process builds it, and may die before it is done
            return
        if await _has_index(connection, width):
            return
        await connection.execute("SET maintenance_work_mem = '256MB'")
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {_index_name(width)}")
        statement = _INDEX.format(name=_index_name(width), width=width)
        await connection.execute(statement, timeout=_BUILD_TIMEOUT)
    except BaseException:
        _INDEXES.discard((database.url, width))  # with the next insertion it is tried again
        raise
    finally:
        connection.terminate()


def _index_name(width: int) -> str:
    return f"passage_vectors_{width}"


async def _has_index(db: Connection, width: int) -> bool:
    """Whether the index of a width is there, and finished."""
    return bool(await db.fetchval(_HAS_INDEX, f"chargehand.{_index_name(width)}"))
