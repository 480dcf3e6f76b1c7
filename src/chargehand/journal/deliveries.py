"""What is owed to webhooks: up to which entry of a run each of them was told. The journal has the rest.

A row is written before its run begins, and deleted when the webhook was told of the end.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from chargehand.engine.policy import Instant

if TYPE_CHECKING:
    import sqlite3  # loaded by whatever opened the database

    from chargehand.sqlite.database import Database


class Delivery(Struct, frozen=True):
    """One webhook of one run."""

    run: str
    webhook: str
    seq: int = 0
    """It was told of the entries up to this one, or need not be."""
    tries: int = 0
    """How often it was not reached with the event that is next."""
    given_up: bool = False
    error: str = ""
    """Why it was not reached the last time."""


class Deliveries(Protocol):
    """The deliveries of a journal."""

    async def add(self, run: str, webhooks: Sequence[str], now: Instant) -> None:
        """Owe the events of a run that has not begun yet; nothing for one that has."""
        ...

    async def claim(
        self, webhook: str, runs: Collection[str] | None, *, now: Instant, until: Instant, limit: int
    ) -> list[Delivery]:
        """Deliveries whose runs have entries that the webhook was not told of; of these runs, or of any.

        Another process finds each of them again at `until`, unless it is updated before.
        """
        ...

    async def update(self, delivery: Delivery, due: Instant) -> None:
        """Write how it stands. It can be claimed from `due` on."""
        ...

    async def remove(self, delivery: Delivery) -> None:
        """Nothing more is owed."""
        ...

    async def remove_unbegun(self, before: Instant) -> None:
        """Remove those that were added before this time and whose runs are not there."""
        ...


_ADD = """
    INSERT INTO deliveries (run, webhook, due) SELECT :run, :webhook, :now
    WHERE NOT EXISTS (SELECT 1 FROM runs WHERE run = :run AND seq > 0)
    ON CONFLICT DO NOTHING
"""
_CLAIM = """
    UPDATE deliveries SET due = :until WHERE webhook = :webhook AND run IN (
        SELECT deliveries.run FROM deliveries JOIN runs ON runs.run = deliveries.run AND runs.seq > deliveries.seq
        WHERE webhook = :webhook AND due <= :now AND NOT given_up
            AND (:runs IS NULL OR deliveries.run IN (SELECT value FROM json_each(:runs)))
        LIMIT :limit
    )
    RETURNING run, webhook, seq, tries, given_up, error
"""
_UPDATE = """
    UPDATE deliveries SET seq = ?, tries = ?, given_up = ?, error = ?, due = ? WHERE run = ? AND webhook = ?
"""
_REMOVE = "DELETE FROM deliveries WHERE run = ? AND webhook = ?"
_REMOVE_UNBEGUN = "DELETE FROM deliveries WHERE due < ? AND run NOT IN (SELECT run FROM runs)"
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'deliveries'"
_LIST = "SELECT run, webhook, seq, tries, given_up, error FROM deliveries ORDER BY run, webhook"


class SqliteDeliveries:
    """The deliveries of a journal in SQLite."""

    def __init__(self, database: "Database") -> None:
        self._database = database

    async def add(self, run: str, webhooks: Sequence[str], now: Instant) -> None:
        rows = [{"run": run, "webhook": webhook, "now": now} for webhook in webhooks]

        def work(db: "sqlite3.Connection") -> None:
            db.executemany(_ADD, rows)

        await self._database.write(work)

    async def claim(
        self, webhook: str, runs: Collection[str] | None, *, now: Instant, until: Instant, limit: int
    ) -> list[Delivery]:
        names = None if runs is None else msgspec.json.encode(list(runs)).decode()
        values = {"webhook": webhook, "runs": names, "now": now, "until": until, "limit": limit}
        rows = await self._database.write(lambda db: db.execute(_CLAIM, values).fetchall())
        return [_delivery(row) for row in rows]

    async def update(self, delivery: Delivery, due: Instant) -> None:
        state = (delivery.seq, delivery.tries, delivery.given_up, delivery.error, due)
        await self._execute(_UPDATE, *state, delivery.run, delivery.webhook)

    async def remove(self, delivery: Delivery) -> None:
        await self._execute(_REMOVE, delivery.run, delivery.webhook)

    async def remove_unbegun(self, before: Instant) -> None:
        await self._execute(_REMOVE_UNBEGUN, before)

    async def _execute(self, statement: str, *values: object) -> None:
        def work(db: "sqlite3.Connection") -> None:
            db.execute(statement, values)

        await self._database.write(work)


def list_deliveries(connection: "sqlite3.Connection") -> list[Delivery]:
    """All of a file; none where an older version wrote it."""
    if connection.execute(_HAS_TABLE).fetchone() is None:
        return []
    return [_delivery(row) for row in connection.execute(_LIST).fetchall()]


def _delivery(row: tuple[str, str, int, int, int, str]) -> Delivery:
    run, webhook, seq, tries, given_up, error = row
    return Delivery(run, webhook, seq=seq, tries=tries, given_up=bool(given_up), error=error)
