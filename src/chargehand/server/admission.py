"""Who may begin: so many runs and streams at once for all tenants together, the rest in fair lines.

The machine is shared, so the places are: tenants take turns, and one alone never has all of them while there are
others. What is done on a place is not known here.
"""

import asyncio
from collections import deque

from chargehand.server.problem import Problem
from chargehand.server.settings import Limits

_SPARE = 8
"""One tenant leaves every so manieth place to the others."""


class Guest:
    """What one tenant has of the places. In `back` wait those who had one and made room: they go first."""

    __slots__ = ("back", "carried", "over", "queue", "streams")

    def __init__(self) -> None:
        self.carried = 0
        self.streams = 0
        self.over = asyncio.Event()
        self.queue: deque[asyncio.Future[None]] = deque()
        self.back: deque[asyncio.Future[None]] = deque()


class Admission:
    """The places of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guests: dict[str, Guest] = {}
        self._round: deque[Guest] = deque()
        self.free = limits.runs
        self.waiting = 0
        self.streams = 0

    def of(self, tenant: str) -> Guest:
        found = self._guests.get(tenant)
        if found is None:
            found = self._guests[tenant] = Guest()
            self._round.append(found)
        return found

    def share(self, total: int) -> int:
        """How much of `total` one tenant may have."""
        return total if len(self._guests) < 2 else total - max(1, total // _SPARE)

    # --- runs

    def full(self, tenant: str) -> bool:
        """Whether nobody more of this tenant may even wait."""
        guest = self.of(tenant)
        most = self._limits.waiting
        if self.free and guest.carried < self.share(self._limits.runs):
            return False
        return self.waiting >= most or len(guest.queue) >= self.share(most)

    async def turn(self, tenant: str) -> None:
        """Back when there is a place, which `leave` gives back; 429 at once where too many wait already."""
        guest = self.of(tenant)
        if self.free and guest.carried < self.share(self._limits.runs):
            self._take(guest)
            return
        if self.full(tenant):
            raise self.overloaded()
        mine = asyncio.get_running_loop().create_future()
        guest.queue.append(mine)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.patience):
                await mine
        except BaseException as error:
            if mine in guest.queue:
                guest.queue.remove(mine)
                self.waiting -= 1
            elif not mine.cancelled() and mine.exception() is None:
                self.leave(tenant)  # the turn came while nobody waited for it any more
            if isinstance(error, TimeoutError):
                raise self.overloaded() from error
            raise

    async def again(self, tenant: str) -> None:
        """Back when there is a place for one who made room: nobody sends it away, however many wait."""
        guest = self.of(tenant)
        if self.free and guest.carried < self.share(self._limits.runs):
            self._take(guest)
            return
        mine = asyncio.get_running_loop().create_future()
        guest.back.append(mine)
        try:
            await mine
        except BaseException:
            if mine in guest.back:
                guest.back.remove(mine)
            elif not mine.cancelled():
                self.leave(tenant)
            raise

    def leave(self, tenant: str) -> None:
        self.of(tenant).carried -= 1
        self.free += 1
        while self.free and self._call_next():
            pass

    def refuse(self, tenant: str, why: Problem) -> None:
        """Send away all who wait."""
        guest = self.of(tenant)
        while guest.queue:
            self.waiting -= 1
            one = guest.queue.popleft()
            if not one.done():
                one.set_exception(why)

    def _call_next(self) -> bool:
        """Give a free place to the tenant whose turn it is; False if nobody may have it."""
        most = self.share(self._limits.runs)
        for _ in range(len(self._round)):
            guest = self._round[0]
            self._round.rotate(-1)
            line = guest.back or guest.queue
            if not line or guest.carried >= most:
                continue
            self.waiting -= line is guest.queue
            one = line.popleft()
            if not one.done():
                self._take(guest)
                one.set_result(None)
            return True
        return False

    def _take(self, guest: Guest) -> None:
        self.free -= 1
        guest.carried += 1

    def overloaded(self) -> Problem:
        runs = self._limits.runs - self.free
        waiting = self.waiting
        said = f"{runs} runs are under way and {waiting} wait already; nothing was begun: try again soon"
        return Problem(429, "overloaded", said, after=1.0)

    # --- streams

    def take_stream_slot(self, tenant: str) -> "StreamSlot":
        """A place for one who listens; 429 where too many do."""
        guest = self.of(tenant)
        most = self._limits.streams
        if self.streams >= most or guest.streams >= self.share(most):
            raise Problem(429, "streams", f"{self.streams} streams are open already; close one first", after=5.0)
        return StreamSlot(self, guest)

    def end_streams(self, tenant: str) -> None:
        """Tell all who listen that nothing more comes from here: the server stops."""
        self.of(tenant).over.set()


class StreamSlot:
    """One stream's place. It is free again when it is left, or when nobody knows of it any more."""

    __slots__ = ("_admission", "_guest", "_taken")

    def __init__(self, admission: Admission, guest: Guest) -> None:
        self._admission = admission
        self._guest = guest
        self._taken = True
        admission.streams += 1
        guest.streams += 1

    async def over(self) -> None:
        """Back when there will be nothing more to listen to."""
        await self._guest.over.wait()

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            self._admission.streams -= 1
            self._guest.streams -= 1

    def __del__(self) -> None:
        # a reply that nobody ever fetched was never begun, so nothing of it ends in order
        self.leave()
