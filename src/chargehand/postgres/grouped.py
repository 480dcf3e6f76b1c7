"""Calls of one kind in one statement: those that come while a statement is under way are answered by the next one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from chargehand.concurrency import answer_futures
from chargehand.errors import StoreUnavailable
from chargehand.postgres.client_thread import client_thread

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_MOST = 200
"""Calls of one statement."""


class GroupedCalls(Generic[_Item, _Answer]):
    """`execute` runs in the thread of all connections and answers every item: with an outcome, or with an error of it.

    At most `lanes` statements are under way at once.
    """

    def __init__(
        self, execute: Callable[[Sequence[_Item]], Awaitable[Sequence[_Answer | Exception]]], *, lanes: int = 1
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._lock = threading.Lock()
        self._queue: list[tuple[_Item, asyncio.Future[_Answer]]] = []
        self._serving = 0

    def submit(self, item: _Item) -> "asyncio.Future[_Answer]":
        """The answer for an item. Cancelling the wait does not stop the work. From any event loop."""
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._queue.append((item, future))
            begins = self._serving < self._lanes
            if begins:
                self._serving += 1
        if begins:
            client_thread().spawn(self._serve())
        return future

    async def _serve(self) -> None:
        while True:
            with self._lock:
                waiting = [call for call in self._queue if not call[1].cancelled()]
                batch = waiting[:_MOST]
                self._queue = waiting[_MOST:]
                if not batch:
                    self._serving -= 1
                    return
            answers = await self._answers([item for item, _ in batch])
            answer_futures(zip((future for _, future in batch), answers, strict=True))

    async def _answers(self, items: Sequence[_Item]) -> Sequence[_Answer | Exception]:
        """One that the server refuses does not fail the others."""
        try:
            return await self._execute(items)
        except Exception as error:  # noqa: BLE001 - raised by everybody who asked
            if len(items) == 1 or isinstance(error, StoreUnavailable):
                return [error] * len(items)
        return [answer for item in items for answer in await self._answers([item])]
