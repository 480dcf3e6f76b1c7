"""Where runs of one tenant are carried: nothing is promised before it is on disk, and a stop loses nothing.

What a run is about is not known here. Runs inside runs (messages, teams) take no place of their own: who waits for them
has one already. How many may go on at once is for `places` to say.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TypeAlias

from chargehand.errors import RunBusy
from chargehand.runtime.driver import Outcome
from chargehand.server.admission import Admission, StreamSlot
from chargehand.server.problem import Problem
from chargehand.terms.events import Entry
from chargehand.terms.policy import Seconds

Carry: TypeAlias = Callable[[], Awaitable[Outcome]]

logger = logging.getLogger(__name__)


class TenantRuns:
    """Enter it to open it. On leaving, runs get `grace` seconds; what is not done by then is cut, to be resumed."""

    def __init__(self, admission: Admission, tenant: str, grace: Seconds) -> None:
        self._admission = admission
        self._tenant = tenant
        self._grace = grace
        self._jobs = asyncio.TaskGroup()
        self._stack = AsyncExitStack()
        self._carried: dict[str, asyncio.Future[Outcome]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: dict[str, asyncio.Future[None]] = {}
        self._aside: set[str] = set()
        self.closing = False

    async def __aenter__(self) -> "TenantRuns":
        await self._stack.enter_async_context(self._jobs)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(self._grace if kind is None else 0.0)
        await self._stack.aclose()

    async def drain(self, grace: Seconds) -> None:
        """Take nothing any more, wait so long for what is under way, and cut the rest. Cutting may be done again."""
        self.closing = True
        self._admission.refuse(self._tenant, closing())
        if self._tasks and grace > 0:
            await asyncio.wait(tuple(self._tasks), timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        self._admission.end_streams(self._tenant)

    # --- how it stands

    @property
    def carried(self) -> int:
        return len(self._carried)

    @property
    def waiting(self) -> int:
        return len(self._admission.of(self._tenant).queue)

    def carries(self, run: str) -> bool:
        return run in self._carried

    def works_on(self, run: str) -> bool:
        """Whether a run is carried, or one that it is inside of: its name begins with theirs."""
        return any(name in self._carried for name in (run, *_around(run)))

    def heard(self, run: str, entries: Sequence[Entry]) -> None:
        """Told of everything that was written."""
        begun = self._begun.pop(run, None)
        if begun is not None and entries and not begun.done():
            begun.set_result(None)

    def take_stream_slot(self) -> StreamSlot:
        """A place for a stream; 429 where too many are open."""
        return self._admission.take_stream_slot(self._tenant)

    # --- runs

    def check(self) -> None:
        """429 or 503 at once if `begin` would only say so later: ask before anything is read for a new run."""
        if self.closing:
            raise closing()
        if self._admission.full(self._tenant):
            raise self._admission.overloaded()

    async def begin(self, run: str, carry: Carry) -> "asyncio.Future[Outcome]":
        """Carry a run; back when its first new entry is on disk, with what will become of it (`shield` it).

        429 where too many wait already, or it had to wait for too long: nothing is written then.
        """
        if self.closing:
            raise closing()
        await self._admission.turn(self._tenant)
        if self.closing or run in self._carried:
            self._admission.leave(self._tenant)
            raise closing() if self.closing else RunBusy(f"run {run!r} is under way already; wait for it")
        loop = asyncio.get_running_loop()
        begun = self._begun[run] = loop.create_future()
        found = self._carried[run] = loop.create_future()
        found.add_done_callback(_looked_at)
        job = self._jobs.create_task(_carried(run, carry, found))
        self._tasks.add(job)
        job.add_done_callback(partial(self._over, run, found))
        try:
            await asyncio.wait((found, begun), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._begun.pop(run, None)
            begun.cancel()
        if found.done():
            found.result()  # what could not even begin is said at once
        return found

    async def aside(self, run: str, until: Awaitable[object]) -> None:
        """Have a run that is carried wait without its place, which others need meanwhile; back when it has one."""
        if run not in self._aside:
            self._aside.add(run)
            self._admission.leave(self._tenant)
        await until
        await self._admission.again(self._tenant)
        self._aside.discard(run)

    async def outcome(self, run: str) -> Outcome | None:
        """Wait for what becomes of a run that is carried here; None if it is not. Whoever stops waiting stops none."""
        found = self._carried.get(run)
        return None if found is None else await asyncio.shield(found)

    def _over(self, run: str, found: "asyncio.Future[Outcome]", job: "asyncio.Task[None]") -> None:
        """Also for a job that was cut before it had begun."""
        if not found.done():
            found.set_exception(_cut(run))
        del self._carried[run]
        self._tasks.discard(job)
        if run in self._aside:
            self._aside.discard(run)  # it ended while it had no place
        else:
            self._admission.leave(self._tenant)


async def _carried(run: str, carry: Carry, found: "asyncio.Future[Outcome]") -> None:
    """Nothing is raised from here: the others on the floor go on."""
    try:
        found.set_result(await carry())
    except Exception as error:  # noqa: BLE001 - told to whoever waits for it
        logger.warning("run %s was not carried to its end: %s", run, error)
        found.set_exception(error)


def _looked_at(found: "asyncio.Future[Outcome]") -> None:
    """Nobody may be waiting: what went wrong is in the log all the same."""
    if not found.cancelled():
        found.exception()


def closing() -> Problem:
    return Problem(503, "closing", "the server is about to stop; nothing was begun: try again soon", after=5.0)


def _cut(run: str) -> Problem:
    said = f"the server stopped before run {run!r} was done; it goes on by itself when the server is started again"
    return Problem(503, "cut", said, after=5.0)


def _around(run: str) -> Iterator[str]:
    """The names of the runs that a run is inside of, the nearest first."""
    while "/" in run:
        run = run.rpartition("/")[0]
        yield run
