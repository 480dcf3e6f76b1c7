"""Which job each run is in, as PostgreSQL keeps it."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec import structs

from chargehand.dispatch.dispatcher import JobDispatcher
from chargehand.dispatch.engine import Job, QueueDriver
from chargehand.dispatch.job_driver import JobDriver
from chargehand.engine.events import Entry, RunEnded
from chargehand.errors import RunBusy
from chargehand.journal.postgres import PostgresJournal
from chargehand.journal.postgres_jobs import read_deployment, take_turn
from chargehand.journal.protocol import UndrivenRun
from chargehand.store_url import postgres_url
from tests.requests import request


@pytest.fixture
def journal(postgres_store: str) -> Iterator[PostgresJournal]:
    """With three runs of queue `q`."""

    async def begin() -> PostgresJournal:
        opened = await PostgresJournal.open(postgres_url(postgres_store))
        for run in ("a", "b", "c"):
            await opened.create(run, [Entry(1, 1.0, structs.replace(request(), queue="q"))])
        return opened

    opened = asyncio.run(begin())
    yield opened
    asyncio.run(opened.close())


async def test_a_run_is_in_one_job_whoever_asks(journal: PostgresJournal) -> None:
    assert await journal.jobs.assign(["a", "b"], "one", queue="q") == {"a": "one", "b": "one"}
    assert await journal.jobs.assign(["b", "c"], "two", queue="q") == {"b": "one", "c": "two"}
    assert await journal.jobs.open_runs("one") == ["a", "b"]
    assert await journal.jobs.assign(["unknown"], "three", queue="q") == {}


async def test_a_run_changes_its_job_only_if_it_is_in_the_one_that_is_named(journal: PostgresJournal) -> None:
    await journal.jobs.assign(["a", "b"], "one", queue="q")
    assert await journal.jobs.assign(["b", "c"], "two", queue="q", instead_of="one") == {"b": "two"}
    assert await journal.jobs.open_runs("one") == ["a"]


async def test_a_run_that_needs_a_person_is_settled_and_in_no_job_until_it_is_begun_again(
    journal: PostgresJournal,
) -> None:
    await journal.jobs.assign(["a", "b"], "one", queue="q")
    await journal.jobs.park("a", "one")
    await journal.jobs.park("b", "another")
    assert await journal.jobs.settled(["a", "b", "c"]) == {"a"}
    assert await journal.jobs.open_runs("one") == ["b"]
    assert [row.run for row in await journal.jobs.undriven(limit=10)] == ["b", "c"]
    assert await journal.jobs.assign(["a"], "two", queue="q") == {"a": "two"}
    assert await journal.jobs.settled(["a"]) == set()


async def test_a_run_that_a_command_took_up_is_open_again_and_driven_by_workers_if_the_command_dies(
    journal: PostgresJournal,
) -> None:
    await journal.jobs.assign(["a"], "one", queue="q")
    await journal.jobs.park("a", "one")
    lease = await journal.claim("a")  # by `chargehand resume`, which asks no engine
    assert await journal.jobs.settled(["a"]) == set(), "who waits for it waits on"
    await journal.release(lease)
    assert UndrivenRun("a", "q", None) in await journal.jobs.undriven(limit=10)


async def test_runs_that_no_process_drives_are_those_that_nobody_holds(journal: PostgresJournal) -> None:
    await journal.jobs.assign(["a"], "one", queue="q")
    lease = await journal.claim("b")
    found = await journal.jobs.undriven(limit=10)
    assert found == [UndrivenRun("a", "q", "one"), UndrivenRun("c", "q", None)]
    await journal.release(lease)
    assert [row.run for row in await journal.jobs.undriven(limit=2)] == ["a", "b"]


async def test_an_ended_run_is_settled_and_in_no_job(journal: PostgresJournal) -> None:
    await journal.jobs.assign(["a"], "one", queue="q")
    lease = await journal.claim("a")
    await journal.append(lease, [Entry(2, 2.0, RunEnded("complete", "done", ()))])
    assert await journal.jobs.settled(["a"]) == {"a"}
    assert await journal.jobs.open_runs("one") == []
    assert await journal.jobs.assign(["a"], "two", queue="q") == {}
    assert [row.run for row in await journal.jobs.undriven(limit=10)] == ["b", "c"]


async def test_a_run_without_a_queue_belongs_to_the_process_that_began_it(journal: PostgresJournal) -> None:
    await journal.create("near", [Entry(1, 1.0, request())])
    assert [row.run for row in await journal.jobs.undriven(limit=10)] == ["a", "b", "c"]


async def test_one_process_looks_at_open_runs_in_each_interval(postgres_store: str) -> None:
    url = postgres_url(postgres_store)
    assert await take_turn(url, 60.0)
    assert not await take_turn(url, 60.0)
    assert await take_turn(url, 0.0)
    assert (await read_deployment(url)).name == (await read_deployment(url)).name


async def test_waiting_for_a_run_hears_entries_of_the_same_process(journal: PostgresJournal) -> None:
    dispatcher = JobDispatcher(UnusedEngine(), journal, "main")
    lease = await journal.claim("a")
    async with asyncio.TaskGroup() as jobs, asyncio.timeout(4):  # less than the wait for a lost notice
        waiting = jobs.create_task(dispatcher.wait("a"))
        while not journal.notices.runs:  # noqa: ASYNC110 - nothing tells that it is subscribed
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.3)  # its first query has been answered
        await journal.append(lease, [Entry(2, 2.0, RunEnded("complete", "done", ()))])
        await waiting


class UnusedEngine:
    """An engine that is asked nothing."""

    deployment = "test"

    async def start(self, job: Job) -> None:
        raise AssertionError(f"job {job.id} is not to be started")

    def serving(self, driver: QueueDriver) -> AbstractAsyncContextManager[None]:
        raise AssertionError("no queue is served")


class FrozenOwner:
    """A `JobHost` and its tenant: a process that does not answer holds every run, and no engine is asked."""

    busy = 0
    waiting = 0

    def __init__(self, journal: PostgresJournal) -> None:
        self.journal = journal
        self.stolen: list[str] = []

    @property
    def dispatcher(self) -> JobDispatcher:
        raise AssertionError("every run has ended")

    async def of(self, tenant: str) -> "FrozenOwner":
        assert tenant == "main"
        return self

    async def drain(self, patience: float) -> None:
        """Nothing is under way."""

    async def drive(self, run: str, *, steal: bool) -> bool:
        if not steal:
            raise RunBusy(f"run {run} is held")
        self.stolen.append(run)
        return True


async def test_only_a_retry_takes_a_run_by_force_and_soon(journal: PostgresJournal) -> None:
    host = FrozenOwner(journal)
    driver = JobDriver(host, ["q"], slots=4, grace=0.1)
    await journal.jobs.assign(["a"], "one", queue="q")
    job = Job("one", "main", "q", ("a",))
    await driver.do(job, attempt=1)
    assert host.stolen == []
    async with asyncio.timeout(10):  # less than the usual heartbeat, which was missed already
        await driver.do(job, attempt=2)
    assert host.stolen == ["a"]
