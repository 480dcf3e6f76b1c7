"""Agents, groups, tools, blocks and archives as rows of PostgreSQL; grants on them; versions of blocks; turns."""

from collections.abc import Sequence
from itertools import chain

import msgspec

from chargehand.errors import Corrupt
from chargehand.memory.blocks import Change, Grant
from chargehand.memory.catalog import PREFIXES, ChangeRecord, GrantRecord, Group, Thing
from chargehand.memory.conversations import Turn
from chargehand.memory.postgres_passages import is_storable, searchable
from chargehand.memory.tables import ThingPage
from chargehand.memory.things import AttachedRow, TurnQuery, encode_thing, name_of
from chargehand.postgres.driver import Connection, Row

# --- things and grants


_INDEXED_NAME = 200  # characters of a name by which it is looked up: an index takes no long ones
_GET = "SELECT number, body FROM things WHERE tenant = current_tenant() AND space = $1 AND id = $2 AND kind = ANY($3)"
_ROWS = "SELECT number, kind, body FROM things WHERE number = ANY($1)"
_ADD = """
    INSERT INTO things (space, id, kind, name, tags, members, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT DO NOTHING RETURNING number
"""
_REPLACE = "UPDATE things SET kind = $2, name = $3, tags = $4, members = $5, body = $6 WHERE number = $1"
_REWRITE = "UPDATE things SET body = $2 WHERE number = $1"
_GROUPS_OF = """
    SELECT number, body FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = 'group' AND members @> ARRAY[$2]
    ORDER BY number FOR NO KEY UPDATE
"""
_TAGS = """
    SELECT tag, count(*) FROM things CROSS JOIN unnest(tags) AS tag
    WHERE tenant = current_tenant() AND space = $1 AND kind = $2 GROUP BY tag ORDER BY tag
"""
_PAGE = """
    SELECT number, body FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = $2 AND ($3::text IS NULL OR name = $3) AND tags @> $4
    AND (cardinality($5::text[]) = 0 OR tags && $5) AND number > $6 AND number < $7
    ORDER BY number {direction} LIMIT $8
"""
_ATTACH = """
    INSERT INTO attachments (owner, thing, access, tainted) VALUES ($1, $2, $3, $4)
    ON CONFLICT (owner, thing) DO UPDATE SET access = excluded.access, tainted = excluded.tainted
"""
_DETACH = "DELETE FROM attachments WHERE owner = $1 AND thing = $2 RETURNING true"
_OWNERS = """
    SELECT things.id, access, tainted FROM attachments JOIN things ON things.number = attachments.owner
    WHERE attachments.thing = $1 ORDER BY things.number
"""
# a row without a thing: the agent exists and has no grant of its own
_GRANTS = """
    SELECT agents.id, attachments.thing, coalesce(access, 'none'), coalesce(tainted, false), '' AS via, 0 AS place
    FROM things AS agents
    LEFT JOIN attachments ON attachments.owner = agents.number
    WHERE agents.tenant = current_tenant() AND agents.space = $1 AND agents.kind = 'agent' AND agents.id = ANY($2)
    UNION ALL
    SELECT member, attachments.thing, access, tainted, teams.id, teams.number FROM things AS teams
    CROSS JOIN unnest(teams.members) AS member JOIN attachments ON attachments.owner = teams.number
    WHERE teams.tenant = current_tenant() AND teams.space = $1 AND teams.kind = 'group' AND member = ANY($2)
    ORDER BY place
"""
_LISTED = """
    SELECT number, kind, body FROM things WHERE tenant = current_tenant() AND space = $1 AND number > $2
    ORDER BY number LIMIT $3
"""
_IDS = """
    SELECT number, id FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = ANY($2) AND number >= $3 ORDER BY number
"""
_GRANTS_OF = """
    SELECT things.number, things.id, access, attachments.tainted FROM attachments
    JOIN things ON things.number = attachments.thing
    WHERE attachments.owner = $1 AND attachments.thing > $2 ORDER BY attachments.thing LIMIT $3
"""


class PostgresThings:
    def __init__(self, db: Connection, space: str) -> None:
        self._db = db
        self._space = space

    async def row(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> tuple[int, bytes] | None:
        if not is_storable(which):
            return None
        question = f"{_GET} FOR NO KEY UPDATE" if lock else _GET
        row = await self._db.fetchrow(question, self._space, which, kinds)
        return None if row is None else (row[0], row[1])

    async def rows(self, numbers: Sequence[int]) -> list[tuple[int, str, bytes]]:
        return [(number, kind, body) for number, kind, body in await self._db.fetch(_ROWS, numbers)]

    async def add(self, thing: Thing) -> int | None:
        return await self._db.fetchval(_ADD, self._space, thing.id, *_columns(thing))

    async def replace(self, number: int, thing: Thing) -> None:
        await self._db.execute(_REPLACE, number, *_columns(thing))

    async def rewrite(self, number: int, thing: Thing) -> None:
        await self._db.execute(_REWRITE, number, encode_thing(thing))

    async def delete(self, number: int, which: str) -> None:  # noqa: ARG002 - what hangs on it goes with it
        await self._db.execute("DELETE FROM things WHERE number = $1", number)

    async def groups_of(self, agent: str) -> list[tuple[int, bytes]]:
        return [(number, body) for number, body in await self._db.fetch(_GROUPS_OF, self._space, agent)]

    async def tags(self, kind: str) -> dict[str, int]:
        rows = await self._db.fetch(_TAGS, self._space, kind)
        return {tag: count for tag, count in rows}  # noqa: C416 - a row is no pair

    async def page(self, page: ThingPage) -> list[tuple[int, bytes]]:
        name = page.wanted.name
        tags = page.wanted.tags
        if not all(map(is_storable, chain([name or ""], tags.all, tags.some))):
            return []
        question = _PAGE.format(direction="DESC" if page.is_descending else "ASC")
        indexed_name = None if name is None else name[:_INDEXED_NAME]
        conditions = (self._space, page.kind, indexed_name, tags.all, tags.some, page.low, page.high, page.limit)
        return [(number, body) for number, body in await self._db.fetch(question, *conditions)]

    async def attach(self, owner: int, thing: int, grant: Grant) -> None:
        await self._db.execute(_ATTACH, owner, thing, grant.access, grant.tainted)

    async def detach(self, owner: int, thing: int) -> bool:
        return await self._db.fetchval(_DETACH, owner, thing) is not None

    async def owners(self, thing: int) -> dict[str, Grant]:
        rows = await self._db.fetch(_OWNERS, thing)
        return {owner: Grant(access, tainted) for owner, access, tainted in rows}

    async def grants(self, agents: Sequence[str]) -> list[AttachedRow]:
        rows = await self._db.fetch(_GRANTS, self._space, [agent for agent in agents if is_storable(agent)])
        return [
            AttachedRow(agent, thing, Grant(access, tainted), via) for agent, thing, access, tainted, via, _ in rows
        ]

    async def listed(self, after: int, limit: int) -> list[tuple[int, str, bytes]]:
        rows = await self._db.fetch(_LISTED, self._space, after, limit)
        return [(number, kind, body) for number, kind, body in rows]

    async def ids(self, kinds: Sequence[str], first: int) -> list[tuple[int, str]]:
        return [(number, which) for number, which in await self._db.fetch(_IDS, self._space, kinds, first)]

    async def grants_of(self, owner: int, which: str, after: int, limit: int) -> list[tuple[int, GrantRecord]]:
        rows = await self._db.fetch(_GRANTS_OF, owner, after, limit)
        return [(number, GrantRecord(which, thing, Grant(access, tainted))) for number, thing, access, tainted in rows]


def _columns(thing: Thing) -> tuple[object, ...]:
    """The columns of a thing besides its id: kind, name, tags, members, body."""
    tags = list(dict.fromkeys(thing.tags))
    members = list(dict.fromkeys(thing.members)) if isinstance(thing, Group) else list[str]()
    return PREFIXES[type(thing)], name_of(thing)[:_INDEXED_NAME], tags, members, encode_thing(thing)


# --- versions of blocks


_IS_REPEATED = """
    SELECT EXISTS (SELECT FROM changes WHERE block = $1 AND key = $2)
    OR EXISTS (SELECT FROM changes WHERE block = $1 AND repeated = $3 AND attempt < $4)
"""
_ADD_CHANGE = "INSERT INTO changes (block, version, attempt, key, repeated, body) VALUES ($1, $2, $3, $4, $5, $6)"
_CHANGES = "SELECT version, body, key, repeated FROM changes WHERE block = $1 AND"
_BETWEEN = f"{_CHANGES} version BETWEEN $2 AND $3"
_LATEST = f"{_CHANGES} version < $2 ORDER BY version DESC LIMIT $3"
_CHANGES_AFTER = f"{_CHANGES} version > $2 ORDER BY version LIMIT $3"
_ENCODER = msgspec.json.Encoder()
_CHANGE = msgspec.json.Decoder(Change)


class PostgresChanges:
    def __init__(self, db: Connection) -> None:
        self._db = db

    async def is_repeated(self, block: int, key: bytes, repeated: bytes | None, attempt: int) -> bool:
        return await self._db.fetchval(_IS_REPEATED, block, key, repeated, attempt)

    async def add(self, block: int, change: Change, key: bytes, repeated: bytes | None = None) -> None:
        row = (block, change.version, change.origin.attempt, key, repeated, _ENCODER.encode(change))
        await self._db.execute(_ADD_CHANGE, *row)

    async def between(self, block: int, first: int, last: int) -> list[Change]:
        return [_change(row) for row in await self._db.fetch(_BETWEEN, block, first, last)]

    async def latest(self, block: int, before: int, limit: int) -> list[Change]:
        return [_change(row) for row in await self._db.fetch(_LATEST, block, before, limit)]

    async def records(self, block: int, which: str, after: int, limit: int) -> list[tuple[int, ChangeRecord]]:
        rows = await self._db.fetch(_CHANGES_AFTER, block, after, limit)
        return [(row[0], ChangeRecord(which, _change(row), key=row[2], repeated=row[3])) for row in rows]


def _change(row: Row) -> Change:
    version, body, _, _ = row
    try:
        return _CHANGE.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"version {version} of a block cannot be read: {error}; restore a backup") from error


# --- turns


_MOST_WORDS = 64
_MAX_QUESTION = 4_000  # characters of a question
_ADD_KEYS = "INSERT INTO said (agent, key) SELECT $1, unnest($2::bytea[]) ON CONFLICT DO NOTHING RETURNING true"
_KEYS = "SELECT key FROM said WHERE agent = $1 ORDER BY key"
_ADD_TURN = """
    INSERT INTO turns (agent, role, text, moment, run, task, tainted, upto, words)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_tsvector('chargehand.words', $9))
"""
_LOAD_TURN = """
    INSERT INTO turns (number, agent, role, text, moment, run, task, tainted, upto, old, words)
    OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, to_tsvector('chargehand.words', $11))
"""
_TURNS = "SELECT role, text, number, moment, run, task, tainted, upto, old FROM turns WHERE agent = $1"
_LATEST_TURNS = f"{_TURNS} AND (NOT old OR $2) AND (place, number) < ($3, $4) ORDER BY place DESC, number DESC LIMIT $5"
_TURNS_AFTER = f"{_TURNS} AND number > $2 ORDER BY number LIMIT $3"
_PLACE = "SELECT place, number FROM turns WHERE agent = $1 AND number = $2"
_TURN_TESTS = """
    (cardinality($3::text[]) = 0 OR role = ANY($3)) AND ($4::float8 IS NULL OR moment >= $4)
    AND ($5::float8 IS NULL OR moment <= $5)
"""
# a word that occurs in few turns has a higher weight
_RECALL = f"""
    WITH asked AS (
        SELECT to_tsquery('chargehand.words', word) AS query, place
        FROM unnest($2::text[]) WITH ORDINALITY AS given (word, place)
    ), matches AS MATERIALIZED (
        SELECT number, asked.place, term_rank(words, query) AS rank FROM turns JOIN asked ON words @@ query
        WHERE agent = $1 AND {_TURN_TESTS}
    ), weights AS (
        SELECT place, 1 / (1 + ln(count(*))) AS weight FROM matches GROUP BY place
    ), best AS (
        SELECT number, sum(weight * rank) AS score FROM matches JOIN weights USING (place) GROUP BY number
        ORDER BY score DESC, number DESC LIMIT $6
    )
    SELECT role, text, number, moment, run, task, tainted, upto, old FROM turns JOIN best USING (number)
    ORDER BY score DESC, number DESC
"""  # noqa: S608 - our own words
_RECALL_LATEST = f"{_TURNS} AND cardinality($2::text[]) = 0 AND {_TURN_TESTS} ORDER BY number DESC LIMIT $6"
_FURTHEST = "SELECT coalesce(max(place), 0), coalesce(max(upto), 0) FROM turns WHERE agent = $1 AND NOT old"
_MARK_OLD = "UPDATE turns SET old = true WHERE agent = $1 AND NOT old AND place <= $2"
_COUNT = "SELECT count(*) FROM turns WHERE agent = $1 AND number <= $2"
_NUMBERS = "SELECT number FROM turns WHERE agent = $1 ORDER BY number"
_NEW_NUMBERS = """
    SELECT nextval(pg_get_serial_sequence('chargehand.turns', 'number')) AS number FROM generate_series(0, $1)
    ORDER BY number
"""


class PostgresTurns:
    def __init__(self, db: Connection) -> None:
        self._db = db

    async def add_keys(self, speaker: int, keys: Sequence[bytes]) -> int:
        return len(await self._db.fetch(_ADD_KEYS, speaker, keys))

    async def keys(self, speaker: int) -> list[bytes]:
        return [row[0] for row in await self._db.fetch(_KEYS, speaker)]

    async def add(self, speaker: int, turns: Sequence[Turn]) -> None:
        await self._db.executemany(_ADD_TURN, [(*_facts(speaker, turn), searchable(turn.text)) for turn in turns])

    async def latest(self, speaker: int, before: tuple[int, int], limit: int, *, old: bool) -> list[Turn]:
        return [Turn(*row) for row in await self._db.fetch(_LATEST_TURNS, speaker, old, *before, limit)]

    async def place(self, speaker: int, number: int) -> tuple[int, int] | None:
        row = await self._db.fetchrow(_PLACE, speaker, number)
        return None if row is None else (row[0], row[1])

    async def furthest(self, speaker: int) -> tuple[int, int]:
        ((last, reached),) = await self._db.fetch(_FURTHEST, speaker)
        return last, reached

    async def mark_old(self, speaker: int, upto: int) -> None:
        await self._db.execute(_MARK_OLD, speaker, upto)

    async def recall(self, speaker: int, query: str, wanted: TurnQuery) -> list[Turn]:
        words = list(dict.fromkeys(searchable(query[:_MAX_QUESTION]).split()))[:_MOST_WORDS]
        question = _RECALL if words else _RECALL_LATEST
        rows = await self._db.fetch(question, speaker, words, wanted.roles, wanted.start, wanted.end, wanted.limit)
        return [Turn(*row) for row in rows]

    async def delete(self, speaker: int) -> int:
        return len(await self._db.fetch("DELETE FROM turns WHERE agent = $1 RETURNING true", speaker))

    async def count(self, speaker: int, upto: int) -> int:
        return await self._db.fetchval(_COUNT, speaker, upto)

    async def listed(self, speaker: int, after: int, limit: int) -> list[Turn]:
        return [Turn(*row) for row in await self._db.fetch(_TURNS_AFTER, speaker, after, limit)]

    async def numbers(self, speaker: int) -> list[int]:
        return [row[0] for row in await self._db.fetch(_NUMBERS, speaker)]

    async def new_numbers(self, count: int) -> list[int]:
        return [row[0] for row in await self._db.fetch(_NEW_NUMBERS, count)][1:]

    async def load(self, speaker: int, turns: Sequence[Turn]) -> None:
        rows = [(turn.number, *_facts(speaker, turn), turn.old, searchable(turn.text)) for turn in turns]
        await self._db.executemany(_LOAD_TURN, rows)


def _facts(speaker: int, turn: Turn) -> tuple[object, ...]:
    return speaker, turn.role, turn.text, turn.when, turn.run, turn.task, turn.tainted, turn.upto
