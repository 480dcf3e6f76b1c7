"""The index of a tenant: runs, messages and steps of its agents, listed and searched without reading every journal.

All of it is derived from the journal; what the index lacks is written in when the tenant is opened.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from chargehand.engine.policy import Instant
from chargehand.memory.catalog import Order
from chargehand.memory.sqlite_search import terms
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.wire import Message, RunResponse, StepResponse
from chargehand.server.tenants import Tenant
from chargehand.sqlite.connection import FileKind
from chargehand.sqlite.database import FileDatabase, open_in_thread

if TYPE_CHECKING:
    import sqlite3  # a tenant has it loaded already

_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")
_Value: TypeAlias = str | float | int
_Table: TypeAlias = Literal["runs", "messages", "steps"]
_FILE = FileKind(0x43686754, (("letta-1.sql",),), "index of agents' runs")
_PATIENCE = 5.0
_MAX_TERMS = 64
_ENCODER = msgspec.json.Encoder()
_STEPS = msgspec.json.Decoder(StepResponse)
_RUNS = msgspec.json.Decoder(RunResponse)
_KEYS: dict[_Table, str] = {"runs": "created, number", "messages": "at, number", "steps": "number"}
_SEARCHABLE = frozenset(("user_message", "assistant_message", "system_message", "reasoning_message"))
_RUN = """
    INSERT INTO runs (id, name, agent, conversation, created, status, stop, open, background, usage, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, stop = excluded.stop, open = excluded.open,
    usage = excluded.usage, body = excluded.body
"""
_MESSAGE = """
    INSERT INTO messages (id, agent, conversation, run, step, type, at, words, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
"""
_STEP = """
    INSERT INTO steps (id, agent, run, at, model, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, model = excluded.model
"""
_WAITING = "FROM runs WHERE open = 1 AND stop = 'requires_approval' AND agent <> ''"
_SEARCH = """
    SELECT messages.body, messages.agent FROM message_words JOIN messages ON messages.number = message_words.rowid
    WHERE message_words MATCH ? {where} ORDER BY rank LIMIT ?
"""


class ListPage(Struct, frozen=True):
    """What of a list is wanted: `after` an id, `before` one, so many, in this order."""

    after: str = ""
    before: str = ""
    limit: int = 100_000
    order: Order = "asc"

    def cut(self, items: Sequence[_Item], key: Callable[[_Item], str] = attrgetter("id")) -> list[_Item]:
        """The page of a whole list, which is in ascending order. After an id that is not in it comes nothing."""
        ordered = list(items) if self.order == "asc" else list(reversed(items))
        ids = [key(item) for item in ordered]
        start = 0
        end = len(ids)
        if self.after:
            start = ids.index(self.after) + 1 if self.after in ids else end
        if self.before:
            end = ids.index(self.before) if self.before in ids else 0
            start = max(start, end - self.limit)
        return ordered[start:end][: self.limit]


class Conditions(Struct):
    """What rows must be like: SQL of ours, and the values that go with it."""

    tests: list[str] = field(default_factory=list[str])
    values: list[_Value] = field(default_factory=list[_Value])

    def add(self, test: str, *values: _Value) -> None:
        self.tests.append(test)
        self.values += values

    def equal(self, column: str, value: str | None) -> "Conditions":
        if value:
            self.add(f"{column} = ?", value)
        return self

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)


class IndexedRun(Struct, frozen=True):
    """A run: its name in the journal, its agent, and the bodies of its description and its usage."""

    name: str
    agent: str
    body: bytes
    usage: bytes


class SavedLog(Struct, frozen=True):
    """What is to be written of a run: nothing but that it was there if its agent is deleted."""

    log: MessageLog
    has_messages: bool = False
    is_deleted: bool = False


class Index:
    """Opened when it is first used, closed with its tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._path = tenant.folder / "letta.db"
        self._clean = tenant.redactor.clean
        self._opening = asyncio.Lock()
        self._file: FileDatabase | None = None
        tenant.stack.push_async_callback(self._close)

    async def _open(self) -> FileDatabase:
        async with self._opening:
            if self._file is None:
                # what is lost with the machine's power is written again from the journal
                self._file = await open_in_thread(
                    lambda: FileDatabase(self._path, durability="process", patience=_PATIENCE, kind=_FILE),
                    FileDatabase.close_now,
                )
            return self._file

    async def _close(self) -> None:
        if self._file is not None:
            await self._file.close()

    async def _write(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._file or await self._open()).write(work)

    async def _read(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._file or await self._open()).read(work)

    async def _query(self, query: str, *values: _Value) -> list[tuple[Any, ...]]:
        return await self._read(lambda db: db.execute(query, values).fetchall())

    # --- writing

    async def save(self, saved: Sequence[SavedLog]) -> None:
        """Write what these runs have come to, in one transaction; what is there already stays."""

        def work(db: "sqlite3.Connection") -> None:
            for each in saved:
                self._save_log(db, each)

        await self._write(work)

    def _save_log(self, db: "sqlite3.Connection", saved: SavedLog) -> None:
        log = saved.log
        run = log.describe_run()
        row = (
            log.run,
            log.name,
            "" if saved.is_deleted else log.agent,
            log.conversation,
            log.began,
            run.status,
            run.stop_reason or "",
            not log.over,
            run.background,
            _ENCODER.encode(log.usage),
            _ENCODER.encode(run),
        )
        db.execute(_RUN, row)
        if saved.is_deleted:
            return
        # a run in the agent's queue is not listed yet: a reader who goes on from there would miss what comes before it
        if saved.has_messages and (log.over or log.is_working or log.is_waiting):
            db.executemany(_MESSAGE, [self._message_row(log, message) for message in log.messages])
        steps = [
            (step.id, log.agent, log.run, step.started, step.model, self._clean(_ENCODER.encode(step)))
            for step in log.steps
        ]
        db.executemany(_STEP, steps)

    def _message_row(self, log: MessageLog, message: Message) -> tuple[object, ...]:
        words = (message.content or message.reasoning or "") if message.message_type in _SEARCHABLE else ""
        return (
            message.id,
            log.agent,
            log.conversation,
            message.run_id,
            message.step_id or "",
            message.message_type,
            log.began,
            self._clean(words.encode()).decode(),
            self._clean(_ENCODER.encode(message)),
        )

    async def forget_agent(self, agent: str) -> None:
        """Drop everything that is known of an agent."""

        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM messages WHERE agent = ?", (agent,))
            db.execute("DELETE FROM steps WHERE agent = ?", (agent,))
            db.execute("UPDATE runs SET agent = '' WHERE agent = ?", (agent,))

        await self._write(work)

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        """Drop the messages of a conversation, or of the agent's own; its runs stay."""
        query = "DELETE FROM messages WHERE agent = ? AND conversation = ?"
        await self._write(lambda db: db.execute(query, (agent, conversation)))

    async def rate_step(self, step: str, feedback: str, tags: Sequence[str]) -> None:
        """Keep the feedback of a person on a step."""
        row = (feedback, msgspec.json.encode(list(tags)).decode(), step)
        await self._write(lambda db: db.execute("UPDATE steps SET feedback = ?, tags = ? WHERE id = ?", row))

    # --- runs

    async def runs(self, wanted: Conditions, page: ListPage) -> list[bytes]:
        wanted.add("agent <> ''")
        return [row[0] for row in await self._page("runs", wanted, page, "body")]

    async def run(self, run: str) -> IndexedRun | None:
        query = "SELECT name, agent, body, usage FROM runs WHERE id = ? AND agent <> ''"
        rows = await self._query(query, run)
        return IndexedRun(*rows[0]) if rows else None

    async def last_runs(self, agents: Sequence[str]) -> dict[str, RunResponse]:
        """The run that began last among those that have ended, of each agent that has any."""
        query = "SELECT body FROM runs WHERE agent = ? AND open = 0 ORDER BY created DESC LIMIT 1"
        rows = await self._read(lambda db: [(agent, db.execute(query, (agent,)).fetchone()) for agent in agents])
        return {agent: _RUNS.decode(row[0]) for agent, row in rows if row is not None}

    async def waiting_run(self, lane: str) -> str:
        """The run that waits for its client, in a conversation or in the agent's own; empty if none does."""
        rows = await self._query(f"SELECT id {_WAITING} AND iif(conversation <> '', conversation, agent) = ?", lane)
        return rows[0][0] if rows else ""

    async def waiting_agents(self) -> list[str]:
        """The agents of which a run waits for its client in their own conversation."""
        return [row[0] for row in await self._query(f"SELECT agent {_WAITING} AND conversation = ''")]

    async def ended(self) -> set[str]:
        """The journals that are indexed to their end."""
        query = "SELECT name FROM runs GROUP BY name HAVING max(open) = 0"
        return {row[0] for row in await self._query(query)}

    async def last_active(self, conversation: str = "") -> dict[str, Instant]:
        """When something was last said in a conversation, or in each of them."""
        query = "SELECT conversation, max(created) FROM runs WHERE conversation <> ''"
        if conversation:
            return dict(await self._query(f"{query} AND conversation = ? GROUP BY conversation", conversation))
        return dict(await self._query(f"{query} GROUP BY conversation"))

    # --- messages

    async def messages(self, wanted: Conditions, page: ListPage) -> list[bytes]:
        return [row[0] for row in await self._page("messages", wanted, page, "body")]

    async def message(self, message: str) -> tuple[Any, ...] | None:
        """The body and the run of a message."""
        rows = await self._query("SELECT body, run FROM messages WHERE id = ?", message)
        return rows[0] if rows else None

    async def last_message_time(self, run: str) -> Instant | None:
        """The time that the messages of a run are kept under; None where there are none."""
        return (await self._query("SELECT max(at) FROM messages WHERE run = ?", run))[0][0]

    async def search(self, query: str, wanted: Conditions, limit: int) -> list[tuple[Any, ...]]:
        """Messages with these words, best first, each with its agent. No text of a client's is query syntax."""
        words = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms(query)[:_MAX_TERMS])
        if not words:
            return []
        statement = _SEARCH.format(where="".join(f" AND {test}" for test in wanted.tests))
        return await self._query(statement, words, *wanted.values, limit)

    # --- steps

    async def steps(self, wanted: Conditions, page: ListPage) -> list[StepResponse]:
        steps: list[StepResponse] = []
        for body, feedback, tags in await self._page("steps", wanted, page, "body, feedback, tags"):
            step = _STEPS.decode(body)
            step.feedback = str(feedback) or None
            step.tags = msgspec.json.decode(tags, type=tuple[str, ...])
            steps.append(step)
        return steps

    async def _page(self, table: _Table, wanted: Conditions, page: ListPage, columns: str) -> list[tuple[Any, ...]]:
        """The page of a table that is asked for; `columns` and the tests are ours, never a client's.

        Of messages, `after` means newer and `before` older, whatever the order, and a page goes from the oldest to the
        newest: the order only says at which end a list without a cursor begins. So Letta has it.
        """
        is_descending = page.order == "desc"
        is_from_end = bool(page.before) and not page.after  # those nearest to it
        if table == "messages":
            is_from_end = is_from_end or (is_descending and not page.after)
            is_descending = False
        tests = [*wanted.tests]
        values = [*wanted.values]
        keys = _KEYS[table]
        for cursor, sign in zip((page.after, page.before), "<>" if is_descending else "><", strict=True):
            if cursor:
                tests.append(f"({keys}) {sign} (SELECT {keys} FROM {table} WHERE id = ?)")  # noqa: S608 - as below
                values.append(cursor)
        direction = "DESC" if is_descending != is_from_end else "ASC"
        order = ", ".join(f"{key} {direction}" for key in keys.split(", "))
        where = f"WHERE {' AND '.join(tests)}" if tests else ""
        query = f"SELECT {columns} FROM {table} {where} ORDER BY {order} LIMIT ?"  # noqa: S608 - every piece is ours
        rows = await self._query(query, *values, page.limit)
        return rows[::-1] if is_from_end else rows
