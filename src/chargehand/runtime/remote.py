"""Workers in other processes: an attempt of a worker with a queue is a run of its own, driven by those of the queue.

The run has the one task, with the same instruction and the same inputs, and one attempt. What came of it is what came
of the attempt: whether it is tried again is decided in the run around it.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import UNSET, Struct, structs

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Budget
from chargehand.engine.facts import Tracing
from chargehand.engine.failure import Failure, Gap, Missing
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task
from chargehand.engine.roster import Agent
from chargehand.engine.state import Progress, Status, Step
from chargehand.engine.value import decode_value
from chargehand.engine.view import gap, gaps, refused_gaps
from chargehand.errors import ChargehandError
from chargehand.runtime.executor import (
    Claim,
    Done,
    ExecutorProxy,
    NestedRequest,
    NestedRun,
    RunBounds,
    StepContext,
    WorkFailed,
)
from chargehand.runtime.nested import identify_brief, material_of, question_inside, request_tasks

_NO_CAPS = Budget()


class RemoteExecutor(ExecutorProxy):
    """An executor whose workers with a queue work in the processes of that queue."""

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        for agent in context.request.roster.agents:
            if agent.name == brief.worker and isinstance(agent.queue, str):
                return _attempt_remotely(agent, agent.queue, brief, context)
        return self._executor.attempt(brief, context)


class RemoteOutcome(Struct, frozen=True, omit_defaults=True):
    """What came of an attempt in another process, as the step that waited for it is journaled."""

    run: str
    value: str = "null"
    """The result, as JSON."""
    tracing: Tracing | None = None
    exit_tool: str = ""
    missing: Missing | None = None
    failure: Failure | None = None
    refused: str = ""


async def _attempt_remotely(agent: Agent, queue: str, brief: Brief, context: StepContext) -> Done:
    share = await context.run_share(agent.estimate, _NO_CAPS)

    async def call(key: str) -> Done:
        nested = NestedRequest(
            request=partial(_request, context, agent, brief),
            kind="worker",
            answer=brief.handed_on,
            queue=queue,
        )
        try:
            run = await context.start_run(key, nested)
        except ChargehandError as error:
            raise WorkFailed(Failure("resource", f"{agent.name}: {error}")) from error
        if run.state.ended is None and run.state.input is not None:
            raise question_inside(run, workers=())
        return Done(_outcome(brief, run), run.used, acted=run.calls)

    outcome = await context.step(
        agent.name,
        call,
        kind="worker",
        request=identify_brief(brief),
        effect="idempotent",
        reserve=share if share == NOTHING else Claim(share, resumable=True),
        shape=RemoteOutcome,
    )
    if outcome.failure is not None:
        raise WorkFailed(outcome.failure, NOTHING, refused=outcome.refused)
    return Done(
        decode_value(outcome.value.encode()),
        NOTHING,
        tracing=outcome.tracing,
        exit_tool=outcome.exit_tool,
        missing=outcome.missing,
    )


def _request(context: StepContext, agent: Agent, brief: Brief, bounds: RunBounds) -> ev.RunRequested:
    """The request of a run in which a worker makes one attempt. It knows what the attempt would know here."""
    outer = context.request
    planned = brief.tasks[0]
    task = Task(
        id=planned.id, instruction=brief.instruction, worker=agent.name, accept=planned.accept, title=planned.title
    )
    base = structs.replace(
        outer,
        budget=bounds.budget,
        deadline=bounds.deadline,
        inputs=material_of(brief),
        outside=brief.outside,
        warnings=(),
        client=None,
        turns=(),
        answer_format=None,
        earlier=_earlier(context, brief),
        acted=tuple(call for round_, call in brief.acted.values() if round_ < brief.round),
    )
    request = request_tasks(base, [structs.replace(agent, fallbacks=(), queue=UNSET)], [task])
    retry = structs.replace(request.policy.retry, attempts=1)
    return structs.replace(request, policy=structs.replace(request.policy, retry=retry))


def _earlier(context: StepContext, brief: Brief) -> ev.EarlierAttempts:
    return ev.EarlierAttempts(
        count=brief.work.number - 1,
        failure=Failure("logic", brief.failure, first=brief.first_failure) if brief.failure else None,
        effects=brief.effects or {},
        calls=brief.earlier,
        failed_calls=brief.failed_calls or {},
        steps=tuple(_record(number, step) for number, step in (brief.steps_elsewhere or {}).items()),
        answers=brief.answers or {},
        replies=brief.replies or {},
        refused=brief.refused,
        began=brief.began,
        planned=context.where.planned,
    )


def _record(number: int, step: Step) -> ev.RecordedStep:
    assert step.result is not None, "an attempt in another process goes on from finished steps only"
    return ev.RecordedStep(
        number=number,
        name=step.name,
        request=step.request,
        result=step.result,
        kind=step.kind,
        effect=step.effect,
        good=step.good,
        arguments=step.arguments or ev.NULL,
        at=step.at,
        calls=step.calls,
    )


def _outcome(brief: Brief, nested: NestedRun) -> RemoteOutcome:
    state = nested.state
    progress = state.tasks[brief.work.task]
    last = [entry.event for entry in nested.entries if isinstance(entry.event, ev.AttemptSucceeded | ev.AttemptFailed)]
    ending = last[-1] if last else None
    if progress.status is Status.DONE and progress.result is not None:
        return RemoteOutcome(
            run=nested.run,
            value=bytes(progress.result).decode(),
            tracing=progress.tracing,
            exit_tool=ending.exit_tool if isinstance(ending, ev.AttemptSucceeded) else "",
            missing=_with_refused(progress.missing, refused_gaps(state)),
        )
    failure = _failure(nested, progress)
    return RemoteOutcome(
        run=nested.run,
        failure=structs.replace(failure, gaps=tuple(gap for gap in gaps(state) if gap.tool) + refused_gaps(state)),
        refused=ending.refused if isinstance(ending, ev.AttemptFailed) else "",
    )


def _with_refused(missing: Missing | None, refused: tuple[Gap, ...]) -> Missing | None:
    """Return what a result leaves out, with the calls that a person did not allow."""
    if not refused:
        return missing
    own = Missing(()) if missing is None else missing
    return Missing((*own.parts, *(gap.message for gap in refused)), (*own.gaps, *refused))


def _failure(nested: NestedRun, progress: Progress) -> Failure:
    """Return why there is no result: what the attempt failed for, or what kept the run from making it."""
    ended = "deadline" if nested.had_all_time else ""
    if progress.status is Status.FAILED and progress.failure is not None:
        failure = progress.failure
        return structs.replace(failure, kind="timeout", ended=ended) if failure.kind == "deadline" else failure
    if nested.state.cancel is not None:
        return Failure("logic", f"its run {nested.run!r} was cancelled", permanent=True)
    missing = gap(nested.state, progress)
    if missing.reason == "budget":
        return Failure("budget", missing.message, cap=missing.cap)
    return Failure("timeout", missing.message, ended=ended)
