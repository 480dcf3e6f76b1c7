"""Something that many runs of a team use at once: opened by the first user, closed by the last.

How a thing is opened and kept is the store's business.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

from chargehand.journal.protocol import Journal
from chargehand.journal.store import opened_journal
from chargehand.store_url import StoreUrl

Thing = TypeVar("Thing")


class _Use(Generic[Thing]):
    """The users on one event loop. The gate keeps out those that come while the thing is being opened or closed."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Lock()
        self.things: list[Thing] = []
        self.stack = AsyncExitStack()


class Shared(Generic[Thing]):
    """One thing a loop, for as many users at once as there are. `_whole` opens it."""

    def __init__(self) -> None:
        self._uses: dict[asyncio.AbstractEventLoop, _Use[Thing]] = {}

    def _whole(self) -> AbstractAsyncContextManager[Thing]:
        raise NotImplementedError

    def opened(self) -> AbstractAsyncContextManager[Thing]:
        """The thing, open while it is used."""
        return _OpenEntry(self)

    async def enter(self) -> Thing:
        """One more uses the thing. Whatever comes of it, `leave` follows."""
        use = self._uses.setdefault(asyncio.get_running_loop(), _Use())
        use.count += 1
        async with use.gate:
            if not use.things:
                use.things.append(await use.stack.enter_async_context(self._whole()))
            return use.things[0]

    async def leave(self) -> None:
        """It is used by one less, and closed after the last."""
        loop = asyncio.get_running_loop()
        use = self._uses[loop]
        use.count -= 1
        async with use.gate:
            if use.count:
                return
            use.things.clear()
            try:
                await use.stack.aclose()
            finally:
                if not use.count:
                    self._uses.pop(loop, None)


class _OpenEntry(AbstractAsyncContextManager[Thing]):
    """One use of a shared thing."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared[Thing]) -> None:
        self._shared = shared

    async def __aenter__(self) -> Thing:
        try:
            return await self._shared.enter()
        except BaseException:
            await self._shared.leave()
            raise

    async def __aexit__(self, *_error: object) -> None:
        await self._shared.leave()


class SharedExecutor(Shared[Thing]):
    """The executor of a team with its models, for all of its runs that are under way at the same time."""

    def __init__(self, open_executor: Callable[[], AbstractAsyncContextManager[Thing]]) -> None:
        super().__init__()
        self._open_executor = open_executor

    def _whole(self) -> AbstractAsyncContextManager[Thing]:
        return self._open_executor()


class SharedJournal(Shared[Journal]):
    """A journal by its URL, which other processes, threads and teams may have open as well."""

    def __init__(self, url: StoreUrl) -> None:
        super().__init__()
        self.url = url

    def _whole(self) -> AbstractAsyncContextManager[Journal]:
        return opened_journal(self.url)
