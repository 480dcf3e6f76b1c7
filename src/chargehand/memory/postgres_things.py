"""Agents, groups, tools, blocks and archives as rows of PostgreSQL: by id, name and tag; grants; edits; turns.

A change locks the row of its thing before it reads it, so no other change comes between. An error undoes all of it.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from chargehand.engine.policy import Instant
from chargehand.errors import Corrupt
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Change, Edit, Grant, Origin, edited, value_at
from chargehand.memory.catalog import PREFIXES, Attached, Group, Profile, Thing
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Redo, Restore, Undo
from chargehand.memory.postgres_passages import StoredArchive, is_storable, searchable
from chargehand.memory.things import (
    AttachedRow,
    Grants,
    Some,
    ThingQuery,
    TurnQuery,
    all_attached,
    changed_thing,
    check_summary,
    decode_thing,
    edit_digest,
    encode_thing,
    grant_of,
    grant_without_agent,
    grants_that_count,
    has_text,
    is_shown_backwards,
    key_digest,
    missing_version,
    name_of,
    speaker_kind,
    taken_id,
    unknown_thing,
    without_member,
)
from chargehand.postgres.driver import Connection, Row

_INDEXED_NAME = 200  # characters of a name by which it is looked up: an index takes no long ones
_PAGE = 500  # things read at once when they are filtered by text
_MAX_NUMBER = 2**62
_LAST_VERSION = 2**31 - 1
_MOST_WORDS = 64
_MAX_QUESTION = 4_000  # characters of a question
_ENCODER = msgspec.json.Encoder()
_CHANGE = msgspec.json.Decoder(Change)

_GET = "SELECT number, body FROM things WHERE tenant = current_tenant() AND space = $1 AND id = $2 AND kind = ANY($3)"
_ARCHIVES = """
    SELECT id, body, number, coalesce(handle, ''), coalesce(width, 0), coalesce(passages, 0), coalesce(embedded, 0)
    FROM things LEFT JOIN holdings ON holdings.archive = things.number
    WHERE things.tenant = current_tenant() AND space = $1 AND kind = 'archive' AND id = ANY($2)
"""
_ADD = """
    INSERT INTO things (space, id, kind, name, tags, members, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT DO NOTHING RETURNING number
"""
_REWRITE = "UPDATE things SET kind = $2, name = $3, tags = $4, members = $5, body = $6 WHERE number = $1"
_TAGS = """
    SELECT tag, count(*) FROM things CROSS JOIN unnest(tags) AS tag
    WHERE tenant = current_tenant() AND space = $1 AND kind = $2 GROUP BY tag ORDER BY tag
"""
_FIND = """
    SELECT number, body FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = $2 AND ($3::text IS NULL OR name = $3) AND tags @> $4
    AND (cardinality($5::text[]) = 0 OR tags && $5) AND number > $6 AND number < $7
    ORDER BY number {direction} LIMIT $8
"""
_GROUPS_OF = """
    SELECT number, body FROM things
    WHERE tenant = current_tenant() AND space = $1 AND kind = 'group' AND members @> ARRAY[$2]
    ORDER BY number FOR NO KEY UPDATE
"""
_ATTACH = """
    INSERT INTO attachments (owner, thing, access, tainted) VALUES ($1, $2, $3, $4)
    ON CONFLICT (owner, thing) DO UPDATE SET access = excluded.access, tainted = excluded.tainted
"""
_OWNERS = """
    SELECT things.id, access, tainted FROM attachments JOIN things ON things.number = attachments.owner
    WHERE attachments.thing = $1 ORDER BY things.number
"""
# a row without a thing: the agent exists and has no grant of its own
_GRANTS = """
    SELECT agents.id, attachments.thing, access, tainted, '' AS via, 0 AS place FROM things AS agents
    LEFT JOIN attachments ON attachments.owner = agents.number
    WHERE agents.tenant = current_tenant() AND agents.space = $1 AND agents.kind = 'agent' AND agents.id = ANY($2)
    UNION ALL
    SELECT member, attachments.thing, access, tainted, teams.id, teams.number FROM things AS teams
    CROSS JOIN unnest(teams.members) AS member JOIN attachments ON attachments.owner = teams.number
    WHERE teams.tenant = current_tenant() AND teams.space = $1 AND teams.kind = 'group' AND member = ANY($2)
    ORDER BY place
"""
_THINGS = "SELECT number, kind, body FROM things WHERE number = ANY($1)"
_IS_REPEATED = """
    SELECT EXISTS (SELECT FROM changes WHERE block = $1 AND key = $2)
    OR EXISTS (SELECT FROM changes WHERE block = $1 AND repeated = $3 AND attempt < $4)
"""
_INSERT_CHANGE = "INSERT INTO changes (block, version, attempt, key, repeated, body) VALUES ($1, $2, $3, $4, $5, $6)"
_VERSIONS = "SELECT version, body FROM changes WHERE block = $1 AND version BETWEEN $2 AND $3"
_LATEST = "SELECT version, body FROM changes WHERE block = $1 AND version < $2 ORDER BY version DESC LIMIT $3"
_RECORD_KEY = "INSERT INTO said (agent, key) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
_INSERT_TURN = """
    INSERT INTO turns (agent, role, text, moment, run, task, tainted, upto, words)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_tsvector('chargehand.words', $9))
"""
_TURNS = "SELECT role, text, number, moment, run, task, tainted, upto, old FROM turns WHERE agent = $1"
_LATEST_TURNS = f"{_TURNS} AND (NOT old OR $2) AND (place, number) < ($3, $4) ORDER BY place DESC, number DESC LIMIT $5"
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


def _columns(thing: Thing) -> tuple[object, ...]:
    """The columns of a thing besides its id: kind, name, tags, members, body."""
    tags = list(dict.fromkeys(thing.tags))
    members = list(dict.fromkeys(thing.members)) if isinstance(thing, Group) else list[str]()
    return PREFIXES[type(thing)], name_of(thing)[:_INDEXED_NAME], tags, members, encode_thing(thing)


class ThingRows:
    """One space of one tenant, within a transaction."""

    def __init__(self, db: Connection, space: str) -> None:
        self.db = db
        self._space = space

    # --- by id

    async def _row(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> Row | None:
        if not is_storable(which):
            return None
        question = f"{_GET} FOR NO KEY UPDATE" if lock else _GET
        return await self.db.fetchrow(question, self._space, which, kinds)

    async def get(self, kind: type[Some], which: str) -> Some | None:
        row = await self._row((PREFIXES[kind],), which)
        return None if row is None else decode_thing(kind, row[1])

    async def need(self, kind: type[Some], which: str, *, lock: bool = False) -> tuple[int, Some]:
        """A thing that must be there, and its number."""
        row = await self._row((PREFIXES[kind],), which, lock=lock)
        if row is None:
            raise unknown_thing(PREFIXES[kind], which)
        return row[0], decode_thing(kind, row[1])

    async def _need_number(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> int:
        row = await self._row(kinds, which, lock=lock)
        if row is None:
            raise unknown_thing(" or ".join(kinds), which)
        return row[0]

    async def archives(self, ids: Sequence[str], *, lock: bool = False) -> list[tuple[Archive, StoredArchive]]:
        """Archives that must be there, and what they hold."""
        if lock:  # by itself: a statement that waits for a lock still sees other tables as they were before
            for which in ids:
                await self._row((PREFIXES[Archive],), which, lock=True)
        rows = await self.db.fetch(_ARCHIVES, self._space, [which for which in ids if is_storable(which)])
        archives: dict[str, tuple[Archive, StoredArchive]] = {}
        for which, body, *columns in rows:
            archives[which] = (decode_thing(Archive, body), StoredArchive(which, *columns))
        for which in ids:
            if which not in archives:
                raise unknown_thing(PREFIXES[Archive], which)
        return [archives[which] for which in ids]

    async def add(self, thing: Thing, first: Change | None, key: str, *, brought: bool) -> None:
        """Keep a new thing, and the first version of a block.

        One whose id was not brought is there already only if this is the second try of one call.
        """
        number = await self.db.fetchval(_ADD, self._space, thing.id, *_columns(thing))
        if number is None and brought:
            raise taken_id(thing)
        if number is not None and first is not None:
            await self._insert_change(number, first, key_digest(key))

    async def change(self, thing: Some, now: Instant, expect: Instant | None) -> Some:
        number, existing = await self.need(type(thing), thing.id, lock=True)
        changed = changed_thing(thing, existing, now, expect)
        await self.rewrite(number, changed)
        return changed

    async def rewrite(self, number: int, thing: Thing) -> None:
        await self.db.execute(_REWRITE, number, *_columns(thing))

    async def delete(self, kind: type[Thing], which: str) -> bool:
        row = await self._row((PREFIXES[kind],), which, lock=True)
        if row is None:
            return False
        if kind is Profile:
            for number, body in await self.db.fetch(_GROUPS_OF, self._space, which):
                await self.rewrite(number, without_member(decode_thing(Group, body), which))
        await self.db.execute("DELETE FROM things WHERE number = $1", row[0])
        return True

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        rows = await self.db.fetch(_TAGS, self._space, PREFIXES[kind])
        return {tag: count for tag, count in rows}  # noqa: C416 - a row is no pair

    async def find(self, kind: type[Some], wanted: ThingQuery) -> list[Some]:
        bounds = await self._bounds(kind, wanted)
        names = [wanted.name] if wanted.name is not None else []
        if not all(map(is_storable, chain(names, wanted.tags.all, wanted.tags.some))):
            return []
        backwards = is_shown_backwards(wanted.after, wanted.before)
        descending = (wanted.order == "desc") != backwards
        question = _FIND.format(direction="DESC" if descending else "ASC")
        text = wanted.text.casefold()
        name = None if wanted.name is None else wanted.name[:_INDEXED_NAME]
        conditions = (self._space, PREFIXES[kind], name, wanted.tags.all, wanted.tags.some)
        page = _PAGE if text else wanted.limit
        things: list[Some] = []
        while len(things) < wanted.limit:
            rows = await self.db.fetch(question, *conditions, *bounds, page)
            for _, body in rows:
                thing = decode_thing(kind, body)
                if has_text(thing, text) and wanted.name in (None, name_of(thing)):
                    things.append(thing)
            if len(rows) < page:
                break
            bounds = (bounds[0], rows[-1][0]) if descending else (rows[-1][0], bounds[1])
        things = things[: wanted.limit]
        return things[::-1] if backwards else things

    async def _bounds(self, kind: type[Thing], wanted: ThingQuery) -> tuple[int, int]:
        """The numbers between which things are wanted."""
        kinds = (PREFIXES[kind],)
        after = await self._need_number(kinds, wanted.after) if wanted.after else None
        before = await self._need_number(kinds, wanted.before) if wanted.before else None
        low, high = (after, before) if wanted.order == "asc" else (before, after)
        return 0 if low is None else low, _MAX_NUMBER if high is None else high

    # --- grants

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        holder = await self._need_number(("agent", "group"), owner)
        number = await self._need_number(("block", "archive"), thing, lock=True)
        await self.db.execute(_ATTACH, holder, number, grant.access, grant.tainted)

    async def detach(self, owner: str, thing: str) -> bool:
        holder = await self._need_number(("agent", "group"), owner)
        number = await self._need_number(("block", "archive"), thing, lock=True)
        delete = "DELETE FROM attachments WHERE owner = $1 AND thing = $2 RETURNING true"
        return await self.db.fetchval(delete, holder, number) is not None

    async def owners(self, thing: str) -> dict[str, Grant]:
        rows = await self.db.fetch(_OWNERS, await self._need_number(("block", "archive"), thing))
        return {owner: Grant(access, tainted) for owner, access, tainted in rows}

    async def attached(self, agent: str) -> list[Attached]:
        attached = await self.attached_to([agent])
        if agent not in attached:
            raise unknown_thing(PREFIXES[Profile], agent)
        return attached[agent]

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        existing, grants = await self._grants(agents)
        numbers = {thing for own in grants.values() for thing in own}
        things: dict[int, Block | Archive] = {}
        for number, kind, body in await self.db.fetch(_THINGS, list(numbers)):
            things[number] = decode_thing(Block, body) if kind == "block" else decode_thing(Archive, body)
        return all_attached(agents, existing, grants, things)

    async def _grants(self, agents: Sequence[str]) -> tuple[set[str], Grants]:
        """The agents that exist, and their grants."""
        rows = await self.db.fetch(_GRANTS, self._space, [agent for agent in agents if is_storable(agent)])
        granted = [row for row in rows if row[1] is not None]
        grants = grants_that_count(
            AttachedRow(agent, thing, Grant(access, tainted), via) for agent, thing, access, tainted, via, _ in granted
        )
        return {agent for agent, _, _, _, via, _ in rows if not via}, grants

    async def granted(self, thing: int, agent: str, origin: Origin) -> Grant:
        """What an agent may do with a block or an archive; without an agent the origin must not be a worker's."""
        if not agent:
            return grant_without_agent(origin)
        existing, grants = await self._grants([agent])
        if agent not in existing:
            raise unknown_thing(PREFIXES[Profile], agent)
        return grant_of(grants, agent, thing)

    # --- blocks

    async def edit(
        self, which: str, edit: Edit, origin: Origin, *, key: str, agent: str, expect: int | None, now: Instant
    ) -> Block:
        """Apply an edit, unless it was applied under this key before."""
        number, block = await self.need(Block, which, lock=True)
        repeated = edit_digest(edit, origin)
        key_used = key_digest(key)
        if await self.db.fetchval(_IS_REPEATED, number, key_used, repeated, origin.attempt):
            return block
        grant = await self.granted(number, agent, origin)
        past = await self._past(number, block, edit)
        after, change = edited(block, edit, grant, origin, now, expect=expect, past=past)
        if change.version != block.version:
            await self.rewrite(number, after)
            await self._insert_change(number, change, key_used, repeated)
        return after

    async def add_change(self, which: str, change: Change, key: bytes, repeated: bytes | None) -> None:
        """Keep one version of a block unless it is there; `key` is a digest."""
        number = await self._need_number(("block",), which)
        if not await self.db.fetch(_VERSIONS, number, change.version, change.version):
            await self._insert_change(number, change, key, repeated)

    async def _insert_change(self, block: int, change: Change, key: bytes, repeated: bytes | None = None) -> None:
        row = (block, change.version, change.origin.attempt, key, repeated, _ENCODER.encode(change))
        await self.db.execute(_INSERT_CHANGE, *row)

    async def _past(self, number: int, block: Block, edit: Edit) -> "Callable[[int], Change]":
        """The changes that an edit goes back to."""
        match edit:
            case Undo():
                changes = await self._versions(number, block.at, block.at)
                parent = changes[0].parent if changes else 0
                changes += await self._versions(number, parent, parent)
            case Redo():
                undone = block.redo[-1] if block.redo else 0
                changes = await self._versions(number, undone, undone)
            case Restore(version):
                changes = await self._versions(number, version, block.version)
            case _:
                changes = []
        return _past_of(changes)

    async def _versions(self, block: int, first: int, last: int) -> list[Change]:
        return [decode_change(*row) for row in await self.db.fetch(_VERSIONS, block, _bounded(first), _bounded(last))]

    async def history(self, which: str, limit: int, before: int | None) -> list[Change]:
        number = await self._need_number(("block",), which)
        upto = _LAST_VERSION if before is None else _bounded(before)
        return [decode_change(*row) for row in await self.db.fetch(_LATEST, number, upto, max(0, limit))]

    async def text_at(self, which: str, version: int) -> str:
        number, block = await self.need(Block, which)
        return value_at(block, version, _past_of(await self._versions(number, version, block.version)))

    # --- turns

    async def speaker(self, which: str, *, lock: bool = False) -> int:
        """The number under which turns are kept: an agent's own, or that of a conversation beside it."""
        return await self._need_number((PREFIXES[speaker_kind(which)],), which, lock=lock)

    async def say(self, which: str, turns: Sequence[Turn], key: str, now: Instant) -> bool:
        agent = await self.speaker(which, lock=True)
        if not await self.db.fetchval(_RECORD_KEY, agent, key_digest(key)):
            return False
        await self.db.executemany(_INSERT_TURN, [_turn_row(agent, turn, now) for turn in turns])
        return True

    async def turns(self, which: str, limit: int, before: int | None, *, old: bool) -> list[Turn]:
        agent = await self.speaker(which)
        place: Sequence[int] = (_MAX_NUMBER, 0)
        if before is not None:
            place = await self.db.fetchrow(_PLACE, agent, before) or (before, 0)
        rows = await self.db.fetch(_LATEST_TURNS, agent, old, *place, max(0, limit))
        return [Turn(*row) for row in reversed(rows)]

    async def recall(self, which: str, query: str, wanted: TurnQuery) -> list[Turn]:
        """The turns that match the query best; the latest ones if the query has no words."""
        agent = await self.speaker(which)
        words = list(dict.fromkeys(searchable(query[:_MAX_QUESTION]).split()))[:_MOST_WORDS]
        question = _RECALL if words else _RECALL_LATEST
        values = (agent, words, wanted.roles, wanted.start, wanted.end, max(0, wanted.limit))
        rows = await self.db.fetch(question, *values)
        return [Turn(*row) for row in rows]

    async def summarise(self, which: str, summary: Turn, now: Instant) -> bool:
        agent = await self.speaker(which, lock=True)
        furthest = await self.db.fetchrow(_FURTHEST, agent) or (0, 0)
        check_summary(summary, which, furthest[0])
        if summary.upto <= furthest[1]:
            return False
        await self.db.execute(_MARK_OLD, agent, summary.upto)
        await self.db.executemany(_INSERT_TURN, [_turn_row(agent, summary, now)])
        return True

    async def reset(self, which: str) -> int:
        agent = await self.speaker(which, lock=True)
        return len(await self.db.fetch("DELETE FROM turns WHERE agent = $1 RETURNING true", agent))


def _bounded(version: int) -> int:
    """A version that the column could have."""
    return max(0, min(version, _LAST_VERSION))


def decode_change(version: int, body: bytes) -> Change:
    try:
        return _CHANGE.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"version {version} of a block cannot be read: {error}; restore a backup") from error


def _past_of(changes: Sequence[Change]) -> "Callable[[int], Change]":
    by_version = {change.version: change for change in changes}

    def past(version: int) -> Change:
        if version not in by_version:
            raise missing_version(version)
        return by_version[version]

    return past


def _turn_row(agent: int, turn: Turn, now: Instant) -> tuple[object, ...]:
    return (
        agent,
        turn.role,
        turn.text,
        turn.when or now,
        turn.run,
        turn.task,
        turn.tainted,
        turn.upto if turn.role == "summary" else 0,
        searchable(turn.text),
    )
