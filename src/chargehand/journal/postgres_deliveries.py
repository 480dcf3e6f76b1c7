"""What is owed to webhooks, in PostgreSQL: whichever process claims a delivery makes it."""

from collections.abc import Collection, Sequence

from chargehand.engine.policy import Instant
from chargehand.journal.deliveries import Delivery
from chargehand.postgres.database import PostgresDatabase

_ADD = """
    INSERT INTO deliveries (run, webhook, due) SELECT $1, unnest($2::text[]), $3
    WHERE NOT EXISTS (SELECT FROM runs WHERE tenant = current_tenant() AND run = $1 AND seq > 0)
    ON CONFLICT DO NOTHING
"""
_CLAIM = """
    WITH owed AS (
        SELECT deliveries.run FROM deliveries
        JOIN runs ON runs.tenant = deliveries.tenant AND runs.run = deliveries.run AND runs.seq > deliveries.seq
        WHERE deliveries.tenant = current_tenant() AND webhook = $1 AND due <= $3 AND NOT given_up
            AND ($2::text[] IS NULL OR deliveries.run = ANY ($2::text[]))
        LIMIT $5 FOR UPDATE OF deliveries SKIP LOCKED
    )
    UPDATE deliveries SET due = $4
    WHERE tenant = current_tenant() AND webhook = $1 AND run IN (SELECT run FROM owed)
    RETURNING run, webhook, seq, tries, given_up, error
"""
_UPDATE = """
    UPDATE deliveries SET seq = $3, tries = $4, given_up = $5, error = $6, due = $7
    WHERE tenant = current_tenant() AND run = $1 AND webhook = $2
"""
_REMOVE = "DELETE FROM deliveries WHERE tenant = current_tenant() AND run = $1 AND webhook = $2"
_REMOVE_UNBEGUN = """
    DELETE FROM deliveries WHERE tenant = current_tenant() AND due < $1
        AND NOT EXISTS (SELECT FROM runs WHERE runs.tenant = deliveries.tenant AND runs.run = deliveries.run)
"""
_LIST = """
    SELECT run, webhook, seq, tries, given_up, error FROM deliveries WHERE tenant = current_tenant()
    ORDER BY run, webhook
"""


class PostgresDeliveries:
    """The deliveries of one tenant."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, run: str, webhooks: Sequence[str], now: Instant) -> None:
        await self._database.fetch(_ADD, run, list(webhooks), now)

    async def claim(
        self, webhook: str, runs: Collection[str] | None, *, now: Instant, until: Instant, limit: int
    ) -> list[Delivery]:
        names = None if runs is None else list(runs)
        return [Delivery(*row) for row in await self._database.fetch(_CLAIM, webhook, names, now, until, limit)]

    async def update(self, delivery: Delivery, due: Instant) -> None:
        key = (delivery.run, delivery.webhook)
        state = (delivery.seq, delivery.tries, delivery.given_up, delivery.error.replace("\0", ""))
        await self._database.fetch(_UPDATE, *key, *state, due)

    async def remove(self, delivery: Delivery) -> None:
        await self._database.fetch(_REMOVE, delivery.run, delivery.webhook)

    async def remove_unbegun(self, before: Instant) -> None:
        await self._database.fetch(_REMOVE_UNBEGUN, before)

    async def list(self) -> list[Delivery]:
        return [Delivery(*row) for row in await self._database.fetch(_LIST)]
