"""Runs inside runs: a step of an attempt starts a run and waits for it.

Teams that work for others, messages between workers, and workers in other processes use this. What such a run is asked,
and what is made of its outcome, is decided by the executor that starts it. It is driven in this process, or by the
processes of its queue.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Raw, Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, usd_of
from chargehand.engine.facts import CallsLost
from chargehand.engine.failure import EFFECT_IN_DOUBT, STARTS_RUN, EarlierCall, Failure, Gap, Question
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId, digest
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, Roster
from chargehand.engine.state import Progress, RunState, Status, Step, Work, call_digest
from chargehand.engine.view import call_gaps, work_until
from chargehand.errors import ChargehandError, Refused, RunBusy, RunUnknown, StoreUnavailable
from chargehand.journal.protocol import Journal
from chargehand.runtime.dispatch_port import Dispatcher
from chargehand.runtime.executor import Executor, NestedRequest, NestedRun, RunBounds, WorkFailed

# seconds of its own time that an attempt keeps for what it makes of the outcome, but at most a fifth
_KEPT: dict[ev.NestedKind, Seconds] = {"team": 10.0, "message": 10.0, "worker": 1.0}
_PATIENCE = 5.0  # seconds that a run has to write down that it was cancelled
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_Outcome = TypeVar("_Outcome")
logger = logging.getLogger(__name__)


class NestingRunner(Protocol):
    """What is needed of a runner."""

    @property
    def journal(self) -> Journal: ...

    @property
    def dispatcher(self) -> Dispatcher | None:
        """Has runs with a queue driven by other processes; None: all are driven in this one."""
        ...

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    async def create(self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = ()) -> None:
        """Write a new run that is driven by no process yet."""
        ...

    async def start(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = (), quiet: bool = False
    ) -> object: ...

    async def resume(self, run: str, *also: ev.Event, quiet: bool = False) -> object: ...

    async def ask(self, run: str, report: ev.Event) -> None: ...

    def nested_runner(self, executor: Executor) -> "NestingRunner":
        """The runner for runs of another executor on the same journal and by the same clocks."""
        ...


class StartingStep(Struct, frozen=True):
    """An open step that starts a run."""

    run: str
    state: RunState
    task: TaskId
    attempt: int
    number: int

    @property
    def progress(self) -> Progress:
        return self.state.tasks[self.task]

    @property
    def record(self) -> Step:
        return (self.progress.steps or {})[self.number]

    @property
    def nested_run(self) -> str:
        """The name of the run: a step that is repeated after a crash finds the run it began."""
        return ev.nested_run_name(
            run=self.run, task=self.task, attempt=self.attempt, step=self.number, request=self.record.request
        )

    def time_kept(self, kind: ev.NestedKind) -> Seconds:
        """The time that its attempt keeps for itself."""
        return min(_KEPT[kind], max(0.0, self.progress.timer - self.state.at) / 5)

    @property
    def is_owed(self) -> bool:
        """Whether the run still waits for the attempt that makes this step."""
        return Work("attempt", self.task, self.attempt) in self.state.owing

    def parent(self, kind: ev.NestedKind) -> ev.Parent:
        outer = self.state.requested.parent
        worker = self.progress.worker
        waiting = outer.waiting if outer and kind != "team" else ()
        return ev.Parent(
            run=self.run,
            root=self.run if outer is None else outer.root,
            task=self.task,
            attempt=self.attempt,
            step=self.number,
            worker=worker,
            nesting=nesting_of(self.state.requested) + (kind != "worker"),
            kind=kind,
            waiting=(*waiting, worker) if kind == "message" else waiting,
        )

    def origin(self, kind: ev.NestedKind) -> str:
        """Return what idempotency keys in the nested run begin with: the same for an equal step of another attempt."""
        own = self.state.origin or self.run
        return own if kind == "worker" else f"{own}/{self.task}/{self.record.request[:8]}"

    def seed(self) -> int:
        return int(digest(self.nested_run, str(self.state.requested.seed))[:8], 16)


def _parent_of(requested: ev.RunRequested) -> ev.Parent | None:
    return requested.parent


def nesting_of(requested: ev.RunRequested) -> int:
    """How many runs a run is inside of, without those of single workers."""
    return 0 if requested.parent is None else requested.parent.nesting


class NestedRuns:
    """Starts the runs inside the runs of one runner, and drives them to their end."""

    def __init__(self, runner: NestingRunner) -> None:
        self._runner = runner

    @property
    def journal(self) -> Journal:
        return self._runner.journal

    async def start(self, step: StartingStep, nested: NestedRequest) -> NestedRun:
        """Start the run of a step, or go on with it, or read it back where it has ended."""
        earlier = None if nested.kind == "worker" else await self._earlier_with_effects(step)
        if earlier is not None:
            return earlier
        driver = self._driver_for(nested)
        paid = await self._paid_before(step)
        request = _bounded_request(step, nested, step.record.reserved + paid)
        answer = None if nested.answer is None else structs.replace(nested.answer, budget=request.budget)
        run = step.nested_run

        async def drive() -> None:
            also = () if nested.offer is None else await nested.offer(self.journal, request)
            await driver.drive(run, request, also=also, answer=answer)

        await _drive_while_owed(driver, step, drive)
        entries = await _patiently(partial(self.journal.read, run))
        state = replay(entries)
        if state.ended is None and not nested.may_ask:
            await driver.end(run, ev.CancelRequested("no person can be asked from inside a message"))
        return NestedRun(
            run=run,
            state=state,
            entries=entries,
            calls=await _patiently(partial(list_calls, self.journal, run, entries, state)),
            used=state.ledger.spent.beyond(paid),
            lost=await self._newly_lost(step.run, run, state.ledger.lost),
            had_all_time=step.progress.timer >= work_until(step.state),
            waiting=() if state.ended is not None else _outer_gaps(step.progress, run, nested.kind, call_gaps(state)),
        )

    async def end_inside(self, run: str, state: RunState, task: TaskId, attempt: int) -> ev.AttemptStopped:
        """End the runs inside an attempt that was stopped; return their refused calls and effects in doubt, and cost.

        The cost of a run that does not end in time is not known.
        """
        entries = await self.journal.read(run)
        gaps: list[Gap] = []
        used: Amount | None = NOTHING
        lost = NOTHING
        begun = [step for step in _steps_begun(entries, task, attempt) if step.kind in STARTS_RUN]
        for name, step in {step.nested_run(run): step for step in begun}.items():
            if not await _read_if_known(self.journal, name):
                continue
            await self._end(name)
            inside = replay(await self.journal.read(name))
            gaps += _outer_gaps(state.tasks[task], name, step.kind, call_gaps(inside))
            lost += await self._newly_lost(run, name, inside.ledger.lost)
            if inside.ended is None:
                used = None
            elif used is not None:
                used += inside.ledger.spent.beyond(_paid_for(entries, task, attempt, step.step))
        return ev.AttemptStopped(task, attempt, gaps=tuple(gaps), used=used, lost=None if lost == NOTHING else lost)

    async def _end(self, run: str) -> None:
        row = await self.journal.row(run)
        if row.ended is not None or row.request is None:
            return
        dispatcher = self._runner.dispatcher
        with suppress(ChargehandError, TimeoutError):  # it ends by its deadline
            async with asyncio.timeout(_PATIENCE):
                if dispatcher is not None and row.request.queue:
                    await cancel_shared(self._runner, dispatcher, run, _NOT_OWED, quiet=True)
                else:
                    await self._runner.resume(run, _NOT_OWED, quiet=True)

    async def _newly_lost(self, outer: str, run: str, lost: Amount) -> Amount:
        """Return the part of what calls of a nested run lost that the run around it does not know of yet."""
        if lost == NOTHING:
            return NOTHING
        facts = [entry.event.fact for entry in await self.journal.read(outer) if isinstance(entry.event, ev.Noted)]
        known = [fact.used for fact in facts if isinstance(fact, CallsLost) and fact.run == run]
        return lost.beyond(sum(known, NOTHING))

    def _driver_for(self, nested: NestedRequest) -> "NestedDriver":
        runner = self._runner if nested.executor is None else self._runner.nested_runner(nested.executor)
        if nested.queue and runner.dispatcher is not None:
            return _RemoteDriver(runner, runner.dispatcher, nested.queue)
        return _LocalDriver(runner)

    async def share(self, run: str, state: RunState, task: TaskId, estimate: Amount, own: Budget) -> Amount:
        """Return what the run of a team may use: its estimate, else a fair share of what is left.

        After a crash a run keeps what was reserved for it. After a question it may use what is left of its caps, as far
        as the run around it still has that.
        """
        progress = state.tasks[task]
        if progress.carried:
            return sum(progress.carried.values(), NOTHING)
        if progress.resumes and state.ledger.capped:
            entries = await self.journal.read(run)
            for started in _steps_begun(entries, task, progress.attempt):
                if started.kind not in STARTS_RUN:
                    continue
                inner = await _read_if_known(self.journal, started.nested_run(run))
                if inner:
                    paid = _paid_for(entries, task, progress.attempt, started.step)
                    return _share_left(state, replay(inner).requested.budget.caps.beyond(paid))
        return _fair_share(state, estimate, own)

    async def _paid_before(self, step: StartingStep) -> Amount:
        """Return what was charged for a step before it was begun again."""
        if not step.progress.resumes:
            return NOTHING
        return _paid_for(await self.journal.read(step.run), step.task, step.attempt, step.number)

    async def _earlier_with_effects(self, step: StartingStep) -> NestedRun | None:
        """The run that an earlier attempt started for the same, if it had effects: it is read back, not done again."""
        if step.attempt == 1:
            return None
        for event in [entry.event for entry in await self.journal.read(step.run)]:
            if not isinstance(event, ev.StepStarted) or event.task != step.task or event.attempt >= step.attempt:
                continue
            if event.request != step.record.request:
                continue
            run = event.nested_run(step.run)
            entries = await _read_if_known(self.journal, run)
            if not entries or not isinstance(entries[-1].event, ev.RunEnded):
                continue
            state = replay(entries)
            if calls := await list_calls(self.journal, run, entries, state):
                return NestedRun(run=run, state=state, entries=entries, calls=calls, used=NOTHING)
        return None

    async def with_effects(self, run: str, state: RunState, brief: Brief) -> Brief:
        """Return the brief of an attempt with what earlier attempts at its task did in other processes.

        An attempt that goes on from the last one gets its finished steps, another one the effects of all.

        Raises:
            WorkFailed: it is not known whether one of the effects happened.
        """
        is_remote = any(agent.queue for agent in state.requested.roster.agents)
        if self._runner.dispatcher is None or not is_remote:
            return brief
        effects = dict(brief.effects or {})
        failed_calls = dict(brief.failed_calls or {})
        answers: dict[str, str] = {}
        replies: dict[str, Raw] = {}
        steps: dict[int, Step] = {}
        for event in [entry.event for entry in await self.journal.read(run)]:
            if not isinstance(event, ev.StepStarted) or event.kind != "worker" or event.task != brief.work.task:
                continue
            entries = await _read_if_known(self.journal, event.nested_run(run))
            if event.attempt >= brief.work.number or not entries:
                continue
            progress = replay(entries).tasks[event.task]
            if progress.in_doubt():
                raise WorkFailed(EFFECT_IN_DOUBT, NOTHING)
            effects |= progress.list_effects()
            answers |= progress.answers or {}
            replies |= progress.replies or {}
            if brief.keep and event.attempt == brief.work.number - 1:
                kept = (progress.steps or {}).items()
                steps |= {number: step for number, step in kept if step.result is not None}
            elif not brief.keep:
                failed_calls |= progress.count_failed_calls()
        return structs.replace(
            brief,
            effects=brief.effects if brief.keep else effects,
            failed_calls=failed_calls,
            answers=answers | (brief.answers or {}),
            replies=replies | (brief.replies or {}),
            steps_elsewhere=steps,
        )


def _outer_gaps(progress: Progress, run: str, kind: str, found: Sequence[Gap]) -> tuple[Gap, ...]:
    """Return gaps of a nested run as gaps of the task whose attempt started it."""
    task = progress.task.id
    if kind == "worker":
        return tuple(structs.replace(gap, task=task) for gap in found)
    return tuple(
        structs.replace(
            gap,
            task=task,
            worker=" > ".join(filter(None, (progress.worker, gap.worker))),
            run=gap.run or run,
            inner=gap.inner or gap.task,
        )
        for gap in found
    )


def _paid_for(entries: Sequence[ev.Entry], task: TaskId, attempt: int, number: int) -> Amount:
    """Return what was charged for a step by the times it was begun before the last.

    A question of its run ends a step with what the run used until then. A crash charges nothing while the run can be
    resumed; journals that do not say so were charged all that was reserved.
    """
    paid = NOTHING
    begun: ev.StepStarted | None = None
    for event in (entry.event for entry in entries):
        if not isinstance(event, ev.StepStarted | ev.StepFailed):
            continue
        if (event.task, event.attempt, event.step) != (task, attempt, number):
            continue
        if isinstance(event, ev.StepFailed):
            paid += event.used or NOTHING
            begun = None
            continue
        if begun is not None and not begun.resumable:
            paid += begun.reserve or NOTHING
        begun = event
    return paid


def _share_left(state: RunState, left: Amount) -> Amount:
    """Return how much of what is left of the caps of a nested run the run around it has for it."""
    budget = state.requested.budget
    return budget.counted(left.min(state.ledger.room(budget.floor.max(state.answer_cost))))


def _steps_begun(entries: Sequence[ev.Entry], task: TaskId, attempt: int) -> list[ev.StepStarted]:
    started = [entry.event for entry in entries if isinstance(entry.event, ev.StepStarted)]
    return [event for event in started if event.task == task and event.attempt == attempt]


# --- requests


def identify_brief(brief: Brief) -> str:
    """What an attempt asks a run for, as its step records it."""
    inputs = [f"{source.task} {bytes(source.value or b'').decode()} {source.gaps}" for source in brief.inputs]
    files = [source.file.id for source in brief.inputs if source.file is not None]
    return digest(brief.instruction, *inputs, *files)


def material_of(brief: Brief) -> tuple[ev.Material, ...]:
    """The inputs of an attempt, for the run that does its work."""
    return tuple(
        ev.Material(source.task, source.value or ev.NULL, source.gaps, source.tracing, source.file)
        for source in brief.inputs
    )


def request_tasks(base: ev.RunRequested, agents: Sequence[Agent], tasks: Sequence[Task]) -> ev.RunRequested:
    """The request of a run of these tasks alone: nothing is planned or approved, and no answer is written."""
    limits = structs.replace(base.policy.limits, max_tasks=max(base.policy.limits.max_tasks, len(tasks)), replans=0)
    return structs.replace(
        base,
        roster=Roster(tuple(agents)),
        policy=structs.replace(base.policy, limits=limits, refine=False, approve=False, answer=0.0),
        plan=Plan(tuple(tasks), "none", base.goal),
        budget=structs.replace(base.budget, floor=NOTHING),
    )


# --- starting, going on, cancelling


def _bounded_request(step: StartingStep, nested: NestedRequest, reserved: Amount) -> ev.RunRequested:
    """The request of a nested run, within the time, the money and the depth that its step allows."""
    outer = step.state.requested
    time_kept = step.time_kept(nested.kind)
    deadline = step.progress.timer - time_kept
    bounds = RunBounds(at=step.state.at, budget=_budget_within(outer.budget, reserved), deadline=deadline)
    request = nested.request(bounds)
    limits = request.policy.limits
    limits = structs.replace(limits, max_nesting=min(limits.max_nesting, outer.policy.limits.max_nesting))
    grace = min(request.policy.grace, time_kept / 2)
    return structs.replace(
        request,
        budget=request.budget.limited(bounds.budget.caps),
        policy=structs.replace(request.policy, limits=limits, grace=grace),
        deadline=min(request.deadline, deadline),
        seed=outer.seed if nested.kind == "worker" else step.seed(),
        origin=step.origin(nested.kind),
        origin_mark=step.state.origin_mark,
        parent=step.parent(nested.kind),
        queue=nested.queue or request.queue,
        scope=outer.scope,
    )


def _budget_within(outer: Budget, reserved: Amount) -> Budget:
    """What a step holds, as the caps of the run it starts; what is not capped outside is not capped inside."""
    return Budget(
        tokens=None if outer.tokens is None else reserved.tokens,
        usd=None if outer.usd is None else usd_of(reserved.micros),
        calls=None if outer.calls is None else reserved.calls,
    )


def _fair_share(state: RunState, estimate: Amount, own: Budget) -> Amount:
    """What a team may use: its estimate, else as much as every other open task. The cost of the answer is kept back."""
    budget = state.requested.budget
    if not state.ledger.capped:
        return NOTHING
    open_tasks = [task for task in state.tasks.values() if not task.settled and task.status is not Status.EXPANDED]
    claims = sum(not _has_share(task) for task in open_tasks) + (not state.closed)
    fair = state.ledger.room(budget.floor.max(state.answer_cost)) // max(1, claims)
    wanted = Amount(
        tokens=estimate.tokens or fair.tokens, micros=estimate.micros or fair.micros, calls=estimate.calls or fair.calls
    )
    return budget.counted(wanted.min(own.caps))


def _has_share(progress: Progress) -> bool:
    if progress.carried:
        return True
    return any(step.result is None and step.kind in STARTS_RUN for step in (progress.steps or {}).values())


async def _drive_while_owed(driver: "NestedDriver", step: StartingStep, start: Callable[[], Awaitable[None]]) -> None:
    """Drive the run of a step to its end, or cancel it once the run around it no longer waits for the step.

    Where this process is told to stop, it stays open, to be resumed; one that other processes drive goes on.
    """
    errors: list[ChargehandError] = []
    nested_run = step.nested_run  # an attempt that a person stops forgets its steps

    async def drive() -> None:
        try:
            await start()
        except ChargehandError as error:  # raised bare below; from a group it would arrive wrapped
            errors.append(error)

    async with asyncio.TaskGroup() as jobs:
        job = jobs.create_task(drive())
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            if not step.is_owed:
                await driver.cancel(nested_run, job)
            raise
    if errors:
        raise errors[0]


class NestedDriver(Protocol):
    """Has the run of a step driven until it has ended or waits for a person."""

    async def drive(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event], answer: ev.InputAnswered | None
    ) -> None:
        """Start a run, or go on with it; one that has ended is left alone.

        `also` is written along with the request of a new run, `answer` is a person's to the question that it asked.
        """
        ...

    async def cancel(self, run: str, job: asyncio.Task[None]) -> None:
        """Cancel a run, and whatever runs inside it, so that it is written down. `job` is its `drive`."""
        ...

    async def end(self, run: str, cancel: ev.CancelRequested) -> None:
        """Cancel a run that waits for a person."""
        ...


class _LocalDriver(Struct, frozen=True):
    """Drives runs in this process."""

    runner: NestingRunner

    async def drive(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event], answer: ev.InputAnswered | None
    ) -> None:
        await start_or_resume(self.runner, run, request, _parent_of, also=also, answer=answer, quiet=True)

    async def cancel(self, run: str, job: asyncio.Task[None]) -> None:
        is_begun = True
        try:
            await self.runner.ask(run, _NOT_OWED)
        except Refused:
            is_begun = run in self.runner.under_way  # then it has ended, and waits for workers that clean up
        if not is_begun:
            job.cancel()
        await asyncio.wait({job}, timeout=_PATIENCE)
        if not is_begun:
            with suppress(ChargehandError):
                await self.end(run, _NOT_OWED)

    async def end(self, run: str, cancel: ev.CancelRequested) -> None:
        await self.runner.resume(run, cancel, quiet=True)


class _RemoteDriver(Struct, frozen=True):
    """Has runs driven by the processes of a queue."""

    runner: NestingRunner
    dispatcher: Dispatcher
    queue: str

    async def drive(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event], answer: ev.InputAnswered | None
    ) -> None:
        # a store that is away for a moment does not end what goes on elsewhere
        await _patiently(partial(self._drive, run, request, also, answer))

    async def _drive(
        self, run: str, request: ev.RunRequested, also: Sequence[ev.Event], answer: ev.InputAnswered | None
    ) -> None:
        state: RunState | None = None
        try:
            await self.runner.create(run, request, also=also)
        except Refused:  # it exists already
            state = await _open_state(self.runner.journal, run, request, _parent_of)
            if state is None:
                raise
        if state is not None and (answers := _open_answers(state, answer)):
            await self.dispatcher.tell(run, answers[0])
        elif state is None or state.ended is None:
            await self.dispatcher.begin(run, queue=self.queue)
        await self.dispatcher.wait(run)

    async def cancel(self, run: str, job: asyncio.Task[None]) -> None:
        job.cancel()
        await asyncio.wait({job}, timeout=_PATIENCE)
        with suppress(ChargehandError, TimeoutError):  # it was not begun, it has ended, or it will end by its deadline
            async with asyncio.timeout(_PATIENCE):
                await self.end(run, _NOT_OWED)

    async def end(self, run: str, cancel: ev.CancelRequested) -> None:
        await self.dispatcher.tell(run, cancel)


async def _patiently(call: Callable[[], Awaitable[_Outcome]]) -> _Outcome:
    """Make a call that may be repeated until the store answers; the time of the attempt bounds it."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            logger.warning("a nested run is held up: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


_NOT_OWED = ev.CancelRequested("the run around it does not wait for it any more")


async def start_or_resume(
    runner: NestingRunner,
    run: str,
    request: ev.RunRequested,
    identify: Callable[[ev.RunRequested], object],
    *,
    also: Sequence[ev.Event] = (),
    answer: ev.InputAnswered | None = None,
    quiet: bool = False,
) -> None:
    """Start a run, or go on with it; one that has ended is left alone. Refused for another run of this name.

    `identify` says what two requests must have in common. `also` is written along with the request of a new run,
    `answer` is a person's to the question that an old one asked.
    """
    state = await _open_state(runner.journal, run, request, identify)
    if state is None:
        await runner.start(run, request, also=also, quiet=quiet)
    elif state.ended is None:
        await runner.resume(run, *_open_answers(state, answer), quiet=quiet)


async def _open_state(
    journal: Journal, run: str, request: ev.RunRequested, identify: Callable[[ev.RunRequested], object]
) -> RunState | None:
    """How a run stands; None if there is none. Refused for another run of this name."""
    entries = await _read_if_known(journal, run)
    if not entries:
        return None
    first = entries[0].event
    if not isinstance(first, ev.RunRequested) or identify(first) != identify(request):
        raise Refused(f"run {run!r} exists already and is not this one; choose another name")
    return replay(entries)


def _open_answers(state: RunState, answer: ev.InputAnswered | None) -> tuple[ev.InputAnswered, ...]:
    """The answer if its question is open; else it has arrived already, before a crash."""
    is_open = answer is not None and state.input is not None and state.input.number == answer.number
    return (answer,) if answer is not None and is_open else ()


# --- what a run, and the runs inside it, did


async def list_calls(
    journal: Journal, run: str, entries: Sequence[ev.Entry], state: RunState
) -> tuple[EarlierCall, ...]:
    """Return the calls of a run, of the runs inside it, and of earlier runs it does again, that changed something.

    Calls that may have happened are among them. The attempts of a worker in another process count as the run's own.
    """
    calls = [call for round_, call in state.acted.values() if round_ < 0]
    for progress in state.tasks.values():
        calls += [call if call.run else structs.replace(call, run=run) for call in progress.list_calls()]
    async for step, inner in _read_runs_started(journal, run, entries):
        name = step.nested_run(run)
        own = run if step.kind == "worker" else name
        inside = await list_calls(journal, name, inner, replay(inner))
        calls += [structs.replace(call, run=own) if call.run == name else call for call in inside]
    replaced = {task: progress.task.replaces for task, progress in state.tasks.items() if progress.task.replaces}
    for call in tuple(calls) if replaced else ():  # a run that does this one again may have the replaced task
        if call.run == run and call.task in replaced:
            calls.append(structs.replace(call, task=replaced[call.task]))
    return tuple({_identify_call(call): call for call in calls}.values())


async def list_replies(
    journal: Journal, run: str, entries: Sequence[ev.Entry], state: RunState
) -> dict[TaskId, dict[str, Raw]]:
    """Return what persons answered to questions in words of a run and the runs inside it, by task of the run."""
    replies = {task: dict(progress.replies) for task, progress in state.tasks.items() if progress.replies}
    for task, offered in state.offered_replies.items():
        replies[task] = {**offered, **replies.get(task, {})}
    async for step, inner in _read_runs_started(journal, run, entries):
        for inside in (await list_replies(journal, step.nested_run(run), inner, replay(inner))).values():
            replies[step.task] = {**inside, **replies.get(step.task, {})}
    return replies


async def _read_runs_started(
    journal: Journal, run: str, entries: Sequence[ev.Entry]
) -> AsyncGenerator[tuple[ev.StepStarted, list[ev.Entry]]]:
    """Yield the steps that started runs, with the entries of the run."""
    for step in (entry.event for entry in entries):
        if isinstance(step, ev.StepStarted) and step.effect == "idempotent":  # such a step may have started a run
            inner = await _read_if_known(journal, step.nested_run(run))
            if inner:
                yield step, inner


def _identify_call(call: EarlierCall) -> tuple[str, str, str, Instant]:
    return call.run, call.task, call_digest(call.tool, call.arguments), call.at


async def requests_around(
    journal: Journal, request: ev.RunRequested, requests_by_run: dict[str, ev.RunRequested]
) -> list[ev.RunRequested]:
    """The request of a run, after those of the runs it is inside of, the outermost first.

    `requests_by_run` need not be read; those that are read are added.
    """
    requests = [request]
    while (parent := requests[0].parent) is not None:
        outer = requests_by_run.get(parent.run)
        if outer is None:
            outer = (await journal.row(parent.run)).request
            if outer is None:
                raise Refused(f"run {parent.run!r} cannot be read; `chargehand runs show` says what is wrong with it")
            requests_by_run[parent.run] = outer
        requests.insert(0, outer)
    return requests


async def _read_if_known(journal: Journal, run: str) -> list[ev.Entry]:
    try:
        return await journal.read(run)
    except RunUnknown:
        return []


async def runs_waiting_inside(journal: Journal, run: str, state: RunState) -> list[str]:
    """The runs inside a run that wait for a person, each before those inside it."""
    failures = [progress.failure for progress in state.tasks.values() if progress.failure is not None]
    questions = [failure.question for failure in failures if failure.question is not None]
    if state.input is not None and state.input.question is not None:
        questions.append(state.input.question)
    names: dict[str, None] = {}
    for question in questions:
        path: list[str] = []
        inner = question.run
        while inner and inner != run:
            path.append(inner)
            entries = await _read_if_known(journal, inner)
            first = entries[0].event if entries else None
            parent = first.parent if isinstance(first, ev.RunRequested) else None
            inner = "" if parent is None else parent.run
        if inner == run:
            names |= dict.fromkeys(reversed(path))
    return list(names)


async def cancel_shared(
    runner: NestingRunner, dispatcher: Dispatcher, run: str, cancel: ev.CancelRequested, *, quiet: bool = False
) -> None:
    """Cancel a run that any process may drive; one that none drives is cancelled here, and no worker waited for."""
    try:
        await runner.resume(run, cancel, quiet=quiet)
    except RunBusy:
        await dispatcher.tell(run, cancel)


async def cancel_remote_runs(runner: NestingRunner, dispatcher: Dispatcher, run: str) -> None:
    """Cancel the runs directly inside a run that has ended which other processes still drive.

    An earlier process of the run began them, and crashed.
    """
    for name in await runner.journal.inside(run):
        row = await runner.journal.row(name)
        parent = None if row.request is None else row.request.parent
        if row.ended is None and row.request is not None and row.request.queue and parent and parent.run == run:
            with suppress(ChargehandError):  # it has just ended
                await cancel_shared(runner, dispatcher, name, _NOT_OWED, quiet=True)


# --- questions to a person


def question_inside(nested: NestedRun, *, workers: tuple[str, ...]) -> WorkFailed:
    """The question that a nested run waits with, as one of the attempt that waits for it.

    `workers` are those that the attempt adds to the ones who want it.
    """
    state = nested.state
    request = state.input
    assert request is not None, "it waits for a person"
    inner = request.question or Question(request.what)
    if not inner.run:  # it asks itself, and not one inside it
        progress = state.tasks.get(request.task)
        own = (progress.worker,) if progress is not None and not inner.workers else inner.workers
        inner = structs.replace(inner, what=request.what, workers=own, run=nested.run, task=request.task)
    text = request.text
    if request.what == "plan" and not request.task:
        planned = [progress.task for progress in state.tasks.values() if progress.parent is None]
        tasks = [task for task in planned if state.tasks[task.id].round == state.round]
        listed = tuple(f"{task.id} ({task.worker or 'any worker'}): {task.instruction}" for task in tasks)
        inner = structs.replace(inner, plan=listed)
        text = "; ".join(listed)
    question = structs.replace(inner, workers=(*workers, *inner.workers), number=request.number)
    return WorkFailed(Failure("approval", text, question=question, gaps=nested.waiting), nested.used)
