"""Agents, groups, tools, blocks and archives as rows of SQLite; grants on them; versions of blocks; turns."""

import json
import sqlite3
from collections.abc import Sequence

import msgspec

from chargehand.memory.blocks import Change, Grant
from chargehand.memory.catalog import PREFIXES, ChangeRecord, GrantRecord, Group, Thing
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.sqlite_passages import purge
from chargehand.memory.tables import ThingPage
from chargehand.memory.things import AttachedRow, TurnQuery, decode_origin, encode_thing, name_of
from chargehand.text.words import WORD

# --- things and grants


_GET = "SELECT number, body, kind FROM things WHERE space = ? AND id = ?"
_ROWS = "SELECT number, kind, body FROM things WHERE number IN (SELECT value FROM json_each(?))"
_ADD = "INSERT OR IGNORE INTO things (space, kind, id, name, body) VALUES (?, ?, ?, ?, ?)"
_REPLACE = "UPDATE things SET name = ?, body = ? WHERE number = ?"
_REWRITE = "UPDATE things SET body = ? WHERE number = ?"
_ADD_TAG = "INSERT OR IGNORE INTO tags (space, kind, tag, thing) VALUES (?, ?, ?, ?)"
_ADD_MEMBER = "INSERT OR IGNORE INTO members (space, agent, team) VALUES (?, ?, ?)"
_DELETE = (
    "DELETE FROM tags WHERE thing = ?1",
    "DELETE FROM attachments WHERE owner = ?1",
    "DELETE FROM attachments WHERE thing = ?1",
    "DELETE FROM members WHERE team = ?1",
    "DELETE FROM changes WHERE block = ?1",
    "DELETE FROM turns WHERE agent = ?1",
    "DELETE FROM said WHERE agent = ?1",
    "DELETE FROM things WHERE number = ?1",
)
_GROUPS_OF = """
    SELECT things.number, things.body FROM members JOIN things ON things.number = members.team
    WHERE members.space = ? AND members.agent = ?
"""
_TAGS = "SELECT tag, count(*) FROM tags WHERE space = ? AND kind = ? GROUP BY tag ORDER BY tag"
_NUMBERED = "SELECT number, body FROM things"
_TAGGED = """
    number IN (SELECT thing FROM tags WHERE space = ? AND kind = ? AND tag IN (SELECT value FROM json_each(?)))
"""
_ATTACH = """
    INSERT INTO attachments (owner, thing, access, tainted) VALUES (?, ?, ?, ?)
    ON CONFLICT (owner, thing) DO UPDATE SET access = excluded.access, tainted = excluded.tainted
"""
_DETACH = "DELETE FROM attachments WHERE owner = ? AND thing = ?"
_OWNERS = """
    SELECT things.id, attachments.access, attachments.tainted
    FROM attachments JOIN things ON things.number = attachments.owner
    WHERE attachments.thing = ? ORDER BY things.number
"""
# a row without a thing: the agent exists and has no grant of its own
_GRANTS = """
    SELECT agents.id, attachments.thing, coalesce(attachments.access, 'none'), attachments.tainted, ''
    FROM things AS agents LEFT JOIN attachments ON attachments.owner = agents.number
    WHERE agents.space = ?1 AND agents.kind = 'agent' AND agents.id IN (SELECT value FROM json_each(?2))
    UNION ALL
    SELECT members.agent, attachments.thing, attachments.access, attachments.tainted, teams.id
    FROM members
    JOIN attachments ON attachments.owner = members.team
    JOIN things AS teams ON teams.number = members.team
    WHERE members.space = ?1 AND members.agent IN (SELECT value FROM json_each(?2))
"""
_LISTED = "SELECT number, kind, body FROM things WHERE space = ? AND number > ? ORDER BY number LIMIT ?"
_IDS = """
    SELECT number, id FROM things WHERE space = ? AND kind IN (SELECT value FROM json_each(?)) AND number >= ?
    ORDER BY number
"""
_GRANTS_OF = """
    SELECT things.number, things.id, access, tainted FROM attachments JOIN things ON things.number = attachments.thing
    WHERE attachments.owner = ? AND attachments.thing > ? ORDER BY attachments.thing LIMIT ?
"""


class SqliteThings:
    def __init__(self, db: sqlite3.Connection, space: str) -> None:
        self._db = db
        self._space = space

    async def row(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> tuple[int, bytes] | None:  # noqa: ARG002 - who writes has locked the file
        row = self._db.execute(_GET, (self._space, which)).fetchone()
        return None if row is None or row[2] not in kinds else (row[0], row[1])

    async def rows(self, numbers: Sequence[int]) -> list[tuple[int, str, bytes]]:
        return self._db.execute(_ROWS, (json.dumps(numbers),)).fetchall()

    async def add(self, thing: Thing) -> int | None:
        values = (self._space, PREFIXES[type(thing)], thing.id, name_of(thing), encode_thing(thing))
        added = self._db.execute(_ADD, values)
        if not added.rowcount:
            return None
        number = added.lastrowid
        assert number is not None
        self._add_tags(number, thing)
        return number

    async def replace(self, number: int, thing: Thing) -> None:
        self._db.execute(_REPLACE, (name_of(thing), encode_thing(thing), number))
        self._db.execute("DELETE FROM tags WHERE thing = ?", (number,))
        self._db.execute("DELETE FROM members WHERE team = ?", (number,))
        self._add_tags(number, thing)

    async def rewrite(self, number: int, thing: Thing) -> None:
        self._db.execute(_REWRITE, (encode_thing(thing), number))

    def _add_tags(self, number: int, thing: Thing) -> None:
        """What a thing is found by: its tags, and the members of a group."""
        kind = PREFIXES[type(thing)]
        self._db.executemany(_ADD_TAG, [(self._space, kind, tag, number) for tag in thing.tags])
        if isinstance(thing, Group):
            self._db.executemany(_ADD_MEMBER, [(self._space, agent, number) for agent in thing.members])

    async def delete(self, number: int, which: str) -> None:
        purge(self._db, self._space, which)
        for statement in _DELETE:
            self._db.execute(statement, (number,))

    async def groups_of(self, agent: str) -> list[tuple[int, bytes]]:
        return self._db.execute(_GROUPS_OF, (self._space, agent)).fetchall()

    async def tags(self, kind: str) -> dict[str, int]:
        return dict(self._db.execute(_TAGS, (self._space, kind)).fetchall())

    async def page(self, page: ThingPage) -> list[tuple[int, bytes]]:
        tests = ["space = ?", "kind = ?", "number > ?", "number < ?"]
        values: list[str | int] = [self._space, page.kind, page.low, page.high]
        if page.wanted.name is not None:
            tests.append("name = ?")
            values.append(page.wanted.name)
        tags = page.wanted.tags
        for choice in (*((tag,) for tag in tags.all), tags.some):
            if choice:
                tests.append(_TAGGED)
                values += [self._space, page.kind, json.dumps(choice)]
        direction = "DESC" if page.is_descending else "ASC"
        question = f"{_NUMBERED} WHERE {' AND '.join(tests)} ORDER BY number {direction} LIMIT ?"
        return self._db.execute(question, [*values, page.limit]).fetchall()

    async def attach(self, owner: int, thing: int, grant: Grant) -> None:
        self._db.execute(_ATTACH, (owner, thing, grant.access, grant.tainted))

    async def detach(self, owner: int, thing: int) -> bool:
        return self._db.execute(_DETACH, (owner, thing)).rowcount > 0

    async def owners(self, thing: int) -> dict[str, Grant]:
        rows = self._db.execute(_OWNERS, (thing,)).fetchall()
        return {owner: Grant(access, bool(tainted)) for owner, access, tainted in rows}

    async def grants(self, agents: Sequence[str]) -> list[AttachedRow]:
        rows = self._db.execute(_GRANTS, (self._space, json.dumps(agents))).fetchall()
        return [
            AttachedRow(agent, thing, Grant(access, bool(tainted)), via) for agent, thing, access, tainted, via in rows
        ]

    async def listed(self, after: int, limit: int) -> list[tuple[int, str, bytes]]:
        return self._db.execute(_LISTED, (self._space, after, limit)).fetchall()

    async def ids(self, kinds: Sequence[str], first: int) -> list[tuple[int, str]]:
        return self._db.execute(_IDS, (self._space, json.dumps(kinds), first)).fetchall()

    async def grants_of(self, owner: int, which: str, after: int, limit: int) -> list[tuple[int, GrantRecord]]:
        rows = self._db.execute(_GRANTS_OF, (owner, after, limit)).fetchall()
        return [
            (number, GrantRecord(which, thing, Grant(access, bool(tainted)))) for number, thing, access, tainted in rows
        ]


# --- versions of blocks


_REPEATED = """
    SELECT version FROM changes WHERE block = ?1 AND key = ?2
    UNION ALL SELECT version FROM changes WHERE block = ?1 AND digest = ?3 AND attempt < ?4 LIMIT 1
"""
_ADD_CHANGE = """
    INSERT INTO changes
        (block, version, kind, origin, moment, start, removed, added, parent, at, tainted, key, attempt, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CHANGES = """
    SELECT version, kind, origin, moment, start, removed, added, parent, at, tainted, key, digest FROM changes
    WHERE block = ? AND
"""
_BETWEEN = f"{_CHANGES} version BETWEEN ? AND ?"
_LATEST = f"{_CHANGES} version < ? ORDER BY version DESC LIMIT ?"
_CHANGES_AFTER = f"{_CHANGES} version > ? ORDER BY version LIMIT ?"
_ENCODER = msgspec.json.Encoder()
_ChangeRow = tuple[int, str, bytes, float, int, str, str, int, int, int, bytes, bytes | None]


class SqliteChanges:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def is_repeated(self, block: int, key: bytes, repeated: bytes | None, attempt: int) -> bool:
        return bool(self._db.execute(_REPEATED, (block, key, repeated, attempt)).fetchall())

    async def add(self, block: int, change: Change, key: bytes, repeated: bytes | None = None) -> None:
        origin = change.origin
        values = (block, change.version, change.kind, _ENCODER.encode(origin), change.when, change.start)
        texts = (change.removed, change.added, change.parent, change.at, change.tainted, key, origin.attempt, repeated)
        self._db.execute(_ADD_CHANGE, values + texts)

    async def between(self, block: int, first: int, last: int) -> list[Change]:
        return [_change(row) for row in self._db.execute(_BETWEEN, (block, first, last)).fetchall()]

    async def latest(self, block: int, before: int, limit: int) -> list[Change]:
        return [_change(row) for row in self._db.execute(_LATEST, (block, before, limit)).fetchall()]

    async def records(self, block: int, which: str, after: int, limit: int) -> list[tuple[int, ChangeRecord]]:
        rows: list[_ChangeRow] = self._db.execute(_CHANGES_AFTER, (block, after, limit)).fetchall()
        return [(row[0], ChangeRecord(which, _change(row), key=row[-2], repeated=row[-1])) for row in rows]


def _change(row: _ChangeRow) -> Change:
    version, kind, origin, moment, start, removed, added, parent, at, tainted, _, _ = row
    return Change(
        version=version,
        kind=kind,
        origin=decode_origin(version, origin),
        when=moment,
        start=start,
        removed=removed,
        added=added,
        parent=parent,
        at=at,
        tainted=bool(tainted),
    )


# --- turns


_MOST_WORDS = 64
_MAX_QUESTION = 4_000  # characters of a question
_ADD_KEY = "INSERT OR IGNORE INTO said (agent, key) VALUES (?, ?)"
_KEYS = "SELECT key FROM said WHERE agent = ? ORDER BY key"
_ADD_TURN = """
    INSERT INTO turns (number, agent, role, text, moment, run, task, tainted, upto, old)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COLUMNS = """
    SELECT turns.role, turns.text, turns.number, turns.moment, turns.run, turns.task, turns.tainted, turns.upto,
        turns.old
    FROM turns
"""
_PLACE = "iif(turns.upto, turns.upto, turns.number)"
_OF_SPEAKER = f"{_COLUMNS} WHERE turns.agent = ?"
_MATCHING = f"{_COLUMNS} JOIN turns_words ON turns_words.rowid = turns.number WHERE turns_words MATCH ?"
_BEFORE = f"AND ({_PLACE}, turns.number) < (?, ?) ORDER BY {_PLACE} DESC, turns.number DESC LIMIT ?"
_TURNS_BEFORE = f"{_OF_SPEAKER} {_BEFORE}"
_SHOWN_BEFORE = f"{_OF_SPEAKER} AND turns.old = 0 {_BEFORE}"
_TURNS_AFTER = f"{_OF_SPEAKER} AND turns.number > ? ORDER BY turns.number LIMIT ?"
_PLACE_OF = f"SELECT {_PLACE}, number FROM turns WHERE agent = ? AND number = ?"  # noqa: S608 - our own words
_FURTHEST = f"SELECT coalesce(max({_PLACE}), 0), coalesce(max(upto), 0) FROM turns WHERE agent = ? AND old = 0"  # noqa: S608 - our own words
_MARK_OLD = f"UPDATE turns SET old = 1 WHERE agent = ? AND old = 0 AND {_PLACE} <= ?"  # noqa: S608 - our own words
_COUNT = "SELECT count(*) FROM turns WHERE agent = ? AND number <= ?"
_NUMBERS = "SELECT number FROM turns WHERE agent = ? ORDER BY number"
_LAST_NUMBER = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'turns'), 0)"


class SqliteTurns:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    async def add_keys(self, speaker: int, keys: Sequence[bytes]) -> int:
        return self._db.executemany(_ADD_KEY, [(speaker, key) for key in keys]).rowcount

    async def keys(self, speaker: int) -> list[bytes]:
        return [key for (key,) in self._db.execute(_KEYS, (speaker,)).fetchall()]

    async def add(self, speaker: int, turns: Sequence[Turn]) -> None:
        self._db.executemany(_ADD_TURN, [(None, *_facts(speaker, turn), False) for turn in turns])

    async def latest(self, speaker: int, before: tuple[int, int], limit: int, *, old: bool) -> list[Turn]:
        question = _TURNS_BEFORE if old else _SHOWN_BEFORE
        return [_turn(row) for row in self._db.execute(question, (speaker, *before, limit)).fetchall()]

    async def place(self, speaker: int, number: int) -> tuple[int, int] | None:
        return self._db.execute(_PLACE_OF, (speaker, number)).fetchone()

    async def furthest(self, speaker: int) -> tuple[int, int]:
        return self._db.execute(_FURTHEST, (speaker,)).fetchone()

    async def mark_old(self, speaker: int, upto: int) -> None:
        self._db.execute(_MARK_OLD, (speaker, upto))

    async def recall(self, speaker: int, query: str, wanted: TurnQuery) -> list[Turn]:
        words = WORD.findall(query[:_MAX_QUESTION])[:_MOST_WORDS]
        values: list[object] = [speaker]
        if words:
            either = " OR ".join(f'"{word}"' for word in words)
            question = _MATCHING
            order = " ORDER BY bm25(turns_words, 0.0, 1.0), turns.number DESC"
            values = [f'agent : "{speaker}" AND text : ({either})']
        else:
            question = _OF_SPEAKER
            order = " ORDER BY turns.number DESC"
        if wanted.roles:
            question += " AND turns.role IN (" + ", ".join("?" * len(wanted.roles)) + ")"
            values += wanted.roles
        for test, bound in ((" AND turns.moment >= ?", wanted.start), (" AND turns.moment <= ?", wanted.end)):
            if bound is not None:
                question += test
                values.append(bound)
        rows = self._db.execute(question + order + " LIMIT ?", [*values, wanted.limit]).fetchall()
        return [_turn(row) for row in rows]

    async def delete(self, speaker: int) -> int:
        return self._db.execute("DELETE FROM turns WHERE agent = ?", (speaker,)).rowcount

    async def count(self, speaker: int, upto: int) -> int:
        return self._db.execute(_COUNT, (speaker, upto)).fetchone()[0]

    async def listed(self, speaker: int, after: int, limit: int) -> list[Turn]:
        return [_turn(row) for row in self._db.execute(_TURNS_AFTER, (speaker, after, limit)).fetchall()]

    async def numbers(self, speaker: int) -> list[int]:
        return [number for (number,) in self._db.execute(_NUMBERS, (speaker,)).fetchall()]

    async def new_numbers(self, count: int) -> list[int]:
        first = max(1, self._db.execute(_LAST_NUMBER).fetchone()[0]) + 1
        return list(range(first, first + count))

    async def load(self, speaker: int, turns: Sequence[Turn]) -> None:
        self._db.executemany(_ADD_TURN, [(turn.number, *_facts(speaker, turn), turn.old) for turn in turns])


def _facts(speaker: int, turn: Turn) -> tuple[object, ...]:
    return speaker, turn.role, turn.text, turn.when, turn.run, turn.task, turn.tainted, turn.upto


def _turn(row: tuple[Role, str, int, float, str, str, int, int, int]) -> Turn:
    role, text, number, when, run, task, tainted, upto, old = row
    return Turn(
        role=role,
        text=text,
        number=number,
        when=when,
        run=run,
        task=task,
        tainted=bool(tainted),
        upto=upto,
        old=bool(old),
    )
