"""What every catalog promises: agents, groups, tools, blocks, archives, passages and conversations, by id.

A catalog is seen through one space (a team's, a tenant's): what another space holds does not exist for it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from chargehand.engine.declared import Declared
from chargehand.engine.policy import Instant
from chargehand.engine.roster import Match
from chargehand.memory.archives import EVERYTHING, Archive, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import PERSON, Block, Change, Edit, Grant, Origin
from chargehand.memory.conversations import Role, Turn
from chargehand.store_url import StoreUrl

Order: TypeAlias = Literal["asc", "desc"]
ANYONE = Match()


class _Kept(Struct, frozen=True, kw_only=True):
    """What everything has that is kept by id. `settings` is whatever an API keeps of it besides."""

    tags: tuple[str, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    settings: dict[str, object] = field(default_factory=dict[str, object])
    id: str = ""
    created: Instant = 0.0
    updated: Instant = 0.0


class Profile(_Kept, frozen=True):
    """An agent: a definition. `tools` are names."""

    name: str
    description: str = ""
    prompt: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()


class Group(_Kept, frozen=True):
    """Agents that share what is attached to it. A team is one."""

    name: str
    members: tuple[str, ...] = ()
    description: str = ""


class KeptTool(_Kept, frozen=True):
    """A tool by id: what it is called, what it takes. Its code, if it has any, is never run from here."""

    name: str
    description: str = ""
    parameters: dict[str, object] = field(default_factory=dict[str, object])
    code: str = ""


class KeptConversation(_Kept, frozen=True):
    """A conversation with an agent beside the agent's own. `tags` holds the agent's id, so that it is found by it."""

    name: str = ""
    agent: str = ""
    description: str = ""


Thing: TypeAlias = Profile | Group | KeptTool | KeptConversation | Block | Archive
Kept = TypeVar("Kept", bound=Thing)
PREFIXES: dict[type[Thing], str] = {
    Profile: "agent",
    Group: "group",
    KeptTool: "tool",
    KeptConversation: "conv",
    Block: "block",
    Archive: "archive",
}
"""Ids are `prefix-uuid4`, given by the catalog unless the caller brings one of that form."""
KINDS: dict[str, type[Thing]] = {prefix: kind for kind, prefix in PREFIXES.items()}


class Attached(Struct, frozen=True):
    """A block or an archive an agent may use, and how. `via` is the group it comes through; empty: the agent's own."""

    thing: Block | Archive
    grant: Grant
    via: str = ""


# --- what a catalog holds as records that mean the same in every store, in an order that is the same in every store


Section: TypeAlias = Literal["things", "grants", "changes", "turns", "said", "passages"]
SECTIONS: tuple[Section, ...] = ("things", "grants", "changes", "turns", "said", "passages")
"""In the order in which they are loaded: what hangs on a thing comes after it."""


class ThingRecord(Struct, frozen=True):
    """A thing as it is now; of a block also its text."""

    thing: Thing


class GrantRecord(Struct, frozen=True):
    """A block or an archive that is attached to an agent or a group."""

    owner: str
    thing: str
    grant: Grant


class ChangeRecord(Struct, frozen=True):
    """One version of a block."""

    block: str
    change: Change
    key: bytes
    """The digest of the key under which it was made."""
    repeated: bytes | None
    """What another attempt of the same task would repeat: `edit_digest`."""


class TurnRecord(Struct, frozen=True):
    """One turn of a conversation. Its `number`, and `upto` of a summary, count the turns of the conversation from 1.

    A summary that stands for none of them has an `upto` of 0.
    """

    speaker: str
    turn: Turn


class SaidRecord(Struct, frozen=True):
    """The digests of all keys under which something was said in a conversation, sorted."""

    speaker: str
    keys: tuple[bytes, ...]


class PassageRecord(Struct, frozen=True):
    """A passage with its vector, and the handle of the model that made it."""

    passage: Passage
    vector: bytes | None = None
    handle: str = ""


MemoryRecord: TypeAlias = ThingRecord | GrantRecord | ChangeRecord | TurnRecord | SaidRecord | PassageRecord

Position: TypeAlias = tuple[int, int]
"""Of a record in its section: numbers of the store it was read from, which no other store knows."""
START: Position = (0, 0)


class MemoryPage(Struct, frozen=True):
    """Records of one section. Fewer than were asked for are the last ones."""

    records: list[MemoryRecord]
    position: Position
    """After the last of them."""


OWNERS: dict[Section, tuple[type[Thing], ...]] = {
    "grants": (Profile, Group),
    "changes": (Block,),
    "turns": (Profile, KeptConversation),
    "said": (Profile, KeptConversation),
    "passages": (Archive,),
}
"""The kinds of things that records of a section hang on."""


# --- the protocol


class Catalog(Protocol):
    """Every write is durable on return and whole, or not made at all. `close` lets go of it, with all its spaces."""

    def of(self, space: str) -> "Catalog":
        """Another space of the same store. It is closed with the catalog that was opened."""
        ...

    # --- things by id. `name` of a block is its label.

    async def add(self, thing: Kept, origin: Origin = PERSON) -> Kept:
        """Keep a new thing; it comes back with its id and times. Refused if there is one of this id already."""
        ...

    async def add_agent(self, agent: Profile, own: Sequence[Block], attached: Sequence[str], grant: Grant) -> Profile:
        """Keep an agent and new blocks, and attach by this grant what is named: the new blocks by their ids, or others.

        All of it, or nothing.
        """
        ...

    async def get(self, kind: type[Kept], which: str) -> Kept | None: ...

    async def find(
        self,
        kind: type[Kept],
        *,
        name: str | None = None,
        text: str = "",
        tags: Match = ANYONE,
        after: str = "",
        before: str = "",
        limit: int = 50,
        order: Order = "asc",
    ) -> list[Kept]:
        """In the order of making. `text` occurs in the name, the description or (of a block) the value.

        `after` and `before` are ids: what comes behind, or ahead of, them in that order; after the last, nothing.
        """
        ...

    async def change(self, thing: Kept, *, expect: Instant | None = None) -> Kept:
        """Keep new fields of a thing by its id; Unknown if there is none.

        `expect` is when the caller has seen it `updated`: Conflict if it was changed since. A block's value and
        versions stay as they are: that is what `edit` is for.
        """
        ...

    async def delete(self, kind: type[Thing], which: str) -> bool:
        """Also what hangs on it: passages of an archive, turns of an agent, attachments. Whether there was one."""
        ...

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        """Every tag, by name, and how many carry it."""
        ...

    # --- who may use what

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        """`owner` is an agent's or a group's id, `thing` a block's or an archive's. Again: the grant is changed."""
        ...

    async def detach(self, owner: str, thing: str) -> bool: ...

    async def attached(self, agent: str) -> list[Attached]:
        """All an agent may use, its own grants before those of its groups; what it may not use at all is left out.

        Only this is read: nothing else of the catalog is loaded. Several groups: the widest grant.
        """
        ...

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        """The same for several agents, in one read; an agent that is not there is left out."""
        ...

    async def owners(self, thing: str) -> dict[str, Grant]:
        """The agents and groups something is attached to."""
        ...

    # --- blocks

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        """Apply an edit to the version that is current then (`memory.blocks.edited`), in one transaction.

        The grant is looked up in the same transaction: that of `agent`; without one the origin must be a person's, the
        team's or the supervisor's, who may do anything. An edit whose `origin.key` was applied already is
        not applied again: what it came to is returned. Nor is an append or insert that an earlier attempt of the
        same task made with the same text.
        """
        ...

    async def history(self, block: str, *, limit: int = 50, before: int | None = None) -> list[Change]:
        """The latest first."""
        ...

    async def text_at(self, block: str, version: int) -> str: ...

    # --- passages

    async def insert(
        self,
        archive: str,
        passages: Sequence[Passage],
        vectors: Sequence[bytes] | None = None,
        *,
        handle: str = "",
        agent: str = "",
    ) -> list[Inserted]:
        """All of them, or none. `handle` is the model the vectors come from.

        The same text of one author, source and scope is kept once an archive.

        Invalid when the archive has vectors of another model or width. A passage with an `origin.key` and part that
        was inserted already is not inserted again. Of an `agent` the grant is looked up in the same transaction:
        Refused unless it may append.
        """
        ...

    async def search(
        self,
        archives: Sequence[str],
        query: str,
        vector: bytes | None = None,
        *,
        within: Filter = EVERYTHING,
        limit: int = 10,
        handle: str = "",
        agent: str = "",
    ) -> list[Hit]:
        """The best passages of these archives, by meaning and words; by words alone without a vector.

        `handle` is the model the vector comes from: Invalid when an archive has vectors of another. Refused unless the
        `agent`, where one is named, may read all of them.
        """
        ...

    async def passages(
        self,
        archive: str,
        *,
        within: Filter = EVERYTHING,
        after: str = "",
        limit: int = 100,
        order: Order = "asc",
    ) -> list[Passage]:
        """In the order of inserting; `after` is the id of the last one seen."""
        ...

    async def passage(self, which: str) -> Passage | None: ...

    async def forget(self, archive: str, ids: Sequence[str]) -> int:
        """Delete passages; how many there were."""
        ...

    async def count(self, archive: str) -> tuple[int, int]:
        """How many passages there are, and how many of them have vectors."""
        ...

    async def unembedded(self, archive: str, *, limit: int = 256) -> list[Passage]:
        """Passages without a vector, oldest first."""
        ...

    async def add_vectors(self, archive: str, vectors: dict[str, bytes], *, handle: str) -> int:
        """Give passages their vectors, by id; how many took one."""
        ...

    # --- conversations; `agent` is the id of an agent, or of a conversation beside its own

    async def say(self, agent: str, turns: Sequence[Turn], *, key: str = "") -> bool:
        """Add turns at the end. False, and nothing is added, if that was done under this key already."""
        ...

    async def turns(self, agent: str, *, limit: int = 50, before: int | None = None, old: bool = False) -> list[Turn]:
        """The latest ones that are not behind a summary (with `old`: all), in the order they were said."""
        ...

    async def recall(
        self,
        agent: str,
        query: str,
        *,
        roles: Sequence[Role] = (),
        start: Instant | None = None,
        end: Instant | None = None,
        limit: int = 5,
    ) -> list[Turn]:
        """Turns with these words, best first, old ones too."""
        ...

    async def summarise(self, agent: str, summary: Turn) -> bool:
        """Put all turns up to `summary.upto` behind a summary. False if another summary reaches further already."""
        ...

    async def reset(self, agent: str) -> int:
        """Forget a conversation; how many turns there were."""
        ...

    # --- all of it, to be copied

    async def spaces(self) -> list[str]:
        """The spaces of the store that hold anything, by name."""
        ...

    async def export(self, section: Section, *, after: Position = START, limit: int = 500) -> MemoryPage:
        """The records of a section of this space that follow a position, in an order that is the same in every store.

        A position is one that a page of this catalog gave.
        """
        ...

    async def load(self, records: Sequence[MemoryRecord]) -> None:
        """Keep records that another catalog exported, in the same order: all of them or none.

        They come with their ids, times and versions, and are not checked. What is here already is left as it is.
        """
        ...

    async def close(self) -> None: ...


class Memory(Declared, frozen=True):
    """`store` is a file or a URL, an open catalog, or (left out) this process alone.

    Blocks and archives are made when they are not there yet. What a team wrote stays; a block that was never changed
    follows its declaration. `space` keeps several teams in one file apart; left out, it is the team's name. `sources`
    are folders or files, by the name of an archive, whose texts are put into it when it is opened
    (`memory.sources.read_sources`): what it has already is not put in again.
    """

    store: StoreUrl | Catalog | None = None
    blocks: Sequence[Block] = ()
    archives: Sequence[Archive] = ()
    space: str = ""
    sources: Mapping[str, Path] = field(default_factory=dict[str, Path])
