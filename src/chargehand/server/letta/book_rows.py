"""Rows of the book: how runs, messages and steps are written into it, and how a page of them is read.

What they mean is `speech`'s business, and which are asked for is `book`'s.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.server.letta.message_shapes import MessageTold, RunTold
from chargehand.server.letta.pages import Page
from chargehand.server.letta.shapes import moment
from chargehand.server.letta.speech import Speech

Value: TypeAlias = str | float | int
Clean: TypeAlias = Callable[[bytes], bytes]
Table: TypeAlias = Literal["runs", "messages", "steps"]
_ENCODER = msgspec.json.Encoder()
_RUN = """
    INSERT INTO runs (id, name, agent, conversation, created, status, stop, open, background, mark, usage, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
_KEYS: dict[Table, str] = {"runs": "created, number", "messages": "at, number", "steps": "number"}
_FOUND = frozenset(("user_message", "assistant_message", "system_message", "reasoning_message"))


class Conditions(Struct):
    """What rows must be like: SQL of ours, and the values that go with it."""

    tests: list[str] = msgspec.field(default_factory=list[str])
    values: list[Value] = msgspec.field(default_factory=list[Value])

    def add(self, test: str, *values: Value) -> None:
        self.tests.append(test)
        self.values += values

    def equal(self, column: str, value: str | None) -> None:
        if value:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str] | None) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)


def run_told(speech: Speech) -> RunTold:
    over = speech.over or speech.question is not None
    first = next((one.replied for one in speech.steps if one.replied), 0.0)
    return RunTold(
        id=speech.run,
        agent_id=speech.agent,
        status=speech.status,
        created_at=moment(speech.began),
        completed_at=moment(speech.ended) if speech.over else None,
        stop_reason=speech.stop if over else None,
        background=speech.asked.background if speech.asked is not None else False,
        total_duration_ns=_nanoseconds(speech.began, speech.ended) if speech.over else None,
        ttft_ns=_nanoseconds(speech.began, first) if first else None,
        conversation_id=speech.conversation or None,
    )


def _nanoseconds(start: float, end: float) -> int:
    return max(0, int((end - start) * 1e9))


def keep(db: sqlite3.Connection, speeches: Sequence[Speech], resets: Mapping[str, float], clean: Clean) -> None:
    """Write what these talks have come to; what is there already stays. Messages from before a reset were forgotten.

    `clean` takes secrets out of what is written.
    """
    for one in speeches:
        asked = one.asked
        told = run_told(one)
        row = (
            one.run,
            one.name,
            one.agent,
            one.conversation,
            one.began,
            told.status,
            told.stop_reason or "",
            int(not one.over),
            int(bool(told.background)),
            asked.mark if asked is not None else "",
            _ENCODER.encode(one.usage),
            _ENCODER.encode(told),
        )
        db.execute(_RUN, row)
        # who waits in line is not heard yet: a reader who goes on from there would miss what comes before it
        heard = one.over or one.is_working or one.question is not None
        if heard and one.began >= resets.get(one.lane, 0.0):
            db.executemany(_MESSAGE, [_message(one, message, clean) for message in one.messages])
        steps = [(s.id, one.agent, one.run, s.started, s.model, clean(_ENCODER.encode(s))) for s in one.steps]
        db.executemany(_STEP, steps)


def _message(speech: Speech, one: MessageTold, clean: Clean) -> tuple[object, ...]:
    words = (one.content or one.reasoning or "") if one.message_type in _FOUND else ""
    return (
        one.id,
        speech.agent,
        speech.conversation,
        one.run_id,
        one.step_id or "",
        one.message_type,
        speech.began,
        clean(words.encode()).decode(),
        clean(_ENCODER.encode(one)),
    )


def page(
    db: sqlite3.Connection, table: Table, wanted: Conditions, asked: Page, columns: str
) -> list[tuple[bytes, ...]]:
    """The page of a table that is asked for; `columns` and the tests are ours, never a client's."""
    falling = asked.order == "desc"
    backwards = bool(asked.before) and not asked.after  # those nearest to it
    rows = _cut(db, table, wanted, asked, columns, cursors_fall=falling, descending=falling != backwards)
    return rows[::-1] if backwards else rows


def message_page(db: sqlite3.Connection, wanted: Conditions, asked: Page, columns: str) -> list[tuple[bytes, ...]]:
    """A page of messages, from the oldest to the newest: `after` means newer and `before` older, whatever the order.

    The order only says at which end a list without a cursor begins. So Letta has it: a client that follows the pages
    goes on from the last message with `after`.
    """
    newest_first = not asked.after and (bool(asked.before) or asked.order == "desc")
    rows = _cut(db, "messages", wanted, asked, columns, cursors_fall=False, descending=newest_first)
    return rows[::-1] if newest_first else rows


def _cut(
    db: sqlite3.Connection,
    table: Table,
    wanted: Conditions,
    asked: Page,
    columns: str,
    *,
    cursors_fall: bool,
    descending: bool,
) -> list[tuple[bytes, ...]]:
    """Rows between the cursors; where these fall, what comes after one is what is older than it."""
    tests = list(wanted.tests)
    values = list(wanted.values)
    keys = _KEYS[table]
    signs = ("<", ">") if cursors_fall else (">", "<")
    for cursor, sign in zip((asked.after, asked.before), signs, strict=True):
        if cursor:
            tests.append(f"({keys}) {sign} (SELECT {keys} FROM {table} WHERE id = ?)")  # noqa: S608 - as below
            values.append(cursor)
    direction = "DESC" if descending else "ASC"
    ordered = ", ".join(f"{key} {direction}" for key in keys.split(", "))
    where = f"WHERE {' AND '.join(tests)}" if tests else ""
    query = f"SELECT {columns} FROM {table} {where} ORDER BY {ordered} LIMIT ?"  # noqa: S608 - every piece is ours
    return db.execute(query, (*values, asked.limit)).fetchall()
