"""Passages of archives in PostgreSQL: rows, filters, inserting, listing, deleting; not searching."""

import struct
import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.memory.archives import EVERYTHING, Filter, Passage
from chargehand.memory.catalog import Order, PassageRecord
from chargehand.memory.passages import (
    ExistingPassage,
    NewPassage,
    VectorModel,
    decode_metadata,
    decode_passage_origin,
    read_as_passage,
    unknown_cursor,
    worker_of,
)
from chargehand.memory.tables import MAX_NUMBER, ArchiveRow
from chargehand.memory.things import key_digest
from chargehand.postgres.driver import Connection, Row
from chargehand.text.words import WORD

MAX_DIMENSIONS = 16_000  # dimensions that the type `vector` has room for
_MAX_INDEXED = 500_000  # characters of a passage that are found by words
_VECTORS_LOCK = 0x43686776

_ARCHIVES = """
    SELECT id, body, number, coalesce(handle, ''), coalesce(width, 0), coalesce(passages, 0), coalesce(embedded, 0)
    FROM things LEFT JOIN holdings ON holdings.archive = things.number
    WHERE things.tenant = current_tenant() AND space = $1 AND kind = 'archive' AND id = ANY($2)
"""
_ADD_COUNTS = """
    INSERT INTO holdings (archive, passages, embedded) VALUES ($1, $2, $3) ON CONFLICT (archive)
    DO UPDATE SET passages = holdings.passages + excluded.passages, embedded = holdings.embedded + excluded.embedded
"""
_SELECT = """
    SELECT passages.number, things.id, passages.id, text, passages.tags, metadata, origin, created, document, part
    FROM passages JOIN things ON things.number = passages.archive
"""
_LIST = f"{_SELECT} WHERE archive = $1 AND passages.number > $2 AND passages.number < $3"
_WITHIN = " AND passages.number IN (SELECT passage FROM passage_words WHERE {tests})"
_EXISTING = """
    SELECT passages.number, passages.id, things.id, digest, key, part, passages.tags
    FROM passages JOIN things ON things.number = passages.archive
    WHERE (archive = $1 AND (digest = ANY($2) OR key = ANY($3)))
    OR (passages.tenant = current_tenant() AND passages.space = $4 AND passages.id = ANY($5))
"""
_INSERT = """
    WITH kept AS (
        INSERT INTO passages (archive, space, id, text, digest, tags, metadata, origin, created, document, part, key)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING number, created
    )
    INSERT INTO passage_words (passage, created, words)
    SELECT number, created, to_tsvector('chargehand.words', $13) || array_to_tsvector($14::text[]) FROM kept
"""
_TAG = "UPDATE passages SET tags = tags || $2 WHERE number = $1"
_TAG_WORDS = "UPDATE passage_words SET words = words || array_to_tsvector($2::text[]) WHERE passage = $1"
_HAS_VECTORS = "SELECT to_regclass('chargehand.passage_vectors') IS NOT NULL"
_HAS_EXTENSION = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')"
_VECTORS = """
    CREATE TABLE IF NOT EXISTS passage_vectors (
        passage bigint PRIMARY KEY REFERENCES passages ON DELETE CASCADE,
        archive bigint NOT NULL,
        width int NOT NULL,
        vec vector NOT NULL
    );
    CREATE INDEX IF NOT EXISTS passage_vectors_by_archive ON passage_vectors (archive)
"""
_WITHOUT_VECTOR = " AND NOT EXISTS (SELECT FROM passage_vectors WHERE passage_vectors.passage = passages.number)"
_UNEMBEDDED = """
    SELECT id, number FROM passages WHERE archive = $1 AND id = ANY($2)
    AND NOT EXISTS (SELECT FROM passage_vectors WHERE passage_vectors.passage = passages.number)
"""
_EMBED = "INSERT INTO passage_vectors (passage, archive, width, vec) VALUES ($1, $2, $3, $4::real[]::vector)"
_MODEL = "UPDATE holdings SET handle = $2, width = $3 WHERE archive = $1"
_FORGET = "DELETE FROM passages WHERE archive = $1 AND id = ANY($2) RETURNING number"
_COUNT_VECTORS = """
    SELECT count(*) FROM passages JOIN passage_vectors ON passage_vectors.passage = passages.number
    WHERE passages.archive = $1 AND passages.id = ANY($2)
"""
_NUMBERS_AFTER = "SELECT number FROM passages WHERE archive = $1 AND number > $2 ORDER BY number LIMIT $3"
_VECTORS_OF = "SELECT passage, vec::real[] FROM passage_vectors WHERE passage = ANY($1)"


class PostgresArchive(Struct, frozen=True):
    """The row of an archive: its number, the model of its vectors, and how many passages and vectors it has."""

    archive: str
    number: int
    handle: str
    width: int
    passages: int
    embedded: int

    @property
    def model(self) -> VectorModel | None:
        """The embedding model of its vectors; None while it has none."""
        return VectorModel(self.handle, self.width) if self.embedded else None


def is_storable(text: str) -> bool:
    """Whether a text can be an id or a name here: PostgreSQL keeps no NUL character."""
    return "\0" not in text


# --- words, and filters as words


def searchable(text: str) -> str:
    """The words of a text without accents, signs and capitals, so that its spelling does not matter."""
    plain = unicodedata.normalize("NFKD", text.encode(errors="ignore").decode()).casefold()
    letters = "".join(sign for sign in plain if not unicodedata.combining(sign))
    return " ".join(WORD.findall(letters))


def _mark(kind: str, text: str) -> str:
    """A filter value as a word of the index. It starts with `#`, which `searchable` removes from texts."""
    return f"#{kind}{blake2b(text.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def _marks(passage: Passage) -> dict[str, str]:
    """The values of a passage that filters compare, by kind."""
    origin = passage.origin
    texts = {"source": origin.source, "run": origin.run, "task": origin.task, "worker": worker_of(origin)}
    return {kind: text for kind, text in texts.items() if text}


def _all_marks(archive: int, passage: Passage) -> list[str]:
    origin_marks = [_mark(kind, text) for kind, text in _marks(passage).items()]
    return [f"#{archive}", *origin_marks, *(_mark("tag", tag) for tag in passage.tags)]


class Scope(Struct, frozen=True):
    """A filter on one archive: a query to the word index, and the first and last time of creation."""

    words: str
    start: float
    end: float

    def tests(self, first: int) -> str:
        """Conditions on a row of `passage_words`; `first` is the number of the first parameter."""
        return f"words @@ ${first}::text::tsquery AND passage_words.created BETWEEN ${first + 1} AND ${first + 2}"

    @property
    def values(self) -> tuple[str, float, float]:
        return self.words, self.start, self.end


def scope_of(archive: int, within: Filter = EVERYTHING) -> Scope:
    wanted = {"source": within.source, "run": within.run, "task": within.task, "worker": within.worker}
    parts = [f"'#{archive}'", *(f"'{_mark(kind, text)}'" for kind, text in wanted.items() if text)]
    tags = [f"'{_mark('tag', tag)}'" for tag in dict.fromkeys(within.tags)]
    if tags:
        parts.append(f"({(' & ' if within.tag_match == 'all' else ' | ').join(tags)})")
    start = -inf if within.start is None else within.start
    return Scope(" & ".join(parts), start, inf if within.end is None else within.end)


# --- the table


class PostgresPassages:
    def __init__(self, db: Connection, space: str) -> None:
        self._db = db
        self._space = space
        self.embedded: list[PostgresArchive] = []
        """Archives that got vectors in this transaction."""

    async def archives(self, ids: Sequence[str]) -> dict[str, ArchiveRow[PostgresArchive]]:
        rows = await self._db.fetch(_ARCHIVES, self._space, [which for which in ids if is_storable(which)])
        return {which: (number, body, PostgresArchive(which, number, *counts)) for which, body, number, *counts in rows}

    # --- inserting

    async def existing(
        self, stored: PostgresArchive, digests: Sequence[bytes], keys: Sequence[tuple[str, int]], ids: Sequence[str]
    ) -> list[ExistingPassage]:
        key_digests = [key_digest(key) for key, _ in keys]
        rows = await self._db.fetch(_EXISTING, stored.number, digests, key_digests, self._space, ids)
        return [ExistingPassage(*row) for row in rows]

    async def add(self, stored: PostgresArchive, passages: Sequence[NewPassage], now: Instant) -> PostgresArchive:
        await self._db.executemany(_INSERT, [self._row(stored, new, now) for new in passages])
        await self._db.execute(_ADD_COUNTS, stored.number, len(passages), 0)
        return stored

    def _row(self, stored: PostgresArchive, new: NewPassage, now: Instant) -> tuple[object, ...]:
        passage = new.passage
        return (
            stored.number,
            self._space,
            passage.id,
            passage.text,
            new.digest,
            passage.tags,
            bytes(encode_value(passage.metadata)).decode(),
            bytes(encode_value(passage.origin)).decode(),
            passage.created or now,
            passage.document,
            passage.part,
            key_digest(passage.origin.key) if passage.origin.key else None,
            searchable(passage.text[:_MAX_INDEXED]),
            _all_marks(stored.number, passage),
        )

    async def add_tags(self, passage: ExistingPassage, tags: Sequence[str]) -> None:
        await self._db.execute(_TAG, passage.number, tags)
        await self._db.execute(_TAG_WORDS, passage.number, [_mark("tag", tag) for tag in tags])

    async def add_vectors(self, stored: PostgresArchive, vectors: Mapping[str, bytes], handle: str) -> int:
        width = len(next(iter(vectors.values()))) // 4
        if width > MAX_DIMENSIONS:
            raise Invalid(
                f"vectors of {width} dimensions; PostgreSQL keeps at most {MAX_DIMENSIONS}: use another embedding model"
            )
        await _prepare_vectors(self._db)
        rows = await self._db.fetch(_UNEMBEDDED, stored.number, [which for which in vectors if is_storable(which)])
        embeddings = [(number, stored.number, width, floats(vectors[which])) for which, number in rows]
        await self._db.executemany(_EMBED, embeddings)
        await self._db.execute(_ADD_COUNTS, stored.number, 0, len(rows))
        await self._db.execute(_MODEL, stored.number, handle, width)
        self.embedded.append(replace(stored, width=width, embedded=stored.embedded + len(rows)))
        return len(rows)

    # --- reading

    async def listed(
        self, stored: PostgresArchive, within: Filter, after: str, limit: int, order: Order
    ) -> list[Passage]:
        low = 0
        high = MAX_NUMBER
        if after:
            place = "SELECT number FROM passages WHERE archive = $1 AND id = $2"
            passed = await self._db.fetchval(place, stored.number, after) if is_storable(after) else None
            if passed is None:
                raise unknown_cursor(after, stored.archive)
            low, high = (passed, high) if order == "asc" else (low, passed)
        scope = scope_of(stored.number, within)
        tests = _WITHIN.format(tests=scope.tests(5)) if within else ""
        filter_values = scope.values if within else ()
        direction = "ASC" if order == "asc" else "DESC"
        question = f"{_LIST}{tests} ORDER BY passages.number {direction} LIMIT $4"
        rows = await self._db.fetch(question, stored.number, low, high, limit, *filter_values)
        return [_read(row)[1] for row in rows]

    async def get(self, which: str) -> Passage | None:
        if not is_storable(which):
            return None
        question = f"{_SELECT} WHERE passages.tenant = current_tenant() AND passages.space = $1 AND passages.id = $2"
        row = await self._db.fetchrow(question, self._space, which)
        return None if row is None else _read(row)[1]

    async def rows(self, archives: Sequence[PostgresArchive], numbers: Sequence[int]) -> dict[int, Passage]:
        question = f"{_SELECT} WHERE passages.number = ANY($1) AND archive = ANY($2)"
        rows = await self._db.fetch(question, numbers, [archive.number for archive in archives])
        return dict(_read(row) for row in rows)

    async def unembedded(self, stored: PostgresArchive, limit: int) -> list[Passage]:
        if stored.passages == stored.embedded:
            return []
        bare = _WITHOUT_VECTOR if stored.embedded else ""
        question = f"{_LIST}{bare} ORDER BY passages.number LIMIT $4"
        rows = await self._db.fetch(question, stored.number, 0, MAX_NUMBER, limit)
        return [_read(row)[1] for row in rows]

    async def records(self, stored: PostgresArchive, after: int, limit: int) -> list[tuple[int, PassageRecord]]:
        db = self._db
        numbers = [row[0] for row in await db.fetch(_NUMBERS_AFTER, stored.number, after, limit)]
        vectors = {row[0]: row[1] for row in await db.fetch(_VECTORS_OF, numbers)} if stored.embedded else {}
        passages = await self.rows([stored], numbers)
        records: list[tuple[int, PassageRecord]] = []
        for number in numbers:
            if number in vectors:
                packed = struct.pack(f"<{len(vectors[number])}f", *vectors[number])
                records.append((number, PassageRecord(passages[number], packed, stored.handle)))
            else:
                records.append((number, PassageRecord(passages[number])))
        return records

    # --- deleting

    async def delete(self, stored: PostgresArchive, ids: Sequence[str]) -> int:
        storable_ids = [which for which in dict.fromkeys(ids) if is_storable(which)]
        embedded = await self._db.fetchval(_COUNT_VECTORS, stored.number, storable_ids) if stored.embedded else 0
        removed = len(await self._db.fetch(_FORGET, stored.number, storable_ids))
        await self._db.execute(_ADD_COUNTS, stored.number, -removed, -embedded)
        return removed


def floats(vector: bytes) -> tuple[float, ...]:
    """The numbers of a vector."""
    return struct.unpack(f"<{len(vector) // 4}f", vector)


async def _prepare_vectors(db: Connection) -> None:
    """Create the table of vectors if it is missing. It needs an extension, so it is created with the first vector."""
    if await db.fetchval(_HAS_VECTORS):
        return
    if not await db.fetchval(_HAS_EXTENSION):
        raise StoreUnavailable(
            "the database has no extension `vector`, which archives with vectors need; have an administrator install "
            "pgvector and run CREATE EXTENSION vector in it, or give the archive the embedding `words`"
        )
    await db.execute("SELECT pg_advisory_xact_lock($1)", _VECTORS_LOCK)
    await db.execute(_VECTORS)


def _read(row: Row) -> tuple[int, Passage]:
    number, archive, which, text, tags, metadata, origin, created, document, part = row
    with read_as_passage(which):
        return number, Passage(
            text=text,
            tags=tuple(tags),
            metadata=decode_metadata(metadata),
            origin=decode_passage_origin(origin),
            created=created,
            id=which,
            archive=archive,
            document=document,
            part=part,
        )
