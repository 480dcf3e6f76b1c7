"""Runs inside runs: a step of an attempt starts a run and waits for it.

Teams that work for others and messages between workers both use this. What such a run is asked, and what is made of its
outcome, is decided by the executor that starts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, cast

from msgspec import Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, usd_of
from chargehand.engine.failure import Failure, Question
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId, digest
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import Progress, RunState, Status, Step, Work
from chargehand.engine.value import encode_value
from chargehand.errors import ChargehandError, Refused, RunUnknown
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import Executor, NestedRequest, NestedRun, RunBounds, WorkFailed
from chargehand.runtime.trace import TaskTrace, trace

_KEPT = 10.0  # seconds of its own time that an attempt keeps for what it makes of the outcome, but at most a fifth
_PATIENCE = 5.0  # seconds that a run has to write down that it was cancelled


class NestingRunner(Protocol):
    """What is needed of a runner."""

    @property
    def journal(self) -> Journal: ...

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    async def start(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = (), quiet: bool = False
    ) -> object: ...

    async def resume(self, run: str, *also: ev.Event, quiet: bool = False) -> object: ...

    async def ask(self, run: str, report: ev.Event) -> None: ...

    def nested_runner(self, executor: Executor) -> "NestingRunner":
        """A runner for runs of another executor on the same journal and by the same clocks."""
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

    @property
    def kept(self) -> Seconds:
        """The time that its attempt keeps for itself."""
        return min(_KEPT, max(0.0, self.progress.timer - self.state.at) / 5)

    @property
    def deadline(self) -> Instant:
        return self.progress.timer - self.kept

    @property
    def is_owed(self) -> bool:
        """Whether the run still waits for the attempt that makes this step."""
        return Work("attempt", self.task, self.attempt) in self.state.owing

    def parent(self, kind: ev.NestedKind) -> ev.Parent:
        outer = self.state.requested.parent
        worker = self.progress.worker
        waiting = (*(outer.waiting if outer else ()), worker) if kind == "message" else ()
        return ev.Parent(
            run=self.run,
            root=self.run if outer is None else outer.root,
            task=self.task,
            attempt=self.attempt,
            step=self.number,
            worker=worker,
            nesting=nesting_of(self.state.requested) + 1,
            kind=kind,
            waiting=waiting,
        )

    def seed(self) -> int:
        return int(digest(self.nested_run, str(self.state.requested.seed))[:8], 16)


def _parent_of(requested: ev.RunRequested) -> ev.Parent | None:
    return requested.parent


def nesting_of(requested: ev.RunRequested) -> int:
    """How many runs a run is inside of."""
    return 0 if requested.parent is None else requested.parent.nesting


class NestedRuns:
    """Starts the runs inside the runs of one runner, and drives them to their end."""

    def __init__(self, runner: NestingRunner) -> None:
        self._runner = runner
        self._nested_runners: dict[Executor, NestingRunner] = {}

    @property
    def journal(self) -> Journal:
        return self._runner.journal

    async def start(self, step: StartingStep, nested: NestedRequest) -> NestedRun:
        """Start the run of a step, or go on with it, or read it back where it has ended."""
        earlier = await self._earlier_with_effects(step)
        if earlier is not None:
            return earlier
        runner = self._runner_for(nested.executor)
        paid = await self._paid_before(step)
        request = _bounded_request(step, nested, step.record.reserved + paid)
        run = step.nested_run

        async def drive() -> None:
            also = () if nested.offer is None else await nested.offer(self.journal, request)
            await start_or_resume(runner, run, request, _parent_of, also=also, answer=nested.answer, quiet=True)

        await _drive_while_owed(runner, step, drive)
        entries = await self.journal.read(run)
        state = replay(entries)
        if state.ended is None and not nested.may_ask:
            await runner.resume(run, ev.CancelRequested("no person can be asked from inside a message"), quiet=True)
        return NestedRun(
            run=run,
            state=state,
            entries=entries,
            had_effects=await had_effects(self.journal, run, entries),
            used=state.ledger.spent.beyond(paid),
        )

    def _runner_for(self, executor: Executor | None) -> NestingRunner:
        if executor is None:
            return self._runner
        runner = self._nested_runners.get(executor)
        if runner is None:
            runner = self._nested_runners[executor] = self._runner.nested_runner(executor)
        return runner

    async def share(self, run: str, state: RunState, task: TaskId, estimate: Amount, own: Budget) -> Amount:
        """What the run of a team may use: its estimate, else a fair share of what is left.

        Nothing where a crash has charged the attempt with it already.
        """
        progress = state.tasks[task]
        if progress.resumes:
            begun = _steps_begun(await self.journal.read(run), task, progress.attempt)
            if any(started.kind == "subteam" and started.reserve for started in begun):
                return NOTHING
        return _fair_share(state, estimate, own)

    async def _paid_before(self, step: StartingStep) -> Amount:
        """What the attempt was charged for this step by crashes."""
        if not step.progress.resumes:
            return NOTHING
        begun = _steps_begun(await self.journal.read(step.run), step.task, step.attempt)
        reserves = [started.reserve or NOTHING for started in begun if started.step == step.number]
        return sum(reserves[:-1], NOTHING)

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
            has_ended = bool(entries) and isinstance(entries[-1].event, ev.RunEnded)
            if has_ended and await had_effects(self.journal, run, entries):
                return NestedRun(run=run, state=replay(entries), entries=entries, had_effects=True, used=NOTHING)
        return None


def _steps_begun(entries: Sequence[ev.Entry], task: TaskId, attempt: int) -> list[ev.StepStarted]:
    started = [entry.event for entry in entries if isinstance(entry.event, ev.StepStarted)]
    return [event for event in started if event.task == task and event.attempt == attempt]


# --- starting, going on, cancelling


def _bounded_request(step: StartingStep, nested: NestedRequest, reserved: Amount) -> ev.RunRequested:
    """The request of a nested run, within the time, the money and the depth that its step allows."""
    outer = step.state.requested
    bounds = RunBounds(at=step.state.at, budget=_budget_within(outer.budget, reserved), deadline=step.deadline)
    request = nested.request(bounds)
    limits = request.policy.limits
    limits = structs.replace(limits, max_nesting=min(limits.max_nesting, outer.policy.limits.max_nesting))
    grace = min(request.policy.grace, step.kept / 2)
    return structs.replace(
        request,
        budget=request.budget.limited(bounds.budget.caps),
        policy=structs.replace(request.policy, limits=limits, grace=grace),
        deadline=min(request.deadline, step.deadline),
        seed=step.seed(),
        parent=step.parent(nested.kind),
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
    open_tasks = [task for task in state.tasks.values() if not task.settled and task.status is not Status.EXPANDED]
    claims = sum(not _has_share(task) for task in open_tasks) + (not state.closed)
    fair = state.ledger.room(budget.floor.max(state.requested.roster.supervision)) // max(1, claims)
    wanted = Amount(
        tokens=estimate.tokens or fair.tokens, micros=estimate.micros or fair.micros, calls=estimate.calls or fair.calls
    )
    return budget.counted(wanted.min(own.caps))


def _has_share(progress: Progress) -> bool:
    return any(step.result is None and step.kind == "subteam" for step in (progress.steps or {}).values())


async def _drive_while_owed(runner: NestingRunner, step: StartingStep, start: Callable[[], Awaitable[None]]) -> None:
    """Drive the run of a step to its end, or cancel it once the run around it no longer waits for the step.

    Where this process is told to stop, it stays open, to be resumed.
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
                await _cancel_run(runner, nested_run, job)
            raise
    if errors:
        raise errors[0]


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
    entries = await _read_if_known(runner.journal, run)
    if not entries:
        await runner.start(run, request, also=also, quiet=quiet)
        return
    first = entries[0].event
    if not isinstance(first, ev.RunRequested) or identify(first) != identify(request):
        raise Refused(f"run {run!r} exists already and is not this one; choose another name")
    state = replay(entries)
    if state.ended is not None:
        return
    # else the answer has arrived already, before a crash
    is_open = answer is not None and state.input is not None and state.input.number == answer.number
    await runner.resume(run, *((answer,) if answer is not None and is_open else ()), quiet=quiet)


async def _cancel_run(runner: NestingRunner, run: str, job: asyncio.Task[None]) -> None:
    """Cancel a run so that it is written down, and whatever runs inside it is cancelled the same way."""
    cancel = ev.CancelRequested("the run around it does not wait for it any more")
    is_begun = True
    try:
        await runner.ask(run, cancel)
    except Refused:
        is_begun = run in runner.under_way  # then it has ended, and waits for workers that clean up
    if not is_begun:
        job.cancel()
    await asyncio.wait({job}, timeout=_PATIENCE)
    if not is_begun:
        with suppress(ChargehandError):
            await runner.resume(run, cancel, quiet=True)


# --- what a run, and the runs inside it, did


async def had_effects(journal: Journal, run: str, entries: Sequence[ev.Entry]) -> bool:
    """Whether something was changed in the world by a run or by those inside it, or may have been."""
    if _changed_something(entries):
        return True
    for name in _runs_started(run, entries):
        inner = await _read_if_known(journal, name)
        if inner and await had_effects(journal, name, inner):
            return True
    return False


def _changed_something(entries: Sequence[ev.Entry]) -> bool:
    begun: set[tuple[str, int, int]] = set()
    for event in (entry.event for entry in entries):
        if isinstance(event, ev.StepStarted) and event.effect == "effect":
            begun.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and not event.good:
            begun.discard((event.task, event.attempt, event.step))
    return bool(begun)


def _runs_started(run: str, entries: Sequence[ev.Entry]) -> Iterator[str]:
    """The names of runs that the steps of a run may have started: such a step can be repeated."""
    for entry in entries:
        if isinstance(entry.event, ev.StepStarted) and entry.event.effect == "idempotent":
            yield entry.event.nested_run(run)


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


# --- questions to a person


def question_inside(worker: str, nested: NestedRun) -> WorkFailed:
    """The question that a nested run waits with, as one of the attempt that waits for it."""
    state = nested.state
    request = state.input
    assert request is not None, "it waits for a person"
    inner = request.question or Question(request.what)
    if not inner.run:  # it asks itself, and not one inside it
        progress = state.tasks.get(request.task)
        own = (progress.worker,) if progress is not None and not inner.workers else inner.workers
        inner = structs.replace(inner, what=request.what, workers=own, run=nested.run, task=request.task)
    text = request.text
    if request.what == "effect" and not inner.tool and (call := _doubtful_call(nested, request.task)) is not None:
        inner = structs.replace(inner, tool=call.tool, arguments=call.arguments)
        text = f"{call.tool}({bytes(encode_value(call.arguments)).decode()})"
    if request.what == "plan" and not request.task:
        planned = [progress.task for progress in state.tasks.values() if progress.parent is None]
        tasks = [task for task in planned if state.tasks[task.id].round == state.round]
        listed = tuple(f"{task.id} ({task.worker or 'any worker'}): {task.instruction}" for task in tasks)
        inner = structs.replace(inner, plan=listed)
        text = "; ".join(listed)
    question = structs.replace(inner, workers=(worker, *inner.workers), number=request.number)
    return WorkFailed(Failure("approval", text, question=question), NOTHING)


def doubtful_calls(task: TaskTrace) -> list[Question]:
    """The effects of a task's last attempt that were begun and never came back."""
    questions: list[Question] = []
    for step in task.attempts[-1].steps if task.attempts else ():
        if step.effect == "effect" and step.seconds is None:
            arguments = cast("dict[str, object]", step.arguments) if isinstance(step.arguments, dict) else {}
            questions.append(Question("effect", step.name, arguments))
    return questions


def _doubtful_call(nested: NestedRun, name: TaskId) -> Question | None:
    tasks = trace(nested.run, nested.entries).tasks
    calls = [call for task in tasks if task.id == name for call in doubtful_calls(task)]
    return calls[0] if calls else None
