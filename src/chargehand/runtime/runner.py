"""Start, resume and fork runs on this machine, and speak to those under way."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, runtime_checkable
from weakref import WeakSet

from msgspec import Struct, structs

from chargehand.agents.nested import offered
from chargehand.agents.routing.decision import ConfirmedExamples
from chargehand.engine import budget as budgets
from chargehand.engine import events as ev
from chargehand.engine import policy as policies
from chargehand.engine import roster as rosters
from chargehand.engine.budget import Amount
from chargehand.engine.fold import begin, replay
from chargehand.engine.lint import lint
from chargehand.engine.plan import Plan, TaskId
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps
from chargehand.errors import ChargehandError, Invalid, PlanInvalid, Refused, StoreUnavailable
from chargehand.runtime.approving import OnApproval, drive_with_approvals
from chargehand.runtime.clock import Clock, steady
from chargehand.runtime.executor import Executor, Posted
from chargehand.runtime.run_loop import Listener, RunLoop, Whisper
from chargehand.stores.journal import Journal, Lease

logger = logging.getLogger(__name__)

WrapExecutor: TypeAlias = Callable[[Executor], Executor]
_LATE = 60.0  # seconds: a limit that was legal, and ran out before the run began, ends it like any other


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
    state: RunState
    """All that was so when the run stopped; nobody folds it further."""
    question: ev.InputRequested | None = None


def asking_inside(run: str, state: RunState) -> list[str]:
    """Names that runs inside a run may have that wait for a person: those of inner runs begin with those around."""
    failures = [one.failure for one in state.tasks.values() if one.failure is not None]
    questions = [one.question for one in failures if one.question is not None]
    if state.input is not None and state.input.question is not None:
        questions.append(state.input.question)
    names: dict[str, None] = {}
    for question in questions:
        inside = question.run.removeprefix(f"{run}/").split("/") if question.run else []
        names |= dict.fromkeys("/".join((run, *inside[: at + 1])) for at in range(len(inside)))
    return list(names)


def outcome(run: str, state: RunState) -> Outcome:
    """Read the outcome off a state."""
    ended = state.ended or ev.RunEnded("needs_input", "no_input", gaps(state))
    return Outcome(
        run=run,
        ending=ended.ending,
        reason=ended.reason,
        answer=None if state.answer is None else decode_value(state.answer),
        results={task: decode_value(one.result) for task, one in state.tasks.items() if one.result is not None},
        gaps=ended.gaps,
        statuses={task: one.status for task, one in state.tasks.items()},
        spent=state.ledger.spent,
        state=state,
        question=None if state.ended is not None else state.input,
    )


def checked(request: ev.RunRequested, now: float, *, late: float = 0.0) -> ev.RunRequested:
    """The request with its plan repaired where it can be; Invalid, before anything is written, where it cannot.

    Its deadline may lie `late` seconds back.
    """
    try:
        budgets.check(request.budget)
        policies.check(request.policy)
        rosters.check(request.roster)
    except TypeError as error:  # for example a list, where what is frozen must hold tuples
        raise Invalid(f"the request cannot be kept: {error}; use tuples and plain numbers") from error
    deadline = request.deadline
    if request.budget.seconds is not None:
        deadline = min(deadline, now + request.budget.seconds)
    if not deadline >= now - late:  # also what is no number
        raise Invalid(f"the deadline is {now - deadline:.1f} s in the past; give the run some time")
    limits = request.policy.limits
    if request.parent is not None and request.parent.nesting > limits.max_nesting:
        raise Invalid(f"teams are nested {request.parent.nesting} deep; at most {limits.max_nesting} are allowed")
    if request.plan is None:
        return structs.replace(request, deadline=deadline)
    linted = lint(request.plan.tasks, request.roster, limits)
    if linted.errors:
        raise PlanInvalid(linted.errors)
    plan = Plan(linted.tasks, request.plan.combine, request.plan.goal)
    return structs.replace(request, deadline=deadline, plan=plan, warnings=linted.warnings)


def _check_addressee(run: str, state: RunState, events: Sequence[ev.Event]) -> None:
    """Raise Refused for an answer to a run inside another: nobody would hear what comes of it."""
    parent = state.requested.parent
    if parent is None or not any(isinstance(event, ev.InputAnswered) for event in events):
        return
    raise Refused(f"run {run!r} works for run {parent.run!r}, which asks the same; answer that one")


@runtime_checkable
class _Leads(Protocol):
    """An executor that may have teams among its workers: it is told who drives their runs."""

    @property
    def leads(self) -> bool: ...

    def entrust(self, foreman: Any) -> None: ...


@runtime_checkable
class _Routes(Protocol):
    """An executor that may choose workers by how busy they are: it is told who sees that."""

    @property
    def routes(self) -> bool: ...

    def watched(self, watch: Any) -> None: ...


@runtime_checkable
class _Staffed(Protocol):
    """An executor of named workers: only runs that count on nobody else can be resumed with it."""

    @property
    def members(self) -> rosters.TeamMembers: ...


class Runner:
    """Runs of one process on one journal.

    `wall` and `ticks` are its clocks; `listener` hears every written entry, `whisper` text as it comes, unkept. Neither
    hears of `quiet` runs. `on_approval` is asked what a person would be asked. `wrap_executor` wraps the executor of
    every run, also of runs inside runs.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        *,
        wall: Clock = time.time,
        ticks: Clock = time.monotonic,
        listener: Listener | None = None,
        whisper: Whisper | None = None,
        on_approval: OnApproval | None = None,
        wrap_executor: WrapExecutor | None = None,
    ) -> None:
        self._journal = journal
        self._on_approval = on_approval
        self._members = executor.members if isinstance(executor, _Staffed) else None
        self._wrap = wrap_executor
        self._executor = executor if wrap_executor is None else wrap_executor(executor)
        self._clocks = (wall, ticks)
        self._steady: Callable[[float], Clock] = lambda least: steady(wall, ticks, least=least)
        self._heard = (listener, whisper)
        self._under_way: dict[str, RunLoop] = {}
        self._unreleased: set[str] = set()
        self._around: WeakSet[Runner] = WeakSet((self,))
        self._is_beneath = False
        self._load = None
        self._route_learning = None
        if isinstance(executor, _Routes) and executor.routes:
            from chargehand.runtime.load import load_view  # noqa: PLC0415 - only who routes needs it
            from chargehand.runtime.route_feedback import RouteLearning  # noqa: PLC0415 - as below

            self._route_learning = RouteLearning(self) if getattr(executor, "learns", False) else None
            self._load = load_view(executor, self, wall)
            executor.watched(self._load)
        if isinstance(executor, Posted):
            from chargehand.runtime.nested_runs import Messenger  # noqa: PLC0415 - only who sends messages needs it

            self._messenger = Messenger(self)  # kept here: an executor does not keep who carries for it alive
            executor.bind(self._messenger)
        if isinstance(executor, _Leads) and executor.leads:
            from chargehand.runtime.nested_runs import Nesting  # noqa: PLC0415 - only who leads teams needs it

            self._nesting = Nesting(self)
            executor.entrust(self._nesting)

    def beneath(self, executor: Executor) -> "Runner":
        """A runner for runs of another executor, on the same journal and by the same clocks, which nobody hears."""
        below = Runner(self._journal, executor, wall=self._clocks[0], ticks=self._clocks[1], wrap_executor=self._wrap)
        self._around.add(below)
        below._around = self._around
        below._is_beneath = True
        return below

    def around(self) -> Iterator[RunState]:
        """The runs of this runner and of those above and beneath it, as they stand."""
        return (state for one in self._around for state in one.under_way.values())

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def under_way(self) -> Mapping[str, RunState]:
        """Every run that is driven here, as it stands."""
        return {run: drive.state for run, drive in self._under_way.items()}

    def route_examples(self, run: str) -> ConfirmedExamples | None:
        return None if self._route_learning is None else self._route_learning.examples(run)

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
        first = ev.Entry(1, now, checked(request, now, late=_LATE))
        lease = await self._claim(run, new=True)
        try:
            listener, whisper = self._hears(quiet=quiet)
            drive = RunLoop(
                journal=self._journal,
                executor=self._executor,
                lease=lease,
                state=begin(first),
                clock=clock,
                listener=listener,
                whisper=whisper,
                unwritten=[first],
            )
            return await self._drive(drive, lease, also, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def resume(
        self, run: str, *also: ev.Event, wait_for_input: bool = False, steal: bool = False, quiet: bool = False
    ) -> Outcome:
        """Go on with a run that a crash, a pause or an open question left unfinished.

        What a run inside another asks is asked, and answered, in the outermost one.
        """
        lease = await self._claim(run, steal=steal)
        try:
            state = replay(await self._journal.read(run))
            if not self._is_beneath:
                _check_addressee(run, state, also)
            if state.ended is not None:
                raise Refused(f"run {run!r} has ended ({state.ended.ending}); fork it to do some of it again")
            if not any(isinstance(event, ev.CancelRequested) for event in also):  # anybody may end a run
                self._check_members(run, state)
            more = (ev.RunResumed(lease.epoch), *also)
            listener, whisper = self._hears(quiet=quiet)
            drive = RunLoop(
                journal=self._journal,
                executor=self._executor,
                lease=lease,
                state=state,
                clock=self._steady(state.at),
                listener=listener,
                whisper=whisper,
            )
            return await self._drive(drive, lease, more, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def fork(self, source: str, run: str, request: ev.RunRequested, *, wait_for_input: bool = False) -> Outcome:
        """A new run that takes over every result of another whose task and inputs are unchanged.

        Given a plan for the same request, it also knows what nobody could do about that: the plan may not say.
        """
        entries = await self._journal.read(source)
        state = replay(entries)
        same = request.plan is not None and request.goal == state.requested.goal
        more = ev.ResultsOffered(source, offered(state, entries), tuple(state.unserved) if same else ())
        return await self.start(run, request, also=[more], wait_for_input=wait_for_input)

    async def ask(self, run: str, report: ev.Event) -> None:
        """Hand a request (cancel, pause, an answer) to a run under way; Refused if it does not fit."""
        if run not in self._under_way:
            raise Refused(f"run {run!r} is not under way in this process; start or resume it first")
        drive = self._under_way[run]
        await drive.ask(report)

    def _check_members(self, run: str, state: RunState) -> None:
        if self._members is not None:
            began = f" {state.requested.team!r}" if state.requested.team else ""
            self._members.check_recorded(run, state.requested.roster, f"resume it with the team{began} it began with")

    def _hears(self, *, quiet: bool) -> tuple[Listener | None, Whisper | None]:
        listener, whisper = (None, None) if quiet else self._heard
        load = self._load
        if load is None:
            return listener, whisper
        if listener is None:
            return load.hear, whisper

        def both(run: str, entries: Sequence[ev.Entry]) -> None:
            load.hear(run, entries)
            listener(run, entries)

        return both, whisper

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

    async def _drive(self, drive: RunLoop, lease: Lease, also: Sequence[ev.Event], *, wait_for_input: bool) -> Outcome:
        self._under_way[lease.run] = drive
        try:
            if self._on_approval is None:
                await drive.to_end(first=also, wait_for_input=wait_for_input)
            else:
                await drive_with_approvals(drive, self._on_approval, also)
        finally:
            del self._under_way[lease.run]
            if self._load is not None:
                self._load.leave(lease.run, drive.state)
        if self._route_learning is not None:
            await self._route_learning.record_choice(lease.run, drive.state)
        if drive.state.ended is not None:
            await self._cancel_asking(lease.run, drive.state)
        return outcome(lease.run, drive.state)

    async def _cancel_asking(self, run: str, ended: RunState) -> None:
        """Cancel the runs inside one that has ended that wait for a person: nobody can answer any more.

        Each cancels those inside it.
        """
        for name in asking_inside(run, ended):
            with suppress(ChargehandError):  # no run is called so, somebody else has it, or it has just ended
                if replay(await self._journal.read(name)).ended is None:
                    await self.resume(name, ev.CancelRequested("the run around it has ended"), quiet=True)
