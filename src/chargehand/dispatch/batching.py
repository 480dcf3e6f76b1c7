"""Answers the questions of one moment together."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from chargehand.engine.policy import Seconds

_Item = TypeVar("_Item", bound=Hashable)
_Answer = TypeVar("_Answer")


class Batcher(Generic[_Item, _Answer]):
    """The first caller of a moment asks for all who come until then."""

    def __init__(
        self, answer: Callable[[Sequence[_Item]], Awaitable[Mapping[_Item, _Answer]]], *, moment: Seconds = 0.003
    ) -> None:
        self._answer = answer
        self._moment = moment
        self._batch: dict[_Item, asyncio.Future[_Answer | None]] = {}

    async def ask(self, item: _Item) -> _Answer:
        """The answer for an item."""
        while True:
            waiting = self._batch.get(item)
            if waiting is None:
                is_first = not self._batch
                waiting = self._batch[item] = asyncio.get_running_loop().create_future()
                if is_first:
                    await self._lead()
            answer = await asyncio.shield(waiting)
            if answer is not None:
                return answer

    async def _lead(self) -> None:
        """Ask for all. None tells the others that their leader was cancelled: one of them takes its place."""
        try:
            await asyncio.sleep(self._moment)
        finally:
            batch = self._batch
            self._batch = {}
            answers: Mapping[_Item, _Answer] = {}
            failure: Exception | None = None
            try:
                if batch:
                    answers = await self._answer(list(batch))
            except Exception as error:  # noqa: BLE001 - raised by everybody who asked
                failure = error
            finally:
                for item, future in batch.items():
                    if failure is None:
                        future.set_result(answers.get(item))
                    else:
                        future.set_exception(failure)
                        future.exception()  # its caller may have gone
