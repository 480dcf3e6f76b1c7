"""The index of a tenant in a SQLite file."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from chargehand.engine.policy import Instant
from chargehand.memory.ranking import terms
from chargehand.server.letta.index import (
    IndexedMessage,
    IndexedRun,
    IndexRunFilter,
    ListPage,
    MessageFilter,
    SavedLog,
    StepFilter,
)
from chargehand.server.letta.message_log import MessageLog
from chargehand.server.letta.wire import LettaMessage, RunResponse, StepResponse
from chargehand.sqlite.connection import FileKind
from chargehand.sqlite.database import FileDatabase, open_in_thread

if TYPE_CHECKING:
    import sqlite3  # a tenant has it loaded already

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
    SELECT body, agent, run FROM message_words JOIN messages ON messages.number = message_words.rowid
    WHERE message_words MATCH ? {where} ORDER BY rank LIMIT ?
"""


class _Conditions(Struct):
    """What rows must be like: SQL of this module, and the values that go with it."""

    tests: list[str] = field(default_factory=list[str])
    values: list[_Value] = field(default_factory=list[_Value])

    def add(self, test: str, *values: _Value) -> None:
        self.tests.append(test)
        self.values += values

    def equal(self, **columns: str) -> None:
        """Columns with these values; an empty value is no condition."""
        for column, value in columns.items():
            if value:
                self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)

    def between(self, column: str, since: Instant | None, until: Instant | None) -> None:
        if since is not None:
            self.add(f"{column} >= ?", since)
        if until is not None:
            self.add(f"{column} <= ?", until)


def _run_conditions(wanted: IndexRunFilter) -> _Conditions:
    conditions = _Conditions()
    conditions.add("agent <> ''")
    conditions.equal(stop=wanted.stop_reason)
    conditions.among("agent", wanted.agents)
    conditions.among("status", wanted.statuses)
    if wanted.conversation is not None:
        conditions.add("conversation = ?", wanted.conversation)
    if wanted.background is not None:
        conditions.add("background = ?", int(wanted.background))
    if wanted.active:
        conditions.among("status", ("created", "running"))
    return conditions


def _message_conditions(wanted: MessageFilter) -> _Conditions:
    conditions = _Conditions()
    conditions.equal(agent=wanted.agent, run=wanted.run, step=wanted.step)
    conditions.among("type", wanted.types)
    conditions.between("at", wanted.since, wanted.until)
    if wanted.conversation is not None:
        tests = ["conversation = ?", *["(conversation = ? AND at <= ?)"] * len(wanted.inherited)]
        values = [value for pair in wanted.inherited for value in pair]
        conditions.add(f"({' OR '.join(tests)})", wanted.conversation, *values)
    return conditions


def _step_conditions(wanted: StepFilter) -> _Conditions:
    conditions = _Conditions()
    conditions.equal(id=wanted.id, agent=wanted.agent, model=wanted.model, feedback=wanted.feedback)
    conditions.among("run", wanted.runs)
    conditions.between("at", wanted.since, wanted.until)
    if wanted.has_feedback is not None:
        conditions.add("feedback <> ''" if wanted.has_feedback else "feedback = ''")
    return conditions


class SqliteIndex:
    """Opened when it is first used."""

    def __init__(self, path: Path, clean: Callable[[bytes], bytes]) -> None:
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

    async def _write(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._file or await self._open()).write(work)

    async def _read(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._file or await self._open()).read(work)

    async def _query(self, query: str, *values: _Value) -> list[tuple[Any, ...]]:
        return await self._read(lambda db: db.execute(query, values).fetchall())

    # --- writing

    async def save(self, saved: Sequence[SavedLog]) -> None:

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

    def _message_row(self, log: MessageLog, message: LettaMessage) -> tuple[object, ...]:
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

        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM messages WHERE agent = ?", (agent,))
            db.execute("DELETE FROM steps WHERE agent = ?", (agent,))
            db.execute("UPDATE runs SET agent = '' WHERE agent = ?", (agent,))

        await self._write(work)

    async def forget_messages(self, agent: str, conversation: str = "") -> None:
        query = "DELETE FROM messages WHERE agent = ? AND conversation = ?"
        await self._write(lambda db: db.execute(query, (agent, conversation)))

    async def rate_step(self, step: str, feedback: str, tags: Sequence[str]) -> None:
        row = (feedback, msgspec.json.encode(list(tags)).decode(), step)
        await self._write(lambda db: db.execute("UPDATE steps SET feedback = ?, tags = ? WHERE id = ?", row))

    # --- runs

    async def runs(self, wanted: IndexRunFilter, page: ListPage) -> list[bytes]:
        return [row[0] for row in await self._page("runs", _run_conditions(wanted), page, "body")]

    async def run(self, run: str) -> IndexedRun | None:
        query = "SELECT name, agent, body, usage FROM runs WHERE id = ? AND agent <> ''"
        rows = await self._query(query, run)
        return IndexedRun(*rows[0]) if rows else None

    async def last_runs(self, agents: Sequence[str]) -> dict[str, RunResponse]:
        query = "SELECT body FROM runs WHERE agent = ? AND open = 0 ORDER BY created DESC LIMIT 1"
        rows = await self._read(lambda db: [(agent, db.execute(query, (agent,)).fetchone()) for agent in agents])
        return {agent: _RUNS.decode(row[0]) for agent, row in rows if row is not None}

    async def waiting_run(self, lane: str) -> str:
        rows = await self._query(f"SELECT id {_WAITING} AND iif(conversation <> '', conversation, agent) = ?", lane)
        return rows[0][0] if rows else ""

    async def waiting_agents(self) -> list[str]:
        return [row[0] for row in await self._query(f"SELECT agent {_WAITING} AND conversation = ''")]

    async def ended(self) -> set[str]:
        query = "SELECT name FROM runs GROUP BY name HAVING max(open) = 0"
        return {row[0] for row in await self._query(query)}

    async def last_active(self, conversation: str = "") -> dict[str, Instant]:
        query = "SELECT conversation, max(created) FROM runs WHERE conversation <> ''"
        if conversation:
            return dict(await self._query(f"{query} AND conversation = ? GROUP BY conversation", conversation))
        return dict(await self._query(f"{query} GROUP BY conversation"))

    # --- messages

    async def messages(self, wanted: MessageFilter, page: ListPage) -> list[bytes]:
        return [row[0] for row in await self._page("messages", _message_conditions(wanted), page, "body")]

    async def message(self, message: str) -> IndexedMessage | None:
        rows = await self._query("SELECT body, agent, run FROM messages WHERE id = ?", message)
        return IndexedMessage(*rows[0]) if rows else None

    async def last_message_time(self, run: str) -> Instant | None:
        return (await self._query("SELECT max(at) FROM messages WHERE run = ?", run))[0][0]

    async def search(self, query: str, wanted: MessageFilter, limit: int) -> list[IndexedMessage]:
        # no text of a client's is query syntax
        words = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms(query)[:_MAX_TERMS])
        if not words:
            return []
        conditions = _message_conditions(wanted)
        statement = _SEARCH.format(where="".join(f" AND {test}" for test in conditions.tests))
        return [IndexedMessage(*row) for row in await self._query(statement, words, *conditions.values, limit)]

    # --- steps

    async def steps(self, wanted: StepFilter, page: ListPage) -> list[StepResponse]:
        steps: list[StepResponse] = []
        for body, feedback, tags in await self._page("steps", _step_conditions(wanted), page, "body, feedback, tags"):
            step = _STEPS.decode(body)
            step.feedback = str(feedback) or None
            step.tags = msgspec.json.decode(tags, type=tuple[str, ...])
            steps.append(step)
        return steps

    async def _page(self, table: _Table, wanted: _Conditions, page: ListPage, columns: str) -> list[tuple[Any, ...]]:
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
