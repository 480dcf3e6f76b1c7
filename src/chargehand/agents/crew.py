"""What the runtime asks of whoever does the work: four verbs, and a hand to record steps with.

How a model or a tool is called is not known here.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from chargehand.core.owed import Brief
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import Effect, Failure
from chargehand.terms.plan import Combine, Task


class Done(Struct, frozen=True):
    """A result. `used` left out means: unknown, charge what was reserved."""

    value: object
    used: Amount | None = None


class Proposal(Struct, frozen=True, gc=False):
    """What a planner adds. An open plan is asked for more when all (or any) of what it has is settled."""

    tasks: tuple[Task, ...]
    combine: Combine | None = None
    closed: bool = True
    wake: Literal["any", "all"] = "all"
    used: Amount | None = None


class Refined(Struct, frozen=True, gc=False):
    instruction: str
    used: Amount | None = None


class WorkFailed(Exception):
    """Raise it to fail a piece of work with a class and a reason; any other exception counts as a logic failure."""

    def __init__(self, failure: Failure, used: Amount | None = None) -> None:
        self.failure = failure
        self.used = used
        super().__init__(failure.message)


class Hand(Protocol):
    """The worker's link to the journal while it works."""

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        request: str = "",
        effect: Effect = "read",
        reserve: Amount = NOTHING,
    ) -> object:
        """Make one call and journal its result before it is used; a recorded call is not made again.

        `call` is given a key that stays the same however often the call is repeated after a crash.
        """
        ...

    async def grow(self, tasks: Sequence[Task]) -> None:
        """While planning: add tasks that may start before the plan is complete."""
        ...

    def note(self, text: str) -> None:
        """Say something worth showing that decides nothing."""
        ...


class Crew(Protocol):
    async def plan(self, brief: Brief, hand: Hand) -> Proposal: ...

    async def attempt(self, brief: Brief, hand: Hand) -> Done: ...

    async def refine(self, brief: Brief, hand: Hand) -> Refined: ...

    async def answer(self, brief: Brief, hand: Hand) -> Done: ...
