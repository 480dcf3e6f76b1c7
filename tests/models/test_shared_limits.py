"""Limits that hold for all processes together, on a real PostgreSQL."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AsyncExitStack

import pytest

from chargehand.errors import StoreError
from chargehand.models.limits import Pace, Ticket
from chargehand.models.postgres_limits import PostgresLimits
from chargehand.models.resolve import Finder
from chargehand.models.shared_limits import LimitDemand, LimitGrant, SharedLimiter
from chargehand.postgres.database import open_database
from chargehand.store_url import postgres_url
from tests.models.limited_process import begin, peak, process, spans
from tests.models.loopback import Asked, Move, loopback, whole
from tests.models.test_openai import HELLO, said
from tests.postgres import PostgresServer

KEY = "the key"


_OPEN: list[PostgresLimits] = []


@pytest.fixture(autouse=True)
def closed_at_the_end() -> Generator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def limits(url: str) -> PostgresLimits:
    """What another process would have: a session of its own."""
    _OPEN.append(PostgresLimits(postgres_url(url)))
    return _OPEN[-1]


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110 - nobody rings
            await asyncio.sleep(0.005)


def test_three_processes_never_make_more_calls_at_once_than_allowed_and_no_fewer(postgres_store: str) -> None:
    asyncio.run(open_schema(postgres_store))
    with (
        process(postgres_store, concurrency=4, calls=25, seconds=0.02) as first,
        process(postgres_store, concurrency=4, calls=25, seconds=0.02) as second,
        process(postgres_store, concurrency=4, calls=25, seconds=0.02) as third,
    ):
        begin(first, second, third)
        calls = [spans(one) for one in (first, second, third)]
    assert [len(one) for one in calls] == [25, 25, 25]
    assert peak([call for one in calls for call in one]) == 4


async def slots_taken(url: str, count: int) -> None:
    """Wait until the shares of all processes add up to so many."""
    database = await open_database(postgres_url(url))
    async with asyncio.timeout(30):
        while (await database.fetch("SELECT coalesce(sum(slots), 0) FROM provider_shares"))[0][0] != count:  # noqa: ASYNC110 - nobody rings
            await asyncio.sleep(0.01)


async def open_schema(url: str) -> None:
    await open_database(postgres_url(url))


def test_the_share_of_a_killed_process_is_free_again(postgres_store: str) -> None:
    asyncio.run(open_schema(postgres_store))
    with process(postgres_store, concurrency=4, calls=4, seconds=600) as victim:
        begin(victim)

        async def play() -> None:
            async def take_all() -> list[Ticket]:
                limiter = SharedLimiter(KEY, Pace(concurrency=4), limits(postgres_store))
                return [await limiter.enter() for _ in range(4)]

            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await take_all()
            victim.kill()
            async with asyncio.timeout(30):
                assert len(await take_all()) == 4

        asyncio.run(slots_taken(postgres_store, 4))
        asyncio.run(play())


class LateStore:
    """Answers a demand when it is told to."""

    def __init__(self) -> None:
        self.demands: list[LimitDemand] = []
        self.answer: Callable[[LimitGrant], None] | None = None

    def join(self, credential: str, pace: Pace, changed: Callable[[], None]) -> "LateStore":
        return self

    def exchange(self, demand: LimitDemand, then: Callable[[LimitGrant | StoreError], None]) -> None:
        self.demands.append(demand)
        self.answer = then

    def leave(self) -> None:
        self.demands.append(LimitDemand(slots=0))


async def test_a_share_that_is_granted_after_its_call_was_cancelled_is_given_back() -> None:
    store = LateStore()
    limiter = SharedLimiter(KEY, Pace(concurrency=4), store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await limiter.enter()
    assert store.answer is not None
    store.answer(LimitGrant(slots=3))
    await until(lambda: len(store.demands) == 2)
    assert (store.demands[1].slots, store.demands[1].waiting) == (0, 0)
    limiter.close()


async def test_shares_that_are_asked_for_at_the_same_time_do_not_add_up_to_more(postgres_store: str) -> None:
    """Counting in the statement that takes the lock would count what was there before the wait for it."""
    pace = Pace(concurrency=50)

    async def ask(all_of_it: PostgresLimits) -> int:
        answers: asyncio.Queue[LimitGrant | StoreError] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def answered(grant: LimitGrant | StoreError) -> None:
            loop.call_soon_threadsafe(answers.put_nowait, grant)

        member = all_of_it.join(KEY, pace, lambda: None)
        slots = 0
        for wanted in (7, 9, 30):
            member.exchange(LimitDemand(slots=slots, active=slots, waiting=wanted), answered)
            grant = await answers.get()
            assert isinstance(grant, LimitGrant), grant
            slots = grant.slots
        return slots

    await open_schema(postgres_store)
    async with asyncio.TaskGroup() as jobs:
        asked = [jobs.create_task(ask(limits(postgres_store))) for _ in range(10)]
    assert sum(one.result() for one in asked) == 50


async def test_no_minute_around_the_edge_of_a_second_has_more_requests_than_allowed(postgres_store: str) -> None:
    """Sixty cells of a second are less than a minute: twice as many would pass."""
    database = await open_database(postgres_url(postgres_store))

    async def take(at: float, requests: int) -> int:
        query = "SELECT requests FROM take_usage('k', $1, 600, 0, $2, 0, 0, 0)"
        return int((await database.fetch(query, at, requests))[0][0])

    assert await take(100.9, 600) == 600
    assert await take(160.05, 600) == 0
    assert await take(160.95, 600) == 0
    assert await take(161.0, 700) == 600


async def test_tokens_of_a_minute_are_those_of_all_and_guesses_are_corrected(postgres_store: str) -> None:
    pace = Pace(tokens_per_minute=1000)
    one = SharedLimiter(KEY, pace, limits(postgres_store))
    other = SharedLimiter(KEY, pace, limits(postgres_store))
    one.leave(await one.enter(900), tokens=300)
    one.leave(await one.enter(10), tokens=10)  # tells what the first really took
    other.leave(await other.enter(600), tokens=600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await other.enter(500)


async def test_a_refusal_in_one_process_slows_all_down_once(postgres_store: str) -> None:
    one = SharedLimiter(KEY, Pace(concurrency=8, recover=0.2), limits(postgres_store))
    other = SharedLimiter(KEY, Pace(concurrency=8, recover=0.2), limits(postgres_store))
    tickets = [await one.enter() for _ in range(8)]
    for ticket in tickets:
        one.slow_down(ticket)
        one.leave(ticket)
    begun: list[Ticket] = []

    async def call() -> None:
        begun.append(await other.enter())

    async with asyncio.TaskGroup() as jobs:
        for _ in range(8):
            jobs.create_task(call())
        await until(lambda: len(begun) == 4)
        await asyncio.sleep(0.2)
        assert len(begun) == 4
        assert not other.idle
        for ticket in begun[:]:
            other.leave(ticket)


async def test_a_pause_that_a_provider_asks_one_process_for_holds_for_all(postgres_store: str) -> None:
    one = SharedLimiter(KEY, Pace(), limits(postgres_store))
    other = SharedLimiter(KEY, Pace(), limits(postgres_store))
    other.leave(await other.enter())
    begun = time.monotonic()
    ticket = await one.enter()
    one.hold(0.3)
    one.leave(ticket)
    await until(lambda: other.pause_left() > 0)
    other.leave(await other.enter())
    assert time.monotonic() - begun >= 0.25


async def test_a_process_that_comes_later_gets_its_part_as_calls_end(postgres_store: str) -> None:
    greedy = SharedLimiter(KEY, Pace(concurrency=4), limits(postgres_store))
    late = SharedLimiter(KEY, Pace(concurrency=4), limits(postgres_store))
    over = asyncio.Event()

    async def calls(limiter: SharedLimiter) -> None:
        while not over.is_set():
            ticket = await limiter.enter()
            await asyncio.sleep(0.01)
            limiter.leave(ticket)

    async with asyncio.TaskGroup() as jobs:
        for _ in range(8):
            jobs.create_task(calls(greedy))
        await until(lambda: greedy.active == 4)
        for _ in range(8):
            jobs.create_task(calls(late))
        await until(lambda: late.active == 2 and greedy.active <= 2)
        over.set()


async def test_more_processes_than_calls_at_once_take_turns(postgres_store: str) -> None:
    limiters = [SharedLimiter(KEY, Pace(concurrency=2), limits(postgres_store)) for _ in range(5)]
    served = [0] * 5

    async def calls(number: int) -> None:
        for _ in range(6):
            ticket = await limiters[number].enter()
            assert sum(limiter.active for limiter in limiters) <= 2
            await asyncio.sleep(0.002)
            limiters[number].leave(ticket)
            served[number] += 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as jobs:
        for number in range(5):
            jobs.create_task(calls(number))
    assert served == [6] * 5


async def test_what_is_not_used_is_given_back(postgres_store: str) -> None:
    one = SharedLimiter(KEY, Pace(concurrency=4), limits(postgres_store))
    one.leave(await one.enter())
    await slots_taken(postgres_store, 0)


async def test_no_call_begins_while_the_store_is_gone_and_they_go_on_afterwards(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        limiter = SharedLimiter(KEY, Pace(concurrency=4), limits(url))
        ticket = await limiter.enter()
        postgres.disconnect()
        async with asyncio.timeout(30):
            tickets = [await limiter.enter() for _ in range(3)]
        assert limiter.active == 4
        for one in (ticket, *tickets):
            limiter.leave(one)
        limiter.close()


async def test_models_of_two_finders_with_one_database_share_a_limit(postgres_store: str) -> None:
    """Two finders stand for two processes. The provider is called over a real socket."""
    under_way: list[int] = []
    most = 0

    def play(asked: Asked) -> Iterator[Move]:
        nonlocal most
        under_way.append(1)
        most = max(most, len(under_way))
        yield 0.02
        under_way.pop()
        yield from whole(said())

    async with loopback(play) as server, AsyncExitStack() as stack:
        finders = [Finder(lambda _: None, store=postgres_store) for _ in range(2)]
        for finder in finders:
            stack.push_async_callback(finder.close)
        handle = f"openai+{server.url}#small"
        models = [finder.find(handle, pace=Pace(concurrency=3)) for finder in finders]
        async with asyncio.TaskGroup() as jobs:
            for _ in range(12):
                for model in models:
                    jobs.create_task(model.reply(HELLO))
    assert most == 3
    await slots_taken(postgres_store, 0)  # closed finders keep nothing for themselves
