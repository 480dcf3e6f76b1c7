"""A coroutine that was tried first: most tools never wait for anything, and are done before a clock is wound up."""

from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any


class Begun:
    """A coroutine that has made its first step; awaiting it makes the rest. `waits_for` is what that step left."""

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
