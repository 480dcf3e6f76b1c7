"""Run a driver on virtual time: waits cost nothing and the same thing happens every time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Outcome, Runner
from tests.sim.loop import VirtualLoop

NOW = 1_000_000.0
T = TypeVar("T")


class Stage:
    """A journal, a crew and a loop on which time is a number. `entries` is what was written, run by run."""

    def __init__(self, executor: Executor) -> None:
        self.loop = VirtualLoop(NOW)
        self.journal = MemoryJournal()
        self.entries: dict[str, list[ev.Entry]] = {}
        self.driver = Runner(
            self.journal,
            executor,
            wall=self.loop.time,
            ticks=self.loop.time,
            listener=self._heard,
        )

    def _heard(self, run: str, new: Sequence[ev.Entry]) -> None:
        self.entries.setdefault(run, []).extend(new)

    def play(self, story: Callable[[], Awaitable[T]]) -> T:
        async def told() -> T:
            return await story()

        return self.loop.run_until_complete(told())

    def start(
        self, request: ev.RunRequested, run: str = "run", *, seconds: float = 600.0, wait: bool = False
    ) -> Outcome:
        timed = structs.replace(request, deadline=self.loop.time() + seconds)
        return self.play(lambda: self.driver.start(run, timed, wait_for_input=wait))

    def resume(self, *also: ev.Event, run: str = "run", wait: bool = False) -> Outcome:
        return self.play(lambda: self.driver.resume(run, *also, wait_for_input=wait))

    def events(self, kind: type[T], run: str = "run") -> list[T]:
        return [entry.event for entry in self.entries[run] if isinstance(entry.event, kind)]

    def after(self, seconds: float, report: ev.Event, run: str = "run") -> Callable[[], Awaitable[None]]:
        """Tell a run something some time from now."""

        async def tell() -> None:
            await asyncio.sleep(seconds)
            await self.driver.ask(run, report)

        return tell
