"""The rows of archives: what is known of one, a passage out and in, and filters as SQL. Searching is not done here."""

import hashlib
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.value import encode_value
from chargehand.errors import Corrupt, Invalid
from chargehand.memory.archives import Filter, Passage
from chargehand.memory.blocks import Origin

ROOM = 1 << 32  # numbers an archive has

Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Value, ...]

_HOLDING = """
    SELECT number, archive, handle, width, passages, dressed, removed, last_passage, last_sign
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
_metadata = msgspec.json.Decoder(dict[str, object])
_origin = msgspec.json.Decoder(Origin)
_encode = msgspec.json.Encoder().encode


class Holding(Struct, frozen=True):
    """An archive as it is kept here. Its passages are numbered from `first` to `final`."""

    number: int
    archive: str
    handle: str
    width: int
    passages: int
    dressed: int
    removed: int
    last_passage: int
    last_sign: int

    @property
    def first(self) -> int:
        return self.number * ROOM

    @property
    def final(self) -> int:
        return self.first + ROOM - 1


def holding(db: sqlite3.Connection, space: str, archive: str) -> Holding | None:
    """None where there never was a passage."""
    row = db.execute(_HOLDING, (space, archive)).fetchone()
    return None if row is None else Holding(*row)


def founded(db: sqlite3.Connection, space: str, archive: str) -> Holding:
    """The same, made where there is none."""
    db.execute("INSERT OR IGNORE INTO holdings (space, archive) VALUES (?, ?)", (space, archive))
    found = holding(db, space, archive)
    assert found is not None, "it was made a line above"
    return found


# --- passages


def digest(text: str) -> bytes:
    """The same for texts that differ in nothing but white space and how accents are spelled."""
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    return hashlib.blake2b(plain.encode(), digest_size=16).digest()


def checked(passages: Sequence[Passage]) -> None:
    """Invalid, at the first passage that cannot be kept."""
    for at, passage in enumerate(passages):
        if not passage.text.strip():
            raise Invalid(f"passage {at} has no text; leave it out")
        try:
            "".join((passage.text, passage.id, passage.document, *passage.tags)).encode()
        except UnicodeEncodeError as error:
            raise Invalid(f"passage {at} holds half a surrogate pair; replace it first") from error
        if not all(tag.strip() for tag in passage.tags):
            raise Invalid(f"passage {at} has an empty tag; leave it out")
        if not -(1 << 63) <= passage.part < 1 << 63:
            raise Invalid(f"passage {at} is part {passage.part}; count parts from 0")


def row(
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
        (origin.name or None) if origin.by == "worker" else None,
        passage.created or now,
        passage.document,
        passage.part,
        origin.key or None,
    )


def passage(row: Sequence[Value]) -> tuple[int, Passage]:
    """A number and its passage, from a row of SELECT."""
    number, archive, id_, text, tags, metadata, origin, created, document, part = row
    try:
        made = Passage(
            text=str(text),
            tags=_tags.decode(str(tags)),
            metadata=_metadata.decode(str(metadata)),
            origin=_origin.decode(str(origin)),
            created=float(created or 0.0),
            id=str(id_),
            archive=str(archive),
            document=str(document),
            part=int(part or 0),
        )
    except msgspec.MsgspecError as error:
        raise Corrupt(f"passage {id_} cannot be read; restore the memory from a backup ({error})") from error
    return int(number or 0), made


def by_number(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Passage]:
    """Those that are there."""
    return dict(passage(row) for row in db.execute(_BY_NUMBER, (listed(numbers),)).fetchall())


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
