"""Blocks as rows: an edit is looked up and written in one transaction. What an edit does is not decided here."""

import sqlite3
from functools import partial
from hashlib import sha256

import msgspec

from chargehand.engine.policy import Instant
from chargehand.errors import Corrupt
from chargehand.memory.blocks import Block, Change, Edit, Origin, edited, value_at
from chargehand.memory.edits import Append, Insert
from chargehand.memory.sqlite_attachments import granted
from chargehand.memory.sqlite_things import need, need_number

_DONE = "SELECT 1 FROM changes WHERE block = ? AND key = ?"
_EARLIER = "SELECT 1 FROM changes WHERE block = ? AND digest = ? AND attempt < ?"
_UPDATE = "UPDATE things SET body = ? WHERE number = ?"
_KEEP = """
    INSERT INTO changes
        (block, version, kind, origin, moment, start, removed, added, parent, at, tainted, key, attempt, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COLUMNS = "SELECT version, kind, origin, moment, start, removed, added, parent, at, tainted FROM changes "
_ONE = _COLUMNS + "WHERE block = ? AND version = ?"
_LATEST = _COLUMNS + "WHERE block = ? AND version < ? ORDER BY version DESC LIMIT ?"
_MOST = 2**62
_ENCODER = msgspec.json.Encoder()
_ORIGIN = msgspec.json.Decoder(Origin)


class Asked(msgspec.Struct, frozen=True):
    """An edit as it was asked for. `spare` stands in for the key of an origin that has none."""

    edit: Edit
    origin: Origin
    agent: str
    expect: int | None
    spare: str


def keep(db: sqlite3.Connection, block: int, change: Change, *, key: str, digest: bytes | None = None) -> None:
    """Write one version's row."""
    origin = change.origin
    values = (block, change.version, change.kind, _ENCODER.encode(origin), change.when, change.start)
    texts = (change.removed, change.added, change.parent, change.at, change.tainted, key, origin.attempt, digest)
    db.execute(_KEEP, values + texts)


def edit(db: sqlite3.Connection, space: str, which: str, asked: Asked, now: Instant) -> Block:
    number, block = need(db, space, Block, which)
    origin = asked.origin
    key = origin.key or asked.spare
    digest = _digest(asked.edit, origin)
    if db.execute(_DONE, (number, key)).fetchone():
        return block
    if digest is not None and db.execute(_EARLIER, (number, digest, origin.attempt)).fetchone():
        return block
    grant = granted(db, space, number, asked.agent, origin)
    past = partial(_past, db, number)
    after, change = edited(block, asked.edit, grant, origin, now, expect=asked.expect, past=past)
    if change.version != block.version:
        db.execute(_UPDATE, (_ENCODER.encode(after), number))
        keep(db, number, change, key=key, digest=digest)
    return after


def _digest(edit: Edit, origin: Origin) -> bytes | None:
    """What another attempt of the same task would repeat; None where that is no repetition."""
    if not isinstance(edit, Append | Insert) or not origin.run or not origin.task:
        return None
    kind = "append" if isinstance(edit, Append) else "insert"
    run = f"{origin.run}#{origin.mark}" if origin.mark else origin.run
    return sha256("\0".join((kind, run, origin.task, edit.text)).encode()).digest()[:16]


def history(db: sqlite3.Connection, space: str, which: str, limit: int, before: int | None) -> list[Change]:
    number = need_number(db, space, Block, which)
    rows = db.execute(_LATEST, (number, _MOST if before is None else before, max(0, limit))).fetchall()
    return [_change(row) for row in rows]


def text_at(db: sqlite3.Connection, space: str, which: str, version: int) -> str:
    number, block = need(db, space, Block, which)
    return value_at(block, version, partial(_past, db, number))


def _past(db: sqlite3.Connection, block: int, version: int) -> Change:
    row = db.execute(_ONE, (block, version)).fetchone()
    if row is None:
        raise Corrupt(f"version {version} of a block is missing from the memory file; restore a backup")
    return _change(row)


def _change(row: tuple[int, str, bytes, float, int, str, str, int, int, int]) -> Change:
    version, kind, origin, moment, start, removed, added, parent, at, tainted = row
    try:
        made = _ORIGIN.decode(origin)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"version {version} of a block cannot be read: {error}; restore a backup") from error
    return Change(
        version=version,
        kind=kind,
        origin=made,
        when=moment,
        start=start,
        removed=removed,
        added=added,
        parent=parent,
        at=at,
        tainted=bool(tainted),
    )
