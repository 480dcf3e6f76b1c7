"""The executor of runs: four verbs, and the context in which each of them works.

How a model or a tool is called is not known here.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from msgspec import Struct

from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, CapReached
from chargehand.engine.events import AnswerSection, Effect, Failure, FileReference, Missing, NotedFact, StepKind
from chargehand.engine.facts import AnswerAudit, Tracing
from chargehand.engine.failure import EarlierCall, Gap
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Combine, Finding, LoopState, Task, TaskId
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.roster import TeamMembers
from chargehand.engine.state import RunState, Step, TextKind, Work

if TYPE_CHECKING:
    from chargehand.journal.protocol import Journal, RouteExamples
    from chargehand.runtime.load import LoadView, WorkerLoad


Listener: TypeAlias = Callable[[str, Sequence[ev.Entry]], None]
"""Told the name of a run and the entries of it that were just written."""


class HistoryListener(ABC):
    """A listener that must know a run from its first entry on: of a resumed run it is told what was written before."""

    @abstractmethod
    def __call__(self, run: str, entries: Sequence[ev.Entry]) -> None: ...

    @abstractmethod
    def recall(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Take all entries that a run has when it is resumed here, before it goes on."""


class TracingListener(HistoryListener):
    """A listener that makes traces of runs, to which calls of other systems may belong."""

    @abstractmethod
    def traceparent(self, run: str, work: Work, *, step: int = 0, call: int = 0) -> str:
        """The `traceparent` of a step of an attempt, or of a call that is no step; empty: the run is not traced."""


class Done(Struct, frozen=True):
    """A result. `used` left out means: unknown, charge what was reserved. A step that is not `good` had no effect.

    `tracing` says what the figures of a result or an answer rest on. `exit_tool` is the tool after which an attempt
    ended, by a rule `exit_loop`; `missing` is what its result leaves out. Of an answer: `sections` are shown below it,
    `chosen` is the task whose result it is, `judged` says that a judge chose it, `cut` why it is not whole,
    `audit` what was found when it was checked, `calls` are calls of the caller's tools. `acted` are the effects of the
    run that a step started, `files` the ids of pictures and PDFs that a tool returned.
    """

    value: object
    used: Amount | None = None
    good: bool = True
    tracing: Tracing | None = None
    exit_tool: str = ""
    missing: Missing | None = None
    sections: tuple[AnswerSection, ...] = ()
    chosen: TaskId = NO_TASK
    judged: bool = False
    cut: str = ""
    audit: AnswerAudit | None = None
    calls: tuple[ev.CallerToolCall, ...] = ()
    acted: tuple[EarlierCall, ...] = ()
    files: tuple[str, ...] = ()


class ModelTurn(Protocol):
    """The turn of a call, where few calls of its model may be under way at once."""

    def end_turn(self) -> None:
        """Let another call go first."""
        ...

    async def rejoin(self) -> None:
        """Wait for another turn, and claim what the call takes by then."""
        ...


class Claim(Struct):
    """Money for one call: what it wants, and the least it can do with where the budget has no more."""

    wanted: Amount
    least: Amount = NOTHING
    held: Amount = NOTHING
    """What the run holds for it, before the call is made."""
    keeps_floor: bool = False
    """It is not for the answer itself: what the budget keeps back for that stays untouched."""
    turn: ModelTurn | None = None
    """Given up while the call waits for money: what it waits for may be held by one that waits for its turn."""
    expected: Amount | None = None
    """What the call is expected to use, which is charged if it is cut off; None: what is held."""
    resumable: bool = False
    """The call waits for a nested run, which is resumed after a crash with what is held for it."""
    cap: CapReached | None = None
    """The cap that does not cover it, where nothing is held for it."""


class Proposal(Struct, frozen=True, gc=False):
    """What a planner adds. An open plan is asked for more when all (or any) of what it has is settled.

    `unserved` are parts of the request that no worker can do, in words. `loop` is how far a plan has come
    that is made one task at a time.
    """

    tasks: tuple[Task, ...]
    combine: Combine | None = None
    closed: bool = True
    wake: Literal["any", "all"] = "all"
    used: Amount | None = None
    unserved: tuple[str, ...] = ()
    loop: LoopState | None = None


class Refined(Struct, frozen=True, gc=False):
    instruction: str
    used: Amount | None = None


class WorkFailed(Exception):
    """Raise it to fail a piece of work with a class and a reason; any other exception counts as a logic failure.

    `findings` say what is wrong with a proposal: the next try at a plan is told. `refused` identifies a result that a
    check did not accept.
    """

    def __init__(
        self, failure: Failure, used: Amount | None = None, findings: tuple[Finding, ...] = (), refused: str = ""
    ) -> None:
        self.failure = failure
        self.used = used
        self.findings = findings
        self.refused = refused
        super().__init__(failure.message)


class Where(Struct, frozen=True):
    """Where something is done.

    `mark` is another for another run of the same name, in a journal of its own, and the same for a run that does this
    one again.
    `planned`: the run's tasks were planned; else they came with the request.
    """

    run: str
    task: str
    mark: str
    planned: bool
    attempt: int = 0
    """Which attempt of the task; 0 for what the supervisor does."""
    origin: str = ""
    """What idempotency keys begin with: the name of the run, or of the run that it does again."""


class PromptMessage(Protocol):
    """A message to a model, as far as the journal needs to know it. All of it is written as JSON."""

    @property
    def role(self) -> str: ...

    @property
    def text(self) -> str: ...


class RunBounds(Struct, frozen=True):
    """What a run inside another may take."""

    at: Instant
    """The time of the run around it."""
    budget: Budget
    """What its step holds for it."""
    deadline: Instant
    """When it must have ended."""


class NestedRequest(Struct, frozen=True):
    """A run that a step asks for."""

    request: Callable[[RunBounds], ev.RunRequested]
    """Makes the request. Time, money and depth are bounded, and the parent is filled in, by the runtime."""
    kind: ev.NestedKind
    """What the run is for."""
    executor: "Executor | None" = None
    """Who does the work in it; None: the executor of the run around it."""
    offer: "Callable[[Journal, ev.RunRequested], Awaitable[Sequence[ev.Event]]] | None" = None
    """What earlier runs have for a new run of this request."""
    answer: ev.InputAnswered | None = None
    """A person's answer to the question that the run asked last."""
    may_ask: bool = True
    """Whether a person can be asked; if not, a run that waits for one is cancelled."""
    queue: str = ""
    """The queue whose processes drive it, if the runner has a dispatcher; empty: it is driven in this process."""


class NestedRun(Struct, frozen=True):
    """How a run stands that a step started: it has ended, or waits for a person."""

    run: str
    """Its name."""
    state: RunState
    """How it stands."""
    entries: Sequence[ev.Entry]
    """All it wrote."""
    calls: tuple[EarlierCall, ...]
    """Its calls, and those of the runs inside it, that changed something in the world or may have."""
    used: Amount
    """What the step still has to pay for it."""
    lost: Amount = NOTHING
    """The part of `used` that is an estimate, for calls whose outcome is not known."""
    had_all_time: bool = False
    """It had until the end of the run around it; else the time of the worker was shorter."""
    waiting: tuple[Gap, ...] = ()
    """Of a run that waits for a person: its refused calls and its effects in doubt, as gaps of the run around it."""


_Shape = TypeVar("_Shape")


class StepOptions(TypedDict, total=False):
    """The keyword arguments of `StepContext.step` besides `shape`, for contexts that pass them on."""

    kind: StepKind
    request: str
    effect: Effect
    reserve: Amount | Claim
    tool_call: str
    arguments: str
    look: bool


class KeptReply(NamedTuple):
    """A model's reply that is not asked for again when the work it was made for is."""

    request: str
    """A hash of what was asked."""
    text: str
    """What was replied."""


class StepContext(Protocol):
    """All that workers, strategies, tools and checks may ask of the runtime while they work."""

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        shape: type[_Shape] = object,
        tool_call: str = "",
        arguments: str = "",
        look: bool = False,
    ) -> _Shape:
        """Make one call and journal its result before it is used; a recorded call is not made again.

        Args:
            name: the name of the tool, check or team; of other kinds, the kind.
            call: makes the call. It gets the idempotency key, which an equal call of the task has in every attempt.
            kind: what the step does.
            request: what is asked; a recorded result answers the same request only.
            effect: what the call does to the world.
            reserve: the money to hold. Where the budget does not have it, the step waits for what other calls give
                back; a claim can do with less.
            shape: the type that the recorded result is read as.
            tool_call: the id of the call in the reply of the model that asked for it.
            arguments: the arguments of a model's call that may change something, as JSON. Its result has what the
                tool returned under `value`.
            look: the executor can look up whether the effect happened (`Executor.look_up`).
        """
        ...

    async def hold(self, claim: Claim, *, extra: bool = False) -> bool:
        """While planning, refining or answering: hold money for one call; False where the budget does not cover it.

        For one call there is something in any case; an `extra` one leaves that untouched. Who plans or refines leaves
        what the answer takes and the floor, and who plans half of the rest.
        """
        ...

    def release(self, amount: Amount) -> None:
        """What was held for a call and not used: the next one of the same duty may use it."""
        ...

    @property
    def where(self) -> Where: ...

    @property
    def request(self) -> ev.RunRequested:
        """The request of the run."""
        ...

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        """Within the call of a step: start a run, or resume the one it began before a crash, and wait for its end.

        `key` is the one the call was given.
        """
        ...

    async def run_share(self, estimate: Amount, own: Budget) -> Amount:
        """What a step should reserve for the run of a team: its estimate, else a fair share of what is left."""
        ...

    def worker_loads(self) -> "Mapping[str, WorkerLoad]":
        """How busy and how well the workers are, over all runs of the team; empty where the load is not counted."""
        ...

    def expect_work(self, workers: Sequence[str]) -> None:
        """While planning: count a task for each of these workers until the plan is written."""
        ...

    @property
    def route_examples(self) -> "RouteExamples | None":
        """The confirmed examples of the run's team; None for a run of no team."""
        ...

    async def read_file(self, file: str) -> bytes:
        """The bytes of a file that the run was given, by its id; Unknown if it was deleted."""
        ...

    async def keep_file(self, name: str, media_type: str, body: bytes) -> tuple[FileReference, str]:
        """Keep a file that the work came by, beside the runs; what it is found by, and its text if it is a PDF.

        Invalid for one that no model could be shown.
        """
        ...

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        """Journal what a model is first told for this work."""
        ...

    def model_call(self) -> AbstractContextManager[int]:
        """Wrap a call of a model that is no step; the number of the call, for `record_call`."""
        ...

    def record_call(
        self,
        model: str,
        seconds: Seconds,
        tokens: Mapping[str, int],
        used: Amount | None,
        call: int = 0,
        expected: Amount | None = None,
        kept: KeptReply | None = None,
    ) -> None:
        """Journal that a model replied, for what is no step: its tokens and what it cost.

        `tokens` are those it read (`input`) and wrote (`output`), and which part of them is what, by the names in
        `ModelCalled`. `expected` is what the claim for the call expected it to cost. A
        reply that is `kept` is written at once, and `recorded_reply` returns it when the work is done again.
        """
        ...

    def recorded_reply(self, request: str) -> str | None:
        """Take a reply that was kept when this work was begun before, by the hash of the request; None: there is none.

        Each is returned once.
        """
        ...

    @property
    def heard(self) -> bool:
        """Whether text is listened to as it comes; if not, nothing need come piece by piece."""
        ...

    def say(self, text: str, kind: TextKind = "answer", /) -> None:
        """Show a piece of text as it comes; it is not kept."""
        ...

    async def grow(self, tasks: Sequence[Task]) -> None:
        """While planning: add tasks that may start before the plan is complete."""
        ...

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        """Say something worth showing that decides nothing.

        `failure` is what it is about, where something else took over; `fact` is what programs read of it.
        """
        ...


class ContextProxy:
    """A context that passes everything on to another: a subclass says only what is different with it."""

    __slots__ = ("_context",)

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        shape: type[_Shape] = object,
        **options: Unpack[StepOptions],
    ) -> _Shape:
        return await self._context.step(name, call, shape=shape, **options)

    async def hold(self, claim: Claim, *, extra: bool = False) -> bool:
        return await self._context.hold(claim, extra=extra)

    def release(self, amount: Amount) -> None:
        self._context.release(amount)

    @property
    def where(self) -> Where:
        return self._context.where

    @property
    def request(self) -> ev.RunRequested:
        return self._context.request

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        return await self._context.start_run(key, nested)

    async def run_share(self, estimate: Amount, own: Budget) -> Amount:
        return await self._context.run_share(estimate, own)

    def worker_loads(self) -> "Mapping[str, WorkerLoad]":
        return self._context.worker_loads()

    def expect_work(self, workers: Sequence[str]) -> None:
        self._context.expect_work(workers)

    @property
    def route_examples(self) -> "RouteExamples | None":
        return self._context.route_examples

    async def read_file(self, file: str) -> bytes:
        return await self._context.read_file(file)

    async def keep_file(self, name: str, media_type: str, body: bytes) -> tuple[FileReference, str]:
        return await self._context.keep_file(name, media_type, body)

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        self._context.prompt(model, messages, tools)

    def model_call(self) -> AbstractContextManager[int]:
        return self._context.model_call()

    def record_call(
        self,
        model: str,
        seconds: Seconds,
        tokens: Mapping[str, int],
        used: Amount | None,
        call: int = 0,
        expected: Amount | None = None,
        kept: KeptReply | None = None,
    ) -> None:
        self._context.record_call(model, seconds, tokens, used, call, expected, kept)

    def recorded_reply(self, request: str) -> str | None:
        return self._context.recorded_reply(request)

    @property
    def heard(self) -> bool:
        return self._context.heard

    def say(self, text: str, kind: TextKind = "answer", /) -> None:
        self._context.say(text, kind)

    async def grow(self, tasks: Sequence[Task]) -> None:
        await self._context.grow(tasks)

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        self._context.note(text, failure, fact)


class Executor(Protocol):
    """Does the work of runs: four `async def`s. Inherit from it to have the usual answers to the rest."""

    @property
    def members(self) -> TeamMembers | None:
        """Its named workers: only runs that count on no others can be resumed with it. None: all runs."""
        return None

    @property
    def load(self) -> "LoadView | None":
        """Where the load of its workers is counted, over all runs; None: it is not."""
        return None

    @property
    def listeners(self) -> Sequence[Listener]:
        """Who hears every entry of its runs and of the runs inside them, whichever runner drives them."""
        return ()

    def team_of(self, worker: str) -> "Executor | None":  # noqa: ARG002 - most executors have no teams
        """The executor of the team that does the tasks of a worker; None: the worker is no team."""
        return None

    def plan(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]: ...

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]: ...

    def refine(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Refined]: ...

    def answer(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]: ...

    async def look_up(self, brief: Brief, step: Step) -> "Done | None":  # noqa: ARG002 - most executors have no look-ups
        """Ask the tool of an open effect whether it happened.

        Returns:
            The result of the step, or None: it did not happen.

        Raises:
            EffectUnknown: the tool cannot tell.
        """
        raise EffectUnknown


class EffectUnknown(Exception):
    """Nobody but a person can tell whether an effect happened."""


class ExecutorProxy(Executor):
    """An executor that passes everything on to another: a subclass says only what is different with it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def members(self) -> TeamMembers | None:
        return self._executor.members

    @property
    def load(self) -> "LoadView | None":
        return self._executor.load

    @property
    def listeners(self) -> Sequence[Listener]:
        return self._executor.listeners

    def team_of(self, worker: str) -> Executor | None:
        return self._executor.team_of(worker)

    def plan(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        return self._executor.plan(brief, context)

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        return self._executor.attempt(brief, context)

    def refine(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Refined]:
        return self._executor.refine(brief, context)

    def answer(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        return self._executor.answer(brief, context)

    async def look_up(self, brief: Brief, step: Step) -> Done | None:
        return await self._executor.look_up(brief, step)
