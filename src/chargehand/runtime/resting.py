"""What a team with background workers offers to programs: do what is due now, or beside everything else."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from chargehand.runtime import background as work
from chargehand.runtime.front import without_a_loop
from chargehand.runtime.result import Result, result_of
from chargehand.stores.journal import Journal
from chargehand.tools.tasks import BareTaskGroup

logger = logging.getLogger(__name__)


class Bell:
    """Rung when a turn is over. Whoever attends to it may live on another event loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        for event, loop in tuple(self._waiting.items()):
            loop.call_soon_threadsafe(event.set)

    def attend(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting[event] = asyncio.get_running_loop()
        return event

    def leave(self, event: asyncio.Event) -> None:
        self._waiting.pop(event, None)


class Team(work.Team, Protocol):
    """What is needed of a team besides."""

    bell: Bell

    @property
    def notice(self) -> str: ...

    async def rest(self) -> tuple[Result, ...]: ...

    def _open(self) -> AbstractAsyncContextManager[Journal]: ...


class Resting:
    """Background workers: those with `every`, who look back on the turns of their team."""

    async def rest(self: Team) -> tuple[Result, ...]:
        """Have everybody look back whose turns have come, and wait until they are done.

        Most often nothing is due, and nothing comes back. What was left by an earlier process is gone on with.
        """
        if not self.aside:
            return ()
        async with self._open() as journal:  # pyright: ignore[reportPrivateUsage] - a part of the same class
            found = await work.rest(self, journal)
            return tuple([result_of(one.outcome, await journal.read(one.outcome.run), self.notice) for one in found])

    def rest_sync(self: Team) -> tuple[Result, ...]:
        """The same for code without an event loop."""
        return without_a_loop("rest", self.rest)

    @asynccontextmanager
    async def background(self: Team) -> AsyncGenerator[None]:
        """While inside, what becomes due is done beside everything else, and before it is left what is due then.

        Whoever leaves because something went wrong, or was cancelled, leaves it for the next time.
        """
        bell = self.bell.attend()
        over = asyncio.Event()
        bell.set()  # there may be something left from last time
        try:
            async with BareTaskGroup() as jobs:
                jobs.create_task(_attend(self, bell, over))
                yield
                over.set()
                bell.set()
        finally:
            self.bell.leave(bell)


async def _attend(team: Team, bell: asyncio.Event, over: asyncio.Event) -> None:
    while True:
        await bell.wait()
        bell.clear()
        last = over.is_set()
        try:
            await team.rest()
        except Exception as error:  # noqa: BLE001 - whatever it is: it is due still, and no turn fails because of it
            logger.warning("background workers of %s: %s: %s", team.name, type(error).__name__, error)
        if last:
            return
