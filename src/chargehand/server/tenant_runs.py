"""Runs and streams that this process drives: a bounded number for all tenants together, and those of one tenant.

Tenants take turns. One tenant alone never holds every slot while there are others. A start is acknowledged when it is
durable; a stop loses nothing. Nested runs take no slot of their own: their parent has one.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from chargehand.engine import events as ev
from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import RunBusy
from chargehand.runtime.runner import Outcome
from chargehand.server.settings import ServerLimits
from chargehand.server.wire import Problem

_SPARE = 8
"""One in this many slots is kept for other tenants."""
Line: TypeAlias = deque[asyncio.Future[None]]


class Admission:
    """The slots of one server."""

    def __init__(self, limits: ServerLimits) -> None:
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
        self._waiting_since: dict[asyncio.Future[None], float] = {}
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
        self._waiting_since[turn] = time.monotonic()
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
        finally:
            del self._waiting_since[turn]

    @property
    def longest_wait(self) -> Seconds:
        """How long the run that waits longest for a slot has done so; 0 if none waits."""
        first = min(self._waiting_since.values(), default=None)
        return 0.0 if first is None else time.monotonic() - first

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


# --- the runs of one tenant


Carry: TypeAlias = Callable[[], Awaitable[Outcome]]
_Result = TypeVar("_Result")
_TRIES = 1000

logger = logging.getLogger(__name__)


class TenantRuns:
    """Enter it to open it. On leaving, runs get `grace` seconds; what is not done by then is cut, to be resumed."""

    def __init__(self, admission: Admission, tenant: str, grace: Seconds) -> None:
        self._share = admission.of(tenant)
        self._grace = grace
        self._jobs = asyncio.TaskGroup()
        self._outcomes: dict[str, asyncio.Future[Outcome]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.Task[None]] = set()
        self._begun: dict[str, asyncio.Future[None]] = {}
        self._aside: set[str] = set()
        self.on_left: Callable[[str], None] = lambda _run: None
        """Told of each run that is not driven any more."""
        self.closing = False

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(self._grace if kind is None else 0.0)
        await self._jobs.__aexit__(None, None, None)

    async def drain(self, grace: Seconds) -> None:
        """Take nothing any more, wait so long for what is under way, and cut the rest. Cutting may be done again."""
        self.closing = True
        self._share.refuse(closing())
        for watching in self._watching:
            watching.cancel()
        if self._tasks and grace > 0:
            await asyncio.wait(tuple(self._tasks), timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        self._share.over.set()

    # --- how it stands

    @property
    def running_count(self) -> int:
        return len(self._outcomes)

    @property
    def waiting(self) -> int:
        return len(self._share.waiting)

    @property
    def longest_wait(self) -> Seconds:
        """How long the run that waits longest for a slot has done so; 0 if none waits."""
        return self._share.longest_wait

    def is_running(self, run: str) -> bool:
        return run in self._outcomes

    def on_entries(self, run: str, entries: Sequence[Entry]) -> None:
        """Told of everything that was written."""
        begun = self._begun.pop(run, None)
        if begun is not None and entries and not begun.done():
            begun.set_result(None)

    def take_stream_slot(self) -> StreamSlot:
        """429 where too many streams are open."""
        return self._share.take_stream_slot()

    # --- runs

    def check(self) -> None:
        """429 or 503 at once if `begin` would only say so later: ask before anything is read for a new run."""
        if self.closing:
            raise closing()
        self._share.check()

    async def begin(self, run: str, carry: Carry) -> "asyncio.Future[Outcome]":
        """Carry a run; back when its first new entry is on disk, with what will become of it (`shield` it).

        429 where too many wait already, or it had to wait for too long: nothing is written then.
        """
        if self.closing:
            raise closing()
        await self._share.enter()
        if self.closing or run in self._outcomes:
            self._share.leave()
            raise closing() if self.closing else RunBusy(f"run {run!r} is under way already; wait for it")
        loop = asyncio.get_running_loop()
        begun = self._begun[run] = loop.create_future()
        outcome = self._outcomes[run] = loop.create_future()
        outcome.add_done_callback(lambda future: future.exception())  # it may never be awaited; the log has it
        job = self._jobs.create_task(_carry(run, carry, begun, outcome))
        self._tasks.add(job)
        job.add_done_callback(partial(self._end, run, outcome))
        try:
            await asyncio.wait((outcome, begun), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._begun.pop(run, None)
            begun.cancel()
        if outcome.done():
            outcome.result()  # what could not even begin is said at once
        return outcome

    def watch(self, carry: Carry) -> "asyncio.Future[Outcome]":
        """What will become of a run that another process drives. It takes no slot, and a stop does not touch it."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(lambda future: future.cancelled() or future.exception())
        watching = self._jobs.create_task(_watch(carry, outcome))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return outcome

    async def aside(self, run: str, until: Awaitable[object]) -> None:
        """Have a run that is carried wait without its slot, which others need meanwhile; back when it has one."""
        if run not in self._aside:
            self._aside.add(run)
            self._share.leave()
        await until
        await self._share.enter(returns=True)
        self._aside.discard(run)

    async def outcome(self, run: str) -> Outcome | None:
        """The outcome of a run that is driven here; None if it is not. Cancelling the wait does not stop it."""
        outcome = self._outcomes.get(run)
        return None if outcome is None else await asyncio.shield(outcome)

    def _end(self, run: str, outcome: "asyncio.Future[Outcome]", job: "asyncio.Task[None]") -> None:
        """Also for a job that was cut before it had begun."""
        if not outcome.done():
            detail = (
                f"the server stopped before run {run!r} was done; it goes on by itself when the server is started again"
            )
            outcome.set_exception(Problem(503, "cut", detail, after=5.0))
        del self._outcomes[run]
        self._tasks.discard(job)
        if run in self._aside:
            self._aside.discard(run)  # it ended while it had no slot
        else:
            self._share.leave()
        self.on_left(run)


async def _watch(carry: Carry, outcome: "asyncio.Future[Outcome]") -> None:
    try:
        outcome.set_result(await carry())
    except Exception as error:  # noqa: BLE001 - passed to those who await the outcome
        outcome.set_exception(error)
    finally:
        outcome.cancel()


async def _carry(run: str, carry: Carry, begun: "asyncio.Future[None]", outcome: "asyncio.Future[Outcome]") -> None:
    """Nothing is raised from here: the other runs go on."""
    try:
        outcome.set_result(await carry())
    except Exception as error:  # noqa: BLE001 - passed to those who await the outcome
        if begun.done():  # else the caller is told, and the run stands as before
            logger.warning("run %s was not carried to its end: %s", run, error)
        outcome.set_exception(error)


async def retry_when_full(start: Callable[[], Awaitable[_Result]]) -> _Result:
    """Start something; where there is no slot for it, again as soon as there may be one."""
    for _ in range(_TRIES):
        try:
            return await start()
        except Problem as problem:
            if problem.status != 429:
                raise
            await asyncio.sleep(problem.after or 1.0)
    return await start()


def closing() -> Problem:
    return Problem(503, "closing", "the server is about to stop; nothing was begun: try again soon", after=5.0)


def root_of(run: str, first: ev.Event) -> str:
    """The outermost run that a run is inside of, by its first event; the run itself, if it is inside of none."""
    parent = first.parent if isinstance(first, ev.RunRequested) else None
    return run if parent is None else parent.root
