"""The runs of one tenant that this process drives. A start is acknowledged when it is durable; a stop loses nothing.

Nested runs take no slot of their own: their parent has one. `admission` bounds how many run at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.errors import RunBusy
from chargehand.runtime.runner import Outcome
from chargehand.server.admission import Admission, StreamSlot
from chargehand.server.problem import Problem

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
        self._begun: dict[str, asyncio.Future[None]] = {}
        self._aside: set[str] = set()
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
