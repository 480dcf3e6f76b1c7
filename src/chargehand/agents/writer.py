"""The model that writes answers and judges results, and the calls it makes for one answer."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.memory_text import Seen
from chargehand.agents.money import Held, Purse, call_held, hold, total
from chargehand.agents.prompts import Prompts
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Hear, Model
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure


class Writer(Struct, frozen=True):
    """The model that writes answers and judges results."""

    model: Model
    prompts: Prompts
    instructions: str
    settings: Settings
    purse: Purse
    own: Callable[..., object] | None = None
    """A function that answers instead: it is given the goal, results and gaps."""
    reserve: Amount = NOTHING
    """What is held for a call in any case."""
    shared: Callable[[], Awaitable[Sequence[Seen]]] | None = None
    """Reads the blocks that the whole team sees."""


class WriterCalls:
    """The calls for one answer. Each is counted, also one that fails or is given up half-way."""

    def __init__(self, writer: Writer, hand: Hand) -> None:
        self.writer = writer
        self.hand = hand
        self.lost: list[str] = []
        """What of the results the writer did not get to read, in words."""
        self._used: list[Amount | None] = []

    def lose(self, what: str) -> None:
        self.lost.append(what)
        self.hand.note(what)

    async def reserve(self, request: Request, *, is_covered: bool = True, at_most: int = 0) -> Held | None:
        """The call as it may be made, with what it takes held; None where the budget does not cover it."""
        writer = self.writer
        return await hold(
            self.hand, writer.purse, writer.model, request, writer.reserve, covered=is_covered, at_most=at_most
        )

    async def reply(self, held: Held, hear: Hear | None = None) -> Reply:
        """One call, for which money is held, whatever comes back."""
        writer = self.writer
        at = len(self._used)
        # nobody knows what a call costs that is given up before it comes back: what was held for it counts
        self._used.append(held.amount if writer.purse.capped else None)
        try:
            called = await call_held(
                hand=self.hand, purse=writer.purse, model=writer.model, held=held, settings=writer.settings, hear=hear
            )
        except WorkFailed as error:
            self._used[at] = error.used
            raise
        self._used[at] = called.used
        return called.reply

    async def ask(self, held: Held, hear: Hear | None = None) -> Reply:
        """One call that must come back with words."""
        reply = await self.reply(held, hear)
        if not reply.text.strip():
            raise WorkFailed(Failure("logic", f"{self.writer.model.card.handle} answered with nothing"), NOTHING)
        return reply

    def total(self) -> Amount | None:
        """What all of them cost; None where the cost of one is not known."""
        return total(self._used)
