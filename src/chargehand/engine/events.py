"""Every fact that can happen in a run. Frozen, past tense, one tagged union; a published one never changes meaning.

A new field gets a default; a new meaning gets a new event. `VERSIONS` counts shapes that older code cannot read.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.engine.budget import Amount, Budget, CapReached
from chargehand.engine.facts import AnswerAudit, NotedFact, Tracing
from chargehand.engine.failure import (
    Asked,
    EarlierCall,
    Failure,
    Gap,
    Missing,
    PendingCall,
    Question,
    StepKind,
    describe_call,
)
from chargehand.engine.plan import NO_TASK, Combine, Finding, LoopState, Plan, Task, TaskId
from chargehand.engine.policy import Instant, Policy, Seconds
from chargehand.engine.roster import Roster

NULL = Raw(b"null")
Effect = Literal["read", "idempotent", "effect"]
Ending = Literal["complete", "partial", "failed", "cancelled", "needs_input"]
EndReason = Literal["done", "gaps", "deadline", "budget", "overspent", "cancelled", "no_plan", "no_results", "no_input"]
Duty = Literal["plan", "refine", "answer"]
Why = Literal["first", "more", "rejected", "failed", "replan"]
SkipReason = Literal["input", "budget", "deadline", "person", "refused"]
CallWord = Literal["approve", "reject", "done", "again", "fail"]
NestedKind = Literal["team", "message", "worker"]


class Parent(Struct, frozen=True, omit_defaults=True):
    """The step of another run that started this one and waits for it."""

    run: str
    """The run that waits."""
    root: str
    """The outermost run of all that wait."""
    task: TaskId
    """The task in it."""
    attempt: int
    """The attempt of that task."""
    step: int
    """The step of that attempt."""
    worker: str
    """The worker who makes the attempt."""
    nesting: int
    """How many runs this one is inside of, without those of single workers."""
    kind: NestedKind = "team"
    """`team`: a team does a task of another team. `message`: workers of the same team answer a message. `worker`: a
    worker of the same team makes an attempt in another process.
    """
    waiting: tuple[str, ...] = ()
    """Workers of the same team who wait for this run; none of them gets a message from inside it."""


def nested_run_name(run: str, task: str, attempt: int, step: int, request: str) -> str:
    """The name of the run that a step starts; `request` is the step's digest of what it asks for."""
    return f"{run}/{task}/{attempt}/{step}/{request[:8]}"


class FileReference(Struct, frozen=True, gc=False, omit_defaults=True):
    """A file that was uploaded. The journal has no bytes of it."""

    id: str
    """What it is found by."""
    name: str
    """What it was called."""
    media_type: str
    """What is in it, such as `image/png` or `text/csv`."""
    size: int
    """How many bytes it has."""
    pages: int = 0
    """How many pages a PDF has; 0: it is no PDF."""
    turns: tuple[int, ...] = ()
    """The numbers of the turns it was sent in; empty: with the request, or it is not known."""


class Material(Struct, frozen=True, omit_defaults=True):
    """Something a run is given besides its goal."""

    name: TaskId
    """What it is called: the id of the task that delivered it, or another name."""
    value: Raw = NULL
    """What it is; `null`: only its gaps are known."""
    gaps: tuple[Gap, ...] = ()
    """What is missing of it."""
    tracing: Tracing | None = None
    """What its figures rest on; `null`: no model wrote it, or it is not known."""
    file: FileReference | None = None
    """The file it is; of one with text (a PDF has some) that text is the value. `null`: it is no file."""


class RecordedStep(Struct, frozen=True, omit_defaults=True):
    """A finished step of an earlier attempt, for one that goes on from it in a run of its own."""

    number: int
    """The number of the step in its attempt."""
    name: str
    """The name of the step."""
    request: str
    """A hash of what was asked."""
    result: Raw
    """What it came to."""
    kind: StepKind = "tool"
    """What the step did."""
    effect: Effect = "read"
    """What the call did to the world."""
    good: bool = True
    """`false`: the call failed."""
    arguments: Raw = NULL
    """The arguments of a call that may change something; `null`: it only read."""
    at: Instant = 0.0
    """When it was begun, in seconds since 1970."""
    calls: tuple[EarlierCall, ...] = ()
    """The effects of the run that the step started; empty: it started none, or none had an effect."""


class EarlierAttempts(Struct, frozen=True, omit_defaults=True):
    """What earlier attempts at a task left for one that is made in a run of its own."""

    count: int = 0
    """How many attempts were made before."""
    failure: Failure | None = None
    """Why the last one failed."""
    effects: dict[str, Raw] = {}
    """What they changed in the world, by request: it is not done again."""
    answers: dict[str, str] = {}
    """Why a person did not allow a call, by call; empty: it is allowed."""
    replies: dict[str, Raw] = {}
    """What a person answered to questions of the worker, by question."""
    refused: tuple[str, ...] = ()
    """Results that a check did not accept, each as a hash."""
    calls: tuple[EarlierCall, ...] = ()
    """Calls that earlier attempts, or an earlier run, made for the task and that changed something."""
    failed_calls: dict[str, int] = {}
    """How often a call failed, by a hash of tool and arguments: an approval of it is used up."""
    steps: tuple[RecordedStep, ...] = ()
    """Finished steps that the attempt goes on from; empty: it begins anew."""
    began: Instant = 0.0
    """When the run around it began, in seconds since 1970: the day it is for all who work for it."""
    planned: bool = False
    """The task was planned; `false`: it came with the request."""


class Offer(Struct, frozen=True, omit_defaults=True):
    """A finished result that may be used again by a task that asks for the same with the same inputs."""

    key: str
    """A hash of who may do it, what is asked and what goes in."""
    task: TaskId
    """The task's id in the run it is from."""
    result: Raw
    """What it came to."""
    items: int = -1
    """How long the list is; -1: the result is no list."""
    tracing: Tracing | None = None
    """What its figures rest on; `null`: no model wrote it."""
    missing: Missing | None = None
    """What the result leaves out; `null`: nothing."""


class ClientRequest(Struct, frozen=True, omit_defaults=True):
    """What a client of another API asked for, so that its run can be described from the journal alone."""

    api: str
    """The API that the client speaks: `letta` or `openai`."""
    body: Raw
    """The request, as that API keeps it."""
    digest: str = ""
    """The same for the same call made again; empty: the call had an Idempotency-Key, which names the run."""


class CallerTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the caller of a run has, and its workers do not."""

    name: str
    """Its name."""
    parameters: Raw
    """The JSON Schema of its arguments."""
    description: str = ""
    """What it does."""


class CallerToolCall(Struct, frozen=True):
    """A call that the caller of a run is asked to make."""

    id: str
    """Names the call; the caller returns the result under it."""
    name: str
    """The tool."""
    arguments: str
    """A JSON object that fits the parameters of the tool."""


class AnswerFormat(Struct, frozen=True, omit_defaults=True):
    """What the caller of a run takes as an answer, where that is not just text."""

    schema: Raw = NULL
    """A JSON Schema that the answer has; `null`: it is text."""
    tools: tuple[CallerTool, ...] = ()
    """Tools of the caller: the answer may be calls of them."""
    tool_choice: str = "auto"
    """`auto`: calls or an answer; `required`: calls; else the name of the tool to call."""
    max_tokens: int | None = None
    """The longest answer; `null`: as its model is set."""
    parallel_calls: bool = True
    """Whether the answer may be several calls at once."""

    @property
    def is_text(self) -> bool:
        """Whether the answer is text in any case."""
        return self.schema == NULL and not self.tools


# gc=False throughout: what is frozen and holds only data can be in no cycle, and the collector need not look at it
class _Fact(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    pass


class RunRequested(_Fact, frozen=True, tag="run.requested"):
    """A run was asked for: goal, roster, policy, budget, deadline, seed, perhaps a plan; always first."""

    goal: str
    """The request, as it was put."""
    roster: Roster
    """Who may be given tasks."""
    policy: Policy
    """The numbers the run is decided by."""
    budget: Budget
    """The most it may use."""
    deadline: Instant
    """When it must have ended, in seconds since 1970."""
    seed: int
    """All the randomness there is: waits before retries come from it."""
    plan: Plan | None = None
    """A plan that was given; `null`: the supervisor is asked for one."""
    parent: Parent | None = None
    """Who waits for it, if it is a run inside another."""
    warnings: tuple[Finding, ...] = ()
    """What the check of a plan that was given advises against, though it may run."""
    team: str = ""
    """The name of the team."""
    client: ClientRequest | None = None
    """The request of a client of the Letta or the OpenAI API; `null`: it came another way."""
    combine: Combine | None = None
    """How results become one answer, whatever a planner says; `null`: the plan decides."""
    turns: tuple[tuple[str, bool], ...] = ()
    """Of a run in the background: earlier runs by name, each with `true` (it covers that one) or `false` (left to the
    next).
    """
    background: int = 0
    """Of a run in the background: its number among those of its worker, counted from 1; 0: it is no such run."""
    inputs: tuple[Material, ...] = ()
    """What it is given besides the goal, such as results of the team it works for. Tasks without inputs of their own
    get it.
    """
    sender: str = ""
    """Who sent the message that this run carries, to all workers that have a task in it; empty: it carries none."""
    labels: dict[str, str] = {}
    """What the caller files it under."""
    scope: str = ""
    """Whose earlier turns its workers are shown, and who is shown those of this run (`memory.conversations.scope_of`);
    empty: all runs without one.
    """
    outside: bool = False
    """Text from outside went into the goal or the inputs: effects may need a person's leave."""
    queue: str = ""
    """The queue whose processes drive it; empty: that of its team, or the process of the run it is inside of."""
    answer_format: AnswerFormat | None = None
    """What the caller takes as an answer; `null`: text."""
    origin: str = ""
    """What idempotency keys of a nested run begin with: the same for an equal step of another attempt; empty: its
    name.
    """
    origin_mark: str = ""
    """What tells the run in which `origin` begins from others of its name, in other journals; empty: its own seed."""
    acted: tuple[EarlierCall, ...] = ()
    """Calls of earlier runs that changed something, for a nested run that does their work again."""
    replies: dict[str, Raw] = {}
    """What persons answered to questions in words of such a run, by question."""
    earlier: EarlierAttempts | None = None
    """Of the attempt of a worker in another process: what its task has seen in the run that waits for it."""


class ResultsOffered(_Fact, frozen=True, tag="run.offered"):
    """The finished results of another run may be used again here."""

    run: str
    """The run the results are from."""
    offers: tuple[Offer, ...]
    """Its finished results, each under a key."""
    unserved: tuple[str, ...] = ()
    """What its plan left out of the same request, in words."""
    calls: tuple[EarlierCall, ...] = ()
    """Calls of the other run that changed something, or may have: none of them is repeated unasked."""
    replies: dict[TaskId, dict[str, Raw]] = {}
    """What a person answered to questions in words, by task and question; the task `""` is the planner."""
    origin: str = ""
    """What idempotency keys begin with, so that an equal call has the key it had in the other run; empty: the name of
    this run.
    """
    origin_mark: str = ""
    """What tells the run that `origin` names from others of its name, in other journals; empty: its own seed."""


class RunResumed(_Fact, frozen=True, tag="run.resumed"):
    """A new process took over; what was under way ended with the old one.

    It ended by a crash, unless the old process said so before (`run.released`).
    """

    epoch: int
    """The number of the new lease; what an older one writes is refused."""


class RunReleased(_Fact, frozen=True, tag="run.released"):
    """The process was stopped in an orderly way: to resume is no crash then, and the time in between does not count."""


class Commanded(_Fact, frozen=True, kw_only=True):
    """What is asked of a run that is under way, in the process that drives it or in another."""

    command: str = ""
    """The id of the command that another process sent it with; empty: none did."""


class PauseSet(Commanded, frozen=True, tag="run.pause_set"):
    """New tasks may start, or may not."""

    paused: bool
    """`true`: no new task starts; `false`: they start again."""
    reason: str = ""
    """Why, in the words of the caller."""


class CancelRequested(Commanded, frozen=True, tag="run.cancel_requested"):
    """The run was asked to stop."""

    reason: str = ""
    """Why, in the words of the caller."""
    by: str = ""
    """Who stopped it: over HTTP the name of the token, or its id; empty: it is not known."""


class TasksAdded(_Fact, frozen=True, tag="plan.grown"):
    """Tasks joined the plan; the plan may be closed with it."""

    number: int
    """Which round of planning, counted from 1."""
    tasks: tuple[Task, ...]
    """The tasks that joined, checked."""
    combine: Combine | None = None
    """How results become one answer; `null`: as it was."""
    done: bool = True
    """This round of planning is over; `false`: more comes while tasks already run."""
    closed: bool = True
    """The plan is complete; `false`: the planner is asked again."""
    wake: Literal["any", "all"] = "all"
    """When it is asked again: after `any` task has settled, or after `all`."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""
    warnings: tuple[Finding, ...] = ()
    """What the check of the plan advises against, though it may run."""
    unserved: tuple[str, ...] = ()
    """Parts of the request that no worker of the team can do, in words."""
    loop: LoopState | None = None
    """How far it has come, of a plan that is made one task at a time; `null`: as it was."""
    fallback: Failure | None = None
    """Why no plan could be made: the only task is the whole request, for one worker. `null`: the planner added this."""


class InputRequested(_Fact, frozen=True, tag="input.requested"):
    """A person is asked to approve the plan or a call of a tool, what became of an effect, or a question in words."""

    number: int
    """Which question of the run: 1, 2, 3 …"""
    what: Asked
    """A plan to approve, a call of a tool to approve, an effect whose outcome is not known, or a question in words."""
    task: TaskId = NO_TASK
    """Whose call or effect it is; empty for the plan of this run."""
    text: str = ""
    """The call itself, with its arguments, in one line; of an effect, why it is in doubt; or the question in words."""
    question: Question | None = None
    """The same in fields: which call, who wants it, and why it is asked."""

    @property
    def calls(self) -> tuple[PendingCall, ...]:
        """Return the calls that wait for a verdict, in the order in which they are asked about.

        The first is the one that an answer must decide, the others may be decided along with it. Each names the task
        that makes it, in the run that asks (`question.run`). A plan and a question in words ask about no call.
        """
        if self.what not in ("tool", "effect"):
            return ()
        question = self.question or Question(self.what)
        task = question.task or self.task
        is_doubt = self.what == "effect" and question.tool != ""  # journals of earlier versions name no call
        first = PendingCall(
            call=question.call or 1,
            text=describe_call(question.tool, question.arguments) if is_doubt else self.text,
            tool=question.tool,
            arguments=question.arguments,
            because=question.because,
            key=question.key,
            task=task,
            attempt=question.attempt,
            step=question.step,
            earlier=question.earlier,
        )
        return (first, *(structs.replace(other, task=other.task or task) for other in question.also))


class CallVerdict(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a person says of one of the calls that a question names under `also`."""

    call: int
    """The number of the call, as the question names it."""
    verdict: CallWord
    """Whether it may be made (`approve`, `reject`), or what became of an effect (`done`, `again`, `fail`)."""
    feedback: str = ""
    """Why not, for the model."""
    result: object = None
    """What the call came to, with `done`, or with `approve` where the client that answers made the call itself."""


class MessageKey(Struct, frozen=True):
    """The message of a client that gave an answer. The same message sent again is not another answer."""

    key: str
    """Digest of the API and of the id that the client gave to the message."""
    digest: str
    """Digest of what the message said."""


class InputAnswered(Commanded, frozen=True, tag="input.answered"):
    """What the person said.

    Plans: approve, edit (with a plan), reject. Calls: approve, reject. Effects: done (with result), again, fail.
    Questions in words: answer (with result), reject. Calls of the question without a verdict are asked about next.
    """

    number: int
    """The question that is answered."""
    verdict: Literal["approve", "edit", "reject", "done", "again", "fail", "answer"]
    """Plans: approve, edit, reject; calls: approve, reject; effects: done, again, fail; questions: answer, reject."""
    feedback: str = ""
    """Why it is rejected; the planner or the worker reads it."""
    plan: Plan | None = None
    """The plan in its place, with `edit`."""
    result: object = None
    """Plain data: what the call returned, with `done`; the answer to a question, with `answer`."""
    also: tuple[CallVerdict, ...] = ()
    """Verdicts on the other calls of the question."""
    budget: Budget | None = None
    """Of a nested run: its caps from now on, if they are lower; `null`: as they were."""
    by: str = ""
    """Who decided: over HTTP the name of the token, or its id; empty: it is not known."""
    message: MessageKey | None = None
    """The message that the answer came with; `null`: it had no id."""
    callback: bool = False
    """A function of the program answered (`on_approval`, `on_question`), and no person was asked."""


class SupervisionStarted(_Fact, frozen=True, tag="supervision.started"):
    """The supervisor was asked to plan, to rewrite a task, or to write the answer.

    Said again of what is under way, it holds money for more calls.
    """

    duty: Duty
    """What the supervisor is asked for."""
    number: int
    """Which round of planning, which try at the answer, or after how many failures of the task."""
    until: Instant
    """When it must be done, in seconds since 1970."""
    task: TaskId = NO_TASK
    """The task to put better; empty for the other duties."""
    why: Why = "first"
    """Of a plan: the first one, more tasks, the last was rejected, the last try failed, or something is missing
    (`replan`).
    """
    reserve: Amount | None = None
    """What is set aside for it; `null`: nothing."""
    expected: Amount | None = None
    """What all calls so far are expected to use together. It is charged if the work is cut off. `null`: what is set
    aside.
    """


class SupervisionFailed(_Fact, frozen=True, tag="supervision.failed"):
    """What the supervisor was asked for came to nothing; a plan that cannot run comes with its findings."""

    duty: Duty
    """What the supervisor was asked for."""
    number: int
    """As when it started."""
    failure: Failure
    """Why it came to nothing."""
    task: TaskId = NO_TASK
    """The task that was to be put better."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the plan that was proposed; the next try is told."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""


class SupervisionRetryScheduled(_Fact, frozen=True, tag="supervision.retry_scheduled"):
    """The supervisor is asked again, after a wait."""

    duty: Duty
    """What it is asked for: a plan or the answer."""
    number: int
    """The try that failed."""
    after: Instant
    """Not before this, in seconds since 1970."""


class AttemptStarted(_Fact, frozen=True, tag="attempt.started"):
    """A worker has begun a task; the same number again: taken up after a crash, with the steps it had recorded."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    worker: str
    """Who does it."""
    until: Instant
    """When it must be done, in seconds since 1970."""
    reserve: Amount | None = None
    """What is set aside for it; `null`: nothing."""
    probes: tuple[str, ...] = ()
    """Breakers that this attempt tries out, such as `worker:bob`: they close if it works."""
    expected: Amount | None = None
    """What is charged if it is cut off before its first step; `null`: what is set aside."""


class StepStarted(_Fact, frozen=True, tag="step.started"):
    """A call inside an attempt is about to be made; money is reserved for it."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    step: int
    """Which step of the attempt: 1, 2, 3 …"""
    name: str
    """The name of the tool, check or team; of other kinds, the kind."""
    kind: StepKind = "tool"
    """What the step does."""
    effect: Effect = "read"
    """What the call does to the world, which decides what happens after a crash."""
    request: str = ""
    """A hash of what is asked: after a crash the same request is read back, another is made anew."""
    reserve: Amount | None = None
    """What is set aside for it; `null`: nothing."""
    call: str = ""
    """The id of the tool call that it carries out, which the latest reply of the model has with its arguments; empty:
    no model asked for it.
    """
    key: str = ""
    """The idempotency key of the call: the same for an equal call of the task in every attempt; empty: the call only
    reads.
    """
    arguments: Raw = NULL
    """The arguments of a call that may change something; `null`: the call only reads."""
    look: bool = False
    """After a crash the tool itself can be asked whether the call happened."""
    expected: Amount | None = None
    """What the call is expected to use. It is charged if the call is cut off: by a crash, a stop, a cancel, a timeout.
    `null`: what is set aside.
    """
    resumable: bool = False
    """The call waits for a run that is resumed after a crash: what is set aside stays so until the step is begun
    again.
    """

    def nested_run(self, run: str) -> str:
        """The name of the run that this step of a run starts, if it starts one."""
        return nested_run_name(run=run, task=self.task, attempt=self.attempt, step=self.step, request=self.request)


class StepFinished(_Fact, frozen=True, tag="step.finished"):
    """What the call returned; from now on it is not made again."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    step: int
    """Which step of the attempt."""
    result: Raw
    """What came back: a model's reply, a tool's result, or its error."""
    good: bool = True
    """`false`: the call failed, and may be made again in a later attempt even if it acts."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""
    calls: tuple[EarlierCall, ...] = ()
    """The effects of the run that the step started; empty: it started none, or none had an effect."""
    files: tuple[str, ...] = ()
    """The ids of the pictures and PDFs that the tool returned. The store has them; the result names them."""


class StepLookedUp(_Fact, frozen=True, tag="step.looked_up"):
    """A tool looked up an open effect of its own: it did not happen, or the tool cannot tell.

    An effect that happened is a finished step (`step.finished`).
    """

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    step: int
    """Which step of the attempt."""
    outcome: Literal["absent", "unknown"]
    """`absent`: it did not happen, and is made again; `unknown`: a person must say."""


class StepFailed(_Fact, frozen=True, tag="step.failed"):
    """The call failed, and its attempt with it; what it reserved and did not cost is given back."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    step: int
    """Which step of the attempt."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""


class AttemptSucceeded(_Fact, frozen=True, tag="attempt.succeeded"):
    """A task has its result."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    result: Raw
    """What the task came to."""
    items: int = -1
    """How long the list is; -1: the result is no list."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""
    tracing: Tracing | None = None
    """What its figures rest on, if it has any."""
    exit_tool: str = ""
    """The tool after which a rule `exit_loop` ended the attempt."""
    missing: Missing | None = None
    """What the result leaves out; `null`: nothing."""


class AttemptFailed(_Fact, frozen=True, tag="attempt.failed"):
    """An attempt failed, with a kind of failure: `approval` where it waits for a person and keeps its steps."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    failure: Failure
    """Why."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""
    refused: str = ""
    """A hash of the result that a check did not accept."""


class WorkStopped(_Fact, frozen=True, tag="run.work_stopped"):
    """The run is over, and the work under way is stopped. It ends when the runs inside it have ended.

    It was cancelled, or its time was up and a crash left runs inside it.
    """


class AttemptStopped(_Fact, frozen=True, tag="attempt.stopped"):
    """The run inside an attempt that was stopped has ended."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    gaps: tuple[Gap, ...] = ()
    """Its refused calls, and its effects in doubt."""
    used: Amount | None = None
    """What the run used, besides what was charged for it before; `null`: as much as was reserved."""
    lost: Amount | None = None
    """The part of that which is an estimate for lost calls; `null`: nothing."""


class AttemptAbandoned(_Fact, frozen=True, tag="attempt.abandoned"):
    """An attempt that crashes interrupted is not resumed once more: its process died too often."""

    task: TaskId
    """The task's id."""
    attempt: int
    """Which attempt of the task: 1, 2, 3 …"""
    failure: Failure
    """Why."""


class RetryScheduled(_Fact, frozen=True, tag="task.retry_scheduled"):
    """It is tried again, at a time, perhaps by another worker."""

    task: TaskId
    """The task's id."""
    after: Instant
    """Not before this, in seconds since 1970."""
    worker: str = ""
    """Who takes over; empty: the same as before."""
    keep: bool = False
    """`true`: the next attempt goes on from the finished steps of this one; `false`: it begins anew."""


class BackoffEnded(_Fact, frozen=True, tag="task.backoff_ended"):
    """The wait before the retry is over."""

    task: TaskId
    """The task's id."""


class TaskRefined(_Fact, frozen=True, tag="task.refined"):
    """The supervisor rewrote the instruction after a failure."""

    task: TaskId
    """The task's id."""
    number: int
    """After how many failures."""
    instruction: str
    """What is asked from now on."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""


class TaskExpanded(_Fact, frozen=True, tag="task.expanded"):
    """A task with `for_each` became one task an item."""

    task: TaskId
    """The task's id."""
    count: int
    """How many items, and so how many tasks: `ID[0]`, `ID[1]` …"""


class TaskJoined(_Fact, frozen=True, tag="task.joined"):
    """Its items are settled, and enough of them are done."""

    task: TaskId
    """The task's id."""


class ResultReused(_Fact, frozen=True, tag="task.reused"):
    """A result of another run was taken over."""

    task: TaskId
    """The task's id."""
    key: str
    """A hash of who may do it, what is asked and what goes in: the same there and here."""
    run: str
    """The run it is from."""
    source: TaskId
    """The task's id there."""
    result: Raw
    """What that task came to."""
    items: int = -1
    """How long the list is; -1: the result is no list."""
    tracing: Tracing | None = None
    """What its figures rest on; `null`: no model wrote it."""
    missing: Missing | None = None
    """What the result leaves out; `null`: nothing."""


class TaskFailed(_Fact, frozen=True, tag="task.failed"):
    """The task was given up."""

    task: TaskId
    """The task's id."""
    failure: Failure
    """Why the last attempt failed."""


class TaskSkipped(Commanded, frozen=True, tag="task.skipped"):
    """It will not run: a needed input did not deliver, money or time did not suffice, or a person skipped it.

    What needs a task that a person skipped goes on without it, unless it is repeated over the list of that task.
    """

    task: TaskId
    """The task's id."""
    reason: SkipReason
    """What was missing: an input, money, time, the leave of a person, or a model that does not refuse every call."""
    because: TaskId = NO_TASK
    """The task that did not deliver (`input`), or whose attempt the provider refused (`refused`)."""
    by: str = ""
    """The person who skipped it (`person`), as far as that is known."""
    cap: CapReached | None = None
    """The cap that does not cover it (`budget`)."""


class TaskReassigned(Commanded, frozen=True, tag="task.reassigned"):
    """A person gave the task, which had not begun, to another worker."""

    task: TaskId
    """The task's id."""
    worker: str
    """Who does it from now on; the fallbacks are those of this worker."""
    by: str = ""
    """The person who did so, as far as that is known."""


class TimeRanOut(_Fact, frozen=True, tag="run.time_ran_out"):
    """No more tasks: what is left of the time belongs to the answer."""


SectionKind = Literal["chosen", "gaps", "cut", "unread", "contradictions", "untraced", "counted"]


class AnswerSection(Struct, frozen=True, gc=False):
    """What has to be said below an answer, apart from what was written."""

    kind: SectionKind
    """Why this result was `chosen`; the `gaps` the text does not name; that its writer was `cut` off; which results
    were `unread`; `contradictions` of results; what is `untraced`; what was `counted`.
    """
    text: str
    """The section, as it is shown."""


class AnswerWritten(_Fact, frozen=True, tag="answer.written"):
    """The answer was written."""

    number: int
    """Which try at the answer."""
    answer: Raw
    """Text, without the sections below it; or whatever a function of yours returned."""
    sections: tuple[AnswerSection, ...] = ()
    """What is said below the text."""
    chosen: TaskId = NO_TASK
    """The task whose result is the answer, where one of several was chosen."""
    used: Amount | None = None
    """What it cost; `null`: as much as was reserved."""
    tracing: Tracing | None = None
    """What its figures rest on, if it was worded anew or chosen."""
    cut: str = ""
    """Why it is not whole, if its writer was cut off; empty if it is."""
    audit: AnswerAudit | None = None
    """What was found when it was checked against the results, if it was worded anew."""
    judged: bool = False
    """A judge chose it."""
    calls: tuple[CallerToolCall, ...] = ()
    """Calls of the caller's tools, which are the answer; empty: the answer is not a call."""

    def whole(self, *, without: SectionKind | None = None) -> Raw:
        """The answer as it is shown: the text and the sections below it. Nothing is added to what is not text."""
        sections = [section.text for section in self.sections if section.kind != without]
        if not sections or not bytes(self.answer).startswith(b'"'):
            return self.answer
        written = msgspec.json.decode(self.answer, type=str)
        return Raw(msgspec.json.encode("\n\n".join((written, *sections))))


class RunEnded(_Fact, frozen=True, tag="run.ended"):
    """The run ended: how, why, and with which gaps; always last."""

    ending: Ending
    """How it ended."""
    reason: EndReason
    """Why it ended so."""
    gaps: tuple[Gap, ...] = ()
    """What the answer has to do without."""
    cap: CapReached | None = None
    """The cap that is the reason (`budget`, `deadline` or `overspent`); `null`: another reason."""


class PromptSent(_Fact, frozen=True, tag="prompt.sent"):
    """What a model was first told for a piece of work, and its tools; it decides nothing.

    What followed are its steps. A first message that an earlier entry has is left out.
    """

    duty: Literal["attempt", "plan", "refine", "answer"]
    """For which piece of work."""
    number: int
    """Which attempt, round of planning or try."""
    model: str
    """The model's handle."""
    messages: Raw
    """What it was told, each with its role."""
    task: TaskId = NO_TASK
    """The task's id; empty for a plan or an answer."""
    tools: tuple[str, ...] = ()
    """Names of the tools it may call."""
    first_in: int = 0
    """The entry that has the first message, which is left out here; 0: it is here."""


class ModelCalled(_Fact, frozen=True, tag="model.called"):
    """A model replied, for the supervisor or for a worker that is a function; it decides nothing.

    The calls of other workers are steps.
    """

    duty: Literal["attempt", "plan", "refine", "answer"]
    """For which piece of work."""
    number: int
    """Which attempt, round of planning or try."""
    model: str
    """The model's handle."""
    seconds: Seconds
    """How long the call took."""
    task: TaskId = NO_TASK
    """The task's id; empty for a plan or an answer."""
    input: int = 0
    """The tokens it read; 0: not known."""
    output: int = 0
    """The tokens it wrote; 0: not known."""
    used: Amount | None = None
    """What it cost. It is booked when the piece of work is over, also if that is cut off. `null`: not known."""
    call: int = 0
    """Which call of this piece of work it is, by when it began in the process that made it; 0: not counted."""
    cached: int = 0
    """Of the tokens it read: those that came from the provider's cache."""
    cache_written: int = 0
    """Of the tokens it read: those that were written to the cache, for its usual time."""
    cache_written_hour: int = 0
    """Of the tokens it read: those that were written to the cache for an hour."""
    reasoning: int = 0
    """Of the tokens it wrote: those that it thought."""
    searches: int = 0
    """Searches of the web that its provider made for it."""
    expected: Amount | None = None
    """What it was expected to cost, as it is counted in `expected` of its piece of work; `null`: not counted."""
    request: str = ""
    """A hash of what was asked, of a call that is not made again when its piece of work is; empty: of others."""
    reply: str = ""
    """What was replied to such a call; empty of others."""


class Noted(_Fact, frozen=True, tag="noted"):
    """Something worth showing that decides nothing; it is written along with the next entry."""

    text: str
    """What there is to say."""
    task: TaskId = NO_TASK
    """About which task; empty: about the run."""
    attempt: int = 0
    """About which attempt; 0: none."""
    failure: Failure | None = None
    """The failure after which another model, or a planner without one, took over."""
    fact: NotedFact | None = None
    """The same as a fact, for readers that are programs."""


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
    | ModelCalled
    | SupervisionStarted
    | SupervisionFailed
    | SupervisionRetryScheduled
    | TasksAdded
    | InputRequested
    | InputAnswered
    | AnswerWritten
    | AttemptStarted
    | StepStarted
    | StepFinished
    | StepLookedUp
    | StepFailed
    | AttemptSucceeded
    | AttemptFailed
    | AttemptAbandoned
    | AttemptStopped
    | WorkStopped
    | RetryScheduled
    | BackoffEnded
    | TaskRefined
    | TaskExpanded
    | TaskJoined
    | ResultReused
    | TaskFailed
    | TaskSkipped
    | TaskReassigned
)

Paid: TypeAlias = (
    TasksAdded
    | SupervisionFailed
    | TaskRefined
    | AnswerWritten
    | AttemptSucceeded
    | AttemptFailed
    | AttemptStopped
    | StepFinished
    | StepFailed
)
"""What says what something cost."""


def failure_in(event: Event) -> Failure | None:
    """The failure that an event tells of; None for most."""
    if isinstance(event, AttemptFailed | AttemptAbandoned | SupervisionFailed | TaskFailed | Noted):
        return event.failure
    return None


def task_of(event: Event) -> TaskId:
    """The task that an event is about; empty for one of the run."""
    return getattr(event, "task", NO_TASK)


VERSIONS: dict[str, int] = {}
"""The current version of every event that is no longer at 1, by its tag."""


class Entry(Struct, frozen=True, gc=False):
    """An event as written: its place in the run, and when."""

    seq: int
    at: Instant
    event: Event
