"""A process that reaches the engine and not the store leaves its jobs to others."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from chargehand.dispatch.dispatcher import JobDispatcher
from chargehand.dispatch.engine import Job, QueueDriver
from chargehand.dispatch.job_driver import JobDriver, JobStopped
from chargehand.engine.events import Entry
from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from tests.cluster.harness import PATIENCE
from tests.cluster.proxy import TcpProxy, tcp_proxy
from tests.postgres import PASSWORD, USER, PostgresServer
from tests.requests import request

JOB = Job("job", "main", "desk", ("one",))


class NoEngine:
    """Every job is started already."""

    deployment = "tests"

    async def start(self, job: Job) -> None:
        pass

    def serving(self, driver: QueueDriver) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError


class Host:
    """One tenant, whose runs never end by themselves."""

    busy = 0
    waiting = 0

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.dispatcher = JobDispatcher(NoEngine(), journal, "main")
        self.driving = asyncio.Event()

    async def of(self, tenant: str) -> "Host":
        assert tenant == "main"
        return self

    async def drive(self, run: str, *, steal: bool) -> bool:
        assert (run, steal) == ("one", False)
        self.driving.set()
        await asyncio.Event().wait()
        return True

    async def drain(self, patience: float) -> None:
        pass


@pytest.fixture
def network(postgres: PostgresServer) -> Iterator[TcpProxy]:
    with tcp_proxy(postgres.folder / ".s.PGSQL.5432") as proxy:
        yield proxy


async def wait_until_free(driver: QueueDriver) -> None:
    until = time.monotonic() + PATIENCE
    while not driver.free:
        assert time.monotonic() < until, "the store answers, and no job is taken"
        await asyncio.sleep(0.02)


async def test_jobs_are_given_back_while_the_store_is_silent_and_taken_when_it_answers(
    network: TcpProxy, postgres_store: str
) -> None:
    database = postgres_store.partition("@/")[2].partition("?")[0]
    url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{network.port}/{database}"
    async with opened_journal(url) as journal:
        await journal.create("one", [Entry(1, time.time(), request())])
        assert journal.jobs is not None
        await journal.jobs.assign(["one"], JOB.id, queue=JOB.queue)
        host = Host(journal)
        driver = JobDriver(host, ["desk"], slots=4, silence=0.25)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as jobs:
            doing = jobs.create_task(_stopped(driver))
            await host.driving.wait()
            network.lose()
            assert await doing == "this process does not reach the store"
        assert driver.free == 0, "it asks the engine for nothing"
        assert await _stopped(driver) == "this process does not reach the store"
        network.heal()
        await wait_until_free(driver)


async def _stopped(driver: QueueDriver) -> str:
    """Why it did not do the job."""
    with pytest.raises(JobStopped) as stopped:
        await driver.do(JOB, attempt=1)
    return str(stopped.value)
