"""The index of a tenant in a database of PostgreSQL."""

from collections.abc import Callable, Sequence

from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection, Row
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
from chargehand.store_url import PostgresUrl

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
_RUN_OF = "SELECT name, body FROM letta_runs WHERE tenant = current_tenant() AND id = $1 AND agent <> ''"
_WAITING = "FROM letta_runs WHERE tenant = current_tenant() AND open AND stop = 'requires_approval' AND agent <> ''"
_ENDED = "SELECT name FROM letta_runs WHERE tenant = current_tenant() GROUP BY name HAVING NOT bool_or(open)"
_FORGET = "DELETE FROM letta_messages WHERE tenant = current_tenant() AND agent = $1"


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
        return await self._list("letta_runs", "agent <> ''", list_runs(wanted, page))

    async def run(self, run: str) -> IndexedRun | None:
        if "\0" in run:
            return None
        rows = await self._query(_RUN_OF, run)
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
        return await self._list("letta_messages", "true", list_messages(wanted, page))

    async def _list(self, table: str, test: str, listing: IndexListing) -> list[bytes]:
        """The bodies of a page; names of tables and columns are ours, never a client's."""
        tests = ["tenant = current_tenant()", test]
        values: list[str | list[str]] = []
        for column, wanted in listing.tests:
            is_single = len(wanted) == 1  # only then does an index give the order
            values.append(wanted[0] if is_single else list(wanted))
            tests.append(f"{column} = ${len(values)}" if is_single else f"{column} = ANY(${len(values)})")
        for sign, which in listing.cursors:
            values.append(which)
            place = f"SELECT created, number FROM {table} WHERE tenant = current_tenant() AND id = ${len(values)}"  # noqa: S608 - as below
            tests.append(f"(created, number) {sign} ({place})")
        if any("\0" in "".join(value) for value in values):  # no text here has a NUL character
            return []
        order = f"ORDER BY created {listing.direction}, number {listing.direction} LIMIT {listing.page.limit:d}"
        query = f"SELECT body FROM {table} WHERE {' AND '.join(tests)} {order}"  # noqa: S608 - every piece is ours
        return listing.in_order([row[0] for row in await self._query(query, *values)])
