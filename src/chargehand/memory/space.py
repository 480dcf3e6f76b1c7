"""One space of a catalog, within a transaction: what is done with its tables, the same in every store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.memory.archives import Archive, Inserted, Passage, check_passages
from chargehand.memory.blocks import PERSON, Block, Change, Edit, Grant, Origin, edited, value_at
from chargehand.memory.catalog import PREFIXES, Attached, Group, Profile, Thing
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Redo, Restore, Undo
from chargehand.memory.passages import (
    InsertBatch,
    VectorModel,
    check_model,
    check_vectors,
    passage_digest,
    unit_vectors,
    width_of,
)
from chargehand.memory.tables import MAX_NUMBER, Stored, Tables, ThingPage
from chargehand.memory.things import (
    Grants,
    Some,
    ThingQuery,
    all_attached,
    changed_thing,
    check_archive_grant,
    check_summary,
    decode_thing,
    edit_digest,
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

_PAGE = 500  # things read at once when they are filtered by text
_LAST_VERSION = 2**31 - 1
_OWNERS = (PREFIXES[Profile], PREFIXES[Group])
_ATTACHABLE = (PREFIXES[Block], PREFIXES[Archive])


class OpenArchive(Struct, Generic[Stored], frozen=True):
    """An archive that is there, and what is stored of it."""

    number: int
    archive: Archive
    stored: Stored


class MemorySpace(Generic[Stored]):
    """Every method runs within one transaction; a refusal undoes it."""

    def __init__(self, tables: Tables[Stored]) -> None:
        self.tables = tables
        self.things = tables.things
        self.changes = tables.changes
        self.turns = tables.turns
        self.passages = tables.passages

    # --- things by id

    async def get(self, kind: type[Some], which: str) -> Some | None:
        row = await self.things.row((PREFIXES[kind],), which)
        return None if row is None else decode_thing(kind, row[1])

    async def need(self, kind: type[Some], which: str, *, lock: bool = False) -> tuple[int, Some]:
        """A thing that must be there, and its number."""
        row = await self.things.row((PREFIXES[kind],), which, lock=lock)
        if row is None:
            raise unknown_thing(PREFIXES[kind], which)
        return row[0], decode_thing(kind, row[1])

    async def need_number(self, kinds: Sequence[str], which: str, *, lock: bool = False) -> int:
        row = await self.things.row(kinds, which, lock=lock)
        if row is None:
            raise unknown_thing(" or ".join(kinds), which)
        return row[0]

    async def add(self, thing: Thing, first: Change | None, key: str, *, brought: bool) -> None:
        """Keep a new thing, and the first version of a block.

        One whose id was not brought is there already only if this is the second try of one call.
        """
        number = await self.things.add(thing)
        if number is None and brought:
            raise taken_id(thing)
        if number is not None and first is not None:
            await self.changes.add(number, first, key_digest(key))

    async def change(self, thing: Some, now: Instant, expect: Instant | None) -> Some:
        number, existing = await self.need(type(thing), thing.id, lock=True)
        changed = changed_thing(thing, existing, now, expect)
        await self.things.replace(number, changed)
        return changed

    async def delete(self, kind: type[Thing], which: str) -> bool:
        row = await self.things.row((PREFIXES[kind],), which, lock=True)
        if row is None:
            return False
        if kind is Profile:
            for number, body in await self.things.groups_of(which):
                await self.things.replace(number, without_member(decode_thing(Group, body), which))
        await self.things.delete(row[0], which)
        return True

    async def find(self, kind: type[Some], wanted: ThingQuery) -> list[Some]:
        low, high = await self._bounds(kind, wanted)
        is_backwards = is_shown_backwards(wanted.after, wanted.before)
        is_descending = (wanted.order == "desc") != is_backwards
        text = wanted.text.casefold()
        limit = _PAGE if text else wanted.limit
        things: list[Some] = []
        while len(things) < wanted.limit:
            page = ThingPage(
                kind=PREFIXES[kind], wanted=wanted, low=low, high=high, is_descending=is_descending, limit=limit
            )
            rows = await self.things.page(page)
            for _, body in rows:
                thing = decode_thing(kind, body)
                if has_text(thing, text) and wanted.name in (None, name_of(thing)):
                    things.append(thing)
            if len(rows) < limit:
                break
            low, high = (low, rows[-1][0]) if is_descending else (rows[-1][0], high)
        things = things[: wanted.limit]
        return things[::-1] if is_backwards else things

    async def _bounds(self, kind: type[Thing], wanted: ThingQuery) -> tuple[int, int]:
        """The numbers between which things are wanted."""
        kinds = (PREFIXES[kind],)
        after = await self.need_number(kinds, wanted.after) if wanted.after else None
        before = await self.need_number(kinds, wanted.before) if wanted.before else None
        low, high = (after, before) if wanted.order == "asc" else (before, after)
        return 0 if low is None else low, MAX_NUMBER if high is None else high

    # --- grants

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        holder = await self.need_number(_OWNERS, owner)
        number = await self.need_number(_ATTACHABLE, thing, lock=True)
        await self.things.attach(holder, number, grant)

    async def detach(self, owner: str, thing: str) -> bool:
        holder = await self.need_number(_OWNERS, owner)
        number = await self.need_number(_ATTACHABLE, thing, lock=True)
        return await self.things.detach(holder, number)

    async def owners(self, thing: str) -> dict[str, Grant]:
        return await self.things.owners(await self.need_number(_ATTACHABLE, thing))

    async def attached(self, agent: str) -> list[Attached]:
        attached = await self.attached_to([agent])
        if agent not in attached:
            raise unknown_thing(PREFIXES[Profile], agent)
        return attached[agent]

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        existing, grants = await self._grants(agents)
        numbers = {thing for own in grants.values() for thing in own}
        things: dict[int, Block | Archive] = {}
        for number, kind, body in await self.things.rows(list(numbers)):
            things[number] = decode_thing(Block, body) if kind == PREFIXES[Block] else decode_thing(Archive, body)
        return all_attached(agents, existing, grants, things)

    async def _grants(self, agents: Sequence[str]) -> tuple[set[str], Grants]:
        """The agents that exist, and their grants."""
        rows = await self.things.grants(agents)
        return {row.agent for row in rows if not row.via}, grants_that_count(rows)

    async def _granted(self, thing: int, agent: str, origin: Origin) -> Grant:
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
        if await self.changes.is_repeated(number, key_used, repeated, origin.attempt):
            return block
        grant = await self._granted(number, agent, origin)
        past = await self._past(number, block, edit)
        after, change = edited(block, edit, grant, origin, now, expect=expect, past=past)
        if change.version != block.version:
            await self.things.rewrite(number, after)
            await self.changes.add(number, change, key_used, repeated)
        return after

    async def _past(self, number: int, block: Block, edit: Edit) -> Callable[[int], Change]:
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
        return await self.changes.between(block, _bounded(first), _bounded(last))

    async def history(self, which: str, limit: int, before: int | None) -> list[Change]:
        number = await self.need_number((PREFIXES[Block],), which)
        upto = _LAST_VERSION if before is None else _bounded(before)
        return await self.changes.latest(number, upto, max(0, limit))

    async def text_at(self, which: str, version: int) -> str:
        number, block = await self.need(Block, which)
        return value_at(block, version, _past_of(await self._versions(number, version, block.version)))

    # --- passages

    async def archives(self, ids: Sequence[str], *, lock: bool = False) -> list[OpenArchive[Stored]]:
        """Archives that must be there."""
        if lock:  # by itself: a statement that waits for a lock still sees other tables as they were before
            for which in ids:
                await self.things.row((PREFIXES[Archive],), which, lock=True)
        rows = await self.passages.archives(ids)
        archives: list[OpenArchive[Stored]] = []
        for which in ids:
            if which not in rows:
                raise unknown_thing(PREFIXES[Archive], which)
            number, body, stored = rows[which]
            archives.append(OpenArchive(number, decode_thing(Archive, body), stored))
        return archives

    async def keep_width(self, which: str) -> None:
        """Write down the width of the vectors of an archive where it has changed."""
        (archive,) = await self.archives([which])
        model = archive.stored.model
        width = 0 if model is None else model.width
        if width != archive.archive.width:
            await self.things.rewrite(archive.number, replace(archive.archive, width=width))

    async def check_grant(self, archive: OpenArchive[Stored], agent: str, *, adds: bool = False) -> None:
        """Refused for what an agent may not do; not checked for callers that are no agents."""
        if agent:
            grant = await self._granted(archive.number, agent, PERSON)
            check_archive_grant(archive.archive, agent, grant, adds=adds)

    async def insert(
        self,
        archive: OpenArchive[Stored],
        passages: Sequence[Passage],
        vectors: Sequence[bytes] | None,
        handle: str,
        now: Instant,
    ) -> list[Inserted]:
        if not passages:
            return []
        check_passages(passages)
        if vectors is not None:
            check_vectors(archive.archive, passages, vectors, handle, archive.stored.model)
        units = [] if vectors is None else unit_vectors(vectors)
        return await self.write_passages(archive.stored, passages, dict(enumerate(units)), handle, now)

    async def write_passages(
        self,
        stored: Stored,
        passages: Sequence[Passage],
        vectors: Mapping[int, bytes],
        handle: str,
        now: Instant,
    ) -> list[Inserted]:
        """Passages that were checked, with vectors of length one by the place of the passage."""
        digests = [passage_digest(passage.text, passage.origin) for passage in passages]
        keys = [(passage.origin.key, passage.part) for passage in passages if passage.origin.key]
        ids = [passage.id for passage in passages if passage.id]
        batch = InsertBatch(stored.archive, await self.passages.existing(stored, digests, keys, ids))
        inserted: list[Inserted] = []
        embedded: dict[str, bytes] = {}
        """Vectors by id. An existing passage may still lack its own."""
        for place, (passage, digest) in enumerate(zip(passages, digests, strict=True)):
            outcome, is_repeated = batch.add(passage, digest)
            inserted.append(outcome)
            if place in vectors and not is_repeated:
                embedded.setdefault(outcome.id, vectors[place])
        stored = await self.passages.add(stored, batch.new, now)
        for existing, tags in batch.joined:
            await self.passages.add_tags(existing, tags)
        if embedded:
            await self.passages.add_vectors(stored, embedded, handle)
        return inserted

    async def add_vectors(self, archive: OpenArchive[Stored], vectors: Mapping[str, bytes], handle: str) -> int:
        """Give passages their vectors, by id; how many took one."""
        if not archive.stored.passages or not vectors:
            return 0
        sent = list(vectors.values())
        check_model(archive.archive, VectorModel(handle, width_of(sent)), archive.stored.model)
        units = dict(zip(vectors, unit_vectors(sent), strict=True))
        return await self.passages.add_vectors(archive.stored, units, handle)

    # --- turns

    async def speaker(self, which: str, *, lock: bool = False) -> int:
        """The number under which turns are kept: an agent's own, or that of a conversation beside it."""
        return await self.need_number((PREFIXES[speaker_kind(which)],), which, lock=lock)

    async def say(self, which: str, turns: Sequence[Turn], key: str, now: Instant) -> bool:
        speaker = await self.speaker(which, lock=True)
        if not await self.turns.add_keys(speaker, [key_digest(key)]):
            return False
        await self.turns.add(speaker, [replace(turn, when=turn.when or now, upto=0) for turn in turns])
        return True

    async def latest_turns(self, which: str, limit: int, before: int | None, *, old: bool) -> list[Turn]:
        speaker = await self.speaker(which)
        place = (MAX_NUMBER, 0)
        if before is not None:
            place = await self.turns.place(speaker, before) or (before, 0)
        turns = await self.turns.latest(speaker, place, max(0, limit), old=old)
        return turns[::-1]

    async def summarise(self, which: str, summary: Turn, now: Instant) -> bool:
        speaker = await self.speaker(which, lock=True)
        last, reached = await self.turns.furthest(speaker)
        check_summary(summary, which, last)
        if summary.upto <= reached:
            return False
        await self.turns.mark_old(speaker, summary.upto)
        await self.turns.add(speaker, [replace(summary, when=summary.when or now)])
        return True


def _bounded(version: int) -> int:
    """A version that a block could have."""
    return max(0, min(version, _LAST_VERSION))


def _past_of(changes: Sequence[Change]) -> Callable[[int], Change]:
    by_version = {change.version: change for change in changes}

    def past(version: int) -> Change:
        if version not in by_version:
            raise missing_version(version)
        return by_version[version]

    return past
