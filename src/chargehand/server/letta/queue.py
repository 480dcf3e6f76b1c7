"""The queue of each lane: the runs of one conversation, or of one agent, are worked on one after the other.

With files one server keeps it in memory (`LocalQueue`); with PostgreSQL it is in the store, for any number of servers
(`postgres_queue`).
"""

import asyncio
from typing import Protocol

from chargehand.server.tenant_runs import TenantRuns
from chargehand.server.wire import Problem


class AgentQueue(Protocol):
    """The run at the head of a lane stays there until it leaves.

    A run behind another has no place among the tenant's runs, where other agents may need it. So there may be
    `max_waiting` of them, and half as many in one lane.
    """

    async def check(self, lane: str) -> None:
        """Raise 429 if the queue is too long for one more."""
        ...

    async def join(self, lane: str, run: str) -> None:
        """Take the last place, before the run begins or goes on; one that has a place keeps it."""
        ...

    async def wait_turn(self, lane: str, run: str) -> None:
        """Wait to be at the head. A run that never joined does not wait: messages between agents are not queued."""
        ...

    def leave(self, lane: str, run: str) -> None:
        """The run has ended, or is not driven here any more."""
        ...

    async def withdraw(self, lane: str, run: str) -> None:
        """Give the place up: the run has ended, waits for its client, or was never begun."""
        ...


def check_length(lane: str, *, length: int, waiting: int, most: int) -> None:
    """Raise 429 for a lane with `length` runs, where `waiting` runs of all lanes wait."""
    if length and (length > most // 2 or waiting >= most):
        reason = f"{length} messages to {lane} are under way already; nothing was begun: try again soon"
        raise Problem(429, "busy", reason, after=1.0)


class LocalQueue:
    """The queue of a server that has its store to itself."""

    def __init__(self, runs: TenantRuns, max_waiting: int) -> None:
        self._runs = runs
        self._max_waiting = max_waiting
        self._lanes: dict[str, dict[str, asyncio.Event]] = {}

    async def check(self, lane: str) -> None:
        length = len(self._lanes.get(lane, ()))
        waiting = sum(len(queue) - 1 for queue in self._lanes.values())
        check_length(lane, length=length, waiting=waiting, most=self._max_waiting)

    async def join(self, lane: str, run: str) -> None:
        queue = self._lanes.setdefault(lane, {})
        is_first = not queue
        turn = queue.setdefault(run, asyncio.Event())
        if is_first:
            turn.set()

    async def wait_turn(self, lane: str, run: str) -> None:
        turn = self._lanes.get(lane, {}).get(run)
        if turn is not None and not turn.is_set():
            await self._runs.aside(run, turn.wait())

    def leave(self, lane: str, run: str) -> None:
        queue = self._lanes.get(lane, {})
        if queue.pop(run, None) is None:
            return
        if queue:
            next(iter(queue.values())).set()
        else:
            del self._lanes[lane]

    async def withdraw(self, lane: str, run: str) -> None:
        self.leave(lane, run)
