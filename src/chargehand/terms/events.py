"""Every fact that can happen in a run. Frozen, past tense, one tagged union; a published one never changes meaning.

A new field gets a default; a new meaning gets a new event. `VERSIONS` counts shapes that older code cannot read.
"""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from chargehand.terms.budget import Amount, Budget
from chargehand.terms.failure import Asked, Failure, Gap, Question
from chargehand.terms.plan import NO_TASK, Combine, Finding, Plan, Task, TaskId
from chargehand.terms.policy import Instant, Policy
from chargehand.terms.roster import Roster
from chargehand.terms.tracing import Tracing

NULL = Raw(b"null")
Effect = Literal["read", "idempotent", "effect"]
Ending = Literal["complete", "partial", "failed", "cancelled", "needs_input"]
EndReason = Literal["done", "gaps", "deadline", "budget", "overspent", "cancelled", "no_plan", "no_results", "no_input"]
Duty = Literal["plan", "refine", "answer"]
Why = Literal["first", "more", "rejected", "failed", "replan"]
SkipReason = Literal["input", "budget", "deadline", "person"]
CallWord = Literal["approve", "reject"]


class Parent(Struct, frozen=True, omit_defaults=True):
    """The attempt of another run that waits for this one. `chain`: the workers who wait, from the outermost inwards."""

    run: str
    task: TaskId
    attempt: int
    nesting: int
    chain: tuple[str, ...] = ()


class Offer(Struct, frozen=True):
    """A finished result that may be used again by whoever asks for the same with the same inputs."""

    key: str
    task: TaskId
    result: Raw
    items: int = -1


# gc=False throughout: what is frozen and holds only data can be in no cycle, and the collector need not look at it
NoteCode = Literal["", "diverged", "assumed", "accepted"]


class _Fact(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    pass


class RunRequested(_Fact, frozen=True, tag="run.requested"):
    """`seed` is all the randomness there is. `turns`: those a background run covers, or (false) leaves to the next."""

    goal: str
    roster: Roster
    policy: Policy
    budget: Budget
    deadline: Instant
    seed: int
    plan: Plan | None = None
    parent: Parent | None = None
    warnings: tuple[Finding, ...] = ()
    team: str = ""
    turns: tuple[tuple[str, bool], ...] = ()


class ResultsOffered(_Fact, frozen=True, tag="run.offered"):
    """`unserved`: what that run's plan left out of the same request, where its plan is used again."""

    run: str
    offers: tuple[Offer, ...]
    unserved: tuple[str, ...] = ()


class RunResumed(_Fact, frozen=True, tag="run.resumed"):
    """A new process took over: what was under way ended with the old one, by a crash unless it said so (released)."""

    epoch: int


class RunReleased(_Fact, frozen=True, tag="run.released"):
    """The process stopped in an orderly way. To resume is no crash then, and the time in between does not count."""


class PauseSet(_Fact, frozen=True, tag="run.pause_set"):
    paused: bool
    reason: str = ""


class CancelRequested(_Fact, frozen=True, tag="run.cancel_requested"):
    reason: str = ""


class TasksAdded(_Fact, frozen=True, tag="plan.grown"):
    """`done`: this round of planning is over. `closed`: so is the plan. `wake`: when to ask for more if it is not.

    `unserved`: the parts of the request that nobody here can do anything about, in words.
    """

    number: int
    tasks: tuple[Task, ...]
    combine: Combine | None = None
    done: bool = True
    closed: bool = True
    wake: Literal["any", "all"] = "all"
    used: Amount | None = None
    warnings: tuple[Finding, ...] = ()
    unserved: tuple[str, ...] = ()


class InputRequested(_Fact, frozen=True, tag="input.requested"):
    """A person is asked: to approve the plan or a call, or what became of an effect.

    `text` says it in one line (of a call: the call itself), `question` in fields.
    """

    number: int
    what: Asked
    task: TaskId = NO_TASK
    text: str = ""
    question: Question | None = None


class CallVerdict(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a person says of one of the calls that a question names under `also`."""

    call: int
    verdict: CallWord
    feedback: str = ""
    result: object = None


class InputAnswered(_Fact, frozen=True, tag="input.answered"):
    """Plans: approve, edit (with a plan), reject. Calls: approve, reject. Effects: done (with result), again, fail.

    `verdict` is about the call that is asked about, `also` about others of the same reply. Those that are not answered
    are asked about next. The `result` of a call that is approved is what it came to where whoever answers made it.
    """

    number: int
    verdict: Literal["approve", "edit", "reject", "done", "again", "fail"]
    feedback: str = ""
    plan: Plan | None = None
    result: Raw = NULL
    also: tuple[CallVerdict, ...] = ()


class SupervisionStarted(_Fact, frozen=True, tag="supervision.started"):
    """The supervisor is asked to plan, to refine a task, or to write the answer."""

    duty: Duty
    number: int
    until: Instant
    task: TaskId = NO_TASK
    why: Why = "first"
    reserve: Amount | None = None


class SupervisionFailed(_Fact, frozen=True, tag="supervision.failed"):
    """It did not work out. `findings` say what is wrong with the plan that was proposed."""

    duty: Duty
    number: int
    failure: Failure
    task: TaskId = NO_TASK
    findings: tuple[Finding, ...] = ()
    used: Amount | None = None


class AttemptStarted(_Fact, frozen=True, tag="attempt.started"):
    """The same number again means: taken up after a crash, with the steps it had recorded."""

    task: TaskId
    attempt: int
    worker: str
    until: Instant
    reserve: Amount | None = None
    probes: tuple[str, ...] = ()


class StepStarted(_Fact, frozen=True, tag="step.started"):
    task: TaskId
    attempt: int
    step: int
    name: str
    effect: Effect = "read"
    request: str = ""
    reserve: Amount | None = None


class StepFinished(_Fact, frozen=True, tag="step.finished"):
    task: TaskId
    attempt: int
    step: int
    result: Raw
    good: bool = True
    used: Amount | None = None


class StepFailed(_Fact, frozen=True, tag="step.failed"):
    """A call with which its attempt fails, where it is known what it cost: the rest of its reserve is given back."""

    task: TaskId
    attempt: int
    step: int
    used: Amount | None = None


class AttemptSucceeded(_Fact, frozen=True, tag="attempt.succeeded"):
    """`items` is the length of a list result, which `for_each` needs without opening it.

    `tracing` says what the figures of the result rest on; left out where it has none. `exit_tool` is the tool after
    which a rule `exit_loop` ended the attempt: the result is what it returned.
    """

    task: TaskId
    attempt: int
    result: Raw
    items: int = -1
    used: Amount | None = None
    tracing: Tracing | None = None
    exit_tool: str = ""


class AttemptFailed(_Fact, frozen=True, tag="attempt.failed"):
    """`refused` identifies the result that a check did not accept."""

    task: TaskId
    attempt: int
    failure: Failure
    used: Amount | None = None
    refused: str = ""


class RetryScheduled(_Fact, frozen=True, tag="task.retry_scheduled"):
    """`worker` is set when another one takes over."""

    task: TaskId
    after: Instant
    worker: str = ""


class BackoffEnded(_Fact, frozen=True, tag="task.backoff_ended"):
    task: TaskId


class TaskRefined(_Fact, frozen=True, tag="task.refined"):
    task: TaskId
    number: int
    instruction: str
    used: Amount | None = None


class TaskExpanded(_Fact, frozen=True, tag="task.expanded"):
    task: TaskId
    count: int


class TaskJoined(_Fact, frozen=True, tag="task.joined"):
    task: TaskId


class ResultReused(_Fact, frozen=True, tag="task.reused"):
    task: TaskId
    key: str
    run: str
    source: TaskId
    result: Raw
    items: int = -1


class TaskFailed(_Fact, frozen=True, tag="task.failed"):
    task: TaskId
    failure: Failure


class TaskSkipped(_Fact, frozen=True, tag="task.skipped"):
    task: TaskId
    reason: SkipReason
    because: TaskId = NO_TASK


class TimeRanOut(_Fact, frozen=True, tag="run.time_ran_out"):
    """No more tasks: what is left of the time belongs to the answer."""


class AnswerWritten(_Fact, frozen=True, tag="answer.written"):
    """`tracing` says what the figures of an answer rest on that was worded anew; `cut` why it is not whole."""

    number: int
    answer: Raw
    used: Amount | None = None
    tracing: Tracing | None = None
    cut: str = ""


class RunEnded(_Fact, frozen=True, tag="run.ended"):
    ending: Ending
    reason: EndReason
    gaps: tuple[Gap, ...] = ()


class PromptSent(_Fact, frozen=True, tag="prompt.sent"):
    """What a model was first told for a piece of work; what followed are its steps. It decides nothing."""

    duty: Literal["attempt", "plan", "refine", "answer"]
    number: int
    model: str
    messages: Raw
    task: TaskId = NO_TASK
    tools: tuple[str, ...] = ()


class Noted(_Fact, frozen=True, tag="noted"):
    """Something worth showing that decides nothing; it rides along with the next write.

    `failure` is what was met where somebody else stood in: another model, or who plans without one.
    """

    text: str
    task: TaskId = NO_TASK
    attempt: int = 0
    failure: Failure | None = None
    code: NoteCode = ""
    """A step `diverged` from what was recorded, the planner `assumed` something, a check `accepted` the result."""


Event: TypeAlias = (
    RunRequested
    | ResultsOffered
    | RunResumed
    | RunReleased
    | PauseSet
    | CancelRequested
    | TimeRanOut
    | RunEnded
    | Noted
    | PromptSent
    | SupervisionStarted
    | SupervisionFailed
    | TasksAdded
    | InputRequested
    | InputAnswered
    | AnswerWritten
    | AttemptStarted
    | StepStarted
    | StepFinished
    | StepFailed
    | AttemptSucceeded
    | AttemptFailed
    | RetryScheduled
    | BackoffEnded
    | TaskRefined
    | TaskExpanded
    | TaskJoined
    | ResultReused
    | TaskFailed
    | TaskSkipped
)

Paid: TypeAlias = (
    TasksAdded
    | SupervisionFailed
    | TaskRefined
    | AnswerWritten
    | AttemptSucceeded
    | AttemptFailed
    | StepFinished
    | StepFailed
)
"""What says what something cost."""


def failure_in(event: Event) -> Failure | None:
    """The failure that an event tells of; None for most."""
    if isinstance(event, AttemptFailed | SupervisionFailed | TaskFailed | Noted):
        return event.failure
    return None


VERSIONS: dict[str, int] = {}
"""The current version of every event that is no longer at 1, by its tag."""


class Entry(Struct, frozen=True, gc=False):
    """An event as written: its place in the run, and when."""

    seq: int
    at: Instant
    event: Event
