"""Start, resume and fork runs on this machine, and speak to those under way."""

import asyncio
import logging
import re
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, structs

from chargehand.concurrency import BareTaskGroup
from chargehand.engine import budget as budgets
from chargehand.engine import events as ev
from chargehand.engine import policy as policies
from chargehand.engine import roster as rosters
from chargehand.engine.admit import admit
from chargehand.engine.budget import Amount
from chargehand.engine.fold import begin, fold, replay
from chargehand.engine.lint import lint
from chargehand.engine.plan import NO_TASK, TaskId
from chargehand.engine.policy import Seconds
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import gaps, offers
from chargehand.errors import ChargehandError, Invalid, PlanInvalid, Refused, StoreUnavailable
from chargehand.journal.protocol import Journal, Lease
from chargehand.runtime.approving import Callbacks, drive_with_answers
from chargehand.runtime.commands import receiving_commands
from chargehand.runtime.dispatch_port import Dispatcher
from chargehand.runtime.executor import Executor, Listener
from chargehand.runtime.listeners import combine_listeners, find_tracer, recall_history
from chargehand.runtime.nested import (
    NestedRuns,
    cancel_remote_runs,
    list_calls,
    list_replies,
    runs_waiting_inside,
)
from chargehand.runtime.remote import RemoteExecutor
from chargehand.runtime.run_loop import Clock, RunLoop, TextListener, steady

if TYPE_CHECKING:
    from chargehand.runtime.load import WorkerLoad

logger = logging.getLogger(__name__)
_Returned = TypeVar("_Returned")

LONGEST_GOAL = 150_000
"""The most characters of a request, whatever begins the run."""
EFFECT_PATIENCE = 5.0
"""How many seconds calls that change something have to finish when a run is stopped in an orderly way."""
_STOPPING = 30.0  # seconds that an earlier drive of a run has to stop
_LOOK = 0.05
_LATE = 60.0  # seconds: a limit that was legal, and ran out before the run began, ends it like any other


def checked_goal(goal: str) -> str:
    """The goal without white space around it; Invalid for one that no run could pursue."""
    if not isinstance(goal, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not check types
        raise Invalid(f"the request is {type(goal).__name__}, not text; say what is to be done in words")
    if not goal.strip():
        raise Invalid("the request is empty; say what is to be done")
    if len(goal) > LONGEST_GOAL:
        raise Invalid(
            f"the request has {len(goal):,} characters, and {LONGEST_GOAL:,} is the most; "
            "put the material into files for a tool to read"
        )
    if strange := re.search("[\0\ud800-\udfff]", goal):
        what = "a NUL character" if strange[0] == "\0" else "half a surrogate pair"
        raise Invalid(f"the request holds {what}: it is not text; send plain text in UTF-8")
    return goal.strip()


def without_a_loop(verb: str, start: Callable[[], Coroutine[Any, Any, _Returned]]) -> _Returned:
    """Run to the end what is awaited elsewhere; Invalid where an event loop is running already."""
    with suppress(RuntimeError):  # left before the run begins: its errors are not raised "during handling" of this one
        asyncio.get_running_loop()
        raise Invalid(
            f"{verb}_sync cannot be called where an event loop is running; write `await team.{verb}(...)` there"
        )
    return asyncio.run(start())


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
    """All that was so when the run stopped; it is not folded further."""
    question: ev.InputRequested | None = None
    entries: tuple[ev.Entry, ...] = ()
    """All that was written, where the runner keeps it."""


def outcome(run: str, state: RunState, entries: Sequence[ev.Entry] = ()) -> Outcome:
    """Read the outcome off a state."""
    ended = state.ended or ev.RunEnded("needs_input", "no_input", gaps(state))
    return Outcome(
        run=run,
        ending=ended.ending,
        reason=ended.reason,
        answer=None if state.answer is None else decode_value(state.answer),
        results={
            task: decode_value(progress.result) for task, progress in state.tasks.items() if progress.result is not None
        },
        gaps=ended.gaps,
        statuses={task: progress.status for task, progress in state.tasks.items()},
        spent=state.ledger.spent,
        state=state,
        question=None if state.ended is not None else state.input,
        entries=tuple(entries),
    )


async def fork_offers(journal: Journal, run: str, entries: Sequence[ev.Entry]) -> tuple[ev.Offer, ...]:
    """What a run that does the same again may take over. A worker that left a part of its task is asked again.

    Not where something was changed in the world: it might be changed twice.
    """
    state = replay(entries)
    offered = offers(state)
    if await list_calls(journal, run, entries, state):
        return offered
    return tuple(offer for offer in offered if offer.missing is None or offer.missing.gaps)


async def offer_results(
    journal: Journal,
    run: str,
    entries: Sequence[ev.Entry],
    offered: Sequence[ev.Offer],
    *,
    unserved: Sequence[str] = (),
) -> ev.ResultsOffered:
    """Return what a run hands to one that does it again: results, effects, and answers of persons.

    Args:
        journal: the journal of the run.
        run: the run that is done again.
        entries: all its entries.
        offered: the results that the new run may take over.
        unserved: parts of the request that no worker can do, where the plan is taken over.
    """
    state = replay(entries)
    replies = await list_replies(journal, run, entries, state)
    if state.planning.replies:
        replies[NO_TASK] = state.planning.replies
    return ev.ResultsOffered(
        run=run,
        offers=tuple(offered),
        unserved=tuple(unserved),
        calls=await list_calls(journal, run, entries, state),
        replies=replies,
        origin=state.origin or run,
        origin_mark=state.origin_mark,
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
    is_checked = request.parent is not None and request.parent.kind == "worker"  # its task is one of a checked plan
    if request.plan is None or is_checked:
        return structs.replace(request, deadline=deadline)
    linted = lint(request.plan.tasks, request.roster, limits)
    if linted.errors:
        raise PlanInvalid(linted.errors)
    plan = structs.replace(request.plan, tasks=linted.tasks)
    return structs.replace(request, deadline=deadline, plan=plan, warnings=linted.warnings)


def _check_addressee(run: str, state: RunState, events: Sequence[ev.Event]) -> None:
    """Raise Refused for an answer to a run inside another: its outcome would reach no caller."""
    parent = state.requested.parent
    if parent is None or not any(isinstance(event, ev.InputAnswered) for event in events):
        return
    raise Refused(f"run {run!r} works for run {parent.run!r}, which asks the same; answer that one")


class Runner:
    """Runs of one process on one journal.

    `wall` and `ticks` are its clocks; `listener` hears every written entry, `on_text` text as it comes, unkept. Neither
    hears of `quiet` runs; the listeners of the executor do. `callbacks` are asked what a person would be asked.
    `dispatcher` has nested runs with a queue driven by other processes.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        *,
        wall: Clock = time.time,
        ticks: Clock = time.monotonic,
        listener: Listener | None = None,
        on_text: TextListener | None = None,
        callbacks: Callbacks | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._journal = journal
        self._callbacks = callbacks
        self._dispatcher = dispatcher
        self._members = executor.members
        self._load = executor.load
        self._executor = executor if dispatcher is None else RemoteExecutor(executor)
        self._clocks = (wall, ticks)
        self._heard = (listener, on_text)
        self._under_way: dict[str, RunLoop] = {}
        self._unreleased: set[str] = set()
        self._family: dict[str, RunLoop] = {}
        """Also those of the runners for nested runs."""
        self._outer: Runner | None = None
        self._inside: dict[Executor, Runner] = {}
        self._nested: NestedRuns | None = None

    def _steady(self, least: float) -> Clock:
        wall, ticks = self._clocks
        return steady(wall, ticks, least=least)

    def nested_runner(self, executor: Executor) -> "Runner":
        """The runner for runs of a team inside this one: same journal, same clocks, and its team's listeners."""
        runner = self._inside.get(executor)
        if runner is None:
            wall, ticks = self._clocks
            runner = Runner(self._journal, executor, wall=wall, ticks=ticks, dispatcher=self._dispatcher)
            runner._family = self._family
            runner._outer = self
            self._inside[executor] = runner
        return runner

    def inside(self, workers: Sequence[str]) -> "Runner":
        """The runner of the team that works as the first of these workers, of the one inside that team, and so on.

        Refused where there is no such team.
        """
        runner = self
        for worker in workers:
            executor = runner._executor.team_of(worker)
            if executor is None:
                raise Refused(f"there is no team that works as {worker!r}; load the team with which the run began")
            runner = runner.nested_runner(executor)
        return runner

    @property
    def nested(self) -> NestedRuns:
        """Starts the runs inside its runs."""
        if self._nested is None:
            self._nested = NestedRuns(self)
        return self._nested

    def worker_loads(self) -> "Mapping[str, WorkerLoad]":
        """How busy and how well the workers of its team are; empty where the load is not counted."""
        if self._load is None:
            return {}
        return self._load.loads(self._clocks[0](), [loop.state for loop in self._family.values()])

    def expect_work(self, run: str, workers: Sequence[str]) -> None:
        """The plan of a run will have a task for each of these workers."""
        if self._load is not None:
            self._load.expect_work(run, workers)

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def dispatcher(self) -> Dispatcher | None:
        return self._dispatcher

    @property
    def under_way(self) -> Mapping[str, RunState]:
        """Every run that is driven here, as it stands."""
        return {run: drive.state for run, drive in self._under_way.items()}

    def count_waiting(self) -> tuple[int, int]:
        """How many runs are driven here, those inside others too, and how many of them only wait for other runs."""
        waiting = sum(loop.only_waits for loop in self._family.values())
        return len(self._family), waiting

    async def create(self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = ()) -> None:
        """Write a new run down, for any process to drive with `resume`."""
        now = self._steady(0.0)()
        entries = [ev.Entry(1, now, checked(request, now, late=_LATE))]
        state = begin(entries[0])
        for event in also:
            entry = ev.Entry(state.seq + 1, now, admit(state, event))
            fold(state, entry)
            entries.append(entry)
        await self._journal.create(run, entries)

    async def start(
        self,
        run: str,
        request: ev.RunRequested,
        *,
        also: Sequence[ev.Event] = (),
        wait_for_input: bool = False,
        quiet: bool = False,
        keep_entries: bool = False,
    ) -> Outcome:
        """Carry out a new run. With `keep_entries` the outcome has all that was written of it."""
        clock = self._steady(0.0)
        now = clock()
        first = ev.Entry(1, now, checked(request, now, late=_LATE))
        lease = await self._claim(run, new=True)
        try:
            kept: list[ev.Entry] | None = [] if keep_entries else None
            drive = self._run_loop(lease, begin(first), clock, quiet=quiet, unwritten=[first], kept=kept)
            logger.info("run %s: begins (team %s)", run, request.team, extra={"run": run})
            return await self._drive(drive, lease, also, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def resume(
        self,
        run: str,
        *also: ev.Event,
        wait_for_input: bool = False,
        steal: bool = False,
        quiet: bool = False,
        unpause: bool = False,
    ) -> Outcome:
        """Resume a run that a crash, a pause or an open question left unfinished, or that was only created.

        What a run inside another asks is asked, and answered, in the outermost one.

        Args:
            run: The run to resume.
            also: What to tell it first: an answer, a cancel, a pause.
            wait_for_input: Wait for the answer to an open question; False: return the question.
            steal: Take it from the process that holds it. A drive of it in this process is stopped first.
            quiet: Do not call the listener of this runner.
            unpause: End a pause, unless `also` sets one.
        """
        lease = await self._claim(run, steal=steal)
        try:
            entries = await self._journal.read(run)
            state = replay(entries)
            if self._outer is None and self._dispatcher is None:  # else it comes from the run around it
                _check_addressee(run, state, also)
            if state.ended is not None:
                raise Refused(
                    f"run {run!r} has ended ({state.ended.ending}) and cannot be resumed. Run the request again "
                    f"(team.run); `chargehand run --reuse {run}` takes over what was finished"
                )
            if not any(isinstance(event, ev.CancelRequested) for event in also):  # any team may end a run
                self._check_members(run, state)
            recall_history(self._listeners(quiet=quiet), run, entries)
            if unpause and state.paused and not any(isinstance(event, ev.PauseSet) for event in also):
                also = (ev.PauseSet(paused=False), *also)
            more = also if lease.epoch == 1 else (ev.RunResumed(lease.epoch), *also)  # 1: no process drove it before
            drive = self._run_loop(lease, state, self._steady(state.at), quiet=quiet)
            return await self._drive(drive, lease, more, wait_for_input=wait_for_input)
        finally:
            await self._release(lease)

    async def fork(self, source: str, run: str, request: ev.RunRequested, *, wait_for_input: bool = False) -> Outcome:
        """A new run that takes over every result of another whose task and inputs are unchanged.

        Given a plan for the same request, it also knows what no worker could do of it: the plan may not say.
        """
        entries = await self._journal.read(source)
        state = replay(entries)
        same = request.plan is not None and request.goal == state.requested.goal
        offered = await fork_offers(self._journal, source, entries)
        unserved = tuple(state.unserved) if same else ()
        more = await offer_results(self._journal, source, entries, offered, unserved=unserved)
        request = structs.replace(request, scope=state.requested.scope)
        return await self.start(run, request, also=[more], wait_for_input=wait_for_input)

    async def drain(self, patience: Seconds) -> None:
        """Begin nothing more in any run here; return when no call is under way, at most `patience` later.

        Then the drives can be cancelled: whichever process resumes the runs repeats nothing.
        """
        await self._drain(patience, lambda: any(loop.is_calling for loop in self._family.values()))

    async def finish_effects(self, patience: Seconds = EFFECT_PATIENCE) -> None:
        """Begin nothing more in any run here; return when no call that changes something is under way.

        Other calls are not waited for: they are repeated. It takes at most `patience`.
        """
        await self._drain(patience, lambda: bool(self.effects_under_way))

    @property
    def effects_under_way(self) -> tuple[str, ...]:
        """Return the names of the calls under way here that change something, in nested runs too."""
        return tuple(name for loop in self._family.values() for name in loop.effects_under_way)

    async def _drain(self, patience: Seconds, is_busy: Callable[[], bool]) -> None:
        until = asyncio.get_running_loop().time() + patience
        for loop in list(self._family.values()):
            loop.drain()
        while is_busy():
            if asyncio.get_running_loop().time() >= until:
                return
            await asyncio.sleep(_LOOK)

    async def ask(self, run: str, report: ev.Event) -> None:
        """Hand a request (cancel, pause, an answer) to a run under way; Refused if it does not fit."""
        if run not in self._under_way:
            raise Refused(f"run {run!r} is not under way in this process; start or resume it first")
        drive = self._under_way[run]
        await drive.ask(report)

    def keeps_question(self, run: str, number: int) -> bool:
        """Return whether a function of this process is asked a question of a run, or has answered it just now."""
        drive = self._under_way.get(run)
        return drive is not None and drive.keeps_question(number)

    async def decided(self, run: str, number: int) -> None:
        """Wait until a question of a run is answered, or left to a person."""
        if (drive := self._under_way.get(run)) is not None:
            await drive.decided(number)

    def _check_members(self, run: str, state: RunState) -> None:
        if self._members is not None:
            began = f" {state.requested.team!r}" if state.requested.team else ""
            self._members.check_recorded(run, state.requested.roster, f"resume it with the team{began} it began with")

    def _run_loop(
        self,
        lease: Lease,
        state: RunState,
        clock: Clock,
        *,
        quiet: bool,
        unwritten: Sequence[ev.Entry] = (),
        kept: list[ev.Entry] | None = None,
    ) -> RunLoop:
        _, on_text = self._heard
        listeners = self._listeners(quiet=quiet)
        return RunLoop(
            journal=self._journal,
            executor=self._executor,
            lease=lease,
            state=state,
            clock=clock,
            runner=self,
            listener=combine_listeners(listeners),
            tracer=find_tracer(listeners),
            on_text=None if quiet else on_text,
            unwritten=unwritten,
            kept=kept,
        )

    def _listeners(self, *, quiet: bool) -> list[Listener]:
        """Who hears the entries of a run."""
        listener, _ = self._heard
        listeners = self._executor_listeners()
        if self._load is not None:
            listeners.insert(0, self._load.hear)
        if listener is not None and not quiet:
            listeners.append(listener)
        return listeners

    def _executor_listeners(self) -> list[Listener]:
        """Those of its executor, after those of the executors whose runs its runs are inside of."""
        outer = [] if self._outer is None else self._outer._executor_listeners()  # noqa: SLF001 - of its own kind
        return [*outer, *self._executor.listeners]

    async def _claim(self, run: str, *, new: bool = False, steal: bool = False) -> Lease:
        if steal and (earlier := self._family.get(run)) is not None:
            earlier.supersede()
            with suppress(TimeoutError):  # a worker that does not stop cannot keep the run
                await asyncio.wait_for(earlier.over.wait(), _STOPPING)
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
        self._family[lease.run] = drive
        if self._load is not None:
            self._load.enter(lease.run, drive.state)
        try:
            async with receiving_commands(self._journal, drive):
                # what a run inside another asks is asked, and answered, in the outermost one
                if self._callbacks is None or drive.state.requested.parent is not None:
                    await drive.to_end(first=also, wait_for_input=wait_for_input)
                else:
                    await drive_with_answers(drive, self._callbacks, also)
        finally:
            for drives in (self._under_way, self._family):
                if drives.get(lease.run) is drive:  # else a later drive has taken its place
                    del drives[lease.run]
            if self._load is not None:
                self._load.leave(lease.run, drive.state)
        if drive.state.ended is not None:
            await self._cancel_asking(lease.run, drive.state)
            if self._dispatcher is not None and lease.epoch > 1:
                await cancel_remote_runs(self, self._dispatcher, lease.run)
        return outcome(lease.run, drive.state, drive.kept or ())

    async def _cancel_asking(self, run: str, ended: RunState) -> None:
        """Cancel the runs inside one that has ended that wait for a person: they cannot be answered any more.

        Each cancels those inside it.
        """
        for name in await runs_waiting_inside(self._journal, run, ended):
            with suppress(ChargehandError):  # no run is called so, another process has it, or it has just ended
                if replay(await self._journal.read(name)).ended is None:
                    await self.resume(name, ev.CancelRequested("the run around it has ended"), quiet=True)


# --- an orderly stop


async def stop_in_order(runner: Runner, drive: Coroutine[Any, Any, _Returned]) -> _Returned:
    """Await the drive of a run. If this is cancelled, calls that change something finish before the drive is cancelled.

    A second cancellation cancels the drive at once.
    """
    async with BareTaskGroup() as jobs:
        job = jobs.create_task(drive)
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            await runner.finish_effects()
            job.cancel()
            raise
    return job.result()


# --- a run and its entries in one loop


async def follow(
    journal: Journal,
    executor: Executor,
    run: str,
    request: ev.RunRequested,
    also: Sequence[ev.Event] = (),
    callbacks: Callbacks | None = None,
) -> AsyncGenerator[ev.Entry]:
    """Start a run and yield its entries once they are written, until it has ended or waits for a person.

    Leaving early stops it; it can be resumed. What the runner raises is raised after the last entry.
    """
    line: asyncio.Queue[Sequence[ev.Entry]] = asyncio.Queue()
    trouble: list[Exception] = []
    runner = Runner(journal, executor, listener=lambda _run, entries: line.put_nowait(entries), callbacks=callbacks)

    async def drive() -> None:
        try:
            await runner.start(run, request, also=also)
        except Exception as error:  # noqa: BLE001 - raised below: from a group it would cancel the reader
            trouble.append(error)
        finally:
            line.put_nowait(())

    async with BareTaskGroup() as jobs:  # that the reader left must reach it as such
        job = jobs.create_task(drive())
        try:
            while entries := await line.get():
                for entry in entries:
                    yield entry
        finally:
            await runner.finish_effects()
            job.cancel()
    if trouble:
        raise trouble[0]


_LEAVING = 10.0
"""How many seconds a stream that was left has to stop its run."""


class _Reading:
    """A stream that holds its run. `closed` is set when it has let go of it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = asyncio.Event()


class OpenStreams:
    """The streams of a team, by run, so that a run whose stream was left can be resumed at once.

    Leaving `async for` does not close a generator: Python does so later, and not at all while a variable holds it.
    """

    def __init__(self) -> None:
        self._generators: weakref.WeakValueDictionary[str, AsyncGenerator[ev.Entry]] = weakref.WeakValueDictionary()
        self._readings: dict[str, _Reading] = {}

    def remember(self, run: str, entries: AsyncGenerator[ev.Entry]) -> None:
        self._generators[run] = entries

    @contextmanager
    def reading(self, run: str) -> Generator[None]:
        """Within the generator of a stream: while it may hold the run."""
        reading = self._readings[run] = _Reading()
        try:
            yield
        finally:
            reading.closed.set()
            if self._readings.get(run) is reading:
                del self._readings[run]

    async def close_left(self, run: str) -> None:
        """Close the stream of a run if it is not read any more, and wait until the run is released."""
        reading = self._readings.get(run)
        if reading is None or reading.loop is not asyncio.get_running_loop():
            return
        entries = self._generators.get(run)
        if entries is None:  # it is not referenced, so Python is closing it
            with suppress(TimeoutError):
                await asyncio.wait_for(reading.closed.wait(), _LEAVING)
        elif isinstance(entries, AsyncGeneratorType) and not entries.ag_running:
            await entries.aclose()
