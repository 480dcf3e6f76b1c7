"""Which agent may use which block or archive, and how: by itself or through its groups. The rules are not here."""

import sqlite3
from collections.abc import Iterable

from chargehand.errors import Refused
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import ANYTHING, NO_GRANT, Access, Block, Grant
from chargehand.memory.catalog import Attached, Profile
from chargehand.memory.origin import Origin
from chargehand.stores.catalog_things import decode, need_number, unknown

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
_ALL_GRANTS = """
    SELECT thing, access, tainted, '' FROM attachments WHERE owner = ?1
    UNION ALL
    SELECT attachments.thing, attachments.access, attachments.tainted, things.id
    FROM members
    JOIN attachments ON attachments.owner = members.team
    JOIN things ON things.number = members.team
    WHERE members.space = ?2 AND members.agent = ?3
"""
_THING = "SELECT kind, body FROM things WHERE number = ?"


def attach(db: sqlite3.Connection, space: str, owner: str, thing: str, grant: Grant) -> None:
    holder, held = _owner(db, space, owner), _thing(db, space, thing)
    db.execute(_ATTACH, (holder, held, grant.access, grant.tainted))


def detach(db: sqlite3.Connection, space: str, owner: str, thing: str) -> bool:
    holder, held = _owner(db, space, owner), _thing(db, space, thing)
    return db.execute("DELETE FROM attachments WHERE owner = ? AND thing = ?", (holder, held)).rowcount > 0


def owners(db: sqlite3.Connection, space: str, thing: str) -> dict[str, Grant]:
    rows = db.execute(_OWNERS, (_thing(db, space, thing),)).fetchall()
    return {owner: Grant(access, bool(tainted)) for owner, access, tainted in rows}


def attached(db: sqlite3.Connection, space: str, agent: str) -> list[Attached]:
    own: dict[int, Grant] = {}
    lent: dict[int, tuple[Grant, str]] = {}
    values = (need_number(db, space, Profile, agent), space, agent)
    for thing, access, tainted, via in db.execute(_ALL_GRANTS, values).fetchall():
        grant = Grant(access, bool(tainted))
        if not via:
            own[thing] = grant
        elif thing not in lent or _width(grant) > _width(lent[thing][0]):
            lent[thing] = grant, via
    usable = [(thing, own[thing], "") for thing in sorted(own)]
    usable += [(thing, *lent[thing]) for thing in sorted(lent) if thing not in own]
    return [_made(db, thing, grant, via) for thing, grant, via in usable if grant.access != "none"]


def _made(db: sqlite3.Connection, number: int, grant: Grant, via: str) -> Attached:
    kind, body = db.execute(_THING, (number,)).fetchone()
    return Attached(decode(Block, body) if kind == "block" else decode(Archive, body), grant, via)


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
