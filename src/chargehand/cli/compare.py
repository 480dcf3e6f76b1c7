"""What was gained by working side by side: measured by doing the plan again one task at a time, where that is free.

Where doing it again could cost or change something, the gain is reckoned from the journal, and the reason is said.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct, structs

from chargehand.agents.subteam import STEP
from chargehand.cli.console import clean
from chargehand.cli.render import seconds
from chargehand.cli.terminated import Termination
from chargehand.cli.verbs import Terminated
from chargehand.core.fold import replay
from chargehand.errors import Invalid, Refused
from chargehand.memory.archives import Archive
from chargehand.runtime.driver import Driver, Outcome
from chargehand.runtime.result import planned
from chargehand.runtime.traced import Trace
from chargehand.stores.journal import Lease
from chargehand.stores.memory import MemoryJournal
from chargehand.team import Supervisor
from chargehand.terms import events as ev
from chargehand.terms.policy import Seconds

_EVERY = 1.0  # seconds between two lines of progress
_SHORT = 2.0  # seconds below which what is loaded the first time, and written to disk, would blur the difference
_LEAST = 1.05  # below this it is noise
_AGAIN = "again"
_NOTHING = "nothing was carried out"
_ARCHIVES = 1000
_FREE_VECTORS = ("words", "auto", "local:", "ollama:", "vllm:", "llamacpp:")  # what their handles begin with


class Compared(Struct, frozen=True):
    """`why` it was not measured, if it was not. Measured times go from the accepted plan to the end of the run.

    `both`: it was done again side by side as well. `stopped`: SIGTERM came meanwhile, so the process is to end.
    """

    one_at_a_time: Seconds
    side_by_side: Seconds
    why: str = ""
    both: bool = False
    stopped: bool = False

    @property
    def times(self) -> float:
        return self.one_at_a_time / self.side_by_side if self.side_by_side > 0 else 1.0

    @property
    def line(self) -> str:
        if self.why == _NOTHING:
            return f"{_NOTHING}, so there is nothing to compare"
        gain = f"{self.times:.1f} times faster" if self.times >= _LEAST else "nothing was gained"
        done = "measured by doing the plan again" + (", both ways" if self.both else "")
        how = f"reckoned from the journal, because {self.why}" if self.why else done
        spans = f"one at a time: {seconds(self.one_at_a_time)}; side by side: {seconds(self.side_by_side)}"
        return clean(f"{spans}; {gain} ({how})")

    def document(self) -> dict[str, object]:
        return {
            "one_at_a_time": round(self.one_at_a_time, 3),
            "side_by_side": round(self.side_by_side, 3),
            "times_faster": round(self.times, 2),
            "measured": not self.why,
            "why": self.why,
        }


def compare(team: Supervisor, entries: Sequence[ev.Entry], found: Trace, tell: Callable[[str], None]) -> Compared:
    """Both times of a run. Nothing that goes wrong here is raised: the run itself has ended."""
    if not any(one.attempts or one.reused for one in found.tasks):
        return Compared(0.0, 0.0, _NOTHING)  # the time it took to plan is no time of work
    alone = _free(team, 1)
    why = next(_obstacles(alone, entries, found), "")
    if why:
        return Compared(found.serial, found.seconds, why)
    took = entries[-1].at - _accepted(entries)
    stopped = False
    try:
        with Termination() as termination:
            tell(f"doing the plan again, one task at a time, to measure it (up to {seconds(found.serial)} of work)")
            slow = termination.run(_measured(alone, entries, found, tell))
            if took >= _SHORT:
                return Compared(slow, took)
            together = _free(team, team.policy.limits.width)
            return Compared(slow, termination.run(_measured(together, entries, found, tell)), both=True)
    except KeyboardInterrupt as stop:
        stopped = isinstance(stop, Terminated)
        why = f"doing the plan again was cut short by {'SIGTERM' if stopped else 'Ctrl-C'}"
    except Exception as error:  # noqa: BLE001 - whatever tools and models raise: the run has ended, and that stands
        why = f"the plan could not be done again: {error}"
    return Compared(found.serial, found.seconds, why, stopped=stopped)


def _free(team: Supervisor, width: int) -> Supervisor:
    """The team with no dollars at all and so many tasks at once; who costs something, or may, does nothing for it."""
    budget = structs.replace(team.budget, usd=0.0, floor=structs.replace(team.budget.floor, micros=0))
    limits = structs.replace(team.policy.limits, width=width)
    return team.bounded(budget=budget, policy=structs.replace(team.policy, limits=limits))


def _obstacles(again: Supervisor, entries: Sequence[ev.Entry], found: Trace) -> Iterator[str]:
    """Why the plan must not be done again, or why that would say nothing."""
    ended = found.ending in ("complete", "partial") and found.reason in ("done", "gaps", "overspent")
    grown = [entry for entry in entries if isinstance(entry.event, ev.TasksAdded) and entry.event.tasks]
    whys = {
        "the run did not come to its end": not ended,
        "the run cost money": found.used.micros > 0,
        "nobody can say that its models cost nothing": again.roster.supervision.micros > 0,
        "a person was asked": bool(found.questions),
        "its workers remember what they do": any(one.remembers for one in again.hiring.workers),
        "a function makes its answer, and nobody knows what else it does": again.hiring.own is not None,
        "results were taken over from another run": any(one.reused for one in found.tasks),
        "it was planned while it went on": len(grown) > 1,
        "there was nothing to do side by side": len(found.tasks) < 2,
    }
    yield from (why for why, so in whys.items() if so)
    for step in (entry.event for entry in entries if isinstance(entry.event, ev.StepStarted)):
        if step.name.startswith(STEP):
            yield f"a team worked for {step.task}"
        if step.effect != "read":
            yield f"{step.task} called {step.name}, which may change something"


def _accepted(entries: Sequence[ev.Entry]) -> float:
    """When the plan was there: at once if it came with the request."""
    first = next((one for one in entries if isinstance(one.event, ev.TasksAdded) and one.event.tasks), entries[0])
    return first.at


async def _measured(
    again: Supervisor, entries: Sequence[ev.Entry], found: Trace, tell: Callable[[str], None]
) -> Seconds:
    state = replay(entries)
    now, plan = time.time(), planned(state)
    request = again.request(found.goal, now, plan=plan, seed=state.requested.seed)
    request = structs.replace(request, policy=structs.replace(request.policy, approve=False))
    await _refuse_paid_vectors(again)
    journal, progress = _OnlyLooking(), _Progress(len(plan.tasks), tell)
    try:
        async with again.crew() as crew:
            outcome = await Driver(journal, crew, listener=progress.hear).start(_AGAIN, request)
    finally:
        progress.stop()
    if (outcome.ending, outcome.reason) != (found.ending, found.reason):
        raise Refused(f"the second time it ended {_ended(outcome)}")
    took = await journal.read(_AGAIN)
    return took[-1].at - took[0].at


async def _refuse_paid_vectors(team: Supervisor) -> None:
    """Raise Refused where somebody is paid for searching: no budget counts what vectors cost."""
    async with AsyncExitStack() as stack:
        try:
            memory = await stack.enter_async_context(team.remembering())
        except Invalid:  # it has none; what else may be wrong with it, its crew says
            return
        for one in await memory.catalog.find(Archive, limit=_ARCHIVES):
            if not one.embedding.startswith(_FREE_VECTORS):
                raise Refused(f"archive {one.name} is searched with {one.embedding}, which may cost something")


def _ended(outcome: Outcome) -> str:
    return f"{outcome.ending} ({outcome.reason})"


class _OnlyLooking(MemoryJournal):
    """A journal of this process that refuses to begin anything that may change something.

    A step that is no reading is made only once it is written as begun. So what is refused here is never made.
    """

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.StepStarted) and event.effect != "read":
                raise Refused(f"this time {event.task} wanted to call {event.name}, which may change something")
        await super().append(lease, entries)


class _Progress:
    """A line now and then, until stopped: how many tasks are over."""

    def __init__(self, tasks: int, tell: Callable[[str], None]) -> None:
        self._tasks, self._tell = tasks, tell
        self._over, self._took = 0, 0.0
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)

    def hear(self, _run: str, entries: Sequence[ev.Entry]) -> None:
        over = (ev.AttemptSucceeded, ev.TaskFailed, ev.TaskSkipped)
        self._over += sum(isinstance(one.event, over) for one in entries)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        self._took += _EVERY
        self._tell(f"again: {self._over} of {self._tasks} tasks after {seconds(self._took)}")
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)
