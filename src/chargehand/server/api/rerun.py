"""Do a run again, in part: retry, skip, reassign, fork. Each is a new run that takes over what was finished.

The old run stays as it is. One that is under way is cancelled first, in the same step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.result import planned
from chargehand.engine import events as ev
from chargehand.engine.plan import Edge, Plan, Task, TaskId, needs
from chargehand.engine.policy import Seconds
from chargehand.engine.state import Status
from chargehand.engine.view import offers
from chargehand.errors import Refused
from chargehand.runtime.runner import fork_offers
from chargehand.server.api.runs import begin_once, begin_run, begins_run, bounds_of
from chargehand.server.api.shapes import Fork, Reassign, RetryAsked, Sent, Skip
from chargehand.server.idempotency import RunKey
from chargehand.server.problem import Problem, unknown
from chargehand.server.run_control import RecordedRun, read_run, tell_run
from chargehand.server.teams import Bounds, NewRun, Teams
from chargehand.server.tenants import Tenant
from chargehand.text.names import listed

MakeNew: TypeAlias = Callable[[RecordedRun], Awaitable[NewRun]]
_PATIENCE: Seconds = 30.0
"""For a run that is cancelled."""


@begins_run("/api/runs/{run}/retry")
async def retry_run(tenant: Tenant, request: Request, run: str, body: RetryAsked) -> Response:
    """A new run in which what failed is done again."""

    async def make_new(old: RecordedRun) -> NewRun:
        if body.tasks:
            return _new_run(old, _plan(old), _known_tasks(old, body.tasks))
        state = old.state
        kept = await fork_offers(tenant.journal, old.run, old.entries)
        partly = {_planned_task(old, offer) for offer in offers(state) if offer not in kept}
        failed = any(task.status in (Status.FAILED, Status.SKIPPED) for task in state.tasks.values())
        if state.tasks and not (failed or partly or state.unserved) and state.answer is not None:
            named = listed([f'"{name}"' for name in _task_names(old)])
            raise Refused(f'every task was done; name those to be done again: {{"tasks": [{named}]}}')
        # a plan that left parts of the request out would leave them out again: it is made anew
        return _new_run(old, None if state.unserved else _plan(old), partly)

    return await _run_again(tenant, request, run, body, make_new)


@begins_run("/api/runs/{run}/fork")
async def fork_run(tenant: Tenant, request: Request, run: str, body: Fork) -> Response:
    """A new run that takes over what this one finished."""

    async def make_new(old: RecordedRun) -> NewRun:
        plan = body.plan or (_plan(old) if body.goal is None else None)
        kept = await fork_offers(tenant.journal, old.run, old.entries)
        return _new_run(old, plan, _known_tasks(old, body.again), fork=body, kept=kept)

    return await _run_again(tenant, request, run, body, make_new)


@begins_run("/api/runs/{run}/tasks/{task}/skip")
async def skip_task(tenant: Tenant, request: Request, run: str, task: str, body: Skip) -> Response:
    """A new run without this task."""

    async def make_new(old: RecordedRun) -> NewRun:
        plan = _plan_with(old, task)
        gone = _with_repetitions(plan, TaskId(task))
        tasks = tuple(_without(other, gone) for other in plan.tasks if other.id not in gone)
        if not tasks:
            raise Refused(f"nothing is left of the plan without task {task!r}; cancel the run instead")
        named = ", ".join(sorted(gone))
        note = ev.Noted(f"a person skipped {named} of run {run}; whatever needed it goes on without it")
        return _new_run(old, structs.replace(plan, tasks=tasks), (), note)

    return await _run_again(tenant, request, run, body, make_new)


@begins_run("/api/runs/{run}/tasks/{task}/reassign")
async def reassign_task(tenant: Tenant, request: Request, run: str, task: str, body: Reassign) -> Response:
    """A new run in which another worker does this task."""

    async def make_new(old: RecordedRun) -> NewRun:
        plan = _plan_with(old, task)
        team = tenant.part(Teams).teams[old.requested.team]
        names = [worker.name for worker in team.members]
        if body.worker not in names:
            raise unknown("worker", body.worker, names)
        tasks = tuple(
            structs.replace(planned_task, worker=body.worker, match=None) if planned_task.id == task else planned_task
            for planned_task in plan.tasks
        )
        return _new_run(old, structs.replace(plan, tasks=tasks), [task])

    return await _run_again(tenant, request, run, body, make_new)


# --- what they have in common


async def _run_again(tenant: Tenant, request: Request, run: str, sent: Sent, make_new: MakeNew) -> Response:
    async def begin(key: RunKey | None) -> str:
        old = await read_run(tenant, run)
        team = old.requested.team
        if team not in tenant.part(Teams).teams:
            raise Refused(f"the team of run {run!r} is not here, so nobody could do it again")
        tenant.runs.check()
        await make_new(old)  # what is wrong is said before a run that is under way is cancelled for it
        if old.state.ended is None:
            old = await _cancel(tenant, run)
        return await begin_run(tenant, team, await make_new(old), key)

    return await begin_once(tenant, request, sent, begin)


async def _cancel(tenant: Tenant, run: str) -> RecordedRun:
    await tell_run(tenant, run, lambda _: ev.CancelRequested("done again in another run"))
    try:
        async with asyncio.timeout(_PATIENCE):
            await tenant.runs.outcome(run)
    except TimeoutError as error:
        raise Problem(409, "busy", f"run {run!r} was cancelled and has not stopped yet; try again soon") from error
    return await read_run(tenant, run)


def _new_run(
    old: RecordedRun,
    plan: Plan | None,
    again: Iterable[str],
    *also: ev.Event,
    fork: Fork | None = None,
    kept: Sequence[ev.Offer] | None = None,
) -> NewRun:
    """A run with the goal and the caps of the old one, unless a fork wants others.

    A fork asks a worker again that left a part of its task; who retries, skips or reassigns has said what to do again.
    What nobody could do about the same goal is still to be said: a plan that is given is not made by who would say it.
    """
    goal = old.requested.goal
    bounds = Bounds(old.requested.budget)
    results = offers(old.state) if kept is None else kept
    if fork is not None:
        goal = fork.goal or goal
        bounds = bounds_of(fork)
        if fork.budget is None:
            bounds = structs.replace(bounds, budget=old.requested.budget)
    unserved = tuple(old.state.unserved) if plan is not None and goal == old.requested.goal else ()
    undone = _with_dependents(plan, again)
    taken = tuple(offer for offer in results if _planned_task(old, offer) not in undone)
    return NewRun(goal, bounds, plan, (ev.ResultsOffered(old.run, taken, unserved), *also))


def _planned_task(old: RecordedRun, offer: ev.Offer) -> TaskId:
    """The task of the plan that a result belongs to: of a task for one item of a list, the task for all of them."""
    progress = old.state.tasks[offer.task]
    while progress.parent is not None:
        progress = progress.parent
    return progress.task.id


def _plan(old: RecordedRun) -> Plan | None:
    """The plan as far as it had grown; None where there was none yet: then it is planned anew."""
    plan = planned(old.state)
    return plan if plan.tasks else None


def _plan_with(old: RecordedRun, task: str) -> Plan:
    """The plan of a run that has this task; 404 where it has not."""
    _known_tasks(old, [task])
    return planned(old.state)


def _known_tasks(old: RecordedRun, tasks: Iterable[str]) -> tuple[str, ...]:
    names = _task_names(old)
    for task in tasks:
        if task not in names:
            raise unknown("task", task, names)
    return tuple(tasks)


def _task_names(old: RecordedRun) -> list[str]:
    return [progress.task.id for progress in old.state.tasks.values() if progress.parent is None]


def _with_dependents(plan: Plan | None, first: Iterable[str]) -> set[str]:
    """The tasks named and all that need them, directly or not."""
    affected = set(first)
    tasks = () if plan is None else plan.tasks
    for _ in tasks:  # one more level each time
        affected |= {task.id for task in tasks if affected.intersection(name for name, _ in needs(task))}
    return affected


def _with_repetitions(plan: Plan, task: TaskId) -> set[TaskId]:
    """A task and those that are done once an item of its list: without it there is nothing to repeat over."""
    repeated = {task}
    for _ in plan.tasks:
        repeated |= {other.id for other in plan.tasks if other.for_each in repeated}
    return repeated


def _without(task: Task, gone: set[TaskId]) -> Task:
    """The task without its edges to those that are gone."""
    after = tuple(edge for edge in task.after if (edge.task if isinstance(edge, Edge) else edge) not in gone)
    lost = sum(isinstance(edge, Edge) and edge.need == "quorum" and edge.task in gone for edge in task.after)
    replaces = TaskId("") if task.replaces in gone else task.replaces
    return structs.replace(task, after=after, quorum=max(0, task.quorum - lost), replaces=replaces)
