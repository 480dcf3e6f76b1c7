"""What is so in a run. Kept in place, so that one more entry costs the same however many came before.

Only `fold` changes it. It is disposable: the journal makes it again.
"""

from collections.abc import Iterator
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct, field

from chargehand.engine import events as ev
from chargehand.engine.breaker import Breaker
from chargehand.engine.budget import NOTHING, Amount, CapReached, Ledger
from chargehand.engine.facts import AnswerAudit, Tracing
from chargehand.engine.failure import STARTS_RUN, EarlierCall, Gap, OpenStep
from chargehand.engine.plan import NO_TASK, Combine, LoopState, Need, Task, TaskId, digest
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import Agent, Match, fits
from chargehand.engine.value import encode_value

TextKind: TypeAlias = Literal["answer", "thought"]
"""What a piece of streamed text is: a part of a reply, or what the model thinks before it."""


class Work(Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """One thing the runtime must be doing: an attempt, or a duty of the supervisor."""

    kind: Literal["attempt", "plan", "refine", "answer"]
    task: TaskId
    number: int


class FinishedCalls(Struct, frozen=True, gc=False):
    """What the finished model calls of a piece of the supervisor's work cost together."""

    used: Amount = NOTHING
    """What they cost."""
    expected: Amount = NOTHING
    """What they were expected to cost."""


class Input(Struct, frozen=True, gc=False):
    """What one needed task delivers: a value, a gap, or (a list with holes) both."""

    task: TaskId
    value: Raw | None
    gaps: tuple[Gap, ...] = ()
    tracing: Tracing | None = None
    """What the figures of the value rest on, where its worker was asked to show it."""
    file: ev.FileReference | None = None
    """The file that was given to the run, where it is one."""
    worker: str = ""
    """Who did the task, which may be a fallback of the worker it was meant for; empty: it is not known."""


class Status(Enum):
    """Where a task stands. The last four are settled."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    JUDGED = "judged"  # failed, and nothing decided about it yet
    REFINING = "refining"
    BACKING_OFF = "backing off"
    EXPANDED = "expanded"
    ASKING = "asking"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    DROPPED = "dropped"


class Step(Struct, gc=False):
    """A recorded call inside an attempt."""

    name: str
    """The name of the tool, check or team; of other kinds, the kind."""
    effect: ev.Effect
    """What the call does to the world."""
    request: str
    """A hash of what was asked."""
    reserved: Amount
    """What the budget holds for it."""
    kind: ev.StepKind = "tool"
    """What the step does."""
    result: Raw | None = None
    """What it returned; None: it is open."""
    good: bool = True
    """False: the call failed."""
    key: str = ""
    """The idempotency key; empty: the call only reads."""
    arguments: Raw | None = None
    """The arguments of a model's call that may change something; None: another call. The result of a call with
    arguments is an object that has what the tool returned under `value`.
    """
    at: Instant = 0.0
    """When it began, in seconds since 1970."""
    look: bool = False
    """The tool can look up whether the call happened."""
    calls: tuple[EarlierCall, ...] = ()
    """The effects of the run that it started."""
    expected: Amount | None = None
    """What is charged if it is cut off; None: what is reserved."""
    resumable: bool = False
    """It waits for a run that is resumed after a crash, with what is reserved."""

    @property
    def is_open_effect(self) -> bool:
        """Return whether it is not known if the effect happened."""
        return self.result is None and self.effect == "effect"

    @property
    def decoded_arguments(self) -> dict[str, object]:
        """Return the arguments; empty where they are not recorded."""
        return {} if self.arguments is None else msgspec.json.decode(self.arguments, type=dict[str, object])

    def answer(self, result: object) -> None:
        """Finish an open effect with what a person says it returned."""
        self.result = encode_value(result if self.arguments is None else {"value": result})

    def list_calls(self, task: TaskId) -> tuple[EarlierCall, ...]:
        """Return the calls behind this step that changed something or may have; empty: none did."""
        if self.calls or self.kind != "tool" or self.effect == "read":
            return self.calls
        if self.result is None and self.effect == "effect":
            return (EarlierCall(self.name, self.decoded_arguments, happened=False, at=self.at, task=task),)
        if self.result is None or not self.good:
            return ()
        result = msgspec.json.decode(self.result)
        if self.arguments is not None and isinstance(result, dict):
            result = cast("dict[str, object]", result).get("value")
        return (EarlierCall(self.name, self.decoded_arguments, result, at=self.at, task=task),)


def call_digest(tool: str, arguments: object) -> str:
    """Return a hash that equal calls share, whatever the order of their arguments."""
    return digest(tool, bytes(encode_value(arguments)))


class RefusedCall(Struct, frozen=True, gc=False):
    """A call that a person did not allow."""

    tool: str
    """The tool."""
    arguments: dict[str, object]
    """Its arguments."""
    reason: str
    """The reason the person gave."""


_MOST_LOOKS = 5
"""How often tools look up the open effects of an attempt in vain before a person is asked."""


class Progress(Struct):
    """One task and how far it has come.

    `unmet` inputs keep it waiting; of its quorum inputs `wanted` must still succeed and `spare` may still fail.
    `timer` is the one instant at which something happens to it by itself, 0 for none.
    """

    task: Task
    order: int
    round: int
    status: Status = Status.WAITING
    unmet: int = 0
    wanted: int = 0
    spare: int = 0
    rank: float = 0.0
    readers: list[tuple["Progress", Need]] | None = None
    attempt: int = 0
    failures: int = 0
    resumes: int = 0  # how often this attempt was taken up again, for whatever reason
    crashes: int = 0  # and how often because its process died
    redo: bool = False
    worker: str = ""
    tried: tuple[str, ...] = ()
    instruction: str = ""
    refined: int = 0
    failure: ev.Failure | None = None
    skipped: ev.SkipReason | None = None
    cap: CapReached | None = None  # the cap that it was skipped for
    because: TaskId = NO_TASK
    result: Raw | None = None
    items: int = -1
    timer: Instant = 0.0
    probing: Instant = 0.0  # the end of the lease under which this attempt probes a breaker; 0: it is no probe
    reserved: Amount = NOTHING
    expected: Amount | None = None  # what is charged if it is cut off before its first step; None: what is reserved
    carried: dict[int, Amount] | None = None  # reserved for nested runs of a crashed attempt, by step
    steps: dict[int, Step] | None = None
    effects: dict[str, Raw] | None = None  # what was done in the world by earlier attempts, by request
    answers: dict[str, str] | None = None  # why a person did not allow a call, by call; empty: it is allowed
    replies: dict[str, Raw] | None = None  # what a person answered to questions of its worker, by question
    acts: bool = False
    """One of its steps may change something."""
    calls: tuple[EarlierCall, ...] = ()
    """Calls of its attempts that changed something, except those among `steps`."""
    earlier: tuple[EarlierCall, ...] = ()
    """Calls that the attempt under way is told of: of attempts before it, and of earlier runs."""
    failed_calls: dict[str, int] | None = None
    """How often a call failed in attempts that are not gone on from, by `call_digest`."""
    failure_before: ev.Failure | None = None
    """What failed before the attempt under way; None: it is the first."""
    refusals: tuple[RefusedCall, ...] = ()
    """Calls that a person did not allow, and that no later call made good."""
    keep: bool = False
    """The next attempt goes on from the finished steps of the last one."""
    gaps_inside: tuple[Gap, ...] = ()
    """Refused calls and effects in doubt of runs inside attempts that were stopped."""
    gaps_waiting: tuple[Gap, ...] = ()
    """The same of a run inside that waits for a person; empty once the attempt goes on."""
    looks: int = 0
    """How often an attempt began with effects that its tools were to look up."""
    handed_on: ev.InputAnswered | None = None  # what a person answered last to a question of the run inside it
    taken: tuple[TaskId, ...] | None = None
    parent: "Progress | None" = None
    index: int = -1
    items_open: int = 0
    items_done: int = 0
    elements: list[Raw] | None = None
    tracing: Tracing | None = None
    missing: ev.Missing | None = None  # what its result leaves out
    refused: tuple[str, ...] = ()  # results that a check did not accept

    @property
    def settled(self) -> bool:
        return self.status in SETTLED

    def add_reader(self, reader: "Progress", need: Need) -> None:
        if self.readers is None:
            self.readers = []
        self.readers.append((reader, need))

    def in_doubt(self) -> bool:
        """Whether an effect was begun and its outcome is not known."""
        for step in (self.steps or {}).values():  # noqa: SIM110 - asked of every attempt, and any() costs more calls
            if step.result is None and step.effect == "effect":
                return True
        return False

    def open_effects(self) -> list[tuple[int, Step]]:
        """Return the effects of which it is not known whether they happened, with their numbers."""
        return [(number, step) for number, step in (self.steps or {}).items() if step.is_open_effect]

    def can_look_up(self) -> bool:
        """Return whether a tool may still tell of an open effect whether it happened."""
        return self.looks < _MOST_LOOKS and any(step.look for _, step in self.open_effects())

    def list_calls(self) -> tuple[EarlierCall, ...]:
        """Return the calls of all attempts that changed something, and those that may have."""
        calls = self.calls
        for step in (self.steps or {}).values():
            calls += step.list_calls(self.task.id)
        return calls

    def list_effects(self) -> dict[str, Raw]:
        """Return the results of all effects that are known to have happened, by request."""
        effects = dict(self.effects or {})
        for step in (self.steps or {}).values():
            if step.kind == "tool" and step.effect == "effect" and step.result is not None and step.good:
                effects[step.request] = step.result
        return effects

    def count_failed_calls(self) -> dict[str, int]:
        """Return how often a call that may change something failed, by `call_digest`."""
        failed = dict(self.failed_calls or {})
        for step in (self.steps or {}).values():
            if step.kind == "tool" and step.effect != "read" and step.result is not None and not step.good:
                digest_of_call = call_digest(step.name, step.decoded_arguments)
                failed[digest_of_call] = failed.get(digest_of_call, 0) + 1
        return failed

    def waits_for_run(self) -> bool:
        """Whether all that it is doing is to wait for a run of its own, which has attempts of its own."""
        running = [step for step in (self.steps or {}).values() if step.result is None]
        return bool(running) and all(step.kind in STARTS_RUN for step in running)

    def running_steps(self) -> tuple[OpenStep, ...]:
        """The steps that were begun and have not ended."""
        steps = (self.steps or {}).values()
        return tuple(dict.fromkeys(OpenStep(step.name, step.kind) for step in steps if step.result is None))


SETTLED = frozenset((Status.DONE, Status.FAILED, Status.SKIPPED, Status.DROPPED))


class SupervisorDuty(Struct, gc=False):
    """A duty of the supervisor: planning or answering. `next` says why it is to be done (again), None: it is not."""

    next: ev.Why | None = None
    number: int = 0
    failures: int = 0
    is_open: bool = False
    redo: bool = False
    timer: Instant = 0.0  # while open: when it is given up; else: not before
    retry: bool = False  # it failed, and when it is tried again is not decided yet
    reserved: Amount = NOTHING
    expected: Amount | None = None
    """What is charged if it is cut off; None: what is reserved."""
    feedback: tuple[ev.Finding, ...] = ()
    failure: ev.Failure | None = None
    """Why it failed, if it did when it was last tried; of the kind `approval`: what the planner asks a person."""
    replies: dict[str, Raw] = {}
    """What a person answered to its questions, by question."""
    recorded: dict[str, tuple[str, ...]] = {}
    """What models replied to calls that are not made again, by the hash of the request, until the work is done."""


class ReadyQueue(Struct):
    """Ready tasks that the same workers may take, most urgent first."""

    candidates: tuple[str, ...]
    heap: list[tuple[float, int]] = []


class RunState(Struct, gc=False):
    requested: ev.RunRequested
    ledger: Ledger
    agents: dict[str, Agent]
    seq: int = 0
    at: Instant = 0.0
    before: Instant = 0.0
    """When the entry before the last one was written."""
    began: Instant = 0.0
    waited: Seconds = 0.0  # how long it stood still or waited for a person, which does not count
    tasks: dict[TaskId, Progress] = {}
    ordered: list[Progress] = []
    combine: Combine = "merge"
    unserved: dict[str, int] = {}  # and the round of planning in which it was said first
    fallback: ev.Failure | None = None  # why no plan could be made, and one worker was given the whole request
    closed: bool = False
    wake: Literal["any", "all"] = "all"
    round: int = 0
    replans: int = 0
    approved: bool = True
    planning: SupervisorDuty = field(default_factory=SupervisorDuty)
    answering: SupervisorDuty = field(default_factory=SupervisorDuty)
    ready_queues: dict[str | Match | None, ReadyQueue] = {}
    timers: list[tuple[Instant, int]] = []
    running: int = 0
    load: dict[str, int] = {}
    carrying: dict[TaskId, None] = {}  # tasks that hold money for nested runs until their attempt is resumed
    breakers: dict[str, Breaker] = {}
    refused: dict[str, TaskId] = {}  # models whose provider refuses every call, and the task that met it first
    failed_pending: dict[TaskId, None] = {}
    unreachable: dict[TaskId, TaskId] = {}
    expandable: dict[TaskId, None] = {}
    joinable: dict[TaskId, None] = {}
    unsettled: int = 0
    items: int = 0  # tasks that came of repeating one over a list
    settled_since_plan: int = 0  # settled since the planner was last asked
    partial: dict[TaskId, None] = {}  # tasks whose results leave something out
    offers: dict[str, tuple[tuple[str, ev.Offer], ...]] = {}
    """Results that may be used again, each by one task: by key, each with the run that offered it."""
    acted: dict[str, tuple[int, EarlierCall]] = {}
    """Calls that changed something and are not repeated unasked by tasks of a later round than the number says, by
    `call_digest`. Those of earlier runs have the round -1.
    """
    acted_in_task: dict[TaskId, tuple[EarlierCall, ...]] = {}
    """Those of earlier runs, by the task that made them."""
    acted_in_vain: dict[int, list[EarlierCall]] = {}
    """Calls of tasks that failed, by the round of the task: a task of a later round stands in for it."""
    replies: dict[str, Raw] = {}
    """What persons answered to questions in words of an earlier nested run, by question."""
    origin: str = ""
    """What idempotency keys begin with; empty: the name of the run."""
    origin_mark: str = ""
    """What tells the run that `origin` names from others of its name."""
    offered_replies: dict[TaskId, dict[str, Raw]] = {}
    """What persons answered to questions in words of earlier runs, by task and question."""
    offered_by: tuple[str, ...] = ()  # the runs that offered results
    is_rerun: bool = False  # another run is done again: its plan may have come of what it found
    asked: int = 0
    asked_at: Instant = 0.0
    input: ev.InputRequested | None = None
    paused: bool = False
    stopping: dict[tuple[TaskId, int], Amount | None] = {}
    """Attempts that were stopped while a run inside them was under way, which is not known to have ended, each with
    what is reserved for that run; None: it was charged when the process died.
    """
    left_runs: dict[tuple[TaskId, int], bool] = {}
    """Attempts that a crash cut off while a run inside them was under way, until they are resumed or the run ends, and
    whether what was reserved for that run was charged.
    """
    stopping_until: Instant = 0.0
    """When it is no longer waited for."""
    released_at: Instant | None = None  # when the process that drove it stopped in an orderly way
    cancel: ev.CancelRequested | None = None
    commands: set[str] = set()  # those that were carried out
    time_up: bool = False
    budget_hit: bool = False  # the budget was too small for something
    cap_reached: CapReached | None = None  # the cap that was too small last, where it is known
    loop: LoopState | None = None
    answer: Raw | None = None
    answer_tracing: Tracing | None = None
    answer_cut: str = ""
    answer_audit: AnswerAudit | None = None
    answer_written: ev.AnswerWritten | None = None
    ended: ev.RunEnded | None = None
    finished_calls: dict[Work, FinishedCalls] = {}
    """The finished model calls of the supervisor's work under way: they are paid, whatever becomes of the work."""
    owing: dict[Work, None] = {}
    touched: list[Work] = []  # owing changed here since the runtime last looked

    @property
    def answer_cost(self) -> Amount:
        """What a call for the answer takes at least; nothing where no model is called for it."""
        is_forwarded = self.combine == "forward" and self.requested.answer_format is None
        return NOTHING if is_forwarded or self.combine == "none" else self.requested.roster.supervision

    def owe(self, work: Work) -> None:
        self.owing[work] = None
        self.touched.append(work)

    def disown(self, work: Work) -> None:
        del self.owing[work]
        self.touched.append(work)


def enqueue(state: RunState, progress: Progress) -> None:
    """Put a task among the ready ones of its queue."""
    progress.status = Status.READY
    key = queue_key(progress)
    queue = state.ready_queues.get(key)
    if queue is None:
        queue = state.ready_queues[key] = ReadyQueue(candidates(state, key))
    heappush(queue.heap, (-progress.rank, progress.order))


def dequeue(state: RunState, progress: Progress) -> None:
    """Take a task out of its queue."""
    key = queue_key(progress)
    queue = state.ready_queues[key]
    queue.heap = [entry for entry in queue.heap if entry[1] != progress.order]
    heapify(queue.heap)
    prune(state, key)


def queue_key(progress: Progress) -> str | Match | None:
    return progress.worker or progress.task.worker or progress.task.match


def candidates(state: RunState, key: str | Match | None) -> tuple[str, ...]:
    """The workers that may take it, in order of preference."""
    if isinstance(key, str):
        return (key,)
    agents = state.requested.roster.agents
    return tuple(agent.name for agent in agents if key is None or fits(key, agent.tags))


def line_of(state: RunState, task: Task) -> tuple[str, ...]:
    """All workers that may ever take a task, in order: those it names, then the fallbacks of the first."""
    workers = candidates(state, task.worker or task.match)
    first = state.agents.get(workers[0]) if workers else None
    return tuple(dict.fromkeys((*workers, *(first.fallbacks if first else ()))))


def _stale(state: RunState, entry: tuple[float, int]) -> bool:
    return state.ordered[entry[1]].status is not Status.READY


def prune(state: RunState, key: str | Match | None) -> None:
    """Drop what is no longer ready from the front of a queue, and the queue when it is empty."""
    queue = state.ready_queues.get(key)
    if queue is None:
        return
    while queue.heap and _stale(state, queue.heap[0]):
        heappop(queue.heap)
    if not queue.heap:
        del state.ready_queues[key]


def urgent_first(state: RunState, queue: ReadyQueue) -> Iterator[tuple[float, int]]:
    """The ready tasks of a queue in order, leaving the heap as it is: O(k log k) for the first k."""
    heap = queue.heap
    front = [(heap[0], 0)] if heap else []
    while front:
        entry, at = heappop(front)
        if not _stale(state, entry):
            yield entry
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(front, (heap[child], child))
