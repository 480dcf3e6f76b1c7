"""A catalog on SQLite: in a file that several processes may use at once, or in memory. The rows are elsewhere."""

import secrets
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Match
from chargehand.memory import blocks
from chargehand.memory import sqlite_attachments as catalog_attachments
from chargehand.memory import sqlite_blocks as catalog_blocks
from chargehand.memory import sqlite_things as catalog_things
from chargehand.memory import sqlite_turns as catalog_turns
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, Block, Change, Edit, Grant, Origin
from chargehand.memory.catalog import ANYONE, PREFIXES, Attached, Kept, Order, Thing
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.edits import check_text
from chargehand.memory.sqlite_archives import Archives, Opened
from chargehand.sqlite.connection import CATALOG, Connect, Durability, connect
from chargehand.sqlite.database import FileDatabase, MemoryDatabase, open_in_thread


class SqliteCatalog(Archives):
    """`await SqliteCatalog.open(path)` gives one; `close` lets it go, with all its spaces."""

    def __init__(self, opened: Opened, space: str, *, root: bool = True) -> None:
        super().__init__(opened, space)
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
            return cls(Opened(MemoryDatabase(CATALOG), clock), space)
        place = Path(path)
        door = await open_in_thread(
            lambda: FileDatabase(
                place.resolve(), kind=CATALOG, durability=durability, patience=patience, connect=connect
            ),
            FileDatabase.close_now,
        )
        return cls(Opened(door, clock), space)

    def of(self, space: str) -> "SqliteCatalog":
        """Another space of the same file. It is closed with this one."""
        return SqliteCatalog(self._opened, space, root=False)

    async def close(self) -> None:
        if self._root:
            await self._door.close()

    # --- things by id

    async def add(self, thing: Kept, origin: Origin = PERSON) -> Kept:
        kind = type(thing)
        brought = bool(thing.id)
        now = self._opened.clock()
        if brought:
            catalog_things.check_id(kind, thing.id)
        given = thing.id or f"{PREFIXES[kind]}-{uuid.uuid4()}"
        made = replace(thing, id=given, created=now, updated=now)
        first: Change | None = None
        if isinstance(made, Block):
            first = blocks.created(made, origin)
            made = replace(made, tainted=first.tainted, untainted="", version=1, at=1, redo=())
        elif isinstance(made, Archive):
            made = replace(made, width=0)
        body = catalog_things.encode(made)

        def work(db: sqlite3.Connection) -> None:
            number = catalog_things.add(db, self._space, made, body, brought=brought)
            if number is not None and first is not None:
                catalog_blocks.keep(db, number, first, key=origin.key)

        await self._door.write(work)
        return catalog_things.decode(kind, body)

    async def get(self, kind: type[Kept], which: str) -> Kept | None:
        return await self._read(catalog_things.get, kind, which)

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
        page = catalog_things.Page(after, before, limit, order)
        return await self._read(catalog_things.find, kind=kind, name=name, text=text, match=tags, page=page)

    async def change(self, thing: Kept) -> Kept:
        now = self._opened.clock()
        return await self._write(catalog_things.change, thing, now)

    async def delete(self, kind: type[Thing], which: str) -> bool:
        if kind is Archive:
            return await self._delete_archive(which)
        return await self._write(catalog_things.delete, kind, which)

    async def tags(self, kind: type[Thing]) -> dict[str, int]:
        return await self._read(catalog_things.tags, kind)

    # --- who may use what

    async def attach(self, owner: str, thing: str, grant: Grant) -> None:
        await self._write(catalog_attachments.attach, owner, thing, grant)

    async def detach(self, owner: str, thing: str) -> bool:
        return await self._write(catalog_attachments.detach, owner, thing)

    async def attached(self, agent: str) -> list[Attached]:
        return await self._read(catalog_attachments.attached, agent)

    async def attached_to(self, agents: Sequence[str]) -> dict[str, list[Attached]]:
        return await self._read(catalog_attachments.attached_to, agents)

    async def owners(self, thing: str) -> dict[str, Grant]:
        return await self._read(catalog_attachments.owners, thing)

    # --- blocks

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        asked = catalog_blocks.Asked(
            edit=edit, origin=origin, agent=agent, expect=expect, spare="" if origin.key else f"~{secrets.token_hex(8)}"
        )
        now = self._opened.clock()
        return await self._write(catalog_blocks.edit, block, asked, now)

    async def history(self, block: str, *, limit: int = 50, before: int | None = None) -> list[Change]:
        return await self._read(catalog_blocks.history, block, limit, before)

    async def text_at(self, block: str, version: int) -> str:
        return await self._read(catalog_blocks.text_at, block, version)

    # --- conversations

    async def say(self, agent: str, turns: Sequence[Turn], *, key: str = "") -> bool:
        for turn in turns:
            check_text(turn.text)
        now = self._opened.clock()
        once = key or f"~{secrets.token_hex(8)}"
        return await self._write(catalog_turns.say, which=agent, turns=turns, key=once, now=now)

    async def turns(self, agent: str, *, limit: int = 50, before: int | None = None, old: bool = False) -> list[Turn]:
        return await self._read(catalog_turns.turns, agent, limit, before, old=old)

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
        asked = catalog_turns.Question(words=query, roles=roles, start=start, end=end, limit=limit)
        return await self._read(catalog_turns.recall, agent, asked)

    async def summarise(self, agent: str, summary: Turn) -> bool:
        check_text(summary.text)
        now = self._opened.clock()
        return await self._write(catalog_turns.summarise, agent, summary, now)

    async def reset(self, agent: str) -> int:
        return await self._write(catalog_turns.reset, agent)
