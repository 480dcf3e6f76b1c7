"""New passages, each text once, and their vectors. All is checked before anything is written."""

import sqlite3
from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused
from chargehand.memory import passage_rows as rows
from chargehand.memory.archives import Archive, Inserted, Passage
from chargehand.memory.passage_rows import Holding, founded, holding, listed
from chargehand.memory.vectors import arithmetic, width_of

_SAME_TEXT = "SELECT id FROM passages WHERE holding = ? AND digest = ?"
_SAME_KEY = "SELECT id FROM passages WHERE holding = ? AND key = ? AND part = ?"
# CROSS keeps the order of joining: the planner would rather read the whole archive
_TAKEN = """
    SELECT passages.id FROM json_each(?) AS asked CROSS JOIN passages ON passages.id = asked.value
    CROSS JOIN holdings ON holdings.number = passages.holding WHERE holdings.space = ? LIMIT 1
"""
_BARE = """
    SELECT passages.id, passages.number FROM json_each(?) AS asked
    CROSS JOIN passages ON passages.id = asked.value AND passages.holding = ?
    WHERE NOT EXISTS (SELECT 1 FROM passage_vectors WHERE passage_vectors.number = passages.number)
"""
_tags = msgspec.json.Decoder(list[str])


class _Draft(Struct):
    number: int
    id: str
    passage: Passage
    digest: bytes
    tags: dict[str, None]


class _Batch(Struct):
    """What is to be written: new passages, tags for old ones, and whose vector stands where among those given."""

    new: list[_Draft] = field(default_factory=list[_Draft])
    joined: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    dressed: dict[str, int] = field(default_factory=dict[str, int])
    by_text: dict[bytes, _Draft] = field(default_factory=dict[bytes, _Draft])
    by_key: dict[tuple[str, int], _Draft] = field(default_factory=dict[tuple[str, int], _Draft])


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
    rows.checked(passages)
    if vectors is not None:
        if len(vectors) != len(passages):
            raise Invalid(f"{len(vectors)} vectors for {len(passages)} passages; send one for each, or none at all")
        _check_model(archive, holding(db, space, archive.id), width_of(vectors), handle)
    units = None if vectors is None else arithmetic().unit(vectors)
    kept = founded(db, space, archive.id)
    batch = _Batch()
    told = [_placed(db, kept, batch, at, passage) for at, passage in enumerate(passages)]
    _check_ids(db, space, batch)
    _write(db, kept, batch, now)
    if units is not None:
        _dress(db, kept, {which: units[at] for which, at in batch.dressed.items()}, handle)
    return told


def clothe(db: sqlite3.Connection, space: str, archive: Archive, vectors: Mapping[str, bytes], handle: str) -> int:
    """Give passages their vectors, by id; how many took one."""
    kept = holding(db, space, archive.id)
    if kept is None or not vectors:
        return 0
    given = list(vectors.values())
    _check_model(archive, kept, width_of(given), handle)
    units = arithmetic().unit(given)
    return _dress(db, kept, dict(zip(vectors, units, strict=True)), handle)


def _check_model(archive: Archive, kept: Holding | None, width: int, handle: str) -> None:
    name = archive.name
    if not handle:
        raise Invalid("vectors without the handle of the model that made them; say which one it was")
    if archive.embedding == "words":
        raise Invalid(f"the archive {name} is searched by words alone; insert without vectors, or change its embedding")
    if archive.embedding not in ("auto", handle):
        raise Invalid(
            f"the archive {name} takes vectors of {archive.embedding}, not of {handle}; embed with the former"
        )
    if kept is not None and kept.dressed and (kept.handle, kept.width) != (handle, width):
        raise Invalid(
            f"the archive {name} has vectors of {kept.handle} with {kept.width} dimensions, and these are of {handle} "
            f"with {width}; embed with {kept.handle}, or make another archive"
        )


# --- deciding


def _placed(db: sqlite3.Connection, kept: Holding, batch: _Batch, at: int, passage: Passage) -> Inserted:
    """Decide what becomes of one passage: a repeated call changes nothing, a known text only takes the tags."""
    key = (passage.origin.key, passage.part)
    if key[0]:
        again = batch.by_key.get(key)
        known = again.id if again is not None else _id(db, _SAME_KEY, kept.number, *key)
        if known:
            return Inserted(known, new=False)
    digest = rows.digest(passage.text)
    twin = batch.by_text.get(digest)
    tags = dict.fromkeys(passage.tags)
    if twin is not None:
        twin.tags.update(tags)
        return Inserted(twin.id, new=False)
    known = _id(db, _SAME_TEXT, kept.number, digest)
    if known:
        batch.joined.setdefault(known, {}).update(tags)
        batch.dressed.setdefault(known, at)  # it may have come without a vector
        return Inserted(known, new=False)
    number = kept.first + kept.last_passage + len(batch.new) + 1
    draft = _Draft(number=number, id=passage.id or f"passage-{uuid4()}", passage=passage, digest=digest, tags=tags)
    batch.new.append(draft)
    batch.by_text[digest] = batch.by_key[key] = draft
    batch.dressed[draft.id] = at
    return Inserted(draft.id, new=True)


def _id(db: sqlite3.Connection, question: str, *values: str | int | bytes) -> str:
    found = db.execute(question, values).fetchone()
    return "" if found is None else found[0]


def _check_ids(db: sqlite3.Connection, space: str, batch: _Batch) -> None:
    """Ids that callers bring must be new in their space."""
    brought = [draft.id for draft in batch.new if draft.passage.id]
    if not brought:
        return
    twice = next((one for one in brought if brought.count(one) > 1), "") if len(set(brought)) < len(brought) else ""
    if taken := twice or _id(db, _TAKEN, listed(brought), space):
        raise Refused(f"there is another passage {taken} already; leave the id out and one is given")


# --- writing


def _write(db: sqlite3.Connection, kept: Holding, batch: _Batch, now: Instant) -> None:
    db.executemany(
        rows.INSERT,
        [
            rows.row(
                number=one.number,
                holding=kept.number,
                which=one.id,
                passage=one.passage,
                tags=one.tags,
                digest=one.digest,
                now=now,
            )
            for one in batch.new
        ],
    )
    words = [(one.number, one.passage.text) for one in batch.new]
    db.executemany("INSERT INTO passage_words (rowid, text) VALUES (?, ?)", words)
    _tag(db, [(tag, one.number) for one in batch.new for tag in one.tags])
    for which, tags in batch.joined.items():
        _join(db, kept, which, tags)
    db.execute(
        "UPDATE holdings SET passages = passages + ?1, last_passage = last_passage + ?1 WHERE number = ?2",
        (len(batch.new), kept.number),
    )


def _join(db: sqlite3.Connection, kept: Holding, which: str, tags: dict[str, None]) -> None:
    place = (which, kept.number)
    number, had = db.execute("SELECT number, tags FROM passages WHERE id = ? AND holding = ?", place).fetchone()
    known = dict.fromkeys(_tags.decode(had))
    fresh = [tag for tag in tags if tag not in known]
    if fresh:
        db.execute("UPDATE passages SET tags = ? WHERE number = ?", (listed([*known, *fresh]), number))
        _tag(db, [(tag, number) for tag in fresh])


def _tag(db: sqlite3.Connection, pairs: Sequence[tuple[str, int]]) -> None:
    db.executemany("INSERT INTO passage_tags (tag, number) VALUES (?, ?)", pairs)


def _dress(db: sqlite3.Connection, kept: Holding, units: Mapping[str, tuple[bytes, bytes]], handle: str) -> int:
    bare: list[tuple[str, int]] = db.execute(_BARE, (listed(units), kept.number)).fetchall()
    if not bare:
        return 0
    first = kept.first + kept.last_sign + 1
    vectors = [(number, first + at, units[which][0]) for at, (which, number) in enumerate(bare)]
    signs = [(first + at, number, units[which][1]) for at, (which, number) in enumerate(bare)]
    db.executemany("INSERT INTO passage_vectors (number, sign, vec) VALUES (?, ?, ?)", vectors)
    db.executemany("INSERT INTO passage_signs (sign, number, bits) VALUES (?, ?, ?)", signs)
    db.execute(
        """
        UPDATE holdings SET handle = ?, width = ?, dressed = dressed + ?3, last_sign = last_sign + ?3 WHERE number = ?4
        """,
        (handle, len(vectors[0][2]) // 4, len(bare), kept.number),
    )
    return len(bare)
