"""A catalog in PostgreSQL as records: read out page by page, and loaded. Every function runs within a transaction."""

import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from chargehand.memory import postgres_passages as passage_rows
from chargehand.memory.blocks import Grant
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
from chargehand.memory.postgres_passages import InsertBatch, StoredArchive
from chargehand.memory.postgres_things import ThingRows, decode_change
from chargehand.memory.things import decode_thing
from chargehand.postgres.driver import Connection

SPACES = "SELECT DISTINCT space FROM things WHERE tenant = current_tenant() ORDER BY space"
_THINGS = """
    SELECT number, kind, body FROM things WHERE tenant = current_tenant() AND space = $1 AND number > $2
    ORDER BY number LIMIT $3
"""
_OWNERS = """
    SELECT number, id FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = ANY($2) AND number >= $3 ORDER BY number
"""
_GRANTS = """
    SELECT things.number, things.id, access, attachments.tainted FROM attachments
    JOIN things ON things.number = attachments.thing
    WHERE attachments.owner = $1 AND attachments.thing > $2 ORDER BY attachments.thing LIMIT $3
"""
_CHANGES = """
    SELECT version, body, key, repeated FROM changes WHERE block = $1 AND version > $2 ORDER BY version LIMIT $3
"""
_TURNS = """
    SELECT role, text, number, moment, run, task, tainted, upto, old FROM turns WHERE agent = $1 AND number > $2
    ORDER BY number LIMIT $3
"""
_PLACE = "SELECT count(*) FROM turns WHERE agent = $1 AND number <= $2"
_SAID = "SELECT key FROM said WHERE agent = $1 ORDER BY key"
_PASSAGES = "SELECT number FROM passages WHERE archive = $1 AND number > $2 ORDER BY number LIMIT $3"
_VECTORS = "SELECT passage, vec::real[] FROM passage_vectors WHERE passage = ANY($1)"
_NUMBERS = "SELECT number FROM turns WHERE agent = $1 ORDER BY number"
_NEW_NUMBERS = """
    SELECT nextval(pg_get_serial_sequence('chargehand.turns', 'number')) AS number FROM generate_series(0, $1)
    ORDER BY number
"""
_SAY = """
    INSERT INTO turns (number, agent, role, text, moment, run, task, tainted, upto, old, words)
    OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, to_tsvector('chargehand.words', $11))
"""
_SAY_ONCE = "INSERT INTO said (agent, key) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_Numbered: TypeAlias = list[tuple[int, MemoryRecord]]


# --- reading


async def export(db: Connection, space: str, section: Section, after: Position, limit: int) -> MemoryPage:
    if section == "things":
        rows = await db.fetch(_THINGS, space, after[0], limit)
        things: list[MemoryRecord] = [ThingRecord(decode_thing(KINDS[kind], body)) for _, kind, body in rows]
        return MemoryPage(things, (rows[-1][0], 0) if rows else after)
    records: list[MemoryRecord] = []
    kinds = [PREFIXES[kind] for kind in OWNERS[section]]
    for number, which in await db.fetch(_OWNERS, space, kinds, after[0]):
        begin = after[1] if number == after[0] else 0
        numbered = await _READERS[section](db, space, number, which, begin, limit - len(records))
        if numbered:
            records += [record for _, record in numbered]
            after = (number, numbered[-1][0])
        if len(records) >= limit:
            break
    return MemoryPage(records, after)


async def _grants(db: Connection, _space: str, number: int, owner: str, after: int, limit: int) -> _Numbered:
    rows = await db.fetch(_GRANTS, number, after, limit)
    return [(thing, GrantRecord(owner, which, Grant(access, tainted))) for thing, which, access, tainted in rows]


async def _changes(db: Connection, _space: str, number: int, block: str, after: int, limit: int) -> _Numbered:
    changes: _Numbered = []
    for version, body, key, repeated in await db.fetch(_CHANGES, number, after, limit):
        changes.append((version, ChangeRecord(block, decode_change(version, body), key, repeated)))
    return changes


async def _turns(db: Connection, _space: str, number: int, speaker: str, after: int, limit: int) -> _Numbered:
    place = await db.fetchval(_PLACE, number, after)
    turns: _Numbered = []
    for row in await db.fetch(_TURNS, number, after, limit):
        turn = Turn(*row)
        place += 1
        upto = await db.fetchval(_PLACE, number, turn.upto) if turn.upto else 0
        turns.append((turn.number, TurnRecord(speaker, replace(turn, number=place, upto=upto))))
    return turns


async def _said_keys(db: Connection, _space: str, number: int, speaker: str, after: int, _limit: int) -> _Numbered:
    keys = () if after else tuple(row[0] for row in await db.fetch(_SAID, number))
    return [(1, SaidRecord(speaker, keys))] if keys else []


async def _passages(db: Connection, space: str, _number: int, archive: str, after: int, limit: int) -> _Numbered:
    ((_, store),) = await ThingRows(db, space).archives([archive])
    numbers = [row[0] for row in await db.fetch(_PASSAGES, store.number, after, limit)]
    vectors = {row[0]: row[1] for row in await db.fetch(_VECTORS, numbers)} if store.embedded else {}
    passages = await passage_rows.by_number(db, [store], numbers)
    records: _Numbered = []
    for number in numbers:
        if number in vectors:
            packed = struct.pack(f"<{len(vectors[number])}f", *vectors[number])
            records.append((number, PassageRecord(passages[number], packed, store.handle)))
        else:
            records.append((number, PassageRecord(passages[number])))
    return records


_READERS: dict[Section, Callable[[Connection, str, int, str, int, int], Awaitable[_Numbered]]] = {
    "grants": _grants,
    "changes": _changes,
    "turns": _turns,
    "said": _said_keys,
    "passages": _passages,
}


# --- loading


async def load(rows: ThingRows, space: str, records: Sequence[MemoryRecord]) -> list[StoredArchive]:
    """Keep these records; the archives among them, or that passages among them are in, as they are then."""
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    passages: defaultdict[str, list[PassageRecord]] = defaultdict(list)
    for record in records:
        match record:
            case ThingRecord(thing):
                await rows.add(thing, None, "", brought=False)
            case GrantRecord(owner, thing, grant):
                await rows.attach(owner, thing, grant)
            case ChangeRecord(block, change, key, repeated):
                await rows.add_change(block, change, key, repeated)
            case TurnRecord(speaker, turn):
                turns[speaker].append(turn)
            case SaidRecord(speaker, keys):
                number = await rows.speaker(speaker)
                await rows.db.executemany(_SAY_ONCE, [(number, key) for key in keys])
            case PassageRecord(passage):
                passages[passage.archive].append(record)
    for speaker, spoken in turns.items():
        await _load_turns(rows, speaker, spoken)
    for archive, inserted in passages.items():
        await _load_passages(rows, space, archive, inserted)
    return [store for _, store in await rows.archives(list(passages))]


async def _load_turns(rows: ThingRows, speaker: str, turns: Sequence[Turn]) -> None:
    agent = await rows.speaker(speaker, lock=True)
    numbers = [row[0] for row in await rows.db.fetch(_NUMBERS, agent)]
    new = [turn for turn in turns if turn.number > len(numbers)]
    # one more than needed: a summary that stands for no turn has a lower number than the first
    numbers += [row[0] for row in await rows.db.fetch(_NEW_NUMBERS, len(new))][1:]
    written: list[tuple[object, ...]] = []
    for turn in new:
        upto = numbers[turn.upto - 1] if turn.upto else numbers[0] - 1
        reached = upto if turn.role == "summary" else 0
        facts = (turn.role, turn.text, turn.when, turn.run, turn.task, turn.tainted)
        words = passage_rows.searchable(turn.text)
        written.append((numbers[turn.number - 1], agent, *facts, reached, turn.old, words))
    await rows.db.executemany(_SAY, written)


async def _load_passages(rows: ThingRows, space: str, archive: str, records: Sequence[PassageRecord]) -> None:
    ((_, store),) = await rows.archives([archive], lock=True)
    await passage_rows.write_passages(
        rows.db,
        InsertBatch(store, space, 0.0),
        [record.passage for record in records],
        units={place: record.vector for place, record in enumerate(records) if record.vector is not None},
        handle=next((record.handle for record in records if record.vector is not None), ""),
    )
