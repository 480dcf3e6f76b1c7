"""Admission control: a bounded number of runs and streams for all tenants together, with fair queues.

Tenants take turns. One tenant alone never holds every slot while there are others.
"""

import asyncio
from collections import deque
from typing import TypeAlias

from chargehand.server.problem import Problem
from chargehand.server.settings import Limits

_SPARE = 8
"""One in this many slots is kept for other tenants."""
Line: TypeAlias = deque[asyncio.Future[None]]


class Admission:
    """The slots of one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.free = limits.runs
        self.streams = 0
        self._shares: dict[str, TenantShare] = {}
        self._round: deque[TenantShare] = deque()

    def of(self, tenant: str) -> "TenantShare":
        share = self._shares.get(tenant)
        if share is None:
            share = self._shares[tenant] = TenantShare(self)
            self._round.append(share)
        return share

    @property
    def waiting(self) -> int:
        return sum(len(share.waiting) for share in self._round)

    def most_of(self, total: int) -> int:
        """How much of `total` one tenant may have."""
        return total if len(self._shares) < 2 else total - max(1, total // _SPARE)

    def call_next(self) -> None:
        """Give free slots to the tenants whose turn it is, as long as one may have any."""
        rounds_left = len(self._round)
        while self.free and rounds_left:
            share = self._round[0]
            self._round.rotate(-1)
            rounds_left = len(self._round) if share.call_next() else rounds_left - 1

    def overloaded(self) -> Problem:
        runs = self.limits.runs - self.free
        detail = f"{runs} runs are under way and {self.waiting} wait already; nothing was begun: try again soon"
        return Problem(429, "overloaded", detail, after=1.0)


class TenantShare:
    """The slots of one tenant. Runs in `returning` had a slot and gave it up for others: they go first."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.running = 0
        self.streams = 0
        self.over = asyncio.Event()
        """Set when nothing more comes from here: the server stops."""
        self.waiting: Line = deque()
        self.returning: Line = deque()

    @property
    def may_run(self) -> bool:
        admission = self._admission
        return bool(admission.free) and self.running < admission.most_of(admission.limits.runs)

    @property
    def is_full(self) -> bool:
        """Whether the queue of this tenant is full, too."""
        admission = self._admission
        most = admission.limits.waiting
        return not self.may_run and (admission.waiting >= most or len(self.waiting) >= admission.most_of(most))

    def check(self) -> None:
        """429 at once where `enter` would only say so later."""
        if self.is_full:
            raise self._admission.overloaded()

    async def enter(self, *, returns: bool = False) -> None:
        """Wait for a slot, which `leave` gives back; 429 if too many wait already, or it waited for too long.

        A run that `returns` had a slot and gave it up for others: it is never refused.
        """
        if self.may_run:
            self._take()
            return
        if not returns:
            self.check()
        line = self.returning if returns else self.waiting
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            async with asyncio.timeout(None if returns else self._admission.limits.patience):
                await turn
        except BaseException as error:
            if turn in line:
                line.remove(turn)
            elif not turn.cancelled() and turn.exception() is None:
                self.leave()  # the slot was given just when the waiter gave up
            if isinstance(error, TimeoutError):
                raise self._admission.overloaded() from error
            raise

    def leave(self) -> None:
        self.running -= 1
        self._admission.free += 1
        self._admission.call_next()

    def refuse(self, why: Problem) -> None:
        """Refuse every waiter."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_exception(why)

    def call_next(self) -> bool:
        """Give a free slot to the next waiter; False if there is none, or it may not have one."""
        line = self.returning or self.waiting
        if not line or not self.may_run:
            return False
        turn = line.popleft()
        if not turn.done():
            self._take()
            turn.set_result(None)
        return True

    def _take(self) -> None:
        self.running += 1
        self._admission.free -= 1

    def take_stream_slot(self) -> "StreamSlot":
        """429 where too many streams are open."""
        admission = self._admission
        most = admission.limits.streams
        if admission.streams >= most or self.streams >= admission.most_of(most):
            raise Problem(429, "streams", f"{admission.streams} streams are open already; close one first", after=5.0)
        return StreamSlot(self)

    def count_stream(self, change: int) -> None:
        self.streams += change
        self._admission.streams += change


class StreamSlot:
    """The slot of one stream. It is free again when it is left or garbage-collected."""

    __slots__ = ("_is_taken", "_share")

    def __init__(self, share: TenantShare) -> None:
        self._share = share
        self._is_taken = True
        share.count_stream(1)

    async def over(self) -> None:
        """Wait until the server stops."""
        await self._share.over.wait()

    def leave(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._share.count_stream(-1)

    def __del__(self) -> None:
        # a response that was never sent is never closed
        self.leave()
