"""The queue of each lane in PostgreSQL: a row for each run, in the order of joining, for all servers of a database."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, StoreUnavailable
from chargehand.journal.postgres_writer import CHANNEL, LIVING, notice_of
from chargehand.journal.protocol import Notices
from chargehand.postgres.database import PostgresDatabase, open_database
from chargehand.postgres.driver import Connection
from chargehand.server.letta.queue import check_length
from chargehand.server.tenant_runs import TenantRuns
from chargehand.server.wire import Problem
from chargehand.store_url import PostgresUrl

logger = logging.getLogger(__name__)
_BEGINNING = "30 s"
"""For how long a place is kept whose run has not begun: its server may have died."""
_LOCK_CLASS = 0x43686771
"""The first key of the advisory lock under which a lane is joined: places become visible in their order."""
_NO_WAIT = "SELECT set_config('synchronous_commit', 'off', true)"
_LOCK = "SELECT pg_advisory_xact_lock($1, hashtext(current_tenant()::text || ' ' || $2))"
_CLEAN = f"""
    DELETE FROM agent_queue AS place WHERE tenant = current_tenant() AND lane = $1 AND (
        EXISTS (SELECT FROM runs WHERE runs.tenant = current_tenant() AND runs.run = place.run AND runs.ended)
        OR at < clock_timestamp() - interval '{_BEGINNING}' AND NOT EXISTS (
            SELECT FROM runs WHERE runs.tenant = current_tenant() AND runs.run = place.run AND runs.seq > 0
        )
    )
"""  # noqa: S608 - of our own words
_JOIN = "INSERT INTO agent_queue (lane, run) VALUES ($1, $2) ON CONFLICT (tenant, run) DO NOTHING"
_PLACE = "SELECT number FROM agent_queue WHERE tenant = current_tenant() AND run = $1"
_FRONT = f"""
    SELECT place.run, runs.number IS NOT NULL, coalesce(runs.owner IN ({LIVING}), false)
    FROM agent_queue AS place
    LEFT JOIN runs ON runs.tenant = current_tenant() AND runs.run = place.run AND runs.seq > 0
    WHERE place.tenant = current_tenant() AND place.lane = $1 AND place.number < $2
        AND CASE WHEN runs.number IS NULL THEN place.at > clock_timestamp() - interval '{_BEGINNING}'
            ELSE NOT runs.ended END
    ORDER BY place.number DESC LIMIT 1
"""  # noqa: S608 - of our own words
_LEAVE = """
    WITH gone AS (DELETE FROM agent_queue WHERE tenant = current_tenant() AND run = $1 RETURNING run)
    SELECT pg_notify($2, $3) FROM gone
"""
_LENGTHS = """
    SELECT count(*) FILTER (WHERE lane = $1), count(*) - count(DISTINCT lane) FROM agent_queue
    WHERE tenant = current_tenant()
"""


class FrontRun(Struct, frozen=True):
    """The run that is directly in front of another."""

    run: str
    has_begun: bool
    is_held: bool
    """A living process drives it."""


class PostgresQueue:
    """`take_over` is given a run in front whose server has died: it must be worked on before those behind it.

    The store is looked at every `look_every` seconds, should a notice be lost.
    """

    def __init__(
        self,
        url: PostgresUrl,
        runs: TenantRuns,
        notices: Notices | None,
        *,
        max_waiting: int,
        take_over: Callable[[str], Awaitable[None]],
        look_every: Seconds = 2.0,
    ) -> None:
        self._url = url
        self._runs = runs
        self._notices = notices
        self._max_waiting = max_waiting
        self._take_over = take_over
        self._look_every = look_every
        self._opened: PostgresDatabase | None = None
        self._joined: set[str] = set()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        """Those that wait here, by lane."""

    async def _database(self) -> PostgresDatabase:
        if self._opened is None:
            self._opened = await open_database(self._url)
        return self._opened

    async def check(self, lane: str) -> None:
        ((length, waiting),) = await (await self._database()).fetch(_LENGTHS, lane)
        check_length(lane, length=length, waiting=waiting, most=self._max_waiting)

    async def join(self, lane: str, run: str) -> None:
        async def work(connection: Connection) -> None:
            await connection.fetchval(_NO_WAIT)
            await connection.fetchval(_LOCK, _LOCK_CLASS, lane)
            await connection.execute(_CLEAN, lane)
            await connection.execute(_JOIN, lane, run)

        await (await self._database()).write(work, idempotent=True)
        self._joined.add(run)

    async def wait_turn(self, lane: str, run: str) -> None:
        if run in self._joined and (front := await self._front(lane, run)) is not None:
            await self._runs.aside(run, self._wait_until_head(lane, run, front))

    async def _front(self, lane: str, run: str) -> FrontRun | None:
        while True:
            try:
                return await self._look(lane, run)
            except StoreUnavailable as error:
                logger.warning("run %s waits for the store: %s", run, error)
                await asyncio.sleep(self._look_every)

    async def _look(self, lane: str, run: str) -> FrontRun | None:
        """The run directly in front; None at the head. A place that was taken for that of a dead server is lost."""
        database = await self._database()
        places = await database.fetch(_PLACE, run)
        if not places:
            await self.join(lane, run)
            places = await database.fetch(_PLACE, run)
        rows = await database.fetch(_FRONT, lane, places[0][0]) if places else []
        return FrontRun(*rows[0]) if rows else None

    async def _wait_until_head(self, lane: str, run: str, front: FrontRun | None) -> None:
        changed = asyncio.Event()
        self._waiting[lane].add(changed)
        try:
            while front is not None:
                await self._wait_for_change(front, changed)
                front = await self._front(lane, run)
        finally:
            self._waiting[lane].discard(changed)
            if not self._waiting[lane]:
                del self._waiting[lane]

    async def _wait_for_change(self, front: FrontRun, changed: asyncio.Event) -> None:
        with ExitStack() as stack:
            if self._notices is not None:
                stack.callback(self._notices.subscribe(front.run, changed.set))
            if front.has_begun and not front.is_held:
                await self._try_take_over(front.run)
            try:
                async with asyncio.timeout(self._look_every):
                    await changed.wait()
            except TimeoutError:
                return
            changed.clear()

    async def _try_take_over(self, run: str) -> None:
        try:
            await self._take_over(run)
        except (ChargehandError, Problem) as error:  # it is tried again
            logger.warning("run %s, which others wait for, was not resumed: %s", run, error)

    def leave(self, lane: str, run: str) -> None:
        self._joined.discard(run)
        for changed in self._waiting.get(lane, ()):
            changed.set()

    async def withdraw(self, lane: str, run: str) -> None:
        database = await self._database()
        await database.fetch(_LEAVE, run, CHANNEL, notice_of(database.tenant, [run]))
        self.leave(lane, run)
