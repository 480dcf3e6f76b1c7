"""A real team on virtual time: its runs, one after the other or at once, and what they wrote."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from chargehand.agents.result import Result, read_result
from chargehand.engine import events as ev
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.runner import Outcome, Runner
from chargehand.team import Team
from tests.sim.loop import VirtualLoop

NOW = 1_000_000.0


class Playhouse:
    """`entries` is what was written, run by run; each run has a crew of its own, as `Supervisor.run` does it."""

    def __init__(self, most_steps: int = 1_000_000) -> None:
        self.loop = VirtualLoop(NOW, most_steps)
        self.journal = MemoryJournal()
        self.entries: dict[str, list[ev.Entry]] = {}

    @property
    def now(self) -> float:
        return self.loop.time() - NOW

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def told() -> None:
            await story()

        self.loop.run_until_complete(told())

    def wait(self, seconds: float) -> None:
        self.play(lambda: asyncio.sleep(seconds))

    def run(self, team: Team, goal: str = "Do what there is to do.", run: str = "") -> list[ev.Entry]:
        """One run to its end."""
        name = run or f"run{len(self.entries)}"

        async def story() -> None:
            await self.drive(team, lambda driver: driver.start(name, team.request(goal, self.loop.time(), seed=7)))

        self.play(story)
        return self.entries[name]

    def resume(self, team: Team, run: str) -> list[ev.Entry]:
        async def story() -> None:
            await self.drive(team, lambda driver: driver.resume(run))

        self.play(story)
        return self.entries[run]

    async def drive(self, team: Team, go: Callable[[Runner], Awaitable[Outcome]]) -> None:
        async with team.executor() as executor:
            await go(Runner(self.journal, executor, wall=self.loop.time, ticks=self.loop.time, listener=self._heard))

    def _heard(self, run: str, new: Sequence[ev.Entry]) -> None:
        self.entries.setdefault(run, []).extend(new)


def run_on_virtual_time(team: Team, goal: str) -> Result:
    """Return the result of a run on virtual time: how busy the machine is makes no difference to who is late."""
    house = Playhouse()
    results: list[Result] = []

    async def story() -> None:
        async with team.executor() as executor:
            driver = Runner(house.journal, executor, wall=house.loop.time, ticks=house.loop.time)
            outcome = await driver.start("r", team.request(goal, house.loop.time(), seed=7))
        results.append(read_result(outcome, await house.journal.read("r"), team.notice))

    house.play(story)
    return results[0]


def notes(entries: Sequence[ev.Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, ev.Noted)]
