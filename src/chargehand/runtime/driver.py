"""Start, resume and fork runs on this machine, and speak to those under way."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, structs

from chargehand.agents.crew import Crew, Posted
from chargehand.core.fold import begin, replay
from chargehand.core.reuse import offers
from chargehand.core.state import RunState, Status
from chargehand.core.view import gaps
from chargehand.errors import Invalid, PlanInvalid, Refused, StoreUnavailable
from chargehand.runtime.clock import Clock, steady
from chargehand.runtime.drive import Drive, Listener, Whisper
from chargehand.stores.journal import Journal, Lease
from chargehand.terms import budget as budgets
from chargehand.terms import events as ev
from chargehand.terms import policy as policies
from chargehand.terms import roster as rosters
from chargehand.terms.budget import Amount
from chargehand.terms.lint import lint
from chargehand.terms.plan import Plan, TaskId
from chargehand.terms.value import decode_value

logger = logging.getLogger(__name__)


class Outcome(Struct, frozen=True):
    """What came of a run. `needs_input` means: a person must answer `question` before it goes on."""

    run: str
    ending: ev.Ending
    reason: ev.EndReason
    answer: object
    results: dict[TaskId, object]
    gaps: tuple[ev.Gap, ...]
    statuses: dict[TaskId, Status]
    spent: Amount
    question: ev.InputRequested | None = None


def outcome(run: str, state: RunState) -> Outcome:
    """Read the outcome off a state."""
    ended = state.ended or ev.RunEnded("needs_input", "no_input", gaps(state))
    return Outcome(
        run,
        ended.ending,
        ended.reason,
        None if state.answer is None else decode_value(state.answer),
        {task: decode_value(one.result) for task, one in state.tasks.items() if one.result is not None},
        ended.gaps,
        {task: one.status for task, one in state.tasks.items()},
        state.ledger.spent,
        None if state.ended is not None else state.input,
    )


def checked(request: ev.RunRequested, now: float) -> ev.RunRequested:
    """The request with its plan repaired where it can be; Invalid, before anything is written, where it cannot."""
    try:
        budgets.check(request.budget)
        policies.check(request.policy)
        rosters.check(request.roster)
    except TypeError as error:  # for example a list, where what is frozen must hold tuples
        raise Invalid(f"the request cannot be kept: {error}; use tuples and plain numbers") from error
    deadline = request.deadline
    if request.budget.seconds is not None:
        deadline = min(deadline, now + request.budget.seconds)
    if not deadline > now:
        raise Invalid(f"the deadline is {now - deadline:.1f} s in the past; give the run some time")
    limits = request.policy.limits
    if request.parent is not None and request.parent.nesting > limits.nesting:
        raise Invalid(f"teams are nested {request.parent.nesting} deep; at most {limits.nesting} are allowed")
    if request.plan is None:
        return structs.replace(request, deadline=deadline)
    linted = lint(request.plan.tasks, request.roster, limits)
    if linted.errors:
        raise PlanInvalid(linted.errors)
    plan = Plan(linted.tasks, request.plan.combine, request.plan.goal)
    return structs.replace(request, deadline=deadline, plan=plan, warnings=linted.warnings)


@runtime_checkable
class _Leads(Protocol):
    """A crew that may have teams among its workers: it is told who drives their runs."""

    @property
    def leads(self) -> bool: ...

    def entrust(self, foreman: Any) -> None: ...


class Driver:
    """Runs of one process on one journal.

    `wall` and `ticks` are its clocks; `listener` hears every written entry, `whisper` text as it comes, unkept. Neither
    hears of `quiet` runs.
    """

    def __init__(
        self,
        journal: Journal,
        crew: Crew,
        *,
        wall: Clock = time.time,
        ticks: Clock = time.monotonic,
        listener: Listener | None = None,
        whisper: Whisper | None = None,
    ) -> None:
        self._journal = journal
        self._crew = crew
        self._clocks = (wall, ticks)
        self._steady: Callable[[float], Clock] = lambda least: steady(wall, ticks, least=least)
        self._heard = (listener, whisper)
        self._under_way: dict[str, Drive] = {}
        self._unreleased: set[str] = set()
        if isinstance(crew, Posted):
            from chargehand.runtime.nested import Messenger  # noqa: PLC0415 - only who sends messages needs it

            self._messenger = Messenger(self)  # kept here: a crew does not keep who carries for it alive
            crew.bind(self._messenger)
        if isinstance(crew, _Leads) and crew.leads:
            from chargehand.runtime.subteams import Nesting  # noqa: PLC0415 - only who leads teams needs it

            self._nesting = Nesting(self)
            crew.entrust(self._nesting)

    def beneath(self, crew: Crew) -> "Driver":
        """A driver for runs of another crew, on the same journal and by the same clocks, which nobody hears."""
        return Driver(self._journal, crew, wall=self._clocks[0], ticks=self._clocks[1])

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def under_way(self) -> Mapping[str, RunState]:
        """Every run that is driven here, as it stands."""
        return {run: drive.state for run, drive in self._under_way.items()}

    async def start(
        self,
        run: str,
        request: ev.RunRequested,
        *,
        also: Sequence[ev.Event] = (),
        wait_for_input: bool = False,
        quiet: bool = False,
    ) -> Outcome:
        """Carry out a new run."""
        clock = self._steady(0.0)
        now = clock()
        first = ev.Entry(1, now, checked(request, now))
        lease = await self._claim(run, new=True)
        try:
            heard = (None, None) if quiet else self._heard
            drive = Drive(self._journal, self._crew, lease, begin(first), clock, *heard, unwritten=[first])
            return await self._drive(drive, lease, also, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def resume(
        self, run: str, *also: ev.Event, wait_for_input: bool = False, steal: bool = False, quiet: bool = False
    ) -> Outcome:
        """Go on with a run that a crash, a pause or an open question left unfinished."""
        lease = await self._claim(run, steal=steal)
        try:
            state = replay(await self._journal.read(run))
            if state.ended is not None:
                raise Refused(f"run {run!r} has ended ({state.ended.ending}); fork it to do some of it again")
            more = (ev.RunResumed(lease.epoch), *also)
            heard = (None, None) if quiet else self._heard
            drive = Drive(self._journal, self._crew, lease, state, self._steady(state.at), *heard)
            return await self._drive(drive, lease, more, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def fork(self, source: str, run: str, request: ev.RunRequested, *, wait_for_input: bool = False) -> Outcome:
        """A new run that takes over every result of another whose task and inputs are unchanged."""
        offered = ev.ResultsOffered(source, offers(replay(await self._journal.read(source))))
        return await self.start(run, request, also=[offered], wait_for_input=wait_for_input)

    async def ask(self, run: str, report: ev.Event) -> None:
        """Hand a request (cancel, pause, an answer) to a run under way; Refused if it does not fit."""
        if run not in self._under_way:
            raise Refused(f"run {run!r} is not under way in this process; start or resume it first")
        await self._under_way[run].ask(report)

    async def _claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        lease = await self._journal.claim(run, new=new, steal=steal or run in self._unreleased)
        self._unreleased.discard(run)
        return lease

    async def _release(self, lease: Lease) -> None:
        try:
            await self._journal.release(lease)
        except StoreUnavailable as error:  # what came of the run is worth more: it must not be lost over this
            self._unreleased.add(lease.run)
            logger.warning("run %s could not be released: %s", lease.run, error)

    async def _drive(self, drive: Drive, lease: Lease, also: Sequence[ev.Event], *, wait_for_input: bool) -> Outcome:
        self._under_way[lease.run] = drive
        try:
            await drive.to_end(first=also, wait_for_input=wait_for_input)
        finally:
            del self._under_way[lease.run]
        return outcome(lease.run, drive.state)
