"""Agents, groups, tools, blocks and archives as rows: by id, by name and by tag. What hangs on them is elsewhere.

Every function here raises its refusals before it has written anything.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.roster import Match
from chargehand.engine.value import encode_value
from chargehand.errors import Corrupt, Invalid, Refused, Unknown
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import PREFIXES, Group, KeptConversation, KeptTool, Order, Profile, Thing

Some = TypeVar("Some", bound=Thing)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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


class Page(msgspec.Struct, frozen=True):
    """Which part of a listing is wanted; `after` and `before` are ids."""

    after: str = ""
    before: str = ""
    limit: int = 50
    order: Order = "asc"


def noun(kind: type[Thing]) -> str:
    return PREFIXES[kind]


def check_id(kind: type[Thing], which: str) -> None:
    prefix, _, rest = which.partition("-")
    if prefix != PREFIXES[kind] or not _UUID.fullmatch(rest):
        raise Invalid(f"{which!r} cannot be the id of a new {noun(kind)}; leave it out, or send {noun(kind)}-<uuid>")


def encode(thing: Thing) -> bytes:
    """Its body; NotJson if metadata or settings hold what JSON cannot carry."""
    return bytes(encode_value(thing))


def decode(kind: type[Some], body: bytes) -> Some:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"a {noun(kind)} in the memory file cannot be read: {error}; restore a backup") from error


def get(db: sqlite3.Connection, space: str, kind: type[Some], which: str) -> Some | None:
    row = db.execute(_GET, (space, which, PREFIXES[kind])).fetchone()
    return decode(kind, row[1]) if row else None


def need(db: sqlite3.Connection, space: str, kind: type[Some], which: str) -> tuple[int, Some]:
    """A thing that must be there, and its number."""
    row = db.execute(_GET, (space, which, PREFIXES[kind])).fetchone()
    if row is None:
        raise unknown(noun(kind), which)
    return row[0], decode(kind, row[1])


def need_number(db: sqlite3.Connection, space: str, kind: type[Thing], which: str) -> int:
    row = db.execute(_NUMBER + " AND kind = ?", (space, which, PREFIXES[kind])).fetchone()
    if row is None:
        raise unknown(noun(kind), which)
    return int(row[0])


def unknown(what: str, which: str) -> Unknown:
    return Unknown(f"there is no {what} {which!r} here; list what there is, or make it first")


def add(db: sqlite3.Connection, space: str, thing: Thing, body: bytes, *, brought: bool) -> int | None:
    """Its number; None when it is there already because this is the second try of one call."""
    if db.execute(_NUMBER, (space, thing.id)).fetchone():
        if brought:
            raise Refused(f"there is a {noun(type(thing))} {thing.id!r} already; get that one, or leave the id out")
        return None
    number = db.execute(_ADD, (space, PREFIXES[type(thing)], thing.id, _name(thing), body)).lastrowid
    assert number is not None
    _connect(db, space, number, thing)
    return number


def change(db: sqlite3.Connection, space: str, thing: Some, now: Instant) -> Some:
    number, kept = need(db, space, type(thing), thing.id)
    changed = _with_fixed(replace(thing, created=kept.created, updated=now), kept)
    rewrite(db, number, changed)
    db.execute("DELETE FROM tags WHERE thing = ?", (number,))
    db.execute("DELETE FROM members WHERE team = ?", (number,))
    _connect(db, space, number, changed)
    return changed


def rewrite(db: sqlite3.Connection, number: int, thing: Thing) -> None:
    """Keep a thing whose tags and members are as they were."""
    db.execute(_CHANGE, (_name(thing), encode(thing), number))


def _with_fixed(thing: Some, kept: Thing) -> Some:
    """The thing with what only edits and insertions may change."""
    if isinstance(thing, Block) and isinstance(kept, Block):
        if len(kept.value) > thing.limit:
            raise Refused(
                f"block {kept.label!r} holds {len(kept.value)} characters, more than a limit of {thing.limit}; "
                "shorten its text first"
            )
        fixed = {name: getattr(kept, name) for name in ("value", "tainted", "untainted", "version", "at", "redo")}
        return replace(thing, **fixed)
    if isinstance(thing, Archive) and isinstance(kept, Archive):
        return replace(thing, width=kept.width)
    return thing


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
    # an agent made anew under the same id must not find itself where the old one was
    for number, body in db.execute(_TEAMS_OF, (space, agent)).fetchall():
        group = decode(Group, body)
        left = replace(group, members=tuple(member for member in group.members if member != agent))
        rewrite(db, number, left)
    db.execute("DELETE FROM members WHERE space = ? AND agent = ?", (space, agent))


def tags(db: sqlite3.Connection, space: str, kind: type[Thing]) -> dict[str, int]:
    return dict(db.execute(_TAGS, (space, PREFIXES[kind])).fetchall())


def find(
    db: sqlite3.Connection, space: str, kind: type[Some], name: str | None, text: str, match: Match, page: Page
) -> list[Some]:
    wanted = ["space = ?", "kind = ?"]
    values = [space, PREFIXES[kind]]
    if name is not None:
        wanted = [*wanted, "name = ?"]
        values = [*values, name]
    for group in (*((tag,) for tag in match.all), match.some):
        if group:
            wanted.append(_TAGGED + ", ".join("?" * len(group)) + "))")
            values += [space, PREFIXES[kind], *group]
    for cursor, ahead in ((page.after, False), (page.before, True)):
        if cursor:
            smaller = (page.order == "asc") == ahead
            wanted.append(f"number {'<' if smaller else '>'} {need_number(db, space, kind, cursor):d}")
    # what is nearest to `before` is at the end of its part, so that part is read backwards
    backwards = bool(page.before and not page.after)
    direction = "DESC" if (page.order == "desc") != backwards else "ASC"
    rows = db.execute(_FIND + " AND ".join(wanted) + " ORDER BY number " + direction, values)
    found = list(islice(_matching(rows, kind, text.casefold()), max(0, page.limit)))
    return found[::-1] if backwards else found


def _matching(rows: sqlite3.Cursor, kind: type[Some], text: str) -> Iterator[Some]:
    for (body,) in rows:
        thing = decode(kind, body)
        if not text or any(text in words.casefold() for words in _words(thing)):
            yield thing


def _name(thing: Thing) -> str:
    return thing.label if isinstance(thing, Block) else thing.name


def _words(thing: Thing) -> Sequence[str]:
    match thing:
        case Block():
            return thing.label, thing.description, thing.value
        case Profile():
            return thing.name, thing.description
        case Group() | KeptTool() | KeptConversation() | Archive():
            return thing.name, thing.description
