"""Do a run again, in part: retry, skip, reassign, fork. Each is a new run that takes over what was finished.

The old run stays as it is. One that is under way is cancelled first, in the same step.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.nested import offered
from chargehand.core.reuse import offers
from chargehand.core.state import Status
from chargehand.errors import Refused, Unknown
from chargehand.runtime.result import planned
from chargehand.server.api.begin import Wish, begun, bounds_of, earlier, key_of
from chargehand.server.api.orders import settled
from chargehand.server.api.reading import Seen
from chargehand.server.api.shapes import Asked, Begun, Fork, Reassign, RetryAsked, Skip
from chargehand.server.api.table import Operation, sent
from chargehand.server.problem import Problem
from chargehand.server.teams import Bounds, Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import part
from chargehand.terms import events as ev
from chargehand.terms.plan import Edge, Plan, Task, TaskId, needs

Make: TypeAlias = Callable[[Seen], Wish]
_PATIENCE = 30.0  # for a run that is cancelled
_NAMED = 20


async def retry(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, RetryAsked)

    def again(one: Seen) -> Wish:
        known = _known(one, wanted.tasks)
        state = one.state
        if known:
            return _wish(one, _plan(one), known)
        kept = offered(state, one.entries)
        partly = {offer.task.partition("[")[0] for offer in offers(state) if offer not in kept}
        failed = any(task.status in (Status.FAILED, Status.SKIPPED) for task in state.tasks.values())
        if state.tasks and not (failed or partly or state.unserved) and state.answer is not None:
            named = ", ".join(f'"{name}"' for name in _names(one)[:_NAMED])
            raise Refused(f'every task was done; name those to be done again: {{"tasks": [{named}]}}')
        # a plan that left parts of the request out would leave them out again: it is made anew
        return _wish(one, None if state.unserved else _plan(one), partly)

    return await _again(request, tenant, wanted, again)


async def skip(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Skip)
    task = TaskId(part(request, "task"))

    def without(one: Seen) -> Wish:
        _known(one, [task])
        found = _plan(one)
        assert found is not None, "a run with a task has a plan"
        gone = _repeated(found, task)
        tasks = tuple(_freed(each, gone) for each in found.tasks if each.id not in gone)
        if not tasks:
            raise Refused(f"nothing is left of the plan without task {task!r}; cancel the run instead")
        named = ", ".join(sorted(gone))
        noted = ev.Noted(f"a person skipped {named} of run {one.run}; whatever needed it goes on without it")
        return _wish(one, structs.replace(found, tasks=tasks), (), noted)

    return await _again(request, tenant, wanted, without)


async def reassign(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Reassign)
    task = TaskId(part(request, "task"))

    def to_another(one: Seen) -> Wish:
        _known(one, [task])
        found = _plan(one)
        team = tenant.part(Teams).teams[one.requested.team]
        names = [each.name for each in team.members]
        if wanted.worker not in names:
            raise Unknown(f"there is no worker {wanted.worker!r} in team {team.name}; there are {', '.join(names)}")
        assert found is not None, "a run with a task has a plan"
        tasks = tuple(
            structs.replace(each, worker=wanted.worker, match=None) if each.id == task else each for each in found.tasks
        )
        return _wish(one, structs.replace(found, tasks=tasks), [task])

    return await _again(request, tenant, wanted, to_another)


async def fork(request: Request, tenant: Tenant) -> Response:
    wanted = await sent(request, Fork)

    def forked(one: Seen) -> Wish:
        plan = wanted.plan or (_plan(one) if wanted.goal is None else None)
        return _wish(one, plan, _known(one, wanted.again), wanted=wanted)

    return await _again(request, tenant, wanted, forked)


# --- what they have in common


async def _again(request: Request, tenant: Tenant, wanted: Asked, make: Make) -> Response:
    key = key_of(request, tenant, wanted)
    if key is not None and (found := await earlier(tenant, key)) is not None:
        return found
    run = part(request, "run")
    one = await settled(tenant, run, _PATIENCE, lambda found: _fits(tenant, found, make))
    wish = make(one)
    served = await tenant.part(Teams).of(one.requested.team, wish.bounds.budget)
    return await begun(tenant, served, wish, key)


def _fits(tenant: Tenant, one: Seen, make: Make) -> None:
    """Raise what is wrong before a run that is under way is cancelled for it."""
    if one.requested.team not in tenant.part(Teams).teams:
        raise Refused(f"the team of run {one.run!r} is not here, so nobody could do it again")
    tenant.runs.check()
    make(one)


def _wish(one: Seen, plan: Plan | None, again: Iterable[str], *also: ev.Event, wanted: Fork | None = None) -> Wish:
    """A run with the goal and the caps of the old one, unless others are `wanted` of a fork.

    A fork asks a worker again that left a part of its task; who retries, skips or reassigns has said what to do again.
    What nobody could do about the same goal is still to be said: a plan that is given is not made by who would say it.
    """
    old = one.requested
    goal = (None if wanted is None else wanted.goal) or old.goal
    unserved = tuple(one.state.unserved) if plan is not None and goal == old.goal else ()
    left = _affected(plan, again)
    found = offers(one.state) if wanted is None else offered(one.state, one.entries)
    kept = tuple(offer for offer in found if offer.task.partition("[")[0] not in left)
    bounds = Bounds(old.budget) if wanted is None else bounds_of(wanted)
    if wanted is not None and wanted.budget is None:
        bounds = structs.replace(bounds, budget=old.budget)
    return Wish(goal, bounds, plan, (ev.ResultsOffered(one.run, kept, unserved), *also))


def _plan(one: Seen) -> Plan | None:
    """The plan as far as it had grown; None where there was none yet: then it is planned anew."""
    found = planned(one.state)
    return found if found.tasks else None


def _known(one: Seen, tasks: Iterable[str]) -> tuple[str, ...]:
    names = _names(one)
    for task in tasks:
        if task not in names:
            there = f"there are {', '.join(names[:_NAMED])}" if names else "it has none"
            raise Problem(404, "unknown", f"there is no task {task[:100]!r} in this run; {there}")
    return tuple(tasks)


def _names(one: Seen) -> list[str]:
    return [each.task.id for each in one.state.tasks.values() if each.mother is None]


def _affected(plan: Plan | None, first: Iterable[str]) -> set[str]:
    """The tasks named and all that need them, directly or not."""
    found = set(first)
    tasks = () if plan is None else plan.tasks
    for _ in tasks:  # one more level each time
        more = {one.id for one in tasks if one.id not in found and found.intersection(name for name, _ in needs(one))}
        if not more:
            break
        found |= more
    return found


def _repeated(plan: Plan, task: TaskId) -> set[TaskId]:
    """A task and those that are done once an item of its list: without it there is nothing to repeat over."""
    found = {task}
    for _ in plan.tasks:
        found |= {one.id for one in plan.tasks if one.for_each in found}
    return found


def _freed(task: Task, gone: set[TaskId]) -> Task:
    after = tuple(edge for edge in task.after if (edge.task if isinstance(edge, Edge) else edge) not in gone)
    lost = sum(isinstance(edge, Edge) and edge.need == "quorum" and edge.task in gone for edge in task.after)
    replaces = TaskId("") if task.replaces in gone else task.replaces
    return structs.replace(task, after=after, quorum=max(0, task.quorum - lost), replaces=replaces)


OPERATIONS = tuple(
    Operation(
        method="POST",
        path=path,
        call=call,
        name=name,
        group="runs",
        scope="run",
        asked=asked,
        told=Begun,
        status=201,
        creates=True,
        problems=(404, 409, 422, 429, 503),
        summary=summary,
    )
    for path, call, name, asked, summary in (
        ("/api/runs/{run}/retry", retry, "retry_run", RetryAsked, "A new run in which what failed is done again."),
        ("/api/runs/{run}/fork", fork, "fork_run", Fork, "A new run that takes over what this one finished."),
        ("/api/runs/{run}/tasks/{task}/skip", skip, "skip_task", Skip, "A new run without this task."),
        (
            "/api/runs/{run}/tasks/{task}/reassign",
            reassign,
            "reassign_task",
            Reassign,
            "A new run in which another worker does this task.",
        ),
    )
)
