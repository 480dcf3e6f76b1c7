"""What asyncio lacks: a group of tasks that raises errors bare, and a coroutine that was tried before it is awaited.

Also answers to futures of other threads' loops, and a guard around work whose errors are only logged.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, cast

logger = logging.getLogger(__name__)


class BareTaskGroup(asyncio.TaskGroup):
    """A TaskGroup that raises the first error itself, not a group with it inside."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise first_error(group) from group


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group, or in the group that is the first in it."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return first_error(cast("BaseExceptionGroup[BaseException]", first))
    return first


@contextmanager
def log_errors(message: str, *values: object) -> Generator[None]:
    """Log what is raised inside and go on: a listener or background work must not end what it belongs to."""
    try:
        yield
    except Exception:
        logger.exception(message, *values)


class Begun:
    """A coroutine that has made its first step; awaiting it makes the rest. `waits_for` is what that step left.

    Most tools never wait for anything, and are done before a timeout is set up.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation too is the coroutine's to hear
                resume = partial(self._coroutine.throw, error)
            else:
                resume = partial(self._coroutine.send, sent)
            try:
                waits_for = resume()
            except StopIteration as done:
                return done.value


def answer_futures(answers: Iterable[tuple["asyncio.Future[Any]", object]]) -> None:
    """Give futures their outcomes, errors as exceptions, from any thread: one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for future, outcome in answers:
        by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer, waiting)
        except RuntimeError:
            logger.debug("the event loop of %d writes is closed", len(waiting))


def _answer(answers: list[tuple["asyncio.Future[Any]", object]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
