"""The limiter on virtual time: who is let in, when, and that nobody is forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

import pytest

from chargehand.models.limits import Limiter, Pace, Retries
from tests.sim.loop import VirtualLoop

T = TypeVar("T")


def play(story: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    loop = VirtualLoop(1000.0)

    async def told() -> T:
        return await story(loop)

    return loop.run_until_complete(told())


async def calls(limiter: Limiter, loop: VirtualLoop, count: int, seconds: float, tokens: int = 0) -> list[float]:
    """When each of so many calls, all asked for at once, was let in."""
    begun: list[float] = []

    async def call() -> None:
        ticket = await limiter.enter(tokens)
        begun.append(loop.time() - 1000.0)
        await asyncio.sleep(seconds)
        limiter.leave(ticket, tokens)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(call())
    return begun


def test_no_more_than_so_many_go_at_once() -> None:
    async def story(loop: VirtualLoop) -> list[float]:
        return await calls(Limiter(Pace(concurrency=2), clock=loop.time), loop, 6, 1.0)

    assert play(story) == [0, 0, 1, 1, 2, 2]


def test_no_minute_holds_more_calls_than_allowed() -> None:
    async def story(loop: VirtualLoop) -> list[float]:
        return await calls(Limiter(Pace(requests_per_minute=3), clock=loop.time), loop, 8, 0.5)

    begun = play(story)
    assert begun == pytest.approx([0, 0, 0, 60, 60, 60, 120, 120], abs=0.01)


def test_no_minute_holds_more_tokens_than_allowed() -> None:
    async def story(loop: VirtualLoop) -> list[float]:
        return await calls(Limiter(Pace(tokens_per_minute=1000), clock=loop.time), loop, 5, 0.5, tokens=400)

    assert play(story) == pytest.approx([0, 0, 60, 60, 120], abs=0.01)


def test_a_call_larger_than_the_limit_goes_alone_rather_than_never() -> None:
    async def story(loop: VirtualLoop) -> list[float]:
        return await calls(Limiter(Pace(tokens_per_minute=100), clock=loop.time), loop, 2, 0.5, tokens=400)

    assert play(story) == pytest.approx([0, 60], abs=0.01)


def test_what_a_call_really_took_replaces_the_guess() -> None:
    async def story(loop: VirtualLoop) -> float:
        limiter = Limiter(Pace(tokens_per_minute=1000), clock=loop.time)
        limiter.leave(await limiter.enter(900), tokens=100)
        limiter.leave(await limiter.enter(800), tokens=None)
        assert loop.time() == 1000.0
        limiter.leave(await limiter.enter(200), tokens=0)
        return loop.time() - 1000.0

    assert play(story) == pytest.approx(60, abs=0.01)


def test_nobody_is_let_in_while_the_provider_wants_a_pause() -> None:
    async def story(loop: VirtualLoop) -> list[float]:
        limiter = Limiter(clock=loop.time)
        limiter.hold(7.0)
        limiter.hold(3.0)
        assert limiter.pause_left() == 7.0
        return await calls(limiter, loop, 2, 0.0)

    assert play(story) == pytest.approx([7, 7], abs=0.01)


def test_a_pause_without_an_end_is_one_of_a_day() -> None:
    async def story(loop: VirtualLoop) -> float:
        limiter = Limiter(clock=loop.time)
        limiter.hold(inf)
        return limiter.pause_left()

    assert play(story) == 86_400.0


def test_a_burst_of_refusals_halves_once_and_calm_brings_it_back_slowly() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        limiter = Limiter(Pace(concurrency=16, recover=5.0), clock=loop.time)
        tickets = [await limiter.enter() for _ in range(16)]
        await asyncio.sleep(1.0)
        for ticket in tickets:
            limiter.slow_down(ticket)
            limiter.leave(ticket)
        seen = [limiter.allowed]
        for _ in range(12):
            await asyncio.sleep(2.5)
            limiter.speed_up()
            limiter.speed_up()
            seen.append(limiter.allowed)
        return seen

    assert play(story) == [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14]


def test_a_refusal_after_a_refusal_halves_again_but_one_always_goes() -> None:
    async def story(loop: VirtualLoop) -> list[int]:
        limiter = Limiter(Pace(concurrency=4), clock=loop.time)
        seen: list[int] = []
        for _ in range(4):
            tickets = [await limiter.enter() for _ in range(limiter.allowed)]
            for ticket in tickets:
                limiter.slow_down(ticket)
                limiter.leave(ticket)
            await asyncio.sleep(0.1)
            seen.append(limiter.allowed)
        return seen

    assert play(story) == [2, 1, 1, 1]


def test_whoever_stops_waiting_is_forgotten_and_gives_way() -> None:
    async def story(loop: VirtualLoop) -> tuple[list[str], int]:
        limiter = Limiter(Pace(concurrency=1), clock=loop.time)
        first = await limiter.enter()
        done: list[str] = []

        async def wait(name: str, patience: float) -> None:
            try:
                async with asyncio.timeout(patience):
                    limiter.leave(await limiter.enter())
                    done.append(name)
            except TimeoutError:
                done.append(f"{name} gave up")

        async with asyncio.TaskGroup() as group:
            group.create_task(wait("impatient", 1.0))
            group.create_task(wait("patient", 10.0))
            await asyncio.sleep(2.0)
            limiter.leave(first)
        return done, limiter.active

    assert play(story) == (["impatient gave up", "patient"], 0)


def test_whoever_is_cancelled_in_the_moment_of_being_let_in_hands_its_place_on() -> None:
    async def story(loop: VirtualLoop) -> int:
        limiter = Limiter(Pace(concurrency=1), clock=loop.time)
        first = await limiter.enter()

        async def wait() -> None:
            limiter.leave(await limiter.enter())

        async with asyncio.TaskGroup() as group:
            doomed = group.create_task(wait())
            group.create_task(wait())
            await asyncio.sleep(1.0)
            limiter.leave(first)  # lets the doomed one in
            doomed.cancel()  # before it could notice
        return limiter.active

    assert play(story) == 0


def test_whoever_is_cancelled_in_the_moment_of_being_turned_away_is_cancelled() -> None:
    async def story(loop: VirtualLoop) -> tuple[bool, int]:
        limiter = Limiter(Pace(concurrency=1), clock=loop.time)
        first = await limiter.enter()
        async with asyncio.TaskGroup() as group:
            doomed = group.create_task(limiter.enter())
            await asyncio.sleep(1.0)
            limiter.turn_away(lambda: RuntimeError("no calls for an hour"))
            doomed.cancel()  # before it could hear why
        limiter.leave(first)
        return doomed.cancelled(), limiter.active

    assert play(story) == (True, 0)


def test_who_used_up_its_minute_is_not_idle() -> None:
    async def story(loop: VirtualLoop) -> list[bool]:
        limiter = Limiter(Pace(requests_per_minute=2), clock=loop.time)
        found: list[bool] = []
        for _ in range(2):
            limiter.leave(await limiter.enter())
            found.append(limiter.idle)
        await asyncio.sleep(61.0)
        return [*found, limiter.idle]

    assert play(story) == [True, False, True]


def test_a_smaller_call_goes_when_the_larger_one_before_it_gives_up() -> None:
    async def story(loop: VirtualLoop) -> float:
        limiter = Limiter(Pace(tokens_per_minute=1000), clock=loop.time)
        limiter.leave(await limiter.enter(600))

        async def large() -> None:
            async with asyncio.timeout(5.0):
                await limiter.enter(900)

        async def small() -> float:
            await asyncio.sleep(1.0)
            limiter.leave(await limiter.enter(300))
            return loop.time() - 1000.0

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(large())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(small())
        return task.result()

    assert play(story) == 6.0


def test_a_limiter_serves_one_loop_after_another() -> None:
    limiter = Limiter(Pace(concurrency=1))

    async def crowd() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(one())

    async def one() -> None:
        limiter.leave(await limiter.enter())

    asyncio.run(crowd())
    asyncio.run(crowd())
    assert limiter.active == 0


def test_retries_are_a_tenth_of_the_calls_of_the_last_minute() -> None:
    now = [0.0]
    retries = Retries(floor=0, clock=lambda: now[0])
    for _ in range(100):
        retries.called()
    assert [retries.take() for _ in range(12)] == [True] * 10 + [False] * 2
    now[0] = 59.0
    assert not retries.take()
    now[0] = 61.0
    assert not retries.take()  # nobody called in the last minute
    retries.called()
    assert retries.take()


def test_three_retries_at_once_are_allowed_where_a_tenth_would_be_less() -> None:
    retries = Retries(clock=lambda: 0.0)
    for _ in range(29):
        retries.called()
    assert [retries.take() for _ in range(4)] == [True, True, True, False]
    retries.give_back()
    assert retries.take()
