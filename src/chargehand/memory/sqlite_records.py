"""A catalog in SQLite as records: read out page by page, and loaded. Every function runs within a transaction."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from chargehand.memory import sqlite_passages as passage_rows
from chargehand.memory import sqlite_things as thing_rows
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Change, Grant
from chargehand.memory.catalog import (
    KINDS,
    OWNERS,
    PREFIXES,
    ChangeRecord,
    GrantRecord,
    MemoryPage,
    MemoryRecord,
    PassageRecord,
    Position,
    SaidRecord,
    Section,
    ThingRecord,
    TurnRecord,
)
from chargehand.memory.conversations import Turn
from chargehand.memory.passages import signed_vectors
from chargehand.memory.things import decode_thing, encode_thing, speaker_kind

_SPACES = "SELECT DISTINCT space FROM things ORDER BY space"
_THINGS = "SELECT number, kind, body FROM things WHERE space = ? AND number > ? ORDER BY number LIMIT ?"
_OWNERS = """
    SELECT number, id FROM things WHERE space = ? AND kind IN (SELECT value FROM json_each(?)) AND number >= ?
    ORDER BY number
"""
_GRANTS = """
    SELECT things.number, things.id, access, tainted FROM attachments JOIN things ON things.number = attachments.thing
    WHERE attachments.owner = ? AND attachments.thing > ? ORDER BY attachments.thing LIMIT ?
"""
_CHANGES = """
    SELECT version, kind, origin, moment, start, removed, added, parent, at, tainted, key, digest FROM changes
    WHERE block = ? AND version > ? ORDER BY version LIMIT ?
"""
_TURNS = """
    SELECT role, text, number, moment, run, task, tainted, upto, old FROM turns WHERE agent = ? AND number > ?
    ORDER BY number LIMIT ?
"""
_PLACE = "SELECT count(*) FROM turns WHERE agent = ? AND number <= ?"
_SAID = "SELECT key FROM said WHERE agent = ? ORDER BY key"
_PASSAGES = """
    SELECT passages.number, vec FROM passages LEFT JOIN passage_vectors ON passage_vectors.number = passages.number
    WHERE passages.number BETWEEN max(?, ?) AND ? ORDER BY passages.number LIMIT ?
"""
_HAS_CHANGE = "SELECT 1 FROM changes WHERE block = ? AND version = ?"
_LAST_TURN = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'turns'), 0)"
_SAY = """
    INSERT INTO turns (number, agent, role, text, moment, run, task, tainted, upto, old)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_Numbered: TypeAlias = list[tuple[int, MemoryRecord]]


def spaces(db: sqlite3.Connection) -> list[str]:
    return [space for (space,) in db.execute(_SPACES).fetchall()]


# --- reading


def export(db: sqlite3.Connection, space: str, section: Section, after: Position, limit: int) -> MemoryPage:
    if section == "things":
        rows = db.execute(_THINGS, (space, after[0], limit)).fetchall()
        things: list[MemoryRecord] = [ThingRecord(decode_thing(KINDS[kind], body)) for _, kind, body in rows]
        return MemoryPage(things, (rows[-1][0], 0) if rows else after)
    records: list[MemoryRecord] = []
    kinds = passage_rows.listed(PREFIXES[kind] for kind in OWNERS[section])
    for number, which in db.execute(_OWNERS, (space, kinds, after[0])).fetchall():
        begin = after[1] if number == after[0] else 0
        numbered = _READERS[section](db, space, number, which, begin, limit - len(records))
        if numbered:
            records += [record for _, record in numbered]
            after = (number, numbered[-1][0])
        if len(records) >= limit:
            break
    return MemoryPage(records, after)


def _grants(db: sqlite3.Connection, _space: str, number: int, owner: str, after: int, limit: int) -> _Numbered:
    rows = db.execute(_GRANTS, (number, after, limit)).fetchall()
    return [(thing, GrantRecord(owner, which, Grant(access, bool(taint)))) for thing, which, access, taint in rows]


def _changes(db: sqlite3.Connection, _space: str, number: int, block: str, after: int, limit: int) -> _Numbered:
    changes: _Numbered = []
    for *columns, key, digest in db.execute(_CHANGES, (number, after, limit)).fetchall():
        change = thing_rows.read_change(tuple(columns))
        changes.append((change.version, ChangeRecord(block, change, key, digest)))
    return changes


def _turns(db: sqlite3.Connection, _space: str, number: int, speaker: str, after: int, limit: int) -> _Numbered:
    place = _place(db, number, after)
    turns: _Numbered = []
    for row in db.execute(_TURNS, (number, after, limit)).fetchall():
        turn = thing_rows.read_turn(row)
        place += 1
        upto = _place(db, number, turn.upto) if turn.upto else 0
        turns.append((turn.number, TurnRecord(speaker, replace(turn, number=place, upto=upto))))
    return turns


def _place(db: sqlite3.Connection, agent: int, number: int) -> int:
    """How many turns there are up to this number."""
    return int(db.execute(_PLACE, (agent, number)).fetchone()[0])


def _said_keys(db: sqlite3.Connection, _space: str, number: int, speaker: str, after: int, _limit: int) -> _Numbered:
    keys = () if after else tuple(key for (key,) in db.execute(_SAID, (number,)).fetchall())
    return [(1, SaidRecord(speaker, keys))] if keys else []


def _passages(db: sqlite3.Connection, space: str, _number: int, archive: str, after: int, limit: int) -> _Numbered:
    store = passage_rows.holding(db, space, archive)
    if store is None:
        return []
    vectors = dict(db.execute(_PASSAGES, (store.first, after + 1, store.final, limit)).fetchall())
    passages = passage_rows.by_number(db, vectors)
    return [
        (number, PassageRecord(passages[number], vector, "" if vector is None else store.handle))
        for number, vector in vectors.items()
    ]


_READERS: dict[Section, Callable[[sqlite3.Connection, str, int, str, int, int], _Numbered]] = {
    "grants": _grants,
    "changes": _changes,
    "turns": _turns,
    "said": _said_keys,
    "passages": _passages,
}


# --- loading


def load(db: sqlite3.Connection, space: str, records: Sequence[MemoryRecord]) -> None:
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    passages: defaultdict[str, list[PassageRecord]] = defaultdict(list)
    for record in records:
        match record:
            case ThingRecord(thing):
                thing_rows.add(db, space, thing, encode_thing(thing), brought=False)
            case GrantRecord(owner, thing, grant):
                thing_rows.attach(db, space, owner, thing, grant)
            case ChangeRecord(block, change, key, repeated):
                _load_change(db, thing_rows.need_number(db, space, Block, block), change, key, repeated)
            case TurnRecord(speaker, turn):
                turns[speaker].append(turn)
            case SaidRecord(speaker, keys):
                number = thing_rows.need_number(db, space, speaker_kind(speaker), speaker)
                db.executemany("INSERT OR IGNORE INTO said (agent, key) VALUES (?, ?)", [(number, key) for key in keys])
            case PassageRecord(passage):
                passages[passage.archive].append(record)
    for speaker, said in turns.items():
        _load_turns(db, space, speaker, said)
    for archive, inserted in passages.items():
        _load_passages(db, space, archive, inserted)


def _load_change(db: sqlite3.Connection, block: int, change: Change, key: bytes, repeated: bytes | None) -> None:
    if not db.execute(_HAS_CHANGE, (block, change.version)).fetchone():
        thing_rows.keep(db, block, change, key=key, digest=repeated)


def _load_turns(db: sqlite3.Connection, space: str, speaker: str, turns: Sequence[Turn]) -> None:
    agent = thing_rows.need_number(db, space, speaker_kind(speaker), speaker)
    numbers = [number for (number,) in db.execute("SELECT number FROM turns WHERE agent = ? ORDER BY number", (agent,))]
    # from 2 on: a summary that stands for no turn has a lower number than the first
    last = max(1, int(db.execute(_LAST_TURN).fetchone()[0]))
    rows: list[tuple[object, ...]] = []
    for turn in turns:
        if turn.number <= len(numbers):
            continue
        last += 1
        numbers.append(last)
        upto = numbers[turn.upto - 1] if turn.upto else numbers[0] - 1
        reached = upto if turn.role == "summary" else 0
        facts = (turn.role, turn.text, turn.when, turn.run, turn.task, turn.tainted)
        rows.append((last, agent, *facts, reached, turn.old))
    db.executemany(_SAY, rows)


def _load_passages(db: sqlite3.Connection, space: str, archive: str, records: Sequence[PassageRecord]) -> None:
    thing_rows.need_number(db, space, Archive, archive)
    embedded = [place for place, record in enumerate(records) if record.vector is not None]
    signed = signed_vectors([record.vector for record in records if record.vector is not None]) if embedded else []
    passage_rows.write_passages(
        db=db,
        space=space,
        archive_id=archive,
        passages=[record.passage for record in records],
        units=dict(zip(embedded, signed, strict=True)),
        handle=next((record.handle for record in records if record.vector is not None), ""),
        now=0.0,
    )
