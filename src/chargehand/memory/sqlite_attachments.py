"""Which agent may use which block or archive, and how: by itself or through its groups. The rules are not here."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence

from chargehand.errors import Refused
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import ANYTHING, NO_GRANT, Access, Block, Grant, Origin
from chargehand.memory.catalog import Attached, Profile
from chargehand.memory.sqlite_things import decode, need_number, unknown

_WIDTHS: dict[Access, int] = {"none": 0, "read": 1, "append": 2, "write": 3}
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
_OWN = "SELECT access, tainted FROM attachments WHERE owner = ? AND thing = ?"
_THROUGH_GROUPS = """
    SELECT attachments.access, attachments.tainted
    FROM members JOIN attachments ON attachments.owner = members.team AND attachments.thing = ?
    WHERE members.space = ? AND members.agent = ?
"""
_AGENTS = "SELECT number, id FROM things WHERE space = ? AND kind = 'agent' AND id IN (SELECT value FROM json_each(?))"
_ALL_GRANTS = """
    SELECT owner, thing, access, tainted FROM attachments WHERE owner IN (SELECT value FROM json_each(?))
"""
_ALL_LENT = """
    SELECT members.agent, attachments.thing, attachments.access, attachments.tainted, things.id
    FROM members
    JOIN attachments ON attachments.owner = members.team
    JOIN things ON things.number = members.team
    WHERE members.space = ? AND members.agent IN (SELECT value FROM json_each(?))
"""
_THINGS = "SELECT number, kind, body FROM things WHERE number IN (SELECT value FROM json_each(?))"


def attach(db: sqlite3.Connection, space: str, owner: str, thing: str, grant: Grant) -> None:
    holder = _owner(db, space, owner)
    held = _thing(db, space, thing)
    db.execute(_ATTACH, (holder, held, grant.access, grant.tainted))


def detach(db: sqlite3.Connection, space: str, owner: str, thing: str) -> bool:
    holder = _owner(db, space, owner)
    held = _thing(db, space, thing)
    return db.execute("DELETE FROM attachments WHERE owner = ? AND thing = ?", (holder, held)).rowcount > 0


def owners(db: sqlite3.Connection, space: str, thing: str) -> dict[str, Grant]:
    rows = db.execute(_OWNERS, (_thing(db, space, thing),)).fetchall()
    return {owner: Grant(access, bool(tainted)) for owner, access, tainted in rows}


def attached(db: sqlite3.Connection, space: str, agent: str) -> list[Attached]:
    need_number(db, space, Profile, agent)
    return attached_to(db, space, (agent,))[agent]


def attached_to(db: sqlite3.Connection, space: str, agents: Sequence[str]) -> dict[str, list[Attached]]:
    """What several agents may use, each thing read once; an agent that is not there is left out."""
    named: dict[int, str] = dict(db.execute(_AGENTS, (space, json.dumps(list(agents)))).fetchall())
    usable: dict[str, dict[int, tuple[Grant, str]]] = {which: {} for which in named.values()}
    for owner, thing, access, tainted in db.execute(_ALL_GRANTS, (json.dumps(list(named)),)).fetchall():
        usable[named[owner]][thing] = Grant(access, bool(tainted)), ""
    for which, lent in _lent(db, space, list(usable)).items():
        usable[which] = lent | usable[which]
    things = _things(db, {thing for held in usable.values() for thing in held})
    return {
        which: [Attached(things[number], grant, via) for number, grant, via in _ordered(usable[which])]
        for which in dict.fromkeys(agents)
        if which in usable
    }


def _ordered(held: dict[int, tuple[Grant, str]]) -> list[tuple[int, Grant, str]]:
    """An agent's own before what is lent to it, each in the order of making; without what it may not use."""
    found = [(number, grant, via) for number, (grant, via) in held.items() if grant.access != "none"]
    return sorted(found, key=lambda one: (bool(one[2]), one[0]))


def _lent(db: sqlite3.Connection, space: str, agents: list[str]) -> dict[str, dict[int, tuple[Grant, str]]]:
    """What agents have through their groups, the widest grant of each thing."""
    lent: defaultdict[str, dict[int, tuple[Grant, str]]] = defaultdict(dict)
    for agent, thing, access, tainted, via in db.execute(_ALL_LENT, (space, json.dumps(agents))).fetchall():
        grant = Grant(access, bool(tainted))
        held = lent[agent]
        if thing not in held or _width(grant) > _width(held[thing][0]):
            held[thing] = grant, via
    return lent


def _things(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Block | Archive]:
    rows = db.execute(_THINGS, (json.dumps(list(numbers)),)).fetchall()
    return {number: decode(Block, body) if kind == "block" else decode(Archive, body) for number, kind, body in rows}


def granted(db: sqlite3.Connection, space: str, block: int, agent: str, origin: Origin) -> Grant:
    """What an agent may do with a block; or, where none is named, whoever the origin says it is."""
    if not agent:
        if origin.by == "worker":
            raise Refused("a worker's edit must say which agent it is; its grants are looked up by that")
        return ANYTHING
    own = db.execute(_OWN, (need_number(db, space, Profile, agent), block)).fetchone()
    if own is not None:
        return Grant(own[0], bool(own[1]))
    return _widest(db.execute(_THROUGH_GROUPS, (block, space, agent)).fetchall())


def _widest(rows: Iterable[tuple[Access, int]]) -> Grant:
    return max((Grant(access, bool(tainted)) for access, tainted in rows), key=_width, default=NO_GRANT)


def _width(grant: Grant) -> tuple[int, bool]:
    return _WIDTHS[grant.access], grant.tainted


def _owner(db: sqlite3.Connection, space: str, which: str) -> int:
    row = db.execute(_EITHER, (space, which, "agent", "group")).fetchone()
    if row is None:
        raise unknown("agent or group", which)
    return int(row[0])


def _thing(db: sqlite3.Connection, space: str, which: str) -> int:
    row = db.execute(_EITHER, (space, which, "block", "archive")).fetchone()
    if row is None:
        raise unknown("block or archive", which)
    return int(row[0])
