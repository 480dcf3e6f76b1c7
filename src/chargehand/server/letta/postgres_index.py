"""The index of a tenant in a database of PostgreSQL."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field

from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection, Row
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
from chargehand.store_url import PostgresUrl

_ENCODER = msgspec.json.Encoder()
# the index can be rebuilt from the journal, so a commit need not wait for the disk
_NO_WAIT = "SELECT set_config('synchronous_commit', 'off', true)"
_RUN = """
    INSERT INTO letta_runs (id, name, agent, conversation, created, status, stop, open, background, body, seq)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, stop = excluded.stop, open = excluded.open,
    body = excluded.body, seq = excluded.seq WHERE letta_runs.seq <= excluded.seq
"""
_MESSAGE = """
    INSERT INTO letta_messages (id, agent, conversation, run, type, created, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO NOTHING
"""
_LATEST = """
    SELECT name FROM letta_runs WHERE tenant = current_tenant() AND id = name
        AND (conversation = $1 OR (conversation = '' AND agent = $1)) ORDER BY created DESC, number DESC LIMIT 1
"""
_WAITING = "FROM letta_runs WHERE tenant = current_tenant() AND open AND stop = 'requires_approval' AND agent <> ''"
_ENDED = "SELECT name FROM letta_runs WHERE tenant = current_tenant() GROUP BY name HAVING NOT bool_or(open)"
_FORGET = "DELETE FROM letta_messages WHERE tenant = current_tenant() AND agent = $1"


class _PostgresConditions(Struct):
    """Conditions of a listing: tests in SQL, and the values that clients sent. An empty value adds no condition."""

    tests: list[str] = field(default_factory=lambda: ["tenant = current_tenant()"])
    values: list[str | list[str]] = field(default_factory=list[str | list[str]])

    def add(self, test: str, value: str | list[str]) -> None:
        """`{}` in the test stands for the value."""
        self.values.append(value)
        self.tests.append(test.format(f"${len(self.values)}"))

    def equal(self, column: str, value: str) -> None:
        if value:
            self.add(f"{column} = {{}}", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} = ANY({{}})", list(values))

    def in_conversation(self, conversation: str) -> None:
        if conversation:
            self.add("conversation = {}", "" if conversation == OWN_CONVERSATION else conversation)

    @property
    def has_nul(self) -> bool:
        """Whether nothing can be found, because no text here has a NUL character."""
        return any("\0" in "".join(value) for value in self.values)


class PostgresIndex:
    """Bodies are JSON as clients are sent it."""

    def __init__(self, url: PostgresUrl, clean: Callable[[bytes], bytes]) -> None:
        """`clean` takes secrets out of what is written."""
        self._url = url
        self._clean = clean
        self._opened: PostgresDatabase | None = None

    async def _open(self) -> PostgresDatabase:
        if self._opened is None:
            self._opened = await open_database(self._url)
        return self._opened

    async def close(self) -> None:
        """Connections are the process's: there is nothing to close."""

    async def _query(self, query: str, *values: object) -> list[Row]:
        return await (await self._open()).fetch(query, *values)

    # --- writing

    async def save(self, saved: Sequence[SavedLog]) -> None:
        async def work(db: Connection) -> None:
            await db.fetchval(_NO_WAIT)
            for entry in sorted(saved, key=lambda entry: entry.log.run):  # one lock order for all: no deadlock
                await self._save_log(db, entry)

        await (await self._open()).write(work)

    async def _save_log(self, db: Connection, saved: SavedLog) -> None:
        await db.execute(_RUN, *run_row(saved), saved.log.seq)
        if is_indexed(saved):
            rows = [message_row(saved.log, message, self._clean) for message in saved.log.messages]
            await db.executemany(_MESSAGE, rows)

    async def forget_agent(self, agent: str) -> None:
        async def work(db: Connection) -> None:
            await db.execute(_FORGET, agent)
            await db.execute("UPDATE letta_runs SET agent = '' WHERE tenant = current_tenant() AND agent = $1", agent)

        await (await self._open()).write(work)

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        await self._query(f"{_FORGET} AND conversation = $2", agent, conversation)

    # --- runs

    async def runs(self, wanted: IndexedRunFilter, page: ListPage) -> list[bytes]:
        conditions = _PostgresConditions()
        conditions.tests.append("agent <> ''")
        conditions.among("agent", wanted.agents)
        conditions.among("status", wanted.statuses)
        conditions.equal("stop", wanted.stop)
        conditions.in_conversation(wanted.conversation)
        if wanted.is_active:
            conditions.among("status", ("created", "running"))
        return await self._page(
            "letta_runs",
            conditions,
            page,
            is_descending=page.order == "desc",
            is_from_end=is_from_end_of_runs(page),
        )

    async def run(self, run: str) -> IndexedRun | None:
        conditions = _PostgresConditions()
        conditions.add("id = {} AND agent <> ''", run)
        rows = await self._select("name, body FROM letta_runs", conditions)
        return IndexedRun(*rows[0]) if rows else None

    async def waiting_run(self, lane: str) -> str:
        place = "CASE WHEN conversation <> '' THEN conversation ELSE agent END"
        rows = await self._query(f"SELECT id {_WAITING} AND {place} = $1", lane)
        return rows[0][0] if rows else ""

    async def latest_run(self, lane: str) -> str | None:
        rows = await self._query(_LATEST, lane)
        return rows[0][0] if rows else None

    async def waiting_agents(self) -> list[str]:
        return [row[0] for row in await self._query(f"SELECT agent {_WAITING} AND conversation = ''")]

    async def ended(self) -> set[str]:
        return {row[0] for row in await self._query(_ENDED)}

    # --- messages

    async def messages(self, wanted: MessageFilter, page: ListPage) -> list[bytes]:
        conditions = _PostgresConditions()
        conditions.equal("agent", wanted.agent)
        conditions.in_conversation(wanted.conversation)
        conditions.equal("run", wanted.run)
        conditions.among("type", wanted.types)
        return await self._page(
            "letta_messages", conditions, page, is_descending=False, is_from_end=is_from_end_of_messages(page)
        )

    async def _page(
        self, table: str, conditions: _PostgresConditions, page: ListPage, *, is_descending: bool, is_from_end: bool
    ) -> list[bytes]:
        """The bodies of a page; `table` and the tests are ours, never a client's."""
        signs = "<>" if is_descending else "><"
        for cursor, sign in zip((page.after, page.before), signs, strict=True):
            if cursor:
                place = f"SELECT created, number FROM {table} WHERE tenant = current_tenant() AND id = {{}}"  # noqa: S608 - as below
                conditions.add(f"(created, number) {sign} ({place})", cursor)
        direction = "DESC" if is_descending != is_from_end else "ASC"
        order = f"ORDER BY created {direction}, number {direction} LIMIT {page.limit:d}"
        bodies = [row[0] for row in await self._select(f"body FROM {table}", conditions, order)]
        return bodies[::-1] if is_from_end else bodies

    async def _select(self, columns: str, conditions: _PostgresConditions, order: str = "") -> list[Row]:
        if conditions.has_nul:
            return []
        query = f"SELECT {columns} WHERE {' AND '.join(conditions.tests)} {order}"
        return await self._query(query, *conditions.values)
