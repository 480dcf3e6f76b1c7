"""Who is next: those who speak to one agent are heard one after the other, in the order in which they came."""

import asyncio
from collections import deque

from chargehand.server.floor import Floor
from chargehand.server.problem import Problem


class Line:
    """A line before each agent. One who is at its head stays there until it leaves.

    Who stands behind somebody else has no place on the `floor`, where other agents may need it; so there may be `most`
    of them, and half as many before one agent.
    """

    def __init__(self, floor: Floor, most: int) -> None:
        self._floor = floor
        self._most = most
        self._lines: dict[str, deque[str]] = {}
        self._bells: dict[str, asyncio.Event] = {}

    def check(self, agent: str) -> None:
        """429 where the line is too long for one more."""
        length = len(self._lines.get(agent, ()))
        behind = sum(len(line) - 1 for line in self._lines.values()) if length else 0
        if length and (length > self._most // 2 or behind >= self._most):
            said = f"{length} messages to {agent} are under way already; nothing was begun: try again soon"
            raise Problem(429, "busy", said, after=1.0)

    def join(self, agent: str, run: str) -> None:
        self._lines.setdefault(agent, deque()).append(run)

    async def turn(self, agent: str, run: str) -> None:
        """Wait to be at the head. Who never joined does not wait: messages between agents must not stand in line."""
        if self._waits(agent, run):
            await self._floor.aside(run, self._head(agent, run))

    def leave(self, agent: str, run: str) -> None:
        self._bells.pop(run, None)
        line = self._lines.get(agent)
        if line is None or run not in line:
            return
        line.remove(run)
        if not line:
            del self._lines[agent]
        elif (bell := self._bells.get(line[0])) is not None:
            bell.set()

    def _waits(self, agent: str, run: str) -> bool:
        line = self._lines.get(agent)
        return line is not None and line[0] != run and run in line

    async def _head(self, agent: str, run: str) -> None:
        while self._waits(agent, run):
            bell = self._bells.setdefault(run, asyncio.Event())
            await bell.wait()
            bell.clear()
