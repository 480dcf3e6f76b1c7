"""Control a run: cancel, pause, resume, answer its question; retry, skip, reassign, fork. Durable on return."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from msgspec import UNSET, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.result import planned
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.json_schema import problems, schema_problem
from chargehand.engine.plan import Edge, Plan, Task, TaskId, fingerprint, in_order, needs
from chargehand.engine.policy import Seconds
from chargehand.engine.state import Status
from chargehand.engine.view import offers
from chargehand.errors import Refused, RunBusy
from chargehand.journal.protocol import Journal
from chargehand.journal.store import journal_store
from chargehand.runtime.runner import fork_offers, offer_results
from chargehand.runtime.trace import Tracer
from chargehand.server.api.operations import operation
from chargehand.server.api.runs import RunSummaries, begin_once, begin_run, begins_run, bounds_of, run_info
from chargehand.server.api.shapes import (
    AnswerBody,
    CallVerdictBody,
    DeletedRuns,
    FeedbackBody,
    FeedbackResult,
    ForkBody,
    ForkPreview,
    ReasonBody,
    ReassignBody,
    RequestBody,
    RetryBody,
    RunInfo,
    SkipBody,
    VerdictBody,
)
from chargehand.server.idempotency import KEY_NAME, RunKey, in_turn, is_answered, message_key
from chargehand.server.openai.chain import runs_after
from chargehand.server.routing import CALLER, ApiCaller
from chargehand.server.run_control import RecordedRun, Say, read_run, tell_run, wait_for_run
from chargehand.server.teams import Bounds, NewRun, Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Fault, Problem, reply, unknown
from chargehand.text.words import listed


async def _tell(tenant: Tenant, run: str, say: Say) -> RunInfo:
    await tell_run(tenant, run, say)
    return await run_info(tenant, run)


@operation("POST", "/api/runs/{run}/cancel", scope="run")
async def cancel_run(tenant: Tenant, request: Request, run: str, body: ReasonBody) -> RunInfo:
    """Stop a run; what is finished stays."""
    return await _tell(tenant, run, lambda _: ev.CancelRequested(body.reason, by=_name_of_caller(request)))


@operation("POST", "/api/runs/{run}/pause", scope="run")
async def pause_run(tenant: Tenant, run: str, body: ReasonBody) -> RunInfo:
    """Start nothing more until it is resumed; its time goes on. A run that waits for a person can be paused, too."""

    def pause(recorded: RecordedRun) -> ev.Event | None:
        if not recorded.is_driven and recorded.state.input is None:
            raise Refused(f"run {run!r} is not under way, so nothing of it goes on")
        return None if recorded.state.paused else ev.PauseSet(paused=True, reason=body.reason)

    return await _tell(tenant, run, pause)


@operation("POST", "/api/runs/{run}/resume", scope="run")
async def resume_run(tenant: Tenant, run: str, body: ReasonBody) -> RunInfo:
    """Go on with a run that was paused or interrupted."""

    def resume(recorded: RecordedRun) -> ev.Event | None:
        if not (recorded.is_driven or recorded.state.paused) and recorded.state.input is not None:
            raise Refused(f"run {run!r} waits for a person; answer its question: POST /api/runs/{run}/answer")
        goes_on = recorded.is_driven and not recorded.state.paused
        return None if goes_on else ev.PauseSet(paused=False, reason=body.reason)

    return await _tell(tenant, run, resume)


@operation("POST", "/api/runs/{run}/plan", scope="run", takes_key=True)
async def judge_plan(tenant: Tenant, request: Request, run: str, body: VerdictBody) -> RunInfo:
    """Approve, edit or reject the plan a run asks about."""
    _check_plan(body)

    def judge(recorded: RecordedRun) -> ev.InputAnswered:
        question = _question(recorded)
        if question.what != "plan":
            raise Refused(f"run {run!r} asks about a {question.what}, not about its plan; answer that")
        return ev.InputAnswered(body.number, body.verdict, body.feedback, body.plan, by=_name_of_caller(request))

    message = message_key(request, body)
    async with in_turn(tenant, message):
        return await _answer_once(tenant, run, judge, message)


@operation("POST", "/api/runs/{run}/answer", scope="run", takes_key=True)
async def answer_run(tenant: Tenant, request: Request, run: str, body: AnswerBody) -> RunInfo:
    """Answer the question a run asks."""
    message = message_key(request, body)
    async with in_turn(tenant, message):
        return await answer_question(tenant, run, body, _name_of_caller(request), message=message)


async def answer_question(
    tenant: Tenant,
    run: str,
    body: AnswerBody,
    by: str,
    *,
    message: ev.MessageKey | None = None,
    key_name: str = KEY_NAME,
) -> RunInfo:
    """Answer the question a run asks. The same message again changes nothing, also after another question came up.

    The caller lets calls with the same message go one at a time (`in_turn`).

    Args:
        tenant: The tenant of the run.
        run: The run that asks.
        body: The answer.
        by: Who answers.
        message: The message that the answer came with; None: it has no id.
        key_name: What the client calls that id.
    """
    _check_plan(body)
    _check_results(body)

    def answer(recorded: RecordedRun) -> ev.InputAnswered:
        _check_shape(_question(recorded), body)
        return ev.InputAnswered(
            number=body.number,
            verdict=body.verdict,
            feedback=body.feedback,
            plan=body.plan,
            result=_result_of(body),
            also=tuple(
                ev.CallVerdict(other.call, other.verdict, other.feedback, _result_of(other)) for other in body.also
            ),
            by=by,
        )

    return await _answer_once(tenant, run, answer, message, key_name)


async def _answer_once(
    tenant: Tenant,
    run: str,
    answer: Callable[[RecordedRun], ev.InputAnswered],
    message: ev.MessageKey | None,
    key_name: str = KEY_NAME,
) -> RunInfo:
    """Send an answer, unless its message has answered before; return how the run stands."""
    if not await has_answered(tenant, run, message, key_name):
        try:
            await tell_run(tenant, run, lambda recorded: structs.replace(answer(recorded), message=message))
        except (Refused, RunBusy):
            if not await was_taken(tenant, run, message, key_name):
                raise
    return await run_info(tenant, run)


async def was_taken(tenant: Tenant, run: str, message: ev.MessageKey | None, key_name: str) -> bool:
    """Return whether the same message, sent to another server at the same time, has answered.

    While another process holds the run, that server may be about to write the answer.
    """
    for _ in range(_LOOKS):
        is_held_elsewhere = not tenant.runs.is_running(run) and (await tenant.journal.row(run)).held
        if await has_answered(tenant, run, message, key_name):
            return True
        if message is None or not is_held_elsewhere:
            return False
        await asyncio.sleep(_LOOK)
    return False


async def has_answered(tenant: Tenant, run: str, message: ev.MessageKey | None, key_name: str) -> bool:
    """Return whether a message has answered a question of the run before."""
    return message is not None and is_answered(await tenant.journal.read(run), message, key_name)


def _name_of_caller(request: Request) -> str:
    """What the token was called when it was made; its id where it has no name."""
    caller: ApiCaller = request.scope[CALLER]
    return caller.name or caller.key


def _check_plan(sent: VerdictBody | AnswerBody) -> None:
    """Who sends a plan means it, so it must not be passed over."""
    if (sent.verdict == "edit") != (sent.plan is not None):
        raise Problem(422, "invalid", "a plan comes with the verdict `edit`, and with no other")


def _result_of(verdict: AnswerBody | CallVerdictBody) -> object:
    return None if verdict.result is UNSET else verdict.result


def _check_results(sent: AnswerBody) -> None:
    """Refuse a call that is said to be done without its result: the worker goes on from it."""
    for place, verdict in (("result", sent), *((f"also[{n}].result", other) for n, other in enumerate(sent.also))):
        if verdict.verdict == "done" and verdict.result is UNSET:
            detail = "say what the call returned in `result`; null if it returned nothing"
            raise Problem(422, "invalid", detail, faults=[Fault(place, detail)])


def _check_shape(pending: ev.InputRequested, sent: AnswerBody) -> None:
    """Refuse an answer in words that is none of the options, or not of the form that the question wants."""
    if sent.verdict != "answer" or pending.number != sent.number or pending.question is None:
        return
    options = pending.question.options
    if options and not pending.question.free_text and _result_of(sent) not in options:
        detail = f"the answer must be one of {listed([repr(option) for option in options])}"
        raise Problem(422, "invalid", detail, faults=[Fault("result", detail)])
    schema = pending.question.schema
    if isinstance(schema, dict) and not schema_problem(cast("object", schema)):  # a model wrote it
        misfits = [Fault("result", problem) for problem in problems(_result_of(sent), cast("dict[str, Any]", schema))]
        if misfits:
            detail = f"the answer is not of the form that is asked for: {misfits[0].message}"
            raise Problem(422, "invalid", detail, faults=misfits)


def _question(recorded: RecordedRun) -> ev.InputRequested:
    run = recorded.run
    if recorded.state.input is None:
        raise Refused(f"run {run!r} asks nothing just now")
    return recorded.state.input


@operation("POST", "/api/runs/{run}/feedback", scope="run")
async def judge_run(tenant: Tenant, run: str, body: FeedbackBody) -> FeedbackResult:
    """Say how well a routed run went; later requests like it are routed by it."""
    from chargehand.agents.routing.feedback import record_feedback  # noqa: PLC0415 - only feedback needs it

    judgement = await record_feedback(tenant.journal, run, body.good, body.worker)
    return FeedbackResult(run, judgement.request, judgement.confirmed, judgement.refuted)


@operation("POST", "/api/runs/{run}/tasks/{task}/stop", scope="run")
async def stop_task(tenant: Tenant, request: Request, run: str, task: str, body: ReasonBody) -> RunInfo:
    """Stop the attempt at a task that is under way: the task has failed, and what needs it is treated as after any
    failure. The other tasks go on.
    """  # noqa: D205 - it is one summary
    name = _name_of_caller(request)

    def stop(recorded: RecordedRun) -> ev.Event:
        progress = recorded.state.tasks.get(TaskId(task))
        if progress is None:
            raise unknown("task", task, recorded.state.tasks)
        if progress.status is not Status.RUNNING:
            raise Refused(f"task {task!r} of run {run!r} is not under way, so there is nothing to stop")
        reason = f": {body.reason}" if body.reason else ""
        failure = ev.Failure("stopped", f"{name} stopped it{reason}")
        return ev.AttemptFailed(progress.task.id, progress.attempt, failure)

    return await _tell(tenant, run, stop)


# --- run again, in part: each is a new run that takes over what was finished; the old one is cancelled first


MakeNew: TypeAlias = Callable[[RecordedRun], Awaitable[NewRun]]
_PATIENCE: Seconds = 30.0
"""For a run that is cancelled."""
_LOOKS = 40
"""How often it is looked whether the same message, sent to another server at the same time, has answered."""
_LOOK: Seconds = 0.05
"""The pause between two of these looks."""


@begins_run("/api/runs/{run}/retry")
async def retry_run(tenant: Tenant, request: Request, run: str, body: RetryBody) -> Response:
    """A new run in which what failed is done again."""

    async def make_new(old: RecordedRun) -> NewRun:
        if body.tasks:
            return await _new_run(tenant.journal, old, _plan(old), _known_tasks(old, body.tasks))
        state = old.state
        offered = await fork_offers(tenant.journal, old.run, old.entries)
        partly = {_planned_task(old, offer) for offer in offers(state) if offer not in offered}
        failed = any(task.status in (Status.FAILED, Status.SKIPPED) for task in state.tasks.values())
        if state.tasks and not (failed or partly or state.unserved) and state.answer is not None:
            names_text = listed([f'"{name}"' for name in _task_names(old)])
            raise Refused(f'every task was done; name those to be done again: {{"tasks": [{names_text}]}}')
        # a plan that left parts of the request out would leave them out again: it is made anew
        return await _new_run(tenant.journal, old, None if state.unserved else _plan(old), partly)

    return await _run_again(tenant, request, run, body, make_new)


@begins_run("/api/runs/{run}/fork")
async def fork_run(tenant: Tenant, request: Request, run: str, body: ForkBody) -> Response:
    """A new run that takes over what this one finished."""
    return await _run_again(tenant, request, run, body, lambda old: _forked(tenant, old, body))


@operation("POST", "/api/runs/{run}/fork/preview")
async def preview_fork(tenant: Tenant, run: str, body: ForkBody) -> ForkPreview:
    """What a fork of this run would take over and what it would do again; nothing is done about it."""
    old = await read_run(tenant, run)
    new = await _forked(tenant, old, body)
    offered = {offer.task for event in new.also if isinstance(event, ev.ResultsOffered) for offer in event.offers}
    reused: dict[TaskId, None] = {}
    tasks = in_order(() if new.plan is None else new.plan.tasks)[0]
    for task in tasks:
        before = old.state.tasks.get(task.id)
        is_same = before is not None and fingerprint(before.task) == fingerprint(task)
        items = [progress.task.id for progress in old.state.tasks.values() if before and progress.parent is before]
        is_offered = task.id in offered or (bool(items) and offered.issuperset(items))
        if is_same and is_offered and all(name in reused for name, _ in needs(task)):
            reused[task.id] = None
    again = tuple(task.id for task in tasks if task.id not in reused)
    used = {task.id: task.used for task in Tracer.replay(run, old.entries).snapshot().tasks}
    cost = sum((used.get(name, NOTHING) for name in again), NOTHING)
    return ForkPreview(reused=tuple(reused), again=again, usd=cost.usd)


async def _forked(tenant: Tenant, old: RecordedRun, body: ForkBody) -> NewRun:
    plan = body.plan or (_plan(old) if body.goal is None else None)
    offered = await fork_offers(tenant.journal, old.run, old.entries)
    return await _new_run(tenant.journal, old, plan, _known_tasks(old, body.again), fork=body, offered=offered)


@operation("DELETE", "/api/runs/{run}", scope="admin")
async def delete_run(tenant: Tenant, run: str) -> DeletedRuns:
    """Delete a run and those inside it for good; 409 while it is under way.

    `kept_in` names the later runs of its conversation: what was said in it stands in their requests, too.
    """
    recorded = await read_run(tenant, run)
    if recorded.requested.parent is not None:
        raise Refused(f"run {run!r} is inside run {recorded.requested.parent.run!r}; delete that one")
    if tenant.runs.is_running(run):
        raise Refused(f"run {run!r} is under way; cancel it first")
    names = (run, *await tenant.journal.inside(run))
    later = await runs_after(tenant.journal, run)
    pruned = await asyncio.to_thread(journal_store(tenant.stores.journal).prune, names)
    if pruned.held:
        raise Refused(f"run {run!r} is under way in another process; cancel it first")
    tenant.part(RunSummaries).forget(names)
    return DeletedRuns(names, later)


@begins_run("/api/runs/{run}/tasks/{task}/skip")
async def skip_task(tenant: Tenant, request: Request, run: str, task: str, body: SkipBody) -> Response:
    """A new run without this task; or, in place, this run without it."""
    if body.in_place:
        skipped = ev.TaskSkipped(TaskId(task), "person", by=_name_of_caller(request))
        return reply(await _tell(tenant, run, lambda _: skipped))

    async def make_new(old: RecordedRun) -> NewRun:
        plan = _plan_with(old, task)
        gone = _with_repetitions(plan, TaskId(task))
        tasks = tuple(_without(other, gone) for other in plan.tasks if other.id not in gone)
        if not tasks:
            raise Refused(f"nothing is left of the plan without task {task!r}; cancel the run instead")
        names_text = ", ".join(sorted(gone))
        note = ev.Noted(f"a person skipped {names_text} of run {run}; whatever needed it goes on without it")
        return await _new_run(tenant.journal, old, structs.replace(plan, tasks=tasks), (), note)

    return await _run_again(tenant, request, run, body, make_new)


@begins_run("/api/runs/{run}/tasks/{task}/reassign")
async def reassign_task(tenant: Tenant, request: Request, run: str, task: str, body: ReassignBody) -> Response:
    """A new run in which another worker does this task; or, in place, this run with that change."""
    if body.in_place:
        reassigned = ev.TaskReassigned(TaskId(task), body.worker, by=_name_of_caller(request))
        return reply(await _tell(tenant, run, lambda _: reassigned))

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
        return await _new_run(tenant.journal, old, structs.replace(plan, tasks=tasks), [task])

    return await _run_again(tenant, request, run, body, make_new)


# --- what they have in common


async def _run_again(tenant: Tenant, request: Request, run: str, sent: RequestBody, make_new: MakeNew) -> Response:
    async def begin(key: RunKey | None) -> str:
        old = await read_run(tenant, run)
        team = old.requested.team
        if team not in tenant.part(Teams).teams:
            raise Refused(f"the team of run {run!r} is not served here; start the server with its team file")
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
            return await wait_for_run(tenant, run)
    except TimeoutError as error:
        raise Problem(409, "busy", f"run {run!r} was cancelled and has not stopped yet; try again soon") from error


async def _new_run(
    journal: Journal,
    old: RecordedRun,
    plan: Plan | None,
    again: Iterable[str],
    *also: ev.Event,
    fork: ForkBody | None = None,
    offered: Sequence[ev.Offer] | None = None,
) -> NewRun:
    """A run with the goal and the caps of the old one, unless a fork names others.

    A fork repeats tasks whose result was incomplete; retry, skip and reassign name the tasks to repeat. Parts of the
    request that no worker could do stay listed: a plan that is given has no planner to list them.
    """
    goal = old.requested.goal
    bounds = Bounds(old.requested.budget)
    results = offers(old.state) if offered is None else offered
    if fork is not None:
        goal = fork.goal or goal
        bounds = bounds_of(fork)
        if fork.budget is None:
            bounds = structs.replace(bounds, budget=old.requested.budget)
    unserved = tuple(old.state.unserved) if plan is not None and goal == old.requested.goal else ()
    undone = _with_dependents(plan, again)
    taken = tuple(offer for offer in results if _planned_task(old, offer) not in undone)
    also = (await offer_results(journal, old.run, old.entries, taken, unserved=unserved), *also)
    requested = old.requested
    return NewRun(
        goal,
        bounds,
        plan,
        also,
        labels=requested.labels,
        scope=requested.scope,
        material=requested.inputs,
        answer_format=requested.answer_format,
    )


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
