"""Teams that work for others: their runs, started or gone on with inside an attempt, and cancelled with it.

What a team is handed and what it hands over is said in `agents.subteam` and `agents.handover`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import structs

from chargehand.agents.crew import Crew, Where, WorkFailed
from chargehand.agents.handover import Came, came_of
from chargehand.agents.subteam import Errand, least, run_name
from chargehand.core.fold import replay
from chargehand.core.state import Progress, RunState
from chargehand.errors import ChargehandError, Invalid, Refused, RunUnknown
from chargehand.runtime.doubt import doubtful_call
from chargehand.runtime.messaging import Drives
from chargehand.runtime.nesting import Call, had_effects, nesting, open_call, share, within
from chargehand.terms import events as ev
from chargehand.terms.budget import NOTHING, Amount, Budget
from chargehand.terms.failure import Failure, Question
from chargehand.terms.plan import TaskId
from chargehand.terms.policy import Policy
from chargehand.terms.value import encode_value

_Offered: TypeAlias = Callable[[], Awaitable[Sequence[ev.Event]]]
_PATIENCE = 5.0  # seconds that a run has to write down that it was cancelled


@runtime_checkable
class _Priced(Protocol):
    """A crew that knows what a call of its supervisor costs."""

    def supervision(self, budget: Budget) -> Amount: ...


class _Below(Drives, Protocol):
    async def start(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = (), quiet: bool = False
    ) -> object: ...

    async def ask(self, run: str, report: ev.Event) -> None: ...


class Above(Drives, Protocol):
    """A driver that can be asked for another, for another crew on the same journal and by the same clocks."""

    def beneath(self, crew: Crew) -> _Below: ...


class Nesting:
    """Starts and drives the runs of teams that work in the runs of one driver."""

    def __init__(self, driver: Above) -> None:
        self._driver = driver
        self._below: dict[int, tuple[Crew, _Below]] = {}

    def leads(self, run: str) -> bool:
        return run in self._driver.under_way

    async def allowance(self, where: Where, errand: Errand) -> Amount:
        state = self._driver.under_way[where.run]
        most = min(state.requested.policy.limits.nesting, errand.team.policy.limits.nesting)
        if nesting(state) > most:
            words = f"{errand.worker} is a team inside {nesting(state) - 1} others, and at most {most} are allowed"
            raise WorkFailed(Failure("logic", f"{words} (policy.limits.nesting)", permanent=True), NOTHING)
        progress = state.tasks[TaskId(where.task)]
        if progress.resumes and sum(await self._begun(where.run, progress, errand), NOTHING) != NOTHING:
            return NOTHING  # it was charged with all of it when the process died
        return share(state, errand.estimate, errand.team.budget)

    async def _begun(self, run: str, progress: Progress, errand: Errand) -> list[Amount]:
        """What was reserved each time this attempt began the errand."""
        entries = await self._driver.journal.read(run)
        steps = (one.event for one in entries if isinstance(one.event, ev.StepStarted))
        this = (progress.task.id, progress.attempt, errand.step)
        return [one.reserve or NOTHING for one in steps if (one.task, one.attempt, one.name) == this]

    async def carry_out(
        self, key: str, errand: Errand, answer: ev.InputAnswered | None = None
    ) -> tuple[Came, Amount | None]:
        call = open_call(self._driver, key)
        run = run_name(key, errand.asked)
        if call is None:
            raise WorkFailed(Failure("logic", "the attempt that needs this is no longer under way"), NOTHING)
        begun = await self._begun(call.run, call.progress, errand) if call.progress.resumes else []
        paid = sum(begun[:-1], NOTHING)
        _, below = self._below.setdefault(id(errand.crew), (errand.crew, self._driver.beneath(errand.crew)))
        try:
            request = _request(run, call, errand, call.held + paid)
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
            raise WorkFailed(asked_inside(errand.worker, run, state, entries), NOTHING)
        acted = await had_effects(self._driver.journal, run, entries)
        came = came_of(run, errand.worker, state, entries, acted=acted)
        return came, state.ledger.spent.beyond(paid)


def asked_inside(worker: str, run: str, state: RunState, entries: Sequence[ev.Entry]) -> Failure:
    """The question of a run inside, as one of the attempt that waits for it: who asks, and about what, in fields."""
    asked = state.input
    assert asked is not None, "it waits for a person"
    inner = asked.question or Question(asked.what)
    if not inner.run:  # it asks itself, and not one inside it
        progress = state.tasks.get(asked.task)
        own = (progress.worker,) if progress is not None and not inner.workers else inner.workers
        inner = structs.replace(inner, what=asked.what, workers=own, run=run, task=asked.task)
    text = asked.text
    if asked.what == "effect" and not inner.tool and (call := doubtful_call(run, entries, asked.task)) is not None:
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


def _request(run: str, call: Call, errand: Errand, held: Amount) -> ev.RunRequested:
    requested = call.state.requested
    own = errand.team.policy
    deepest = min(own.limits.nesting, requested.policy.limits.nesting)
    policy: Policy = structs.replace(
        own, limits=structs.replace(own.limits, nesting=deepest), grace=min(own.grace, call.kept / 2)
    )
    team = errand.team.bounded(budget=least(errand.team.budget, within(requested.budget, held)), policy=policy)
    request = team.request(errand.goal, call.state.at, seed=call.seed(run))
    if isinstance(errand.crew, _Priced):  # a team knows only the names of its models, and that a call costs something
        dear = errand.crew.supervision(request.budget)
        request = structs.replace(request, roster=structs.replace(request.roster, supervision=dear))
    # who waits outside does not get messages from in here, whatever they are called
    parent = call.parent((*call.chain[:-1], f"{call.worker}/"))
    return structs.replace(request, deadline=min(request.deadline, call.deadline), parent=parent)
