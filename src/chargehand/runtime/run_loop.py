"""Drive one run to its end: decide, write, then make what is running equal to what is owed, then wait.

Nothing is acted on before it is in the journal. Where runs come from is `runner`'s business.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Raw, json

from chargehand.concurrency import BareTaskGroup, log_errors
from chargehand.engine import events as ev
from chargehand.engine.admit import admit
from chargehand.engine.decide import decide
from chargehand.engine.failure import STARTS_RUN
from chargehand.engine.fold import fold
from chargehand.engine.owed import brief, wake_at
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState, TextKind, Work
from chargehand.engine.view import work_until
from chargehand.errors import ChargehandError, Fenced, PlanInvalid, Refused, StoreUnavailable
from chargehand.journal.codec import check
from chargehand.journal.protocol import Journal, Lease
from chargehand.runtime.context import RunnerPort, perform
from chargehand.runtime.executor import Executor, Listener, PromptMessage, TracingListener
from chargehand.runtime.run_log import RunLog, logged_events, watch_breaker

Clock: TypeAlias = Callable[[], Instant]


def steady(wall: Clock = time.time, ticks: Clock = time.monotonic, *, least: Instant = 0.0) -> Clock:
    """A clock that starts at the wall's time, or at `least` if the wall was set back, and then only ticks."""
    return _SteadyClock(max(wall(), least), ticks).now


class _SteadyClock:
    __slots__ = ("_first", "_start", "_ticks")

    def __init__(self, start: Instant, ticks: Clock) -> None:
        self._start = start
        self._ticks = ticks
        self._first = ticks()

    def now(self) -> Instant:
        return self._start + (self._ticks() - self._first)


# --- the time of a run


logger = logging.getLogger(__name__)

_Awaited: TypeAlias = Literal["plan", "refund", "question", "decision"]
"""What a piece of work may wait for: a whole plan, money that is given back, a question to a person."""
TextListener: TypeAlias = Callable[[str, Work, str, TextKind], None]
_SOON = 0.02
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_FAREWELL = 5.0  # seconds to write the last entries of a process that is told to stop
_STEPS = frozenset((ev.StepStarted, ev.StepFinished))
_ENCODER = json.Encoder()


class _Superseded(Fenced):
    """Raised in a drive that another one of the same process replaces."""


class RunLoop:
    """One run under way in this process."""

    __slots__ = (
        "_alarm",
        "_awaiting",
        "_clock",
        "_endings",
        "_held_back",
        "_inbox",
        "_journal",
        "_lease",
        "_left",
        "_listener",
        "_log",
        "_logged",
        "_now",
        "_on_text",
        "_over",
        "_running",
        "_told",
        "_trouble",
        "_unwritten",
        "_urgent",
        "_waiting",
        "_waits_for_input",
        "_wakeup",
        "_words",
        "_writing",
        "draining",
        "executor",
        "kept",
        "over",
        "run",
        "runner",
        "state",
        "tracer",
    )

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        lease: Lease,
        state: RunState,
        clock: Clock,
        runner: RunnerPort,
        listener: Listener | None = None,
        tracer: TracingListener | None = None,
        on_text: TextListener | None = None,
        *,
        unwritten: Sequence[ev.Entry] = (),
        kept: list[ev.Entry] | None = None,
    ) -> None:
        self.state = state
        self.run = lease.run
        self.executor = executor
        self.runner = runner
        self.tracer = tracer
        self._journal = journal
        self._lease = lease
        self._clock = clock
        self._listener = listener
        self._on_text = on_text
        self._words = journal.words
        self._now = journal.append_now
        self._trouble: ChargehandError | None = None
        self._awaiting: dict[_Awaited, list[asyncio.Future[None]]] = {}
        self._waits_for_input = False
        self._left = 0
        """The number of the last question that is left to a person."""
        self._told: dict[str, int] = {}
        self._log: RunLog | None = None
        self._logged = logged_events()
        self._inbox: list[tuple[ev.Event, asyncio.Future[None] | None]] = []
        self.kept = kept
        """Everything that is written of the run, where the outcome is to have it."""
        self._unwritten = list(unwritten)
        self._urgent = bool(unwritten)
        self._writing: Sequence[ev.Entry] = ()  # entries that are being written
        self._waiting: list[asyncio.Future[None]] = []
        self._running: dict[Work, asyncio.Task[None]] = {}
        self._endings: dict[Work, asyncio.Task[None]] = {}
        """The jobs that end what runs inside attempts which were stopped."""
        self._wakeup: asyncio.Future[None] | None = None
        self._over = False
        self.draining = False
        self._held_back: set[Work] = set()
        """Attempts that would begin a step, but that it drains."""
        self.over = asyncio.Event()
        """Set when it has stopped, and everything that was begun in it, too."""
        self._alarm: tuple[float, asyncio.TimerHandle] | None = None

    # --- from outside

    def tell(self, report: ev.Event) -> None:
        """Report something; what becomes of it is not waited for."""
        self._inbox.append((report, None))
        self._wake()

    async def ask(self, report: ev.Event) -> None:
        """Report something and wait until it is journaled; Refused if it does not fit, NotJson if it cannot be kept."""
        check(report)
        if self._over:  # a worker that asks while it is cancelled would wait for ever
            raise _no_longer(self.run)
        if self._now is not None and type(report) in _STEPS:
            self._record(admit(self.state, report), self._clock())
            self._write_now()
            return
        await self._post(report)

    def _post(self, report: ev.Event) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._inbox.append((report, future))
        self._wake()
        return future

    def post(self, report: ev.Event) -> asyncio.Future[None]:
        """Report something, also before the loop begins; done when it is journaled, and with what `ask` raises."""
        check(report)
        if self._over:
            raise _no_longer(self.run)
        return self._post(report)

    @property
    def is_over(self) -> bool:
        """Whether nothing can be reported any more: it has ended, or it cannot be written."""
        return self._over

    @property
    def is_new(self) -> bool:
        """Whether nothing of the run is written yet."""
        return self._lease.seq == 0

    def put(self, report: ev.StepStarted) -> None:
        """Report a step without waiting for it: it is written soon. Refused, at once, if it does not fit."""
        if not report.name.isascii():  # of all it says, only this comes from outside
            check(report)
        self._record(admit(self.state, report), self._clock(), urgent=self._now is not None)
        if self._now is None:  # most such steps are over soon, and one commit then carries their beginning and end
            asyncio.get_running_loop().call_later(_SOON, self._hurry)
        elif self._listener is not None:
            self._wake()

    def abridged(self, messages: Sequence[PromptMessage]) -> tuple[Raw, int]:
        """Messages as JSON for the next entry, without a first one that an entry has; and which entry that is."""
        first = self._told.setdefault(messages[0].text, self.state.seq + 1)
        if first <= self.state.seq:
            return Raw(_ENCODER.encode(messages[1:])), first
        return Raw(_ENCODER.encode(messages)), 0

    # --- leaving the run to another drive

    def drain(self) -> None:
        """Begin neither work nor steps any more: this process is about to stop, and what is under way may finish."""
        self.draining = True

    async def may_begin_step(self, work: Work) -> None:
        """Wait for ever while it drains: the step is begun by the process that resumes the run."""
        if self.draining:
            self._held_back.add(work)
            await asyncio.get_running_loop().create_future()

    @property
    def is_calling(self) -> bool:
        """Whether something is under way that would have to be repeated, other than runs inside this one."""
        return any(self._is_calling(work) for work in self.state.owing)

    def _is_calling(self, work: Work) -> bool:
        if work.kind != "attempt":
            return True
        steps = (self.state.tasks[work.task].steps or {}).values()
        kinds = [step.kind for step in steps if step.result is None]
        if not kinds:  # it is in code of its own, which may be all that it does
            return work in self._running and work not in self._held_back
        return any(kind not in STARTS_RUN for kind in kinds)

    @property
    def effects_under_way(self) -> tuple[str, ...]:
        """Return the names of the calls that change something and have begun and not ended here."""
        attempts = (self.state.tasks[work.task] for work in self._running if work.kind == "attempt")
        steps = (step for attempt in attempts for step in (attempt.steps or {}).values())
        return tuple(
            step.name
            for step in steps
            if step.effect == "effect" and step.result is None and step.kind not in STARTS_RUN
        )

    @property
    def only_waits(self) -> bool:
        """Whether all that is done for it is to wait for runs inside it."""
        state = self.state
        return bool(state.owing) and all(
            work.kind == "attempt" and state.tasks[work.task].waits_for_run() for work in state.owing
        )

    def supersede(self) -> None:
        """Write what was reported, then stop: another drive of the run waits for that in this process."""
        self._trouble = _Superseded(f"run {self.run!r} was given to this process again; the earlier drive has stopped")
        self._wake()

    def say(self, work: Work, text: str, kind: TextKind) -> None:
        """Show a piece of text as it comes; it is not kept."""
        if self._words is not None and self._is_heard_elsewhere():
            parent = self.state.requested.parent
            if parent is None:
                self._words.publish(self.run, work, text, kind)
            else:
                self._words.publish(parent.run, Work("attempt", parent.task, parent.attempt), text, kind)
        if self._on_text is None:
            return
        with log_errors("the listener of run %s failed", self.run):
            self._on_text(self.run, work, text, kind)

    @property
    def heard(self) -> bool:
        """Whether anybody hears what is said, in this process or in another."""
        return self._on_text is not None or self._is_heard_elsewhere()

    def _is_heard_elsewhere(self) -> bool:
        """Of nested runs only those of single workers are heard: as attempts of the run around them."""
        parent = self.state.requested.parent
        if self._words is None or (parent is not None and parent.kind != "worker"):
            return False
        return self._words.is_heard(self.run if parent is None else parent.run)

    async def planned(self) -> None:
        """Wait while a plan is being written: until it is whole, nothing is done that cannot be undone."""
        while self.state.planning.is_open:
            await self._wait_for("plan")

    async def refunded(self) -> bool:
        """Wait until a call under way has given back what it does not need; False if there is none to wait for."""
        if not _is_spending(self.state):
            return False
        await self._wait_for("refund")
        return True

    async def next_question(self, after: int) -> ev.InputRequested:
        """Wait until a person is asked something, and that is written, after question number `after`."""
        while True:
            question = self.state.input
            if question is not None and question.number > after and not self._unwritten:
                return question
            await self._wait_for("question")

    async def _wait_for(self, what: _Awaited) -> None:
        future = asyncio.get_running_loop().create_future()
        self._awaiting.setdefault(what, []).append(future)
        await future

    def _release(self, what: _Awaited) -> None:
        """Let all that wait for this go on."""
        _resolve(self._awaiting.pop(what, ()))

    def _release_due(self) -> None:
        """Let all go on that wait for a plan which is whole, or for a question which is written or answered."""
        if not self.state.planning.is_open:
            self._release("plan")
        if self.state.input is not None:
            self._release("question")
        self._release("decision")

    def leave_question(self, number: int) -> None:
        """Leave a question to a person. The drive ends once nothing goes on without the answer."""
        self._left = number
        self._release("decision")
        self._wake()

    def keeps_question(self, number: int) -> bool:
        """Return whether a function of this process is asked a question, or has answered it just now."""
        return self._waits_for_input and number > self._left

    async def decided(self, number: int) -> None:
        """Wait until a question is answered or left to a person."""
        while self.keeps_question(number) and not self.over.is_set():
            question = self.state.input
            if question is None or question.number != number:
                return
            await self._wait_for("decision")

    def note(self, event: ev.Noted | ev.PromptSent | ev.ModelCalled, *, urgent: bool = False) -> None:
        """Write this along with whatever is written next; at once if it is `urgent`."""
        if not isinstance(event, ev.PromptSent):  # that is JSON already, and too long to be kept twice while it waits
            check(event)
        self._record(event, self._clock(), urgent=urgent)
        if urgent:
            self._wake()

    # --- the loop

    async def to_end(self, *, first: Sequence[ev.Event] = (), wait_for_input: bool = False) -> None:
        """Drive until the run has ended or, unless told to wait, nothing goes on without a person."""
        for event in first:  # refused before anything is written, so that its sender hears of it
            self._record(admit(self.state, event), self._clock())
        self._waits_for_input = wait_for_input
        try:
            async with BareTaskGroup() as jobs:
                try:
                    await self._loop(jobs)
                except (asyncio.CancelledError, _Superseded):
                    self._take_in(self._clock())  # what was reported until now has happened
                    raise
                finally:
                    self._stop()
        except (asyncio.CancelledError, _Superseded):
            await self._leave()
            raise
        finally:
            self.over.set()
            self._release("decision")

    async def _leave(self) -> None:
        """Write what was reported until this process was told to stop, and that no crash interrupts what is owed.

        Where that cannot be written in time, it will look like a crash.
        """
        state = self.state
        waits_for_person = state.input is not None and not state.owing
        if state.ended is None and state.released_at is None and not waits_for_person:
            self._record(ev.RunReleased(), self._clock())
        try:
            async with asyncio.timeout(_FAREWELL):
                # what was being written is perhaps; appended again by itself it is written once
                for entries in (self._writing, self._unwritten):
                    if entries:
                        await self._journal.append(self._lease, entries)
                        self._announce(entries)
        except (ChargehandError, TimeoutError) as error:
            logger.warning("run %s could not be left in order: %s", self.run, error)

    async def _loop(self, jobs: asyncio.TaskGroup) -> None:
        state = self.state
        while True:
            if self._trouble is not None:
                raise self._trouble
            now = self._clock()
            self._take_in(now)
            while events := decide(state, now):
                for event in events:
                    self._record(event, now)
            if self._urgent:
                await self._write()
            self._align(jobs)
            if self._awaiting:
                self._release_due()
            if state.ended is not None:
                return
            if self._stuck_without_a_person(now):
                return
            if not (self._inbox or self._urgent):
                await self._next_wakeup(now)

    def _stuck_without_a_person(self, now: float) -> bool:
        """Return whether nothing goes on before a person answers, and nobody in this process does."""
        state = self.state
        if state.input is None or self.keeps_question(state.input.number):
            return False
        startable = state.approved and bool(state.ready_queues) and now < work_until(state)
        return not (state.owing or state.stopping or state.timers or startable or self._inbox)

    def _take_in(self, now: float) -> None:
        inbox = self._inbox
        self._inbox = []
        for report, future in inbox:
            try:
                self._record(admit(self.state, report), now)
            except (Refused, PlanInvalid) as error:
                if future is None:
                    logger.info("refused %s: %s", type(report).__name__, error)
                elif not future.done():
                    future.set_exception(error)
            else:
                if future is not None:
                    self._waiting.append(future)

    def _record(self, event: ev.Event, now: float, *, urgent: bool = True) -> None:
        state = self.state
        entry = ev.Entry(state.seq + 1, now, event)
        watch = watch_breaker(state, event) if state.breakers or type(event) is ev.AttemptFailed else None
        fold(state, entry)
        self._unwritten.append(entry)
        if urgent:
            self._urgent = True
        if self._awaiting and isinstance(event, ev.Paid):
            self._release("refund")
        if type(event) in self._logged:
            if self._log is None:
                self._log = RunLog(self.run)
            self._log.hear(state, event)
        if watch is not None and (noted := watch.change(state)) is not None:
            self._record(noted, now)

    def _write_now(self) -> None:
        """Write without waiting, which some journals can; steps let nothing follow but what money they set free."""
        assert self._now is not None, "asked only of a journal that can"
        entries = self._unwritten
        self._unwritten = []
        self._urgent = False
        try:
            self._now(self._lease, entries)
        except ChargehandError as error:  # not this worker's fault: the run itself must hear of it
            self._trouble = error
            self._wake()
            raise Refused(f"run {self.run!r} cannot be written: {error}") from error
        self._announce(entries)
        if self.state.ledger.capped:
            self._wake()

    async def _write(self) -> None:
        entries = self._unwritten
        self._unwritten = []
        self._urgent = False
        self._writing = entries
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._journal.append(self._lease, entries)
                break
            except StoreUnavailable as error:
                if self._clock() > self.state.requested.deadline + self.state.requested.policy.grace:
                    raise
                logger.warning("run %s is held up: %s", self.run, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._writing = ()
        written = self._waiting
        self._waiting = []
        _resolve(written)
        self._announce(entries)

    def _announce(self, entries: Sequence[ev.Entry]) -> None:
        if self.kept is not None:
            self.kept += entries
        if self._listener is None:
            return
        with log_errors("the listener of run %s failed", self.run):
            self._listener(self.run, entries)

    def _align(self, jobs: asyncio.TaskGroup) -> None:
        state = self.state
        running = self._running
        for work in state.touched:
            if work in state.owing:
                if work not in running and not self.draining:
                    running[work] = jobs.create_task(perform(self, work, brief(state, work)))
                continue
            if (job := running.pop(work, None)) is not None:
                job.cancel()
            if state.stopping:
                self._end_if_stopped(jobs, work, job)
        state.touched.clear()

    def _end_if_stopped(self, jobs: asyncio.TaskGroup, work: Work, job: asyncio.Task[None] | None) -> None:
        is_stopped = work.kind == "attempt" and (work.task, work.number) in self.state.stopping
        if is_stopped and work not in self._endings:
            self._endings[work] = jobs.create_task(self._end_inside(work, job))

    async def _end_inside(self, work: Work, job: asyncio.Task[None] | None) -> None:
        """End the runs inside an attempt that was stopped, and report what they left."""
        if job is not None:
            await asyncio.wait({job})
        try:
            self.tell(await self.runner.nested.end_inside(self.run, self.state, work.task, work.number))
        except ChargehandError as error:
            logger.warning("run %s: what runs inside %s did is not known: %s", self.run, work.task, error)

    def _next_wakeup(self, decided: float) -> asyncio.Future[None]:
        """Done when something is reported, or when `decide` may return something that it did not when last called."""
        loop = asyncio.get_running_loop()
        at = wake_at(self.state, decided)  # not the present: writing took time, and something may have come due
        if self._alarm is not None and (at is None or at < self._alarm[0]):  # ringing early only costs a look
            self._alarm[1].cancel()
            self._alarm = None
        if self._alarm is None and at is not None:
            self._alarm = (at, loop.call_later(max(0.0, at - self._clock()), self._alarm_fired))
        self._wakeup = loop.create_future()
        return self._wakeup

    def _alarm_fired(self) -> None:
        self._alarm = None
        self._wake()

    def _hurry(self) -> None:
        if self._unwritten:
            self._urgent = True
            self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def _stop(self) -> None:
        self._over = True
        if self._alarm is not None:
            self._alarm[1].cancel()
        for job in (*self._running.values(), *self._endings.values()):
            job.cancel()
        _refuse((*self._waiting, *(future for _, future in self._inbox if future is not None)), self.run)


# --- those who wait


def _resolve(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _refuse(waiting: Iterable[asyncio.Future[None]], run: str) -> None:
    """Tell all that wait that what they wait for will not come."""
    for future in waiting:
        if not future.done():
            future.set_exception(_no_longer(run))


class NoLongerDriven(Refused):
    """The loop of a run is over: another may begin, here or in another process."""


def _no_longer(run: str) -> NoLongerDriven:
    return NoLongerDriven(f"run {run!r} is no longer driven here")


def _is_spending(state: RunState) -> bool:
    """Whether a call is under way that may give money back."""
    steps = (step for work in state.owing if work.task for step in (state.tasks[work.task].steps or {}).values())
    return bool(state.planning.is_open or state.answering.is_open) or any(step.result is None for step in steps)
