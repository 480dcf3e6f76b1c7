"""Runs inside attempts: messages that workers send, and teams that work for others.

What time and money such a run may have is told by the call that starts it. What a team is handed and what it hands over
is said in `agents.subteam` and `agents.handover`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct, structs

from chargehand.agents.messages import MAIL, Carried, Letter, Replies, WorkerReply
from chargehand.agents.nested import Came, Errand, acted, came_of, run_name
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, usd_of
from chargehand.engine.failure import Failure, Question
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId, digest
from chargehand.engine.policy import Instant, Policy, Seconds
from chargehand.engine.roster import Agent, Roster
from chargehand.engine.state import Progress, RunState, Status, Work
from chargehand.engine.value import encode_value
from chargehand.errors import ChargehandError, Invalid, Refused, RunUnknown
from chargehand.runtime.executor import Executor, Where, WorkFailed
from chargehand.runtime.front import checked_goal
from chargehand.runtime.messaging import Drives, as_message, carry_out, replies_of
from chargehand.runtime.trace import TaskTrace, Tracer, trace
from chargehand.stores.journal import Journal
from chargehand.tools.calling import ToolFailed

_KEPT = 10.0  # seconds of its own time that an attempt keeps for what it makes of the outcome, but at most a fifth


class Call(Struct, frozen=True):
    """A call that starts a run: where it stands, as the engine wrote it down."""

    run: str
    state: RunState
    progress: Progress
    step: int

    @property
    def worker(self) -> str:
        return self.progress.worker

    @property
    def held(self) -> Amount:
        return (self.progress.steps or {})[self.step].held

    @property
    def chain(self) -> tuple[str, ...]:
        """Everybody who will wait for the outcome, the one who calls last."""
        parent = self.state.requested.parent
        return (*(parent.chain if parent else ()), self.worker)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Those of the same team among them: a name that ends in a slash waits for a team, and is outside of it."""
        chain = self.chain
        last = max((at for at, name in enumerate(chain, 1) if name.endswith("/")), default=0)
        return chain[last:]

    @property
    def nesting(self) -> int:
        return _nesting(self.state)

    @property
    def kept(self) -> Seconds:
        """What its attempt keeps of its own time."""
        return min(_KEPT, max(0.0, self.progress.timer - self.state.at) / 5)

    @property
    def deadline(self) -> Instant:
        return self.progress.timer - self.kept

    def parent(self, chain: tuple[str, ...]) -> ev.Parent:
        return ev.Parent(
            run=self.run, task=self.progress.task.id, attempt=self.progress.attempt, nesting=self.nesting, chain=chain
        )

    def seed(self, run: str) -> int:
        return int(digest(run, str(self.state.requested.seed))[:8], 16)

    @property
    def owed(self) -> bool:
        """Whether anybody still waits for the attempt that calls."""
        return Work("attempt", self.progress.task.id, self.progress.attempt) in self.state.owing


def _open_call(driver: Drives, key: str) -> Call | None:
    """The open step behind a key. Names may hold slashes, so the key is held against what is under way."""
    for run, state in driver.under_way.items():
        if not key.startswith(f"{run}/"):
            continue
        rest = key[len(run) + 1 :].rsplit("/", 2)
        if len(rest) != 3:  # the key of another run, whose name begins like this one
            continue
        task, attempt, step = rest
        progress = state.tasks.get(TaskId(task))
        if progress is None or progress.status is not Status.RUNNING or str(progress.attempt) != attempt:
            continue
        recorded = (progress.steps or {}).get(int(step))
        if recorded is not None and recorded.result is None:
            return Call(run, state, progress, int(step))
    return None


def _nesting(state: RunState) -> int:
    """How deep a run would be that is started from this one."""
    parent = state.requested.parent
    return (parent.nesting if parent else 0) + 1


async def _had_effects(journal: Journal, run: str, entries: Sequence[ev.Entry]) -> bool:
    """Whether something was changed in the world by a run, or by those it had messages sent to."""
    if acted(entries):
        return True
    if not any(isinstance(one.event, ev.StepStarted) and one.event.name in MAIL for one in entries):
        return False
    for row in await journal.runs():
        if row.run.startswith(f"{run}/") and acted(await journal.read(row.run)):
            return True
    return False


def _within(budget: Budget, held: Amount) -> Budget:
    """What a call holds, as the caps of the run it starts; what is not capped outside is not capped inside."""
    return Budget(
        tokens=None if budget.tokens is None else held.tokens,
        usd=None if budget.usd is None else usd_of(held.micros),
        calls=None if budget.calls is None else held.calls,
    )


def _share(state: RunState, estimate: Amount, own: Budget) -> Amount:
    """What a team may use of what is left: its estimate, else as much as everybody else who still needs something.

    What the answer costs is kept back.
    """
    ledger = state.ledger
    budget = state.requested.budget
    answer = state.requested.roster.supervision
    open_tasks = (one for one in state.tasks.values() if not one.settled and one.status is not Status.EXPANDED)
    claims = sum(not _entrusted(one) for one in open_tasks) + (not state.closed)
    fair = ledger.room(budget.floor.max(answer)) // max(1, claims)
    wanted = Amount(
        tokens=estimate.tokens or fair.tokens, micros=estimate.micros or fair.micros, calls=estimate.calls or fair.calls
    )
    return budget.counted(wanted.min(own.caps))


def _entrusted(progress: Progress) -> bool:
    """Whether a team has its part for this task already."""
    return any(step.result is None and step.kind == "subteam" for step in (progress.steps or {}).values())


# --- messages that a worker sends: a run inside its attempt, named after the call that sends it


_JOINED = "it joined the team only after the message was sent"


class Messenger:
    """Carries the messages that workers send in the runs of one runner."""

    def __init__(self, driver: Drives) -> None:
        self._driver = driver

    def sender(self, key: str) -> str:
        found = _open_call(self._driver, key)
        return found.worker if found is not None else ""

    async def sent(self, key: str) -> int:
        """Messages of the same task, in earlier attempts and before this call. What was refused does not count."""
        sending = _open_call(self._driver, key)
        if sending is None:
            return 0
        steps = (sending.progress.steps or {}).items()
        now = sum(number < sending.step and one.name in MAIL and one.good for number, one in steps)
        earlier = await self._driver.journal.read(sending.run) if sending.progress.attempt > 1 else ()
        return now + _begun_before(sending, earlier)

    async def carry(self, key: str, letter: Letter) -> Carried:
        sending = _open_call(self._driver, key)
        if sending is None:
            raise ToolFailed("The attempt that sends this is no longer under way.")
        barred = {one.name: why for one in letter.to if (why := _barred(sending, one))}
        rest = structs.replace(letter, to=tuple(one for one in letter.to if one.name not in barred))
        run = ""
        used = NOTHING
        replies = Replies()
        if rest.to:
            asked = digest(letter.text, letter.wanted)[:8]
            if run := await self._acted_before(sending, asked):
                replies = replies_of(Tracer.replay(run, await self._driver.journal.read(run)))
            else:
                run = f"{key}/{asked}"
                replies, used = await self._nested(run, sending, rest)
        by_name = {one.worker: one for one in replies.replies}
        skipped = {name: WorkerReply(name, "skipped", failure=why) for name, why in barred.items()}
        joined = {name: WorkerReply(name, "skipped", failure=_JOINED) for name in (one.name for one in letter.to)}
        ordered = tuple({**joined, **by_name, **skipped}.values())
        return Carried(structs.replace(replies, run=run, replies=ordered), used)

    async def _acted_before(self, sending: Call, asked: str) -> str:
        """The run of the same message from an earlier attempt, if it had effects: it is read back, not done again."""
        if sending.progress.attempt == 1:
            return ""
        journal = self._driver.journal
        start = f"{sending.run}/{sending.progress.task.id}/"
        sent = re.compile(rf"{re.escape(start)}(\d+)/\d+/{asked}")
        found = [one for row in await journal.runs() if (one := sent.fullmatch(row.run))]
        for name in [one[0] for one in found if int(one[1]) < sending.progress.attempt]:
            entries = await journal.read(name)
            if isinstance(entries[-1].event, ev.RunEnded) and await _had_effects(journal, name, entries):
                return name
        return ""

    async def _nested(self, run: str, sending: Call, letter: Letter) -> tuple[Replies, Amount]:
        held = sending.held
        try:
            checked_goal(letter.text)
            known = await carry_out(self._driver, run, _message_request(run, sending, letter, held), quiet=True)
        except Invalid as error:  # said before anything was begun
            raise ToolFailed(f"The message could not be sent: {error}") from error
        replies = replies_of(Tracer.replay(run, await self._driver.journal.read(run)))
        if replies.question is not None:  # nobody can be asked from inside an attempt, and the sender has heard so
            await self._driver.resume(run, ev.CancelRequested("nobody can be asked"), quiet=True)
        # a call that was begun before has been charged with all it had reserved, and the run had no more than that
        used = NOTHING if known and held != NOTHING else replies.spent
        return replies, used


def _begun_before(sending: Call, entries: Sequence[ev.Entry]) -> int:
    """How many messages the earlier attempts of a task sent, as far as they were not refused."""
    task = sending.progress.task.id
    attempt = sending.progress.attempt
    begun: set[tuple[int, int]] = set()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.task == task and event.attempt < attempt and event.name in MAIL:
            begun.add((event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and event.task == task and not event.good:
            begun.discard((event.attempt, event.step))
    return len(begun)


def _barred(sending: Call, agent: Agent) -> str:
    """Why somebody does not get a message."""
    most = sending.state.requested.policy.limits.max_nesting
    if agent.name in sending.waiting:
        return f"{agent.name} is itself waiting for this answer"
    if sending.nesting > most:
        return f"messages are nested {sending.nesting - 1} deep already, and at most {most} are allowed"
    return ""


def _message_request(run: str, sending: Call, letter: Letter, held: Amount) -> ev.RunRequested:
    requested = sending.state.requested
    policy: Policy = structs.replace(requested.policy, uncertain="fail")  # nobody can be asked
    parent = sending.parent(sending.chain)
    base = ev.RunRequested(
        goal=letter.text,
        roster=Roster(),
        policy=policy,
        budget=_within(requested.budget, held),
        deadline=sending.deadline,
        seed=sending.seed(run),
        parent=parent,
    )
    return as_message(base, letter)


# --- teams that work for others: their runs are started, or gone on with, inside an attempt and cancelled with it


_Offered: TypeAlias = Callable[[], Awaitable[Sequence[ev.Event]]]
_PATIENCE = 5.0  # seconds that a run has to write down that it was cancelled


@runtime_checkable
class _Priced(Protocol):
    """An executor that knows what a call of its supervisor costs."""

    def supervision(self, budget: Budget) -> Amount: ...


class _Below(Drives, Protocol):
    async def start(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = (), quiet: bool = False
    ) -> object: ...

    async def ask(self, run: str, report: ev.Event) -> None: ...


class _Above(Drives, Protocol):
    """A runner that can be asked for another, for another executor on the same journal and by the same clocks."""

    def beneath(self, executor: Executor) -> _Below: ...


class Nesting:
    """Starts and drives the runs of teams that work in the runs of one runner."""

    def __init__(self, driver: _Above) -> None:
        self._driver = driver
        self._below: dict[int, tuple[Executor, _Below]] = {}

    def leads(self, run: str) -> bool:
        return run in self._driver.under_way

    async def allowance(self, where: Where, errand: Errand) -> Amount:
        state = self._driver.under_way[where.run]
        most = min(state.requested.policy.limits.max_nesting, errand.team.policy.limits.max_nesting)
        if _nesting(state) > most:
            words = f"{errand.worker} is a team inside {_nesting(state) - 1} others, and at most {most} are allowed"
            raise WorkFailed(Failure("logic", f"{words} (policy.limits.max_nesting)", permanent=True), NOTHING)
        progress = state.tasks[TaskId(where.task)]
        if progress.resumes and sum(await self._begun(where.run, progress, errand), NOTHING) != NOTHING:
            return NOTHING  # it was charged with all of it when the process died
        return _share(state, errand.estimate, errand.team.budget)

    async def _begun(self, run: str, progress: Progress, errand: Errand) -> list[Amount]:
        """What was reserved each time this attempt began the errand."""
        entries = await self._driver.journal.read(run)
        steps = (one.event for one in entries if isinstance(one.event, ev.StepStarted))
        this = (progress.task.id, progress.attempt, errand.step)
        return [one.reserve or NOTHING for one in steps if (one.task, one.attempt, one.name) == this]

    async def carry_out(
        self, key: str, errand: Errand, answer: ev.InputAnswered | None = None
    ) -> tuple[Came, Amount | None]:
        call = _open_call(self._driver, key)
        run = run_name(key, errand.asked)
        if call is None:
            raise WorkFailed(Failure("logic", "the attempt that needs this is no longer under way"), NOTHING)
        begun = await self._begun(call.run, call.progress, errand) if call.progress.resumes else []
        paid = sum(begun[:-1], NOTHING)
        _, below = self._below.setdefault(id(errand.executor), (errand.executor, self._driver.beneath(errand.executor)))
        try:
            request = _subteam_request(run, call, errand, call.held + paid)
            offered = partial(errand.team.offered, below.journal, request)
            await _driven(
                below,
                run,
                call,
                partial(_started, below=below, run=run, request=request, offered=offered, answer=answer),
            )
        except Invalid as error:  # said before anything was begun
            words = f"{errand.worker} could not begin: {error}"
            return Came(run, "failed", failure=Failure("logic", words, permanent=True)), NOTHING
        except ChargehandError as error:
            raise WorkFailed(Failure("resource", f"{errand.worker}: {error}")) from error
        entries = await self._driver.journal.read(run)
        state = replay(entries)
        if state.ended is None and state.input is not None:
            raise WorkFailed(_asked_inside(errand.worker, run, state, entries), NOTHING)
        acted = await _had_effects(self._driver.journal, run, entries)
        came = came_of(run, errand.worker, state, entries, acted=acted)
        return came, state.ledger.spent.beyond(paid)


def _asked_inside(worker: str, run: str, state: RunState, entries: Sequence[ev.Entry]) -> Failure:
    """The question of a run inside, as one of the attempt that waits for it: who asks, and about what, in fields."""
    asked = state.input
    assert asked is not None, "it waits for a person"
    inner = asked.question or Question(asked.what)
    if not inner.run:  # it asks itself, and not one inside it
        progress = state.tasks.get(asked.task)
        own = (progress.worker,) if progress is not None and not inner.workers else inner.workers
        inner = structs.replace(inner, what=asked.what, workers=own, run=run, task=asked.task)
    text = asked.text
    if asked.what == "effect" and not inner.tool and (call := _doubtful_call(run, entries, asked.task)) is not None:
        inner = structs.replace(inner, tool=call.tool, arguments=call.arguments)
        text = f"{call.tool}({bytes(encode_value(call.arguments)).decode()})"
    if asked.what == "plan" and not asked.task:
        tasks = [one.task for one in state.tasks.values() if one.mother is None and one.round == state.round]
        listed = tuple(f"{task.id} ({task.worker or 'anybody'}): {task.instruction}" for task in tasks)
        inner = structs.replace(inner, plan=listed)
        text = "; ".join(listed)
    question = structs.replace(inner, workers=(worker, *inner.workers), number=asked.number)
    return Failure("approval", text, question=question)


async def _driven(below: _Below, run: str, call: Call, start: Callable[[], Awaitable[None]]) -> None:
    """Drive a run to its end, or leave it alone if it has ended. It is cancelled once nobody waits for it any more.

    Where this process is told to stop, it stays open, to be gone on with.
    """
    trouble: list[ChargehandError] = []

    async def drive() -> None:
        try:
            await start()
        except ChargehandError as error:  # raised bare below; from a group it would arrive wrapped
            trouble.append(error)

    async with asyncio.TaskGroup() as jobs:
        job = jobs.create_task(drive())
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            if not call.owed:
                await _ended(below, run, job)
            raise
    if trouble:
        raise trouble[0]


async def _started(
    below: _Below, run: str, request: ev.RunRequested, offered: _Offered, answer: ev.InputAnswered | None
) -> None:
    try:
        entries = await below.journal.read(run)
    except RunUnknown:
        await below.start(run, request, also=await offered(), quiet=True)
        return
    first = entries[0].event
    if not isinstance(first, ev.RunRequested) or first.parent != request.parent:
        raise Refused(f"run {run!r} exists already and was not begun for this attempt")
    state = replay(entries)
    if state.ended is not None:
        return
    if answer is not None and state.input is not None and state.input.number == answer.number:
        await below.resume(run, answer, quiet=True)
    else:  # the answer has arrived already, before a crash
        await below.resume(run, quiet=True)


async def _ended(below: _Below, run: str, job: asyncio.Task[None]) -> None:
    """Cancel a run so that it is written down, and whatever runs inside it is cancelled the same way."""
    cancel = ev.CancelRequested("nobody waits for it any more")
    begun = True
    try:
        await below.ask(run, cancel)
    except Refused:
        begun = run in below.under_way  # then it has ended, and waits for workers that put things away
    if not begun:
        job.cancel()
    await asyncio.wait({job}, timeout=_PATIENCE)
    if not begun:
        with suppress(ChargehandError):
            await below.resume(run, cancel, quiet=True)


def _subteam_request(run: str, call: Call, errand: Errand, held: Amount) -> ev.RunRequested:
    requested = call.state.requested
    own = errand.team.policy
    deepest = min(own.limits.max_nesting, requested.policy.limits.max_nesting)
    policy: Policy = structs.replace(
        own, limits=structs.replace(own.limits, max_nesting=deepest), grace=min(own.grace, call.kept / 2)
    )
    team = errand.team.bounded(budget=errand.team.budget.limited(_within(requested.budget, held).caps), policy=policy)
    request = team.request(errand.goal, call.state.at, seed=call.seed(run))
    if isinstance(
        errand.executor, _Priced
    ):  # a team knows only the names of its models, and that a call costs something
        dear = errand.executor.supervision(request.budget)
        request = structs.replace(request, roster=structs.replace(request.roster, supervision=dear))
    # who waits outside does not get messages from in here, whatever they are called
    parent = call.parent((*call.chain[:-1], f"{call.worker}/"))
    return structs.replace(request, deadline=min(request.deadline, call.deadline), parent=parent)


# --- which call it is that nobody knows the outcome of


def doubtful_calls(task: TaskTrace) -> list[Question]:
    """The effects of a task's last attempt that were begun and never came back."""
    questions: list[Question] = []
    for step in task.attempts[-1].steps if task.attempts else ():
        if step.effect == "effect" and step.seconds is None:
            given = step.arguments
            arguments = cast("dict[str, object]", given) if isinstance(given, dict) else {}
            questions.append(Question("effect", step.name, arguments))
    return questions


def _doubtful_call(run: str, entries: Sequence[ev.Entry], name: TaskId) -> Question | None:
    calls = [call for task in trace(run, entries).tasks if task.id == name for call in doubtful_calls(task)]
    return calls[0] if calls else None
