"""The queue of an agent's messages in PostgreSQL, which two servers share."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from chargehand.engine.events import Entry, RunEnded
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from chargehand.postgres.database import open_database
from chargehand.runtime.runner import Outcome
from chargehand.server.letta.postgres_queue import PostgresQueue
from chargehand.server.settings import ServerLimits
from chargehand.server.tenant_runs import Admission, TenantRuns
from chargehand.server.wire import Problem
from chargehand.store_url import postgres_url
from tests.stores.samples import AT, entries

LANE = "agent-1"


class Server:
    """The queue of one server, with its journal."""

    def __init__(self, journal: Journal, runs: TenantRuns, queue: PostgresQueue, taken_over: list[str]) -> None:
        self.journal = journal
        self.runs = runs
        self.queue = queue
        self.taken_over = taken_over

    async def begin(self, run: str) -> None:
        """Join the queue and write the first entry of a run."""
        await self.queue.join(LANE, run)
        lease = await self.journal.claim(run, new=True)
        await self.journal.append(lease, entries(1))

    async def end(self, run: str) -> None:
        lease = await self.journal.claim(run, steal=True)
        await self.journal.append(lease, [Entry(2, AT, RunEnded("complete", "done"))])


@asynccontextmanager
async def servers(store: str, *, count: int = 2, waiting: int = 4) -> AsyncGenerator[Sequence[Server]]:
    if count == 0:
        yield []
        return
    taken_over: list[str] = []

    async def take_over(run: str) -> None:
        taken_over.append(run)

    async with (
        opened_journal(store) as journal,
        TenantRuns(Admission(ServerLimits()), "main", 0.0) as runs,
        servers(store, count=count - 1, waiting=waiting) as others,
    ):
        queue = PostgresQueue(
            postgres_url(store), runs, journal.notices, max_waiting=waiting, take_over=take_over, look_every=0.1
        )
        yield [Server(journal, runs, queue, taken_over), *others]


class Waiting:
    """A run that waits for its turn in a slot of its server."""

    def __init__(self, server: Server, run: str, jobs: asyncio.TaskGroup) -> None:
        self.turn = asyncio.Event()
        self._server = server
        self._run = run
        self._task = jobs.create_task(self._carry())

    async def _carry(self) -> None:
        with suppress(RuntimeError):
            await asyncio.shield(await self._server.runs.begin(self._run, self._work))

    async def _work(self) -> Outcome:
        await self._server.queue.wait_turn(LANE, self._run)
        self.turn.set()
        raise RuntimeError("that is all of this test")

    async def waits(self) -> bool:
        """Whether it has not had its turn after some questions to the store."""
        for _ in range(5):
            await self._server.queue.check("agent-2")
        return not self.turn.is_set()


async def test_runs_of_two_servers_have_their_turns_in_the_order_of_joining(postgres_store: str) -> None:
    async with asyncio.timeout(60), servers(postgres_store) as (one, other), asyncio.TaskGroup() as jobs:
        await one.begin("r1")
        await other.begin("r2")
        await one.begin("r3")
        await one.queue.wait_turn(LANE, "r1")
        third = Waiting(one, "r3", jobs)
        second = Waiting(other, "r2", jobs)
        assert await second.waits()
        await one.end("r1")
        await second.turn.wait()
        assert await third.waits()
        await other.end("r2")
        await third.turn.wait()
        assert one.taken_over == []


async def test_a_run_whose_server_died_is_taken_over_by_the_first_that_waits_behind_it(postgres_store: str) -> None:
    async with asyncio.timeout(60), servers(postgres_store) as (one, _), asyncio.TaskGroup() as jobs:
        await one.begin("r2")
        async with servers(postgres_store, count=1) as (dying,):
            await dying.begin("r1")
            await one.queue.withdraw(LANE, "r2")
            await one.queue.join(LANE, "r2")
        behind = Waiting(one, "r2", jobs)
        while not one.taken_over:
            assert await behind.waits()
        assert one.taken_over[0] == "r1"
        await one.end("r1")
        await behind.turn.wait()


async def test_a_place_whose_run_never_began_is_given_up_and_taken_anew_by_who_comes_late(postgres_store: str) -> None:
    async with asyncio.timeout(60), servers(postgres_store) as (one, other), asyncio.TaskGroup() as jobs:
        await one.queue.join(LANE, "late")
        await other.begin("r2")
        behind = Waiting(other, "r2", jobs)
        assert await behind.waits(), "the other may be about to begin"
        database = await open_database(postgres_url(postgres_store))
        await database.fetch("UPDATE agent_queue SET at = at - interval '1 hour' WHERE run = 'late'")
        await behind.turn.wait()
        await other.queue.join(LANE, "r3")  # which clears away what is stale
        late = Waiting(one, "late", jobs)
        assert await late.waits(), "its place is behind those that did not wait for it"
        await other.end("r2")
        await other.queue.withdraw(LANE, "r3")
        await late.turn.wait()


async def test_the_length_of_the_queue_is_that_of_all_servers(postgres_store: str) -> None:
    async with servers(postgres_store) as (one, other):
        for server, run in ((one, "r1"), (other, "r2"), (one, "r3")):
            await server.queue.check(LANE)
            await server.queue.join(LANE, run)
        with pytest.raises(Problem, match="3 messages to agent-1 are under way already"):
            await other.queue.check(LANE)
        await other.queue.check("agent-2")
        await one.queue.withdraw(LANE, "r1")
        await other.queue.check(LANE)
