"""Agents, groups, tools, blocks and archives as rows: by id, name and tag; grants on them; edits of blocks; turns.

Every function here raises its refusals before it has written anything.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import msgspec

from chargehand.engine.policy import Instant
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Change, Edit, Grant, Origin, edited, value_at
from chargehand.memory.catalog import PREFIXES, Attached, Group, Profile, Thing
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.things import (
    AttachedRow,
    Grants,
    Some,
    ThingQuery,
    TurnQuery,
    all_attached,
    changed_thing,
    check_names,
    check_summary,
    decode_origin,
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
from chargehand.text.words import WORD

_GET = "SELECT number, body FROM things WHERE space = ? AND id = ? AND kind = ?"
_NUMBER = "SELECT number FROM things WHERE space = ? AND id = ?"
_ADD = "INSERT INTO things (space, kind, id, name, body) VALUES (?, ?, ?, ?, ?)"
_CHANGE = "UPDATE things SET name = ?, body = ? WHERE number = ?"
_TAG = "INSERT OR IGNORE INTO tags (space, kind, tag, thing) VALUES (?, ?, ?, ?)"
_JOIN = "INSERT OR IGNORE INTO members (space, agent, team) VALUES (?, ?, ?)"
_TAGS = "SELECT tag, count(*) FROM tags WHERE space = ? AND kind = ? GROUP BY tag ORDER BY tag"
_FIND = "SELECT body FROM things WHERE "
_TAGGED = "number IN (SELECT thing FROM tags WHERE space = ? AND kind = ? AND tag IN ("
_TEAMS = "SELECT things.number, things.body FROM members JOIN things ON things.number = members.team "
_TEAMS_OF = _TEAMS + "WHERE members.space = ? AND members.agent = ?"
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


def get(db: sqlite3.Connection, space: str, kind: type[Some], which: str) -> Some | None:
    row = db.execute(_GET, (space, which, PREFIXES[kind])).fetchone()
    return decode_thing(kind, row[1]) if row else None


def need(db: sqlite3.Connection, space: str, kind: type[Some], which: str) -> tuple[int, Some]:
    """A thing that must be there, and its number."""
    row = db.execute(_GET, (space, which, PREFIXES[kind])).fetchone()
    if row is None:
        raise unknown_thing(PREFIXES[kind], which)
    return row[0], decode_thing(kind, row[1])


def need_number(db: sqlite3.Connection, space: str, kind: type[Thing], which: str) -> int:
    row = db.execute(_NUMBER + " AND kind = ?", (space, which, PREFIXES[kind])).fetchone()
    if row is None:
        raise unknown_thing(PREFIXES[kind], which)
    return int(row[0])


def add(db: sqlite3.Connection, space: str, thing: Thing, body: bytes, *, brought: bool) -> int | None:
    """Its number; None when it is there already because this is the second try of one call."""
    if db.execute(_NUMBER, (space, thing.id)).fetchone():
        if brought:
            raise taken_id(thing)
        return None
    number = db.execute(_ADD, (space, PREFIXES[type(thing)], thing.id, name_of(thing), body)).lastrowid
    assert number is not None
    _connect(db, space, number, thing)
    return number


def change(db: sqlite3.Connection, space: str, thing: Some, now: Instant, expect: Instant | None) -> Some:
    check_names(thing)
    number, existing = need(db, space, type(thing), thing.id)
    changed = changed_thing(thing, existing, now, expect)
    rewrite(db, number, changed)
    db.execute("DELETE FROM tags WHERE thing = ?", (number,))
    db.execute("DELETE FROM members WHERE team = ?", (number,))
    _connect(db, space, number, changed)
    return changed


def rewrite(db: sqlite3.Connection, number: int, thing: Thing) -> None:
    """Keep a thing whose tags and members are as they were."""
    db.execute(_CHANGE, (name_of(thing), encode_thing(thing), number))


def _connect(db: sqlite3.Connection, space: str, number: int, thing: Thing) -> None:
    kind = PREFIXES[type(thing)]
    if thing.tags:
        db.executemany(_TAG, [(space, kind, tag, number) for tag in thing.tags])
    if isinstance(thing, Group):
        db.executemany(_JOIN, [(space, agent, number) for agent in thing.members])


def delete(db: sqlite3.Connection, space: str, kind: type[Thing], which: str) -> bool:
    row = db.execute(_GET, (space, which, PREFIXES[kind])).fetchone()
    if row is None:
        return False
    if kind is Profile:
        _leave_groups(db, space, which)
    for statement in _DELETE:
        db.execute(statement, (row[0],))
    return True


def _leave_groups(db: sqlite3.Connection, space: str, agent: str) -> None:
    for number, body in db.execute(_TEAMS_OF, (space, agent)).fetchall():
        rewrite(db, number, without_member(decode_thing(Group, body), agent))
    db.execute("DELETE FROM members WHERE space = ? AND agent = ?", (space, agent))


def tags(db: sqlite3.Connection, space: str, kind: type[Thing]) -> dict[str, int]:
    return dict(db.execute(_TAGS, (space, PREFIXES[kind])).fetchall())


def find(db: sqlite3.Connection, space: str, kind: type[Some], wanted: ThingQuery) -> list[Some]:
    tests = ["space = ?", "kind = ?"]
    values = [space, PREFIXES[kind]]
    if wanted.name is not None:
        tests.append("name = ?")
        values.append(wanted.name)
    for group in (*((tag,) for tag in wanted.tags.all), wanted.tags.some):
        if group:
            tests.append(_TAGGED + ", ".join("?" * len(group)) + "))")
            values += [space, PREFIXES[kind], *group]
    later = ">" if wanted.order == "asc" else "<"
    earlier = "<" if wanted.order == "asc" else ">"
    if wanted.after:
        tests.append(f"number {later} {need_number(db, space, kind, wanted.after):d}")
    if wanted.before:
        tests.append(f"number {earlier} {need_number(db, space, kind, wanted.before):d}")
    backwards = is_shown_backwards(wanted.after, wanted.before)
    direction = "DESC" if (wanted.order == "desc") != backwards else "ASC"
    rows = db.execute(_FIND + " AND ".join(tests) + " ORDER BY number " + direction, values)
    things = list(islice(_matching(rows, kind, wanted.text.casefold()), wanted.limit))
    return things[::-1] if backwards else things


def _matching(rows: sqlite3.Cursor, kind: type[Some], text: str) -> Iterator[Some]:
    for (body,) in rows:
        thing = decode_thing(kind, body)
        if has_text(thing, text):
            yield thing


_EITHER = "SELECT number FROM things WHERE space = ? AND id = ? AND kind IN (?, ?)"
_ATTACH = """
    INSERT INTO attachments (owner, thing, access, tainted) VALUES (?, ?, ?, ?)
    ON CONFLICT (owner, thing) DO UPDATE SET access = excluded.access, tainted = excluded.tainted
"""
_OWNERS = """
    SELECT things.id, attachments.access, attachments.tainted
    FROM attachments JOIN things ON things.number = attachments.owner
    WHERE attachments.thing = ? ORDER BY things.number
"""
_GRANTS = """
    SELECT agents.id, attachments.thing, attachments.access, attachments.tainted, ''
    FROM things AS agents JOIN attachments ON attachments.owner = agents.number
    WHERE agents.space = ?1 AND agents.kind = 'agent' AND agents.id IN (SELECT value FROM json_each(?2))
    UNION ALL
    SELECT members.agent, attachments.thing, attachments.access, attachments.tainted, teams.id
    FROM members
    JOIN attachments ON attachments.owner = members.team
    JOIN things AS teams ON teams.number = members.team
    WHERE members.space = ?1 AND members.agent IN (SELECT value FROM json_each(?2))
"""
_AGENTS = "SELECT id FROM things WHERE space = ? AND kind = 'agent' AND id IN (SELECT value FROM json_each(?))"
_THINGS = "SELECT number, kind, body FROM things WHERE number IN (SELECT value FROM json_each(?))"


def attach(db: sqlite3.Connection, space: str, owner: str, thing: str, grant: Grant) -> None:
    holder = _owner(db, space, owner)
    number = _thing(db, space, thing)
    db.execute(_ATTACH, (holder, number, grant.access, grant.tainted))


def detach(db: sqlite3.Connection, space: str, owner: str, thing: str) -> bool:
    holder = _owner(db, space, owner)
    number = _thing(db, space, thing)
    return db.execute("DELETE FROM attachments WHERE owner = ? AND thing = ?", (holder, number)).rowcount > 0


def owners(db: sqlite3.Connection, space: str, thing: str) -> dict[str, Grant]:
    rows = db.execute(_OWNERS, (_thing(db, space, thing),)).fetchall()
    return {owner: Grant(access, bool(tainted)) for owner, access, tainted in rows}


def attached(db: sqlite3.Connection, space: str, agent: str) -> list[Attached]:
    need_number(db, space, Profile, agent)
    return attached_to(db, space, (agent,))[agent]


def attached_to(db: sqlite3.Connection, space: str, agents: Sequence[str]) -> dict[str, list[Attached]]:
    """What several agents may use, each thing read once; an agent that is not there is left out."""
    existing = {which for (which,) in db.execute(_AGENTS, (space, json.dumps(list(agents)))).fetchall()}
    grants = _grants(db, space, list(existing))
    things = _things(db, {thing for own in grants.values() for thing in own})
    return all_attached(agents, existing, grants, things)


def _grants(db: sqlite3.Connection, space: str, agents: Sequence[str]) -> Grants:
    rows = db.execute(_GRANTS, (space, json.dumps(agents))).fetchall()
    return grants_that_count(
        AttachedRow(agent, thing, Grant(access, bool(tainted)), via) for agent, thing, access, tainted, via in rows
    )


def _things(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Block | Archive]:
    rows = db.execute(_THINGS, (json.dumps(list(numbers)),)).fetchall()
    return {
        number: decode_thing(Block, body) if kind == "block" else decode_thing(Archive, body)
        for number, kind, body in rows
    }


def granted(db: sqlite3.Connection, space: str, thing: int, agent: str, origin: Origin) -> Grant:
    """What an agent may do with a block or an archive; without an agent the origin must not be a worker's."""
    if not agent:
        return grant_without_agent(origin)
    need_number(db, space, Profile, agent)
    return grant_of(_grants(db, space, [agent]), agent, thing)


def _owner(db: sqlite3.Connection, space: str, which: str) -> int:
    row = db.execute(_EITHER, (space, which, "agent", "group")).fetchone()
    if row is None:
        raise unknown_thing("agent or group", which)
    return int(row[0])


def _thing(db: sqlite3.Connection, space: str, which: str) -> int:
    row = db.execute(_EITHER, (space, which, "block", "archive")).fetchone()
    if row is None:
        raise unknown_thing("block or archive", which)
    return int(row[0])


_DONE = "SELECT 1 FROM changes WHERE block = ? AND key = ?"
_EARLIER = "SELECT 1 FROM changes WHERE block = ? AND digest = ? AND attempt < ?"
_UPDATE = "UPDATE things SET body = ? WHERE number = ?"
_KEEP = """
    INSERT INTO changes
        (block, version, kind, origin, moment, start, removed, added, parent, at, tainted, key, attempt, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CHANGE_COLUMNS = "SELECT version, kind, origin, moment, start, removed, added, parent, at, tainted FROM changes "
_ONE = _CHANGE_COLUMNS + "WHERE block = ? AND version = ?"
_LATEST = _CHANGE_COLUMNS + "WHERE block = ? AND version < ? ORDER BY version DESC LIMIT ?"
_MOST = 2**62
_ENCODER = msgspec.json.Encoder()


def keep(db: sqlite3.Connection, block: int, change: Change, *, key: bytes, digest: bytes | None = None) -> None:
    """Write one version's row; `key` is a digest, too."""
    origin = change.origin
    values = (block, change.version, change.kind, _ENCODER.encode(origin), change.when, change.start)
    texts = (change.removed, change.added, change.parent, change.at, change.tainted, key, origin.attempt, digest)
    db.execute(_KEEP, values + texts)


def edit(
    db: sqlite3.Connection,
    space: str,
    which: str,
    edit: Edit,
    origin: Origin,
    *,
    key: str,
    agent: str,
    expect: int | None,
    now: Instant,
) -> Block:
    """Apply an edit, unless it was applied under this key before."""
    number, block = need(db, space, Block, which)
    digest = edit_digest(edit, origin)
    key_used = key_digest(key)
    if db.execute(_DONE, (number, key_used)).fetchone():
        return block
    if digest is not None and db.execute(_EARLIER, (number, digest, origin.attempt)).fetchone():
        return block
    grant = granted(db, space, number, agent, origin)
    after, change = edited(block, edit, grant, origin, now, expect=expect, past=partial(_past, db, number))
    if change.version != block.version:
        db.execute(_UPDATE, (_ENCODER.encode(after), number))
        keep(db, number, change, key=key_used, digest=digest)
    return after


def history(db: sqlite3.Connection, space: str, which: str, limit: int, before: int | None) -> list[Change]:
    number = need_number(db, space, Block, which)
    rows = db.execute(_LATEST, (number, _MOST if before is None else before, max(0, limit))).fetchall()
    return [read_change(row) for row in rows]


def text_at(db: sqlite3.Connection, space: str, which: str, version: int) -> str:
    number, block = need(db, space, Block, which)
    return value_at(block, version, partial(_past, db, number))


def _past(db: sqlite3.Connection, block: int, version: int) -> Change:
    row = db.execute(_ONE, (block, version)).fetchone()
    if row is None:
        raise missing_version(version)
    return read_change(row)


def read_change(row: tuple[int, str, bytes, float, int, str, str, int, int, int]) -> Change:
    version, kind, origin, moment, start, removed, added, parent, at, tainted = row
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
_READ = 4_000  # characters of a question
_SAY = """
    INSERT INTO turns (agent, role, text, moment, run, task, tainted, upto, old) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
_TURN_COLUMNS = """
    SELECT turns.role, turns.text, turns.number, turns.moment, turns.run, turns.task, turns.tainted, turns.upto,
        turns.old
    FROM turns
"""
_PLACE = "iif(turns.upto, turns.upto, turns.number)"
_IN_ORDER = _TURN_COLUMNS + " WHERE turns.agent = ?"
_FOUND = _TURN_COLUMNS + " JOIN turns_words ON turns_words.rowid = turns.number WHERE turns_words MATCH ?"
_PLACE_OF = f"SELECT {_PLACE}, number FROM turns WHERE agent = ? AND number = ?"  # noqa: S608 - our own words
_FURTHEST = f"SELECT max({_PLACE}), max(upto) FROM turns WHERE agent = ? AND old = 0"  # noqa: S608 - our own words
_BEHIND = f"UPDATE turns SET old = 1 WHERE agent = ? AND old = 0 AND {_PLACE} <= ?"  # noqa: S608 - our own words


def _speaker(db: sqlite3.Connection, space: str, which: str) -> int:
    """The number under which turns are kept: an agent's own, or that of a conversation beside it."""
    return need_number(db, space, speaker_kind(which), which)


def say(db: sqlite3.Connection, space: str, which: str, turns: Sequence[Turn], key: str, now: Instant) -> bool:
    agent = _speaker(db, space, which)
    if not db.execute("INSERT OR IGNORE INTO said (agent, key) VALUES (?, ?)", (agent, key_digest(key))).rowcount:
        return False
    db.executemany(_SAY, [_row(agent, turn, now) for turn in turns])
    return True


def turns(db: sqlite3.Connection, space: str, which: str, limit: int, before: int | None, *, old: bool) -> list[Turn]:
    agent = _speaker(db, space, which)
    question = _IN_ORDER
    values = [agent]
    if not old:
        question += " AND turns.old = 0"
    if before is not None:
        question += f" AND ({_PLACE}, turns.number) < (?, ?)"
        values += db.execute(_PLACE_OF, (agent, before)).fetchone() or (before, 0)
    question += f" ORDER BY {_PLACE} DESC, turns.number DESC LIMIT ?"
    rows = db.execute(question, [*values, max(0, limit)]).fetchall()
    return [read_turn(row) for row in reversed(rows)]


def recall(db: sqlite3.Connection, space: str, which: str, query: str, wanted: TurnQuery) -> list[Turn]:
    """Without any word to look for: the latest ones that fit."""
    agent = _speaker(db, space, which)
    words = WORD.findall(query[:_READ])[:_MOST_WORDS]
    values: list[object] = [agent]
    if words:
        either = " OR ".join(f'"{word}"' for word in words)
        question = _FOUND
        order = " ORDER BY bm25(turns_words, 0.0, 1.0), turns.number DESC"
        values = [f'agent : "{agent}" AND text : ({either})']
    else:
        question = _IN_ORDER
        order = " ORDER BY turns.number DESC"
    if wanted.roles:
        question += " AND turns.role IN (" + ", ".join("?" * len(wanted.roles)) + ")"
        values += wanted.roles
    for test, bound in ((" AND turns.moment >= ?", wanted.start), (" AND turns.moment <= ?", wanted.end)):
        if bound is not None:
            question += test
            values.append(bound)
    rows = db.execute(question + order + " LIMIT ?", [*values, max(0, wanted.limit)]).fetchall()
    return [read_turn(row) for row in rows]


def summarise(db: sqlite3.Connection, space: str, which: str, summary: Turn, now: Instant) -> bool:
    agent = _speaker(db, space, which)
    last, reached = db.execute(_FURTHEST, (agent,)).fetchone()
    check_summary(summary, which, last or 0)
    if summary.upto <= (reached or 0):
        return False
    db.execute(_BEHIND, (agent, summary.upto))
    db.execute(_SAY, _row(agent, summary, now))
    return True


def reset(db: sqlite3.Connection, space: str, which: str) -> int:
    agent = _speaker(db, space, which)
    return db.execute("DELETE FROM turns WHERE agent = ?", (agent,)).rowcount


def _row(agent: int, turn: Turn, now: Instant) -> tuple[object, ...]:
    return (
        agent,
        turn.role,
        turn.text,
        turn.when or now,
        turn.run,
        turn.task,
        turn.tainted,
        turn.upto if turn.role == "summary" else 0,
    )


def read_turn(row: tuple[Role, str, int, float, str, str, int, int, int]) -> Turn:
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
