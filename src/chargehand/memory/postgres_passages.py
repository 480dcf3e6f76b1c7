"""Passages of archives in PostgreSQL: rows, filters, inserting, listing, deleting; not searching."""

import struct
import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import inf
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.memory.archives import EVERYTHING, Filter, Inserted, Passage
from chargehand.memory.catalog import Order, PassageRecord
from chargehand.memory.passages import (
    VectorModel,
    decode_metadata,
    decode_passage_origin,
    passage_digest,
    read_as_passage,
    taken_passage,
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
    SELECT number, id, digest, key, part, archive, tags FROM passages
    WHERE (archive = $1 AND (digest = ANY($2) OR key = ANY($3)))
    OR (tenant = current_tenant() AND space = $4 AND id = ANY($5))
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


class StoredArchive(Struct, frozen=True):
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


def _all_marks(archive: int, passage: Passage, tags: Sequence[str]) -> list[str]:
    origin_marks = [_mark(kind, text) for kind, text in _marks(passage).items()]
    return [f"#{archive}", *origin_marks, *(_mark("tag", tag) for tag in tags)]


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


# --- inserting


class InsertBatch:
    """Passages to insert, compared with those that the archive already has."""

    def __init__(self, store: StoredArchive, space: str, now: Instant) -> None:
        self.store = store
        self._space = space
        self._now = now
        self._by_key: dict[tuple[bytes, int], str] = {}
        self._by_digest: dict[bytes, str] = {}
        self._taken: set[str] = set()
        self._tags: dict[str, tuple[int, list[str]]] = {}
        """The number and the tags of each existing passage, by id."""
        self._joined: dict[str, list[str]] = {}
        self._rows: dict[str, Passage] = {}

    async def load(self, db: Connection, passages: Sequence[Passage]) -> None:
        """Read the existing passages with the same text, key or id."""
        digests = [passage_digest(passage.text) for passage in passages]
        keys = [key_digest(passage.origin.key) for passage in passages if passage.origin.key]
        ids = [passage.id for passage in passages if passage.id]
        rows = await db.fetch(_EXISTING, self.store.number, digests, keys, self._space, ids)
        for number, which, digest, key, part, archive, tags in rows:
            self._taken.add(which)
            if archive == self.store.number:
                self._by_digest[digest] = which
                self._tags[which] = (number, list(tags))
                if key is not None:
                    self._by_key[key, part] = which

    def add(self, passage: Passage) -> tuple[Inserted, bool]:
        """The outcome for a passage, and whether its key was used before: then nothing changes."""
        key = (key_digest(passage.origin.key), passage.part) if passage.origin.key else None
        if key is not None and key in self._by_key:
            return Inserted(self._by_key[key], new=False), True
        digest = passage_digest(passage.text)
        if digest in self._by_digest:
            self._join(self._by_digest[digest], passage.tags)
            return Inserted(self._by_digest[digest], new=False), False
        if passage.id in self._taken:
            raise taken_passage(passage.id)
        which = passage.id or f"passage-{uuid4()}"
        self._taken.add(which)
        self._by_digest[digest] = which
        if key is not None:
            self._by_key[key] = which
        self._rows[which] = passage
        self._joined[which] = list(dict.fromkeys(passage.tags))
        return Inserted(which, new=True), False

    def _join(self, which: str, tags: Sequence[str]) -> None:
        stored_tags = self._tags[which][1] if which in self._tags else list[str]()
        joined = self._joined.setdefault(which, [])
        joined += [tag for tag in dict.fromkeys(tags) if tag not in stored_tags and tag not in joined]

    async def write(self, db: Connection) -> int:
        """Write the new passages and the added tags; how many passages are new."""
        await db.executemany(_INSERT, [self._row(which, passage) for which, passage in self._rows.items()])
        for which, (number, _) in self._tags.items():
            tags = self._joined.get(which)
            if tags:
                await db.execute(_TAG, number, tags)
                await db.execute(_TAG_WORDS, number, [_mark("tag", tag) for tag in tags])
        return len(self._rows)

    def _row(self, which: str, passage: Passage) -> tuple[object, ...]:
        tags = self._joined[which]
        return (
            self.store.number,
            self._space,
            which,
            passage.text,
            passage_digest(passage.text),
            tags,
            bytes(encode_value(passage.metadata)).decode(),
            bytes(encode_value(passage.origin)).decode(),
            passage.created or self._now,
            passage.document,
            passage.part,
            key_digest(passage.origin.key) if passage.origin.key else None,
            searchable(passage.text[:_MAX_INDEXED]),
            _all_marks(self.store.number, passage, tags),
        )


class PostgresPassages:
    def __init__(self, db: Connection, space: str) -> None:
        self._db = db
        self._space = space
        self.embedded: list[StoredArchive] = []
        """Archives that got vectors in this transaction."""

    async def archives(self, ids: Sequence[str]) -> dict[str, ArchiveRow[StoredArchive]]:
        rows = await self._db.fetch(_ARCHIVES, self._space, [which for which in ids if is_storable(which)])
        return {which: (number, body, StoredArchive(which, number, *counts)) for which, body, number, *counts in rows}

    # --- inserting

    async def add(
        self,
        stored: StoredArchive,
        passages: Sequence[Passage],
        vectors: Mapping[int, bytes],
        handle: str,
        now: Instant,
    ) -> list[Inserted]:
        batch = InsertBatch(stored, self._space, now)
        await batch.load(self._db, passages)
        inserted: list[Inserted] = []
        embedded: dict[str, int] = {}
        """The index of the vector of each passage, by id. An existing passage may still lack its vector."""
        for at, passage in enumerate(passages):
            outcome, is_repeated = batch.add(passage)
            inserted.append(outcome)
            if not is_repeated:
                embedded.setdefault(outcome.id, at)
        await self._db.execute(_ADD_COUNTS, stored.number, await batch.write(self._db), 0)
        await self.add_vectors(stored, {which: vectors[at] for which, at in embedded.items() if at in vectors}, handle)
        return inserted

    async def add_vectors(self, stored: StoredArchive, vectors: Mapping[str, bytes], handle: str) -> int:
        if not vectors:
            return 0
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
        self, stored: StoredArchive, within: Filter, after: str, limit: int, order: Order
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

    async def rows(self, archives: Sequence[StoredArchive], numbers: Sequence[int]) -> dict[int, Passage]:
        question = f"{_SELECT} WHERE passages.number = ANY($1) AND archive = ANY($2)"
        rows = await self._db.fetch(question, numbers, [archive.number for archive in archives])
        return dict(_read(row) for row in rows)

    async def unembedded(self, stored: StoredArchive, limit: int) -> list[Passage]:
        if stored.passages == stored.embedded:
            return []
        bare = _WITHOUT_VECTOR if stored.embedded else ""
        question = f"{_LIST}{bare} ORDER BY passages.number LIMIT $4"
        rows = await self._db.fetch(question, stored.number, 0, MAX_NUMBER, limit)
        return [_read(row)[1] for row in rows]

    async def records(self, stored: StoredArchive, after: int, limit: int) -> list[tuple[int, PassageRecord]]:
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

    async def delete(self, stored: StoredArchive, ids: Sequence[str]) -> int:
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
