"""Do one piece of owed work and report what came of it. A worker's mistake is its task's failure, never the run's."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, structs

from chargehand.code_errors import failure_of, mistake_failure
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.events import Effect
from chargehand.engine.facts import CallsLost, StepDiverged
from chargehand.engine.failure import EFFECT_IN_DOUBT, STARTS_RUN, CodeError, Failure, effect_in_doubt
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Finding, Task, digest
from chargehand.engine.policy import Seconds
from chargehand.engine.state import RunState, TextKind, Work
from chargehand.engine.value import decode_value, encode_or_text, encode_value
from chargehand.errors import NotJson, Refused
from chargehand.journal.codec import check
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import (
    Claim,
    Done,
    EffectUnknown,
    Executor,
    KeptReply,
    ModelTurn,
    NestedRequest,
    NestedRun,
    PromptMessage,
    Proposal,
    TracingListener,
    Where,
    WorkFailed,
)
from chargehand.runtime.files import keep_file
from chargehand.runtime.nested import NestedRuns, StartingStep
from chargehand.trace_context import outgoing_trace
from chargehand.waits import waiting

if TYPE_CHECKING:
    from chargehand.journal.protocol import RouteExamples
    from chargehand.runtime.load import WorkerLoad


class WorkPlace(NamedTuple):
    """A piece of work, and the run it is done for."""

    run: str
    work: Work


CURRENT_WORK: ContextVar[WorkPlace | None] = ContextVar("chargehand_work", default=None)
"""What the code that runs now works on, for what is logged meanwhile. Each piece of work has an asyncio task."""


class RunnerPort(Protocol):
    """What a piece of work needs of the runner."""

    @property
    def journal(self) -> Journal: ...

    @property
    def nested(self) -> NestedRuns: ...

    def worker_loads(self) -> "Mapping[str, WorkerLoad]": ...

    def expect_work(self, run: str, workers: Sequence[str]) -> None: ...


class RunPort(Protocol):
    """What a piece of work needs of the run it is done for."""

    run: str
    executor: Executor
    state: RunState
    draining: bool
    runner: RunnerPort
    tracer: TracingListener | None

    @property
    def heard(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def tell(self, report: ev.Event) -> None: ...

    async def ask(self, report: ev.Event) -> None: ...

    def put(self, report: ev.StepStarted) -> None: ...

    async def may_begin_step(self, work: Work) -> None: ...

    def note(self, event: ev.Noted | ev.PromptSent | ev.ModelCalled, *, urgent: bool = False) -> None: ...

    def abridged(self, messages: Sequence[PromptMessage]) -> tuple[Raw, int]: ...

    def say(self, work: Work, text: str, kind: TextKind) -> None: ...

    async def planned(self) -> None: ...

    async def refunded(self) -> bool: ...


async def perform(line: RunPort, work: Work, brief: Brief) -> None:
    """Do the work; always report, unless it was cancelled because it is not owed any more."""
    executor = line.executor
    try:
        if work.kind == "attempt" and (work.number > 1 or brief.steps):
            brief = await line.runner.nested.with_effects(line.run, line.state, brief)
            brief = await _look_up_effects(line, work, brief)
        context = _StepContext(line, work, brief)
        CURRENT_WORK.set(WorkPlace(line.run, work))
        match work.kind:
            case "attempt":
                report = _attempted(work, await executor.attempt(brief, context))
            case "plan":
                report = _planned(work, await executor.plan(brief, context))
            case "refine":
                refined = await executor.refine(brief, context)
                report = ev.TaskRefined(work.task, work.number, refined.instruction, refined.used)
            case "answer":
                report = _answered(work, await executor.answer(brief, context))
    except WorkFailed as error:
        report = _failed(work, with_first(error.failure, brief), error.used, error.findings, error.refused)
    except asyncio.CancelledError:
        job = asyncio.current_task()
        if job is None or job.cancelling():
            raise
        report = _failed(work, ev.Failure("logic", "the worker gave up by cancelling itself"))
    except Exception as error:  # noqa: BLE001 - whatever a worker raises fails its own work only
        report = _failed(work, with_first(_blame(error), brief))
    line.tell(_writable(work, report))


async def _look_up_effects(line: RunPort, work: Work, brief: Brief) -> Brief:
    """Have the tools of open effects look up whether they happened, and record what they say.

    Returns:
        The brief with the steps that are finished now.

    Raises:
        WorkFailed: an effect is still in doubt.
    """
    steps = dict(brief.steps or {})
    if all(step.result is not None for step in steps.values()):
        return brief
    causes: list[str] = []
    for number, step in tuple(steps.items()):
        if step.result is not None or not step.look:
            continue
        try:
            done = await line.executor.look_up(brief, step)
        except EffectUnknown:
            await line.ask(ev.StepLookedUp(work.task, work.number, number, "unknown"))
            continue
        except WorkFailed as error:  # the look-up itself failed: it is made again later
            causes.append(error.failure.message)
            continue
        if done is None:
            del steps[number]
            await line.ask(ev.StepLookedUp(work.task, work.number, number, "absent"))
        else:
            result = encode_or_text(done.value)[0]
            steps[number] = structs.replace(step, result=result)
            await line.ask(ev.StepFinished(work.task, work.number, number, result, used=NOTHING))
    if any(step.result is None for step in steps.values()):
        doubt = Failure("resource", "; ".join(causes)) if causes else EFFECT_IN_DOUBT
        raise WorkFailed(effect_in_doubt(doubt), NOTHING)
    return structs.replace(brief, steps=steps)


def _writable(work: Work, report: ev.Event) -> ev.Event:
    """The report if it can be written; else the failure of the work."""
    try:
        check(report)
    except NotJson as error:
        said = f": {ascii(report.failure.message)[:500]}" if isinstance(report, ev.AttemptFailed) else ""
        return _failed(work, ev.Failure("logic", f"what came of it cannot be kept: {error}{said}"))
    return report


def _blame(error: Exception) -> ev.Failure:
    if isinstance(error, NotJson):
        message = f"the result cannot be kept: {error}"
        if isinstance(error.__cause__, TypeError):  # the same code returns a value of that type again
            return mistake_failure(CodeError("TypeError", message))
        return ev.Failure("logic", message)
    return failure_of(error)


def _failed(
    work: Work,
    failure: ev.Failure,
    used: Amount | None = None,
    findings: tuple[Finding, ...] = (),
    refused: str = "",
) -> ev.Event:
    if work.kind == "attempt":
        return ev.AttemptFailed(task=work.task, attempt=work.number, failure=failure, used=used, refused=refused)
    return ev.SupervisionFailed(
        duty=work.kind, number=work.number, failure=failure, task=work.task, findings=findings, used=used
    )


_PROPOSALS = msgspec.json.Decoder(Proposal)


def _proposal(proposal: Proposal) -> Proposal:
    return _PROPOSALS.decode(msgspec.json.encode(proposal))


def _attempted(work: Work, done: Done) -> ev.Event:
    result = encode_value(done.value)
    items = len(cast("list[object]", done.value)) if isinstance(done.value, list | tuple) else -1
    return ev.AttemptSucceeded(
        task=work.task,
        attempt=work.number,
        result=result,
        items=items,
        used=done.used,
        tracing=done.tracing,
        exit_tool=done.exit_tool,
        missing=done.missing,
    )


def _planned(work: Work, proposal: Proposal) -> ev.Event:
    proposal = _proposal(proposal)
    return ev.TasksAdded(
        work.number,
        proposal.tasks,
        proposal.combine,
        closed=proposal.closed,
        wake=proposal.wake,
        used=proposal.used,
        unserved=proposal.unserved,
        loop=proposal.loop,
    )


def _answered(work: Work, done: Done) -> ev.Event:
    return ev.AnswerWritten(
        number=work.number,
        answer=encode_value(done.value),
        used=done.used,
        sections=done.sections,
        chosen=done.chosen,
        judged=done.judged,
        tracing=done.tracing,
        cut=done.cut,
        audit=done.audit,
        calls=done.calls,
    )


_Shape = TypeVar("_Shape")


def _shaped(result: Raw, shape: type[_Shape]) -> _Shape:
    return cast("_Shape", decode_value(result)) if shape is object else msgspec.json.decode(result, type=shape)


_Awaited = TypeVar("_Awaited")


async def _without_turn(turn: ModelTurn | None, awaited: Awaitable[_Awaited]) -> _Awaited:
    """Wait for something while other calls of the same model may go first: it may be one of them that is waited for."""
    if turn is None:
        return await awaited
    turn.end_turn()
    outcome = await awaited
    await turn.rejoin()
    return outcome


class _StepContext:
    __slots__ = (
        "_calls",
        "_effects",
        "_expected",
        "_expected_known",
        "_holding",
        "_line",
        "_number",
        "_open_steps",
        "_recorded",
        "_replies",
        "_spare",
        "_times",
        "_work",
    )

    def __init__(self, line: RunPort, work: Work, brief: Brief) -> None:
        self._line = line
        self._work = work
        self._recorded = brief.steps or {}
        self._replies = {request: list(replies) for request, replies in brief.recorded.items()}
        """What models replied when this work was begun before, by the hash of the request."""
        self._effects = brief.effects or {}
        self._number = 0
        self._times: dict[str, int] = {}
        """How often an effect was asked for in this attempt, by its request."""
        self._calls = 0
        self._spare = NOTHING  # held for calls of the supervisor that took less
        self._expected = NOTHING  # what calls of the supervisor are expected to use
        self._expected_known = False  # the journal says so, and has to be told of more of them
        self._holding: asyncio.Lock | None = None
        self._open_steps: dict[int, str] = {}
        """The keys of the steps that are being made, by number."""

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: ev.StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        shape: type[_Shape] = object,
        tool_call: str = "",
        arguments: str = "",
        look: bool = False,
    ) -> _Shape:
        if self._work.kind != "attempt":
            raise Refused("only attempts record steps")
        request_digest = digest(name, request)
        own_key = "" if effect == "read" else self._idempotency_key(request_digest, effect)
        recorded = self._next_recorded(request_digest, effect)
        if recorded is not None:
            return _shaped(recorded, shape)
        task = self._work.task
        attempt = self._work.number
        number = self._number
        started = self._describe_step(
            name=name,
            kind=kind,
            effect=effect,
            request=request_digest,
            call=tool_call,
            key=own_key,
            arguments=arguments,
            look=look,
        )
        is_paid = reserve != NOTHING
        if self._line.draining:
            await self._line.may_begin_step(self._work)
        if effect == "read" and not is_paid:  # neither acts nor costs: it need not be on disk first
            self._line.put(started)
        else:
            await self._start(started, reserve)
        key = self._open_steps[number] = own_key or f"{self._line.run}/{task}/{attempt}/{number}"
        try:
            done = await (call(key) if self._line.tracer is None else self._call_traced(call, key, number))
        except WorkFailed as error:
            if (is_paid or kind in STARTS_RUN) and error.used is not None and effect != "effect":
                await self._line.ask(ev.StepFailed(task, attempt, number, error.used))
                error.used = NOTHING
            raise
        finally:
            del self._open_steps[number]
        if type(done) is not Done:  # a user's function returned it
            raise TypeError(f"the call of step {name!r} returned {type(done).__name__}; return a Done")
        result = encode_value(done.value) if effect == "read" else encode_or_text(done.value)[0]
        finished = ev.StepFinished(task, attempt, number, result, done.good, done.used, done.acted, done.files)
        if effect == "read":
            await self._line.ask(finished)
        else:
            await self._record(finished)
        return _shaped(result, shape)

    def _describe_step(
        self,
        *,
        name: str,
        kind: ev.StepKind,
        effect: Effect,
        request: str,
        call: str,
        key: str,
        arguments: str,
        look: bool,
    ) -> ev.StepStarted:
        """Return the event that a step is written down with before it is made."""
        return ev.StepStarted(
            task=self._work.task,
            attempt=self._work.number,
            step=self._number,
            name=name,
            kind=kind,
            effect=effect,
            request=request,
            call=call,
            key=key,
            arguments=Raw(arguments.encode()) if arguments else ev.NULL,
            look=look,
        )

    def _idempotency_key(self, request_digest: str, effect: Effect) -> str:
        """Return the key of a call: equal calls of the task have it in every attempt.

        A second equal effect of one attempt is meant to happen again, so it has a key of its own.
        """
        times = 1
        if effect == "effect":
            times = self._times[request_digest] = self._times.get(request_digest, 0) + 1
        count = "" if times == 1 else f"/{times}"
        return f"{self._line.state.origin or self._line.run}/{self._work.task}/{request_digest}{count}"

    async def _call_traced(self, call: Callable[[str], Awaitable[Done]], key: str, step: int) -> Done:
        """Make a call whose requests belong to its span."""
        assert self._line.tracer is not None, "there are traces"
        with outgoing_trace(self._line.tracer.traceparent(self._line.run, self._work, step=step)):
            return await call(key)

    def _next_recorded(self, request_digest: str, effect: Effect) -> Raw | None:
        """The result of the next step, where it was recorded before; None: it is made, under a new number."""
        if effect == "effect" and request_digest in self._effects:
            return self._effects[request_digest]
        self._number += 1
        recorded = self._recorded.get(self._number)
        if recorded is None:
            return None
        if recorded.result is not None and recorded.request == request_digest:
            return recorded.result
        self._diverge()
        return self._next_recorded(request_digest, effect)

    async def _record(self, finished: ev.StepFinished) -> None:
        """Record what was done in the world: that it costs an impossible amount does not undo it."""
        try:
            await self._line.ask(finished)
        except NotJson:
            await self._line.ask(structs.replace(finished, used=None))

    async def _start(self, started: ev.StepStarted, reserve: Amount | Claim) -> None:
        """Record a step before it is made, with the money for it."""
        claim = reserve if isinstance(reserve, Claim) else Claim(reserve, reserve)
        if started.effect != "read" and self._line.state.planning.is_open:
            await _without_turn(claim.turn, self._line.planned())
        amount = claim.wanted
        while True:
            step = started
            if amount != NOTHING:
                expected = None if claim.expected is None else claim.expected.min(amount)
                step = structs.replace(started, reserve=amount, expected=expected, resumable=claim.resumable)
            try:
                await self._line.ask(step)
            except Refused as error:
                amount = await self._smaller(claim, amount, error, step=started.step)
            else:
                claim.held = amount
                return

    async def _smaller(self, claim: Claim, refused: Amount, error: Refused, *, step: int) -> Amount:
        """What to ask for next, where there is too little for what was refused.

        Half of what is wanted will do at once. For less than that, what other calls give back is waited for; where none
        will, the least must do.
        """
        amount = claim.wanted.min(self._room(step))
        fits = amount not in (refused, NOTHING) and claim.least.within(amount)
        if fits and claim.wanted.within(amount * 2):
            return amount
        if await self._refunded(claim.turn):
            return claim.wanted
        if fits and claim.least.within(amount):  # the claim may have grown while it waited
            return amount
        more = claim.least - self._held_before(step)
        cap = self._line.state.ledger.cap_reached(more, keep=self._answer_reserve())
        raise WorkFailed(ev.Failure("budget", str(error), cap=cap), NOTHING) from error

    def _room(self, step: int) -> Amount:
        """What a step may take that does not get all it wants: what is left for the answer stays untouched."""
        return self._line.state.ledger.room(self._answer_reserve()) + self._held_before(step)

    def _held_before(self, step: int) -> Amount:
        """Return what is given back when a step starts: the attempt's own reservation, and the step's from a crash."""
        progress = self._line.state.tasks[self._work.task]
        return progress.reserved + (progress.carried or {}).get(step, NOTHING)

    def _answer_reserve(self) -> Amount:
        """What is left for the answer."""
        state = self._line.state
        return state.answer_cost.max(state.requested.budget.floor)

    async def _refunded(self, turn: ModelTurn | None) -> bool:
        with waiting(self._work.task or self._work.kind, "the budget is reserved for calls under way"):
            return await _without_turn(turn, self._line.refunded())

    def _diverge(self) -> None:
        """It asks for something else this time: of what was recorded only the effects count, which stay done."""
        self.note(
            f"step {self._number} diverged from what was recorded and is made anew", fact=StepDiverged(self._number)
        )
        done = [step for step in self._recorded.values() if step.effect == "effect" and step.good]
        more = {step.request: step.result for step in done if step.result is not None}
        self._effects = {**self._effects, **more}
        self._number = max(self._recorded)
        self._recorded = {}

    async def grow(self, tasks: Sequence[Task]) -> None:
        if self._work.kind != "plan":
            raise Refused("only planners grow a plan")
        checked = _proposal(Proposal(tuple(tasks)))
        await self._line.ask(ev.TasksAdded(self._work.number, checked.tasks, done=False, closed=False))

    async def hold(self, claim: Claim, *, extra: bool = False) -> bool:
        if not self._line.state.ledger.capped:
            return True
        if self._holding is None:
            self._holding = asyncio.Lock()
        async with self._holding:  # of calls side by side each must see what those before it took
            return await self._hold(claim, extra=extra)

    async def _hold(self, claim: Claim, *, extra: bool) -> bool:
        state = self._line.state
        covered = NOTHING if extra else self._covered()
        while True:
            amount = claim.wanted.min(self._room_for(claim) + covered + self._spare)
            if not claim.least.within(amount):
                more = claim.least.beyond(covered + self._spare)
                claim.cap = state.ledger.cap_reached(more, keep=self._left_by(claim))
                return False
            beyond = amount.beyond(covered)
            taken = beyond.min(self._spare)
            self._spare -= taken
            try:
                expected = None if claim.expected is None else claim.expected.min(amount)
                await self._hold_more(state.ledger.budget.counted(beyond - taken), expected)
            except Refused:  # another call was faster, or this is not owed any more
                self._spare += taken
                if self._line.is_over:  # the same would be refused again, without ever waiting
                    raise
                if self._work not in state.owing:
                    return False
            else:
                claim.held = amount
                return True

    def _covered(self) -> Amount:
        """What was reserved for the supervisor's work when it started."""
        state = self._line.state
        return state.answer_cost if self._work.kind == "answer" else state.requested.roster.supervision

    def _room_for(self, claim: Claim) -> Amount:
        """What the supervisor may still take for a call."""
        return self._line.state.ledger.room(self._left_by(claim))

    def _left_by(self, claim: Claim) -> Amount:
        """What a call of the supervisor leaves untouched: the answer's part, and of a plan half of what there is."""
        state = self._line.state
        floor = state.requested.budget.floor
        if self._work.kind == "answer":
            return floor if claim.keeps_floor else NOTHING
        untouched = self._answer_reserve()
        if self._work.kind == "plan":
            room = state.ledger.room(untouched)
            untouched += room - room // 2
        return untouched

    async def _hold_more(self, amount: Amount, expected: Amount | None) -> None:
        """Record that the supervisor's work takes more; Refused where the budget does not cover it."""
        is_first = self._expected == NOTHING
        total = self._expected + (expected or NOTHING)
        if amount == NOTHING and is_first and not self._expected_known:  # what is reserved for it says enough
            self._expected = total
            return
        state = self._line.state
        work = self._work
        assert work.kind != "attempt", "attempts reserve step by step"
        duty = state.planning if work.kind == "plan" else state.answering
        until = state.tasks[work.task].timer if work.kind == "refine" else duty.timer
        why = duty.next or "first"
        await self._line.ask(
            ev.SupervisionStarted(
                duty=work.kind,
                number=work.number,
                until=until,
                task=work.task,
                why=why,
                reserve=None if amount == NOTHING else amount,
                expected=None if expected is None else total,
            )
        )
        self._expected = total
        self._expected_known = expected is not None

    def release(self, amount: Amount) -> None:
        self._spare += amount

    @property
    def where(self) -> Where:
        requested = self._line.state.requested
        run = self._line.run
        attempt = self._work.number if self._work.kind == "attempt" else 0
        planned = requested.plan is None
        if requested.earlier is not None and requested.parent is not None:  # it is an attempt of the run around it
            run = requested.parent.run
            planned = requested.earlier.planned
        return Where(
            run=run,
            task=self._work.task,
            mark=self._line.state.origin_mark,
            planned=planned,
            attempt=attempt,
            origin=self._line.state.origin or run,
        )

    @property
    def request(self) -> ev.RunRequested:
        return self._line.state.requested

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        step = self._starting_step(key)
        if nested.kind == "team" or nested.queue:
            self.note(f"{step.progress.worker} does this in run {step.nested_run}")
        run = await self._line.runner.nested.start(step, nested)
        if run.lost != NOTHING:
            self.note(f"calls of run {run.run} are lost; their cost is an estimate", fact=CallsLost(run.lost, run.run))
        return run

    async def run_share(self, estimate: Amount, own: Budget) -> Amount:
        line = self._line
        return await line.runner.nested.share(line.run, line.state, self._work.task, estimate, own)

    def _starting_step(self, key: str) -> StartingStep:
        numbers = [number for number, open_key in self._open_steps.items() if open_key == key]
        if not numbers:
            raise Refused(f"step {key!r} is not open; start a run within the call of a step")
        return StartingStep(
            run=self._line.run,
            state=self._line.state,
            task=self._work.task,
            attempt=self._work.number,
            number=numbers[-1],
        )

    def worker_loads(self) -> "Mapping[str, WorkerLoad]":
        return self._line.runner.worker_loads()

    def expect_work(self, workers: Sequence[str]) -> None:
        self._line.runner.expect_work(self._line.run, workers)

    @property
    def route_examples(self) -> "RouteExamples | None":
        team = self._line.state.requested.team
        return self._line.runner.journal.route_examples(team) if team else None

    async def read_file(self, file: str) -> bytes:
        return await self._line.runner.journal.files.read(file)

    async def keep_file(self, name: str, media_type: str, body: bytes) -> tuple[ev.FileReference, str]:
        return await keep_file(self._line.runner.journal.files, name, media_type, body)

    def note(self, text: str, failure: ev.Failure | None = None, fact: ev.NotedFact | None = None) -> None:
        if isinstance(fact, CallsLost) and self._work not in self._line.state.owing:
            return  # it was charged when the work was cut off
        self._line.note(
            ev.Noted(text=text, task=self._work.task, attempt=self._work.number, failure=failure, fact=fact)
        )

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        work = self._work
        encoded, first_in = self._line.abridged(messages)
        self._line.note(
            ev.PromptSent(
                duty=work.kind,
                number=work.number,
                model=model,
                messages=encoded,
                task=work.task,
                tools=tools,
                first_in=first_in,
            )
        )

    @contextmanager
    def model_call(self) -> Generator[int]:
        self._calls += 1
        call = self._calls
        tracer = self._line.tracer
        traceparent = "" if tracer is None else tracer.traceparent(self._line.run, self._work, call=call)
        with outgoing_trace(traceparent):
            yield call

    def record_call(
        self,
        model: str,
        seconds: Seconds,
        tokens: Mapping[str, int],
        used: Amount | None,
        call: int = 0,
        expected: Amount | None = None,
        kept: KeptReply | None = None,
    ) -> None:
        work = self._work
        self._line.note(
            ev.ModelCalled(
                duty=work.kind,
                number=work.number,
                model=model,
                seconds=seconds,
                task=work.task,
                used=used,
                call=call,
                expected=expected,
                request="" if kept is None else kept.request,
                reply="" if kept is None else kept.text,
                **tokens,
            ),
            urgent=kept is not None,
        )

    def recorded_reply(self, request: str) -> str | None:
        replies = self._replies.get(request)
        return replies.pop(0) if replies else None

    @property
    def heard(self) -> bool:
        return self._line.heard

    def say(self, text: str, kind: TextKind = "answer", /) -> None:
        self._line.say(self._work, text, kind)


# --- what failed before a fallback took the task over


_TOLD = frozenset({"network", "timeout", "resource", "logic"})  # the others are read by what they say, or not judged
_LONGEST = 300


def with_first(failure: Failure, brief: Brief) -> Failure:
    """The failure of a fallback, with that of the worker the task was meant for."""
    meant = next((task.worker for task in brief.tasks), "")
    if brief.work.kind != "attempt" or failure.kind not in _TOLD or not brief.failure:
        return failure
    if not meant or meant == brief.worker or failure.first:
        return failure
    first = brief.first_failure or f"{meant}: {' '.join(brief.failure.split())[:_LONGEST]}"
    return structs.replace(failure, message=f"{failure.message.rstrip('. ')} (before that, {first})", first=first)
