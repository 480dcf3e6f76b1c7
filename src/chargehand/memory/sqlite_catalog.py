"""A catalog on SQLite: in a file that several processes may use at once, or in memory. The rows are elsewhere."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Match
from chargehand.memory import sqlite_passages as passage_rows
from chargehand.memory import sqlite_records as record_rows
from chargehand.memory import sqlite_things as thing_rows
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
from chargehand.memory.passages import check_question_model, no_numpy
from chargehand.memory.sqlite_search import search
from chargehand.memory.things import (
    ThingQuery,
    TurnQuery,
    check_archive_grant,
    check_turns,
    decode_thing,
    encode_thing,
    key_digest,
    new_key,
    new_thing,
)
from chargehand.sqlite.connection import CATALOG, Connect, Durability, connect
from chargehand.sqlite.database import Database, FileDatabase, MemoryDatabase, open_in_thread

if TYPE_CHECKING:
    from chargehand.memory.vector_index import VectorIndex

Outcome = TypeVar("Outcome")
Arguments = ParamSpec("Arguments")


class _Opened:
    """What all spaces of one open database share."""

    def __init__(self, database: Database, clock: Callable[[], Instant]) -> None:
        self.database = database
        self.clock = clock

    @cached_property
    def index(self) -> "VectorIndex":
        try:
            from chargehand.memory.vector_index import VectorIndex  # noqa: PLC0415 - numpy is needed for vectors only
        except ImportError as error:
            raise no_numpy() from error
        return VectorIndex()


class SqliteCatalog:
    """`await SqliteCatalog.open(path)` gives one; `close` lets it go, with all its spaces."""

    def __init__(self, opened: _Opened, space: str, *, root: bool = True) -> None:
        self._opened = opened
        self._database = opened.database
        self._space = space
        self._root = root

    @classmethod
    async def open(
        cls,
        path: Path | str | None,
        *,
        space: str = "default",
        durability: Durability = "machine",
        patience: Seconds = 5.0,
        clock: Callable[[], Instant] = time.time,
        connect: Connect = connect,
    ) -> Self:
        """The catalog in a file (made with its folder where it is missing), or without a path one in memory.

        `patience` is how long to wait while another process writes.
        """
        if path is None:
            return cls(_Opened(MemoryDatabase(CATALOG), clock), space)
        file = Path(path)
        database = await open_in_thread(
            lambda: FileDatabase(
                file.resolve(), kind=CATALOG, durability=durability, patience=patience, connect=connect
            ),
            FileDatabase.close_now,
        )
        return cls(_Opened(database, clock), space)

    def of(self, space: str) -> "SqliteCatalog":
        return SqliteCatalog(self._opened, space, root=False)

    async def close(self) -> None:
        if self._root:
            await self._database.close()

    async def _read(
        self,
        work: Callable[Concatenate[sqlite3.Connection, str, Arguments], Outcome],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Outcome:
        return await self._database.read(lambda db: work(db, self._space, *args, **kwargs))

    async def _write(
        self,
        work: Callable[Concatenate[sqlite3.Connection, str, Arguments], Outcome],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Outcome:
        return await self._database.write(lambda db: work(db, self._space, *args, **kwargs))

    # --- things by id

    async def add(self, thing: Kept, origin: Origin = PERSON) -> Kept:
        new = _NewThing(thing, origin, self._opened.clock())
        await self._database.write(lambda db: new.add(db, self._space))
        return decode_thing(type(thing), new.body)

    async def add_agent(self, agent: Profile, own: Sequence[Block], attached: Sequence[str], grant: Grant) -> Profile:
        now = self._opened.clock()
        new = [_NewThing(thing, PERSON, now) for thing in (agent, *own)]

        def work(db: sqlite3.Connection) -> None:
            for thing in new:
                thing.add(db, self._space)
            for which in attached:
                thing_rows.attach(db, self._space, new[0].thing.id, which, grant)

        await self._database.write(_whole(work))
        return decode_thing(Profile, new[0].body)

    async def get(self, kind: type[Kept], which: str) -> Kept | None:
        return await self._read(thing_rows.get, kind, which)

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
        return await self._read(thing_rows.find, kind, wanted)

    async def change(self, thing: Kept, *, expect: Instant | None = None) -> Kept:
        now = self._opened.clock()
        return await self._write(thing_rows.change, thing, now, expect)

    async def delete(self, kind: type[Thing], which: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            if kind is Archive:
                passage_rows.purge(db, self._space, which)
            return thing_rows.delete(db, self._space, kind, which)

        return await self._database.write(_whole(work))

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        return await self._read(thing_rows.tags, kind)

    # --- who may use what

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        await self._write(thing_rows.attach, owner, thing, grant)

    async def detach(self, owner: str, thing: str) -> bool:
        return await self._write(thing_rows.detach, owner, thing)

    async def attached(self, agent: str) -> list[Attached]:
        return await self._read(thing_rows.attached, agent)

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        return await self._read(thing_rows.attached_to, agents)

    async def owners(self, thing: str) -> dict[str, Grant]:
        return await self._read(thing_rows.owners, thing)

    # --- blocks

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        key = origin.key or new_key()
        now = self._opened.clock()
        return await self._write(thing_rows.edit, block, edit, origin, key=key, agent=agent, expect=expect, now=now)

    async def history(self, block: str, *, limit: int = 50, before: int | None = None) -> list[Change]:
        return await self._read(thing_rows.history, block, limit, before)

    async def text_at(self, block: str, version: int) -> str:
        return await self._read(thing_rows.text_at, block, version)

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
        now = self._opened.clock()

        def work(db: sqlite3.Connection, existing: Archive) -> list[Inserted]:
            self._check_grant(db, existing, agent, adds=True)
            return passage_rows.insert(
                db=db, space=self._space, archive=existing, passages=passages, vectors=vectors, handle=handle, now=now
            )

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
        def work(db: sqlite3.Connection) -> list[Hit]:
            existing = [thing_rows.need(db, self._space, Archive, which)[1] for which in archives]
            for archive in existing:
                self._check_grant(db, archive, agent)
                if vector is not None:
                    check_question_model(archive, handle, passage_rows.model(db, self._space, archive.id))
            return search(
                db=db,
                open_index=lambda: self._opened.index,
                space=self._space,
                archives=existing,
                query=query,
                vector=vector,
                within=within,
                limit=limit,
            )

        return await self._database.read(work)

    async def passages(
        self, archive: str, *, within: Filter = EVERYTHING, after: str = "", limit: int = 100, order: Order = "asc"
    ) -> list[Passage]:
        return await self._look(
            archive,
            lambda db: passage_rows.passages(
                db=db, space=self._space, archive_id=archive, within=within, after=after, limit=limit, order=order
            ),
        )

    async def passage(self, which: str) -> Passage | None:
        return await self._read(passage_rows.passage, which)

    async def forget(self, archive: str, ids: Sequence[str]) -> int:
        return await self._change(archive, lambda db, existing: passage_rows.forget(db, self._space, existing.id, ids))

    async def count(self, archive: str) -> tuple[int, int]:
        return await self._look(archive, lambda db: passage_rows.count(db, self._space, archive))

    async def unembedded(self, archive: str, *, limit: int = 256) -> list[Passage]:
        return await self._look(archive, lambda db: passage_rows.unembedded(db, self._space, archive, limit))

    async def add_vectors(self, archive: str, vectors: dict[str, bytes], *, handle: str) -> int:
        return await self._change(
            archive, lambda db, existing: passage_rows.add_vectors(db, self._space, existing, vectors, handle)
        )

    def _check_grant(self, db: sqlite3.Connection, archive: Archive, agent: str, *, adds: bool = False) -> None:
        """Refused for what an agent may not do; not checked for callers that are no agents."""
        if not agent:
            return
        number = thing_rows.need_number(db, self._space, Archive, archive.id)
        grant = thing_rows.granted(db, self._space, number, agent, PERSON)
        check_archive_grant(archive, agent, grant, adds=adds)

    async def _look(self, archive: str, work: Callable[[sqlite3.Connection], Outcome]) -> Outcome:
        def inside(db: sqlite3.Connection) -> Outcome:
            thing_rows.need_number(db, self._space, Archive, archive)
            return work(db)

        return await self._database.read(inside)

    async def _change(self, archive: str, work: Callable[[sqlite3.Connection, Archive], Outcome]) -> Outcome:
        def inside(db: sqlite3.Connection) -> Outcome:
            number, existing = thing_rows.need(db, self._space, Archive, archive)
            outcome = work(db, existing)
            model = passage_rows.model(db, self._space, archive)
            width = 0 if model is None else model.width
            if width != existing.width:
                thing_rows.rewrite(db, number, replace(existing, width=width))
            return outcome

        return await self._database.write(_whole(inside))

    # --- conversations

    async def say(self, agent: str, turns: Sequence[Turn], *, key: str = "") -> bool:
        check_turns(turns, key)
        now = self._opened.clock()
        return await self._write(thing_rows.say, which=agent, turns=turns, key=key or new_key(), now=now)

    async def turns(self, agent: str, *, limit: int = 50, before: int | None = None, old: bool = False) -> list[Turn]:
        return await self._read(thing_rows.turns, agent, limit, before, old=old)

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
        return await self._read(thing_rows.recall, agent, query, wanted)

    async def summarise(self, agent: str, summary: Turn) -> bool:
        check_text(summary.text)
        now = self._opened.clock()
        return await self._write(thing_rows.summarise, agent, summary, now)

    async def reset(self, agent: str) -> int:
        return await self._write(thing_rows.reset, agent)

    # --- all of it

    async def spaces(self) -> list[str]:
        return await self._database.read(record_rows.spaces)

    async def export(self, section: Section, *, after: Position = START, limit: int = 500) -> MemoryPage:
        return await self._read(record_rows.export, section, after, limit)

    async def load(self, records: Sequence[MemoryRecord]) -> None:
        await self._database.write(_whole(lambda db: record_rows.load(db, self._space, records)))


class _NewThing:
    """A thing to be kept. Its id stays the same if the store tries it again."""

    def __init__(self, thing: Thing, origin: Origin, now: Instant) -> None:
        self.thing, self._first = new_thing(thing, origin, now)
        self.body = encode_thing(self.thing)
        self._is_brought = bool(thing.id)
        self._key = origin.key

    def add(self, db: sqlite3.Connection, space: str) -> None:
        number = thing_rows.add(db, space, self.thing, self.body, brought=self._is_brought)
        if number is not None and self._first is not None:
            thing_rows.keep(db, number, self._first, key=key_digest(self._key))


def _whole(work: Callable[[sqlite3.Connection], Outcome]) -> Callable[[sqlite3.Connection], Outcome]:
    """The work, all of it or none, though it may refuse in the middle; its mates in the transaction notice nothing."""

    def inside(db: sqlite3.Connection) -> Outcome:
        db.execute("SAVEPOINT whole")
        try:
            return work(db)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK TO whole")
            raise
        finally:
            if db.in_transaction:
                db.execute("RELEASE whole")

    return inside
