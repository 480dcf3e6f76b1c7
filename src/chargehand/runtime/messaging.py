"""A message as a run: a fixed plan of one task for each recipient, which nobody plans and nobody sums up.

It is journaled, resumed, budgeted and traced like any other. Messages from inside a run are `nested`.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, cast

from msgspec import structs

from chargehand.agents.messages import Letter, Replies, Status, WorkerReply, addressed, nobody
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Seconds
from chargehand.engine.roster import Agent, Match, Roster
from chargehand.engine.state import RunState
from chargehand.engine.state import Status as Stand
from chargehand.errors import Refused, RunUnknown
from chargehand.runtime.trace import TaskTrace, Trace, Tracer
from chargehand.stores.journal import Journal

_LATE = ("timeout", "deadline")


class Drives(Protocol):
    """What is needed of a runner."""

    @property
    def journal(self) -> Journal: ...

    @property
    def under_way(self) -> Mapping[str, RunState]: ...

    async def start(
        self, run: str, request: ev.RunRequested, *, also: Sequence[ev.Event] = (), quiet: bool = False
    ) -> object: ...

    async def resume(self, run: str, *also: ev.Event, quiet: bool = False) -> object: ...


# --- a message as a run


def as_message(base: ev.RunRequested, letter: Letter) -> ev.RunRequested:
    """The run that carries a letter, within the bounds of another request.

    Everybody is asked once: whoever sent it hears who failed, and may ask again. Networks that fail are tried again by
    whoever calls the model. Nobody stands in for another: the reply must come from whom was asked.
    """
    agents = [structs.replace(to, fallbacks=(), timeout=min(to.timeout, letter.timeout)) for to in letter.to]
    limits = structs.replace(base.policy.limits, max_tasks=max(base.policy.limits.max_tasks, len(letter.to)), replans=0)
    policy = structs.replace(
        base.policy,
        retry=structs.replace(base.policy.retry, attempts=1),
        limits=limits,
        refine=False,
        approve=False,
        answer=0.0,
    )
    told = letter.instruction()
    tasks = tuple(Task(TaskId(f"m{number}"), told, to.name) for number, to in enumerate(letter.to, 1))
    return structs.replace(
        base,
        roster=Roster(tuple(agents)),
        policy=policy,
        plan=Plan(tasks, "none", base.goal),
        budget=structs.replace(base.budget, floor=NOTHING),
        team="",
    )


async def carry_out(
    driver: Drives,
    run: str,
    request: ev.RunRequested,
    *,
    also: Callable[[], Sequence[ev.Event]] = tuple,
    quiet: bool = False,
) -> bool:
    """Start the run of a message, or go on with it; whether it was there already. One that has ended is left alone.

    `also` is what is written along with the request of a new one.
    """
    try:
        entries = await driver.journal.read(run)
    except RunUnknown:
        await driver.start(run, request, also=also(), quiet=quiet)
        return False
    first = entries[0].event
    if not isinstance(first, ev.RunRequested) or _asked(first) != _asked(request):
        raise Refused(f"run {run!r} exists already and is not this message; choose another name")
    if not any(isinstance(entry.event, ev.RunEnded) for entry in entries):
        await driver.resume(run, quiet=quiet)
    return True


def _asked(request: ev.RunRequested) -> tuple[object, ...]:
    """What makes two messages the same: the words, who says them (in the first line), and to whom.

    Of one from inside a run the name says to whom: a roster that changed since must not make it another.
    """
    tasks = request.plan.tasks if request.plan is not None and request.parent is None else ()
    return request.goal, request.parent, [(one.worker, one.instruction.partition("\n")[0]) for one in tasks]


def replies_of(tracer: Tracer) -> Replies:
    """What became of a message, one entry for each who was to get it, in the order of the roster."""
    trace = tracer.snapshot()
    state = tracer.state
    reasons = {gap.task: gap.message for gap in trace.gaps}
    for question in trace.questions:
        if not question.verdict:
            reasons[question.task] = f"it needs a person's leave: {question.text or question.what}"
    plan = state.requested.plan
    workers = {} if plan is None else {task.id: task.worker for task in plan.tasks}
    replies = [
        _reply(task, trace, reasons.get(task.id, ""), workers.get(task.id) or task.worker) for task in trace.tasks
    ]
    question = state.input if state.ended is None else None
    return Replies(trace.run, tuple(replies), trace.used, question=question)


def _reply(task: TaskTrace, whole: Trace, words: str, who: str) -> WorkerReply:
    began = whole.seconds if task.began is None else task.began
    seconds = (whole.seconds if task.ended is None else task.ended) - began
    if task.status == Stand.DONE.value:
        return WorkerReply(
            worker=who, status="answered", text=_text(task.result), value=task.result, failure="", seconds=seconds
        )
    late = task.failure is not None and task.failure.kind in _LATE
    status: Status = "skipped" if task.status == Stand.SKIPPED.value else "timed out" if late else "failed"
    return WorkerReply(who, status, failure=words or "the run ended before it was finished", seconds=seconds)


def _text(value: object) -> str:
    found = cast("dict[str, object]", value).get("text") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


# --- a team that passes messages on


class MessagingTeam(Protocol):
    """What is needed of a team. `members` are those who can get messages, in their order."""

    name: str
    members: tuple[Agent, ...]

    def request(self, goal: str, now: float) -> ev.RunRequested: ...

    async def keep_budget(self) -> Self: ...

    def budget_notes(self) -> Sequence[ev.Event]: ...

    def driven(self, team: Self) -> AbstractAsyncContextManager[Drives]: ...


async def send_message(
    team: MessagingTeam,
    text: str,
    *,
    match: Match,
    workers: Sequence[str],
    sender: str,
    timeout: Seconds | None,  # noqa: ASYNC109 - the time of each worker, not of this call
    run: str,
) -> Replies:
    """Send a message to workers of a team and wait for their replies; see `Team.message`."""
    bounded = await team.keep_budget()
    request = bounded.request(text, time.time())
    letter = addressed(
        agents=team.members, text=request.goal, match=match, names=workers, sender=sender, timeout=timeout
    )
    if not letter.to:
        return Replies(note=nobody(team.members, match))
    name = run or f"{team.name}-{secrets.token_hex(4)}"
    async with team.driven(bounded) as driver:
        await carry_out(driver, name, as_message(request, letter), also=bounded.budget_notes)
        return replies_of(Tracer.replay(name, await driver.journal.read(name)))
