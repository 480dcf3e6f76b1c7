"""Open a store in a thread, so that nothing stays open when whoever asked for it is gone by then."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Opened = TypeVar("Opened")


async def in_thread(take: Callable[[], Opened], close: Callable[[Opened], object]) -> Opened:
    """What `take` opens. If the wait for it is cancelled it is closed again, as soon as it is open."""
    made = Future[Opened]()

    def run() -> None:
        try:
            made.set_result(take())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            made.set_exception(error)

    try:
        await asyncio.to_thread(run)
    except asyncio.CancelledError:  # the thread opens it all the same, and nobody else could close it
        made.add_done_callback(lambda one: None if one.exception() else close(one.result()))
        raise
    return made.result()
