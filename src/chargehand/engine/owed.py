"""`owed`: what the runtime must be doing now, when it must look again, and what each piece of work is given."""

from collections.abc import KeysView, Mapping

from msgspec import Raw, Struct

from chargehand.engine.breaker import next_change
from chargehand.engine.events import Finding, Gap, InputAnswered
from chargehand.engine.failure import EarlierCall
from chargehand.engine.plan import NO_TASK, Combine, LoopState, Task, TaskId
from chargehand.engine.policy import Instant
from chargehand.engine.state import RunState, Step, Work
from chargehand.engine.view import (
    Input,
    answer_until,
    gaps,
    inputs,
    material,
    refused_gaps,
    results,
    unanswered_gaps,
    work_until,
)


def owed(state: RunState) -> KeysView[Work]:
    """Started and not yet answered."""
    return state.owing.keys()


def wake_at(state: RunState, now: Instant) -> Instant | None:
    """The first instant after `now` at which `decide` may have more to say although nothing was reported."""
    if state.ended is not None:
        return None
    times = [work_until(state), answer_until(state), state.planning.timer, state.answering.timer]
    if state.timers:
        times.append(state.timers[0][0])
    if state.stopping:
        times.append(state.stopping_until)
    if state.ready_queues and state.breakers:
        times.extend(next_change(breaker) for breaker in state.breakers.values() if breaker.opened)
    return min([at for at in times if at > now], default=None)


class Brief(Struct, frozen=True, gc=False):
    """All that is needed to do one piece of work, and nothing else."""

    work: Work
    """The piece of work."""
    goal: str
    """The request of the run."""
    until: Instant
    """When it must be done, in seconds since 1970."""
    worker: str = ""
    """Who does it; empty: the supervisor."""
    instruction: str = ""
    """What is asked of the worker."""
    inputs: tuple[Input, ...] = ()
    """The inputs of a task; for an answer, every result there is."""
    steps: dict[int, Step] | None = None
    """What this attempt recorded before a crash: it is not done again."""
    steps_elsewhere: dict[int, Step] | None = None
    """Finished steps of the last attempt in another process, which this attempt goes on from there."""
    effects: dict[str, Raw] | None = None
    """What earlier attempts changed in the world, by request: an equal call is answered with it."""
    earlier: tuple[EarlierCall, ...] = ()
    """Calls that earlier attempts, or an earlier run, made for this task and that changed something."""
    acted: Mapping[str, tuple[int, EarlierCall]] = {}
    """Calls of other tasks and runs that changed something, by `call_digest`, with the round of the task."""
    round: int = 0
    """The round of planning the task is of: only calls of earlier rounds are repeats."""
    failed_calls: dict[str, int] | None = None
    """How often a call failed in earlier attempts, by `call_digest`: an approval of it is used up."""
    keep: bool = False
    """The attempt goes on from the finished steps of the last one."""
    failure: str = ""
    """Why the last attempt failed."""
    first_failure: str = ""
    """Why the worker failed that the task was meant for."""
    answers: dict[str, str] | None = None
    """Why a call that needs approval may not be made, by call; empty: it may."""
    replies: dict[str, Raw] | None = None
    """What a person answered to questions of the worker or the planner, by question."""
    tasks: tuple[Task, ...] = ()
    """What the plan holds; for an attempt, its own task."""
    findings: tuple[Finding, ...] = ()
    """For planning: what was wrong with the last proposal."""
    gaps: tuple[Gap, ...] = ()
    """What is missing."""
    replan: bool = False
    """The plan is to close these gaps."""
    combine: Combine = "merge"
    """How results become one answer."""
    outside: bool = False
    """The task was put after results or failures had been seen."""
    handed_on: InputAnswered | None = None
    """A person's answer to a question of the nested run that this attempt began."""
    ask_if_tainted: bool = True
    """A person is asked before an effect once the attempt has seen text from outside."""
    began: Instant = 0.0
    """When the run began: the day it is for all who work for it, also after a crash."""
    refused: tuple[str, ...] = ()
    """Results of earlier attempts that a check did not accept, each as a hash."""
    loop: LoopState = LoopState()
    """How far a plan has come that is made one task at a time."""
    material: tuple[Input, ...] = ()
    """What the run was given besides its goal, for planning and answering."""
    item_of: TaskId = NO_TASK
    """The task that its own is an item of: the plan repeats that one for each element of a list."""
    recorded: Mapping[str, tuple[str, ...]] = {}
    """What models replied when this was planned or answered before, and was cut off: by the hash of the request."""
    message: str = ""
    """The text of the message that the run carries, which the instruction puts into words for its reader."""


def brief(state: RunState, work: Work) -> Brief:
    """The brief for one piece of owed work."""
    goal = state.requested.goal
    if work.kind in ("plan", "answer"):
        duty = state.planning if work.kind == "plan" else state.answering
        tasks = tuple(progress.task for progress in state.tasks.values() if progress.parent is None)
        missing = (*gaps(state), *refused_gaps(state), *unanswered_gaps(state))
        if work.kind == "plan":
            missing = tuple(gap for gap in gaps(state) if gap.status != "unfinished")
        return Brief(
            work,
            goal,
            duty.timer,
            inputs=results(state),
            tasks=tasks,
            findings=duty.feedback,
            gaps=missing,
            replan=state.replans > 0,
            replies=duty.replies,
            recorded=duty.recorded,
            combine=state.combine,
            began=state.began,
            loop=state.loop or LoopState(),
            material=material(state) if state.requested.inputs else (),
        )
    progress = state.tasks[work.task]
    failure = progress.failure.message if progress.failure is not None else ""
    instruction = progress.instruction or progress.task.instruction
    first = next(iter(state.tasks.values())).round  # of what stands: a plan that a person sent back does not
    earlier = state.requested.earlier
    offered = state.replies
    if state.offered_replies:
        offered = {**offered, **state.offered_replies.get(work.task, {})}
    return Brief(
        work,
        goal,
        progress.timer,
        worker=progress.worker,
        instruction=instruction,
        inputs=inputs(state, progress) or (material(state) if state.requested.inputs else ()),
        steps=progress.steps,
        effects=progress.effects,
        earlier=progress.earlier,
        acted=state.acted,
        round=progress.round,
        failed_calls=progress.failed_calls,
        keep=progress.keep,
        failure=failure,
        first_failure=progress.failure.first if progress.failure is not None else "",
        answers=dict.fromkeys(offered, "") | (progress.answers or {}) if offered else progress.answers,
        replies=offered | (progress.replies or {}) if offered else progress.replies,
        tasks=(progress.task,),
        outside=bool(progress.instruction) or state.is_rerun or progress.round > first or state.requested.outside,
        handed_on=progress.handed_on,
        ask_if_tainted=state.requested.policy.tainted_effects == "ask",
        began=state.began if earlier is None else earlier.began,
        refused=progress.refused,
        item_of=NO_TASK if progress.parent is None else progress.parent.task.id,
        message=goal if state.requested.sender else "",
    )
