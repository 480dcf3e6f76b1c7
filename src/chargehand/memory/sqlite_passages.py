"""Passages in a catalog's file: listing, deleting, counting. Inserting and searching have modules of their own.

Every function runs within a transaction of the caller's. Whether the archive exists was checked before.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from chargehand.errors import Unknown
from chargehand.memory import passage_rows as rows
from chargehand.memory.archives import Filter, Passage
from chargehand.memory.catalog import Order
from chargehand.memory.passage_insert import clothe, insert
from chargehand.memory.passage_rows import Value, holding, listed
from chargehand.memory.passage_search import search

__all__ = ["bare", "clothe", "count", "forget", "insert", "model", "passage", "passages", "purge", "search"]

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
_tags = msgspec.json.Decoder(list[str])


# --- reading


def passages(
    db: sqlite3.Connection, space: str, archive_id: str, within: Filter, after: str, limit: int, order: Order
) -> list[Passage]:
    kept = holding(db, space, archive_id)
    if kept is None or limit <= 0:
        return []
    first = kept.first
    final = kept.final
    if after:
        passed = db.execute("SELECT number FROM passages WHERE id = ? AND holding = ?", (after, kept.number)).fetchone()
        if passed is None:
            raise Unknown(f"there is no passage {after} in {archive_id} (any more); start again without `after`")
        first, final = (passed[0] + 1, final) if order == "asc" else (first, passed[0] - 1)
    tests, values = rows.conditions(within, kept)
    direction = "ASC" if order == "asc" else "DESC"
    question = (
        f"{rows.SELECT} WHERE passages.number BETWEEN ? AND ? {tests} ORDER BY passages.number {direction} LIMIT ?"
    )
    return _read(db, question, [first, final, *values, limit])


def passage(db: sqlite3.Connection, space: str, which: str) -> Passage | None:
    found = _read(db, f"{rows.SELECT} WHERE passages.id = ? AND holdings.space = ?", [which, space])
    return found[0] if found else None


def bare(db: sqlite3.Connection, space: str, archive_id: str, limit: int) -> list[Passage]:
    kept = holding(db, space, archive_id)
    if kept is None or kept.passages == kept.dressed:
        return []
    return _read(db, rows.SELECT + _BARE, [kept.first, kept.final, max(0, limit)])


def count(db: sqlite3.Connection, space: str, archive_id: str) -> tuple[int, int]:
    """All, and those with vectors."""
    kept = holding(db, space, archive_id)
    return (0, 0) if kept is None else (kept.passages, kept.dressed)


def model(db: sqlite3.Connection, space: str, archive_id: str) -> tuple[str, int]:
    """Whose vectors an archive has, and how wide they are; empty and 0 while it has none."""
    kept = holding(db, space, archive_id)
    return (kept.handle, kept.width) if kept is not None and kept.dressed else ("", 0)


def _read(db: sqlite3.Connection, question: str, values: Sequence[Value]) -> list[Passage]:
    return [rows.passage(row)[1] for row in db.execute(question, values).fetchall()]


# --- deleting


def forget(db: sqlite3.Connection, space: str, archive_id: str, ids: Sequence[str]) -> int:
    kept = holding(db, space, archive_id)
    if kept is None:
        return 0
    found = db.execute(_LOCATED, (listed(dict.fromkeys(ids)), kept.number)).fetchall()
    numbers = [(number,) for number, _, _ in found]
    db.executemany(_UNSAID, [(number, text) for number, text, _ in found])
    db.executemany(
        "DELETE FROM passage_tags WHERE tag = ? AND number = ?",
        [(tag, number) for number, _, tags in found for tag in _tags.decode(tags)],
    )
    db.executemany(
        "DELETE FROM passage_signs WHERE sign = (SELECT sign FROM passage_vectors WHERE number = ?)", numbers
    )
    undressed = db.executemany("DELETE FROM passage_vectors WHERE number = ?", numbers).rowcount if numbers else 0
    db.executemany("DELETE FROM passages WHERE number = ?", numbers)
    db.execute(
        """
        UPDATE holdings SET passages = passages - ?1, dressed = dressed - ?2, removed = removed + ?2 WHERE number = ?3
        """,
        (len(found), undressed, kept.number),
    )
    return len(found)


def purge(db: sqlite3.Connection, space: str, archive_id: str) -> None:
    """All of an archive. Its number is not given again, so nobody mistakes what is still in memory for something."""
    kept = holding(db, space, archive_id)
    if kept is None:
        return
    for statement in _RANGES:
        db.execute(statement, (kept.first, kept.final))
    db.execute("DELETE FROM holdings WHERE number = ?", (kept.number,))
