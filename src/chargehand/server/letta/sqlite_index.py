"""The index of a tenant in a SQLite file, which is opened when it is first used."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct, field

from chargehand.server.letta.index import (
    OWN_CONVERSATION,
    IndexedRun,
    IndexedRunFilter,
    ListPage,
    MessageFilter,
    SavedLog,
    is_from_end_of_messages,
    is_from_end_of_runs,
    is_indexed,
    message_row,
    run_row,
)
from chargehand.sqlite.connection import FileKind
from chargehand.sqlite.database import FileDatabase, open_in_thread

if TYPE_CHECKING:
    import sqlite3  # a tenant has it loaded already

_Value: TypeAlias = str | float
_FILE = FileKind(0x43686754, (("letta-1.sql",),), "index of agents' runs")
_PATIENCE = 5.0
_ENCODER = msgspec.json.Encoder()
_RUN = """
    INSERT INTO runs (id, name, agent, conversation, created, status, stop, open, background, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, stop = excluded.stop, open = excluded.open,
    body = excluded.body
"""
_MESSAGE = """
    INSERT INTO messages (id, agent, conversation, run, type, created, body)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
"""
_LATEST = """
    SELECT name FROM runs WHERE id = name
        AND (conversation = ?1 OR (conversation = '' AND agent = ?1)) ORDER BY created DESC, number DESC LIMIT 1
"""
_WAITING = "FROM runs WHERE open = 1 AND stop = 'requires_approval' AND agent <> ''"


class _Conditions(Struct):
    """What listed rows must be like: tests in SQL, and the values that clients sent. An empty value asks nothing."""

    tests: list[str] = field(default_factory=list[str])
    values: list[_Value] = field(default_factory=list[_Value])

    def add(self, test: str, value: _Value) -> None:
        self.tests.append(test)
        self.values.append(value)

    def equal(self, column: str, value: str) -> None:
        if value:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.tests.append(f"{column} IN ({', '.join('?' * len(values))})")
            self.values += values

    def in_conversation(self, conversation: str) -> None:
        if conversation:
            self.add("conversation = ?", "" if conversation == OWN_CONVERSATION else conversation)


class SqliteIndex:
    """Bodies are JSON as clients are sent it."""

    def __init__(self, path: Path, clean: Callable[[bytes], bytes]) -> None:
        """`clean` takes secrets out of what is written."""
        self._path = path
        self._clean = clean
        self._opening = asyncio.Lock()
        self._file: FileDatabase | None = None

    async def _open(self) -> FileDatabase:
        async with self._opening:
            if self._file is None:
                # what is lost with the machine's power is written again from the journal
                self._file = await open_in_thread(
                    lambda: FileDatabase(self._path, durability="process", patience=_PATIENCE, kind=_FILE),
                    FileDatabase.close_now,
                )
            return self._file

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()

    async def _query(self, query: str, *values: _Value) -> list[tuple[Any, ...]]:
        return await (await self._open()).read(lambda db: db.execute(query, values).fetchall())

    # --- writing

    async def save(self, saved: Sequence[SavedLog]) -> None:
        def work(db: "sqlite3.Connection") -> None:
            for each in saved:
                self._save_log(db, each)

        await (await self._open()).write(work)

    def _save_log(self, db: "sqlite3.Connection", saved: SavedLog) -> None:
        db.execute(_RUN, run_row(saved))
        if is_indexed(saved):
            db.executemany(_MESSAGE, [message_row(saved.log, message, self._clean) for message in saved.log.messages])

    async def forget_agent(self, agent: str) -> None:
        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM messages WHERE agent = ?", (agent,))
            db.execute("UPDATE runs SET agent = '' WHERE agent = ?", (agent,))

        await (await self._open()).write(work)

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        statement = "DELETE FROM messages WHERE agent = ? AND conversation = ?"
        await (await self._open()).write(lambda db: db.execute(statement, (agent, conversation)))

    # --- runs

    async def runs(self, wanted: IndexedRunFilter, page: ListPage) -> list[bytes]:
        conditions = _Conditions(["agent <> ''"])
        conditions.among("agent", wanted.agents)
        conditions.among("status", wanted.statuses)
        conditions.equal("stop", wanted.stop)
        conditions.in_conversation(wanted.conversation)
        if wanted.is_active:
            conditions.among("status", ("created", "running"))
        is_descending = page.order == "desc"
        is_from_end = is_from_end_of_runs(page)
        return await self._page("runs", conditions, page, is_descending=is_descending, is_from_end=is_from_end)

    async def run(self, run: str) -> IndexedRun | None:
        rows = await self._query("SELECT name, body FROM runs WHERE id = ? AND agent <> ''", run)
        return IndexedRun(*rows[0]) if rows else None

    async def waiting_run(self, lane: str) -> str:
        rows = await self._query(f"SELECT id {_WAITING} AND iif(conversation <> '', conversation, agent) = ?", lane)
        return rows[0][0] if rows else ""

    async def latest_run(self, lane: str) -> str | None:
        rows = await self._query(_LATEST, lane)
        return rows[0][0] if rows else None

    async def waiting_agents(self) -> list[str]:
        return [row[0] for row in await self._query(f"SELECT agent {_WAITING} AND conversation = ''")]

    async def ended(self) -> set[str]:
        return {row[0] for row in await self._query("SELECT name FROM runs GROUP BY name HAVING max(open) = 0")}

    # --- messages

    async def messages(self, wanted: MessageFilter, page: ListPage) -> list[bytes]:
        conditions = _Conditions()
        conditions.equal("agent", wanted.agent)
        conditions.in_conversation(wanted.conversation)
        conditions.equal("run", wanted.run)
        conditions.among("type", wanted.types)
        is_from_end = is_from_end_of_messages(page)
        return await self._page("messages", conditions, page, is_descending=False, is_from_end=is_from_end)

    async def _page(
        self, table: str, conditions: _Conditions, page: ListPage, *, is_descending: bool, is_from_end: bool
    ) -> list[bytes]:
        """The bodies of a page; `table` and the tests are ours, never a client's."""
        signs = "<>" if is_descending else "><"
        for cursor, sign in zip((page.after, page.before), signs, strict=True):
            if cursor:
                keys = f"SELECT created, number FROM {table} WHERE id = ?"  # noqa: S608 - as below
                conditions.add(f"(created, number) {sign} ({keys})", cursor)
        direction = "DESC" if is_descending != is_from_end else "ASC"
        tests = f"WHERE {' AND '.join(conditions.tests)}" if conditions.tests else ""
        order = f"ORDER BY created {direction}, number {direction} LIMIT ?"
        rows = await self._query(f"SELECT body FROM {table} {tests} {order}", *conditions.values, page.limit)  # noqa: S608 - every piece is ours
        bodies = [row[0] for row in rows]
        return bodies[::-1] if is_from_end else bodies
