"""What the runtime asks of whoever does the work: four verbs, and a hand to record steps with.

How a model or a tool is called is not known here.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import AnswerSection, Effect, Failure, Missing, NotedFact, StepKind
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Combine, Finding, LoopState, Task, TaskId
from chargehand.engine.tracing import AnswerAudit, Tracing
from chargehand.models.messages import Message


class Done(Struct, frozen=True):
    """A result. `used` left out means: unknown, charge what was reserved. A step that is not `good` had no effect.

    `tracing` says what the figures of a result or an answer rest on. `exit_tool` is the tool after which an attempt
    ended, by a rule `exit_loop`; `missing` is what its result leaves out. Of an answer: `sections` are shown below it,
    `chosen` is the task whose result it is, `judged` says that a judge chose it, `cut` why it is not whole,
    `audit` what was found when it was checked.
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


class Claim(ABC):
    """What a call reserves, where it can do with less if the budget has no more."""

    __slots__ = ()

    @property
    @abstractmethod
    def amount(self) -> Amount:
        """What it reserves now."""

    @property
    @abstractmethod
    def ample(self) -> bool:
        """Whether it has so much of what it wants that nothing need be waited for."""

    @abstractmethod
    def reset(self) -> None:
        """Reserve all that is wanted."""

    @abstractmethod
    def fit(self, room: Amount) -> bool:
        """Reserve as much of it as there is room for; False, and nothing changes, where that is too little."""

    @abstractmethod
    async def enter(self) -> None:
        """Wait, before anything is reserved, until one more such call may be under way."""

    @abstractmethod
    def leave(self) -> None:
        """A call that was let in is over, or is not made."""


class Proposal(Struct, frozen=True, gc=False):
    """What a planner adds. An open plan is asked for more when all (or any) of what it has is settled.

    `unserved` are parts of the request that nobody can do anything about, in words. `loop` is how far a plan has come
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

    `findings` say what is wrong with a proposal: whoever plans next is told. `refused` identifies a result that a
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
    """Where something is done. `mark` is another for another run of the same name, in a journal of its own.

    `planned`: somebody planned the run's tasks; else they came with the request.
    """

    run: str
    task: str
    mark: str
    planned: bool


_Shape = TypeVar("_Shape")


class StepContext(Protocol):
    """The worker's link to the journal while it works."""

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        """Make one call and journal its result before it is used; a recorded call is not made again.

        `call` is given a key that stays the same however often the call is repeated after a crash. What comes back is
        read from what was written, as `shape`. With `share` less than `reserve` is held where the budget has no more;
        a claim says itself how much less.
        """
        ...

    async def afford(self, one: Amount, most: int) -> int:
        """While planning or answering: hold money for up to so many more calls; how many of them are covered.

        What one answer costs, and the floor, are never touched; a plan leaves half of the rest to those who work.
        """
        ...

    async def hold(self, claim: Claim, covered: Amount) -> Amount | None:
        """While planning, refining or answering: hold what one call takes beyond what is held for it already.

        The claim is made to fit what there is. Returns what is held for it then, or None where that is too little. Who
        plans or refines leaves what the answer takes and the floor, and who plans half of the rest.
        """
        ...

    def release(self, amount: Amount) -> None:
        """What was held for a call and not used: the next one of the same duty may use it."""
        ...

    @property
    def where(self) -> Where: ...

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None:
        """Journal what a model is first told for this work."""
        ...

    @property
    def heard(self) -> bool:
        """Whether anybody listens to what is said; if not, nothing need come piece by piece."""
        ...

    def say(self, text: str) -> None:
        """Show a piece of text as it comes; it is not kept."""
        ...

    async def grow(self, tasks: Sequence[Task]) -> None:
        """While planning: add tasks that may start before the plan is complete."""
        ...

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        """Say something worth showing that decides nothing.

        `failure` is what it is about, where somebody stood in; `fact` is what programs read of it.
        """
        ...


class Relay:
    """A hand that passes everything on to another: a subclass says only what is different with it."""

    __slots__ = ("_context",)

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        return await self._context.step(
            name, call, kind=kind, request=request, effect=effect, reserve=reserve, share=share, shape=shape
        )

    async def afford(self, one: Amount, most: int) -> int:
        return await self._context.afford(one, most)

    async def hold(self, claim: Claim, covered: Amount) -> Amount | None:
        return await self._context.hold(claim, covered)

    def release(self, amount: Amount) -> None:
        self._context.release(amount)

    @property
    def where(self) -> Where:
        return self._context.where

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None:
        self._context.prompt(model, messages, tools)

    @property
    def heard(self) -> bool:
        return self._context.heard

    def say(self, text: str) -> None:
        self._context.say(text)

    async def grow(self, tasks: Sequence[Task]) -> None:
        await self._context.grow(tasks)

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        self._context.note(text, failure, fact)


class Executor(Protocol):
    """Whoever does the work: four `async def`s."""

    def plan(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]: ...

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]: ...

    def refine(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Refined]: ...

    def answer(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]: ...


@runtime_checkable
class Posted(Protocol):
    """An executor whose workers send messages: it is told who carries them."""

    def bind(self, carrier: Any) -> None: ...
