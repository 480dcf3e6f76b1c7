"""A `Catalog` in PostgreSQL, for one tenant. The statements are in `postgres_things` and `postgres_passages`."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.engine.roster import Match
from chargehand.errors import Refused
from chargehand.memory import postgres_passages as passage_rows
from chargehand.memory import postgres_records as record_rows
from chargehand.memory.archives import EVERYTHING, Archive, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import PERSON, Block, Change, Edit, Grant, Origin
from chargehand.memory.catalog import (
    ANYONE,
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
from chargehand.memory.postgres_passages import InsertBatch, StoredArchive
from chargehand.memory.postgres_search import build_index_later, search
from chargehand.memory.postgres_things import ThingRows
from chargehand.memory.things import (
    ThingQuery,
    TurnQuery,
    check_archive_grant,
    check_names,
    check_turns,
    decode_thing,
    encode_thing,
    new_key,
    new_thing,
)
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection
from chargehand.store_url import PostgresUrl

Outcome = TypeVar("Outcome")


class _SharedState(Struct):
    """What all spaces of an opened catalog share."""

    database: PostgresDatabase
    clock: Callable[[], Instant]
    is_closed: bool = False


class PostgresCatalog:
    """`await PostgresCatalog.open(url)` gives one; `close` lets it go, with all its spaces."""

    def __init__(self, shared: _SharedState, space: str, *, root: bool = True) -> None:
        self._shared = shared
        self._space = space
        self._root = root

    @classmethod
    async def open(
        cls, url: PostgresUrl, *, space: str = "default", clock: Callable[[], Instant] = time.time
    ) -> "PostgresCatalog":
        check_text(space)
        return cls(_SharedState(await open_database(url), clock), space)

    def of(self, space: str) -> "PostgresCatalog":
        check_text(space)
        return PostgresCatalog(self._shared, space, root=False)

    async def close(self) -> None:
        """Refuse further reads and writes. The connections belong to the process and stay open."""
        if self._root:
            self._shared.is_closed = True

    @property
    def _database(self) -> PostgresDatabase:
        if self._shared.is_closed:
            raise Refused("this catalog is closed; open it again")
        return self._shared.database

    async def _read(self, work: Callable[[ThingRows], Awaitable[Outcome]]) -> Outcome:
        return await self._database.read(lambda db: work(self._rows(db)))

    async def _ask(self, work: Callable[[ThingRows], Awaitable[Outcome]]) -> Outcome:
        """Like `_read`, without a snapshot: each statement sees what is committed by then."""
        return await self._database.use(lambda db: work(self._rows(db)))

    async def _write(self, work: Callable[[ThingRows], Awaitable[Outcome]], *, idempotent: bool = False) -> Outcome:
        return await self._database.write(lambda db: work(self._rows(db)), idempotent=idempotent)

    def _rows(self, db: Connection) -> ThingRows:
        return ThingRows(db, self._space)

    # --- things by id

    async def add(self, thing: Kept, origin: Origin = PERSON) -> Kept:
        brought = bool(thing.id)
        added, first = new_thing(thing, origin, self._shared.clock())
        await self._write(lambda rows: rows.add(added, first, origin.key, brought=brought), idempotent=not brought)
        return decode_thing(type(thing), encode_thing(added))

    async def add_agent(self, agent: Profile, own: Sequence[Block], attached: Sequence[str], grant: Grant) -> Profile:
        now = self._shared.clock()
        added, _ = new_thing(agent, PERSON, now)
        blocks = [new_thing(block, PERSON, now) for block in own]

        async def work(rows: ThingRows) -> None:
            await rows.add(added, None, "", brought=True)
            for block, first in blocks:
                await rows.add(block, first, "", brought=True)
            for which in sorted(attached):  # the same lock order in every process: no deadlock
                await rows.attach(added.id, which, grant)

        await self._write(work)
        return decode_thing(Profile, encode_thing(added))

    async def get(self, kind: type[Kept], which: str) -> Kept | None:
        return await self._ask(lambda rows: rows.get(kind, which))

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
        return await self._read(lambda rows: rows.find(kind, wanted))

    async def change(self, thing: Kept, *, expect: Instant | None = None) -> Kept:
        check_names(thing)
        now = self._shared.clock()
        return await self._write(lambda rows: rows.change(thing, now, expect))

    async def delete(self, kind: type[Thing], which: str) -> bool:
        return await self._write(lambda rows: rows.delete(kind, which))

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        return await self._ask(lambda rows: rows.tags(kind))

    # --- grants

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        await self._write(lambda rows: rows.attach(owner, thing, grant), idempotent=True)

    async def detach(self, owner: str, thing: str) -> bool:
        return await self._write(lambda rows: rows.detach(owner, thing))

    async def attached(self, agent: str) -> list[Attached]:
        return await self._read(lambda rows: rows.attached(agent))

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        return await self._read(lambda rows: rows.attached_to(agents))

    async def owners(self, thing: str) -> dict[str, Grant]:
        return await self._read(lambda rows: rows.owners(thing))

    # --- blocks

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        check_text("".join(origin.texts))
        key = origin.key or new_key()
        now = self._shared.clock()
        return await self._write(
            lambda rows: rows.edit(block, edit, origin, key=key, agent=agent, expect=expect, now=now), idempotent=True
        )

    async def history(self, block: str, *, limit: int = 50, before: int | None = None) -> list[Change]:
        return await self._read(lambda rows: rows.history(block, limit, before))

    async def text_at(self, block: str, version: int) -> str:
        return await self._read(lambda rows: rows.text_at(block, version))

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
        now = self._shared.clock()

        async def work(rows: ThingRows, existing: Archive, store: StoredArchive) -> list[Inserted]:
            await _check_grant(rows, existing, store, agent, adds=True)
            batch = InsertBatch(store, self._space, now)
            return await passage_rows.insert(rows.db, batch, existing, passages, vectors=vectors, handle=handle)

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
        async def work(rows: ThingRows) -> list[Hit]:
            searched = await rows.archives(archives)
            for archive, store in searched:
                await _check_grant(rows, archive, store, agent)
                if vector is not None:
                    check_question_model(archive, handle, store.model)
            stores = [store for _, store in searched]
            return await search(rows.db, stores, query=query, vector=vector, within=within, limit=limit)

        return await self._ask(work)

    async def passages(
        self, archive: str, *, within: Filter = EVERYTHING, after: str = "", limit: int = 100, order: Order = "asc"
    ) -> list[Passage]:
        return await self._look(
            archive,
            lambda db, store: passage_rows.passages(
                db=db, store=store, within=within, after=after, limit=limit, order=order
            ),
        )

    async def passage(self, which: str) -> Passage | None:
        return await self._ask(lambda rows: passage_rows.passage(rows.db, self._space, which))

    async def forget(self, archive: str, ids: Sequence[str]) -> int:
        return await self._change(archive, lambda rows, _, store: passage_rows.forget(rows.db, store, ids))

    async def count(self, archive: str) -> tuple[int, int]:
        async def work(_db: Connection, store: StoredArchive) -> tuple[int, int]:
            return store.passages, store.embedded

        return await self._look(archive, work)

    async def unembedded(self, archive: str, *, limit: int = 256) -> list[Passage]:
        return await self._look(archive, lambda db, store: passage_rows.unembedded(db, store, limit))

    async def add_vectors(self, archive: str, vectors: dict[str, bytes], *, handle: str) -> int:
        return await self._change(
            archive,
            lambda rows, existing, store: passage_rows.add_vectors(rows.db, store, existing, vectors, handle),
        )

    async def _look(self, archive: str, work: Callable[[Connection, StoredArchive], Awaitable[Outcome]]) -> Outcome:
        async def inside(rows: ThingRows) -> Outcome:
            ((_, store),) = await rows.archives([archive])
            return await work(rows.db, store)

        return await self._read(inside)

    async def _change(
        self, archive: str, work: Callable[[ThingRows, Archive, StoredArchive], Awaitable[Outcome]]
    ) -> Outcome:
        async def inside(rows: ThingRows) -> tuple[Outcome, StoredArchive]:
            ((existing, store),) = await rows.archives([archive], lock=True)
            outcome = await work(rows, existing, store)
            ((_, changed),) = await rows.archives([archive])
            width = 0 if changed.model is None else changed.width
            if width != existing.width:
                await rows.rewrite(store.number, replace(existing, width=width))
            return outcome, changed

        outcome, store = await self._write(inside)
        build_index_later(self._database, store)
        return outcome

    # --- conversations

    async def say(self, agent: str, turns: Sequence[Turn], *, key: str = "") -> bool:
        check_turns(turns, key)
        now = self._shared.clock()
        said_under = key or new_key()
        return await self._write(lambda rows: rows.say(agent, turns, said_under, now))

    async def turns(self, agent: str, *, limit: int = 50, before: int | None = None, old: bool = False) -> list[Turn]:
        return await self._read(lambda rows: rows.turns(agent, limit, before, old=old))

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
        wanted = TurnQuery(roles=roles, start=start, end=end, limit=limit)
        return await self._read(lambda rows: rows.recall(agent, query, wanted))

    async def summarise(self, agent: str, summary: Turn) -> bool:
        check_text(summary.text)
        now = self._shared.clock()
        return await self._write(lambda rows: rows.summarise(agent, summary, now))

    async def reset(self, agent: str) -> int:
        return await self._write(lambda rows: rows.reset(agent))

    # --- all of it

    async def spaces(self) -> list[str]:
        return [row[0] for row in await self._database.fetch(record_rows.SPACES)]

    async def export(self, section: Section, *, after: Position = START, limit: int = 500) -> MemoryPage:
        return await self._read(lambda rows: record_rows.export(rows.db, self._space, section, after, limit))

    async def load(self, records: Sequence[MemoryRecord]) -> None:
        work = partial(record_rows.load, space=self._space, records=records)
        for store in await self._write(work, idempotent=True):
            build_index_later(self._database, store)


async def _check_grant(
    rows: ThingRows, archive: Archive, store: StoredArchive, agent: str, *, adds: bool = False
) -> None:
    """Refused for what an agent may not do; not checked for callers that are no agents."""
    if agent:
        check_archive_grant(archive, agent, await rows.granted(store.number, agent, PERSON), adds=adds)
