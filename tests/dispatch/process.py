"""A process of a deployment, in the process of the test: a journal of its own, a runner, and a worker of the engine."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from chargehand.dispatch.dispatcher import JobDispatcher
from chargehand.dispatch.engine import parse_engine_url
from chargehand.dispatch.job_driver import JobDriver
from chargehand.dispatch.temporal import TemporalEngine
from chargehand.journal.postgres import PostgresJournal
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner
from chargehand.store_url import postgres_url

HEARTBEAT = 2.0
QUEUE = "errands"
OTHER_QUEUE = "gpu"
_Found = TypeVar("_Found")


class Process:
    """A `JobHost` and its only `DrivenTenant`."""

    def __init__(self, journal: PostgresJournal, engine: TemporalEngine, executor: Executor, slots: int) -> None:
        self.journal = journal
        self.engine = engine
        self.dispatcher = JobDispatcher(engine, journal, "main")
        self.runner = Runner(journal, executor, dispatcher=self.dispatcher)
        self.driver = JobDriver(self, [QUEUE, OTHER_QUEUE], slots=slots, grace=0.2)
        self.driven: list[str] = []
        self.under_way = 0
        self.most_under_way = 0

    async def of(self, tenant: str) -> "Process":
        assert tenant == "main"
        return self

    @property
    def busy(self) -> int:
        driven, waiting = self.runner.count_waiting()
        return driven - waiting

    @property
    def waiting(self) -> int:
        return self.runner.count_waiting()[1]

    async def drain(self, patience: float) -> None:
        await self.runner.drain(patience)

    async def drive(self, run: str, *, steal: bool) -> bool:
        if (await self.journal.row(run)).ended is not None:
            return True
        self.driven.append(run)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return (await self.runner.resume(run, steal=steal)).state.ended is not None
        finally:
            self.under_way -= 1


@asynccontextmanager
async def process(
    store: str,
    engine_url: str,
    executor: Executor,
    *,
    deployment: str,
    slots: int = 8,
    works: bool = True,
    heartbeat: float = HEARTBEAT,
) -> AsyncGenerator[Process]:
    """`works`: it does jobs, too."""
    url = parse_engine_url(engine_url)
    assert url is not None
    journal = await PostgresJournal.open(postgres_url(store))
    try:
        engine = await TemporalEngine.connect(url, deployment=deployment, heartbeat=heartbeat, first_retry=0.02)
        made = Process(journal, engine, executor, slots)
        if works:
            async with engine.serving(made.driver):
                yield made
                await made.driver.drain(0.0)
        else:
            yield made
    finally:
        await journal.close()


def new_deployment() -> str:
    return f"test-{secrets.token_hex(4)}"


async def eventually(look: Callable[[], Awaitable[_Found | None]], seconds: float = 60.0) -> _Found:
    """What `look` finds, asked again and again."""
    async with asyncio.timeout(seconds):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.01)
