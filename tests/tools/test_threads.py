"""Threads for blocking functions: bounded, replaceable, and never waited for."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable

import pytest

from chargehand.tools.calling import GivenUp, Threads, ToolFailed


async def test_no_more_run_at_a_time_than_allowed() -> None:
    threads = Threads(most=3)
    lock = threading.Lock()
    now = 0
    most = 0

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(threads.call(work, {}, 10))
    assert (most, now) == (3, 0)


async def test_time_spent_waiting_for_a_thread_does_not_count() -> None:
    threads = Threads(most=1)
    async with asyncio.TaskGroup() as group:
        done = [group.create_task(threads.call(lambda: time.sleep(0.1), {}, 0.25)) for _ in range(3)]
    assert [task.result() for task in done] == [None] * 3


def same(n: int) -> int:
    return n


async def test_a_thread_given_up_is_replaced_and_its_late_result_is_nobodys() -> None:
    threads = Threads(most=1)
    go = threading.Event()
    with pytest.raises(GivenUp):
        await threads.call(lambda: go.wait(20), {}, 0.02)
    assert await threads.call(lambda: "next", {}, 5) == "next"
    go.set()
    assert [await threads.call(same, {"n": n}, 5) for n in range(20)] == list(range(20))


async def test_those_who_wait_get_the_place_of_one_given_up() -> None:
    threads = Threads(most=1)
    go = threading.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_outcome(threads, lambda: go.wait(20), 0.05))
        rest = [group.create_task(_outcome(threads, lambda: 7, 5)) for _ in range(4)]
    assert (first.result(), [task.result() for task in rest]) == ("given up", [7] * 4)
    go.set()


async def _outcome(threads: Threads, function: Callable[[], object], seconds: float) -> object:
    try:
        return await threads.call(function, {}, seconds)
    except (GivenUp, ToolFailed):
        return "given up"


async def test_too_many_that_never_return_are_said_and_forgiven_once_they_do() -> None:
    threads = Threads(most=2, max_lost=2)
    go = threading.Event()
    for _ in range(2):
        with pytest.raises(GivenUp):
            await threads.call(lambda: go.wait(20), {}, 0.02)
    with pytest.raises(ToolFailed, match="2 calls of tools never returned"):
        await threads.call(lambda: 1, {}, 1)
    go.set()
    tries = [await _outcome(threads, lambda: 1, 1) for _ in range(100) if not await asyncio.sleep(0.005)]
    assert tries[-1] == 1


async def test_a_call_cancelled_while_it_waits_is_never_made() -> None:
    threads = Threads(most=1)
    go = threading.Event()
    made = list[int]()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(threads.call(lambda: go.wait(20), {}, 20))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await threads.call(lambda: made.append(1), {}, 20)
        go.set()
    assert (first.result(), await threads.call(lambda: 2, {}, 5), made) == (True, 2, [])


async def test_context_variables_are_seen_by_the_function() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")
    word.set("given")
    assert await Threads().call(word.get, {}, 5) == "given"


def test_a_loop_that_is_gone_breaks_nothing() -> None:
    threads = Threads(most=1)
    go = threading.Event()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await threads.call(lambda: go.wait(20), {}, 20)

    asyncio.run(leave())
    go.set()
    assert asyncio.run(threads.call(lambda: "well", {}, 5)) == "well"
