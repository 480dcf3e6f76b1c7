"""The index of a tenant in a SQLite file, which is opened when it is first used."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from chargehand.server.letta.index import (
    IndexedRun,
    IndexedRunFilter,
    IndexListing,
    ListPage,
    MessageFilter,
    SavedLog,
    is_indexed,
    list_messages,
    list_runs,
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
        return await self._list("runs", "agent <> ''", list_runs(wanted, page))

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
        return await self._list("messages", "true", list_messages(wanted, page))

    async def _list(self, table: str, test: str, listing: IndexListing) -> list[bytes]:
        """The bodies of a page; names of tables and columns are ours, never a client's."""
        tests = [test]
        values: list[_Value] = []
        for column, wanted in listing.tests:
            tests.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
        for sign, which in listing.cursors:
            tests.append(f"(created, number) {sign} (SELECT created, number FROM {table} WHERE id = ?)")  # noqa: S608 - as below
            values.append(which)
        order = f"ORDER BY created {listing.direction}, number {listing.direction} LIMIT ?"
        query = f"SELECT body FROM {table} WHERE {' AND '.join(tests)} {order}"  # noqa: S608 - every piece is ours
        rows = await self._query(query, *values, listing.page.limit)
        return listing.in_order([body for (body,) in rows])
