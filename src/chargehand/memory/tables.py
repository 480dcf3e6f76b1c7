"""The tables of one space, within a transaction: what every store of memory does by statements of its own.

A store only reads and writes rows here. What they mean, and which of them may be written, is decided in `space`, once
for all stores. Things, owners of grants, blocks and speakers are named by their numbers.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.memory.archives import Filter, Passage
from chargehand.memory.blocks import Change, Grant
from chargehand.memory.catalog import ChangeRecord, GrantRecord, Order, PassageRecord, Thing
from chargehand.memory.conversations import Turn
from chargehand.memory.passages import ExistingPassage, NewPassage, VectorModel
from chargehand.memory.ranking import TermCount, WordMatch
from chargehand.memory.things import AttachedRow, ThingQuery, TurnQuery

Outcome = TypeVar("Outcome")

MAX_NUMBER = 2**62
"""Higher than any number of a row."""


class ThingPage(Struct, frozen=True):
    """Which things of a kind are read at once: `limit` of those between two numbers, from one of the ends on."""

    kind: str
    wanted: ThingQuery
    low: int
    high: int
    is_descending: bool
    limit: int


class ThingTable(Protocol):
    """Agents, groups, tools, conversations, blocks and archives; grants on them."""

    async def row(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> tuple[int, bytes] | None:
        """The number and body of the thing of this id. A locked one is not changed by others before the end."""
        ...

    async def rows(self, numbers: Sequence[int]) -> list[tuple[int, str, bytes]]:
        """Number, kind and body."""
        ...

    async def add(self, thing: Thing) -> int | None:
        """Its number; None, and nothing is added, if its id is taken."""
        ...

    async def replace(self, number: int, thing: Thing) -> None:
        """With its name, tags and members."""
        ...

    async def rewrite(self, number: int, thing: Thing) -> None:
        """Its body. Name, tags and members are as they were."""
        ...

    async def delete(self, number: int, which: str) -> None:
        """And what hangs on it."""
        ...

    async def groups_of(self, agent: str) -> list[tuple[int, bytes]]: ...

    async def tags(self, kind: str) -> dict[str, int]: ...

    async def page(self, page: ThingPage) -> list[tuple[int, bytes]]:
        """Numbers and bodies. The name may be compared by its beginning; the text is not looked at."""
        ...

    async def attach(self, owner: int, thing: int, grant: Grant) -> None: ...

    async def detach(self, owner: int, thing: int) -> bool: ...

    async def owners(self, thing: int) -> dict[str, Grant]: ...

    async def grants(self, agents: Sequence[str]) -> list[AttachedRow]:
        """Rows of the agents themselves come first, then of each group."""
        ...

    # --- to be copied

    async def listed(self, after: int, limit: int) -> list[tuple[int, str, bytes]]:
        """Number, kind and body, in the order of making."""
        ...

    async def ids(self, kinds: Sequence[str], first: int) -> list[tuple[int, str]]:
        """Numbers and ids from this number on."""
        ...

    async def grants_of(self, owner: int, which: str, after: int, limit: int) -> list[tuple[int, GrantRecord]]:
        """By the number of the thing; `which` is the id of the owner."""
        ...


class ChangeTable(Protocol):
    """The versions of blocks. Keys are digests."""

    async def is_repeated(self, block: int, key: bytes, repeated: bytes | None, attempt: int) -> bool:
        """Whether there is a version under this key, or one that an earlier attempt repeated."""
        ...

    async def add(self, block: int, change: Change, key: bytes, repeated: bytes | None = None) -> None: ...

    async def between(self, block: int, first: int, last: int) -> list[Change]: ...

    async def latest(self, block: int, before: int, limit: int) -> list[Change]: ...

    async def records(self, block: int, which: str, after: int, limit: int) -> list[tuple[int, ChangeRecord]]: ...


class TurnTable(Protocol):
    """What was said, by the number of the speaker: of an agent, or of a conversation beside its own.

    The place of a summary is that of the last turn it stands for.
    """

    async def add_keys(self, speaker: int, keys: Sequence[bytes]) -> int:
        """How many of these digests are new."""
        ...

    async def keys(self, speaker: int) -> list[bytes]: ...

    async def add(self, speaker: int, turns: Sequence[Turn]) -> None: ...

    async def latest(self, speaker: int, before: tuple[int, int], limit: int, *, old: bool) -> list[Turn]:
        """The latest first, before a place and number."""
        ...

    async def place(self, speaker: int, number: int) -> tuple[int, int] | None:
        """The place and number of a turn."""
        ...

    async def furthest(self, speaker: int) -> tuple[int, int]:
        """The last place that is not old, and the furthest that a summary reaches."""
        ...

    async def mark_old(self, speaker: int, upto: int) -> None: ...

    async def recall(self, speaker: int, query: str, wanted: TurnQuery) -> list[Turn]:
        """The turns that match the words of a query best; the latest ones if it has none."""
        ...

    async def delete(self, speaker: int) -> int: ...

    # --- to be copied

    async def count(self, speaker: int, upto: int) -> int: ...

    async def listed(self, speaker: int, after: int, limit: int) -> list[Turn]: ...

    async def numbers(self, speaker: int) -> list[int]: ...

    async def new_numbers(self, count: int) -> list[int]:
        """Numbers for new turns, rising; below the first there is one that no turn ever has."""
        ...

    async def load(self, speaker: int, turns: Sequence[Turn]) -> None:
        """Add turns under their own numbers."""
        ...


class StoredArchive(Protocol):
    """What a store keeps of an archive: how many passages and vectors there are, and whose."""

    @property
    def archive(self) -> str: ...
    @property
    def passages(self) -> int: ...
    @property
    def embedded(self) -> int: ...
    @property
    def model(self) -> VectorModel | None:
        """Whose vectors it has; None while it has none."""
        ...


Stored = TypeVar("Stored", bound=StoredArchive)
ArchiveRow: TypeAlias = tuple[int, bytes, Stored]
"""Number, body, and what is stored of an archive."""


class PassageTable(Protocol[Stored]):
    """Passages and their vectors. Vectors have length one. Before passages are written, their archive is locked."""

    async def archives(self, ids: Sequence[str]) -> dict[str, ArchiveRow[Stored]]:
        """Those that exist, by id."""
        ...

    async def existing(
        self, stored: Stored, digests: Sequence[bytes], keys: Sequence[tuple[str, int]], ids: Sequence[str]
    ) -> list[ExistingPassage]:
        """Passages of the archive with one of these texts or keys and parts; and of the space, with one of these ids.

        There may be others among them.
        """
        ...

    async def add(self, stored: Stored, passages: Sequence[NewPassage], now: Instant) -> Stored:
        """What is stored of the archive then. Passages without a time get this one."""
        ...

    async def add_tags(self, passage: ExistingPassage, tags: Sequence[str]) -> None: ...

    async def add_vectors(self, stored: Stored, vectors: Mapping[str, bytes], handle: str) -> int: ...

    async def delete(self, stored: Stored, ids: Sequence[str]) -> int: ...

    async def listed(self, stored: Stored, within: Filter, after: str, limit: int, order: Order) -> list[Passage]: ...

    async def get(self, which: str) -> Passage | None: ...

    async def rows(self, archives: Sequence[Stored], numbers: Sequence[int]) -> dict[int, Passage]:
        """By number, those that are there."""
        ...

    async def unembedded(self, stored: Stored, limit: int) -> list[Passage]: ...

    async def records(self, stored: Stored, after: int, limit: int) -> list[tuple[int, PassageRecord]]: ...


class WordIndex(Protocol):
    """The words of one archive, within a filter."""

    @property
    def budget(self) -> int:
        """Passages whose match by words is scored in good time."""
        ...

    async def count(self, terms: Sequence[str], most: int) -> list[TermCount]:
        """How many passages of the archive hold each term, filter or not; none is counted further than `most`."""
        ...

    async def find(self, terms: Sequence[str], limit: int, *, together: bool = False) -> dict[int, WordMatch]:
        """The best passages with any of these terms, which were counted before; `together`: with all of them."""
        ...


class Tables(Protocol[Stored]):
    """All tables of one space."""

    @property
    def things(self) -> ThingTable: ...
    @property
    def changes(self) -> ChangeTable: ...
    @property
    def turns(self) -> TurnTable: ...
    @property
    def passages(self) -> PassageTable[Stored]: ...

    def words(self, stored: Stored, within: Filter, *, unembedded: bool = False) -> WordIndex:
        """The words of an archive, within a filter; `unembedded`: only of passages without vectors."""
        ...

    async def nearest(self, stored: Stored, vector: bytes, within: Filter, count: int) -> dict[int, float]:
        """The nearest passages of an archive that has vectors, and how alike they are."""
        ...

    async def similarities(self, vector: bytes, numbers: Sequence[int]) -> dict[int, float]:
        """How alike each of these passages is; those without a vector are left out."""
        ...


Work: TypeAlias = Callable[[Tables[Stored]], Coroutine[object, object, Outcome]]


class Store(Protocol[Stored]):
    """A database of memory. Work is given the tables of a space, and may be done more than once.

    An error that the work raises undoes all it has written.
    """

    async def read(self, space: str, work: Work[Stored, Outcome]) -> Outcome:
        """The work's outcome; all it reads is of one moment."""
        ...

    async def ask(self, space: str, work: Work[Stored, Outcome]) -> Outcome:
        """The work's outcome; what each statement reads is of the moment of that statement, or earlier."""
        ...

    async def write(self, space: str, work: Work[Stored, Outcome], *, idempotent: bool = False) -> Outcome:
        """The work's outcome, once it is durable. Idempotent work comes to the same if it was done before."""
        ...

    async def spaces(self) -> list[str]: ...

    async def close(self) -> None: ...
