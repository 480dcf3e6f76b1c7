"""Passages of archives in SQLite: rows, filters, inserting, listing, deleting. Searching has a module of its own.

Every function runs within a transaction of the caller. Whether the archive exists was checked before.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.value import encode_value
from chargehand.memory.archives import Archive, Filter, Inserted, Passage, check_passages
from chargehand.memory.catalog import Order
from chargehand.memory.passages import (
    VectorModel,
    check_model,
    check_vectors,
    decode_metadata,
    decode_passage_origin,
    passage_digest,
    read_as_passage,
    taken_passage,
    unit_vectors,
    unknown_cursor,
    width_of,
    worker_of,
)

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

    number: int
    archive: str
    handle: str
    width: int
    passages: int
    embedded: int
    removed: int
    last_passage: int
    last_sign: int

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


def holding(db: sqlite3.Connection, space: str, archive: str) -> Holding | None:
    """None where there never was a passage."""
    row = db.execute(_HOLDING, (space, archive)).fetchone()
    return None if row is None else Holding(*row)


def founded(db: sqlite3.Connection, space: str, archive: str) -> Holding:
    """The same, made where there is none."""
    db.execute("INSERT OR IGNORE INTO holdings (space, archive) VALUES (?, ?)", (space, archive))
    existing = holding(db, space, archive)
    assert existing is not None, "it was made a line above"
    return existing


# --- passages


def _make_row(
    number: int, holding: int, which: str, passage: Passage, tags: Iterable[str], digest: bytes, now: Instant
) -> Row:
    origin = passage.origin
    return (
        number,
        holding,
        which,
        passage.text,
        digest,
        listed(tags),
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


_SAME_TEXT = "SELECT id FROM passages WHERE holding = ? AND digest = ?"
_SAME_KEY = "SELECT id FROM passages WHERE holding = ? AND key = ? AND part = ?"
# CROSS keeps the order of joining: the planner would rather read the whole archive
_TAKEN = """
    SELECT passages.id FROM passages CROSS JOIN holdings ON holdings.number = passages.holding
    WHERE passages.id = ? AND holdings.space = ?
"""
_WITHOUT_VECTOR = """
    SELECT passages.id, passages.number FROM json_each(?) AS asked
    CROSS JOIN passages ON passages.id = asked.value AND passages.holding = ?
    WHERE NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.number = passages.number)
"""


def insert(
    db: sqlite3.Connection,
    space: str,
    archive: Archive,
    passages: Sequence[Passage],
    vectors: Sequence[bytes] | None,
    handle: str,
    now: Instant,
) -> list[Inserted]:
    if not passages:
        return []
    check_passages(passages)
    if vectors is not None:
        check_vectors(archive, passages, vectors, handle, model(db, space, archive.id))
    units = [] if vectors is None else unit_vectors(vectors)
    return write_passages(
        db=db,
        space=space,
        archive_id=archive.id,
        passages=passages,
        units=dict(enumerate(units)),
        handle=handle,
        now=now,
    )


def write_passages(
    db: sqlite3.Connection,
    space: str,
    archive_id: str,
    passages: Sequence[Passage],
    units: Mapping[int, tuple[bytes, bytes]],
    handle: str,
    now: Instant,
) -> list[Inserted]:
    """Passages that were checked, with vectors of length one and their signs, each by the place of its passage."""
    store = founded(db, space, archive_id)
    inserted: list[Inserted] = []
    embedded: dict[str, int] = {}
    """By id, which of the vectors is whose. What is known already may have come without one."""
    last = store.first + store.last_passage
    for at, passage in enumerate(passages):
        key = passage.origin.key
        repeated = _id(db, _SAME_KEY, store.number, key, passage.part) if key else ""
        if repeated:
            inserted.append(Inserted(repeated, new=False))
            continue
        outcome = _keep(db, space, store, number=last + 1, passage=passage, now=now)
        embedded.setdefault(outcome.id, at)
        inserted.append(outcome)
        last += outcome.new
    db.execute(
        "UPDATE holdings SET passages = passages + ?1, last_passage = last_passage + ?1 WHERE number = ?2",
        (last - store.first - store.last_passage, store.number),
    )
    _write_vectors(db, store, {which: units[at] for which, at in embedded.items() if at in units}, handle)
    return inserted


def _keep(db: sqlite3.Connection, space: str, store: Holding, number: int, passage: Passage, now: Instant) -> Inserted:
    """Write a passage under this number. A text that is known takes only the tags."""
    digest = passage_digest(passage.text)
    if same_text := _id(db, _SAME_TEXT, store.number, digest):
        _join(db, store, same_text, passage.tags)
        return Inserted(same_text, new=False)
    if passage.id and _id(db, _TAKEN, passage.id, space):
        raise taken_passage(passage.id)
    which = passage.id or f"passage-{uuid4()}"
    tags = tuple(dict.fromkeys(passage.tags))
    row = _make_row(
        number=number, holding=store.number, which=which, passage=passage, tags=tags, digest=digest, now=now
    )
    db.execute(INSERT, row)
    db.execute("INSERT INTO passage_words (rowid, text) VALUES (?, ?)", (number, passage.text))
    _tag(db, [(tag, number) for tag in tags])
    return Inserted(which, new=True)


def add_vectors(db: sqlite3.Connection, space: str, archive: Archive, vectors: Mapping[str, bytes], handle: str) -> int:
    """Give passages their vectors, by id; how many took one."""
    store = holding(db, space, archive.id)
    if store is None or not vectors:
        return 0
    blobs = list(vectors.values())
    check_model(archive, VectorModel(handle, width_of(blobs)), store.model)
    units = unit_vectors(blobs)
    return _write_vectors(db, store, dict(zip(vectors, units, strict=True)), handle)


def _id(db: sqlite3.Connection, question: str, *values: str | int | bytes) -> str:
    row = db.execute(question, values).fetchone()
    return "" if row is None else row[0]


def _join(db: sqlite3.Connection, store: Holding, which: str, tags: Sequence[str]) -> None:
    place = (which, store.number)
    number, had = db.execute("SELECT number, tags FROM passages WHERE id = ? AND holding = ?", place).fetchone()
    merged = dict.fromkeys(_tags.decode(had))
    fresh = [tag for tag in dict.fromkeys(tags) if tag not in merged]
    if fresh:
        db.execute("UPDATE passages SET tags = ? WHERE number = ?", (listed([*merged, *fresh]), number))
        _tag(db, [(tag, number) for tag in fresh])


def _tag(db: sqlite3.Connection, pairs: Sequence[tuple[str, int]]) -> None:
    db.executemany("INSERT INTO passage_tags (tag, number) VALUES (?, ?)", pairs)


def _write_vectors(
    db: sqlite3.Connection, store: Holding, units: Mapping[str, tuple[bytes, bytes]], handle: str
) -> int:
    unembedded: list[tuple[str, int]] = db.execute(_WITHOUT_VECTOR, (listed(units), store.number)).fetchall()
    if not unembedded:
        return 0
    first = store.first + store.last_sign + 1
    vectors = [(number, first + at, units[which][0]) for at, (which, number) in enumerate(unembedded)]
    signs = [(first + at, number, units[which][1]) for at, (which, number) in enumerate(unembedded)]
    db.executemany("INSERT INTO passage_vectors (number, sign, vec) VALUES (?, ?, ?)", vectors)
    db.executemany("INSERT INTO passage_signs (sign, number, bits) VALUES (?, ?, ?)", signs)
    db.execute(
        """
        UPDATE holdings SET handle = ?, width = ?, embedded = embedded + ?3, last_sign = last_sign + ?3
        WHERE number = ?4
        """,
        (handle, len(vectors[0][2]) // 4, len(unembedded), store.number),
    )
    return len(unembedded)


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


# --- reading


def passages(
    db: sqlite3.Connection, space: str, archive_id: str, within: Filter, after: str, limit: int, order: Order
) -> list[Passage]:
    store = holding(db, space, archive_id)
    if store is None or limit <= 0:
        return []
    first = store.first
    final = store.final
    if after:
        passed = db.execute(
            "SELECT number FROM passages WHERE id = ? AND holding = ?", (after, store.number)
        ).fetchone()
        if passed is None:
            raise unknown_cursor(after, archive_id)
        first, final = (passed[0] + 1, final) if order == "asc" else (first, passed[0] - 1)
    tests, values = conditions(within, store)
    direction = "ASC" if order == "asc" else "DESC"
    question = f"{SELECT} WHERE passages.number BETWEEN ? AND ? {tests} ORDER BY passages.number {direction} LIMIT ?"
    return _read(db, question, [first, final, *values, limit])


def passage(db: sqlite3.Connection, space: str, which: str) -> Passage | None:
    passages = _read(db, f"{SELECT} WHERE passages.id = ? AND holdings.space = ?", [which, space])
    return passages[0] if passages else None


def unembedded(db: sqlite3.Connection, space: str, archive_id: str, limit: int) -> list[Passage]:
    store = holding(db, space, archive_id)
    if store is None or store.passages == store.embedded:
        return []
    return _read(db, SELECT + _BARE, [store.first, store.final, max(0, limit)])


def count(db: sqlite3.Connection, space: str, archive_id: str) -> tuple[int, int]:
    """All, and those with vectors."""
    store = holding(db, space, archive_id)
    return (0, 0) if store is None else (store.passages, store.embedded)


def model(db: sqlite3.Connection, space: str, archive_id: str) -> VectorModel | None:
    """Whose vectors an archive has; None while it has none."""
    store = holding(db, space, archive_id)
    return None if store is None else store.model


def _read(db: sqlite3.Connection, question: str, values: Sequence[Value]) -> list[Passage]:
    return [_read_passage(row)[1] for row in db.execute(question, values).fetchall()]


# --- deleting


def forget(db: sqlite3.Connection, space: str, archive_id: str, ids: Sequence[str]) -> int:
    store = holding(db, space, archive_id)
    if store is None:
        return 0
    rows = db.execute(_LOCATED, (listed(dict.fromkeys(ids)), store.number)).fetchall()
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
    db.execute(
        """
        UPDATE holdings SET passages = passages - ?1, embedded = embedded - ?2, removed = removed + ?2 WHERE number = ?3
        """,
        (len(rows), removed, store.number),
    )
    return len(rows)


def purge(db: sqlite3.Connection, space: str, archive_id: str) -> None:
    """All of an archive. Its number is not given again, so what is still in memory is not mixed up."""
    store = holding(db, space, archive_id)
    if store is None:
        return
    for statement in _RANGES:
        db.execute(statement, (store.first, store.final))
    db.execute("DELETE FROM holdings WHERE number = ?", (store.number,))
