"""Journals of `people` that end with a process: in memory, and in a real store on a loop whose time is a number."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from chargehand.engine import events as ev
from chargehand.journal.protocol import Journal, JournalProxy, Lease, RunRow
from tests.runtime.streams import rows, written
from tests.sim.loop import Deadlock, call_at_once
from tests.sim.nested import Crash, Mortal

_Outcome = TypeVar("_Outcome")
_PATIENCE = 30.0
"""Seconds that a store may take for one call."""


class StoreLoop(asyncio.SelectorEventLoop):
    """A loop on which time is a number. While a store is at work, time stands still and the loop really waits."""

    def __init__(self, start: float) -> None:
        self.now = start
        self.outside = 0
        """Calls of the store that are under way."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a function at once, as the loop without a store does."""
        return call_at_once(self, func, *args)

    async def count(self, call: Awaitable[_Outcome]) -> _Outcome:
        """Wait for a call of the store."""
        self.outside += 1
        try:
            return await call
        finally:
            self.outside -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: StoreLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self._loop.outside:
            ready = super().select(_PATIENCE)
            if not ready:
                raise Deadlock("nothing is ready, nothing is scheduled and the store says nothing")
            return ready
        self._loop.now += timeout
        return []


class MemoryPlace:
    """Keeps the runs of a seed in memory: each process has a copy of what the one before it had written."""

    def __init__(self) -> None:
        self.journal = Mortal()

    async def next_process(self) -> None:
        """Give the next process what was written."""
        copy = await written(await rows(self.journal))
        self.journal = Mortal()
        self.journal._streams = copy._streams


class MortalStore(JournalProxy):
    """A journal in a store whose process dies at one of its writes, before or after it took effect."""

    def __init__(self, journal: Journal, loop: StoreLoop) -> None:
        super().__init__(journal)
        self._loop = loop
        self.last = 0
        self.kept = True
        self.instant = False
        self._is_dead = False

    @property
    def notices(self) -> None:
        return None

    @property
    def commands(self) -> None:
        return None

    async def create(self, run: str, entries: Sequence[ev.Entry]) -> None:
        await self._loop.count(super().create(run, entries))

    async def claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        return await self._loop.count(super().claim(run, new=new, steal=steal))

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        if self._is_dead:
            raise Crash
        self.last -= 1
        if self.last == 0:
            self._is_dead = True
            if self.kept:
                await self._loop.count(super().append(lease, entries))
            raise Crash
        await self._loop.count(super().append(lease, entries))

    async def release(self, lease: Lease) -> None:
        await self._loop.count(super().release(lease))

    async def read(self, run: str, *, after: int = 0) -> list[ev.Entry]:
        return await self._loop.count(super().read(run, after=after))

    async def row(self, run: str) -> RunRow:
        return await self._loop.count(super().row(run))

    async def runs(self) -> list[RunRow]:
        return await self._loop.count(super().runs())

    async def inside(self, run: str) -> list[str]:
        return await self._loop.count(super().inside(run))


class StorePlace:
    """Keeps the runs of a seed in a store: the next process has the same one open."""

    def __init__(self, journal: Journal, loop: StoreLoop) -> None:
        self._store = journal
        self._loop = loop
        self.journal = MortalStore(journal, loop)

    async def next_process(self) -> None:
        """Give the next process what was written."""
        self.journal = MortalStore(self._store, self._loop)
