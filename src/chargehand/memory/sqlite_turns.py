"""What agents said and were told, as rows: in order, behind summaries, and found by words."""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused
from chargehand.memory.catalog import PREFIXES, KeptConversation, Profile
from chargehand.memory.conversations import Role, Turn
from chargehand.memory.sqlite_things import need_number
from chargehand.text.words import WORD

_MOST_WORDS = 64
_READ = 4_000  # characters of a question
_SAY = """
    INSERT INTO turns (agent, role, text, moment, run, task, tainted, upto, old) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
_COLUMNS = """
    SELECT turns.role, turns.text, turns.number, turns.moment, turns.run, turns.task, turns.tainted, turns.upto,
        turns.old
    FROM turns
"""
_PLACE = "iif(turns.upto, turns.upto, turns.number)"
_IN_ORDER = _COLUMNS + " WHERE turns.agent = ?"
_FOUND = _COLUMNS + " JOIN turns_words ON turns_words.rowid = turns.number WHERE turns_words MATCH ?"
_PLACE_OF = f"SELECT {_PLACE}, number FROM turns WHERE agent = ? AND number = ?"  # noqa: S608 - our own words
_FURTHEST = f"SELECT max({_PLACE}), max(upto) FROM turns WHERE agent = ? AND old = 0"  # noqa: S608 - our own words
_BEHIND = f"UPDATE turns SET old = 1 WHERE agent = ? AND old = 0 AND {_PLACE} <= ?"  # noqa: S608 - our own words


class Question(Struct, frozen=True):
    """What turns are looked for."""

    words: str
    roles: Sequence[Role] = ()
    start: Instant | None = None
    end: Instant | None = None
    limit: int = 5


def _speaker(db: sqlite3.Connection, space: str, which: str) -> int:
    """The number under which turns are kept: an agent's own, or that of a conversation beside it."""
    beside = which.startswith(f"{PREFIXES[KeptConversation]}-")
    return need_number(db, space, KeptConversation if beside else Profile, which)


def say(db: sqlite3.Connection, space: str, which: str, turns: Sequence[Turn], key: str, now: Instant) -> bool:
    for turn in turns:
        if turn.role == "summary":
            raise Invalid("a summary is not said; it is put in its place with `summarise`")
    agent = _speaker(db, space, which)
    if not db.execute("INSERT OR IGNORE INTO said (agent, key) VALUES (?, ?)", (agent, key)).rowcount:
        return False
    db.executemany(_SAY, [_row(agent, turn, now) for turn in turns])
    return True


def turns(db: sqlite3.Connection, space: str, which: str, limit: int, before: int | None, *, old: bool) -> list[Turn]:
    agent = _speaker(db, space, which)
    question = _IN_ORDER
    values = [agent]
    if not old:
        question += " AND turns.old = 0"
    if before is not None:
        question += f" AND ({_PLACE}, turns.number) < (?, ?)"
        values += db.execute(_PLACE_OF, (agent, before)).fetchone() or (before, 0)
    question += f" ORDER BY {_PLACE} DESC, turns.number DESC LIMIT ?"
    rows = db.execute(question, [*values, max(0, limit)]).fetchall()
    return [_turn(row) for row in reversed(rows)]


def recall(db: sqlite3.Connection, space: str, which: str, asked: Question) -> list[Turn]:
    """Without any word to look for: the latest ones that fit."""
    agent = _speaker(db, space, which)
    words = WORD.findall(asked.words[:_READ])[:_MOST_WORDS]
    values: list[object] = [agent]
    if words:
        either = " OR ".join(f'"{word}"' for word in words)
        question = _FOUND
        order = " ORDER BY bm25(turns_words, 0.0, 1.0), turns.number DESC"
        values = [f'agent : "{agent}" AND text : ({either})']
    else:
        question = _IN_ORDER
        order = " ORDER BY turns.number DESC"
    if asked.roles:
        question += " AND turns.role IN (" + ", ".join("?" * len(asked.roles)) + ")"
        values += asked.roles
    if asked.start is not None:
        question = question + " AND turns.moment >= ?"
        values = [*values, asked.start]
    if asked.end is not None:
        question = question + " AND turns.moment <= ?"
        values = [*values, asked.end]
    rows = db.execute(question + order + " LIMIT ?", [*values, max(0, asked.limit)]).fetchall()
    return [_turn(row) for row in rows]


def summarise(db: sqlite3.Connection, space: str, which: str, summary: Turn, now: Instant) -> bool:
    agent = _speaker(db, space, which)
    last, reached = db.execute(_FURTHEST, (agent,)).fetchone()
    if summary.role != "summary" or summary.upto < 1:
        raise Invalid("a summary has the role `summary` and says up to which turn it goes (`upto`)")
    if summary.upto > (last or 0):
        raise Refused(f"agent {which!r} has no turn {summary.upto}; the last one is {last or 0}")
    if summary.upto <= (reached or 0):
        return False
    db.execute(_BEHIND, (agent, summary.upto))
    db.execute(_SAY, _row(agent, summary, now))
    return True


def reset(db: sqlite3.Connection, space: str, which: str) -> int:
    agent = _speaker(db, space, which)
    return db.execute("DELETE FROM turns WHERE agent = ?", (agent,)).rowcount


def _row(agent: int, turn: Turn, now: Instant) -> tuple[object, ...]:
    return (
        agent,
        turn.role,
        turn.text,
        turn.when or now,
        turn.run,
        turn.task,
        turn.tainted,
        turn.upto if turn.role == "summary" else 0,
    )


def _turn(row: tuple[Role, str, int, float, str, str, int, int, int]) -> Turn:
    role, text, number, when, run, task, tainted, upto, old = row
    return Turn(
        role=role,
        text=text,
        number=number,
        when=when,
        run=run,
        task=task,
        tainted=bool(tainted),
        upto=upto,
        old=bool(old),
    )
