"""A `Catalog` over any store of memory: each method is one transaction on the tables of a space."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Generic

from chargehand.engine.policy import Instant
from chargehand.engine.roster import Match
from chargehand.memory import records as memory_records
from chargehand.memory.archives import EVERYTHING, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import PERSON, Block, Change, Edit, Grant, Origin
from chargehand.memory.catalog import (
    ANYONE,
    PREFIXES,
    START,
    Attached,
    Kept,
    MemoryPage,
    MemoryRecord,
    Order,
    Position,
    Profile,
    Section,
    Thing,
)
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.edits import check_text
from chargehand.memory.passages import check_question_model
from chargehand.memory.search import search
from chargehand.memory.space import MemorySpace, OpenArchive
from chargehand.memory.tables import Outcome, Store, Stored
from chargehand.memory.things import (
    ThingQuery,
    TurnQuery,
    check_names,
    check_turns,
    decode_thing,
    encode_thing,
    new_key,
    new_thing,
)


class StoreCatalog(Generic[Stored]):
    """`close` lets it go, with all its spaces."""

    def __init__(self, store: Store[Stored], space: str, clock: Callable[[], Instant], *, root: bool = True) -> None:
        check_text(space)
        self._store = store
        self._space = space
        self._clock = clock
        self._root = root

    def of(self, space: str) -> "StoreCatalog[Stored]":
        return StoreCatalog(self._store, space, self._clock, root=False)

    async def close(self) -> None:
        if self._root:
            await self._store.close()

    async def _read(self, work: Callable[[MemorySpace[Stored]], Coroutine[object, object, Outcome]]) -> Outcome:
        return await self._store.read(self._space, lambda tables: work(MemorySpace(tables)))

    async def _ask(self, work: Callable[[MemorySpace[Stored]], Coroutine[object, object, Outcome]]) -> Outcome:
        """Like `_read`, without a snapshot: each statement sees what is committed by then."""
        return await self._store.ask(self._space, lambda tables: work(MemorySpace(tables)))

    async def _write(
        self, work: Callable[[MemorySpace[Stored]], Coroutine[object, object, Outcome]], *, idempotent: bool = False
    ) -> Outcome:
        return await self._store.write(self._space, lambda tables: work(MemorySpace(tables)), idempotent=idempotent)

    # --- things by id

    async def add(self, thing: Kept, origin: Origin = PERSON) -> Kept:
        brought = bool(thing.id)
        added, first = new_thing(thing, origin, self._clock())
        await self._write(lambda space: space.add(added, first, origin.key, brought=brought), idempotent=not brought)
        return decode_thing(type(thing), encode_thing(added))

    async def add_agent(self, agent: Profile, own: Sequence[Block], attached: Sequence[str], grant: Grant) -> Profile:
        now = self._clock()
        added, _ = new_thing(agent, PERSON, now)
        blocks = [(new_thing(block, PERSON, now), bool(block.id)) for block in own]

        async def work(space: MemorySpace[Stored]) -> None:
            await space.add(added, None, "", brought=bool(agent.id))
            for (block, first), brought in blocks:
                await space.add(block, first, "", brought=brought)
            for which in sorted(attached):  # the same lock order in every process: no deadlock
                await space.attach(added.id, which, grant)

        await self._write(work)
        return decode_thing(Profile, encode_thing(added))

    async def get(self, kind: type[Kept], which: str) -> Kept | None:
        return await self._ask(lambda space: space.get(kind, which))

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
        wanted = ThingQuery(
            name=name, text=text, tags=tags, after=after, before=before, limit=max(0, limit), order=order
        )
        return await self._read(lambda space: space.find(kind, wanted))

    async def change(self, thing: Kept, *, expect: Instant | None = None) -> Kept:
        check_names(thing)
        now = self._clock()
        return await self._write(lambda space: space.change(thing, now, expect))

    async def delete(self, kind: type[Thing], which: str) -> bool:
        return await self._write(lambda space: space.delete(kind, which))

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        return await self._ask(lambda space: space.things.tags(PREFIXES[kind]))

    # --- grants

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        await self._write(lambda space: space.attach(owner, thing, grant), idempotent=True)

    async def detach(self, owner: str, thing: str) -> bool:
        return await self._write(lambda space: space.detach(owner, thing))

    async def attached(self, agent: str) -> list[Attached]:
        return await self._read(lambda space: space.attached(agent))

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        return await self._read(lambda space: space.attached_to(agents))

    async def owners(self, thing: str) -> dict[str, Grant]:
        return await self._read(lambda space: space.owners(thing))

    # --- blocks

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        check_text("".join(origin.texts))
        key = origin.key or new_key()
        now = self._clock()
        return await self._write(
            lambda space: space.edit(block, edit, origin, key=key, agent=agent, expect=expect, now=now), idempotent=True
        )

    async def history(self, block: str, *, limit: int = 50, before: int | None = None) -> list[Change]:
        return await self._read(lambda space: space.history(block, limit, before))

    async def text_at(self, block: str, version: int) -> str:
        return await self._read(lambda space: space.text_at(block, version))

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
        now = self._clock()

        async def work(space: MemorySpace[Stored], opened: OpenArchive[Stored]) -> list[Inserted]:
            await space.check_grant(opened, agent, adds=True)
            return await space.insert(opened, passages, vectors, handle, now)

        return await self._change(archive, work)

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
        async def work(space: MemorySpace[Stored]) -> list[Hit]:
            opened = await space.archives(archives)
            for archive in opened:
                await space.check_grant(archive, agent)
                if vector is not None:
                    check_question_model(archive.archive, handle, archive.stored.model)
            stored = [archive.stored for archive in opened]
            return await search(space.tables, stored, query, vector, within=within, limit=limit)

        return await self._ask(work)

    async def passages(
        self, archive: str, *, within: Filter = EVERYTHING, after: str = "", limit: int = 100, order: Order = "asc"
    ) -> list[Passage]:
        async def work(space: MemorySpace[Stored]) -> list[Passage]:
            (opened,) = await space.archives([archive])
            return await space.passages.listed(opened.stored, within, after, max(0, limit), order)

        return await self._read(work)

    async def passage(self, which: str) -> Passage | None:
        return await self._ask(lambda space: space.passages.get(which))

    async def forget(self, archive: str, ids: Sequence[str]) -> int:
        return await self._change(archive, lambda space, opened: space.passages.delete(opened.stored, ids))

    async def count(self, archive: str) -> tuple[int, int]:
        (opened,) = await self._ask(lambda space: space.archives([archive]))
        return opened.stored.passages, opened.stored.embedded

    async def unembedded(self, archive: str, *, limit: int = 256) -> list[Passage]:
        async def work(space: MemorySpace[Stored]) -> list[Passage]:
            (opened,) = await space.archives([archive])
            return await space.passages.unembedded(opened.stored, max(0, limit))

        return await self._read(work)

    async def add_vectors(self, archive: str, vectors: dict[str, bytes], *, handle: str) -> int:
        return await self._change(archive, lambda space, opened: space.add_vectors(opened, vectors, handle))

    async def _change(
        self,
        archive: str,
        work: Callable[[MemorySpace[Stored], OpenArchive[Stored]], Coroutine[object, object, Outcome]],
    ) -> Outcome:
        async def inside(space: MemorySpace[Stored]) -> Outcome:
            (opened,) = await space.archives([archive], lock=True)
            outcome = await work(space, opened)
            await space.keep_width(archive)
            return outcome

        return await self._write(inside)

    # --- conversations

    async def say(self, agent: str, turns: Sequence[Turn], *, key: str = "") -> bool:
        check_turns(turns, key)
        now = self._clock()
        said_under = key or new_key()
        return await self._write(lambda space: space.say(agent, turns, said_under, now))

    async def turns(self, agent: str, *, limit: int = 50, before: int | None = None, old: bool = False) -> list[Turn]:
        return await self._read(lambda space: space.latest_turns(agent, limit, before, old=old))

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
        wanted = TurnQuery(roles=roles, start=start, end=end, limit=max(0, limit))

        async def work(space: MemorySpace[Stored]) -> list[Turn]:
            return await space.turns.recall(await space.speaker(agent), query, wanted)

        return await self._read(work)

    async def summarise(self, agent: str, summary: Turn) -> bool:
        check_text(summary.text)
        now = self._clock()
        return await self._write(lambda space: space.summarise(agent, summary, now))

    async def reset(self, agent: str) -> int:
        async def work(space: MemorySpace[Stored]) -> int:
            return await space.turns.delete(await space.speaker(agent, lock=True))

        return await self._write(work)

    # --- all of it

    async def spaces(self) -> list[str]:
        return await self._store.spaces()

    async def export(self, section: Section, *, after: Position = START, limit: int = 500) -> MemoryPage:
        return await self._read(lambda space: memory_records.export(space, section, after, limit))

    async def load(self, records: Sequence[MemoryRecord]) -> None:
        await self._write(lambda space: memory_records.load(space, records), idempotent=True)
