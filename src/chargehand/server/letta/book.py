"""The book of a house: runs, messages and steps of its agents, found without reading every journal.

All of it is derived: the journal is the truth, and what the book lacks is written in when the house is opened.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from chargehand.server.letta import book_rows as rows
from chargehand.server.letta.book_rows import Conditions
from chargehand.server.letta.message_shapes import StepTold
from chargehand.server.letta.pages import Page
from chargehand.server.letta.speech import Speech
from chargehand.server.tenants import Tenant
from chargehand.stores.catalog_doors import FileDoor
from chargehand.stores.catalog_words import terms
from chargehand.stores.database import FileKind
from chargehand.stores.opening import in_thread
from chargehand.terms.policy import Instant

if TYPE_CHECKING:
    import sqlite3  # whoever has a house has it loaded already

TALKS = FileKind(0x43686754, (("talks-1.sql",),), "book of talks")
_PATIENCE = 5.0
_MOST_KNOWN = 10_000
_MOST_TERMS = 64
_NEVER: Mapping[str, Instant] = {}
_STEPS = msgspec.json.Decoder(StepTold)
_SEARCH = """
    SELECT messages.body, messages.agent FROM message_words JOIN messages ON messages.number = message_words.rowid
    WHERE message_words MATCH ? {where} ORDER BY rank LIMIT ?
"""
_Outcome = TypeVar("_Outcome")


class Book:
    """Opened when it is first looked at, closed with its house."""

    def __init__(self, tenant: Tenant) -> None:
        self._path = tenant.folder / "letta.db"
        self._clean = tenant.journal.redactor.clean
        self._gate = asyncio.Lock()
        self._opened: FileDoor | None = None
        self._last: dict[str, bytes] = {}
        """The bodies of the runs that ended last, by agent, as they were read; nothing where there is none."""
        self._writes = 0
        tenant.stack.push_async_callback(self._close)

    async def _door(self) -> FileDoor:
        async with self._gate:
            if self._opened is None:
                # what is lost with the machine's power is written again from the journal
                self._opened = await in_thread(
                    lambda: FileDoor(self._path, durability="process", patience=_PATIENCE, kind=TALKS),
                    FileDoor.close_now,
                )
            return self._opened

    async def _close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _write(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._opened or await self._door()).write(work)

    async def _read(self, work: "Callable[[sqlite3.Connection], _Outcome]") -> _Outcome:
        return await (self._opened or await self._door()).read(work)

    # --- writing

    async def keep(self, speeches: Sequence[Speech], resets: Mapping[str, Instant] = _NEVER) -> None:
        """Write what these talks have come to, in one transaction; no messages from before an agent's were reset."""
        self._changed()
        await self._write(lambda db: rows.keep(db, speeches, resets, self._clean))
        self._changed()

    async def forget(self, agent: str, *, runs: bool) -> None:
        """Drop the messages of an agent's own conversation; with `runs` everything that is known of it."""

        def work(db: "sqlite3.Connection") -> None:
            db.execute("DELETE FROM messages WHERE agent = ? AND (conversation = '' OR ?)", (agent, runs))
            if runs:
                db.execute("DELETE FROM steps WHERE agent = ?", (agent,))
                db.execute("UPDATE runs SET agent = '', mark = '' WHERE agent = ?", (agent,))

        await self._write(work)
        self._changed()

    async def forget_conversation(self, which: str) -> None:
        """Drop the messages of a conversation; its runs stay, as runs of its agent."""
        await self._write(lambda db: db.execute("DELETE FROM messages WHERE conversation = ?", (which,)))
        self._changed()

    async def last_heard(self, run: str) -> Instant | None:
        """The moment that the messages of a run are kept under; None where there are none."""
        query = "SELECT max(at) FROM messages WHERE run = ?"
        return await self._read(lambda db: db.execute(query, (run,)).fetchone()[0])

    async def last_messages(self, conversations: Sequence[str]) -> dict[str, Instant]:
        """When something was last said in these conversations."""
        query = "SELECT max(created) FROM runs WHERE conversation = ?"

        def work(db: "sqlite3.Connection") -> dict[str, Instant]:
            found = {which: db.execute(query, (which,)).fetchone()[0] for which in conversations}
            return {which: moment for which, moment in found.items() if moment is not None}

        return await self._read(work)

    def _changed(self) -> None:
        """What was read before, or while something was written, need not be so any more."""
        self._writes += 1
        self._last = {}

    async def judge(self, step: str, feedback: str, tags: Sequence[str]) -> bool:
        """Keep what a person thinks of a step; whether there is one."""
        row = (feedback, msgspec.json.encode(list(tags)).decode(), step)
        changed = await self._write(
            lambda db: db.execute("UPDATE steps SET feedback = ?, tags = ? WHERE id = ?", row).rowcount
        )
        return changed > 0

    # --- runs

    async def runs(self, wanted: Conditions, page: Page) -> list[bytes]:
        wanted.add("agent <> ''")
        return [one[0] for one in await self._read(lambda db: rows.page(db, "runs", wanted, page, "body"))]

    async def run(self, which: str) -> tuple[str, str, bytes, bytes] | None:
        """The journal's name, the agent, the body and the usage of a run."""
        query = "SELECT name, agent, body, usage FROM runs WHERE id = ? AND agent <> ''"
        return await self._read(lambda db: db.execute(query, (which,)).fetchone())

    async def asked(self, agent: str, mark: str, since: Instant) -> str:
        """The latest run that answers this very call; nothing if there is none."""
        query = "SELECT id FROM runs WHERE agent = ? AND mark = ? AND created >= ? ORDER BY created DESC LIMIT 1"
        found = await self._read(lambda db: db.execute(query, (agent, mark, since)).fetchone())
        return found[0] if found else ""

    async def last(self, agents: Sequence[str]) -> dict[str, bytes]:
        """The body of the run that ended last, of each of these agents that has one."""
        query = "SELECT body FROM runs WHERE agent = ? AND open = 0 ORDER BY created DESC, number DESC LIMIT 1"

        def work(db: "sqlite3.Connection") -> dict[str, bytes]:
            rows = ((one, db.execute(query, (one,)).fetchone()) for one in missing)
            return {one: b"" if row is None else row[0] for one, row in rows}

        known = self._last
        missing = [one for one in agents if one not in self._last]
        if missing:
            writes = self._writes
            known = {**known, **await self._read(work)}
            if writes == self._writes and len(known) <= _MOST_KNOWN:
                self._last = known
        return {one: known[one] for one in agents if known[one]}

    async def waiting(self) -> dict[str, str]:
        """The runs that wait for a person's leave, by conversation; those of an agent's own by the agent."""
        query = """
            SELECT iif(conversation <> '', conversation, agent), id FROM runs
            WHERE open = 1 AND stop = 'requires_approval' AND agent <> ''
        """
        return await self._read(lambda db: dict(db.execute(query).fetchall()))

    async def known(self) -> dict[str, bool]:
        """Every journal that is written in here, and whether it was to its end."""
        query = "SELECT name, max(open) FROM runs GROUP BY name"
        return await self._read(lambda db: {name: not is_open for name, is_open in db.execute(query)})

    # --- messages

    async def messages(self, wanted: Conditions, page: Page) -> list[bytes]:
        return [one[0] for one in await self._read(lambda db: rows.message_page(db, wanted, page, "body"))]

    async def message(self, which: str) -> tuple[bytes, str, str] | None:
        """The body, the run and the agent of a message."""
        query = "SELECT body, run, agent FROM messages WHERE id = ?"
        return await self._read(lambda db: db.execute(query, (which,)).fetchone())

    async def search(self, query: str, wanted: Conditions, limit: int) -> list[tuple[bytes, str]]:
        """Messages with these words, best first, each with its agent. No text of a client's is query syntax."""
        words = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms(query)[:_MOST_TERMS])
        if not words:
            return []
        where = "".join(f" AND {test}" for test in wanted.tests)
        return await self._read(
            lambda db: db.execute(_SEARCH.format(where=where), (words, *wanted.values, limit)).fetchall()
        )

    # --- steps

    async def steps(self, wanted: Conditions, page: Page) -> list[StepTold]:
        columns = "body, feedback, tags"
        found = await self._read(lambda db: rows.page(db, "steps", wanted, page, columns))
        return [_step(body, str(feedback), str(tags)) for body, feedback, tags in found]

    async def step(self, which: str) -> StepTold | None:
        wanted = Conditions()
        wanted.add("id = ?", which)
        found = await self.steps(wanted, Page("", "", 1, "asc"))
        return found[0] if found else None


def _step(body: bytes, feedback: str, tags: str) -> StepTold:
    found = _STEPS.decode(body)
    found.feedback = feedback or None
    found.tags = tuple(msgspec.json.decode(tags, type=list[str]))
    return found
