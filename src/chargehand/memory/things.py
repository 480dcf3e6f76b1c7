"""What every catalog decides the same way about agents, groups, tools, blocks and archives, wherever it keeps them.

Ids and names, which fields a change leaves alone, whose grant counts, which edits are repetitions. Pure.
"""

import re
import secrets
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.roster import Match
from chargehand.engine.value import encode_value
from chargehand.errors import Conflict, Corrupt, Invalid, Refused, Unknown
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import ANYTHING, NO_GRANT, Access, Block, Change, Edit, Grant, Origin, created
from chargehand.memory.catalog import PREFIXES, Attached, Group, KeptConversation, Order, Profile, Thing
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.edits import Append, Insert, check_text

Some = TypeVar("Some", bound=Thing)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WIDTHS: dict[Access, int] = {"none": 0, "read": 1, "append": 2, "write": 3}


# --- by id and name


def encode_thing(thing: Thing) -> bytes:
    """Its body; NotJson if metadata or settings hold what JSON cannot carry."""
    return bytes(encode_value(thing))


def decode_thing(kind: type[Some], body: bytes) -> Some:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"a {PREFIXES[kind]} in the memory cannot be read: {error}; restore a backup") from error


def unknown_thing(what: str, which: str) -> Unknown:
    return Unknown(f"there is no {what} {which!r} here; list what there is, or make it first")


def taken_id(thing: Thing) -> Refused:
    return Refused(f"there is a {PREFIXES[type(thing)]} {thing.id!r} already; get that one, or leave the id out")


def name_of(thing: Thing) -> str:
    return thing.label if isinstance(thing, Block) else thing.name


def has_text(thing: Thing, text: str) -> bool:
    """Whether a case-folded text occurs in the name, the description or the value of a block."""
    value = thing.value if isinstance(thing, Block) else ""
    return not text or any(text in words.casefold() for words in (name_of(thing), thing.description, value))


def is_shown_backwards(after: str, before: str) -> bool:
    """What is nearest to `before` is at the end of its part, so that part is read backwards."""
    return bool(before and not after)


def speaker_kind(which: str) -> type[Profile] | type[KeptConversation]:
    """Turns are an agent's own, or of a conversation beside it."""
    return KeptConversation if which.startswith(f"{PREFIXES[KeptConversation]}-") else Profile


# --- new and changed


def new_thing(thing: Some, origin: Origin, now: Instant) -> tuple[Some, Change | None]:
    """A thing as it is kept first, with its id and times, and the first version of a block."""
    if thing.id:
        _check_id(type(thing), thing.id)
    check_names(thing)
    added = replace(thing, id=thing.id or f"{PREFIXES[type(thing)]}-{uuid.uuid4()}", created=now, updated=now)
    if isinstance(added, Block):
        first = created(added, origin)
        return replace(added, tainted=first.tainted, untainted="", version=1, at=1, redo=()), first
    if isinstance(added, Archive):
        return replace(added, width=0), None
    return added, None


def changed_thing(thing: Some, existing: Thing, now: Instant, expect: Instant | None) -> Some:
    """The thing with what only edits and insertions may change; Conflict if it is not as the caller has seen it."""
    if expect is not None and existing.updated != expect:
        version = existing.version if isinstance(existing, Block) else 0
        raise Conflict(f"{PREFIXES[type(thing)]} {thing.id} was changed meanwhile; read it and decide again", version)
    thing = replace(thing, created=existing.created, updated=now)
    if isinstance(thing, Block) and isinstance(existing, Block):
        if len(existing.value) > thing.limit:
            raise Refused(
                f"block {existing.label!r} holds {len(existing.value)} characters, more than a limit of {thing.limit}; "
                "shorten its text first"
            )
        fixed = {name: getattr(existing, name) for name in ("value", "tainted", "untainted", "version", "at", "redo")}
        return replace(thing, **fixed)
    if isinstance(thing, Archive) and isinstance(existing, Archive):
        return replace(thing, width=existing.width)
    return thing


def without_member(group: Group, agent: str) -> Group:
    """An agent made anew under the same id must not find itself where the old one was."""
    return replace(group, members=tuple(member for member in group.members if member != agent))


def _check_id(kind: type[Thing], which: str) -> None:
    prefix, _, rest = which.partition("-")
    if prefix != PREFIXES[kind] or not _UUID.fullmatch(rest):
        raise Invalid(
            f"{which!r} cannot be the id of a new {PREFIXES[kind]}; leave it out, or send {PREFIXES[kind]}-<uuid>"
        )


def check_names(thing: Thing) -> None:
    """Raise Invalid for a name or a tag that has a NUL character in it."""
    members = thing.members if isinstance(thing, Group) else ()
    if any("\0" in text for text in (name_of(thing), *thing.tags, *members)):
        raise Invalid(f"the name or a tag of the {PREFIXES[type(thing)]} has a NUL character in it; take it out")


# --- queries


class ThingQuery(Struct, frozen=True):
    """The things that `Catalog.find` is asked for."""

    name: str | None
    text: str
    tags: Match
    after: str
    before: str
    limit: int
    order: Order


class TurnQuery(Struct, frozen=True):
    """The turns that `Catalog.recall` is asked for, besides the words."""

    roles: Sequence[Role]
    start: Instant | None
    end: Instant | None
    limit: int


# --- grants


class AttachedRow(Struct, frozen=True):
    """A grant as it is kept: of an agent itself, or (`via`) of a group it is a member of.

    An agent without a grant of its own has a row without a thing.
    """

    agent: str
    thing: int | None
    grant: Grant
    via: str = ""


Grants = Mapping[str, Mapping[int, AttachedRow]]
"""By agent and thing, the grant that counts."""


def grants_that_count(rows: Iterable[AttachedRow]) -> Grants:
    """An agent's own grant, else the widest of its groups. Rows of the agents themselves come first."""
    counting: defaultdict[str, dict[int, AttachedRow]] = defaultdict(dict)
    for row in rows:
        if row.thing is None:
            continue
        current = counting[row.agent].get(row.thing)
        if current is None or (current.via and _width(row.grant) > _width(current.grant)):
            counting[row.agent][row.thing] = row
    return counting


def grant_of(grants: Grants, agent: str, thing: int) -> Grant:
    row = grants.get(agent, {}).get(thing)
    return NO_GRANT if row is None else row.grant


def all_attached(
    agents: Sequence[str], existing: Collection[str], grants: Grants, things: Mapping[int, Block | Archive]
) -> dict[str, list[Attached]]:
    """What each of these agents may use: its own first, each in the order of making."""
    attached: dict[str, list[Attached]] = {}
    for agent in dict.fromkeys(agents):
        if agent in existing:
            usable = [(thing, row) for thing, row in grants.get(agent, {}).items() if row.grant.access != "none"]
            usable.sort(key=lambda pair: (bool(pair[1].via), pair[0]))
            attached[agent] = [Attached(things[thing], row.grant, row.via) for thing, row in usable]
    return attached


def grant_without_agent(origin: Origin) -> Grant:
    """Of an edit that no agent makes: it must not be a worker's."""
    if origin.by == "worker":
        raise Refused("a worker's edit must say which agent it is; its grants are looked up by that")
    return ANYTHING


def check_archive_grant(archive: Archive, agent: str, grant: Grant, *, adds: bool) -> None:
    """Refused for what an agent may not do."""
    if grant.access == "none":
        raise Refused(f"agent {agent!r} may not use the archive {archive.name!r}; to search it, it needs a grant")
    if adds and grant.access == "read":
        raise Refused(
            f"agent {agent!r} may search the archive {archive.name!r}, but not add to it; to add, it needs a grant "
            "of append or write"
        )


def _width(grant: Grant) -> tuple[int, bool]:
    return _WIDTHS[grant.access], grant.tainted


# --- edits and turns


def new_key() -> str:
    """For a call without a key of its own: it stays the same if the store tries it again."""
    return f"~{secrets.token_hex(8)}"


def key_digest(key: str) -> bytes:
    """Of a key that may be long: an index takes no long ones."""
    return blake2b(key.encode(), digest_size=16).digest()


def edit_digest(edit: Edit, origin: Origin) -> bytes | None:
    """What another attempt of the same task would repeat; None where that is no repetition."""
    if not isinstance(edit, Append | Insert) or not origin.run or not origin.task:
        return None
    kind = "append" if isinstance(edit, Append) else "insert"
    run = f"{origin.run}#{origin.mark}" if origin.mark else origin.run
    return sha256("\0".join((kind, run, origin.task, edit.text)).encode()).digest()[:16]


def missing_version(version: int) -> Corrupt:
    return Corrupt(f"version {version} of a block is missing from the memory; restore a backup")


def decode_origin(version: int, body: bytes) -> Origin:
    try:
        return _ORIGIN.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"version {version} of a block cannot be read: {error}; restore a backup") from error


_ORIGIN = msgspec.json.Decoder(Origin)


def check_turns(turns: Sequence[Turn], key: str) -> None:
    """Raise Invalid for turns that cannot be said."""
    check_text(key)
    for turn in turns:
        check_text("".join((turn.text, turn.run, turn.task)))
        if turn.role == "summary":
            raise Invalid("a summary is not said; it is put in its place with `summarise`")


def check_summary(summary: Turn, which: str, last: int) -> None:
    """Raise what a summary deserves that does not fit; `last` is the turn that it may reach."""
    if summary.role != "summary" or summary.upto < 1:
        raise Invalid("a summary has the role `summary` and says up to which turn it goes (`upto`)")
    if summary.upto > last:
        raise Refused(f"agent {which!r} has no turn {summary.upto}; the last one is {last}")
