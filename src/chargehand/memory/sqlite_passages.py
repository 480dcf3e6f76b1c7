"""Passages of archives in SQLite: rows, filters, inserting, listing, deleting; not searching."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.value import encode_value
from chargehand.memory.archives import Filter, Passage
from chargehand.memory.catalog import Order, PassageRecord
from chargehand.memory.passages import (
    ExistingPassage,
    NewPassage,
    VectorModel,
    decode_metadata,
    decode_passage_origin,
    read_as_passage,
    unknown_cursor,
    vector_signs,
    worker_of,
)
from chargehand.memory.tables import ArchiveRow
from chargehand.memory.things import key_digest

ROOM = 1 << 32  # numbers an archive has

Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Value, ...]

_HOLDING = """
    SELECT number, archive, handle, width, passages, embedded, removed, last_passage, last_sign
    FROM holdings WHERE space = ? AND archive = ?
"""
_COLUMNS = """
    passages.number, holdings.archive, passages.id, text, tags, metadata, origin, created, document, part
    FROM passages CROSS JOIN holdings ON holdings.number = passages.holding
"""
SELECT = f"SELECT {_COLUMNS}"
INSERT = """
    INSERT INTO passages (number, holding, id, text, digest, tags, metadata, origin, source, run, task, worker,
        created, document, part, key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_BY_NUMBER = f"SELECT {_COLUMNS} WHERE passages.number IN (SELECT value FROM json_each(?))"  # noqa: S608 - as above
_tags = msgspec.json.Decoder(tuple[str, ...])
_encode = msgspec.json.Encoder().encode


class Holding(Struct, frozen=True):
    """An archive as it is kept here. Its passages are numbered from `first` to `final`."""

    number: int = 0
    archive: str = ""
    handle: str = ""
    width: int = 0
    passages: int = 0
    embedded: int = 0
    removed: int = 0
    last_passage: int = 0
    last_sign: int = 0

    @property
    def first(self) -> int:
        return self.number * ROOM

    @property
    def final(self) -> int:
        return self.first + ROOM - 1

    @property
    def model(self) -> VectorModel | None:
        """Whose vectors it has; None while it has none."""
        return VectorModel(self.handle, self.width) if self.embedded else None


def holding(db: sqlite3.Connection, space: str, archive: str) -> Holding:
    """With the number 0, which holds no passages, where there never was one."""
    row = db.execute(_HOLDING, (space, archive)).fetchone()
    return Holding(archive=archive) if row is None else Holding(*row)


# --- passages


def _make_row(number: int, holding: int, new: NewPassage, now: Instant) -> Row:
    passage = new.passage
    origin = passage.origin
    return (
        number,
        holding,
        passage.id,
        passage.text,
        new.digest,
        listed(passage.tags),
        bytes(encode_value(passage.metadata)).decode(),
        bytes(encode_value(origin)).decode(),
        origin.source or None,
        origin.run or None,
        origin.task or None,
        worker_of(origin),
        passage.created or now,
        passage.document,
        passage.part,
        origin.key or None,
    )


def _read_passage(row: Sequence[Value]) -> tuple[int, Passage]:
    """A number and its passage, from a row of SELECT."""
    number, archive, id_, text, tags, metadata, origin, created, document, part = row
    with read_as_passage(str(id_)):
        return int(number or 0), Passage(
            text=str(text),
            tags=_tags.decode(str(tags)),
            metadata=decode_metadata(str(metadata)),
            origin=decode_passage_origin(str(origin)),
            created=float(created or 0.0),
            id=str(id_),
            archive=str(archive),
            document=str(document),
            part=int(part or 0),
        )


def by_number(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Passage]:
    """Those that are there."""
    return dict(_read_passage(row) for row in db.execute(_BY_NUMBER, (listed(numbers),)).fetchall())


def listed(values: Iterable[int | str]) -> str:
    """For `json_each`: one statement for any number of values."""
    return _encode(list(values)).decode()


# --- filters


def conditions(within: Filter, whole: Holding | None = None) -> tuple[str, list[Value]]:
    """What a row of `passages` must be, beginning with AND; and the values.

    With a `whole` archive to look through, indexes find few rows among many. Without one, each of the rows that were
    found already is looked at.
    """
    parts: list[str] = []
    values: list[Value] = []
    for test, wanted in (
        ("source = ?", within.source or None),
        ("run = ?", within.run or None),
        ("task = ?", within.task or None),
        ("worker = ?", within.worker or None),
        ("created >= ?", within.start),
        ("created <= ?", within.end),
    ):
        if wanted is not None:
            parts.append(f"AND passages.{test}")
            values.append(wanted)
    if whole is not None and parts and parts != ["AND passages.task = ?"]:  # of tasks alone there is no index
        parts.append("AND passages.holding = ?")
        values.append(whole.number)
    tags = list(dict.fromkeys(within.tags))
    for choice in [[tag] for tag in tags] if within.tag_match == "all" else [tags] if tags else []:
        parts.append(_LOOKED_UP if whole is None else _SOUGHT)
        values += [listed(choice)] if whole is None else [listed(choice), whole.first, whole.final]
    return " ".join(parts), values


def numbers_within(db: sqlite3.Connection, within: Filter, whole: Holding) -> list[int]:
    """Of all passages of an archive that pass, rising."""
    if within.tags and not replace(within, tags=(), tag_match="any"):  # nothing else to look at than the tags
        tags = dict.fromkeys(within.tags)
        question = (" INTERSECT " if within.tag_match == "all" else " UNION ").join([_TAGGED] * len(tags))
        values: list[Value] = [value for tag in tags for value in (tag, whole.first, whole.final)]
    else:
        tests, more = conditions(within, whole)
        question = f"SELECT number FROM passages WHERE number BETWEEN ? AND ? {tests}"  # noqa: S608 - our own words
        values = [whole.first, whole.final, *more]
    return [number for (number,) in db.execute(f"{question} ORDER BY number", values).fetchall()]


_TAGGED = "SELECT number FROM passage_tags WHERE tag = ? AND number BETWEEN ? AND ?"
_SOUGHT = """
    AND passages.number IN (
        SELECT number FROM passage_tags WHERE tag IN (SELECT value FROM json_each(?)) AND number BETWEEN ? AND ?
    )
"""
_LOOKED_UP = """
    AND EXISTS (
        SELECT 1 FROM passage_tags
        WHERE tag IN (SELECT value FROM json_each(?)) AND passage_tags.number = passages.number
    )
"""


# CROSS keeps the order of joining: the planner would rather read the whole archive
_EXISTING = """
    SELECT passages.number, passages.id, holdings.archive, digest, key, part, tags
    FROM passages CROSS JOIN holdings ON holdings.number = passages.holding
"""
_SAME_TEXT = f"{_EXISTING} WHERE passages.holding = ? AND digest = ?"
_SAME_KEY = f"{_EXISTING} WHERE passages.holding = ? AND key = ? AND part = ?"
_SAME_ID = f"{_EXISTING} WHERE passages.id = ? AND holdings.space = ?"
_WITHOUT_VECTOR = """
    SELECT passages.id, passages.number FROM json_each(?) AS asked
    CROSS JOIN passages ON passages.id = asked.value AND passages.holding = ?
    WHERE NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.number = passages.number)
"""
_LOCATED = """
    SELECT passages.number, text, tags FROM json_each(?) AS asked
    CROSS JOIN passages ON passages.id = asked.value AND passages.holding = ?
"""
_UNSAID = "INSERT INTO passage_words (passage_words, rowid, text) VALUES ('delete', ?, ?)"
_ALL_UNSAID = """
    INSERT INTO passage_words (passage_words, rowid, text)
    SELECT 'delete', number, text FROM passages WHERE number BETWEEN ? AND ?
"""
_RANGES = (
    _ALL_UNSAID,
    "DELETE FROM passage_tags WHERE number BETWEEN ? AND ?",
    "DELETE FROM passage_vectors WHERE number BETWEEN ? AND ?",
    "DELETE FROM passage_signs WHERE sign BETWEEN ? AND ?",
    "DELETE FROM passages WHERE number BETWEEN ? AND ?",
)
_BARE = """
    WHERE passages.number BETWEEN ? AND ?
    AND NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.number = passages.number)
    ORDER BY passages.number LIMIT ?
"""
_VECTORS_AFTER = """
    SELECT passages.number, vec FROM passages LEFT JOIN passage_vectors ON passage_vectors.number = passages.number
    WHERE passages.number BETWEEN max(?, ?) AND ? ORDER BY passages.number LIMIT ?
"""
_ARCHIVE = "SELECT number, body FROM things WHERE space = ? AND id = ? AND kind = 'archive'"
_COUNT_PASSAGES = "UPDATE holdings SET passages = passages + ?1, last_passage = last_passage + ?1 WHERE number = ?2"
_COUNT_VECTORS = """
    UPDATE holdings SET handle = ?, width = ?, embedded = embedded + ?3, last_sign = last_sign + ?3 WHERE number = ?4
"""
_UNCOUNT = """
    UPDATE holdings SET passages = passages - ?1, embedded = embedded - ?2, removed = removed + ?2 WHERE number = ?3
"""


class SqlitePassages:
    def __init__(self, db: sqlite3.Connection, space: str) -> None:
        self._db = db
        self._space = space

    async def archives(self, ids: Sequence[str]) -> dict[str, ArchiveRow[Holding]]:
        archives: dict[str, ArchiveRow[Holding]] = {}
        for which in ids:
            row = self._db.execute(_ARCHIVE, (self._space, which)).fetchone()
            if row is not None:
                archives[which] = (*row, holding(self._db, self._space, which))
        return archives

    # --- inserting

    async def existing(
        self, stored: Holding, digests: Sequence[bytes], keys: Sequence[tuple[str, int]], ids: Sequence[str]
    ) -> list[ExistingPassage]:
        questions: list[tuple[str, Sequence[Value]]] = [
            *((_SAME_TEXT, (stored.number, digest)) for digest in digests),
            *((_SAME_KEY, (stored.number, key, part)) for key, part in keys),
            *((_SAME_ID, (which, self._space)) for which in ids),
        ]
        existing: list[ExistingPassage] = []
        for question, values in questions:
            for number, which, archive, digest, key, part, tags in self._db.execute(question, values).fetchall():
                key_used = None if key is None else key_digest(key)
                existing.append(
                    ExistingPassage(
                        number=number,
                        id=which,
                        archive=archive,
                        digest=digest,
                        key=key_used,
                        part=part,
                        tags=_tags.decode(tags),
                    )
                )
        return existing

    async def add(self, stored: Holding, passages: Sequence[NewPassage], now: Instant) -> Holding:
        if not stored.number:
            self._db.execute("INSERT INTO holdings (space, archive) VALUES (?, ?)", (self._space, stored.archive))
            stored = holding(self._db, self._space, stored.archive)
        first = stored.first + stored.last_passage + 1
        numbered = list(enumerate(passages, first))
        self._db.executemany(INSERT, [_make_row(number, stored.number, new, now) for number, new in numbered])
        self._db.executemany(
            "INSERT INTO passage_words (rowid, text) VALUES (?, ?)",
            [(number, new.passage.text) for number, new in numbered],
        )
        self._tag([(tag, number) for number, new in numbered for tag in new.passage.tags])
        self._db.execute(_COUNT_PASSAGES, (len(passages), stored.number))
        return stored

    async def add_tags(self, passage: ExistingPassage, tags: Sequence[str]) -> None:
        merged = listed([*passage.tags, *tags])
        self._db.execute("UPDATE passages SET tags = ? WHERE number = ?", (merged, passage.number))
        self._tag([(tag, passage.number) for tag in tags])

    def _tag(self, pairs: Sequence[tuple[str, int]]) -> None:
        self._db.executemany("INSERT INTO passage_tags (tag, number) VALUES (?, ?)", pairs)

    async def add_vectors(self, stored: Holding, vectors: Mapping[str, bytes], handle: str) -> int:
        unembedded: list[tuple[str, int]] = self._db.execute(
            _WITHOUT_VECTOR, (listed(vectors), stored.number)
        ).fetchall()
        if not unembedded:
            return 0
        first = stored.first + stored.last_sign + 1
        units = [vectors[which] for which, _ in unembedded]
        numbers = [(number, first + at) for at, (_, number) in enumerate(unembedded)]
        rows = [(number, sign, unit) for (number, sign), unit in zip(numbers, units, strict=True)]
        signs = [(sign, number, bits) for (number, sign), bits in zip(numbers, vector_signs(units), strict=True)]
        self._db.executemany("INSERT INTO passage_vectors (number, sign, vec) VALUES (?, ?, ?)", rows)
        self._db.executemany("INSERT INTO passage_signs (sign, number, bits) VALUES (?, ?, ?)", signs)
        self._db.execute(_COUNT_VECTORS, (handle, len(units[0]) // 4, len(rows), stored.number))
        return len(rows)

    # --- reading

    async def listed(self, stored: Holding, within: Filter, after: str, limit: int, order: Order) -> list[Passage]:
        first = stored.first
        final = stored.final
        if after:
            place = "SELECT number FROM passages WHERE id = ? AND holding = ?"
            passed = self._db.execute(place, (after, stored.number)).fetchone()
            if passed is None:
                raise unknown_cursor(after, stored.archive)
            first, final = (passed[0] + 1, final) if order == "asc" else (first, passed[0] - 1)
        tests, values = conditions(within, stored)
        direction = "ASC" if order == "asc" else "DESC"
        question = (
            f"{SELECT} WHERE passages.number BETWEEN ? AND ? {tests} ORDER BY passages.number {direction} LIMIT ?"
        )
        return self._read(question, [first, final, *values, limit])

    async def get(self, which: str) -> Passage | None:
        passages = self._read(f"{SELECT} WHERE passages.id = ? AND holdings.space = ?", [which, self._space])
        return passages[0] if passages else None

    async def rows(self, archives: Sequence[Holding], numbers: Sequence[int]) -> dict[int, Passage]:  # noqa: ARG002 - a number is of one archive
        return by_number(self._db, numbers)

    async def unembedded(self, stored: Holding, limit: int) -> list[Passage]:
        if stored.passages == stored.embedded:
            return []
        return self._read(SELECT + _BARE, [stored.first, stored.final, limit])

    def _read(self, question: str, values: Sequence[Value]) -> list[Passage]:
        return [_read_passage(row)[1] for row in self._db.execute(question, values).fetchall()]

    async def records(self, stored: Holding, after: int, limit: int) -> list[tuple[int, PassageRecord]]:
        bounds = (stored.first, after + 1, stored.final, limit)
        vectors: dict[int, bytes | None] = dict(self._db.execute(_VECTORS_AFTER, bounds).fetchall())
        passages = by_number(self._db, vectors)
        return [
            (number, PassageRecord(passages[number], vector, "" if vector is None else stored.handle))
            for number, vector in vectors.items()
        ]

    # --- deleting

    async def delete(self, stored: Holding, ids: Sequence[str]) -> int:
        db = self._db
        rows = db.execute(_LOCATED, (listed(dict.fromkeys(ids)), stored.number)).fetchall()
        numbers = [(number,) for number, _, _ in rows]
        db.executemany(_UNSAID, [(number, text) for number, text, _ in rows])
        db.executemany(
            "DELETE FROM passage_tags WHERE tag = ? AND number = ?",
            [(tag, number) for number, _, tags in rows for tag in _tags.decode(tags)],
        )
        db.executemany(
            "DELETE FROM passage_signs WHERE sign = (SELECT sign FROM passage_vectors WHERE number = ?)", numbers
        )
        removed = db.executemany("DELETE FROM passage_vectors WHERE number = ?", numbers).rowcount if numbers else 0
        db.executemany("DELETE FROM passages WHERE number = ?", numbers)
        db.execute(_UNCOUNT, (len(rows), removed, stored.number))
        return len(rows)


def purge(db: sqlite3.Connection, space: str, archive: str) -> None:
    """Delete all of an archive. Its number is not given again, so what is still in memory is not mixed up."""
    stored = holding(db, space, archive)
    if not stored.number:
        return
    for statement in _RANGES:
        db.execute(statement, (stored.first, stored.final))
    db.execute("DELETE FROM holdings WHERE number = ?", (stored.number,))
